//! Copies in and out of local memory, in the right mode of its lock.
//!
//! # Safety
//!
//! This file guarantees that bounds are checked before anything is touched, and that host memory is copied and other memory
//! goes through its driver.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use bareverbs_core::access::AccessRefused;
use bareverbs_core::view::{OutOfBounds, check_part};

use super::local_memory::LocalMemory;
use super::location::{DriverError, Location};

/// Why nothing, or with a driver's error not all, was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyError {
    /// The place is not within the memory. Nothing was touched, and the lock was not taken.
    Bounds(OutOfBounds),
    /// The lock refused: its count is at its maximum. Nothing was touched.
    Lock(AccessRefused),
    /// The driver of the memory's device could not.
    Driver(DriverError),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bounds(error) => error.fmt(f),
            Self::Lock(error) => write!(f, "the memory's access lock: {error}"),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CopyError {}

impl LocalMemory {
    /// Copies `into.len()` bytes from `offset` on, holding the access lock in read mode. Waits for it; see
    /// [Recursion](super::AccessLock#recursion).
    ///
    /// # Errors
    /// [`CopyError::Bounds`] before anything is touched; [`CopyError::Lock`]; [`CopyError::Driver`].
    ///
    /// # Safety
    /// The owner proves that the bytes are mapped, not that nobody writes them. While this runs:
    /// 1. no thread writes the bytes read, but by this memory's lock;
    /// 2. no device or peer does;
    /// 3. memory that is not the host's was built with its driver.
    #[inline]
    pub unsafe fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), CopyError> {
        self.check(offset, into.len())?;
        let _guard = self.access_lock().read().map_err(CopyError::Lock)?;
        let from = self.addr() + offset;
        match self.location() {
            Location::Host { .. } => {
                // SAFETY: within memory that its owner, whom this handle holds, keeps mapped, initialised and exposed;
                // nobody writes it (1, 2); `into` is a reference, so it is elsewhere (`Keepalive`, 3).
                unsafe { with_exposed_provenance::<u8>(from).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
                Ok(())
            }
            // SAFETY: as above, where the driver said.
            _ => unsafe { self.driver().copy_out(from, into) }.map_err(CopyError::Driver),
        }
    }

    /// Copies `from` to `offset`, holding the access lock in exclusive mode. Waits for it; see
    /// [Recursion](super::AccessLock#recursion).
    ///
    /// # Errors
    /// [`CopyError::Bounds`] before anything is touched; [`CopyError::Driver`].
    ///
    /// # Safety
    /// While this runs:
    /// 1. no thread touches the bytes written, but by this memory's lock;
    /// 2. no device or peer does;
    /// 3. memory that is not the host's was built with its driver.
    #[inline]
    pub unsafe fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), CopyError> {
        self.check(offset, from.len())?;
        let _guard = self.access_lock().exclusive();
        // SAFETY: the bounds were checked; 1 and 2 are the caller's.
        unsafe { self.copy_in(offset, from) }
    }

    /// Copies `from` to `offset`, holding the access lock in disjoint mode: beside other disjoint writers.
    ///
    /// # Errors
    /// [`CopyError::Bounds`] before anything is touched; [`CopyError::Lock`]; [`CopyError::Driver`].
    ///
    /// # Safety
    /// While this runs:
    /// 1. no thread touches the bytes written, but by this memory's lock, and no other disjoint writer does at all;
    /// 2. no device or peer does;
    /// 3. memory that is not the host's was built with its driver.
    #[inline]
    pub unsafe fn write_at_disjoint(&self, offset: usize, from: &[u8]) -> Result<(), CopyError> {
        self.check(offset, from.len())?;
        let _guard = self.access_lock().disjoint().map_err(CopyError::Lock)?;
        // SAFETY: the bounds were checked; 1 and 2 are the caller's.
        unsafe { self.copy_in(offset, from) }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result<(), CopyError> {
        check_part(offset as u64, len as u64, self.size() as u64).map_err(CopyError::Bounds)
    }

    /// # Safety
    /// 1. The place is within the memory.
    /// 2. Nobody else touches it meanwhile.
    #[inline]
    unsafe fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), CopyError> {
        let to = self.addr() + offset;
        match self.location() {
            Location::Host { .. } => {
                // SAFETY: within memory (1) that its owner, whom this handle holds, keeps mapped and exposed; nobody else
                // touches it (2); `from` is a reference, so it is elsewhere (`Keepalive`, 3).
                unsafe { with_exposed_provenance_mut::<u8>(to).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
                Ok(())
            }
            // SAFETY: as above, where the driver said.
            _ => unsafe { self.driver().copy_in(to, from) }.map_err(CopyError::Driver),
        }
    }
}
