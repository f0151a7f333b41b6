//! Files mapped into this process: the memory behind a dma-buf.
//!
//! # Safety
//!
//! This file guarantees that its mappings are its own, and unmapped once.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;

/// The granule in which files are mapped, bytes.
pub(super) fn page_bytes() -> u64 {
    // SAFETY: takes a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Whether all of these bytes are of pages that this process has.
pub(super) fn is_mapped(address: usize, length_bytes: usize) -> bool {
    let start_bytes = address % page_bytes() as usize;
    let Some(whole_bytes) = length_bytes.checked_add(start_bytes) else { return false };
    let first = std::ptr::with_exposed_provenance_mut(address - start_bytes);
    // SAFETY: starts no writing back and touches no byte; of pages that are not there it says so.
    unsafe { libc::msync(first, whole_bytes, libc::MS_ASYNC) == 0 }
}

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    ReadWrite,
}

/// A part of a file, to be mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'file> {
    pub file: BorrowedFd<'file>,
    pub offset_bytes: u64,
    pub length_bytes: usize,
}

/// Parts of files, mapped one after the other at addresses of this process. Nobody else knows the addresses.
#[derive(Debug)]
pub(super) struct Mapping {
    address: usize,
    length_bytes: usize,
}

impl Mapping {
    /// Maps parts in order; all but the last are whole pages, and all start on one.
    ///
    /// # Errors
    /// The errno of the refusal; EINVAL for nothing at all.
    pub(super) fn of(parts: &[Part<'_>], usage: Use) -> Result<Self, c_int> {
        let length_bytes = parts.iter().try_fold(0, |sum: usize, part| sum.checked_add(part.length_bytes));
        let length_bytes = length_bytes.filter(|length| *length > 0).ok_or(libc::EINVAL)?;
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the system likes, of no bytes that anybody may touch yet.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length_bytes, libc::PROT_NONE, reserve, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let mapping = Self { address: address.expose_provenance(), length_bytes };
        let mut done = 0;
        for part in parts {
            mapping.put(done, part, usage)?;
            done += part.length_bytes;
        }
        Ok(mapping)
    }

    /// Puts a part of a file in the place of what was reserved.
    fn put(&self, at: usize, part: &Part<'_>, usage: Use) -> Result<(), c_int> {
        let protection = if usage == Use::Read { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let place = std::ptr::with_exposed_provenance_mut(self.address + at);
        let offset = libc::off_t::try_from(part.offset_bytes).map_err(|_| libc::EINVAL)?;
        // SAFETY: within what this mapping reserved, which nobody uses yet; the file is open.
        let address = unsafe { libc::mmap(place, part.length_bytes, protection, flags, part.file.as_raw_fd(), offset) };
        if address == libc::MAP_FAILED { Err(last_errno()) } else { Ok(()) }
    }

    /// Where it starts.
    pub(super) const fn address(&self) -> usize {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this value and unmapped once; who read or wrote through it held a borrow of it.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.address), self.length_bytes) };
    }
}

pub(super) fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
