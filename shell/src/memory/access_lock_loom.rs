//! Every interleaving of a few threads on the parking form, and one lock broken on purpose.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p bareverbs-shell --lib loom`
//!
//! Atomics and the parker are loom's; so this shows the lock, and not `parking_lot_core`. A lost wake-up is a deadlock, which
//! loom reports. Bytes are stood for by loom's cells, which fail when two accesses are not ordered; nothing is read through
//! them.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bareverbs_core::access::{AtomicWord, Batch, Entry, Mode, Phase, Waiting, Word};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Mutex;
use loom::sync::atomic::AtomicU32;
use loom::thread::{self, Thread, ThreadId};

use super::access_lock_wait::{ParkQueue, Patience};
use super::parker::{Choice, Parked, Parker, left, let_in};

/// An atomic of loom's.
#[derive(Default)]
struct Ordered(AtomicU32);

/// An atomic that forgets that leaving is a release.
#[derive(Default)]
struct LeavesRelaxed(Ordered);

impl AtomicWord for Ordered {
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        // Failing for no reason adds nothing but branches.
        self.0.compare_exchange(current, new, success, failure)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_sub(value, order)
    }
}

impl AtomicWord for LeavesRelaxed {
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        self.0.compare_exchange_weak(current, new, success, failure)
    }

    fn fetch_sub(&self, value: u32, _: Ordering) -> u32 {
        self.0.fetch_sub(value, Ordering::Relaxed)
    }
}

/// A queue of loom's threads.
struct LoomParker<A> {
    queue: Mutex<Vec<(Mode, Thread)>>,
    atomic: PhantomData<fn() -> A>,
}

impl<A> LoomParker<A> {
    fn new() -> Self {
        LoomParker { queue: Mutex::new(Vec::new()), atomic: PhantomData }
    }

    fn with_queue<T>(&self, then: impl FnOnce(&mut Vec<(Mode, Thread)>) -> T) -> T {
        then(&mut self.queue.lock().expect("no panic under the queue's lock"))
    }

    fn is_queued(&self, me: ThreadId) -> bool {
        self.with_queue(|queue| queue.iter().any(|(_, thread)| thread.id() == me))
    }
}

impl<A: AtomicWord> Parker for LoomParker<A> {
    type Atomic = A;

    fn park(&self, word: &Word<A>, mode: Mode, deadline: Option<Instant>) -> Parked {
        let me = thread::current();
        let id = me.id();
        let entry = self.with_queue(|queue| {
            let entry = word.enter_or_announce(mode);
            if entry == Entry::Waits {
                queue.push((mode, me));
            }
            entry
        });
        if entry != Entry::Waits {
            return Parked::Not(entry);
        }
        if deadline.is_some() {
            // It passes at once, which is any time, since the other threads may do anything before this.
            return self.with_queue(|queue| match queue.iter().position(|(_, thread)| thread.id() == id) {
                Some(at) => {
                    queue.remove(at);
                    Parked::TimedOut
                }
                None => Parked::LetIn,
            });
        }
        while self.is_queued(id) {
            thread::park();
        }
        Parked::LetIn
    }

    fn hand_over(&self, word: &Word<A>) {
        let woken = self.with_queue(|queue| {
            let (mut batch, mut stopped, mut woken) = (Batch::new(), false, Vec::new());
            queue.retain(|(mode, thread)| {
                let choice = if stopped { Choice::Stop } else { let_in(word, &mut batch, *mode) };
                stopped = choice == Choice::Stop;
                if choice == Choice::Wake {
                    woken.push(thread.clone());
                }
                choice != Choice::Wake
            });
            word.note_waiters(left(!queue.is_empty()));
            woken
        });
        woken.iter().for_each(Thread::unpark);
    }

    fn waiting(&self, _: &Word<A>) -> Waiting {
        let mut waiting = Waiting::default();
        self.with_queue(|queue| queue.iter().for_each(|(mode, _)| waiting.add(*mode)));
        waiting
    }

    fn pause(&self, _: u32) -> bool {
        false
    }
}

/// A lock and the bytes it orders: a range for each of three disjoint writers.
struct Region<A: AtomicWord> {
    lock: ParkQueue<LoomParker<A>>,
    ranges: [UnsafeCell<u32>; 3],
}

impl<A: AtomicWord + Default> Region<A> {
    fn new() -> Arc<Self> {
        Arc::new(Region {
            lock: ParkQueue::over(Word::default(), LoomParker::new()),
            ranges: [UnsafeCell::new(0), UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// Touches what one may touch that holds the lock in this mode, as the writer of this range.
    fn touch(&self, mode: Mode, range: usize) {
        match mode {
            Mode::Read => self.ranges.iter().for_each(|range| range.with(|_| ())),
            Mode::Disjoint => self.ranges[range].with_mut(|_| ()),
            Mode::Exclusive => self.ranges.iter().for_each(|range| range.with_mut(|_| ())),
        }
    }

    fn hold(&self, mode: Mode, range: usize) {
        self.lock.acquire(mode, Patience::Endless).expect("room");
        self.touch(mode, range);
        self.lock.leave(mode);
    }

    fn hold_or_give_up(&self, mode: Mode, range: usize) {
        if self.lock.acquire(mode, Patience::AtMost(Duration::ZERO)).is_ok() {
            self.touch(mode, range);
            self.lock.leave(mode);
        }
    }

    fn assert_idle(&self) {
        assert_eq!(self.lock.phase(), Phase::Vacant);
        assert_eq!(self.lock.waiting(), Waiting::default());
        assert!(self.lock.try_acquire(Mode::Exclusive).is_ok(), "a flag was left behind");
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn pairs() -> Vec<(Mode, Mode)> {
    let pair = |one| Mode::ALL.into_iter().map(move |other| (one, other));
    Mode::ALL.into_iter().flat_map(pair).collect()
}

/// Runs `first` and `second` beside a holder in each mode.
fn beside_holders(first: fn(&Region<Ordered>, Mode), second: fn(&Region<Ordered>, Mode)) {
    for held in Mode::ALL {
        for (one, other) in pairs() {
            check(2, move || {
                let region = Region::<Ordered>::new();
                let (a, b) = (Arc::clone(&region), Arc::clone(&region));
                let a = thread::spawn(move || first(&a, one));
                let b = thread::spawn(move || second(&b, other));
                region.hold(held, 2);
                a.join().expect("no panic");
                b.join().expect("no panic");
                region.assert_idle();
            });
        }
    }
}

#[test]
fn waiters_of_any_two_modes_behind_a_holder_of_any_get_in() {
    beside_holders(|region, mode| region.hold(mode, 0), |region, mode| region.hold(mode, 1));
}

#[test]
fn a_waiter_that_gives_up_strands_nobody() {
    beside_holders(|region, mode| region.hold_or_give_up(mode, 0), |region, mode| region.hold(mode, 1));
}

#[test]
fn those_behind_one_that_gives_up_join_the_phase_that_runs() {
    for mode in [Mode::Read, Mode::Disjoint] {
        check(3, move || {
            let region = Region::<Ordered>::new();
            let (writer, second) = (Arc::clone(&region), Arc::clone(&region));
            let writer = thread::spawn(move || writer.hold_or_give_up(Mode::Exclusive, 0));
            region.lock.acquire(mode, Patience::Endless).expect("room");
            let second = thread::spawn(move || second.hold(mode, 1));
            // Held until the second was in: it must not wait for the first to leave.
            second.join().expect("no panic");
            writer.join().expect("no panic");
            // Nor must the word go on saying that somebody waits.
            assert_eq!(region.lock.try_acquire(mode), Ok(()));
            region.lock.leave(mode);
            region.lock.leave(mode);
            region.assert_idle();
        });
    }
}

#[test]
fn c2_a_recursive_read_passes_a_waiting_writer() {
    check(4, || {
        let region = Region::<Ordered>::new();
        let writer = Arc::clone(&region);
        region.lock.acquire(Mode::Read, Patience::Endless).expect("room");
        let writer = thread::spawn(move || writer.hold(Mode::Exclusive, 0));
        assert!(region.lock.join_readers());
        region.touch(Mode::Read, 0);
        region.lock.leave(Mode::Read);
        region.lock.leave(Mode::Read);
        writer.join().expect("no panic");
        region.assert_idle();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn c2_a_second_read_behind_a_waiting_writer_waits_for_ever() {
    check(4, || {
        let region = Region::<Ordered>::new();
        let writer = Arc::clone(&region);
        region.lock.acquire(Mode::Read, Patience::Endless).expect("room");
        let writer = thread::spawn(move || writer.hold(Mode::Exclusive, 0));
        region.hold(Mode::Read, 0);
        region.lock.leave(Mode::Read);
        writer.join().expect("no panic");
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn leaving_without_a_release_is_caught() {
    check(4, || {
        let region = Region::<LeavesRelaxed>::new();
        let theirs = Arc::clone(&region);
        let thread = thread::spawn(move || theirs.hold(Mode::Exclusive, 0));
        region.hold(Mode::Exclusive, 0);
        thread.join().expect("no panic");
    });
}
