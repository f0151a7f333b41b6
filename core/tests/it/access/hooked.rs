//! The spinning form over an atomic of the test's: what uncontended pairs cost, and what happens between two steps.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use bareverbs_core::access::relax::RelaxStrategy;
use bareverbs_core::access::{AccessRefused, AtomicWord, MAX_HOLDERS, Mode, Phase, SpinAccessLock, Waiting};

use super::spin::Yield;

/// How often each operation was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Operations {
    loads: u32,
    compare_exchanges: u32,
    subtractions: u32,
}

thread_local! {
    static DONE: Cell<Operations> = const { Cell::new(Operations { loads: 0, compare_exchanges: 0, subtractions: 0 }) };
    /// Done right after the next compare-exchange that succeeds.
    static NEXT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// An atomic that counts what is done to it.
#[derive(Default)]
struct Hooked(AtomicU32);

fn count(add: impl FnOnce(&mut Operations)) {
    let mut done = DONE.get();
    add(&mut done);
    DONE.set(done);
}

impl AtomicWord for Hooked {
    fn load(&self, order: Ordering) -> u32 {
        count(|done| done.loads += 1);
        self.0.load(order)
    }

    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        count(|done| done.compare_exchanges += 1);
        let found = self.0.compare_exchange(current, new, success, failure);
        let next = if found.is_ok() { NEXT.take() } else { None };
        if let Some(next) = next {
            next();
        }
        found
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        count(|done| done.subtractions += 1);
        self.0.fetch_sub(value, order)
    }
}

type HookedLock = SpinAccessLock<Yield, Hooked>;

/// What `work` does to atomics.
fn operations(work: impl FnOnce()) -> Operations {
    DONE.set(Operations::default());
    work();
    DONE.get()
}

/// Enters by `ask`, and leaves: what each takes.
fn pair<G>(ask: impl FnOnce() -> G) -> [Operations; 2] {
    let mut guard = None;
    let enters = operations(|| guard = Some(ask()));
    [enters, operations(|| drop(guard))]
}

#[test]
fn entering_an_idle_lock_is_one_compare_exchange_and_leaving_it_one_atomic_operation() {
    let lock = HookedLock::default();
    let pairs = [
        (Mode::Read, pair(|| lock.read().expect("room"))),
        (Mode::Read, pair(|| lock.try_read().expect("idle"))),
        (Mode::Read, pair(|| lock.read_until(|| true).expect("idle"))),
        (Mode::Disjoint, pair(|| lock.disjoint().expect("room"))),
        (Mode::Disjoint, pair(|| lock.try_disjoint().expect("idle"))),
        (Mode::Disjoint, pair(|| lock.disjoint_until(|| true).expect("idle"))),
        (Mode::Exclusive, pair(|| lock.exclusive())),
        (Mode::Exclusive, pair(|| lock.try_exclusive().expect("idle"))),
        (Mode::Exclusive, pair(|| lock.exclusive_until(|| true).expect("idle"))),
    ];
    for (mode, [enters, leaves]) in pairs {
        // A shared mode looks what the count is, before it adds one.
        let loads = u32::from(mode.is_shared());
        assert_eq!(enters, Operations { loads, compare_exchanges: 1, subtractions: 0 }, "{mode:?}");
        assert_eq!(leaves, Operations { subtractions: 1, ..Operations::default() }, "{mode:?}");
    }
    // As one of several, too.
    let (_reader, more) = (lock.read().expect("room"), pair(|| lock.read().expect("room")));
    assert_eq!(more[0], Operations { loads: 1, compare_exchanges: 1, subtractions: 0 });
    assert_eq!(more[1], Operations { subtractions: 1, ..Operations::default() });
}

/// A lock that as many leaked readers hold as can be counted but one.
fn almost_full() -> &'static HookedLock {
    let lock: &'static HookedLock = Box::leak(Box::default());
    for _ in 1..MAX_HOLDERS {
        std::mem::forget(lock.read().expect("below the limit"));
    }
    lock
}

fn leak_the_last(lock: &HookedLock) {
    std::mem::forget(lock.read_recursive().expect("one is free"));
    assert_eq!(lock.phase(), Phase::Read(MAX_HOLDERS));
}

const FULL: AccessRefused = AccessRefused::Full { limit: MAX_HOLDERS };

#[test]
fn a_reader_that_finds_the_count_full_once_it_has_a_place_gives_the_place_up() {
    let lock = almost_full();
    let mut asked = false;
    let exclusive = lock.exclusive_until(|| {
        // Somebody waits, so this reader takes a place; and as it has it, the count becomes full.
        NEXT.set(Some(Box::new(move || leak_the_last(lock))));
        assert_eq!(lock.read().err(), Some(FULL));
        assert_eq!(lock.waiting(), Waiting { read: 0, disjoint: 0, exclusive: 1 });
        asked = true;
        true
    });
    assert_eq!(exclusive.err(), Some(AccessRefused::TimedOut));
    assert!(asked);
    assert_eq!((lock.phase(), lock.waiting()), (Phase::Read(MAX_HOLDERS), Waiting::default()));
}

#[test]
fn a_reader_that_waits_already_when_the_count_becomes_full_waits_as_long_as_it_said() {
    let lock = almost_full();
    let (mut looks, mut waited) = (0, None);
    let exclusive = lock.exclusive_until(|| {
        let reader = lock.read_until(|| {
            looks += 1;
            if looks == 1 {
                leak_the_last(lock);
            }
            looks > 3
        });
        waited = reader.err();
        true
    });
    assert_eq!(exclusive.err(), Some(AccessRefused::TimedOut));
    assert_eq!((waited, looks), (Some(AccessRefused::TimedOut), 4));
    assert_eq!((lock.phase(), lock.waiting()), (Phase::Read(MAX_HOLDERS), Waiting::default()));
    // Who arrives is refused.
    assert_eq!(lock.read().err(), Some(FULL));
}

/// A way to relax that panics.
struct Panics;

impl RelaxStrategy for Panics {
    fn relax() {
        // Like a panic, but without its message.
        std::panic::resume_unwind(Box::new("while relaxing"));
    }
}

#[test]
fn a_panic_of_the_way_to_relax_leaves_the_line_in_every_mode() {
    for waiting in Mode::ALL {
        let lock: SpinAccessLock<Panics> = SpinAccessLock::new();
        let held = lock.exclusive();
        let wait = AssertUnwindSafe(|| match waiting {
            Mode::Read => drop(lock.read()),
            Mode::Disjoint => drop(lock.disjoint()),
            Mode::Exclusive => drop(lock.exclusive()),
        });
        assert!(catch_unwind(wait).is_err());
        assert_eq!(lock.waiting(), Waiting::default(), "{waiting:?} still stands in the line");
        drop(held);
        drop(lock.try_exclusive().expect("nobody holds it"));
        drop(lock.try_read().expect("no flag was left behind"));
    }
}
