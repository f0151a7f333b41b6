//! The only seam between the shell and the outside: tables of C entry points.
//!
//! | table | the system's, by `dlopen` | in software |
//! |---|---|---|
//! | [`Symbols`]: verbs | [`system`] | [`crate::soft`] |
//! | [`Mlx5Symbols`]: mlx5dv | [`mlx5_system`] | [`crate::soft`] |
//! | [`CudaSymbols`]: the CUDA driver | [`cuda_system`] | `soft::cuda` |
//!
//! Tests wrap any of them. Nothing else in the shell knows which it is. What C reaches inline is in core's `inline_calls`, and
//! for the builders of an extended queue pair in [`mr_list`].

pub mod cuda;
pub mod cuda_system;
mod loader;
pub mod mlx5;
pub mod mlx5_system;
pub mod mr_list;
pub mod system;
mod table;
pub mod verbs;

pub use cuda::{CudaSymbols, CudaTable};
pub use mlx5::{Mlx5Symbols, Mlx5Table};
pub use verbs::{SymbolTable, Symbols};
