//! Whether a place lies within a size, asked before anything is touched.

use core::fmt;

/// A place that is not within what it was asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OutOfBounds {
    /// Where it was to start, bytes from the start of the whole.
    pub offset_bytes: u64,
    /// How long it was to be.
    pub len_bytes: u64,
    /// How long the whole is.
    pub size_bytes: u64,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset_bytes, len_bytes, size_bytes } = self;
        write!(f, "{len_bytes} bytes at offset {offset_bytes} are not within {size_bytes} bytes")
    }
}

impl core::error::Error for OutOfBounds {}

/// That `len_bytes` bytes at `offset_bytes` lie within `size_bytes`. None at the very end do.
///
/// ```
/// use bareverbs_core::view::{OutOfBounds, check_part};
///
/// assert_eq!(check_part(1, 2, 3), Ok(()));
/// assert_eq!(check_part(3, 0, 3), Ok(()));
/// assert_eq!(check_part(1, 3, 3), Err(OutOfBounds { offset_bytes: 1, len_bytes: 3, size_bytes: 3 }));
/// ```
///
/// # Errors
/// [`OutOfBounds`] with the three numbers, also where offset and length together exceed a `u64`.
#[inline]
pub const fn check_part(offset_bytes: u64, len_bytes: u64, size_bytes: u64) -> Result<(), OutOfBounds> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(OutOfBounds { offset_bytes, len_bytes, size_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_place_is_in_and_the_next_is_out() {
        for (offset, len, within) in
            [(0, 5, true), (5, 0, true), (4, 1, true), (4, 2, false), (5, 1, false), (6, 0, false)]
        {
            assert_eq!(check_part(offset, len, 5).is_ok(), within, "{len} at {offset} of 5");
        }
    }

    #[test]
    fn a_sum_that_wraps_is_out() {
        for (offset, len) in [(u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let refused = OutOfBounds { offset_bytes: offset, len_bytes: len, size_bytes: u64::MAX };
            assert_eq!(check_part(offset, len, u64::MAX), Err(refused));
        }
        assert_eq!(check_part(0, u64::MAX, u64::MAX), Ok(()));
    }

    proptest! {
        #[test]
        fn it_agrees_with_wider_numbers(offset in prop_oneof![0u64..9, any::<u64>()], len in prop_oneof![0u64..9, any::<u64>()],
            size in prop_oneof![0u64..9, any::<u64>()]) {
            let within = u128::from(offset) + u128::from(len) <= u128::from(size);
            prop_assert_eq!(check_part(offset, len, size).is_ok(), within);
        }
    }
}
