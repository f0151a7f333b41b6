//! One bound segment, as far as it is numbers.
//!
//! Protects: a segment is what its keys really cover, never what was scanned; and it changes only by taking in a plan that has
//! been carried out. Regions, keys and views are the caller's, in the order in which this counts parts and windows.

use super::cover::Cover;
use super::growth::grown;
use super::locate::{LocateError, Located, locate, split};
use super::plan::{MadeFor, Plan, PlanError};
use super::stale_plan::StalePlan;
use super::table::{Ordinal, SegmentKey};
use super::windows::WindowLimits;
use crate::range::AddressRange;

/// A segment that keys cover: up to `W` of them, with up to `E` regions in all. `I` is its identity: what the caller compares
/// to tell this memory from other memory at the same address (the driver's buffer id, or a digest of those of all its
/// mappings).
///
/// Room: one region per 4 GiB and at most 11 more per window; a window of a key of 30 entries that grew in small steps covers
/// about 80 GiB. `W` = 8 and `E` = 160 hold 280 GiB.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::{BoundSegment, ChunkLimits, EntryCap, LengthSum, Ordinal, PartSource, WindowLimits};
///
/// type Segment = BoundSegment<u64, 4, 64>;
/// const M: u64 = 2 << 20;
/// let limits = WindowLimits::new(ChunkLimits::GPU, EntryCap::new(32).unwrap(), LengthSum::Bits64).unwrap();
///
/// // Bind: plan, register, bind the key; then the plan becomes the segment.
/// let plan = Segment::plan_bind(AddressRange::new(0x10_0000_0000, M).unwrap(), limits).unwrap();
/// assert_eq!(plan.to_register().count(), 1);
/// let mut segment = Segment::new(plan, Ordinal(0), 907);
///
/// // Grow: only the tail is registered; a fresh key takes the old region over, the old key retires.
/// let plan = segment.plan_growth(AddressRange::new(0x10_0000_0000, 2 * M).unwrap()).unwrap().unwrap();
/// let tail = plan.to_register().next().unwrap();
/// assert_eq!((tail.base(), tail.len_bytes()), (0x10_0000_0000 + M, M));
/// assert_eq!(plan.sources(), [PartSource::Reuse(0), PartSource::Register]);
/// assert_eq!(plan.retired_windows(), 0..1);
/// // (a failure here: drop the plan, and nothing has happened)
/// segment.grow(plan, 907).unwrap();
///
/// let view = segment.locate(AddressRange::new(0x10_0000_0400, 4096).unwrap()).unwrap();
/// assert_eq!((view.window, view.offset_bytes), (0, 0x400));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundSegment<I, const W: usize, const E: usize> {
    ordinal: Ordinal,
    identity: I,
    generation: u64,
    limits: WindowLimits,
    cover: Cover<W, E>,
}

impl<I, const W: usize, const E: usize> BoundSegment<I, W, E> {
    /// What it takes to bind `range`: the entries are counted against the cap before anything is registered.
    ///
    /// # Errors
    /// [`PlanError`]: the range is empty, cannot be cut into whole parts, or needs more windows or parts than there is room
    /// for.
    pub fn plan_bind(range: AddressRange, limits: WindowLimits) -> Result<Plan<W, E>, PlanError> {
        if range.is_empty() {
            return Err(PlanError::Empty { base: range.base() });
        }
        limits.chunk().check(range)?;
        grown(&Cover::at(range.base()), range.len_bytes(), limits)
    }

    /// The segment that the plan describes, once it has been carried out.
    pub fn new(plan: Plan<W, E>, ordinal: Ordinal, identity: I) -> Self {
        let generation = plan.made_for.map_or(0, |made_for| made_for.generation).saturating_add(1);
        Self { ordinal, identity, generation, limits: plan.limits, cover: plan.cover }
    }

    /// What it takes to cover `to`, which starts where the segment does: only the new tail is registered while entries are
    /// free. None if that is covered already: there is nothing to do.
    ///
    /// # Errors
    /// [`PlanError`]: another base, less than is covered, a range that cannot be cut, or more than there is room for.
    ///
    /// Growth in small steps merges small regions into larger ones as entries run short, and no more often than that:
    ///
    /// ```
    /// use bareverbs_core::range::AddressRange;
    /// use bareverbs_core::segments::{BoundSegment, ChunkLimits, EntryCap, LengthSum, Ordinal, WindowLimits};
    ///
    /// type Segment = BoundSegment<(), 2, 64>;
    /// const STEP: u64 = 2 << 20;
    /// let limits = WindowLimits::new(ChunkLimits::GPU, EntryCap::new(30).unwrap(), LengthSum::Bits64).unwrap();
    /// let range = |steps| AddressRange::new(0x10_0000_0000, steps * STEP).unwrap();
    ///
    /// let mut segment = Segment::new(Segment::plan_bind(range(1), limits).unwrap(), Ordinal(0), ());
    /// let mut registered_bytes = STEP;
    /// for steps in 2..=1000 {
    ///     let plan = segment.plan_growth(range(steps)).unwrap().expect("it is longer");
    ///     registered_bytes += plan.to_register().map(|region| region.len_bytes()).sum::<u64>();
    ///     assert!(plan.sources().len() <= 1 + 11); // one entry, and one per level
    ///     segment.grow(plan, ()).unwrap();
    /// }
    /// assert!(registered_bytes <= 12 * segment.range().len_bytes());
    /// ```
    pub fn plan_growth(&self, to: AddressRange) -> Result<Option<Plan<W, E>>, PlanError> {
        let range = self.range();
        if to.base() != range.base() {
            return Err(PlanError::Base { expected: range.base(), got: to.base() });
        }
        if to.len_bytes() < range.len_bytes() {
            return Err(PlanError::Shrinks { covered_bytes: range.len_bytes(), got_bytes: to.len_bytes() });
        }
        if to.len_bytes() == range.len_bytes() {
            return Ok(None);
        }
        self.limits.chunk().check(to)?;
        let plan = grown(&self.cover, to.len_bytes(), self.limits)?;
        let made_for = MadeFor { ordinal: self.ordinal, range, generation: self.generation };
        Ok(Some(Plan { made_for: Some(made_for), ..plan }))
    }

    /// Takes in a plan that has been carried out, and the identity of what is covered now.
    ///
    /// # Errors
    /// [`StalePlan`] if the segment changed after the plan was made, or the plan is another segment's, be it one that was bound
    /// at the same base before; it stays as it is.
    pub fn grow(&mut self, plan: Plan<W, E>, identity: I) -> Result<(), StalePlan> {
        self.check(&plan)?;
        self.identity = identity;
        self.generation = self.generation.saturating_add(1);
        self.cover = plan.cover;
        Ok(())
    }

    /// Whether all that the plan says of the segment that it was made for is true of this one.
    fn check(&self, plan: &Plan<W, E>) -> Result<(), StalePlan> {
        let made_for = plan.made_for.ok_or(StalePlan::Binds)?;
        if made_for.ordinal != self.ordinal {
            return Err(StalePlan::Ordinal { expected: self.ordinal, got: made_for.ordinal });
        }
        if made_for.range != self.range() {
            return Err(StalePlan::Range { expected: self.range(), got: made_for.range });
        }
        if made_for.generation != self.generation {
            return Err(StalePlan::Generation { expected: self.generation, got: made_for.generation });
        }
        if plan.limits != self.limits {
            return Err(StalePlan::Limits { expected: self.limits, got: plan.limits });
        }
        if !plan.was_made_over(&self.cover) {
            return Err(StalePlan::Parts { parts: self.part_count(), windows: self.window_count() });
        }
        Ok(())
    }

    /// What its keys cover.
    pub fn range(&self) -> AddressRange {
        self.cover.range()
    }

    /// The device whose memory it is.
    pub fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// Its key in the segment table.
    pub fn key(&self) -> SegmentKey {
        SegmentKey { base: self.range().base(), ordinal: self.ordinal }
    }

    /// The identity of what is covered.
    pub fn identity(&self) -> &I {
        &self.identity
    }

    /// How often it has been bound or grown, from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The limits that it was bound with: they hold for its life.
    pub fn limits(&self) -> WindowLimits {
        self.limits
    }

    /// How many windows, and so keys, it has.
    pub fn window_count(&self) -> u32 {
        self.cover.windows().len() as u32
    }

    /// What the window's key covers; none from [`window_count`](Self::window_count) on.
    pub fn window(&self, index: u32) -> Option<AddressRange> {
        self.cover.windows().get(index as usize).and_then(|window| self.cover.window_range(window))
    }

    /// The ranges of the window's regions, in the order of its key's entries.
    pub fn parts(&self, window: u32) -> impl Iterator<Item = AddressRange> {
        self.cover.windows().get(window as usize).into_iter().flat_map(|window| self.cover.parts_of(window))
    }

    /// How many regions it has in all windows.
    pub fn part_count(&self) -> u32 {
        self.cover.part_lens().len() as u32
    }

    /// The window that holds all of `asked`, and where in it; O(log of the windows).
    ///
    /// # Errors
    /// [`LocateError`]: nothing asked for, not all of it covered, or in more than one window.
    pub fn locate(&self, asked: AddressRange) -> Result<Located, LocateError> {
        locate(&self.cover, asked)
    }

    /// `asked`, cut at the windows' edges: each piece lies in one window.
    ///
    /// # Errors
    /// [`LocateError`]: nothing asked for, or not all of it covered.
    pub fn split(&self, asked: AddressRange) -> Result<impl Iterator<Item = Located> + '_, LocateError> {
        split(&self.cover, asked)
    }
}
