//! How two ends come to agree: what a queue pair shall be, where the other end is and what it takes for granted, and the
//! steps to it, as values.
//!
//! Nothing here makes a call. The shell sends a [`Hello`], reads the other one's, asks [`agree`], and does what
//! [`transition`] says.

pub mod agreement;
pub mod config;
pub mod destination;
pub mod hello;
pub mod step;
pub mod transition;

pub use crate::link::{CarrierKind, CreditMode};
pub use agreement::{Agreement, Mismatch, agree};
pub use config::{PsnPolicy, QueuePairConfig, Service};
pub use destination::{Destination, DestinationError, Psn};
pub use hello::{HELLO_BYTES, Hello, HelloError};
pub use step::{Reason, Refusal, STEP_BYTES, Step, StepError};
pub use transition::{ConnectParams, RouteError, Transition};
