//! A plan is taken in by the segment that it was made for, as it was then, and by no other: each thing that is compared.

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{BoundSegment, Ordinal, Plan, StalePlan, WindowLimits};

use super::tiny_limits;

type Segment = BoundSegment<u8, 8, 64>;

const BASE: u64 = 0x1000;

fn bound(len_bytes: u64, limits: WindowLimits, ordinal: u32) -> Segment {
    Segment::new(Segment::plan_bind(range(len_bytes), limits).unwrap(), Ordinal(ordinal), 1)
}

fn range(len_bytes: u64) -> AddressRange {
    AddressRange::new(BASE, len_bytes).unwrap()
}

fn growth(segment: &Segment, to_bytes: u64) -> Plan<8, 64> {
    segment.plan_growth(range(to_bytes)).unwrap().expect("it is longer")
}

/// Grows it byte by byte up to each of these lengths.
fn grown(mut segment: Segment, lens: &[u64]) -> Segment {
    for len in lens {
        let plan = growth(&segment, *len);
        segment.grow(plan, 1).unwrap();
    }
    segment
}

/// `segment` refuses the plan for `what`, and stays as it is.
#[track_caller]
fn refuses(mut segment: Segment, plan: Plan<8, 64>, what: StalePlan) {
    let before = segment.clone();
    assert_eq!(segment.grow(plan, 2), Err(what));
    assert_eq!(segment, before);
    assert!(what.to_string().starts_with("expected a plan") && what.to_string().ends_with("plan anew"), "{what}");
}

#[test]
fn a_plan_of_a_segment_that_was_bound_at_this_base_before_is_refused() {
    let plan = growth(&bound(2, tiny_limits(4, 8), 0), 3);
    let rebound = bound(12, tiny_limits(1, 12), 1);
    assert_eq!(rebound.generation(), 1);
    refuses(rebound, plan, StalePlan::Ordinal { expected: Ordinal(1), got: Ordinal(0) });
}

#[test]
fn a_plan_for_another_ordinal_is_refused() {
    let plan = growth(&bound(2, tiny_limits(4, 8), 0), 3);
    refuses(bound(2, tiny_limits(4, 8), 1), plan, StalePlan::Ordinal { expected: Ordinal(1), got: Ordinal(0) });
}

#[test]
fn a_plan_from_another_length_is_refused() {
    let plan = growth(&bound(2, tiny_limits(4, 8), 0), 5);
    refuses(bound(3, tiny_limits(4, 8), 0), plan, StalePlan::Range { expected: range(3), got: range(2) });
}

#[test]
fn a_plan_for_another_generation_is_refused() {
    let once = bound(3, tiny_limits(4, 8), 0);
    let twice = grown(bound(2, tiny_limits(4, 8), 0), &[3]);
    let plan = growth(&once, 4);
    refuses(twice, plan, StalePlan::Generation { expected: 2, got: 1 });
}

#[test]
fn a_plan_by_other_limits_is_refused() {
    let mine = tiny_limits(4, 8);
    for others in [tiny_limits(3, 8), tiny_limits(4, 9)] {
        let plan = growth(&bound(2, others, 0), 3);
        refuses(bound(2, mine, 0), plan, StalePlan::Limits { expected: mine, got: others });
    }
}

#[test]
fn a_plan_over_as_many_but_other_regions_is_refused() {
    // The same range, limits and generation: in parts of 1 and 2 bytes the one, of 2 and 1 the other.
    let (one, other) = (grown(bound(1, tiny_limits(8, 8), 0), &[3]), grown(bound(2, tiny_limits(8, 8), 0), &[3]));
    assert_eq!((one.range(), one.generation(), one.part_count()), (other.range(), other.generation(), 2));
    assert_eq!(other.part_count(), 2);
    assert_ne!(one.parts(0).collect::<Vec<_>>(), other.parts(0).collect::<Vec<_>>());
    let plan = growth(&one, 4);
    refuses(other, plan.clone(), StalePlan::Parts { parts: 2, windows: 1 });
    let mut one = one;
    one.grow(plan, 2).unwrap();
}

#[test]
fn a_plan_over_more_or_fewer_regions_is_refused() {
    // The same range, limits and generation, in two regions and in three.
    let two = grown(bound(3, tiny_limits(8, 8), 0), &[4, 4 + 1]);
    let three = grown(bound(1, tiny_limits(8, 8), 0), &[2, 5]);
    assert_eq!((two.range(), two.generation()), (three.range(), three.generation()));
    let shape = |segment: &Segment| segment.parts(0).map(AddressRange::len_bytes).collect::<Vec<_>>();
    assert_ne!(shape(&two), shape(&three));
    let plan = growth(&three, 6);
    let what = StalePlan::Parts { parts: two.part_count(), windows: two.window_count() };
    refuses(two, plan, what);
}
