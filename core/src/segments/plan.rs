//! What binding or growing a segment takes, before any of it is done.
//!
//! Protects: a plan is a value. It says which regions to register, which to take over, which keys to make and which to retire;
//! it changes nothing, so that a failure while carrying it out leaves the segment as it was. [`BoundSegment`] makes plans and
//! takes them in once they are carried out.
//!
//! [`BoundSegment`]: super::BoundSegment

use core::fmt;
use core::ops::Range;

use heapless::Vec;

use super::chunks::ChunkError;
use super::cover::{Cover, WindowSpan};
use super::table::Ordinal;
use super::windows::WindowLimits;
use crate::range::AddressRange;

/// Where a part's region comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PartSource {
    /// It is to be registered.
    Register,
    /// It is the region of the segment's present part with this number, counted through all its windows.
    Reuse(u32),
}

/// One entry of a key to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PlannedPart {
    /// Its addresses.
    pub range: AddressRange,
    /// Where its region comes from.
    pub source: PartSource,
}

/// How a segment of up to `W` windows and `E` parts comes to cover a range.
///
/// Carried out in this order: register what [`to_register`](Self::to_register) gives; make one fresh key per
/// [`fresh_windows`](Self::fresh_windows) and bind its parts to it; hand the plan to the segment; retire the keys of
/// [`retired_windows`](Self::retired_windows), and with the last view of them the regions of
/// [`released_parts`](Self::released_parts). A failure on the way: deregister what was registered, and forget the plan.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::{
///     BoundSegment, ChunkLimits, EntryCap, LengthSum, Ordinal, PartSource::{Register, Reuse}, WindowLimits,
/// };
///
/// type Segment = BoundSegment<(), 4, 64>;
/// const M: u64 = 2 << 20;
/// const MAX: u64 = 4_292_870_144;
/// let limits = WindowLimits::new(ChunkLimits::GPU, EntryCap::new(32).unwrap(), LengthSum::Bits64).unwrap();
/// let range = |len_bytes| AddressRange::new(0x10_0000_0000, len_bytes).unwrap();
///
/// let plan = Segment::plan_bind(range(MAX + M), limits).unwrap();
/// assert_eq!(plan.to_register().map(|region| region.len_bytes()).collect::<Vec<_>>(), [MAX, M]);
/// assert_eq!(plan.fresh_windows().count(), 1); // one key, with two entries
/// let segment = Segment::new(plan, Ordinal(0), ()); // once that is done
///
/// let plan = segment.plan_growth(range(MAX + 2 * M)).unwrap().unwrap();
/// assert_eq!(plan.sources(), [Reuse(0), Reuse(1), Register]);
/// assert_eq!(plan.retired_windows(), 0..1); // its views keep the old key
/// assert_eq!(plan.released_parts().count(), 0); // its regions serve the fresh one
///
/// drop(plan); // the tail was refused: nothing has happened
/// assert_eq!(segment.range(), range(MAX + M));
/// assert_eq!(segment.plan_growth(range(MAX + M)), Ok(None)); // the same size: nothing to do
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a plan does nothing until it is carried out and taken in"]
pub struct Plan<const W: usize, const E: usize> {
    pub(super) limits: WindowLimits,
    pub(super) cover: Cover<W, E>,
    pub(super) sources: Vec<PartSource, E>,
    pub(super) kept_windows: u32,
    /// The segment that it was made for; none if it binds one.
    pub(super) made_for: Option<MadeFor>,
    pub(super) old_windows: u32,
    pub(super) old_parts: u32,
}

impl<const W: usize, const E: usize> Plan<W, E> {
    /// What will be covered.
    pub fn range(&self) -> AddressRange {
        self.cover.range()
    }

    /// How many windows there will be in all: [`kept_windows`](Self::kept_windows) and the fresh ones after them.
    pub fn window_count(&self) -> u32 {
        self.cover.windows().len() as u32
    }

    /// How many windows, from the first on, keep key and regions as they are.
    pub fn kept_windows(&self) -> u32 {
        self.kept_windows
    }

    /// The windows to make a fresh key for, in order.
    pub fn fresh_windows(&self) -> impl Iterator<Item = PlannedWindow<'_, W, E>> {
        let kept = self.kept_windows as usize;
        self.cover.windows().iter().enumerate().skip(kept).map(|(at, span)| PlannedWindow {
            plan: self,
            index: at as u32,
            span,
        })
    }

    /// The ranges to register, by address: each becomes one region.
    pub fn to_register(&self) -> impl Iterator<Item = AddressRange> {
        let parts = self.cover.windows().iter().flat_map(|span| self.cover.parts_of(span));
        parts.zip(&self.sources).filter(|(_, source)| **source == PartSource::Register).map(|(range, _)| range)
    }

    /// Where the region of each part comes from, through all windows (those that are kept, too): the segment's regions after
    /// the plan, in order.
    pub fn sources(&self) -> &[PartSource] {
        &self.sources
    }

    /// The segment's present windows whose keys retire: a view built on one keeps it, nothing else does.
    pub fn retired_windows(&self) -> Range<u32> {
        self.kept_windows..self.old_windows
    }

    /// Whether all that it takes over, retires and releases is what `old` has.
    pub(super) fn was_made_over(&self, old: &Cover<W, E>) -> bool {
        let kept = self.kept_windows as usize;
        let same_counts =
            old.windows().len() == self.old_windows as usize && old.part_lens().len() == self.old_parts as usize;
        same_counts && self.cover.windows().get(..kept) == old.windows().get(..kept) && self.reuses_parts_of(old)
    }

    /// Whether each part that it takes over is the old one of that number: at the same place, and as long.
    fn reuses_parts_of(&self, old: &Cover<W, E>) -> bool {
        // Reused parts come in order.
        let mut old_parts = old.part_spans().zip(0..);
        self.cover.part_spans().zip(&self.sources).all(|(span, source)| match *source {
            PartSource::Register => true,
            PartSource::Reuse(part) => old_parts.find(|old| old.1 == part).is_some_and(|old| old.0 == span),
        })
    }

    /// The segment's present parts that no key uses afterwards but retired ones: their regions go when those do.
    pub fn released_parts(&self) -> impl Iterator<Item = u32> {
        let mut reused = self.sources.iter().filter_map(|source| match source {
            PartSource::Reuse(part) => Some(*part),
            PartSource::Register => None,
        });
        let mut next_reused = reused.next();
        // Reused parts come in order.
        (0..self.old_parts).filter(move |&part| {
            if next_reused == Some(part) {
                next_reused = reused.next();
                return false;
            }
            true
        })
    }
}

/// What a plan remembers of the segment that it was made for, besides its limits and how many windows and parts it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MadeFor {
    pub ordinal: Ordinal,
    pub range: AddressRange,
    pub generation: u64,
}

/// A window to make a fresh key for.
#[derive(Clone, Copy, Debug)]
pub struct PlannedWindow<'a, const W: usize, const E: usize> {
    plan: &'a Plan<W, E>,
    index: u32,
    span: &'a WindowSpan,
}

impl<'a, const W: usize, const E: usize> PlannedWindow<'a, W, E> {
    /// Which window of the segment it will be, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its addresses.
    pub fn range(&self) -> AddressRange {
        self.plan.cover.window_range(self.span).unwrap_or(AddressRange::EMPTY)
    }

    /// How many entries its key needs.
    pub fn part_count(&self) -> u32 {
        self.span.part_count
    }

    /// The key's entries, in order.
    pub fn parts(&self) -> impl Iterator<Item = PlannedPart> + use<'a, W, E> {
        let sources = self.plan.sources.get(self.span.first_part as usize..).unwrap_or(&[]);
        self.plan.cover.parts_of(self.span).zip(sources).map(|(range, &source)| PlannedPart { range, source })
    }
}

/// A segment that cannot be covered so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PlanError {
    /// There is nothing to cover.
    Empty {
        /// The base that was given.
        base: u64,
    },
    /// The range cannot be cut into whole parts.
    Chunk(ChunkError),
    /// More keys are needed than there is room for.
    Windows {
        /// How many windows the segment has room for.
        room: usize,
    },
    /// More regions are needed than there is room for.
    Parts {
        /// How many parts the segment has room for.
        room: usize,
    },
    /// What is to be covered does not start where the segment does: that is another segment.
    Base {
        /// The segment's base.
        expected: u64,
        /// The base that was given.
        got: u64,
    },
    /// What is to be covered is less than is covered: that calls for a fresh binding.
    Shrinks {
        /// How much is covered.
        covered_bytes: u64,
        /// How much would be.
        got_bytes: u64,
    },
}

impl From<ChunkError> for PlanError {
    fn from(refused: ChunkError) -> Self {
        Self::Chunk(refused)
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty { base } => write!(f, "expected a segment of at least 1 byte, got 0 at {base:#x}"),
            Self::Chunk(refused) => refused.fmt(f),
            Self::Windows { room } => write!(f, "expected a segment of at most {room} keys, got one that needs more"),
            Self::Parts { room } => write!(f, "expected a segment of at most {room} regions, got one that needs more"),
            Self::Base { expected, got } => write!(f, "expected growth of the segment at {expected:#x}, got {got:#x}"),
            Self::Shrinks { covered_bytes, got_bytes } => {
                write!(f, "expected growth from {covered_bytes} bytes, got {got_bytes}: bind it afresh")
            }
        }
    }
}

impl core::error::Error for PlanError {}
