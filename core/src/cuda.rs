//! The words of the CUDA driver: results, attributes and handles, as its C interface has them.
//!
//! Numbers are those of `<cuda.h>`, CUDA 13.0. This file knows no policy: which answers mean device memory, and what follows
//! from it, is decided elsewhere.

use crate::layout::{ConstantTable, Constants, open_enum};

open_enum! {
    /// `CUresult`
    #[must_use]
    CuResult: u32 {
        SUCCESS = 0, "CUDA_SUCCESS";
        /// Also of a pointer that the driver does not know, as pageable host memory.
        INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE";
        OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY";
        /// `cuInit` was not called: no device memory exists yet.
        NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED";
        /// The driver is shutting down with its process.
        DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED";
        NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE";
        INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE";
        /// Also where a call needs a current context and there is none.
        INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT";
        OPERATING_SYSTEM = 304, "CUDA_ERROR_OPERATING_SYSTEM";
        INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE";
        NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND";
        /// The current context is gone: a primary one that nobody holds any more.
        CONTEXT_IS_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED";
        NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED";
        NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED";
        UNKNOWN = 999, "CUDA_ERROR_UNKNOWN";
    }
}

open_enum! {
    /// `CUpointer_attribute`
    PointerAttribute: u32 {
        /// A context handle; null, with success, for memory of a pool and for growing memory.
        CONTEXT = 1, "CU_POINTER_ATTRIBUTE_CONTEXT";
        /// A [`MemoryType`].
        MEMORY_TYPE = 2, "CU_POINTER_ATTRIBUTE_MEMORY_TYPE";
        /// 64 bits, unique per allocation; per mapping of growing memory.
        BUFFER_ID = 7, "CU_POINTER_ATTRIBUTE_BUFFER_ID";
        /// 32 bits, 1 for managed memory.
        IS_MANAGED = 8, "CU_POINTER_ATTRIBUTE_IS_MANAGED";
        /// A signed 32-bit number.
        DEVICE_ORDINAL = 9, "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL";
        RANGE_START_ADDR = 11, "CU_POINTER_ATTRIBUTE_RANGE_START_ADDR";
        /// Of growing memory that of the whole reservation, mapped or not.
        RANGE_SIZE = 12, "CU_POINTER_ATTRIBUTE_RANGE_SIZE";
        MAPPED = 13, "CU_POINTER_ATTRIBUTE_MAPPED";
        /// 32 bits.
        IS_GPU_DIRECT_RDMA_CAPABLE = 15, "CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE";
        /// A pool's handle, or null.
        MEMPOOL_HANDLE = 17, "CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE";
    }
}

open_enum! {
    /// `CUmemorytype`
    MemoryType: u32 {
        HOST = 1, "CU_MEMORYTYPE_HOST";
        /// Of managed memory too.
        DEVICE = 2, "CU_MEMORYTYPE_DEVICE";
    }
}

open_enum! {
    /// `CUdevice_attribute`
    DeviceAttribute: u32 {
        PCI_BUS_ID = 33, "CU_DEVICE_ATTRIBUTE_PCI_BUS_ID";
        PCI_DEVICE_ID = 34, "CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID";
        PCI_DOMAIN_ID = 50, "CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID";
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102, "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED";
        GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110, "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED";
        GPU_DIRECT_RDMA_SUPPORTED = 116, "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED";
        /// A bit mask: 1, the host may flush writes.
        GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117, "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS";
        /// 0: not ordered; 100: ordered for the device that owns the memory; 200: for all devices.
        GPU_DIRECT_RDMA_WRITES_ORDERING = 118, "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING";
        DMA_BUF_SUPPORTED = 124, "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED";
    }
}

open_enum! {
    /// `CUmemRangeHandleType`
    RangeHandleType: u32 {
        /// The handle is a file descriptor, an `int`.
        DMA_BUF_FD = 1, "CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD";
    }
}

/// `CUdevice`: a device's ordinal among those that the process sees.
pub type CuDevice = i32;

/// `CUdeviceptr`
pub type CuDevicePtr = u64;

/// What a `CUcontext` points to; made by the driver only.
#[derive(Debug)]
#[repr(C)]
pub struct CuContext {
    _opaque: [u8; 0],
}

/// What a `CUstream` points to; made by the driver only. Null is the legacy default stream.
#[derive(Debug)]
#[repr(C)]
pub struct CuStream {
    _opaque: [u8; 0],
}

/// Every enum of this file that has constants.
pub const CONSTANTS: &[ConstantTable] =
    &[CuResult::TABLE, PointerAttribute::TABLE, MemoryType::TABLE, DeviceAttribute::TABLE, RangeHandleType::TABLE];
