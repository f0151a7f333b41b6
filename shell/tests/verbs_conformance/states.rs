//! The states of a queue pair: which steps are granted, and what may be posted where.

use bareverbs_core::verbs::{Gid, LinkLayer, Mtu, QpAttr, QpAttrMask, QpState, QpType};

use crate::differences::Difference;
use crate::raw::{
    CAP, End, Env, INIT_MASK, RTR_MASK, RTS_MASK, init_attr, pair, post_recv, post_send, query_gid, query_gid_ex,
    receive, rtr_attr, rts_attr, send, statuses,
};
use crate::{EINVAL, OK};

pub fn steps_with_a_missing_attribute_are_refused(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    let (index, gid) = env.gid(one.context);
    let rtr = rtr_attr(other.number(), gid, index);
    for (attr, mask) in [(init_attr(), INIT_MASK), (rtr, RTR_MASK), (rts_attr(), RTS_MASK)] {
        for missing in (mask - QpAttrMask::STATE).iter() {
            assert_eq!(env.modify(one.qp, &attr, mask - missing), EINVAL, "{missing:?}");
        }
        assert_eq!(env.modify(one.qp, &attr, mask | QpAttrMask::RETRY_CNT), EINVAL, "reliable only");
        assert_eq!(env.modify(one.qp, &attr, mask), 0);
    }
    one.tear_down();
    other.tear_down();
}

pub fn wrong_steps_are_refused(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    assert_eq!(env.modify(one.qp, &rts_attr(), RTS_MASK), EINVAL, "RESET straight to RTS");
    let wrong_port = QpAttr { port_num: 99, ..init_attr() };
    assert_eq!(env.modify(one.qp, &wrong_port, INIT_MASK), EINVAL);
    one.to_init();
    let (index, gid) = env.gid(one.context);
    let good = rtr_attr(other.number(), gid, index);
    let mut no_route = good;
    no_route.ah_attr.is_global = 0;
    if crate::raw::link_layer(env, one.context) == LinkLayer::ETHERNET {
        assert_eq!(env.modify(one.qp, &no_route, RTR_MASK), EINVAL);
    }
    assert_eq!(env.modify(one.qp, &QpAttr { path_mtu: Mtu(9), ..good }, RTR_MASK), EINVAL);
    assert_eq!(env.modify(one.qp, &good, RTR_MASK), 0, "a refusal changed nothing");
    one.tear_down();
    other.tear_down();
}

pub fn an_unreachable_gid_times_out(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    one.to_init();
    let (index, _) = env.gid(one.context);
    let nowhere = Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 9]);
    let answer = env.modify(one.qp, &rtr_attr(other.number(), nowhere, index), RTR_MASK);
    assert_eq!(answer, Difference::NoRoute.by_side(env, libc::ETIMEDOUT, libc::ENODEV));
    one.tear_down();
    other.tear_down();
}

pub fn an_empty_gid_index_has_no_data(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    let empty = u8::try_from(env.port(one.context).gid_tbl_len - 1).unwrap_or(u8::MAX);
    let slot = query_gid(env, one.context, empty.into());
    assert_eq!((slot.0, slot.1, empty > 0), (0, Gid::ZERO, true), "the plain query says zeros");
    assert_eq!(query_gid_ex(env, one.context, empty.into()), Err(libc::ENODATA));
    one.to_init();
    let (index, gid) = env.gid(other.context);
    let answer = env.modify(one.qp, &rtr_attr(other.number(), gid, empty), RTR_MASK);
    assert_eq!(answer, libc::ENODATA);
    assert_eq!(env.modify(one.qp, &rtr_attr(other.number(), gid, index), RTR_MASK), 0, "a refusal changed nothing");
    one.tear_down();
    other.tear_down();
}

pub fn posts_in_the_wrong_state_are_refused(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    let named = Difference::RefusedPost.by_side(env, Some(0), None);
    let refused_send = |why: &str| {
        assert_eq!(post_send(one.qp, &mut [send(1, one.sge(0, 64))]), (EINVAL, named), "{why}");
    };
    let post_receive = || post_recv(one.qp, &mut [receive(1, one.sge(0, 64))]);
    refused_send("RESET");
    assert_eq!(post_receive(), (EINVAL, named), "RESET");
    one.to_init();
    refused_send("INIT");
    assert_eq!(post_receive(), (0, None), "INIT");
    assert_eq!(one.to_rtr(&other), 0);
    refused_send("RTR");
    assert_eq!(post_receive(), (0, None), "RTR");
    one.tear_down();
    other.tear_down();
}

pub fn attributes_are_told_back(env: &Env) {
    let (one, other) = pair(env);
    let (attr, init) = crate::raw::query(&one).expect("query_qp is there");
    assert_eq!((attr.qp_state, attr.dest_qp_num, attr.sq_psn), (QpState::RTS, other.number(), 7));
    assert!(attr.cap.max_send_wr >= CAP.max_send_wr && attr.cap.max_recv_wr >= CAP.max_recv_wr);
    assert_eq!(init.qp_type, QpType::UC);
    one.tear_down();
    other.tear_down();
}

pub fn a_reset_queue_pair_can_be_connected_anew(env: &Env) {
    let (one, other) = pair(env);
    one.post_receive(1, 0, 64);
    for end in [&one, &other] {
        assert_eq!(env.move_to(end.qp, QpState::ERR), 0);
        assert_eq!(env.move_to(end.qp, QpState::RESET), 0);
        env.drain(end.cq);
    }
    let (one, other) = crate::raw::connect(one, other);
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(2, OK)]);
    assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
    one.tear_down();
    other.tear_down();
}
