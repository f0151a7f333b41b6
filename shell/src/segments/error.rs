//! Why memory was not registered: on which device, which bytes, which ordinals are served, and what to do.

use std::fmt;
use std::sync::Arc;

use bareverbs_core::range::{AddressRange, RangeError};
use bareverbs_core::segments::{ChunkError, Covers, Ordinal, PlanError, RefuseReason, ScannedSegment};

use super::carry_out::CarryOutError;
use super::{BindError, ScanError};
use crate::cuda::CudaError;
use crate::errno::Errno;
use crate::error::Error;
use crate::memory::{RegisterError, RegistrationFailure};

/// A request that a [`SegmentDomain`](super::SegmentDomain) could not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentError {
    /// The device.
    pub device: Arc<str>,
    /// The address that was asked for.
    pub addr: u64,
    /// How many bytes were asked for.
    pub size: u64,
    /// The ordinals that the domain serves, as a list.
    pub served: Arc<str>,
    /// Why not.
    pub kind: SegmentErrorKind,
}

impl SegmentError {
    /// The errno, where a call of the library failed.
    pub fn errno(&self) -> Option<Errno> {
        match &self.kind {
            SegmentErrorKind::NotBound { why, .. } => why.errno(),
            SegmentErrorKind::Region { error, .. } => errno_of(error),
            SegmentErrorKind::Failed(failure) => failure.errno(),
            SegmentErrorKind::Host(error) => match &**error {
                RegisterError::Failed(failure) => failure.errno(),
                _ => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, addr, size, served, kind } = self;
        write!(f, "registering {size} bytes at {addr:#x} on device {device}, which serves ordinals {served}: {kind}")
    }
}

// Its text is whole by itself, as the shell's other errors are.
impl std::error::Error for SegmentError {}

/// Why a request could not be served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentErrorKind {
    /// Size 0.
    Empty,
    /// It goes above 2^64.
    Range(RangeError),
    /// The driver could not be asked where the memory is.
    Driver(Box<CudaError>),
    /// It is managed memory.
    Managed,
    /// No scanned segment covers it, and the driver knows no device memory there.
    NotCovered,
    /// The scanner failed.
    Scan(ScanError),
    /// The scanner, or what it called, asked the domain that was waiting for it, for what is not bound.
    Reentered,
    /// Another caller's scan, with the bindings after it, was not over, and there is nothing that could be registered without one.
    StillScanning,
    /// The segment that it is in could not be bound.
    NotBound {
        /// The segment, as it was scanned.
        segment: ScannedSegment,
        /// Why not.
        why: Arc<NotBound>,
    },
    /// Memory there was mapped and unmapped all the time.
    Changing,
    /// It is not served by a key, and could not be exported for a region of its own.
    Export {
        /// Why no key serves it.
        why: NoKey,
        /// Why it was not exported.
        error: Box<CudaError>,
    },
    /// It is not served by a key, and the device took no region of its own.
    Region {
        /// Why no key serves it.
        why: NoKey,
        /// Why it was not registered.
        error: Box<Error>,
    },
    /// Host memory that was not registered.
    Host(Box<RegisterError>),
    /// The device refused this memory before, and it is recorded with it.
    Failed(Arc<RegistrationFailure>),
    /// The memory is registered on this device already, in another protection domain, whose keys are of no use here.
    OtherDomain,
}

impl fmt::Display for SegmentErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing to register: ask for at least 1 byte"),
            Self::Range(error) => error.fmt(f),
            Self::Driver(error) => error.fmt(f),
            Self::Managed => f.write_str("it is managed memory, which is not registered: copy it to device or host memory"),
            Self::NotCovered => f.write_str(
                "no segment covers it, and the driver knows no device memory there: it was freed, or is the host's, which is \
                 registered by its owner",
            ),
            Self::Scan(error) => write!(f, "the scanner failed: {error}"),
            Self::Reentered => f.write_str(
                "the domain is asked from within its own scan, for what is not bound: let the scanner not register",
            ),
            Self::StillScanning => NoKey::StillScanning.fmt(f),
            Self::NotBound { segment, why } => write!(
                f,
                "the segment of {:#x} bytes at {:#x} (ordinal {}) is not bound: {why}",
                segment.size_bytes, segment.address, segment.ordinal
            ),
            Self::Changing => f.write_str("the memory changed each time it was being bound: register what stays mapped"),
            Self::Export { why, error } => write!(f, "{why}; and by itself it was not exported: {error}"),
            Self::Region { why, error } => write!(f, "{why}; and by itself it was not registered: {error}"),
            Self::Host(error) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::OtherDomain => f.write_str(
                "it is registered there in another protection domain: use that one, or build a handle of its own for this one",
            ),
        }
    }
}

/// Why no key serves a request, which then gets a region of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoKey {
    /// The device has no indirect keys: it is no mlx5 device, or nobody brought the provider.
    NoProvider {
        /// Why, in words.
        reason: Arc<str>,
    },
    /// The memory is another device's than those served.
    NotServed {
        /// Whose it is.
        ordinal: Ordinal,
    },
    /// It is covered by more than one key.
    Straddles,
    /// Its segment is beyond what keys, or the table, can hold.
    NotBound(Arc<NotBound>),
    /// No scanned segment covers it.
    NotScanned,
    /// Another caller's scan, with the bindings after it, was not over.
    StillScanning,
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProvider { reason } => write!(f, "there are no keys over segments here: {reason}"),
            Self::NotServed { ordinal } => {
                write!(f, "memory of ordinal {ordinal} is not served here: pin it, if it is to be")
            }
            Self::Straddles => f.write_str("it lies in more than one key's window: ask for it in parts"),
            Self::NotBound(why) => write!(f, "its segment has no key: {why}"),
            Self::NotScanned => f.write_str("no scanned segment covers it"),
            Self::StillScanning => {
                f.write_str("another caller's scan and bindings take longer than this one's patience")
            }
        }
    }
}

/// Why a scanned segment was not bound, or not grown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotBound {
    /// It has no bytes.
    Empty,
    /// It cannot be cut into whole regions.
    Chunk(ChunkError),
    /// Its device is not among those served.
    NotServed,
    /// It is not wholly where the scanner says that it looked.
    OutsideScan {
        /// Where it looked.
        covers: Covers,
    },
    /// It shares addresses with one scanned before it.
    Overlap {
        /// That one.
        with: ScannedSegment,
    },
    /// The domain serves no more segments.
    TableFull {
        /// How many it serves.
        capacity: usize,
    },
    /// It needs more keys or regions than a segment has room for.
    Plan(PlanError),
    /// The driver could not tell which memory it is.
    Identity(CudaError),
    /// The driver says that it is another device's memory than the scanner does.
    OtherDevice {
        /// The driver's.
        driver: Ordinal,
    },
    /// It was mapped anew while it was being bound.
    Changed,
    /// A part of it was not registered.
    Part {
        /// The part.
        range: AddressRange,
        /// Why not.
        error: PartError,
    },
    /// Its regions were not bound to a key.
    Bind(BindError),
    /// It is new to this library why not.
    Other(String),
}

impl NotBound {
    /// Whether the request is served by a region of its own: the segment is beyond what keys can do here, whatever is tried.
    pub(super) fn falls_back(&self) -> bool {
        match self {
            Self::NotServed | Self::TableFull { .. } => true,
            Self::Plan(error) => matches!(error, PlanError::Windows { .. } | PlanError::Parts { .. }),
            Self::Bind(error) => error.is_unsupported(),
            _ => false,
        }
    }

    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Part { error: PartError::Shell(error), .. } | Self::Bind(BindError::Shell(error)) => errno_of(error),
            Self::Bind(BindError::Refused { errno, .. }) => *errno,
            _ => None,
        }
    }
}

impl From<RefuseReason<'_>> for NotBound {
    fn from(reason: RefuseReason<'_>) -> Self {
        match reason {
            RefuseReason::Empty => Self::Empty,
            RefuseReason::Chunk(error) => Self::Chunk(error),
            RefuseReason::NotServed { .. } => Self::NotServed,
            RefuseReason::OutsideScan { covers } => Self::OutsideScan { covers },
            RefuseReason::Overlap { with } => Self::Overlap { with },
            RefuseReason::TableFull { capacity } => Self::TableFull { capacity },
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<CarryOutError<PartError>> for NotBound {
    fn from(error: CarryOutError<PartError>) -> Self {
        match error {
            CarryOutError::Register { range, error } => Self::Part { range, error },
            CarryOutError::Bind(error) => Self::Bind(error),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<PlanError> for NotBound {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl fmt::Display for NotBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => RefuseReason::Empty.fmt(f),
            Self::Chunk(error) => error.fmt(f),
            Self::NotServed => f.write_str("its ordinal is not served here: pin it, if it is to be"),
            Self::OutsideScan { covers } => RefuseReason::OutsideScan { covers: *covers }.fmt(f),
            Self::Overlap { with } => RefuseReason::Overlap { with: *with }.fmt(f),
            Self::TableFull { capacity } => write!(f, "{capacity} segments are served already, and no more can be"),
            Self::Plan(error) => error.fmt(f),
            Self::Identity(error) => write!(f, "the driver cannot tell which memory it is: {error}"),
            Self::OtherDevice { driver } => {
                write!(f, "the driver says that it is memory of ordinal {driver}: look at the scanner")
            }
            Self::Changed => f.write_str("it was mapped anew while it was being bound: ask again"),
            Self::Part { range, error } => write!(f, "its part of {range} was not registered: {error}"),
            Self::Bind(error) => error.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Why a part of a segment was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartError {
    /// It could not be exported.
    Export(CudaError),
    /// The device refused it.
    Shell(Error),
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Export(error) => error.fmt(f),
            Self::Shell(error) => error.fmt(f),
        }
    }
}

fn errno_of(error: &Error) -> Option<Errno> {
    match error {
        Error::Call(call) => call.errno,
        Error::NeitherRegistration { plain, .. } => errno_of(plain),
        _ => None,
    }
}
