//! One turn's work: scan, compare, drop, bind.
//!
//! Protects: each segment by itself. What core decides is carried out in the order of the scan; one that fails stops neither the
//! others nor the pruning, and its error is kept for the requests in it. What is gone or changed is served no more, and given
//! back, before anything is bound. What was invalidated since the turn began is not bound by its scan. Nothing is logged here, and
//! what is given back in any case is so after the turn, where that can be: a logger, or a hook that is told of what could not be
//! freed, may wait for what other callers hold. They wait no longer than their patience all the same.

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

/// Segments that are served no more, or may not be: they go after the turn.
type Gone = Vec<Arc<ServedSegment>>;

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
        let watch = self.table.watch();
        let scan = self.scan(hint)?;
        let mut draft = watch.draft();
        let Jobs { scanned, dropped, replaced } = self.decide(&scan);
        drop(withdraw(&mut draft, dropped.into_iter().chain(replaced)));
        let mut gone = Vec::new();
        let failures = self.carry_out(&mut draft, &scan.segments, scanned, &mut gone);
        drop(draft);
        drop(watch);
        let beyond_keys = failures.iter().filter(|(_, why)| why.falls_back() && !matches!(**why, NotBound::NotServed));
        self.fallbacks.remember_beyond_keys(&self.cuda, scan.covers, beyond_keys.cloned());
        let round = Arc::new(Round { covers: scan.covers, segments: scan.segments, failures });
        turn.end(&round);
        drop(gone);
        Ok(round)
    }

    /// Scans around `hint` and drops what is gone.
    pub(super) fn prune_round(&self, turn: Turn<'_>, hint: AddressRange) -> Result<(Covers, Pruned), ScanError> {
        let watch = self.table.watch();
        let scan = self.scan(hint)?;
        let mut draft = watch.draft();
        let Jobs { dropped, replaced, .. } = self.decide(&scan);
        let pruned = Pruned { vanished: dropped.len(), replaced: replaced.len() };
        let gone = withdraw(&mut draft, dropped.into_iter().chain(replaced));
        drop(draft);
        drop(watch);
        drop(turn);
        drop(gone);
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

    /// Binds and grows, in order; what failed, with why. What goes for it is left in `gone`.
    ///
    /// Where no queue pair can be made, or a binding did not complete in time, the rest is not tried: it would fail alike, each
    /// after as long a wait.
    fn carry_out(
        &self,
        draft: &mut Draft<'_, ServedSegment>,
        segments: &[ScannedSegment],
        jobs: Vec<Job>,
        gone: &mut Gone,
    ) -> Vec<(ScannedSegment, Arc<NotBound>)> {
        let mut failures = Vec::new();
        let mut over: Option<Arc<NotBound>> = None;
        for (segment, job) in segments.iter().zip(jobs) {
            let done = match job {
                Job::Nothing => continue,
                Job::Refuse(why) => Err(Arc::new(why)),
                Job::Bind { .. } | Job::Grow { .. } if over.is_some() => over.clone().map_or(Ok(()), Err),
                job => match self.means() {
                    Ok(means) => self.attempt(draft, job, means, gone).map_err(Arc::new),
                    Err(why) => Err(Arc::clone(over.insert(Arc::new(why)))),
                },
            };
            if let Err(why) = done {
                if matches!(*why, NotBound::Bind(BindError::Late { .. })) {
                    over = Some(Arc::clone(&why));
                }
                failures.push((*segment, why));
            }
        }
        failures
    }

    /// Binds or grows one segment.
    fn attempt(
        &self,
        draft: &mut Draft<'_, ServedSegment>,
        job: Job,
        (means, limits): (Means<'_>, WindowLimits),
        gone: &mut Gone,
    ) -> Result<(), NotBound> {
        let (range, ordinal, old) = match job {
            Job::Bind { range, ordinal } => (range, ordinal, None),
            Job::Grow { key, to } => (to, key.ordinal, draft.table().row(key).map(|row| (key, Arc::clone(&row.value)))),
            Job::Refuse(_) | Job::Nothing => return Ok(()),
        };
        if draft.is_invalidated(range) {
            // The scan may have begun before that.
            return Err(NotBound::Changed);
        }
        let Some((key, old)) = old else {
            return put(draft, ServedSegment::bind(means, range, ordinal, limits)?, gone);
        };
        let grown = old.grown(means, range);
        gone.push(old);
        match grown {
            Ok(Some(grown)) => put(draft, grown, gone),
            Ok(None) => Ok(()),
            Err(why) => {
                if why == NotBound::Changed {
                    // The old part, too, may be other memory.
                    gone.extend(withdraw(draft, std::iter::once(key)));
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

/// Serves these no more; they go when the caller lets them.
fn withdraw(draft: &mut Draft<'_, ServedSegment>, keys: impl Iterator<Item = SegmentKey>) -> Gone {
    let gone: Gone = keys.filter_map(|key| draft.remove(key)).collect();
    if !gone.is_empty() {
        draft.publish();
    }
    gone
}

/// Puts a segment in the place of what overlaps it.
fn put(draft: &mut Draft<'_, ServedSegment>, bound: ServedSegment, gone: &mut Gone) -> Result<(), NotBound> {
    let (range, ordinal) = (bound.range(), bound.ordinal());
    let value = Arc::new(bound);
    gone.push(Arc::clone(&value));
    let inserted = draft.change(|table| {
        gone.extend(std::iter::from_fn(|| table.take_overlapping(range, ordinal)).map(|row| row.value));
        table.insert(Row { range, ordinal, value })
    });
    inserted.map_err(|_| NotBound::TableFull { capacity: MAX_SEGMENTS })
}
