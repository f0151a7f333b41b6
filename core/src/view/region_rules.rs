//! Which ranges a device takes as one region.
//!
//! | device | start and end | size |
//! |---|---|---|
//! | verbs | anywhere: the kernel pins the pages that hold the range | at most the device's `max_mr_size` |
//! | Thunderbolt on a Mac | whole pages, and no 4 GiB boundary inside (as its users report) | whatever memory there is: the
//! limit that it advertises does not hold |

use core::fmt;

use crate::range::AddressRange;

/// What a device asks of a region.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::view::{RegionRefused, RegionRules};
///
/// let rules = RegionRules::verbs(1 << 20);
/// let two_mib = AddressRange::new(0x1000, 2 << 20)?;
/// assert_eq!(rules.check(two_mib), Err(RegionRefused::TooLarge { len_bytes: 2 << 20, limit_bytes: 1 << 20 }));
/// assert_eq!(rules.parts(two_mib)?.count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RegionRules {
    /// Bits that start and end must not have.
    page_mask: u64,
    /// Bits that differ between addresses of one region.
    boundary_mask: u64,
    limit_bytes: u64,
}

/// Why a device does not take a range as one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RegionRefused {
    /// It has no byte.
    Empty,
    /// It is longer than the device's limit: register it in parts.
    TooLarge {
        /// How long it is.
        len_bytes: u64,
        /// The device's limit (`max_mr_size`).
        limit_bytes: u64,
    },
    /// It does not start and end with a page.
    NotPages {
        /// Where it starts.
        base: u64,
        /// How long it is.
        len_bytes: u64,
        /// A page's length.
        page_bytes: u64,
    },
    /// A multiple of this lies inside, which the device's regions must not cross: register it in parts.
    Boundary {
        /// Where it starts.
        base: u64,
        /// How long it is.
        len_bytes: u64,
        /// The boundaries' distance.
        boundary_bytes: u64,
    },
}

impl fmt::Display for RegionRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a region of 0 bytes is none: at least 1 is expected"),
            Self::TooLarge { len_bytes, limit_bytes } => write!(
                f,
                "{len_bytes} bytes are more than a region of this device has, {limit_bytes} (max_mr_size): register \
                 in parts"
            ),
            Self::NotPages { base, len_bytes, page_bytes } => write!(
                f,
                "{len_bytes} bytes at {base:#x} are not whole pages of {page_bytes} bytes, which this device wants: \
                 allocate them as pages"
            ),
            Self::Boundary { base, len_bytes, boundary_bytes } => write!(
                f,
                "{len_bytes} bytes at {base:#x} cross a multiple of {boundary_bytes}, which no region of this device \
                 does: register in parts"
            ),
        }
    }
}

impl core::error::Error for RegionRefused {}

impl RegionRules {
    /// Those of a verbs device whose `max_mr_size` is this; 0 where it does not say.
    pub const fn verbs(max_mr_size: u64) -> Self {
        let limit_bytes = if max_mr_size == 0 { u64::MAX } else { max_mr_size };
        Self { page_mask: 0, boundary_mask: u64::MAX, limit_bytes }
    }

    /// Those of Thunderbolt devices on a Mac with pages of `2^page_log2` bytes (`page_log2` below 32).
    pub const fn thunderbolt(page_log2: u8) -> Self {
        let page_mask = (1 << (page_log2 & 31)) - 1;
        Self { page_mask, boundary_mask: (1 << 32) - 1, limit_bytes: u64::MAX }
    }

    /// The longest region, bytes.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// That the device takes `range` as one region.
    ///
    /// # Errors
    /// [`RegionRefused`] with the numbers.
    pub const fn check(&self, range: AddressRange) -> Result<(), RegionRefused> {
        if let Err(refused) = self.check_pages(range) {
            return Err(refused);
        }
        let (base, len_bytes) = (range.base(), range.len_bytes());
        if len_bytes > self.limit_bytes {
            return Err(RegionRefused::TooLarge { len_bytes, limit_bytes: self.limit_bytes });
        }
        match range.last() {
            Some(last) if (base ^ last) & !self.boundary_mask != 0 => {
                Err(RegionRefused::Boundary { base, len_bytes, boundary_bytes: self.boundary_mask.wrapping_add(1) })
            }
            _ => Ok(()),
        }
    }

    /// The fewest parts of `range` from its start that the device takes as regions, each as long as can be.
    ///
    /// # Errors
    /// [`RegionRefused::Empty`], [`RegionRefused::NotPages`]: parts do not help there.
    pub const fn parts(&self, range: AddressRange) -> Result<RegionParts, RegionRefused> {
        match self.check_pages(range) {
            Ok(()) => Ok(RegionParts { rules: *self, base: range.base(), left_bytes: range.len_bytes() }),
            Err(refused) => Err(refused),
        }
    }

    const fn check_pages(&self, range: AddressRange) -> Result<(), RegionRefused> {
        let (base, len_bytes) = (range.base(), range.len_bytes());
        if len_bytes == 0 {
            return Err(RegionRefused::Empty);
        }
        if (base | len_bytes) & self.page_mask != 0 {
            return Err(RegionRefused::NotPages { base, len_bytes, page_bytes: self.page_mask + 1 });
        }
        Ok(())
    }
}

/// The parts of a range, from its start.
#[derive(Clone, Debug)]
pub struct RegionParts {
    rules: RegionRules,
    base: u64,
    left_bytes: u64,
}

impl Iterator for RegionParts {
    type Item = AddressRange;

    fn next(&mut self) -> Option<AddressRange> {
        let after_first = self.left_bytes.checked_sub(1)?;
        let to_boundary = self.rules.boundary_mask - (self.base & self.rules.boundary_mask);
        let to_limit = self.rules.limit_bytes.wrapping_sub(1);
        // At most all that is left, so the sum fits.
        let len_bytes = after_first.min(to_boundary).min(to_limit).wrapping_add(1);
        let part = AddressRange::new(self.base, len_bytes).ok()?;
        self.base = self.base.wrapping_add(len_bytes);
        self.left_bytes = self.left_bytes.wrapping_sub(len_bytes);
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn range(base: u64, len_bytes: u64) -> AddressRange {
        AddressRange::new(base, len_bytes).expect("a range")
    }

    #[test]
    fn the_limit_is_taken_and_a_byte_more_is_refused_with_the_limit() {
        let rules = RegionRules::verbs(4096);
        assert_eq!(rules.check(range(1, 4095)), Ok(()));
        assert_eq!(rules.check(range(1, 4096)), Ok(()));
        assert_eq!(rules.check(range(1, 4097)), Err(RegionRefused::TooLarge { len_bytes: 4097, limit_bytes: 4096 }));
        assert_eq!(RegionRules::verbs(0).check(range(1, u64::MAX)), Ok(()), "a device that does not say takes all");
    }

    #[test]
    fn nothing_is_refused_by_all() {
        for rules in [RegionRules::verbs(0), RegionRules::verbs(1), RegionRules::thunderbolt(14)] {
            assert_eq!(rules.check(range(0x4000, 0)), Err(RegionRefused::Empty));
            assert_eq!(rules.parts(range(0x4000, 0)).map(Iterator::count), Err(RegionRefused::Empty));
        }
    }

    #[test]
    fn thunderbolt_takes_whole_pages_without_a_boundary_of_4_gib() {
        let rules = RegionRules::thunderbolt(14);
        let page = 16_384;
        assert_eq!(rules.check(range(page, page)), Ok(()));
        for (base, len_bytes) in [(page + 1, page), (page, page - 1), (page / 2, page)] {
            let refused = RegionRefused::NotPages { base, len_bytes, page_bytes: page };
            assert_eq!(rules.check(range(base, len_bytes)), Err(refused));
            assert_eq!(rules.parts(range(base, len_bytes)).map(Iterator::count), Err(refused));
        }
        let top = 1 << 32;
        assert_eq!(rules.check(range(top - page, page)), Ok(()));
        assert_eq!(rules.check(range(top, top)), Ok(()));
        let (base, len_bytes) = (top - page, 2 * page);
        assert_eq!(
            rules.check(range(base, len_bytes)),
            Err(RegionRefused::Boundary { base, len_bytes, boundary_bytes: top })
        );
        let parts: Vec<_> = rules.parts(range(base, len_bytes)).expect("pages").collect();
        assert_eq!(parts, [range(base, page), range(top, page)]);
    }

    proptest! {
        #[test]
        fn parts_are_taken_follow_each_other_and_are_as_few_as_can_be(
            base in prop_oneof![0u64..10_000, u64::MAX - 20_000..u64::MAX - 10_000],
            len in 1u64..10_000,
            limit in 1u64..3_000,
        ) {
            let (rules, whole) = (RegionRules::verbs(limit), range(base, len));
            let parts: Vec<_> = rules.parts(whole).expect("bytes").collect();
            prop_assert_eq!(parts.len() as u64, len.div_ceil(limit));
            let mut next = base;
            for part in &parts {
                prop_assert_eq!(rules.check(*part), Ok(()));
                prop_assert_eq!(part.base(), next);
                next += part.len_bytes();
            }
            prop_assert_eq!(next, base + len);
        }
    }
}
