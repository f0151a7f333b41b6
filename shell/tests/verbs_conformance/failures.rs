//! Work that fails: with which status, in which order, and what becomes of what was posted behind it.

use bareverbs_core::verbs::{QpState, SendFlags, Sge, WcStatus, WrOpcode};

use crate::differences::Difference;
use crate::raw::{Env, pair, post_recv, post_send, receive, send, statuses};
use crate::{FLUSHED, OK};

pub fn the_error_state_flushes_what_was_posted_and_what_is_posted(env: &Env) {
    let (one, other) = pair(env);
    for id in 0..3 {
        one.post_receive(id, 0, 64);
    }
    assert_eq!(env.move_to(one.qp, QpState::ERR), 0);
    // All that was posted is out, so that what is posted now is late: a device flushes in its own time.
    let mut flushed = one.poll(3);
    assert!(env.drain(one.cq).is_empty());
    one.post_receive(3, 0, 64);
    let mut unsignalled = send(10, one.sge(0, 64));
    unsignalled.send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut [unsignalled, send(11, one.sge(0, 64))]), (0, None));
    flushed.extend(one.poll(if Difference::LateReceive.by_side(env, true, false) { 3 } else { 2 }));
    if !env.strict {
        assert!(env.drain(one.cq).is_empty());
        assert_eq!(env.move_to(one.qp, QpState::ERR), 0);
        flushed.extend(one.poll(1));
    }
    let of =
        |receive: bool| -> Vec<_> { statuses(&flushed).into_iter().filter(|(id, _)| (*id < 10) == receive).collect() };
    assert_eq!(of(true), (0..4).map(|id| (id, FLUSHED)).collect::<Vec<_>>());
    assert_eq!(of(false), [(10, FLUSHED), (11, FLUSHED)]);
    assert!(flushed.iter().all(|wc| wc.qp_num == one.number() && wc.vendor_err == 0));
    one.tear_down();
    other.tear_down();
}

pub fn unsignalled_sends_that_succeeded_are_not_flushed(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(0, 0, 64);
    let mut unsignalled = send(1, one.sge(0, 64));
    unsignalled.send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut [unsignalled]), (0, None));
    assert_eq!(other.poll(1).len(), 1, "it went out");
    assert_eq!(env.move_to(one.qp, QpState::ERR), 0);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&env.drain(one.cq)), [(2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_wrong_key_fails_the_send_and_the_queue_pair(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 64);
    let entry = Sge { lkey: one.lkey() ^ 0x5500, ..one.sge(0, 64) };
    assert_eq!(post_send(one.qp, &mut [send(2, entry)]), (0, None));
    let wanted = Difference::WrongKey.by_side(env, WcStatus::LOC_PROT_ERR, WcStatus::LOC_QP_OP_ERR);
    assert_eq!(statuses(&one.poll(1)), [(2, wanted)]);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(3, FLUSHED)]);
    assert!(env.drain(other.cq).is_empty());
    one.tear_down();
    other.tear_down();
}

pub fn a_message_too_long_fails_the_receiver_only(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 64);
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 65);
    assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
    let wanted = Difference::UnreliableTooLong.by_side(env, WcStatus::LOC_LEN_ERR, WcStatus::LOC_QP_OP_ERR);
    assert_eq!(statuses(&other.poll(2)), [(1, wanted), (2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_read_on_unreliable_queue_pairs_fails_its_completion(env: &Env) {
    let (one, other) = pair(env);
    let mut request = send(1, one.sge(0, 64));
    request.opcode = WrOpcode::RDMA_READ;
    assert_eq!(post_send(one.qp, &mut [request]), (0, None));
    assert_eq!(statuses(&one.poll(1)), [(1, WcStatus::LOC_QP_OP_ERR)]);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_receive_with_a_wrong_key_fails_the_receiver_only(env: &Env) {
    let (one, other) = pair(env);
    let entry = Sge { lkey: other.lkey() ^ 0x5500, ..other.sge(0, 64) };
    assert_eq!(post_recv(other.qp, &mut [receive(1, entry)]), (0, None));
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
    let wanted = Difference::WrongKey.by_side(env, WcStatus::LOC_PROT_ERR, WcStatus::LOC_QP_OP_ERR);
    assert_eq!(statuses(&other.poll(2)), [(1, wanted), (2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_send_beyond_its_region_fails(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 4096);
    let entry = one.sge(crate::raw::MEMORY - 63, 64);
    assert_eq!(post_send(one.qp, &mut [send(2, entry)]), (0, None));
    assert_eq!(statuses(&one.poll(1)), [(2, WcStatus::LOC_PROT_ERR)]);
    assert!(env.drain(other.cq).is_empty());
    one.tear_down();
    other.tear_down();
}

pub fn a_queue_pair_in_error_hears_nothing(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 64);
    assert_eq!(env.move_to(other.qp, QpState::ERR), 0);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    assert_eq!(statuses(&env.drain(other.cq)), [(1, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn statuses_have_the_words_that_core_knows_them_by(env: &Env) {
    for number in (0..=23).chain([24, 1000, u32::MAX]) {
        let status = WcStatus(number);
        assert_eq!(crate::raw::status_text(env, status).expect("it is there"), status.text());
    }
}
