//! Registering in segments that are bound, beside what the usual implementation does: a mutex around a hash map that is searched
//! linearly, the scan under the same lock, the list of regions cloned with each growth.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Covers, Ordinal, ScannedSegment};
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
use bareverbs_shell::segments::{IdentityPolicy, ScanError, Scanner, SegmentDomain, SegmentDomainConfig, SegmentScan};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};
use bareverbs_shell::soft::{SoftConfig, SoftDevice, SoftFabric};

use crate::segment_loops::{REQUESTS, requests};

/// Bytes of a segment; as many lie between two.
const SEGMENT_BYTES: u64 = 2 << 20;
/// How long a slow scan takes.
const SCAN_TIME: Duration = Duration::from_millis(1);

/// A domain with bound segments, on an mlx5 device and a GPU in software. One more segment is mapped and not bound.
pub struct Bound {
    domain: SegmentDomain,
    segments: Vec<AddressRange>,
    extra: AddressRange,
    // What it stands on.
    _cuda: SoftCuda,
    _fabric: SoftFabric,
}

/// Tells what there is: at first all but the last, which is mapped as they are; then, slowly, what lies at the hint.
struct Script {
    all: Vec<ScannedSegment>,
    slow: AtomicBool,
}

impl Scanner for Script {
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
        if !self.slow.load(Ordering::Relaxed) {
            return Ok(SegmentScan { segments: self.all.clone(), covers: Covers::Everything });
        }
        thread::sleep(SCAN_TIME);
        let extra =
            ScannedSegment { address: hint.base(), size_bytes: SEGMENT_BYTES, ordinal: Ordinal(0), expandable: true };
        Ok(SegmentScan { segments: vec![extra], covers: Covers::Range(hint) })
    }
}

impl Bound {
    /// With `len` segments bound. No request asks for identities.
    pub fn new(len: usize) -> Self {
        let fabric =
            SoftFabric::new(SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")])).expect("a fabric");
        let context = DeviceContext::open(&fabric.symbols(), None).expect("a device");
        let cuda = SoftCuda::new(CudaConfig::default()).expect("a GPU");
        let base = cuda.reserve(0, 2 * SEGMENT_BYTES * (len as u64 + 1));
        let at = |index: u64| AddressRange::new(base + 2 * SEGMENT_BYTES * index, SEGMENT_BYTES).expect("a range");
        let (segments, extra) = ((0..len as u64).map(at).collect::<Vec<_>>(), at(len as u64));
        segments.iter().chain([&extra]).for_each(|range| cuda.map(range.base(), range.len_bytes()));
        let seen = |range: &AddressRange| ScannedSegment {
            address: range.base(),
            size_bytes: range.len_bytes(),
            ordinal: Ordinal(0),
            expandable: true,
        };
        let script = Arc::new(Script { all: segments.iter().map(seen).collect(), slow: AtomicBool::new(false) });
        let config = SegmentDomainConfig::default().given([Ordinal(0)]).identity(IdentityPolicy::Trust);
        let pd = ProtectionDomain::new(&context, 1).expect("a protection domain");
        let driver = CudaDriver::with_symbols(cuda.symbols());
        let domain = SegmentDomain::new(&pd, driver, Some(fabric.mlx5_symbols()), config).expect("a domain");
        domain.set_scanner(Some(Arc::clone(&script) as _));
        domain.register(base, SEGMENT_BYTES).expect("it is bound");
        assert_eq!(domain.statistics().segments, len as u64, "all are bound");
        script.slow.store(true, Ordering::Relaxed);
        Self { domain, segments, extra, _cuda: cuda, _fabric: fabric }
    }

    /// The segments.
    pub fn segments(&self) -> &[AddressRange] {
        &self.segments
    }

    /// [`REQUESTS`] requests in them.
    pub fn requests(&self) -> Box<[AddressRange; REQUESTS]> {
        requests(&self.segments)
    }

    /// `n` registrations of what is bound, each given back at once; answers how many were served.
    #[inline(never)]
    pub fn hits(&self, requests: &[AddressRange; REQUESTS], n: u64) -> u64 {
        let mut sum = 0;
        for i in 0..n {
            let asked = requests[i as usize % REQUESTS];
            let view = black_box(&self.domain).register(asked.base(), asked.len_bytes());
            sum += u64::from(black_box(view).is_ok());
        }
        sum
    }
}

/// What the usual implementation gives out.
pub struct TwinView {
    /// The key.
    pub key: u32,
    /// Where it begins under the key.
    pub offset_bytes: u64,
    /// What keeps it.
    pub guard: Arc<TwinKey>,
}

/// A key, with its regions.
pub struct TwinKey {
    regions: Vec<Arc<AddressRange>>,
}

struct TwinSegment {
    len_bytes: u64,
    key: u32,
    guard: Arc<TwinKey>,
}

/// A mutex around a hash map that is searched linearly. A miss scans, and what it shows is bound or grown, all under the lock.
pub struct Twin {
    segments: Mutex<HashMap<u64, TwinSegment>>,
    scan: Box<dyn Fn() -> Vec<AddressRange> + Send + Sync>,
}

impl Twin {
    /// With these segments bound, and a scan that shows so.
    pub fn new(segments: &[AddressRange], scan: impl Fn() -> Vec<AddressRange> + Send + Sync + 'static) -> Self {
        let twin = Self { segments: Mutex::default(), scan: Box::new(scan) };
        let mut bound = twin.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().for_each(|range| take_in(&mut bound, *range));
        drop(bound);
        twin
    }

    /// A view of these bytes.
    pub fn register(&self, asked: AddressRange) -> Option<TwinView> {
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = find(&segments, asked) {
            return Some(view);
        }
        for seen in (self.scan)() {
            take_in(&mut segments, seen);
        }
        find(&segments, asked)
    }

    /// `n` registrations of what is bound; answers how many were served.
    #[inline(never)]
    pub fn hits(&self, requests: &[AddressRange; REQUESTS], n: u64) -> u64 {
        let mut sum = 0;
        for i in 0..n {
            let view = black_box(self).register(requests[i as usize % REQUESTS]);
            sum += u64::from(black_box(view).is_some());
        }
        sum
    }
}

fn find(segments: &HashMap<u64, TwinSegment>, asked: AddressRange) -> Option<TwinView> {
    let holds = |(base, segment): &(&u64, &TwinSegment)| {
        asked.base().checked_sub(**base).is_some_and(|offset| offset + asked.len_bytes() <= segment.len_bytes)
    };
    segments.iter().find(holds).map(|(base, segment)| TwinView {
        key: segment.key,
        offset_bytes: asked.base() - base,
        guard: Arc::clone(&segment.guard),
    })
}

/// Binds a segment, or grows it: the list of its regions is cloned.
fn take_in(segments: &mut HashMap<u64, TwinSegment>, seen: AddressRange) {
    let key = segments.len() as u32;
    let segment = segments.entry(seen.base()).or_insert_with(|| TwinSegment {
        len_bytes: 0,
        key,
        guard: Arc::new(TwinKey { regions: Vec::new() }),
    });
    if segment.len_bytes < seen.len_bytes() {
        let mut regions = segment.guard.regions.clone();
        let tail = AddressRange::new(seen.base() + segment.len_bytes, seen.len_bytes() - segment.len_bytes);
        regions.extend(tail.ok().map(Arc::new));
        *segment = TwinSegment { len_bytes: seen.len_bytes(), key, guard: Arc::new(TwinKey { regions }) };
    }
}

/// What registers what is bound, and slowly what is not.
pub trait Registers: Sync {
    /// Requests in what is bound.
    fn requests(&self) -> Box<[AddressRange; REQUESTS]>;
    /// `n` registrations of what is bound, each given back at once; answers how many were served.
    fn hits(&self, requests: &[AddressRange; REQUESTS], n: u64) -> u64;
    /// One slow registration, taken back.
    fn register_slowly(&self);
    /// How many scans began so far.
    fn scans(&self) -> u64;
}

impl Registers for Bound {
    fn requests(&self) -> Box<[AddressRange; REQUESTS]> {
        self.requests()
    }

    fn hits(&self, requests: &[AddressRange; REQUESTS], n: u64) -> u64 {
        self.hits(requests, n)
    }

    /// Scanned, exported, registered, bound, published.
    fn register_slowly(&self) {
        let view = self.domain.register(self.extra.base(), self.extra.len_bytes());
        view.expect("it is bound");
        self.domain.invalidate(self.extra);
    }

    fn scans(&self) -> u64 {
        self.domain.statistics().scans
    }
}

/// The usual implementation, with a scan that takes as long; nothing is exported, registered or bound.
pub struct SlowTwin {
    twin: Twin,
    segments: Vec<AddressRange>,
    extra: AddressRange,
    scans: Arc<AtomicU64>,
}

impl SlowTwin {
    /// With these segments bound.
    ///
    /// # Panics
    /// If one of them lies at the end of the address space.
    pub fn new(segments: &[AddressRange]) -> Self {
        let end = segments.iter().map(|range| range.base() + range.len_bytes()).max().unwrap_or(SEGMENT_BYTES);
        let extra = AddressRange::new(end + SEGMENT_BYTES, SEGMENT_BYTES).expect("a range");
        let scans = Arc::new(AtomicU64::new(0));
        let began = Arc::clone(&scans);
        let scan = move || {
            began.fetch_add(1, Ordering::Relaxed);
            thread::sleep(SCAN_TIME);
            vec![extra]
        };
        Self { twin: Twin::new(segments, scan), segments: segments.to_vec(), extra, scans }
    }
}

impl Registers for SlowTwin {
    fn requests(&self) -> Box<[AddressRange; REQUESTS]> {
        requests(&self.segments)
    }

    fn hits(&self, requests: &[AddressRange; REQUESTS], n: u64) -> u64 {
        self.twin.hits(requests, n)
    }

    fn register_slowly(&self) {
        self.twin.register(self.extra).expect("it is bound");
        self.twin.segments.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.extra.base());
    }

    fn scans(&self) -> u64 {
        self.scans.load(Ordering::Relaxed)
    }
}

/// How long `threads` threads take for `n` registrations each of what is bound.
fn by_threads(bound: &impl Registers, requests: &[AddressRange; REQUESTS], threads: usize, n: u64) -> Duration {
    let start = Barrier::new(threads + 1);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                start.wait();
                assert_eq!(bound.hits(requests, n), n, "a registration failed");
            });
        }
        start.wait();
        Instant::now()
    })
    .elapsed()
}

/// Times of 8 threads' registrations of what is bound: without another thread, and beside one that is inside slow registrations.
pub struct Beside<'a, R> {
    bound: &'a R,
    requests: Box<[AddressRange; REQUESTS]>,
    busy: AtomicBool,
    over: AtomicBool,
}

/// Threads that register.
pub const THREADS: usize = 8;

impl<'a, R: Registers> Beside<'a, R> {
    /// Among the segments that it has bound.
    pub fn new(bound: &'a R) -> Self {
        Self { bound, requests: bound.requests(), busy: AtomicBool::new(false), over: AtomicBool::new(false) }
    }

    /// Runs `measure` while the other thread stands ready.
    pub fn with<M>(&self, measure: impl FnOnce(&Self) -> M) -> M {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !self.over.load(Ordering::Relaxed) {
                    if self.busy.load(Ordering::Relaxed) {
                        self.bound.register_slowly();
                    } else {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            });
            let measured = measure(self);
            self.over.store(true, Ordering::Relaxed);
            measured
        })
    }

    /// `n` registrations of each thread while nobody else does anything.
    pub fn idle(&self, n: u64) -> Duration {
        self.busy.store(false, Ordering::Relaxed);
        // The last slow one ends.
        thread::sleep(2 * SCAN_TIME);
        by_threads(self.bound, &self.requests, THREADS, n)
    }

    /// The same while the other thread is inside a slow registration, again and again.
    pub fn beside(&self, n: u64) -> Duration {
        let scans = self.bound.scans();
        self.busy.store(true, Ordering::Relaxed);
        while self.bound.scans() == scans {
            thread::yield_now();
        }
        let elapsed = by_threads(self.bound, &self.requests, THREADS, n);
        self.busy.store(false, Ordering::Relaxed);
        elapsed
    }
}
