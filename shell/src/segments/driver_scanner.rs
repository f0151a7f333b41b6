//! The segments that the CUDA driver itself knows: no allocator is asked.

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{ChunkLimits, Covers, GPU_PAGE_BYTES, ScannedSegment};

use super::{ScanError, Scanner, SegmentScan};
use crate::cuda::{CudaDriver, CudaError};

/// Finds segments by walking from mapping to mapping around the hint.
///
/// It takes no lock of an allocator's or an interpreter's. It covers the runs that it walked, and the hint, mapped or not.
/// Reported are growing segments, and allocations that can be cut into whole regions: others are none to a domain, and are
/// registered by themselves.
#[derive(Clone, Debug)]
pub struct DriverScanner {
    cuda: CudaDriver,
}

/// How many places are looked at for one hint: 512 GiB, if it is all holes.
const MAX_PLACES: u32 = 1 << 18;

impl DriverScanner {
    /// A scanner that asks this driver.
    pub fn new(cuda: CudaDriver) -> Self {
        Self { cuda }
    }
}

impl Scanner for DriverScanner {
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
        let (mut segments, mut covered) = (Vec::new(), hint);
        let mut next = Some(hint.base());
        for _ in 0..MAX_PLACES {
            let Some(address) = next.filter(|at| hint.offset_of(*at).is_some() || *at == hint.base()) else {
                return Ok(SegmentScan { segments, covers: Covers::Range(covered) });
            };
            next = match self.cuda.extent(address) {
                Ok(extent) => {
                    covered = hull(covered, extent.range);
                    if ChunkLimits::GPU.check(extent.range).is_ok() {
                        let (address, size_bytes) = (extent.range.base(), extent.range.len_bytes());
                        let (ordinal, expandable) = (extent.ordinal, extent.expandable);
                        segments.push(ScannedSegment { address, size_bytes, ordinal, expandable });
                    }
                    extent.range.end()
                }
                // Nothing of a device there: segments start at whole units only.
                Err(CudaError::NotDevice { .. } | CudaError::Unmapped { .. } | CudaError::Managed { .. }) => {
                    (address & !(GPU_PAGE_BYTES_U64 - 1)).checked_add(GPU_PAGE_BYTES_U64)
                }
                Err(error) => return Err(ScanError::new(error.to_string())),
            };
        }
        Err(ScanError::new(format!("{hint} are more than a walk looks at: ask for less at a time")))
    }
}

const GPU_PAGE_BYTES_U64: u64 = GPU_PAGE_BYTES as u64;

/// From the lower start to the higher end.
fn hull(a: AddressRange, b: AddressRange) -> AddressRange {
    let base = a.base().min(b.base());
    let (Some(a_last), Some(b_last)) = (a.last(), b.last()) else { return if a.is_empty() { b } else { a } };
    AddressRange::new(base, a_last.max(b_last) - base + 1).unwrap_or(a)
}
