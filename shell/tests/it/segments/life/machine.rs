//! One life: a domain, an allocator, a peer, and what each view may see.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Alignment, ChunkLimits, EntryCap, Ordinal};
use bareverbs_core::verbs::AccessFlags;
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::memory::{LocalMemory, View};
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::one_sided::connect_pair;
use bareverbs_shell::segments::{BinderConfig, IdentityPolicy, SegmentDomain, SegmentDomainConfig};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda, SoftGpu};
use bareverbs_shell::soft::{Answer, LiveCounts, Mode, Record, SoftConfig, SoftDevice, SoftFabric};

use super::faults::{self, Planned};
use super::memory::{self, Memory, Piece};
use super::scanner::{LifeScanner, Manner};
use super::steps::{Fault, Setup};
use super::table::{Region, Row, Window};
use super::watch::Watch;
use crate::drop_log;
use crate::scene::{ALL, End, content, finish, memory as host_memory, transfers_config, view};
use crate::segments::domain_scene::M;
use crate::world::World;

/// How often what came to pass in a life.
pub type Tally = BTreeMap<&'static str, u64>;

pub const DEVICE: &str = "mlx5_life";

/// What a view is under.
#[derive(Clone, Debug)]
pub enum Under {
    Window(Rc<Window>),
    Region(Rc<Region>),
}

/// A view, and what it may see.
#[derive(Clone, Debug)]
pub struct Held {
    pub view: View,
    pub pieces: Vec<Piece>,
    pub under: Under,
}

pub struct Machine {
    pub setup: Setup,
    pub served: Vec<u32>,
    pub domain: Arc<SegmentDomain>,
    pub scanner: Arc<LifeScanner>,
    pub memory: Memory,
    pub rows: Vec<Row>,
    pub held: Vec<Held>,
    pub fallbacks: Vec<Weak<Region>>,
    pub watch: Watch,
    pub soft: SoftFabric,
    /// Calls of the driver that were looked at.
    pub looked_at: u64,
    /// Whether a binding is still to fail.
    pub binding_fault: bool,
    snapshot: bool,
    failed_releases: u64,
    /// How often what came to pass.
    pub tally: Tally,
    pd: Arc<ProtectionDomain>,
    peer: Peer,
    before: LiveCounts,
    world: World,
}

impl Machine {
    pub fn new(setup: Setup) -> Self {
        drop_log::keep();
        drop(drop_log::take(DEVICE));
        let mode = setup.adversary.map_or(Mode::Prompt, |seed| Mode::Adversarial { seed });
        let device = SoftDevice::mlx5(DEVICE);
        let fabric = SoftConfig::default().devices(vec![device]).mode(mode).record(Record::Control(4096));
        let world = World::of_config(if setup.old_provider { fabric.old_mlx5_provider() } else { fabric }, "life");
        let soft = world.soft.clone().expect("a software fabric");
        let gpus = vec![SoftGpu::default().pci(0, 0x40, 0), SoftGpu::default().pci(0, 0x41, 0)];
        let cuda = SoftCuda::new(CudaConfig::default().gpus(gpus).record(8192)).expect("a free slot");
        let driver = CudaDriver::with_symbols(cuda.symbols());
        let pd = ProtectionDomain::new(&world.open(), 1).expect("a domain");
        let served = if setup.serves_both { vec![0, 1] } else { vec![0] };
        let domain = domain(setup, &served, &pd, driver.clone(), &soft);
        let scanner = LifeScanner::new(driver);
        domain.set_scanner(Some(Arc::clone(&scanner) as _));
        let peer = Peer::new(&world, &pd);
        let before = soft.live();
        let mut machine = Self {
            setup,
            served,
            domain: Arc::new(domain),
            scanner,
            memory: Memory::new(cuda, &[(14, 0), (10, 0), (10, 1)]),
            rows: Vec::new(),
            held: Vec::new(),
            fallbacks: Vec::new(),
            watch: Watch::new(),
            soft,
            looked_at: 0,
            binding_fault: false,
            snapshot: setup.snapshot,
            failed_releases: 0,
            tally: Tally::new(),
            pd,
            peer,
            before,
            world,
        };
        machine.show();
        machine
    }

    /// Shows the scanner what there is now.
    pub fn show(&mut self) {
        self.scanner.snapshot(self.snapshot.then(|| self.memory.segments()));
    }

    pub fn show_by(&mut self, snapshot: bool) {
        self.snapshot = snapshot;
        self.show();
    }

    /// Plans what goes wrong in the next call; whether anything does.
    pub fn plan(&mut self, fault: Option<Fault>) -> bool {
        let patient = self.setup.adversary.is_some();
        match fault.map(|fault| faults::of(fault, patient)) {
            None => {}
            Some(Planned::Fabric(symbol, answer, nth)) => self.soft.fail(symbol, nth, answer),
            Some(Planned::NoDmaBuf(nth)) => {
                self.soft.fail("ibv_reg_dmabuf_mr", nth, Answer::null(libc::EOPNOTSUPP));
                self.soft.fail_from("ibv_reg_mr", 1, Answer::null(libc::EFAULT));
            }
            Some(Planned::Cuda(symbol, answer, nth, true)) => self.memory.cuda.fail_from(symbol, nth, answer),
            Some(Planned::Cuda(symbol, answer, nth, false)) => self.memory.cuda.fail(symbol, nth, answer),
            Some(Planned::Binding(fault)) if !self.binding_fault => {
                self.soft.binding_fault(1, fault);
                self.binding_fault = true;
            }
            Some(Planned::Binding(_)) => {}
        }
        fault.is_some() || self.binding_fault
    }

    /// Nothing goes wrong from here on, but for the next binding if none was made.
    pub fn be_well(&mut self) {
        self.soft.clear_plan();
        self.memory.cuda.clear_plan();
        self.scanner.be(Manner::Well);
        let bound = self.soft.record().iter().any(|call| call.symbol == "mlx5dv_wr_mr_list" && call.returned == 0);
        self.binding_fault &= !bound;
    }

    /// Ranges exported since this was asked last, in order.
    pub fn exports(&mut self) -> Vec<AddressRange> {
        let record = self.memory.cuda.record();
        let new = record.iter().filter(|call| call.number >= self.looked_at);
        let (mut exports, mut next) = (Vec::new(), self.looked_at);
        for call in new {
            next = call.number + 1;
            let good = call.result == bareverbs_core::cuda::CuResult::SUCCESS;
            match call.symbol {
                "cuMemGetHandleForAddressRange" if good => {
                    exports.push(AddressRange::new(call.subject, call.size).expect("it was exported"));
                }
                "cuDevicePrimaryCtxRelease_v2" if !good => self.failed_releases += 1,
                _ => {}
            }
        }
        self.looked_at = next;
        exports
    }

    /// Reads and writes by a view, at its ends and where its memory or its regions change.
    pub fn prove(&mut self, held: &Held) {
        let (base, len) = (held.view.addr(), held.view.len_bytes());
        let mut spots = BTreeSet::from([0, len.saturating_sub(100)]);
        let stale =
            |piece: &Piece| !self.memory.blocks.values().any(|block| Rc::ptr_eq(&block.physical, &piece.physical));
        if held.pieces.iter().any(stale) {
            self.came("a view sees memory that is mapped no more");
        }
        if held.pieces.len() > 1 {
            self.came("a view lies in several mappings");
        }
        let mut edge = 0;
        for piece in &held.pieces {
            edge += piece.len;
            spots.insert(edge.saturating_sub(60));
        }
        let units = (base.next_multiple_of(M)..base + len).step_by(M as usize).map(|at| (at - base).saturating_sub(60));
        spots.extend(units.take(4));
        for at in spots.into_iter().filter(|at| *at < len) {
            let now = (len - at).min(120);
            let part = held.view.part(at, now).expect("within");
            let pieces = memory::part_of(&held.pieces, at, now);
            let (is, wanted) = (self.peer.read(&part), memory::read(&pieces));
            assert!(is == wanted, "{held:?} at {at}: {}", memory::first_difference(&is, &wanted));
            let bytes = self.memory.news(now);
            self.peer.write(&part, &bytes);
            memory::write(&pieces, &bytes);
            let is = self.peer.read(&part);
            assert!(is == bytes, "{held:?} at {at}: {}", memory::first_difference(&is, &bytes));
        }
    }

    /// That what is alive is what is to be: current windows, those that views hold, and regions that views hold.
    pub fn count(&mut self) {
        let (mut windows, mut regions) = (Vec::new(), Vec::new());
        let held_windows = self.held.iter().filter_map(|held| match &held.under {
            Under::Window(window) => Some(window),
            Under::Region(_) => None,
        });
        for window in self.rows.iter().flat_map(|row| &row.windows).chain(held_windows) {
            add(&mut windows, window);
            window.regions.iter().for_each(|region| add(&mut regions, region));
        }
        for held in &self.held {
            if let Under::Region(region) = &held.under {
                add(&mut regions, region);
            }
        }
        let live = self.soft.live();
        let expected = (self.before.keys + windows.len(), self.before.mrs + regions.len());
        assert_eq!((live.keys, live.mrs), expected, "keys and regions; served are {:#?}", self.rows);
        assert!(live.qps - self.before.qps <= 1 && live.cqs - self.before.cqs <= 1, "{live:?}");
        assert_eq!((live.pds, live.contexts), (self.before.pds, self.before.contexts));
        if windows.len() > self.rows.iter().map(|row| row.windows.len()).sum() {
            self.came("a retired key is held");
        }
        let statistics = self.domain.statistics();
        let of_rows = || self.rows.iter().flat_map(|row| &row.windows);
        let wanted = (self.rows.len(), of_rows().count(), of_rows().map(|window| window.regions.len()).sum::<usize>());
        let said = (statistics.segments as usize, statistics.keys as usize, statistics.regions as usize);
        assert_eq!(said, wanted, "segments, keys and regions; served are {:#?}", self.rows);
        self.count_bytes(&regions);
    }

    /// That each GPU's memory is in use as far as it is mapped or registered, and its context is not retained.
    fn count_bytes(&mut self, regions: &[Rc<Region>]) {
        drop(self.exports());
        let mapped = self.memory.blocks.values().map(|block| &block.physical);
        let registered = regions.iter().flat_map(|region| &region.pieces).map(|piece| &piece.physical);
        let mut all = Vec::new();
        mapped.chain(registered).for_each(|physical| add(&mut all, physical));
        let (mut retained, mut released) = (0, 0);
        for ordinal in [0, 1] {
            let own = all.iter().filter(|physical| physical.ordinal == ordinal);
            let bytes = own.map(|physical| physical.len_bytes.next_multiple_of(M)).sum::<u64>();
            assert_eq!(self.memory.cuda.used_bytes(ordinal.cast_signed()), bytes, "bytes of GPU {ordinal}");
            let counts = self.memory.cuda.retained_and_released(ordinal.cast_signed());
            (retained, released) = (retained + counts.0, released + counts.1);
        }
        assert_eq!(retained - released, self.failed_releases, "primary contexts retained");
    }

    pub fn came(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Ends a life; the domain goes before half of its views.
    pub fn end(mut self) -> Tally {
        for held in std::mem::take(&mut self.held) {
            self.prove(&held);
            self.held.push(held);
        }
        // Every byte takes long, so one life in sixteen.
        match self.memory.blocks.len() % 16 {
            0 => self.memory.check_every_byte(),
            _ => self.memory.check(),
        }
        let later = self.held.split_off(self.held.len() / 2);
        self.held.clear();
        let Self { domain, watch, soft, pd, peer, before, world, mut memory, tally, .. } = self;
        let domain = Arc::into_inner(domain).expect("no other owner");
        watch.run(move || drop(domain)).expect("no drop panics");
        let live = soft.live();
        assert!(later.is_empty() == ((live.keys, live.mrs) == (before.keys, before.mrs)), "{live:?}");
        let views: Vec<_> = later.into_iter().map(|held| held.view).collect();
        watch.run(move || drop(views)).expect("no drop panics");
        assert_eq!(soft.live(), before, "all went but for the peer");
        drop((peer, pd));
        world.assert_clean();
        for base in memory.blocks.keys().copied().collect::<Vec<_>>() {
            memory.free(base);
        }
        assert_eq!([0, 1].map(|ordinal| memory.cuda.used_bytes(ordinal)), [0, 0]);
        assert_eq!(drop_log::take(DEVICE), []);
        tally
    }
}

fn domain(
    setup: Setup,
    served: &[u32],
    pd: &Arc<ProtectionDomain>,
    driver: CudaDriver,
    soft: &SoftFabric,
) -> SegmentDomain {
    let cap = EntryCap::new(setup.cap).expect("an entry");
    let chunk = ChunkLimits::new(Alignment::GPU_PAGE, u64::from(setup.chunk_units) * M).expect("whole units");
    let binder = BinderConfig::default().max_entries(cap).chunk(chunk);
    let policy = if setup.trust { IdentityPolicy::Trust } else { IdentityPolicy::Verify };
    let deadline = if setup.adversary.is_some() { Duration::from_secs(20) } else { Duration::from_millis(100) };
    let config = SegmentDomainConfig::default().binder(binder).deadline(deadline).identity(policy).access(ALL);
    // By topology the first, by configuration the second.
    let config = config.given([Ordinal(0)]).pinned(served.iter().skip(1).copied().map(Ordinal));
    SegmentDomain::new(pd, driver, Some(soft.mlx5_symbols()), config).expect("a device that can be asked")
}

/// Adds what is not there yet.
fn add<T>(all: &mut Vec<Rc<T>>, one: &Rc<T>) {
    if !all.iter().any(|other| Rc::ptr_eq(other, one)) {
        all.push(Rc::clone(one));
    }
}

/// A peer that reads and writes by views that are published to it.
pub struct Peer {
    local: LocalMemory,
    window: View,
    peer: End,
    here: End,
}

impl Peer {
    pub fn new(world: &World, pd: &Arc<ProtectionDomain>) -> Self {
        let mut peer = End::new(&world.open(), transfers_config()).expect("a queue pair");
        let mut here = End::in_domain(pd, transfers_config()).expect("a queue pair");
        connect_pair(&mut peer, &mut here).expect("both are in INIT");
        let local = host_memory(&[0; 256]);
        let window = view(&peer, &local, AccessFlags::LOCAL_WRITE);
        Self { local, window, peer, here }
    }

    pub fn write(&mut self, to: &View, bytes: &[u8]) {
        super::local_bytes::put(&self.local, bytes);
        let from = self.window.part(0, bytes.len() as u64).expect("small");
        let lease = to.publish().expect("a key");
        self.peer.write(&from, lease.remote()).expect("it fits");
        self.succeed(to);
    }

    pub fn read(&mut self, from: &View) -> Vec<u8> {
        let to = self.window.part(0, from.len_bytes()).expect("small");
        let lease = from.publish().expect("a key");
        self.peer.read(&to, lease.remote()).expect("it fits");
        self.succeed(from);
        let mut bytes = content(&self.local);
        bytes.truncate(from.len_bytes() as usize);
        bytes
    }

    fn succeed(&mut self, view: &View) {
        let ends = finish(&mut self.peer);
        assert!(ends.iter().all(|(_, result)| result.is_ok()), "{view:?}: {ends:?}");
        assert!(self.here.pending().next().is_none());
    }
}
