//! What every form of the access lock must do under real threads. A form brings a [`Lock`] and calls [`test_lock`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use bareverbs_core::access::{AccessRefused, Mode, Phase, Waiting};

/// Anything that holds a lock while it lives.
pub trait Held {}
impl<T> Held for T {}

pub type Guard<'a> = Box<dyn Held + 'a>;

/// A form of the access lock.
pub trait Lock: Default + Sync {
    fn enter(&self, mode: Mode) -> Guard<'_>;
    fn try_enter(&self, mode: Mode) -> Result<Guard<'_>, AccessRefused>;
    fn enter_within(&self, mode: Mode, time: Duration) -> Result<Guard<'_>, AccessRefused>;
    fn read_recursive(&self) -> Guard<'_>;
    fn try_read_recursive(&self) -> Result<Guard<'_>, AccessRefused>;
    fn phase(&self) -> Phase;
    fn waiting(&self) -> Waiting;
}

/// Tests a form, a test for each scenario.
macro_rules! test_lock {
    ($lock:ty: $($scenario:ident)*) => {
        $(#[test]
        fn $scenario() {
            scenarios::$scenario::<$lock>();
        })*
    };
}
pub(crate) use test_lock;

const SOON: Duration = Duration::from_secs(5);

/// Waits until `happened`, at most five seconds.
fn until(what: &str, happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < SOON, "{what}: not within {SOON:?}");
        thread::yield_now();
    }
}

/// Waits until so many stand in line behind a holder, and the lock turns away who would overtake them.
fn until_waiting(lock: &impl Lock, count: u32) {
    until("waiters are registered", || lock.waiting().total() == count);
    let running = lock.phase().mode().expect("held");
    until("they are announced", || lock.try_enter(running).is_err());
}

fn assert_idle(lock: &impl Lock) {
    assert_eq!(lock.phase(), Phase::Vacant);
    assert_eq!(lock.waiting(), Waiting::default());
    for mode in Mode::ALL {
        assert!(lock.try_enter(mode).is_ok(), "{mode:?} is refused by an idle lock");
    }
}

/// C2: the second read is refused, times out or joins, according to how it asks; in every run alike.
pub fn c2_a_second_read_while_a_writer_waits_is_never_a_silent_hang<L: Lock>() {
    for _ in 0..1000 {
        let lock = L::default();
        thread::scope(|threads| {
            let outer = lock.enter(Mode::Read);
            threads.spawn(|| drop(lock.enter(Mode::Exclusive)));
            until_waiting(&lock, 1);
            assert_eq!(lock.try_enter(Mode::Read).err(), Some(AccessRefused::Busy));
            let late = lock.enter_within(Mode::Read, Duration::ZERO);
            assert_eq!(late.err(), Some(AccessRefused::TimedOut));
            let inner = lock.read_recursive();
            let tried = lock.try_read_recursive();
            assert_eq!(lock.phase(), Phase::Read(3));
            drop((tried, inner, outer));
        });
        assert_idle(&lock);
    }
}

/// C3: those who overlap without end do not starve one that waits in another mode.
pub fn c3_overlapping_holders_starve_nobody<L: Lock>() {
    let (read, disjoint, exclusive) = (Mode::Read, Mode::Disjoint, Mode::Exclusive);
    for (crowd, waits) in [(read, exclusive), (disjoint, exclusive), (disjoint, read), (read, disjoint)] {
        let (lock, done) = (L::default(), AtomicBool::new(false));
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    while !done.load(SeqCst) {
                        let _guard = lock.enter(crowd);
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            until("the crowd holds", || lock.phase().holders() >= 2);
            for _ in 0..3 {
                let entered = lock.enter_within(waits, SOON).is_ok();
                done.store(!entered, SeqCst);
                assert!(entered, "{waits:?} starved by {crowd:?}");
            }
            done.store(true, SeqCst);
        });
        assert_idle(&lock);
    }
}

/// C4: whoever leaves last wakes the right ones, and all of them.
pub fn c4_the_last_to_leave_lets_all_of_the_next_mode_in_together<L: Lock>() {
    let (read, disjoint, exclusive) = (Mode::Read, Mode::Disjoint, Mode::Exclusive);
    let queues = [
        vec![(read, 3), (disjoint, 2), (exclusive, 1)],
        vec![(exclusive, 1), (disjoint, 2), (read, 3)],
        vec![(disjoint, 2), (exclusive, 1), (read, 3)],
        vec![(disjoint, 3)],
        vec![(read, 3)],
    ];
    for queue in queues {
        for (held, count) in [(exclusive, 1), (read, 4), (disjoint, 1)] {
            let (lock, inside) = (L::default(), [const { AtomicU32::new(0) }; 3]);
            thread::scope(|threads| {
                let mut guards: Vec<_> = (0..count).map(|_| lock.enter(held)).collect();
                let mut waiting = 0;
                // What is like the running phase would join it.
                for (mode, together) in queue.iter().filter(|(mode, _)| *mode != held || !mode.is_shared()) {
                    let inside = &inside[*mode as usize];
                    for _ in 0..*together {
                        let lock = &lock;
                        threads.spawn(move || {
                            let _guard = lock.enter(*mode);
                            assert_eq!(lock.phase().mode(), Some(*mode));
                            inside.fetch_add(1, SeqCst);
                            // Nobody leaves before all are in: so they must be let in together.
                            until("all of a mode are in", || inside.load(SeqCst) == *together);
                        });
                        waiting += 1;
                        until_waiting(lock, waiting);
                    }
                }
                while guards.pop().is_some() {
                    assert!(guards.is_empty() || lock.waiting().total() == waiting, "woken too early");
                }
            });
            assert_idle(&lock);
        }
    }
}

/// The bound of fairness, for every mode in progress and every mode that waits, under a crowd of all modes.
pub fn at_most_one_phase_of_each_other_shared_mode_and_earlier_exclusives_run_before_a_waiter<L: Lock>() {
    for held in Mode::ALL {
        for waits in Mode::ALL {
            let (lock, log, done) = (L::default(), Mutex::new(Vec::new()), AtomicBool::new(false));
            let enter = |who: &'static str, mode| {
                let _guard = lock.enter(mode);
                log.lock().expect("no panic").push((who, mode));
            };
            thread::scope(|threads| {
                let in_progress = lock.enter(held);
                threads.spawn(|| enter("before", Mode::Exclusive));
                until_waiting(&lock, 1);
                threads.spawn(|| {
                    enter("waiter", waits);
                    done.store(true, SeqCst);
                });
                until_waiting(&lock, 2);
                for mode in Mode::ALL.into_iter().cycle().take(6) {
                    let (enter, done) = (&enter, &done);
                    threads.spawn(move || {
                        while !done.load(SeqCst) {
                            enter("crowd", mode);
                        }
                    });
                }
                until_waiting(&lock, 8);
                drop(in_progress);
            });
            assert_bound(&log.into_inner().expect("no panic"), waits);
            assert_idle(&lock);
        }
    }
}

fn assert_bound(log: &[(&str, Mode)], waits: Mode) {
    let at = log.iter().position(|entry| entry.0 == "waiter").expect("it entered");
    let mut phases: Vec<(&str, Mode)> = log[..=at].to_vec();
    // Those who enter one after the other in a shared mode are one phase, the waiter's own included.
    phases.dedup_by(|next, last| next.1 == last.1 && next.1.is_shared());
    let before = &phases[..phases.len() - 1];
    let of = |mode| before.iter().filter(move |phase| phase.1 == mode).count();
    assert!(before.iter().all(|phase| phase.1.is_shared() || phase.0 == "before"), "{log:?}");
    for shared in [Mode::Read, Mode::Disjoint] {
        assert!(of(shared) <= usize::from(shared != waits), "{shared:?} before {waits:?}: {log:?}");
    }
}

/// One that gives up leaves the lock as if it had never asked, and those behind it join the phase that runs.
pub fn whoever_waited_behind_one_that_timed_out_joins_the_phase_that_runs<L: Lock>() {
    for mode in [Mode::Read, Mode::Disjoint] {
        let lock = L::default();
        thread::scope(|threads| {
            let _running = lock.enter(mode);
            let impatient = threads.spawn(|| lock.enter_within(Mode::Exclusive, Duration::from_millis(300)).err());
            until_waiting(&lock, 1);
            let behind = threads.spawn(|| drop(lock.enter(mode)));
            assert_eq!(impatient.join().expect("no panic"), Some(AccessRefused::TimedOut));
            until("it joins", || behind.is_finished());
            assert_eq!(lock.phase().holders(), 1);
            assert!(lock.try_enter(mode).is_ok(), "a flag was left behind");
        });
        assert_idle(&lock);
    }
}

/// Each mode against each: `try` and a timeout refuse, and change nothing.
pub fn what_is_refused_changes_nothing<L: Lock>() {
    for held in Mode::ALL {
        for asked in Mode::ALL {
            let lock = L::default();
            let guard = lock.enter(held);
            let before = lock.phase();
            let (tried, timed) = if held == asked && held.is_shared() {
                (None, None)
            } else {
                (Some(AccessRefused::Busy), Some(AccessRefused::TimedOut))
            };
            assert_eq!(lock.try_enter(asked).err(), tried);
            assert_eq!(lock.enter_within(asked, Duration::from_millis(1)).err(), timed);
            assert_eq!((lock.phase(), lock.waiting()), (before, Waiting::default()));
            assert_eq!(lock.try_read_recursive().is_ok(), held == Mode::Read);
            drop(guard);
            assert_idle(&lock);
        }
    }
}

/// C5 without its growth part: a panic with a guard held is an error of that thread, and nothing else.
pub fn c5_a_panic_with_a_guard_held_leaves_the_lock_and_does_not_poison_it<L: Lock>() {
    for held in Mode::ALL {
        for waits in Mode::ALL {
            let (lock, go) = (L::default(), AtomicBool::new(false));
            thread::scope(|threads| {
                let unlucky = threads.spawn(|| {
                    let _guard = lock.enter(held);
                    until("the waiter is there", || go.load(SeqCst));
                    // Like a panic, but without its message.
                    std::panic::resume_unwind(Box::new("with a guard held"));
                });
                until("it is held", || lock.phase().mode() == Some(held));
                let waiter = threads.spawn(|| drop(lock.enter(waits)));
                if held != waits || !held.is_shared() {
                    until_waiting(&lock, 1);
                }
                go.store(true, SeqCst);
                assert!(unlucky.join().is_err());
                assert!(waiter.join().is_ok());
            });
            assert_idle(&lock);
        }
    }
}

/// One thread of a queue: it enters when it is let in, says so, and stays until told to leave.
struct Staying<'a, L: Lock> {
    lock: &'a L,
    entered: &'a AtomicU32,
    leave: &'a AtomicU32,
}

impl<L: Lock> Staying<'_, L> {
    /// The thread of number `number` (from 0) leaves once more than that many may.
    fn stay(&self, mode: Mode, number: u32) {
        let _guard = self.lock.enter(mode);
        assert_eq!(self.lock.phase().mode(), Some(mode));
        self.entered.fetch_or(1 << number, SeqCst);
        until("it may leave", || self.leave.load(SeqCst) > number);
    }
}

/// What waits behind others of its mode enters with them, and past those of other modes alone: the whole of a queue, in order.
pub fn a_batch_takes_its_mode_from_everywhere_in_the_queue_and_nobody_else<L: Lock>() {
    let (read, disjoint, exclusive) = (Mode::Read, Mode::Disjoint, Mode::Exclusive);
    // Each queue, and who is in together, phase by phase.
    let queues: [(&[Mode], &[u32]); 4] = [
        (&[read, disjoint, read, disjoint, exclusive], &[0b00101, 0b01010, 0b10000]),
        (&[disjoint, read, exclusive, read, disjoint], &[0b10001, 0b01010, 0b00100]),
        (&[read, disjoint, read, exclusive], &[0b0101, 0b0010, 0b1000]),
        (&[exclusive, disjoint, read, exclusive, disjoint], &[0b00001, 0b10010, 0b00100, 0b01000]),
    ];
    for (queue, phases) in queues {
        let (lock, entered, leave) = (L::default(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|threads| {
            let held = lock.enter(exclusive);
            for (number, mode) in queue.iter().enumerate() {
                // Who enters together leaves together.
                let phase = phases.iter().position(|who| who & (1 << number) != 0).expect("each enters") as u32;
                let (lock, entered, leave) = (&lock, &entered, &leave);
                threads.spawn(move || {
                    let _guard = lock.enter(*mode);
                    entered.fetch_or(1 << number, SeqCst);
                    until("it may leave", || leave.load(SeqCst) > phase);
                });
                until_waiting(lock, number as u32 + 1);
            }
            drop(held);
            let mut all = 0;
            for (phase, who) in phases.iter().enumerate() {
                all |= who;
                until("the phase has begun", || entered.load(SeqCst) == all);
                // Nobody is in who is not yet to be: the count says so, too.
                assert_eq!(lock.phase().holders(), who.count_ones(), "{queue:?} phase {phase}");
                assert_eq!(lock.waiting().total(), queue.len() as u32 - all.count_ones());
                leave.store(phase as u32 + 1, SeqCst);
            }
        });
        assert_idle(&lock);
    }
}

/// One that gives up from within the queue lets nobody past those that stand before it.
pub fn one_that_times_out_behind_a_waiter_lets_nobody_past_it<L: Lock>() {
    for (running, other) in [(Mode::Read, Mode::Disjoint), (Mode::Disjoint, Mode::Read)] {
        for gives_up in [other, Mode::Exclusive] {
            let (lock, entered, leave) = (L::default(), AtomicU32::new(0), AtomicU32::new(0));
            let staying = Staying { lock: &lock, entered: &entered, leave: &leave };
            thread::scope(|threads| {
                let held = lock.enter(running);
                threads.spawn(|| staying.stay(Mode::Exclusive, 0));
                until_waiting(&lock, 1);
                threads.spawn(|| staying.stay(running, 1));
                until_waiting(&lock, 2);
                let refused = lock.enter_within(gives_up, Duration::from_millis(5)).err();
                assert_eq!(refused, Some(AccessRefused::TimedOut));
                // The handover is over: whoever it had let in would be counted.
                assert_eq!(
                    (lock.phase().holders(), lock.waiting().total()),
                    (1, 2),
                    "one came past the exclusive waiter"
                );
                drop(held);
                until("the exclusive one is in", || entered.load(SeqCst) == 0b01);
                assert_eq!((lock.phase(), lock.waiting().total()), (Phase::Exclusive, 1));
                leave.store(1, SeqCst);
                until("and then the other", || entered.load(SeqCst) == 0b11);
                leave.store(2, SeqCst);
            });
            assert_idle(&lock);
        }
    }
}

/// Nothing but the phase in progress, and at most one of each other shared mode, stands before a waiter: every pairing, with a
/// crowd that keeps coming and nobody exclusive before it.
pub fn a_waiter_comes_after_the_phase_in_progress_and_one_of_each_other_shared_mode<L: Lock>() {
    for held in Mode::ALL {
        for waits in Mode::ALL.into_iter().filter(|mode| *mode != held || !mode.is_shared()) {
            for crowd in [&[held][..], &Mode::ALL[..]] {
                let (lock, log, done) = (L::default(), Mutex::new(Vec::new()), AtomicBool::new(false));
                let enter = |who: &'static str, mode| {
                    let _guard = lock.enter(mode);
                    log.lock().expect("no panic").push((who, mode));
                };
                thread::scope(|threads| {
                    let in_progress = lock.enter(held);
                    threads.spawn(|| {
                        enter("waiter", waits);
                        done.store(true, SeqCst);
                    });
                    until_waiting(&lock, 1);
                    for mode in crowd.iter().cycle().take(6) {
                        let (enter, done) = (&enter, &done);
                        threads.spawn(move || {
                            while !done.load(SeqCst) {
                                enter("crowd", *mode);
                            }
                        });
                    }
                    until_waiting(&lock, 7);
                    assert_eq!(lock.phase().mode(), Some(held), "who came later joined the phase in progress");
                    drop(in_progress);
                });
                assert_bound(&log.into_inner().expect("no panic"), waits);
                assert_idle(&lock);
            }
        }
    }
}

/// Readers and disjoint writers take turns without end, and in each phase one asks to be alone and gives up. Whoever then waits
/// to be alone is in the line, and comes after the phase in progress and the one that stands before it.
pub fn those_that_gave_up_starve_nobody_who_waits_to_be_alone<L: Lock>() {
    const GIVE_UP: u32 = 9;
    let turn = |number: u32| if number.is_multiple_of(2) { Mode::Read } else { Mode::Disjoint };
    let (lock, entered, leave) = (L::default(), AtomicU32::new(0), AtomicU32::new(0));
    let (alone, staying) = (AtomicBool::new(false), Staying { lock: &lock, entered: &entered, leave: &leave });
    thread::scope(|threads| {
        let staying = &staying;
        let waits_in = |number: u32| match turn(number) {
            Mode::Read => lock.waiting().read,
            _ => lock.waiting().disjoint,
        };
        threads.spawn(move || staying.stay(turn(0), 0));
        until("the first is in", || entered.load(SeqCst) == 1);
        threads.spawn(move || staying.stay(turn(1), 1));
        until_waiting(&lock, 1);
        for number in 2..2 + GIVE_UP {
            let impatient = threads.spawn(|| lock.enter_within(Mode::Exclusive, Duration::from_millis(100)).err());
            until("it stands there", || lock.waiting().exclusive == 1 || impatient.is_finished());
            threads.spawn(move || staying.stay(turn(number), number));
            until("the next stands behind it", || waits_in(number) == 1);
            assert_eq!(impatient.join().expect("no panic"), Some(AccessRefused::TimedOut));
            // The phase ends, and the other mode's begins.
            leave.fetch_add(1, SeqCst);
            until("the next phase runs", || entered.load(SeqCst) >> (number - 1) == 1);
        }
        threads.spawn(|| {
            let _guard = lock.enter(Mode::Exclusive);
            alone.store(true, SeqCst);
        });
        until("it has a place", || lock.waiting().exclusive == 1);
        let last = GIVE_UP + 2;
        threads.spawn(move || staying.stay(turn(last), last));
        until("the next stands behind it", || waits_in(last) == 1);
        // What stands before it, and no more.
        leave.store(GIVE_UP + 1, SeqCst);
        until("the one before it is in", || entered.load(SeqCst) >> (GIVE_UP + 1) == 1);
        assert!(!alone.load(SeqCst));
        leave.store(GIVE_UP + 2, SeqCst);
        until("it is alone", || alone.load(SeqCst));
        leave.store(u32::MAX, SeqCst);
    });
    assert_idle(&lock);
}
