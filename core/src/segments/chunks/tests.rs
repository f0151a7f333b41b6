#[path = "../../../tests/twins/chunks.rs"]
mod twins;

use super::*;
use crate::range::AddressRange;
use crate::segments::{Alignment, GPU_PAGE_BYTES, LimitsError, MAX_ENTRY_BYTES};
use proptest::prelude::*;
use std::format;
use std::string::ToString;
use std::vec::Vec;

fn limits(alignment: u32, max_bytes: u64) -> ChunkLimits {
    ChunkLimits::new(Alignment::new(alignment).unwrap(), max_bytes).unwrap()
}

fn agrees_with_twin(range: AddressRange, limits: ChunkLimits) {
    let expected = twins::parts(range.base(), range.len_bytes(), u64::from(limits.max_bytes()));
    let parts = chunks(range, limits).unwrap();
    assert_eq!(parts.part_count() as usize, expected.len());
    assert_eq!(parts.len(), expected.len());
    assert_eq!(parts.clone().count(), expected.len());
    let seen: Vec<_> = parts.clone().map(|part| (part.address, u64::from(part.len_bytes))).collect();
    assert_eq!(seen, expected);
    let mut backwards: Vec<_> = parts.clone().rev().map(|part| (part.address, u64::from(part.len_bytes))).collect();
    backwards.reverse();
    assert_eq!(backwards, expected);
    for index in 0..=expected.len() {
        let nth = parts.part(index as u32);
        assert_eq!(nth.map(|part| (part.address, u64::from(part.len_bytes))), expected.get(index).copied());
        assert_eq!(parts.clone().nth(index), nth);
        assert_eq!(parts.clone().skip(index).len(), expected.len() - index);
    }
    assert_eq!(parts.clone().last(), expected.len().checked_sub(1).and_then(|last| parts.part(last as u32)));
}

#[test]
fn small_ranges_are_cut_as_the_twin_cuts_them() {
    for (alignment, max_bytes) in [(1, 1), (1, 2), (1, 3), (1, 7), (2, 2), (2, 6), (4, 12)] {
        let limits = limits(alignment, max_bytes);
        for len_bytes in (0..40).step_by(alignment as usize) {
            let top = 0u64.wrapping_sub(len_bytes);
            for base in [0, u64::from(alignment), 1 << 40, top] {
                agrees_with_twin(AddressRange::new(base, len_bytes).unwrap(), limits);
            }
        }
    }
}

#[test]
fn the_part_that_holds_an_offset_is_the_one_that_the_twin_finds() {
    for max_bytes in 1..6u64 {
        for len_bytes in 0..24 {
            let base = 0u64.wrapping_sub(len_bytes);
            let parts = chunks(AddressRange::new(base, len_bytes).unwrap(), limits(1, max_bytes)).unwrap();
            for offset_bytes in (0..len_bytes + 3).chain([u64::MAX]) {
                let found = parts.part_holding(offset_bytes);
                let expected = parts.clone().find(|part| {
                    base.checked_add(offset_bytes).is_some_and(|address| part.range().offset_of(address).is_some())
                });
                assert_eq!(found, if offset_bytes < len_bytes { expected } else { None });
                assert_eq!(found.is_some(), offset_bytes < len_bytes);
            }
        }
    }
}

#[test]
fn a_length_at_a_multiple_of_the_maximum_has_no_short_last_part() {
    let max = u64::from(MAX_ENTRY_BYTES);
    let page = u64::from(GPU_PAGE_BYTES);
    assert_eq!(max, 4_292_870_144);
    for (len_bytes, count, last) in [
        (max - page, 1, max - page),
        (max, 1, max),
        (max + page, 2, page),
        (2 * max - page, 2, max - page),
        (2 * max, 2, max),
        (2 * max + page, 3, page),
    ] {
        let parts = chunks(AddressRange::new(0x10_0000_0000, len_bytes).unwrap(), ChunkLimits::GPU).unwrap();
        assert_eq!((parts.len(), parts.last().map(|part| u64::from(part.len_bytes))), (count, Some(last)));
    }
}

#[test]
fn length_0_gives_no_parts() {
    let mut parts = chunks(AddressRange::new(1 << 40, 0).unwrap(), ChunkLimits::GPU).unwrap();
    assert_eq!((parts.len(), parts.part_count(), parts.part(0), parts.part_holding(0)), (0, 0, None, None));
    assert_eq!((parts.next(), parts.next_back(), parts.next()), (None, None, None));
}

#[test]
fn a_skip_beyond_the_end_leaves_the_iterator_at_its_end() {
    let mut parts = chunks(AddressRange::new(0, 10).unwrap(), limits(1, 3)).unwrap();
    assert_eq!(parts.nth(usize::MAX), None);
    assert_eq!((parts.len(), parts.next(), parts.part_count()), (0, None, 4));
}

#[test]
fn what_cannot_be_cut_is_refused_before_the_first_part() {
    let page = u64::from(GPU_PAGE_BYTES);
    let cut = |base, len| chunks(AddressRange::new(base, len).unwrap(), ChunkLimits::GPU);
    assert!(cut(page, page).is_ok());
    for base in [1, page - 1, page + 1] {
        assert_eq!(cut(base, page), Err(ChunkError::Base { got: base, alignment_bytes: GPU_PAGE_BYTES }));
    }
    for len in [1, page - 1, page + 1, 3 << 20] {
        assert_eq!(cut(0, len), Err(ChunkError::Length { got_bytes: len, alignment_bytes: GPU_PAGE_BYTES }));
    }
    // A range that would overflow cannot be made, and its error is one of this operation's.
    let overflowing = AddressRange::new(0u64.wrapping_sub(page), 2 * page).map_err(ChunkError::from);
    assert!(matches!(overflowing, Err(ChunkError::Range(_))));
    assert!(cut(0u64.wrapping_sub(page), page).is_ok(), "ends at 2^64");
}

#[test]
fn more_parts_than_32_bits_count_are_refused() {
    let most = u64::from(u32::MAX);
    let cut = |len| chunks(AddressRange::new(0, len).unwrap(), limits(1, 2)).map(|parts| parts.part_count());
    assert_eq!(cut(2 * most), Ok(u32::MAX));
    assert_eq!(cut(2 * most + 1), Err(ChunkError::Count { got: most + 1 }));
    let last = chunks(AddressRange::new(0, 2 * most).unwrap(), limits(1, 2)).unwrap().last().unwrap();
    assert_eq!((last.index, last.address, last.len_bytes), (u32::MAX - 1, 2 * most - 2, 2));
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    for got_bytes in [0, 3, 6, (1 << 31) + 1] {
        assert_eq!(Alignment::new(got_bytes), Err(LimitsError::Alignment { got_bytes }));
    }
    let page = Alignment::GPU_PAGE;
    let alignment_bytes = GPU_PAGE_BYTES;
    for got_bytes in [0, 1, (2 << 20) - 1] {
        let refused = LimitsError::MaxBelowAlignment { got_bytes, alignment_bytes };
        assert_eq!(ChunkLimits::new(page, got_bytes), Err(refused));
    }
    for got_bytes in [(2 << 20) + 1, (4 << 30) - 1, u64::MAX] {
        assert_eq!(ChunkLimits::new(page, got_bytes), Err(LimitsError::MaxUnaligned { got_bytes, alignment_bytes }));
    }
    for got_bytes in [4u64 << 30, 1 << 62] {
        assert_eq!(ChunkLimits::new(page, got_bytes), Err(LimitsError::MaxTooLong { got_bytes }));
    }
    assert_eq!(ChunkLimits::new(page, (4 << 30) - (2 << 20)), Ok(ChunkLimits::GPU));
}

#[test]
fn capped_limits_keep_the_alignment() {
    let most = |bytes| ChunkLimits::GPU.capped(bytes).map(ChunkLimits::max_bytes);
    assert_eq!(most(u64::MAX), Ok(MAX_ENTRY_BYTES));
    assert_eq!(most(u64::from(MAX_ENTRY_BYTES)), Ok(MAX_ENTRY_BYTES));
    assert_eq!(most((2 << 30) - 1), Ok((2 << 30) - GPU_PAGE_BYTES));
    assert_eq!(most(u64::from(GPU_PAGE_BYTES)), Ok(GPU_PAGE_BYTES));
    assert!(matches!(most(u64::from(GPU_PAGE_BYTES) - 1), Err(LimitsError::MaxBelowAlignment { got_bytes: 0, .. })));
}

#[test]
fn refusals_say_what_was_expected_and_what_came() {
    let cut = |base, len| chunks(AddressRange::new(base, len).unwrap(), ChunkLimits::GPU).unwrap_err().to_string();
    assert_eq!(cut(0x1000, 0), "expected a base that is a multiple of 2097152 bytes, got 0x1000");
    assert_eq!(cut(0, 3 << 20), "expected a length that is a multiple of 2097152 bytes, got 3145728");
    assert_eq!(
        format!("{}", Alignment::new(3).unwrap_err()),
        "expected an alignment that is a power of two, got 3 bytes"
    );
}

proptest! {
    #[test]
    fn large_ranges_are_cut_as_the_twin_cuts_them(
        pages in 0..20_000u64, max_pages in 1..2048u64, base_pages in 0..1u64 << 40, at_top in any::<bool>(),
    ) {
        let page = u64::from(GPU_PAGE_BYTES);
        let len = pages * page;
        let base = if at_top { 0u64.wrapping_sub(len) } else { base_pages * page };
        agrees_with_twin(AddressRange::new(base, len).unwrap(), limits(GPU_PAGE_BYTES, max_pages.min(2047) * page));
    }

    #[test]
    fn any_input_is_cut_into_parts_that_fit_or_refused(base: u64, len: u64, shift in 0..32u32, max: u32, offset: u64) {
        let alignment = Alignment::new(1 << shift).unwrap();
        let aligned = |value: u64| value >> shift << shift;
        let Ok(limits) = ChunkLimits::new(alignment, aligned(u64::from(max))) else { return Ok(()) };
        let Ok(range) = AddressRange::new(aligned(base), aligned(len)) else { return Ok(()) };
        let Ok(parts) = chunks(range, limits) else { return Ok(()) };
        prop_assert_eq!(parts.part_holding(offset).is_some(), offset < range.len_bytes());
        prop_assert_eq!(parts.clone().last().and_then(|part| part.range().last()), range.last());
        prop_assert!(parts.take(100).all(|part| part.len_bytes <= limits.max_bytes() && range.covers(part.range())));
    }
}
