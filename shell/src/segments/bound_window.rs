//! A key that is bound, and views of what it presents.
//!
//! # Safety
//!
//! This file guarantees that a view lies within its window, and that its key address is the offset from the window's base.
#![allow(unsafe_code)]

use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::{DeviceName, KeyedRange};

use crate::memory::{View, ViewGuard};
use crate::objects::indirect_key::IndirectKey;
use crate::objects::{MemoryRegion, ProtectionDomain};

/// A range of memory under one key: its regions, one after the other, from key address 0 on.
///
/// Views hold it. When the last is gone and nobody else holds it, the key is destroyed, then its regions are let go, then the
/// protection domain.
#[derive(Debug)]
pub struct BoundWindow {
    // It holds its regions and the domain, in that order, and lets them go only after it was destroyed.
    key: IndirectKey,
    range: AddressRange,
    access: AccessFlags,
    device: DeviceName,
}

impl BoundWindow {
    /// A key whose binding to its regions with that access has been seen to succeed; these follow each other through `range`,
    /// and each permits as much.
    pub(super) fn new(key: IndirectKey, range: AddressRange, access: AccessFlags, device: DeviceName) -> Self {
        Self { key, range, access, device }
    }

    /// What the key covers, by virtual addresses. Its base is the key's address 0.
    pub fn range(&self) -> AddressRange {
        self.range
    }

    /// Key for the own device.
    pub fn lkey(&self) -> u32 {
        self.key.lkey()
    }

    /// Key for others.
    pub fn rkey(&self) -> u32 {
        self.key.rkey()
    }

    /// What the key permits, as it was bound: no more than each of its regions does.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// The regions that the key presents, in order.
    pub fn regions(&self) -> &[Arc<MemoryRegion>] {
        self.key.regions()
    }

    /// How many entries the key has.
    pub fn entries(&self) -> usize {
        self.key.regions().len()
    }

    /// A view of these addresses: its key address is the offset from the window's base. `None` where they are not all within
    /// the window, or none.
    pub fn view(self: &Arc<Self>, asked: AddressRange) -> Option<View> {
        if !self.range.covers(asked) {
            return None;
        }
        let offset_bytes = asked.base().checked_sub(self.range.base())?;
        let range = KeyedRange::new(asked.base(), offset_bytes, asked.len_bytes(), self.lkey(), self.rkey()).ok()?;
        let guard: Arc<dyn ViewGuard> = Arc::clone(self) as _;
        // SAFETY: 1: the guard is the window, whose key was seen bound to regions that follow each other through its range
        // from key address 0 on (`Binder::bind` looks at both), and `asked` lies within it. 2: the window holds the regions,
        // whose makers promised as much of their bytes as far as the regions' access goes (`MemoryRegion::of_dma_buf`,
        // `register`), and the key permits no more than each of them does (`Binder::bind` looks at that, too). 3: it tells the key's own
        // domain and that domain's device.
        Some(unsafe { View::new(range, guard) })
    }
}

impl ViewGuard for BoundWindow {
    fn device(&self) -> &DeviceName {
        &self.device
    }

    fn protection_domain(&self) -> Option<&Arc<ProtectionDomain>> {
        Some(self.key.domain())
    }

    fn access(&self) -> Option<AccessFlags> {
        Some(self.access)
    }
}
