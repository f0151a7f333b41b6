//! Page-aligned memory of our own, for frames and registered memory that is not static; in huge pages where asked for.
//!
//! # Safety
//!
//! This file guarantees that the memory is freed once, the way it was made, and reached by its address only.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

pub use bareverbs_core::link::PAGE_BYTES;

use super::keepalive::Keepalive;
use crate::errno::Errno;

/// Length of a huge page, bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory, page-aligned, that crosses no boundary of its own size rounded up to a power of two: so none of 4 GiB,
/// which Apple's devices do not register across.
///
/// Only the address is handed out: a reference would claim that no device writes.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    layout: Layout,
    huge: HugePages,
}

/// Whether memory lies in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePages {
    /// Nobody asked.
    NotAsked,
    /// It does.
    Used,
    /// They were asked for, the system refused, and ordinary pages are used.
    Refused(HugePagesError),
}

/// Why there are no huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePagesError {
    /// 0 bytes, or more than can be asked for.
    Length {
        /// How many.
        got_bytes: usize,
    },
    /// This operating system has none that can be asked for.
    Unsupported,
    /// The system refused.
    Refused {
        /// How much was asked for, bytes, whole huge pages.
        len_bytes: usize,
        /// Why.
        errno: Option<Errno>,
    },
}

impl fmt::Display for HugePagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got_bytes } => write!(f, "{got_bytes} bytes in huge pages are not possible"),
            Self::Unsupported => f.write_str("this system has no huge pages to ask for"),
            Self::Refused { len_bytes, errno } => {
                write!(f, "{len_bytes} bytes in huge pages were refused")?;
                if let Some(errno) = errno {
                    write!(f, ": {errno}")?;
                }
                write!(f, " (reserve pages of {HUGE_PAGE_BYTES} bytes: vm.nr_hugepages)")
            }
        }
    }
}

impl std::error::Error for HugePagesError {}

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
        Some(Self { start: NonNull::new(start)?, layout, huge: HugePages::NotAsked })
    }

    /// Maps `len_bytes`, rounded up to whole huge pages, in huge pages and in no others.
    ///
    /// # Errors
    /// [`HugePagesError`].
    pub fn in_huge_pages(len_bytes: usize) -> Result<Self, HugePagesError> {
        let whole = len_bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).filter(|len| *len != 0);
        let layout = whole.and_then(|len| Layout::from_size_align(len, HUGE_PAGE_BYTES).ok());
        let layout = layout.ok_or(HugePagesError::Length { got_bytes: len_bytes })?;
        Ok(Self { start: huge::map(layout)?, layout, huge: HugePages::Used })
    }

    /// Maps `len_bytes` in huge pages if there are any, else allocates ordinary ones;
    /// [`huge_pages`](Self::huge_pages) tells. `None` for 0, and for more than there is.
    pub fn in_huge_pages_if_any(len_bytes: usize) -> Option<Self> {
        match Self::in_huge_pages(len_bytes) {
            Ok(pages) => Some(pages),
            Err(refused) => {
                // Not by `..`, which would copy the fields and free what they name.
                let mut pages = Self::new(len_bytes)?;
                pages.huge = HugePages::Refused(refused);
                Some(pages)
            }
        }
    }

    /// Where it starts.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length, bytes, whole pages.
    pub fn len_bytes(&self) -> usize {
        self.layout.size()
    }

    /// Whether it lies in huge pages.
    pub fn huge_pages(&self) -> HugePages {
        self.huge
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        match self.huge {
            HugePages::Used => huge::unmap(self.start, self.layout),
            // SAFETY: allocated with this layout, freed once.
            _ => unsafe { dealloc(self.start.as_ptr(), self.layout) },
        }
    }
}

// SAFETY: 1: the fields do not change, and an allocation does not wrap. 2: zeroed; exposed here, before anybody knows the
// address by this trait. 3: only the address is handed out, and the memory is freed by drop alone. 4: it goes back to the
// allocator or the kernel.
unsafe impl Keepalive for Pages {
    fn addr(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }

    fn size(&self) -> usize {
        self.len_bytes()
    }
}

#[cfg(target_os = "linux")]
mod huge {
    use super::{Errno, HUGE_PAGE_BYTES, HugePagesError, Layout, NonNull};
    use crate::errno;

    /// Zeroed memory of its own, aligned to a huge page. Reserved when it is mapped, so that no page is missing later.
    pub(super) fn map(layout: Layout) -> Result<NonNull<u8>, HugePagesError> {
        let size = (HUGE_PAGE_BYTES.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size;
        errno::clear();
        // SAFETY: a mapping at an address of the kernel's choice; the layout's size is not 0.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), layout.size(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        let refused = |errno: Option<Errno>| HugePagesError::Refused { len_bytes: layout.size(), errno };
        if start == libc::MAP_FAILED {
            return Err(refused(errno::last()));
        }
        NonNull::new(start.cast()).ok_or(refused(None))
    }

    pub(super) fn unmap(start: NonNull<u8>, layout: Layout) {
        // SAFETY: mapped with this length, unmapped once, and reached by its address only.
        unsafe { libc::munmap(start.as_ptr().cast(), layout.size()) };
    }
}

#[cfg(not(target_os = "linux"))]
mod huge {
    use super::{HugePagesError, Layout, NonNull};

    pub(super) fn map(_: Layout) -> Result<NonNull<u8>, HugePagesError> {
        Err(HugePagesError::Unsupported)
    }

    pub(super) fn unmap(_: NonNull<u8>, _: Layout) {}
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
            assert_eq!(pages.huge_pages(), HugePages::NotAsked);
        }
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        for len in [0, usize::MAX] {
            assert!(Pages::new(len).is_none() && Pages::in_huge_pages_if_any(len).is_none());
            let refused = Pages::in_huge_pages(len).map(drop);
            assert_eq!(refused, Err(HugePagesError::Length { got_bytes: len }));
        }
    }

    /// Whether there are huge pages is the machine's to say; both answers are looked at, and a fall-back is told.
    #[test]
    fn huge_pages_are_used_or_their_absence_is_told() {
        let asked = Pages::in_huge_pages(HUGE_PAGE_BYTES + 1);
        let pages = Pages::in_huge_pages_if_any(HUGE_PAGE_BYTES + 1).expect("memory");
        assert!(pages.size() > HUGE_PAGE_BYTES);
        assert_eq!(pages.addr() % PAGE_BYTES, 0);
        match asked {
            Ok(huge) => {
                assert_eq!((huge.addr() % HUGE_PAGE_BYTES, huge.size()), (0, 2 * HUGE_PAGE_BYTES));
                assert_eq!(huge.huge_pages(), HugePages::Used);
                let last = huge.start().as_ptr().wrapping_add(2 * HUGE_PAGE_BYTES - 1);
                // SAFETY: ours alone, and two huge pages long.
                unsafe { last.write(7) };
            }
            Err(error) => {
                assert!(error.to_string().contains("huge pages"), "{error}");
                assert_eq!(pages.huge_pages(), HugePages::Refused(error));
            }
        }
    }
}
