//! What must come of reconciling any table with any scan: each rule in its obvious form.

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{
    Alignment, ChunkLimits, Covers, Decision, IdentityCheck, Ordinal, RefuseReason, Row, Scan, ScannedSegment,
    SegmentKey, SegmentTable, ServedOrdinals, Terms, reconcile,
};

/// The value says whether the memory is still what was bound.
pub type Table<const N: usize> = SegmentTable<IdentityCheck, N>;

/// Ordinals 0 and 1 are served, 2 is not; any length can be cut.
pub const TERMS: Terms<'static> = Terms {
    served: ServedOrdinals { given: &[Ordinal(0)], pinned: &[Ordinal(1)] },
    limits: match Alignment::new(1) {
        Ok(one) => match ChunkLimits::new(one, 4) {
            Ok(limits) => limits,
            Err(_) => panic!("limits"),
        },
        Err(_) => panic!("alignment"),
    },
};

pub fn ask(row: &Row<IdentityCheck>) -> IdentityCheck {
    row.value
}

pub fn decisions<'a, const N: usize>(table: &'a Table<N>, scan: Scan<'a>) -> Vec<Decision<'a>> {
    reconcile(table, scan, TERMS, ask).collect()
}

pub fn seen(address: u64, size_bytes: u64, ordinal: u32, expandable: bool) -> ScannedSegment {
    ScannedSegment { address, size_bytes, ordinal: Ordinal(ordinal), expandable }
}

/// Carries decisions out as the documentation says: those in the way go, the newest stands.
fn apply<const N: usize>(table: &mut Table<N>, decisions: &[Decision<'_>]) {
    let place = |table: &mut Table<N>, range, ordinal| {
        while table.take_overlapping(range, ordinal).is_some() {}
        table.insert(Row { range, ordinal, value: IdentityCheck::Holds }).unwrap();
    };
    for decision in decisions {
        match *decision {
            Decision::Bind { range, ordinal } => place(table, range, ordinal),
            Decision::Rebind { key, to, .. } => {
                table.remove(key);
                place(table, to, key.ordinal);
            }
            Decision::Grow { key, to } => {
                let row = table.remove(key).expect("what grows is bound");
                place(table, to, key.ordinal);
                assert_eq!(row.value, IdentityCheck::Holds);
            }
            Decision::Keep { key } => {
                assert_eq!(table.row(key).expect("what is kept is bound").value, IdentityCheck::Holds)
            }
            Decision::Drop { key } => drop(table.remove(key)),
            Decision::Refuse { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Why a segment must be refused, the table's room apart: each rule in its obvious form.
fn must_refuse(scan: Scan<'_>, index: usize) -> bool {
    let end = |segment: &ScannedSegment| u128::from(segment.address) + u128::from(segment.size_bytes);
    let admitted = |segment: &ScannedSegment| {
        let looked_at = match scan.covers {
            Covers::Everything => true,
            Covers::Range(covered) => {
                let top = u128::from(covered.base()) + u128::from(covered.len_bytes());
                covered.base() <= segment.address && end(segment) <= top
            }
        };
        // Regions of at most 4 bytes, and no more of them than 32 bits count.
        let countable = segment.size_bytes.div_ceil(4) <= u64::from(u32::MAX);
        segment.size_bytes > 0 && countable && end(segment) <= 1 << 64 && segment.ordinal < Ordinal(2) && looked_at
    };
    let this = &scan.segments[index];
    let overlapped = scan.segments[..index]
        .iter()
        .filter(|earlier| admitted(earlier))
        .any(|earlier| u128::from(earlier.address) < end(this) && u128::from(this.address) < end(earlier));
    !admitted(this) || overlapped
}

fn point(address: u64) -> AddressRange {
    AddressRange::new(address, 1).unwrap()
}

/// What must hold of any table, any scan.
pub fn holds<const N: usize>(table: &Table<N>, scan: Scan<'_>, universe: std::ops::RangeInclusive<u64>) {
    let decided = decisions(table, scan);
    let context = || format!("{:?}\n{scan:?}\n{decided:?}", table.rows());
    let (of_segments, drops) = decided.split_at(scan.segments.len());
    let dropped: Vec<SegmentKey> = drops
        .iter()
        .map(|decision| match decision {
            Decision::Drop { key } => *key,
            other => panic!("{other:?} after the scanned segments"),
        })
        .collect();
    assert!(dropped.is_sorted_by(|a, b| a < b), "each once: {}", context());
    assert!(!of_segments.iter().any(|decision| matches!(decision, Decision::Drop { .. })));
    let full =
        |decision: &Decision<'_>| matches!(decision, Decision::Refuse { reason: RefuseReason::TableFull { .. }, .. });
    for (index, decision) in of_segments.iter().enumerate() {
        let refused = matches!(decision, Decision::Refuse { .. }) && !full(decision);
        assert_eq!(refused, must_refuse(scan, index), "segment {index} of {}", context());
    }
    let ahead: Vec<SegmentKey> = reconcile(table, scan, TERMS, ask).drops().collect();
    assert_eq!(ahead, dropped);

    // Drops first, as a table that is full needs it; and in the order in which they come, which must fit otherwise.
    let mut after = table.clone();
    apply(&mut after, drops);
    apply(&mut after, of_segments);
    if table.len() + scan.segments.len() <= N {
        assert!(!of_segments.iter().any(full));
        let mut in_order = table.clone();
        apply(&mut in_order, &decided);
        assert_eq!(in_order.rows(), after.rows(), "{}", context());
    } else if of_segments.iter().any(full) {
        assert_eq!(after.len(), N, "refused though there was room: {}", context());
    }

    for (segment, decision) in scan.segments.iter().zip(of_segments) {
        if !matches!(decision, Decision::Refuse { .. }) {
            let rows: Vec<_> = after.covering(segment.range().unwrap()).collect();
            assert!(
                matches!(rows[..], [row] if row.ordinal == segment.ordinal && row.value == IdentityCheck::Holds),
                "{}",
                context()
            );
        }
        if let Decision::Grow { .. } = decision {
            assert!(segment.expandable);
        }
    }
    for address in universe {
        let looked_at = scan.covers.all_of(point(address));
        let mapped =
            scan.segments.iter().any(|segment| segment.range().is_ok_and(|range| range.covers(point(address))));
        let served = after.lookup(point(address)).is_some();
        assert!(!(looked_at && !mapped && served), "{address} is served though it is gone: {}", context());
    }
    for row in table.rows() {
        if scan.covers.part_of(row.range).is_none() {
            assert!(after.covering(row.range).any(|now| now.ordinal == row.ordinal), "not looked at: {}", context());
        } else if row.value == IdentityCheck::Changed {
            assert!(
                after.rows().iter().all(|now| now.value == IdentityCheck::Holds || now.key() != row.key()),
                "{}",
                context()
            );
        }
    }
}
