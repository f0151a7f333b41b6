//! Segments of a GPU's memory, whose addresses have 64 bits on this machine of 32, too.

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{
    BoundSegment, ChunkLimits, Covers, Decision, EntryCap, IdentityCheck, InsertError, LengthSum, LocateError, Ordinal,
    Row, Scan, ScannedSegment, SegmentKey, SegmentTable, ServedOrdinals, Terms, WindowLimits, chunks, reconcile,
    windows,
};

use crate::Check;

pub const CHECKS: &[Check] = &[
    ("150 GiB are cut into 38 regions in two windows", cut),
    ("a segment grows: what is new is registered, what was is kept", grow),
    ("an address is found in the table", look_up),
    ("a scan says what to bind, grow, keep and drop", scan),
];

const PAGE: u64 = 2 << 20;
const BASE: u64 = 0x10_0000_0000;

fn range(base: u64, len_bytes: u64) -> AddressRange {
    AddressRange::new(base, len_bytes).expect("within 64 bits")
}

fn limits() -> WindowLimits {
    WindowLimits::new(ChunkLimits::GPU, EntryCap::new(30).expect("a cap"), LengthSum::Bits64).expect("limits")
}

fn cut() {
    let segment = range(BASE, 150 << 30);
    assert_eq!(chunks(segment, ChunkLimits::GPU).map(|parts| parts.part_count()), Ok(38));
    let planned = windows(segment, limits()).expect("windows");
    assert!(planned.clone().map(|window| window.parts().len()).eq([30, 8]));
    let second = planned.locate(range(BASE + 0x1D_FC40_0000, 4096)).expect("in the second window");
    assert_eq!((second.window, second.offset_bytes), (1, 0));
    let straddling = planned.locate(range(BASE + 0x1D_FC3F_F000, 8192));
    assert!(matches!(straddling, Err(LocateError::Straddles { window: 0, inside_bytes: 4096, .. })));
}

fn grow() {
    type Segment = BoundSegment<u32, 2, 16>;
    let plan = Segment::plan_bind(range(BASE, 4 * PAGE), limits()).expect("room");
    assert!(plan.to_register().eq([range(BASE, 4 * PAGE)]));
    let mut segment = Segment::new(plan, Ordinal(0), 1);
    let plan = segment.plan_growth(range(BASE, 6 * PAGE)).expect("room").expect("something to do");
    assert!(plan.to_register().eq([range(BASE + 4 * PAGE, 2 * PAGE)]));
    segment.grow(plan, 2).expect("this segment's plan");
    assert_eq!((segment.range(), segment.part_count()), (range(BASE, 6 * PAGE), 2));
}

fn table() -> SegmentTable<u32, 4> {
    let mut table = SegmentTable::new();
    for (at, value) in [(0, 907), (8, 908)] {
        table.insert(Row { range: range(BASE + at * PAGE, 4 * PAGE), ordinal: Ordinal(0), value }).expect("room");
    }
    table
}

fn look_up() {
    let mut table = table();
    let found = |asked: AddressRange, table: &SegmentTable<u32, 4>| table.lookup(asked).map(|row| row.value);
    assert_eq!(found(range(BASE + 9 * PAGE, 64), &table), Some(908));
    assert_eq!(found(range(BASE + 4 * PAGE, 64), &table), None);
    assert_eq!(found(range(BASE + 4 * PAGE - 64, 128), &table), None, "half of it lies outside");
    let again = Row { range: range(BASE, PAGE), ordinal: Ordinal(0), value: 1 };
    assert!(matches!(table.insert(again), Err(InsertError::Overlap { .. })));
}

fn scan() {
    let table = table();
    let seen = |at, pages| ScannedSegment {
        address: BASE + at * PAGE,
        size_bytes: pages * PAGE,
        ordinal: Ordinal(0),
        expandable: true,
    };
    let segments = [seen(0, 6), seen(20, 1)];
    let scan = Scan { segments: &segments, covers: Covers::Everything };
    let terms = Terms { served: ServedOrdinals { given: &[Ordinal(0)], pinned: &[] }, limits: ChunkLimits::GPU };
    let key = |at| SegmentKey { base: BASE + at * PAGE, ordinal: Ordinal(0) };
    let expected = [
        Decision::Grow { key: key(0), to: range(BASE, 6 * PAGE) },
        Decision::Bind { range: range(BASE + 20 * PAGE, PAGE), ordinal: Ordinal(0) },
        Decision::Drop { key: key(8) },
    ];
    assert!(reconcile(&table, scan, terms, |_| IdentityCheck::Holds).eq(expected));
}
