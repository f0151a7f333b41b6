//! A file that is readable while something waits to be fetched: an eventfd on Linux, a pipe elsewhere.
//!
//! # Safety
//!
//! This file guarantees that its file descriptors are its own, and closed once.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::Error;
#[cfg(target_os = "linux")]
use std::os::fd::FromRawFd;
use std::os::fd::{AsRawFd, OwnedFd};

/// As many tokens as things wait. Raised and lowered under the fabric's lock only, so that a lowering finds its token.
#[derive(Debug)]
pub(super) struct Signal {
    read: OwnedFd,
    /// Of a pipe.
    write: Option<OwnedFd>,
}

impl Signal {
    /// # Errors
    /// The errno where the process may have no more files.
    #[cfg(target_os = "linux")]
    pub(super) fn new() -> Result<Self, c_int> {
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: just made, and nobody else's.
        let read = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { read, write: None })
    }

    /// # Errors
    /// The errno where the process may have no more files.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn new() -> Result<Self, c_int> {
        let (read, write) = std::io::pipe().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        Ok(Self { read: read.into(), write: Some(write.into()) })
    }

    /// What is readable while something waits.
    pub(super) fn fd(&self) -> c_int {
        self.read.as_raw_fd()
    }

    /// One more thing waits.
    pub(super) fn raise(&self) {
        let one = 1_u64;
        let (fd, length) = match &self.write {
            Some(write) => (write.as_raw_fd(), 1),
            None => (self.fd(), size_of::<u64>()),
        };
        // SAFETY: eight bytes of an eventfd's number, or the first of them as a pipe's token.
        unsafe { libc::write(fd, (&raw const one).cast(), length) };
    }

    /// One thing less waits.
    pub(super) fn lower(&self) {
        let mut token = 0_u64;
        let length = if self.write.is_some() { 1 } else { size_of::<u64>() };
        // SAFETY: room for as many bytes as are asked for.
        unsafe { libc::read(self.fd(), (&raw mut token).cast(), length) };
    }
}

/// Waits until a signal's file is readable; at once where the file does not block.
///
/// # Errors
/// EAGAIN where it does not block, EINTR when a signal of the system came.
pub(super) fn wait(fd: c_int) -> Result<(), c_int> {
    // SAFETY: asks for flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(last_errno());
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Err(libc::EAGAIN);
    }
    let mut file = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, ours.
    if unsafe { libc::poll(&raw mut file, 1, -1) } < 0 { Err(last_errno()) } else { Ok(()) }
}

fn last_errno() -> c_int {
    Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(signal: &Signal) -> bool {
        let mut file = libc::pollfd { fd: signal.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, ours.
        (unsafe { libc::poll(&raw mut file, 1, 0) }) == 1
    }

    #[test]
    fn it_is_readable_for_as_many_lowerings_as_it_was_raised() {
        let signal = Signal::new().expect("a file");
        assert!(!readable(&signal));
        signal.raise();
        signal.raise();
        signal.lower();
        assert!(readable(&signal));
        signal.lower();
        assert!(!readable(&signal));
    }
}
