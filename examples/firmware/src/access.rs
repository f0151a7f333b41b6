//! The access lock, between a thread and an interrupt.

use core::sync::atomic::{AtomicU32, Ordering};

use bareverbs_core::access::{AccessRefused, Mode, SpinAccessLock, Word};
use cortex_m::peripheral::SCB;
use cortex_m_rt::exception;

use crate::Check;

pub const CHECKS: &[Check] = &[
    ("readers share, writers of ranges share, an exclusive writer is alone", modes),
    ("an interrupt that asks for a held lock is refused at once, and gets a free one", interrupted),
    ("a waiter with a deadline gives up", deadline),
    ("the lock's word by itself", word),
];

static REGION: SpinAccessLock = SpinAccessLock::new();

fn modes() {
    let (first, second) = (REGION.read(), REGION.read());
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(REGION.try_exclusive().err(), Some(AccessRefused::Busy));
    drop((first, second));
    let (first, second) = (REGION.disjoint(), REGION.disjoint());
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(REGION.try_read().err(), Some(AccessRefused::Busy));
    drop((first, second));
    let _alone = REGION.exclusive();
    assert_eq!(REGION.try_disjoint().err(), Some(AccessRefused::Busy));
}

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicU32 = AtomicU32::new(0);

#[exception]
fn PendSV() {
    // Never a call that waits: the thread below cannot run until this returns.
    if REGION.try_read().is_err() {
        count(&REFUSED);
    }
    count(&INTERRUPTS);
}

/// Loads and stores: interrupts of one priority do not interrupt each other.
fn count(counter: &AtomicU32) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn interrupted() {
    let interrupt = || {
        SCB::set_pendsv();
        cortex_m::asm::dsb();
        cortex_m::asm::isb();
        (INTERRUPTS.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed))
    };
    let writer = REGION.exclusive();
    assert_eq!(interrupt(), (1, 1));
    drop(writer);
    assert_eq!(interrupt(), (2, 1));
    let reader = REGION.read();
    assert_eq!(interrupt(), (3, 1), "readers share, whoever they are");
    drop(reader);
}

fn deadline() {
    let writer = REGION.exclusive();
    let mut looks = 0;
    let late = REGION.read_until(|| {
        looks += 1;
        looks > 100
    });
    assert_eq!(late.err(), Some(AccessRefused::TimedOut));
    drop(writer);
    assert!(REGION.try_read().is_ok(), "who gave up left nothing behind");
}

fn word() {
    let word: Word = Word::new();
    assert_eq!(word.try_enter(Mode::Read), Ok(()));
    assert_eq!(word.try_enter(Mode::Exclusive), Err(AccessRefused::Busy));
    assert!(!word.leave(Mode::Read), "nobody waits");
    assert_eq!(word.try_enter(Mode::Exclusive), Ok(()));
}
