#[path = "../../../tests/twins/windows.rs"]
mod twins;

use super::*;
use crate::segments::{Alignment, GPU_PAGE_BYTES, MAX_ENTRY_BYTES};
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

const MAX: u64 = MAX_ENTRY_BYTES as u64;
const PAGE: u64 = GPU_PAGE_BYTES as u64;
const BASE: u64 = 0x10_0000_0000;

fn gpu(cap: u16, sum: LengthSum) -> WindowLimits {
    WindowLimits::new(ChunkLimits::GPU, EntryCap::new(cap).unwrap(), sum).unwrap()
}

fn tiny(max_bytes: u64, cap: u16, total_bytes: u64) -> WindowLimits {
    let chunk = ChunkLimits::new(Alignment::new(1).unwrap(), max_bytes).unwrap();
    WindowLimits::within(chunk, EntryCap::new(cap).unwrap(), total_bytes).unwrap()
}

fn range(base: u64, len_bytes: u64) -> AddressRange {
    AddressRange::new(base, len_bytes).unwrap()
}

#[test]
fn small_ranges_lie_in_windows_as_the_twin_lays_them() {
    for (max, cap, total) in
        (1..4).flat_map(|max| (1..4).flat_map(move |cap| (1..9).map(move |total| (max, cap, total))))
    {
        let limits = tiny(max, cap, total);
        for len in 0..20 {
            for base in [0, 1 << 33, 0u64.wrapping_sub(len)] {
                let planned = windows(range(base, len), limits).unwrap();
                let expected = twins::places(len, max, u64::from(cap), total);
                let mut seen = Vec::new();
                for window in planned.clone() {
                    assert!(window.parts().len() <= usize::from(cap), "never more entries than the cap");
                    assert!(window.range.len_bytes() <= total);
                    for part in window.parts() {
                        assert!(window.range.covers(part.range()), "a part never exceeds a window");
                        seen.extend((0..part.len_bytes).map(|_| (window.index, part.index)));
                    }
                }
                assert_eq!(seen, expected, "len {len} max {max} cap {cap} total {total}");
                assert_eq!(planned.window_count() as usize, planned.len());
                assert_eq!(planned.part_count() as usize, planned.clone().map(|window| window.parts().len()).sum());
                located_as_the_twin_says(&planned, base, &expected);
            }
        }
    }
}

/// Every request in and just beyond the range, against the (window, part) of each byte.
fn located_as_the_twin_says(planned: &Windows, base: u64, bytes: &[(u32, u32)]) {
    for from in 0..=bytes.len() {
        for to in from..=bytes.len() + 1 {
            let Ok(asked) = AddressRange::new(base.wrapping_add(from as u64), (to - from) as u64) else { continue };
            let found = planned.locate(asked);
            let pieces = planned.split(asked).map(Iterator::collect::<Vec<_>>);
            if from == to {
                assert!(matches!(found, Err(LocateError::Empty { .. })));
                continue;
            }
            let Some(wanted) = bytes.get(from..to) else {
                assert!(matches!(found, Err(LocateError::Outside { .. })));
                assert!(matches!(pieces, Err(LocateError::Outside { .. })));
                continue;
            };
            let start = |window| bytes.iter().position(|byte| byte.0 == window).unwrap();
            let mut expected: Vec<Located> = Vec::new();
            for (at, &(window, _)) in (from..).zip(wanted) {
                match expected.last_mut() {
                    Some(piece) if piece.window == window => piece.len_bytes += 1,
                    _ => expected.push(Located { window, offset_bytes: (at - start(window)) as u64, len_bytes: 1 }),
                }
            }
            match *expected {
                [whole] => assert_eq!(found, Ok(whole)),
                _ => assert!(matches!(found, Err(LocateError::Straddles { inside_bytes, .. })
                    if inside_bytes == expected[0].len_bytes)),
            }
            assert_eq!(pieces, Ok(expected));
        }
    }
}

#[test]
fn f2_150_gib_at_cap_30_lie_in_two_windows_of_30_and_8_regions() {
    let planned = windows(range(BASE, 161_061_273_600), gpu(30, LengthSum::Bits64)).unwrap();
    assert_eq!(planned.part_count(), 38);
    let regions: Vec<_> = planned.clone().map(|window| window.parts().len()).collect();
    assert_eq!(regions, [30, 8]);
    assert_eq!(planned.window(0).unwrap().range.len_bytes(), 0x1D_FC40_0000);

    let at = |offset, len_bytes| planned.locate(range(BASE + offset, len_bytes));
    assert_eq!(at(0, 4096), Ok(Located { window: 0, offset_bytes: 0, len_bytes: 4096 }));
    assert_eq!(at(0x1D_FC3F_F000, 4096), Ok(Located { window: 0, offset_bytes: 0x1D_FC3F_F000, len_bytes: 4096 }));
    for _ in 0..10 {
        assert_eq!(at(0x1D_FC40_0000, 4096), Ok(Located { window: 1, offset_bytes: 0, len_bytes: 4096 }));
    }
    let straddling = at(0x1D_FC3F_F000, 8192);
    assert!(matches!(straddling, Err(LocateError::Straddles { window: 0, inside_bytes: 4096, .. })));
    let pieces: Vec<_> = planned.split(range(BASE + 0x1D_FC3F_F000, 8192)).unwrap().collect();
    assert_eq!(pieces[0], Located { window: 0, offset_bytes: 0x1D_FC3F_F000, len_bytes: 4096 });
    assert_eq!(pieces[1..], [Located { window: 1, offset_bytes: 0, len_bytes: 4096 }]);
}

/// What the old provider makes of a key's length.
fn signed_32_bit_sum(window: &Window) -> i32 {
    window.parts().fold(0i32, |sum, part| sum.wrapping_add(part.len_bytes as i32))
}

#[test]
fn f4_on_an_old_provider_every_window_stays_below_2_gib_and_its_sum_is_right() {
    for len_bytes in [4_292_870_144 + 2_097_152, 0x8020_0000, 2 << 30, (2 << 30) - PAGE, 150 << 30] {
        for cap in [1, 2, 3, 30, 32] {
            let planned = windows(range(BASE, len_bytes), gpu(cap, LengthSum::Signed32)).unwrap();
            let mut total = 0;
            for window in planned.clone() {
                assert!(window.range.len_bytes() < 2 << 30);
                assert_eq!(i64::from(signed_32_bit_sum(&window)), window.range.len_bytes() as i64);
                total += window.range.len_bytes();
            }
            assert_eq!(total, len_bytes);
        }
    }
}

#[test]
fn f4_both_reported_offsets_resolve_through_two_keys_on_an_old_provider_and_one_on_a_current_one() {
    let segment = range(BASE, 0x8020_0000);
    let at = |planned: &Windows, offset| planned.locate(range(BASE + offset, 4096)).unwrap();
    let old = windows(segment, gpu(32, LengthSum::Signed32)).unwrap();
    assert_eq!(old.len(), 2);
    assert_eq!(at(&old, 0x6600_0000), Located { window: 0, offset_bytes: 0x6600_0000, len_bytes: 4096 });
    assert_eq!(at(&old, 0x8000_0000), Located { window: 1, offset_bytes: PAGE, len_bytes: 4096 });
    let current = windows(segment, gpu(32, LengthSum::Bits64)).unwrap();
    assert_eq!(current.len(), 1);
    assert_eq!(at(&current, 0x6600_0000).offset_bytes, 0x6600_0000);
    assert_eq!(at(&current, 0x8000_0000).offset_bytes, 0x8000_0000);
    // The other entries of the report: their sum is 64-bit here, and 0 as a signed 32-bit one.
    let wide = windows(range(BASE, MAX + PAGE), gpu(32, LengthSum::Bits64)).unwrap().next().unwrap();
    assert_eq!((wide.range.len_bytes(), signed_32_bit_sum(&wide)), (1 << 32, 0));
}

#[test]
fn f4_parts_shorter_than_an_old_window_share_it_up_to_its_total() {
    // 1 GiB parts: two would be 2 GiB, one page too much.
    let chunk = ChunkLimits::new(Alignment::GPU_PAGE, 1 << 30).unwrap();
    let limits = WindowLimits::new(chunk, EntryCap::new(32).unwrap(), LengthSum::Signed32).unwrap();
    let parts: Vec<Vec<_>> = windows(range(BASE, 0x8020_0000), limits)
        .unwrap()
        .map(|window| window.parts().map(|part| u64::from(part.len_bytes)).collect())
        .collect();
    assert_eq!(parts, [std::vec![1 << 30, (1 << 30) - PAGE], std::vec![2 * PAGE]]);
}

#[test]
fn cap_1_gives_each_part_a_key_of_its_own() {
    let planned = windows(range(BASE, MAX + PAGE), gpu(1, LengthSum::Bits64)).unwrap();
    let lens: Vec<_> = planned.map(|window| (window.parts().len(), window.range.len_bytes())).collect();
    assert_eq!(lens, [(1, MAX), (1, PAGE)]);
}

#[test]
fn an_alignment_longer_than_a_window_is_refused() {
    let chunk = ChunkLimits::new(Alignment::new(1 << 31).unwrap(), 1 << 31).unwrap();
    let cap = EntryCap::new(4).unwrap();
    assert!(WindowLimits::new(chunk, cap, LengthSum::Bits64).is_ok());
    assert!(matches!(
        WindowLimits::new(chunk, cap, LengthSum::Signed32),
        Err(LimitsError::MaxBelowAlignment { got_bytes: 0, .. })
    ));
}

#[test]
fn a_straddling_request_is_told_what_to_do() {
    let planned = windows(range(0, 4), tiny(1, 2, 9)).unwrap();
    let text = planned.locate(range(1, 2)).unwrap_err().to_string();
    assert_eq!(
        text,
        "expected a range within one key's window, got 0x2 bytes from 0x1, 0x1 bytes of it in window 0: ask for it in parts"
    );
}

proptest! {
    #[test]
    fn windows_of_large_segments_tile_them(
        pages in 1..400_000u64, cap in 1..100u16, old: bool, at_top: bool, from: prop::sample::Index, len in 1..1u64 << 40,
    ) {
        let sum = if old { LengthSum::Signed32 } else { LengthSum::Bits64 };
        let len_bytes = pages * PAGE;
        let base = if at_top { 0u64.wrapping_sub(len_bytes) } else { BASE };
        let segment = range(base, len_bytes);
        let planned = windows(segment, gpu(cap, sum)).unwrap();
        let mut next = base;
        for window in planned.clone() {
            prop_assert_eq!(window.range.base(), next);
            prop_assert!(window.parts().len() <= usize::from(cap));
            prop_assert!(window.range.len_bytes() <= sum.max_bytes());
            next = next.wrapping_add(window.range.len_bytes());
        }
        prop_assert_eq!(next, base.wrapping_add(len_bytes));

        let offset = from.index(usize::MAX) as u64 % len_bytes;
        let asked = range(base + offset, len.min(len_bytes - offset));
        let pieces: Vec<_> = planned.split(asked).unwrap().collect();
        prop_assert_eq!(pieces.iter().map(|piece| piece.len_bytes).sum::<u64>(), asked.len_bytes());
        prop_assert_eq!(planned.locate(asked).ok(), (pieces.len() == 1).then(|| pieces[0]));
        for piece in pieces {
            let window = planned.window(piece.window).unwrap();
            let span = Span { offset_bytes: piece.offset_bytes, len_bytes: piece.len_bytes };
            prop_assert!(window.range.part(span).is_some());
        }
    }
}
