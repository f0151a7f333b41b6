//! The half of bareverbs that decides: everything about RDMA that can be stated without a device, a lock or a clock.
//!
//! `no_std`, no allocator. A latency-critical process links this crate, brings static buffers, and posts and polls from a
//! pinned thread; `bareverbs-shell` opens the devices and owns what must be given back.
//!
//! | module | what |
//! |---|---|
//! | [`layout`] | one table per C struct: asserted by rustc here, by the C compiler in the layout tests |
//! | [`verbs`] | mirrors, constants, and the calls that C has inline |
//! | [`cuda`] | the words of the CUDA driver: results, attributes, handles |
//! | [`connect`] | configuration, destinations, queue pair transitions as values |
//! | [`link`](mod@link) | frame rings over static buffers, carriers, sequence checking |
//! | [`range`], [`segments`] | chunking of GPU segments under indirect keys, the segment table |
//! | [`access`] | the access lock: readers, one exclusive writer, disjoint writers |
//! | [`view`] | registered memory as numbers: what a key reaches, what a peer is told |
//! | [`one_sided`] | one-sided operations: bounds, parts, books of what is in flight |
//! | [`teardown_order`] | the order in which things go |
//!
//! # Panics
//!
//! Nothing that a device, a driver or a peer says makes this crate panic. Where a caller's own mistake does, the function's
//! documentation says so under *Panics*.
//!
//! # Features
//!
//! `defmt` derives `defmt::Format` for value types.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod access;
pub mod connect;
pub mod cuda;
pub mod layout;
pub mod link;
pub mod one_sided;
pub mod range;
pub mod segments;
pub mod teardown_order;
pub mod verbs;
pub mod view;
