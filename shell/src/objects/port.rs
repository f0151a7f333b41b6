//! What a port is, asked without believing the library's idea of the struct's length.
//!
//! The struct grew twice (48, 52, 56 bytes). The exported `ibv_query_port` fills 48 bytes; the operation in front of the
//! context takes an explicit length. Both get zeroed storage of 64 bytes, so that nothing is overrun and bytes that were
//! not filled read as 0.
//!
//! # Safety
//!
//! This file guarantees that a query gets storage larger than any known struct, and that the operation in front of the
//! context is called only after `abi_compat`, the recorded size and the pointer were checked.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use bareverbs_core::verbs::context::{ABI_COMPAT_OFFSET, ABI_IS_EXTENDED, ExtendedSlot, QUERY_PORT, VERBS_CONTEXT_SZ};
use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_core::verbs::port::QUERY_PORT_BYTES;
use bareverbs_core::verbs::{Context, DeviceAttr, LinkLayer, Mtu, PortAttr, PortState};

use crate::errno;
use crate::error::{CallError, Doing, Error};
use crate::objects::device::DeviceContext;

/// Attributes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The port, counted from 1.
    pub number: u8,
    /// All that the library said; what it did not fill is 0.
    pub attr: PortAttr,
}

impl PortInfo {
    /// Logical state.
    pub const fn state(&self) -> PortState {
        self.attr.state
    }

    /// Link layer; 0 (unspecified), which old libraries answer for InfiniBand, counts as InfiniBand.
    pub const fn link_layer(&self) -> LinkLayer {
        match self.attr.link_layer {
            LinkLayer::UNSPECIFIED => LinkLayer::INFINIBAND,
            other => other,
        }
    }

    /// MTU in force.
    pub const fn active_mtu(&self) -> Mtu {
        self.attr.active_mtu
    }

    /// The port's LID; 0 where there is none.
    pub const fn lid(&self) -> u16 {
        self.attr.lid
    }
}

type QueryPortFn = unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int;

/// Storage for a port query: the longest known struct, and room for the next.
#[derive(Clone, Copy)]
#[repr(C)]
struct Storage {
    attr: PortAttr,
    room: [u8; QUERY_PORT_BYTES - size_of::<PortAttr>()],
}

pub(super) fn query(context: &DeviceContext, port: u8) -> Result<PortInfo, Error> {
    let mut storage = Storage { attr: PortAttr::default(), room: [0; _] };
    let attr = (&raw mut storage).cast::<PortAttr>();
    errno::clear();
    let returned = match extended_query_port(context) {
        // SAFETY: the slot was checked; the storage has the length given and its pointer may write all of it.
        Some(query) => unsafe { query(context.as_ptr(), port, attr, size_of::<Storage>()) },
        // SAFETY: the storage is longer than any library's struct; the pointer may write all of it.
        None => unsafe { (context.symbols().query_port)(context.as_ptr(), port, attr) },
    };
    if returned == 0 {
        return Ok(PortInfo { number: port, attr: storage.attr });
    }
    let errno = errno::of_return(RawErrno(returned));
    let doing = Doing::Query(format!("port {port}"));
    Err(CallError::new("ibv_query_port", context.name(), errno).doing(doing).into())
}

fn extended_query_port(context: &DeviceContext) -> Option<QueryPortFn> {
    let slot = extended_slot(context.as_ptr(), QUERY_PORT)?;
    // SAFETY: the slot exists in this library, is not null, and holds the operation of that name.
    Some(unsafe { std::mem::transmute::<usize, QueryPortFn>(slot) })
}

/// The word in an operation in front of the context, if this library has it and it is not null.
///
/// The rule of the header's inline functions: `abi_compat` is all ones, the size that the library recorded reaches to the
/// operation, and the pointer is not null.
fn extended_slot(context: *mut Context, slot: ExtendedSlot) -> Option<usize> {
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
    let operation = context.wrapping_byte_sub(slot.distance_bytes).cast::<usize>();
    // SAFETY: the recorded size reaches to this slot.
    let word = unsafe { operation.read() };
    (word != 0).then_some(word)
}

/// Number of ports: what `ibv_query_device` says, else 1.
pub(super) fn count(context: &DeviceContext) -> u8 {
    device_attr(context).map_or(1, |attr| attr.phys_port_cnt.max(1))
}

/// The device's attributes, where the library has `ibv_query_device`.
///
/// # Errors
/// [`Error::Unsupported`] or [`Error::Call`].
pub fn device_attr(context: &DeviceContext) -> Result<DeviceAttr, Error> {
    let symbols = context.symbols();
    let call = symbols
        .query_device
        .ok_or_else(|| Error::Unsupported { symbol: "ibv_query_device", library: Arc::clone(&symbols.library) })?;
    let mut attr = MaybeUninit::<DeviceAttr>::zeroed();
    errno::clear();
    // SAFETY: the context is live; the storage is the library's struct, whose length never changed.
    let returned = unsafe { call(context.as_ptr(), attr.as_mut_ptr()) };
    if returned != 0 {
        let errno = errno::of_return(RawErrno(returned));
        return Err(CallError::new("ibv_query_device", context.name(), errno).into());
    }
    // SAFETY: all zero to begin with, and any bytes are valid for every field.
    Ok(unsafe { attr.assume_init() })
}
