//! How two ends come to agree: what a queue pair shall be, where the other end is, and the steps to it, as values.
//!
//! Nothing here makes a call. The shell takes a [`QueuePairConfig`] and a [`Destination`] and does what
//! [`transition`] says.

pub mod config;
pub mod destination;
pub mod transition;

pub use config::{PsnPolicy, QueuePairConfig, Service};
pub use destination::{Destination, DestinationError, Psn};
pub use transition::{ConnectParams, RouteError, Transition};
