//! Ends of reliable connected queue pairs.

use bareverbs_core::verbs::{QpAttr, QpAttrMask, QpCap, QpType};

use super::calls::Env;
use super::ends::{CAP, End, INIT_MASK, RTR_MASK, RTS_MASK, init_attr, rtr_attr, rts_attr};

pub const RC_RTR_MASK: QpAttrMask = RTR_MASK.union(QpAttrMask::MAX_DEST_RD_ATOMIC).union(QpAttrMask::MIN_RNR_TIMER);
pub const RC_RTS_MASK: QpAttrMask = RTS_MASK
    .union(QpAttrMask::TIMEOUT)
    .union(QpAttrMask::RETRY_CNT)
    .union(QpAttrMask::RNR_RETRY)
    .union(QpAttrMask::MAX_QP_RD_ATOMIC);

/// How long a reliable queue pair tries.
#[derive(Clone, Copy)]
pub struct Patience {
    /// How often a message is sent again that nobody acknowledged.
    pub retry_cnt: u8,
    /// How often a message is sent again that found no receive; 7: for ever.
    pub rnr_retry: u8,
    /// 4.096 us times 2 to this power from one try to the next.
    pub timeout: u8,
}

/// For what is to succeed, in an emulated guest too.
pub const PATIENT: Patience = Patience { retry_cnt: 6, rnr_retry: 7, timeout: 18 };
/// For what is to fail.
pub const HASTY: Patience = Patience { retry_cnt: 1, rnr_retry: 0, timeout: 16 };

pub fn rc_rtr_attr(base: QpAttr) -> QpAttr {
    QpAttr { max_dest_rd_atomic: 1, min_rnr_timer: 1, ..base }
}

pub fn rc_rts_attr(patience: Patience) -> QpAttr {
    let Patience { retry_cnt, rnr_retry, timeout } = patience;
    QpAttr { retry_cnt, rnr_retry, timeout, max_rd_atomic: 1, ..rts_attr() }
}

/// An end with a reliable queue pair.
pub fn rc_end(env: &Env, cap: QpCap) -> End {
    End::with(env, cap, |init| init.qp_type = QpType::RC)
}

/// Moves an end to RTR, towards a peer.
pub fn rc_to_rtr(end: &End, peer: &End) {
    let env = &end.env;
    let (index, _) = env.gid(end.context);
    let (_, dgid) = env.gid(peer.context);
    assert_eq!(env.modify(end.qp, &init_attr(), INIT_MASK), 0);
    assert_eq!(env.modify(end.qp, &rc_rtr_attr(rtr_attr(peer.number(), dgid, index)), RC_RTR_MASK), 0);
}

pub fn rc_to_rts(end: &End, patience: Patience) {
    assert_eq!(end.env.modify(end.qp, &rc_rts_attr(patience), RC_RTS_MASK), 0);
}

pub fn rc_connect(one: End, other: End, patience: Patience) -> (End, End) {
    for (end, peer) in [(&one, &other), (&other, &one)] {
        rc_to_rtr(end, peer);
        rc_to_rts(end, patience);
    }
    (one, other)
}

/// Two ends of a reliable connection.
pub fn rc_pair(env: &Env, patience: Patience) -> (End, End) {
    rc_connect(rc_end(env, CAP), rc_end(env, CAP), patience)
}
