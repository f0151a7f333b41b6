//! The words in which [`reconcile`](super::reconcile()) answers.

use core::fmt;

use super::chunks::ChunkError;
use super::scan::{Covers, ScannedSegment, ServedOrdinals};
use super::table::{Ordinal, SegmentKey};
use crate::range::AddressRange;

/// What to do about one scanned, or one bound segment.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::*;
///
/// const M: u64 = 2 << 20;
/// let mut table: SegmentTable<(), 8> = SegmentTable::new();
/// for base in [0x10_0000_0000, 0x20_0000_0000] {
///     let range = AddressRange::new(base, M).unwrap();
///     table.insert(Row { range, ordinal: Ordinal(0), value: () }).unwrap();
/// }
///
/// // The first is as it was, a new one is of a device that is not served, the second is seen no more.
/// let segment = |address, ordinal| ScannedSegment { address, size_bytes: M, ordinal: Ordinal(ordinal), expandable: true };
/// let seen = [segment(0x10_0000_0000, 0), segment(0x18_0000_0000, 1)];
/// let scan = Scan { segments: &seen, covers: Covers::Everything };
/// let terms = Terms { served: ServedOrdinals { given: &[Ordinal(0)], pinned: &[] }, limits: ChunkLimits::GPU };
/// let decisions: Vec<_> = reconcile(&table, scan, terms, |_| IdentityCheck::Holds).collect();
///
/// let key = |base| SegmentKey { base, ordinal: Ordinal(0) };
/// assert_eq!(decisions[0], Decision::Keep { key: key(0x10_0000_0000) });
/// assert!(matches!(decisions[1], Decision::Refuse { reason: RefuseReason::NotServed { ordinal: Ordinal(1), .. }, .. }));
/// assert_eq!(decisions[2], Decision::Drop { key: key(0x20_0000_0000) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Decision<'a> {
    /// A new segment: bind it.
    Bind {
        /// What is mapped.
        range: AddressRange,
        /// The device whose memory it is.
        ordinal: Ordinal,
    },
    /// The bound segment is what is mapped: no call is needed.
    Keep {
        /// The bound segment.
        key: SegmentKey,
    },
    /// The bound segment has grown: register its tail.
    Grow {
        /// The bound segment.
        key: SegmentKey,
        /// What it is to cover, from its base on.
        to: AddressRange,
    },
    /// Something else is mapped where the bound segment starts: bind that afresh in its place. Views of the old one keep
    /// theirs.
    Rebind {
        /// The bound segment.
        key: SegmentKey,
        /// What is mapped now.
        to: AddressRange,
        /// How it differs.
        reason: RebindReason,
    },
    /// The scanned segment cannot be served; a request in it gets this for an answer.
    Refuse {
        /// The segment, as it was scanned.
        segment: ScannedSegment,
        /// Why not.
        reason: RefuseReason<'a>,
    },
    /// The bound segment is mapped no more. Views of it keep theirs.
    Drop {
        /// The bound segment.
        key: SegmentKey,
    },
}

/// How what is mapped differs from what is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RebindReason {
    /// Some of it is mapped no more: it shrank, or has a hole.
    PartlyGone,
    /// It is other memory at the same address.
    IdentityChanged,
    /// It is longer, and such memory does not grow.
    CannotGrow,
}

impl fmt::Display for RebindReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PartlyGone => "some of it is mapped no more",
            Self::IdentityChanged => "it is other memory at the same address",
            Self::CannotGrow => "it is longer, and such memory does not grow",
        })
    }
}

/// Why a scanned segment cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RefuseReason<'a> {
    /// It has no bytes.
    Empty,
    /// It cannot be cut into whole regions.
    Chunk(ChunkError),
    /// Its device is not among those served.
    NotServed {
        /// The device whose memory it is.
        ordinal: Ordinal,
        /// Those served.
        served: ServedOrdinals<'a>,
    },
    /// It is not wholly where the scanner says that it looked.
    OutsideScan {
        /// Where it looked.
        covers: Covers,
    },
    /// It shares addresses with one scanned before it.
    Overlap {
        /// That one.
        with: ScannedSegment,
    },
    /// The table holds no more.
    TableFull {
        /// How many rows the table holds.
        capacity: usize,
    },
}

impl fmt::Display for RefuseReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("expected a segment of at least 1 byte, got 0"),
            Self::Chunk(refused) => refused.fmt(f),
            Self::NotServed { ordinal, served } => {
                write!(f, "expected memory of an ordinal that is served ({served}), got {ordinal}")
            }
            Self::OutsideScan { covers } => {
                write!(f, "expected a segment within what the scan covers ({covers}): let it cover what it reports")
            }
            Self::Overlap { with } => write!(
                f,
                "expected segments that do not overlap, got one that overlaps that of {:#x} bytes from {:#x} (ordinal {})",
                with.size_bytes, with.address, with.ordinal
            ),
            Self::TableFull { capacity } => {
                write!(f, "expected at most {capacity} bound segments, got one more: raise the table's capacity")
            }
        }
    }
}

impl core::error::Error for RefuseReason<'_> {}
