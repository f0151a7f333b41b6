//! mlx5dv: extended queue pairs, their builders, and indirect keys.
//!
//! # Safety
//!
//! This file guarantees that a struct of the caller's is followed only where it is not null, and a list only as far as its
//! count says.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use bareverbs_core::verbs::mlx5dv::{Mkey, MkeyInitAttr, Mlx5QpEx, Mlx5QpInitAttr, QpEx};
use bareverbs_core::verbs::{AccessFlags, Context, Device, Qp, QpInitAttrEx, SendFlags, Sge};

use crate::soft::bindings::Listed;
use crate::soft::c_objects::WholeQp;
use crate::soft::entry::queues::live_queue;
use crate::soft::entry::{Asked, pointer, status};
use crate::soft::handles::{self, Kind};
use crate::soft::mlx5::Mlx5Ask;
use crate::soft::record::Detail;
use crate::soft::state::State;

pub(in crate::soft) extern "C" fn is_supported(device: *mut Device) -> bool {
    let asked = Asked::on("mlx5dv_is_supported", Kind::Device, device.addr());
    let mut supported = false;
    let outcome = asked.call(|state, index| {
        supported = state.devices.get(index as usize).is_some_and(|device| device.profile.is_mlx5());
        Ok(0)
    });
    outcome.is_ok() && supported
}

/// # Safety
/// 1. `attr` is null or valid for reads and writes, `mlx5` null or valid for reads.
pub(in crate::soft) unsafe extern "C" fn create_qp(
    context: *mut Context,
    attr: *mut QpInitAttrEx,
    mlx5: *mut Mlx5QpInitAttr,
) -> *mut Qp {
    // SAFETY: null or valid, by 1.
    let asked_for = unsafe { attr.as_ref() }.copied();
    // SAFETY: as above.
    let mlx5 =
        unsafe { mlx5.as_ref() }.map(|mlx5| Mlx5Ask { comp_mask: mlx5.comp_mask, send_ops_flags: mlx5.send_ops_flags });
    let queues = asked_for.map_or([0; 2], |attr| [attr.send_cq.addr(), attr.recv_cq.addr()]);
    // Recorded as other queue pairs are: of its domain.
    let first_parent = asked_for.map_or(0, |attr| attr.pd.addr());
    let asked = Asked::making("mlx5dv_create_qp", Kind::Context, context.addr());
    let asked = Asked { first_parent, more_parents: queues, ..asked };
    let mut sizes = None;
    let outcome = asked.call(|state, context| {
        let attr = asked_for.ok_or(libc::EINVAL)?;
        let domain = live_domain(state, "mlx5dv_create_qp", attr.pd.addr())?;
        let queues = [live_queue(state, queues[0])?, live_queue(state, queues[1])?];
        let (handle, cap) = state.create_mlx5_pair(context, &attr, mlx5, (domain, queues))?;
        sizes = Some(cap);
        Ok(handle)
    });
    if let Some(cap) = sizes {
        // SAFETY: sizes are granted only where `attr` was not null, so valid by 1.
        let field = unsafe { &raw mut (*attr).cap };
        // SAFETY: as above.
        unsafe { field.write(cap) };
    }
    pointer(outcome)
}

/// The index of a domain that must be alive in this fabric.
fn live_domain(state: &mut State, symbol: &str, handle: usize) -> Result<u32, c_int> {
    let place = handles::find(Kind::Domain, handle).filter(|place| place.slot == state.slot);
    let live = place.filter(|place| state.is_live(Kind::Domain, place.index, handle));
    if live.is_none() && place.is_some() {
        state.note_misuse(symbol, Kind::Domain, handle);
    }
    live.map(|place| place.index).ok_or(libc::EINVAL)
}

/// The extended queue pair, which is the queue pair itself; null for one that is none.
pub(in crate::soft) extern "C" fn qp_to_qp_ex(qp: *mut Qp) -> *mut c_void {
    let asked = Asked::making("ibv_qp_to_qp_ex", Kind::QueuePair, qp.addr());
    pointer(asked.call(|state, index| match state.pairs.get(index) {
        Some(pair) if pair.extended => Ok(pair.handle),
        _ => Err(0),
    }))
}

/// What mlx5 has beyond the extended queue pair. The provider looks at nothing; here a queue pair that is none gives null.
pub(in crate::soft) extern "C" fn qp_ex_from_ibv_qp_ex(qp: *mut QpEx) -> *mut Mlx5QpEx {
    let asked = Asked::making("mlx5dv_qp_ex_from_ibv_qp_ex", Kind::QueuePair, qp.addr());
    pointer(asked.call(|state, index| match state.pairs.get(index) {
        Some(pair) if pair.extended => Ok(pair.handle + WholeQp::MLX5_OFFSET),
        _ => Err(0),
    }))
}

/// # Safety
/// 1. `attr` is null or valid for reads and writes.
pub(in crate::soft) unsafe extern "C" fn create_mkey(attr: *mut MkeyInitAttr) -> *mut Mkey {
    // SAFETY: null or valid, by 1.
    let asked_for = unsafe { attr.as_ref() }.copied();
    let pd = asked_for.map_or(0, |attr| attr.pd.addr());
    let asked = Asked::making("mlx5dv_create_mkey", Kind::Domain, pd);
    let mut entries = None;
    let outcome = asked.call(|state, domain| {
        let attr = asked_for.ok_or(libc::EINVAL)?;
        let (handle, capacity) = state.create_key(domain, attr.create_flags, attr.max_entries)?;
        entries = Some(capacity);
        Ok(handle)
    });
    if let Some(capacity) = entries {
        // SAFETY: a key is made only where `attr` was not null, so valid by 1.
        let field = unsafe { &raw mut (*attr).max_entries };
        // SAFETY: as above.
        unsafe { field.write(capacity) };
    }
    pointer(outcome)
}

pub(in crate::soft) extern "C" fn destroy_mkey(key: *mut Mkey) -> c_int {
    let asked = Asked::on("mlx5dv_destroy_mkey", Kind::IndirectKey, key.addr());
    status(asked.call(|state, index| state.destroy_key(index).map(|()| 0)))
}

/// `ibv_qp_ex.wr_start`
pub(in crate::soft) extern "C" fn wr_start(qp: *mut QpEx) {
    let asked = Asked::on("ibv_wr_start", Kind::QueuePair, qp.addr());
    // A planned failure shows at the end of the run, as everything that goes wrong in it.
    if let Err(answer) = asked.call(|state, index| state.start_run(index, None).map(|()| 0)) {
        let again = Asked::on("ibv_wr_start", Kind::QueuePair, qp.addr());
        again.aside(|state, index| {
            let _ = state.start_run(index, Some(answer.number()));
        });
    }
}

/// `ibv_qp_ex.wr_complete`
pub(in crate::soft) extern "C" fn wr_complete(qp: *mut QpEx) -> c_int {
    let asked = Asked::on("ibv_wr_complete", Kind::QueuePair, qp.addr());
    let outcome = asked.call(|state, index| state.complete_run(index).map(|()| 0));
    if outcome.is_err() {
        // Where the plan made it fail the run is rolled back, as wherever else it fails.
        let rest = Asked::on("ibv_wr_complete", Kind::QueuePair, qp.addr());
        rest.aside(|state, index| {
            if state.is_in_run(index) {
                state.abort_run(index);
            }
        });
    }
    status(outcome)
}

/// `ibv_qp_ex.wr_abort`
pub(in crate::soft) extern "C" fn wr_abort(qp: *mut QpEx) {
    let asked = Asked::on("ibv_wr_abort", Kind::QueuePair, qp.addr());
    let _ = asked.call(|state, index| {
        state.abort_run(index);
        Ok(0)
    });
}

/// `mlx5dv_qp_ex.wr_mr_list`
///
/// # Safety
/// 1. `list` is valid for reads of `count` entries.
/// 2. The key was made by a fabric of this process at some time.
pub(in crate::soft) unsafe extern "C" fn wr_mr_list(
    qp: *mut Mlx5QpEx,
    key: *mut Mkey,
    access: u32,
    count: u16,
    list: *mut Sge,
) {
    let handle = qp.addr().wrapping_sub(WholeQp::MLX5_OFFSET);
    let access = AccessFlags::from_bits_retain(access);
    let entries = if count == 0 || list.is_null() {
        Vec::new()
    } else {
        // SAFETY: so many entries, by 1.
        unsafe { std::slice::from_raw_parts(list, count.into()) }.to_vec()
    };
    let detail = Detail::Bind { key: key.addr(), entries: count.into(), access };
    let asked = Asked::on("mlx5dv_wr_mr_list", Kind::QueuePair, handle).with(detail);
    let outcome = asked.call(|state, index| {
        let listed = named_key(state, key.addr()).map(|(key, number)| {
            let (wr_id, flags) = handles::builder_words(handle);
            let flags = SendFlags::from_bits_retain(flags);
            Listed { wr_id, flags, key, number, access, entries }
        });
        state.add_to_run(index, listed);
        Ok(0)
    });
    if let Err(answer) = outcome {
        let again = Asked::on("mlx5dv_wr_mr_list", Kind::QueuePair, handle);
        again.aside(|state, index| state.add_to_run(index, Err(answer.number())));
    }
}

/// The index of a key that must be alive, and the number that its owner's copy says.
fn named_key(state: &mut State, handle: usize) -> Result<(u32, u32), c_int> {
    let place = handles::find(Kind::IndirectKey, handle).filter(|place| place.slot == state.slot);
    let live = place.filter(|place| state.is_live(Kind::IndirectKey, place.index, handle));
    if live.is_none() {
        state.note_misuse("mlx5dv_wr_mr_list", Kind::IndirectKey, handle);
    }
    Ok((live.ok_or(libc::EINVAL)?.index, handles::key_number(handle)))
}
