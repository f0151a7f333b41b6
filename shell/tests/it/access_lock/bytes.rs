//! C6: bytes that threads write under both forms of the lock, and use through another handle while a guard goes.
//!
//! # Safety
//!
//! The buffer is reached through a raw pointer alone. A thread writes bytes only while it holds the lock, and only its own
//! range in disjoint mode; whether that suffices is what is tested (also under a sanitizer).
#![allow(unsafe_code)]

use std::thread;

use bareverbs_core::access::relax::RelaxStrategy;
use bareverbs_core::access::{Mode, SpinAccessLock};
use bareverbs_shell::memory::AccessLock;

const THREADS: usize = 7;
const OWN: usize = 8;
const ROUNDS: u8 = 100;

/// 56 bytes that threads share.
struct Bytes(*mut [u8; THREADS * OWN]);

// SAFETY: each access says by which lock it is ordered.
unsafe impl Send for Bytes {}
// SAFETY: likewise.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn new() -> Self {
        Bytes(Box::into_raw(Box::new([0; THREADS * OWN])))
    }

    /// Writes `value` over a thread's own bytes.
    ///
    /// # Safety
    /// 1. Nobody else reads or writes them meanwhile.
    unsafe fn fill(&self, thread: usize, value: u8) {
        let start = self.0.cast::<u8>().wrapping_add(thread * OWN);
        // SAFETY: the thread's bytes lie in the buffer; 1. is the caller's.
        unsafe { start.write_bytes(value, OWN) };
    }

    /// Adds one to the first byte, without wrapping check.
    ///
    /// # Safety
    /// 1. Nobody else reads or writes it meanwhile.
    unsafe fn count(&self) {
        let first = self.0.cast::<u8>();
        // SAFETY: it lies in the buffer; 1. is the caller's.
        let value = unsafe { first.read() };
        // SAFETY: likewise.
        unsafe { first.write(value.wrapping_add(1)) };
    }

    /// All bytes.
    ///
    /// # Safety
    /// 1. Nobody writes any meanwhile.
    unsafe fn all(&self) -> [u8; THREADS * OWN] {
        // SAFETY: it is the buffer; 1. is the caller's.
        unsafe { self.0.read() }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, freed once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Takes and drops guards of a form of the lock.
trait Form: Sync {
    fn with(&self, mode: Mode, then: impl FnOnce());
}

/// By value, into a call: where a guard that held a reference into the bytes would claim them once more.
fn drop_by_value<T>(guard: T) {
    drop(guard);
}

impl Form for AccessLock {
    fn with(&self, mode: Mode, then: impl FnOnce()) {
        match mode {
            Mode::Read => {
                let guard = self.read().expect("room");
                then();
                drop_by_value(guard);
            }
            Mode::Disjoint => {
                let guard = self.disjoint().expect("room");
                then();
                drop_by_value(guard);
            }
            Mode::Exclusive => {
                let guard = self.exclusive();
                then();
                drop_by_value(guard);
            }
        }
    }
}

impl Form for SpinAccessLock<Yield> {
    fn with(&self, mode: Mode, then: impl FnOnce()) {
        match mode {
            Mode::Read => {
                let guard = self.read().expect("room");
                then();
                drop_by_value(guard);
            }
            Mode::Disjoint => {
                let guard = self.disjoint().expect("room");
                then();
                drop_by_value(guard);
            }
            Mode::Exclusive => {
                let guard = self.exclusive();
                then();
                drop_by_value(guard);
            }
        }
    }
}

/// Gives up its time slice between two looks.
struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        thread::yield_now();
    }
}

fn c6(lock: &impl Form) {
    let bytes = Bytes::new();
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let bytes = &bytes;
            threads.spawn(move || {
                for round in 1..=ROUNDS {
                    // SAFETY: 1. disjoint writers, each with the bytes of its own number.
                    lock.with(Mode::Disjoint, || unsafe { bytes.fill(thread, round) });
                    if round % 10 == 0 {
                        // SAFETY: 1. who writes does so in another mode.
                        let all = || assert!(unsafe { bytes.all() }[thread * OWN] == round);
                        lock.with(Mode::Read, all);
                    }
                }
            });
        }
    });
    // SAFETY: 1. all threads have ended.
    assert_eq!(unsafe { bytes.all() }, [ROUNDS; THREADS * OWN]);

    thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                for _ in 0..ROUNDS {
                    // SAFETY: 1. alone.
                    lock.with(Mode::Exclusive, || unsafe { bytes.count() });
                }
            });
        }
    });
    let counted = ROUNDS.wrapping_mul(THREADS as u8).wrapping_add(ROUNDS);
    // SAFETY: 1. all threads have ended.
    assert_eq!(unsafe { bytes.all() }[0], counted);
}

#[test]
fn c6_disjoint_writers_and_then_exclusive_ones_lose_no_byte_when_they_park() {
    c6(&AccessLock::new());
}

#[test]
fn c6_disjoint_writers_and_then_exclusive_ones_lose_no_byte_when_they_spin() {
    c6(&SpinAccessLock::<Yield>::new());
}
