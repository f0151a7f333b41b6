//! Where memory is, and who can tell: the seam to what knows device memory.
//!
//! Without a driver all memory is the host's. A driver for a kind of device memory stands behind [`MemoryDriver`], and nothing
//! else of this library knows that there is one.
//!
//! # Safety
//!
//! This file declares what is relied on of a driver.
#![allow(unsafe_code)]

use std::fmt;

use bareverbs_core::range::AddressRange;

/// Which memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Location {
    /// The host's.
    Host {
        /// The NUMA node, where it is known.
        numa: Option<u32>,
    },
    /// A device's.
    Device {
        /// The device, as its driver counts, where it is known.
        ordinal: Option<u32>,
    },
    /// Memory that its driver moves between host and device.
    Managed,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { numa: None } => f.write_str("host memory"),
            Self::Host { numa: Some(node) } => write!(f, "host memory of NUMA node {node}"),
            Self::Device { ordinal: None } => f.write_str("device memory"),
            Self::Device { ordinal: Some(ordinal) } => write!(f, "memory of device {ordinal}"),
            Self::Managed => f.write_str("managed memory"),
        }
    }
}

/// A bandwidth that nobody measured, bytes per second: it says only that host threads reach host memory.
pub const PLACEHOLDER_HOST_BYTES_PER_S: u64 = 100_000_000_000;

/// A bandwidth that nobody measured, bytes per second: it says only that device threads reach device memory.
pub const PLACEHOLDER_DEVICE_BYTES_PER_S: u64 = 1_000_000_000_000;

/// Where some memory is and who reaches it directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where.
    pub location: Location,
    /// How fast a host thread reads and writes it, bytes per second; `None` if it cannot.
    pub host_bytes_per_s: Option<u64>,
    /// How fast a device's thread reads and writes it, bytes per second; `None` if it cannot.
    pub device_bytes_per_s: Option<u64>,
}

impl Placement {
    /// Host memory of which nothing else is known; [a placeholder](PLACEHOLDER_HOST_BYTES_PER_S) for the bandwidth.
    pub const HOST: Self = Self {
        location: Location::Host { numa: None },
        host_bytes_per_s: Some(PLACEHOLDER_HOST_BYTES_PER_S),
        device_bytes_per_s: None,
    };
}

/// What a driver could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverError {
    /// The call, as the driver names it; empty where none was made.
    pub call: &'static str,
    /// The driver's number for it, where there is one.
    pub code: Option<i64>,
    /// In words: what was found, and what to do.
    pub text: String,
}

impl DriverError {
    /// A failure in words.
    pub fn new(call: &'static str, code: Option<i64>, text: impl Into<String>) -> Self {
        Self { call, code, text: text.into() }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, text } = self;
        match code {
            Some(code) => write!(f, "{call} answered {code}: {text}"),
            None if call.is_empty() => f.write_str(text),
            None => write!(f, "{call}: {text}"),
        }
    }
}

impl std::error::Error for DriverError {}

/// What knows memory that is not simply the host's.
///
/// # Safety
/// Who implements it promises:
/// 1. What `place` calls [`Location::Host`] can be read and written by this process's threads.
/// 2. The copies touch the named bytes only, and are complete when they return.
pub unsafe trait MemoryDriver: Send + Sync {
    /// Where a range is. Asked once for each [`LocalMemory`](super::LocalMemory) that is built.
    ///
    /// # Errors
    /// [`DriverError`] where it cannot be told.
    fn place(&self, range: AddressRange) -> Result<Placement, DriverError>;

    /// Copies `to.len()` bytes from `from`, which is not host memory, with whatever context owns it.
    ///
    /// # Errors
    /// [`DriverError`].
    ///
    /// # Safety
    /// 1. The bytes at `from` are mapped, where `place` said, and nobody writes them meanwhile.
    unsafe fn copy_out(&self, from: usize, to: &mut [u8]) -> Result<(), DriverError>;

    /// Copies `from` to `to`, which is not host memory, with whatever context owns it.
    ///
    /// # Errors
    /// [`DriverError`].
    ///
    /// # Safety
    /// 1. The bytes at `to` are mapped, where `place` said, and nobody else touches them meanwhile.
    unsafe fn copy_in(&self, to: usize, from: &[u8]) -> Result<(), DriverError>;
}

/// No driver: all memory is the host's.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostOnly;

// SAFETY: 1: who hands over memory without a driver says that it is the host's (`LocalMemory::new`). 2: nothing is copied.
unsafe impl MemoryDriver for HostOnly {
    fn place(&self, _: AddressRange) -> Result<Placement, DriverError> {
        Ok(Placement::HOST)
    }

    unsafe fn copy_out(&self, _: usize, _: &mut [u8]) -> Result<(), DriverError> {
        Err(no_driver())
    }

    unsafe fn copy_in(&self, _: usize, _: &[u8]) -> Result<(), DriverError> {
        Err(no_driver())
    }
}

fn no_driver() -> DriverError {
    DriverError::new("", None, "there is no driver for memory that is not the host's")
}
