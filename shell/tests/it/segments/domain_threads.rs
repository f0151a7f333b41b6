//! A domain and many threads: hits beside a slow registration, waiters, scanners that take locks, that come again, that fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::Covers;
use bareverbs_shell::segments::{
    IdentityPolicy, ScanError, Scanner, SegmentDomain, SegmentErrorKind, SegmentScan, register_scanner,
};

use bareverbs_shell::soft::Mode;

use super::domain_scene::{M, Making, Scene, range, seen};
use crate::own_process;
use crate::world::PATIENCE;

/// Has the next scan say that it began, and wait until it is let go.
fn held(scene: &Scene) -> (Receiver<()>, Sender<()>) {
    let ((began, begins), (go, goes)) = (channel(), channel());
    scene.scanner.within(move || {
        began.send(()).expect("the test listens");
        goes.recv().expect("the test lets it go");
    });
    (begins, go)
}

#[test]
fn hits_of_8_threads_go_on_while_a_slow_registration_is_in_progress() {
    for identity in [IdentityPolicy::Verify, IdentityPolicy::Trust] {
        let mut making = Making::default();
        making.config = making.config.identity(identity);
        let scene = making.scene();
        let (bound, other) = (scene.segment(M), scene.segment(M));
        scene.scanner.shows(&[seen(bound, M)]);
        let key = scene.view(bound, M).lkey();
        scene.scanner.shows(&[seen(bound, M), seen(other, M)]);
        let (begins, go) = held(&scene);
        std::thread::scope(|threads| {
            let slow = threads.spawn(|| scene.view(other, M));
            begins.recv().expect("it scans");
            let hits: Vec<_> = (0..8_u64)
                .map(|thread| {
                    let scene = &scene;
                    threads.spawn(move || {
                        (0..1000_u64).all(|turn| {
                            let addr = bound + (thread * 1000 + turn) % 512 * 4096;
                            let view = scene.view(addr, 4096);
                            (view.lkey(), view.key_addr()) == (key, addr - bound)
                        })
                    })
                })
                .collect();
            // All of them are done before the slow one goes on.
            assert!(hits.into_iter().all(|hit| hit.join().expect("no panic")));
            assert!(!slow.is_finished());
            go.send(()).expect("it waits");
            drop(slow.join().expect("no panic"));
        });
        assert_eq!(scene.scanner.scans(), 2);
        scene.assert_all_goes();
    }
}

#[test]
fn those_who_miss_while_another_scans_wait_and_are_served_by_as_few_scans() {
    let mut making = Making::default();
    making.config = making.config.patience(Duration::from_secs(600));
    let scene = making.scene();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let (begins, go) = held(&scene);
    let keys = std::thread::scope(|threads| {
        let scene = &scene;
        let first = threads.spawn(move || scene.view(base, 4096));
        begins.recv().expect("it scans");
        let others: Vec<_> = (1..8).map(|at| threads.spawn(move || scene.view(base + at * 4096, 4096))).collect();
        go.send(()).expect("it waits");
        let views = std::iter::once(first).chain(others).map(|thread| thread.join().expect("no panic"));
        views.map(|view| view.lkey()).collect::<Vec<_>>()
    });
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!((scene.scanner.scans(), scene.bound()), (1, vec![1]));
    scene.assert_all_goes();
}

#[test]
fn a_scanner_that_needs_what_a_waiting_caller_holds_does_not_deadlock() {
    let mut making = Making::default();
    making.config = making.config.patience(Duration::from_millis(20));
    let scene = making.scene();
    let (a, b) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(a, M), seen(b, M)]);
    let interpreter = Arc::new(Mutex::new(()));
    let (began, begins) = channel();
    let needed = Arc::clone(&interpreter);
    scene.scanner.within(move || {
        began.send(()).expect("the test listens");
        drop(needed.lock());
    });
    std::thread::scope(|threads| {
        let held = interpreter.lock().expect("whole");
        let scanning = threads.spawn(|| scene.view(a, M));
        begins.recv().expect("it scans");
        // The scan cannot end before this returns.
        let view = scene.view(b, 4096);
        assert_eq!(scene.domain.statistics().fallbacks, 1, "a region of its own");
        drop(held);
        drop((view, scanning.join().expect("no panic")));
    });
    // And later it is served by its key.
    assert_eq!((scene.view(b, 4096).key_addr(), scene.live()), (0, (2, 2)));
    // What is nowhere cannot have a region of its own: a typed refusal, not a wait for ever.
    let (begins, go) = held(&scene);
    std::thread::scope(|threads| {
        let scanning = threads.spawn(|| scene.domain.register(b + M, M).map(drop));
        begins.recv().expect("it scans");
        assert_eq!(scene.refusal(a + M, M), SegmentErrorKind::StillScanning);
        assert!(matches!(scene.domain.prune().map_err(|error| error.kind), Err(SegmentErrorKind::StillScanning)));
        go.send(()).expect("it waits");
        assert!(scanning.join().expect("no panic").is_err());
    });
    scene.assert_all_goes();
}

#[test]
fn a_scanner_whose_caller_holds_its_lock_recursively_is_called_with_no_lock_of_the_domains() {
    // The scanner asks the domain for all that takes a lock there.
    struct Nosy {
        domain: Mutex<Option<Arc<SegmentDomain>>>,
        inner: Arc<super::domain_scene::Script>,
        bound: AddressRange,
        came: AtomicUsize,
    }
    impl Scanner for Nosy {
        fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
            let domain = self.domain.lock().expect("whole").clone();
            if let Some(domain) = domain {
                self.came.fetch_add(1, Ordering::Relaxed);
                let _ = domain.statistics();
                domain.invalidate(range(1 << 20, M));
                drop(domain.register(self.bound.base(), 4096).expect("bound"));
                let refused = domain.register(hint.base(), hint.len_bytes()).expect_err("not bound, from within");
                assert_eq!(refused.kind, SegmentErrorKind::Reentered);
                assert!(domain.prune().is_err());
            }
            self.inner.scan(hint)
        }
    }
    let scene = Scene::new();
    let (a, b) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(a, M), seen(b, M)]);
    scene.scanner.shows(&[seen(a, M)]);
    drop(scene.view(a, M));
    scene.scanner.shows(&[seen(a, M), seen(b, M)]);
    let nosy = Nosy {
        domain: Mutex::new(Some(Arc::clone(&scene.domain))),
        inner: Arc::clone(&scene.scanner),
        bound: range(a, M),
        came: AtomicUsize::new(0),
    };
    let nosy = Arc::new(nosy);
    scene.domain.set_scanner(Some(Arc::clone(&nosy) as _));
    drop(scene.view(b, M));
    assert_eq!(nosy.came.load(Ordering::Relaxed), 1);
    *nosy.domain.lock().expect("whole") = None;
    scene.assert_all_goes();
}

#[test]
fn after_a_scanner_that_panicked_one_of_those_who_waited_scans_and_all_are_served() {
    let mut making = Making::default();
    making.config = making.config.patience(Duration::from_secs(600));
    let scene = making.scene();
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let ((began, begins), (go, goes)) = (channel(), channel::<()>());
    scene.scanner.within(move || {
        began.send(()).expect("the test listens");
        goes.recv().expect("the test lets it go");
        panic!("as the test wants it");
    });
    std::thread::scope(|threads| {
        let scene = &scene;
        let first = threads.spawn(move || drop(scene.domain.register(base, 4096)));
        begins.recv().expect("it scans");
        let others: Vec<_> = (1..5).map(|at| threads.spawn(move || scene.view(base + at * 4096, 4096))).collect();
        go.send(()).expect("it waits");
        assert!(first.join().is_err());
        assert!(others.into_iter().all(|thread| thread.join().is_ok()));
    });
    assert_eq!((scene.scanner.scans(), scene.live()), (2, (1, 1)));
    scene.assert_all_goes();
}

/// A scene whose bindings take effect when they are let.
fn stepped(identity: IdentityPolicy) -> Scene {
    let mut making = Making::default();
    making.fabric = making.fabric.mode(Mode::Stepped);
    making.config =
        making.config.identity(identity).deadline(Duration::from_secs(60)).patience(Duration::from_secs(600));
    making.scene()
}

/// Waits until so many bindings were posted.
fn await_bindings(scene: &Scene, count: usize) {
    let began = Instant::now();
    while scene.bound().len() < count {
        assert!(began.elapsed() < PATIENCE, "nothing is bound");
        std::thread::yield_now();
    }
}

#[test]
fn memory_that_is_swapped_while_its_key_is_being_bound_is_not_served_under_the_identity_of_the_former() {
    for grows in [false, true] {
        swap_while_bound(IdentityPolicy::Verify, grows);
        // Requests do not ask then, and bindings do.
        swap_while_bound(IdentityPolicy::Trust, grows);
    }
}

fn swap_while_bound(identity: IdentityPolicy, grows: bool) {
    let scene = stepped(identity);
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    let before = if grows {
        scene.soft.run_freely();
        let view = scene.view(base, M);
        scene.soft.step_again();
        scene.cuda.map(base + M, M);
        scene.scanner.shows(&[seen(base, 2 * M)]);
        Some(view)
    } else {
        None
    };
    let size = if grows { 2 * M } else { M };
    let posted = scene.bound().len();
    let view = std::thread::scope(|threads| {
        let bound = threads.spawn(|| scene.view(base, size));
        await_bindings(&scene, posted + 1);
        scene.cuda.unmap(base);
        scene.cuda.map(base, M);
        scene.soft.run_freely();
        bound.join().expect("no panic")
    });
    let counts = (scene.bound().len(), scene.scanner.scans());
    assert_eq!(counts, (posted + 2, posted + 2), "bound again, by another scan: {identity:?}, grows: {grows}");
    let mut peer = scene.peer();
    peer.prove(&scene.cuda, &view);
    // The old part, too, by a request for nothing else.
    peer.prove(&scene.cuda, &scene.view(base, M));
    peer.leave();
    drop((before, view));
    assert_eq!(scene.live().1, 1);
    scene.assert_all_goes();
}

#[test]
fn a_tail_that_is_other_memory_by_the_end_of_its_growth_is_bound_again_whichever_of_its_mappings_it_is() {
    for (identity, swapped) in
        [IdentityPolicy::Verify, IdentityPolicy::Trust].map(|policy| [(policy, 1), (policy, 2)]).concat()
    {
        let scene = stepped(identity);
        let base = scene.segment(M);
        scene.scanner.shows(&[seen(base, M)]);
        scene.soft.run_freely();
        let before = scene.view(base, M);
        scene.soft.step_again();
        [1, 2].iter().for_each(|at| scene.cuda.map(base + at * M, M));
        scene.scanner.shows(&[seen(base, 3 * M)]);
        let view = std::thread::scope(|threads| {
            let grows = threads.spawn(|| scene.view(base, 3 * M));
            await_bindings(&scene, 2);
            scene.cuda.unmap(base + swapped * M);
            scene.cuda.map(base + swapped * M, M);
            scene.soft.run_freely();
            grows.join().expect("no panic")
        });
        let counts = (scene.bound().len(), scene.scanner.scans());
        assert_eq!(counts, (3, 3), "bound again, by another scan: {identity:?}, mapping {swapped}");
        let mut peer = scene.peer();
        peer.prove(&scene.cuda, &view);
        peer.leave();
        drop((before, view));
        scene.assert_all_goes();
    }
}

#[test]
fn an_old_part_that_is_other_memory_by_the_end_of_its_growth_is_dropped_though_no_other_scan_succeeds() {
    let scene = stepped(IdentityPolicy::Trust);
    let base = scene.segment(M);
    scene.scanner.shows(&[seen(base, M)]);
    scene.soft.run_freely();
    let before = scene.view(base, M);
    scene.soft.step_again();
    scene.cuda.map(base + M, M);
    scene.scanner.shows(&[seen(base, 2 * M)]);
    let failed = ScanError::new("no more");
    std::thread::scope(|threads| {
        let grows = threads.spawn(|| scene.refusal(base + M, M));
        await_bindings(&scene, 2);
        scene.cuda.unmap(base);
        scene.cuda.map(base, M);
        scene.scanner.answers(Err(failed.clone()));
        scene.soft.run_freely();
        assert_eq!(grows.join().expect("no panic"), SegmentErrorKind::Scan(failed.clone()));
    });
    // No request asks, so this would be served by the old key.
    assert_eq!((scene.refusal(base, M), scene.live()), (SegmentErrorKind::Scan(failed), (1, 1)));
    drop(before);
    scene.assert_all_goes();
}

#[test]
fn hits_and_misses_beside_a_binding_that_takes_its_time() {
    let scene = stepped(IdentityPolicy::Verify);
    let (bound, other) = (scene.segment(M), scene.segment(M));
    scene.scanner.shows(&[seen(bound, M)]);
    scene.soft.run_freely();
    let key = scene.view(bound, M).lkey();
    scene.soft.step_again();
    scene.scanner.shows(&[seen(bound, M), seen(other, M)]);
    std::thread::scope(|threads| {
        let slow = threads.spawn(|| scene.view(other, M));
        await_bindings(&scene, 2);
        (0..100).for_each(|at| assert_eq!(scene.view(bound + at * 4096, 4096).lkey(), key));
        // A miss waits for the binding, as long as its patience is.
        let waits = threads.spawn(|| scene.view(other + 4096, 4096));
        assert!(!slow.is_finished());
        // What is invalidated meanwhile is not served by what was bound before.
        scene.domain.invalidate(range(other, 1));
        scene.soft.run_freely();
        let views = [slow.join().expect("no panic"), waits.join().expect("no panic")];
        assert_eq!(views[0].lkey(), views[1].lkey());
    });
    assert_eq!(scene.bound(), [1, 1, 1], "the invalidated one is bound anew");
    scene.assert_all_goes();
}

#[test]
fn a_round_fits_a_small_stack() {
    let scene = Scene::walking();
    let base = scene.segment(M);
    let small = std::thread::Builder::new().stack_size(1 << 20);
    let scene = small
        .spawn(move || {
            // Unoptimised, too: binding, growth, a look-up, pruning.
            drop(scene.view(base, M));
            scene.cuda.map(base + M, M);
            drop(scene.view(base + M, M));
            scene.domain.prune().expect("a driver that answers");
            scene
        })
        .expect("a thread")
        .join()
        .expect("no overflow");
    assert_eq!(scene.live(), (2, 1));
    scene.assert_all_goes();
}

#[test]
fn allocators_and_readers_at_once_leave_nothing_and_read_nothing_wrong() {
    let scene = Scene::walking();
    let bases: Vec<_> = (0..4).map(|_| scene.segment(M)).collect();
    let (over, together) = (AtomicBool::new(false), Barrier::new(7));
    std::thread::scope(|threads| {
        let (scene, bases, over, together) = (&scene, &bases, &over, &together);
        threads.spawn(move || {
            together.wait();
            for turn in 0..40_u64 {
                let base = bases[turn as usize % 4];
                scene.cuda.map(base + M, M);
                drop(scene.domain.register(base + M, 4096));
                scene.cuda.unmap(base + M);
                if turn % 5 == 0 {
                    scene.cuda.unmap(base);
                    scene.domain.invalidate(range(base, M));
                    scene.cuda.map(base, M);
                }
                if turn % 7 == 0 {
                    let _ = scene.domain.prune();
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        for _ in 0..6 {
            threads.spawn(move || {
                together.wait();
                while !over.load(Ordering::Relaxed) {
                    for base in bases {
                        // By its key, or by a region over its mapping where a scan found it unmapped: the same offset.
                        if let Ok(view) = scene.domain.register(base + 4097, 100) {
                            assert_eq!((view.addr(), view.key_addr() % M), (base + 4097, 4097));
                        }
                    }
                    std::thread::yield_now();
                }
            });
        }
    });
    let _ = scene.domain.prune().expect("a driver that answers");
    let statistics = scene.domain.statistics();
    assert_eq!(scene.live(), (statistics.regions as usize, statistics.keys as usize));
    scene.assert_all_goes();
}

#[test]
fn the_processs_scanner_serves_domains_without_one_of_their_own_and_can_be_replaced() {
    let test =
        "segments::domain_threads::the_processs_scanner_serves_domains_without_one_of_their_own_and_can_be_replaced";
    own_process::run(test, &[], replace_the_processs_scanner);
}

fn replace_the_processs_scanner() {
    struct Fixed(AddressRange);
    impl Scanner for Fixed {
        fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
            let segments = vec![seen(self.0.base(), self.0.len_bytes())];
            let covers = Covers::Range(range(hint.base().min(self.0.base()), 1 << 45));
            Ok(SegmentScan { segments, covers })
        }
    }
    let scene = Scene::new();
    let (a, b) = (scene.segment(M), scene.segment(M));
    let own = scene.domain.set_scanner(None).expect("the scene's");
    let first: Arc<dyn Scanner> = Arc::new(Fixed(range(a, M)));
    assert!(register_scanner(Some(Arc::clone(&first))).is_none());
    drop(scene.view(a, M));
    assert_eq!(scene.domain.statistics().keys, 1);
    let before = register_scanner(Some(Arc::new(Fixed(range(b, M))))).expect("the first");
    assert!(Arc::ptr_eq(&before, &first));
    drop(scene.view(b, M));
    // A domain's own comes first.
    assert!(scene.domain.set_scanner(Some(own)).is_none());
    assert!(register_scanner(None).is_some());
    assert!(scene.domain.set_scanner(None).is_some());
    // With none there are no segments: what was bound goes, and memory gets regions of its own.
    let c = scene.segment(M);
    drop(scene.view(c, 4096));
    let statistics = scene.domain.statistics();
    assert_eq!((statistics.segments, statistics.fallbacks), (0, 1));
    scene.assert_all_goes();
}
