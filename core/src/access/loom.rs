//! Every interleaving of a few threads on the spinning form, and one lock broken on purpose.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p bareverbs-core --lib loom`
//!
//! Bytes are stood for by loom's cells, which fail when two accesses are not ordered; nothing is read through them.
//!
//! Two kinds of model. In those about *ordering*, a waiter yields and looks again; one waits at a time, since loom follows two
//! that spin in turns without end. In those about *waiting*, a waiter that found its turn not come sleeps until a word changes;
//! so a lost wake-up is a deadlock, which loom reports. Their atomics always give the newest value.

extern crate std;

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::AtomicU32;
use loom::thread::{self, Thread, ThreadId};
use spin::RelaxStrategy;

use super::atomic::AtomicWord;
use super::mode::{Mode, Phase, Waiting};
use super::spin::SpinAccessLock;

impl AtomicWord for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        // Failing for no reason adds nothing but branches.
        self.compare_exchange(current, new, success, failure)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_sub(value, order)
    }
}

/// An atomic that forgets that leaving is a release.
#[derive(Default)]
struct LeavesRelaxed(AtomicU32);

impl AtomicWord for LeavesRelaxed {
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, success, failure)
    }

    fn fetch_sub(&self, value: u32, _: Ordering) -> u32 {
        self.0.fetch_sub(value, Ordering::Relaxed)
    }
}

/// Looks again when the others have had a chance.
struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        thread::yield_now();
    }
}

/// An atomic whose changes wake those who sleep, and whose newest value is always seen.
#[derive(Default)]
struct Watched(AtomicU32);

/// Sleeps until a watched atomic changes, if none has since the last look.
struct Sleep;

// Loom runs a model's threads in turns on one thread of the system, so these are shared by them and by no other model.
std::thread_local! {
    static CHANGES: Cell<u64> = const { Cell::new(0) };
    /// How many changes there had been at a thread's first look since it last slept or might have.
    static LOOKED_SINCE: RefCell<HashMap<ThreadId, u64>> = RefCell::default();
    static SLEEPERS: RefCell<Vec<Thread>> = RefCell::default();
}

impl RelaxStrategy for Sleep {
    fn relax() {
        let me = thread::current();
        let first_look = LOOKED_SINCE.with_borrow_mut(|since| since.remove(&me.id()));
        if first_look == Some(CHANGES.get()) {
            SLEEPERS.with_borrow_mut(|sleepers| sleepers.push(me));
            thread::park();
        }
    }
}

impl Watched {
    fn changed(before: u32, after: u32) {
        if before != after {
            CHANGES.set(CHANGES.get() + 1);
            SLEEPERS.take().iter().for_each(Thread::unpark);
        }
    }
}

impl AtomicWord for Watched {
    fn load(&self, _: Ordering) -> u32 {
        let now = CHANGES.get();
        LOOKED_SINCE.with_borrow_mut(|since| *since.entry(thread::current().id()).or_insert(now));
        self.0.fetch_add(0, Ordering::AcqRel)
    }

    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        let before = self.0.compare_exchange(current, new, success, failure)?;
        Watched::changed(before, new);
        Ok(before)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        let before = self.0.fetch_sub(value, order);
        Watched::changed(before, before.wrapping_sub(value));
        before
    }
}

/// A lock and the bytes it orders: a range for each of three disjoint writers.
struct Region<R: RelaxStrategy, A: AtomicWord> {
    lock: SpinAccessLock<R, A>,
    ranges: [UnsafeCell<u32>; 3],
}

impl<R: RelaxStrategy, A: AtomicWord + Default> Region<R, A> {
    fn new() -> Arc<Self> {
        Arc::new(Region {
            lock: SpinAccessLock::default(),
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
        match mode {
            Mode::Read => {
                let _guard = self.lock.read();
                self.touch(mode, range);
            }
            Mode::Disjoint => {
                let _guard = self.lock.disjoint();
                self.touch(mode, range);
            }
            Mode::Exclusive => {
                let _guard = self.lock.exclusive();
                self.touch(mode, range);
            }
        }
    }

    /// Holds it unless the first look finds the turn not come.
    fn hold_or_give_up(&self, mode: Mode, range: usize) {
        match mode {
            Mode::Read => {
                let _ = self.lock.read_until(|| true).map(|_guard| self.touch(mode, range));
            }
            Mode::Disjoint => {
                let _ = self.lock.disjoint_until(|| true).map(|_guard| self.touch(mode, range));
            }
            Mode::Exclusive => {
                let _ = self.lock.exclusive_until(|| true).map(|_guard| self.touch(mode, range));
            }
        }
    }

    /// Holds it if that takes no waiting.
    fn try_hold(&self, mode: Mode, range: usize) {
        match mode {
            Mode::Read => {
                let _ = self.lock.try_read().map(|_guard| self.touch(mode, range));
            }
            Mode::Disjoint => {
                let _ = self.lock.try_disjoint().map(|_guard| self.touch(mode, range));
            }
            Mode::Exclusive => {
                let _ = self.lock.try_exclusive().map(|_guard| self.touch(mode, range));
            }
        }
    }

    fn assert_idle(&self) {
        assert_eq!(self.lock.phase(), Phase::Vacant);
        assert_eq!(self.lock.waiting(), Waiting::default());
        assert!(self.lock.try_exclusive().is_ok(), "a flag was left behind");
    }
}

/// How often a model of three threads switches away from one that could go on.
const PREEMPTIONS_OF_THREE: usize = 3;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn pairs() -> Vec<(Mode, Mode)> {
    let pair = |one| Mode::ALL.into_iter().map(move |other| (one, other));
    Mode::ALL.into_iter().flat_map(pair).collect()
}

/// Orders as the machine may.
type Ordered = Region<Yield, AtomicU32>;
/// Sleeps where a spinning thread would spin.
type Slept = Region<Sleep, Watched>;

#[test]
fn two_threads_of_any_modes_are_ordered() {
    for (one, other) in pairs() {
        check(4, move || {
            let region = Ordered::new();
            let theirs = Arc::clone(&region);
            let thread = thread::spawn(move || theirs.hold(other, 1));
            region.hold(one, 0);
            thread.join().expect("no panic");
            region.assert_idle();
        });
    }
}

#[test]
fn a_waiter_sees_what_every_one_of_several_leavers_did() {
    for (held, waits) in pairs() {
        check(3, move || {
            let region = Ordered::new();
            let (waiter, guest) = (Arc::clone(&region), Arc::clone(&region));
            let waiter = thread::spawn(move || waiter.hold(waits, 2));
            let guest = thread::spawn(move || guest.try_hold(held, 1));
            region.try_hold(held, 0);
            waiter.join().expect("no panic");
            guest.join().expect("no panic");
            region.assert_idle();
        });
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn leaving_without_a_release_is_caught() {
    check(4, || {
        let region = Region::<Yield, LeavesRelaxed>::new();
        let theirs = Arc::clone(&region);
        let thread = thread::spawn(move || theirs.hold(Mode::Exclusive, 0));
        region.hold(Mode::Exclusive, 0);
        thread.join().expect("no panic");
    });
}

#[test]
fn waiters_of_any_two_modes_behind_a_holder_of_any_get_in() {
    for held in Mode::ALL {
        for (one, other) in pairs() {
            check(PREEMPTIONS_OF_THREE, move || {
                let region = Slept::new();
                let (first, second) = (Arc::clone(&region), Arc::clone(&region));
                let first = thread::spawn(move || first.hold(one, 0));
                let second = thread::spawn(move || second.hold(other, 1));
                region.hold(held, 2);
                first.join().expect("no panic");
                second.join().expect("no panic");
                region.assert_idle();
            });
        }
    }
}

#[test]
fn a_waiter_that_gives_up_strands_nobody() {
    for held in Mode::ALL {
        for (impatient, patient) in pairs() {
            check(PREEMPTIONS_OF_THREE, move || {
                let region = Slept::new();
                let (first, second) = (Arc::clone(&region), Arc::clone(&region));
                let first = thread::spawn(move || first.hold_or_give_up(impatient, 0));
                let second = thread::spawn(move || second.hold(patient, 1));
                region.hold(held, 2);
                first.join().expect("no panic");
                second.join().expect("no panic");
                region.assert_idle();
            });
        }
    }
}

#[test]
fn those_behind_one_that_gives_up_join_the_phase_that_runs() {
    for mode in [Mode::Read, Mode::Disjoint] {
        check(PREEMPTIONS_OF_THREE, move || {
            let region = Slept::new();
            let (writer, second) = (Arc::clone(&region), Arc::clone(&region));
            let writer = thread::spawn(move || writer.hold_or_give_up(Mode::Exclusive, 0));
            let guards = (
                (mode == Mode::Read).then(|| region.lock.read().expect("room")),
                (mode == Mode::Disjoint).then(|| region.lock.disjoint().expect("room")),
            );
            let second = thread::spawn(move || second.hold(mode, 1));
            // Held until the second was in: it must not wait for the first to leave.
            second.join().expect("no panic");
            writer.join().expect("no panic");
            // Nor must the word go on saying that somebody waits.
            assert!(region.lock.try_read().is_ok() == (mode == Mode::Read));
            assert!(region.lock.try_disjoint().is_ok() == (mode == Mode::Disjoint));
            drop(guards);
            region.assert_idle();
        });
    }
}

#[test]
fn c2_a_recursive_read_passes_a_waiting_writer() {
    check(4, || {
        let region = Slept::new();
        let writer = Arc::clone(&region);
        let outer = region.lock.read().expect("room");
        let writer = thread::spawn(move || writer.hold(Mode::Exclusive, 0));
        let inner = region.lock.read_recursive().expect("room");
        region.touch(Mode::Read, 0);
        drop((outer, inner));
        writer.join().expect("no panic");
        region.assert_idle();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn c2_a_second_read_behind_a_waiting_writer_waits_for_ever() {
    check(4, || {
        let region = Slept::new();
        let writer = Arc::clone(&region);
        let outer = region.lock.read().expect("room");
        let writer = thread::spawn(move || writer.hold(Mode::Exclusive, 0));
        let inner = region.lock.read().expect("room");
        drop((outer, inner));
        writer.join().expect("no panic");
    });
}
