//! Scanners: the driver's walk, pruning, and scanners that say what cannot be.

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Covers, Ordinal, ScannedSegment};
use bareverbs_shell::segments::{DriverScanner, NotBound, Scanner, SegmentErrorKind, SegmentScan};
use bareverbs_shell::soft::Answer;

use super::domain_scene::{M, Making, Scene, on, range, seen};

fn walked(scene: &Scene, hint: AddressRange) -> (Vec<ScannedSegment>, AddressRange) {
    let scan = DriverScanner::new(scene.driver.clone()).scan(hint).expect("a driver that answers");
    let Covers::Range(covered) = scan.covers else { panic!("a walk covers a range") };
    assert!(covered.covers(hint));
    (scan.segments, covered)
}

#[test]
fn the_driver_shows_the_run_around_the_hint_and_covers_it_and_the_hint() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.cuda.map(base + M, 3 * M);
    assert_eq!(walked(&scene, range(base + 2 * M, 1)), (vec![seen(base, 4 * M)], range(base, 4 * M)));
    // Beyond its end, not mapped.
    assert_eq!(walked(&scene, range(base + 3 * M, 4 * M)), (vec![seen(base, 4 * M)], range(base, 7 * M)));
    assert_eq!(walked(&scene, range(base + 4 * M, M)), (vec![], range(base + 4 * M, M)));
    // Through a hole.
    scene.cuda.map(base + 6 * M, M);
    let both = vec![seen(base, 4 * M), seen(base + 6 * M, M)];
    assert_eq!(walked(&scene, range(base + M, 6 * M)), (both, range(base, 7 * M)));
    assert_eq!(walked(&scene, range(base, 0)), (vec![seen(base, 4 * M)], range(base, 4 * M)));
    scene.assert_all_goes();
}

#[test]
fn allocations_are_segments_that_do_not_grow_where_they_can_be_cut_and_none_otherwise() {
    let scene = Scene::new();
    let plain = 0x40_0000_0000;
    scene.cuda.allocate_at(0, plain, 2 * M);
    scene.cuda.allocate_at(0, plain + 2 * M, 3 << 20);
    let segment = ScannedSegment { expandable: false, ..seen(plain, 2 * M) };
    assert_eq!(walked(&scene, range(plain + 4096, 4096)).0, [segment]);
    assert_eq!(walked(&scene, range(plain, 4 * M)).0, [segment], "the odd one is registered by itself");
    // Host memory and managed memory are none either.
    let managed = scene.cuda.allocate_managed(0, 2 * M);
    assert_eq!(walked(&scene, range(managed, 4096)).0, []);
    assert_eq!(walked(&scene, range(4096, 4096)).0, []);
    scene.assert_all_goes();
}

#[test]
fn a_walk_that_the_driver_refuses_or_that_has_no_end_is_an_error_and_not_an_empty_scan() {
    let scene = Scene::new();
    let base = scene.segment(M);
    let scanner = DriverScanner::new(scene.driver.clone());
    assert!(scanner.scan(range(1 << 50, 1 << 60)).is_err());
    assert!(scanner.scan(range(u64::MAX - 10, 11)).expect("it ends").segments.is_empty());
    scene.cuda.shut_down();
    assert!(scanner.scan(range(base, M)).is_err());
    scene.assert_all_goes();
}

#[test]
fn a_segment_is_found_grown_and_dropped_by_the_driver_alone() {
    let scene = Scene::walking();
    let base = scene.segment(10 * M);
    let view = scene.view(base + 3 * M + 5, 100);
    assert_eq!((view.key_addr(), scene.exported()), (3 * M + 5, vec![(base, 10 * M)]));
    scene.cuda.map(base + 10 * M, 10 * M);
    // From inside the tail; the base stays the segment's.
    let tail = scene.view(base + 19 * M, M);
    assert_eq!((tail.key_addr(), scene.exported().len()), (19 * M, 2));
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    peer.prove(&scene.cuda, &tail);
    peer.leave();
    drop((view, tail));
    scene.cuda.unmap(base);
    scene.cuda.unmap(base + 10 * M);
    // The regions keep what was freed.
    scene.assert_in_use(20 * M);
    assert_eq!(scene.domain.prune().expect("a driver that answers").vanished, 1);
    assert_eq!(scene.live(), (0, 0));
    scene.assert_in_use(0);
    scene.assert_all_goes();
}

#[test]
fn pruning_asks_a_walking_scanner_once_for_each_segment_and_one_that_knows_all_once() {
    let scene = Scene::new();
    let bases: Vec<_> = (0..4).map(|_| scene.segment(M)).collect();
    let all: Vec<_> = bases.iter().map(|base| seen(*base, M)).collect();
    assert_eq!((scene.domain.prune().expect("nothing to do").vanished, scene.scanner.scans()), (0, 0));
    scene.scanner.shows(&all);
    drop(scene.view(bases[0], M));
    // Everything at once: two are gone, and a new one is not bound.
    let new = scene.segment(M);
    scene.scanner.shows(&[all[0], all[2], seen(new, M)]);
    let pruned = scene.domain.prune().expect("it answers");
    assert_eq!((pruned.vanished, pruned.replaced, scene.scanner.scans()), (2, 0, 2));
    assert_eq!((scene.live(), scene.domain.statistics().segments), ((2, 2), 2));
    // One at a time.
    let covers = Covers::Range(range(bases[0], M));
    scene.scanner.answers(Ok(SegmentScan { segments: vec![], covers }));
    let pruned = scene.domain.prune().expect("it answers");
    assert_eq!(
        (pruned.vanished, scene.scanner.hints()[2..].to_vec()),
        (1, vec![range(bases[0], M), range(bases[2], M)])
    );
    // Other memory at the same address: served no more, and bound when it is asked for.
    scene.cuda.unmap(bases[2]);
    scene.cuda.map(bases[2], M);
    scene.scanner.shows(&[all[2]]);
    let pruned = scene.domain.prune().expect("it answers");
    assert_eq!((pruned.vanished, pruned.replaced, scene.live()), (0, 1, (0, 0)));
    drop(scene.view(bases[2], M));
    assert_eq!(scene.live(), (1, 1));
    scene.assert_all_goes();
}

#[test]
fn a_scan_of_segments_that_are_not_mapped_or_are_another_devices_binds_nothing_and_says_so() {
    let mut making = Making { gpus: 2, ..Making::default() };
    making.config = making.config.given([Ordinal(0), Ordinal(1)]);
    let scene = making.scene();
    let (base, good) = (scene.segment_on(1, M), scene.segment(M));
    let unmapped = scene.cuda.reserve(0, 8 * M);
    scene.scanner.shows(&[on(0, unmapped, M), on(0, base, M), on(0, good, M)]);
    drop(scene.view(good, M));
    let why = |addr| match scene.refusal(addr, 4096) {
        SegmentErrorKind::NotBound { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert!(matches!(*why(unmapped), NotBound::Identity(_)));
    assert_eq!(*why(base), NotBound::OtherDevice { driver: Ordinal(1) });
    // It claims more than is mapped: all or nothing.
    scene.cuda.map(unmapped, M);
    scene.scanner.shows(&[on(0, unmapped, 2 * M), on(0, good, M)]);
    assert!(matches!(*why(unmapped), NotBound::Identity(_)));
    assert_eq!((scene.live(), scene.exported().len()), ((1, 1), 1));
    scene.assert_all_goes();
}

#[test]
fn a_mapping_that_a_scanner_shows_in_two_steps_is_asked_for_once() {
    let scene = Scene::new();
    let base = scene.segment(2 * M);
    for size in [M, 2 * M] {
        scene.scanner.shows(&[seen(base, size)]);
        drop(scene.view(base, size));
    }
    assert_eq!(scene.bound(), [1, 2], "it has grown");
    let calls = scene.cuda_calls();
    drop(scene.view(base, 2 * M));
    assert_eq!(scene.cuda_calls() - calls, 1);
    scene.assert_all_goes();
}

#[test]
fn a_request_that_begins_before_a_bound_segment_is_refused_and_drops_nothing() {
    let scene = Scene::walking();
    let base = scene.segment(M);
    drop(scene.view(base, M));
    // The hint ends one byte into the segment, which is in what is covered.
    let (segments, covered) = walked(&scene, range(base - 1, 2));
    assert_eq!((segments, covered), (vec![seen(base, M)], range(base - 1, M + 1)));
    scene.refusal(base - 1, 2);
    assert_eq!((scene.domain.statistics().segments, scene.live()), (1, (1, 1)));
    scene.assert_all_goes();
}

#[test]
fn a_request_that_ends_in_a_segment_that_was_not_bound_is_told_why_not() {
    let scene = Scene::new();
    let base = scene.segment(M);
    scene.cuda.map(base + M, M);
    let [good, bad] = [seen(base, M), seen(base + M, M)];
    scene.scanner.shows(&[good, bad]);
    scene.soft.fail("ibv_reg_dmabuf_mr", 2, Answer::null(libc::ENOSPC));
    let SegmentErrorKind::NotBound { segment, .. } = scene.refusal(base + M - 1, 2) else { panic!("another error") };
    assert_eq!((segment, scene.domain.statistics().segments), (bad, 1));
    scene.assert_all_goes();
}

#[test]
fn a_tail_of_several_mappings_is_known_by_each_of_them() {
    let scene = Scene::walking();
    let base = scene.segment(M);
    drop(scene.view(base, M));
    (1..4).for_each(|at| scene.cuda.map(base + at * M, M));
    let old = scene.view(base, 4 * M);
    let calls = scene.cuda_calls();
    drop(scene.view(base, 4 * M));
    assert_eq!((scene.cuda_calls() - calls, scene.bound()), (4, vec![1, 2]));
    scene.cuda.unmap(base + 3 * M);
    scene.cuda.map(base + 3 * M, M);
    assert_ne!(scene.view(base + 2 * M, 2 * M).lkey(), old.lkey());
    drop(old);
    scene.assert_all_goes();
}
