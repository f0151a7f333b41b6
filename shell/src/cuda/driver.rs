//! The driver, and what a single address is.

use std::fmt;
use std::sync::Arc;

use bareverbs_core::cuda::{CuResult, MemoryType};
use bareverbs_core::segments::Ordinal;

use super::calls::{self, Calls};
use super::error::CudaError;
use crate::memory::Location;
use crate::symbols::CudaSymbols;
use crate::symbols::cuda_system::{self, CudaAbsent};

/// The CUDA driver: adopted, loaded, or in software. Clones are the same one, and cost a count.
#[derive(Clone)]
pub struct CudaDriver {
    pub(super) calls: Calls,
    pub(super) page_bytes: u64,
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaDriver").field(&self.calls.0.library).finish()
    }
}

impl CudaDriver {
    /// The driver that this process has loaded. One that has none pays one failed look-up, which is remembered until somebody
    /// [looks again](Self::look_again).
    ///
    /// # Errors
    /// [`CudaAbsent`].
    pub fn adopt() -> Result<Self, CudaAbsent> {
        cuda_system::adopt().map(Self::with_symbols)
    }

    /// As [`adopt`](Self::adopt), with a remembered refusal forgotten first.
    ///
    /// # Errors
    /// [`CudaAbsent`].
    pub fn look_again() -> Result<Self, CudaAbsent> {
        cuda_system::look_again().map(Self::with_symbols)
    }

    /// The driver, loaded if this process has none yet; [not initialised](Self::init) by that.
    ///
    /// # Errors
    /// [`CudaAbsent`].
    pub fn load() -> Result<Self, CudaAbsent> {
        cuda_system::load().map(Self::with_symbols)
    }

    /// A driver by its table: the one in software, or a wrapped one.
    pub fn with_symbols(symbols: Arc<CudaSymbols>) -> Self {
        Self { calls: Calls(symbols), page_bytes: calls::host_page_bytes() }
    }

    /// The same driver for a host whose pages are so long, bytes, instead of this one's: for a driver in software.
    ///
    /// # Panics
    /// If it is no power of two.
    #[must_use]
    pub fn with_page_bytes(mut self, bytes: u64) -> Self {
        assert!(bytes.is_power_of_two(), "a page is a power of two");
        self.page_bytes = bytes;
        self
    }

    /// The host's page, bytes: memory is exported by whole ones.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Its table.
    pub fn symbols(&self) -> &Arc<CudaSymbols> {
        &self.calls.0
    }

    /// Initialises it for this process, if nobody has yet: for one that was [loaded](Self::load) for its own sake.
    #[doc(alias = "cuInit")]
    ///
    /// # Errors
    /// [`CudaError`].
    pub fn init(&self) -> Result<(), CudaError> {
        self.calls.init()
    }

    /// Where memory is.
    ///
    /// Only what the driver calls a device's with success, and not managed, is a device's. The host's is what it calls so,
    /// pageable memory (of which it knows nothing, and says so by answer 1 or by zeros), and all of it as long as CUDA is not
    /// initialised: that is not remembered. Freed device memory cannot be told from the host's.
    ///
    /// # Errors
    /// [`CudaError`]: any other failure.
    #[doc(alias = "cuPointerGetAttribute")]
    pub fn location(&self, address: u64) -> Result<Location, CudaError> {
        let host = Location::Host { numa: None };
        let kind = match self.calls.memory_type(address) {
            Ok(kind) => kind,
            Err(error) => {
                let is_host = matches!(error.result(), Some(CuResult::INVALID_VALUE | CuResult::NOT_INITIALIZED));
                return if is_host { Ok(host) } else { Err(error) };
            }
        };
        match kind {
            MemoryType(0) => Ok(host),
            // Managed memory that is the host's at the moment is managed all the same.
            MemoryType::HOST | MemoryType::DEVICE if self.calls.is_managed(address)? => Ok(Location::Managed),
            MemoryType::HOST => Ok(host),
            MemoryType::DEVICE => Ok(Location::Device { ordinal: Some(self.calls.ordinal(address)?.0) }),
            got => Err(CudaError::MemoryType { address, got }),
        }
    }

    /// Whether it is known to be device memory: managed memory is not.
    pub fn is_device_ptr(&self, address: u64) -> bool {
        matches!(self.location(address), Ok(Location::Device { .. }))
    }

    /// The device whose memory it is.
    ///
    /// # Errors
    /// [`CudaError::Managed`], [`CudaError::NotDevice`], or what [`location`](Self::location) answers.
    pub fn device_of(&self, address: u64) -> Result<Ordinal, CudaError> {
        match self.location(address)? {
            Location::Device { ordinal: Some(ordinal) } => Ok(Ordinal(ordinal)),
            Location::Managed => Err(CudaError::Managed { address }),
            _ => Err(CudaError::NotDevice { address }),
        }
    }

    /// The driver's id of the allocation or mapping at an address, which no other ever has: another one at the same address has
    /// another id. `None` if nothing is mapped there.
    ///
    /// # Errors
    /// [`CudaError`].
    #[doc(alias = "CU_POINTER_ATTRIBUTE_BUFFER_ID")]
    #[inline]
    pub fn buffer_id(&self, address: u64) -> Result<Option<u64>, CudaError> {
        match self.calls.buffer_id(address) {
            // Zero, with success, is what some drivers say of memory that they do not know.
            Ok(id) => Ok(Some(id).filter(|id| *id != 0)),
            Err(error) if error.result() == Some(CuResult::INVALID_VALUE) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether it is device memory, as far as the driver of this process knows: never without one.
///
/// ```
/// let local = 5;
/// assert!(!bareverbs_shell::cuda::is_device_ptr((&raw const local).addr() as u64));
/// ```
pub fn is_device_ptr(address: u64) -> bool {
    CudaDriver::adopt().is_ok_and(|driver| driver.is_device_ptr(address))
}
