//! Cutting 1 TiB into parts, and looking up segments, beside the walk over a locked hash map that a table replaces.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{ChunkLimits, Ordinal, Row, SegmentTable, chunks};

const MIB: u64 = 1 << 20;
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

/// How segments lie in the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// 20 MiB every 32 MiB.
    Evenly,
    /// 2 MiB to 256 MiB in no order, as an allocator makes them, a hole after every fourth.
    Mixed,
    /// The same, one half of them 2^46 bytes above the other.
    FarApart,
}

/// `len` segments, by address.
pub fn segments(lie: Lie, len: usize) -> Vec<AddressRange> {
    let (mut base, mut numbers) = (BASE, Numbers::default());
    let mut segments = Vec::with_capacity(len);
    for index in 0..len {
        let (len_bytes, hole_bytes) = match lie {
            Lie::Evenly => (20 * MIB, 12 * MIB),
            _ => {
                let mib = [2, 20, 20, 20, 32, 64, 256, 2][numbers.below(8) as usize];
                (mib * MIB, if numbers.below(4) == 0 { 2 * MIB } else { 0 })
            }
        };
        if lie == Lie::FarApart && index == len / 2 {
            base += 1 << 46;
        }
        segments.push(AddressRange::new(base, len_bytes).expect("it is a range"));
        base += len_bytes + hole_bytes;
    }
    segments
}

/// Numbers in no order that a cache or a predictor could learn, the same ones each time.
#[derive(Debug)]
struct Numbers(u64);

impl Default for Numbers {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }
}

/// Requests of 4 KiB, each within one of some segments.
pub const REQUESTS: usize = 8192;

/// [`REQUESTS`] requests, made beforehand.
pub fn requests(segments: &[AddressRange]) -> Box<[AddressRange; REQUESTS]> {
    let mut numbers = Numbers::default();
    let request = |_| {
        let segment = segments[numbers.below(segments.len() as u64) as usize];
        let page = numbers.below(segment.len_bytes() / 4096);
        AddressRange::new(segment.base() + page * 4096, 4096).expect("it is within the segment")
    };
    let requests: Box<[AddressRange]> = (0..REQUESTS).map(request).collect();
    requests.try_into().expect("so many were made")
}

/// A table of these segments.
pub fn table(segments: &[AddressRange]) -> Box<Table> {
    let mut table = Box::new(Table::new());
    for (value, &range) in (0..).zip(segments) {
        table.insert(Row { range, ordinal: Ordinal(0), value }).expect("there is room, and they do not overlap");
    }
    table
}

/// A locked hash map of these segments.
pub fn locked_map(segments: &[AddressRange]) -> Mutex<HashMap<u64, (u64, u32)>> {
    Mutex::new((0..).zip(segments).map(|(value, range)| (range.base(), (range.len_bytes(), value))).collect())
}

/// `n` look-ups; answers how many were found.
#[inline(never)]
pub fn look_ups(table: &Table, requests: &[AddressRange; REQUESTS], n: u64) -> u64 {
    (0..n).map(|i| u64::from(table.lookup(requests[i as usize % REQUESTS]).is_some())).sum()
}

/// `n` walks over a locked hash map; answers how many found something.
#[inline(never)]
pub fn map_walks(map: &Mutex<HashMap<u64, (u64, u32)>>, requests: &[AddressRange; REQUESTS], n: u64) -> u64 {
    let mut sum = 0;
    for i in 0..n {
        let asked = requests[i as usize % REQUESTS];
        let map = map.lock().unwrap_or_else(PoisonError::into_inner);
        let found = map.iter().find(|&(&base, &(len_bytes, _))| {
            asked.base().checked_sub(base).is_some_and(|offset| offset + asked.len_bytes() <= len_bytes)
        });
        sum += u64::from(found.is_some());
    }
    sum
}
