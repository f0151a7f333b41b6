//! The access lock that parks threads.
//!
//! The face of it: one method for each mode and way to ask, and the guards. How waiters wait is in `access_lock_wait`, what the
//! lock's word means in [`bareverbs_core::access`].

use core::fmt;
use std::time::Duration;

use bareverbs_core::access::{AccessRefused, Mode, Phase, Waiting, Word};

use super::access_lock_wait::{ParkQueue, Patience};
use super::parker_system::SystemParker;

/// A three-mode lock that parks threads: **read** (many), **disjoint write** (many, each with a byte range of its own) and
/// **exclusive** (one).
///
/// Four bytes. Uncontended, entering is one compare-exchange and leaving one addition: no allocation, no system call. Once a
/// waiter is registered, what runs before its own phase is the phase in progress, the exclusive waiters registered before it,
/// and at most one phase of each other shared mode; all that wait in the next mode enter together.
///
/// The lock orders accesses to bytes that lie elsewhere and does not vouch for them: a thread that panics with a guard leaves,
/// and nothing is poisoned. Guards can be sent to other threads and dropped there.
///
/// # Recursion
///
/// A thread that holds a guard and waits for another one of the same lock can wait for ever, even if both are for reading: a
/// waiter that came between the two is not overtaken, and itself waits for the first guard to go. Use
/// [`read_recursive`](Self::read_recursive), `try_*` or `*_timeout` there.
///
/// # Interrupts and signal handlers
///
/// In code that preempts a thread, only `try_*` may be used, since a holder, or one that stands before this waiter, may be the
/// very thread that is preempted. The guard must outlive that code: dropping it may wake threads, for which the queue's lock is
/// taken, which the preempted thread may hold. Where that is not possible, use
/// [`SpinAccessLock`](bareverbs_core::access::SpinAccessLock), whose guards may be dropped anywhere.
///
/// ```
/// use std::time::Duration;
///
/// use bareverbs_core::access::AccessRefused;
/// use bareverbs_shell::memory::AccessLock;
///
/// static REGION: AccessLock = AccessLock::new();
///
/// std::thread::scope(|threads| {
///     for range in [0..2048, 2048..4096] {
///         threads.spawn(move || {
///             let _guard = REGION.disjoint()?;
///             // ... write the bytes of `range` ...
///             # let _ = range;
///             Ok::<(), AccessRefused>(())
///         });
///     }
/// });
///
/// let writer = REGION.exclusive();
/// assert_eq!(REGION.try_read().err(), Some(AccessRefused::Busy));
/// let late = REGION.read_timeout(Duration::from_millis(1));
/// assert_eq!(late.err(), Some(AccessRefused::TimedOut));
/// drop(writer);
/// assert!(REGION.read().is_ok());
/// ```
pub struct AccessLock {
    queue: ParkQueue<SystemParker>,
}

impl AccessLock {
    /// A lock that nobody holds.
    #[must_use]
    pub const fn new() -> Self {
        AccessLock { queue: ParkQueue::over(Word::new(), SystemParker) }
    }

    /// Waits for its turn to read.
    ///
    /// A thread that holds a guard of this lock can wait here for ever; see [Recursion](Self#recursion).
    ///
    /// # Errors
    /// [`Full`](AccessRefused::Full).
    #[inline]
    pub fn read(&self) -> Result<ReadGuard<'_>, AccessRefused> {
        self.queue.acquire(Mode::Read, Patience::Endless)?;
        Ok(ReadGuard { lock: self })
    }

    /// Reads, if nobody writes or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn try_read(&self) -> Result<ReadGuard<'_>, AccessRefused> {
        self.queue.try_acquire(Mode::Read)?;
        Ok(ReadGuard { lock: self })
    }

    /// Waits for its turn to read for at most this long.
    ///
    /// # Errors
    /// [`TimedOut`](AccessRefused::TimedOut), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn read_timeout(&self, timeout: Duration) -> Result<ReadGuard<'_>, AccessRefused> {
        self.queue.acquire(Mode::Read, Patience::AtMost(timeout))?;
        Ok(ReadGuard { lock: self })
    }

    /// Joins a running read phase past all waiters, and else waits like [`read`](Self::read). For a thread that reads already.
    ///
    /// # Errors
    /// [`Full`](AccessRefused::Full).
    pub fn read_recursive(&self) -> Result<ReadGuard<'_>, AccessRefused> {
        if self.queue.join_readers() {
            return Ok(ReadGuard { lock: self });
        }
        self.read()
    }

    /// Joins a running read phase past all waiters, or reads if nobody writes or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy), [`Full`](AccessRefused::Full).
    pub fn try_read_recursive(&self) -> Result<ReadGuard<'_>, AccessRefused> {
        if self.queue.join_readers() {
            return Ok(ReadGuard { lock: self });
        }
        self.try_read()
    }

    /// Waits for its turn to write a range that no other disjoint writer touches.
    ///
    /// Can wait for ever in a thread that holds a guard of this lock; see [Recursion](Self#recursion).
    ///
    /// # Errors
    /// [`Full`](AccessRefused::Full).
    #[inline]
    pub fn disjoint(&self) -> Result<DisjointGuard<'_>, AccessRefused> {
        self.queue.acquire(Mode::Disjoint, Patience::Endless)?;
        Ok(DisjointGuard { lock: self })
    }

    /// Writes a range of its own, if nobody reads, writes exclusively, or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn try_disjoint(&self) -> Result<DisjointGuard<'_>, AccessRefused> {
        self.queue.try_acquire(Mode::Disjoint)?;
        Ok(DisjointGuard { lock: self })
    }

    /// Waits for its turn to write a range of its own for at most this long.
    ///
    /// # Errors
    /// [`TimedOut`](AccessRefused::TimedOut), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn disjoint_timeout(&self, timeout: Duration) -> Result<DisjointGuard<'_>, AccessRefused> {
        self.queue.acquire(Mode::Disjoint, Patience::AtMost(timeout))?;
        Ok(DisjointGuard { lock: self })
    }

    /// Waits for its turn to be alone.
    ///
    /// Waits for ever in a thread that holds a guard of this lock; see [Recursion](Self#recursion).
    #[inline]
    pub fn exclusive(&self) -> ExclusiveGuard<'_> {
        self.queue.acquire_exclusive();
        ExclusiveGuard { lock: self }
    }

    /// Is alone, if nobody holds the lock or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy).
    #[inline]
    pub fn try_exclusive(&self) -> Result<ExclusiveGuard<'_>, AccessRefused> {
        self.queue.try_acquire(Mode::Exclusive)?;
        Ok(ExclusiveGuard { lock: self })
    }

    /// Waits for its turn to be alone for at most this long.
    ///
    /// # Errors
    /// [`TimedOut`](AccessRefused::TimedOut).
    #[inline]
    pub fn exclusive_timeout(&self, timeout: Duration) -> Result<ExclusiveGuard<'_>, AccessRefused> {
        self.queue.acquire(Mode::Exclusive, Patience::AtMost(timeout))?;
        Ok(ExclusiveGuard { lock: self })
    }

    /// Who holds the lock: a snapshot for diagnosis, out of date as soon as it is taken.
    pub fn phase(&self) -> Phase {
        self.queue.phase()
    }

    /// How many threads wait: a snapshot for diagnosis, out of date as soon as it is taken.
    pub fn waiting(&self) -> Waiting {
        self.queue.waiting()
    }
}

impl Default for AccessLock {
    fn default() -> Self {
        AccessLock::new()
    }
}

impl fmt::Debug for AccessLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLock").field("phase", &self.phase()).field("waiting", &self.waiting()).finish()
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr) => {
        $(#[$doc])*
        ///
        /// Leaves when it is dropped, also by a panic; forgotten, it holds the lock for ever. It refers to the lock, not to
        /// any byte that the lock orders.
        #[must_use = "the lock is held as long as the guard lives"]
        pub struct $name<'a> {
            lock: &'a AccessLock,
        }

        impl Drop for $name<'_> {
            #[inline]
            fn drop(&mut self) {
                self.lock.queue.leave($mode);
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

guard! {
    /// Holds an [`AccessLock`] in read mode.
    ReadGuard, Mode::Read
}
guard! {
    /// Holds an [`AccessLock`] in disjoint-write mode.
    DisjointGuard, Mode::Disjoint
}
guard! {
    /// Holds an [`AccessLock`] in exclusive mode.
    ExclusiveGuard, Mode::Exclusive
}
