//! Finding a registration, beside a concurrent map of maps of owned strings; copies under the lock, beside bare copies.
//!
//! # Safety
//!
//! One thread touches the bytes, and no device knows them. The function in front of `ibv_reg_mr` passes on what it is given.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bareverbs_benches::timing::{by_blocks, time};
use bareverbs_core::verbs::{Mr, Pd};
use bareverbs_core::view::{DeviceName, KeyedRange};
use bareverbs_shell::memory::{Backend, HostDomain, LocalMemory, OwnedBytes, View, ViewGuard};
use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
use bareverbs_shell::soft::{Answer, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::symbols::{SymbolTable, Symbols};
use criterion::{Criterion, criterion_group, criterion_main};
use dashmap::DashMap;

const BLOCK: u64 = 1000;
const DEVICES: [&str; 8] = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"];
/// Longer than a word, and alike at the end.
const LONG: [&str; 4] = ["rocep1s0f0", "rocep2s0f0", "rocep3s0f0", "rocep4s0f0"];

struct Guard(DeviceName);

impl ViewGuard for Guard {
    fn device(&self) -> &DeviceName {
        &self.0
    }
}

fn view(memory: &LocalMemory, device: &str) -> View {
    let bytes = memory.bytes();
    let range = KeyedRange::new(bytes.base(), bytes.base(), bytes.len_bytes(), 7, 7).expect("bytes");
    let guard = Guard(DeviceName::new(device.as_bytes()).expect("a name"));
    // SAFETY: 1, 2: no device knows the key. 3: the name is the guard's own.
    unsafe { View::new(range, Arc::new(guard)) }
}

fn registered(devices: &[&str]) -> LocalMemory {
    let memory = LocalMemory::new(OwnedBytes::from(vec![0; 64])).expect("host memory");
    for device in devices {
        memory.registrations(Backend::VERBS).install(view(&memory, device)).expect("the first");
    }
    memory
}

/// `n` times: the view of each device in turn.
#[inline(never)]
fn hits(memory: &LocalMemory, devices: &[&str], n: u64) -> u64 {
    let mut sum = 0;
    for device in devices.iter().cycle().take(n as usize) {
        let device = black_box(*device);
        let found = black_box(memory).registrations(Backend::VERBS).registered(device);
        sum += found.view().map_or(0, |view| u64::from(view.lkey()));
    }
    sum
}

/// The same, and a reference taken and given back.
#[inline(never)]
fn counted_hits(memory: &LocalMemory, devices: &[&str], n: u64) -> u64 {
    let mut sum = 0;
    for device in devices.iter().cycle().take(n as usize) {
        let device = black_box(*device);
        let found = black_box(memory).registrations(Backend::VERBS).registered(device).view().cloned();
        sum += found.map_or(0, |view| u64::from(view.lkey()));
    }
    sum
}

/// By a domain, which knows its device: `n` times the view of each domain in turn.
#[inline(never)]
fn domain_hits(memory: &LocalMemory, domains: &[HostDomain], n: u64) -> u64 {
    let mut sum = 0;
    for domain in domains.iter().cycle().take(n as usize) {
        let found = black_box(domain).registered(black_box(memory));
        sum += found.map_or(0, |view| u64::from(view.lkey()));
    }
    sum
}

/// What the twin's map holds: the device's name is its own, as the map's keys are.
#[derive(Clone)]
struct TwinView {
    view: View,
    _device: String,
}

type Twin = DashMap<String, HashMap<String, TwinView>>;

fn twin(memory: &LocalMemory, devices: &[&str]) -> Twin {
    let of = |device: &&str| (device.to_string(), TwinView { view: view(memory, device), _device: device.to_string() });
    let twin = Twin::new();
    twin.insert("verbs".into(), devices.iter().map(of).collect());
    twin
}

#[inline(never)]
fn twin_hits(twin: &Twin, devices: &[&str], n: u64) -> u64 {
    let mut sum = 0;
    for device in devices.iter().cycle().take(n as usize) {
        let device = black_box(*device);
        let found = black_box(twin).get("verbs").and_then(|views| views.get(device).cloned());
        sum += found.map_or(0, |found| u64::from(found.view.lkey()));
    }
    sum
}

/// Without taking a reference, under the map's own lock.
#[inline(never)]
fn borrowed_twin_hits(twin: &Twin, devices: &[&str], n: u64) -> u64 {
    let mut sum = 0;
    for device in devices.iter().cycle().take(n as usize) {
        let device = black_box(*device);
        let views = black_box(twin).get("verbs");
        sum += views.and_then(|views| views.get(device).map(|found| found.view.lkey())).map_or(0, u64::from);
    }
    sum
}

/// Domains of a software fabric's devices, in which the memory is registered.
fn domains(memory: &LocalMemory, devices: &[&str]) -> (SoftFabric, Vec<HostDomain>) {
    let config = SoftConfig::default().devices(devices.iter().map(|device| SoftDevice::new(*device)).collect());
    let soft = SoftFabric::new(config).expect("a free slot");
    let domain = |device: &&str| {
        let context = DeviceContext::open(&soft.symbols(), Some(device)).expect("the device");
        let domain = HostDomain::new(&ProtectionDomain::new(&context, 1).expect("a domain")).expect("the device");
        domain.register(memory).expect("the first");
        domain
    };
    let domains = devices.iter().map(domain).collect();
    (soft, domains)
}

fn hit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("registration hit");
    for devices in [&DEVICES[..1], &DEVICES[..4], &DEVICES[..], &LONG[..]] {
        let memory = registered(devices);
        let twin = twin(&memory, devices);
        let of = format!("{} of {} bytes", devices.len(), devices[0].len());
        let mut path = |name: &str, hits: &dyn Fn() -> u64| {
            group.bench_function(format!("{name}, {of}"), |b| b.iter_custom(|n| by_blocks(n, BLOCK, || time(hits))));
        };
        let elsewhere = LocalMemory::new(OwnedBytes::from(vec![0; 64])).expect("host memory");
        let (_soft, domains) = domains(&elsewhere, devices);
        path("ours", &|| hits(&memory, devices, BLOCK));
        path("ours, by a domain", &|| domain_hits(&elsewhere, &domains, BLOCK));
        path("ours, counted", &|| counted_hits(&memory, devices, BLOCK));
        path("map of maps", &|| twin_hits(&twin, devices, BLOCK));
        path("map of maps, borrowed", &|| borrowed_twin_hits(&twin, devices, BLOCK));
    }
    group.finish();
}

/// The fabric whose registrations take as long as a device's.
static REAL: OnceLock<Arc<Symbols>> = OnceLock::new();
/// Its number on Linux, where these are measured.
const EAGAIN: c_int = 11;
/// How often one was inside.
static INSIDE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn slow_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    INSIDE.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(Duration::from_micros(50));
    let real = REAL.get().expect("set before the table was made");
    // SAFETY: passed on.
    unsafe { (real.reg_mr)(pd, addr, length, access) }
}

/// Hits of memory that is registered on one device, while another thread is inside `HostDomain::register` of the same memory on
/// another one. That one refuses each time, after a while, and the refusal is forgotten: so there is always a registration in
/// progress, and never one in force.
fn hit_while_registering(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("registration hit, idle and beside a registration");
    let config = SoftConfig::default().devices(DEVICES[..2].iter().map(|device| SoftDevice::new(*device)).collect());
    let soft = SoftFabric::new(config).expect("a free slot");
    let real = REAL.get_or_init(|| soft.symbols());
    let table = SymbolTable { reg_mr: slow_reg_mr, ..real.table().clone() };
    // SAFETY: the function in front passes on what it is given.
    let symbols = Arc::new(unsafe { Symbols::new(table) });
    let domain = |device| {
        let context = DeviceContext::open(&symbols, Some(device)).expect("the device");
        HostDomain::new(&ProtectionDomain::new(&context, 1).expect("a domain")).expect("the device")
    };
    let (hit, slow) = (domain(DEVICES[0]), domain(DEVICES[1]));
    let (memory, stop) =
        (LocalMemory::new(OwnedBytes::from(vec![0; 64])).expect("host memory"), AtomicBool::new(false));
    hit.register(&memory).expect("the first");
    soft.fail_from("ibv_reg_mr", 1, Answer::null(EAGAIN));
    let measure = |b: &mut criterion::Bencher<'_>| {
        b.iter_custom(|n| by_blocks(n, BLOCK, || time(|| hits(&memory, &DEVICES[..1], BLOCK))))
    };
    group.bench_function("idle", measure);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                slow.register(&memory).expect_err("it refuses");
                memory.registrations(Backend::VERBS).forget_failure(DEVICES[1]).expect("it was recorded");
            }
        });
        let before = INSIDE.load(Ordering::Relaxed);
        group.bench_function("ours, beside one", measure);
        assert!(INSIDE.load(Ordering::Relaxed) > before, "none was in progress");
        stop.store(true, Ordering::Relaxed);
    });
    group.finish();
}

fn copies(criterion: &mut Criterion) {
    for (len, rounds) in [(64, 1000), (1 << 20, 4)] {
        let memory = LocalMemory::new(OwnedBytes::from(vec![0; len])).expect("host memory");
        let mut bytes = vec![1; len];
        let mut group = criterion.benchmark_group(format!("copy of {len} bytes"));
        let place = std::ptr::with_exposed_provenance_mut::<u8>(memory.addr());
        group.bench_function("ours, read_at", |b| {
            // SAFETY: as said at the top.
            let mut once = || unsafe { memory.read_at(0, black_box(&mut bytes)) }.map_or(0, |()| 1);
            b.iter_custom(|n| by_blocks(n, rounds, || time(|| (0..rounds).map(|_| once()).sum())))
        });
        group.bench_function("bare read", |b| {
            let mut once = || {
                // SAFETY: as said at the top; as long as the vector.
                unsafe { black_box(place).copy_to_nonoverlapping(black_box(&mut bytes).as_mut_ptr(), len) };
                1
            };
            b.iter_custom(|n| by_blocks(n, rounds, || time(|| (0..rounds).map(|_| once()).sum())))
        });
        group.bench_function("ours, write_at", |b| {
            // SAFETY: as said at the top.
            let once = || unsafe { memory.write_at(0, black_box(&bytes)) }.map_or(0, |()| 1);
            b.iter_custom(|n| by_blocks(n, rounds, || time(|| (0..rounds).map(|_| once()).sum())))
        });
        group.bench_function("bare write", |b| {
            let once = || {
                // SAFETY: as said at the top; as long as the vector.
                unsafe { black_box(place).copy_from_nonoverlapping(black_box(&bytes).as_ptr(), len) };
                1
            };
            b.iter_custom(|n| by_blocks(n, rounds, || time(|| (0..rounds).map(|_| once()).sum())))
        });
        group.bench_function("lock pair, read", |b| {
            let once = || memory.access_lock().read().map_or(0, |_guard| 1);
            b.iter_custom(|n| by_blocks(n, rounds, || time(|| (0..rounds).map(|_| once()).sum())))
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    targets = hit, hit_while_registering, copies
}
criterion_main!(benches);
