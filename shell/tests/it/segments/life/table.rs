//! What is served, as the machine expects it: the twin of a domain's table.
//!
//! It is told what a scan showed and which memory is where, and says which segments are then served. How they are cut into
//! windows and regions is the domain's to choose: the machine looks at that from outside.

use std::rc::Rc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{ChunkLimits, ScannedSegment};
use bareverbs_shell::segments::SegmentScan;

use super::memory::{Memory, Piece};
use crate::segments::domain_scene::range;

/// A region of the fabric. It is there as long as this is.
#[derive(Debug)]
pub struct Region {
    pub range: AddressRange,
    /// What it was registered over.
    pub pieces: Vec<Piece>,
    /// Its key, of one that is no segment's.
    pub lkey: Option<u32>,
}

/// A key of the fabric. It is there as long as this is.
#[derive(Debug)]
pub struct Window {
    pub lkey: u32,
    pub range: AddressRange,
    pub regions: Vec<Rc<Region>>,
}

/// A segment that is served.
#[derive(Clone, Debug)]
pub struct Row {
    pub range: AddressRange,
    pub ordinal: u32,
    /// Each mapping that was bound, with its place.
    pub identity: Vec<(u64, u32)>,
    pub windows: Vec<Rc<Window>>,
}

impl Row {
    /// Whether all that `asked` touches is what was bound.
    pub fn holds(&self, memory: &Memory, asked: AddressRange) -> bool {
        let is = memory.identity(asked);
        is.is_some_and(|is| !is.is_empty() && is.iter().all(|mapping| self.identity.contains(mapping)))
    }

    pub fn window_of(&self, asked: AddressRange) -> Option<&Rc<Window>> {
        self.windows.iter().find(|window| window.range.covers(asked))
    }
}

/// What is to be served after a scan.
#[derive(Debug)]
pub enum Expected {
    /// As it is.
    Same(Row),
    /// Bound afresh.
    Fresh(AddressRange, u32),
    /// The row, grown so far.
    Grown(Row, AddressRange),
}

enum Decision {
    Refuse,
    Keep(u64),
    Grow(u64, AddressRange),
    Rebind(u64, AddressRange),
    Bind(AddressRange),
}

/// A scan, and what it is compared with.
struct Comparison<'a> {
    rows: &'a [Row],
    scan: &'a SegmentScan,
    served: &'a [u32],
    memory: &'a Memory,
}

/// What is served after a scan; with `binds` not set, nothing is bound for it.
pub fn compare(rows: &[Row], scan: &SegmentScan, served: &[u32], memory: &Memory, binds: bool) -> Vec<Expected> {
    Comparison { rows, scan, served, memory }.expected(binds)
}

impl Comparison<'_> {
    fn expected(&self, binds: bool) -> Vec<Expected> {
        let decisions: Vec<_> = (0..self.scan.segments.len()).map(|at| self.decide(at)).collect();
        let mut expected = Vec::new();
        for row in self.rows {
            let key = row.range.base();
            let named = decisions.iter().zip(&self.scan.segments).find(|(decision, segment)| {
                segment.ordinal.0 == row.ordinal
                    && matches!(decision, Decision::Keep(of) | Decision::Grow(of, _) | Decision::Rebind(of, _) if *of == key)
            });
            match named {
                Some((Decision::Grow(_, to), _)) if binds => expected.push(Expected::Grown(row.clone(), *to)),
                Some((Decision::Rebind(_, to), _)) if binds => expected.push(Expected::Fresh(*to, row.ordinal)),
                Some((Decision::Rebind(..), _)) => {}
                Some(_) => expected.push(Expected::Same(row.clone())),
                None if self.goes(row, &decisions) => {}
                None => expected.push(Expected::Same(row.clone())),
            }
        }
        for (decision, segment) in decisions.iter().zip(&self.scan.segments) {
            if let Decision::Bind(range) = decision
                && binds
            {
                expected.push(Expected::Fresh(*range, segment.ordinal.0));
            }
        }
        expected
    }

    fn admitted(&self, segment: &ScannedSegment) -> Option<AddressRange> {
        let range = AddressRange::new(segment.address, segment.size_bytes).ok()?;
        let served = self.served.contains(&segment.ordinal.0) && ChunkLimits::GPU.check(range).is_ok();
        (served && !range.is_empty() && self.scan.covers.all_of(range)).then_some(range)
    }

    fn decide(&self, at: usize) -> Decision {
        let segment = &self.scan.segments[at];
        let Some(range) = self.admitted(segment) else { return Decision::Refuse };
        let earlier = self.scan.segments[..at].iter().filter_map(|earlier| self.admitted(earlier));
        if { earlier }.any(|earlier| earlier.overlaps(range)) {
            return Decision::Refuse;
        }
        let holding = |row: &&Row| row.ordinal == segment.ordinal.0 && row.range.offset_of(range.base()).is_some();
        let Some(row) = self.rows.iter().find(holding) else { return Decision::Bind(range) };
        let key = row.range.base();
        let looked_at = self.scan.covers.part_of(row.range);
        let is_the_row = looked_at.is_none_or(|part| range.covers(part)) && row.holds(self.memory, row.range);
        if is_the_row && row.range.covers(range) {
            return Decision::Keep(key);
        }
        if is_the_row && segment.expandable {
            return Decision::Grow(key, from_to(row.range, range));
        }
        if key == range.base() { Decision::Rebind(key, range) } else { Decision::Bind(range) }
    }

    /// Whether a row that nothing scanned is goes.
    fn goes(&self, row: &Row, decisions: &[Decision]) -> bool {
        if self.scan.covers.part_of(row.range).is_none() {
            return false;
        }
        let (mut mapped, mut displaced) = (false, false);
        for (decision, segment) in decisions.iter().zip(&self.scan.segments) {
            let Ok(range) = AddressRange::new(segment.address, segment.size_bytes) else { continue };
            match decision {
                _ if !range.overlaps(row.range) => {}
                Decision::Refuse => mapped |= segment.ordinal.0 == row.ordinal && range.covers(row.range),
                _ => displaced = true,
            }
        }
        displaced || !mapped || !row.holds(self.memory, row.range)
    }
}

/// From the start of the one to the end of the other, which is higher.
fn from_to(a: AddressRange, b: AddressRange) -> AddressRange {
    range(a.base(), b.base() - a.base() + b.len_bytes())
}
