//! Completion queues and queue pairs.
//!
//! # Safety
//!
//! This file guarantees that a struct of the caller's is followed only where it is not null, as the C functions do.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use bareverbs_core::verbs::{CompChannel, Context, Cq, Pd, Qp, QpAttr, QpAttrMask, QpInitAttr};

use crate::soft::entry::{Asked, pointer, status};
use crate::soft::handles::{self, Kind};
use crate::soft::pairs::PairRequest;
use crate::soft::record::Detail;
use crate::soft::state::State;

pub(in crate::soft) extern "C" fn create_cq(
    context: *mut Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut CompChannel,
    comp_vector: c_int,
) -> *mut Cq {
    let parents = [channel.addr(), 0];
    let asked = Asked { more_parents: parents, ..Asked::making("ibv_create_cq", Kind::Context, context.addr()) };
    pointer(asked.call(|state, index| {
        let channel = if channel.is_null() { None } else { Some(live_channel(state, index, channel.addr())?) };
        state.create_queue(index, cqe, cq_context, comp_vector, channel)
    }))
}

pub(in crate::soft) extern "C" fn destroy_cq(cq: *mut Cq) -> c_int {
    let asked = Asked::on("ibv_destroy_cq", Kind::CompletionQueue, cq.addr());
    status(asked.call(|state, index| state.destroy_queue(index).map(|()| 0)))
}

/// # Safety
/// 1. `init` is null or valid for reads and writes.
pub(in crate::soft) unsafe extern "C" fn create_qp(pd: *mut Pd, init: *mut QpInitAttr) -> *mut Qp {
    let attributes = if init.is_null() {
        None
    } else {
        // SAFETY: not null, so valid by 1.
        Some(unsafe { init.read() })
    };
    let queues = attributes.map_or([0; 2], |init| [init.send_cq.addr(), init.recv_cq.addr()]);
    let asked = Asked { more_parents: queues, ..Asked::making("ibv_create_qp", Kind::Domain, pd.addr()) };
    let mut sizes = None;
    let outcome = asked.call(|state, domain| {
        let init = attributes.ok_or(libc::EFAULT)?;
        let queues = [live_queue(state, queues[0])?, live_queue(state, queues[1])?];
        let (handle, cap, written_back) = state.create_pair(domain, &PairRequest::plain(init, queues))?;
        sizes = written_back.then_some(cap);
        Ok(handle)
    });
    if let Some(cap) = sizes {
        // SAFETY: sizes are granted only where `init` was not null, so valid by 1.
        let field = unsafe { &raw mut (*init).cap };
        // SAFETY: as above.
        unsafe { field.write(cap) };
    }
    pointer(outcome)
}

/// The index of a channel that must be alive on this context.
fn live_channel(state: &mut State, context: u32, handle: usize) -> Result<u32, c_int> {
    let place = handles::find(Kind::Channel, handle).filter(|place| place.slot == state.slot);
    let live = place.filter(|place| state.is_live(Kind::Channel, place.index, handle));
    if live.is_none() && place.is_some() {
        state.note_misuse("ibv_create_cq", Kind::Channel, handle);
    }
    let index = live.ok_or(libc::EINVAL)?.index;
    let own = state.channels.get(index).is_some_and(|channel| channel.context == context);
    if own { Ok(index) } else { Err(libc::EBADF) }
}

/// The index of a completion queue that must be alive in this fabric.
pub(super) fn live_queue(state: &mut State, handle: usize) -> Result<u32, c_int> {
    let place = handles::find(Kind::CompletionQueue, handle).filter(|place| place.slot == state.slot);
    let live = place.filter(|place| state.is_live(Kind::CompletionQueue, place.index, handle));
    if live.is_none() && place.is_some() {
        state.note_misuse("ibv_create_qp", Kind::CompletionQueue, handle);
    }
    live.map(|place| place.index).ok_or(libc::EINVAL)
}

/// # Safety
/// 1. `attr` is null or valid for reads.
pub(in crate::soft) unsafe extern "C" fn modify_qp(qp: *mut Qp, attr: *mut QpAttr, mask: c_int) -> c_int {
    let attributes = if attr.is_null() {
        None
    } else {
        // SAFETY: not null, so valid by 1.
        Some(unsafe { attr.read() })
    };
    let mask = QpAttrMask::from_bits_retain(mask.cast_unsigned());
    let detail = attributes.map_or(Detail::None, |attr| Detail::Modify { attr, mask });
    let asked = Asked::on("ibv_modify_qp", Kind::QueuePair, qp.addr()).with(detail);
    status(asked.call(|state, index| {
        let attr = attributes.ok_or(libc::EFAULT)?;
        state.modify_pair(index, &attr, mask).map(|()| 0)
    }))
}

pub(in crate::soft) extern "C" fn destroy_qp(qp: *mut Qp) -> c_int {
    let asked = Asked::on("ibv_destroy_qp", Kind::QueuePair, qp.addr());
    status(asked.call(|state, index| state.destroy_pair(index).map(|()| 0)))
}

/// # Safety
/// 1. `attr` and `init` are each null or valid for writes.
pub(in crate::soft) unsafe extern "C" fn query_qp(
    qp: *mut Qp,
    attr: *mut QpAttr,
    _mask: c_int,
    init: *mut QpInitAttr,
) -> c_int {
    let asked = Asked::on("ibv_query_qp", Kind::QueuePair, qp.addr());
    let mut found = None;
    let outcome = asked.call(|state, index| {
        found = state.pairs.get(index).map(|pair| (pair.attributes(), state.creation_attributes(index)));
        Ok(0)
    });
    if let (Ok(_), Some((attributes, creation))) = (outcome, found) {
        if !attr.is_null() {
            // SAFETY: not null, so valid by 1.
            unsafe { attr.write(attributes) };
        }
        if let (false, Some(creation)) = (init.is_null(), creation) {
            // SAFETY: not null, so valid by 1.
            unsafe { init.write(creation) };
        }
    }
    status(outcome)
}
