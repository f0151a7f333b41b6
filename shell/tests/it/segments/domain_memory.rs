//! Local memory through a domain of segments; what is refused; what is told once.
//!
//! # Safety
//!
//! The owners here are of GPU memory in software that a test keeps mapped.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use bareverbs_core::cuda::CuResult;
use bareverbs_core::segments::{Alignment, ChunkLimits, Ordinal};
use bareverbs_core::verbs::AccessFlags;
use bareverbs_shell::memory::{Backend, HostDomain, Keepalive, LocalMemory, Location, OwnedBytes, WeakKeepalive};
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::segments::{
    BindError, BinderConfig, IdentityPolicy, NoKey, ScanError, SegmentDomain, SegmentDomainConfig, SegmentErrorKind,
};
use bareverbs_shell::soft::{Answer, SoftConfig, SoftDevice};

use super::domain_scene::{M, Making, Scene, on_device, range, seen};
use crate::own_process;

/// Memory of a GPU that a test keeps mapped.
struct GpuBytes {
    addr: u64,
    size: u64,
}

// SAFETY: the addresses are none of this process, so no reference can be to them; the test keeps them mapped.
unsafe impl Keepalive for GpuBytes {
    fn addr(&self) -> usize {
        self.addr as usize
    }

    fn size(&self) -> usize {
        self.size as usize
    }

    fn downgrade(&self) -> Option<Arc<dyn WeakKeepalive>> {
        None
    }
}

fn local(scene: &Scene, addr: u64, size: u64) -> LocalMemory {
    let driver = Arc::new(scene.driver.clone());
    LocalMemory::with_driver(Arc::new(GpuBytes { addr, size }), driver).expect("the driver knows it")
}

#[test]
fn device_memory_is_registered_by_its_segment_under_a_kind_of_its_own() {
    let scene = Scene::new();
    let base = scene.segment(4 * M);
    scene.scanner.shows(&[seen(base, 4 * M)]);
    let tensors = [local(&scene, base + 4096, 8192), local(&scene, base + M, M)];
    assert_eq!(tensors[0].location(), Location::Device { ordinal: Some(0) });
    let views = tensors.each_ref().map(|tensor| scene.domain.register_memory(tensor).expect("bound"));
    assert_eq!(views.each_ref().map(|view| view.key_addr()), [4096, M]);
    assert_eq!((scene.live(), scene.bound()), ((1, 1), vec![1]));
    let registrations = tensors[0].registrations(SegmentDomain::BACKEND);
    assert_eq!(registrations.view("mlx5_0").map(|view| view.lkey()), Some(views[0].lkey()));
    assert!(tensors[0].registrations(Backend::VERBS).view("mlx5_0").is_none());
    // In force: nobody is asked again.
    let (asked, scans) = (scene.cuda_calls(), scene.scanner.scans());
    drop(scene.domain.register_memory(&tensors[0]).expect("in force"));
    assert_eq!((scene.cuda_calls(), scene.scanner.scans()), (asked, scans));
    let mut peer = scene.peer();
    views.iter().for_each(|view| peer.prove(&scene.cuda, view));
    peer.leave();
    drop((tensors, views));
    scene.assert_all_goes();
}

#[test]
fn a_view_of_device_memory_keeps_its_owner() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let owner = Arc::new(GpuBytes { addr: base, size: M });
    let owned = Arc::downgrade(&owner);
    let tensor = LocalMemory::with_driver(owner, Arc::new(scene.driver.clone())).expect("the driver knows it");
    let view = scene.domain.register_memory(&tensor).expect("bound");
    drop(tensor);
    assert!(owned.upgrade().is_some(), "a transfer through the view may be in flight");
    drop(view);
    assert!(owned.upgrade().is_none());
    scene.assert_all_goes();
}

#[test]
fn host_memory_is_registered_plainly_and_managed_memory_is_refused_by_either_way() {
    let scene = Scene::new();
    let host = LocalMemory::new(OwnedBytes::from(vec![7; 5000])).expect("host memory");
    let view = scene.domain.register_memory(&host).expect("a plain region");
    assert_eq!((view.key_addr(), view.len_bytes()), (host.addr() as u64, 5000));
    assert_eq!((scene.calls("ibv_reg_mr"), scene.scanner.scans(), scene.bound()), (1, 0, vec![]));
    assert_eq!(scene.refusal(host.addr() as u64, 5000), SegmentErrorKind::NotCovered);
    let managed = scene.cuda.allocate_managed(0, M);
    assert_eq!(scene.refusal(managed, 4096), SegmentErrorKind::Managed);
    let memory = local(&scene, managed, M);
    assert_eq!(
        scene.domain.register_memory(&memory).map(drop).map_err(|error| error.kind),
        Err(SegmentErrorKind::Managed)
    );
    drop((memory, host, view));
    scene.assert_all_goes();
}

#[test]
fn a_refusal_of_the_device_stands_with_the_memory_until_it_is_forgotten_and_one_that_straddles_is_none() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let tensor = local(&scene, base, M);
    scene.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(libc::ENOMEM));
    let refused = scene.domain.register_memory(&tensor).expect_err("no memory");
    assert_eq!(refused.errno().map(|errno| errno.0), Some(libc::ENOMEM));
    let calls = scene.device_calls();
    let again = scene.domain.register_memory(&tensor).expect_err("recorded");
    assert!(matches!(again.kind, SegmentErrorKind::Failed(_)) && scene.device_calls() == calls, "{again}");
    assert!(tensor.registrations(SegmentDomain::BACKEND).forget_failure("mlx5_0").is_some());
    drop(scene.domain.register_memory(&tensor).expect("it has memory now"));
    drop(tensor);
    scene.assert_all_goes();
}

#[test]
fn a_failure_that_is_no_refusal_of_the_device_is_not_recorded() {
    let scene = Scene::new();
    let base = scene.segment(M);
    let tensor = local(&scene, base, M);
    let refused = || scene.domain.register_memory(&tensor).expect_err("refused").kind;
    scene.scanner.answers(Err(ScanError::new("busy")));
    assert_eq!(refused(), SegmentErrorKind::Scan(ScanError::new("busy")));
    scene.cuda.fail("cuPointerGetAttribute", 1, CuResult::DEINITIALIZED);
    assert!(matches!(refused(), SegmentErrorKind::Driver(_)));
    scene.scanner.shows(&[seen(base, M)]);
    drop(scene.domain.register_memory(&tensor).expect("bound, as if nothing had been"));
    drop(tensor);
    scene.assert_all_goes();
}

#[test]
fn memory_in_force_in_another_protection_domain_is_refused() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let tensor = local(&scene, base, M);
    drop(scene.domain.register_memory(&tensor).expect("bound"));
    let pd = ProtectionDomain::new(scene.pd.context(), 1).expect("another");
    let config = SegmentDomainConfig::default().given([Ordinal(0)]);
    let other =
        SegmentDomain::new(&pd, scene.driver.clone(), Some(scene.soft.mlx5_symbols()), config).expect("a device");
    let refused = other.register_memory(&tensor).map(drop).map_err(|error| error.kind);
    assert_eq!(refused, Err(SegmentErrorKind::OtherDomain));
    drop((other, pd, tensor));
    scene.assert_all_goes();
}

#[test]
fn nothing_and_what_wraps_are_refused_before_anybody_is_asked() {
    let scene = Scene::new();
    let asked = scene.cuda_calls();
    let empty = scene.register(0x10_0000_0000, 0).expect_err("nothing");
    assert_eq!(empty.kind, SegmentErrorKind::Empty);
    assert!(empty.to_string().starts_with("registering 0 bytes at 0x1000000000 on device mlx5_0"), "{empty}");
    assert!(matches!(scene.refusal(u64::MAX, 2), SegmentErrorKind::Range(_)));
    assert!(scene.domain.register_parts(5, 0).is_err());
    assert_eq!((scene.scanner.scans(), scene.cuda_calls(), scene.device_calls()), (0, asked, 0));
    scene.assert_all_goes();
}

#[test]
fn access_that_a_binding_cannot_give_is_refused_when_the_domain_is_made() {
    let scene = Scene::new();
    for got in [AccessFlags::RELAXED_ORDERING, AccessFlags::ON_DEMAND, HostDomain::ACCESS | AccessFlags::MW_BIND] {
        let config = SegmentDomainConfig::default().access(got);
        let refused = SegmentDomain::new(&scene.pd, scene.driver.clone(), None, config).map(drop);
        assert_eq!(refused, Err(BindError::Access { device: "mlx5_0".into(), got }));
    }
    scene.assert_all_goes();
}

#[test]
fn every_view_tells_its_access_and_one_that_permits_others_nothing_is_not_published() {
    let local_write = AccessFlags::LOCAL_WRITE;
    for (access, is_published) in [(local_write, false), (local_write | AccessFlags::REMOTE_WRITE, true)] {
        let mut making = Making::default();
        making.config = making.config.access(access);
        let scene = making.scene();
        let (base, plain) = (scene.segment(M), scene.cuda.allocate(0, 4096));
        scene.scanner.shows(&[seen(base, M)]);
        let memory = [base, plain].map(|addr| local(&scene, addr, 4096));
        let host = crate::scene::memory(&[0; 8]);
        let mut views: Vec<_> = [base, plain].map(|addr| scene.view(addr, 4096)).into();
        views.extend(memory.iter().chain([&host]).map(|memory| scene.domain.register_memory(memory).expect("taken")));
        assert_eq!(scene.live(), (3, 1), "by a key, by a region of its own, and the host's");
        for view in views {
            assert_eq!((view.access(), view.publish().is_ok()), (Some(access), is_published), "{view:?}");
        }
        drop((memory, host));
        scene.assert_all_goes();
    }
}

#[test]
fn regions_that_are_not_cut_at_whole_pages_are_refused_when_the_domain_is_made() {
    let scene = Scene::new();
    let aligned =
        |bytes| ChunkLimits::new(Alignment::new(bytes).expect("a power of two"), M - 512).expect("a multiple");
    let config = SegmentDomainConfig::default();
    let odd = config.clone().binder(BinderConfig::default().chunk(aligned(512)));
    let large = scene.driver.clone().with_page_bytes(2 * M);
    for (driver, config, got_bytes, page_bytes) in [
        (scene.driver.clone().with_page_bytes(4096), odd, 512, 4096),
        // The default, where the host has huge pages only.
        (large, config, M, 2 * M),
    ] {
        let refused = SegmentDomain::new(&scene.pd, driver, Some(scene.soft.mlx5_symbols()), config).map(drop);
        assert_eq!(refused, Err(BindError::Alignment { device: "mlx5_0".into(), got_bytes, page_bytes }));
    }
    scene.assert_all_goes();
}

#[test]
fn without_an_mlx5_device_or_its_provider_all_device_memory_gets_regions_of_its_own() {
    let plain = SoftConfig::default().devices(vec![SoftDevice::new("soft0")]);
    let scenes = [Making { provider: false, ..Making::default() }, Making { fabric: plain, ..Making::default() }];
    for scene in scenes.map(Making::scene) {
        let base = scene.segment(2 * M);
        scene.scanner.shows(&[seen(base, 2 * M)]);
        // Whole pages are exported as they are; anything else with its mapping, and the view is advanced, once.
        let views = [scene.view(base + 8192, 4096), scene.view(base + M + 12, 100)];
        assert_eq!(views.each_ref().map(|view| view.key_addr()), [0, M + 12]);
        assert_eq!(scene.exported(), [(base + 8192, 4096), (base, 2 * M)]);
        let mut peer = scene.peer();
        views.iter().for_each(|view| peer.prove(&scene.cuda, view));
        // Shared while a view lives, and gone with it.
        let shared = scene.view(base + M + 500, 10);
        assert_eq!(shared.lkey(), views[1].lkey());
        peer.leave();
        assert_eq!((scene.scanner.scans(), scene.domain.statistics().fallbacks), (0, 2));
        drop((views, shared));
        assert_eq!(scene.live(), (0, 0));
        scene.assert_all_goes();
    }
}

#[test]
fn a_shared_region_is_not_handed_out_once_its_memory_is_other_memory_or_was_invalidated() {
    let scene = Making { provider: false, ..Making::default() }.scene();
    let base = scene.segment(M);
    let old = scene.view(base + 1, 10);
    scene.cuda.unmap(base);
    scene.cuda.map(base, M);
    let new = scene.view(base + 1, 10);
    assert_ne!(new.lkey(), old.lkey());
    scene.domain.invalidate(range(base, 1));
    let newest = scene.view(base + 1, 10);
    assert_ne!(newest.lkey(), new.lkey());
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &newest);
    peer.leave();
    drop((old, new, newest));
    scene.assert_all_goes();
}

#[test]
fn a_failed_fallback_says_why_no_key_serves_which_ordinals_are_served_and_what_the_device_said() {
    let mut making = Making { fabric: on_device(SoftDevice::mlx5("mlx5_7")), ..Making::default() };
    making.config = making.config.given([Ordinal(4)]).identity(IdentityPolicy::Trust);
    let scene = making.scene();
    let base = scene.segment(M);
    scene.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(libc::ENOSPC));
    let error = scene.register(base, 4096).expect_err("refused");
    assert!(matches!(error.kind, SegmentErrorKind::Region { why: NoKey::NotServed { ordinal: Ordinal(0) }, .. }));
    for part in ["4096 bytes", &format!("{base:#x}"), "mlx5_7", "ordinals 4", "ordinal 0", "ENOSPC", "pin it"] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    assert_eq!((scene.live(), scene.calls("ibv_reg_mr")), ((0, 0), 0), "nothing else is tried");
    scene.cuda.unmap(base);
    // No file keeps the memory.
    scene.assert_in_use(0);
    scene.assert_all_goes();
}

/// Keeps what is told at `warn`; told something, it asks the domain, as a logger that takes an interpreter's lock might have to
/// wait for one who does.
struct Told(Mutex<Vec<String>>, Mutex<Option<Arc<SegmentDomain>>>);

static TOLD: Told = Told(Mutex::new(Vec::new()), Mutex::new(None));

impl log::Log for Told {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().expect("whole").push(record.args().to_string());
        let domain = self.1.lock().expect("whole").clone();
        if let Some(domain) = domain {
            // From another thread, which would wait for a turn or a lock that is held.
            std::thread::spawn(move || (domain.statistics(), domain.prune().map(drop)))
                .join()
                .expect("it ends")
                .1
                .expect("free");
        }
    }

    fn flush(&self) {}
}

#[test]
fn why_no_key_serves_is_told_once_for_each_segment_with_nothing_held() {
    let test = "segments::domain_memory::why_no_key_serves_is_told_once_for_each_segment_with_nothing_held";
    own_process::run(test, &[], || {
        log::set_logger(&TOLD).expect("none is set");
        log::set_max_level(log::LevelFilter::Warn);
        let mut making = Making::default();
        making.config = making.config.given([Ordinal(3)]);
        let scene = making.scene();
        *TOLD.1.lock().expect("whole") = Some(Arc::clone(&scene.domain));
        let (a, b) = (scene.segment(M), scene.segment(M));
        for turn in 0..3 {
            // Each is gone before the next, so each is registered anew.
            drop(scene.view(a + turn * 100 + 1, 10));
            drop(scene.view(a + turn * 4096, 4096));
            drop(scene.view(b + turn * 100 + 1, 10));
        }
        *TOLD.1.lock().expect("whole") = None;
        let told = TOLD.0.lock().expect("whole");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("mlx5_0") && told[0].contains(&format!("{a:#x}")) && told[0].contains("ordinal 0"),
            "{told:?}"
        );
        assert!(told[1].contains(&format!("{b:#x}")), "{told:?}");
        assert_eq!(scene.domain.statistics().fallbacks, 9);
        drop(told);
        scene.assert_all_goes();
    });
}

#[test]
fn a_segment_that_grows_is_told_of_once() {
    own_process::run("segments::domain_memory::a_segment_that_grows_is_told_of_once", &[], || {
        log::set_logger(&TOLD).expect("none is set");
        log::set_max_level(log::LevelFilter::Warn);
        let mut making = Making::default();
        making.config = making.config.given([Ordinal(3)]);
        let scene = making.scene();
        let base = scene.segment(M);
        for turn in 0..5 {
            drop(scene.view(base + turn * M, 4096));
            scene.cuda.map(base + (turn + 1) * M, M);
        }
        let told = TOLD.0.lock().expect("whole").clone();
        assert_eq!((told.len(), scene.domain.statistics().fallbacks), (1, 5), "{told:?}");
        scene.assert_all_goes();
    });
}
