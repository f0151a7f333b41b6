//! Device memory as a dma-buf: a file that a device can register.
//!
//! An export is whole pages of the host's. What is asked for and is none is exported with the allocation or the mappings that
//! hold it, whole, and its place in them is told. So there is one place where an offset comes from: who registers passes
//! offset 0 and advances the view.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bareverbs_core::cuda::DeviceAttribute;
use bareverbs_core::range::AddressRange;

use super::driver::CudaDriver;
use super::error::CudaError;
use super::extent::misfit;

/// Device memory as a file. The file is closed once, when this drops, which asks the driver nothing.
///
/// A device's region over it keeps what it needs, so this goes right after the registration, whether that succeeded or not.
/// Until then the memory stays in use, though it be freed.
#[derive(Debug)]
pub struct Exported {
    file: OwnedFd,
    range: AddressRange,
    offset_bytes: u64,
}

impl Exported {
    /// The file; its first byte is that at the start of [`range`](Self::range). File 0 is as good as any.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What may be registered: so many bytes, from offset 0 of the file. It is what was asked for, or the allocation or mappings
    /// that hold it. Where an allocation ends within a page the file goes on to the end of that page, and this does not.
    pub fn range(&self) -> AddressRange {
        self.range
    }

    /// Where what was asked for starts in it.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }
}

impl CudaDriver {
    /// Exports device memory. Whole pages are exported as they are, across mappings if need be; anything else is exported as the
    /// allocation or mappings that hold it.
    ///
    /// # Errors
    /// [`CudaError::Empty`] before any call; [`CudaError::Managed`], [`CudaError::NotDevice`], [`CudaError::NoDmaBuf`],
    /// [`CudaError::Hole`], [`CudaError::Several`] and [`CudaError::Unaligned`] before the export; [`CudaError::Export`]
    /// where that is refused; others.
    #[doc(alias = "cuMemGetHandleForAddressRange")]
    pub fn export(&self, range: AddressRange) -> Result<Exported, CudaError> {
        let address = range.base();
        if range.is_empty() {
            return Err(CudaError::Empty { address });
        }
        let ordinal = self.device_of(address)?;
        if self.calls.device_attribute(ordinal, DeviceAttribute::DMA_BUF_SUPPORTED)? == Some(0) {
            return Err(CudaError::NoDmaBuf { ordinal });
        }
        let _current = self.make_current(address)?;
        let mapped = self.mapped_around(range)?;
        let page = self.page_bytes;
        let is_pages = address.is_multiple_of(page) && range.len_bytes().is_multiple_of(page);
        let exported = if is_pages { range } else { mapped };
        let file = self.calls.export(self.to_page(exported)?).map_err(|error| match error {
            // Only of use in what is said of the failure: memory that denies it can be exported all the same.
            CudaError::Call(error) => {
                CudaError::Export { error, gpu_direct_capable: self.calls.gpu_direct_capable(address).ok() }
            }
            other => other,
        })?;
        Ok(Exported { file, range: exported, offset_bytes: address - exported.base() })
    }

    /// From the start of the first mapping that a range touches to the end of the last. Several are mappings of growing memory:
    /// a driver may answer for allocations side by side with memory behind the first one that nobody can use.
    fn mapped_around(&self, range: AddressRange) -> Result<AddressRange, CudaError> {
        let mut ends: Option<(AddressRange, AddressRange)> = None;
        self.walk(range, |mapping| {
            let Some((first, last)) = ends else {
                ends = Some((mapping, mapping));
                return Ok(());
            };
            for part in [last, mapping] {
                if !self.grows(range, part.base().max(range.base()))? {
                    return Err(CudaError::Several { range, address: mapping.base() });
                }
            }
            ends = Some((first, mapping));
            Ok(())
        })?;
        let (first, last) = ends.ok_or(CudaError::Empty { address: range.base() })?;
        // Both may make up all 2^64 bytes, which are no range.
        let len_bytes = (last.base() - first.base()).checked_add(last.len_bytes());
        let around = len_bytes.and_then(|len_bytes| AddressRange::new(first.base(), len_bytes).ok());
        around.ok_or_else(|| misfit(last.base(), last))
    }

    /// A range up to the end of the page that it ends in.
    fn to_page(&self, range: AddressRange) -> Result<AddressRange, CudaError> {
        let page_bytes = self.page_bytes;
        let whole = range.len_bytes().checked_next_multiple_of(page_bytes);
        whole
            .filter(|_| range.base().is_multiple_of(page_bytes))
            .and_then(|len_bytes| AddressRange::new(range.base(), len_bytes).ok())
            .ok_or(CudaError::Unaligned { mapping: range, page_bytes })
    }
}
