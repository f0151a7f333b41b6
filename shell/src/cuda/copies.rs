//! The driver behind [`LocalMemory`](crate::memory::LocalMemory): where memory is, and copies in the context that owns it.
//!
//! Work of the caller's on streams of its own is the caller's to order: a copy here waits for no stream but the one that it runs
//! on.
//!
//! # Safety
//!
//! This file guarantees what [`MemoryDriver`] asks for: only what the driver says is the host's, by first and last byte, is
//! placed there, and copies have arrived when they return.
#![allow(unsafe_code)]

use bareverbs_core::range::AddressRange;

use super::driver::CudaDriver;
use super::error::CudaError;
use crate::memory::{
    DriverError, Location, MemoryDriver, PLACEHOLDER_DEVICE_BYTES_PER_S, PLACEHOLDER_HOST_BYTES_PER_S, Placement,
};

// SAFETY: 1: host memory is what the driver does not know, or calls the host's: pinned memory is mapped in this process. 2: the
// driver copies the range that it is given, from or to memory of that length; a copy out is complete when the call returns, and
// a copy in is waited for.
unsafe impl MemoryDriver for CudaDriver {
    fn place(&self, range: AddressRange) -> Result<Placement, DriverError> {
        Ok(self.placed(range)?)
    }

    unsafe fn copy_out(&self, from: usize, to: &mut [u8]) -> Result<(), DriverError> {
        if to.is_empty() {
            return Ok(());
        }
        let range = range_at(from, to.len())?;
        let _current = self.make_current(range.base())?;
        // SAFETY: 1 is the caller's promise.
        Ok(unsafe { self.calls.copy_out(range, to) }?)
    }

    unsafe fn copy_in(&self, to: usize, from: &[u8]) -> Result<(), DriverError> {
        if from.is_empty() {
            return Ok(());
        }
        let range = range_at(to, from.len())?;
        let _current = self.make_current(range.base())?;
        // SAFETY: 1 is the caller's promise.
        Ok(unsafe { self.calls.copy_in(range, from) }?)
    }
}

impl CudaDriver {
    fn placed(&self, range: AddressRange) -> Result<Placement, CudaError> {
        let first = self.location(range.base())?;
        let last = range.last().map_or(Ok(first), |last| self.location(last))?;
        if first != last {
            return Err(CudaError::Straddles { range, first, last });
        }
        let (host, device) = (Some(PLACEHOLDER_HOST_BYTES_PER_S), Some(PLACEHOLDER_DEVICE_BYTES_PER_S));
        let (host_bytes_per_s, device_bytes_per_s) = match first {
            Location::Device { .. } => (None, device),
            Location::Managed => (host, device),
            _ => return Ok(Placement::HOST),
        };
        Ok(Placement { location: first, host_bytes_per_s, device_bytes_per_s })
    }
}

fn range_at(address: usize, len: usize) -> Result<AddressRange, DriverError> {
    AddressRange::new(address as u64, len as u64).map_err(|error| DriverError::new("", None, error.to_string()))
}
