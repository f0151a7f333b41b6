//! Faults that users of such libraries met, by their ids, against a domain.

use bareverbs_core::segments::{Covers, EntryCap, Ordinal};
use bareverbs_shell::errno::Errno;
use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::segments::{
    BindError, BinderConfig, IdentityPolicy, NoKey, NotBound, ScanError, SegmentErrorKind, SegmentScan,
};
use bareverbs_shell::soft::{Answer, Detail, Limits, SoftDevice};

use super::domain_scene::{M, MAX, Making, Scene, on, on_device, range, seen};
use crate::drop_log;

const MIB: u64 = 1 << 20;

/// 150 GiB, which needs 38 regions: at cap 30, two keys.
const LARGE: u64 = 161_061_273_600;
const WINDOW: u64 = 0x1D_FC40_0000;

#[test]
fn f2_150_gib_are_covered_by_two_keys_and_repeats_cost_no_call() {
    let scene = Scene::new();
    let base = scene.segment(LARGE);
    scene.scanner.shows(&[seen(base, LARGE)]);
    let views = [0, WINDOW - 4096, WINDOW].map(|offset| scene.view(base + offset, 4096));
    assert_eq!(scene.bound(), [30, 8]);
    assert_eq!(views.each_ref().map(|view| view.key_addr()), [0, WINDOW - 4096, 0]);
    assert_eq!(views[0].lkey(), views[1].lkey());
    assert_ne!(views[0].lkey(), views[2].lkey());
    let mut peer = scene.peer();
    views.iter().for_each(|view| peer.prove(&scene.cuda, view));
    peer.leave();
    let (calls, scans) = (scene.device_calls(), scene.scanner.scans());
    (0..10).for_each(|_| drop(scene.view(base + WINDOW, 4096)));
    assert_eq!((scene.device_calls(), scene.scanner.scans(), scans), (calls, 1, 1));
    assert_eq!((scene.live(), scene.exported().len()), ((38, 2), 38), "no region in vain");
    // What straddles gets a region of its own, and nothing is recorded as failed.
    let across = scene.view(base + WINDOW - 4096, 8192);
    assert_eq!((scene.live(), scene.scanner.scans()), ((39, 2), 1));
    assert_eq!(scene.view(base + WINDOW, 4096).lkey(), views[2].lkey());
    drop((across, views));
    scene.assert_all_goes();
}

#[test]
fn f2_growth_past_the_cap_opens_the_next_key_and_leaves_the_first() {
    let scene = Scene::new();
    let base = scene.segment(30 * MAX);
    scene.scanner.shows(&[seen(base, 30 * MAX)]);
    let first = scene.view(base, 4096);
    scene.cuda.map(base + 30 * MAX, LARGE - 30 * MAX);
    scene.scanner.shows(&[seen(base, LARGE)]);
    let second = scene.view(base + 30 * MAX, 4096);
    assert_eq!((scene.bound(), second.key_addr()), (vec![30, 8], 0));
    assert_eq!(scene.view(base + 4096, 4096).lkey(), first.lkey());
    drop((first, second));
    scene.assert_all_goes();
}

#[test]
fn f2_a_segment_beyond_all_keys_gets_regions_of_its_own_without_registering_in_vain_or_scanning_again() {
    let mut making = Making::default();
    // Keys of one region of 4 GiB, and room for 256 of them.
    making.config = making.config.binder(BinderConfig::default().max_entries(EntryCap::new(1).expect("an entry")));
    making.gpus = 1;
    let scene = making.scene();
    let base = scene.cuda.reserve(0, 1 << 41);
    scene.cuda.map(base, 2 * M);
    // It says that there is more than is mapped: far more than keys cover.
    let beyond = seen(base, 260 * MAX);
    scene.scanner.shows(&[beyond]);
    let error = scene.register(base + 4096, 4096);
    // Not mapped as a whole, so it cannot be told what it is: the plan comes first all the same.
    let view = error.expect("a region of its own");
    assert_eq!((scene.bound(), scene.live()), (vec![], (1, 0)));
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.leave();
    let (scans, exports) = (scene.scanner.scans(), scene.exported().len());
    // It is shared while a view lives.
    let same = scene.view(base + 8192 - 4096, 4096);
    assert_eq!((same.lkey(), scene.scanner.scans(), scene.exported().len()), (view.lkey(), scans, exports));
    drop((view, same));
    assert_eq!(scene.live(), (0, 0));
    scene.assert_all_goes();
}

#[test]
fn f2_a_device_that_reports_no_entries_is_an_error_that_says_so_and_nothing_wraps() {
    // The last is -1 to who reads it as C does.
    for entries in [0, u32::MAX] {
        let limits = Limits { entries, ..Limits::default() };
        let making = Making { fabric: on_device(SoftDevice::mlx5("mlx5_0").limits(limits)), ..Making::default() };
        let scene = making.scene();
        let base = scene.segment(M);
        scene.scanner.shows(&[seen(base, M)]);
        let SegmentErrorKind::NotBound { why, .. } = scene.refusal(base, 4096) else { panic!("another error") };
        assert!(matches!(*why, NotBound::Bind(BindError::Cap { .. })), "{why:?}");
        assert_eq!(scene.exported(), [], "nothing was registered first");
        scene.assert_all_goes();
    }
}

#[test]
fn f4_with_a_provider_that_sums_in_32_bits_both_offsets_are_reached_by_two_keys() {
    for (old, keys, key_addr) in [(true, 2, M), (false, 1, 0x8000_0000)] {
        let mut making = Making::default();
        if old {
            making.fabric = making.fabric.old_mlx5_provider();
        }
        let scene = making.scene();
        let base = scene.segment(0x8020_0000);
        scene.scanner.shows(&[seen(base, 0x8020_0000)]);
        let views = [scene.view(base + 0x6600_0000, 4096), scene.view(base + 0x8000_0000, 4096)];
        assert_eq!((scene.bound().len(), views[1].key_addr()), (keys, key_addr));
        let mut peer = scene.peer();
        views.iter().for_each(|view| peer.prove(&scene.cuda, view));
        peer.leave();
        drop(views);
        scene.assert_all_goes();
    }
}

#[test]
fn f5_memory_freed_and_mapped_again_at_the_same_address_gets_a_new_key_and_the_old_one_is_never_handed_out() {
    for alive in [false, true] {
        let scene = Scene::new();
        let base = scene.segment(M);
        scene.scanner.shows(&[seen(base, M)]);
        let old = scene.view(base, 4096);
        let old_key = old.lkey();
        let old = alive.then_some(old);
        scene.cuda.unmap(base);
        scene.cuda.map(base, M);
        let new = scene.view(base, 4096);
        assert_eq!(scene.bound(), [1, 1]);
        assert_ne!(new.lkey(), old_key, "alive: {alive}");
        assert_eq!(scene.live(), if alive { (2, 2) } else { (1, 1) });
        let mut peer = scene.peer();
        if let Some(old) = &old {
            // The old view keeps its own objects, and reaches the old memory only.
            assert!(peer.write(old, &[9; 4096]));
            assert_eq!(scene.cuda.read(base, 16), [0; 16]);
        }
        peer.prove(&scene.cuda, &new);
        peer.leave();
        drop((old, new));
        assert_eq!(scene.live(), (1, 1));
        scene.assert_all_goes();
    }
}

#[test]
fn f5_an_unchanged_id_is_the_fast_path() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let first = scene.view(base, 4096);
    let (calls, scans) = (scene.device_calls(), scene.scanner.scans());
    let again = scene.view(base, 4096);
    assert_eq!((again.lkey(), scene.device_calls(), scene.scanner.scans()), (first.lkey(), calls, scans));
    drop((first, again));
    scene.assert_all_goes();
}

#[test]
fn f5_a_middle_mapping_that_was_replaced_is_found_by_each_request_that_touches_it_and_by_no_other() {
    let scene = Scene::walking();
    let base = scene.segment(M);
    scene.cuda.map(base + M, M);
    scene.cuda.map(base + 2 * M, M);
    let whole = scene.view(base, 3 * M);
    scene.cuda.unmap(base + M);
    scene.cuda.map(base + M, M);
    for untouched in [base, base + 2 * M] {
        assert_eq!(scene.view(untouched, M).lkey(), whole.lkey(), "its neighbours are what they were");
    }
    assert_eq!(scene.bound(), [1]);
    let across = scene.view(base + M - 4096, M + 8192);
    assert_ne!(across.lkey(), whole.lkey());
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &across);
    peer.leave();
    drop((whole, across));
    scene.assert_all_goes();
}

#[test]
fn f5_without_identities_invalidate_is_what_keeps_the_old_key_from_being_handed_out() {
    let mut making = Making::default();
    making.config = making.config.identity(IdentityPolicy::Trust);
    let scene = making.scene();
    let (base, other) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(base, M), seen(other, M)]);
    let (old, neighbour) = (scene.view(base, 4096), scene.view(other, 4096));
    let asked = scene.cuda_calls();
    drop(scene.view(base, 4096));
    assert_eq!(scene.cuda_calls(), asked, "the driver is not asked");
    scene.cuda.unmap(base);
    scene.cuda.map(base, M);
    scene.domain.invalidate(range(base, 1));
    let new = scene.view(base, 4096);
    assert_ne!(new.lkey(), old.lkey());
    assert_eq!(scene.view(other, 4096).lkey(), neighbour.lkey());
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &new);
    peer.leave();
    drop((old, neighbour, new));
    scene.assert_all_goes();
}

#[test]
fn f6_after_a_shrink_the_rest_is_bound_afresh_and_what_is_gone_is_refused() {
    let scene = Scene::new();
    let base = scene.segment(2 * M);
    scene.cuda.map(base + 2 * M, 2 * M);
    scene.scanner.shows(&[seen(base, 4 * M)]);
    let old = scene.view(base, 4 * M);
    scene.cuda.unmap(base + 2 * M);
    scene.scanner.shows(&[seen(base, 2 * M)]);
    let gone = scene.register(base + 2 * M, 4096).expect_err("it is not mapped");
    assert_eq!(gone.kind, SegmentErrorKind::NotCovered);
    let text = gone.to_string();
    assert!(text.contains(&format!("4096 bytes at {:#x}", base + 2 * M)) && text.contains("ordinals 0"), "{text}");
    let rest = scene.view(base, 2 * M);
    assert_ne!(rest.lkey(), old.lkey());
    assert!(matches!(
        scene.refusal(base + 2 * M - 4096, 8192),
        SegmentErrorKind::Export { why: NoKey::NotScanned, .. }
    ));
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &rest);
    assert_eq!(peer.read(&old).len(), 4 << 21, "the old view's objects stay until it goes");
    peer.leave();
    drop((old, rest));
    assert_eq!(scene.live(), (1, 1));
    scene.assert_all_goes();
}

#[test]
fn f6_a_lost_head_and_a_hole_leave_the_mapped_parts_served_and_the_others_refused() {
    let scene = Scene::new();
    let base = scene.segment(M);
    (1..4).for_each(|at| scene.cuda.map(base + at * M, M));
    scene.scanner.shows(&[seen(base, 4 * M)]);
    let old = scene.view(base, 4 * M);
    // The head is gone.
    scene.cuda.unmap(base);
    scene.scanner.shows(&[seen(base + M, 3 * M)]);
    assert_eq!(scene.refusal(base, 4096), SegmentErrorKind::NotCovered);
    let tail = scene.view(base + M, 3 * M);
    assert_eq!((tail.key_addr(), scene.domain.statistics().segments), (0, 1));
    // Then the head is back, and there is a hole.
    scene.cuda.map(base, M);
    scene.cuda.unmap(base + M);
    scene.cuda.unmap(base + 2 * M);
    scene.scanner.shows(&[seen(base, M), seen(base + 3 * M, M)]);
    let sides = [scene.view(base, M), scene.view(base + 3 * M, M)];
    assert_eq!(sides.each_ref().map(|view| view.key_addr()), [0, 0]);
    assert_eq!(scene.refusal(base + M, 4096), SegmentErrorKind::NotCovered);
    assert!(matches!(scene.refusal(base, 4 * M), SegmentErrorKind::Export { .. }));
    let mut peer = scene.peer();
    sides.iter().for_each(|view| peer.prove(&scene.cuda, view));
    peer.leave();
    drop((old, tail, sides));
    assert_eq!(scene.live(), (2, 2));
    scene.assert_all_goes();
}

#[test]
fn f6_of_two_scanned_segments_that_overlap_the_first_stands_and_the_other_is_an_error() {
    let scene = Scene::new();
    let base = scene.segment(4 * M);
    scene.scanner.shows(&[seen(base, 2 * M), seen(base + M, 3 * M)]);
    drop(scene.view(base, 2 * M));
    let SegmentErrorKind::NotBound { why, .. } = scene.refusal(base + 2 * M, M) else { panic!("another error") };
    assert_eq!(*why, NotBound::Overlap { with: seen(base, 2 * M) });
    scene.assert_all_goes();
}

#[test]
fn f6_a_bad_segment_stops_neither_the_good_ones_nor_the_pruning_and_its_error_is_what_a_request_in_it_gets() {
    let scene = Scene::new();
    let (odd, good, gone) = (scene.segment(2 * M), scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(gone, M)]);
    drop(scene.view(gone, M));
    scene.scanner.shows(&[seen(odd, 3 * MIB), on(9, u64::MAX - 1, 4), seen(good, M)]);
    let view = scene.view(good, M);
    assert_eq!((scene.live(), scene.domain.statistics().segments), ((1, 1), 1));
    let scans = scene.scanner.scans();
    (0..5).for_each(|_| drop(scene.view(good + 4096, 4096)));
    assert_eq!(scene.scanner.scans(), scans, "the good one needs no scan");
    let error = scene.register(odd, 4096).expect_err("3 MiB");
    assert!(matches!(&error.kind, SegmentErrorKind::NotBound { why, .. } if matches!(**why, NotBound::Chunk(_))));
    assert!(error.to_string().contains("3145728"), "{error}");
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn f7_an_ordinal_that_was_pinned_by_hand_is_served_across_its_mappings() {
    let mut making = Making::default();
    making.config = making.config.given([]).pinned([Ordinal(0)]);
    let scene = making.scene();
    let base = scene.segment(20 * MIB);
    scene.cuda.map(base + 20 * MIB, 20 * MIB);
    scene.scanner.shows(&[seen(base, 40 * MIB)]);
    let view = scene.view(base + 16 * MIB, 8 * MIB);
    assert_eq!((view.key_addr(), scene.bound()), (16 * MIB, vec![1]));
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.leave();
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn f7_an_ordinal_that_is_not_served_gets_a_region_over_both_mappings_and_an_error_names_those_served() {
    let mut making = Making::default();
    making.config = making.config.given([]).pinned([Ordinal(3)]);
    let scene = making.scene();
    let base = scene.segment(20 * MIB);
    scene.cuda.map(base + 20 * MIB, 20 * MIB);
    scene.scanner.shows(&[seen(base, 40 * MIB)]);
    // Not whole pages: the mappings are exported whole, and the view is what is advanced.
    let view = scene.view(base + 16 * MIB + 12, 8 * MIB);
    assert_eq!((scene.exported(), view.key_addr()), (vec![(base, 40 * MIB)], 16 * MIB + 12));
    assert_eq!((scene.bound(), scene.live(), scene.scanner.scans()), (vec![], (1, 0), 0));
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.leave();
    let error = scene.register(base + 39 * MIB, 2 * MIB).expect_err("its end is not mapped");
    assert!(matches!(error.kind, SegmentErrorKind::Export { why: NoKey::NotServed { ordinal: Ordinal(0) }, .. }));
    assert!(error.to_string().contains("which serves ordinals 3"), "{error}");
    drop(view);
    scene.assert_all_goes();
}

#[test]
fn e5_unsupported_is_told_from_a_wrong_argument_and_the_plain_range_is_tried_once() {
    for (errno, unsupported) in [(95, true), (93, true), (524, true), (22, false)] {
        let scene = Making { provider: false, ..Making::default() }.scene();
        let base = scene.segment(M);
        scene.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(errno));
        scene.soft.fail("ibv_reg_mr", 1, Answer::null(14));
        let error = scene.register(base + 0x1234, 100).expect_err("both refuse");
        let plain: Vec<_> = scene.soft.record().into_iter().filter(|call| call.symbol == "ibv_reg_mr").collect();
        assert_eq!(plain.len(), usize::from(unsupported), "{errno}: {error}");
        if unsupported {
            let Detail::Register { address, length_bytes, .. } = plain[0].detail else { panic!("{plain:?}") };
            assert_eq!((address as u64, length_bytes), (base + 0x1234, 100), "the original range");
            assert_eq!(error.errno(), Some(Errno(14)));
            assert!(
                error.to_string().contains("errno 14") && error.to_string().contains(&format!("{errno}")),
                "{error}"
            );
        } else {
            assert_eq!(error.errno(), Some(Errno(22)), "{error}");
        }
        assert!(matches!(error.kind, SegmentErrorKind::Region { why: NoKey::NoProvider { .. }, .. }), "{error}");
        // Where the plain range is taken, keys see it at its own address: here since the process has pages there, too.
        let pages = Pages::new(M as usize).expect("memory");
        let base = pages.start().addr().get() as u64;
        scene.cuda.allocate_at(0, base, M);
        if unsupported {
            scene.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(errno));
            let view = scene.view(base + 0x1234, 100);
            assert_eq!((view.addr(), view.key_addr(), view.len_bytes()), (base + 0x1234, base + 0x1234, 100));
        }
        scene.assert_all_goes();
    }
}

#[test]
fn g3_what_was_registered_goes_once_though_allocator_driver_and_scanner_know_nothing_any_more() {
    for shut_down in [false, true] {
        let scene = Scene::new();
        let base = scene.segment(2 * M);
        scene.scanner.shows(&[seen(base, 2 * M)]);
        let (view, own) = (scene.view(base, 2 * M), {
            let other = scene.cuda.allocate(0, 3 * MIB);
            (other, scene.view(other, 100))
        });
        scene.cuda.unmap(base);
        scene.cuda.free(own.0);
        scene.scanner.shows(&[]);
        if shut_down {
            scene.cuda.shut_down();
        }
        let asked = scene.cuda_calls();
        let Scene { domain, scanner, pd, driver, cuda, soft, world } = scene;
        // On a thread without a context.
        std::thread::spawn(move || drop((view, own, domain, pd, driver))).join().expect("no panic");
        assert_eq!(cuda.record().len(), asked, "no call to the driver");
        let count = |symbol| soft.record().iter().filter(|call| call.symbol == symbol && call.returned == 0).count();
        assert_eq!((count("ibv_dereg_mr"), count("mlx5dv_destroy_mkey")), (2, 1));
        world.assert_clean();
        drop(scanner);
    }
}

#[test]
fn c5_a_scanner_that_panics_leaves_the_domain_usable() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let view = scene.view(base, M);
    scene.cuda.map(base + M, M);
    scene.scanner.shows(&[seen(base, 2 * M)]);
    scene.scanner.within(|| panic!("the allocator's snapshot fell over"));
    let domain = std::sync::Arc::clone(&scene.domain);
    assert!(std::thread::spawn(move || domain.register(base + M, M).map(drop)).join().is_err());
    // The bound part is served, the next request works.
    drop(scene.view(base, M));
    let tail = scene.view(base + M, M);
    assert_eq!(tail.key_addr(), M);
    scene.scanner.within(|| panic!("again"));
    let domain = std::sync::Arc::clone(&scene.domain);
    assert!(std::thread::spawn(move || domain.prune().map(drop)).join().is_err());
    assert_eq!(scene.domain.prune().expect("usable").vanished, 0);
    drop((view, tail));
    scene.assert_all_goes();
}

#[test]
fn c5_a_hook_that_panics_in_the_midst_of_a_growth_costs_what_could_not_be_freed_and_the_next_request_works() {
    drop_log::panic_once("mlx5_c5");
    let making = Making { fabric: on_device(SoftDevice::mlx5("mlx5_c5")), ..Making::default() };
    let scene = making.scene();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let view = scene.view(base, M);
    scene.cuda.map(base + M, MAX + M);
    scene.scanner.shows(&[seen(base, MAX + 2 * M)]);
    // The second tail region is refused, then the first cannot be deregistered, and the hook that is told of it panics.
    scene.soft.fail("ibv_reg_dmabuf_mr", 2, Answer::null(12));
    scene.soft.fail("ibv_dereg_mr", 1, Answer::returned(16));
    assert!(matches!(scene.refusal(base + MAX, M), SegmentErrorKind::NotBound { .. }));
    assert_eq!(drop_log::take("mlx5_c5").len(), 1);
    drop(scene.view(base, M));
    let tail = scene.view(base + MAX, M);
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &tail);
    peer.leave();
    drop((view, tail));
    assert_eq!(scene.live(), (4, 1), "three that serve, and the one that could not be deregistered");
    let Scene { domain, pd, soft, .. } = scene;
    drop((domain, pd));
    assert_eq!((soft.live().mrs, soft.live().keys, soft.live().pds), (1, 0, 1), "with what it needs");
}

#[test]
fn an_error_from_a_scanner_is_never_that_everything_vanished() {
    let scene = Scene::new();
    let (base, other) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(base, M)]);
    drop(scene.view(base, M));
    let failed = ScanError::new("the snapshot is not to be had");
    scene.scanner.answers(Err(failed.clone()));
    assert_eq!(scene.refusal(other, M), SegmentErrorKind::Scan(failed.clone()));
    assert_eq!(scene.domain.prune().map(drop).map_err(|error| error.kind), Err(SegmentErrorKind::Scan(failed)));
    let calls = scene.device_calls();
    drop(scene.view(base, M));
    assert_eq!((scene.device_calls(), scene.domain.statistics().segments), (calls, 1));
    // Nor does absence outside of what was looked at mean anything.
    let covers = Covers::Range(range(other, M));
    scene.scanner.answers(Ok(SegmentScan { segments: vec![seen(other, M)], covers }));
    drop(scene.view(other, M));
    assert_eq!(scene.domain.statistics().segments, 2);
    scene.assert_all_goes();
}
