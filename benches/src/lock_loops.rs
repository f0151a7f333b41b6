//! Uncontended pairs of enter and leave: our locks, `parking_lot`'s, and the twin that a mutex and a condition variable make.

use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bareverbs_core::access::SpinAccessLock;
use bareverbs_shell::memory::AccessLock;
use parking_lot::RwLock;

/// Something that can be held in three modes. Entering and leaving are one call each way: the guard is dropped inside.
pub trait ThreeModes: Default + Sync {
    /// Enters for reading, does `inside`, leaves.
    fn read<R>(&self, inside: impl FnOnce() -> R) -> Option<R>;
    /// Enters for disjoint writing, does `inside`, leaves.
    fn disjoint<R>(&self, inside: impl FnOnce() -> R) -> Option<R>;
    /// Enters alone, does `inside`, leaves.
    fn exclusive<R>(&self, inside: impl FnOnce() -> R) -> Option<R>;
}

impl ThreeModes for SpinAccessLock {
    #[inline]
    fn read<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = SpinAccessLock::read(self).ok()?;
        Some(inside())
    }

    #[inline]
    fn disjoint<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = SpinAccessLock::disjoint(self).ok()?;
        Some(inside())
    }

    #[inline]
    fn exclusive<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = SpinAccessLock::exclusive(self);
        Some(inside())
    }
}

impl ThreeModes for AccessLock {
    #[inline]
    fn read<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = AccessLock::read(self).ok()?;
        Some(inside())
    }

    #[inline]
    fn disjoint<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = AccessLock::disjoint(self).ok()?;
        Some(inside())
    }

    #[inline]
    fn exclusive<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = AccessLock::exclusive(self);
        Some(inside())
    }
}

/// It has no disjoint writers: their place is taken by its readers, the only ones that it lets in together.
impl ThreeModes for RwLock<()> {
    #[inline]
    fn read<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = RwLock::read(self);
        Some(inside())
    }

    #[inline]
    fn disjoint<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        ThreeModes::read(self, inside)
    }

    #[inline]
    fn exclusive<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.write();
        Some(inside())
    }
}

/// The same three modes from a mutex and a condition variable: the obvious way, without fairness.
#[derive(Debug, Default)]
pub struct CondvarLock {
    holders: Mutex<Holders>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Holders {
    /// Readers count up, disjoint writers down; an exclusive one is [`ALONE`].
    count: i32,
    waiting: u32,
}

const ALONE: i32 = i32::MAX;

impl CondvarLock {
    #[inline]
    fn enter(&self, may: impl Fn(i32) -> bool, enter: impl Fn(i32) -> i32) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        while !may(holders.count) {
            holders.waiting += 1;
            holders = self.changed.wait(holders).unwrap_or_else(PoisonError::into_inner);
            holders.waiting -= 1;
        }
        holders.count = enter(holders.count);
    }

    #[inline]
    fn leave(&self, leave: impl Fn(i32) -> i32) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.count = leave(holders.count);
        let wake = holders.count == 0 && holders.waiting > 0;
        drop(holders);
        if wake {
            self.changed.notify_all();
        }
    }
}

impl ThreeModes for CondvarLock {
    #[inline]
    fn read<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        self.enter(|count| (0..ALONE - 1).contains(&count), |count| count + 1);
        let result = inside();
        self.leave(|count| count - 1);
        Some(result)
    }

    #[inline]
    fn disjoint<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        self.enter(|count| count <= 0 && count > i32::MIN, |count| count - 1);
        let result = inside();
        self.leave(|count| count + 1);
        Some(result)
    }

    #[inline]
    fn exclusive<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        self.enter(|count| count == 0, |_| ALONE);
        let result = inside();
        self.leave(|_| 0);
        Some(result)
    }
}

/// `n` times: enters for reading and leaves; answers how often it got in.
#[inline(never)]
pub fn read_pairs<L: ThreeModes>(lock: &L, n: u64) -> u64 {
    (0..n).map(|_| u64::from(lock.read(|| ()).is_some())).sum()
}

/// `n` times: enters for disjoint writing and leaves; answers how often it got in.
#[inline(never)]
pub fn disjoint_pairs<L: ThreeModes>(lock: &L, n: u64) -> u64 {
    (0..n).map(|_| u64::from(lock.disjoint(|| ()).is_some())).sum()
}

/// `n` times: enters alone and leaves; answers how often it got in.
#[inline(never)]
pub fn exclusive_pairs<L: ThreeModes>(lock: &L, n: u64) -> u64 {
    (0..n).map(|_| u64::from(lock.exclusive(|| ()).is_some())).sum()
}

/// The time in which two threads do `n` pairs each on one lock: the longer of theirs.
///
/// # Panics
/// If one does not get in.
pub fn two_threads<L: ThreeModes>(lock: &L, pairs: fn(&L, u64) -> u64, n: u64) -> Duration {
    let together = Barrier::new(2);
    thread::scope(|scope| {
        let threads = [(); 2].map(|()| {
            scope.spawn(|| {
                together.wait();
                let start = Instant::now();
                assert_eq!(pairs(lock, n), n, "all got in");
                start.elapsed()
            })
        });
        threads.map(|thread| thread.join().expect("a thread that pairs")).into_iter().max().unwrap_or_default()
    })
}
