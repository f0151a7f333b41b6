//! Who knows which segments of GPU memory there are: the seam to allocators and drivers.
//!
//! The rule it protects: **a scanner that failed has seen nothing**, neither segments nor their absence. So a scanner answers a
//! `Result`, and its answer says where it looked.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Covers, ScannedSegment};

/// What a scanner saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentScan {
    /// The segments. In order of address they cost least to compare; any order will do.
    pub segments: Vec<ScannedSegment>,
    /// Where it looked: what it did not report in there is not mapped.
    pub covers: Covers,
}

/// Reports segments of GPU memory.
///
/// An allocator's snapshot covers [everything](Covers::Everything); a walk through a driver's mappings covers the run that it
/// walked, and the hint in any case, mapped or not.
///
/// A domain calls it with no lock held, and from one thread at a time; other callers wait for its result, no longer than their
/// [patience](super::SegmentDomainConfig::patience), or are served from what is bound. So it may take a lock that callers of
/// the domain hold (an interpreter's, say). One that asks the domain that called it, on the same thread, is served from what is
/// bound, or refused. It may panic: the domain stays usable.
pub trait Scanner: Send + Sync {
    /// What there is, at least within `hint`.
    ///
    /// # Errors
    /// [`ScanError`]: then nothing is taken for mapped, and nothing for gone.
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError>;
}

/// Why a scanner could not look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanError {
    /// In words: what failed, and what to do.
    pub text: String,
}

impl ScanError {
    /// A failure in words.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ScanError {}

static REGISTERED: RwLock<Option<Arc<dyn Scanner>>> = RwLock::new(None);

/// Sets the scanner of all domains of the process that were given none of their own; `None` for no scanner, and so no segments.
/// Answers the one before. Scans that are under way end with the scanner that they began with.
pub fn register_scanner(scanner: Option<Arc<dyn Scanner>>) -> Option<Arc<dyn Scanner>> {
    std::mem::replace(&mut *REGISTERED.write().unwrap_or_else(PoisonError::into_inner), scanner)
}

/// The process's scanner.
pub(super) fn registered_scanner() -> Option<Arc<dyn Scanner>> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone()
}
