//! Why a plan is not taken in.

use core::fmt;

use super::table::Ordinal;
use super::windows::WindowLimits;
use crate::range::AddressRange;

/// A plan that was made for another segment, or for this one in another state: by what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum StalePlan {
    /// It binds a segment, and does not grow one.
    Binds,
    /// Another device's memory.
    Ordinal {
        /// The segment's.
        expected: Ordinal,
        /// That of the segment that the plan was made for.
        got: Ordinal,
    },
    /// It was made to grow from another range.
    Range {
        /// What is covered.
        expected: AddressRange,
        /// What was covered where the plan was made.
        got: AddressRange,
    },
    /// The segment has grown since, or was bound anew.
    Generation {
        /// The segment's generation.
        expected: u64,
        /// The generation that the plan was made for.
        got: u64,
    },
    /// It cuts by other limits.
    Limits {
        /// Those that the segment was bound with.
        expected: WindowLimits,
        /// The plan's.
        got: WindowLimits,
    },
    /// It takes over regions or keys other than the segment's.
    Parts {
        /// How many regions the segment has.
        parts: u32,
        /// How many keys the segment has.
        windows: u32,
    },
}

impl fmt::Display for StalePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Binds => f.write_str("expected a plan of growth, got one that binds"),
            Self::Ordinal { expected, got } => {
                write!(f, "expected a plan for a segment of ordinal {expected}, got one for {got}")
            }
            Self::Range { expected, got } => write!(
                f,
                "expected a plan from {} bytes at {:#x} on, got one from {} bytes at {:#x}",
                expected.len_bytes(),
                expected.base(),
                got.len_bytes(),
                got.base()
            ),
            Self::Generation { expected, got } => {
                write!(f, "expected a plan made for generation {expected} of this segment, got one for {got}")
            }
            Self::Limits { expected, got } => write!(
                f,
                "expected a plan with regions of at most {} bytes and {} entries a key, got one with {} and {}, or another sum",
                expected.chunk().max_bytes(),
                expected.cap().entries(),
                got.chunk().max_bytes(),
                got.cap().entries()
            ),
            Self::Parts { parts, windows } => {
                write!(f, "expected a plan over this segment's {parts} regions and {windows} keys, got one over others")
            }
        }?;
        f.write_str(": plan anew")
    }
}

impl core::error::Error for StalePlan {}
