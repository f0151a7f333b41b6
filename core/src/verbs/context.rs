//! Device contexts: the table of inline operations, and the operations in front of the context.

use core::ffi::{c_int, c_void};

use crate::layout::{FieldRow, layout};
use crate::verbs::completion::{Cq, Wc};
use crate::verbs::device::Device;
use crate::verbs::platform::{Platform, TailTable};
use crate::verbs::queue_pair::Qp;
use crate::verbs::work_request::{RecvWr, SendWr};

/// `ibv_context_ops.poll_cq`
pub type PollCqFn = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
/// `ibv_context_ops.req_notify_cq`; the second argument is whether only solicited completions count.
pub type ReqNotifyCqFn = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
/// `ibv_context_ops.post_send`
pub type PostSendFn = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
/// `ibv_context_ops.post_recv`
pub type PostRecvFn = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// A slot that is not to be called: a compatibility entry, or an operation that we do not use.
pub type OtherSlot = *mut c_void;

/// `struct ibv_context_ops`
///
/// 32 slots. Only those with a function type are called, through [`crate::verbs::inline_calls`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "compatibility slots have a name and nothing else")]
pub struct ContextOps {
    pub _compat_query_device: OtherSlot,
    pub _compat_query_port: OtherSlot,
    pub _compat_alloc_pd: OtherSlot,
    pub _compat_dealloc_pd: OtherSlot,
    pub _compat_reg_mr: OtherSlot,
    pub _compat_rereg_mr: OtherSlot,
    pub _compat_dereg_mr: OtherSlot,
    pub alloc_mw: OtherSlot,
    pub bind_mw: OtherSlot,
    pub dealloc_mw: OtherSlot,
    pub _compat_create_cq: OtherSlot,
    pub poll_cq: Option<PollCqFn>,
    pub req_notify_cq: Option<ReqNotifyCqFn>,
    pub _compat_cq_event: OtherSlot,
    pub _compat_resize_cq: OtherSlot,
    pub _compat_destroy_cq: OtherSlot,
    pub _compat_create_srq: OtherSlot,
    pub _compat_modify_srq: OtherSlot,
    pub _compat_query_srq: OtherSlot,
    pub _compat_destroy_srq: OtherSlot,
    pub post_srq_recv: OtherSlot,
    pub _compat_create_qp: OtherSlot,
    pub _compat_query_qp: OtherSlot,
    pub _compat_modify_qp: OtherSlot,
    pub _compat_destroy_qp: OtherSlot,
    pub post_send: Option<PostSendFn>,
    pub post_recv: Option<PostRecvFn>,
    pub _compat_create_ah: OtherSlot,
    pub _compat_destroy_ah: OtherSlot,
    pub _compat_attach_mcast: OtherSlot,
    pub _compat_detach_mcast: OtherSlot,
    pub _compat_async_event: OtherSlot,
}

layout! {
    ContextOps: "struct ibv_context_ops", whole 256 align 8 {
        _compat_query_device 0 8; _compat_query_port 8 8; _compat_alloc_pd 16 8; _compat_dealloc_pd 24 8;
        _compat_reg_mr 32 8; _compat_rereg_mr 40 8; _compat_dereg_mr 48 8; alloc_mw 56 8; bind_mw 64 8;
        dealloc_mw 72 8; _compat_create_cq 80 8; poll_cq 88 8; req_notify_cq 96 8; _compat_cq_event 104 8;
        _compat_resize_cq 112 8; _compat_destroy_cq 120 8; _compat_create_srq 128 8; _compat_modify_srq 136 8;
        _compat_query_srq 144 8; _compat_destroy_srq 152 8; post_srq_recv 160 8; _compat_create_qp 168 8;
        _compat_query_qp 176 8; _compat_modify_qp 184 8; _compat_destroy_qp 192 8; post_send 200 8; post_recv 208 8;
        _compat_create_ah 216 8; _compat_destroy_ah 224 8; _compat_attach_mcast 232 8; _compat_detach_mcast 240 8;
        _compat_async_event 248 8;
    }
}

impl ContextOps {
    /// A table with no operation.
    pub const EMPTY: Self = {
        let none: OtherSlot = core::ptr::null_mut();
        Self {
            _compat_query_device: none,
            _compat_query_port: none,
            _compat_alloc_pd: none,
            _compat_dealloc_pd: none,
            _compat_reg_mr: none,
            _compat_rereg_mr: none,
            _compat_dereg_mr: none,
            alloc_mw: none,
            bind_mw: none,
            dealloc_mw: none,
            _compat_create_cq: none,
            poll_cq: None,
            req_notify_cq: None,
            _compat_cq_event: none,
            _compat_resize_cq: none,
            _compat_destroy_cq: none,
            _compat_create_srq: none,
            _compat_modify_srq: none,
            _compat_query_srq: none,
            _compat_destroy_srq: none,
            post_srq_recv: none,
            _compat_create_qp: none,
            _compat_query_qp: none,
            _compat_modify_qp: none,
            _compat_destroy_qp: none,
            post_send: None,
            post_recv: None,
            _compat_create_ah: none,
            _compat_destroy_ah: none,
            _compat_attach_mcast: none,
            _compat_detach_mcast: none,
            _compat_async_event: none,
        }
    };
}

/// The start of `struct ibv_context`, up to its mutex.
///
/// Made by the library only, never copied by value.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    /// The device it was opened on.
    pub device: *mut Device,
    /// The inline operations.
    pub ops: ContextOps,
    /// The kernel's file; an IOKit port on macOS.
    pub cmd_fd: i32,
    /// The file of asynchronous events; -1 on macOS.
    pub async_fd: i32,
    /// Completion vectors.
    pub num_comp_vectors: i32,
}

layout! {
    Context: "struct ibv_context", start 280 align 8 {
        device 0 8; ops 8 256; cmd_fd 264 4; async_fd 268 4; num_comp_vectors 272 4;
    }
}

/// What follows the mutex of `struct ibv_context`.
pub const CONTEXT_TAIL: TailTable = TailTable {
    c_type: "struct ibv_context",
    platforms: &[Platform::GlibcX86_64, Platform::GlibcAarch64, Platform::DarwinAarch64],
    size_bytes: 328,
    align_bytes: 8,
    grew: &[],
    fields: &[FieldRow { c_name: "abi_compat", offset_bytes: 320, size_bytes: 8, since: None }],
};

/// Offset of `ibv_context.abi_compat`, which follows a mutex; the struct ends 8 bytes after it.
///
/// 320 on x86_64 glibc and 328 on aarch64 glibc, measured; 344 on Darwin, worked out from its `pthread_mutex_t`.
/// `None` elsewhere: the extended operations are then not reached.
pub const ABI_COMPAT_OFFSET: Option<usize> = match Platform::THIS {
    Some(platform) => Some(platform.past_mutex(CONTEXT_TAIL.fields[0].offset_bytes)),
    None => None,
};

/// What `abi_compat` holds where the extended operations exist: `__VERBS_ABI_IS_EXTENDED`, all ones.
pub const ABI_IS_EXTENDED: usize = usize::MAX;

/// An operation of `struct verbs_context`, which lies in front of the [`Context`] and grows at its own front: the distance
/// to the context never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedSlot {
    /// The member's name in C.
    pub c_name: &'static str,
    /// How far in front of the context it lies, bytes.
    pub distance_bytes: usize,
}

/// The recorded size of `struct verbs_context`, `usize`.
pub const VERBS_CONTEXT_SZ: ExtendedSlot = ExtendedSlot { c_name: "sz", distance_bytes: 8 };
/// `verbs_context.create_qp_ex`
pub const CREATE_QP_EX: ExtendedSlot = ExtendedSlot { c_name: "create_qp_ex", distance_bytes: 56 };
/// `verbs_context.query_device_ex`
pub const QUERY_DEVICE_EX: ExtendedSlot = ExtendedSlot { c_name: "query_device_ex", distance_bytes: 104 };
/// `verbs_context.query_port`, with an explicit length; from rdma-core 22 on.
pub const QUERY_PORT: ExtendedSlot = ExtendedSlot { c_name: "query_port", distance_bytes: 320 };

impl ExtendedSlot {
    /// Least size of `verbs_context` that the library must have recorded for this slot to exist, given the size of its
    /// `ibv_context`.
    pub const fn least_recorded_bytes(self, context_bytes: usize) -> usize {
        self.distance_bytes + context_bytes
    }
}

/// All slots that are reached by distance, for the C compiler.
pub const EXTENDED_SLOTS: &[ExtendedSlot] = &[VERBS_CONTEXT_SZ, CREATE_QP_EX, QUERY_DEVICE_EX, QUERY_PORT];
