//! Protection domains, memory regions and what they permit.

use core::ffi::c_void;

use crate::layout::{flag_word, layout};
use crate::verbs::context::Context;

/// `struct ibv_pd`
///
/// Made by the library only.
#[derive(Debug)]
#[repr(C)]
pub struct Pd {
    /// The device context it belongs to.
    pub context: *mut Context,
    /// The kernel's handle.
    pub handle: u32,
}

layout! {
    Pd: "struct ibv_pd", whole 16 align 8 {
        context 0 8; handle 8 4;
    }
}

/// `struct ibv_mr`
///
/// Made by the library only.
#[derive(Debug)]
#[repr(C)]
pub struct Mr {
    /// The device context it belongs to.
    pub context: *mut Context,
    /// The protection domain it belongs to.
    pub pd: *mut Pd,
    /// Where it starts; for dma-buf regions the library stores the *offset* here.
    pub addr: *mut c_void,
    /// Its length, bytes.
    pub length: usize,
    /// The kernel's handle.
    pub handle: u32,
    /// Key for the own device.
    pub lkey: u32,
    /// Key for others.
    pub rkey: u32,
}

layout! {
    Mr: "struct ibv_mr", whole 48 align 8 {
        context 0 8; pd 8 8; addr 16 8; length 24 8; handle 32 4; lkey 36 4; rkey 40 4;
    }
}

flag_word! {
    /// `enum ibv_access_flags`
    AccessFlags: u32 {
        LOCAL_WRITE = 0x1, "IBV_ACCESS_LOCAL_WRITE";
        REMOTE_WRITE = 0x2, "IBV_ACCESS_REMOTE_WRITE";
        REMOTE_READ = 0x4, "IBV_ACCESS_REMOTE_READ";
        REMOTE_ATOMIC = 0x8, "IBV_ACCESS_REMOTE_ATOMIC";
        MW_BIND = 0x10, "IBV_ACCESS_MW_BIND";
        ZERO_BASED = 0x20, "IBV_ACCESS_ZERO_BASED";
        ON_DEMAND = 0x40, "IBV_ACCESS_ON_DEMAND";
        HUGETLB = 0x80, "IBV_ACCESS_HUGETLB";
        FLUSH_GLOBAL = 0x100, "IBV_ACCESS_FLUSH_GLOBAL" since 45;
        FLUSH_PERSISTENT = 0x200, "IBV_ACCESS_FLUSH_PERSISTENT" since 45;
        RELAXED_ORDERING = 0x10_0000, "IBV_ACCESS_RELAXED_ORDERING";
    }
}

impl AccessFlags {
    /// `IBV_ACCESS_OPTIONAL_RANGE`: bits that a device may ignore, and for which C's `ibv_reg_mr` macro takes another call.
    pub const OPTIONAL_RANGE: Self = Self::from_bits_retain(0x3ff0_0000);
}
