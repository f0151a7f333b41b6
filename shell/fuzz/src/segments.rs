//! Chunks, windows, growth and reconciling, beside the slow twins of core's own tests.

#[path = "../../../core/tests/twins/chunks.rs"]
mod chunks_twin;
#[allow(dead_code, reason = "core's tests ask more of it")]
#[path = "../../../core/tests/it/segments/device.rs"]
mod device;
#[path = "../../../core/tests/twins/growth.rs"]
mod growth_twin;
#[allow(dead_code, reason = "core's tests ask more of it")]
#[path = "../../../core/tests/twins/reconcile.rs"]
mod reconcile_twin;
#[path = "../../../core/tests/twins/windows.rs"]
mod windows_twin;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{
    self, Alignment, ChunkError, ChunkLimits, Covers, EntryCap, IdentityCheck, LengthSum, LimitsError, Ordinal,
    PlanError, Row, Scan, WindowLimits,
};

use crate::reader::Reader;
use device::{Device, Segment, Served};
use growth_twin::Twin;
use reconcile_twin::{Table, holds, seen};

/// More parts than this are not compared one by one.
const MOST_PARTS: u64 = 2000;
/// Parts of the segments that are grown.
const MOST_SEGMENT_PARTS: usize = 640;

/// Any range under any limits is refused for the first thing that is wrong, or cut as the twin cuts it.
///
/// Bytes: the alignment's power; the longest part, base, length and an offset, in units of the alignment, or odd.
pub fn chunks(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let alignment_bytes = 1 << reader.below(32);
    let unit = u64::from(alignment_bytes);
    let mut number = || {
        let (units, odd) = (reader.address(), reader.below(16) == 0);
        units.wrapping_mul(unit).wrapping_add(if odd { reader.address() } else { 0 })
    };
    let (max_bytes, base, len_bytes, offset) = (number(), number(), number(), number());
    let made = ChunkLimits::new(Alignment::new(alignment_bytes).unwrap(), max_bytes);
    let expected = [
        (max_bytes < unit, LimitsError::MaxBelowAlignment { got_bytes: max_bytes, alignment_bytes }),
        (max_bytes > u64::from(u32::MAX), LimitsError::MaxTooLong { got_bytes: max_bytes }),
        (max_bytes % unit != 0, LimitsError::MaxUnaligned { got_bytes: max_bytes, alignment_bytes }),
    ];
    let wrong: Vec<_> = expected.into_iter().filter_map(|(wrong, error)| wrong.then_some(error)).collect();
    let limits = match made {
        Ok(limits) => limits,
        // Of several reasons one is told.
        Err(error) => return assert!(wrong.contains(&error), "{error:?} for {max_bytes} by {unit}"),
    };
    assert_eq!(wrong, []);
    let Ok(range) = AddressRange::new(base, len_bytes) else {
        return assert!(u128::from(base) + u128::from(len_bytes) > 1 << 64);
    };
    let count = len_bytes.div_ceil(max_bytes);
    let expected = [
        (base % unit != 0, ChunkError::Base { got: base, alignment_bytes }),
        (len_bytes % unit != 0, ChunkError::Length { got_bytes: len_bytes, alignment_bytes }),
        (count > u64::from(u32::MAX), ChunkError::Count { got: count }),
    ];
    let wrong = expected.into_iter().find_map(|(wrong, error)| wrong.then_some(error));
    let cut = segments::chunks(range, limits);
    assert_eq!(cut.clone().err(), wrong);
    let Ok(cut) = cut else { return };
    assert_eq!(u64::from(cut.part_count()), count);
    for offset in [offset, 0, len_bytes.wrapping_sub(1), len_bytes, len_bytes.wrapping_add(1)] {
        let holding = cut.part_holding(offset).map(|part| part.index);
        assert_eq!(holding, (offset < len_bytes).then(|| (offset / max_bytes) as u32));
    }
    if count <= MOST_PARTS {
        let parts: Vec<_> = cut.map(|part| (part.address, u64::from(part.len_bytes))).collect();
        assert_eq!(parts, chunks_twin::parts(base, len_bytes, max_bytes));
    } else {
        assert_eq!(cut.last().and_then(|part| part.range().last()), range.last());
    }
}

/// Window limits, in units of 2 MiB or of one byte, on a current or an old provider; and the unit.
fn window_limits(reader: &mut Reader<'_>) -> Option<(WindowLimits, u64)> {
    let (alignment, sum) = match reader.below(4) {
        0 => (Alignment::GPU_PAGE, LengthSum::Bits64),
        1 => (Alignment::GPU_PAGE, LengthSum::Signed32),
        _ => (Alignment::new(1).unwrap(), LengthSum::Bits64),
    };
    let unit = u64::from(alignment.bytes());
    let max_units = if unit > 1 { u64::from(reader.u16()) % 2047 + 1 } else { reader.below(60) + 1 };
    let chunk = ChunkLimits::new(alignment, max_units * unit).unwrap();
    let cap = EntryCap::new(reader.below(48) as u16 + 1).unwrap();
    Some((WindowLimits::new(chunk, cap, sum).ok()?, unit))
}

/// Any range under any limits lies in windows as the twin lays it, unit by unit, and any request is found where it lies.
///
/// Bytes: limits, length, whether at the top of the address space, and requests.
pub fn windows(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Some((limits, unit)) = window_limits(&mut reader) else { return };
    let units = u64::from(reader.u16()) % 3000;
    let base = if reader.flag() { 0u64.wrapping_sub(units * unit) } else { reader.below(200) * unit };
    let range = AddressRange::new(base, units * unit).unwrap();
    let planned = segments::windows(range, limits).unwrap();
    let max = u64::from(limits.chunk().max_bytes()).min(limits.window_bytes()) / unit;
    let places = windows_twin::places(units, max, limits.cap().entries().into(), limits.window_bytes() / unit);
    let mut laid = Vec::new();
    for window in planned.clone() {
        assert!(window.parts().len() <= usize::from(limits.cap().entries()));
        for part in window.parts() {
            laid.extend((0..u64::from(part.len_bytes) / unit).map(|_| (window.index, part.index)));
        }
    }
    assert_eq!(laid, places);
    assert_eq!(planned.part_count() as usize, planned.clone().map(|window| window.parts().len()).sum());
    while !reader.is_empty() {
        let (from, len) = (u64::from(reader.u16()) % (units + 2), u64::from(reader.u16()) % (units + 2) + 1);
        let asked = AddressRange::new(base.wrapping_add(from * unit), len * unit);
        let Ok(asked) = asked else { continue };
        let mut windows: Vec<u32> =
            places.get(from as usize..(from + len) as usize).unwrap_or_default().iter().map(|place| place.0).collect();
        windows.dedup();
        let pieces = planned.split(asked).map(|pieces| pieces.map(|piece| piece.window).collect::<Vec<_>>());
        assert_eq!(pieces.unwrap_or_default(), windows);
        assert_eq!(planned.locate(asked).ok().map(|at| at.window), (windows.len() == 1).then(|| windows[0]));
    }
}

/// A segment bound and grown in any steps has the twin's parts after each, its device holds what it must and no more, and a
/// step that there is no room for leaves it as it was.
///
/// Bytes: limits, whether at the top, and steps.
pub fn growth(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Some((limits, unit)) = window_limits(&mut reader) else { return };
    let at_top = reader.flag();
    let mut steps: Vec<u64> = Vec::new();
    while !reader.is_empty() && steps.len() < 60 {
        let step = match reader.below(8) {
            0 => u64::from(reader.u16()),
            1 => reader.below(256) * 16,
            _ => reader.below(40),
        };
        steps.push((step + 1) * unit);
    }
    let Some((&first, steps)) = steps.split_first() else { return };
    let total = first + steps.iter().sum::<u64>();
    let base = if at_top { 0u64.wrapping_sub(total) } else { 0x10_0000_0000 };
    let bound = AddressRange::new(base, first).unwrap();
    if let Err(error) = Segment::plan_bind(bound, limits) {
        return assert!(
            matches!(error, PlanError::Windows { room: 64 } | PlanError::Parts { room: MOST_SEGMENT_PARTS }),
            "{error:?}"
        );
    }
    let (mut device, mut twin) = (Device::default(), Twin::new(limits));
    let mut served = Served::bind(&mut device, bound, limits).unwrap();
    twin.grow(first);
    let (mut len_bytes, mut has_room) = (first, true);
    for &step in steps {
        let to = AddressRange::new(base, len_bytes + step).unwrap();
        let before = served.segment.clone();
        if let Err(error) = served.segment.plan_growth(to) {
            assert!(matches!(error, PlanError::Windows { .. } | PlanError::Parts { .. }), "{error:?}");
            assert_eq!(served.segment, before);
            served.check(&device);
            return;
        }
        served.grow(&mut device, to).unwrap();
        served.check(&device);
        // A segment that is short of room for parts merges before its keys are short of entries: the twin has no such end.
        let parts_before = twin.windows().map_or(0, |windows| windows.iter().map(Vec::len).sum());
        let added = (step / u64::from(limits.chunk().max_bytes())) as usize + 2;
        has_room &= parts_before + added <= MOST_SEGMENT_PARTS;
        twin.grow(step);
        len_bytes += step;
        if let (true, Some(windows)) = (has_room, twin.windows()) {
            let segment = &served.segment;
            let parts: Vec<Vec<u64>> = (0..segment.window_count())
                .map(|window| segment.parts(window).map(|part| part.len_bytes()).collect())
                .collect();
            assert_eq!(parts, windows);
        }
    }
}

/// Any table and any scan are reconciled as they must be.
///
/// Bytes: how many rows and what each is, what the scan covers, and the segments that it shows.
pub fn reconcile(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let mut table = Table::<16>::new();
    for _ in 0..reader.below(20) {
        let (base, len_bytes, what) = (reader.address(), reader.address() & 0xff, reader.byte());
        let Ok(range) = AddressRange::new(base, len_bytes) else { continue };
        let value = if what & 6 == 0 { IdentityCheck::Changed } else { IdentityCheck::Holds };
        // A table takes no rows that overlap or are empty: what it holds is what counts.
        let _ = table.insert(Row { range, ordinal: Ordinal(u32::from(what & 1)), value });
    }
    // As scans mostly are.
    let sorted = reader.flag();
    let covers = match reader.below(3) {
        0 => AddressRange::new(reader.address(), reader.address()).map_or(Covers::Everything, Covers::Range),
        _ => Covers::Everything,
    };
    let mut segments = Vec::new();
    while !reader.is_empty() && segments.len() < 24 {
        let what = reader.byte();
        let (ordinal, expandable) = (u32::from(what & 3), what & 4 != 0);
        // What is bound, some of it grown or shrunk: what scans mostly show.
        let row = table.rows().get(usize::from(what >> 3) % 20).copied();
        let (address, size_bytes) = match row {
            Some(row) => (row.range.base(), row.range.len_bytes().wrapping_add(reader.below(5)).wrapping_sub(2)),
            None => (reader.address(), reader.address()),
        };
        segments.push(seen(address, size_bytes, ordinal, expandable));
    }
    if sorted {
        segments.sort_by_key(|segment| segment.address);
    }
    let scan = Scan { segments: &segments, covers };
    holds(&table, scan, 0..=255);
    holds(&table, scan, u64::MAX - 255..=u64::MAX);
}
