//! A CUDA driver in software: the memory of GPUs with no GPU.
//!
//! A [`SoftCuda`] fills the same [`CudaSymbols`](crate::symbols::CudaSymbols) table that the system's driver fills. Its
//! memory is files of memory, so that what is exported as a dma-buf and registered on a
//! [`SoftFabric`](crate::soft::SoftFabric) is the same bytes that its copies read and write.
//!
//! Answers are those measured on one H200 with driver 580 (CUDA 13.0), where a row of the tests says so; what was not
//! measured is the strictest that the driver's manual allows.
//!
//! - Addresses of device memory are no addresses of this process, as a GPU's are none; those of managed and pinned memory are.
//! - Physical memory stays in use while anything holds it: an allocation, an export's file, a region.
//! - It is deterministic, has no threads of its own, and its functions may be called from any thread.
//! - It fails on demand ([`SoftCuda::fail`]) and remembers what was called ([`SoftCuda::record`]).
//!
//! ```
//! use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};
//!
//! let cuda = SoftCuda::new(CudaConfig::default())?;
//! let segment = cuda.reserve(0, 64 << 20);
//! cuda.map(segment, 2 << 20);
//! cuda.write(segment, b"bytes of a GPU");
//! assert_eq!(cuda.read(segment, 5), b"bytes");
//! # Ok::<(), bareverbs_shell::soft::cuda::CudaError>(())
//! ```

mod answers;
mod config;
mod contexts;
mod copies;
mod entry;
mod memory;
mod record;
mod slots;
mod soft_cuda;
mod state;

pub use config::{CudaConfig, CudaError, HostAnswer, SoftGpu};
pub use record::CudaCall;
pub use soft_cuda::SoftCuda;
