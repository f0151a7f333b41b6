//! The C functions that stand in the table, one instance for each slot.
//!
//! # Safety
//!
//! This file guarantees that an output of the caller's is written only where it is not null, and no wider than the driver
//! writes it.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::IntoRawFd;
use std::ptr::with_exposed_provenance_mut;

use bareverbs_core::cuda::{
    CuContext, CuDevice, CuDevicePtr, CuResult, CuStream, DeviceAttribute, PointerAttribute, RangeHandleType,
};

use super::answers::Value;
use super::contexts::{self, Contexts};
use super::state::{self, CudaState, Phase, Subject};

/// What a call of the driver's answers: success where it has a value, which `write` takes.
fn answer<R>(outcome: Option<Result<R, CuResult>>, write: impl FnOnce(R)) -> CuResult {
    match outcome {
        // Nobody holds the stand-in any more.
        None => CuResult::DEINITIALIZED,
        Some(Err(refused)) => refused,
        Some(Ok(value)) => {
            write(value);
            CuResult::SUCCESS
        }
    }
}

/// Makes a call that needs the driver initialised.
fn call<R>(
    slot: u32,
    symbol: &'static str,
    about: (u64, u64),
    run: impl FnOnce(&mut CudaState) -> Result<R, CuResult>,
) -> Option<Result<R, CuResult>> {
    let about = Subject { subject: about.0, size: about.1 };
    state::with(slot, |state| state.call(symbol, about, true, run))
}

/// # Safety
/// 1. `to` is null or valid for a write.
unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, so valid by 1.
        unsafe { to.write(value) };
    }
}

pub(super) extern "C" fn init<const SLOT: u32>(flags: c_uint) -> CuResult {
    let outcome = state::with(SLOT, |state| {
        state.call("cuInit", Subject::default(), false, |state| match state.phase {
            _ if flags != 0 => Err(CuResult::INVALID_VALUE),
            Phase::ShuttingDown => Err(CuResult::DEINITIALIZED),
            _ => {
                state.phase = Phase::Running;
                Ok(())
            }
        })
    });
    answer(outcome, drop)
}

/// # Safety
/// 1. `version` is null or valid for a write.
pub(super) unsafe extern "C" fn driver_get_version<const SLOT: u32>(version: *mut c_int) -> CuResult {
    let outcome =
        state::with(SLOT, |state| state.call("cuDriverGetVersion", Subject::default(), false, |_| Ok(13_000)));
    // SAFETY: by 1.
    answer(outcome, |number| unsafe { put(version, number) })
}

/// # Safety
/// 1. `text` is null or valid for a write.
pub(super) unsafe extern "C" fn get_error_name<const SLOT: u32>(
    result: CuResult,
    text: *mut *const c_char,
) -> CuResult {
    let about = Subject { subject: result.0.into(), size: 0 };
    let name = match result {
        CuResult::SUCCESS => Some(c"CUDA_SUCCESS"),
        CuResult::INVALID_VALUE => Some(c"CUDA_ERROR_INVALID_VALUE"),
        CuResult::OUT_OF_MEMORY => Some(c"CUDA_ERROR_OUT_OF_MEMORY"),
        CuResult::NOT_INITIALIZED => Some(c"CUDA_ERROR_NOT_INITIALIZED"),
        CuResult::DEINITIALIZED => Some(c"CUDA_ERROR_DEINITIALIZED"),
        CuResult::INVALID_DEVICE => Some(c"CUDA_ERROR_INVALID_DEVICE"),
        CuResult::INVALID_CONTEXT => Some(c"CUDA_ERROR_INVALID_CONTEXT"),
        CuResult::CONTEXT_IS_DESTROYED => Some(c"CUDA_ERROR_CONTEXT_IS_DESTROYED"),
        CuResult::NOT_FOUND => Some(c"CUDA_ERROR_NOT_FOUND"),
        CuResult::NOT_SUPPORTED => Some(c"CUDA_ERROR_NOT_SUPPORTED"),
        _ => None,
    };
    let outcome =
        state::with(SLOT, |state| state.call("cuGetErrorName", about, false, |_| name.ok_or(CuResult::INVALID_VALUE)));
    // SAFETY: by 1.
    answer(outcome, |name| unsafe { put(text, name.as_ptr()) })
}

/// # Safety
/// 1. `count` is null or valid for a write.
pub(super) unsafe extern "C" fn device_get_count<const SLOT: u32>(count: *mut c_int) -> CuResult {
    let outcome = call(SLOT, "cuDeviceGetCount", (0, 0), |state| Ok(state.config.gpus.len() as c_int));
    // SAFETY: by 1.
    answer(outcome, |number| unsafe { put(count, number) })
}

/// # Safety
/// 1. `device` is null or valid for a write.
pub(super) unsafe extern "C" fn device_get<const SLOT: u32>(device: *mut CuDevice, ordinal: c_int) -> CuResult {
    let outcome = call(SLOT, "cuDeviceGet", (ordinal as u64, 0), |state| state.gpu(ordinal).map(|_| ordinal));
    // SAFETY: by 1.
    answer(outcome, |ordinal| unsafe { put(device, ordinal) })
}

/// # Safety
/// 1. `value` is null or valid for a write.
pub(super) unsafe extern "C" fn device_get_attribute<const SLOT: u32>(
    value: *mut c_int,
    attribute: DeviceAttribute,
    device: CuDevice,
) -> CuResult {
    let outcome = call(SLOT, "cuDeviceGetAttribute", (device as u64, attribute.0.into()), |state| {
        state.gpu(device)?.value(attribute).ok_or(CuResult::INVALID_VALUE)
    });
    // SAFETY: by 1.
    answer(outcome, |number| unsafe { put(value, number) })
}

/// # Safety
/// 1. `text` is null or valid for writes of `length` bytes.
pub(super) unsafe extern "C" fn device_get_pci_bus_id<const SLOT: u32>(
    text: *mut c_char,
    length: c_int,
    device: CuDevice,
) -> CuResult {
    let outcome = call(SLOT, "cuDeviceGetPCIBusId", (device as u64, length as u64), |state| {
        let [domain, bus, device] = state.gpu(device)?.pci;
        let id = format!("{domain:04X}:{bus:02X}:{device:02X}.0\0");
        if usize::try_from(length).is_ok_and(|room| room >= id.len()) { Ok(id) } else { Err(CuResult::INVALID_VALUE) }
    });
    answer(outcome, |id: String| {
        if !text.is_null() {
            // SAFETY: not null, and so long by 1.
            unsafe { text.cast::<u8>().copy_from_nonoverlapping(id.as_ptr(), id.len()) };
        }
    })
}

/// # Safety
/// 1. `data` is null or valid for a write as wide as the attribute is.
pub(super) unsafe extern "C" fn pointer_get_attribute<const SLOT: u32>(
    data: *mut c_void,
    attribute: PointerAttribute,
    address: CuDevicePtr,
) -> CuResult {
    let outcome = call(SLOT, "cuPointerGetAttribute", (address, attribute.0.into()), |state| {
        if data.is_null() { Err(CuResult::INVALID_VALUE) } else { state.attribute(attribute, address) }
    });
    answer(outcome, |value| match value {
        // SAFETY: by 1.
        Value::Bits32(number) => unsafe { put(data.cast(), number) },
        // SAFETY: by 1.
        Value::Bits64(number) => unsafe { put(data.cast(), number) },
    })
}

/// # Safety
/// 1. `base` and `size` are each null or valid for a write.
pub(super) unsafe extern "C" fn mem_get_address_range<const SLOT: u32>(
    base: *mut CuDevicePtr,
    size: *mut usize,
    address: CuDevicePtr,
) -> CuResult {
    let outcome = call(SLOT, "cuMemGetAddressRange_v2", (address, 0), |state| {
        state.needs_context()?;
        state.address_range(address)
    });
    answer(outcome, |(start, length_bytes)| {
        // SAFETY: by 1.
        unsafe { put(base, start) };
        // SAFETY: by 1.
        unsafe { put(size, length_bytes as usize) };
    })
}

/// # Safety
/// 1. `handle` is null or valid for a write of an `int`.
pub(super) unsafe extern "C" fn mem_get_handle_for_address_range<const SLOT: u32>(
    handle: *mut c_void,
    address: CuDevicePtr,
    size: usize,
    kind: RangeHandleType,
    flags: c_ulonglong,
) -> CuResult {
    let about = (address, size as u64);
    let outcome = call(SLOT, "cuMemGetHandleForAddressRange", about, |state| {
        if handle.is_null() || kind != RangeHandleType::DMA_BUF_FD {
            return Err(CuResult::INVALID_VALUE);
        }
        state.needs_context()?;
        state.export(address, size as u64, flags)
    });
    // SAFETY: by 1.
    answer(outcome, |file| unsafe { put(handle.cast::<c_int>(), file.into_raw_fd()) })
}

/// # Safety
/// 1. `address` is null or valid for a write.
pub(super) unsafe extern "C" fn mem_alloc<const SLOT: u32>(address: *mut CuDevicePtr, size: usize) -> CuResult {
    let outcome = call(SLOT, "cuMemAlloc_v2", (0, size as u64), |state| {
        let context = contexts::current(state.number);
        let ordinal = state.contexts.usable(context)?.ordinal;
        if address.is_null() || size == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        state.allocate(ordinal, context, size as u64, None)
    });
    // SAFETY: by 1.
    answer(outcome, |start| unsafe { put(address, start) })
}

pub(super) extern "C" fn mem_free<const SLOT: u32>(address: CuDevicePtr) -> CuResult {
    let outcome = call(SLOT, "cuMemFree_v2", (address, 0), |state| state.free(address));
    answer(outcome, drop)
}

/// # Safety
/// 1. `context` is null or valid for a write.
pub(super) unsafe extern "C" fn ctx_get_current<const SLOT: u32>(context: *mut *mut CuContext) -> CuResult {
    let outcome = call(SLOT, "cuCtxGetCurrent", (0, 0), |state| Ok(contexts::current(state.number)));
    // SAFETY: by 1.
    answer(outcome, |handle| unsafe { put(context, with_exposed_provenance_mut(handle)) })
}

pub(super) extern "C" fn ctx_set_current<const SLOT: u32>(context: *mut CuContext) -> CuResult {
    let handle = context.addr();
    let outcome = call(SLOT, "cuCtxSetCurrent", (handle as u64, 0), |state| {
        if handle != 0 && !state.contexts.is_known(handle) {
            return Err(CuResult::INVALID_CONTEXT);
        }
        contexts::set_current(state.number, handle);
        Ok(())
    });
    answer(outcome, drop)
}

pub(super) extern "C" fn ctx_synchronize<const SLOT: u32>() -> CuResult {
    let outcome = call(SLOT, "cuCtxSynchronize", (0, 0), |state| {
        state.needs_context()?;
        state.arrive();
        Ok(())
    });
    answer(outcome, drop)
}

/// # Safety
/// 1. `context` is null or valid for a write.
pub(super) unsafe extern "C" fn device_primary_ctx_retain<const SLOT: u32>(
    context: *mut *mut CuContext,
    device: CuDevice,
) -> CuResult {
    let outcome = call(SLOT, "cuDevicePrimaryCtxRetain", (device as u64, 0), |state| {
        state.gpu(device)?;
        let primary = state.contexts.primaries.get_mut(device as usize).ok_or(CuResult::INVALID_DEVICE)?;
        primary.held += 1;
        primary.retained += 1;
        Ok(Contexts::primary(device))
    });
    // SAFETY: by 1.
    answer(outcome, |handle| unsafe { put(context, with_exposed_provenance_mut(handle)) })
}

pub(super) extern "C" fn device_primary_ctx_release<const SLOT: u32>(device: CuDevice) -> CuResult {
    let outcome = call(SLOT, "cuDevicePrimaryCtxRelease_v2", (device as u64, 0), |state| {
        state.gpu(device)?;
        let primary = state.contexts.primaries.get_mut(device as usize).ok_or(CuResult::INVALID_DEVICE)?;
        primary.held = primary.held.checked_sub(1).ok_or(CuResult::INVALID_CONTEXT)?;
        primary.released += 1;
        if primary.held == 0 {
            state.space.end_context(Contexts::primary(device));
        }
        Ok(())
    });
    answer(outcome, drop)
}

/// # Safety
/// 1. `to` is valid for writes of `size` bytes.
pub(super) unsafe extern "C" fn memcpy_dtoh<const SLOT: u32>(
    to: *mut c_void,
    from: CuDevicePtr,
    size: usize,
) -> CuResult {
    let outcome = call(SLOT, "cuMemcpyDtoH_v2", (from, size as u64), |state| {
        state.needs_context()?;
        // SAFETY: 1 is the caller's promise; 2: that nobody writes the range is what the driver asks too.
        unsafe { state.copy_out(from, to.cast(), size) }
    });
    answer(outcome, drop)
}

/// # Safety
/// 1. `from` is valid for reads of `size` bytes.
pub(super) unsafe extern "C" fn memcpy_htod<const SLOT: u32>(
    to: CuDevicePtr,
    from: *const c_void,
    size: usize,
) -> CuResult {
    let outcome = call(SLOT, "cuMemcpyHtoD_v2", (to, size as u64), |state| {
        state.needs_context()?;
        if size == 0 {
            return Ok(());
        }
        if from.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and so many bytes by 1.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
        state.arrive();
        if state.config.lazy {
            state.space.pieces(to, size as u64).ok_or(CuResult::INVALID_VALUE)?;
            state.pending.push((to, bytes.to_vec()));
            return Ok(());
        }
        state.copy_in(to, bytes)
    });
    answer(outcome, drop)
}

pub(super) extern "C" fn stream_synchronize<const SLOT: u32>(_stream: *mut CuStream) -> CuResult {
    let outcome = call(SLOT, "cuStreamSynchronize", (0, 0), |state| {
        state.needs_context()?;
        state.arrive();
        Ok(())
    });
    answer(outcome, drop)
}

pub(super) extern "C" fn flush_gpu_direct_rdma_writes<const SLOT: u32>(target: c_uint, scope: c_uint) -> CuResult {
    let about = (target.into(), scope.into());
    let outcome = call(SLOT, "cuFlushGPUDirectRDMAWrites", about, |state| match (target, scope) {
        (0, 100 | 200) => state.needs_context(),
        _ => Err(CuResult::INVALID_VALUE),
    });
    answer(outcome, drop)
}
