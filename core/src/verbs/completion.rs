//! Completions, completion queues and channels.

use core::ffi::c_void;

use crate::layout::{flag_word, layout, open_enum};
use crate::verbs::big_endian::Be32;
use crate::verbs::context::Context;

open_enum! {
    /// `enum ibv_wc_status`
    WcStatus: u32 {
        SUCCESS = 0, "IBV_WC_SUCCESS";
        LOC_LEN_ERR = 1, "IBV_WC_LOC_LEN_ERR";
        LOC_QP_OP_ERR = 2, "IBV_WC_LOC_QP_OP_ERR";
        LOC_EEC_OP_ERR = 3, "IBV_WC_LOC_EEC_OP_ERR";
        LOC_PROT_ERR = 4, "IBV_WC_LOC_PROT_ERR";
        WR_FLUSH_ERR = 5, "IBV_WC_WR_FLUSH_ERR";
        MW_BIND_ERR = 6, "IBV_WC_MW_BIND_ERR";
        BAD_RESP_ERR = 7, "IBV_WC_BAD_RESP_ERR";
        LOC_ACCESS_ERR = 8, "IBV_WC_LOC_ACCESS_ERR";
        REM_INV_REQ_ERR = 9, "IBV_WC_REM_INV_REQ_ERR";
        REM_ACCESS_ERR = 10, "IBV_WC_REM_ACCESS_ERR";
        REM_OP_ERR = 11, "IBV_WC_REM_OP_ERR";
        RETRY_EXC_ERR = 12, "IBV_WC_RETRY_EXC_ERR";
        RNR_RETRY_EXC_ERR = 13, "IBV_WC_RNR_RETRY_EXC_ERR";
        LOC_RDD_VIOL_ERR = 14, "IBV_WC_LOC_RDD_VIOL_ERR";
        REM_INV_RD_REQ_ERR = 15, "IBV_WC_REM_INV_RD_REQ_ERR";
        REM_ABORT_ERR = 16, "IBV_WC_REM_ABORT_ERR";
        INV_EECN_ERR = 17, "IBV_WC_INV_EECN_ERR";
        INV_EEC_STATE_ERR = 18, "IBV_WC_INV_EEC_STATE_ERR";
        FATAL_ERR = 19, "IBV_WC_FATAL_ERR";
        RESP_TIMEOUT_ERR = 20, "IBV_WC_RESP_TIMEOUT_ERR";
        GENERAL_ERR = 21, "IBV_WC_GENERAL_ERR";
        TM_ERR = 22, "IBV_WC_TM_ERR";
        TM_RNDV_INCOMPLETE = 23, "IBV_WC_TM_RNDV_INCOMPLETE";
    }
}

impl WcStatus {
    /// The words that `ibv_wc_status_str` of rdma-core 44.0 prints, for libraries that lack it.
    #[doc(alias = "ibv_wc_status_str")]
    pub const fn text(self) -> &'static str {
        match self.0 {
            0 => "success",
            1 => "local length error",
            2 => "local QP operation error",
            3 => "local EE context operation error",
            4 => "local protection error",
            5 => "Work Request Flushed Error",
            6 => "memory management operation error",
            7 => "bad response error",
            8 => "local access error",
            9 => "remote invalid request error",
            10 => "remote access error",
            11 => "remote operation error",
            12 => "transport retry counter exceeded",
            13 => "RNR retry counter exceeded",
            14 => "local RDD violation error",
            15 => "remote invalid RD request",
            16 => "aborted error",
            17 => "invalid EE context number",
            18 => "invalid EE context state",
            19 => "fatal error",
            20 => "response timeout error",
            21 => "general error",
            22 => "TM error",
            23 => "TM software rendezvous",
            _ => "unknown",
        }
    }
}

open_enum! {
    /// `enum ibv_wc_opcode`
    WcOpcode: u32 {
        SEND = 0, "IBV_WC_SEND";
        RDMA_WRITE = 1, "IBV_WC_RDMA_WRITE";
        RDMA_READ = 2, "IBV_WC_RDMA_READ";
        COMP_SWAP = 3, "IBV_WC_COMP_SWAP";
        FETCH_ADD = 4, "IBV_WC_FETCH_ADD";
        BIND_MW = 5, "IBV_WC_BIND_MW";
        LOCAL_INV = 6, "IBV_WC_LOCAL_INV";
        TSO = 7, "IBV_WC_TSO";
        FLUSH = 8, "IBV_WC_FLUSH" since 45;
        ATOMIC_WRITE = 9, "IBV_WC_ATOMIC_WRITE" since 44;
        RECV = 128, "IBV_WC_RECV";
        RECV_RDMA_WITH_IMM = 129, "IBV_WC_RECV_RDMA_WITH_IMM";
        TM_ADD = 130, "IBV_WC_TM_ADD";
        TM_DEL = 131, "IBV_WC_TM_DEL";
        TM_SYNC = 132, "IBV_WC_TM_SYNC";
        TM_RECV = 133, "IBV_WC_TM_RECV";
        TM_NO_TAG = 134, "IBV_WC_TM_NO_TAG";
        DRIVER1 = 135, "IBV_WC_DRIVER1";
        DRIVER2 = 136, "IBV_WC_DRIVER2";
        DRIVER3 = 137, "IBV_WC_DRIVER3";
    }
}

impl WcOpcode {
    /// Whether the completion is of a receive: bit 7.
    #[inline]
    pub const fn is_receive(self) -> bool {
        self.0 & 128 != 0
    }
}

flag_word! {
    /// `enum ibv_wc_flags`
    WcFlags: u32 {
        GRH = 1, "IBV_WC_GRH";
        WITH_IMM = 2, "IBV_WC_WITH_IMM";
        IP_CSUM_OK = 4, "IBV_WC_IP_CSUM_OK";
        WITH_INV = 8, "IBV_WC_WITH_INV";
        TM_SYNC_REQ = 16, "IBV_WC_TM_SYNC_REQ";
        TM_MATCH = 32, "IBV_WC_TM_MATCH";
        TM_DATA_VALID = 64, "IBV_WC_TM_DATA_VALID";
    }
}

/// `struct ibv_wc`
///
/// When `status` is not success, only `wr_id`, `status`, `qp_num` and `vendor_err` mean anything: [`Wc::outcome`] hands
/// out no more than that.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Wc {
    /// What the request carried.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What was done.
    pub opcode: WcOpcode,
    /// The provider's own code of the failure.
    pub vendor_err: u32,
    /// Bytes received.
    pub byte_len: u32,
    /// Immediate data; in C a union with `invalidated_rkey`.
    pub imm_data: Be32,
    /// The own queue pair's number.
    pub qp_num: u32,
    /// The sender's queue pair number, on datagrams.
    pub src_qp: u32,
    /// Which fields mean anything.
    pub wc_flags: WcFlags,
    /// Partition key index, on some queue pairs.
    pub pkey_index: u16,
    /// The sender's LID, on datagrams.
    pub slid: u16,
    /// Service level, on datagrams.
    pub sl: u8,
    /// Low bits of the own LID, on datagrams.
    pub dlid_path_bits: u8,
}

layout! {
    Wc: "struct ibv_wc", whole 48 align 8 {
        wr_id 0 8; status 8 4; opcode 12 4; vendor_err 16 4; byte_len 20 4; imm_data 24 4; qp_num 28 4; src_qp 32 4;
        wc_flags 36 4; pkey_index 40 2; slid 42 2; sl 44 1; dlid_path_bits 45 1;
    }
    inner { imm_data as "invalidated_rkey" 24 4; }
}

/// What a failed completion says: nothing else of it is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct FailedCompletion {
    /// What the request carried.
    pub wr_id: u64,
    /// How it ended; never success.
    pub status: WcStatus,
    /// The own queue pair's number.
    pub qp_num: u32,
    /// The provider's own code; 0 from soft-RoCE.
    pub vendor_err: u32,
}

impl core::fmt::Display for FailedCompletion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "completion of wr_id {:#x} on queue pair {} failed: {} (status {}, {}; vendor code {:#x})",
            self.wr_id,
            self.qp_num,
            self.status.text(),
            self.status.0,
            self.status.name().unwrap_or("unknown"),
            self.vendor_err
        )
    }
}

impl core::error::Error for FailedCompletion {}

impl Wc {
    /// The completion if it succeeded, else the four fields that mean anything.
    #[inline]
    pub const fn outcome(&self) -> Result<&Self, FailedCompletion> {
        if self.status.0 == 0 {
            Ok(self)
        } else {
            Err(FailedCompletion {
                wr_id: self.wr_id,
                status: self.status,
                qp_num: self.qp_num,
                vendor_err: self.vendor_err,
            })
        }
    }

    /// The immediate data, where the flag says that there is any.
    #[inline]
    pub const fn immediate(&self) -> Option<u32> {
        if self.wc_flags.contains(WcFlags::WITH_IMM) { Some(self.imm_data.get()) } else { None }
    }
}

/// `struct ibv_comp_channel`
///
/// Made by the library only.
#[derive(Debug)]
#[repr(C)]
pub struct CompChannel {
    /// The device context it belongs to.
    pub context: *mut Context,
    /// To poll for events; an IOKit port on macOS.
    pub fd: i32,
    /// Completion queues on it.
    pub refcnt: i32,
}

layout! {
    CompChannel: "struct ibv_comp_channel", whole 16 align 8 {
        context 0 8; fd 8 4; refcnt 12 4;
    }
}

/// The start of `struct ibv_cq`, up to its mutex.
///
/// Made by the library only, never copied by value.
#[derive(Debug)]
#[repr(C)]
pub struct Cq {
    /// The device context it belongs to.
    pub context: *mut Context,
    /// The channel it reports to, or null.
    pub channel: *mut CompChannel,
    /// The caller's word.
    pub cq_context: *mut c_void,
    /// The kernel's handle.
    pub handle: u32,
    /// Entries it holds.
    pub cqe: i32,
}

layout! {
    Cq: "struct ibv_cq", start 32 align 8 {
        context 0 8; channel 8 8; cq_context 16 8; handle 24 4; cqe 28 4;
    }
}
