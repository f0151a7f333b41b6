//! The table of CUDA driver entry points.
//!
//! Names carry the suffixes under which the driver exports them: a plain `cuMemFree` is another function, of 32-bit sizes.
//! None is required of a library: what a call needs and the driver lacks is `Unsupported` at that call.
//!
//! # Safety
//!
//! This file guarantees that each name stands with the signature that it has in `<cuda.h>`.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use bareverbs_core::cuda::{
    CuContext, CuDevice, CuDevicePtr, CuResult, CuStream, DeviceAttribute, PointerAttribute, RangeHandleType,
};

use crate::symbols::table::symbol_table;

symbol_table! {
    /// CUDA driver entry points, as plain data: what [`CudaSymbols`] is made of, once somebody vouches for it.
    CudaTable
    required {}
    optional {
        init = "cuInit": fn(c_uint) -> CuResult;
        driver_get_version = "cuDriverGetVersion": fn(*mut c_int) -> CuResult;
        get_error_name = "cuGetErrorName": fn(CuResult, *mut *const c_char) -> CuResult;
        device_get_count = "cuDeviceGetCount": fn(*mut c_int) -> CuResult;
        device_get = "cuDeviceGet": fn(*mut CuDevice, c_int) -> CuResult;
        device_get_attribute = "cuDeviceGetAttribute": fn(*mut c_int, DeviceAttribute, CuDevice) -> CuResult;
        /// Fills a C string of at most `len` bytes, the zero among them.
        device_get_pci_bus_id = "cuDeviceGetPCIBusId": fn(*mut c_char, c_int, CuDevice) -> CuResult;
        /// Writes what the attribute is wide: 4 bytes for most, 8 for addresses, sizes, handles and the buffer id.
        pointer_get_attribute = "cuPointerGetAttribute": fn(*mut c_void, PointerAttribute, CuDevicePtr) -> CuResult;
        mem_get_address_range = "cuMemGetAddressRange_v2": fn(*mut CuDevicePtr, *mut usize, CuDevicePtr) -> CuResult;
        /// The handle is an `int` for dma-buf.
        mem_get_handle_for_address_range = "cuMemGetHandleForAddressRange":
            fn(*mut c_void, CuDevicePtr, usize, RangeHandleType, c_ulonglong) -> CuResult;
        mem_alloc = "cuMemAlloc_v2": fn(*mut CuDevicePtr, usize) -> CuResult;
        mem_free = "cuMemFree_v2": fn(CuDevicePtr) -> CuResult;
        ctx_get_current = "cuCtxGetCurrent": fn(*mut *mut CuContext) -> CuResult;
        ctx_set_current = "cuCtxSetCurrent": fn(*mut CuContext) -> CuResult;
        ctx_synchronize = "cuCtxSynchronize": fn() -> CuResult;
        device_primary_ctx_retain = "cuDevicePrimaryCtxRetain": fn(*mut *mut CuContext, CuDevice) -> CuResult;
        device_primary_ctx_release = "cuDevicePrimaryCtxRelease_v2": fn(CuDevice) -> CuResult;
        memcpy_dtoh = "cuMemcpyDtoH_v2": fn(*mut c_void, CuDevicePtr, usize) -> CuResult;
        /// From pageable memory it may return before the bytes are there.
        memcpy_htod = "cuMemcpyHtoD_v2": fn(CuDevicePtr, *const c_void, usize) -> CuResult;
        stream_synchronize = "cuStreamSynchronize": fn(*mut CuStream) -> CuResult;
        /// Target 0 is the current context's device; scope 100 its owner, 200 all devices.
        flush_gpu_direct_rdma_writes = "cuFlushGPUDirectRDMAWrites": fn(c_uint, c_uint) -> CuResult;
    }
}

/// The CUDA driver's entry points, vouched for.
///
/// Possessing one proves that each entry point does what `<cuda.h>` says of its name, and stays callable for as long as the
/// process runs. It reads like its [`CudaTable`].
#[derive(Clone, Debug)]
pub struct CudaSymbols(CudaTable);

impl CudaSymbols {
    /// Vouches for a table: a wrapped driver's, say.
    ///
    /// # Safety
    /// 1. Each entry point does what `<cuda.h>` and the driver's manual say of its name, from any thread.
    /// 2. It stays callable for as long as the process runs.
    pub const unsafe fn new(table: CudaTable) -> Self {
        Self(table)
    }

    /// The table, to be copied and changed.
    pub const fn table(&self) -> &CudaTable {
        &self.0
    }
}

impl std::ops::Deref for CudaSymbols {
    type Target = CudaTable;

    fn deref(&self) -> &CudaTable {
        &self.0
    }
}
