//! The embedded default: RDMA with no RDMA.
//!
//! A [`SoftFabric`] fills the same [`Symbols`](crate::symbols::Symbols) table that a system's library fills, with C
//! functions of our own over objects in this process, laid out at full platform size. What runs above cannot tell the
//! difference, so what is tested here is the code that runs on hardware. It lives in one process.
//!
//! It serves connected queue pairs, unreliable and reliable: SEND and RDMA write, with and without immediate; on reliable ones
//! RDMA read, fetch-and-add and compare-and-swap too. The rules it follows are those that were measured on soft-RoCE; where
//! soft-RoCE is laxer than hardware, it is as strict as hardware.
//!
//! - It is deterministic: no threads, no clock, seeded randomness. Work moves inside posts and polls.
//! - It can be led step by step ([`Mode::Stepped`]), so that a test meets every order.
//! - It can be nasty ([`Mode::Adversarial`]), fail on demand ([`SoftFabric::fail`]), lose and mangle messages
//!   ([`SoftFabric::message_fault`]), and pretend to be a Thunderbolt device of a Mac ([`SoftDevice::thunderbolt`]).
//! - Regions over dma-bufs: any file that can be mapped, or what the CUDA stand-in (`cuda`) exports.
//! - With [`SoftDevice::mlx5`] it has an mlx5 provider's calls ([`SoftFabric::mlx5_symbols`]): indirect keys over lists of
//!   regions, through which bytes move. What they refuse is what the provider's source says; nothing of it was run on an mlx5
//!   device. Of their builders only those for a list of regions are there.
//! - A handle that was destroyed is known as such: a second destruction, or a use, is answered with EINVAL and noted
//!   ([`SoftFabric::misuse`]).
//! - Many fabrics live beside each other, so that tests run in parallel. Of all of them, one thread at a time is at registered
//!   bytes: two may have registered the same.
//!
//! # Where it differs from soft-RoCE, on purpose
//!
#![doc = include_str!("differences.md")]
//!
//! Each row is asserted on both by the test binary `verbs_conformance`. Events of ports and of GID tables are asserted on the
//! software fabric only, since no test changes a device's; those of a queue that overflows and of a send queue that is drained on
//! both.
//!
//! # How it stands
//!
//! This folder and the shell's owning handles never import each other: they meet in the table.
//!
//! ```
//! use bareverbs_shell::soft::{SoftConfig, SoftFabric};
//!
//! let fabric = SoftFabric::new(SoftConfig::default())?;
//! let symbols = fabric.symbols();
//! assert_eq!(&*symbols.library, "software fabric");
//! # Ok::<(), bareverbs_shell::soft::SoftError>(())
//! ```

mod async_events;
mod bindings;
mod bytes;
mod c_objects;
mod channels;
mod completion;
mod config;
#[cfg(target_os = "linux")]
pub mod cuda;
mod device;
mod dma_buf;
mod engine;
mod entry;
mod errno;
#[cfg(target_os = "linux")]
mod exports;
mod fabric;
mod handles;
mod indirect_keys;
mod landing;
mod mapping;
mod message_faults;
mod mlx5;
mod objects;
mod one_sided;
mod pairs;
mod plan;
mod profile;
mod queue_pair;
mod queue_state;
mod record;
mod regions;
mod reliable;
mod rng;
mod schedule;
mod signal;
mod slab;
mod state;
mod steps;
mod table;
mod work_queue;
mod worlds;

pub use bindings::BindingFault;
pub use config::{Mode, Record, SoftConfig, SoftError};
pub use device::{GidSlot, Limits, SoftDevice, SoftPort};
pub use entry::stray_misuse;
pub use fabric::SoftFabric;
pub use message_faults::{MessageFault, MessageOdds};
pub use plan::{Answer, BadWr};
pub use profile::Profile;
pub use record::{Call, Detail};
pub use state::LiveCounts;
pub use steps::{Does, Step};
