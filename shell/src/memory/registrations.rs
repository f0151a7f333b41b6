//! What is registered of some memory, by backend and device, and what was refused.
//!
//! The rules: of two registrations for one device the first stands, and the other is given back; a failure that was recorded
//! first stands, too, until it is forgotten. Nothing here registers, so nothing here waits for a device: locks are held for
//! a comparison and a move, one for each backend and device, and not at all where a registration is in force.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bareverbs_core::range::AddressRange;
use bareverbs_core::view::DeviceName;

use super::backend::Backend;
use super::failure::RegistrationFailure;
use super::slots::{Ends, Slots};
use super::view::View;

/// Views in force. Once there, a view stays as long as this does.
pub(super) type Views = Slots<OnceLock<View>>;

/// Failures that stand; the lock of a slot is also what orders an installation and a failure of one device.
pub(super) type Failures = Slots<Mutex<Option<Arc<RegistrationFailure>>>>;

/// What is known of a device.
#[derive(Clone, Debug)]
pub enum Registered<'memory> {
    /// The memory is registered, and stays so as long as a handle of it lives. Who needs the view beyond that clones it.
    View(&'memory View),
    /// Nobody has tried.
    Nothing,
    /// It was refused.
    Failed(Arc<RegistrationFailure>),
}

impl<'memory> Registered<'memory> {
    /// The view, if the memory is registered.
    pub fn view(self) -> Option<&'memory View> {
        match self {
            Self::View(view) => Some(view),
            _ => None,
        }
    }

    /// The failure, if it was refused.
    pub fn failure(self) -> Option<Arc<RegistrationFailure>> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// Why a view was not installed. The view was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallError {
    /// A failure is recorded for that device, and stands.
    Failed(Arc<RegistrationFailure>),
    /// The view is of other bytes.
    OtherBytes {
        /// Which bytes the view is of.
        got: AddressRange,
        /// Which bytes the memory is.
        expected: AddressRange,
    },
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::OtherBytes { got, expected } => other_bytes(f, "view", got, expected),
        }
    }
}

impl std::error::Error for InstallError {}

/// Why a failure was not recorded. It was dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RecordError {
    /// The memory is registered on that device: this view is in force, and stands.
    InForce(View),
    /// The failure is of other bytes: it says nothing of these.
    OtherBytes {
        /// Which bytes the failure is of.
        got: AddressRange,
        /// Which bytes the memory is.
        expected: AddressRange,
    },
}

impl RecordError {
    /// The view in force, if that is why.
    pub fn view(self) -> Option<View> {
        match self {
            Self::InForce(view) => Some(view),
            Self::OtherBytes { .. } => None,
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce(view) => write!(f, "the memory is registered on device {}, which stands", view.device()),
            Self::OtherBytes { got, expected } => other_bytes(f, "failure", got, expected),
        }
    }
}

impl std::error::Error for RecordError {}

fn other_bytes(f: &mut fmt::Formatter<'_>, what: &str, got: &AddressRange, expected: &AddressRange) -> fmt::Result {
    write!(
        f,
        "a {what} of {} bytes at {:#x} is none of the memory's {} bytes at {:#x}",
        got.len_bytes(),
        got.base(),
        expected.len_bytes(),
        expected.base()
    )
}

/// The registrations of one kind of some [`LocalMemory`](super::LocalMemory), shared by its clones.
#[derive(Clone, Copy)]
pub struct Registrations<'memory> {
    pub(super) backend: Backend,
    pub(super) bytes: AddressRange,
    pub(super) views: &'memory Views,
    pub(super) failures: &'memory Failures,
}

impl<'memory> Registrations<'memory> {
    /// What is known of that device.
    ///
    /// Where the memory is registered this takes no lock, allocates nothing, clones no string and counts no reference: views in
    /// force stay as long as a handle.
    #[inline]
    pub fn registered(&self, device: &str) -> Registered<'memory> {
        match self.view(device) {
            Some(view) => Registered::View(view),
            None => not_registered(self.failures, self.backend, device),
        }
    }

    /// The view in force on that device, found as [`registered`](Self::registered) finds it.
    #[inline]
    pub fn view(&self, device: &str) -> Option<&'memory View> {
        self.views.find(self.backend, device.as_bytes())?.get()
    }

    /// The same of a name whose ends are known.
    #[inline]
    pub(super) fn view_of(&self, device: &DeviceName, ends: &Ends) -> Option<&'memory View> {
        self.views.find_by(self.backend, ends, device.as_bytes())?.get()
    }

    /// All views in force, in the order in which their devices became known.
    pub fn iter(&self) -> impl Iterator<Item = &'memory View> + use<'memory> {
        self.views.of(self.backend).filter_map(OnceLock::get)
    }

    /// Puts a view in force on its device, and answers the view that is: the one that was there before, if there was one,
    /// and then the new one is dropped, and what it alone held is deregistered.
    ///
    /// # Errors
    /// [`InstallError::Failed`] if a failure stands; [`InstallError::OtherBytes`]. The view is dropped.
    pub fn install(&self, view: View) -> Result<View, InstallError> {
        let got = AddressRange::new(view.addr(), view.len_bytes()).unwrap_or(AddressRange::EMPTY);
        if got != self.bytes {
            return Err(InstallError::OtherBytes { got, expected: self.bytes });
        }
        self.put(view).map_err(InstallError::Failed)
    }

    /// Installs a view of these very bytes.
    pub(super) fn put(&self, view: View) -> Result<View, Arc<RegistrationFailure>> {
        let device = *view.device();
        let in_force = self.views.find_or_add(self.backend, &device);
        let failure = lock(self.failures.find_or_add(self.backend, &device));
        if let Some(failure) = &*failure {
            return Err(Arc::clone(failure));
        }
        let stands = match in_force.get() {
            Some(stands) => stands.clone(),
            None => {
                // Nobody else sets it: the lock is held.
                let _ = in_force.set(view.clone());
                view.clone()
            }
        };
        // What loses is given back with no lock held: its guard calls the library.
        drop(failure);
        drop(view);
        Ok(stands)
    }

    /// Records that a device refused the memory, and answers the failure that stands: one that was there before, if there
    /// was one.
    ///
    /// # Errors
    /// [`RecordError::InForce`] if there is a view in force; [`RecordError::OtherBytes`].
    pub fn record_failure(&self, failure: RegistrationFailure) -> Result<Arc<RegistrationFailure>, RecordError> {
        let (got, expected) = (failure.region(), self.bytes);
        if got != expected {
            return Err(RecordError::OtherBytes { got, expected });
        }
        self.put_failure(failure).map_err(RecordError::InForce)
    }

    /// Records a failure of these very bytes; the view in force, if there is one.
    pub(super) fn put_failure(&self, failure: RegistrationFailure) -> Result<Arc<RegistrationFailure>, View> {
        let device = failure.device();
        let in_force = self.views.find_or_add(self.backend, device);
        let mut stands = lock(self.failures.find_or_add(self.backend, device));
        match in_force.get() {
            Some(view) => Err(view.clone()),
            None => Ok(Arc::clone(stands.get_or_insert_with(|| Arc::new(failure.recorded())))),
        }
    }

    /// Forgets the failure on that device, so that it is asked again; answers what was forgotten.
    pub fn forget_failure(&self, device: &str) -> Option<Arc<RegistrationFailure>> {
        lock(self.failures.find(self.backend, device.as_bytes())?).take()
    }
}

/// Of its own, and not of a `Registrations`, which is not put together then where there is a view.
#[cold]
fn not_registered<'memory>(failures: &'memory Failures, backend: Backend, device: &str) -> Registered<'memory> {
    let Some(failure) = failures.find(backend, device.as_bytes()) else { return Registered::Nothing };
    match &*lock(failure) {
        Some(failure) => Registered::Failed(Arc::clone(failure)),
        None => Registered::Nothing,
    }
}

impl fmt::Debug for Registrations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A thread that panicked with this lock left a failure that is whole, or none.
fn lock(failure: &Mutex<Option<Arc<RegistrationFailure>>>) -> MutexGuard<'_, Option<Arc<RegistrationFailure>>> {
    failure.lock().unwrap_or_else(PoisonError::into_inner)
}
