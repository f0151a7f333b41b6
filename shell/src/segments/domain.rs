//! GPU memory registered on one device, segment by segment.
//!
//! The rule this file protects: **a view is of memory that was bound and still is what it was**. A request inside a bound segment
//! reads the published table, asks the driver whether the memory is the same (unless the caller is trusted to say when it is not),
//! and counts one reference: no lock, no scan, no call of the library. Any other request is for `domain_place`.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{LocateError, SegmentKey, ServedOrdinals};
use bareverbs_core::view::DeviceName;

use super::domain_turn::Turns;
use super::error::{SegmentError, SegmentErrorKind};
use super::fallback::Fallbacks;
use super::scanner::registered_scanner;
use super::served::ServedSegment;
use super::served_table::{ServedTable, Table};
use super::statistics::{Counters, SegmentStatistics};
use super::{BINDABLE_ACCESS, BindError, Binder, IdentityPolicy, Scanner, SegmentDomainConfig};
use crate::cuda::CudaDriver;
use crate::memory::{HostDomain, View};
use crate::objects::ProtectionDomain;
use crate::symbols::Mlx5Symbols;

/// Registers GPU memory on one device, in one protection domain: each segment once, behind one key (or a few), whatever parts of
/// it are asked for.
///
/// It may be used from any thread. Dropping it gives back what no view holds; views outlive it. Neither asks the driver, an
/// allocator or a scanner anything.
///
/// # Receives
///
/// A queue pair that names such keys, or device memory at all, in its *receives* must not have its completions scattered into
/// them: the mlx5 provider would copy short messages with the processor, to an address that is none. Set
/// `MLX5_SCATTER_TO_CQE=0` in the environment before the device is opened, or make the queue pair by `mlx5dv_create_qp` with
/// `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`.
///
/// # Keys
///
/// A key address is the offset in the key's window: see [`View::key_addr`]. A segment that grows gets a fresh key; views of the
/// old one keep theirs for as long as they live.
///
/// ```
/// use std::sync::Arc;
/// use bareverbs_core::segments::Ordinal;
/// use bareverbs_shell::cuda::CudaDriver;
/// use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
/// use bareverbs_shell::segments::{DriverScanner, SegmentDomain, SegmentDomainConfig};
/// use bareverbs_shell::soft::{SoftConfig, SoftDevice, SoftFabric, cuda::{CudaConfig, SoftCuda}};
///
/// let fabric = SoftFabric::new(SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")]))?;
/// let context = DeviceContext::open(&fabric.symbols(), None)?;
/// let soft = SoftCuda::new(CudaConfig::default())?;
/// let cuda = CudaDriver::with_symbols(soft.symbols());
///
/// let config = SegmentDomainConfig::default().given([Ordinal(0)]);
/// let domain = ProtectionDomain::new(&context, 1)?;
/// let segments = SegmentDomain::new(&domain, cuda.clone(), Some(fabric.mlx5_symbols()), config)?;
/// segments.set_scanner(Some(Arc::new(DriverScanner::new(cuda))));
///
/// let segment = soft.reserve(0, 64 << 20);
/// soft.map(segment, 20 << 20);
/// let tensor = segments.register(segment + 0x400, 4096)?;
/// assert_eq!((tensor.key_addr(), tensor.len_bytes()), (0x400, 4096));
///
/// soft.map(segment + (20 << 20), 20 << 20); // the allocator needs more
/// let other = segments.register(segment + (30 << 20), 4096)?;
/// assert_eq!(other.key_addr(), 30 << 20);
/// let statistics = segments.statistics();
/// assert_eq!((statistics.keys, statistics.regions, statistics.registrations), (1, 2, 2)); // the tail only
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SegmentDomain {
    // Field order is drop order, for the eye only: what is served holds all that it needs.
    pub(super) table: ServedTable<ServedSegment>,
    pub(super) fallbacks: Fallbacks,
    pub(super) turns: Turns,
    pub(super) counters: Counters,
    /// What binds, or why nothing does.
    pub(super) binder: Result<Binder, Arc<str>>,
    pub(super) cuda: CudaDriver,
    pub(super) host: HostDomain,
    pub(super) config: SegmentDomainConfig,
    /// The ordinals, in words.
    served: Arc<str>,
    scanner: RwLock<Option<Arc<dyn Scanner>>>,
    domain: Arc<ProtectionDomain>,
}

impl fmt::Debug for SegmentDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentDomain")
            .field("device", self.domain.context().name())
            .field("served", &self.served)
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

/// What the published table says to a request.
pub(super) enum Hit {
    View(View),
    /// It is served, by more than one key.
    Straddles,
    Miss,
}

/// What became of a request that is not for a region of its own.
pub(super) enum Placed {
    View(View),
    Straddles,
}

impl SegmentDomain {
    /// For that protection domain. Without `mlx5`, or where it does not support the device, all requests get regions of their
    /// own.
    ///
    /// # Errors
    /// [`BindError::Access`] for access that no binding gives; [`BindError::Alignment`] for regions that are not cut at whole pages;
    /// [`BindError::Shell`] if the device cannot be asked.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        cuda: CudaDriver,
        mlx5: Option<Arc<Mlx5Symbols>>,
        config: SegmentDomainConfig,
    ) -> Result<Self, BindError> {
        if !BINDABLE_ACCESS.contains(config.access) {
            return Err(BindError::Access { device: Arc::clone(domain.context().name()), got: config.access });
        }
        let (got_bytes, page_bytes) = (u64::from(config.binder.chunk.alignment().bytes()), cuda.page_bytes());
        if !got_bytes.is_multiple_of(page_bytes) {
            return Err(BindError::Alignment { device: Arc::clone(domain.context().name()), got_bytes, page_bytes });
        }
        let binder = match mlx5.map(|mlx5| Binder::new(domain, mlx5, config.binder)) {
            Some(Ok(binder)) => Ok(binder),
            Some(Err(error)) if error.is_unsupported() => Err(error.to_string().into()),
            Some(Err(error)) => return Err(error),
            None => Err("no mlx5 provider was given".into()),
        };
        let host = HostDomain::new(domain)?.access(config.access);
        let served = ServedOrdinals { given: &config.given, pinned: &config.pinned }.to_string().into();
        Ok(Self {
            table: ServedTable::new(),
            fallbacks: Fallbacks::default(),
            turns: Turns::default(),
            counters: Counters::default(),
            binder,
            cuda,
            host,
            config,
            served,
            scanner: RwLock::default(),
            domain: Arc::clone(domain),
        })
    }

    /// Gives the domain a scanner of its own, instead of the [process's](super::register_scanner); `None` takes it away.
    /// Answers the one before.
    pub fn set_scanner(&self, scanner: Option<Arc<dyn Scanner>>) -> Option<Arc<dyn Scanner>> {
        std::mem::replace(&mut *self.scanner.write().unwrap_or_else(PoisonError::into_inner), scanner)
    }

    pub(super) fn scanner(&self) -> Option<Arc<dyn Scanner>> {
        let own = self.scanner.read().unwrap_or_else(PoisonError::into_inner).clone();
        own.or_else(registered_scanner)
    }

    /// The protection domain.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// The device's name.
    pub fn device(&self) -> &DeviceName {
        self.host.device()
    }

    /// The devices whose memory is served.
    pub fn served(&self) -> ServedOrdinals<'_> {
        ServedOrdinals { given: &self.config.given, pinned: &self.config.pinned }
    }

    /// A view of device memory.
    ///
    /// What lies in a bound segment, in one key's window, costs a look-up and, by [`IdentityPolicy::Verify`], a question to the
    /// driver for each mapping touched. Else the segments are scanned, and what changed is bound, grown and dropped, each by
    /// itself. What no key can serve (no mlx5 device, another ordinal, more than a key or the table holds, more than one window,
    /// memory that no scanned segment covers) gets a region of its own over its allocation or mappings, and the reason is told at
    /// `warn`, once for each segment.
    ///
    /// # Errors
    /// [`SegmentError`]. Host memory is refused here, since nobody vouches that it stays mapped: register it by its
    /// [`LocalMemory`](crate::memory::LocalMemory), with [`register_memory`](Self::register_memory).
    pub fn register(&self, addr: u64, size: u64) -> Result<View, SegmentError> {
        let asked = self.asked(addr, size)?;
        match self.hit(asked) {
            Hit::View(view) => Ok(view),
            hit => self.register_missed(asked, hit).map_err(|kind| self.error(addr, size, kind)),
        }
    }

    /// As [`register`](Self::register), in as many views as there are windows that it lies in: one after the other, from the
    /// start to the end.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn register_parts(&self, addr: u64, size: u64) -> Result<Vec<View>, SegmentError> {
        let asked = self.asked(addr, size)?;
        let placed = match self.hit(asked) {
            Hit::View(view) => return Ok(vec![view]),
            Hit::Straddles => Ok(Placed::Straddles),
            Hit::Miss => self.place(asked),
        };
        let views = placed.and_then(|placed| match placed {
            Placed::View(view) => Ok(vec![view]),
            // It may have gone meanwhile: then it is served whole, or refused.
            Placed::Straddles => match self.split(asked) {
                Some(views) => Ok(views),
                None => self.register_missed(asked, Hit::Miss).map(|view| vec![view]),
            },
        });
        views.map_err(|kind| self.error(addr, size, kind))
    }

    /// Says that memory in this range was freed. When this returns, no later request is served from what was bound of it, whole
    /// segments and regions, nor is any of it bound by a scan that began before; live views keep theirs.
    ///
    /// Call it *after* the memory is freed, and before its address is used again. Said of memory that is still mapped, it is
    /// undone by the next request there, which finds the segment and binds it anew: by [`IdentityPolicy::Trust`] that key would
    /// then be handed out for other memory at that address.
    pub fn invalidate(&self, range: AddressRange) {
        let gone = self.table.invalidate(range);
        self.fallbacks.invalidate(range);
        drop(gone);
    }

    /// What is served now, and what was done so far.
    pub fn statistics(&self) -> SegmentStatistics {
        let mut statistics = self.counters.snapshot();
        for row in self.table.read().rows() {
            let (keys, regions) = row.value.counts();
            statistics.segments += 1;
            statistics.keys += keys;
            statistics.regions += regions;
        }
        statistics
    }

    fn asked(&self, addr: u64, size: u64) -> Result<AddressRange, SegmentError> {
        if size == 0 {
            return Err(self.error(addr, size, SegmentErrorKind::Empty));
        }
        AddressRange::new(addr, size).map_err(|error| self.error(addr, size, SegmentErrorKind::Range(error)))
    }

    #[cold]
    pub(super) fn error(&self, addr: u64, size: u64, kind: SegmentErrorKind) -> SegmentError {
        let device = Arc::clone(self.domain.context().name());
        SegmentError { device, addr, size, served: Arc::clone(&self.served), kind }
    }

    /// The fast path.
    #[inline]
    pub(super) fn hit(&self, asked: AddressRange) -> Hit {
        let table = self.table.read();
        let Some(row) = table.lookup(asked) else { return Hit::Miss };
        match self.view_in(&row.value, asked) {
            Hit::Miss => self.hit_lower(&table, row.key(), asked),
            hit => hit,
        }
    }

    /// The rare rest of [`hit`](Self::hit): the row is not what is mapped; where devices share a base, another may be.
    #[cold]
    fn hit_lower(&self, table: &Table<ServedSegment>, missed: SegmentKey, asked: AddressRange) -> Hit {
        for row in table.covering(asked).filter(|row| row.key() != missed) {
            match self.view_in(&row.value, asked) {
                Hit::Miss => {}
                hit => return hit,
            }
        }
        Hit::Miss
    }

    #[inline]
    fn view_in(&self, segment: &ServedSegment, asked: AddressRange) -> Hit {
        if !self.is_same(segment, asked) {
            return Hit::Miss;
        }
        match segment.view(asked) {
            Ok(view) => Hit::View(view),
            Err(LocateError::Straddles { .. }) => Hit::Straddles,
            Err(_) => Hit::Miss,
        }
    }

    /// Whether what is bound is what is mapped, as far as the policy asks.
    #[inline]
    fn is_same(&self, segment: &ServedSegment, asked: AddressRange) -> bool {
        self.config.identity == IdentityPolicy::Trust || segment.holds(&self.cuda, asked)
    }

    /// The parts of what more than one key serves.
    fn split(&self, asked: AddressRange) -> Option<Vec<View>> {
        let table = self.table.read();
        let holds = |identity| identity == IdentityPolicy::Trust;
        let row =
            table.covering(asked).find(|row| holds(self.config.identity) || row.value.holds(&self.cuda, asked))?;
        row.value.views(asked).ok()
    }
}
