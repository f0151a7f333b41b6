//! The objects that C sees, at the full size that they have on this platform.
//!
//! The mirrors of `core` stop before the first mutex; here the rest follows, with the C library's own mutex and condition
//! variable, so that sizes and tails are true on every platform. Nobody locks those mutexes: all zero is as good as
//! initialised.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of, size_of};

use bareverbs_core::verbs::context::ABI_COMPAT_OFFSET;
use bareverbs_core::verbs::mlx5dv::{Mkey, Mlx5QpEx, QpEx, qp_ex};
use bareverbs_core::verbs::{CompChannel, Context, Cq, Device, Mr, Pd, Qp};

use crate::soft::entry;
use crate::soft::handles::{Body, Kind};

type Mutex = MaybeUninit<libc::pthread_mutex_t>;
type Cond = MaybeUninit<libc::pthread_cond_t>;

/// `struct ibv_context`, whole.
#[repr(C)]
pub(super) struct WholeContext {
    pub head: Context,
    mutex: Mutex,
    pub abi_compat: *mut c_void,
}

/// Words of `struct verbs_context` in front of its `ibv_context`, rdma-core 22 to 58.
const FRONT_WORDS: usize = 40;

/// `struct verbs_context`: operations reached by negative offset, then the context whose address is the handle.
#[repr(C)]
pub(super) struct VerbsContext {
    front: [*mut c_void; FRONT_WORDS],
    pub context: WholeContext,
}

/// `struct ibv_cq`, whole.
#[repr(C)]
pub(super) struct WholeCq {
    pub head: Cq,
    mutex: Mutex,
    cond: Cond,
    comp_events_completed: u32,
    async_events_completed: u32,
}

/// `struct ibv_qp`, whole.
#[repr(C)]
pub(super) struct WholeQp {
    pub head: Qp,
    mutex: Mutex,
    cond: Cond,
    events_completed: u32,
    pub extended: QpExTail,
    mlx5: Mlx5QpEx,
}

/// What `struct ibv_qp_ex` has beyond its `ibv_qp`. Builders that nobody calls stay null.
#[repr(C)]
pub(super) struct QpExTail {
    comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: u32,
    builders: [*mut c_void; 17],
    wr_start: Option<extern "C" fn(*mut QpEx)>,
    wr_complete: Option<extern "C" fn(*mut QpEx) -> c_int>,
    wr_abort: Option<extern "C" fn(*mut QpEx)>,
    later_builders: [*mut c_void; 2],
}

const _: () = {
    if let Some(offset_bytes) = qp_ex::COMP_MASK {
        assert!(offset_of!(WholeQp, extended) == offset_bytes);
    }
    if let (Some(wr_id), Some(flags)) = (qp_ex::WR_ID, qp_ex::WR_FLAGS) {
        assert!(offset_of!(WholeQp, extended.wr_id) == wr_id && offset_of!(WholeQp, extended.wr_flags) == flags);
    }
    if let (Some(start), Some(complete), Some(abort)) = (qp_ex::WR_START, qp_ex::WR_COMPLETE, qp_ex::WR_ABORT) {
        assert!(offset_of!(WholeQp, extended.wr_start) == start);
        assert!(offset_of!(WholeQp, extended.wr_complete) == complete);
        assert!(offset_of!(WholeQp, extended.wr_abort) == abort);
    }
};

/// What glibc's headers say for x86_64, rdma-core 44.0.
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
const _: () = {
    assert!(size_of::<WholeContext>() == 328);
    assert!(size_of::<VerbsContext>() == 648);
    assert!(size_of::<WholeCq>() == 128);
    assert!(offset_of!(WholeQp, extended) == 160 && WholeQp::MLX5_OFFSET == 360);
};
const _: () = assert!(offset_of!(VerbsContext, context) == FRONT_WORDS * size_of::<usize>());
const _: () = if let Some(offset_bytes) = ABI_COMPAT_OFFSET {
    assert!(offset_of!(WholeContext, abi_compat) == offset_bytes);
};

impl WholeCq {
    pub(super) const fn new(head: Cq) -> Self {
        let (mutex, cond) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        Self { head, mutex, cond, comp_events_completed: 0, async_events_completed: 0 }
    }
}

impl WholeQp {
    /// From the handle to what mlx5 has beyond the extended queue pair, bytes.
    pub(super) const MLX5_OFFSET: usize = offset_of!(Self, mlx5);

    pub(super) const fn new(head: Qp) -> Self {
        let null = std::ptr::null_mut();
        let extended = QpExTail {
            comp_mask: 0,
            wr_id: 0,
            wr_flags: 0,
            builders: [null; 17],
            wr_start: None,
            wr_complete: None,
            wr_abort: None,
            later_builders: [null; 2],
        };
        let mlx5 = Mlx5QpEx {
            comp_mask: 0,
            wr_set_dc_addr: null,
            wr_mr_interleaved: null,
            wr_mr_list: None,
            wr_mkey_configure: null,
            wr_set_mkey_access_flags: null,
            wr_set_mkey_layout_list: null,
            wr_set_mkey_layout_interleaved: null,
            wr_set_mkey_sig_block: null,
            wr_raw_wqe: null,
            wr_set_dc_addr_stream: null,
            wr_memcpy: null,
            wr_set_mkey_crypto: null,
        };
        let (mutex, cond) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        Self { head, mutex, cond, events_completed: 0, extended, mlx5 }
    }

    /// A queue pair that binds indirect keys.
    pub(super) fn with_builders(head: Qp) -> Self {
        let mut this = Self::new(head);
        this.extended.wr_start = Some(entry::mlx5::wr_start);
        this.extended.wr_complete = Some(entry::mlx5::wr_complete);
        this.extended.wr_abort = Some(entry::mlx5::wr_abort);
        this.mlx5.wr_mr_list = Some(entry::mlx5::wr_mr_list);
        this
    }
}

impl VerbsContext {
    /// A context without the operations in front of it.
    pub(super) const fn plain(head: Context) -> Self {
        let context = WholeContext { head, mutex: MaybeUninit::zeroed(), abi_compat: std::ptr::null_mut() };
        Self { front: [std::ptr::null_mut(); FRONT_WORDS], context }
    }

    /// A context with these operations in front of it, each with its distance from the context in bytes.
    pub(super) fn extended(head: Context, operations: &[(usize, *mut c_void)]) -> Self {
        let mut this = Self::plain(head);
        this.context.abi_compat = std::ptr::without_provenance_mut(bareverbs_core::verbs::context::ABI_IS_EXTENDED);
        for (distance_bytes, operation) in operations {
            this.front[FRONT_WORDS - distance_bytes / size_of::<usize>()] = *operation;
        }
        this
    }
}

impl Body for VerbsContext {
    type Handle = Context;
    const KIND: Kind = Kind::Context;
    const HANDLE_OFFSET: usize = offset_of!(Self, context);
}

impl Body for WholeCq {
    type Handle = Cq;
    const KIND: Kind = Kind::CompletionQueue;
}

impl Body for WholeQp {
    type Handle = Qp;
    const KIND: Kind = Kind::QueuePair;
}

impl Body for Device {
    type Handle = Self;
    const KIND: Kind = Kind::Device;
}

impl Body for Pd {
    type Handle = Self;
    const KIND: Kind = Kind::Domain;
}

impl Body for CompChannel {
    type Handle = Self;
    const KIND: Kind = Kind::Channel;
}

impl Body for Mkey {
    type Handle = Self;
    const KIND: Kind = Kind::IndirectKey;
}

impl Body for Mr {
    type Handle = Self;
    const KIND: Kind = Kind::Region;
}
