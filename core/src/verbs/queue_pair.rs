//! Queue pairs: how they are asked for, and what states they go through.

use core::ffi::c_void;

use crate::layout::{flag_word, layout, open_enum};
use crate::verbs::address::AhAttr;
use crate::verbs::completion::Cq;
use crate::verbs::context::Context;
use crate::verbs::memory_region::{AccessFlags, Pd};
use crate::verbs::port::Mtu;

open_enum! {
    /// `enum ibv_qp_type`
    QpType: u32 {
        RC = 2, "IBV_QPT_RC";
        UC = 3, "IBV_QPT_UC";
        UD = 4, "IBV_QPT_UD";
        RAW_PACKET = 8, "IBV_QPT_RAW_PACKET";
        XRC_SEND = 9, "IBV_QPT_XRC_SEND";
        XRC_RECV = 10, "IBV_QPT_XRC_RECV";
        DRIVER = 255, "IBV_QPT_DRIVER";
    }
}

open_enum! {
    /// `enum ibv_qp_state`
    QpState: u32 {
        RESET = 0, "IBV_QPS_RESET";
        INIT = 1, "IBV_QPS_INIT";
        RTR = 2, "IBV_QPS_RTR";
        RTS = 3, "IBV_QPS_RTS";
        SQD = 4, "IBV_QPS_SQD";
        SQE = 5, "IBV_QPS_SQE";
        ERR = 6, "IBV_QPS_ERR";
        UNKNOWN = 7, "IBV_QPS_UNKNOWN";
    }
}

flag_word! {
    /// `enum ibv_qp_attr_mask`
    QpAttrMask: u32 {
        STATE = 0x1, "IBV_QP_STATE";
        CUR_STATE = 0x2, "IBV_QP_CUR_STATE";
        EN_SQD_ASYNC_NOTIFY = 0x4, "IBV_QP_EN_SQD_ASYNC_NOTIFY";
        ACCESS_FLAGS = 0x8, "IBV_QP_ACCESS_FLAGS";
        PKEY_INDEX = 0x10, "IBV_QP_PKEY_INDEX";
        PORT = 0x20, "IBV_QP_PORT";
        QKEY = 0x40, "IBV_QP_QKEY";
        AV = 0x80, "IBV_QP_AV";
        PATH_MTU = 0x100, "IBV_QP_PATH_MTU";
        TIMEOUT = 0x200, "IBV_QP_TIMEOUT";
        RETRY_CNT = 0x400, "IBV_QP_RETRY_CNT";
        RNR_RETRY = 0x800, "IBV_QP_RNR_RETRY";
        RQ_PSN = 0x1000, "IBV_QP_RQ_PSN";
        MAX_QP_RD_ATOMIC = 0x2000, "IBV_QP_MAX_QP_RD_ATOMIC";
        ALT_PATH = 0x4000, "IBV_QP_ALT_PATH";
        MIN_RNR_TIMER = 0x8000, "IBV_QP_MIN_RNR_TIMER";
        SQ_PSN = 0x1_0000, "IBV_QP_SQ_PSN";
        MAX_DEST_RD_ATOMIC = 0x2_0000, "IBV_QP_MAX_DEST_RD_ATOMIC";
        PATH_MIG_STATE = 0x4_0000, "IBV_QP_PATH_MIG_STATE";
        CAP = 0x8_0000, "IBV_QP_CAP";
        DEST_QPN = 0x10_0000, "IBV_QP_DEST_QPN";
        RATE_LIMIT = 0x200_0000, "IBV_QP_RATE_LIMIT";
    }
}

flag_word! {
    /// `enum ibv_qp_init_attr_mask`
    CreateQpMask: u32 {
        PD = 0x1, "IBV_QP_INIT_ATTR_PD";
        XRCD = 0x2, "IBV_QP_INIT_ATTR_XRCD";
        CREATE_FLAGS = 0x4, "IBV_QP_INIT_ATTR_CREATE_FLAGS";
        MAX_TSO_HEADER = 0x8, "IBV_QP_INIT_ATTR_MAX_TSO_HEADER";
        IND_TABLE = 0x10, "IBV_QP_INIT_ATTR_IND_TABLE";
        RX_HASH = 0x20, "IBV_QP_INIT_ATTR_RX_HASH";
        SEND_OPS_FLAGS = 0x40, "IBV_QP_INIT_ATTR_SEND_OPS_FLAGS";
    }
}

flag_word! {
    /// `enum ibv_qp_create_send_ops_flags`
    SendOpsFlags: u64 {
        RDMA_WRITE = 0x1, "IBV_QP_EX_WITH_RDMA_WRITE";
        RDMA_WRITE_WITH_IMM = 0x2, "IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM";
        SEND = 0x4, "IBV_QP_EX_WITH_SEND";
        SEND_WITH_IMM = 0x8, "IBV_QP_EX_WITH_SEND_WITH_IMM";
        RDMA_READ = 0x10, "IBV_QP_EX_WITH_RDMA_READ";
        ATOMIC_CMP_AND_SWP = 0x20, "IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP";
        ATOMIC_FETCH_AND_ADD = 0x40, "IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD";
        LOCAL_INV = 0x80, "IBV_QP_EX_WITH_LOCAL_INV";
        BIND_MW = 0x100, "IBV_QP_EX_WITH_BIND_MW";
        SEND_WITH_INV = 0x200, "IBV_QP_EX_WITH_SEND_WITH_INV";
        TSO = 0x400, "IBV_QP_EX_WITH_TSO";
        FLUSH = 0x800, "IBV_QP_EX_WITH_FLUSH" since 45;
        ATOMIC_WRITE = 0x1000, "IBV_QP_EX_WITH_ATOMIC_WRITE" since 44;
    }
}

/// `struct ibv_qp_cap`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C)]
pub struct QpCap {
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receive requests outstanding.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes that a send may carry inline.
    pub max_inline_data: u32,
}

layout! {
    QpCap: "struct ibv_qp_cap", whole 20 align 4 {
        max_send_wr 0 4; max_recv_wr 4 4; max_send_sge 8 4; max_recv_sge 12 4; max_inline_data 16 4;
    }
}

/// `struct ibv_qp_init_attr`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QpInitAttr {
    /// The caller's word.
    pub qp_context: *mut c_void,
    /// Where sends complete.
    pub send_cq: *mut Cq,
    /// Where receives complete.
    pub recv_cq: *mut Cq,
    /// `struct ibv_srq`, or null.
    pub srq: *mut c_void,
    /// Sizes asked for; the library may write back what it gave.
    pub cap: QpCap,
    /// Service.
    pub qp_type: QpType,
    /// Whether every send makes a completion.
    pub sq_sig_all: i32,
}

layout! {
    QpInitAttr: "struct ibv_qp_init_attr", whole 64 align 8 {
        qp_context 0 8; send_cq 8 8; recv_cq 16 8; srq 24 8; cap 32 20; qp_type 52 4; sq_sig_all 56 4;
    }
}

/// `struct ibv_rx_hash_conf`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RxHashConf {
    /// Which function.
    pub rx_hash_function: u8,
    /// Bytes of the key.
    pub rx_hash_key_len: u8,
    /// The key.
    pub rx_hash_key: *mut u8,
    /// Which header fields.
    pub rx_hash_fields_mask: u64,
}

layout! {
    RxHashConf: "struct ibv_rx_hash_conf", whole 24 align 8 {
        rx_hash_function 0 1; rx_hash_key_len 1 1; rx_hash_key 8 8; rx_hash_fields_mask 16 8;
    }
}

/// `struct ibv_qp_init_attr_ex`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QpInitAttrEx {
    /// The caller's word.
    pub qp_context: *mut c_void,
    /// Where sends complete.
    pub send_cq: *mut Cq,
    /// Where receives complete.
    pub recv_cq: *mut Cq,
    /// `struct ibv_srq`, or null.
    pub srq: *mut c_void,
    /// Sizes asked for.
    pub cap: QpCap,
    /// Service.
    pub qp_type: QpType,
    /// Whether every send makes a completion.
    pub sq_sig_all: i32,
    /// Which of the fields below count.
    pub comp_mask: CreateQpMask,
    /// Protection domain.
    pub pd: *mut Pd,
    /// `struct ibv_xrcd`.
    pub xrcd: *mut c_void,
    /// Creation flags.
    pub create_flags: u32,
    /// Largest segmentation header.
    pub max_tso_header: u16,
    /// `struct ibv_rwq_ind_table`.
    pub rwq_ind_tbl: *mut c_void,
    /// Receive hashing.
    pub rx_hash_conf: RxHashConf,
    /// Source queue pair number.
    pub source_qpn: u32,
    /// Which work request builders will be used.
    pub send_ops_flags: SendOpsFlags,
}

layout! {
    QpInitAttrEx: "struct ibv_qp_init_attr_ex", whole 136 align 8 {
        qp_context 0 8; send_cq 8 8; recv_cq 16 8; srq 24 8; cap 32 20; qp_type 52 4; sq_sig_all 56 4; comp_mask 60 4;
        pd 64 8; xrcd 72 8; create_flags 80 4; max_tso_header 84 2; rwq_ind_tbl 88 8; rx_hash_conf 96 24;
        source_qpn 120 4; send_ops_flags 128 8;
    }
}

/// `struct ibv_qp_attr`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QpAttr {
    /// State to enter, or in.
    pub qp_state: QpState,
    /// State assumed.
    pub cur_qp_state: QpState,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Path migration state.
    pub path_mig_state: u32,
    /// Queue key.
    pub qkey: u32,
    /// Packet sequence number that the first packet received will have.
    pub rq_psn: u32,
    /// Packet sequence number of the first packet sent.
    pub sq_psn: u32,
    /// The other end's queue pair number.
    pub dest_qp_num: u32,
    /// What the other end may do.
    pub qp_access_flags: AccessFlags,
    /// Sizes.
    pub cap: QpCap,
    /// The path.
    pub ah_attr: AhAttr,
    /// The other path.
    pub alt_ah_attr: AhAttr,
    /// Partition key index.
    pub pkey_index: u16,
    /// Partition key index of the other path.
    pub alt_pkey_index: u16,
    /// Whether to report a drained send queue.
    pub en_sqd_async_notify: u8,
    /// Whether the send queue is draining.
    pub sq_draining: u8,
    /// Reads and atomics outstanding, as initiator.
    pub max_rd_atomic: u8,
    /// Reads and atomics outstanding, as responder.
    pub max_dest_rd_atomic: u8,
    /// How long a sender without a receive shall wait, coded.
    pub min_rnr_timer: u8,
    /// Port, counted from 1.
    pub port_num: u8,
    /// Time to the first retry: 4.096 microseconds times two to this power; 0 for never.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// Retries for want of a receive; 7 for ever.
    pub rnr_retry: u8,
    /// Port of the other path.
    pub alt_port_num: u8,
    /// Timeout of the other path.
    pub alt_timeout: u8,
    /// Rate limit, kb/s.
    pub rate_limit: u32,
}

layout! {
    QpAttr: "struct ibv_qp_attr", whole 144 align 8 {
        qp_state 0 4; cur_qp_state 4 4; path_mtu 8 4; path_mig_state 12 4; qkey 16 4; rq_psn 20 4; sq_psn 24 4;
        dest_qp_num 28 4; qp_access_flags 32 4; cap 36 20; ah_attr 56 32; alt_ah_attr 88 32; pkey_index 120 2;
        alt_pkey_index 122 2; en_sqd_async_notify 124 1; sq_draining 125 1; max_rd_atomic 126 1;
        max_dest_rd_atomic 127 1; min_rnr_timer 128 1; port_num 129 1; timeout 130 1; retry_cnt 131 1;
        rnr_retry 132 1; alt_port_num 133 1; alt_timeout 134 1; rate_limit 136 4;
    }
}

/// The start of `struct ibv_qp`, up to its mutex.
///
/// Made by the library only, never copied by value.
#[derive(Debug)]
#[repr(C)]
pub struct Qp {
    /// The device context it belongs to.
    pub context: *mut Context,
    /// The caller's word.
    pub qp_context: *mut c_void,
    /// The protection domain it belongs to.
    pub pd: *mut Pd,
    /// Where sends complete.
    pub send_cq: *mut Cq,
    /// Where receives complete.
    pub recv_cq: *mut Cq,
    /// `struct ibv_srq`, or null.
    pub srq: *mut c_void,
    /// The kernel's handle.
    pub handle: u32,
    /// Its number, 24 bits.
    pub qp_num: u32,
    /// State that the library believes it is in.
    pub state: QpState,
    /// Service.
    pub qp_type: QpType,
}

layout! {
    Qp: "struct ibv_qp", start 64 align 8 {
        context 0 8; qp_context 8 8; pd 16 8; send_cq 24 8; recv_cq 32 8; srq 40 8; handle 48 4; qp_num 52 4;
        state 56 4; qp_type 60 4;
    }
}
