//! What exported files stand for: ranges of device memory, as pieces of physical memory.
//!
//! Physical memory is one sparse memfd for each device of a stand-in. A range of it is used anew only when nothing holds it any
//! more: no allocation, no export that is still open, no region.
//!
//! # Safety
//!
//! This file guarantees that the files it makes are its own and closed once.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::soft::mapping::{Mapping, Part, Use, last_errno};

/// The granule of physical memory, bytes: what a GPU maps at least.
const GRANULE_BYTES: u64 = 2 << 20;

/// Physical memory of a device.
#[derive(Debug)]
pub(super) struct PhysicalMemory {
    file: OwnedFd,
    /// All of it, mapped: where the stand-in itself reads and writes.
    mapping: Mapping,
    size_bytes: u64,
    /// Ranges in use: start to length.
    used: Mutex<BTreeMap<u64, u64>>,
}

/// A range of physical memory that is in use for as long as somebody holds it.
#[derive(Debug)]
pub(super) struct PhysicalRange {
    memory: Arc<PhysicalMemory>,
    start: u64,
    length_bytes: u64,
}

/// A part of a range.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub range: Arc<PhysicalRange>,
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

impl PhysicalMemory {
    /// # Errors
    /// The errno where the system has no more files or addresses.
    pub(super) fn new(size_bytes: u64) -> Result<Arc<Self>, c_int> {
        let file = memfd("bareverbs-gpu-memory", size_bytes)?;
        let length_bytes = usize::try_from(size_bytes).map_err(|_| libc::ENOMEM)?;
        let mapping = Mapping::of(&[Part { file: file.as_fd(), offset_bytes: 0, length_bytes }], Use::ReadWrite)?;
        Ok(Arc::new(Self { file, mapping, size_bytes, used: Mutex::new(BTreeMap::new()) }))
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lowest free range of so many bytes, all zero; `None` where there is none.
    pub(super) fn take(self: &Arc<Self>, length_bytes: u64) -> Option<Arc<PhysicalRange>> {
        let length_bytes = length_bytes.max(1).checked_next_multiple_of(GRANULE_BYTES)?;
        let mut used = self.used();
        let mut start = 0;
        for (next, length) in used.iter() {
            if next - start >= length_bytes {
                break;
            }
            start = next + length;
        }
        if start.checked_add(length_bytes)? > self.size_bytes {
            return None;
        }
        used.insert(start, length_bytes);
        Some(Arc::new(PhysicalRange { memory: Arc::clone(self), start, length_bytes }))
    }

    /// Bytes in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used().values().sum()
    }
}

impl Drop for PhysicalRange {
    fn drop(&mut self) {
        let mut used = self.memory.used();
        punch(&self.memory.file, self.start, self.length_bytes);
        used.remove(&self.start);
    }
}

impl PhysicalRange {
    /// Where the stand-in itself finds the byte at `offset_bytes`, in this process.
    pub(super) fn address(&self, offset_bytes: u64) -> usize {
        self.memory.mapping.address() + (self.start + offset_bytes) as usize
    }
}

impl Piece {
    /// The piece as a part of its memory's file.
    pub(super) fn part(&self) -> Part<'_> {
        Part {
            file: self.range.memory.file.as_fd(),
            offset_bytes: self.range.start + self.offset_bytes,
            length_bytes: self.length_bytes as usize,
        }
    }
}

/// The pieces of every export whose file may still be open, by the file's inode.
static EXPORTS: Mutex<BTreeMap<u64, Vec<Piece>>> = Mutex::new(BTreeMap::new());

/// Makes a file that stands for pieces of memory, in order.
///
/// # Errors
/// The errno where the process may have no more files.
pub(super) fn export(pieces: Vec<Piece>) -> Result<OwnedFd, c_int> {
    forget_closed();
    let size_bytes = pieces.iter().map(|piece| piece.length_bytes).sum();
    let file = memfd(NAME, size_bytes)?;
    let inode = inode_of(&file)?;
    exports().insert(inode, pieces);
    Ok(file)
}

/// The pieces behind `length_bytes` bytes from `offset` on of an exported file; `None` if it is none.
pub(super) fn pieces(inode: u64, offset: u64, length_bytes: usize) -> Option<Vec<Piece>> {
    forget_closed();
    let exports = exports();
    let (mut skip, mut rest, mut found) = (offset, length_bytes as u64, Vec::new());
    for piece in exports.get(&inode)? {
        if skip >= piece.length_bytes {
            skip -= piece.length_bytes;
            continue;
        }
        let length_bytes = rest.min(piece.length_bytes - skip);
        found.push(Piece { offset_bytes: piece.offset_bytes + skip, length_bytes, ..piece.clone() });
        (skip, rest) = (0, rest - length_bytes);
        if rest == 0 {
            break;
        }
    }
    Some(found)
}

/// Lets go of the memory of exports that nobody has open any more, as the kernel does when the last descriptor closes.
pub(super) fn forget_closed() {
    let mut exports = exports();
    if exports.is_empty() {
        return;
    }
    // A process that may have no more files cannot look either: then nothing is known to be closed.
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<u64> = files
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let target = std::fs::read_link(&path).ok()?;
            let is_export = target.to_string_lossy().contains(NAME);
            let inode = || Some(std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).ok()?));
            is_export.then(inode).flatten()
        })
        .collect();
    let gone: Vec<_> = exports.keys().filter(|inode| !open.contains(inode)).copied().collect();
    // With the lock held: whoever looks afterwards sees the memory free, whichever thread lets it go. No memory's drop exports.
    gone.iter().for_each(|inode| drop(exports.remove(inode)));
}

fn exports() -> MutexGuard<'static, BTreeMap<u64, Vec<Piece>>> {
    EXPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What exported files are called.
const NAME: &str = "bareverbs-dma-buf";

fn memfd(name: &str, size_bytes: u64) -> Result<OwnedFd, c_int> {
    let name = CString::new(name).map_err(|_| libc::EINVAL)?;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: just made, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let size = libc::off_t::try_from(size_bytes).map_err(|_| libc::EINVAL)?;
    // SAFETY: a file of our own.
    if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
        return Err(last_errno());
    }
    Ok(file)
}

fn inode_of(file: &OwnedFd) -> Result<u64, c_int> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the struct is ours and the file is open.
    if unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: zeroed to begin with, and filled in.
    Ok(unsafe { stat.assume_init() }.st_ino)
}

/// Gives the pages of a range back to the system: they read zero from then on.
fn punch(file: &OwnedFd, start: u64, length_bytes: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (start, length) = (start as libc::off_t, length_bytes as libc::off_t);
    // SAFETY: a file of our own; nobody holds the range any more, so nobody reads or writes it.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, start, length) };
}
