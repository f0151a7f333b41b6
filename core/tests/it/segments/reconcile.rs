//! Reconcile against what must come of it: for every small table and scan, and for large ones at random.

#[path = "../../twins/reconcile.rs"]
mod twin;

use super::range;
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{
    Covers, Decision, IdentityCheck, Ordinal, RefuseReason, Row, Scan, ScannedSegment, SegmentKey, reconcile,
};
use proptest::prelude::*;
use twin::{TERMS, Table, ask, decisions, holds, seen};

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
