//! The table of each slot.
//!
//! # Safety
//!
//! This file guarantees that each entry point of the table is the stand-in's own for that name.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::entry;
use super::state::SLOTS;
use crate::symbols::{CudaSymbols, CudaTable};

type Make = fn(Arc<str>, &[&'static str]) -> CudaTable;

macro_rules! rows {
    ($($high:literal)*) => { [$(
        rows!(@row $high: 0 1 2 3 4 5 6 7)
    ),*] };
    (@row $high:literal: $($low:literal)*) => { [$( table::<{ $high * 8 + $low }> as Make ),*] };
}

static TABLES: [[Make; 8]; SLOTS / 8] = rows!(0 1 2 3 4 5 6 7);

/// The table of the stand-in in a slot, without the entry points named in `missing`.
pub(super) fn symbols(slot: u32, library: Arc<str>, missing: &[&'static str]) -> CudaSymbols {
    let make = TABLES[slot as usize / 8][slot as usize % 8];
    // SAFETY: 1: each answers as the header says, whatever it is given. 2: they are functions of this program.
    unsafe { CudaSymbols::new(make(library, missing)) }
}

fn table<const SLOT: u32>(library: Arc<str>, missing: &[&'static str]) -> CudaTable {
    let has = |name: &str| !missing.contains(&name);
    CudaTable {
        library,
        init: has("cuInit").then_some(entry::init::<SLOT>),
        driver_get_version: has("cuDriverGetVersion").then_some(entry::driver_get_version::<SLOT>),
        get_error_name: has("cuGetErrorName").then_some(entry::get_error_name::<SLOT>),
        device_get_count: has("cuDeviceGetCount").then_some(entry::device_get_count::<SLOT>),
        device_get: has("cuDeviceGet").then_some(entry::device_get::<SLOT>),
        device_get_attribute: has("cuDeviceGetAttribute").then_some(entry::device_get_attribute::<SLOT>),
        device_get_pci_bus_id: has("cuDeviceGetPCIBusId").then_some(entry::device_get_pci_bus_id::<SLOT>),
        pointer_get_attribute: has("cuPointerGetAttribute").then_some(entry::pointer_get_attribute::<SLOT>),
        mem_get_address_range: has("cuMemGetAddressRange_v2").then_some(entry::mem_get_address_range::<SLOT>),
        mem_get_handle_for_address_range: has("cuMemGetHandleForAddressRange")
            .then_some(entry::mem_get_handle_for_address_range::<SLOT>),
        mem_alloc: has("cuMemAlloc_v2").then_some(entry::mem_alloc::<SLOT>),
        mem_free: has("cuMemFree_v2").then_some(entry::mem_free::<SLOT>),
        ctx_get_current: has("cuCtxGetCurrent").then_some(entry::ctx_get_current::<SLOT>),
        ctx_set_current: has("cuCtxSetCurrent").then_some(entry::ctx_set_current::<SLOT>),
        ctx_synchronize: has("cuCtxSynchronize").then_some(entry::ctx_synchronize::<SLOT>),
        device_primary_ctx_retain: has("cuDevicePrimaryCtxRetain").then_some(entry::device_primary_ctx_retain::<SLOT>),
        device_primary_ctx_release: has("cuDevicePrimaryCtxRelease_v2")
            .then_some(entry::device_primary_ctx_release::<SLOT>),
        memcpy_dtoh: has("cuMemcpyDtoH_v2").then_some(entry::memcpy_dtoh::<SLOT>),
        memcpy_htod: has("cuMemcpyHtoD_v2").then_some(entry::memcpy_htod::<SLOT>),
        stream_synchronize: has("cuStreamSynchronize").then_some(entry::stream_synchronize::<SLOT>),
        flush_gpu_direct_rdma_writes: has("cuFlushGPUDirectRDMAWrites")
            .then_some(entry::flush_gpu_direct_rdma_writes::<SLOT>),
    }
}
