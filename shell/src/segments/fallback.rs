//! Requests that no key serves: a region of their own, over the allocation or the mappings that hold them.
//!
//! Protects: the region covers all that was asked for, or there is none; the file's offset is 0, so the view is what is advanced,
//! once. A region is shared with later requests while a view of it lives and its memory is the same; nothing else holds it, so
//! no memory is kept that its allocator has freed.
//!
//! # Safety
//!
//! This file guarantees that a region is over a file that the driver exported for its very addresses, and that a view lies within
//! its region.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bareverbs_core::range::{AddressRange, Span};
use bareverbs_core::segments::{Covers, ScannedSegment};
use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::{DeviceName, KeyedRange};

use super::domain::SegmentDomain;
use super::error::{NoKey, NotBound, SegmentErrorKind};
use super::served_identity::Identity;
use crate::cuda::CudaDriver;
use crate::error::Error;
use crate::memory::{View, ViewGuard};
use crate::objects::{MemoryRegion, ProtectionDomain};

/// What a region is made of.
pub(super) struct Maker<'a> {
    pub(super) domain: &'a Arc<ProtectionDomain>,
    pub(super) device: DeviceName,
    pub(super) cuda: &'a CudaDriver,
    pub(super) access: AccessFlags,
}

/// A region of one allocation, or of some mappings.
pub(super) struct FallbackRegion {
    region: MemoryRegion,
    identity: Identity,
    device: DeviceName,
}

impl ViewGuard for FallbackRegion {
    fn device(&self) -> &DeviceName {
        &self.device
    }

    fn protection_domain(&self) -> Option<&Arc<ProtectionDomain>> {
        Some(self.region.domain())
    }

    fn access(&self) -> Option<AccessFlags> {
        Some(self.region.access())
    }
}

impl Maker<'_> {
    /// Registers what holds `asked`, and does so anew where that changed meanwhile.
    pub(super) fn register(&self, asked: AddressRange, why: &NoKey) -> Result<Arc<FallbackRegion>, SegmentErrorKind> {
        let attempts = (0..SegmentDomain::ROUNDS).map(|_| self.attempt(asked, why.clone()));
        let settled = attempts.into_iter().find(|made| !matches!(made, Err(SegmentErrorKind::Changing)));
        settled.unwrap_or(Err(SegmentErrorKind::Changing))
    }

    fn attempt(&self, asked: AddressRange, why: NoKey) -> Result<Arc<FallbackRegion>, SegmentErrorKind> {
        let export_error = |error| SegmentErrorKind::Export { why: why.clone(), error: Box::new(error) };
        let before = Identity::of(self.cuda, asked).map_err(export_error)?;
        let exported = self.cuda.export(asked).map_err(export_error)?;
        // SAFETY: 1: the driver made the file for these addresses. 2: device memory is under no Rust reference.
        let region = unsafe { MemoryRegion::of_dma_buf(self.domain, exported.file(), exported.range(), self.access) };
        // It is closed once, right after, whatever came of it.
        drop(exported);
        let region = region.or_else(|refused| self.register_plainly(asked, refused));
        let region = region.map_err(|error| SegmentErrorKind::Region { why: why.clone(), error: Box::new(error) })?;
        let identity = Identity::of(self.cuda, region.range()).map_err(export_error)?;
        if !identity.includes(&before) {
            return Err(SegmentErrorKind::Changing);
        }
        Ok(Arc::new(FallbackRegion { region, identity, device: self.device }))
    }

    /// The plain registration of the very range that was asked for, once, where dma-bufs are not supported.
    fn register_plainly(&self, asked: AddressRange, refused: Error) -> Result<MemoryRegion, Error> {
        if !refused.is_unsupported() {
            return Err(refused);
        }
        let (addr, len_bytes) = (asked.base() as usize, asked.len_bytes() as usize);
        // SAFETY: 1: device memory, whose driver takes the region away with the mapping. 2: it is under no Rust reference.
        let plain = unsafe { MemoryRegion::register(self.domain, addr, len_bytes, self.access, None) };
        plain.map_err(|plain| Error::NeitherRegistration { dma_buf: Box::new(refused), plain: Box::new(plain) })
    }
}

impl FallbackRegion {
    /// Where it is.
    pub(super) fn range(&self) -> AddressRange {
        self.region.range()
    }

    /// A view of `asked`; none if that is not all in the region.
    pub(super) fn view(self: &Arc<Self>, asked: AddressRange) -> Option<View> {
        let region = &self.region;
        if !region.range().covers(asked) {
            return None;
        }
        let key_addr = region.key_base().checked_add(asked.base() - region.range().base())?;
        let range = KeyedRange::new(asked.base(), key_addr, asked.len_bytes(), region.lkey(), region.rkey()).ok()?;
        let guard: Arc<dyn ViewGuard> = Arc::clone(self) as _;
        // SAFETY: 1: the guard is the region with these keys, whose first byte they call `key_base`, and `asked` lies within
        // it. 2: the region keeps the memory, or its driver takes it away with the mapping. 3: the guard tells the region's own
        // domain and that domain's device.
        Some(unsafe { View::new(range, guard) })
    }
}

/// What is known of requests that no key serves.
#[derive(Default)]
pub(super) struct Fallbacks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Regions with their ranges, as long as views hold them.
    live: Vec<(AddressRange, Weak<FallbackRegion>)>,
    /// Segments that no key can serve as they are: requests in them need no scan.
    beyond_keys: Vec<BeyondKeys>,
    /// Of what was told, by kind of reason.
    told: Vec<(AddressRange, u8)>,
}

struct BeyondKeys {
    segment: ScannedSegment,
    range: AddressRange,
    identity: Identity,
    why: Arc<NotBound>,
}

/// How many segments are remembered as told of. Beyond it, some are told of again.
const MAX_TOLD: usize = 4096;

impl Fallbacks {
    /// A view over a region that lives and covers `asked`, if its memory is still the same.
    pub(super) fn live_view(&self, cuda: &CudaDriver, asked: AddressRange) -> Option<View> {
        // The driver is asked, and what was held meanwhile let go, with no lock held. One of freed memory may live beside one of
        // what is there now.
        let candidates: Vec<_> = {
            let state = self.lock();
            let covering = state.live.iter().filter(|(range, _)| range.covers(asked));
            covering.filter_map(|(_, region)| region.upgrade()).collect()
        };
        // The latest first.
        candidates.iter().rev().find(|region| region.identity.holds(cuda, asked)).and_then(|region| region.view(asked))
    }

    /// Shares a region with later requests.
    pub(super) fn share(&self, region: &Arc<FallbackRegion>) {
        let mut state = self.lock();
        state.live.retain(|(_, region)| region.strong_count() > 0);
        state.live.push((region.range(), Arc::downgrade(region)));
    }

    /// Why the segment that holds `asked` is beyond what keys can do, if that is known and nothing says that it is another by
    /// now: the memory asked for, or that at one of the segment's ends, which it loses when it shrinks.
    pub(super) fn beyond_keys(&self, cuda: &CudaDriver, asked: AddressRange) -> Option<Arc<NotBound>> {
        let (range, identity, why) = {
            let state = self.lock();
            let known = state.beyond_keys.iter().find(|known| known.range.covers(asked))?;
            (known.range, known.identity.clone(), Arc::clone(&known.why))
        };
        let ends = [0, range.len_bytes() - 1].map(|offset_bytes| range.part(Span { offset_bytes, len_bytes: 1 }));
        let mut looked_at = ends.into_iter().flatten().chain([asked]);
        looked_at.all(|at| identity.holds(cuda, at)).then_some(why)
    }

    /// Takes in what a scan showed to be beyond what keys can do, in place of what was known of where it looked.
    pub(super) fn remember_beyond_keys(
        &self,
        cuda: &CudaDriver,
        covers: Covers,
        found: impl Iterator<Item = (ScannedSegment, Arc<NotBound>)>,
    ) {
        let known = |(segment, why): (ScannedSegment, Arc<NotBound>)| {
            let range = segment.range().ok()?;
            let identity = Identity::of(cuda, range).ok()?;
            Some(BeyondKeys { segment, range, identity, why })
        };
        let found: Vec<_> = found.filter_map(known).collect();
        let mut state = self.lock();
        state.beyond_keys.retain(|known| {
            covers.part_of(known.range).is_none() && found.iter().all(|new| new.segment != known.segment)
        });
        state.beyond_keys.extend(found);
    }

    /// Forgets all about what overlaps `range`.
    pub(super) fn invalidate(&self, range: AddressRange) {
        let mut state = self.lock();
        state.beyond_keys.retain(|known| !known.range.overlaps(range));
        state.told.retain(|(of, _)| !of.overlaps(range));
        state.live.retain(|(of, _)| !of.overlaps(range));
    }

    /// Whether it was told before why no key serves the segment or allocation that `asked` begins in.
    pub(super) fn is_told(&self, asked: AddressRange, why: &NoKey) -> bool {
        let kind = kind_of(why);
        self.lock().told.iter().any(|(of, told)| *told == kind && of.offset_of(asked.base()).is_some())
    }

    /// Whether it is to be told of this segment or allocation, which is then told. One that has grown since was told before.
    pub(super) fn tell(&self, of: AddressRange, why: &NoKey) -> bool {
        let kind = kind_of(why);
        let mut state = self.lock();
        let mut grown =
            state.told.iter_mut().filter(|(told, as_kind)| *as_kind == kind && told.overlaps(of)).peekable();
        let is_new = grown.peek().is_none();
        grown.for_each(|(told, _)| *told = union(*told, of));
        if is_new {
            if state.told.len() >= MAX_TOLD {
                state.told.clear();
            }
            state.told.push((of, kind));
        }
        is_new
    }

    /// Nothing panics with it held, and what it guards is whole at any time.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The least range that covers both.
fn union(a: AddressRange, b: AddressRange) -> AddressRange {
    let base = a.base().min(b.base());
    let end = a.end().zip(b.end()).map(|(a, b)| a.max(b));
    end.and_then(|end| AddressRange::new(base, end - base).ok()).unwrap_or(a)
}

fn kind_of(why: &NoKey) -> u8 {
    match why {
        NoKey::NoProvider { .. } => 0,
        NoKey::NotServed { .. } => 1,
        NoKey::Straddles => 2,
        NoKey::NotBound(_) => 3,
        NoKey::NotScanned => 4,
        NoKey::StillScanning => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::CudaDriver;
    use crate::objects::DeviceContext;
    use crate::soft::cuda::{CudaConfig, SoftCuda};
    use crate::soft::{SoftConfig, SoftFabric};
    use bareverbs_core::segments::Ordinal;

    const LEN_BYTES: u64 = 4096;

    fn range(base: u64) -> AddressRange {
        AddressRange::new(base, LEN_BYTES).expect("below 2^64")
    }

    #[test]
    fn regions_without_views_leave_nothing_to_look_through() {
        let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        let context = DeviceContext::open(&fabric.symbols(), None).expect("a device");
        let domain = ProtectionDomain::new(&context, 1).expect("a domain");
        let soft = SoftCuda::new(CudaConfig::default()).expect("a free slot");
        let cuda = CudaDriver::with_symbols(soft.symbols());
        let device = DeviceName::new(b"mlx5_0").expect("a name");
        let maker = Maker { domain: &domain, device, cuda: &cuda, access: AccessFlags::LOCAL_WRITE };
        let (fallbacks, asked) = (Fallbacks::default(), range(soft.allocate(0, LEN_BYTES)));
        for _ in 0..10 {
            let region = maker.register(asked, &NoKey::NotScanned).expect("registered");
            fallbacks.share(&region);
            assert!(fallbacks.live_view(&cuda, asked).is_some());
            assert_eq!(fallbacks.lock().live.len(), 1);
        }
    }

    #[test]
    fn what_a_scan_says_of_where_it_looked_takes_the_place_of_what_was_known_there() {
        let soft = SoftCuda::new(CudaConfig::default()).expect("a free slot");
        let cuda = CudaDriver::with_symbols(soft.symbols());
        let asked = range(soft.allocate(0, 2 * LEN_BYTES));
        let seen = |size_bytes| {
            let (address, ordinal) = (asked.base(), Ordinal(0));
            let segment = ScannedSegment { address, size_bytes, ordinal, expandable: true };
            Some((segment, Arc::new(NotBound::TableFull { capacity: 0 })))
        };
        let fallbacks = Fallbacks::default();
        let is_known = || fallbacks.beyond_keys(&cuda, asked).is_some();
        let counts = |covers, found: Option<_>| {
            fallbacks.remember_beyond_keys(&cuda, covers, found.into_iter());
            fallbacks.lock().beyond_keys.len()
        };
        assert_eq!(counts(Covers::Everything, seen(LEN_BYTES)), 1);
        assert_eq!(counts(Covers::Everything, seen(2 * LEN_BYTES)), 1, "it has grown");
        assert_eq!(counts(Covers::Range(range(0)), None), 1, "it looked elsewhere");
        assert!(is_known());
        assert_eq!(counts(Covers::Range(asked), None), 0);
        assert!(!is_known());
    }

    #[test]
    fn what_was_told_of_freed_memory_is_told_again_of_what_is_there_then() {
        let fallbacks = Fallbacks::default();
        let (here, there) = (range(0), range(LEN_BYTES));
        for of in [here, there] {
            assert!(fallbacks.tell(of, &NoKey::NotScanned) && !fallbacks.tell(of, &NoKey::NotScanned));
        }
        fallbacks.invalidate(here);
        let told = [here, there].map(|of| fallbacks.is_told(of, &NoKey::NotScanned));
        assert_eq!(told, [false, true]);
    }
}
