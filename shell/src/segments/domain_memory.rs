//! Local memory registered through a domain of segments, wherever it is.
//!
//! # Safety
//!
//! This file guarantees that a view of local memory is one that the domain made of these very bytes, and holds their owner
//! besides.
#![allow(unsafe_code)]

use std::sync::Arc;

use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::DeviceName;

use super::domain::SegmentDomain;
use super::error::{SegmentError, SegmentErrorKind};
use crate::memory::{
    Backend, BackendKind, InstallError, Keepalive, LocalMemory, Location, OfDomain, Registered, RegistrationFailure,
    View, ViewGuard,
};
use crate::objects::ProtectionDomain;

/// Device memory, by segments.
enum BySegments {}

impl BackendKind for BySegments {
    const NAME: &'static str = "segments";
}

impl SegmentDomain {
    /// The kind of registration under which [`register_memory`](Self::register_memory) leaves views of device memory.
    pub const BACKEND: Backend = Backend::of::<BySegments>();

    /// The view of some memory on this device: the one in force, or a new one. Device memory goes by its segment, host memory by
    /// a plain region.
    ///
    /// The owner keeps device memory mapped while it lives, so a view in force is handed out without asking the driver again. A
    /// refusal of the device is recorded with the memory and not asked for again until it is
    /// [forgotten](crate::memory::Registrations::forget_failure); no other failure is.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn register_memory(&self, memory: &LocalMemory) -> Result<View, SegmentError> {
        let (addr, size) = (memory.addr() as u64, memory.size() as u64);
        let placed = match memory.location() {
            Location::Host { .. } => {
                self.host.register(memory).map_err(|error| SegmentErrorKind::Host(Box::new(error)))
            }
            Location::Device { .. } => return self.register_device_memory(memory),
            _ => Err(SegmentErrorKind::Managed),
        };
        placed.map_err(|kind| self.error(addr, size, kind))
    }

    fn register_device_memory(&self, memory: &LocalMemory) -> Result<View, SegmentError> {
        let (addr, size) = (memory.addr() as u64, memory.size() as u64);
        let registrations = memory.registrations(Self::BACKEND);
        let view = match registrations.registered(self.device().as_str()) {
            Registered::View(view) => Ok(view.clone()),
            Registered::Failed(failure) => Err(SegmentErrorKind::Failed(failure)),
            Registered::Nothing => {
                let made = self.register(addr, size);
                let made = made.map_err(|error| self.record(memory, error))?;
                let installed = registrations.install(owned(made, Arc::clone(memory.keepalive())));
                installed.map_err(|error| match error {
                    InstallError::Failed(failure) => SegmentErrorKind::Failed(failure),
                    // Not reached: the view is of the bytes that were asked for.
                    _ => SegmentErrorKind::Changing,
                })
            }
        };
        let of_this_domain = view.and_then(|view| match view.is_of(self.protection_domain()) {
            OfDomain::Yes => Ok(view),
            OfDomain::No | OfDomain::Unknown => Err(SegmentErrorKind::OtherDomain),
        });
        of_this_domain.map_err(|kind| self.error(addr, size, kind))
    }

    /// Records a refusal of the device with the memory.
    fn record(&self, memory: &LocalMemory, error: SegmentError) -> SegmentError {
        if error.errno().is_some() {
            let reason = error.kind.to_string();
            let failure = RegistrationFailure::new(memory.bytes(), *self.device(), error.errno(), reason);
            // A view that is in force by now stands.
            let _ = memory.registrations(Self::BACKEND).record_failure(failure);
        }
        error
    }
}

/// A view that holds the owner of its memory, too.
fn owned(view: View, owner: Arc<dyn Keepalive>) -> View {
    let range = *view.range();
    // SAFETY: 1 and 2: the guard holds the view, which promises the same of the same range. 3: it passes on what the view says.
    unsafe { View::new(range, Arc::new(Owned { view, _owner: owner })) }
}

/// What keeps a view of local memory in force.
struct Owned {
    // Field order is drop order: what is registered goes before its owner.
    view: View,
    _owner: Arc<dyn Keepalive>,
}

impl ViewGuard for Owned {
    fn device(&self) -> &DeviceName {
        self.view.device()
    }

    fn protection_domain(&self) -> Option<&Arc<ProtectionDomain>> {
        self.view.protection_domain()
    }

    fn access(&self) -> Option<AccessFlags> {
        self.view.access()
    }
}
