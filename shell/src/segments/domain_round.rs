//! One turn's work: scan, compare, drop, bind.
//!
//! Protects: each segment by itself. What core decides is carried out in the order of the scan; one that fails stops neither the
//! others nor the pruning, and its error is kept for the requests in it. What is gone or changed is served no more, and given
//! back, before anything is bound. Nothing is logged here: a logger may wait for what other callers hold.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{
    Covers, Decision, IdentityCheck, Ordinal, Row, Scan, ScannedSegment, SegmentKey, Terms, WindowLimits, reconcile,
};

use super::domain::SegmentDomain;
use super::domain_turn::Turn;
use super::error::NotBound;
use super::served::{Means, ServedSegment};
use super::served_table::{Draft, MAX_SEGMENTS, Table};
use super::statistics::Counters;
use super::{BindError, Binder, ScanError, SegmentScan};

/// What a turn came to.
pub(super) struct Round {
    /// Where its scan looked.
    pub(super) covers: Covers,
    segments: Vec<ScannedSegment>,
    failures: Vec<(ScannedSegment, Arc<NotBound>)>,
}

impl Round {
    /// Why the segment that holds the first byte of `asked`, or its last, was not bound.
    pub(super) fn failure_of(&self, asked: AddressRange) -> Option<(ScannedSegment, &Arc<NotBound>)> {
        let ends = [Some(asked.base()), asked.last()];
        let at = |address| self.failures.iter().find(|(segment, _)| holds(*segment, address));
        ends.into_iter().flatten().find_map(at).map(|(segment, why)| (*segment, why))
    }

    /// Whether the scan showed all of `asked` in one segment.
    pub(super) fn showed(&self, asked: AddressRange) -> bool {
        self.segments.iter().any(|segment| segment.range().is_ok_and(|range| range.covers(asked)))
    }
}

/// Whether an address is in a segment, which need not make sense.
fn holds(segment: ScannedSegment, address: u64) -> bool {
    address.checked_sub(segment.address).is_some_and(|offset_bytes| offset_bytes < segment.size_bytes)
}

/// What is to be done for a scanned segment, in core's words without their borrows.
enum Job {
    Bind { range: AddressRange, ordinal: Ordinal },
    Grow { key: SegmentKey, to: AddressRange },
    Refuse(NotBound),
    Nothing,
}

/// What core decided.
struct Jobs {
    /// One for each scanned segment, in order.
    scanned: Vec<Job>,
    /// Bound segments that are gone.
    dropped: Vec<SegmentKey>,
    /// Bound segments in whose place something else is.
    replaced: Vec<SegmentKey>,
}

/// What [`SegmentDomain::prune`] came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Segments that were gone.
    pub vanished: usize,
    /// Segments in whose place something else is mapped: it is bound when it is asked for.
    pub replaced: usize,
}

impl SegmentDomain {
    /// Scans around `hint` and binds what it shows, for a request.
    pub(super) fn round(&self, turn: Turn<'_>, hint: AddressRange) -> Result<Arc<Round>, ScanError> {
        let scan = self.scan(hint)?;
        turn.scanned();
        let mut draft = self.table.draft();
        let Jobs { scanned, dropped, replaced } = self.decide(&scan);
        self.withdraw(&mut draft, dropped.into_iter().chain(replaced));
        let failures = self.carry_out(&mut draft, &scan.segments, scanned);
        drop(draft);
        let beyond_keys = failures.iter().filter(|(_, why)| why.falls_back() && !matches!(**why, NotBound::NotServed));
        self.fallbacks.remember_beyond_keys(&self.cuda, scan.covers, beyond_keys.cloned());
        let round = Arc::new(Round { covers: scan.covers, segments: scan.segments, failures });
        turn.end(&round);
        Ok(round)
    }

    /// Scans around `hint` and drops what is gone.
    pub(super) fn prune_round(&self, turn: &Turn<'_>, hint: AddressRange) -> Result<(Covers, Pruned), ScanError> {
        let scan = self.scan(hint)?;
        turn.scanned();
        let mut draft = self.table.draft();
        let Jobs { dropped, replaced, .. } = self.decide(&scan);
        let pruned = Pruned { vanished: dropped.len(), replaced: replaced.len() };
        self.withdraw(&mut draft, dropped.into_iter().chain(replaced));
        Ok((scan.covers, pruned))
    }

    /// Asks the scanner, with no lock held.
    fn scan(&self, hint: AddressRange) -> Result<SegmentScan, ScanError> {
        Counters::add(&self.counters.scans, 1);
        match self.scanner() {
            Some(scanner) => scanner.scan(hint),
            None => Ok(SegmentScan { segments: Vec::new(), covers: Covers::Everything }),
        }
    }

    /// Compares what is served with what was scanned.
    fn decide(&self, scan: &SegmentScan) -> Jobs {
        let table = self.table.read();
        let table: &Table<ServedSegment> = &table;
        let asked = RefCell::new(BTreeMap::new());
        // Core asks more than once; the driver is asked once.
        let identity = |row: &Row<Arc<ServedSegment>>| {
            *asked.borrow_mut().entry(row.key()).or_insert_with(|| {
                let holds = row.value.holds(&self.cuda, row.range);
                if holds { IdentityCheck::Holds } else { IdentityCheck::Changed }
            })
        };
        let terms = Terms { served: self.served(), limits: self.config.binder.chunk };
        let seen = Scan { segments: &scan.segments, covers: scan.covers };
        let mut jobs = Jobs { scanned: Vec::new(), dropped: Vec::new(), replaced: Vec::new() };
        for decision in reconcile(table, seen, terms, identity) {
            let job = match decision {
                Decision::Bind { range, ordinal } => Job::Bind { range, ordinal },
                Decision::Keep { .. } => Job::Nothing,
                Decision::Grow { key, to } => Job::Grow { key, to },
                Decision::Rebind { key, to, .. } => {
                    jobs.replaced.push(key);
                    Job::Bind { range: to, ordinal: key.ordinal }
                }
                Decision::Refuse { reason, .. } => Job::Refuse(reason.into()),
                Decision::Drop { key } => {
                    jobs.dropped.push(key);
                    continue;
                }
                other => Job::Refuse(NotBound::Other(format!("{other:?}"))),
            };
            jobs.scanned.push(job);
        }
        jobs
    }

    /// Serves these no more, and lets them go.
    fn withdraw(&self, draft: &mut Draft<'_, ServedSegment>, keys: impl Iterator<Item = SegmentKey>) {
        let gone: Vec<_> = keys.filter_map(|key| draft.remove(key)).collect();
        if !gone.is_empty() {
            draft.publish();
        }
    }

    /// Binds and grows, in order; what failed, with why.
    fn carry_out(
        &self,
        draft: &mut Draft<'_, ServedSegment>,
        segments: &[ScannedSegment],
        jobs: Vec<Job>,
    ) -> Vec<(ScannedSegment, Arc<NotBound>)> {
        let mut failures = Vec::new();
        for (segment, job) in segments.iter().zip(jobs) {
            let done = match job {
                Job::Bind { range, ordinal } => self.bind(draft, range, ordinal),
                Job::Grow { key, to } => self.grow(draft, key, to),
                Job::Refuse(why) => Err(why),
                Job::Nothing => Ok(()),
            };
            if let Err(why) = done {
                failures.push((*segment, Arc::new(why)));
            }
        }
        failures
    }

    fn bind(
        &self,
        draft: &mut Draft<'_, ServedSegment>,
        range: AddressRange,
        ordinal: Ordinal,
    ) -> Result<(), NotBound> {
        let (means, limits) = self.means()?;
        let bound = ServedSegment::bind(means, range, ordinal, limits)?;
        put(draft, bound)
    }

    fn grow(&self, draft: &mut Draft<'_, ServedSegment>, key: SegmentKey, to: AddressRange) -> Result<(), NotBound> {
        let Some(old) = draft.table().row(key).map(|row| Arc::clone(&row.value)) else {
            return self.bind(draft, to, key.ordinal);
        };
        let (means, _) = self.means()?;
        match old.grown(means, to) {
            Ok(Some(grown)) => put(draft, grown),
            Ok(None) => Ok(()),
            Err(why) => {
                if why == NotBound::Changed {
                    // The old part, too, may be other memory.
                    self.withdraw(draft, std::iter::once(key));
                }
                Err(why)
            }
        }
    }

    /// What binds, with the limits; the binding queue pair is made now if there is none.
    fn means(&self) -> Result<(Means<'_>, WindowLimits), NotBound> {
        let binder: &Binder = match &self.binder {
            Ok(binder) => binder,
            Err(_) => {
                let device = Arc::clone(self.protection_domain().context().name());
                return Err(NotBound::Bind(BindError::Unsupported { device }));
            }
        };
        let limits = binder.limits().map_err(NotBound::Bind)?;
        let (cuda, counters) = (&self.cuda, &self.counters);
        Ok((Means { binder, cuda, access: self.config.access, counters }, limits))
    }
}

/// Puts a segment in the place of what overlaps it.
fn put(draft: &mut Draft<'_, ServedSegment>, bound: ServedSegment) -> Result<(), NotBound> {
    let (range, ordinal) = (bound.range(), bound.ordinal());
    let value = Arc::new(bound);
    let displaced = draft.change(|table| {
        let displaced: Vec<_> = std::iter::from_fn(|| table.take_overlapping(range, ordinal)).collect();
        table.insert(Row { range, ordinal, value }).map(|()| displaced)
    });
    displaced.map(drop).map_err(|_| NotBound::TableFull { capacity: MAX_SEGMENTS })
}
