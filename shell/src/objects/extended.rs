//! The operations in front of a device context, which C reaches inline.
//!
//! `struct verbs_context` holds the context as its last member and grows at its own front, so the distance from an operation
//! to the context never changes. The rule of the header's inline functions is kept: `abi_compat` is all ones, the size that
//! the library recorded reaches to the operation, and the pointer is not null. When a check fails, the exported function
//! takes over.
//!
//! # Safety
//!
//! This file guarantees that an operation is read, and typed, only after those three checks.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use bareverbs_core::verbs::context::{
    ABI_COMPAT_OFFSET, ABI_IS_EXTENDED, ExtendedSlot, QUERY_DEVICE_EX, QUERY_PORT, VERBS_CONTEXT_SZ,
};
use bareverbs_core::verbs::device::QueryDeviceExInput;
use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_core::verbs::{Context, DeviceAttr, DeviceAttrEx, PortAttr};

use crate::errno::{self, Errno};
use crate::error::{CallError, Error};
use crate::objects::device::DeviceContext;

/// `verbs_context.query_port`; the last argument is the storage's length, bytes.
pub(super) type QueryPortFn = unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int;

type QueryDeviceExFn = unsafe extern "C" fn(*mut Context, *const QueryDeviceExInput, *mut DeviceAttrEx, usize) -> c_int;

/// The port query with a length, if this library has it.
pub(super) fn query_port(context: &DeviceContext) -> Option<QueryPortFn> {
    let word = operation(context.as_ptr(), QUERY_PORT)?;
    // SAFETY: the slot exists in this library, is not null, and holds the operation of that name.
    Some(unsafe { std::mem::transmute::<usize, QueryPortFn>(word) })
}

fn query_device_ex(context: &DeviceContext) -> Option<QueryDeviceExFn> {
    let word = operation(context.as_ptr(), QUERY_DEVICE_EX)?;
    // SAFETY: the slot exists in this library, is not null, and holds the operation of that name.
    Some(unsafe { std::mem::transmute::<usize, QueryDeviceExFn>(word) })
}

/// The word in an operation in front of the context, if this library has it and it is not null.
///
/// The rule of the header's inline functions: `abi_compat` is all ones, the size that the library recorded reaches to the
/// operation, and the pointer is not null.
fn operation(context: *mut Context, slot: ExtendedSlot) -> Option<usize> {
    let abi_compat = ABI_COMPAT_OFFSET?;
    let abi_compat_word = context.wrapping_byte_add(abi_compat).cast::<usize>();
    // SAFETY: on this target every library's context reaches to `abi_compat`.
    if unsafe { abi_compat_word.read() } != ABI_IS_EXTENDED {
        return None;
    }
    let recorded = context.wrapping_byte_sub(VERBS_CONTEXT_SZ.distance_bytes).cast::<usize>();
    // SAFETY: an extended context has the recorded size in front of it.
    let recorded_bytes = unsafe { recorded.read() };
    let context_bytes = abi_compat + size_of::<usize>();
    if recorded_bytes < slot.least_recorded_bytes(context_bytes) {
        return None;
    }
    let place = context.wrapping_byte_sub(slot.distance_bytes).cast::<usize>();
    // SAFETY: the recorded size reaches to this slot.
    let word = unsafe { place.read() };
    (word != 0).then_some(word)
}

/// The device's attributes, the extended ones where the library and the provider have them; else those are 0.
///
/// # Errors
/// [`Error::Unsupported`] without `ibv_query_device`; [`Error::Call`] if the library refuses.
pub(super) fn device_attributes(context: &DeviceContext) -> Result<DeviceAttrEx, Error> {
    let mut attr = MaybeUninit::<DeviceAttrEx>::zeroed();
    if let Some(query) = query_device_ex(context) {
        // A mask other than 0 is refused.
        let input = QueryDeviceExInput { comp_mask: 0 };
        errno::clear();
        // SAFETY: the operation was checked; the storage has the length given.
        let returned =
            unsafe { query(context.as_ptr(), &raw const input, attr.as_mut_ptr(), size_of::<DeviceAttrEx>()) };
        match errno::of_return(RawErrno(returned)) {
            // SAFETY: all zero to begin with, and any bytes are valid for every field.
            _ if returned == 0 => return Ok(unsafe { attr.assume_init() }),
            Some(Errno(libc::EOPNOTSUPP | libc::ENOSYS)) => attr = MaybeUninit::zeroed(),
            errno => return Err(CallError::new("ibv_query_device_ex", context.name(), errno).into()),
        }
    }
    plain_attributes(context, attr)
}

fn plain_attributes(context: &DeviceContext, attr: MaybeUninit<DeviceAttrEx>) -> Result<DeviceAttrEx, Error> {
    let symbols = context.symbols();
    let query = symbols
        .query_device
        .ok_or_else(|| Error::Unsupported { symbol: "ibv_query_device", library: Arc::clone(&symbols.library) })?;
    let mut plain = MaybeUninit::<DeviceAttr>::zeroed();
    errno::clear();
    // SAFETY: the context is live; the storage is the library's struct, whose length never changed.
    let returned = unsafe { query(context.as_ptr(), plain.as_mut_ptr()) };
    if returned != 0 {
        let errno = errno::of_return(RawErrno(returned));
        return Err(CallError::new("ibv_query_device", context.name(), errno).into());
    }
    // SAFETY: all zero, and any bytes are valid for every field.
    let extended = unsafe { attr.assume_init() };
    // SAFETY: all zero to begin with, and any bytes are valid for every field.
    Ok(DeviceAttrEx { orig_attr: unsafe { plain.assume_init() }, ..extended })
}
