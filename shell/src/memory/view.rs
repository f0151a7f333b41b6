//! Views: bytes under keys, with what keeps the keys in force.
//!
//! # Safety
//!
//! This file guarantees that a view's numbers go with the guard that they were made with, and that a part lies within its
//! view.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::{DeviceName, KeyedRange, KeyedRangeError};

use super::lease::{Lease, PublishError};
use crate::objects::ProtectionDomain;

/// What keeps keys in force: it owns what was registered, and goes with the last view.
///
/// What it says must be true of the keys and never change; who makes a view of it promises that ([`View::new`], 3).
pub trait ViewGuard: Send + Sync {
    /// The device that the keys are for.
    fn device(&self) -> &DeviceName;

    /// The protection domain that the keys are of; `None` where they are of no domain of this library's.
    fn protection_domain(&self) -> Option<&Arc<ProtectionDomain>> {
        None
    }

    /// What the keys permit; `None` where only the device knows.
    fn access(&self) -> Option<AccessFlags> {
        None
    }
}

/// Registered bytes: all that a transfer needs of them.
///
/// While a view, a clone or a part of it lives, its keys are in force and the bytes mapped: the guard holds regions, keys,
/// protection domain and the memory's owner. Cloning counts one reference. Forgetting a view keeps all of that for ever.
///
/// # Keys
///
/// An rkey is a capability: a peer that was told it can use it, as far as the region's access goes, until the region is
/// deregistered, which is when the last view goes: this one, its clones and parts, leases, and, where it was
/// [put in force](super::Registrations), what the memory's handles hold. So a key stays usable as long as any
/// [`LocalMemory`](super::LocalMemory) handle holds the view in force, whoever else has let it go. After that the device
/// may give the same number to another region.
/// [`publish`](Self::publish) is the way to tell it to a peer. Writes through a key are ordered as the device orders them by
/// default: relaxed ordering is off unless the registration asked for it.
#[derive(Clone)]
pub struct View {
    range: KeyedRange,
    /// What the guard said when it was made, so that data paths need not ask it.
    owner: DomainId,
    access: Option<AccessFlags>,
    guard: Arc<dyn ViewGuard>,
}

/// A protection domain by its address, which no other has while a guard holds it; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DomainId(usize);

impl DomainId {
    const NONE: Self = Self(0);

    #[inline]
    fn of(domain: &Arc<ProtectionDomain>) -> Self {
        Self(Arc::as_ptr(domain).addr())
    }
}

/// Whether a view's keys are of a protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfDomain {
    /// They are.
    Yes,
    /// They are of another.
    No,
    /// They are of none of this library's: what the device takes them for is the device's to say.
    Unknown,
}

impl View {
    /// A view of bytes that were registered.
    ///
    /// # Safety
    /// As long as `guard` lives:
    /// 1. the range's keys, if they are in force at all, see the range's bytes at its key address, and nothing else there;
    /// 2. those bytes stay mapped, and a work request may read and write them under the lkey: no Rust reference covers them;
    /// 3. what the guard says is true, and always the same: the keys are of that device, and of that protection domain and with
    ///    that access where it names them. Operations post, or refuse, by it.
    pub unsafe fn new(range: KeyedRange, guard: Arc<dyn ViewGuard>) -> Self {
        let owner = guard.protection_domain().map_or(DomainId::NONE, DomainId::of);
        let access = guard.access();
        Self { range, owner, access, guard }
    }

    /// Its numbers.
    #[inline]
    pub const fn range(&self) -> &KeyedRange {
        &self.range
    }

    /// The virtual address of its first byte.
    #[inline]
    pub const fn addr(&self) -> u64 {
        self.range.addr()
    }

    /// The address of its first byte as the keys see it: what a work request names.
    #[inline]
    pub const fn key_addr(&self) -> u64 {
        self.range.key_addr()
    }

    /// How many bytes; never 0.
    #[inline]
    pub const fn len_bytes(&self) -> u64 {
        self.range.len_bytes()
    }

    /// Key for the own device.
    #[inline]
    pub const fn lkey(&self) -> u32 {
        self.range.lkey()
    }

    /// Key for others: [a capability](Self#keys).
    #[inline]
    pub const fn rkey(&self) -> u32 {
        self.range.rkey()
    }

    /// The device that the keys are for.
    pub fn device(&self) -> &DeviceName {
        self.guard.device()
    }

    /// The protection domain that the keys are of, where it is known: a queue pair of another cannot use them.
    pub fn protection_domain(&self) -> Option<&Arc<ProtectionDomain>> {
        self.guard.protection_domain()
    }

    /// What its keys permit, as they were registered; `None` where only the device knows.
    #[inline]
    pub const fn access(&self) -> Option<AccessFlags> {
        self.access
    }

    /// Whether its keys are of that protection domain: one comparison, no call.
    #[inline]
    pub(crate) fn is_of(&self, domain: &Arc<ProtectionDomain>) -> OfDomain {
        if self.owner == DomainId::of(domain) {
            OfDomain::Yes
        } else if self.owner == DomainId::NONE {
            OfDomain::Unknown
        } else {
            OfDomain::No
        }
    }

    /// What keeps its keys in force.
    pub(crate) const fn guard(&self) -> &Arc<dyn ViewGuard> {
        &self.guard
    }

    /// The part of it that starts `offset_bytes` into it and is `len_bytes` long, under the same keys and guard.
    ///
    /// # Errors
    /// [`KeyedRangeError::Empty`]; [`KeyedRangeError::Part`] with the numbers if it leaves the view.
    pub fn part(&self, offset_bytes: u64, len_bytes: u64) -> Result<Self, KeyedRangeError> {
        Ok(Self { range: self.range.part(offset_bytes, len_bytes)?, guard: Arc::clone(&self.guard), ..*self })
    }

    /// Makes it known to peers: the lease tells what to send them, and keeps the keys in force until it is withdrawn.
    ///
    /// # Errors
    /// [`PublishError`] where there is no key for others, or it permits them nothing.
    pub fn publish(&self) -> Result<Lease, PublishError> {
        Lease::of(self)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("range", &self.range).field("device", self.device()).finish_non_exhaustive()
    }
}
