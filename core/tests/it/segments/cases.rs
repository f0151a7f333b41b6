//! Faults that users of such libraries met, by their ids, and the worked scans: what is decided about them.

use super::device::{Device, Served};
use super::{BASE, M, gpu_limits, range};
use bareverbs_core::segments::{
    ChunkError, ChunkLimits, Covers, Decision, IdentityCheck, LengthSum, LocateError, Located, Ordinal, RebindReason,
    RefuseReason, Row, Scan, ScannedSegment, SegmentKey, SegmentTable, ServedOrdinals, Terms, reconcile,
};

/// The value: the driver's buffer id at binding.
type Table = SegmentTable<u64, 8>;

const GIVEN_0: ServedOrdinals<'_> = ServedOrdinals { given: &[Ordinal(0)], pinned: &[] };

fn bound(rows: &[(u64, u64, u32)]) -> Table {
    let mut table = Table::new();
    for &(base, len_bytes, ordinal) in rows {
        table.insert(Row { range: range(base, len_bytes), ordinal: Ordinal(ordinal), value: 1 }).unwrap();
    }
    table
}

fn seen(address: u64, size_bytes: u64) -> ScannedSegment {
    ScannedSegment { address, size_bytes, ordinal: Ordinal(0), expandable: true }
}

/// Decisions after a scan of everything, where the driver's buffer id is now `id`.
fn decided<'a>(
    table: &'a Table,
    segments: &'a [ScannedSegment],
    served: ServedOrdinals<'a>,
    id: u64,
) -> Vec<Decision<'a>> {
    let scan = Scan { segments, covers: Covers::Everything };
    let ask = move |row: &Row<u64>| if row.value == id { IdentityCheck::Holds } else { IdentityCheck::Changed };
    reconcile(table, scan, Terms { served, limits: ChunkLimits::GPU }, ask).collect()
}

const fn key(base: u64, ordinal: u32) -> SegmentKey {
    SegmentKey { base, ordinal: Ordinal(ordinal) }
}

fn bind(base: u64, len_bytes: u64) -> Decision<'static> {
    Decision::Bind { range: range(base, len_bytes), ordinal: Ordinal(0) }
}

#[test]
fn f2_a_segment_above_one_keys_cap_is_bound_by_two_keys_and_nothing_is_registered_in_vain() {
    let mut device = Device::default();
    let served = Served::bind(&mut device, range(BASE, 161_061_273_600), gpu_limits(30, LengthSum::Bits64)).unwrap();
    served.check(&device);
    assert_eq!(device.registered.len(), 38);
    let entries: Vec<_> = served.keys.iter().map(|key| device.keys[key].len()).collect();
    assert_eq!(entries, [30, 8]);
    let edge = 0x1D_FC40_0000;
    let at = |offset, len_bytes| served.segment.locate(range(BASE + offset, len_bytes));
    assert_eq!(at(edge - 4096, 4096), Ok(Located { window: 0, offset_bytes: edge - 4096, len_bytes: 4096 }));
    assert_eq!(at(edge, 4096), Ok(Located { window: 1, offset_bytes: 0, len_bytes: 4096 }));
    assert!(matches!(at(edge - 1, 2), Err(LocateError::Straddles { window: 0, inside_bytes: 1, .. })));
}

#[test]
fn f2_growth_past_the_cap_opens_the_next_key_and_repeats_cost_nothing() {
    let mut device = Device::default();
    let mut served =
        Served::bind(&mut device, range(BASE, 30 * super::MAX), gpu_limits(30, LengthSum::Bits64)).unwrap();
    let first_key = served.keys[0];
    served.grow(&mut device, range(BASE, 161_061_273_600)).unwrap();
    let calls = (device.registered.len(), device.binds);
    assert_eq!(calls, (38, 2));
    assert_eq!(served.keys[0], first_key, "the full window is not touched");
    for _ in 0..10 {
        served.grow(&mut device, range(BASE, 161_061_273_600)).unwrap();
    }
    assert_eq!((device.registered.len(), device.binds), calls);
}

#[test]
fn f4_both_offsets_resolve_after_growth_too_through_as_many_keys_as_the_provider_needs() {
    for (sum, second) in [(LengthSum::Signed32, (1, M)), (LengthSum::Bits64, (0, 0x8000_0000))] {
        let mut device = Device::default();
        let mut served = Served::bind(&mut device, range(BASE, 1 << 30), gpu_limits(32, sum)).unwrap();
        served.grow(&mut device, range(BASE, 2 << 30)).unwrap();
        served.grow(&mut device, range(BASE, 0x8020_0000)).unwrap();
        served.check(&device);
        let at = |offset| served.segment.locate(range(BASE + offset, 4096)).map(|at| (at.window, at.offset_bytes));
        assert_eq!(at(0x6600_0000), Ok((0, 0x6600_0000)));
        assert_eq!(at(0x8000_0000), Ok(second));
    }
}

#[test]
fn f5_memory_freed_and_allocated_again_at_the_same_address_is_bound_afresh() {
    let table = bound(&[(BASE, M, 0)]);
    let segments = [seen(BASE, M)];
    let reason = RebindReason::IdentityChanged;
    assert_eq!(
        decided(&table, &segments, GIVEN_0, 2),
        [Decision::Rebind { key: key(BASE, 0), to: range(BASE, M), reason }]
    );
    assert_eq!(decided(&table, &segments, GIVEN_0, 1), [Decision::Keep { key: key(BASE, 0) }]);
    // Grown as well: it is not the old segment that grew.
    let grown = [seen(BASE, 2 * M)];
    assert_eq!(
        decided(&table, &grown, GIVEN_0, 2),
        [Decision::Rebind { key: key(BASE, 0), to: range(BASE, 2 * M), reason }]
    );
}

#[test]
fn f5_a_plain_allocation_that_is_longer_than_before_is_another_one() {
    let table = bound(&[(BASE, M, 0)]);
    let segments = [ScannedSegment { expandable: false, ..seen(BASE, 2 * M) }];
    let reason = RebindReason::CannotGrow;
    assert_eq!(
        decided(&table, &segments, GIVEN_0, 1),
        [Decision::Rebind { key: key(BASE, 0), to: range(BASE, 2 * M), reason }]
    );
}

#[test]
fn f6_shrink_is_bound_afresh_at_the_size_that_is_mapped() {
    let table = bound(&[(BASE, 4 * M, 0)]);
    let reason = RebindReason::PartlyGone;
    assert_eq!(
        decided(&table, &[seen(BASE, 2 * M)], GIVEN_0, 1),
        [Decision::Rebind { key: key(BASE, 0), to: range(BASE, 2 * M), reason }]
    );
}

#[test]
fn f6_what_is_left_of_a_lost_head_is_bound_and_the_old_one_dropped() {
    let table = bound(&[(BASE, 4 * M, 0)]);
    let expected = [bind(BASE + M, 3 * M), Decision::Drop { key: key(BASE, 0) }];
    assert_eq!(decided(&table, &[seen(BASE + M, 3 * M)], GIVEN_0, 1), expected);
}

#[test]
fn f6_both_sides_of_a_hole_are_bound_afresh() {
    let table = bound(&[(BASE, 4 * M, 0)]);
    let reason = RebindReason::PartlyGone;
    assert_eq!(
        decided(&table, &[seen(BASE, M), seen(BASE + 3 * M, M)], GIVEN_0, 1),
        [Decision::Rebind { key: key(BASE, 0), to: range(BASE, M), reason }, bind(BASE + 3 * M, M)]
    );
}

#[test]
fn f6_of_overlapping_segments_the_first_scanned_stands_and_the_later_are_refused() {
    let table = bound(&[(BASE, 4 * M, 0)]);
    let segments = [seen(BASE, 4 * M), seen(BASE + M, 8 * M)];
    let refused = Decision::Refuse { segment: segments[1], reason: RefuseReason::Overlap { with: segments[0] } };
    assert_eq!(decided(&table, &segments, GIVEN_0, 1), [Decision::Keep { key: key(BASE, 0) }, refused]);
    assert!(refused_text(refused).starts_with("expected segments that do not overlap"));
}

#[test]
fn f6_of_two_ordinals_at_one_base_the_first_scanned_stands() {
    let table = bound(&[(BASE, M, 1)]);
    let on = |ordinal| ScannedSegment { ordinal: Ordinal(ordinal), ..seen(BASE, M) };
    let served = ServedOrdinals { given: &[Ordinal(0), Ordinal(1)], pinned: &[] };
    let refused = |of: &[ScannedSegment; 2]| (of[1], of[0]);
    for first in [0, 1] {
        let segments = [on(first), on(1 - first)];
        let (segment, with) = refused(&segments);
        let mut expected = vec![
            if first == 1 {
                Decision::Keep { key: key(BASE, 1) }
            } else {
                Decision::Bind { range: range(BASE, M), ordinal: Ordinal(0) }
            },
            Decision::Refuse { segment, reason: RefuseReason::Overlap { with } },
        ];
        if first == 0 {
            expected.push(Decision::Drop { key: key(BASE, 1) });
        }
        assert_eq!(decided(&table, &segments, served, 1), expected);
    }
}

#[test]
fn f6_memory_that_went_over_to_another_device_is_bound_beside_the_old_segment_which_then_goes() {
    let mut table = bound(&[(BASE, M, 1)]);
    let segments = [ScannedSegment { ordinal: Ordinal(0), ..seen(BASE, M) }];
    let served = ServedOrdinals { given: &[Ordinal(0), Ordinal(1)], pinned: &[] };
    let bind = Decision::Bind { range: range(BASE, M), ordinal: Ordinal(0) };
    assert_eq!(decided(&table, &segments, served, 1), [bind, Decision::Drop { key: key(BASE, 1) }]);
    let value = table.rows()[0].value;
    table.insert(Row { range: range(BASE, M), ordinal: Ordinal(0), value }).unwrap();
    assert!(table.remove(key(BASE, 1)).is_some());
}

fn refused_text(decision: Decision<'_>) -> String {
    match decision {
        Decision::Refuse { reason, .. } => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn f6_a_bad_segment_stops_neither_a_good_one_nor_the_pruning() {
    let table = bound(&[(BASE + 100 * M, M, 0)]);
    let segments = [seen(BASE, 3 << 20), seen(BASE + 8 * M, M), seen(u64::MAX, 2), seen(BASE + 20 * M + 1, M)];
    let decisions = decided(&table, &segments, GIVEN_0, 1);
    let length = RefuseReason::Chunk(ChunkError::Length { got_bytes: 3 << 20, alignment_bytes: 2 << 20 });
    assert_eq!(decisions[0], Decision::Refuse { segment: segments[0], reason: length });
    assert_eq!(decisions[1], bind(BASE + 8 * M, M));
    assert!(matches!(decisions[2], Decision::Refuse { reason: RefuseReason::Chunk(ChunkError::Range(_)), .. }));
    assert!(matches!(decisions[3], Decision::Refuse { reason: RefuseReason::Chunk(ChunkError::Base { .. }), .. }));
    assert_eq!(decisions[4..], [Decision::Drop { key: key(BASE + 100 * M, 0) }]);
}

#[test]
fn f6_a_bound_segment_in_one_that_is_seen_at_an_odd_size_stays_while_its_identity_holds() {
    let table = bound(&[(BASE, M, 0)]);
    let segments = [seen(BASE, 3 << 20)];
    assert_eq!(decided(&table, &segments, GIVEN_0, 1).len(), 1);
    assert_eq!(decided(&table, &segments, GIVEN_0, 2)[1..], [Decision::Drop { key: key(BASE, 0) }]);
}

#[test]
fn f7_a_pinned_ordinal_counts_as_served_where_topology_gives_none() {
    let (table, segments) = (Table::new(), [seen(BASE, 20 * M)]);
    let pinned = ServedOrdinals { given: &[], pinned: &[Ordinal(0)] };
    assert_eq!(decided(&table, &segments, pinned, 1), [bind(BASE, 20 * M)]);

    let mut device = Device::default();
    let served = Served::bind(&mut device, range(BASE, 20 * M), gpu_limits(30, LengthSum::Bits64)).unwrap();
    let view = served.segment.locate(range(BASE + (16 << 20), 8 << 20)).unwrap();
    assert_eq!(view, Located { window: 0, offset_bytes: 16 << 20, len_bytes: 8 << 20 });
}

#[test]
fn f7_a_refusal_says_which_ordinals_are_served() {
    let (table, segments) = (Table::new(), [seen(BASE, 20 * M)]);
    let served = ServedOrdinals { given: &[Ordinal(2)], pinned: &[Ordinal(3)] };
    let refused = decided(&table, &segments, served, 1)[0];
    assert_eq!(refused_text(refused), "expected memory of an ordinal that is served (2, 3), got 0");
    let refused = decided(&table, &segments, ServedOrdinals::default(), 1)[0];
    assert_eq!(refused_text(refused), "expected memory of an ordinal that is served (none), got 0");
}

/// Ordinals 0 and 2 are served; a (0), b (1), c (2) are seen; then a has grown, and a2 is new.
#[test]
fn segments_of_served_ordinals_are_bound_and_grown_each_by_itself_in_scan_order() {
    let (a, b, c, a2) = (BASE, 0x12_0000_0000, 0x14_0000_0000, 0x18_0000_0000);
    let served = ServedOrdinals { given: &[Ordinal(0), Ordinal(2)], pinned: &[] };
    let on = |address, size_bytes, ordinal| ScannedSegment { ordinal: Ordinal(ordinal), ..seen(address, size_bytes) };

    let first = [on(a, M, 0), on(b, M, 1), on(c, 2 * M, 2)];
    let table = Table::new();
    let decisions = decided(&table, &first, served, 1);
    assert_eq!(decisions[0], bind(a, M));
    let refused = RefuseReason::NotServed { ordinal: Ordinal(1), served };
    assert_eq!(decisions[1], Decision::Refuse { segment: first[1], reason: refused });
    assert_eq!(decisions[2..], [Decision::Bind { range: range(c, 2 * M), ordinal: Ordinal(2) }]);

    let table = bound(&[(a, M, 0), (c, 2 * M, 2)]);
    let next = [on(a, 3 * M, 0), on(c, 2 * M, 2), on(a2, M, 0)];
    let expected =
        [Decision::Grow { key: key(a, 0), to: range(a, 3 * M) }, Decision::Keep { key: key(c, 2) }, bind(a2, M)];
    assert_eq!(decided(&table, &next, served, 1), expected);

    let mut device = Device::default();
    let mut grown = Served::bind(&mut device, range(a, M), gpu_limits(32, LengthSum::Bits64)).unwrap();
    grown.grow(&mut device, range(a, 3 * M)).unwrap();
    assert_eq!(device.registered[1..], [range(a + M, 2 * M)]);
}

#[test]
fn a_segment_that_a_scan_of_everything_does_not_show_is_dropped() {
    let table = bound(&[(BASE, M, 0), (BASE + 8 * M, M, 0)]);
    let expected = [Decision::Keep { key: key(BASE, 0) }, Decision::Drop { key: key(BASE + 8 * M, 0) }];
    assert_eq!(decided(&table, &[seen(BASE, M)], GIVEN_0, 1), expected);
}

#[test]
fn outside_of_what_a_scan_covers_absence_means_nothing() {
    let table = bound(&[(BASE, M, 0), (BASE + 8 * M, M, 0)]);
    let covers = Covers::Range(range(BASE, M));
    let terms = Terms { served: GIVEN_0, limits: ChunkLimits::GPU };
    let decisions =
        |segments| reconcile(&table, Scan { segments, covers }, terms, |_| IdentityCheck::Holds).collect::<Vec<_>>();
    assert_eq!(decisions(&[]), [Decision::Drop { key: key(BASE, 0) }]);
    let outside = [seen(BASE + 20 * M, M)];
    assert!(matches!(decisions(&outside)[0], Decision::Refuse { reason: RefuseReason::OutsideScan { .. }, .. }));
}

#[test]
fn a_segment_that_fills_the_hole_between_two_takes_the_place_of_both() {
    let table = bound(&[(BASE, M, 0), (BASE + 2 * M, M, 0)]);
    let expected =
        [Decision::Grow { key: key(BASE, 0), to: range(BASE, 3 * M) }, Decision::Drop { key: key(BASE + 2 * M, 0) }];
    assert_eq!(decided(&table, &[seen(BASE, 3 * M)], GIVEN_0, 1), expected);
}
