//! What must be given back: device contexts, protection domains, regions, queues, each destroyed once and in order.
//!
//! A child holds its parents by `Arc`, so that dependencies hold in every order in which safe code drops handles. What one
//! owner holds is taken down by its own drop, in the order of [`bareverbs_core::teardown_order`].
//!
//! The map: `handle` destroys one thing and then lets go of its parents; [`device`] lists and opens; [`port`] and [`gid`] ask
//! what a port is, `extended` where C would ask inline; [`protection_domain`], [`memory_region`], [`completion_queue`],
//! [`completion_channel`] and [`queue_pair`] own; `dma_buf` makes regions of exported memory; `indirect_key` owns, and
//! `list_queue_pair` binds, mlx5's keys over several regions; [`drain`] ends what a queue pair has outstanding; [`events`]
//! takes what a device reports on its own; [`report`] tells what a drop could not do.

pub mod completion_channel;
pub mod completion_queue;
pub mod device;
mod dma_buf;
pub mod drain;
pub mod events;
mod extended;
pub(crate) mod fork;
pub mod gid;
mod handle;
pub(crate) mod indirect_key;
pub(crate) mod list_queue_pair;
pub mod memory_region;
pub mod port;
pub mod protection_domain;
pub mod queue_pair;
pub mod report;
mod status;

pub use completion_channel::CompletionChannel;
pub use completion_queue::CompletionQueue;
pub use device::{DeviceContext, DeviceEntry, list_devices};
pub use memory_region::MemoryRegion;
pub use protection_domain::ProtectionDomain;
pub use queue_pair::QueuePair;

use std::sync::Arc;

use crate::error::Error;

/// Holds a field of a library's object against what it must be.
fn check_layout(device: &Arc<str>, field: &'static str, expected: u64, got: u64) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Layout { device: Arc::clone(device), field, expected, got }) }
}
