//! Memory that a device may still write is not let go: case H3, as far as endpoints go.

use std::time::Duration;

use bareverbs_core::link::{Immediate, WorkId};
use bareverbs_core::teardown_order::{Quiesced, Step, check};
use bareverbs_core::verbs::{Wc, WcStatus};
use bareverbs_shell::endpoint::{Endpoint, Event, Frames, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::soft::{Answer, Call, MessageFault, Mode, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::drop_log;
use crate::ledger::{Ledger, calls_of, is_quiesce, position};
use crate::teardown_orders::modes;
use crate::world::{World, config, let_sends_complete};
use crate::wrapped::{script_poll, wrap};

/// Two ends, of which the second has two receives and one send outstanding; a message for it is on its way.
fn with_a_write_on_its_way(device: &str, mode: Mode) -> (World, Endpoint<Immediate, 2, 2>, Endpoint<Immediate, 2, 2>) {
    drop_log::keep();
    let devices = vec![SoftDevice::new(device)];
    let soft = SoftConfig::default().devices(devices).mode(mode).record(Record::Bounded(10_000));
    let world = World::of_config(soft, device);
    let (mut a, mut b) = world.pair(Immediate, &config().drain_limit(Duration::from_millis(100)));
    let soft = world.soft.as_ref().expect("a software fabric");
    soft.message_fault(1, MessageFault::Hold);
    a.send(8, |payload| payload[..8].copy_from_slice(b"too late")).expect("a healthy link");
    // It has left, and is held, when its sender's completion comes.
    let_sends_complete(&mut a);
    b.send(8, |_| ()).expect("a healthy link");
    assert_eq!(b.outstanding().receives, 2);
    soft.clear_record();
    (world, a, b)
}

#[test]
fn h3_a_late_write_never_reaches_memory_that_was_let_go() {
    for mode in modes() {
        for cancelled in [false, true] {
            let (world, a, mut b) = with_a_write_on_its_way("h3late", mode);
            let soft = world.soft.as_ref().expect("a software fabric");
            if cancelled {
                let flag = std::sync::atomic::AtomicBool::new(true);
                let cancel = crate::world::patiently().cancelled_by(&flag);
                while b.wait(&cancel, |event| assert!(matches!(event, Event::Sent { .. }))).is_ok() {}
            }
            drop(b);
            let record = soft.record();
            let stop = record.iter().position(is_quiesce).or(position(&record, "ibv_destroy_qp"));
            assert!(
                stop.expect("it was stopped") < position(&record, "ibv_dereg_mr").expect("deregistered"),
                "{mode:?}"
            );
            assert_eq!(soft.release_held(), 0, "{mode:?}: the write found a receive");
            drop(a);
            world.assert_clean();
        }
    }
}

#[test]
fn h3_where_the_error_state_is_refused_the_queue_pair_goes_before_the_region() {
    for refused in ["ibv_modify_qp", "ibv_post_send", "ibv_post_recv", "ibv_poll_cq"] {
        for mode in modes() {
            let (world, a, b) = with_a_write_on_its_way("h3refused", mode);
            let soft = world.soft.as_ref().expect("a software fabric");
            soft.fail_from(refused, 1, Answer::returned(-22));
            drop(b);
            soft.clear_plan();
            let reported = drop_log::take("h3refused");
            assert!(matches!(reported[..], [DropFailure::Quiesce { .. }]), "{refused}, {mode:?}: {reported:?}");
            let record = soft.record();
            assert!(position(&record, "ibv_destroy_qp") < position(&record, "ibv_dereg_mr"), "{refused}, {mode:?}");
            assert_eq!(soft.release_held(), 0);
            drop(a);
            world.assert_clean();
        }
    }
}

#[test]
fn h3_where_the_queue_pair_cannot_be_destroyed_either_region_and_memory_are_kept_and_reported() {
    let (world, a, b) = with_a_write_on_its_way("h3kept", Mode::Prompt);
    let soft = world.soft.as_ref().expect("a software fabric");
    soft.fail_from("ibv_modify_qp", 1, Answer::returned(22));
    soft.fail_from("ibv_destroy_qp", 1, Answer::returned(16));
    drop(b);
    soft.clear_plan();
    let reported = drop_log::take("h3kept");
    let kept =
        |failure: &DropFailure| matches!(failure, DropFailure::Leaked { len_bytes, .. } if *len_bytes >= 4 * 1024);
    assert!(reported.iter().any(kept), "{reported:?}");
    assert!(reported.iter().any(|failure| matches!(failure, DropFailure::Quiesce { .. })), "{reported:?}");
    assert!(
        reported.iter().any(|failure| matches!(failure, DropFailure::Destroy(call) if call.call == "ibv_destroy_qp"))
    );
    assert_eq!(reported.len(), 3, "{reported:?}");
    // The write arrives, in memory that is still there: a checker of memory would see it otherwise.
    assert_eq!(soft.release_held(), 1);
    let record = soft.record();
    assert_eq!(calls_of(&record, "ibv_dereg_mr") + calls_of(&record, "ibv_dealloc_pd"), 0);
    assert_eq!((calls_of(&record, "ibv_destroy_qp"), calls_of(&record, "ibv_destroy_cq")), (1, 0));
    drop(a);
    let live = soft.live();
    assert_eq!((live.contexts, live.pds, live.mrs, live.cqs, live.qps), (1, 1, 1, 1, 1));
}

#[test]
fn h3_a_marker_of_another_queue_pair_is_not_believed() {
    for others in [1, 0] {
        let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
        let config = config().drain_limit(Duration::from_millis(20));
        let end = || Endpoint::<_, 2, 2>::new(&context, Immediate, config.clone(), Frames::Owned).expect("an end");
        let (mut a, mut b) = (end(), end());
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        // The device is silent, so that what is scripted is all that comes.
        soft.fail_from("ibv_poll_cq", 1, Answer::nothing());
        let qp_num = b.qp_num() + others;
        let marker = |id: WorkId| Wc { wr_id: id.raw(), status: WcStatus::WR_FLUSH_ERR, qp_num, ..Wc::default() };
        script_poll(vec![marker(WorkId::SEND_MARKER), marker(WorkId::RECV_MARKER)]);
        let told = b.close().expect("nothing refuses");
        let quiesced = if others == 0 { Quiesced::Yes } else { Quiesced::No };
        assert_eq!(told.quiesced, quiesced, "{:?}", told.not_drained);
    }
}

#[test]
fn h3_where_an_abandoned_queue_pair_cannot_be_destroyed_region_and_memory_are_kept_and_reported() {
    let (world, a, mut b) = with_a_write_on_its_way("h3abandoned", Mode::Prompt);
    let soft = world.soft.as_ref().expect("a software fabric");
    soft.fail("ibv_destroy_qp", 1, Answer::returned(16));
    b.abandon();
    let reported = drop_log::take("h3abandoned");
    assert!(reported.iter().any(|failure| matches!(failure, DropFailure::Leaked { .. })), "{reported:?}");
    drop(b);
    assert_eq!(soft.release_held(), 1, "the write arrives, in memory that is still there");
    assert_eq!(calls_of(&soft.record(), "ibv_dereg_mr"), 0);
    drop(a);
    assert_eq!((soft.live().mrs, soft.live().qps), (1, 1));
}

#[test]
fn a_forgotten_endpoint_leaks_and_frees_nothing_early() {
    let (world, a, b) = with_a_write_on_its_way("forgotten", Mode::Prompt);
    let soft = world.soft.as_ref().expect("a software fabric");
    std::mem::forget(b);
    assert_eq!(soft.record(), Vec::<Call>::new());
    assert_eq!(soft.release_held(), 1, "queue pair, region and memory are as they were");
    drop(a);
    assert_eq!(soft.misuse(), Vec::<String>::new());
}

#[test]
fn what_a_close_tells_is_what_the_fabric_recorded() {
    for mode in modes() {
        let (world, a, b) = with_a_write_on_its_way("told", mode);
        let soft = world.soft.as_ref().expect("a software fabric");
        let told = b.close().expect("nothing refuses");
        assert_eq!((told.quiesced, &told.not_drained), (Quiesced::Yes, &None));
        let mut recorded = Ledger::teardown_steps(&soft.record());
        recorded.dedup();
        assert_eq!(told.done().collect::<Vec<_>>(), recorded, "{mode:?}");
        assert_eq!(check(told.quiesced, told.done()), Ok(()));
        assert_eq!(recorded.first(), Some(&Step::Quiesce));
        drop(a);
    }
}
