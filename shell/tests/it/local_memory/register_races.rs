//! Threads that register the same memory at once: case G1, with all of them held inside the library's call.
//!
//! # Safety
//!
//! The function in front of `ibv_reg_mr` passes on what it is given, or refuses.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use bareverbs_core::verbs::{Mr, Pd};
use bareverbs_shell::errno;
use bareverbs_shell::memory::{Backend, HostDomain, LocalMemory, RegisterError, Registered};
use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
use bareverbs_shell::soft::{LiveCounts, Record, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::symbols::{SymbolTable, Symbols};

use super::{device, host_memory};
use crate::ledger::{Ledger, calls_of};

/// What happens inside a registration, before the library's own part: an errno if it is to fail.
type Inside = Arc<dyn Fn() -> Option<c_int> + Send + Sync>;

/// By protection domain: what happens inside, and the table behind.
static GATES: Mutex<BTreeMap<usize, (Inside, Arc<Symbols>)>> = Mutex::new(BTreeMap::new());

unsafe extern "C" fn reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    let gate = GATES.lock().unwrap_or_else(PoisonError::into_inner).get(&pd.addr()).cloned();
    let (inside, real) = gate.expect("a domain of these tests");
    if let Some(number) = inside() {
        errno::set(number);
        return std::ptr::null_mut();
    }
    // SAFETY: passed on.
    unsafe { (real.reg_mr)(pd, addr, length, access) }
}

/// A fabric with `mlx5_0` and `mlx5_1`, whose registrations go through gates.
struct Scene {
    soft: SoftFabric,
    symbols: Arc<Symbols>,
}

impl Scene {
    fn new() -> Self {
        let devices = vec![SoftDevice::new("mlx5_0"), SoftDevice::new("mlx5_1")];
        let config = SoftConfig::default().devices(devices).record(Record::Bounded(1000));
        let soft = SoftFabric::new(config).expect("a free slot");
        let real = soft.symbols();
        let table = SymbolTable { reg_mr, ..real.table().clone() };
        // SAFETY: the function in front passes on what it is given, or answers as a library that refuses.
        Self { symbols: Arc::new(unsafe { Symbols::new(table) }), soft }
    }

    /// A domain of a device; what happens inside its registrations.
    fn domain(&self, name: &str, inside: impl Fn() -> Option<c_int> + Send + Sync + 'static) -> HostDomain {
        let context = DeviceContext::open(&self.symbols, Some(name)).expect("a device of the scene");
        let domain = ProtectionDomain::new(&context, 1).expect("a domain");
        let gate: (Inside, _) = (Arc::new(inside), self.soft.symbols());
        GATES.lock().unwrap_or_else(PoisonError::into_inner).insert(domain.as_ptr().addr(), gate);
        HostDomain::new(&domain).expect("the device can be asked")
    }

    /// After all is dropped: nothing is left, each thing was destroyed once and in order. How many regions there were.
    fn end(self) -> usize {
        assert_eq!(self.soft.live(), LiveCounts::default());
        assert_eq!(self.soft.misuse(), Vec::<String>::new());
        let record = self.soft.record();
        Ledger::replay(&record).assert_all_gone();
        assert_eq!(calls_of(&record, "ibv_dereg_mr"), calls_of(&record, "ibv_reg_mr"));
        calls_of(&record, "ibv_reg_mr")
    }
}

#[test]
fn g1_threads_inside_register_at_once_get_one_key_and_all_regions_but_one_are_deregistered() {
    for threads in [2, 8] {
        let scene = Scene::new();
        let all_inside = Arc::new(Barrier::new(threads));
        let domain = scene.domain("mlx5_0", move || {
            all_inside.wait();
            None
        });
        let memory = host_memory(&[0; 100]);
        let keys: Vec<u32> = std::thread::scope(|scope| {
            let register = || domain.register(&memory.clone()).expect("the library takes it").lkey();
            let spawned: Vec<_> = (0..threads).map(|_| scope.spawn(register)).collect();
            spawned.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(scene.soft.live().mrs, 1);
        assert_eq!(domain.register(&memory).expect("in force").lkey(), keys[0], "asks nobody");
        drop((memory, domain));
        assert_eq!(scene.end(), threads);
    }
}

#[test]
fn g1_two_devices_register_at_once_and_none_waits_for_the_other() {
    let scene = Scene::new();
    // Whoever held a lock while registering would keep one of the four out.
    let all_inside = Arc::new(Barrier::new(4));
    let domains = ["mlx5_0", "mlx5_1"].map(|name| {
        let all_inside = Arc::clone(&all_inside);
        scene.domain(name, move || {
            all_inside.wait();
            None
        })
    });
    let memory = host_memory(&[0; 100]);
    let keys: Vec<(usize, u32)> = std::thread::scope(|scope| {
        let spawned: Vec<_> = [0, 1, 0, 1]
            .map(|at| {
                (
                    at,
                    scope.spawn({
                        let (domain, memory) = (&domains[at], &memory);
                        move || domain.register(memory).expect("the library takes it").lkey()
                    }),
                )
            })
            .into_iter()
            .collect();
        spawned.into_iter().map(|(at, thread)| (at, thread.join().expect("no panic"))).collect()
    });
    for at in [0, 1] {
        let of_device: Vec<_> = keys.iter().filter(|(device, _)| *device == at).map(|(_, key)| *key).collect();
        assert_eq!(of_device[0], of_device[1]);
    }
    assert_eq!(scene.soft.live().mrs, 2, "one for each device");
    assert_eq!(memory.registrations(Backend::VERBS).iter().count(), 2);
    drop((memory, domains));
    assert_eq!(scene.end(), 4);
}

#[test]
fn where_another_domains_registration_comes_first_one_that_fails_is_not_given_its_keys() {
    let (scene, memory) = (Scene::new(), host_memory(&[0; 100]));
    let first = scene.domain("mlx5_0", || None);
    let second = scene.domain("mlx5_0", {
        let (first, memory) = (first.clone(), memory.clone());
        move || {
            first.register(&memory).expect("the library takes it");
            Some(libc::ENOMEM)
        }
    });
    assert_eq!(second.register(&memory).map(drop), Err(RegisterError::OtherDomain { device: device("mlx5_0") }));
    assert!(first.registered(&memory).is_some() && second.registered(&memory).is_none());
    assert_eq!(memory.registrations(Backend::VERBS).registered("mlx5_0").failure(), None, "the view stands");
    GATES.lock().unwrap_or_else(PoisonError::into_inner).remove(&second.protection_domain().as_ptr().addr());
    drop((memory, first, second));
    assert_eq!(scene.end(), 1);
}

/// A gate that tells when a thread is inside, and holds it until it may go on.
fn held() -> (impl Fn() -> Option<c_int> + Send + Sync, Receiver<()>, impl Fn()) {
    let ((arrived, is_inside), (go_on, may_go)) = (channel(), channel());
    let may_go = Mutex::new(may_go);
    let inside = move || {
        arrived.send(()).expect("the test waits");
        may_go.lock().unwrap_or_else(PoisonError::into_inner).recv().expect("the test lets it go");
        None
    };
    (inside, is_inside, move || go_on.send(()).expect("it waits"))
}

#[test]
fn g1_no_lock_is_held_while_a_registration_is_in_progress() {
    let scene = Scene::new();
    let (inside, is_inside, go_on) = held();
    let (slow, quick) = (scene.domain("mlx5_0", inside), scene.domain("mlx5_1", || None));
    let memory = host_memory(&[0; 100]);
    std::thread::scope(|scope| {
        let registering = scope.spawn(|| slow.register(&memory).expect("the library takes it").lkey());
        is_inside.recv().expect("it gets there");
        // All of this goes on meanwhile, on the same memory, also for the same device.
        let key = quick.register(&memory).expect("another device").lkey();
        let registrations = memory.registrations(Backend::VERBS);
        assert_eq!(registrations.registered("mlx5_1").view().map(|view| view.lkey()), Some(key));
        assert!(matches!(registrations.registered("mlx5_0"), Registered::Nothing));
        let failure = super::fake_failure(memory.bytes(), "mlx5_0", libc::EAGAIN, "meanwhile");
        registrations.record_failure(failure).expect("nothing is in force");
        assert!(registrations.forget_failure("mlx5_0").is_some());
        drop(memory.access_lock().exclusive());
        go_on();
        registering.join().expect("no panic");
    });
    drop((memory, slow, quick));
    assert_eq!(scene.end(), 2);
}

thread_local! {
    /// Whether this thread's registration fails.
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// Two threads inside register at once, of which one fails with errno 12; which is done first is said. What each was told:
/// the one that succeeds, then the one that fails.
fn race(scene: &Scene, memory: &LocalMemory, failure_first: bool) -> [Result<u32, RegisterError>; 2] {
    let both_inside = Arc::new(Barrier::new(2));
    let (first_done, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    let domain = scene.domain("mlx5_0", move || {
        both_inside.wait();
        if FAILS.get() != failure_first {
            let _ = may_go.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        FAILS.get().then_some(libc::ENOMEM)
    });
    let register = |fails: bool| {
        FAILS.set(fails);
        domain.register(memory).map(|view| view.lkey())
    };
    std::thread::scope(|scope| {
        let (succeeds, fails) = (scope.spawn(|| register(false)), scope.spawn(|| register(true)));
        if failure_first {
            let fails = fails.join().expect("no panic");
            first_done.send(()).expect("the other waits");
            [succeeds.join().expect("no panic"), fails]
        } else {
            let succeeds = succeeds.join().expect("no panic");
            first_done.send(()).expect("the other waits");
            [succeeds, fails.join().expect("no panic")]
        }
    })
}

#[test]
fn g1_a_registration_that_is_done_first_stands_and_the_thread_that_fails_gets_it() {
    let (scene, memory) = (Scene::new(), host_memory(&[0; 100]));
    let [succeeds, fails] = race(&scene, &memory, false);
    let key = succeeds.expect("it was first");
    assert_eq!(fails, Ok(key));
    assert_eq!(scene.soft.live().mrs, 1);
    let in_force = memory.registrations(Backend::VERBS).registered("mlx5_0");
    assert_eq!(in_force.view().map(|view| view.lkey()), Some(key));
    drop(memory);
    assert_eq!(scene.end(), 1);
}

#[test]
fn g1_a_failure_that_is_recorded_first_stands_and_no_region_is_left_alive() {
    let (scene, memory) = (Scene::new(), host_memory(&[0; 100]));
    let [succeeds, fails] = race(&scene, &memory, true);
    let RegisterError::Failed(failure) = fails.expect_err("it failed") else { panic!("the device refused") };
    assert_eq!(succeeds, Err(RegisterError::Failed(failure.clone())), "told the same");
    assert_eq!((failure.errno(), failure.device()), (Some(errno::Errno(libc::ENOMEM)), &device("mlx5_0")));
    assert_eq!(memory.registrations(Backend::VERBS).registered("mlx5_0").failure(), Some(failure));
    assert_eq!(scene.soft.live().mrs, 0);
    drop(memory);
    assert_eq!(scene.end(), 1);
}
