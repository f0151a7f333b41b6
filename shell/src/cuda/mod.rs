//! What the CUDA driver is asked about memory: whose it is, what is mapped around an address, and its export to a device.
//!
//! | file | idea |
//! |---|---|
//! | `driver` | the driver, and what a single address is |
//! | `extent` | what is mapped side by side: an allocation, a segment that grows, the mappings under a range |
//! | `context` | the context that owns an address, current on this thread for a while |
//! | `dma_buf` | memory as a file that a device can register |
//! | `copies` | [`MemoryDriver`](crate::memory::MemoryDriver): copies for local memory |
//! | `calls` | each call of the table, once |
//! | `error` | what can go wrong, and what to do |
//!
//! The rule they protect: **memory is a device's only if the driver said so with success.** A failure that is not known to mean
//! host memory is an error of its own, outputs are zero before each call, and nothing is asked of the driver by a drop but what
//! undoes a [`ContextGuard`].
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use bareverbs_core::range::AddressRange;
//! use bareverbs_shell::cuda::CudaDriver;
//! use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};
//!
//! let soft = SoftCuda::new(CudaConfig::default())?;
//! let cuda = CudaDriver::with_symbols(soft.symbols()); // or CudaDriver::adopt(), where the process uses CUDA
//!
//! let segment = soft.reserve(0, 64 << 20);
//! soft.map(segment, 2 << 20);
//! soft.map(segment + (2 << 20), 20 << 20);
//! let extent = cuda.extent(segment + 12345)?;
//! assert_eq!((extent.range, extent.expandable), (AddressRange::new(segment, 22 << 20)?, true));
//!
//! // 100 bytes cannot be exported: the mapping that they are in is, and they begin so far into it.
//! let export = cuda.export(AddressRange::new(segment + 12345, 100)?)?;
//! assert_eq!((export.range().len_bytes(), export.offset_bytes()), (2 << 20, 12345));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calls;
mod context;
mod copies;
mod dma_buf;
mod driver;
mod error;
mod extent;

pub use context::ContextGuard;
pub use dma_buf::Exported;
pub use driver::{CudaDriver, is_device_ptr};
pub use error::{CudaCallError, CudaError, Subject};
pub use extent::{Edge, Extent, MAX_MAPPINGS, Mapping};
