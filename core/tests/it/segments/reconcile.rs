//! Reconcile against what must come of it: for every small table and scan, and for large ones at random.

use super::range;
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{
    Alignment, ChunkLimits, Covers, Decision, IdentityCheck, Ordinal, RefuseReason, Row, Scan, ScannedSegment,
    SegmentKey, SegmentTable, ServedOrdinals, Terms, reconcile,
};
use proptest::prelude::*;

/// The value says whether the memory is still what was bound.
type Table<const N: usize> = SegmentTable<IdentityCheck, N>;

/// Ordinals 0 and 1 are served, 2 is not; any length can be cut.
const TERMS: Terms<'static> = Terms {
    served: ServedOrdinals { given: &[Ordinal(0)], pinned: &[Ordinal(1)] },
    limits: match Alignment::new(1) {
        Ok(one) => match ChunkLimits::new(one, 4) {
            Ok(limits) => limits,
            Err(_) => panic!("limits"),
        },
        Err(_) => panic!("alignment"),
    },
};

fn ask(row: &Row<IdentityCheck>) -> IdentityCheck {
    row.value
}

fn decisions<'a, const N: usize>(table: &'a Table<N>, scan: Scan<'a>) -> Vec<Decision<'a>> {
    reconcile(table, scan, TERMS, ask).collect()
}

fn seen(address: u64, size_bytes: u64, ordinal: u32, expandable: bool) -> ScannedSegment {
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
    range(address, 1)
}

/// What must hold of any table, any scan.
fn holds<const N: usize>(table: &Table<N>, scan: Scan<'_>, universe: std::ops::RangeInclusive<u64>) {
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

/// All ranges in `0..units`, from `low`.
fn ranges(low: u64, units: u64) -> Vec<AddressRange> {
    (0..units).flat_map(|base| (1..=units - base).map(move |len| range(low + base, len))).collect()
}

fn small_tables<const N: usize>(low: u64, units: u64) -> Vec<Table<N>> {
    let rows: Vec<_> = ranges(low, units)
        .into_iter()
        .flat_map(|range| [0, 1].map(|ordinal| (range, Ordinal(ordinal))))
        .flat_map(|(range, ordinal)| {
            [IdentityCheck::Holds, IdentityCheck::Changed].map(|value| Row { range, ordinal, value })
        })
        .collect();
    let mut tables = vec![Table::new()];
    for (at, &first) in rows.iter().enumerate() {
        let mut one = Table::new();
        one.insert(first).unwrap();
        tables.push(one.clone());
        for &second in &rows[at + 1..] {
            let mut two = one.clone();
            if two.insert(second).is_ok() {
                tables.push(two);
            }
        }
    }
    tables
}

fn small_scans(low: u64, units: u64) -> Vec<Vec<ScannedSegment>> {
    let of = |ordinal, expandable| {
        ranges(low, units).into_iter().map(move |range| seen(range.base(), range.len_bytes(), ordinal, expandable))
    };
    let odd = [seen(low, 0, 0, true), seen(low, u64::MAX, 0, true), seen(low, units, 2, true)];
    let single: Vec<_> = of(0, true).chain(of(0, false)).chain(of(1, true)).chain(odd).collect();
    let pairs = single.iter().flat_map(|first| single.iter().map(|second| vec![*first, *second]));
    pairs.chain(single.iter().map(|only| vec![*only])).chain([vec![]]).collect()
}

#[test]
fn every_small_table_and_scan_is_reconciled_as_it_must_be() {
    // At the top of the address space; a size of u64::MAX goes above it.
    let (low, units) = (u64::MAX - 2, 3);
    let tables = small_tables::<4>(low, units);
    let scans = small_scans(low, units);
    let covers = ranges(low, units).into_iter().map(Covers::Range).chain([Covers::Everything]);
    for covers in covers {
        for segments in &scans {
            for table in &tables {
                holds(table, Scan { segments, covers }, low..=u64::MAX);
            }
        }
    }
}

#[test]
fn a_scan_of_what_is_bound_keeps_all_of_it() {
    let mut table = Table::<4>::new();
    let mut segments = Vec::new();
    for base in [4, 0, 10] {
        table.insert(Row { range: range(base, 3), ordinal: Ordinal(0), value: IdentityCheck::Holds }).unwrap();
        segments.push(seen(base, 3, 0, true));
    }
    let keys = [4, 0, 10].map(|base| Decision::Keep { key: SegmentKey { base, ordinal: Ordinal(0) } });
    assert_eq!(decisions(&table, Scan { segments: &segments, covers: Covers::Everything }), keys);
    assert_eq!(decisions(&table, Scan { segments: &[], covers: Covers::Range(range(7, 3)) }), []);
}

#[test]
fn a_walk_that_stopped_half_way_takes_nothing_from_the_segment_it_walked() {
    let mut table = Table::<4>::new();
    table.insert(Row { range: range(0, 8), ordinal: Ordinal(0), value: IdentityCheck::Holds }).unwrap();
    let key = SegmentKey { base: 0, ordinal: Ordinal(0) };
    let walked = |segment: ScannedSegment| {
        let covers = Covers::Range(segment.range().unwrap());
        let segments = [segment];
        let decided = reconcile(&table, Scan { segments: &segments, covers }, TERMS, ask);
        // Of the decisions, none names the scan's storage.
        decided.map(|decision| format!("{decision:?}")).collect::<Vec<_>>()
    };
    assert_eq!(walked(seen(2, 3, 0, true)), [format!("{:?}", Decision::Keep { key })]);
    assert_eq!(walked(seen(6, 4, 0, true)), [format!("{:?}", Decision::Grow { key, to: range(0, 10) })]);
}

#[test]
fn a_full_table_takes_a_segment_for_each_that_goes() {
    let mut table = Table::<2>::new();
    for base in [0, 4] {
        table.insert(Row { range: range(base, 2), ordinal: Ordinal(0), value: IdentityCheck::Holds }).unwrap();
    }
    let segments = [seen(0, 2, 0, true), seen(8, 2, 0, true), seen(12, 2, 0, true)];
    let decided = decisions(&table, Scan { segments: &segments, covers: Covers::Everything });
    assert_eq!(decided[1], Decision::Bind { range: range(8, 2), ordinal: Ordinal(0) });
    assert_eq!(decided[2], Decision::Refuse { segment: segments[2], reason: RefuseReason::TableFull { capacity: 2 } });
    assert_eq!(decided[3], Decision::Drop { key: SegmentKey { base: 4, ordinal: Ordinal(0) } });
    holds(&table, Scan { segments: &segments, covers: Covers::Everything }, 0..=16);
}

fn any_scan() -> impl Strategy<Value = Vec<ScannedSegment>> {
    let segment = (0..120u64, prop_oneof![9 => 1..16u64, 1 => Just(0), 1 => Just(u64::MAX)], 0..3u32, any::<bool>());
    prop::collection::vec(
        segment.prop_map(|(address, size, ordinal, expands)| seen(address, size, ordinal, expands)),
        0..24,
    )
}

proptest! {
    #[test]
    fn any_table_and_scan_are_reconciled_as_they_must_be(
        rows in prop::collection::vec((0..120u64, 1..16u64, 0..2u32, prop::bool::weighted(0.8)), 0..30),
        mut segments in any_scan(), sorted: bool, covered in prop::option::of((0..120u64, 0..60u64)), from_rows: bool,
    ) {
        let mut table = Table::<16>::new();
        for (base, len, ordinal, same) in rows {
            let value = if same { IdentityCheck::Holds } else { IdentityCheck::Changed };
            let _ = table.insert(Row { range: range(base, len), ordinal: Ordinal(ordinal), value });
        }
        if from_rows {
            // What is bound, some of it grown or shrunk a little: what scans mostly show.
            segments = table.rows().iter().enumerate().map(|(at, row)| {
                seen(row.range.base(), (row.range.len_bytes() + at as u64 % 3).max(2) - 1, row.ordinal.0, at % 5 != 0)
            }).collect();
        }
        if sorted {
            segments.sort_by_key(|segment| segment.address);
        }
        let covers = covered.map_or(Covers::Everything, |(base, len)| Covers::Range(range(base, len)));
        holds(&table, Scan { segments: &segments, covers }, 0..=150);
    }
}
