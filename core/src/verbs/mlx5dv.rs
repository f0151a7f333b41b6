//! What binding an mlx5 indirect key needs of `<infiniband/mlx5dv.h>`, and of the extended queue pair.

use core::ffi::c_void;

use crate::layout::{FieldRow, Growth, flag_word, layout};
use crate::verbs::memory_region::Pd;
use crate::verbs::platform::{Platform, TailTable};
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

/// Where the fields of `struct ibv_qp_ex` are known: both glibc platforms.
const QP_EX_PLATFORMS: &[Platform] = &[Platform::GlibcX86_64, Platform::GlibcAarch64];

const fn here(on_glibc_x86_64_bytes: usize) -> Option<usize> {
    match Platform::THIS {
        Some(platform @ (Platform::GlibcX86_64 | Platform::GlibcAarch64)) => {
            Some(platform.past_mutex(on_glibc_x86_64_bytes))
        }
        _ => None,
    }
}

macro_rules! qp_ex_offsets {
    ($( $name:ident = $field:literal $offset:literal $size:literal $(since $since:literal)?; )*) => {
        /// Offsets into `struct ibv_qp_ex` on this target, in bytes; `None` where nobody has measured them.
        ///
        /// Measured on both glibc platforms: aarch64 is 8 bytes further on, where its longer mutex puts it.
        pub mod qp_ex {
            use super::here;
            $(
                #[doc = concat!("`ibv_qp_ex.", $field, "`")]
                pub const $name: Option<usize> = here($offset);
            )*
        }
        /// The same as a table, for the C compiler: 344 bytes before rdma-core 44, 352 before 45, 360 since.
        pub const QP_EX_OFFSETS: TailTable = TailTable {
            c_type: "struct ibv_qp_ex",
            platforms: QP_EX_PLATFORMS,
            size_bytes: 360,
            align_bytes: 8,
            grew: &[
                Growth { c_name: "wr_atomic_write", size_before_bytes: 344 },
                Growth { c_name: "wr_flush", size_before_bytes: 352 },
            ],
            fields: &[
                $( FieldRow {
                    c_name: $field,
                    offset_bytes: $offset,
                    size_bytes: $size,
                    since: layout!(@since $($since)?),
                }, )*
            ],
        };
    };
}

qp_ex_offsets! {
    COMP_MASK = "comp_mask" 160 8;
    WR_ID = "wr_id" 168 8;
    WR_FLAGS = "wr_flags" 176 4;
    WR_ATOMIC_CMP_SWP = "wr_atomic_cmp_swp" 184 8;
    WR_ATOMIC_FETCH_ADD = "wr_atomic_fetch_add" 192 8;
    WR_BIND_MW = "wr_bind_mw" 200 8;
    WR_LOCAL_INV = "wr_local_inv" 208 8;
    WR_RDMA_READ = "wr_rdma_read" 216 8;
    WR_RDMA_WRITE = "wr_rdma_write" 224 8;
    WR_RDMA_WRITE_IMM = "wr_rdma_write_imm" 232 8;
    WR_SEND = "wr_send" 240 8;
    WR_SEND_IMM = "wr_send_imm" 248 8;
    WR_SEND_INV = "wr_send_inv" 256 8;
    WR_SEND_TSO = "wr_send_tso" 264 8;
    WR_SET_UD_ADDR = "wr_set_ud_addr" 272 8;
    WR_SET_XRC_SRQN = "wr_set_xrc_srqn" 280 8;
    WR_SET_INLINE_DATA = "wr_set_inline_data" 288 8;
    WR_SET_INLINE_DATA_LIST = "wr_set_inline_data_list" 296 8;
    WR_SET_SGE = "wr_set_sge" 304 8;
    WR_SET_SGE_LIST = "wr_set_sge_list" 312 8;
    WR_START = "wr_start" 320 8;
    WR_COMPLETE = "wr_complete" 328 8;
    WR_ABORT = "wr_abort" 336 8;
    WR_ATOMIC_WRITE = "wr_atomic_write" 344 8 since 44;
    WR_FLUSH = "wr_flush" 352 8 since 45;
}

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
