//! Local memory.

mod access_lock;
#[cfg(all(loom, test))]
mod access_lock_loom;
mod access_lock_wait;
pub mod pages;
mod parker;
mod parker_system;

pub use access_lock::{AccessLock, DisjointGuard, ExclusiveGuard, ReadGuard};
