//! The software fabric, through the table of entry points that it supplies.
//!
//! What any fabric must do is said in the binary `verbs_conformance`, which runs on a real device too; here is what this one
//! adds.

mod adversary;
mod async_events;
#[cfg(target_os = "linux")]
mod cuda;
#[cfg(target_os = "linux")]
mod cuda_to_key;
mod dma_buf;
mod every_order;
mod faults;
mod keys;
mod misuse;
mod one_sided;
#[path = "../../raw/mod.rs"]
pub mod raw;
mod reliable;
mod thunderbolt;
mod worlds;
