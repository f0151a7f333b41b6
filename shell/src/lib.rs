//! The half of bareverbs that does.

pub mod endpoint;
pub mod errno;
pub mod error;
pub mod fabric;
pub mod memory;
pub mod objects;
pub mod soft;
pub mod symbols;
pub mod wait;

pub use endpoint::{Endpoint, EndpointConfig};
pub use error::{CallError, Error};
pub use fabric::{Fabric, FabricKind};
pub use wait::{Relax, Wait};
