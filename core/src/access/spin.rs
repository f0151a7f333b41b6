//! The access lock that waits by spinning.
//!
//! The face of it: one method for each mode and way to ask, and the guards. How waiters wait is in `spin_wait`.

use core::fmt;
use core::sync::atomic::AtomicU32;

use spin::{RelaxStrategy, relax::Spin};

use super::atomic::AtomicWord;
use super::mode::{AccessRefused, Mode, Phase, Waiting};
use super::spin_wait::SpinQueue;

/// A three-mode lock that waits by spinning, with [`RelaxStrategy`] `R` between two looks.
///
/// What it promises is said in the [module](super): fair in phases, no poison, recursion, interrupts. It needs no memory but
/// its own two words: one for those that hold it, and one for the line of those that wait. Up to
/// [`MAX_SHARED_PLACES`](super::MAX_SHARED_PLACES) readers (63), as many disjoint writers, and
/// [`MAX_EXCLUSIVE_PLACES`](super::MAX_EXCLUSIVE_PLACES) exclusive ones (7) stand in its line at a time. The bound on what runs
/// before a waiter is for those that have a place, from the moment they have said so in the word; who finds none spins until
/// one comes free. Places of those that gave up come free as the phases change, so none is lost however many give up.
///
/// The atomic `A` is there for model checkers.
///
/// ```
/// use bareverbs_core::access::{AccessRefused, SpinAccessLock};
///
/// static REGION: SpinAccessLock = SpinAccessLock::new();
///
/// let first = REGION.disjoint()?;
/// let second = REGION.disjoint()?; // another range, another writer
/// assert_eq!(REGION.try_read().err(), Some(AccessRefused::Busy));
/// drop((first, second));
///
/// let mut looks = 0;
/// let writer = REGION.exclusive();
/// let late = REGION.read_until(|| {
///     looks += 1;
///     looks > 100 // or: a cycle counter has passed a deadline
/// });
/// assert_eq!(late.err(), Some(AccessRefused::TimedOut));
/// drop(writer);
/// assert!(REGION.try_read().is_ok());
/// # Ok::<(), AccessRefused>(())
/// ```
pub struct SpinAccessLock<R = Spin, A = AtomicU32> {
    queue: SpinQueue<R, A>,
}

impl<R> SpinAccessLock<R> {
    /// A lock that nobody holds.
    #[must_use]
    pub const fn new() -> Self {
        SpinAccessLock { queue: SpinQueue::new() }
    }
}

impl<R, A: Default> Default for SpinAccessLock<R, A> {
    fn default() -> Self {
        SpinAccessLock { queue: SpinQueue::default() }
    }
}

impl<R: RelaxStrategy, A: AtomicWord> SpinAccessLock<R, A> {
    /// Waits for its turn to read.
    ///
    /// A thread that holds a guard of this lock can wait here for ever; see [Recursion](super#recursion) and
    /// [`read_recursive`](Self::read_recursive). Never call it in an interrupt.
    ///
    /// # Errors
    /// [`Full`](AccessRefused::Full).
    #[inline]
    pub fn read(&self) -> Result<SpinReadGuard<'_, R, A>, AccessRefused> {
        self.read_until(never)
    }

    /// Reads, if nobody writes or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn try_read(&self) -> Result<SpinReadGuard<'_, R, A>, AccessRefused> {
        self.queue.word.try_enter(Mode::Read)?;
        Ok(SpinReadGuard { lock: self })
    }

    /// Waits for its turn to read until `expired` says so; it is asked after each look that finds the turn not come.
    ///
    /// # Errors
    /// [`TimedOut`](AccessRefused::TimedOut), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn read_until(&self, expired: impl FnMut() -> bool) -> Result<SpinReadGuard<'_, R, A>, AccessRefused> {
        self.queue.acquire(Mode::Read, expired)?;
        Ok(SpinReadGuard { lock: self })
    }

    /// Joins a running read phase past all waiters, and else waits like [`read`](Self::read). For a thread that reads already.
    ///
    /// # Errors
    /// [`Full`](AccessRefused::Full).
    pub fn read_recursive(&self) -> Result<SpinReadGuard<'_, R, A>, AccessRefused> {
        if self.queue.word.join(Mode::Read) {
            return Ok(SpinReadGuard { lock: self });
        }
        self.read()
    }

    /// Joins a running read phase past all waiters, or reads if nobody writes or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy), [`Full`](AccessRefused::Full).
    pub fn try_read_recursive(&self) -> Result<SpinReadGuard<'_, R, A>, AccessRefused> {
        if self.queue.word.join(Mode::Read) {
            return Ok(SpinReadGuard { lock: self });
        }
        self.try_read()
    }

    /// Waits for its turn to write a range that no other disjoint writer touches.
    ///
    /// Can wait for ever in a thread that holds a guard of this lock. Never call it in an interrupt.
    ///
    /// # Errors
    /// [`Full`](AccessRefused::Full).
    #[inline]
    pub fn disjoint(&self) -> Result<SpinDisjointGuard<'_, R, A>, AccessRefused> {
        self.disjoint_until(never)
    }

    /// Writes a range of its own, if nobody reads, writes exclusively, or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn try_disjoint(&self) -> Result<SpinDisjointGuard<'_, R, A>, AccessRefused> {
        self.queue.word.try_enter(Mode::Disjoint)?;
        Ok(SpinDisjointGuard { lock: self })
    }

    /// Waits for its turn to write a range of its own until `expired` says so.
    ///
    /// # Errors
    /// [`TimedOut`](AccessRefused::TimedOut), [`Full`](AccessRefused::Full).
    #[inline]
    pub fn disjoint_until(&self, expired: impl FnMut() -> bool) -> Result<SpinDisjointGuard<'_, R, A>, AccessRefused> {
        self.queue.acquire(Mode::Disjoint, expired)?;
        Ok(SpinDisjointGuard { lock: self })
    }

    /// Waits for its turn to be alone.
    ///
    /// Waits for ever in a thread that holds a guard of this lock. Never call it in an interrupt.
    #[inline]
    pub fn exclusive(&self) -> SpinExclusiveGuard<'_, R, A> {
        self.queue.acquire_exclusive();
        SpinExclusiveGuard { lock: self }
    }

    /// Is alone, if nobody holds the lock or waits. Never waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy).
    #[inline]
    pub fn try_exclusive(&self) -> Result<SpinExclusiveGuard<'_, R, A>, AccessRefused> {
        self.queue.word.try_enter(Mode::Exclusive)?;
        Ok(SpinExclusiveGuard { lock: self })
    }

    /// Waits for its turn to be alone until `expired` says so.
    ///
    /// # Errors
    /// [`TimedOut`](AccessRefused::TimedOut).
    #[inline]
    pub fn exclusive_until(
        &self,
        expired: impl FnMut() -> bool,
    ) -> Result<SpinExclusiveGuard<'_, R, A>, AccessRefused> {
        self.queue.acquire(Mode::Exclusive, expired)?;
        Ok(SpinExclusiveGuard { lock: self })
    }

    /// Who holds the lock: a snapshot for diagnosis, out of date as soon as it is taken.
    pub fn phase(&self) -> Phase {
        self.queue.word.state().phase()
    }

    /// How many have a place in the line: a snapshot for diagnosis, out of date as soon as it is taken.
    pub fn waiting(&self) -> Waiting {
        self.queue.line().waiting()
    }
}

fn never() -> bool {
    false
}

impl<R: RelaxStrategy, A: AtomicWord> fmt::Debug for SpinAccessLock<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinAccessLock").field("phase", &self.phase()).field("waiting", &self.waiting()).finish()
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr) => {
        $(#[$doc])*
        ///
        /// Leaves when it is dropped, also by a panic; forgotten, it holds the lock for ever. It refers to the lock, not to
        /// any byte that the lock orders.
        #[must_use = "the lock is held as long as the guard lives"]
        pub struct $name<'a, R: RelaxStrategy = Spin, A: AtomicWord = AtomicU32> {
            lock: &'a SpinAccessLock<R, A>,
        }

        impl<R: RelaxStrategy, A: AtomicWord> Drop for $name<'_, R, A> {
            #[inline]
            fn drop(&mut self) {
                self.lock.queue.leave($mode);
            }
        }

        impl<R: RelaxStrategy, A: AtomicWord> fmt::Debug for $name<'_, R, A> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

guard! {
    /// Holds a [`SpinAccessLock`] in read mode.
    SpinReadGuard, Mode::Read
}
guard! {
    /// Holds a [`SpinAccessLock`] in disjoint-write mode.
    SpinDisjointGuard, Mode::Disjoint
}
guard! {
    /// Holds a [`SpinAccessLock`] in exclusive mode.
    SpinExclusiveGuard, Mode::Exclusive
}
