//! Each call of the driver's table, once: outputs zeroed before it, its answer and what it was about after it.
//!
//! # Safety
//!
//! This file guarantees that a call gets outputs as wide as the driver writes, which are zero before; that a file is owned by one
//! owner from the call that made it; and that a context is nothing but passed back to the driver that gave it.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;

use bareverbs_core::cuda::{CuContext, CuResult, DeviceAttribute, MemoryType, PointerAttribute, RangeHandleType};
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::Ordinal;

use super::error::{CudaCallError, CudaError, Subject};
use crate::symbols::CudaSymbols;

/// The driver's table, with a safe form of what is called in it.
#[derive(Clone)]
pub(super) struct Calls(pub(super) Arc<CudaSymbols>);

/// A context of the driver's, or none. Its owner may destroy it at any time: the driver then refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context(*mut CuContext);

impl Context {
    /// Whether there is one.
    pub(super) fn is_some(self) -> bool {
        !self.0.is_null()
    }
}

/// The host's page, bytes.
pub(super) fn host_page_bytes() -> u64 {
    // SAFETY: takes a number.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // It has one on every system: POSIX has no way for this to fail.
    u64::try_from(answer).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

impl Calls {
    /// The entry point, or its name in an error.
    fn symbol<F>(&self, symbol: Option<F>, name: &'static str) -> Result<F, CudaError> {
        symbol.ok_or_else(|| CudaError::Unsupported { symbol: name, library: Arc::clone(&self.0.library) })
    }

    fn checked(&self, call: &'static str, subject: Subject, result: CuResult) -> Result<(), CudaError> {
        if result == CuResult::SUCCESS {
            return Ok(());
        }
        let name = result.name().map_or_else(|| self.name_of(result), Cow::Borrowed);
        Err(CudaError::Call(CudaCallError { call, subject, result, name }))
    }

    /// The driver's own name for an answer; empty if it has none.
    fn name_of(&self, result: CuResult) -> Cow<'static, str> {
        let Some(get_error_name) = self.0.get_error_name else { return Cow::Borrowed("") };
        let mut text = std::ptr::null();
        // SAFETY: the output is a pointer of ours.
        let answer = unsafe { get_error_name(result, &raw mut text) };
        if answer != CuResult::SUCCESS || text.is_null() {
            return Cow::Borrowed("");
        }
        // SAFETY: with success and not null it is a C string of the driver's, which is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned().into()
    }

    pub(super) fn init(&self) -> Result<(), CudaError> {
        let call = self.symbol(self.0.init, "cuInit")?;
        // SAFETY: takes a number; 0 is the only one there is.
        let answer = unsafe { call(0) };
        self.checked("cuInit", Subject::Nothing, answer)
    }

    /// An attribute, written over `value`.
    ///
    /// # Safety
    /// 1. A `T` is at least as wide as the attribute, and may be any bytes.
    #[inline]
    unsafe fn attribute<T>(&self, attribute: PointerAttribute, address: u64, mut value: T) -> Result<T, CudaError> {
        let call = self.symbol(self.0.pointer_get_attribute, "cuPointerGetAttribute")?;
        // SAFETY: the output is wide enough by 1; any address may be asked for.
        let answer = unsafe { call((&raw mut value).cast(), attribute, address) };
        self.checked("cuPointerGetAttribute", Subject::Attribute(attribute, address), answer)?;
        Ok(value)
    }

    /// An attribute of 4 bytes. The output has room for 8: some are no wider than a byte or a `bool`, by the manual.
    fn attribute_32(&self, attribute: PointerAttribute, address: u64) -> Result<u32, CudaError> {
        // SAFETY: 1: 8 bytes are as wide as any of the attributes asked for here; any bytes are a number.
        let [a, b, c, d, ..] = unsafe { self.attribute(attribute, address, 0_u64) }?.to_ne_bytes();
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    pub(super) fn memory_type(&self, address: u64) -> Result<MemoryType, CudaError> {
        self.attribute_32(PointerAttribute::MEMORY_TYPE, address).map(MemoryType)
    }

    pub(super) fn is_managed(&self, address: u64) -> Result<bool, CudaError> {
        self.attribute_32(PointerAttribute::IS_MANAGED, address).map(|value| value != 0)
    }

    pub(super) fn ordinal(&self, address: u64) -> Result<Ordinal, CudaError> {
        let got = self.attribute_32(PointerAttribute::DEVICE_ORDINAL, address)?.cast_signed();
        u32::try_from(got).map(Ordinal).map_err(|_| CudaError::Ordinal { address, got })
    }

    pub(super) fn gpu_direct_capable(&self, address: u64) -> Result<u32, CudaError> {
        self.attribute_32(PointerAttribute::IS_GPU_DIRECT_RDMA_CAPABLE, address)
    }

    #[inline]
    pub(super) fn buffer_id(&self, address: u64) -> Result<u64, CudaError> {
        // SAFETY: 1: the id is 8 bytes wide, and any bytes are a number.
        unsafe { self.attribute(PointerAttribute::BUFFER_ID, address, 0_u64) }
    }

    /// The context that memory was allocated in; none, with success, for memory of a pool and for growing memory.
    pub(super) fn context_of(&self, address: u64) -> Result<Context, CudaError> {
        // SAFETY: 1: the attribute is a pointer, and any bytes are one that is never followed.
        unsafe { self.attribute(PointerAttribute::CONTEXT, address, null_mut()) }.map(Context)
    }

    /// Whether memory is a pool's.
    pub(super) fn is_of_pool(&self, address: u64) -> Result<bool, CudaError> {
        // SAFETY: 1: the attribute is a handle of 8 bytes at most, and any bytes are a number.
        unsafe { self.attribute(PointerAttribute::MEMPOOL_HANDLE, address, 0_u64) }.map(|handle| handle != 0)
    }

    /// Start and length of what holds an address, as the driver says.
    pub(super) fn address_range(&self, address: u64) -> Result<(u64, u64), CudaError> {
        let call = self.symbol(self.0.mem_get_address_range, "cuMemGetAddressRange_v2")?;
        let (mut base, mut size) = (0, 0);
        // SAFETY: the outputs are numbers of ours; any address may be asked for.
        let answer = unsafe { call(&raw mut base, &raw mut size, address) };
        self.checked("cuMemGetAddressRange_v2", Subject::Address(address), answer)?;
        Ok((base, size as u64))
    }

    /// A device's attribute; `None` where the driver does not know the attribute, or has no such call.
    pub(super) fn device_attribute(
        &self,
        ordinal: Ordinal,
        attribute: DeviceAttribute,
    ) -> Result<Option<i32>, CudaError> {
        let Some(call) = self.0.device_get_attribute else { return Ok(None) };
        let mut value: c_int = 0;
        // SAFETY: the output is a number of ours; any number may be asked for.
        let answer = unsafe { call(&raw mut value, attribute, ordinal.0.cast_signed()) };
        match self.checked("cuDeviceGetAttribute", Subject::Ordinal(ordinal), answer) {
            Ok(()) => Ok(Some(value)),
            Err(CudaError::Call(error)) if error.result == CuResult::INVALID_VALUE => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A dma-buf of whole pages.
    pub(super) fn export(&self, range: AddressRange) -> Result<OwnedFd, CudaError> {
        let call = self.symbol(self.0.mem_get_handle_for_address_range, "cuMemGetHandleForAddressRange")?;
        // Not 0, which is a file that may well be open: a driver that wrote nothing must not have it closed.
        let mut file: c_int = -1;
        let size = range.len_bytes() as usize;
        let output = (&raw mut file).cast();
        // SAFETY: the output is an `int` of ours, as this kind of handle is; any range may be asked for.
        let answer = unsafe { call(output, range.base(), size, RangeHandleType::DMA_BUF_FD, 0) };
        self.checked("cuMemGetHandleForAddressRange", Subject::Range(range), answer)?;
        if file < 0 {
            return Err(CudaError::NoFile { range, got: file });
        }
        // SAFETY: the driver made it for the caller, who owns it; 0 is a file as good as any.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }

    pub(super) fn current(&self) -> Result<Context, CudaError> {
        let call = self.symbol(self.0.ctx_get_current, "cuCtxGetCurrent")?;
        let mut context = null_mut();
        // SAFETY: the output is a pointer of ours.
        let answer = unsafe { call(&raw mut context) };
        self.checked("cuCtxGetCurrent", Subject::Nothing, answer)?;
        Ok(Context(context))
    }

    /// Makes a context current on this thread, for what is at an address; or none.
    pub(super) fn set_current(&self, context: Context, address: u64) -> Result<(), CudaError> {
        let call = self.symbol(self.0.ctx_set_current, "cuCtxSetCurrent")?;
        // SAFETY: null, or a context that the driver gave; it refuses one that is gone.
        let answer = unsafe { call(context.0) };
        self.checked("cuCtxSetCurrent", Subject::Address(address), answer)
    }

    /// Retains a device's primary context, which `release_primary` gives back.
    pub(super) fn retain_primary(&self, ordinal: Ordinal) -> Result<Context, CudaError> {
        // What cannot be given back is not taken.
        self.symbol(self.0.device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2")?;
        let call = self.symbol(self.0.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain")?;
        let mut context = null_mut();
        // SAFETY: the output is a pointer of ours; any number may be asked for.
        let answer = unsafe { call(&raw mut context, ordinal.0.cast_signed()) };
        self.checked("cuDevicePrimaryCtxRetain", Subject::Ordinal(ordinal), answer)?;
        Ok(Context(context))
    }

    pub(super) fn release_primary(&self, ordinal: Ordinal) -> Result<(), CudaError> {
        let call = self.symbol(self.0.device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2")?;
        // SAFETY: takes a number.
        let answer = unsafe { call(ordinal.0.cast_signed()) };
        self.checked("cuDevicePrimaryCtxRelease_v2", Subject::Ordinal(ordinal), answer)
    }

    /// Copies out of device memory, in the current context.
    ///
    /// # Safety
    /// 1. Nobody writes the bytes meanwhile.
    pub(super) unsafe fn copy_out(&self, from: AddressRange, to: &mut [u8]) -> Result<(), CudaError> {
        let call = self.symbol(self.0.memcpy_dtoh, "cuMemcpyDtoH_v2")?;
        // SAFETY: the output is so long; the source is the driver's to check, and nobody writes it by 1.
        let answer = unsafe { call(to.as_mut_ptr().cast(), from.base(), to.len()) };
        self.checked("cuMemcpyDtoH_v2", Subject::Range(from), answer)
    }

    /// Copies into device memory, in the current context, and waits until the bytes are there.
    ///
    /// # Safety
    /// 1. Nobody else touches the bytes meanwhile.
    pub(super) unsafe fn copy_in(&self, to: AddressRange, from: &[u8]) -> Result<(), CudaError> {
        let call = self.symbol(self.0.memcpy_htod, "cuMemcpyHtoD_v2")?;
        // Before anything is copied: a copy that cannot be waited for is none.
        let synchronize = self.symbol(self.0.stream_synchronize, "cuStreamSynchronize")?;
        // SAFETY: the source is so long; the destination is the driver's to check, and nobody else touches it by 1.
        let answer = unsafe { call(to.base(), from.as_ptr().cast(), from.len()) };
        self.checked("cuMemcpyHtoD_v2", Subject::Range(to), answer)?;
        // A copy from pageable memory may return before its last bytes have arrived. It ran on the current context's legacy
        // default stream, whose handle is null.
        // SAFETY: null is a stream.
        let answer = unsafe { synchronize(null_mut()) };
        self.checked("cuStreamSynchronize", Subject::Range(to), answer)
    }
}
