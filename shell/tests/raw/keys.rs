//! Indirect keys, and the queue pair that binds them.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls a table with handles that the test owns")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::{c_int, c_void};

use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_core::verbs::mlx5dv::{
    DcInitAttr, DcKeyOrStreams, Mkey, MkeyFlags, MkeyInitAttr, Mlx5QpInitAttr, Mlx5QpMask, Mlx5SendOps,
};
use bareverbs_core::verbs::{
    AccessFlags, Cq, CreateQpMask, Mr, Qp, QpAttr, QpCap, QpInitAttrEx, QpType, SendOpsFlags, Sge, Wc,
};
use bareverbs_shell::symbols::mr_list::{Binding, MrListBuilder};
use bareverbs_shell::symbols::{Mlx5Symbols, Symbols};

use super::calls::{Env, errno, name_of};
use super::ends::{End, INIT_MASK, init_attr, rtr_attr};
use super::one_sided::{ALL, Target};
use super::reliable::{PATIENT, RC_RTR_MASK, RC_RTS_MASK, rc_rtr_attr, rc_rts_attr};

/// Whether the provider takes a device for its own.
pub fn is_supported(symbols: &Symbols, mlx5: &Mlx5Symbols, device: &str) -> bool {
    unsafe {
        let mut count = 0;
        let list = (symbols.get_device_list)(&mut count);
        assert!(!list.is_null(), "errno {}", errno());
        let found = (0..count as usize).map(|at| *list.add(at)).find(|entry| name_of(symbols, *entry) == device);
        let supported = (mlx5.is_supported)(found.expect("the device is listed"));
        (symbols.free_device_list)(list);
        supported
    }
}

/// What an mlx5 queue pair is made with besides.
pub const LISTS: Mlx5QpInitAttr = Mlx5QpInitAttr {
    comp_mask: Mlx5QpMask::SEND_OPS_FLAGS,
    create_flags: 0,
    dc_init_attr: DcInitAttr { dc_type: 0, key_or_streams: DcKeyOrStreams { dct_access_key: 0 } },
    send_ops_flags: Mlx5SendOps::MR_LIST.union(Mlx5SendOps::MKEY_CONFIGURE),
};

/// The sizes of a queue pair that binds: 30 entries to a binding, which come out as 32.
pub const BINDER_CAP: QpCap =
    QpCap { max_send_wr: 16, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 16 * 30 - 4 };

/// What an extended queue pair of an end is made with.
pub fn extended(end: &End, cq: *mut Cq, cap: QpCap) -> QpInitAttrEx {
    let null = std::ptr::null_mut::<c_void>();
    QpInitAttrEx {
        qp_context: null,
        send_cq: cq,
        recv_cq: cq,
        srq: null,
        cap,
        qp_type: QpType::RC,
        sq_sig_all: 0,
        comp_mask: CreateQpMask::PD | CreateQpMask::SEND_OPS_FLAGS,
        pd: end.pd,
        xrcd: null,
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: null,
        rx_hash_conf: bareverbs_core::verbs::queue_pair::RxHashConf {
            rx_hash_function: 0,
            rx_hash_key_len: 0,
            rx_hash_key: std::ptr::null_mut(),
            rx_hash_fields_mask: 0,
        },
        source_qpn: 0,
        send_ops_flags: SendOpsFlags::RDMA_WRITE | SendOpsFlags::SEND | SendOpsFlags::RDMA_READ,
    }
}

/// Makes an extended queue pair; null where it is refused.
pub fn create_mlx5_qp(end: &End, attr: &mut QpInitAttrEx, mlx5: Option<Mlx5QpInitAttr>) -> *mut Qp {
    let mut mlx5 = mlx5;
    let more = mlx5.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    unsafe { (provider(&end.env).create_qp)(end.context, attr, more) }
}

pub fn provider(env: &Env) -> &Mlx5Symbols {
    env.mlx5.as_ref().expect("cases of keys run with a provider")
}

/// Makes a key; null where it is refused. What `max_entries` was rounded to comes with it.
pub fn create_key(end: &End, flags: MkeyFlags, max_entries: u16) -> (*mut Mkey, u16) {
    let mut attr = MkeyInitAttr { pd: end.pd, create_flags: flags, max_entries };
    let key = unsafe { (provider(&end.env).create_mkey)(&mut attr) };
    (key, attr.max_entries)
}

/// A key for so many regions.
pub fn key(end: &End, max_entries: u16) -> *mut Mkey {
    let (key, _) = create_key(end, MkeyFlags::INDIRECT, max_entries);
    assert!(!key.is_null(), "errno {}", errno());
    key
}

pub fn destroy_key(env: &Env, key: *mut Mkey) -> c_int {
    unsafe { (provider(env).destroy_mkey)(key) }
}

pub fn lkey(key: *mut Mkey) -> u32 {
    unsafe { (*key).lkey }
}

/// A place in the range that a key presents, as the other end names it.
pub fn at(key: *mut Mkey, offset: u64) -> Target {
    Target { addr: offset, rkey: unsafe { (*key).rkey } }
}

/// The same as an entry of the own end.
pub fn entry(key: *mut Mkey, offset: u64, length: u32) -> Sge {
    Sge { addr: offset, length, lkey: lkey(key) }
}

/// The whole of a region as an entry of a key's list.
pub fn listed(mr: *mut Mr) -> Sge {
    unsafe { Sge { addr: (*mr).addr.addr() as u64, length: (*mr).length as u32, lkey: (*mr).lkey } }
}

/// A queue pair that binds keys of an end's domain, connected to itself, with its own completion queue.
pub struct Binder {
    pub env: Env,
    pub cq: *mut Cq,
    pub qp: *mut Qp,
    pub builder: MrListBuilder,
    /// The sizes that it got.
    pub cap: QpCap,
}

impl Binder {
    pub fn new(end: &End) -> Self {
        Self::with(end, BINDER_CAP)
    }

    pub fn with(end: &End, cap: QpCap) -> Self {
        let env = &end.env;
        let cq = env.create_cq(end.context, 64);
        assert!(!cq.is_null());
        let mut attr = extended(end, cq, cap);
        let qp = create_mlx5_qp(end, &mut attr, Some(LISTS));
        assert!(!qp.is_null(), "errno {}", errno());
        let builder = unsafe { MrListBuilder::of(&env.symbols, provider(env), qp) }.expect("it has its builders");
        let this = Self { env: env.clone(), cq, qp, builder, cap: attr.cap };
        this.connect(end);
        this
    }

    /// Connects it to itself.
    pub fn connect(&self, end: &End) {
        let env = &self.env;
        let access = QpAttr { qp_access_flags: ALL, ..init_attr() };
        assert_eq!(env.modify(self.qp, &access, INIT_MASK), 0);
        let (index, gid) = env.gid(end.context);
        let number = unsafe { (*self.qp).qp_num };
        let rtr = rc_rtr_attr(rtr_attr(number, gid, index));
        assert_eq!(env.modify(self.qp, &rtr, RC_RTR_MASK), 0);
        assert_eq!(env.modify(self.qp, &rc_rts_attr(PATIENT), RC_RTS_MASK), 0);
    }

    /// Posts a binding.
    pub fn post(&mut self, wr_id: u64, key: *mut Mkey, access: AccessFlags, entries: &[Sge]) -> Result<(), c_int> {
        let binding = Binding { wr_id, key, access, entries };
        unsafe { self.builder.post(&binding) }.map_err(|RawErrno(returned)| returned)
    }

    /// Posts a binding and waits for it.
    pub fn bind(&mut self, key: *mut Mkey, access: AccessFlags, entries: &[Sge]) -> Wc {
        assert_eq!(self.post(77, key, access, entries), Ok(()));
        self.env.poll(self.cq, 1)[0]
    }

    pub fn tear_down(self) {
        assert_eq!([self.env.destroy_qp(self.qp), self.env.destroy_cq(self.cq)], [0; 2]);
    }
}
