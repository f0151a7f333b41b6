//! Cutting 1 TiB into parts, and looking up segments, beside the walk over a locked hash map that a table replaces.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{ChunkLimits, Ordinal, Row, SegmentTable, chunks};

/// Length of each segment, bytes.
const SEGMENT_BYTES: u64 = 20 << 20;
/// From one segment to the next, bytes: there are holes between them.
const STRIDE_BYTES: u64 = 32 << 20;
const BASE: u64 = 0x7f00_0000_0000;

/// A table with room for 4096 segments.
pub type Table = SegmentTable<u32, 4096>;

/// 1 TiB of GPU memory.
pub fn tebibyte() -> AddressRange {
    AddressRange::new(0x10_0000_0000, 1 << 40).expect("it is a range")
}

/// `n` times: how many parts the range has.
#[inline(never)]
pub fn part_counts(range: AddressRange, n: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..n {
        sum += chunks(black_box(range), ChunkLimits::GPU).map_or(0, |parts| parts.len() as u64);
    }
    sum
}

/// `n` times: one part of the range, each time another one.
#[inline(never)]
pub fn nth_parts(range: AddressRange, n: u64) -> u64 {
    let mut sum = 0;
    for i in 0..n {
        let part = chunks(black_box(range), ChunkLimits::GPU).ok().and_then(|mut parts| parts.nth(i as usize & 255));
        sum += part.map_or(0, |part| part.address >> 21);
    }
    sum
}

/// `n` times: the parts of the range before the one asked for walked one by one, as a twin.
#[inline(never)]
pub fn walked_parts(range: AddressRange, n: u64) -> u64 {
    let mut sum = 0;
    for i in 0..n {
        let parts = chunks(black_box(range), ChunkLimits::GPU).ok();
        let part = parts.and_then(|parts| parts.into_iter().find(|part| black_box(part.index) == i as u32 & 255));
        sum += part.map_or(0, |part| part.address >> 21);
    }
    sum
}

fn segment(index: u64) -> AddressRange {
    AddressRange::new(BASE + index * STRIDE_BYTES, SEGMENT_BYTES).expect("it is a range")
}

/// A table of `len` segments.
pub fn table(len: usize) -> Box<Table> {
    let mut table = Box::new(Table::new());
    for index in 0..len as u64 {
        let row = Row { range: segment(index), ordinal: Ordinal(0), value: index as u32 };
        table.insert(row).expect("there is room, and they do not overlap");
    }
    table
}

/// A locked hash map of the same segments.
pub fn locked_map(len: usize) -> Mutex<HashMap<u64, (u64, u32)>> {
    let segments = (0..len as u64).map(|index| (segment(index).base(), (SEGMENT_BYTES, index as u32)));
    Mutex::new(segments.collect())
}

/// The `i`-th request among `len` segments: in no order that a cache or a predictor could learn.
#[inline]
fn asked(i: u64, len: usize) -> AddressRange {
    let mixed = (i ^ (i >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let index = mixed & (len as u64 - 1);
    AddressRange::new(BASE + index * STRIDE_BYTES + (mixed & 0xffff) * 64, 4096).unwrap_or(AddressRange::EMPTY)
}

/// `n` look-ups among `len` (a power of two) segments; answers how many were found.
#[inline(never)]
pub fn look_ups(table: &Table, n: u64) -> u64 {
    let len = table.len();
    (0..n).map(|i| u64::from(table.lookup(asked(i, len)).is_some())).sum()
}

/// The requests of [`look_ups`] alone: what making them costs.
#[inline(never)]
pub fn requests(len: usize, n: u64) -> u64 {
    (0..n).map(|i| u64::from(!black_box(asked(i, len)).is_empty())).sum()
}

/// `n` walks over a locked hash map; answers how many found something.
#[inline(never)]
pub fn map_walks(map: &Mutex<HashMap<u64, (u64, u32)>>, n: u64) -> u64 {
    let len = map.lock().unwrap_or_else(PoisonError::into_inner).len();
    let mut sum = 0;
    for i in 0..n {
        let asked = asked(i, len);
        let map = map.lock().unwrap_or_else(PoisonError::into_inner);
        let found = map.iter().find(|&(&base, &(len_bytes, _))| {
            asked.base().checked_sub(base).is_some_and(|offset| offset + asked.len_bytes() <= len_bytes)
        });
        sum += u64::from(found.is_some());
    }
    sum
}
