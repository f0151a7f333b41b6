//! Growth, many times over: what it leaves alive, and what a failure on its way leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bareverbs_core::segments::{EntryCap, Ordinal};
use bareverbs_shell::objects::MemoryRegion;
use bareverbs_shell::segments::{BindError, CarryOutError, Windows, bind_segment, grow};
use bareverbs_shell::soft::{Answer, BindingFault};

use bareverbs_core::verbs::WcStatus;

use super::binding_scene::{BASE, Bench, Done, M, MAX, Segment, calls, config, done, mlx5, range};
use crate::scene::ALL;

/// That a segment and its windows are of one state, and what is alive is theirs.
fn assert_whole(bench: &Bench, segment: &Segment, windows: &Windows) {
    assert_eq!(windows.all().len(), segment.window_count() as usize);
    for (window, index) in windows.all().iter().zip(0..) {
        assert_eq!(Some(window.range()), segment.window(index));
        assert!(window.regions().iter().map(|region| region.range()).eq(segment.parts(index)));
    }
    let live = bench.live();
    assert_eq!((live.keys, live.mrs), (windows.all().len(), segment.part_count() as usize));
}

#[test]
fn a_thousand_growths_leave_one_key_and_with_a_view_held_two() {
    let bench = Bench::new(mlx5("thousand"), 1001 * M);
    let (mut segment, mut windows) = bench.bind(M).expect("bound");
    let mut held = None;
    for pages in 2..=1001 {
        bench.grow(&mut segment, &mut windows, pages * M).expect("grown");
        assert_eq!(bench.live().keys, 1 + usize::from(held.is_some()), "{pages}");
        if pages == 500 {
            held = windows.all()[0].view(range(BASE, 64));
            assert!(held.is_some());
        }
        if pages == 900 {
            held = None;
            assert_whole(&bench, &segment, &windows);
        }
    }
    assert_whole(&bench, &segment, &windows);
    assert_eq!(segment.range(), range(BASE, 1001 * M));
    assert_eq!(calls(&bench.soft, "mlx5dv_create_qp"), 1);
    assert_eq!(bench.live().qps, 1);
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn bytes_written_before_and_during_growth_are_reached_by_old_views_and_new_ones() {
    let (bench, mut peer) = Bench::with_peer(mlx5("meanwhile"), 64 * M);
    let (mut segment, mut windows) = bench.bind(M).expect("bound");
    let mut views = Vec::new();
    for pages in 2..=40 {
        views.push(windows.all()[0].view(range(BASE + (pages - 2) * M + 100, 64)).expect("within"));
        bench.grow(&mut segment, &mut windows, pages * M).expect("grown");
    }
    for (view, seed) in views.iter().zip(1..) {
        assert!(peer.goes_there_and_back(view, seed), "an old key of {:#x}", view.key_addr());
        let newest = windows.all()[0].view(range(view.addr(), 64)).expect("within");
        let lease = newest.publish().expect("a key");
        assert_eq!(peer.read(lease.remote()), Some(crate::scene::pattern(64, seed)));
    }
    drop((views, windows, peer));
    bench.assert_all_goes();
}

#[test]
fn a_tail_region_that_is_refused_leaves_the_segment_as_it_was() {
    let bench = Bench::new(mlx5("refused_tail"), 2 * MAX);
    let (mut segment, mut windows) = bench.bind(M).expect("bound");
    let (before, key) = (segment.clone(), windows.all()[0].rkey());
    done(&bench.soft);
    // The tail is two regions, and the second is refused.
    bench.soft.fail("ibv_reg_dmabuf_mr", 2, Answer::null(12));
    let refused = bench.grow(&mut segment, &mut windows, MAX + 2 * M).expect_err("refused");
    let CarryOutError::Register { range: at, error } = refused else { panic!("{refused}") };
    assert_eq!(at.base() + at.len_bytes(), BASE + MAX + 2 * M);
    assert!(error.to_string().contains("ENOMEM"), "{error}");
    let record = bench.soft.record();
    let of = |symbol| record.iter().filter(|call| call.symbol == symbol && call.returned == 0).count();
    assert_eq!((of("ibv_reg_dmabuf_mr"), of("ibv_dereg_mr")), (1, 1), "the first is deregistered");
    assert_eq!((of("mlx5dv_create_mkey"), of("mlx5dv_wr_mr_list")), (0, 0), "no bind");
    assert_eq!((&segment, windows.all()[0].rkey()), (&before, key));
    assert_whole(&bench, &segment, &windows);
    // And the same growth goes when it is asked for again.
    bench.grow(&mut segment, &mut windows, MAX + 2 * M).expect("grown");
    assert_whole(&bench, &segment, &windows);
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn a_bind_that_is_refused_after_registration_leaves_nothing() {
    let bench = Bench::new(mlx5("refused_bind"), 2 * MAX);
    let refused = |what: &str| match bench.bind(MAX + M).map(|_| ()) {
        Err(CarryOutError::Bind(error)) => error,
        other => panic!("{what}: {other:?}"),
    };
    bench.soft.fail("ibv_wr_complete", 1, Answer::returned(95));
    let error = refused("the post");
    assert!(matches!(error, BindError::Refused { entries: 2, .. }), "{error}");
    assert!(error.to_string().contains("errno 95 (EOPNOTSUPP)"), "{error}");
    bench.soft.fail("mlx5dv_create_mkey", 1, Answer::null(1));
    assert!(refused("the key").to_string().contains("errno 1 (EPERM)"));
    bench.soft.binding_fault(1, BindingFault::Fails(WcStatus::LOC_QP_OP_ERR));
    assert!(matches!(refused("the completion"), BindError::Status { .. }));
    assert_eq!((bench.live().keys, bench.live().mrs), (0, 0));
    let (segment, windows) = bench.bind(MAX + M).expect("bound");
    assert_whole(&bench, &segment, &windows);
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn a_growth_whose_bind_fails_leaves_the_segment_as_it_was() {
    let bench = Bench::new(mlx5("failed_growth"), 64 * M);
    let (mut segment, mut windows) = bench.bind(M).expect("bound");
    let before = (segment.clone(), windows.all()[0].rkey());
    for fault in
        [BindingFault::Lost, BindingFault::Fails(WcStatus::MW_BIND_ERR), BindingFault::Late { polls: u64::MAX }]
    {
        bench.soft.binding_fault(1, fault);
        bench.grow(&mut segment, &mut windows, 2 * M).expect_err("refused");
        assert_eq!((segment.clone(), windows.all()[0].rkey()), before, "{fault:?}");
        assert_whole(&bench, &segment, &windows);
    }
    bench.grow(&mut segment, &mut windows, 2 * M).expect("grown");
    assert_whole(&bench, &segment, &windows);
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn of_several_windows_one_that_fails_takes_the_fresh_ones_with_it() {
    let bench = Bench::new(mlx5("some"), 150 << 30);
    bench.soft.binding_fault(2, BindingFault::Fails(WcStatus::LOC_PROT_ERR));
    assert!(matches!(bench.bind(150 << 30), Err(CarryOutError::Bind(BindError::Status { .. }))));
    assert_eq!((bench.live().keys, bench.live().mrs), (0, 0));
    bench.assert_all_goes();
}

#[test]
fn a_plan_of_another_state_is_stale_and_binds_nothing() {
    let bench = Bench::new(mlx5("stale"), 64 * M);
    let (segment, windows) = bench.bind(2 * M).expect("bound");
    let plan = segment.plan_growth(range(BASE, 4 * M)).expect("a plan").expect("it is longer");
    let stale = grow(&bench.binder, ALL, &plan, &Windows::default(), &|range| bench.register(range)).map(|_| ());
    assert_eq!(stale, Err(CarryOutError::Stale { windows: 0 }));
    assert_whole(&bench, &segment, &windows);
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn no_region_is_registered_only_to_be_dropped_for_the_cap() {
    let bench = Bench::new(mlx5("for_nothing"), 2 * MAX);
    let plan = Segment::plan_bind(range(BASE, MAX + M), bench.binder.limits().expect("limits")).expect("a plan");
    // Since then the cap has come down.
    let bench = bench.configured(config().max_entries(EntryCap::new(1).expect("not 0")));
    let refused = bind_segment(&bench.binder, ALL, &plan, &|range| bench.register(range)).map(|_| ());
    let entries = BindError::Entries { device: "for_nothing".into(), got: 2, cap: 1 };
    assert_eq!(refused, Err(CarryOutError::Bind(entries)));
    assert_eq!(calls(&bench.soft, "ibv_reg_dmabuf_mr"), 0);
    bench.assert_all_goes();
}

#[test]
fn c5_a_panic_in_the_midst_of_growth_frees_everything_and_the_next_growth_goes() {
    let bench = Bench::new(mlx5("panics"), 2 * MAX);
    let (mut segment, mut windows) = bench.bind(M).expect("bound");
    let view = windows.all()[0].view(range(BASE, 64)).expect("within");
    let plan = segment.plan_growth(range(BASE, MAX + 2 * M)).expect("a plan").expect("it is longer");
    assert_eq!(plan.to_register().count(), 2);
    let panics_at_the_second =
        |range: bareverbs_core::range::AddressRange| -> Result<MemoryRegion, bareverbs_shell::Error> {
            assert!(range.base() < BASE + MAX, "a scanner, an allocator, anything");
            bench.register(range)
        };
    let panicked =
        catch_unwind(AssertUnwindSafe(|| grow(&bench.binder, ALL, &plan, &windows, &panics_at_the_second).map(|_| ())));
    panicked.expect_err("it panics");
    assert_whole(&bench, &segment, &windows);
    bench.grow(&mut segment, &mut windows, MAX + 2 * M).expect("grown");
    drop(windows);
    assert_eq!(bench.live().keys, 1, "the view's");
    drop(view);
    bench.assert_all_goes();
}

#[test]
fn threads_that_bind_at_once_share_one_queue_pair() {
    let bench = Bench::new(mlx5("threads"), 64 * M);
    let regions: Vec<_> =
        (0..4).map(|at| Arc::new(bench.register(range(BASE + at * M, M)).expect("a region"))).collect();
    done(&bench.soft);
    std::thread::scope(|scope| {
        for region in &regions {
            scope.spawn(|| {
                for _ in 0..50 {
                    let bound = bench.binder.bind(ALL, vec![Arc::clone(region)], region.range());
                    assert_eq!(bound.expect("bound").range(), region.range());
                }
            });
        }
    });
    assert_eq!(calls(&bench.soft, "mlx5dv_create_qp"), 1);
    assert_eq!(done(&bench.soft), Done { registered: vec![], bound: vec![1; 200] });
    drop(regions);
    bench.assert_all_goes();
}

#[test]
fn an_ordinal_is_the_callers_and_no_key_is_shared_by_segments() {
    let bench = Bench::new(mlx5("own_keys"), 64 * M);
    let (first, windows) = bench.bind(M).expect("bound");
    let (second, others) = bench.bind(M).expect("bound");
    assert_eq!((first.ordinal(), second.ordinal()), (Ordinal(0), Ordinal(0)));
    assert_ne!(windows.all()[0].rkey(), others.all()[0].rkey());
    drop((windows, others));
    bench.assert_all_goes();
}
