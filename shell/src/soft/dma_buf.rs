//! Files that stand for dma-bufs, and the memory behind them.
//!
//! A dma-buf is a file whose bytes are memory of a device. Any file of a size that can be mapped serves as one: a memfd,
//! say. What the CUDA stand-in exports is such a file too, but a token: its size is that of the range, and its bytes are those
//! of the allocations behind it, which may be several and stay where they are when the addresses that they had are given to
//! others. Tokens are known to the whole process by their number on the file system.
//!
//! # Safety
//!
//! This file guarantees that a file descriptor of the caller's is looked at for the length of a call only, and never closed.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

#[cfg(target_os = "linux")]
use crate::soft::exports;
use crate::soft::mapping::{Mapping, Part, Use, last_errno, page_bytes};

/// The memory of a dma-buf, for as long as a region holds it.
#[derive(Debug)]
pub(super) struct Attached {
    mapping: Mapping,
    /// Where in the mapping's first page it starts, bytes.
    start_bytes: usize,
    /// What keeps the memory of an export from being used anew.
    #[cfg(target_os = "linux")]
    _keeps: Vec<exports::Piece>,
}

impl Attached {
    /// The address of its first byte in this process.
    pub(super) const fn address(&self) -> usize {
        self.mapping.address() + self.start_bytes
    }
}

/// A file as the system tells it: its place on the file system, and its size.
#[derive(Clone, Copy, Debug)]
struct Seen {
    #[cfg(target_os = "linux")]
    inode: u64,
    size_bytes: u64,
}

/// Maps the bytes `offset..offset + length_bytes` of a dma-buf.
///
/// # Errors
/// EBADF where the number is no open file; EINVAL where the file is none that can stand for a dma-buf, where the range is
/// not inside it or is empty; else what mapping answered.
pub(super) fn attach(fd: c_int, offset: u64, length_bytes: usize, usage: Use) -> Result<Attached, c_int> {
    let seen = look(fd)?;
    let end = offset.checked_add(length_bytes as u64).ok_or(libc::EINVAL)?;
    if length_bytes == 0 || end > seen.size_bytes {
        return Err(libc::EINVAL);
    }
    let start_bytes = offset % page_bytes();
    let (first, whole_bytes) = (offset - start_bytes, length_bytes + start_bytes as usize);
    let start_bytes = start_bytes as usize;
    #[cfg(target_os = "linux")]
    if let Some(pieces) = exports::pieces(seen.inode, first, whole_bytes) {
        let parts: Vec<_> = pieces.iter().map(exports::Piece::part).collect();
        let mapping = Mapping::of(&parts, usage)?;
        return Ok(Attached { mapping, start_bytes, _keeps: pieces });
    }
    // SAFETY: it was found open, and whoever passed it keeps it so for the call.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let part = Part { file: file.as_fd(), offset_bytes: first, length_bytes: whole_bytes };
    let mapping = Mapping::of(&[part], usage)?;
    Ok(Attached {
        mapping,
        start_bytes,
        #[cfg(target_os = "linux")]
        _keeps: Vec::new(),
    })
}

fn look(fd: c_int) -> Result<Seen, c_int> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the struct is ours; a number that is no open file is answered with EBADF.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: zeroed to begin with, and filled in.
    let stat = unsafe { stat.assume_init() };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(libc::EINVAL);
    }
    Ok(Seen {
        #[cfg(target_os = "linux")]
        inode: stat.st_ino,
        size_bytes: u64::try_from(stat.st_size).map_err(|_| libc::EINVAL)?,
    })
}
