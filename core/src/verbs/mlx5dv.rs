//! What binding an mlx5 indirect key needs of `<infiniband/mlx5dv.h>`, and of the extended queue pair.

use core::ffi::c_void;

use crate::layout::{TargetOffset, flag_word, layout};
use crate::verbs::memory_region::Pd;
use crate::verbs::work_request::Sge;

/// `struct ibv_qp_ex`
///
/// Everything in it but the [`Qp`](crate::verbs::Qp) at its start lies behind a mutex and a condition variable, so it has
/// no mirror: its fields are reached by [`qp_ex`] offsets.
#[derive(Debug)]
#[repr(C)]
pub struct QpEx {
    _opaque: [u8; 0],
}

const GLIBC: Option<usize> = if cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")) {
    Some(0)
} else if cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "aarch64")) {
    // The mutex of aarch64 glibc is 8 bytes longer.
    Some(8)
} else {
    None
};

macro_rules! qp_ex_offsets {
    ($( $name:ident = $field:literal $offset:literal $($newer:ident)?; )*) => {
        /// Offsets into `struct ibv_qp_ex` on this target, in bytes; `None` where nobody has measured them.
        ///
        /// Measured on x86_64 glibc; aarch64 glibc is 8 bytes further on, where its longer mutex puts it.
        pub mod qp_ex {
            use super::GLIBC;
            $(
                #[doc = concat!("`ibv_qp_ex.", $field, "`")]
                pub const $name: Option<usize> = match GLIBC { Some(shift) => Some($offset + shift), None => None };
            )*
        }
        /// The same as rows, for the C compiler.
        pub const QP_EX_OFFSETS: &[TargetOffset] = &[
            $( TargetOffset {
                c_type: "struct ibv_qp_ex",
                c_name: $field,
                offset_bytes: qp_ex::$name,
                newer: layout!(@newer $($newer)?),
            }, )*
        ];
    };
}

qp_ex_offsets! {
    COMP_MASK = "comp_mask" 160;
    WR_ID = "wr_id" 168;
    WR_FLAGS = "wr_flags" 176;
    WR_ATOMIC_CMP_SWP = "wr_atomic_cmp_swp" 184;
    WR_ATOMIC_FETCH_ADD = "wr_atomic_fetch_add" 192;
    WR_BIND_MW = "wr_bind_mw" 200;
    WR_LOCAL_INV = "wr_local_inv" 208;
    WR_RDMA_READ = "wr_rdma_read" 216;
    WR_RDMA_WRITE = "wr_rdma_write" 224;
    WR_RDMA_WRITE_IMM = "wr_rdma_write_imm" 232;
    WR_SEND = "wr_send" 240;
    WR_SEND_IMM = "wr_send_imm" 248;
    WR_SEND_INV = "wr_send_inv" 256;
    WR_SEND_TSO = "wr_send_tso" 264;
    WR_SET_UD_ADDR = "wr_set_ud_addr" 272;
    WR_SET_XRC_SRQN = "wr_set_xrc_srqn" 280;
    WR_SET_INLINE_DATA = "wr_set_inline_data" 288;
    WR_SET_INLINE_DATA_LIST = "wr_set_inline_data_list" 296;
    WR_SET_SGE = "wr_set_sge" 304;
    WR_SET_SGE_LIST = "wr_set_sge_list" 312;
    WR_START = "wr_start" 320;
    WR_COMPLETE = "wr_complete" 328;
    WR_ABORT = "wr_abort" 336;
    WR_ATOMIC_WRITE = "wr_atomic_write" 344 newer;
    WR_FLUSH = "wr_flush" 352 newer;
}

/// Size of `struct ibv_qp_ex` in headers without a member: 344 before rdma-core 44, 352 before 45, 360 since.
pub const QP_EX_SIZES: [(&str, usize); 2] = [("wr_atomic_write", 344), ("wr_flush", 352)];
/// Size of `struct ibv_qp_ex` on x86_64 glibc in the newest header known.
pub const QP_EX_BYTES: usize = 360;

/// `struct mlx5dv_mkey`
///
/// Made by the library only. A key's length cannot be read back.
#[derive(Debug)]
#[repr(C)]
pub struct Mkey {
    /// Key for the own device.
    pub lkey: u32,
    /// Key for others.
    pub rkey: u32,
}

layout! {
    Mkey: "struct mlx5dv_mkey", whole 8 align 4 {
        lkey 0 4; rkey 4 4;
    }
}

flag_word! {
    /// `enum mlx5dv_mkey_init_attr_flags`
    MkeyFlags: u32 {
        INDIRECT = 1, "MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT";
        BLOCK_SIGNATURE = 2, "MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE";
        CRYPTO = 4, "MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO";
        UPDATE_TAG = 8, "MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG";
        REMOTE_INVALIDATE = 16, "MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE";
    }
}

/// `struct mlx5dv_mkey_init_attr`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MkeyInitAttr {
    /// Protection domain.
    pub pd: *mut Pd,
    /// What the key is for; 0 is refused.
    pub create_flags: MkeyFlags,
    /// Regions it can name; rounded up to a multiple of 4 and written back.
    pub max_entries: u16,
}

layout! {
    MkeyInitAttr: "struct mlx5dv_mkey_init_attr", whole 16 align 8 {
        pd 0 8; create_flags 8 4; max_entries 12 2;
    }
}

flag_word! {
    /// `enum mlx5dv_qp_init_attr_mask`
    Mlx5QpMask: u64 {
        CREATE_FLAGS = 1, "MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS";
        DC = 2, "MLX5DV_QP_INIT_ATTR_MASK_DC";
        SEND_OPS_FLAGS = 4, "MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS";
        DCI_STREAMS = 8, "MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS";
    }
}

flag_word! {
    /// `enum mlx5dv_qp_create_send_ops_flags`
    Mlx5SendOps: u64 {
        MR_INTERLEAVED = 1, "MLX5DV_QP_EX_WITH_MR_INTERLEAVED";
        MR_LIST = 2, "MLX5DV_QP_EX_WITH_MR_LIST";
        MKEY_CONFIGURE = 4, "MLX5DV_QP_EX_WITH_MKEY_CONFIGURE";
        RAW_WQE = 8, "MLX5DV_QP_EX_WITH_RAW_WQE";
        MEMCPY = 16, "MLX5DV_QP_EX_WITH_MEMCPY";
    }
}

/// `struct mlx5dv_dci_streams`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DciStreams {
    /// Streams at a time, as a power of two.
    pub log_num_concurent: u8,
    /// Streams that may fail, as a power of two.
    pub log_num_errored: u8,
}

layout! {
    DciStreams: "struct mlx5dv_dci_streams", whole 2 align 1 {
        log_num_concurent 0 1; log_num_errored 1 1;
    }
}

/// `mlx5dv_dc_init_attr.dct_access_key` or `.dci_streams`.
#[derive(Clone, Copy)]
#[repr(C)]
pub union DcKeyOrStreams {
    /// For a target.
    pub dct_access_key: u64,
    /// For an initiator.
    pub dci_streams: DciStreams,
}

/// `struct mlx5dv_dc_init_attr`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DcInitAttr {
    /// Initiator or target.
    pub dc_type: u32,
    /// The target's key, or the initiator's streams.
    pub key_or_streams: DcKeyOrStreams,
}

layout! {
    DcInitAttr: "struct mlx5dv_dc_init_attr", whole 16 align 8 {
        dc_type 0 4; key_or_streams as "dct_access_key" 8 8;
    }
    inner { key_or_streams.dci_streams as "dci_streams" 8 2; }
}

/// `struct mlx5dv_qp_init_attr`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Mlx5QpInitAttr {
    /// Which of the fields below count.
    pub comp_mask: Mlx5QpMask,
    /// Creation flags.
    pub create_flags: u32,
    /// For dynamically connected queue pairs.
    pub dc_init_attr: DcInitAttr,
    /// Which work request builders will be used.
    pub send_ops_flags: Mlx5SendOps,
}

layout! {
    Mlx5QpInitAttr: "struct mlx5dv_qp_init_attr", whole 40 align 8 {
        comp_mask 0 8; create_flags 8 4; dc_init_attr 16 16; send_ops_flags 32 8;
    }
}

/// `mlx5dv_qp_ex.wr_mr_list`
pub type WrMrListFn = unsafe extern "C" fn(*mut Mlx5QpEx, *mut Mkey, u32, u16, *mut Sge);

/// `struct mlx5dv_qp_ex`
///
/// Made by the library only. Of its builders only `wr_mr_list` is called.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "builders that are not called have a name and nothing else")]
pub struct Mlx5QpEx {
    /// Extensions.
    pub comp_mask: u64,
    pub wr_set_dc_addr: *mut c_void,
    pub wr_mr_interleaved: *mut c_void,
    /// Gives an indirect key its list of regions.
    pub wr_mr_list: Option<WrMrListFn>,
    pub wr_mkey_configure: *mut c_void,
    pub wr_set_mkey_access_flags: *mut c_void,
    pub wr_set_mkey_layout_list: *mut c_void,
    pub wr_set_mkey_layout_interleaved: *mut c_void,
    pub wr_set_mkey_sig_block: *mut c_void,
    pub wr_raw_wqe: *mut c_void,
    pub wr_set_dc_addr_stream: *mut c_void,
    pub wr_memcpy: *mut c_void,
    pub wr_set_mkey_crypto: *mut c_void,
}

layout! {
    Mlx5QpEx: "struct mlx5dv_qp_ex", whole 104 align 8 {
        comp_mask 0 8; wr_set_dc_addr 8 8; wr_mr_interleaved 16 8; wr_mr_list 24 8; wr_mkey_configure 32 8;
        wr_set_mkey_access_flags 40 8; wr_set_mkey_layout_list 48 8; wr_set_mkey_layout_interleaved 56 8;
        wr_set_mkey_sig_block 64 8; wr_raw_wqe 72 8; wr_set_dc_addr_stream 80 8; wr_memcpy 88 8;
        wr_set_mkey_crypto 96 8;
    }
}
