//! Copies that really copy, between this process and the memory of the stand-in.
//!
//! # Safety
//!
//! This file guarantees that only bytes of physical memory that a block holds are touched, besides the caller's own.
#![allow(unsafe_code)]

use std::ptr::with_exposed_provenance_mut;

use bareverbs_core::cuda::CuResult;

use super::state::CudaState;

impl CudaState {
    /// Copies out of a range of addresses.
    ///
    /// # Safety
    /// 1. `to` is valid for writes of so many bytes.
    /// 2. Nobody writes the range meanwhile.
    pub(super) unsafe fn copy_out(&mut self, address: u64, to: *mut u8, length_bytes: usize) -> Result<(), CuResult> {
        self.arrive();
        let pieces = self.space.pieces(address, length_bytes as u64).ok_or(CuResult::INVALID_VALUE)?;
        let mut done = 0;
        for (_, piece) in pieces {
            let from = with_exposed_provenance_mut::<u8>(piece.range.address(piece.offset_bytes));
            let count = piece.length_bytes as usize;
            // SAFETY: the piece is held, and mapped for as long as its memory is; the caller's bytes are valid by 1, and by 2
            // nobody writes meanwhile.
            unsafe { from.copy_to(to.wrapping_add(done), count) };
            done += count;
        }
        Ok(())
    }

    /// Copies bytes to a range of addresses.
    ///
    /// The range must be used by nobody meanwhile, which is what the driver asks of its callers.
    pub(super) fn copy_in(&mut self, address: u64, bytes: &[u8]) -> Result<(), CuResult> {
        let pieces = self.space.pieces(address, bytes.len() as u64).ok_or(CuResult::INVALID_VALUE)?;
        let mut done = 0;
        for (_, piece) in pieces {
            let to = with_exposed_provenance_mut::<u8>(piece.range.address(piece.offset_bytes));
            let count = piece.length_bytes as usize;
            let from = &bytes[done..done + count];
            // SAFETY: the piece is held, and mapped for as long as its memory is; the bytes are elsewhere.
            unsafe { to.copy_from(from.as_ptr(), count) };
            done += count;
        }
        Ok(())
    }

    /// Lets the copies arrive that have not.
    pub(super) fn arrive(&mut self) {
        for (address, bytes) in std::mem::take(&mut self.pending) {
            // What was freed meanwhile needs nothing.
            let _ = self.copy_in(address, &bytes);
        }
    }
}

impl CudaState {
    /// A copy of the bytes of a range of addresses.
    pub(super) fn bytes(&mut self, address: u64, length_bytes: usize) -> Result<Vec<u8>, CuResult> {
        let mut bytes = vec![0; length_bytes];
        // SAFETY: 1: a vector of so many bytes. 2: what the driver asks of who calls it.
        unsafe { self.copy_out(address, bytes.as_mut_ptr(), length_bytes) }?;
        Ok(bytes)
    }
}
