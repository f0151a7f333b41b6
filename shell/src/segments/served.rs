//! One segment that is served: what core says of it, its keys, and how it comes to be and grows.
//!
//! Protects: a segment is what its keys really cover, and the memory that it was when it was bound. Its identity is asked before
//! the first part is registered and after the last key is bound; if they differ, some part may be of the one memory and some of
//! the other, and nothing is served. A failure anywhere leaves what was there as it was.
//!
//! # Safety
//!
//! This file guarantees that a part's region is over a file that the driver exported for the part's very addresses.
#![allow(unsafe_code)]

use std::sync::Arc;

use bareverbs_core::range::{AddressRange, Span};
use bareverbs_core::segments::{BoundSegment, LocateError, Located, Ordinal, Plan, WindowLimits};
use bareverbs_core::verbs::AccessFlags;

use super::carry_out::{Windows, bind_segment, grow};
use super::error::{NotBound, PartError};
use super::served_identity::Identity;
use super::statistics::Counters;
use super::{Binder, BoundWindow};
use crate::cuda::CudaDriver;
use crate::memory::View;
use crate::objects::MemoryRegion;

/// How many keys a segment has at most: 512 GiB where a provider sums lengths in 32 bits, and far more elsewhere.
const MAX_WINDOWS: usize = 256;
/// How many regions it has at most.
const MAX_PARTS: usize = 1024;

type Segment = BoundSegment<Identity, MAX_WINDOWS, MAX_PARTS>;
type SegmentPlan = Plan<MAX_WINDOWS, MAX_PARTS>;

/// What binding takes.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) binder: &'a Binder,
    pub(super) cuda: &'a CudaDriver,
    pub(super) access: AccessFlags,
    pub(super) counters: &'a Counters,
}

impl Means<'_> {
    /// Registers a part, by its export.
    fn register(&self, range: AddressRange) -> Result<MemoryRegion, PartError> {
        let exported = self.cuda.export(range).map_err(PartError::Export)?;
        debug_assert_eq!(exported.range(), range, "parts are whole pages");
        let (domain, range) = (self.binder.domain(), exported.range());
        // SAFETY: 1: the driver made the file for these addresses. 2: device memory is under no Rust reference; the region keeps
        // the memory, or its driver takes a plain region away with it.
        let region = unsafe { MemoryRegion::of_dma_buf_or_plain(domain, exported.file(), range, self.access, None) };
        // It is closed once, right after, whatever came of it.
        drop(exported);
        let region = region.map_err(PartError::Shell)?;
        Counters::add(&self.counters.registrations, 1);
        Ok(region)
    }

    fn identity(&self, range: AddressRange) -> Result<Identity, NotBound> {
        Identity::of(self.cuda, range).map_err(NotBound::Identity)
    }

    fn bound(&self, plan: &SegmentPlan) {
        Counters::add(&self.counters.binds, plan.fresh_windows().count() as u64);
    }
}

/// A bound segment in one generation. Views hold its windows, not this.
pub(super) struct ServedSegment {
    segment: Segment,
    windows: Windows,
}

impl ServedSegment {
    /// Binds a segment.
    pub(super) fn bind(
        means: Means<'_>,
        range: AddressRange,
        ordinal: Ordinal,
        limits: WindowLimits,
    ) -> Result<Self, NotBound> {
        // The plan first: what is beyond the cap is not registered only to be dropped.
        let plan = Segment::plan_bind(range, limits)?;
        let driver = means.cuda.device_of(range.base()).map_err(NotBound::Identity)?;
        if driver != ordinal {
            return Err(NotBound::OtherDevice { driver });
        }
        let identity = means.identity(range)?;
        let windows = bind_segment(means.binder, means.access, &plan, &|part| means.register(part))?;
        means.bound(&plan);
        if means.identity(range)? != identity {
            return Err(NotBound::Changed);
        }
        Ok(Self { segment: Segment::new(plan, ordinal, identity), windows })
    }

    /// The same, grown to `to`; none if that is covered already.
    pub(super) fn grown(&self, means: Means<'_>, to: AddressRange) -> Result<Option<Self>, NotBound> {
        let Some(plan) = self.segment.plan_growth(to)? else { return Ok(None) };
        let range = self.range();
        let span = Span { offset_bytes: range.len_bytes(), len_bytes: to.len_bytes() - range.len_bytes() };
        let tail_range = to.part(span).unwrap_or(AddressRange::EMPTY);
        let tail = means.identity(tail_range)?;
        let windows = grow(means.binder, means.access, &plan, &self.windows, &|part| means.register(part))?;
        means.bound(&plan);
        if !self.holds(means.cuda, range) || means.identity(tail_range)? != tail {
            return Err(NotBound::Changed);
        }
        let mut segment = self.segment.clone();
        let identity = segment.identity().then(&tail);
        segment.grow(plan, identity).map_err(|stale| NotBound::Other(stale.to_string()))?;
        Ok(Some(Self { segment, windows }))
    }

    /// What its keys cover.
    pub(super) fn range(&self) -> AddressRange {
        self.segment.range()
    }

    pub(super) fn ordinal(&self) -> Ordinal {
        self.segment.ordinal()
    }

    /// Whether `asked`, which it covers, is still the memory that was bound.
    #[inline]
    pub(super) fn holds(&self, cuda: &CudaDriver, asked: AddressRange) -> bool {
        self.segment.identity().holds(cuda, asked)
    }

    /// A view of `asked`.
    #[inline]
    pub(super) fn view(&self, asked: AddressRange) -> Result<View, LocateError> {
        let located = self.segment.locate(asked)?;
        let outside = LocateError::Outside { asked, covered: self.range() };
        self.window(located).and_then(|window| window.view(asked)).ok_or(outside)
    }

    /// Views of `asked`, cut at the edges of windows.
    pub(super) fn views(&self, asked: AddressRange) -> Result<Vec<View>, LocateError> {
        let outside = LocateError::Outside { asked, covered: self.range() };
        let piece = |located: Located| {
            let window = self.window(located)?;
            let span = Span { offset_bytes: located.offset_bytes, len_bytes: located.len_bytes };
            window.view(window.range().part(span)?)
        };
        self.segment.split(asked)?.map(|located| piece(located).ok_or(outside)).collect()
    }

    #[inline]
    fn window(&self, located: Located) -> Option<&Arc<BoundWindow>> {
        self.windows.get(located.window)
    }

    /// How many keys and regions it has.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.segment.window_count().into(), self.segment.part_count().into())
    }
}
