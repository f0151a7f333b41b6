//! Owned memory as a keepalive: a boxed slice or a vector, taken apart.
//!
//! # Safety
//!
//! This file guarantees that the bytes are reached by their address only, and freed once, with the capacity they were made
//! with.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::keepalive::{Keepalive, WeakKeepalive};

/// Bytes that were a `Box<[u8]>` or a `Vec<u8>`.
///
/// Taken apart into a raw pointer at once: moving a box, or forming a slice, claims that no device writes. Clones share the
/// bytes, which are freed with the last.
///
/// ```
/// use bareverbs_shell::memory::{Keepalive, OwnedBytes};
///
/// let bytes = OwnedBytes::from(vec![0; 4096]);
/// assert_eq!(bytes.size(), 4096);
/// ```
///
/// They have no alignment of their own; for page-aligned memory see [`Pages`](super::pages::Pages).
#[derive(Clone, Debug)]
pub struct OwnedBytes {
    allocation: Arc<Allocation>,
}

#[derive(Debug)]
struct Allocation {
    start: NonNull<u8>,
    len_bytes: usize,
    capacity: usize,
}

// SAFETY: the bytes belong to this value; nothing of them is bound to a thread.
unsafe impl Send for Allocation {}
// SAFETY: a shared one tells address and length only.
unsafe impl Sync for Allocation {}

impl From<Vec<u8>> for OwnedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        let (start, len_bytes, capacity) = (bytes.as_mut_ptr(), bytes.len(), bytes.capacity());
        start.expose_provenance();
        // SAFETY: a vector's pointer is never null.
        let start = unsafe { NonNull::new_unchecked(start) };
        Self { allocation: Arc::new(Allocation { start, len_bytes, capacity }) }
    }
}

impl From<Box<[u8]>> for OwnedBytes {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::from(bytes.into_vec())
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: made of a vector of this capacity, which was forgotten; of length 0, so that no byte is looked at.
        drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), 0, self.capacity) });
    }
}

// SAFETY: 1: the fields do not change, and a vector does not wrap. 2: a vector's bytes up to its length, initialised; exposed
// when it was taken apart. 3: the vector is forgotten and only the address is handed out; freed with the last clone. 4: it
// goes back to the process's allocator.
unsafe impl Keepalive for OwnedBytes {
    fn addr(&self) -> usize {
        self.allocation.start.addr().get()
    }

    fn size(&self) -> usize {
        self.allocation.len_bytes
    }

    fn downgrade(&self) -> Option<Arc<dyn WeakKeepalive>> {
        Some(Arc::new(WeakBytes(Arc::downgrade(&self.allocation))))
    }
}

/// Bytes that may be gone.
#[derive(Debug)]
struct WeakBytes(Weak<Allocation>);

impl WeakKeepalive for WeakBytes {
    fn upgrade(&self) -> Option<Arc<dyn Keepalive>> {
        let allocation = self.0.upgrade()?;
        Some(Arc::new(OwnedBytes { allocation }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_keeps_its_place_and_its_length_is_what_it_held_not_what_it_had_room_for() {
        let mut vector = Vec::with_capacity(64);
        vector.extend([1, 2, 3]);
        let addr = vector.as_ptr().addr();
        let bytes = OwnedBytes::from(vector);
        assert_eq!((bytes.addr(), bytes.size()), (addr, 3));
    }

    #[test]
    fn a_box_keeps_its_place() {
        let boxed = vec![7; 100].into_boxed_slice();
        let addr = boxed.as_ptr().addr();
        let bytes = OwnedBytes::from(boxed);
        assert_eq!((bytes.addr(), bytes.size()), (addr, 100));
    }

    #[test]
    fn no_bytes_are_owned_too() {
        assert_eq!(OwnedBytes::from(Vec::new()).size(), 0);
        assert_eq!(OwnedBytes::from(Box::<[u8]>::default()).size(), 0);
    }

    #[test]
    fn the_weak_form_finds_the_bytes_until_the_last_clone_is_gone() {
        let bytes = OwnedBytes::from(vec![0; 8]);
        let (clone, weak) = (bytes.clone(), bytes.downgrade().expect("it has one"));
        let addr = bytes.addr();
        drop(bytes);
        assert_eq!(weak.upgrade().map(|found| found.addr()), Some(addr));
        drop(clone);
        assert!(weak.upgrade().is_none());
    }
}
