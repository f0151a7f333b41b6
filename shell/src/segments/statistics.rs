//! What a domain did, and what it has.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a domain serves now, and what it did so far: see [`SegmentDomain::statistics`](super::SegmentDomain::statistics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentStatistics {
    /// Segments that are served.
    pub segments: u64,
    /// Keys that present them. Retired ones, which only views hold, are not among them.
    pub keys: u64,
    /// Regions behind those keys.
    pub regions: u64,
    /// Keys bound so far.
    pub binds: u64,
    /// Regions registered for segments so far.
    pub registrations: u64,
    /// Scans so far, those that failed among them.
    pub scans: u64,
    /// Requests served by a region of their own so far.
    pub fallbacks: u64,
}

/// The counts so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) binds: AtomicU64,
    pub(super) registrations: AtomicU64,
    pub(super) scans: AtomicU64,
    pub(super) fallbacks: AtomicU64,
}

impl Counters {
    /// They order nothing.
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> SegmentStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SegmentStatistics {
            binds: read(&self.binds),
            registrations: read(&self.registrations),
            scans: read(&self.scans),
            fallbacks: read(&self.fallbacks),
            ..SegmentStatistics::default()
        }
    }
}
