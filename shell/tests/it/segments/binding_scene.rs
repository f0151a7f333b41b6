//! A device that binds keys, memory of a GPU to bind them over, and a peer that writes through them.
//!
//! # Safety
//!
//! Regions here are over exports of the very ranges that they are said to cover, of which there is no Rust reference.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{BoundSegment, Ordinal};
use bareverbs_core::view::RemoteView;
use bareverbs_shell::memory::View;
use bareverbs_shell::objects::{DeviceContext, MemoryRegion, ProtectionDomain};
use bareverbs_shell::segments::{Binder, BinderConfig, BoundWindow, CarryOutError, Windows, bind_segment, grow};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};
use bareverbs_shell::soft::{Call, Detail, LiveCounts, Mode, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::ledger::Ledger;
use crate::scene::{ALL, End, finish, memory, pattern, transfers_config, view};
use crate::soft::raw::cuda::Driver;
use crate::world::World;

pub const M: u64 = 2 << 20;
pub const MAX: u64 = 4_292_870_144;
pub const BASE: u64 = 0x10_0000_0000;

/// Windows and regions that a segment of these tests has room for.
pub type Segment = BoundSegment<(), 8, 128>;

pub fn range(base: u64, len_bytes: u64) -> AddressRange {
    AddressRange::new(base, len_bytes).expect("below 2^64")
}

pub fn mlx5(device: &str) -> SoftConfig {
    SoftConfig::default().devices(vec![SoftDevice::mlx5(device)]).record(Record::Control(100_000))
}

/// Impatient enough for tests in which nothing comes.
pub fn config() -> BinderConfig {
    BinderConfig::default().deadline(Duration::from_millis(200))
}

/// Memory of a GPU, from [`BASE`] on.
pub struct Gpu {
    pub cuda: SoftCuda,
    driver: Driver,
}

impl Gpu {
    pub fn new(len_bytes: u64) -> Self {
        let cuda = SoftCuda::new(CudaConfig::default()).expect("a free slot");
        let driver = Driver(cuda.symbols());
        driver.retain_primary(0).and_then(|context| driver.set_current(context)).expect("a context");
        cuda.allocate_at(0, BASE, len_bytes);
        Self { cuda, driver }
    }

    pub fn export(&self, range: AddressRange) -> OwnedFd {
        self.driver.export(range.base(), range.len_bytes()).expect("an export")
    }
}

/// A domain of an mlx5 device, and what binds its keys.
pub struct Bench {
    pub gpu: Gpu,
    pub soft: SoftFabric,
    pub world: World,
    pub domain: Arc<ProtectionDomain>,
    pub binder: Binder,
}

impl Bench {
    pub fn new(config: SoftConfig, len_bytes: u64) -> Self {
        let world = World::of_config(config, "mlx5");
        let soft = world.soft.clone().expect("a software fabric");
        let domain = ProtectionDomain::new(&world.open(), 1).expect("a domain");
        Self::in_domain(world, soft, domain, len_bytes)
    }

    /// With a peer, connected to an end in the binder's domain.
    pub fn with_peer(config: SoftConfig, len_bytes: u64) -> (Self, Peer) {
        let world = World::of_config(config, "mlx5");
        let soft = world.soft.clone().expect("a software fabric");
        let (peer, here) = crate::scene::pair(&world, &transfers_config());
        let domain = Arc::clone(here.domain().expect("not closed"));
        (Self::in_domain(world, soft, domain, len_bytes), Peer { peer, here })
    }

    fn in_domain(world: World, soft: SoftFabric, domain: Arc<ProtectionDomain>, len_bytes: u64) -> Self {
        let binder = Binder::new(&domain, soft.mlx5_symbols(), self::config()).expect("an mlx5 device");
        Self { gpu: Gpu::new(len_bytes), soft, world, domain, binder }
    }

    /// With a binder of another configuration.
    pub fn configured(mut self, config: BinderConfig) -> Self {
        self.binder = Binder::new(&self.domain, self.soft.mlx5_symbols(), config).expect("an mlx5 device");
        self
    }

    /// In a domain of another context, of this fabric.
    pub fn moved_to(mut self, context: &Arc<DeviceContext>) -> Self {
        self.domain = ProtectionDomain::new(context, 1).expect("a domain");
        self.configured(self::config())
    }

    pub fn context(&self) -> &Arc<DeviceContext> {
        self.domain.context()
    }

    /// A region of the domain over an export of the range.
    pub fn register(&self, range: AddressRange) -> Result<MemoryRegion, bareverbs_shell::Error> {
        let file = self.gpu.export(range);
        // SAFETY: 1: the export is of that range. 2: it is memory of a GPU, of which there are no references.
        unsafe { MemoryRegion::of_dma_buf(&self.domain, file.as_fd(), range, ALL) }
    }

    /// A key over one region.
    pub fn bind_one(&self, range: AddressRange) -> Result<Arc<BoundWindow>, bareverbs_shell::segments::BindError> {
        let region = Arc::new(self.register(range).expect("a region"));
        self.binder.bind(ALL, vec![region], range)
    }

    /// Binds a segment from [`BASE`] on.
    pub fn bind(&self, len_bytes: u64) -> Result<(Segment, Windows), CarryOutError<bareverbs_shell::Error>> {
        let limits = self.binder.limits().expect("limits");
        let plan = Segment::plan_bind(range(BASE, len_bytes), limits).expect("a plan");
        let windows = bind_segment(&self.binder, ALL, &plan, &|range| self.register(range))?;
        Ok((Segment::new(plan, Ordinal(0), ()), windows))
    }

    /// Grows a segment, if that takes anything; a failure changes nothing.
    pub fn grow(
        &self,
        segment: &mut Segment,
        windows: &mut Windows,
        len_bytes: u64,
    ) -> Result<(), CarryOutError<bareverbs_shell::Error>> {
        let to = range(segment.range().base(), len_bytes);
        let Some(plan) = segment.plan_growth(to).expect("a plan") else { return Ok(()) };
        let grown = grow(&self.binder, ALL, &plan, windows, &|range| self.register(range))?;
        segment.grow(plan, ()).expect("its own plan");
        *windows = grown;
        Ok(())
    }

    pub fn live(&self) -> LiveCounts {
        self.soft.live()
    }

    /// That nothing was misused, and so many keys and regions are left; what is left is then taken away.
    pub fn assert_stays(self, keys: usize, regions: usize) {
        let Self { soft, domain, binder, world, gpu } = self;
        drop((binder, domain));
        assert_eq!((soft.live().keys, soft.live().mrs, soft.live().pds), (keys, regions, 1));
        assert_eq!(soft.misuse(), Vec::<String>::new());
        Ledger::replay(&soft.record()).sweep(&soft);
        drop((world, gpu));
    }

    /// That nothing is left, once all is dropped.
    pub fn assert_all_goes(self) {
        let Self { world, domain, binder, .. } = self;
        drop((binder, domain));
        world.assert_clean();
    }
}

/// Lengths registered, and entries bound, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub registered: Vec<u64>,
    pub bound: Vec<u32>,
}

/// What succeeded of a record, which is then forgotten.
pub fn done(soft: &SoftFabric) -> Done {
    let mut done = Done::default();
    for call in soft.record().into_iter().filter(|call| call.returned == 0) {
        match call.detail {
            Detail::RegisterDmaBuf { length_bytes, .. } => done.registered.push(length_bytes as u64),
            Detail::Bind { entries, .. } => done.bound.push(entries),
            _ => {}
        }
    }
    soft.clear_record();
    done
}

pub fn calls(soft: &SoftFabric, symbol: &str) -> usize {
    soft.record().iter().filter(|call: &&Call| call.symbol == symbol).count()
}

/// An end elsewhere, and the end in the binder's domain that it is connected to.
pub struct Peer {
    peer: End,
    here: End,
}

impl Peer {
    /// Writes through a key and reads it back through it; whether both succeeded, and the bytes are those.
    pub fn goes_there_and_back(&mut self, window: &View, seed: u8) -> bool {
        let lease = window.publish().expect("a key for others");
        let bytes = pattern(window.len_bytes() as usize, seed);
        self.write(lease.remote(), &bytes) && self.read(lease.remote()) == Some(bytes)
    }

    pub fn write(&mut self, to: &RemoteView, bytes: &[u8]) -> bool {
        let local = view(&self.peer, &memory(bytes), ALL);
        self.peer.write(&local, to).expect("posted");
        finish(&mut self.peer).iter().all(|(_, result)| result.is_ok())
    }

    pub fn read(&mut self, from: &RemoteView) -> Option<Vec<u8>> {
        let memory = memory(&vec![0; from.len_bytes() as usize]);
        let local = view(&self.peer, &memory, ALL);
        self.peer.read(&local, from).expect("posted");
        finish(&mut self.peer).iter().all(|(_, result)| result.is_ok()).then(|| crate::scene::content(&memory))
    }

    /// The end in the binder's domain writes from a window to host memory of the peer's: by the own device's key.
    pub fn fetched_by_lkey(&mut self, window: &View) -> Vec<u8> {
        let memory = memory(&vec![0; window.len_bytes() as usize]);
        let lease = view(&self.peer, &memory, ALL).publish().expect("a key");
        self.here.write(window, lease.remote()).expect("posted");
        assert!(finish(&mut self.here).iter().all(|(_, result)| result.is_ok()));
        crate::scene::content(&memory)
    }
}

pub fn modes() -> [Mode; 3] {
    [Mode::Prompt, Mode::Adversarial { seed: 5 }, Mode::Adversarial { seed: 11 }]
}
