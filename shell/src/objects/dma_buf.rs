//! Regions over dma-bufs: memory of another device, named by a file.
//!
//! The rule this file protects: **a dma-buf's region starts at 0 for its keys**. The library reports a region's address as the
//! *offset* in the file, so file offset and the keys' base are both 0 here, and the virtual address is kept beside them.
//!
//! Not every device, driver and kernel takes dma-bufs, and some say so only when asked. Where they do say so, the plain
//! registration of the range that was exported is tried once: peer-memory drivers take it.
//!
//! # Safety
//!
//! This file guarantees that the file is only looked at during the call: it is the caller's, to be closed by its owner.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::verbs::AccessFlags;

use crate::errno;
use crate::error::Error;
use crate::objects::memory_region::{Keeper, MemoryRegion, Placed};
use crate::objects::protection_domain::ProtectionDomain;

const CALL: &str = "ibv_reg_dmabuf_mr";

impl MemoryRegion {
    /// Registers the memory that a dma-buf names: as many bytes of it as `range` has, from its start. `range` is where they are
    /// by their virtual addresses; nothing is looked up there.
    ///
    /// [`key_base`](Self::key_base) is 0. The region keeps the memory from being used anew, whatever its allocator does; the
    /// file may be closed when this returns.
    ///
    /// # Errors
    /// [`Error::Size`] for nothing; [`Error::Unsupported`] on a library without the call; [`Error::Call`] if it refuses.
    /// [`Error::is_unsupported`] tells those that a plain registration may help with.
    ///
    /// # Safety
    /// 1. The file's first bytes are the memory at `range`, as long as the region lives and that is mapped.
    /// 2. As far as `access` and work requests let a device write to it, no Rust reference covers it.
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub unsafe fn of_dma_buf(
        domain: &Arc<ProtectionDomain>,
        file: BorrowedFd<'_>,
        range: AddressRange,
        access: AccessFlags,
    ) -> Result<Self, Error> {
        let size = Error::Size { what: "a memory region", got: range.len_bytes() };
        let len_bytes = usize::try_from(range.len_bytes()).ok().filter(|len_bytes| *len_bytes > 0).ok_or(size)?;
        let context = domain.context();
        context.check_use()?;
        let symbols = context.symbols();
        let register = symbols
            .reg_dmabuf_mr
            .ok_or_else(|| Error::Unsupported { symbol: CALL, library: Arc::clone(&symbols.library) })?;
        errno::clear();
        // SAFETY: the domain is live, and the file open for the call.
        let raw = unsafe { register(domain.as_ptr(), 0, len_bytes, 0, file.as_raw_fd(), access.bits() as c_int) };
        // SAFETY: just returned by this library for the domain, or null; errno was cleared.
        unsafe { Self::adopt(raw, domain, None, (CALL, access), Placed { range, key_base: 0 }) }
    }

    /// As [`of_dma_buf`](Self::of_dma_buf); where that is not supported, `range` is registered plainly, once.
    ///
    /// # Errors
    /// [`Error::NeitherRegistration`] with both errors if both fail; what says that the arguments are wrong is answered as it
    /// is, and nothing else tried.
    ///
    /// # Safety
    /// 1. As for [`of_dma_buf`](Self::of_dma_buf).
    /// 2. The range is mapped while `keeper` lives, or for ever if that is `None`; memory whose driver takes the region away
    ///    with the mapping counts as mapped.
    pub unsafe fn of_dma_buf_or_plain(
        domain: &Arc<ProtectionDomain>,
        file: BorrowedFd<'_>,
        range: AddressRange,
        access: AccessFlags,
        keeper: Keeper,
    ) -> Result<Self, Error> {
        // SAFETY: by 1.
        let refused = match unsafe { Self::of_dma_buf(domain, file, range, access) } {
            Err(error) if error.is_unsupported() => error,
            answer => return answer,
        };
        let size = || Error::Size { what: "a memory region", got: range.len_bytes() };
        let (addr, len_bytes) =
            usize::try_from(range.base()).ok().zip(usize::try_from(range.len_bytes()).ok()).ok_or_else(size)?;
        // SAFETY: 1: by 2. 2: by 1, and 2 there.
        let plain = unsafe { Self::register(domain, addr, len_bytes, access, keeper) };
        plain.map_err(|plain| Error::NeitherRegistration { dma_buf: Box::new(refused), plain: Box::new(plain) })
    }
}
