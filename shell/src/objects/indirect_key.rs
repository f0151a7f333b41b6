//! Indirect keys of mlx5: several regions presented as one range that starts at 0.
//!
//! The rule this file protects: **a key goes before the regions that it names**, and never is a region deregistered under a
//! key that still exists: when destroying the key fails, its regions and its protection domain stay with it.
//!
//! # Safety
//!
//! This file guarantees that a key is made in a live domain, which it holds.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use bareverbs_core::verbs::mlx5dv::{Mkey, MkeyFlags, MkeyInitAttr};

use crate::errno;
use crate::error::{Doing, Error};
use crate::objects::handle::{Handle, Object, Origin};
use crate::objects::memory_region::MemoryRegion;
use crate::objects::protection_domain::ProtectionDomain;
use crate::symbols::Mlx5Symbols;

/// What must outlive a key. When destroying it fails, all of it stays.
#[derive(Debug)]
pub(super) struct Parents {
    // Field order is drop order: regions before the domain, as the teardown order has it.
    regions: Vec<Arc<MemoryRegion>>,
    domain: Arc<ProtectionDomain>,
    mlx5: Arc<Mlx5Symbols>,
}

impl Object for Mkey {
    type Parents = Parents;
    const DESTROY: &'static str = "mlx5dv_destroy_mkey";

    fn destroy(parents: &Parents) -> unsafe extern "C" fn(*mut Self) -> c_int {
        parents.mlx5.destroy_mkey
    }

    fn origin(parents: &Parents) -> &Origin {
        parents.domain.context().origin()
    }
}

/// A key, and the regions that it names once it is bound.
#[derive(Debug)]
pub(crate) struct IndirectKey {
    handle: Handle<Mkey>,
    lkey: u32,
    rkey: u32,
}

impl IndirectKey {
    /// Makes a key with room for these regions, which are not bound to it yet.
    ///
    /// # Errors
    /// [`Error::Call`] if the provider refuses: a device of that name may still not make keys, which takes DevX.
    /// [`Error::Granted`] if it has room for fewer.
    ///
    /// # Panics
    /// If there are more than 65 535 regions: the caller keeps to its cap.
    #[doc(alias = "mlx5dv_create_mkey")]
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        mlx5: &Arc<Mlx5Symbols>,
        regions: Vec<Arc<MemoryRegion>>,
    ) -> Result<Self, Error> {
        let context = domain.context();
        context.check_use()?;
        let asked = u16::try_from(regions.len()).expect("the caller keeps to its cap, which is a u16");
        let mut attr = MkeyInitAttr { pd: domain.as_ptr(), create_flags: MkeyFlags::INDIRECT, max_entries: asked };
        errno::clear();
        // SAFETY: the domain is live, and of the library that the provider serves; the attributes are ours.
        let raw = unsafe { (mlx5.create_mkey)(&raw mut attr) };
        let parents = Parents { regions, domain: Arc::clone(domain), mlx5: Arc::clone(mlx5) };
        // SAFETY: just returned by this library, or null; errno was cleared.
        let handle = unsafe { Handle::adopt(raw, parents, "mlx5dv_create_mkey") }
            .map_err(|error| error.doing(Doing::Create(format!("an indirect key of {asked} entries"))))?;
        if attr.max_entries < asked {
            let (asked, granted) = (asked.into(), attr.max_entries.into());
            let device = Arc::clone(context.name());
            return Err(Error::Granted { device, what: "an indirect key's entries", asked, granted });
        }
        // SAFETY: the key is live, and nobody else has it yet.
        let &Mkey { lkey, rkey } = unsafe { handle.raw().as_ref() };
        Ok(Self { handle, lkey, rkey })
    }

    pub(super) fn as_ptr(&self) -> *mut Mkey {
        self.handle.as_ptr()
    }

    /// Key for the own device.
    pub(crate) const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for others.
    pub(crate) const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The regions that it names, in order.
    pub(crate) fn regions(&self) -> &[Arc<MemoryRegion>] {
        &self.handle.parents().regions
    }

    pub(crate) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.handle.parents().domain
    }
}
