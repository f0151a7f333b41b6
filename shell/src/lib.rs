//! The half of bareverbs that does: loads the system's RDMA library at run time, owns its objects, waits, and carries an
//! embedded software fabric.
//!
//! What is decided, is decided in [`bareverbs_core`]. Begin with [`Fabric`], which opens a device, and [`Endpoint`], which
//! is one end of a connection.
//!
//! # Threads
//!
//! Queue pairs and completion queues are `Send` and not `Sync`: posting and polling take `&mut`. What is to be shared is
//! shared by the caller's lock, or by one owner per thread. `MLX5_SINGLE_THREADED=1` in the environment takes the mlx5
//! provider's own locks away: a device is then for the thread that opened it, and others are refused.
//!
//! # Fork
//!
//! Handles belong to the process that made them. In a forked child every call that makes or changes an object is refused
//! ([`Error::Forked`]), and dropping a handle there makes no call. Posting and polling do not look at the process (that
//! would be a system call each): a child must not do either. Registered memory and `fork` do not go together on
//! kernels before 5.12 unless `ibv_fork_init` was called before the first registration: [`Fabric::prepare_for_fork`] does that.
//!
//! # Errors
//!
//! Every error is a typed enum, names call, device and errno, and turns into an `anyhow::Error` by itself. What a drop
//! could not do goes to the hook of [`objects::report::set_drop_hook`].

pub mod cuda;
pub mod endpoint;
pub mod errno;
pub mod error;
pub mod exchange;
pub mod fabric;
pub mod memory;
pub mod objects;
pub mod one_sided;
pub mod segments;
pub mod soft;
pub mod symbols;
pub mod wait;

pub use endpoint::{Endpoint, EndpointConfig};
pub use error::{CallError, Error};
pub use fabric::{Fabric, FabricKind};
pub use wait::{Relax, Wait};
