//! Address ranges: where some memory starts and how long it is.
//!
//! Protects one rule: a range that exists ends at or below 2^64, so no later sum over it can overflow. A range may end
//! *exactly* at 2^64, where the usual "first address after it" has no `u64`; every question here is therefore answered from
//! offsets, never from that end. What the range means (host memory, GPU memory, a key's window) is for others to say.

use core::fmt;

/// A base address and a length in bytes; addresses are those of a 64-bit device, on every host.
///
/// ```
/// use bareverbs_core::range::AddressRange;
///
/// let top = AddressRange::new(u64::MAX - 4095, 4096).unwrap(); // ends at 2^64
/// assert_eq!(top.last(), Some(u64::MAX));
/// assert!(top.covers(AddressRange::new(u64::MAX, 1).unwrap()));
/// assert!(AddressRange::new(u64::MAX - 4095, 4097).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AddressRange {
    base: u64,
    len_bytes: u64,
}

impl AddressRange {
    /// No address at all, from 0.
    pub const EMPTY: Self = Self { base: 0, len_bytes: 0 };

    /// The range of `len_bytes` from `base`. Length 0 is a range, with no address in it.
    ///
    /// # Errors
    /// [`RangeError`] if the range would end above 2^64.
    #[inline]
    pub const fn new(base: u64, len_bytes: u64) -> Result<Self, RangeError> {
        // The last address must exist: base + (len - 1), or base itself for an empty range.
        match base.checked_add(len_bytes.saturating_sub(1)) {
            Some(_) => Ok(Self { base, len_bytes }),
            None => Err(RangeError { base, len_bytes }),
        }
    }

    /// The first address.
    #[inline]
    pub const fn base(self) -> u64 {
        self.base
    }

    /// How many bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        self.len_bytes
    }

    /// Whether there is no address in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len_bytes == 0
    }

    /// The last address in it (included); none if it is empty.
    #[inline]
    pub const fn last(self) -> Option<u64> {
        match self.len_bytes.checked_sub(1) {
            Some(above_base) => Some(self.base + above_base),
            None => None,
        }
    }

    /// The first address after it; none if it ends at 2^64, which a `u64` does not hold.
    #[inline]
    pub const fn end(self) -> Option<u64> {
        self.base.checked_add(self.len_bytes)
    }

    /// How far `address` lies above the base; none if it is not in the range.
    #[inline]
    pub const fn offset_of(self, address: u64) -> Option<u64> {
        match address.checked_sub(self.base) {
            Some(offset_bytes) if offset_bytes < self.len_bytes => Some(offset_bytes),
            _ => None,
        }
    }

    /// Whether all of `inner` lies in it. An empty `inner` does if its base is in the range or right at its end.
    #[inline]
    pub const fn covers(self, inner: Self) -> bool {
        match inner.base.checked_sub(self.base) {
            Some(offset_bytes) => offset_bytes <= self.len_bytes && inner.len_bytes <= self.len_bytes - offset_bytes,
            None => false,
        }
    }

    /// Whether some address is in both. An empty range overlaps nothing.
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        match (self.last(), other.last()) {
            (Some(last), Some(other_last)) => self.base <= other_last && other.base <= last,
            _ => false,
        }
    }

    /// The addresses that are in both; none if there are none.
    #[inline]
    pub fn intersection(self, other: Self) -> Option<Self> {
        let base = self.base.max(other.base);
        let last = self.last()?.min(other.last()?);
        let above_base = last.checked_sub(base)?;
        // Both lengths are at least 1, so the intersection's fits unless both are 2^64 long, which neither can be.
        Some(Self { base, len_bytes: above_base + 1 })
    }

    /// The part of it that starts at `span.offset_bytes` and is `span.len_bytes` long; none if that leaves the range, or if it
    /// is the empty part at the end of a range that ends at 2^64: no address names that place.
    #[inline]
    pub const fn part(self, span: Span) -> Option<Self> {
        if span.offset_bytes > self.len_bytes || span.len_bytes > self.len_bytes - span.offset_bytes {
            return None;
        }
        match self.base.checked_add(span.offset_bytes) {
            Some(base) => Some(Self { base, len_bytes: span.len_bytes }),
            // An empty part right at 2^64: there is no address to name it by.
            None => None,
        }
    }
}

/// A place inside a range: where it starts, counted from the range's base, and how long it is.
///
/// ```
/// use bareverbs_core::range::{AddressRange, Span};
///
/// let segment = AddressRange::new(0x10_0000_0000, 0x10_0000).unwrap();
/// let tensor = segment.part(Span { offset_bytes: 0x1000, len_bytes: 0x200 }).unwrap();
/// assert_eq!(tensor.base(), 0x10_0000_1000);
/// assert_eq!(segment.offset_of(tensor.base()), Some(0x1000));
/// assert_eq!(segment.part(Span { offset_bytes: 0x10_0000, len_bytes: 1 }), None); // one byte too far
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Span {
    /// Bytes from the base of the range.
    pub offset_bytes: u64,
    /// How many bytes.
    pub len_bytes: u64,
}

/// A range would end above 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RangeError {
    /// The base that was given.
    pub base: u64,
    /// The length that was given.
    pub len_bytes: u64,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, len_bytes } = self;
        write!(f, "expected a range that ends at or below 2^64, got {len_bytes:#x} bytes from {base:#x}")
    }
}

impl core::error::Error for RangeError {}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} bytes from {:#x}", self.len_bytes, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;

    /// The obvious form: ends in 128 bits.
    fn ends(range: AddressRange) -> (u128, u128) {
        (u128::from(range.base()), u128::from(range.base()) + u128::from(range.len_bytes()))
    }

    /// Ranges near both ends of the address space, and short ones near each other.
    fn edgy() -> impl Strategy<Value = u64> {
        prop_oneof![0..16u64, (u64::MAX - 16)..=u64::MAX, any::<u64>(), (1u64 << 63) - 8..(1u64 << 63) + 8]
    }

    #[test]
    fn a_range_exists_exactly_if_it_ends_at_or_below_2_to_the_64() {
        assert!(AddressRange::new(u64::MAX, 0).is_ok());
        assert_eq!(AddressRange::new(u64::MAX, 1).unwrap().end(), None);
        assert_eq!(AddressRange::new(u64::MAX - 1, 1).unwrap().end(), Some(u64::MAX));
        assert_eq!(AddressRange::new(u64::MAX, 2), Err(RangeError { base: u64::MAX, len_bytes: 2 }));
        assert_eq!(AddressRange::new(1, u64::MAX).unwrap().last(), Some(u64::MAX));
        assert!(AddressRange::new(2, u64::MAX).is_err());
    }

    #[test]
    fn the_error_says_what_was_expected_and_what_came() {
        let text = format!("{}", AddressRange::new(u64::MAX, 2).unwrap_err());
        assert_eq!(text, "expected a range that ends at or below 2^64, got 0x2 bytes from 0xffffffffffffffff");
    }

    proptest! {
        #[test]
        fn every_answer_agrees_with_128_bit_ends(a in edgy(), b in edgy(), c in edgy(), d in edgy()) {
            let made = AddressRange::new(a, b);
            prop_assert_eq!(made.is_ok(), u128::from(a) + u128::from(b) <= 1 << 64);
            let (Ok(x), Ok(y)) = (made, AddressRange::new(c, d)) else { return Ok(()) };
            let ((x0, x1), (y0, y1)) = (ends(x), ends(y));
            prop_assert_eq!(x.covers(y), x0 <= y0 && y1 <= x1);
            let (low, high) = (x0.max(y0), x1.min(y1));
            prop_assert_eq!(x.overlaps(y), low < high);
            prop_assert_eq!(x.intersection(y).map(ends), (low < high).then_some((low, high)));
            prop_assert_eq!(x.offset_of(c).map(u128::from), (x0 <= y0 && y0 < x1).then(|| y0 - x0));
            prop_assert_eq!(x.end().map(u128::from), (x1 < 1 << 64).then_some(x1));
            let part = x.part(Span { offset_bytes: c, len_bytes: d });
            let fits = u128::from(c) + u128::from(d) <= x1 - x0 && x0 + u128::from(c) < 1 << 64;
            prop_assert_eq!(part.map(ends), fits.then(|| (x0 + u128::from(c), x0 + u128::from(c) + u128::from(d))));
        }
    }
}
