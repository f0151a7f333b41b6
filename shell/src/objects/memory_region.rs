//! Memory regions: memory that a device may use, deregistered before it is released.
//!
//! # Safety
//!
//! This file guarantees that what keeps the memory is let go only after the region was deregistered, and never when that
//! failed.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bareverbs_core::link::FrameMemory;
use bareverbs_core::range::AddressRange;
use bareverbs_core::verbs::{AccessFlags, Mr};

use crate::errno;
use crate::error::{CallError, Doing, Error};
use crate::objects::handle::{Handle, Object, Origin};
use crate::objects::protection_domain::ProtectionDomain;

/// What keeps memory mapped while a region covers it; `None` for memory that is never unmapped.
pub type Keeper = Option<Arc<dyn Any + Send + Sync>>;

/// What must outlive a region. When deregistration fails, all of it stays.
pub(super) struct Parents {
    // Field order is drop order: the domain before the memory costs nothing, but the region is before both.
    domain: Arc<ProtectionDomain>,
    #[expect(dead_code, reason = "held, not read: it keeps the memory mapped")]
    keeper: Keeper,
}

impl std::fmt::Debug for Parents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parents").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl Object for Mr {
    type Parents = Parents;
    const DESTROY: &'static str = "ibv_dereg_mr";

    fn destroy(parents: &Parents) -> unsafe extern "C" fn(*mut Self) -> c_int {
        Self::origin(parents).symbols.dereg_mr
    }

    fn origin(parents: &Parents) -> &Origin {
        parents.domain.context().origin()
    }
}

/// A registered range of memory.
#[derive(Debug)]
pub struct MemoryRegion {
    handle: Handle<Mr>,
    range: AddressRange,
    key_base: u64,
    access: AccessFlags,
    lkey: u32,
    rkey: u32,
}

/// Where a region is, by the caller's address and as its keys see it.
pub(super) struct Placed {
    pub(super) range: AddressRange,
    /// What the keys call its first byte, and what the library reports as its address.
    pub(super) key_base: u64,
}

impl MemoryRegion {
    /// Registers the memory of an endpoint's frames: for the own device to write, and for nobody else, whatever the queue pair
    /// permits. A frame's bytes are handed out as a slice while no request names them; a peer that could write to them
    /// through the region's key would write under that slice.
    ///
    /// `keeper` keeps that memory mapped, and for this endpoint.
    pub(crate) fn of_frames(
        domain: &Arc<ProtectionDomain>,
        frames: &FrameMemory,
        keeper: Keeper,
    ) -> Result<Self, Error> {
        let access = AccessFlags::LOCAL_WRITE;
        // SAFETY: frame memory is a device's to write by its constructor's promise, and mapped while its keeper lives.
        unsafe { Self::register(domain, frames.as_ptr().addr(), frames.len_bytes(), access, keeper) }
    }

    /// Registers a range of this process's memory.
    ///
    /// # Errors
    /// [`Error::Size`] for nothing; [`Error::Unsupported`] for optional access bits on a library without
    /// `ibv_reg_mr_iova2`; [`Error::Call`] if the library refuses, with the locked-memory limit on errno 12.
    ///
    /// # Safety
    /// 1. The range is mapped while `keeper` lives, or for ever if that is `None`.
    /// 2. As far as `access` and work requests let a device write to it, no Rust reference covers it.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn register(
        domain: &Arc<ProtectionDomain>,
        addr: usize,
        len_bytes: usize,
        access: AccessFlags,
        keeper: Keeper,
    ) -> Result<Self, Error> {
        let range = AddressRange::new(addr as u64, len_bytes as u64).ok().filter(|range| !range.is_empty());
        let range = range.ok_or(Error::Size { what: "a memory region", got: len_bytes as u64 })?;
        let context = domain.context();
        context.check_use()?;
        let symbols = context.symbols();
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(addr);
        let bits = access.bits();
        // What C's ibv_reg_mr macro does: optional bits go by the newer call, and not at all where there is none.
        let optional = access.intersects(AccessFlags::OPTIONAL_RANGE);
        errno::clear();
        let (call, raw) = match symbols.reg_mr_iova2 {
            Some(register) if optional => {
                // SAFETY: the domain is live; the range is mapped (1).
                ("ibv_reg_mr_iova2", unsafe { register(domain.as_ptr(), start, len_bytes, addr as u64, bits) })
            }
            None if optional => {
                let library = Arc::clone(&symbols.library);
                return Err(Error::Unsupported { symbol: "ibv_reg_mr_iova2", library });
            }
            _ => {
                // SAFETY: the domain is live; the range is mapped (1).
                ("ibv_reg_mr", unsafe { (symbols.reg_mr)(domain.as_ptr(), start, len_bytes, bits as c_int) })
            }
        };
        // SAFETY: just returned by this library, or null; errno was cleared.
        unsafe { Self::adopt(raw, domain, keeper, (call, access), Placed { range, key_base: addr as u64 }) }
    }

    /// Takes ownership of what a registering call returned, and reads its keys.
    ///
    /// # Safety
    /// 1. `raw` is null, or was made by the library of `domain` in that domain and is owned by nobody else.
    /// 2. `errno` was cleared before the call that returned it.
    pub(super) unsafe fn adopt(
        raw: *mut Mr,
        domain: &Arc<ProtectionDomain>,
        keeper: Keeper,
        (call, access): (&'static str, AccessFlags),
        placed: Placed,
    ) -> Result<Self, Error> {
        let parents = Parents { domain: Arc::clone(domain), keeper };
        let (addr, len_bytes) = (placed.range.base() as usize, placed.range.len_bytes() as usize);
        // SAFETY: 1 and 2, as here.
        let handle = unsafe { Handle::adopt(raw, parents, call) }
            .map_err(|error| error.doing(Doing::Register { addr, len_bytes, access }))?;
        Self::checked(handle, domain, access, placed)
    }

    /// Reads the keys, after a look whether the library's struct is what we think.
    fn checked(
        handle: Handle<Mr>,
        domain: &Arc<ProtectionDomain>,
        access: AccessFlags,
        placed: Placed,
    ) -> Result<Self, Error> {
        // SAFETY: the region is live, and nobody else has it yet; it is laid out alike in every library, which is what is
        // being checked.
        let &Mr { context, pd, addr: mr_addr, length, lkey, rkey, .. } = unsafe { handle.raw().as_ref() };
        let device = domain.context().name();
        let Placed { range, key_base } = placed;
        for (field, expected, got) in [
            ("ibv_mr.context", domain.context().as_ptr().addr() as u64, context.addr()),
            ("ibv_mr.pd", domain.as_ptr().addr() as u64, pd.addr()),
            ("ibv_mr.addr", key_base, mr_addr.addr()),
            ("ibv_mr.length", range.len_bytes(), length),
        ] {
            super::check_layout(device, field, expected, got as u64)?;
        }
        Ok(Self { handle, range, key_base, access, lkey, rkey })
    }

    /// Key for the own device.
    pub const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for others; 0 on some of Apple's devices.
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Where the range starts, by its virtual address.
    pub const fn addr(&self) -> usize {
        self.range.base() as usize
    }

    /// Its length, bytes.
    pub const fn len_bytes(&self) -> usize {
        self.range.len_bytes() as usize
    }

    /// The range, by its virtual addresses.
    pub const fn range(&self) -> AddressRange {
        self.range
    }

    /// What the keys call the range's first byte: its virtual address, or 0 where the region is a
    /// [dma-buf's](Self::of_dma_buf).
    pub const fn key_base(&self) -> u64 {
        self.key_base
    }

    /// What its keys permit, as it was registered.
    pub const fn access(&self) -> AccessFlags {
        self.access
    }

    /// The domain it belongs to.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.handle.parents().domain
    }

    /// Deregisters the range now.
    ///
    /// # Errors
    /// [`Error::Call`] if the library refuses: the region, its domain and its memory's keeper then stay for ever.
    /// [`Error::Forked`] in a forked child: nothing was done.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn close(self) -> Result<(), Error> {
        self.handle.origin().check_process()?;
        Ok(self.destroy()?)
    }

    /// As [`close`](Self::close); in a forked child it does nothing.
    pub(crate) fn destroy(self) -> Result<(), CallError> {
        self.handle.close()
    }
}
