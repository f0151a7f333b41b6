//! Which parts of a segment share a key.
//!
//! Protects: a key never gets more entries than it can have, nor a length that its provider cannot sum. A segment that is
//! longer than one key covers lies in several *windows*, each with a key of its own that starts at 0, and no part reaches from
//! one window into the next. How windows change as a segment grows is [`BoundSegment`](super::BoundSegment)'s.

use core::iter::FusedIterator;
use core::num::{NonZeroU32, NonZeroU64};

use super::chunks::{ChunkError, Chunks};
use super::entry_cap::EntryCap;
use super::limits::{ChunkLimits, LimitsError};
use super::locate::{LocateError, Located, WindowLookup, locate, split};
use crate::range::{AddressRange, Span};

/// How the provider sums the lengths of a key's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LengthSum {
    /// In 64 bits: rdma-core 61 and later.
    Bits64,
    /// In a signed 32-bit integer: mlx5 providers before rdma-core 61, and every provider whose version is not known. A key's
    /// length cannot be read back, so windows stay below 2 GiB in total.
    Signed32,
}

impl LengthSum {
    /// The greatest length in bytes that a key's sum holds.
    #[inline]
    pub const fn max_bytes(self) -> u64 {
        match self {
            Self::Bits64 => u64::MAX,
            Self::Signed32 => i32::MAX as u64,
        }
    }
}

/// How long parts and windows may be, and how many parts a window may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WindowLimits {
    chunk: ChunkLimits,
    cap: EntryCap,
    window_bytes: NonZeroU64,
}

impl WindowLimits {
    /// Windows of at most `cap` parts, each within `chunk`, in total within what `sum` holds. The chunk maximum is brought down
    /// to the window's: a part never exceeds a window.
    ///
    /// # Errors
    /// [`LimitsError::MaxBelowAlignment`] if the alignment is longer than a window may be.
    pub const fn new(chunk: ChunkLimits, cap: EntryCap, sum: LengthSum) -> Result<Self, LimitsError> {
        Self::within(chunk, cap, sum.max_bytes())
    }

    pub(super) const fn within(chunk: ChunkLimits, cap: EntryCap, total_bytes: u64) -> Result<Self, LimitsError> {
        let chunk = match chunk.capped(total_bytes) {
            Ok(chunk) => chunk,
            Err(refused) => return Err(refused),
        };
        // 16 times 32 bits fit 64.
        let by_cap_bytes = cap.entries() as u64 * chunk.max_bytes() as u64;
        let whole_bytes = total_bytes & !(chunk.alignment().bytes() as u64 - 1);
        let window_bytes = if by_cap_bytes < whole_bytes { by_cap_bytes } else { whole_bytes };
        match NonZeroU64::new(window_bytes) {
            Some(window_bytes) => Ok(Self { chunk, cap, window_bytes }),
            // Not reached: neither the cap nor the chunk's maximum is 0, and a chunk fits the total.
            None => {
                let alignment_bytes = chunk.alignment().bytes();
                Err(LimitsError::MaxBelowAlignment { got_bytes: window_bytes, alignment_bytes })
            }
        }
    }

    /// The limits of a part, its maximum no longer than a window.
    #[inline]
    pub const fn chunk(self) -> ChunkLimits {
        self.chunk
    }

    /// How many parts a window may have.
    #[inline]
    pub const fn cap(self) -> EntryCap {
        self.cap
    }

    /// The longest window, in bytes; never 0.
    #[inline]
    pub const fn window_bytes(self) -> u64 {
        self.window_bytes.get()
    }
}

/// Lays windows over `range`, all of them maximal but the last.
///
/// # Errors
/// [`ChunkError`], before the first window, if the range cannot be cut into whole parts.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::{ChunkLimits, EntryCap, LengthSum, WindowLimits, windows};
///
/// let limits = WindowLimits::new(ChunkLimits::GPU, EntryCap::new(30).unwrap(), LengthSum::Bits64).unwrap();
/// let segment = AddressRange::new(0x10_0000_0000, 150 << 30).unwrap();
/// let planned = windows(segment, limits).unwrap();
/// assert_eq!(planned.len(), 2); // two keys
/// for window in planned.clone() {
///     for part in window.parts() {
///         // register part.address, part.len_bytes, and put it in this window's list
///         assert!(window.range.covers(part.range()));
///     }
/// }
/// // 4 KiB right after the first window: the second key's address 0.
/// let asked = AddressRange::new(0x10_0000_0000 + 0x1D_FC40_0000, 4096).unwrap();
/// let found = planned.locate(asked).unwrap();
/// assert_eq!((found.window, found.offset_bytes), (1, 0));
/// ```
#[inline]
pub const fn windows(range: AddressRange, limits: WindowLimits) -> Result<Windows, ChunkError> {
    match limits.chunk.check(range) {
        Ok(()) => Ok(Windows::over(range, limits)),
        Err(refused) => Err(refused),
    }
}

/// What one key covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Window {
    /// Which window of the segment it is, from 0.
    pub index: u32,
    /// Its addresses; the key's address 0 is its base.
    pub range: AddressRange,
    max_part_bytes: NonZeroU32,
}

impl Window {
    /// Its parts, in the order of the key's entries; all maximal but the last.
    #[inline]
    pub const fn parts(&self) -> Chunks {
        Chunks::over(self.range, self.max_part_bytes)
    }
}

/// The windows over a range, as an exact-size iterator from [`windows`]. `window`, `window_holding` and `locate` speak of all
/// windows, wherever the iterator stands, and cost one division each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "iterators do nothing until they are asked"]
pub struct Windows {
    range: AddressRange,
    limits: WindowLimits,
    next: u32,
    end: u32,
}

impl Windows {
    /// The caller has checked the range (or cut it from one that was): a window is no shorter than a part, so `u32` counts
    /// them.
    #[inline]
    pub(super) const fn over(range: AddressRange, limits: WindowLimits) -> Self {
        let count = range.len_bytes().div_ceil(limits.window_bytes());
        Self { range, limits, next: 0, end: count as u32 }
    }

    /// How many windows there are in all.
    #[inline]
    pub const fn window_count(&self) -> u32 {
        self.range.len_bytes().div_ceil(self.limits.window_bytes()) as u32
    }

    /// How many parts there are in all windows.
    #[inline]
    pub const fn part_count(&self) -> u64 {
        let max_bytes = self.limits.chunk.max_bytes() as u64;
        let full = self.range.len_bytes() / self.limits.window_bytes();
        let rest_bytes = self.range.len_bytes() % self.limits.window_bytes();
        full * self.limits.window_bytes().div_ceil(max_bytes) + rest_bytes.div_ceil(max_bytes)
    }

    /// The window with this index; none from [`window_count`](Self::window_count) on.
    #[inline]
    pub fn window(&self, index: u32) -> Option<Window> {
        let offset_bytes = u64::from(index).checked_mul(self.limits.window_bytes())?;
        let rest_bytes = self.range.len_bytes().checked_sub(offset_bytes)?;
        let len_bytes = rest_bytes.min(self.limits.window_bytes());
        if len_bytes == 0 {
            return None;
        }
        let range = self.range.part(Span { offset_bytes, len_bytes })?;
        Some(Window { index, range, max_part_bytes: self.limits.chunk.divisor() })
    }

    /// The window that holds the byte at `offset_bytes` from the range's base; none if that is not in the range.
    #[inline]
    pub fn window_holding(&self, offset_bytes: u64) -> Option<Window> {
        if offset_bytes >= self.range.len_bytes() {
            return None;
        }
        self.window((offset_bytes / self.limits.window_bytes()) as u32)
    }

    /// The window that holds all of `asked`, and where in it.
    ///
    /// # Errors
    /// [`LocateError`]: nothing asked for, not all in the range, or in more than one window.
    pub fn locate(&self, asked: AddressRange) -> Result<Located, LocateError> {
        locate(self, asked)
    }

    /// `asked`, cut at the windows' edges: each piece lies in one window.
    ///
    /// # Errors
    /// [`LocateError`]: nothing asked for, or not all in the range.
    pub fn split(&self, asked: AddressRange) -> Result<impl Iterator<Item = Located> + '_, LocateError> {
        split(self, asked)
    }
}

impl WindowLookup for Windows {
    fn covered(&self) -> AddressRange {
        self.range
    }

    fn window_at(&self, offset_bytes: u64) -> Option<(u32, AddressRange)> {
        self.window_holding(offset_bytes).map(|window| (window.index, window.range))
    }
}

impl Iterator for Windows {
    type Item = Window;

    #[inline]
    fn next(&mut self) -> Option<Window> {
        if self.next == self.end {
            return None;
        }
        let index = self.next;
        self.next += 1;
        self.window(index)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.end - self.next);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

impl ExactSizeIterator for Windows {}
impl FusedIterator for Windows {}

#[cfg(test)]
mod tests;
