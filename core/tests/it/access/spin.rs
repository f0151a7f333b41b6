//! The spinning form under threads.

use std::thread;
use std::time::{Duration, Instant};

use bareverbs_core::access::relax::RelaxStrategy;
use bareverbs_core::access::{AccessRefused, Mode, Phase, SpinAccessLock, Waiting};

use super::scenarios::{self, Guard, Lock, test_lock};

/// Gives up its time slice between two looks, so that tests do not burn it.
pub struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        thread::yield_now();
    }
}

impl Lock for SpinAccessLock<Yield> {
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
        let start = Instant::now();
        let expired = || start.elapsed() >= time;
        Ok(match mode {
            Mode::Read => Box::new(self.read_until(expired)?),
            Mode::Disjoint => Box::new(self.disjoint_until(expired)?),
            Mode::Exclusive => Box::new(self.exclusive_until(expired)?),
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

test_lock! { SpinAccessLock<Yield>:
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
fn waiters_beyond_the_places_of_the_line_get_in_too() {
    let lock: SpinAccessLock<Yield> = SpinAccessLock::new();
    thread::scope(|threads| {
        let guard = lock.exclusive();
        for mode in Mode::ALL.into_iter().cycle().take(36) {
            let lock = &lock;
            threads.spawn(move || drop(lock.enter(mode)));
        }
        thread::sleep(Duration::from_millis(20));
        drop(guard);
    });
    assert_eq!((lock.phase(), lock.waiting()), (Phase::Vacant, Waiting::default()));
}

#[test]
fn a_guard_can_be_dropped_by_another_thread() {
    let lock: SpinAccessLock = SpinAccessLock::new();
    let guard = lock.exclusive();
    thread::scope(|threads| {
        threads.spawn(move || drop(guard));
    });
    assert!(lock.try_exclusive().is_ok());
}

#[test]
fn a_lock_is_two_words_and_a_guard_one_pointer() {
    assert_eq!(size_of::<SpinAccessLock>(), 8);
    let lock: SpinAccessLock = SpinAccessLock::new();
    assert_eq!(size_of_val(&lock.exclusive()), size_of::<usize>());
}

#[test]
fn a_panic_while_waiting_leaves_the_line_in_every_mode() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    for waiting in Mode::ALL {
        let lock: SpinAccessLock = SpinAccessLock::new();
        let held = lock.exclusive();
        let wait = AssertUnwindSafe(|| match waiting {
            Mode::Read => drop(lock.read_until(|| panic!("the caller's clock"))),
            Mode::Disjoint => drop(lock.disjoint_until(|| panic!("the caller's clock"))),
            Mode::Exclusive => drop(lock.exclusive_until(|| panic!("the caller's clock"))),
        });
        assert!(catch_unwind(wait).is_err());
        assert_eq!(lock.waiting().total(), 0, "{waiting:?} still stands in the line");
        drop(held);
        drop(lock.try_exclusive().expect("nobody holds it"));
        drop(lock.try_read().expect("nobody holds it"));
    }
}

#[test]
fn a_panic_of_a_waiter_that_was_called_meanwhile_leaves_the_lock() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    for waiting in Mode::ALL {
        let lock: SpinAccessLock = SpinAccessLock::new();
        let mut held = Some(lock.exclusive());
        // The holder goes while the waiter asks its clock: the waiter is called, and then panics.
        let mut clock = || -> bool {
            drop(held.take());
            panic!("the caller's clock")
        };
        let wait = AssertUnwindSafe(|| match waiting {
            Mode::Read => drop(lock.read_until(&mut clock)),
            Mode::Disjoint => drop(lock.disjoint_until(&mut clock)),
            Mode::Exclusive => drop(lock.exclusive_until(&mut clock)),
        });
        assert!(catch_unwind(wait).is_err());
        drop(lock.try_exclusive().expect("nobody holds it"));
        assert_eq!(lock.waiting().total(), 0);
    }
}
