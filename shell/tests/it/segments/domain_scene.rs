//! A domain of segments on an mlx5 device, a GPU in software, a scanner that says what a test tells it, and a peer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Covers, Ordinal, ScannedSegment};
use bareverbs_core::verbs::AccessFlags;
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::memory::View;
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::segments::{
    DriverScanner, ScanError, Scanner, SegmentDomain, SegmentDomainConfig, SegmentError, SegmentErrorKind, SegmentScan,
};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda, SoftGpu};
use bareverbs_shell::soft::{Call, Detail, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::scene::{ALL, End, finish, memory, pattern, transfers_config, view};
use crate::world::World;

pub const M: u64 = 2 << 20;
pub const MAX: u64 = 4_292_870_144;
/// How much a test's segment may grow to.
pub const ROOM: u64 = 512 << 30;

pub fn range(base: u64, len_bytes: u64) -> AddressRange {
    AddressRange::new(base, len_bytes).expect("below 2^64")
}

/// A scanner that answers what it was told last.
pub struct Script {
    answer: Mutex<Result<SegmentScan, ScanError>>,
    hints: Mutex<Vec<AddressRange>>,
    /// What happens within the next scans, in order.
    within: Mutex<VecDeque<Box<dyn FnOnce() + Send>>>,
}

impl Default for Script {
    fn default() -> Self {
        let nothing = SegmentScan { segments: Vec::new(), covers: Covers::Everything };
        Self { answer: Mutex::new(Ok(nothing)), hints: Mutex::default(), within: Mutex::default() }
    }
}

impl Script {
    /// Answers these segments from now on, as all there are.
    pub fn shows(&self, segments: &[ScannedSegment]) {
        self.answers(Ok(SegmentScan { segments: segments.to_vec(), covers: Covers::Everything }));
    }

    pub fn answers(&self, answer: Result<SegmentScan, ScanError>) {
        *self.answer.lock().expect("whole") = answer;
    }

    /// Does this within the next scan that has nothing to do yet, before it answers.
    pub fn within(&self, action: impl FnOnce() + Send + 'static) {
        self.within.lock().expect("whole").push_back(Box::new(action));
    }

    pub fn scans(&self) -> usize {
        self.hints.lock().expect("whole").len()
    }

    pub fn hints(&self) -> Vec<AddressRange> {
        self.hints.lock().expect("whole").clone()
    }
}

impl Scanner for Script {
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
        self.hints.lock().expect("whole").push(hint);
        let action = self.within.lock().expect("whole").pop_front();
        action.into_iter().for_each(|action| action());
        self.answer.lock().expect("whole").clone()
    }
}

pub fn seen(address: u64, size_bytes: u64) -> ScannedSegment {
    on(0, address, size_bytes)
}

pub fn on(ordinal: u32, address: u64, size_bytes: u64) -> ScannedSegment {
    ScannedSegment { address, size_bytes, ordinal: Ordinal(ordinal), expandable: true }
}

/// How a scene is made.
pub struct Making {
    pub fabric: SoftConfig,
    pub config: SegmentDomainConfig,
    pub gpus: u32,
    /// Whether the provider is given.
    pub provider: bool,
}

impl Default for Making {
    fn default() -> Self {
        Self {
            fabric: on_device(SoftDevice::mlx5("mlx5_0")),
            config: SegmentDomainConfig::default().given([Ordinal(0)]).access(ALL).deadline(Duration::from_millis(500)),
            gpus: 1,
            provider: true,
        }
    }
}

pub fn on_device(device: SoftDevice) -> SoftConfig {
    SoftConfig::default().devices(vec![device]).record(Record::Control(200_000))
}

pub struct Scene {
    pub domain: Arc<SegmentDomain>,
    pub scanner: Arc<Script>,
    pub pd: Arc<ProtectionDomain>,
    pub driver: CudaDriver,
    pub cuda: SoftCuda,
    pub soft: SoftFabric,
    pub world: World,
}

impl Making {
    pub fn scene(self) -> Scene {
        let world = World::of_config(self.fabric, "mlx5");
        let soft = world.soft.clone().expect("a software fabric");
        let gpu = |at| SoftGpu::default().pci(0, 0x40 + at, 0).memory_bytes(4 << 40);
        let gpus = (0..self.gpus).map(gpu).collect();
        let cuda = SoftCuda::new(CudaConfig::default().gpus(gpus).record(100_000)).expect("a free slot");
        let driver = CudaDriver::with_symbols(cuda.symbols());
        let pd = ProtectionDomain::new(&world.open(), 1).expect("a domain");
        let mlx5 = self.provider.then(|| soft.mlx5_symbols());
        let domain = SegmentDomain::new(&pd, driver.clone(), mlx5, self.config).expect("a device that can be asked");
        let scanner = Arc::new(Script::default());
        domain.set_scanner(Some(Arc::clone(&scanner) as _));
        soft.clear_record();
        Scene { domain: Arc::new(domain), scanner, pd, driver, cuda, soft, world }
    }
}

impl Scene {
    pub fn new() -> Self {
        Making::default().scene()
    }

    /// One whose segments are found by the driver.
    pub fn walking() -> Self {
        let scene = Self::new();
        scene.domain.set_scanner(Some(Arc::new(DriverScanner::new(scene.driver.clone()))));
        scene
    }

    /// Addresses for a segment of GPU 0 with one mapping of `len_bytes` from their start.
    pub fn segment(&self, len_bytes: u64) -> u64 {
        self.segment_on(0, len_bytes)
    }

    pub fn segment_on(&self, ordinal: i32, len_bytes: u64) -> u64 {
        let base = self.cuda.reserve(ordinal, ROOM);
        self.cuda.map(base, len_bytes);
        base
    }

    pub fn register(&self, addr: u64, size: u64) -> Result<View, SegmentError> {
        self.domain.register(addr, size)
    }

    pub fn view(&self, addr: u64, size: u64) -> View {
        self.register(addr, size).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn refusal(&self, addr: u64, size: u64) -> SegmentErrorKind {
        self.register(addr, size).expect_err("refused").kind
    }

    /// Calls of the library since its record was cleared.
    pub fn calls(&self, symbol: &str) -> usize {
        self.soft.record().iter().filter(|call| call.symbol == symbol).count()
    }

    /// All calls that make, bind or end something.
    pub fn device_calls(&self) -> usize {
        self.soft.record().len()
    }

    /// Entries of the bindings, in order.
    pub fn bound(&self) -> Vec<u32> {
        let entries = |call: &Call| match call.detail {
            Detail::Bind { entries, .. } => Some(entries),
            _ => None,
        };
        self.soft.record().iter().filter_map(entries).collect()
    }

    /// The ranges exported so far, in order: what was registered.
    pub fn exported(&self) -> Vec<(u64, u64)> {
        let exports = self.cuda.record().into_iter().filter(|call| call.symbol == "cuMemGetHandleForAddressRange");
        exports.map(|call| (call.subject, call.size)).collect()
    }

    pub fn cuda_calls(&self) -> usize {
        self.cuda.record().len()
    }

    /// Live regions and keys on the device.
    pub fn live(&self) -> (usize, usize) {
        let live = self.soft.live();
        (live.mrs, live.keys)
    }

    /// That so many bytes of GPU 0 are in use, by mappings, regions and open files. Another test's thread may be about to let go
    /// of what was closed.
    pub fn assert_in_use(&self, bytes: u64) {
        let began = std::time::Instant::now();
        while self.cuda.used_bytes(0) != bytes && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(self.cuda.used_bytes(0), bytes);
    }

    /// A peer connected to an end in this domain.
    pub fn peer(&self) -> Peer {
        let peer = End::new(&self.world.open(), transfers_config()).expect("a queue pair");
        let here = End::in_domain(&self.pd, transfers_config()).expect("a queue pair");
        let mut peer = Peer { peer, here, turn: 0 };
        bareverbs_shell::one_sided::connect_pair(&mut peer.peer, &mut peer.here).expect("both are in INIT");
        peer
    }

    /// That nothing is left once all is dropped.
    pub fn assert_all_goes(self) {
        let Self { domain, pd, world, cuda, .. } = self;
        drop((Arc::into_inner(domain).expect("no other owner"), pd));
        world.assert_clean();
        drop(cuda);
    }
}

/// What a peer writes and reads by a view that was published to it.
pub struct Peer {
    peer: End,
    here: End,
    turn: u8,
}

impl Peer {
    /// Writes all of the view's bytes; whether it was let.
    pub fn write(&mut self, to: &View, bytes: &[u8]) -> bool {
        let local = memory(bytes);
        let from = view(&self.peer, &local, AccessFlags::LOCAL_WRITE);
        let lease = to.publish().expect("a key");
        self.peer.write(&from, lease.remote()).expect("it fits");
        finish(&mut self.peer).into_iter().all(|(_, result)| result.is_ok())
    }

    /// Reads all of the view's bytes.
    pub fn read(&mut self, from: &View) -> Vec<u8> {
        let local = memory(&vec![0; from.len_bytes() as usize]);
        let to = view(&self.peer, &local, AccessFlags::LOCAL_WRITE);
        let lease = from.publish().expect("a key");
        self.peer.read(&to, lease.remote()).expect("it fits");
        assert!(finish(&mut self.peer).into_iter().all(|(_, result)| result.is_ok()));
        crate::scene::content(&local)
    }

    /// Writes bytes that are no others' through the view, and has the GPU read them, and their neighbours' stay.
    pub fn prove(&mut self, cuda: &SoftCuda, through: &View) {
        self.turn += 1;
        let bytes = pattern(through.len_bytes() as usize, self.turn);
        assert!(self.write(through, &bytes), "{through:?}");
        assert_eq!(cuda.read(through.addr(), bytes.len()), bytes, "{through:?}");
        assert_eq!(self.read(through), bytes, "{through:?}");
    }

    pub fn leave(self) {
        drop((self.peer, self.here));
    }
}
