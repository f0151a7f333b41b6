//! A queue pair and what its creation and its moves check.

use std::ffi::c_int;

use bareverbs_core::verbs::{
    Be32, QpAttr, QpAttrMask, QpCap, QpState, QpType, SendFlags, SendWr, WcFlags, WcStatus, WrOpcode,
};

use crate::soft::async_events::Unacknowledged;
use crate::soft::bindings::Lists;
use crate::soft::device::Limits;
use crate::soft::one_sided::Target;
use crate::soft::profile::Profile;
use crate::soft::work_queue::{Request, WorkQueue};

/// A posted send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendRequest {
    pub wr_id: u64,
    pub opcode: WrOpcode,
    pub signaled: bool,
    /// Whether its receiver is to be woken.
    pub solicited: bool,
    pub immediate: Be32,
    pub length_bytes: u32,
    pub inline: bool,
    pub entries: u32,
    pub slots: u32,
    /// How it went, once it is done.
    pub status: WcStatus,
}

/// A posted receive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveRequest {
    pub wr_id: u64,
    pub room_bytes: u32,
    pub entries: u32,
    pub slots: u32,
    /// How it went, once it is done.
    pub status: WcStatus,
    /// Bytes that came.
    pub byte_len: u32,
    pub immediate: Be32,
    pub flags: WcFlags,
    /// Whether the message was to wake its receiver.
    pub solicited: bool,
    /// Whether it was a write, which left the memory of the receive alone.
    pub written: bool,
}

impl Request for SendRequest {
    #[inline]
    fn slots(&self) -> u32 {
        self.slots
    }
    #[inline]
    fn entries(&self) -> usize {
        self.entries as usize
    }
}

impl Request for ReceiveRequest {
    #[inline]
    fn slots(&self) -> u32 {
        self.slots
    }
    #[inline]
    fn entries(&self) -> usize {
        self.entries as usize
    }
}

impl SendRequest {
    pub(super) fn new(wr: &SendWr, every_send_signaled: bool, length_bytes: u32, slots: u32) -> Self {
        let inline = wr.send_flags.contains(SendFlags::INLINE);
        Self {
            wr_id: wr.wr_id,
            opcode: wr.opcode,
            signaled: every_send_signaled || wr.send_flags.contains(SendFlags::SIGNALED),
            solicited: wr.send_flags.contains(SendFlags::SOLICITED),
            immediate: wr.imm_data,
            length_bytes,
            inline,
            entries: if inline { 0 } else { wr.num_sge as u32 },
            slots,
            status: WcStatus::SUCCESS,
        }
    }

    /// Whether polling will show it.
    pub(super) fn makes_completion(&self) -> bool {
        self.signaled || self.status != WcStatus::SUCCESS
    }
}

/// Where a queue pair's messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub device: u32,
    pub number: u32,
    /// Index of the queue pair that had that number when it was last looked for.
    pub guess: u32,
}

/// How often a reliable queue pair has tried its next send in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// Nobody acknowledged.
    pub unheard: u8,
    /// There was no receive.
    pub not_ready: u8,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub handle: usize,
    pub number: u32,
    /// Counts resets too: what was completed in an earlier life frees nothing in this one.
    pub life: u64,
    pub device: u32,
    pub profile: Profile,
    pub context: u32,
    pub domain: u32,
    pub send_cq: u32,
    pub recv_cq: u32,
    pub kind: QpType,
    pub every_send_signaled: bool,
    pub state: QpState,
    pub cap: QpCap,
    pub attr: QpAttr,
    pub peer: Option<Peer>,
    /// Tries of the next send that were in vain.
    pub tries: Tries,
    pub events: Unacknowledged,
    /// When it moved to INIT, on the fabric's count of events.
    pub initialised: u64,
    pub sends: WorkQueue<SendRequest>,
    pub receives: WorkQueue<ReceiveRequest>,
    /// Bytes of inline sends, [`QpCap::max_inline_data`] for each place of the send ring.
    pub inline: Box<[u8]>,
    /// What one-sided operations name, one for each place of the send ring; none where there are no such operations.
    pub targets: Box<[Target]>,
    /// Whether its owner is to be told once its send queue is drained.
    pub tells_drained: bool,
    /// Whether a part of the next write landed before the rest.
    pub landed_early: bool,
    /// Whether it is an extended queue pair.
    pub extended: bool,
    /// What it needs to bind indirect keys, where it can.
    pub lists: Option<Box<Lists>>,
}

/// What a queue pair may be asked for, and what it gets.
///
/// # Errors
/// The errno of the refusal.
pub(super) fn granted(asked: QpCap, kind: QpType, profile: Profile, limits: &Limits) -> Result<QpCap, c_int> {
    match kind {
        QpType::UC => {}
        QpType::RC if profile.has_reliable_service() => {}
        // These exist on the devices that this one stands for, so they are unsupported, not wrong.
        QpType::RC | QpType::UD => return Err(profile.unsupported()),
        _ => return Err(libc::EINVAL),
    }
    let depth = |asked: u32| match profile {
        Profile::Thunderbolt => Ok(asked.min(limits.queue_depth)),
        Profile::Verbs | Profile::Mlx5 if asked > limits.queue_depth => Err(libc::EINVAL),
        Profile::Verbs | Profile::Mlx5 => Ok(asked),
    };
    if asked.max_send_sge > limits.entries || asked.max_recv_sge > limits.entries {
        return Err(libc::EINVAL);
    }
    if asked.max_inline_data > limits.inline_bytes {
        return Err(libc::EINVAL);
    }
    Ok(QpCap { max_send_wr: depth(asked.max_send_wr)?, max_recv_wr: depth(asked.max_recv_wr)?, ..asked })
}

impl QueuePair {
    /// Forgets all work and enters RESET.
    pub(super) fn reset(&mut self, life: u64) {
        self.life = life;
        self.state = QpState::RESET;
        self.sends.clear();
        self.receives.clear();
        self.peer = None;
        self.tries = Tries::default();
        self.landed_early = false;
        self.tells_drained = false;
    }

    /// Takes over the attributes that a move brings.
    pub(super) fn take_attributes(&mut self, attr: &QpAttr, mask: QpAttrMask) {
        let has = |bit| mask.contains(bit);
        if has(QpAttrMask::ACCESS_FLAGS) {
            self.attr.qp_access_flags = attr.qp_access_flags;
        }
        if has(QpAttrMask::PKEY_INDEX) {
            self.attr.pkey_index = attr.pkey_index;
        }
        if has(QpAttrMask::PORT) {
            self.attr.port_num = attr.port_num;
        }
        if has(QpAttrMask::AV) {
            self.attr.ah_attr = attr.ah_attr;
        }
        if has(QpAttrMask::PATH_MTU) {
            self.attr.path_mtu = attr.path_mtu;
        }
        if has(QpAttrMask::DEST_QPN) {
            self.attr.dest_qp_num = attr.dest_qp_num;
        }
        if has(QpAttrMask::RQ_PSN) {
            self.attr.rq_psn = attr.rq_psn;
        }
        if has(QpAttrMask::SQ_PSN) {
            self.attr.sq_psn = attr.sq_psn;
        }
        self.take_reliable_attributes(attr, mask);
    }

    fn take_reliable_attributes(&mut self, attr: &QpAttr, mask: QpAttrMask) {
        let has = |bit| mask.contains(bit);
        if has(QpAttrMask::TIMEOUT) {
            self.attr.timeout = attr.timeout;
        }
        if has(QpAttrMask::RETRY_CNT) {
            self.attr.retry_cnt = attr.retry_cnt;
        }
        if has(QpAttrMask::RNR_RETRY) {
            self.attr.rnr_retry = attr.rnr_retry;
        }
        if has(QpAttrMask::MIN_RNR_TIMER) {
            self.attr.min_rnr_timer = attr.min_rnr_timer;
        }
        if has(QpAttrMask::MAX_QP_RD_ATOMIC) {
            self.attr.max_rd_atomic = attr.max_rd_atomic;
        }
        if has(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            self.attr.max_dest_rd_atomic = attr.max_dest_rd_atomic;
        }
    }

    /// Its attributes as `ibv_query_qp` tells them.
    pub(super) fn attributes(&self) -> QpAttr {
        QpAttr { qp_state: self.state, cur_qp_state: self.state, cap: self.cap, ..self.attr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: QpCap =
        QpCap { max_send_wr: 32, max_recv_wr: 32, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

    #[test]
    fn sizes_are_granted_up_to_the_limit_and_refused_above_it() {
        let limits = Limits { queue_depth: 32, entries: 2, inline_bytes: 512, ..Limits::default() };
        let ask = |asked| granted(asked, QpType::UC, Profile::Verbs, &limits);
        assert_eq!(ask(ASKED), Ok(ASKED));
        for (good, bad) in [
            (QpCap { max_send_wr: 32, ..ASKED }, QpCap { max_send_wr: 33, ..ASKED }),
            (QpCap { max_recv_wr: 32, ..ASKED }, QpCap { max_recv_wr: 33, ..ASKED }),
            (QpCap { max_send_sge: 2, ..ASKED }, QpCap { max_send_sge: 3, ..ASKED }),
            (QpCap { max_recv_sge: 2, ..ASKED }, QpCap { max_recv_sge: 3, ..ASKED }),
            (QpCap { max_inline_data: 512, ..ASKED }, QpCap { max_inline_data: 513, ..ASKED }),
        ] {
            assert_eq!(ask(good), Ok(good));
            assert_eq!(ask(bad), Err(22), "{bad:?}");
        }
    }

    #[test]
    fn thunderbolt_grants_less_depth_than_asked_for_without_a_word() {
        let limits = Limits { queue_depth: 4095, entries: 1, inline_bytes: 0, ..Limits::default() };
        let cap = QpCap { max_recv_wr: 5000, ..ASKED };
        let got = granted(cap, QpType::UC, Profile::Thunderbolt, &limits);
        assert_eq!(got.map(|cap| cap.max_recv_wr), Ok(4095));
    }

    #[test]
    fn services_that_are_not_there_are_unsupported() {
        let ask = |kind, profile| granted(ASKED, kind, profile, &Limits::default());
        assert_eq!(ask(QpType::UD, Profile::Verbs), Err(libc::EOPNOTSUPP));
        assert_eq!(ask(QpType::RC, Profile::Verbs), Ok(ASKED));
        assert_eq!(ask(QpType::RC, Profile::Thunderbolt), Err(102));
        assert_eq!(ask(QpType(77), Profile::Verbs), Err(22));
    }
}
