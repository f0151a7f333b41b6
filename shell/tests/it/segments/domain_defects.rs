//! Defects that were seen in other implementations, numbered as in the list of them that this one was made against, each as a
//! test that it is not here.

use std::sync::Arc;

use bareverbs_core::segments::{EntryCap, Ordinal};
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::segments::{BinderConfig, ScanError, SegmentDomain, SegmentDomainConfig, SegmentErrorKind};
use bareverbs_shell::soft::{Answer, SoftDevice};

use super::domain_scene::{M, MAX, Making, Scene, on_device, range, seen};

#[test]
fn d8_the_cap_is_checked_before_anything_is_registered() {
    let mut making = Making::default();
    making.config = making.config.binder(BinderConfig::default().max_entries(EntryCap::new(1).expect("an entry")));
    let scene = making.scene();
    let base = scene.cuda.reserve(0, 1 << 41);
    scene.cuda.map(base, 257 * MAX);
    scene.scanner.shows(&[seen(base, 257 * MAX)]);
    // More keys than a segment has room for: each request registers what it asks for, and no part of the segment.
    for turn in 0..3 {
        let view = scene.view(base + turn * 4096, 4096);
        assert_eq!(scene.live(), (1, 0));
        drop(view);
    }
    assert_eq!(scene.exported(), [0, 1, 2].map(|turn| (base + turn * 4096, 4096)));
    assert_eq!(scene.scanner.scans(), 1, "it is not scanned for again as long as it is the same");
    scene.assert_all_goes();
}

#[test]
fn d9_a_request_is_held_against_what_is_bound_and_not_against_what_was_scanned() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    drop(scene.view(base, M));
    scene.cuda.map(base + M, M);
    scene.scanner.shows(&[seen(base, 2 * M)]);
    scene.soft.fail_from("ibv_reg_dmabuf_mr", 1, Answer::null(12));
    for _ in 0..3 {
        assert!(matches!(scene.refusal(base + M, 4096), SegmentErrorKind::NotBound { .. }), "scanned, and not bound");
        assert!(matches!(scene.refusal(base + M - 1, 2), SegmentErrorKind::NotBound { .. }));
        drop(scene.view(base + M - 4096, 4096));
    }
    scene.assert_all_goes();
}

#[test]
fn d10_the_key_address_is_the_offset_and_no_virtual_address() {
    let scene = Scene::new();
    let base = scene.segment(2 * M);
    scene.scanner.shows(&[seen(base, 2 * M)]);
    let view = scene.view(base + M - 5, 10);
    assert_eq!((view.addr(), view.key_addr()), (base + M - 5, M - 5));
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.leave();
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn d11_each_protection_domain_binds_keys_of_its_own() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let pd = ProtectionDomain::new(scene.pd.context(), 1).expect("another");
    let config = SegmentDomainConfig::default().given([Ordinal(0)]);
    let other =
        SegmentDomain::new(&pd, scene.driver.clone(), Some(scene.soft.mlx5_symbols()), config).expect("a device");
    other.set_scanner(Some(Arc::clone(&scene.scanner) as _));
    let views = [scene.view(base, M), other.register(base, M).expect("bound there, too")];
    assert_ne!(views[0].lkey(), views[1].lkey());
    let domains = views.each_ref().map(|view| view.protection_domain().expect("known"));
    assert!(Arc::ptr_eq(domains[0], &scene.pd) && Arc::ptr_eq(domains[1], &pd));
    assert_eq!((scene.live(), scene.calls("mlx5dv_create_qp")), ((2, 2), 2));
    drop((views, other, pd));
    scene.assert_all_goes();
}

#[test]
fn d12_a_failure_half_way_leaves_no_region_no_key_and_no_open_file() {
    let scene = Scene::new();
    let base = scene.segment(3 * MAX);
    scene.scanner.shows(&[seen(base, 3 * MAX)]);
    for nth in 1..=3 {
        scene.soft.fail("ibv_reg_dmabuf_mr", nth, Answer::null(12));
        assert!(matches!(scene.refusal(base, M), SegmentErrorKind::NotBound { .. }));
        assert_eq!((scene.live(), scene.domain.statistics().segments), ((0, 0), 0));
    }
    // An export that fails is no file -1.
    scene.cuda.fail("cuMemGetHandleForAddressRange", 2, bareverbs_core::cuda::CuResult::OUT_OF_MEMORY);
    assert!(matches!(scene.refusal(base, M), SegmentErrorKind::NotBound { .. }));
    assert_eq!(scene.live(), (0, 0));
    scene.cuda.unmap(base);
    // Neither a region nor a file keeps the memory.
    scene.assert_in_use(0);
    scene.assert_all_goes();
}

#[test]
fn d13_a_segment_that_shrinks_is_no_panic_and_no_poisoned_lock() {
    let scene = Scene::walking();
    let base = scene.segment(M);
    for turn in 0..20 {
        scene.cuda.map(base + M, M);
        let grown = scene.view(base, 2 * M);
        scene.cuda.unmap(base + M);
        assert!(scene.register(base + M, 4096).is_err());
        assert_eq!(scene.view(base, M).len_bytes(), M, "{turn}");
        drop(grown);
        assert_eq!(scene.live(), (1, 1));
    }
    scene.assert_all_goes();
}

#[test]
fn d14_one_segment_that_cannot_be_bound_costs_the_others_nothing() {
    let scene = Scene::new();
    let (bad, good, gone) = (scene.segment(M), scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(gone, M)]);
    drop(scene.view(gone, M));
    scene.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(12));
    scene.scanner.shows(&[seen(bad, M), seen(good, M)]);
    drop(scene.view(good, M));
    assert_eq!((scene.live(), scene.scanner.scans()), ((1, 1), 2), "the good one is served, the gone one dropped");
    drop(scene.view(good, 4096));
    assert_eq!(scene.scanner.scans(), 2);
    drop(scene.view(bad, M));
    scene.assert_all_goes();
}

#[test]
fn d15_an_empty_scan_of_a_scanner_that_failed_cannot_be_said() {
    let scene = Scene::new();
    let (base, other) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(base, M)]);
    let view = scene.view(base, M);
    scene.scanner.answers(Err(ScanError::new("no snapshot")));
    assert!(matches!(scene.refusal(other, M), SegmentErrorKind::Scan(_)));
    assert_eq!(scene.view(base, M).lkey(), view.lkey());
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn d16_retired_keys_go_with_their_views_and_do_not_pile_up() {
    let scene = Scene::new();
    let base = scene.segment(M);
    let mut held = Vec::new();
    for pages in 1..=20 {
        scene.scanner.shows(&[seen(base, pages * M)]);
        held.push(scene.view(base + (pages - 1) * M, M));
        scene.cuda.map(base + pages * M, M);
    }
    assert_eq!(scene.live().1, 20, "one for each view that was taken at its own generation");
    held.drain(5..15);
    assert_eq!(scene.live().1, 10);
    let mut peer = scene.peer();
    held.iter().for_each(|view| peer.prove(&scene.cuda, view));
    peer.leave();
    held.clear();
    assert_eq!(scene.live().1, 1);
    scene.assert_all_goes();
}

#[test]
fn d17_the_fast_path_looks_whether_the_memory_is_still_the_same() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let key = scene.view(base, M).lkey();
    scene.cuda.unmap(base);
    assert_eq!(scene.register(base, M).map(drop).map_err(|_| ()), Err(()), "it is not mapped");
    scene.cuda.map(base, M);
    let view = scene.view(base, M);
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.leave();
    assert_eq!((scene.bound().len(), view.lkey() == key), (2, false));
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn d18_no_lock_is_held_while_the_scanner_runs() {
    // Every entry point of the domain returns while a scan is under way, on another thread.
    let mut making = Making::default();
    making.config = making.config.patience(std::time::Duration::ZERO);
    let scene = making.scene();
    let (bound, other) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(bound, M)]);
    drop(scene.view(bound, M));
    scene.scanner.shows(&[seen(bound, M), seen(other, M)]);
    let domain = Arc::clone(&scene.domain);
    scene.scanner.within(move || {
        std::thread::spawn(move || {
            drop(domain.register(bound, M).expect("a hit"));
            drop(domain.register(other, 4096).expect("a region of its own"));
            drop(domain.register_parts(bound, M).expect("a hit"));
            assert!(domain.prune().is_err(), "no patience");
            domain.invalidate(range(1 << 20, M));
            let _ = (domain.statistics(), format!("{domain:?}"));
            let own = domain.set_scanner(None);
            domain.set_scanner(own);
        })
        .join()
        .expect("all of them return");
    });
    drop(scene.view(other, M));
    scene.assert_all_goes();
}

#[test]
fn d19_ordinals_are_the_drivers_and_are_asked_for_when_memory_is() {
    // A domain that was made before the driver was initialised serves as one that was made after.
    let mut making = Making { gpus: 2, fabric: on_device(SoftDevice::mlx5("mlx5_0")), ..Making::default() };
    making.config = making.config.given([Ordinal(1)]);
    let scene = making.scene();
    let base = scene.segment_on(1, M);
    scene.cuda.fail_from("cuPointerGetAttribute", 1, bareverbs_core::cuda::CuResult::NOT_INITIALIZED);
    scene.scanner.shows(&[]);
    assert_eq!(scene.refusal(base, M), SegmentErrorKind::NotCovered, "no device memory can exist yet");
    scene.cuda.clear_plan();
    scene.scanner.shows(&[super::domain_scene::on(1, base, M)]);
    drop(scene.view(base, M));
    assert_eq!(scene.live(), (1, 1));
    // A scanner that mixes up ordinals is found out.
    scene.domain.invalidate(range(base, M));
    scene.scanner.shows(&[super::domain_scene::on(0, base, M)]);
    drop(scene.view(base, 4096));
    let other = Making { gpus: 2, ..Making::default() }.scene();
    let of_1 = other.segment_on(1, M);
    let of_0 = other.segment_on(0, M);
    other.scanner.shows(&[seen(of_1, M), seen(of_0, M)]);
    drop(other.view(of_0, M));
    assert_eq!(other.bound(), [1]);
    other.assert_all_goes();
    scene.assert_all_goes();
}
