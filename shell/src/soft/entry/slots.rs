//! The calls that are given no handle: each slot has its own.
//!
//! # Safety
//!
//! This file guarantees that a list it hands out is its own memory, ends with null, and is given back to the allocator once.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::with_exposed_provenance_mut;

use bareverbs_core::verbs::Device;

use crate::soft::plan::Answer;
use crate::soft::record::{Call, Detail};
use crate::soft::state::State;
use crate::soft::worlds::SLOTS;
use crate::soft::{errno, worlds};

/// The entry points of one slot.
#[derive(Clone, Copy)]
pub(in crate::soft) struct SlotEntries {
    pub get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut Device,
    pub free_device_list: unsafe extern "C" fn(*mut *mut Device),
    pub fork_init: unsafe extern "C" fn() -> c_int,
}

macro_rules! rows {
    ($($high:literal)*) => { [$(
        rows!(@row $high: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    ),*] };
    (@row $high:literal: $($low:literal)*) => { [$(
        SlotEntries {
            get_device_list: get_device_list::<{ $high * 16 + $low }>,
            free_device_list: free_device_list::<{ $high * 16 + $low }>,
            fork_init: fork_init::<{ $high * 16 + $low }>,
        }
    ),*] };
}

static ENTRIES: [[SlotEntries; 16]; SLOTS / 16] = rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

/// The entry points of a slot.
pub(in crate::soft) fn entries(slot: u32) -> SlotEntries {
    ENTRIES[slot as usize / 16][slot as usize % 16]
}

/// Asks the plan, then runs, then records; what happens where the slot has no fabric any more is ENODEV.
fn call(slot: u32, symbol: &'static str, run: impl FnOnce(&mut State) -> usize) -> Result<usize, Answer> {
    let outcome = worlds::with(slot, |state| {
        let outcome = match state.plan.on_call(symbol) {
            Some(answer) => Err(answer),
            None => Ok(run(state)),
        };
        let (returned, errno) = match outcome {
            Ok(_) => (0, None),
            Err(answer) => (answer.returned, answer.errno),
        };
        let (handle, parents, detail) = (outcome.unwrap_or(0), [0; 3], Detail::None);
        state.record.add(Call { number: 0, symbol, handle, parents, detail, returned, errno });
        outcome
    });
    outcome.unwrap_or(Err(Answer::null(libc::ENODEV)))
}

/// # Safety
/// 1. `count` is null or valid for a write.
unsafe extern "C" fn get_device_list<const SLOT: u32>(count: *mut c_int) -> *mut *mut Device {
    let mut devices = 0;
    let outcome = call(SLOT, "ibv_get_device_list", |state| {
        devices = state.devices.len();
        let mut list: Vec<*mut Device> = Vec::with_capacity(devices + 1);
        for device in &mut state.devices {
            device.references += 1;
            list.push(with_exposed_provenance_mut(device.handle));
        }
        list.push(std::ptr::null_mut());
        let list: *mut [*mut Device] = Box::into_raw(list.into_boxed_slice());
        let address = list.expose_provenance();
        state.lists.push((address, devices + 1));
        address
    });
    if outcome.is_ok() && !count.is_null() {
        // SAFETY: not null, so valid by 1.
        unsafe { count.write(devices as c_int) };
    }
    super::pointer(outcome)
}

/// # Safety
/// 1. Nothing uses the list afterwards.
unsafe extern "C" fn free_device_list<const SLOT: u32>(list: *mut *mut Device) {
    let mut freed = None;
    let _ = call(SLOT, "ibv_free_device_list", |state| {
        let address = list.addr();
        match state.lists.iter().position(|(known, _)| *known == address) {
            None => state.blame(format!("ibv_free_device_list: {address:#x} is no list, or was freed")),
            Some(at) => {
                freed = Some(state.lists.swap_remove(at));
                for device in &mut state.devices {
                    device.references -= 1;
                }
            }
        }
        address
    });
    if let Some((address, length)) = freed {
        let list = std::ptr::slice_from_raw_parts_mut(with_exposed_provenance_mut::<*mut Device>(address), length);
        // SAFETY: made by `Box::into_raw` of a slice of this length in `get_device_list`, and just taken out of the lists,
        // so freed once; by 1 nobody uses it.
        drop(unsafe { Box::from_raw(list) });
    }
}

/// There is nothing to prepare: regions are this process's own memory.
extern "C" fn fork_init<const SLOT: u32>() -> c_int {
    match call(SLOT, "ibv_fork_init", |_| 0) {
        Ok(_) => 0,
        Err(answer) => {
            if let Some(number) = answer.errno {
                errno::set(number);
            }
            answer.returned
        }
    }
}
