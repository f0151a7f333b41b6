//! What to do so that the bound segments are those that a scan shows.
//!
//! Protects: memory is served only as long as nothing says that it is gone or other memory, and each segment stands by itself:
//! one that is refused stops neither the others nor the pruning. This only decides; carrying a decision out, and what it costs
//! if that fails, is the shell's.

use core::iter::FusedIterator;

use super::decision::{Decision, RebindReason, RefuseReason};
use super::limits::ChunkLimits;
use super::scan::{Scan, ScannedSegment, ServedOrdinals};
use super::table::{Row, SegmentKey, SegmentTable};
use crate::range::AddressRange;

/// What the caller finds when it asks for the identity of a bound segment's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum IdentityCheck {
    /// All of it is the memory that was bound (or the caller trusts that it is).
    Holds,
    /// Some of it is other memory at the same address, or none.
    Changed,
}

/// On what terms scanned segments are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Terms<'a> {
    /// The devices whose memory is served.
    pub served: ServedOrdinals<'a>,
    /// What a segment must be a multiple of.
    pub limits: ChunkLimits,
}

/// Compares the bound segments with a scan: one decision for each scanned segment, in their order, then one for each bound
/// segment that is to be dropped. Nothing is allocated; a scan in order of address costs O(log n) a segment, another one is
/// compared with itself pair by pair.
///
/// `identity` is asked (perhaps more than once) about bound segments that the scan shows mapped.
///
/// - A scanned segment that starts in a bound one of its ordinal is that one if nothing of it is gone (in so far as the scan
///   covers it) and its identity holds: it is kept, or grown. Otherwise it is bound afresh.
/// - Scanned segments that overlap: the first of them stands, the later are refused, whatever their ordinals: an address is one
///   device's at a time, so a scan that shows it as two's is wrong about one of them. The table does take two ordinals at one
///   base, for as long as a change takes: where memory went over to another device, its segment is bound before the old goes.
/// - A bound segment goes when the scan covers some of it and shows none that it is. One that is wholly within a refused
///   segment of its ordinal stays as long as its identity holds: it is mapped, only not well described.
///
/// Drops come last, but free rows that the others may need ([`Reconcile::drops`] gives them beforehand). A segment that is
/// bound or grown takes the place of what overlaps it: [`SegmentTable::take_overlapping`].
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::*;
///
/// let mut table: SegmentTable<u64, 8> = SegmentTable::new(); // the value: the identity at binding
/// let range = AddressRange::new(0x10_0000_0000, 2 << 20).unwrap();
/// table.insert(Row { range, ordinal: Ordinal(0), value: 907 }).unwrap();
///
/// let seen = [ScannedSegment { address: 0x10_0000_0000, size_bytes: 6 << 20, ordinal: Ordinal(0), expandable: true }];
/// let scan = Scan { segments: &seen, covers: Covers::Everything };
/// let terms = Terms { served: ServedOrdinals { given: &[Ordinal(0)], pinned: &[] }, limits: ChunkLimits::GPU };
/// let ask = |row: &Row<u64>| if row.value == 907 { IdentityCheck::Holds } else { IdentityCheck::Changed };
/// for decision in reconcile(&table, scan, terms, ask) {
///     match decision {
///         Decision::Grow { key, to } => assert_eq!((key.base, to.len_bytes()), (0x10_0000_0000, 6 << 20)),
///         other => panic!("{other:?}"),
///     }
/// }
/// ```
pub fn reconcile<'a, T, F, const N: usize>(
    table: &'a SegmentTable<T, N>,
    scan: Scan<'a>,
    terms: Terms<'a>,
    identity: F,
) -> Reconcile<'a, T, F, N>
where
    F: Fn(&Row<T>) -> IdentityCheck,
{
    let ascending = |pair: &[ScannedSegment]| match pair {
        [lower, upper] => lower.last_saturating() < upper.address,
        _ => true,
    };
    let ordered = scan.segments.windows(2).all(ascending);
    let judge = Judge { table, scan, terms, identity, ordered };
    Reconcile { judge, next_scanned: 0, next_row: 0, bound: 0, dropped: None }
}

/// The decisions: see [`reconcile`].
#[derive(Clone, Debug)]
#[must_use = "iterators do nothing until they are asked"]
pub struct Reconcile<'a, T, F, const N: usize> {
    judge: Judge<'a, T, F, N>,
    next_scanned: usize,
    next_row: usize,
    /// Rows that are added by decisions so far.
    bound: usize,
    /// Rows that go; counted when the table may not hold all otherwise.
    dropped: Option<usize>,
}

impl<T, F, const N: usize> Reconcile<'_, T, F, N>
where
    F: Fn(&Row<T>) -> IdentityCheck,
{
    /// The bound segments that will be dropped, wherever the iterator stands. To drop them first frees memory, keys and rows
    /// before new ones are needed, and changes no other decision.
    pub fn drops(&self) -> impl Iterator<Item = SegmentKey> {
        self.judge.table.rows().iter().filter(|row| self.judge.is_dropped(row)).map(Row::key)
    }

    /// Whether the table can hold one row more, once the drops are done; if so, it is taken.
    fn takes_row(&mut self) -> bool {
        let rows = self.judge.table.len() + self.bound;
        if rows >= N {
            let dropped = match self.dropped {
                Some(dropped) => dropped,
                None => self.drops().count(),
            };
            self.dropped = Some(dropped);
            if rows - dropped >= N {
                return false;
            }
        }
        self.bound += 1;
        true
    }
}

impl<'a, T, F, const N: usize> Iterator for Reconcile<'a, T, F, N>
where
    F: Fn(&Row<T>) -> IdentityCheck,
{
    type Item = Decision<'a>;

    fn next(&mut self) -> Option<Decision<'a>> {
        if let Some(&segment) = self.judge.scan.segments.get(self.next_scanned) {
            let decision = self.judge.decide(self.next_scanned, segment);
            self.next_scanned += 1;
            if matches!(decision, Decision::Bind { .. }) && !self.takes_row() {
                return Some(Decision::Refuse { segment, reason: RefuseReason::TableFull { capacity: N } });
            }
            return Some(decision);
        }
        while let Some(row) = self.judge.table.rows().get(self.next_row) {
            self.next_row += 1;
            if self.judge.is_dropped(row) {
                return Some(Decision::Drop { key: row.key() });
            }
        }
        None
    }
}

impl<T, F, const N: usize> FusedIterator for Reconcile<'_, T, F, N> where F: Fn(&Row<T>) -> IdentityCheck {}

/// The rules, each for one segment or row, without memory of what was decided before.
#[derive(Clone, Debug)]
struct Judge<'a, T, F, const N: usize> {
    table: &'a SegmentTable<T, N>,
    scan: Scan<'a>,
    terms: Terms<'a>,
    identity: F,
    /// Whether the scan is in order of address, without overlaps.
    ordered: bool,
}

impl<'a, T, F, const N: usize> Judge<'a, T, F, N>
where
    F: Fn(&Row<T>) -> IdentityCheck,
{
    /// What becomes of a scanned segment, room in the table apart.
    fn decide(&self, index: usize, segment: ScannedSegment) -> Decision<'a> {
        let range = match self.admit(segment) {
            Ok(range) => range,
            Err(reason) => return Decision::Refuse { segment, reason },
        };
        if let Some(with) = self.earlier_overlapping(index, range) {
            return Decision::Refuse { segment, reason: RefuseReason::Overlap { with } };
        }
        let fresh = Decision::Bind { range, ordinal: segment.ordinal };
        let Some(row) = self.row_holding(range.base(), segment) else {
            return fresh;
        };
        let reason = match self.continued(row, range, segment) {
            Ok(decision) => return decision,
            Err(reason) => reason,
        };
        // Another base is another key: the new segment is bound, and the row goes with the drops.
        if row.range.base() == range.base() { Decision::Rebind { key: row.key(), to: range, reason } } else { fresh }
    }

    /// The range of a segment that can be served, overlaps apart.
    fn admit(&self, segment: ScannedSegment) -> Result<AddressRange, RefuseReason<'a>> {
        let range = segment.range().map_err(|refused| RefuseReason::Chunk(refused.into()))?;
        if range.is_empty() {
            return Err(RefuseReason::Empty);
        }
        let served = self.terms.served;
        if !served.serves(segment.ordinal) {
            return Err(RefuseReason::NotServed { ordinal: segment.ordinal, served });
        }
        self.terms.limits.check(range).map_err(RefuseReason::Chunk)?;
        if !self.scan.covers.all_of(range) {
            return Err(RefuseReason::OutsideScan { covers: self.scan.covers });
        }
        Ok(range)
    }

    /// A segment scanned before this one that shares addresses with it and could be served (whether or not it is).
    fn earlier_overlapping(&self, index: usize, range: AddressRange) -> Option<ScannedSegment> {
        if self.ordered {
            return None;
        }
        let overlaps = |earlier: &&ScannedSegment| self.admit(**earlier).is_ok_and(|other| other.overlaps(range));
        self.scan.segments.iter().take(index).find(overlaps).copied()
    }

    /// The bound segment of this one's ordinal that holds `address`.
    fn row_holding(&self, address: u64, segment: ScannedSegment) -> Option<&'a Row<T>> {
        let first_byte = AddressRange::new(address, 1).ok()?;
        self.table.covering(first_byte).find(|row| row.ordinal == segment.ordinal)
    }

    /// What to do if the row is what is seen at `range`, which starts in it; if it is not, why.
    fn continued(
        &self,
        row: &Row<T>,
        range: AddressRange,
        segment: ScannedSegment,
    ) -> Result<Decision<'a>, RebindReason> {
        let key = row.key();
        let seen = self.scan.covers.part_of(row.range);
        if !seen.is_none_or(|seen| range.covers(seen)) {
            return Err(RebindReason::PartlyGone);
        }
        if (self.identity)(row) == IdentityCheck::Changed {
            return Err(RebindReason::IdentityChanged);
        }
        if row.range.covers(range) {
            return Ok(Decision::Keep { key });
        }
        if !segment.expandable {
            return Err(RebindReason::CannotGrow);
        }
        // A range walked from inside the segment starts above its base: what it grows to starts where it does.
        let above_base = segment.last_saturating() - row.range.base();
        let to = above_base.checked_add(1).and_then(|len| AddressRange::new(row.range.base(), len).ok());
        to.map(|to| Decision::Grow { key, to }).ok_or(RebindReason::CannotGrow)
    }

    /// Whether the row goes.
    fn is_dropped(&self, row: &Row<T>) -> bool {
        if self.scan.covers.part_of(row.range).is_none() {
            return false;
        }
        let (mut mapped, mut displaced) = (false, false);
        for (index, segment) in self.scanned_near(row.range) {
            let Ok(range) = segment.range() else { continue };
            if !range.overlaps(row.range) {
                continue;
            }
            match self.decide(index, segment) {
                Decision::Keep { key } | Decision::Grow { key, .. } | Decision::Rebind { key, .. }
                    if key == row.key() =>
                {
                    return false;
                }
                Decision::Refuse { .. } => mapped |= segment.ordinal == row.ordinal && range.covers(row.range),
                // Another one is served there; but one that is bound in the row's place may follow.
                _ => displaced = true,
            }
        }
        displaced || !mapped || (self.identity)(row) == IdentityCheck::Changed
    }

    /// The scanned segments that may overlap `range`, with their indices.
    fn scanned_near(&self, range: AddressRange) -> impl Iterator<Item = (usize, ScannedSegment)> {
        let segments = self.scan.segments;
        let (from, to) = match range.last() {
            Some(last) if self.ordered => (
                segments.partition_point(|segment| segment.last_saturating() < range.base()),
                segments.partition_point(|segment| segment.address <= last),
            ),
            _ => (0, segments.len()),
        };
        segments.iter().copied().enumerate().take(to).skip(from)
    }
}
