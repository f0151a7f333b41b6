//! Growth against its naive twin, and under any steps.

#[path = "../../twins/growth.rs"]
mod twin;

use super::device::{Device, Segment, Served};
use super::{BASE, M, gpu_limits, range, tiny_limits};
use bareverbs_core::segments::{BoundSegment, LengthSum, PlanError, WindowLimits};
use proptest::prelude::*;
use twin::Twin;

fn parts_of(segment: &Segment) -> Vec<Vec<u64>> {
    (0..segment.window_count()).map(|window| segment.parts(window).map(|part| part.len_bytes()).collect()).collect()
}

/// Binds the first step and grows by the others; twin and device agree after each.
fn lives_as_the_twin(base: u64, steps: &[u64], limits: WindowLimits) {
    let mut twin = Twin::new(limits);
    let mut device = Device::default();
    let mut served = Served::bind(&mut device, range(base, steps[0]), limits).unwrap();
    twin.grow(steps[0]);
    let mut len_bytes = steps[0];
    for &step in &steps[1..] {
        len_bytes += step;
        served.grow(&mut device, range(base, len_bytes)).unwrap();
        served.check(&device);
        twin.grow(step);
        // With too few entries to grow in place, whole windows are merged: only what every segment keeps holds there.
        if let Some(windows) = twin.windows() {
            assert_eq!(parts_of(&served.segment), windows, "steps {steps:?} under {limits:?}");
        }
    }
}

fn every_way_to_grow(left: u64, steps: &mut Vec<u64>, visit: &mut impl FnMut(&[u64])) {
    if left == 0 {
        return visit(steps);
    }
    for step in 1..=left {
        steps.push(step);
        every_way_to_grow(left - step, steps, visit);
        steps.pop();
    }
}

#[test]
fn every_way_to_grow_to_11_units_agrees_with_the_twin() {
    for max in [1, 2, 3, 4, 7] {
        for cap in 1..=6 {
            let limits = tiny_limits(max, cap);
            every_way_to_grow(11, &mut Vec::new(), &mut |steps| {
                lives_as_the_twin(0u64.wrapping_sub(11), steps, limits)
            });
        }
    }
}

#[test]
fn growth_in_single_units_keeps_every_windows_entries_within_cells_and_levels() {
    for (max, levels) in [(1, 1), (3, 2), (7, 3), (5, 3), (15, 4)] {
        for cap in levels + 1..levels + 6 {
            let mut device = Device::default();
            let mut served = Served::bind(&mut device, range(0, 1), tiny_limits(max, cap as u16)).unwrap();
            for len in 2..100 {
                served.grow(&mut device, range(0, len)).unwrap();
                for window in 0..served.segment.window_count() {
                    let entries = served.segment.parts(window).count() as u64;
                    let cells = served.segment.window(window).unwrap().len_bytes().div_ceil(max);
                    assert!(entries <= cells + levels);
                }
            }
        }
    }
}

#[test]
fn more_than_there_is_room_for_is_refused_and_the_segment_stays() {
    type Small = BoundSegment<u64, 2, 4>;
    let limits = tiny_limits(2, 2);
    assert_eq!(Small::plan_bind(range(0, 9), limits), Err(PlanError::Windows { room: 2 }));
    assert_eq!(BoundSegment::<u64, 9, 4>::plan_bind(range(0, 9), limits), Err(PlanError::Parts { room: 4 }));
    assert_eq!(BoundSegment::<u64, 0, 0>::plan_bind(range(0, 1), limits), Err(PlanError::Windows { room: 0 }));
    // At once, whatever the size.
    assert!(Small::plan_bind(range(0, u64::from(u32::MAX)), limits).is_err());
    let plan = Small::plan_bind(range(0, 8), limits).unwrap();
    let segment = Small::new(plan, bareverbs_core::segments::Ordinal(0), 0);
    let before = segment.clone();
    assert_eq!(segment.plan_growth(range(0, 9)), Err(PlanError::Windows { room: 2 }));
    assert_eq!(segment, before);
}

#[test]
fn parts_merge_when_the_segments_room_runs_short_before_the_keys_entries_do() {
    type Small = BoundSegment<u64, 1, 4>;
    let limits = tiny_limits(127, 30);
    let mut segment =
        Small::new(Small::plan_bind(range(0, 1), limits).unwrap(), bareverbs_core::segments::Ordinal(0), 0);
    for len in 2..=14 {
        let plan = segment.plan_growth(range(0, len)).unwrap().unwrap();
        segment.grow(plan, 0).unwrap();
    }
    assert!(segment.part_count() <= 4);
}

proptest! {
    #[test]
    fn any_steps_agree_with_the_twin(
        steps in prop::collection::vec(prop_oneof![6 => 1..40u64, 2 => 1..3000u64, 1 => 1..60_000u64], 1..40),
        cap in 1..40u16, old: bool, at_top: bool,
    ) {
        let sum = if old { LengthSum::Signed32 } else { LengthSum::Bits64 };
        // Room for 640 parts in 64 windows: short enough on an old provider, too.
        let shrink = if old || cap < 12 { 50 } else { 1 };
        let steps: Vec<u64> = steps.into_iter().map(|pages| (pages / shrink + 1) * M).collect();
        let base = if at_top { 0u64.wrapping_sub(steps.iter().sum()) } else { BASE };
        lives_as_the_twin(base, &steps, gpu_limits(cap, sum));
    }

    #[test]
    fn any_request_lies_in_one_window_or_is_split(
        steps in prop::collection::vec(1..20u64, 1..30), max in 1..9u64, cap in 1..8u16,
        from in 0..600u64, len in 1..600u64,
    ) {
        let mut device = Device::default();
        let mut served = Served::bind(&mut device, range(BASE, steps[0]), tiny_limits(max, cap)).unwrap();
        let mut total = steps[0];
        for step in &steps[1..] {
            if served.segment.plan_growth(range(BASE, total + step)).is_err() {
                break; // no room for more windows
            }
            total += step;
            served.grow(&mut device, range(BASE, total)).unwrap();
        }
        let asked = range(BASE + from, len);
        let segment = &served.segment;
        prop_assert_eq!(segment.split(asked).is_ok(), from + len <= total);
        let Ok(pieces) = segment.split(asked) else { return Ok(()) };
        let pieces: Vec<_> = pieces.collect();
        let mut at = asked.base();
        for piece in &pieces {
            let window = segment.window(piece.window).unwrap();
            prop_assert_eq!(window.base() + piece.offset_bytes, at);
            prop_assert!(piece.offset_bytes + piece.len_bytes <= window.len_bytes());
            at += piece.len_bytes;
        }
        prop_assert_eq!(at, asked.base() + len);
        prop_assert!(pieces.windows(2).all(|pair| pair[0].window + 1 == pair[1].window));
        prop_assert_eq!(segment.locate(asked).ok(), (pieces.len() == 1).then(|| pieces[0]));
    }
}
