//! The three modes, the phase that a lock is in, and why an access was refused.
//!
//! Only words: the rules are in [`state`](super::state) and [`line`](super::line).

use core::fmt;

/// How a holder touches the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Mode {
    /// Many holders, none of which writes.
    Read,
    /// Many holders, each of which writes a byte range that no other one touches.
    Disjoint,
    /// One holder, who reads and writes anything.
    Exclusive,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Read, Mode::Disjoint, Mode::Exclusive];

    /// Whether several threads can hold the lock in this mode together.
    #[inline]
    #[must_use]
    pub const fn is_shared(self) -> bool {
        !matches!(self, Mode::Exclusive)
    }
}

/// All that hold the lock together.
///
/// ```
/// use bareverbs_core::access::{Mode, Phase, SpinAccessLock};
///
/// let lock: SpinAccessLock = SpinAccessLock::new();
/// let first = lock.disjoint().unwrap();
/// let second = lock.disjoint().unwrap();
/// assert_eq!(lock.phase(), Phase::Disjoint(2));
/// assert_eq!(lock.phase().mode(), Some(Mode::Disjoint));
/// drop((first, second));
/// assert_eq!(lock.phase(), Phase::Vacant);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Phase {
    /// Nobody holds the lock.
    Vacant,
    /// This many readers (at least 1).
    Read(u32),
    /// This many disjoint writers (at least 1).
    Disjoint(u32),
    /// One holder, alone.
    Exclusive,
}

impl Phase {
    /// The mode of the holders; none when there are none.
    #[must_use]
    pub const fn mode(self) -> Option<Mode> {
        match self {
            Phase::Vacant => None,
            Phase::Read(_) => Some(Mode::Read),
            Phase::Disjoint(_) => Some(Mode::Disjoint),
            Phase::Exclusive => Some(Mode::Exclusive),
        }
    }

    /// How many hold the lock.
    #[must_use]
    pub const fn holders(self) -> u32 {
        match self {
            Phase::Vacant => 0,
            Phase::Read(count) | Phase::Disjoint(count) => count,
            Phase::Exclusive => 1,
        }
    }
}

/// How many wait, by mode. A snapshot for diagnosis: out of date as soon as it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Waiting {
    /// Readers that wait.
    pub read: u32,
    /// Disjoint writers that wait.
    pub disjoint: u32,
    /// Exclusive ones that wait.
    pub exclusive: u32,
}

impl Waiting {
    /// All that wait, whatever the mode.
    #[must_use]
    pub const fn total(self) -> u32 {
        self.read.saturating_add(self.disjoint).saturating_add(self.exclusive)
    }

    /// Counts one more that waits in `mode`.
    pub const fn add(&mut self, mode: Mode) {
        let count = match mode {
            Mode::Read => &mut self.read,
            Mode::Disjoint => &mut self.disjoint,
            Mode::Exclusive => &mut self.exclusive,
        };
        *count = count.saturating_add(1);
    }
}

/// Why the lock was not given.
///
/// A refusal leaves the lock as it was: whoever is refused neither holds it nor waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum AccessRefused {
    /// Somebody holds the lock in a mode that excludes this one, or waits for it (`try_*` never overtakes a waiter).
    Busy,
    /// The time given passed before the lock's turn came.
    TimedOut,
    /// The phase has as many holders as the lock can count; more would corrupt it.
    Full {
        /// The most that can hold the lock together.
        limit: u32,
    },
}

impl fmt::Display for AccessRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessRefused::Busy => f.write_str("expected a free access lock, it is held or waited for in another mode"),
            AccessRefused::TimedOut => f.write_str("the access lock did not come free within the time given"),
            AccessRefused::Full { limit } => {
                write!(f, "expected at most {limit} holders of an access lock, one more came: are guards leaked?")
            }
        }
    }
}

impl core::error::Error for AccessRefused {}
