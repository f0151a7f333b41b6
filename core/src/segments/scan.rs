//! What a scanner saw, and for which devices it counts.
//!
//! Protects: absence says something only where the scanner looked. Scanning itself (asking an allocator, or walking a driver's
//! mappings), and the difference between "nothing there" and "the scanner failed", are the shell's.

use core::fmt;

use super::table::Ordinal;
use crate::range::{AddressRange, RangeError};

/// One segment that a scanner saw, as it reported it: nothing of it is checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ScannedSegment {
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The device whose memory it is.
    pub ordinal: Ordinal,
    /// Whether it can grow in place. One that cannot and is seen longer than before is another one at the same address.
    pub expandable: bool,
}

impl ScannedSegment {
    /// The addresses in it.
    ///
    /// # Errors
    /// [`RangeError`] if address and size go above 2^64.
    #[inline]
    pub const fn range(self) -> Result<AddressRange, RangeError> {
        AddressRange::new(self.address, self.size_bytes)
    }

    /// Its last address; that of the address space if it goes above.
    pub(super) const fn last_saturating(self) -> u64 {
        self.address.saturating_add(self.size_bytes.saturating_sub(1))
    }
}

/// Where the scanner looked: what it did not report in there is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Covers {
    /// Everywhere: an allocator's snapshot.
    Everything,
    /// In this range only: a walk through a driver's mappings covers the run that it walked.
    Range(AddressRange),
}

impl Covers {
    /// Whether the scanner looked at all of `range`.
    #[inline]
    pub const fn all_of(self, range: AddressRange) -> bool {
        match self {
            Self::Everything => true,
            Self::Range(covered) => covered.covers(range),
        }
    }

    /// The part of `range` that the scanner looked at; none if it looked at none of it.
    #[inline]
    pub fn part_of(self, range: AddressRange) -> Option<AddressRange> {
        match self {
            Self::Everything => range.intersection(range),
            Self::Range(covered) => covered.intersection(range),
        }
    }
}

impl fmt::Display for Covers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Range(covered) => covered.fmt(f),
        }
    }
}

/// What a scanner answers.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::{Covers, Ordinal, Scan, ScannedSegment, ServedOrdinals};
///
/// let seen = [ScannedSegment { address: 0x10_0000_0000, size_bytes: 2 << 20, ordinal: Ordinal(2), expandable: true }];
/// let walked = AddressRange::new(0x10_0000_0000, 4 << 20).unwrap();
/// let scan = Scan { segments: &seen, covers: Covers::Range(walked) };
///
/// // What lies in the walked run and was not seen is gone; of what lies beyond, the scan says nothing.
/// assert!(scan.covers.all_of(AddressRange::new(0x10_0020_0000, 2 << 20).unwrap()));
/// assert!(!scan.covers.all_of(AddressRange::new(0x18_0000_0000, 2 << 20).unwrap()));
///
/// let served = ServedOrdinals { given: &[Ordinal(0)], pinned: &[Ordinal(2)] };
/// assert!(served.serves(seen[0].ordinal));
/// assert_eq!(served.to_string(), "0, 2");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Scan<'a> {
    /// The segments that it saw. In order of address they cost least to reconcile; any order will do.
    pub segments: &'a [ScannedSegment],
    /// Where it looked.
    pub covers: Covers,
}

/// The devices whose memory a domain serves: those it was given (by topology) and those pinned to it (by configuration) alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ServedOrdinals<'a> {
    /// Those whose best NIC this is.
    pub given: &'a [Ordinal],
    /// Those that the configuration names, whatever the topology says.
    pub pinned: &'a [Ordinal],
}

impl ServedOrdinals<'_> {
    /// Whether the memory of this device is served.
    #[inline]
    pub fn serves(self, ordinal: Ordinal) -> bool {
        self.given.contains(&ordinal) || self.pinned.contains(&ordinal)
    }
}

/// As a list for messages, each ordinal once: `0, 2`, or `none`.
impl fmt::Display for ServedOrdinals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let more = self.pinned.iter().filter(|ordinal| !self.given.contains(ordinal));
        for ordinal in self.given.iter().chain(more) {
            write!(f, "{separator}{ordinal}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_pinned_ordinal_is_served_as_a_given_one_is() {
        let served = ServedOrdinals { given: &[Ordinal(0), Ordinal(2)], pinned: &[Ordinal(2), Ordinal(5)] };
        let which = [0, 1, 2, 3, 4, 5].map(|ordinal| served.serves(Ordinal(ordinal)));
        assert_eq!(which, [true, false, true, false, false, true]);
        assert_eq!(served.to_string(), "0, 2, 5");
        assert_eq!(ServedOrdinals::default().to_string(), "none");
    }

    #[test]
    fn a_scan_of_a_range_says_nothing_outside_of_it() {
        let range = |base, len| AddressRange::new(base, len).unwrap();
        let covers = Covers::Range(range(4, 4));
        assert_eq!(covers.part_of(range(0, 6)), Some(range(4, 2)));
        assert_eq!(covers.part_of(range(0, 4)), None);
        assert_eq!(Covers::Everything.part_of(range(0, 6)), Some(range(0, 6)));
        assert!(covers.all_of(range(5, 3)) && !covers.all_of(range(5, 4)) && Covers::Everything.all_of(range(5, 4)));
    }
}
