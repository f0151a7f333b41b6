//! Owners of memory: while one lives, the memory stays mapped.
//!
//! # Safety
//!
//! This file declares what is relied on of an owner, and answers for static storage.
#![allow(unsafe_code)]

use std::sync::Arc;

use bareverbs_core::link::FrameMemory;

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

/// Claimed static storage ([`FrameStorage`](bareverbs_core::link::FrameStorage)), or what else frame memory was made of.
///
/// ```
/// use bareverbs_core::link::FrameStorage;
/// use bareverbs_shell::memory::LocalMemory;
///
/// static BYTES: FrameStorage<8192> = FrameStorage::new();
/// let memory = LocalMemory::new(BYTES.claim().expect("nobody else has it"))?;
/// assert_eq!(memory.size(), 8192);
/// drop(memory);
/// assert!(BYTES.claim().is_some());
/// # Ok::<(), bareverbs_shell::memory::LocalMemoryError>(())
/// ```
// SAFETY: 1: nothing changes them while it is borrowed, and who splits it owns it. 2, 3: frame memory is valid, initialised,
// exposed and its owner's alone while it lives (`FrameMemory::from_raw_parts`, 1 to 3), and an address is all that this hands
// out. 4: dropping it gives a claim back, which is a count.
unsafe impl Keepalive for FrameMemory {
    fn addr(&self) -> usize {
        self.as_ptr().addr()
    }

    fn size(&self) -> usize {
        self.len_bytes()
    }
}
