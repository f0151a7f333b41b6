//! Local memory: whose it is, where it is, who may touch it now, and where it is registered.
//!
//! | file | idea |
//! |---|---|
//! | `keepalive` | owners: while one lives, its memory stays mapped |
//! | `owned_bytes`, [`pages`] | owners: boxes and vectors, pages of our own; static storage is one as it is |
//! | `location` | where memory is, and the seam to what knows device memory |
//! | `local_memory`, `copies` | the handle, its weak form, its copies |
//! | `access_lock` and its companions | who may touch the bytes now |
//! | `registrations`, `slots`, `backend`, `failure` | what is registered on which device, or why it is not |
//! | `view`, `lease` | bytes under keys; what peers are told of them, and until when |
//! | `host_domain` | host memory registered on a device |
//!
//! The rule they protect: **memory is registered only while it is mapped**. A view holds its region, the region holds its
//! protection domain and the memory's owner, and each goes before what it holds.

mod access_lock;
#[cfg(all(loom, test))]
mod access_lock_loom;
mod access_lock_wait;
mod backend;
mod copies;
mod failure;
mod host_domain;
mod keepalive;
mod lease;
mod local_memory;
mod location;
mod owned_bytes;
pub mod pages;
mod parker;
mod parker_system;
mod registrations;
mod slots;
mod view;

pub use access_lock::{AccessLock, DisjointGuard, ExclusiveGuard, ReadGuard};
pub use backend::{Backend, BackendKind};
pub use copies::CopyError;
pub use failure::RegistrationFailure;
pub use host_domain::{HostDomain, RegisterError};
pub use keepalive::{Keepalive, WeakKeepalive};
pub use lease::{Acknowledgement, Lease, PublishError};
pub use local_memory::{LocalMemory, LocalMemoryError, UpgradeError, WeakLocalMemory};
pub use location::{
    DriverError, HostOnly, Location, MemoryDriver, PLACEHOLDER_DEVICE_BYTES_PER_S, PLACEHOLDER_HOST_BYTES_PER_S,
    Placement,
};
pub use owned_bytes::OwnedBytes;
pub use registrations::{InstallError, RecordError, Registered, Registrations};
pub(crate) use view::OfDomain;
pub use view::{View, ViewGuard};
