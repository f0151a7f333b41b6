//! Bindings that fail in every way that a completion can: no key is handed out, nothing is freed under a binding that may be
//! in flight, and the next binding succeeds on a queue pair made anew.

use std::sync::Arc;

use bareverbs_core::verbs::inline_calls::PollError;
use bareverbs_core::verbs::{Wc, WcOpcode, WcStatus};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::segments::BindError;
use bareverbs_shell::soft::{Answer, BindingFault, Detail};

use super::binding_scene::{BASE, Bench, M, calls, config, mlx5, modes, range};
use crate::drop_log;
use crate::ledger::position;
use crate::wrapped;

/// That a binding fails as it should, that nothing of it is left, and that the next one goes.
fn fails_and_recovers(bench: &Bench, is_expected: impl Fn(&BindError) -> bool, what: &str) {
    let before = bench.bind_one(range(BASE + 8 * M, M)).expect("before it all is well");
    let pairs = calls(&bench.soft, "mlx5dv_create_qp");
    let error = bench.bind_one(range(BASE, M)).map(|_| ()).expect_err("it must not be handed out");
    assert!(is_expected(&error), "{what}: {error:?}");
    assert!(!error.is_unsupported(), "{what}: it may be tried again");
    let live = bench.live();
    assert_eq!((live.keys, live.mrs, live.qps, live.cqs), (1, 1, 0, 0), "{what}: the queue pair is thrown away");
    let after = bench.bind_one(range(BASE, M)).expect("one failure is not for good");
    assert_eq!(calls(&bench.soft, "mlx5dv_create_qp"), pairs + 1, "{what}: made anew, once");
    drop((before, after));
    assert_eq!(bench.soft.misuse(), Vec::<String>::new(), "{what}");
}

#[test]
fn a_negative_poll_is_no_success() {
    for returned in [-1, -2, i32::MIN] {
        let bench = Bench::new(mlx5("negative"), 16 * M);
        // The first binding polls once.
        bench.soft.fail("ibv_poll_cq", 2, Answer::returned(returned));
        let poll = BindError::Poll { device: "negative".into(), error: PollError::Negative { returned } };
        fails_and_recovers(&bench, |error| *error == poll, "a negative poll");
        bench.assert_all_goes();
    }
}

#[test]
fn a_completion_that_is_lost_or_never_comes_ends_at_the_deadline() {
    for mode in modes() {
        for fault in [BindingFault::Lost, BindingFault::Late { polls: u64::MAX }] {
            let bench = Bench::new(mlx5("late").mode(mode), 16 * M);
            bench.soft.binding_fault(2, fault);
            let late = |error: &BindError| matches!(error, BindError::Late { device, waited } if **device == *"late" && *waited >= config().deadline);
            fails_and_recovers(&bench, late, &format!("{mode:?}, {fault:?}"));
            bench.assert_all_goes();
        }
    }
}

#[test]
fn a_completion_that_comes_late_but_in_time_is_waited_for() {
    let bench = Bench::new(mlx5("in_time"), 16 * M);
    bench.soft.binding_fault(1, BindingFault::Late { polls: 20 });
    let window = bench.bind_one(range(BASE, M)).expect("bound");
    drop(window);
    bench.assert_all_goes();
}

#[test]
fn a_failed_status_is_told_with_its_numbers() {
    for mode in modes() {
        for status in [WcStatus::LOC_QP_OP_ERR, WcStatus::MW_BIND_ERR, WcStatus::WR_FLUSH_ERR] {
            let bench = Bench::new(mlx5("status").mode(mode), 16 * M);
            bench.soft.binding_fault(2, BindingFault::Fails(status));
            let failed = |error: &BindError| matches!(error, BindError::Status { error, .. } if error.status == status && error.wr_id == 1);
            fails_and_recovers(&bench, failed, &format!("{mode:?}, {status:?}"));
            bench.assert_all_goes();
        }
    }
}

#[test]
fn a_completion_of_something_else_is_no_success() {
    let bench = Bench::new(mlx5("else"), 16 * M);
    let wrapped = wrapped::wrap(bench.soft.symbols(), None);
    let bench = bench.moved_to(&DeviceContext::open(&wrapped, Some("else")).expect("a device"));
    for turn in 0..3 {
        let number = own_number(&bench);
        let right = Wc { wr_id: 2 * turn, opcode: WcOpcode::DRIVER1, qp_num: number, ..Wc::default() };
        let wrong = [
            Wc { wr_id: right.wr_id + 1, ..right },
            Wc { opcode: WcOpcode::RDMA_WRITE, ..right },
            Wc { qp_num: number + 1, ..right },
        ];
        let scripted = wrong[turn as usize];
        wrapped::script_poll(vec![scripted]);
        let error = bench.bind_one(range(BASE, M)).map(|_| ()).expect_err("not its own completion");
        let BindError::Unexpected { expected_wr_id, wr_id, opcode, .. } = error else { panic!("{error:?}") };
        assert_eq!((expected_wr_id, wr_id, opcode), (right.wr_id, scripted.wr_id, scripted.opcode));
        assert_eq!((bench.live().keys, bench.live().mrs, bench.live().qps), (0, 0, 0));
        drop(bench.bind_one(range(BASE, M)).expect("bound, on another queue pair"));
    }
    // The right one, scripted, is believed: the fields above are what differs.
    let number = own_number(&bench);
    wrapped::script_poll(vec![Wc { wr_id: 6, opcode: WcOpcode::DRIVER1, qp_num: number, ..Wc::default() }]);
    drop(bench.bind_one(range(BASE, M)).expect("bound"));
    bench.assert_all_goes();
}

/// The number of the queue pair that binds, made if there is none.
fn own_number(bench: &Bench) -> u32 {
    bench.binder.limits().expect("a queue pair");
    let mut numbers = bench.soft.record().into_iter().filter_map(|call| match call.detail {
        Detail::Modify { attr, .. } if attr.dest_qp_num != 0 => Some(attr.dest_qp_num),
        _ => None,
    });
    numbers.next_back().expect("it was connected to itself")
}

#[test]
fn a_post_that_is_refused_is_told_with_its_errno_and_the_next_one_goes() {
    let bench = Bench::new(mlx5("posts"), 16 * M);
    for (answer, errno) in
        [(Answer::returned(12), Some(12)), (Answer::minus_one(95), Some(95)), (Answer::minus_one(0), None)]
    {
        bench.soft.fail("ibv_wr_complete", 2, answer);
        let refused = |error: &BindError| matches!(error, BindError::Refused { errno: got, entries: 1, .. } if got.map(|got| got.0) == errno);
        fails_and_recovers(&bench, refused, &format!("{answer:?}"));
    }
    for symbol in ["ibv_wr_start", "mlx5dv_wr_mr_list"] {
        bench.soft.fail(symbol, 2, Answer::returned(22));
        fails_and_recovers(&bench, |error| matches!(error, BindError::Refused { .. }), symbol);
    }
    bench.assert_all_goes();
}

#[test]
fn a_key_that_may_be_in_flight_goes_after_its_queue_pair_and_before_its_regions() {
    let bench = Bench::new(mlx5("order"), 16 * M);
    bench.soft.binding_fault(1, BindingFault::Late { polls: u64::MAX });
    bench.bind_one(range(BASE, M)).map(|_| ()).expect_err("late");
    let record = bench.soft.record();
    let at = |symbol| position(&record, symbol).expect(symbol);
    assert!(at("ibv_destroy_qp") < at("mlx5dv_destroy_mkey"));
    assert!(at("mlx5dv_destroy_mkey") < at("ibv_dereg_mr"));
    assert!(at("ibv_destroy_qp") < at("ibv_destroy_cq"));
    bench.assert_all_goes();
}

#[test]
fn where_the_queue_pair_cannot_be_destroyed_key_and_regions_stay_for_ever() {
    drop_log::keep();
    let bench = Bench::new(mlx5("stays"), 16 * M);
    bench.soft.binding_fault(1, BindingFault::Late { polls: u64::MAX });
    bench.soft.fail("ibv_destroy_qp", 1, Answer::returned(16));
    bench.bind_one(range(BASE, M)).map(|_| ()).expect_err("late");
    let failures = drop_log::take("stays");
    assert!(matches!(&failures[..], [DropFailure::Destroy(error)] if error.call == "ibv_destroy_qp"), "{failures:?}");
    let record = bench.soft.record();
    assert_eq!((position(&record, "mlx5dv_destroy_mkey"), position(&record, "ibv_dereg_mr")), (None, None));
    // Others are bound all the same.
    drop(bench.bind_one(range(BASE + M, M)).expect("on another queue pair"));
    assert_eq!((bench.live().qps, bench.live().cqs), (2, 2));
    bench.assert_stays(1, 1);
}

#[test]
fn a_key_that_cannot_be_destroyed_keeps_its_regions_and_is_told_once() {
    drop_log::keep();
    let bench = Bench::new(mlx5("keeps"), 16 * M);
    let window = bench.bind_one(range(BASE, M)).expect("bound");
    let shared = Arc::clone(&window.regions()[0]);
    bench.soft.fail("mlx5dv_destroy_mkey", 1, Answer::returned(16));
    drop(window);
    let failures = drop_log::take("keeps");
    assert!(
        matches!(&failures[..], [DropFailure::Destroy(error)] if error.call == "mlx5dv_destroy_mkey"),
        "{failures:?}"
    );
    drop(shared);
    let record = bench.soft.record();
    assert_eq!(position(&record, "ibv_dereg_mr"), None, "never under a key that still exists");
    bench.assert_stays(1, 1);
}

#[test]
fn keys_regions_and_domain_go_in_order() {
    let bench = Bench::new(mlx5("in_order"), 16 * M);
    let window = bench.bind_one(range(BASE, M)).expect("bound");
    let view = window.view(range(BASE, 8)).expect("within");
    let Bench { soft, domain, binder, world, .. } = bench;
    drop((window, binder, domain));
    assert_eq!((soft.live().keys, soft.live().mrs, soft.live().pds), (1, 1, 1), "the view holds them");
    soft.clear_record();
    drop(view);
    let called: Vec<_> = soft.record().iter().map(|call| call.symbol).collect();
    assert_eq!(called, ["mlx5dv_destroy_mkey", "ibv_dereg_mr", "ibv_dealloc_pd", "ibv_close_device"]);
    world.assert_clean();
}
