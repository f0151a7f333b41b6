//! Host memory registered on one device, in one protection domain.
//!
//! A region covers the memory whole, with the access that the domain was made for. The first registration of some memory on
//! a device stands for all of its handles; a refusal stands, too, until it is forgotten.
//!
//! # Fork
//!
//! A domain belongs to the process that made it: a forked child is refused, and its drops make no call. On kernels before 5.12
//! a forked child's first write takes registered pages away from the parent's device unless
//! [`prepare_for_fork`](crate::Fabric::prepare_for_fork) was called before the first registration. That call in turn keeps
//! registered *pages* out of the child: what else lies on a page with registered bytes is unmapped there. So register whole
//! pages ([`Pages`](super::pages::Pages)) where children do more than `exec`, with `RDMAV_HUGEPAGES_SAFE=1` if they are huge.
//!
//! # Safety
//!
//! This file guarantees that a region's memory is kept by its owner until the region is deregistered, and that a view's
//! numbers are its region's.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use bareverbs_core::link::PAGE_BYTES;
use bareverbs_core::range::AddressRange;
use bareverbs_core::verbs::{AccessFlags, TransportType};
use bareverbs_core::view::{DeviceName, KeyedRange, RegionRefused, RegionRules};

use super::backend::Backend;
use super::failure::RegistrationFailure;
use super::local_memory::LocalMemory;
use super::location::Location;
use super::registrations::Registered;
use super::slots::Ends;
use super::view::{OfDomain, View, ViewGuard};
use crate::error::Error;
use crate::objects::{MemoryRegion, ProtectionDomain};

/// Registers host memory on a device, in a protection domain.
///
/// Memory has one registration of this kind for each device, so it is for one domain of the device: what is registered in
/// another is refused here, and not used under the wrong keys.
#[derive(Clone, Debug)]
pub struct HostDomain {
    domain: Arc<ProtectionDomain>,
    device: DeviceName,
    /// The name's, which every hit compares.
    ends: Ends,
    rules: RegionRules,
    access: AccessFlags,
}

/// Why memory was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device does not take such a range. It was not asked, and nothing is recorded.
    Region {
        /// The device.
        device: DeviceName,
        /// Why not.
        refused: RegionRefused,
    },
    /// It is not host memory.
    Location {
        /// The device.
        device: DeviceName,
        /// What it is.
        location: Location,
    },
    /// The device refused: just now, or before and it is [recorded](RegistrationFailure::is_recorded).
    Failed(Arc<RegistrationFailure>),
    /// The memory is registered on this device already, in another protection domain, whose keys are of no use here.
    OtherDomain {
        /// The device.
        device: DeviceName,
    },
    /// Something else of the shell. Nothing is recorded.
    Shell(Error),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region { device, refused } => write!(f, "device {device}: {refused}"),
            Self::Location { device, location } => {
                write!(f, "device {device}: {location} cannot be registered as host memory: it needs its own domain")
            }
            Self::Failed(failure) => failure.fmt(f),
            Self::OtherDomain { device } => write!(
                f,
                "the memory is registered on device {device} in another protection domain: use that one, or build a \
                 handle of its own for this one"
            ),
            Self::Shell(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RegisterError {}

impl From<Error> for RegisterError {
    fn from(error: Error) -> Self {
        Self::Shell(error)
    }
}

impl HostDomain {
    /// What is permitted unless something else is asked for: the own device writes, peers write and read. No atomics, which
    /// not every device has, and no relaxed ordering.
    pub const ACCESS: AccessFlags =
        AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

    /// Registers in that domain, with [`ACCESS`](Self::ACCESS). The device is asked for its limits.
    ///
    /// # Errors
    /// [`Error::Call`] if the device cannot be asked; [`Error::DeviceName`].
    pub fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, Error> {
        let context = domain.context();
        let name = context.name();
        let device =
            DeviceName::new(name.as_bytes()).map_err(|error| Error::DeviceName { device: Arc::clone(name), error })?;
        let rules = if context.transport() == TransportType::THUNDERBOLT {
            RegionRules::thunderbolt(PAGE_BYTES.trailing_zeros() as u8)
        } else {
            match context.attributes() {
                Ok(attributes) => RegionRules::verbs(attributes.orig_attr.max_mr_size),
                // A library that cannot tell.
                Err(Error::Unsupported { .. }) => RegionRules::verbs(0),
                Err(error) => return Err(error),
            }
        };
        let ends = Ends::of(device.as_bytes());
        Ok(Self { domain: Arc::clone(domain), device, ends, rules, access: Self::ACCESS })
    }

    /// Registers with this access instead. Optional bits ([`AccessFlags::OPTIONAL_RANGE`]: relaxed ordering) go by
    /// `ibv_reg_mr_iova2`, as C's macro does it.
    #[must_use]
    pub fn access(self, access: AccessFlags) -> Self {
        Self { access, ..self }
    }

    /// The device's name.
    pub fn device(&self) -> &DeviceName {
        &self.device
    }

    /// The protection domain.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// What the device takes as one region.
    pub fn rules(&self) -> &RegionRules {
        &self.rules
    }

    /// The view of the memory that is in force in this domain, if there is one: no lock, no allocation, no reference counted.
    /// For data paths that hold the memory while they post.
    #[inline]
    pub fn registered<'memory>(&self, memory: &'memory LocalMemory) -> Option<&'memory View> {
        memory.registrations(Backend::VERBS).view_of(&self.device, &self.ends).filter(|view| self.owns(view))
    }

    /// The view of the memory on this device: the one in force, or a new registration of all of it. The one in force has the
    /// [access](View::access) that it was registered with.
    ///
    /// Threads that come at once register at once; the first that is done stands, and the others' regions are deregistered.
    /// No lock is held meanwhile.
    ///
    /// # Errors
    /// [`RegisterError`]. A refusal of the device is recorded with the memory and not asked for again until it is
    /// [forgotten](super::Registrations::forget_failure).
    pub fn register(&self, memory: &LocalMemory) -> Result<View, RegisterError> {
        let registrations = memory.registrations(Backend::VERBS);
        match registrations.registered(self.device.as_str()) {
            Registered::View(view) if self.owns(view) => return Ok(view.clone()),
            Registered::View(_) => return Err(RegisterError::OtherDomain { device: self.device }),
            Registered::Failed(failure) => return Err(RegisterError::Failed(failure)),
            Registered::Nothing => {}
        }
        self.check_location(memory)?;
        self.rules.check(memory.bytes()).map_err(|refused| self.refused(refused))?;
        let stands = match self.register_range(memory, memory.bytes()) {
            Ok(view) => registrations.put(view).map_err(RegisterError::Failed)?,
            Err(RegisterError::Failed(failure)) => {
                match registrations.put_failure(Arc::unwrap_or_clone(failure)) {
                    // Another thread's registration was there first, and is as good.
                    Err(view) => view,
                    Ok(stands) => return Err(RegisterError::Failed(stands)),
                }
            }
            Err(error) => return Err(error),
        };
        self.of_this_domain(stands)
    }

    /// Registers the memory as the fewest regions that the device takes: for memory above its limit.
    ///
    /// The views follow each other from the start of the memory. They are the caller's alone: nothing of them is found
    /// under the memory's registrations, and no refusal is recorded. If a part is refused, those before it are deregistered.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register_parts(&self, memory: &LocalMemory) -> Result<Vec<View>, RegisterError> {
        self.check_location(memory)?;
        let parts = self.rules.parts(memory.bytes()).map_err(|refused| self.refused(refused))?;
        parts.map(|part| self.register_range(memory, part)).collect()
    }

    fn register_range(&self, memory: &LocalMemory, range: AddressRange) -> Result<View, RegisterError> {
        let (addr, len_bytes) = (range.base() as usize, range.len_bytes() as usize);
        let keeper = Arc::new(Arc::clone(memory.keepalive()));
        // SAFETY: 1: the keeper is the memory's owner, which keeps all of its bytes mapped while it lives. 2: no Rust
        // reference to an owner's bytes exists while it lives (`Keepalive`, 2 and 3).
        let region = unsafe { MemoryRegion::register(&self.domain, addr, len_bytes, self.access, Some(keeper)) };
        let region = region.map_err(|error| match error {
            Error::Call(call) => {
                RegisterError::Failed(Arc::new(RegistrationFailure::of_call(range, self.device, &call)))
            }
            error => RegisterError::Shell(error),
        })?;
        let keyed = KeyedRange::new(range.base(), range.base(), range.len_bytes(), region.lkey(), region.rkey())
            .map_err(|_| self.refused(RegionRefused::Empty))?;
        let guard = Arc::new(RegisteredRegion { region, device: self.device, access: self.access });
        // SAFETY: 1: the guard is the region with these keys, which was registered at its own addresses. 2: it holds the
        // memory's owner, as above. 3: it tells the region's own domain, that domain's device, and the access that the region
        // was registered with.
        Ok(unsafe { View::new(keyed, guard) })
    }

    fn check_location(&self, memory: &LocalMemory) -> Result<(), RegisterError> {
        match memory.location() {
            Location::Host { .. } => Ok(()),
            location => Err(RegisterError::Location { device: self.device, location }),
        }
    }

    fn of_this_domain(&self, view: View) -> Result<View, RegisterError> {
        if self.owns(&view) { Ok(view) } else { Err(RegisterError::OtherDomain { device: self.device }) }
    }

    /// Whether the view's keys are of this domain, or of none that is known.
    #[inline]
    fn owns(&self, view: &View) -> bool {
        view.is_of(&self.domain) != OfDomain::No
    }

    fn refused(&self, refused: RegionRefused) -> RegisterError {
        RegisterError::Region { device: self.device, refused }
    }
}

/// A region that views hold: it holds the protection domain and the memory's owner, and goes before both.
struct RegisteredRegion {
    region: MemoryRegion,
    device: DeviceName,
    access: AccessFlags,
}

impl ViewGuard for RegisteredRegion {
    fn device(&self) -> &DeviceName {
        &self.device
    }

    fn protection_domain(&self) -> Option<&Arc<ProtectionDomain>> {
        Some(self.region.domain())
    }

    fn access(&self) -> Option<AccessFlags> {
        Some(self.access)
    }
}
