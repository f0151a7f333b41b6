//! Work requests and the memory that they name.

use core::ffi::c_void;

use crate::layout::{flag_word, layout, open_enum};
use crate::verbs::big_endian::Be32;
use crate::verbs::memory_region::Mr;

/// `struct ibv_sge`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Where the bytes are, as the key addresses them.
    pub addr: u64,
    /// How many.
    pub length: u32,
    /// Key of the region that holds them.
    pub lkey: u32,
}

layout! {
    Sge: "struct ibv_sge", whole 16 align 8 {
        addr 0 8; length 8 4; lkey 12 4;
    }
}

open_enum! {
    /// `enum ibv_wr_opcode`
    WrOpcode: u32 {
        RDMA_WRITE = 0, "IBV_WR_RDMA_WRITE";
        RDMA_WRITE_WITH_IMM = 1, "IBV_WR_RDMA_WRITE_WITH_IMM";
        SEND = 2, "IBV_WR_SEND";
        SEND_WITH_IMM = 3, "IBV_WR_SEND_WITH_IMM";
        RDMA_READ = 4, "IBV_WR_RDMA_READ";
        ATOMIC_CMP_AND_SWP = 5, "IBV_WR_ATOMIC_CMP_AND_SWP";
        ATOMIC_FETCH_AND_ADD = 6, "IBV_WR_ATOMIC_FETCH_AND_ADD";
        LOCAL_INV = 7, "IBV_WR_LOCAL_INV";
        BIND_MW = 8, "IBV_WR_BIND_MW";
        SEND_WITH_INV = 9, "IBV_WR_SEND_WITH_INV";
        TSO = 10, "IBV_WR_TSO";
        DRIVER1 = 11, "IBV_WR_DRIVER1";
        FLUSH = 14, "IBV_WR_FLUSH" since 45;
        ATOMIC_WRITE = 15, "IBV_WR_ATOMIC_WRITE" since 44;
    }
}

flag_word! {
    /// `enum ibv_send_flags`
    SendFlags: u32 {
        FENCE = 1, "IBV_SEND_FENCE";
        SIGNALED = 2, "IBV_SEND_SIGNALED";
        SOLICITED = 4, "IBV_SEND_SOLICITED";
        INLINE = 8, "IBV_SEND_INLINE";
        IP_CSUM = 16, "IBV_SEND_IP_CSUM";
    }
}

/// `ibv_send_wr.wr.rdma`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RdmaTarget {
    /// Address at the other end, as its key addresses it.
    pub remote_addr: u64,
    /// The other end's key.
    pub rkey: u32,
}

layout! { RdmaTarget: "struct ibv_send_wr.wr.rdma", whole 16 align 8 { remote_addr 0 8; rkey 8 4; } }

/// `ibv_send_wr.wr.atomic`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AtomicTarget {
    /// Address at the other end, a multiple of 8.
    pub remote_addr: u64,
    /// What to compare with, or to add.
    pub compare_add: u64,
    /// What to store.
    pub swap: u64,
    /// The other end's key.
    pub rkey: u32,
}

layout! { AtomicTarget: "struct ibv_send_wr.wr.atomic", whole 32 align 8 { remote_addr 0 8; compare_add 8 8; swap 16 8; rkey 24 4; } }

/// `ibv_send_wr.wr.ud`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UdTarget {
    /// `struct ibv_ah`.
    pub ah: *mut c_void,
    /// The other end's queue pair number.
    pub remote_qpn: u32,
    /// The other end's queue key.
    pub remote_qkey: u32,
}

layout! { UdTarget: "struct ibv_send_wr.wr.ud", whole 16 align 8 { ah 0 8; remote_qpn 8 4; remote_qkey 12 4; } }

/// `ibv_send_wr.wr`: which member counts depends on the opcode and the queue pair's type.
#[derive(Clone, Copy)]
#[repr(C)]
pub union SendTarget {
    /// RDMA read and write.
    pub rdma: RdmaTarget,
    /// Atomics.
    pub atomic: AtomicTarget,
    /// Datagrams.
    pub ud: UdTarget,
}

/// `ibv_send_wr.qp_type.xrc`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct XrcTarget {
    /// The other end's shared receive queue.
    pub remote_srqn: u32,
}

layout! { XrcTarget: "struct ibv_send_wr.qp_type.xrc", whole 4 align 4 { remote_srqn 0 4; } }

/// `ibv_send_wr.qp_type`: a union of one member in C.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TypeTarget {
    /// Extended reliable connected.
    pub xrc: XrcTarget,
}

layout! { TypeTarget: "struct ibv_send_wr.qp_type", whole 4 align 4 { xrc 0 4; } }

/// `struct ibv_mw_bind_info`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MwBindInfo {
    /// The region to bind to.
    pub mr: *mut Mr,
    /// Where the window starts.
    pub addr: u64,
    /// Its length, bytes.
    pub length: u64,
    /// What it permits.
    pub mw_access_flags: u32,
}

layout! {
    MwBindInfo: "struct ibv_mw_bind_info", whole 32 align 8 {
        mr 0 8; addr 8 8; length 16 8; mw_access_flags 24 4;
    }
}

/// `ibv_send_wr.bind_mw`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BindMw {
    /// `struct ibv_mw`.
    pub mw: *mut c_void,
    /// The key it gets.
    pub rkey: u32,
    /// What it covers.
    pub bind_info: MwBindInfo,
}

layout! { BindMw: "struct ibv_send_wr.bind_mw", whole 48 align 8 { mw 0 8; rkey 8 4; bind_info 16 32; } }

/// `ibv_send_wr.tso`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tso {
    /// The header to repeat.
    pub hdr: *mut c_void,
    /// Its length, bytes.
    pub hdr_sz: u16,
    /// Segment size, bytes.
    pub mss: u16,
}

layout! { Tso: "struct ibv_send_wr.tso", whole 16 align 8 { hdr 0 8; hdr_sz 8 2; mss 10 2; } }

/// The unnamed union at the end of `ibv_send_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub union SendTail {
    /// For binding a memory window.
    pub bind_mw: BindMw,
    /// For segmentation.
    pub tso: Tso,
}

/// `struct ibv_send_wr`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SendWr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The next request of the chain, or null.
    pub next: *mut SendWr,
    /// The memory to gather from.
    pub sg_list: *mut Sge,
    /// How many entries.
    pub num_sge: i32,
    /// What to do.
    pub opcode: WrOpcode,
    /// How.
    pub send_flags: SendFlags,
    /// Immediate data; in C a union with `invalidate_rkey`.
    pub imm_data: Be32,
    /// Where to, for one-sided operations and datagrams.
    pub wr: SendTarget,
    /// Where to, for extended reliable connected queue pairs.
    pub qp_type: TypeTarget,
    /// `bind_mw` or `tso`.
    pub tail: SendTail,
}

layout! {
    SendWr: "struct ibv_send_wr", whole 128 align 8 {
        wr_id 0 8; next 8 8; sg_list 16 8; num_sge 24 4; opcode 28 4; send_flags 32 4; imm_data 36 4; wr 40 32;
        qp_type 72 4; tail as "bind_mw" 80 48;
    }
    inner {
        imm_data as "invalidate_rkey" 36 4;
        wr.rdma 40 16;
        wr.rdma.remote_addr 40 8;
        wr.rdma.rkey 48 4;
        wr.atomic 40 32;
        wr.atomic.remote_addr 40 8;
        wr.atomic.compare_add 48 8;
        wr.atomic.swap 56 8;
        wr.atomic.rkey 64 4;
        wr.ud 40 16;
        wr.ud.ah 40 8;
        wr.ud.remote_qpn 48 4;
        wr.ud.remote_qkey 52 4;
        qp_type.xrc 72 4;
        qp_type.xrc.remote_srqn 72 4;
        tail.bind_mw.mw as "bind_mw.mw" 80 8;
        tail.bind_mw.rkey as "bind_mw.rkey" 88 4;
        tail.bind_mw.bind_info as "bind_mw.bind_info" 96 32;
        tail.tso as "tso" 80 16;
        tail.tso.hdr as "tso.hdr" 80 8;
        tail.tso.hdr_sz as "tso.hdr_sz" 88 2;
        tail.tso.mss as "tso.mss" 90 2;
    }
}

impl SendWr {
    /// A request with every word zero: an RDMA write of nothing, to be filled in.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        next: core::ptr::null_mut(),
        sg_list: core::ptr::null_mut(),
        num_sge: 0,
        opcode: WrOpcode(0),
        send_flags: SendFlags::empty(),
        imm_data: Be32::new(0),
        wr: SendTarget { atomic: AtomicTarget { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 } },
        qp_type: TypeTarget { xrc: XrcTarget { remote_srqn: 0 } },
        tail: SendTail {
            bind_mw: BindMw {
                mw: core::ptr::null_mut(),
                rkey: 0,
                bind_info: MwBindInfo { mr: core::ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 },
            },
        },
    };
}

/// `struct ibv_recv_wr`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RecvWr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The next request of the chain, or null.
    pub next: *mut RecvWr,
    /// The memory to scatter to.
    pub sg_list: *mut Sge,
    /// How many entries.
    pub num_sge: i32,
}

layout! {
    RecvWr: "struct ibv_recv_wr", whole 32 align 8 {
        wr_id 0 8; next 8 8; sg_list 16 8; num_sge 24 4;
    }
}

impl RecvWr {
    /// A request with every word zero.
    pub const EMPTY: Self = Self { wr_id: 0, next: core::ptr::null_mut(), sg_list: core::ptr::null_mut(), num_sge: 0 };
}
