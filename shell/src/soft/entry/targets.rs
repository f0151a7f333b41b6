//! What a posted request names at the other end.
//!
//! # Safety
//!
//! This file guarantees that of the union in a request only the member is read that its opcode means.
#![allow(unsafe_code)]

use bareverbs_core::verbs::{SendWr, WrOpcode};

use crate::soft::one_sided::Target;

/// The target of a one-sided operation; `None` for what is none.
///
/// # Safety
/// 1. The member of `wr` that the opcode means is filled in.
#[inline]
pub(super) unsafe fn target(request: &SendWr) -> Option<Target> {
    match request.opcode {
        WrOpcode::RDMA_WRITE | WrOpcode::RDMA_WRITE_WITH_IMM | WrOpcode::RDMA_READ => {
            // SAFETY: by 1.
            let rdma = unsafe { request.wr.rdma };
            Some(Target { address: rdma.remote_addr, key: rdma.rkey, ..Target::default() })
        }
        WrOpcode::ATOMIC_FETCH_AND_ADD | WrOpcode::ATOMIC_CMP_AND_SWP => {
            // SAFETY: by 1. C programs need not fill in `swap` for an addition: it is a number all the same.
            let atomic = unsafe { request.wr.atomic };
            let (address, key) = (atomic.remote_addr, atomic.rkey);
            Some(Target { address, key, compare_add: atomic.compare_add, swap: atomic.swap })
        }
        _ => None,
    }
}
