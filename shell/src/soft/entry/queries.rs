//! What devices, ports and GID tables say of themselves.
//!
//! # Safety
//!
//! This file guarantees that no more bytes are written than the caller's struct has: 48 for the exported port query, as
//! much as was said where a length is given.
#![allow(unsafe_code)]

use std::ffi::c_int;

use bareverbs_core::verbs::device::QueryDeviceExInput;
use bareverbs_core::verbs::{AtomicCap, Context, DeviceAttr, DeviceAttrEx, Gid, GidEntry, Mtu, PortAttr};

use crate::soft::device::{GidSlot, SoftPort};
use crate::soft::entry::{Asked, status};
use crate::soft::handles::Kind;
use crate::soft::one_sided::MOST_READS;
use crate::soft::plan::Answer;
use crate::soft::state::{DeviceState, State};

/// Fills as many bytes of the caller's struct as there are in both.
///
/// # Safety
/// 1. `to` is null or valid for writes of `room_bytes`.
unsafe fn fill<T: Copy>(to: *mut T, value: &T, room_bytes: usize) {
    if !to.is_null() {
        let from = std::ptr::from_ref(value).cast::<u8>();
        // SAFETY: the value has at least as many bytes as are copied, the target too (1), and they are two places.
        unsafe { from.copy_to_nonoverlapping(to.cast(), room_bytes.min(size_of::<T>())) };
    }
}

fn port_attributes(port: &SoftPort) -> PortAttr {
    PortAttr {
        state: port.state,
        max_mtu: Mtu::B4096,
        active_mtu: port.active_mtu,
        gid_tbl_len: port.gids.len() as i32,
        max_msg_sz: port.max_message_bytes,
        pkey_tbl_len: 1,
        lid: port.lid,
        max_vl_num: 1,
        active_width: 1,
        active_speed: 1,
        phys_state: if port.state == bareverbs_core::verbs::PortState::ACTIVE { 5 } else { 3 },
        link_layer: port.link_layer,
        ..PortAttr::default()
    }
}

/// A port's attributes and how many bytes of them the exported query fills.
fn ask_port(symbol: &'static str, context: *mut Context, number: u8) -> (Result<usize, Answer>, PortAttr, usize) {
    let (mut found, mut bytes) = (PortAttr::default(), 0);
    let outcome = Asked::on(symbol, Kind::Context, context.addr()).call(|state, index| {
        let port = state.device_of(index).and_then(|device| device.port(number)).ok_or(libc::EINVAL)?;
        (found, bytes) = (port_attributes(port), state.query_port_bytes);
        Ok(0)
    });
    (outcome, found, bytes)
}

/// # Safety
/// 1. `attr` is null or valid for writes of as many bytes as the fabric was told to fill, 48 unless told otherwise.
pub(in crate::soft) unsafe extern "C" fn query_port(context: *mut Context, number: u8, attr: *mut PortAttr) -> c_int {
    let (outcome, found, bytes) = ask_port("ibv_query_port", context, number);
    if outcome.is_ok() {
        // SAFETY: by 1.
        unsafe { fill(attr, &found, bytes) };
    }
    status(outcome)
}

/// `verbs_context.query_port`
///
/// # Safety
/// 1. `attr` is null or valid for writes of `length`.
pub(in crate::soft) unsafe extern "C" fn query_port_with_length(
    context: *mut Context,
    number: u8,
    attr: *mut PortAttr,
    length: usize,
) -> c_int {
    let (outcome, found, _) = ask_port("ibv_query_port", context, number);
    if outcome.is_ok() {
        // SAFETY: by 1.
        unsafe { fill(attr, &found, length) };
    }
    status(outcome)
}

fn slot(state: &State, context: u32, port: u32, index: u32) -> Result<GidSlot, c_int> {
    let number = u8::try_from(port).map_err(|_| libc::EINVAL)?;
    let port = state.device_of(context).and_then(|device| device.port(number)).ok_or(libc::EINVAL)?;
    port.gids.get(index as usize).copied().ok_or(libc::EINVAL)
}

/// -1 with `errno` where the slot fails or does not exist, as the library does.
///
/// # Safety
/// 1. `gid` is valid for a write.
pub(in crate::soft) unsafe extern "C" fn query_gid(
    context: *mut Context,
    port: u8,
    index: c_int,
    gid: *mut Gid,
) -> c_int {
    let mut found = Gid::ZERO;
    let outcome = Asked::on("ibv_query_gid", Kind::Context, context.addr()).call(|state, context| {
        match slot(state, context, port.into(), index.cast_unsigned())? {
            GidSlot::Empty => Ok(0),
            GidSlot::Gid(gid, _) => {
                found = gid;
                Ok(0)
            }
            GidSlot::Fails(errno) => Err(errno),
        }
    });
    if outcome.is_ok() {
        // SAFETY: by 1.
        unsafe { fill(gid, &found, size_of::<Gid>()) };
    }
    status(outcome.map_err(|answer| match answer.errno {
        None if answer.returned > 0 => Answer::minus_one(answer.returned),
        _ => answer,
    }))
}

/// `_ibv_query_gid_ex`
///
/// # Safety
/// 1. `entry` is valid for a write of `entry_size` bytes.
pub(in crate::soft) unsafe extern "C" fn query_gid_ex(
    context: *mut Context,
    port: u32,
    index: u32,
    entry: *mut GidEntry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    let mut found = GidEntry::default();
    let outcome = Asked::on("_ibv_query_gid_ex", Kind::Context, context.addr()).call(|state, context| {
        if flags != 0 || entry_size != size_of::<GidEntry>() {
            return Err(libc::EINVAL);
        }
        match slot(state, context, port, index)? {
            GidSlot::Empty => Err(libc::ENODATA),
            GidSlot::Fails(errno) => Err(errno),
            GidSlot::Gid(gid, gid_type) => {
                found = GidEntry { gid, gid_index: index, port_num: port, gid_type, ndev_ifindex: 0 };
                Ok(0)
            }
        }
    });
    if outcome.is_ok() {
        // SAFETY: by 1, with the size that was checked.
        unsafe { fill(entry, &found, size_of::<GidEntry>()) };
    }
    status(outcome)
}

fn device_attributes(device: &DeviceState) -> DeviceAttr {
    let limits = &device.limits;
    // SAFETY: numbers and arrays of numbers, for which all zero is a value.
    let zero: DeviceAttr = unsafe { std::mem::zeroed() };
    let guid = bareverbs_core::verbs::Be64::new(device.guid);
    let one_sided = device.profile.checks_opcode();
    let reads = if one_sided { i32::from(MOST_READS) } else { 0 };
    DeviceAttr {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits.region_bytes,
        page_size_cap: 0xffff_f000,
        max_qp: limits.queue_pairs as i32,
        max_qp_wr: limits.queue_depth as i32,
        max_sge: limits.entries as i32,
        max_sge_rd: limits.entries as i32,
        max_cq: 4096,
        max_cqe: limits.completion_entries as i32,
        max_mr: limits.regions as i32,
        max_pd: 4096,
        atomic_cap: if one_sided { AtomicCap::HCA } else { AtomicCap::NONE },
        max_qp_rd_atom: reads,
        max_qp_init_rd_atom: reads,
        max_res_rd_atom: reads.saturating_mul(limits.queue_pairs as i32),
        max_pkeys: 1,
        phys_port_cnt: device.ports.len() as u8,
        ..zero
    }
}

fn ask_device(context: *mut Context) -> Result<DeviceAttr, Answer> {
    let mut found = None;
    let asked = Asked::on("ibv_query_device", Kind::Context, context.addr());
    asked.call(|state, index| {
        found = state.device_of(index).map(device_attributes);
        Ok(0)
    })?;
    found.ok_or(Answer::returned(libc::EINVAL))
}

/// # Safety
/// 1. `attr` is null or valid for a write.
pub(in crate::soft) unsafe extern "C" fn query_device(context: *mut Context, attr: *mut DeviceAttr) -> c_int {
    let outcome = ask_device(context).map(|found| {
        // SAFETY: by 1.
        unsafe { fill(attr, &found, size_of::<DeviceAttr>()) };
        0
    });
    status(outcome)
}

/// `verbs_context.query_device_ex`
///
/// # Safety
/// 1. `input` is null or valid for a read.
/// 2. `attr` is null or valid for writes of `length`.
pub(in crate::soft) unsafe extern "C" fn query_device_ex(
    context: *mut Context,
    input: *const QueryDeviceExInput,
    attr: *mut DeviceAttrEx,
    length: usize,
) -> c_int {
    // SAFETY: null or valid by 1.
    if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
        return libc::EINVAL;
    }
    let outcome = ask_device(context).map(|found| {
        // SAFETY: numbers and arrays of numbers, for which all zero is a value.
        let zero: DeviceAttrEx = unsafe { std::mem::zeroed() };
        let whole = DeviceAttrEx { phys_port_cnt_ex: found.phys_port_cnt.into(), orig_attr: found, ..zero };
        // SAFETY: by 2.
        unsafe { fill(attr, &whole, length) };
        0
    });
    status(outcome)
}
