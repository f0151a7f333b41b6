//! What the driver could not do, or what cannot be done with some memory; with the numbers, and what to do.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bareverbs_core::cuda::{CuResult, MemoryType, PointerAttribute};
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::Ordinal;

use crate::memory::{DriverError, Location};

/// What a call was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// Nothing that could be named.
    Nothing,
    /// An address.
    Address(u64),
    /// An attribute of the memory at an address.
    Attribute(PointerAttribute, u64),
    /// A range of addresses.
    Range(AddressRange),
    /// A device.
    Ordinal(Ordinal),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Address(address) => write!(f, " for {address:#x}"),
            Self::Attribute(attribute, address) => write!(f, " for {attribute:?} of {address:#x}"),
            Self::Range(range) => write!(f, " for {range}"),
            Self::Ordinal(ordinal) => write!(f, " for device {ordinal}"),
        }
    }
}

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaCallError {
    /// The entry point, as the driver exports it.
    pub call: &'static str,
    /// What it was asked for.
    pub subject: Subject,
    /// What it answered.
    pub result: CuResult,
    /// The answer's name, the driver's own where we have none; empty if it has none either.
    pub name: Cow<'static, str>,
}

impl CudaCallError {
    /// What it was about, the answer's name, and what to do where that is known.
    fn fmt_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            f.write_str("(an answer without a name)")?;
        } else {
            write!(f, "({})", self.name)?;
        }
        write!(f, "{}", self.subject)?;
        match self.remedy() {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }

    fn remedy(&self) -> Option<&'static str> {
        Some(match (self.result, self.subject) {
            (CuResult::INVALID_VALUE, Subject::Attribute(..)) => {
                "the driver knows no memory there: it is the host's, or was freed"
            }
            (CuResult::NOT_INITIALIZED, _) => "CUDA is not initialised in this process: call cuInit first",
            (CuResult::DEINITIALIZED, _) => "the driver is shutting down with its process",
            (CuResult::INVALID_DEVICE, _) => "this process sees no such device: see CUDA_VISIBLE_DEVICES",
            (CuResult::CONTEXT_IS_DESTROYED, _) => "the context that owned the memory is gone, and the memory with it",
            _ => return None,
        })
    }
}

impl fmt::Display for CudaCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {} ", self.call, self.result.0)?;
        self.fmt_rest(f)
    }
}

impl std::error::Error for CudaCallError {}

/// Why the driver could not be asked, or what it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver lacks an entry point that is needed.
    Unsupported {
        /// Its name, as newer drivers export it.
        symbol: &'static str,
        /// The driver.
        library: Arc<str>,
    },
    /// A call failed.
    Call(CudaCallError),
    /// Nothing is mapped at an address, as far as the driver knows.
    Unmapped {
        /// The address.
        address: u64,
    },
    /// Some of a range is not mapped.
    Hole {
        /// The range.
        range: AddressRange,
        /// The first address in it that is not mapped.
        address: u64,
    },
    /// No byte was asked for.
    Empty {
        /// Where.
        address: u64,
    },
    /// It is not a device's memory: the host's, pinned or not, or none that the driver knows.
    NotDevice {
        /// The address.
        address: u64,
    },
    /// It is managed memory, which is not registered as a device's.
    Managed {
        /// The address.
        address: u64,
    },
    /// The bytes of a range are not all in one place.
    Straddles {
        /// The range.
        range: AddressRange,
        /// Where its first byte is.
        first: Location,
        /// Where its last byte is.
        last: Location,
    },
    /// A kind of memory that this library does not know.
    MemoryType {
        /// The address.
        address: u64,
        /// What the driver calls it.
        got: MemoryType,
    },
    /// A device's memory with a number that is no device's.
    Ordinal {
        /// The address.
        address: u64,
        /// The number.
        got: i32,
    },
    /// A mapping that does not hold the address that it was asked for, or overlaps the one beside it: the driver's answers do
    /// not fit together, or memory was mapped and unmapped between two of them.
    Mapping {
        /// The address.
        address: u64,
        /// Where the mapping starts, as the driver says.
        base: u64,
        /// How long it is, as the driver says, bytes.
        len_bytes: u64,
    },
    /// The device's driver exports no dma-bufs.
    NoDmaBuf {
        /// The device.
        ordinal: Ordinal,
    },
    /// An export was refused.
    Export {
        /// The call.
        error: CudaCallError,
        /// What the memory says of itself, 0 or 1, in `CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE`; `None` if it cannot be
        /// asked.
        gpu_direct_capable: Option<u32>,
    },
    /// An export succeeded without a file.
    NoFile {
        /// The range.
        range: AddressRange,
        /// What was given for a file descriptor.
        got: i32,
    },
    /// A range over several allocations, which are no one export. Mappings of growing memory are.
    Several {
        /// The range.
        range: AddressRange,
        /// Where the next allocation starts.
        address: u64,
    },
    /// An allocation that does not start at a page of the host's: what is exported would begin with another one's bytes.
    Unaligned {
        /// The allocation.
        mapping: AddressRange,
        /// The host's page, bytes.
        page_bytes: u64,
    },
}

impl CudaError {
    /// The driver's answer, where a call failed.
    pub fn result(&self) -> Option<CuResult> {
        match self {
            Self::Call(error) | Self::Export { error, .. } => Some(error.result),
            _ => None,
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { symbol, library } => write!(f, "{library} has no {symbol}: a newer driver is needed"),
            Self::Call(error) => error.fmt(f),
            Self::Unmapped { address } => {
                write!(f, "nothing is mapped at {address:#x}: the memory was freed, or is not the driver's")
            }
            Self::Hole { range, address } => {
                write!(f, "of {range} nothing is mapped at {address:#x}: ask for a range that is mapped as a whole")
            }
            Self::Empty { address } => write!(f, "no byte at {address:#x}: ask for at least one"),
            Self::NotDevice { address } => {
                write!(f, "{address:#x} is no device memory: register it as host memory, or see whether it was freed")
            }
            Self::Managed { address } => write!(
                f,
                "{address:#x} is managed memory, which cannot be registered as a device's: use memory of cuMemAlloc, \
                 or pinned host memory"
            ),
            Self::Straddles { range, first, last } => {
                write!(f, "{range} begin in {first} and end in {last}: ask for a range of one allocation")
            }
            Self::MemoryType { address, got } => {
                write!(f, "memory at {address:#x} is of a kind not known here: {got:?}")
            }
            Self::Ordinal { address, got } => write!(f, "memory at {address:#x} is of device {got}, which is none"),
            Self::Mapping { address, base, len_bytes } => write!(
                f,
                "the mapping at {address:#x} is {len_bytes:#x} bytes from {base:#x}, which does not fit: it was changed \
                 meanwhile; ask again while nobody maps and unmaps"
            ),
            Self::NoDmaBuf { ordinal } => write!(
                f,
                "device {ordinal} exports no dma-bufs (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0): the open kernel modules \
                 of its driver are needed, or a peer-memory module and a plain registration"
            ),
            Self::Export { error, gpu_direct_capable } => {
                error.fmt(f)?;
                if *gpu_direct_capable == Some(0) {
                    f.write_str(
                        "; CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE (15) is 0: allocate it with \
                         gpuDirectRDMACapable set",
                    )?;
                }
                Ok(())
            }
            Self::NoFile { range, got } => {
                write!(f, "cuMemGetHandleForAddressRange for {range} succeeded with the file descriptor {got}")
            }
            Self::Several { range, address } => {
                write!(
                    f,
                    "{range} are of several allocations, another one starts at {address:#x}: export each by itself"
                )
            }
            Self::Unaligned { mapping, page_bytes } => write!(
                f,
                "the allocation of {mapping} starts at no multiple of {page_bytes}, the host's page, and cannot be exported \
                 alone: allocate {page_bytes} bytes or more"
            ),
        }
    }
}

// Its text is whole by itself: a source would be told twice by who prints the chain.
impl std::error::Error for CudaError {}

impl From<CudaError> for DriverError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Call(error) => {
                let rest = fmt::from_fn(|f| error.fmt_rest(f)).to_string();
                Self::new(error.call, Some(error.result.0.into()), rest)
            }
            other => Self::new("", None, other.to_string()),
        }
    }
}
