//! Asynchronous events that a test brings about, and a device that fails for good.

use bareverbs_core::verbs::{EventType, PortState, WcStatus};
use bareverbs_shell::soft::{GidSlot, LiveCounts, SoftConfig, SoftFabric};

use super::raw::channels::{do_not_block, readable};
use super::raw::on_soft::env;
use super::raw::{End, async_fd, connect, errno, pair, port_answer, post_recv, post_send, receive, send, statuses};

fn soft() -> SoftFabric {
    SoftFabric::new(SoftConfig::default()).expect("a free slot")
}

#[test]
fn changes_of_a_port_are_told_to_every_open_context() {
    let fabric = soft();
    let env = env(&fabric, "soft0");
    let (one, other) = (env.open(), env.open());
    fabric.set_port_state("soft0", 1, PortState::DOWN);
    fabric.set_port_state("soft0", 1, PortState::INIT);
    fabric.set_port_state("soft0", 1, PortState::ACTIVE);
    fabric.set_gids("soft0", 1, vec![GidSlot::ipv4([10, 0, 0, 1])]);
    for context in [one, other] {
        do_not_block(async_fd(context));
        assert!(readable(async_fd(context)));
        let told: Vec<_> = std::iter::from_fn(|| env.async_event(context).ok()).map(|event| event.event_type).collect();
        assert_eq!(told, [EventType::PORT_ERR, EventType::PORT_ACTIVE, EventType::GID_CHANGE]);
        assert!(!readable(async_fd(context)));
        assert_eq!(env.close(context), 0);
    }
}

#[test]
fn a_device_that_fails_tells_it_and_lets_everything_be_destroyed_once() {
    let fabric = soft();
    let (one, other) = pair(&env(&fabric, "soft0"));
    let env = one.env.clone();
    do_not_block(async_fd(one.context));
    other.post_receive(1, 0, 64);
    fabric.device_fatal("soft0");
    env.wait_for(one.context, EventType::DEVICE_FATAL);
    assert_eq!(post_send(one.qp, &mut [send(2, one.sge(0, 64))]), (5, Some(0)));
    assert_eq!(post_recv(one.qp, &mut [receive(2, one.sge(0, 64))]), (5, Some(0)));
    assert_eq!((port_answer(&env, one.context), env.move_to(one.qp, bareverbs_core::verbs::QpState::ERR)), (5, 5));
    assert!(env.alloc_pd(one.context).is_null());
    assert_eq!(errno(), 5);
    assert!(env.poll_once(other.cq).is_none());
    one.tear_down();
    other.tear_down();
    assert_eq!((fabric.live(), fabric.misuse()), (LiveCounts::default(), vec![]));
}

#[test]
fn an_overflow_is_told_for_the_queue_and_the_queue_pair_and_keeps_them_until_acknowledged() {
    let fabric = soft();
    let env = env(&fabric, "soft0");
    let context = env.open();
    do_not_block(async_fd(context));
    let one = End::on(&env, context, env.create_cq(context, 1), super::raw::CAP, |_| ());
    let (one, other) = connect(one, End::new(&env));
    one.post_send(1, 0, 64);
    one.post_send(2, 0, 64);
    let events = [env.async_event(context).expect("one"), env.async_event(context).expect("another")];
    assert_eq!(events.map(|event| event.event_type), [EventType::CQ_ERR, EventType::QP_FATAL]);
    assert_eq!((env.destroy_qp(one.qp), fabric.misuse().len()), (16, 1));
    assert_eq!(statuses(&one.poll(1)), [(1, WcStatus::SUCCESS)]);
    env.ack_async(events[1]);
    assert_eq!((env.destroy_qp(one.qp), env.destroy_cq(one.cq)), (0, 16));
    env.ack_async(events[0]);
    assert_eq!([env.destroy_cq(one.cq), env.dereg_mr(one.mr), env.dealloc_pd(one.pd), env.close(context)], [0; 4]);
    one.free_memory();
    other.tear_down();
}
