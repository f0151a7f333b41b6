//! The objects that C sees, at the full size that they have on this platform.
//!
//! The mirrors of `core` stop before the first mutex; here the rest follows, with the C library's own mutex and condition
//! variable, so that sizes and tails are true on every platform. Nobody locks those mutexes: all zero is as good as
//! initialised.

use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of, size_of};

use bareverbs_core::verbs::context::ABI_COMPAT_OFFSET;
use bareverbs_core::verbs::{CompChannel, Context, Cq, Device, Mr, Pd, Qp};

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
}

/// What glibc's headers say for x86_64, rdma-core 44.0.
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
const _: () = {
    assert!(size_of::<WholeContext>() == 328);
    assert!(size_of::<VerbsContext>() == 648);
    assert!(size_of::<WholeCq>() == 128);
    assert!(size_of::<WholeQp>() == 160);
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
    pub(super) const fn new(head: Qp) -> Self {
        Self { head, mutex: MaybeUninit::zeroed(), cond: MaybeUninit::zeroed(), events_completed: 0 }
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

impl Body for Mr {
    type Handle = Self;
    const KIND: Kind = Kind::Region;
}
