//! The access lock that parks threads. It passes the scenarios of every form, which stand with `core`'s tests.

mod bytes;
#[path = "../../../../core/tests/it/access/scenarios.rs"]
mod scenarios;

use std::thread;
use std::time::Duration;

use bareverbs_core::access::{AccessRefused, MAX_HOLDERS, Mode, Phase, Waiting};
use bareverbs_shell::memory::AccessLock;

use scenarios::{Guard, Lock, test_lock};

impl Lock for AccessLock {
    fn enter(&self, mode: Mode) -> Guard<'_> {
        match mode {
            Mode::Read => Box::new(self.read().expect("room")),
            Mode::Disjoint => Box::new(self.disjoint().expect("room")),
            Mode::Exclusive => Box::new(self.exclusive()),
        }
    }

    fn try_enter(&self, mode: Mode) -> Result<Guard<'_>, AccessRefused> {
        Ok(match mode {
            Mode::Read => Box::new(self.try_read()?),
            Mode::Disjoint => Box::new(self.try_disjoint()?),
            Mode::Exclusive => Box::new(self.try_exclusive()?),
        })
    }

    fn enter_within(&self, mode: Mode, time: Duration) -> Result<Guard<'_>, AccessRefused> {
        Ok(match mode {
            Mode::Read => Box::new(self.read_timeout(time)?),
            Mode::Disjoint => Box::new(self.disjoint_timeout(time)?),
            Mode::Exclusive => Box::new(self.exclusive_timeout(time)?),
        })
    }

    fn read_recursive(&self) -> Guard<'_> {
        Box::new(self.read_recursive().expect("room"))
    }

    fn try_read_recursive(&self) -> Result<Guard<'_>, AccessRefused> {
        Ok(Box::new(self.try_read_recursive()?))
    }

    fn phase(&self) -> Phase {
        self.phase()
    }

    fn waiting(&self) -> Waiting {
        self.waiting()
    }
}

test_lock! { AccessLock:
    c2_a_second_read_while_a_writer_waits_is_never_a_silent_hang
    c3_overlapping_holders_starve_nobody
    c4_the_last_to_leave_lets_all_of_the_next_mode_in_together
    c5_a_panic_with_a_guard_held_leaves_the_lock_and_does_not_poison_it
    at_most_one_phase_of_each_other_shared_mode_and_earlier_exclusives_run_before_a_waiter
    whoever_waited_behind_one_that_timed_out_joins_the_phase_that_runs
    what_is_refused_changes_nothing
    a_batch_takes_its_mode_from_everywhere_in_the_queue_and_nobody_else
    one_that_times_out_behind_a_waiter_lets_nobody_past_it
    a_waiter_comes_after_the_phase_in_progress_and_one_of_each_other_shared_mode
    those_that_gave_up_starve_nobody_who_waits_to_be_alone
}

#[test]
fn leaked_guards_fill_the_count_and_the_next_is_refused_in_every_way_to_ask() {
    let refused = AccessRefused::Full { limit: MAX_HOLDERS };
    let lock = AccessLock::new();
    for _ in 0..MAX_HOLDERS {
        std::mem::forget(lock.read().expect("below the limit"));
    }
    assert_eq!(lock.read().err(), Some(refused));
    assert_eq!(lock.try_read().err(), Some(refused));
    assert_eq!(lock.read_timeout(Duration::ZERO).err(), Some(refused));
    assert_eq!(lock.read_recursive().err(), Some(refused));
    assert_eq!(lock.try_read_recursive().err(), Some(refused));
    assert_eq!(lock.phase(), Phase::Read(MAX_HOLDERS));
    // The other modes find it held for ever; nothing has spilled into another field.
    assert_eq!(lock.try_disjoint().err(), Some(AccessRefused::Busy));
    assert_eq!(lock.exclusive_timeout(Duration::ZERO).err(), Some(AccessRefused::TimedOut));
    assert_eq!((lock.phase(), lock.waiting()), (Phase::Read(MAX_HOLDERS), Waiting::default()));

    let lock = AccessLock::new();
    for _ in 0..MAX_HOLDERS {
        std::mem::forget(lock.disjoint().expect("below the limit"));
    }
    assert_eq!(lock.disjoint().err(), Some(refused));
    assert_eq!(lock.try_disjoint().err(), Some(refused));
    assert_eq!(lock.disjoint_timeout(Duration::ZERO).err(), Some(refused));
    assert_eq!(lock.phase(), Phase::Disjoint(MAX_HOLDERS));
}

#[test]
fn more_threads_wait_than_any_fixed_queue_would_hold_and_all_get_in() {
    let lock = AccessLock::new();
    thread::scope(|threads| {
        let guard = lock.exclusive();
        for mode in Mode::ALL.into_iter().cycle().take(96) {
            let lock = &lock;
            threads.spawn(move || drop(lock.enter(mode)));
        }
        while lock.waiting().total() < 96 {
            thread::yield_now();
        }
        let each = Waiting { read: 32, disjoint: 32, exclusive: 32 };
        assert_eq!(lock.waiting(), each);
        drop(guard);
    });
    assert_eq!((lock.phase(), lock.waiting()), (Phase::Vacant, Waiting::default()));
}

#[test]
fn a_time_beyond_the_end_of_the_clock_is_waited_out_like_none() {
    let lock = AccessLock::new();
    thread::scope(|threads| {
        let guard = lock.exclusive();
        let reader = threads.spawn(|| lock.read_timeout(Duration::MAX).is_ok());
        while lock.waiting().read == 0 {
            thread::yield_now();
        }
        drop(guard);
        assert!(reader.join().expect("no panic"));
    });
}

#[test]
fn a_guard_can_be_dropped_by_another_thread() {
    let lock = AccessLock::new();
    let guard = lock.exclusive();
    thread::scope(|threads| {
        threads.spawn(move || drop(guard));
    });
    assert!(lock.try_exclusive().is_ok());
}

#[test]
fn a_lock_is_one_word_and_a_guard_one_pointer() {
    assert_eq!(size_of::<AccessLock>(), 4);
    let lock = AccessLock::new();
    assert_eq!(size_of_val(&lock.exclusive()), size_of::<usize>());
}
