//! Devices: their names, and the contexts opened on them.
//!
//! Nothing here follows a pointer of the caller's: a handle is looked up.

use std::ffi::{c_char, c_int};

use bareverbs_core::verbs::{Context, Device};

use crate::soft::entry::{Asked, pointer, status};
use crate::soft::handles::{self, Kind};

pub(in crate::soft) extern "C" fn get_device_name(device: *mut Device) -> *const c_char {
    let asked = Asked::on("ibv_get_device_name", Kind::Device, device.addr());
    match asked.call(|_, _| Ok(0)) {
        Ok(_) => handles::device_name(device.addr()),
        Err(_) => std::ptr::null(),
    }
}

/// The number is big-endian; 0 for a device that cannot say.
pub(in crate::soft) extern "C" fn get_device_guid(device: *mut Device) -> u64 {
    let mut guid = 0;
    let asked = Asked::on("ibv_get_device_guid", Kind::Device, device.addr());
    let outcome = asked.call(|state, index| {
        guid = state.devices.get(index as usize).map_or(0, |device| device.guid.to_be());
        Ok(0)
    });
    if outcome.is_ok() { guid } else { 0 }
}

pub(in crate::soft) extern "C" fn open_device(device: *mut Device) -> *mut Context {
    let asked = Asked::making("ibv_open_device", Kind::Device, device.addr());
    pointer(asked.call(|state, index| state.open(index)))
}

pub(in crate::soft) extern "C" fn close_device(context: *mut Context) -> c_int {
    let asked = Asked::on("ibv_close_device", Kind::Context, context.addr());
    status(asked.call(|state, index| state.close(index).map(|()| 0)))
}
