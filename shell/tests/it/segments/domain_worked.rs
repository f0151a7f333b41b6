//! The worked values of segments behind keys, carried out: cap 30, a current provider.

use bareverbs_core::segments::{EntryCap, Ordinal};
use bareverbs_core::verbs::WcStatus;
use bareverbs_shell::segments::{BinderConfig, NotBound, PartError, SegmentErrorKind};
use bareverbs_shell::soft::{Answer, BindingFault};

use super::domain_scene::{M, MAX, Making, Scene, on, seen};

#[test]
fn binding_2_mib_makes_one_region_and_one_key_of_one_entry() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let view = scene.view(base, M);
    assert_eq!((view.key_addr(), view.len_bytes()), (0, M));
    assert_eq!((scene.exported(), scene.bound()), (vec![(base, M)], vec![1]));
    assert_eq!(scene.live(), (1, 1));
    assert_eq!((scene.calls("mlx5dv_destroy_mkey"), scene.calls("mlx5dv_create_mkey")), (0, 1));
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn binding_more_than_the_longest_region_makes_two_regions_behind_one_key() {
    let scene = Scene::new();
    let base = scene.segment(MAX + M);
    scene.scanner.shows(&[seen(base, MAX + M)]);
    let view = scene.view(base + MAX - 4096, 8192);
    assert_eq!(scene.exported(), [(base, MAX), (base + MAX, M)]);
    assert_eq!(scene.bound(), [2]);
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.leave();
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn growth_registers_the_tail_and_binds_a_fresh_key_to_old_and_new_and_the_old_key_goes_with_its_views() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let old = scene.view(base + 0x1000, 4096);
    let keys = (old.lkey(), old.rkey());
    scene.cuda.map(base + M, M);
    scene.scanner.shows(&[seen(base, 2 * M)]);
    let new = scene.view(base + M - 4096, 8192);
    assert_eq!((scene.exported(), scene.bound()), (vec![(base, M), (base + M, M)], vec![1, 2]));
    assert_eq!((old.lkey(), old.rkey()), keys);
    assert_ne!(new.lkey(), old.lkey());
    assert_eq!(scene.live(), (2, 2), "the old key lives as its view does");
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &new);
    peer.prove(&scene.cuda, &old);
    peer.leave();
    drop(old);
    assert_eq!(scene.live(), (2, 1));
    // Growth to the same size: no call.
    let (calls, exports) = (scene.device_calls(), scene.exported().len());
    let again = scene.view(base, 2 * M);
    assert_eq!((scene.device_calls(), scene.exported().len(), again.lkey()), (calls, exports, new.lkey()));
    drop((new, again));
    scene.assert_all_goes();
}

#[test]
fn a_scan_that_shows_the_same_takes_no_registration_and_no_bind() {
    let scene = Scene::new();
    let (a, b) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(a, M)]);
    drop(scene.view(a, M));
    scene.scanner.shows(&[seen(a, M), seen(b, M)]);
    drop(scene.view(b, M));
    let calls = scene.device_calls();
    // A miss that finds nothing new.
    assert!(matches!(scene.refusal(b + M, M), SegmentErrorKind::NotCovered));
    assert_eq!((scene.device_calls(), scene.scanner.scans()), (calls, 3));
    scene.assert_all_goes();
}

#[test]
fn growth_whose_second_tail_region_is_refused_leaves_all_as_it_was() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let view = scene.view(base, M);
    scene.cuda.map(base + M, MAX + M);
    let grown = seen(base, MAX + 2 * M);
    scene.scanner.shows(&[grown]);
    scene.soft.clear_record();
    scene.soft.fail("ibv_reg_dmabuf_mr", 2, Answer::null(libc::ENOMEM));
    let error = scene.register(base + MAX, M).expect_err("refused");
    let SegmentErrorKind::NotBound { segment, ref why } = error.kind else { panic!("{error}") };
    assert_eq!(segment, grown);
    assert!(matches!(**why, NotBound::Part { error: PartError::Shell(_), .. }), "{why:?}");
    assert_eq!(error.errno().map(|errno| errno.0), Some(libc::ENOMEM));
    for part in ["mlx5_0", "ordinals 0", "ENOMEM", &format!("{:#x}", base + MAX), &M.to_string()] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    assert_eq!((scene.bound(), scene.calls("ibv_dereg_mr")), (vec![], 1));
    assert_eq!(scene.live(), (1, 1));
    let same = scene.view(base, M);
    assert_eq!((same.lkey(), scene.domain.statistics().regions), (view.lkey(), 1));
    // And the next request tries anew.
    let tail = scene.view(base + MAX, M);
    assert_eq!((tail.key_addr(), scene.bound()), (MAX, vec![3]));
    drop((view, same, tail));
    scene.assert_all_goes();
}

#[test]
fn a_bind_that_is_refused_leaves_no_key_and_no_region_and_the_next_is_tried_anew() {
    let scene = Scene::new();
    let base = scene.segment(MAX + M);
    scene.scanner.shows(&[seen(base, MAX + M)]);
    scene.soft.binding_fault(1, BindingFault::Fails(WcStatus::MW_BIND_ERR));
    let SegmentErrorKind::NotBound { why, .. } = scene.refusal(base, M) else { panic!("another error") };
    assert!(matches!(*why, NotBound::Bind(_)), "{why:?}");
    assert_eq!(scene.live(), (0, 0));
    assert_eq!(scene.domain.statistics().segments, 0);
    drop(scene.view(base, M));
    assert_eq!(scene.live(), (2, 1));
    scene.assert_all_goes();
}

fn of_cap(entries: u16) -> Scene {
    let mut making = Making::default();
    let cap = EntryCap::new(entries).expect("an entry");
    making.config = making.config.binder(BinderConfig::default().max_entries(cap));
    making.scene()
}

#[test]
fn cap_1_gives_two_keys_of_one_entry_each() {
    let scene = of_cap(1);
    let base = scene.segment(MAX + M);
    scene.scanner.shows(&[seen(base, MAX + M)]);
    let views = [scene.view(base + MAX - 4096, 4096), scene.view(base + MAX, 4096)];
    assert_eq!(scene.bound(), [1, 1]);
    assert_eq!(views.each_ref().map(|view| view.key_addr()), [MAX - 4096, 0]);
    let mut peer = scene.peer();
    views.iter().for_each(|view| peer.prove(&scene.cuda, view));
    peer.leave();
    drop(views);
    scene.assert_all_goes();
}

#[test]
fn a_request_that_straddles_windows_gets_a_region_of_its_own_or_parts_and_no_failure_is_recorded() {
    let scene = of_cap(1);
    let base = scene.segment(MAX + M);
    scene.scanner.shows(&[seen(base, MAX + M)]);
    drop(scene.view(base, M));
    let (bound, scans) = (scene.bound(), scene.scanner.scans());
    let across = scene.view(base + MAX - 4096, 8192);
    assert_eq!((across.addr(), across.len_bytes()), (base + MAX - 4096, 8192));
    let parts = scene.domain.register_parts(base + MAX - 4096, 8192).expect("two windows");
    let places: Vec<_> = parts.iter().map(|part| (part.addr(), part.key_addr(), part.len_bytes())).collect();
    assert_eq!(places, [(base + MAX - 4096, MAX - 4096, 4096), (base + MAX, 0, 4096)]);
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &across);
    parts.iter().for_each(|part| peer.prove(&scene.cuda, part));
    peer.leave();
    assert_eq!((scene.bound(), scene.scanner.scans()), (bound, scans), "nothing is bound or scanned for it");
    assert_eq!(scene.domain.statistics().fallbacks, 1);
    // While it lives it serves others that straddle there.
    let within = scene.view(base + MAX - 2048, 4096);
    assert_eq!((within.lkey(), scene.domain.statistics().fallbacks), (across.lkey(), 1));
    drop(within);
    // The keys serve as before.
    assert_eq!(scene.view(base + MAX, 4096).lkey(), parts[1].lkey());
    drop((across, parts));
    scene.assert_all_goes();
}

#[test]
fn a_view_is_addressed_from_its_windows_base_and_counts_one_reference() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let view = scene.view(base + 0x400, 4096);
    assert_eq!((view.key_addr(), view.len_bytes(), view.device().as_str()), (0x400, 4096, "mlx5_0"));
    assert!(view.protection_domain().is_some_and(|of| std::sync::Arc::ptr_eq(of, &scene.pd)));
    // The segment is dropped; the key goes with the last view, and not before.
    let clone = view.clone();
    scene.domain.invalidate(super::domain_scene::range(base, M));
    drop(view);
    assert_eq!(scene.live(), (1, 1));
    drop(clone);
    assert_eq!(scene.live(), (0, 0));
    scene.assert_all_goes();
}

#[test]
fn a_request_inside_a_bound_segment_scans_nothing_and_binds_nothing() {
    let scene = Scene::new();
    let base = scene.segment(4 * M);
    scene.scanner.shows(&[seen(base, 4 * M)]);
    drop(scene.view(base, 4 * M));
    let (scans, calls, asked) = (scene.scanner.scans(), scene.device_calls(), scene.cuda_calls());
    for at in 0..100 {
        drop(scene.view(base + at * 4096, 4096));
    }
    assert_eq!((scene.scanner.scans(), scene.device_calls()), (scans, calls));
    assert_eq!(scene.cuda_calls(), asked + 100, "the id of the one mapping that each touches");
    scene.assert_all_goes();
}

#[test]
fn segments_of_served_ordinals_are_bound_and_grown_each_by_itself_in_scan_order() {
    let mut making = Making { gpus: 3, ..Making::default() };
    making.config = making.config.given([Ordinal(0), Ordinal(2)]);
    let scene = making.scene();
    let (a, b, c) = (scene.segment_on(0, M), scene.segment_on(1, M), scene.segment_on(2, 2 * M));
    let first = [on(0, a, M), on(1, b, M), on(2, c, 2 * M)];
    scene.scanner.shows(&first);
    let in_a = scene.view(a, 4096);
    assert_eq!(scene.exported(), [(a, M), (c, 2 * M)]);
    let edge = scene.view(c + 2 * M - 0x6000, 0x6000);
    assert_eq!(edge.key_addr(), 2 * M - 0x6000);
    let beyond = scene.register(c + 2 * M - 2048, 4096).expect_err("half of it is not mapped");
    assert!(beyond.to_string().contains("ordinals 0, 2"), "{beyond}");
    // Not served by a key: by a region of its own.
    let (bound, scans) = (scene.bound().len(), scene.scanner.scans());
    let in_b = scene.view(b + 4096, 4096);
    assert_eq!((scene.bound().len(), scene.scanner.scans()), (bound, scans));
    let mut peer = scene.peer();
    for view in [&in_a, &edge, &in_b] {
        peer.prove(&scene.cuda, view);
    }

    let c_key = edge.lkey();
    let a2 = scene.segment_on(0, M);
    scene.cuda.map(a + M, 2 * M);
    scene.scanner.shows(&[on(0, a, 3 * M), on(2, c, 2 * M), on(0, a2, M)]);
    let exports = scene.exported().len();
    let tail = scene.view(a + 2 * M, 4096);
    assert_eq!(scene.exported()[exports..], [(a + M, 2 * M), (a2, M)]);
    let keys = [tail.lkey(), scene.view(c, 4096).lkey(), scene.view(a2, 4096).lkey()];
    assert_eq!(keys[1], c_key, "untouched");
    assert!(keys[0] != in_a.lkey() && keys[0] != keys[2] && keys[1] != keys[2] && keys[0] != keys[1]);
    peer.prove(&scene.cuda, &tail);
    peer.leave();
    assert_eq!(scene.calls("mlx5dv_create_qp"), 1, "one binding queue pair");
    assert_eq!(scene.domain.statistics().segments, 3);
    drop((in_a, edge, in_b, tail));
    scene.assert_all_goes();
}

#[test]
fn a_segment_that_a_scan_of_everything_does_not_show_is_dropped_and_a_live_view_still_reads_its_bytes() {
    let scene = Scene::new();
    let (a, b, c) = (scene.segment(M), scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(a, M), seen(b, M)]);
    let view = scene.view(a, 4096);
    scene.cuda.write(a, b"the old bytes");
    scene.scanner.shows(&[seen(c, M)]);
    drop(scene.view(c, M));
    assert_eq!(scene.live(), (2, 2), "a's by its view, c's; b's went at once");
    assert_eq!(scene.domain.statistics().segments, 1);
    scene.cuda.unmap(a);
    let mut peer = scene.peer();
    assert_eq!(peer.read(&view)[..13], *b"the old bytes");
    peer.leave();
    drop(view);
    assert_eq!(scene.live(), (1, 1));
    scene.assert_in_use(2 * M);
    scene.assert_all_goes();
}

#[test]
fn a_thousand_growths_leave_one_key_and_no_retired_one() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    drop(scene.view(base, M));
    for pages in 1..1000 {
        scene.cuda.map(base + pages * M, M);
        scene.scanner.shows(&[seen(base, (pages + 1) * M)]);
        drop(scene.view(base + pages * M, M));
        let (regions, keys) = scene.live();
        assert!(keys == 1 && regions <= 1 + 11, "{regions} regions and {keys} keys after {pages}");
    }
    assert_eq!(scene.live().0 as u64, scene.domain.statistics().regions);
    let whole = scene.view(base, 1000 * M);
    assert_eq!((whole.key_addr(), whole.len_bytes()), (0, 1000 * M));
    drop(whole);
    scene.assert_all_goes();
}
