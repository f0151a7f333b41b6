//! The same bytes twice: by their virtual address, and as their key sees them.

use core::fmt;

use crate::range::AddressRange;
use crate::view::part::{OutOfBounds, check_part};

/// A run of bytes under one pair of keys.
///
/// Work requests name its bytes by `key_addr`, which for a plain region is the virtual address, and for an indirect key the
/// offset in what the key covers. It has at least one byte, and ends at or below 2^64 by either address.
///
/// ```
/// use bareverbs_core::view::{KeyedRange, OutOfBounds};
///
/// let whole = KeyedRange::new(0x7000, 0, 4096, 10, 20)?;
/// let part = whole.part(0x400, 16)?;
/// assert_eq!((part.addr(), part.key_addr(), part.len_bytes()), (0x7400, 0x400, 16));
/// assert_eq!((part.lkey(), part.rkey()), (10, 20));
/// assert!(whole.part(4096, 1).is_err());
/// # Ok::<(), bareverbs_core::view::KeyedRangeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyedRange {
    addr: u64,
    key_addr: u64,
    len_bytes: u64,
    lkey: u32,
    rkey: u32,
}

/// Why there is no such range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KeyedRangeError {
    /// It would have no byte.
    Empty,
    /// It would end above 2^64.
    Wraps {
        /// The address it would start at, virtual or the key's.
        base: u64,
        /// How long it would be.
        len_bytes: u64,
    },
    /// The part is not within it.
    Part(OutOfBounds),
}

impl fmt::Display for KeyedRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a view of 0 bytes names nothing: at least 1 is expected"),
            Self::Wraps { base, len_bytes } => write!(f, "{len_bytes} bytes from {base:#x} would end above 2^64"),
            Self::Part(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for KeyedRangeError {}

impl From<OutOfBounds> for KeyedRangeError {
    fn from(error: OutOfBounds) -> Self {
        Self::Part(error)
    }
}

impl KeyedRange {
    /// `len_bytes` bytes at `addr`, which the keys see at `key_addr`.
    ///
    /// # Errors
    /// [`KeyedRangeError::Empty`], [`KeyedRangeError::Wraps`].
    pub const fn new(addr: u64, key_addr: u64, len_bytes: u64, lkey: u32, rkey: u32) -> Result<Self, KeyedRangeError> {
        if len_bytes == 0 {
            return Err(KeyedRangeError::Empty);
        }
        if AddressRange::new(addr, len_bytes).is_err() {
            return Err(KeyedRangeError::Wraps { base: addr, len_bytes });
        }
        if AddressRange::new(key_addr, len_bytes).is_err() {
            return Err(KeyedRangeError::Wraps { base: key_addr, len_bytes });
        }
        Ok(Self { addr, key_addr, len_bytes, lkey, rkey })
    }

    /// The virtual address of its first byte.
    #[inline]
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// The address of its first byte as the keys see it: what a work request names.
    #[inline]
    pub const fn key_addr(&self) -> u64 {
        self.key_addr
    }

    /// How many bytes; never 0.
    #[inline]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Key for the own device.
    #[inline]
    pub const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for others.
    #[inline]
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The part of it that starts `offset_bytes` into it and is `len_bytes` long, under the same keys.
    ///
    /// # Errors
    /// [`KeyedRangeError::Empty`]; [`KeyedRangeError::Part`] if it leaves the range.
    pub const fn part(&self, offset_bytes: u64, len_bytes: u64) -> Result<Self, KeyedRangeError> {
        if len_bytes == 0 {
            return Err(KeyedRangeError::Empty);
        }
        if let Err(error) = check_part(offset_bytes, len_bytes, self.len_bytes) {
            return Err(KeyedRangeError::Part(error));
        }
        // Neither sum overflows: at least one byte follows the offset, and the last byte's address exists.
        let (addr, key_addr) = (self.addr.wrapping_add(offset_bytes), self.key_addr.wrapping_add(offset_bytes));
        Ok(Self { addr, key_addr, len_bytes, ..*self })
    }
}

/// Without the keys, which are capabilities: not for logs.
impl fmt::Debug for KeyedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, key_addr, len_bytes, .. } = self;
        write!(f, "KeyedRange({len_bytes} bytes at {addr:#x}, {key_addr:#x} to keys)")
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for KeyedRange {
    fn format(&self, f: defmt::Formatter<'_>) {
        let Self { addr, key_addr, len_bytes, .. } = self;
        defmt::write!(f, "{=u64} bytes at {=u64:#x}, {=u64:#x} to keys", len_bytes, addr, key_addr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_no_range_and_no_part() {
        assert_eq!(KeyedRange::new(1, 2, 0, 3, 4), Err(KeyedRangeError::Empty));
        let whole = KeyedRange::new(0x1000, 0, 8, 1, 2).expect("8 bytes");
        assert_eq!(whole.part(0, 0), Err(KeyedRangeError::Empty));
        assert_eq!(whole.part(9, 0), Err(KeyedRangeError::Empty));
    }

    #[test]
    fn a_range_may_end_at_the_top_and_not_above_by_either_address() {
        let top = u64::MAX - 7;
        assert!(KeyedRange::new(top, 0, 8, 0, 0).is_ok() && KeyedRange::new(0, top, 8, 0, 0).is_ok());
        let wraps = KeyedRangeError::Wraps { base: top, len_bytes: 9 };
        assert_eq!(KeyedRange::new(top, 0, 9, 0, 0), Err(wraps));
        assert_eq!(KeyedRange::new(0, top, 9, 0, 0), Err(wraps));
        let whole = KeyedRange::new(top, top, 8, 0, 0).expect("ends at 2^64");
        assert_eq!(whole.part(7, 1).map(|part| (part.addr(), part.key_addr())), Ok((u64::MAX, u64::MAX)));
    }

    #[test]
    fn a_part_that_leaves_the_range_is_told_with_the_numbers() {
        let whole = KeyedRange::new(0x1000, 0, 8, 1, 2).expect("8 bytes");
        for (offset_bytes, len_bytes) in [(0, 9), (8, 1), (7, 2), (u64::MAX, 1), (1, u64::MAX)] {
            let refused = OutOfBounds { offset_bytes, len_bytes, size_bytes: 8 };
            assert_eq!(whole.part(offset_bytes, len_bytes), Err(KeyedRangeError::Part(refused)));
        }
        assert_eq!(whole.part(0, 8), Ok(whole));
    }

    proptest! {
        #[test]
        fn a_part_of_a_part_is_a_part(len in 1u64..100, a in 0u64..100, b in 0u64..100, c in 0u64..100, d in 0u64..100) {
            let whole = KeyedRange::new(u64::MAX - 99, 5, len, 1, 2).expect("bytes");
            if let Ok(outer) = whole.part(a, b)
                && let Ok(inner) = outer.part(c, d)
            {
                prop_assert_eq!(whole.part(a + c, d), Ok(inner));
                prop_assert_eq!((inner.addr() - whole.addr(), inner.key_addr() - whole.key_addr()), (a + c, a + c));
            }
        }
    }
}
