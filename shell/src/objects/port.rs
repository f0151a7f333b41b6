//! What a port is, asked without believing the library's idea of the struct's length.
//!
//! The struct grew twice (48, 52, 56 bytes). The exported `ibv_query_port` fills 48 bytes; the operation in front of the
//! context takes an explicit length. Both get zeroed storage of 64 bytes, so that nothing is overrun and bytes that were
//! not filled read as 0.
//!
//! # Safety
//!
//! This file guarantees that a query gets storage larger than any known struct.
#![allow(unsafe_code)]

use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_core::verbs::port::QUERY_PORT_BYTES;
use bareverbs_core::verbs::{LinkLayer, Mtu, PortAttr, PortState};

use crate::errno;
use crate::error::{CallError, Doing, Error};
use crate::objects::device::DeviceContext;
use crate::objects::extended;

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
    let returned = match extended::query_port(context) {
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
