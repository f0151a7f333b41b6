//! Messages of reliable connected queue pairs: a send completes when it was delivered, and fails when it cannot be.

use std::time::Instant;

use bareverbs_core::verbs::{QpAttr, QpAttrMask, QpState, SendFlags, Sge, WcStatus};

use crate::differences::Difference;
use crate::raw::reliable::{
    HASTY, PATIENT, Patience, RC_RTR_MASK, RC_RTS_MASK, rc_connect, rc_end, rc_pair, rc_rtr_attr, rc_rts_attr,
    rc_to_rtr, rc_to_rts,
};
use crate::raw::{
    CAP, End, Env, INIT_MASK, init_attr, post_recv, post_send, receive, rtr_attr, rts_attr, send, send_imm, statuses,
};
use crate::{EINVAL, FLUSHED, OK};

const NOT_READY: WcStatus = WcStatus::RNR_RETRY_EXC_ERR;
const SILENT: WcStatus = WcStatus::RETRY_EXC_ERR;

pub fn steps_need_the_attributes_of_reliability(env: &Env) {
    let (one, other) = (rc_end(env, CAP), rc_end(env, CAP));
    let (index, gid) = env.gid(one.context);
    let rtr = rc_rtr_attr(rtr_attr(other.number(), gid, index));
    for (attr, mask) in [(init_attr(), INIT_MASK), (rtr, RC_RTR_MASK), (rc_rts_attr(PATIENT), RC_RTS_MASK)] {
        for missing in (mask - QpAttrMask::STATE).iter() {
            assert_eq!(env.modify(one.qp, &attr, mask - missing), EINVAL, "{missing:?}");
        }
        assert_eq!(env.modify(one.qp, &attr, mask | QpAttrMask::QKEY), EINVAL, "datagrams only");
        assert_eq!(env.modify(one.qp, &attr, mask), 0);
    }
    one.tear_down();
    other.tear_down();
}

pub fn messages_arrive_in_order_with_their_immediates(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    for id in 0..8 {
        other.post_receive(id, id as usize * 4096, 4096);
        one.write(id as usize * 4096, &[id as u8; 4096]);
    }
    let mut chain: Vec<_> = (0..8).map(|id| send_imm(id, one.sge(id as usize * 4096, 4096), 100 + id as u32)).collect();
    chain[3].send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut chain), (0, None));
    let came: Vec<_> = other.poll(8).iter().map(|wc| (wc.wr_id, wc.immediate(), wc.status)).collect();
    assert_eq!(came, (0..8).map(|id| (id, Some(100 + id as u32), OK)).collect::<Vec<_>>());
    for id in 0..8 {
        assert_eq!(other.read(id * 4096, 4096), [id as u8; 4096]);
    }
    let sent: Vec<_> = (0..8).filter(|id| *id != 3).map(|id| (id, OK)).collect();
    assert_eq!(statuses(&one.poll(7)), sent);
    one.tear_down();
    other.tear_down();
}

pub fn a_send_waits_for_its_receive(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    one.post_send(1, 0, 64);
    one.post_send(2, 0, 64);
    assert!(env.drain(one.cq).is_empty(), "nothing was delivered, so nothing completes");
    other.post_receive(3, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(3, OK)]);
    assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
    assert!(env.drain(one.cq).is_empty());
    other.post_receive(4, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    assert_eq!(statuses(&other.poll(1)), [(4, OK)]);
    one.tear_down();
    other.tear_down();
}

fn fails_for_want_of_a_receive(env: &Env, rnr_retry: u8) {
    let (one, other) = rc_pair(env, Patience { rnr_retry, ..PATIENT });
    one.post_send(1, 0, 64);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(2)), [(1, NOT_READY), (2, FLUSHED)]);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(3, FLUSHED)]);
    other.post_receive(4, 0, 64);
    assert!(env.drain(other.cq).is_empty(), "the receiver knows nothing of it");
    one.tear_down();
    other.tear_down();
}

pub fn a_send_without_a_receive_and_retries_fails_at_once(env: &Env) {
    fails_for_want_of_a_receive(env, 0);
}

pub fn a_send_without_a_receive_fails_when_its_retries_are_used_up(env: &Env) {
    fails_for_want_of_a_receive(env, 3);
}

pub fn a_message_too_long_fails_both_ends(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    other.post_receive(1, 0, 64);
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 65);
    one.post_send(4, 0, 1);
    let wanted = Difference::ReliableTooLong.by_side(env, WcStatus::REM_INV_REQ_ERR, WcStatus::REM_OP_ERR);
    assert_eq!(statuses(&one.poll(2)), [(3, wanted), (4, FLUSHED)]);
    let wanted = Difference::ReliableTooLong.by_side(env, WcStatus::LOC_LEN_ERR, WcStatus::LOC_QP_OP_ERR);
    assert_eq!(statuses(&other.poll(2)), [(1, wanted), (2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_receive_with_a_wrong_key_fails_both_ends(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    let entry = Sge { lkey: other.lkey() ^ 0x5500, ..other.sge(0, 64) };
    assert_eq!(post_recv(other.qp, &mut [receive(1, entry)]), (0, None));
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(3, WcStatus::REM_OP_ERR)]);
    let wanted = Difference::WrongKey.by_side(env, WcStatus::LOC_PROT_ERR, WcStatus::LOC_QP_OP_ERR);
    assert_eq!(statuses(&other.poll(2)), [(1, wanted), (2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_send_with_a_wrong_key_fails_the_sender_only(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    other.post_receive(1, 0, 64);
    let entry = Sge { lkey: one.lkey() ^ 0x5500, ..one.sge(0, 64) };
    assert_eq!(post_send(one.qp, &mut [send(2, entry), send(3, one.sge(0, 64))]), (0, None));
    let wanted = Difference::WrongKey.by_side(env, WcStatus::LOC_PROT_ERR, WcStatus::LOC_QP_OP_ERR);
    assert_eq!(statuses(&one.poll(2)), [(2, wanted), (3, FLUSHED)]);
    assert!(env.drain(other.cq).is_empty());
    one.tear_down();
    other.tear_down();
}

fn fails_in_silence(env: &Env, one: &End) {
    one.post_receive(9, 0, 64);
    one.post_send(1, 0, 64);
    one.post_send(2, 0, 64);
    let mut found = statuses(&one.poll(3));
    found.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(found, [(1, SILENT), (2, FLUSHED), (9, FLUSHED)]);
    assert!(env.drain(one.cq).is_empty());
}

pub fn a_peer_that_is_gone_is_missed(env: &Env) {
    let (one, other) = rc_pair(env, HASTY);
    other.tear_down();
    fails_in_silence(env, &one);
    one.tear_down();
}

pub fn seven_retries_are_no_more_than_seven(env: &Env) {
    let unheard = |retry_cnt| {
        let (one, other) = rc_pair(env, Patience { retry_cnt, rnr_retry: 7, timeout: 14 });
        other.tear_down();
        one.post_send(1, 0, 64);
        one
    };
    let began = Instant::now();
    let six = unheard(6);
    assert_eq!(statuses(&six.poll(1)), [(1, SILENT)]);
    let seven_tries = began.elapsed();
    let seven = unheard(7);
    if Difference::SevenRetries.by_side(env, true, false) {
        assert_eq!(statuses(&seven.poll(1)), [(1, SILENT)]);
    } else {
        // As long as 21 tries take, and no end of it.
        let began = Instant::now();
        while began.elapsed() < 3 * seven_tries {
            assert!(env.poll_once(seven.cq).is_none());
            std::thread::yield_now();
        }
        assert_eq!(env.move_to(seven.qp, QpState::ERR), 0);
        assert_eq!(statuses(&seven.poll(1)), [(1, FLUSHED)]);
    }
    six.tear_down();
    seven.tear_down();
}

/// A queue pair that is connected to an end which is connected to another one, and begins with this number.
fn third(env: &Env, other: &End, psn: u32) -> End {
    let third = rc_end(env, CAP);
    rc_to_rtr(&third, other);
    assert_eq!(env.modify(third.qp, &QpAttr { sq_psn: psn, ..rc_rts_attr(HASTY) }, RC_RTS_MASK), 0);
    third
}

pub fn a_third_queue_pair_is_not_heard(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    one.write(0, &[1; 64]);
    other.post_receive(2, 0, 64);
    // Before the number that is due, and behind it: packets do not say from which queue pair they are.
    for psn in [rts_attr().sq_psn.wrapping_sub(5) & 0xff_ffff, rts_attr().sq_psn + 1000] {
        let third = third(env, &other, psn);
        third.write(0, &[3; 64]);
        fails_in_silence(env, &third);
        assert!(env.drain(other.cq).is_empty() && env.drain(one.cq).is_empty());
        assert_ne!(other.read(0, 64), [3; 64], "nothing of it is written");
        third.tear_down();
    }
    one.post_send(1, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(2, OK)], "the receive is the connected one's");
    assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
    assert_eq!(other.read(0, 64), [1; 64]);
    one.tear_down();
    other.tear_down();
}

pub fn a_third_queue_pair_with_the_number_that_is_due(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    other.post_receive(2, 0, 64);
    let third = third(env, &other, rts_attr().sq_psn);
    third.write(0, &[3; 64]);
    fails_in_silence(env, &third);
    let came = statuses(&env.drain(other.cq));
    assert_eq!(came, Difference::Third.by_side(env, vec![], vec![(2, OK)]));
    third.tear_down();
    one.tear_down();
    other.tear_down();
}

pub fn a_peer_that_is_not_connected_is_missed(env: &Env) {
    let (one, other) = (rc_end(env, CAP), rc_end(env, CAP));
    rc_to_rtr(&one, &other);
    rc_to_rts(&one, HASTY);
    assert_eq!(env.modify(other.qp, &init_attr(), INIT_MASK), 0);
    other.post_receive(1, 0, 64);
    fails_in_silence(env, &one);
    one.tear_down();
    other.tear_down();
}

pub fn a_peer_in_error_is_missed(env: &Env) {
    let (one, other) = rc_pair(env, HASTY);
    other.post_receive(1, 0, 64);
    assert_eq!(env.move_to(other.qp, QpState::ERR), 0);
    assert_eq!(statuses(&other.poll(1)), [(1, FLUSHED)]);
    fails_in_silence(env, &one);
    one.tear_down();
    other.tear_down();
}

pub fn a_send_goes_out_once_its_peer_is_connected(env: &Env) {
    let (one, other) = (rc_end(env, CAP), rc_end(env, CAP));
    rc_to_rtr(&one, &other);
    rc_to_rts(&one, PATIENT);
    one.post_send(1, 0, 64);
    rc_to_rtr(&other, &one);
    other.post_receive(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
    assert_eq!(statuses(&other.poll(1)), [(2, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_reset_queue_pair_is_connected_anew(env: &Env) {
    let (one, other) = rc_pair(env, Patience { rnr_retry: 0, ..PATIENT });
    one.post_send(1, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(1, NOT_READY)]);
    for end in [&one, &other] {
        assert_eq!(env.move_to(end.qp, QpState::RESET), 0);
        env.drain(end.cq);
    }
    let (one, other) = rc_connect(one, other, PATIENT);
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(2, OK)]);
    assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn the_error_state_flushes_sends_that_wait(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    one.post_send(1, 0, 64);
    let mut unsignalled = send(2, one.sge(0, 64));
    unsignalled.send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut [unsignalled]), (0, None));
    assert!(env.drain(one.cq).is_empty());
    assert_eq!(env.move_to(one.qp, QpState::ERR), 0);
    assert_eq!(statuses(&one.poll(2)), [(1, FLUSHED), (2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}
