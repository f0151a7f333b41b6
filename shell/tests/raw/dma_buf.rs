//! Files that stand for dma-bufs.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with handles that the test owns")]

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use bareverbs_core::verbs::{AccessFlags, Mr};

use super::ends::End;

/// A file of memory.
pub struct MemFile(File);

impl MemFile {
    pub fn new(length: u64) -> Self {
        let file = empty_file();
        file.set_len(length).expect("a file of memory takes any length");
        Self(file)
    }

    pub fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }

    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, offset).expect("inside the file");
        bytes
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.0.write_all_at(bytes, offset).expect("inside the file");
    }
}

#[cfg(target_os = "linux")]
fn empty_file() -> File {
    let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

/// Where there are no files of memory: one that has no name any more.
#[cfg(not(target_os = "linux"))]
fn empty_file() -> File {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bareverbs-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("just made");
    file
}

/// Registers a dma-buf; null where it is refused.
pub fn reg_dmabuf(end: &End, offset: u64, length: usize, iova: u64, fd: c_int, access: AccessFlags) -> *mut Mr {
    let register = end.env.symbols.reg_dmabuf_mr.expect("the library has it");
    unsafe { register(end.pd, offset, length, iova, fd, access.bits() as c_int) }
}
