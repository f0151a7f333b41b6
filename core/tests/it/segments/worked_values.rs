//! The worked values of segments behind keys, as far as they are numbers: cap 32, a current provider.

use super::device::{Device, Refused, Segment, Served};
use super::{BASE, M, MAX, gpu_limits, range};
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{LengthSum, LocateError, Located, PlanError, StalePlan};

fn bound(len_bytes: u64) -> (Device, Served) {
    let mut device = Device::default();
    let served = Served::bind(&mut device, range(BASE, len_bytes), gpu_limits(32, LengthSum::Bits64)).unwrap();
    (device, served)
}

#[test]
fn binding_2_mib_makes_one_region_and_one_key_of_one_entry() {
    let (device, served) = bound(M);
    assert_eq!(device.registered, [range(BASE, M)]);
    assert_eq!(device.presents(served.keys[0]), [range(BASE, M)]);
    assert_eq!((served.keys.len(), served.segment.range().len_bytes(), served.segment.generation()), (1, M, 1));
}

#[test]
fn binding_more_than_the_longest_region_makes_two_regions_behind_one_key() {
    let (device, served) = bound(MAX + M);
    assert_eq!(device.registered, [range(BASE, MAX), range(BASE + MAX, M)]);
    assert_eq!(served.keys.len(), 1);
}

#[test]
fn growth_registers_the_tail_only_and_binds_a_fresh_key_to_old_and_new() {
    let (mut device, mut served) = bound(M);
    let (old_region, old_key) = (served.regions[0], served.keys[0]);
    let plan = served.segment.plan_growth(range(BASE, 2 * M)).unwrap().unwrap();
    assert_eq!((plan.retired_windows(), plan.released_parts().count()), (0..1, 0));
    served.grow(&mut device, range(BASE, 2 * M)).unwrap();
    assert_eq!(device.registered, [range(BASE, M), range(BASE + M, M)]);
    assert_eq!(served.regions[0], old_region, "the same first region");
    assert_ne!(served.keys[0], old_key);
    assert_eq!(served.segment.range().len_bytes(), 2 * M);
    served.check(&device);
}

#[test]
fn growth_to_the_same_size_is_nothing_to_do() {
    let (_, served) = bound(MAX + M);
    assert_eq!(served.segment.plan_growth(range(BASE, MAX + M)), Ok(None));
}

#[test]
fn a_refusal_anywhere_in_growth_leaves_segment_and_device_as_they_were() {
    // Registration of (base + M, MAX - M), of (base + MAX, 2 M), then the binding.
    for refuse_after in 0..3 {
        let (mut device, mut served) = bound(M);
        let before = (served.segment.clone(), device.keys.clone(), device.regions.clone());
        device.refuse_after = Some(refuse_after);
        assert_eq!(served.grow(&mut device, range(BASE, MAX + 2 * M)), Err(Refused));
        assert_eq!((served.segment.clone(), device.keys.clone(), device.regions.clone()), before);
        assert_eq!(device.binds, 1, "no bind but the first");
        served.check(&device);
    }
    let (mut device, mut served) = bound(M);
    device.refuse_after = Some(3);
    assert_eq!(served.grow(&mut device, range(BASE, MAX + 2 * M)), Ok(()));
}

#[test]
fn a_refusal_in_binding_leaves_no_key_and_no_region() {
    for refuse_after in 0..3 {
        let mut device = Device::default();
        device.refuse_after = Some(refuse_after);
        assert!(Served::bind(&mut device, range(BASE, MAX + M), gpu_limits(32, LengthSum::Bits64)).is_err());
        assert!(device.keys.is_empty() && device.regions.is_empty());
    }
}

#[test]
fn cap_1_gives_two_keys_of_one_entry() {
    let mut device = Device::default();
    let served = Served::bind(&mut device, range(BASE, MAX + M), gpu_limits(1, LengthSum::Bits64)).unwrap();
    assert_eq!(served.keys.len(), 2);
    assert_eq!(device.presents(served.keys[0]), [range(BASE, MAX)]);
    assert_eq!(device.presents(served.keys[1]), [range(BASE + MAX, M)]);
}

#[test]
fn a_view_is_addressed_from_its_windows_base() {
    let (_, served) = bound(M);
    let view = served.segment.locate(range(BASE + 0x400, 4096));
    assert_eq!(view, Ok(Located { window: 0, offset_bytes: 0x400, len_bytes: 4096 }));
}

#[test]
fn a_request_may_end_at_the_segments_edge_and_not_above_it() {
    let (_, served) = bound(2 * M);
    assert!(served.segment.locate(range(BASE + 2 * M - 0x6000, 0x6000)).is_ok());
    let beyond = served.segment.locate(range(BASE + 2 * M - 2048, 4096));
    assert!(matches!(beyond, Err(LocateError::Outside { .. })));
    assert!(matches!(served.segment.locate(range(BASE, 0)), Err(LocateError::Empty { .. })));
}

#[test]
fn growth_by_20_mib_at_100_gib_costs_the_tail_one_key_and_one_bind() {
    let step = 10 * M;
    let (mut device, mut served) = bound(5120 * step);
    let (regions, binds) = (device.registered.len(), device.binds);
    served.grow(&mut device, range(BASE, 5121 * step)).unwrap();
    assert_eq!(device.registered[regions..], [range(BASE + 5120 * step, step)]);
    assert_eq!(device.binds, binds + 1);
}

#[test]
fn only_what_starts_where_the_segment_does_and_is_longer_is_growth() {
    let (_, served) = bound(4 * M);
    let refused = |base, len_bytes| served.segment.plan_growth(range(base, len_bytes)).unwrap_err();
    assert_eq!(refused(BASE, 3 * M), PlanError::Shrinks { covered_bytes: 4 * M, got_bytes: 3 * M });
    assert_eq!(refused(BASE - M, 8 * M), PlanError::Base { expected: BASE, got: BASE - M });
    assert!(matches!(refused(BASE, 5 * M + 1), PlanError::Chunk(_)));
    assert_eq!(Segment::plan_bind(AddressRange::EMPTY, served.segment.limits()), Err(PlanError::Empty { base: 0 }));
}

#[test]
fn a_plan_for_another_state_of_the_segment_is_not_taken_in() {
    let (_, served) = bound(M);
    let mut segment = served.segment;
    let plan = |segment: &Segment, pages| segment.plan_growth(range(BASE, pages * M)).unwrap().unwrap();
    let (first, second) = (plan(&segment, 2), plan(&segment, 3));
    segment.grow(second, 1).unwrap();
    let before = segment.clone();
    let refused = segment.grow(first, 2).unwrap_err();
    assert_eq!(refused, StalePlan::Range { expected: range(BASE, 3 * M), got: range(BASE, M) });
    assert_eq!(segment, before);
    let bind = Segment::plan_bind(range(BASE, 9 * M), segment.limits()).unwrap();
    assert_eq!(segment.grow(bind, 3), Err(StalePlan::Binds));
}

#[test]
fn a_segment_that_ends_at_the_top_of_the_address_space_is_bound_grown_and_located() {
    let base = 0u64.wrapping_sub(MAX + 2 * M);
    let mut device = Device::default();
    let mut served = Served::bind(&mut device, range(base, M), gpu_limits(32, LengthSum::Signed32)).unwrap();
    served.grow(&mut device, range(base, MAX + 2 * M)).unwrap();
    served.check(&device);
    let last = served.segment.locate(range(u64::MAX, 1)).unwrap();
    assert_eq!(last.window, served.segment.window_count() - 1);
    assert_eq!(served.segment.plan_growth(served.segment.range()), Ok(None));
}
