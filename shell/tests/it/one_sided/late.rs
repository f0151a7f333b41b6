//! Case H3 as far as one-sided operations go: what a device may still read or write stays registered and mapped, however late
//! it is.

use std::time::Duration;

use bareverbs_core::view::RemoteView;
use bareverbs_shell::memory::WeakLocalMemory;
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::one_sided::{Event, OperationError};
use bareverbs_shell::soft::{Answer, BadWr, Mode, Record, SoftConfig, SoftDevice};

use crate::drop_log;
use crate::ledger::{calls_of, is_quiesce, position};
use crate::scene::{ALL, End, memory, pair, pattern, published, transfers_config, view};
use crate::teardown_orders::modes;
use crate::world::{World, patiently};

fn world(device: &str, mode: Mode) -> World {
    drop_log::keep();
    let devices = vec![SoftDevice::new(device)];
    World::of_config(SoftConfig::default().devices(devices).mode(mode).record(Record::Bounded(10_000)), device)
}

/// Two ends, of which the first has a write and a read outstanding that nobody polls for, and no handle of their local memory.
fn with_operations_outstanding(world: &World) -> (End, End, WeakLocalMemory) {
    let (mut a, b) = pair(world, &transfers_config().drain_limit(Duration::from_millis(100)));
    let (here, there) = (memory(&pattern(4096, 1)), memory(&[0; 4096]));
    let weak = here.downgrade().expect("owned bytes have a weak form");
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    a.write(&local.part(0, 2048).expect("within"), &lease.remote().part(0, 2048).expect("within")).expect("posted");
    a.read(&local.part(2048, 2048).expect("within"), &lease.remote().part(0, 2048).expect("within")).expect("posted");
    // The other end's memory, too, is not what this is about.
    std::mem::forget((lease, there));
    world.soft.as_ref().expect("a software fabric").clear_record();
    (a, b, weak)
}

#[test]
fn h3_a_region_is_deregistered_only_when_nothing_is_outstanding_on_it() {
    for mode in modes() {
        let world = world("late", mode);
        let soft = world.soft.as_ref().expect("a software fabric");
        let (mut a, b, weak) = with_operations_outstanding(&world);
        assert!(weak.upgrade().is_ok());
        let mut left = 2;
        while left > 0 {
            assert_eq!(calls_of(&soft.record(), "ibv_dereg_mr"), 0, "{mode:?}: {left} outstanding");
            a.poll(|event| {
                assert!(matches!(event, Event::Ended(ended) if ended.result.is_ok()));
                left -= 1;
            })
            .expect("nothing fails");
        }
        assert_eq!(calls_of(&soft.record(), "ibv_dereg_mr"), 1, "{mode:?}");
        assert!(weak.upgrade().is_err());
        drop((a, b));
        assert_eq!(soft.misuse(), Vec::<String>::new());
    }
}

#[test]
fn h3_an_end_that_goes_is_quiesced_before_its_operations_memory_goes() {
    for mode in modes() {
        let world = world("lateend", mode);
        let soft = world.soft.as_ref().expect("a software fabric");
        let (a, b, weak) = with_operations_outstanding(&world);
        drop(a);
        let record = soft.record();
        let stop = record.iter().position(is_quiesce).expect("it was stopped");
        let (region, pair) = (position(&record, "ibv_dereg_mr"), position(&record, "ibv_destroy_qp"));
        assert!(Some(stop) < region && region < pair, "{mode:?}: {record:?}");
        assert!(weak.upgrade().is_err());
        drop(b);
        assert_eq!(soft.misuse(), Vec::<String>::new());
    }
}

#[test]
fn h3_an_end_that_cannot_be_quiesced_loses_its_queue_pair_before_its_operations_memory_goes() {
    for refused in ["ibv_modify_qp", "ibv_post_send", "ibv_post_recv", "ibv_poll_cq"] {
        for mode in modes() {
            let world = world("laterefused", mode);
            let soft = world.soft.as_ref().expect("a software fabric");
            let (a, b, weak) = with_operations_outstanding(&world);
            soft.fail_from(refused, 1, Answer::returned(-22));
            drop(a);
            soft.clear_plan();
            let reported = drop_log::take("laterefused");
            assert!(matches!(reported[..], [DropFailure::Quiesce { .. }]), "{refused}, {mode:?}: {reported:?}");
            let record = soft.record();
            assert!(position(&record, "ibv_destroy_qp") < position(&record, "ibv_dereg_mr"), "{refused}, {mode:?}");
            assert!(weak.upgrade().is_err());
            drop(b);
        }
    }
}

#[test]
fn h3_where_the_queue_pair_stays_its_operations_memory_stays_and_is_reported() {
    let world = world("latekept", Mode::Prompt);
    let soft = world.soft.as_ref().expect("a software fabric");
    let (a, b, weak) = with_operations_outstanding(&world);
    soft.fail_from("ibv_modify_qp", 1, Answer::returned(22));
    soft.fail_from("ibv_destroy_qp", 1, Answer::returned(16));
    drop(a);
    soft.clear_plan();
    let reported = drop_log::take("latekept");
    let kept = |failure: &&DropFailure| matches!(failure, DropFailure::Leaked { len_bytes: 2048, .. });
    assert_eq!(reported.iter().filter(kept).count(), 2, "each view: {reported:?}");
    assert!(weak.upgrade().is_ok(), "mapped for ever");
    let record = soft.record();
    assert_eq!((calls_of(&record, "ibv_dereg_mr"), calls_of(&record, "ibv_destroy_qp")), (0, 1));
    drop(b);
}

#[test]
fn a_forgotten_end_leaks_and_frees_nothing() {
    let world = world("lateforgotten", Mode::Prompt);
    let soft = world.soft.as_ref().expect("a software fabric");
    let (a, b, weak) = with_operations_outstanding(&world);
    std::mem::forget(a);
    assert_eq!(soft.record(), []);
    assert!(weak.upgrade().is_ok());
    drop(b);
    assert_eq!(soft.misuse(), Vec::<String>::new());
}

#[test]
fn a_device_beyond_use_ends_every_operation_once() {
    for mode in modes() {
        let world = world("latefatal", mode);
        let soft = world.soft.as_ref().expect("a software fabric");
        let (mut a, b, weak) = with_operations_outstanding(&world);
        soft.device_fatal("latefatal");
        let mut ends = Vec::new();
        let context = a.domain().expect("not closed").context().clone();
        context.take_events().expect("there is one");
        while a.pending().count() > 0 {
            a.poll(|event| ends.push(event)).expect("ends come first");
        }
        let ended = |event: &Event| match event {
            Event::Ended(ended) => {
                matches!(ended.result, Ok(()) | Err(OperationError::Broken { .. } | OperationError::Failed(_)))
            }
            _ => false,
        };
        assert!(ends.len() == 2 && ends.iter().all(ended), "{mode:?}: {ends:?}");
        drop(context);
        a.poll(|event| panic!("told before: {event:?}")).expect_err("for good");
        drop(a);
        assert!(weak.upgrade().is_err());
        drop(b);
    }
}

#[test]
fn h3_an_operation_that_failed_in_part_holds_its_memory_until_its_last_part_has_come_back() {
    for mode in modes() {
        let devices = vec![SoftDevice::new("latepart").max_message_bytes(100)];
        let world = World::of_config(SoftConfig::default().devices(devices).mode(mode), "latepart");
        let (mut a, b) = pair(&world, &transfers_config());
        let (here, there) = (memory(&pattern(300, 1)), memory(&[0; 100]));
        let weak = here.downgrade().expect("owned bytes have a weak form");
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        // Three parts, of which the second is not the other end's to give, and the third is flushed.
        let (base, rkey) = (lease.remote().key_addr(), lease.remote().rkey());
        let claimed = RemoteView::new(base, 300, rkey, *lease.remote().device()).expect("a range");
        let write = a.write(&local, &claimed).expect("three parts");
        drop((here, local));
        let mut told = 0;
        a.wait_for_all(&patiently(), |event| {
            assert!(matches!(event, Event::Ended(ended) if ended.operation == write && ended.result.is_err()));
            assert!(weak.upgrade().is_ok(), "{mode:?}: told of the second part's error, with the third outstanding");
            told += 1;
        })
        .expect("it ends");
        assert_eq!(told, 1, "{mode:?}");
        for _ in 0..1000 {
            // Broken, for good; but the books are kept.
            a.poll(|event| panic!("{mode:?}: told before: {event:?}")).expect_err("nothing came");
        }
        assert!(weak.upgrade().is_err(), "{mode:?}: the third has come back");
        drop((a, b, lease, there));
        world.assert_clean();
    }
}

#[test]
fn h3_a_post_that_may_be_out_is_quiesced_before_its_memory_goes_though_nothing_else_is_outstanding() {
    for named in [BadWr::NullNoneAccepted, BadWr::NullAllAccepted, BadWr::StrayAllAccepted] {
        let world = world("lateunknown", Mode::Prompt);
        let soft = world.soft.as_ref().expect("a software fabric");
        let (mut a, b) = pair(&world, &transfers_config().depths(64, 0));
        let (here, there) = (memory(&[1; 8]), memory(&[0; 8]));
        let weak = here.downgrade().expect("owned bytes have a weak form");
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        soft.fail("ibv_post_send", 1, Answer::returned(12).bad_wr(named));
        a.write(&local, lease.remote()).expect_err("nobody knows");
        drop((here, local));
        soft.clear_record();
        drop(a);
        let record = soft.record();
        let stop = record.iter().position(is_quiesce).expect("it was stopped");
        let (region, pair) = (position(&record, "ibv_dereg_mr"), position(&record, "ibv_destroy_qp"));
        assert!(Some(stop) < region && region < pair, "{named:?}: {record:?}");
        assert!(weak.upgrade().is_err());
        drop((b, lease));
        assert_eq!(soft.misuse(), Vec::<String>::new());
    }
}
