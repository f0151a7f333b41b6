//! Owners of memory: while one lives, the memory stays mapped.
//!
//! # Safety
//!
//! This file declares what is relied on; it does nothing.
#![allow(unsafe_code)]

use std::sync::Arc;

/// An owner of memory that a device may read and write.
///
/// It gives an address and never a reference: a reference would claim that no device writes.
///
/// # Safety
/// Who implements it promises, as long as the value lives:
/// 1. `addr` and `size` answer the same; the `size` bytes from `addr` do not wrap around the address space.
/// 2. They are mapped and of one allocation: in this process, for reads and writes, initialised, with their address exposed
///    (`expose_provenance`); or on a device, whose driver knows them by that address.
/// 3. No Rust reference to them exists, and nothing frees, moves or gives them to another owner.
/// 4. Dropping it on any thread is fine, and needs no thread's state, no context and no driver.
pub unsafe trait Keepalive: Send + Sync {
    /// Where the memory starts.
    fn addr(&self) -> usize;

    /// How long it is, bytes.
    fn size(&self) -> usize;

    /// A form that does not keep the memory mapped, if this owner has one.
    fn downgrade(&self) -> Option<Arc<dyn WeakKeepalive>> {
        None
    }
}

/// What finds an owner again while it lives.
pub trait WeakKeepalive: Send + Sync {
    /// The owner, if it lives. It may have another address or size by now: who asks compares.
    fn upgrade(&self) -> Option<Arc<dyn Keepalive>>;
}
