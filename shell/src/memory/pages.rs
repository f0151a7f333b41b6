//! Page-aligned memory of our own, for frames that are not static.
//!
//! # Safety
//!
//! This file guarantees that the memory is freed once, with the layout it was made with.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

pub use bareverbs_core::link::PAGE_BYTES;

/// Zeroed memory, page-aligned, that crosses no boundary of its own size rounded up to a power of two: so none of 4 GiB,
/// which Apple's devices do not register across.
///
/// Only the address is handed out: a reference would claim that no device writes.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value; nothing of it is bound to a thread.
unsafe impl Send for Pages {}
// SAFETY: a shared `Pages` hands out an address only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates `len_bytes`, rounded up to whole pages. `None` for 0, and for more than there is.
    pub fn new(len_bytes: usize) -> Option<Self> {
        let len = len_bytes.checked_next_multiple_of(PAGE_BYTES).filter(|len| *len != 0)?;
        let align = len.checked_next_power_of_two()?.min(1 << 32);
        let layout = Layout::from_size_align(len, align).ok()?;
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        Some(Self { start: NonNull::new(start)?, layout })
    }

    /// Where it starts.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length, bytes, whole pages.
    pub fn len_bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_whole_and_cross_no_boundary_of_their_own_size() {
        for len in [1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 5 * PAGE_BYTES] {
            let pages = Pages::new(len).expect("a small allocation");
            let start = pages.start().addr().get();
            assert_eq!(start % PAGE_BYTES, 0);
            assert!(pages.len_bytes() >= len && pages.len_bytes().is_multiple_of(PAGE_BYTES));
            let size = pages.len_bytes().next_power_of_two();
            assert_eq!(start / size, (start + pages.len_bytes() - 1) / size);
        }
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(Pages::new(0).is_none());
        assert!(Pages::new(usize::MAX).is_none());
    }
}
