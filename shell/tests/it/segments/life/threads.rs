//! Lives with many threads: some ask and look at what they got, while one maps and unmaps.
//!
//! Steps are such that each outcome is well defined. Below, memory stays; above it, one unit at a time is mapped and unmapped. Each
//! mapping holds a number of its own, and a history tells from when to when it was where: what a view sees is a number that was
//! there at some time during its request, and stays so, whatever is mapped there by then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{iter, thread};

use bareverbs_core::segments::{Alignment, ChunkLimits, EntryCap, Ordinal, ScannedSegment};
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::memory::View;
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::segments::{BinderConfig, IdentityPolicy, SegmentDomain, SegmentDomainConfig, SegmentErrorKind};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};
use bareverbs_shell::soft::{Record, SoftConfig, SoftDevice, SoftFabric};

use super::machine::Peer;
use super::scanner::LifeScanner;
use crate::scene::ALL;
use crate::segments::domain_scene::{M, range, seen};
use crate::world::World;

/// Units that stay, and units that come and go above them.
const STAY: u64 = 3;
const COME: u64 = 5;
const THREADS: u64 = 3;

/// How the domain learns of memory.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// By a snapshot, and not by a walk.
    pub snapshot: bool,
    /// What is freed is said, and no request asks.
    pub trust: bool,
}

/// Which number was where, from when to when.
#[derive(Default)]
struct History {
    now: u64,
    /// Unit, number, when it came, when it had gone.
    mapped: Vec<(u64, u64, u64, Option<u64>)>,
}

struct Stage {
    domain: SegmentDomain,
    pd: Arc<ProtectionDomain>,
    cuda: SoftCuda,
    soft: SoftFabric,
    scanner: Arc<LifeScanner>,
    manner: Manner,
    base: u64,
    history: Mutex<History>,
    over: AtomicBool,
}

impl Stage {
    fn new(world: &World, soft: &SoftFabric, manner: Manner) -> Self {
        let cuda = SoftCuda::new(CudaConfig::default()).expect("a free slot");
        let driver = CudaDriver::with_symbols(cuda.symbols());
        let pd = ProtectionDomain::new(&world.open(), 1).expect("a domain");
        let chunk = ChunkLimits::new(Alignment::GPU_PAGE, 2 * M).expect("whole units");
        let binder = BinderConfig::default().chunk(chunk).max_entries(EntryCap::new(2).expect("entries"));
        let config = SegmentDomainConfig::default().given([Ordinal(0)]).access(ALL).binder(binder);
        let policy = if manner.trust { IdentityPolicy::Trust } else { IdentityPolicy::Verify };
        let config = config.patience(Duration::from_secs(20)).identity(policy);
        let domain = SegmentDomain::new(&pd, driver.clone(), Some(soft.mlx5_symbols()), config).expect("a domain");
        let scanner = LifeScanner::new(driver);
        domain.set_scanner(Some(Arc::clone(&scanner) as _));
        let base = cuda.reserve(0, (STAY + COME + 1) * M);
        let (history, over, soft) = (Mutex::default(), AtomicBool::new(false), soft.clone());
        let stage = Self { domain, pd, cuda, soft, scanner, manner, base, history, over };
        (0..STAY).for_each(|unit| stage.map(unit));
        stage
    }

    fn at(&self, unit: u64) -> u64 {
        self.base + unit * M
    }

    /// Maps a unit, and writes its number into it.
    fn map(&self, unit: u64) {
        let number = {
            let mut history = self.history.lock().expect("whole");
            history.now += 1;
            let number = history.now;
            history.mapped.push((unit, number, number, None));
            number
        };
        self.cuda.map(self.at(unit), M);
        self.cuda.write(self.at(unit), &number.to_ne_bytes());
        self.show();
    }

    fn unmap(&self, unit: u64) {
        self.cuda.unmap(self.at(unit));
        if self.manner.trust {
            self.domain.invalidate(range(self.at(unit), M));
        }
        let mut history = self.history.lock().expect("whole");
        history.now += 1;
        let now = history.now;
        let entry = history.mapped.iter_mut().find(|(of, _, _, gone)| *of == unit && gone.is_none());
        entry.expect("it was mapped").3 = Some(now);
        drop(history);
        self.show();
    }

    fn show(&self) {
        if !self.manner.snapshot {
            return;
        }
        let mut segments: Vec<ScannedSegment> = Vec::new();
        for (unit, ..) in self.mapped() {
            match segments.last_mut() {
                Some(last) if last.address + last.size_bytes == self.at(unit) => last.size_bytes += M,
                _ => segments.push(seen(self.at(unit), M)),
            }
        }
        self.scanner.snapshot(Some(segments));
    }

    fn mapped(&self) -> Vec<(u64, u64, u64, Option<u64>)> {
        let history = self.history.lock().expect("whole");
        let mut mapped: Vec<_> = history.mapped.iter().copied().filter(|(.., gone)| gone.is_none()).collect();
        mapped.sort_unstable();
        mapped
    }

    /// Maps and unmaps until all threads are done, and at least so often.
    fn allocate(&self) {
        let mut rng = 1_u64;
        let mut steps = 0;
        while !self.over.load(Ordering::Acquire) || steps < 100 {
            let unit = STAY + next(&mut rng) % COME;
            match self.mapped().iter().any(|(of, ..)| *of == unit) {
                true => self.unmap(unit),
                false => self.map(unit),
            }
            steps += 1;
            if steps % 16 == 0 {
                self.domain.prune().unwrap_or_else(|error| panic!("{error}"));
            }
            thread::yield_now();
        }
    }

    /// Asks and looks so often; how many requests were served.
    fn ask(&self, world: &World, thread: u64, times: u64) -> u64 {
        let mut peer = Peer::new(world, &self.pd);
        let mut rng = 77 + thread;
        let mut kept: Vec<(View, u64)> = Vec::new();
        let mut served = 0;
        for time in 0..times {
            served += u64::from(self.ask_below(&mut peer, thread, time, next(&mut rng)));
            let (first, units) = (STAY + next(&mut rng) % COME, 1 + next(&mut rng) % 2);
            kept.extend(self.ask_above(&mut peer, first, units.min(STAY + COME - first)));
            // What was seen once is seen as long as the view lives.
            for (view, number) in &kept {
                assert_eq!(peer.read(view), number.to_ne_bytes(), "{view:?}");
            }
            while kept.len() > 6 {
                kept.remove(next(&mut rng) as usize % kept.len());
            }
        }
        served
    }

    /// Asks for memory that stays, in bytes that are this thread's.
    fn ask_below(&self, peer: &mut Peer, thread: u64, time: u64, random: u64) -> bool {
        let addr = self.at(random % STAY) + 4096 * (1 + thread) + random / 7 % 3000;
        let view = match self.domain.register(addr, 100) {
            Ok(view) => view,
            // Its segment, which reaches up to what changes, changed again and again.
            Err(error) if matches!(error.kind, SegmentErrorKind::NotBound { .. } | SegmentErrorKind::Changing) => {
                return false;
            }
            Err(error) => panic!("{error}"),
        };
        let bytes: Vec<u8> = iter::repeat_n((time as u8) ^ (thread as u8), 100).collect();
        peer.write(&view, &bytes);
        assert_eq!(self.cuda.read(addr, 100), bytes);
        true
    }

    /// Asks for memory that comes and goes, and looks at the numbers in its units.
    fn ask_above(&self, peer: &mut Peer, first: u64, units: u64) -> Vec<(View, u64)> {
        let begun = self.history.lock().expect("whole").now;
        let Ok(views) = self.domain.register_parts(self.at(first), (units - 1) * M + 8) else { return Vec::new() };
        let history = self.history.lock().expect("whole");
        // It is in the history before it is mapped, and until after it was unmapped.
        let there = |&&(_, _, came, gone): &&(u64, u64, u64, Option<u64>)| {
            came <= history.now && gone.is_none_or(|gone| gone > begun)
        };
        let there: Vec<_> = history.mapped.iter().filter(there).map(|&(unit, number, ..)| (unit, number)).collect();
        drop(history);
        let mut seen = Vec::new();
        for unit in first..first + units {
            let at = self.at(unit);
            let view = views.iter().find(|view| view.addr() <= at && at < view.addr() + view.len_bytes());
            let view = view.expect("all of it").clone();
            let view = view.part(at - view.addr(), 8).expect("a unit's number");
            let number = number(peer, &view);
            assert!(there.contains(&(unit, number)), "{number} was not at unit {unit} then: {there:?}");
            seen.push((view, number));
        }
        seen
    }
}

/// The number in a unit, once it is written.
fn number(peer: &mut Peer, view: &View) -> u64 {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let number = u64::from_ne_bytes(peer.read(view).try_into().expect("8 bytes"));
        if number != 0 || Instant::now() > patience {
            return number;
        }
        thread::yield_now();
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Runs so many rounds of each thread.
pub fn live(manner: Manner, times: u64) {
    let config = SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_threads")]).record(Record::Off);
    let world = World::of_config(config, "threads");
    let soft = world.soft.clone().expect("a software fabric");
    let stage = Stage::new(&world, &soft, manner);
    let served = thread::scope(|scope| {
        scope.spawn(|| stage.allocate());
        let (stage, world) = (&stage, &world);
        let asking: Vec<_> = (0..THREADS).map(|of| scope.spawn(move || stage.ask(world, of, times))).collect();
        let served = asking.into_iter().map(|thread| thread.join());
        let served: Vec<_> = served.collect();
        stage.over.store(true, Ordering::Release);
        served.into_iter().map(|served| served.expect("no thread panics")).collect::<Vec<_>>()
    });
    assert!(served.iter().all(|served| *served > times / 2), "{served:?} of {times}");
    let statistics = stage.domain.statistics();
    let live = stage.soft.live();
    assert_eq!((live.keys as u64, live.mrs as u64), (statistics.keys, statistics.regions), "no view is left");
    let Stage { domain, pd, cuda, .. } = stage;
    drop((domain, pd));
    world.assert_clean();
    let mapped = cuda.used_bytes(0);
    assert!((STAY * M..=(STAY + COME) * M).contains(&mapped), "{mapped}");
    assert_eq!(cuda.retained_and_released(0).0, cuda.retained_and_released(0).1);
}
