//! An operation's requests, built and posted one by one; receives without memory; markers.
//!
//! # Safety
//!
//! This file guarantees that a request names no memory but its plan's local view, within its bounds.
#![allow(unsafe_code)]

use bareverbs_core::link::{Direction, WorkId};
use bareverbs_core::one_sided::{Operation, Part, Plan, Start};
use bareverbs_core::verbs::inline_calls::{PostError, QueuePairCalls};
use bareverbs_core::verbs::work_request::{AtomicTarget, RdmaTarget, SendTarget};
use bareverbs_core::verbs::{Be32, RecvWr, SendFlags, SendWr, Sge, WrOpcode};

/// How a post failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotPosted {
    /// Whether it is known that no request of the operation was accepted.
    pub(super) nothing_accepted: bool,
    pub(super) error: PostError,
}

impl NotPosted {
    /// Of the `n`-th request, counted from 0.
    #[cold]
    fn of(error: PostError, n: u32) -> Self {
        Self { nothing_accepted: n == 0 && matches!(error, PostError::Refused { .. }), error }
    }
}

/// Posts all requests of an operation; of those, the last is signalled.
///
/// # Safety
/// The local view that the plan was made of stays registered, and its memory mapped and free of Rust references, until the last
/// of its requests has completed or the queue pair was destroyed.
#[inline]
pub(super) unsafe fn post(calls: &mut QueuePairCalls, plan: &Plan, start: &Start) -> Result<(), NotPosted> {
    match plan.whole() {
        // SAFETY: this function's own duty.
        Some(whole) => match unsafe { post_part(calls, plan, &whole, start.wr_id(0)) } {
            Ok(()) => Ok(()),
            Err(error) => Err(NotPosted::of(error, 0)),
        },
        // SAFETY: this function's own duty.
        None => unsafe { post_parts(calls, *plan, start.wr_id(0)) },
    }
}

/// Posts one by one what is more than one message, with numbers from `first` on. What it takes it takes by value: a plan that is
/// one message is then never put together in memory.
///
/// # Safety
/// As [`post`].
#[inline(never)]
unsafe fn post_parts(calls: &mut QueuePairCalls, plan: Plan, first: u64) -> Result<(), NotPosted> {
    let mut n = 0;
    while let Some(part) = plan.part(n) {
        // SAFETY: this function's own duty.
        let posted = unsafe { post_part(calls, &plan, &part, first.wrapping_add(u64::from(n))) };
        posted.map_err(|error| NotPosted::of(error, n))?;
        n += 1;
    }
    Ok(())
}

/// Posts one request.
///
/// # Safety
/// As [`post`], of that part, which is the plan's.
#[inline(always)]
unsafe fn post_part(calls: &mut QueuePairCalls, plan: &Plan, part: &Part, wr_id: u64) -> Result<(), PostError> {
    let mut entry = Sge { addr: part.local_addr, length: part.len_bytes, lkey: plan.lkey() };
    let mut request = request(plan, part, wr_id);
    request.sg_list = &raw mut entry;
    // SAFETY: 1: request and entry are locals of this call, and the request is alone in its chain. 2: the entry lies within
    // the plan's local view, which is this function's own duty.
    match unsafe { calls.post_send(&raw mut request) } {
        // Another address than the one request's says nothing of it.
        Err(PostError::Refused { raw, bad_wr }) if bad_wr != (&raw const request).addr() => {
            Err(PostError::Unknown { raw })
        }
        posted => posted,
    }
}

#[inline(always)]
fn request(plan: &Plan, part: &Part, wr_id: u64) -> SendWr {
    let (remote_addr, rkey) = (part.remote_addr, plan.rkey());
    let rdma = SendTarget { rdma: RdmaTarget { remote_addr, rkey } };
    let atomic = |compare_add, swap| SendTarget { atomic: AtomicTarget { remote_addr, compare_add, swap, rkey } };
    let (opcode, immediate, wr) = match plan.operation() {
        Operation::WriteWithImmediate { immediate } if part.is_last => (WrOpcode::RDMA_WRITE_WITH_IMM, immediate, rdma),
        Operation::Write | Operation::WriteWithImmediate { .. } => (WrOpcode::RDMA_WRITE, 0, rdma),
        Operation::Read => (WrOpcode::RDMA_READ, 0, rdma),
        Operation::FetchAdd { add } => (WrOpcode::ATOMIC_FETCH_AND_ADD, 0, atomic(add, 0)),
        Operation::CompareSwap { compare, swap } => (WrOpcode::ATOMIC_CMP_AND_SWP, 0, atomic(compare, swap)),
    };
    let send_flags = if part.is_last { SendFlags::SIGNALED } else { SendFlags::empty() };
    SendWr { wr_id, num_sge: 1, opcode, send_flags, imm_data: Be32::new(immediate), wr, ..SendWr::EMPTY }
}

/// Posts a receive that names no memory.
pub(super) fn post_receive(calls: &mut QueuePairCalls, wr_id: u64) -> Result<(), PostError> {
    let mut request = RecvWr { wr_id, ..RecvWr::EMPTY };
    // SAFETY: 1: a local of this call, alone in its chain. 2: it has no entry, so it names no memory.
    unsafe { calls.post_recv(&raw mut request) }
}

/// Posts a queue's teardown marker.
pub(super) fn post_marker(calls: &mut QueuePairCalls, direction: Direction) -> Result<(), PostError> {
    let wr_id = WorkId::marker_of(direction).raw();
    match direction {
        Direction::Send => {
            let (opcode, send_flags) = (WrOpcode::SEND, SendFlags::SIGNALED);
            let mut marker = SendWr { wr_id, opcode, send_flags, ..SendWr::EMPTY };
            // SAFETY: 1: a local of this call, alone in its chain. 2: it has no entry, so it names no memory.
            unsafe { calls.post_send(&raw mut marker) }
        }
        Direction::Receive => post_receive(calls, wr_id),
    }
}
