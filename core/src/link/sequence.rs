//! The number that a frame carries, and the verdict on the number that came.
//!
//! The rule this file protects: **a message that is missing, double or out of order is told from the next one**, across
//! the wrap of the 32-bit number. Gaps and repeats below 2^31 are told right. The loss of the *last* messages shows only
//! by a deadline, which is not this file's.

/// A sequence number: 32 bits, modular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(transparent)]
pub struct Sequence(u32);

impl Sequence {
    /// The number as agreed or received.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The one after it; after `0xFFFF_FFFF` comes 0.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The one that comes `count` later.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// How far this one is ahead of `other`: negative when behind, between -2^31 and 2^31 - 1.
    #[inline]
    pub const fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl core::fmt::Display for Sequence {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}

/// What a number that came says of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Verdict {
    /// The one that was expected.
    InOrder,
    /// Messages between the expected one and this one did not come, the expected one included.
    Gap {
        /// How many, from 1 to 2^31 - 1.
        missing: u32,
    },
    /// One that was there already, or comes late.
    Old {
        /// How far behind the expected one it is, from 1 to 2^31.
        behind: u32,
    },
}

/// What a receiver expects next.
///
/// It moves on by one number in order and by nothing else: there is no resynchronising.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SequenceChecker {
    /// The next number in order.
    pub expected: Sequence,
}

impl SequenceChecker {
    /// Starts at the number that was agreed, not at whatever comes first.
    pub const fn new(start: Sequence) -> Self {
        Self { expected: start }
    }

    /// Moves on if the number is the expected one; answers the verdict.
    #[inline]
    #[must_use]
    pub const fn check(&mut self, got: Sequence) -> Verdict {
        if self.advance(got) { Verdict::InOrder } else { self.out_of_order(got) }
    }

    /// The common case by itself: one comparison, no subtraction.
    #[inline(always)]
    pub(crate) const fn advance(&mut self, got: Sequence) -> bool {
        let in_order = got.0 == self.expected.0;
        if in_order {
            self.expected = got.next();
        }
        in_order
    }

    /// The verdict on a number that is not the expected one.
    #[cold]
    pub(crate) const fn out_of_order(&self, got: Sequence) -> Verdict {
        match got.distance_from(self.expected) {
            ahead @ 1.. => Verdict::Gap { missing: ahead.unsigned_abs() },
            behind => Verdict::Old { behind: behind.unsigned_abs() },
        }
    }
}
