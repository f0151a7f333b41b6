//! Cutting a range into the parts that a device can register.
//!
//! Protects: every part is a multiple of the alignment, starts on it, and has a length that fits the device's 32 bits; what
//! cannot be cut so is refused before the first part. Count, n-th part and the part that holds an offset are closed forms:
//! one division each, whatever the range's size. Which parts share a key is for [`windows`](super::windows()).

use core::fmt;
use core::iter::FusedIterator;
use core::num::NonZeroU32;

use super::limits::ChunkLimits;
use crate::range::{AddressRange, RangeError};

/// Cuts `range` into parts, all of them maximal but the last. Nothing is computed ahead, and length 0 gives no parts.
///
/// # Errors
/// [`ChunkError`], before the first part, if the range cannot be cut into whole parts.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::{ChunkLimits, chunks};
///
/// let segment = AddressRange::new(0x10_0000_0000, 1 << 40).unwrap(); // 1 TiB
/// let parts = chunks(segment, ChunkLimits::GPU).unwrap();
/// assert_eq!(parts.len(), 257);
/// let holding = parts.part_holding(5 << 30).unwrap(); // offset 5 GiB: one division, no walk
/// assert_eq!((holding.index, holding.len_bytes), (1, 4_292_870_144));
/// for part in parts {
///     // register part.address, part.len_bytes here
///     assert_eq!(part.address % (2 << 20), 0);
/// }
/// ```
#[inline]
pub const fn chunks(range: AddressRange, limits: ChunkLimits) -> Result<Chunks, ChunkError> {
    match limits.check(range) {
        Ok(()) => Ok(Chunks::over(range, limits.divisor())),
        Err(refused) => Err(refused),
    }
}

/// One part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Chunk {
    /// Which part of the range it is, from 0.
    pub index: u32,
    /// Its first address.
    pub address: u64,
    /// Its length in bytes; never 0.
    pub len_bytes: u32,
}

impl Chunk {
    /// The addresses in it.
    pub fn range(self) -> AddressRange {
        // A part of a range that exists ends where that range does, or before.
        AddressRange::new(self.address, u64::from(self.len_bytes)).unwrap_or(AddressRange::EMPTY)
    }
}

/// The parts of a range, as an exact-size iterator from [`chunks`]. The `part` methods speak of all parts, wherever the
/// iterator stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "iterators do nothing until they are asked"]
pub struct Chunks {
    base: u64,
    len_bytes: u64,
    max_bytes: NonZeroU32,
    /// The parts that the iterator has not given yet: `next..end`.
    next: u32,
    end: u32,
}

impl Chunks {
    /// The caller has checked the range against the limits (or cut it from one that was).
    #[inline]
    pub(super) const fn over(range: AddressRange, max_bytes: NonZeroU32) -> Self {
        let count = range.len_bytes().div_ceil(max_bytes.get() as u64);
        Self { base: range.base(), len_bytes: range.len_bytes(), max_bytes, next: 0, end: count as u32 }
    }

    /// How many parts the range has.
    #[inline]
    pub const fn part_count(&self) -> u32 {
        self.len_bytes.div_ceil(self.max_bytes.get() as u64) as u32
    }

    /// The part with this index; none from [`part_count`](Self::part_count) on.
    #[inline]
    pub const fn part(&self, index: u32) -> Option<Chunk> {
        // Two factors of 32 bits: the product fits 64.
        let max_bytes = self.max_bytes.get();
        let offset_bytes = index as u64 * max_bytes as u64;
        if offset_bytes >= self.len_bytes {
            return None;
        }
        let rest_bytes = self.len_bytes - offset_bytes;
        let len_bytes = if rest_bytes < max_bytes as u64 { rest_bytes as u32 } else { max_bytes };
        Some(Chunk { index, address: self.base + offset_bytes, len_bytes })
    }

    /// The part that holds the byte at `offset_bytes` from the range's base; none if that is not in the range.
    #[inline]
    pub const fn part_holding(&self, offset_bytes: u64) -> Option<Chunk> {
        if offset_bytes >= self.len_bytes {
            return None;
        }
        self.part((offset_bytes / self.max_bytes.get() as u64) as u32)
    }

    #[inline]
    const fn left(&self) -> u32 {
        self.end - self.next
    }
}

impl Iterator for Chunks {
    type Item = Chunk;

    #[inline]
    fn next(&mut self) -> Option<Chunk> {
        self.nth(0)
    }

    #[inline]
    fn nth(&mut self, skipped: usize) -> Option<Chunk> {
        let skipped = u32::try_from(skipped).unwrap_or(u32::MAX);
        if skipped >= self.left() {
            self.next = self.end;
            return None;
        }
        let index = self.next + skipped;
        self.next = index + 1;
        self.part(index)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        // Exact wherever usize has 32 bits or more, as every supported target has.
        let left = usize::try_from(self.left());
        (left.unwrap_or(usize::MAX), left.ok())
    }

    #[inline]
    fn count(self) -> usize {
        self.len()
    }

    #[inline]
    fn last(mut self) -> Option<Chunk> {
        self.next_back()
    }
}

impl DoubleEndedIterator for Chunks {
    #[inline]
    fn next_back(&mut self) -> Option<Chunk> {
        if self.left() == 0 {
            return None;
        }
        self.end -= 1;
        self.part(self.end)
    }
}

impl ExactSizeIterator for Chunks {}
impl FusedIterator for Chunks {}

/// A range that cannot be cut into whole parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ChunkError {
    /// Base and length do not make a range.
    Range(RangeError),
    /// The base is off the alignment.
    Base {
        /// The base of the range.
        got: u64,
        /// The alignment that it is off.
        alignment_bytes: u32,
    },
    /// The length is no multiple of the alignment.
    Length {
        /// The length of the range.
        got_bytes: u64,
        /// The alignment that does not divide it.
        alignment_bytes: u32,
    },
    /// The parts are more than `u32` counts: the limits are meant for shorter ranges.
    Count {
        /// How many parts there would be.
        got: u64,
    },
}

impl From<RangeError> for ChunkError {
    fn from(refused: RangeError) -> Self {
        Self::Range(refused)
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Range(refused) => refused.fmt(f),
            Self::Base { got, alignment_bytes } => {
                write!(f, "expected a base that is a multiple of {alignment_bytes} bytes, got {got:#x}")
            }
            Self::Length { got_bytes, alignment_bytes } => {
                write!(f, "expected a length that is a multiple of {alignment_bytes} bytes, got {got_bytes}")
            }
            Self::Count { got } => write!(f, "expected at most {} parts, got {got}: raise the maximum", u32::MAX),
        }
    }
}

impl core::error::Error for ChunkError {}

#[cfg(test)]
mod tests;
