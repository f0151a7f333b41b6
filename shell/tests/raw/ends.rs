//! Ends of connections: everything that one takes, made, connected and torn down.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with handles that the test owns")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::c_int;

use bareverbs_core::verbs::{
    AccessFlags, AhAttr, Context, Cq, Gid, GlobalRoute, Mr, Mtu, Pd, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr,
    QpState, QpType, Sge, Wc,
};

use super::calls::{Env, errno};
use super::one_sided::Target;
use super::requests::{post_recv, post_send, receive, send};

/// The sizes that most tests ask for.
pub const CAP: QpCap = QpCap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

/// What a UC queue pair is made with.
pub fn uc(cq: *mut Cq, cap: QpCap) -> QpInitAttr {
    QpInitAttr {
        qp_context: std::ptr::null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: std::ptr::null_mut(),
        cap,
        qp_type: QpType::UC,
        sq_sig_all: 0,
    }
}

pub const INIT_MASK: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::ACCESS_FLAGS);
pub const RTR_MASK: QpAttrMask = QpAttrMask::STATE
    .union(QpAttrMask::AV)
    .union(QpAttrMask::PATH_MTU)
    .union(QpAttrMask::DEST_QPN)
    .union(QpAttrMask::RQ_PSN);
pub const RTS_MASK: QpAttrMask = QpAttrMask::STATE.union(QpAttrMask::SQ_PSN);

pub fn init_attr() -> QpAttr {
    QpAttr { qp_state: QpState::INIT, port_num: 1, qp_access_flags: AccessFlags::LOCAL_WRITE, ..QpAttr::default() }
}

pub fn rtr_attr(to: u32, dgid: Gid, sgid_index: u8) -> QpAttr {
    QpAttr {
        qp_state: QpState::RTR,
        path_mtu: Mtu::B1024,
        dest_qp_num: to,
        rq_psn: 7,
        ah_attr: AhAttr {
            grh: GlobalRoute { dgid, sgid_index, hop_limit: 255, ..GlobalRoute::default() },
            is_global: 1,
            port_num: 1,
            ..AhAttr::default()
        },
        ..QpAttr::default()
    }
}

pub fn rts_attr() -> QpAttr {
    QpAttr { qp_state: QpState::RTS, sq_psn: 7, ..QpAttr::default() }
}

/// One end of a connection: everything it takes, and memory of its own.
pub struct End {
    pub env: Env,
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub cq: *mut Cq,
    pub qp: *mut Qp,
    pub mr: *mut Mr,
    pub memory: *mut [u8],
}

/// Bytes of an end's memory: 16 frames of 4 KiB.
pub const MEMORY: usize = 16 * 4096;

impl End {
    pub fn new(env: &Env) -> Self {
        Self::with(env, CAP, |_| ())
    }

    pub fn with(env: &Env, cap: QpCap, change: impl FnOnce(&mut QpInitAttr)) -> Self {
        let context = env.open();
        let cq = env.create_cq(context, 64);
        Self::on(env, context, cq, cap, change)
    }

    /// An end on a context and a completion queue of its own, which go with it.
    pub fn on(env: &Env, context: *mut Context, cq: *mut Cq, cap: QpCap, change: impl FnOnce(&mut QpInitAttr)) -> Self {
        assert!(!cq.is_null());
        let pd = env.alloc_pd(context);
        assert!(!pd.is_null());
        let memory = Box::into_raw(vec![0_u8; MEMORY].into_boxed_slice());
        let mr = env.reg_mr(pd, memory, AccessFlags::LOCAL_WRITE);
        assert!(!mr.is_null());
        let mut init = uc(cq, cap);
        change(&mut init);
        let qp = env.create_qp(pd, &mut init);
        assert!(!qp.is_null(), "errno {}", errno());
        Self { env: env.clone(), context, pd, cq, qp, mr, memory }
    }

    pub fn number(&self) -> u32 {
        unsafe { (*self.qp).qp_num }
    }

    pub fn lkey(&self) -> u32 {
        unsafe { (*self.mr).lkey }
    }

    pub fn to_init(&self) {
        assert_eq!(self.env.modify(self.qp, &init_attr(), INIT_MASK), 0);
    }

    pub fn to_rtr(&self, peer: &Self) -> c_int {
        let (index, _) = self.env.gid(self.context);
        let (_, dgid) = peer.env.gid(peer.context);
        self.env.modify(self.qp, &rtr_attr(peer.number(), dgid, index), RTR_MASK)
    }

    pub fn to_rts(&self) {
        assert_eq!(self.env.modify(self.qp, &rts_attr(), RTS_MASK), 0);
    }

    /// An entry of its memory.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: (self.memory.cast::<u8>().expose_provenance() + offset) as u64, length, lkey: self.lkey() }
    }

    /// Registers its memory once more, with other rights.
    pub fn register(&self, access: AccessFlags) -> *mut Mr {
        let mr = self.env.reg_mr(self.pd, self.memory, access);
        assert!(!mr.is_null(), "errno {}", errno());
        mr
    }

    /// A place in its memory, as its peer names it.
    pub fn target(&self, mr: *mut Mr, offset: usize) -> Target {
        Target { addr: self.sge(offset, 0).addr, rkey: unsafe { (*mr).rkey } }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= MEMORY);
        unsafe { self.memory.cast::<u8>().add(offset).copy_from(bytes.as_ptr(), bytes.len()) };
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= MEMORY);
        let mut bytes = vec![0; length];
        unsafe { self.memory.cast::<u8>().add(offset).copy_to(bytes.as_mut_ptr(), length) };
        bytes
    }

    pub fn post_receive(&self, wr_id: u64, offset: usize, length: u32) {
        assert_eq!(post_recv(self.qp, &mut [receive(wr_id, self.sge(offset, length))]), (0, None));
    }

    pub fn post_send(&self, wr_id: u64, offset: usize, length: u32) {
        assert_eq!(post_send(self.qp, &mut [send(wr_id, self.sge(offset, length))]), (0, None));
    }

    pub fn poll(&self, count: usize) -> Vec<Wc> {
        self.env.poll(self.cq, count)
    }

    /// Destroys everything in order, and asserts that each call was granted.
    pub fn tear_down(self) {
        let (env, context) = (self.env.clone(), self.context);
        self.tear_down_to_context();
        assert_eq!(env.close(context), 0);
    }

    /// As [`End::tear_down`], but for the context.
    pub fn tear_down_to_context(self) {
        let env = &self.env;
        let answers =
            [env.dereg_mr(self.mr), env.destroy_qp(self.qp), env.destroy_cq(self.cq), env.dealloc_pd(self.pd)];
        assert_eq!(answers, [0; 4]);
        self.free_memory();
    }

    /// Frees the memory of an end whose region is gone.
    pub fn free_memory(self) {
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// Two ends connected to each other.
pub fn pair(env: &Env) -> (End, End) {
    connect(End::new(env), End::new(env))
}

pub fn connect(one: End, other: End) -> (End, End) {
    for (end, peer) in [(&one, &other), (&other, &one)] {
        end.to_init();
        assert_eq!(end.to_rtr(peer), 0);
        end.to_rts();
    }
    (one, other)
}

/// An end on its way to another thread.
pub struct Moved(pub End);

// SAFETY: verbs objects may be used from any thread, and an end is used by one at a time.
unsafe impl Send for Moved {}

impl Moved {
    /// The whole of it, so that a closure takes it as that.
    pub fn whole(self) -> Self {
        self
    }
}
