//! What growth in small steps costs, counted.

use super::device::{Device, Served};
use super::{BASE, M, MAX, gpu_limits, range};
use bareverbs_core::segments::LengthSum;

/// Grows by `step_bytes` up to 200 GiB at `cap`; checks each window's entries at every step. How many times the final size was
/// registered in all, and the windows at the end.
fn grown_to_200_gib(step_bytes: u64, cap: u16, sum: LengthSum) -> (f64, u32) {
    let mut device = Device::default();
    let mut served = Served::bind(&mut device, range(BASE, step_bytes), gpu_limits(cap, sum)).unwrap();
    let steps = (200u64 << 30) / step_bytes;
    for step in 2..=steps {
        let before = served.segment.range().len_bytes();
        let (windows, bytes) = (served.segment.window_count(), device.registered_bytes);
        served.grow(&mut device, range(BASE, step * step_bytes)).unwrap();
        for window in windows.saturating_sub(1)..served.segment.window_count() {
            let entries = served.segment.parts(window).count() as u64;
            let len_bytes = served.segment.window(window).unwrap().len_bytes();
            assert!(entries <= len_bytes.div_ceil(MAX) + 11, "{entries} entries for {len_bytes} bytes");
            assert!(entries <= u64::from(cap));
        }
        assert!(device.registered_bytes - bytes >= served.segment.range().len_bytes() - before);
        if step % 1000 == 0 {
            served.check(&device);
        }
    }
    served.check(&device);
    (device.registered_bytes as f64 / (steps * step_bytes) as f64, served.segment.window_count())
}

#[test]
fn steps_of_2_mib_up_to_200_gib_register_at_most_12_times_the_final_size() {
    let (times, windows) = grown_to_200_gib(M, 30, LengthSum::Bits64);
    assert!(times <= 12.0, "registered {times} times");
    assert_eq!(windows, 3);
}

#[test]
fn steps_of_20_mib_up_to_200_gib_register_at_most_9_times_the_final_size() {
    let (times, windows) = grown_to_200_gib(10 * M, 30, LengthSum::Bits64);
    assert!(times <= 9.0, "registered {times} times");
    assert_eq!(windows, 3);
}

#[test]
fn on_an_old_provider_the_bounds_hold_in_windows_below_2_gib() {
    let mut device = Device::default();
    let limits = gpu_limits(30, LengthSum::Signed32);
    let mut served = Served::bind(&mut device, range(BASE, 10 * M), limits).unwrap();
    for step in 2..=1000 {
        served.grow(&mut device, range(BASE, step * 10 * M)).unwrap();
        served.check(&device);
    }
    assert!(device.registered_bytes <= 9 * 10_000 * M);
    assert_eq!(u64::from(served.segment.window_count()), (10_000 * M).div_ceil((2 << 30) - M));
}

#[test]
fn a_thousand_growths_leave_no_retired_key_behind() {
    let mut device = Device::default();
    let mut served = Served::bind(&mut device, range(BASE, M), gpu_limits(30, LengthSum::Bits64)).unwrap();
    for step in 2..=1001 {
        served.grow(&mut device, range(BASE, step * M)).unwrap();
        served.check(&device);
    }
    assert_eq!((served.segment.generation(), device.keys.len()), (1001, 1));
}

#[test]
fn while_entries_are_free_nothing_old_is_registered_again() {
    let mut device = Device::default();
    let mut served = Served::bind(&mut device, range(BASE, M), gpu_limits(30, LengthSum::Bits64)).unwrap();
    let mut merged = 0;
    for step in 2..=4000 {
        let entries = served.segment.parts(served.segment.window_count() - 1).count() as u64;
        let window = served.segment.window(served.segment.window_count() - 1).unwrap();
        let plan = served.segment.plan_growth(range(BASE, step * M)).unwrap().unwrap();
        let new_bytes: u64 = plan.to_register().map(|range| range.len_bytes()).sum();
        if entries < (window.len_bytes() + M).div_ceil(MAX) + 11 {
            assert_eq!(new_bytes, M, "step {step}");
            assert_eq!(plan.released_parts().count(), 0);
        } else {
            merged += 1;
        }
        served.grow(&mut device, range(BASE, step * M)).unwrap();
    }
    assert!(merged > 100, "entries ran short {merged} times");
}

#[test]
fn a_window_with_fewer_than_11_entries_to_spare_is_closed_and_the_next_one_opened() {
    let grown = |cells: u64| {
        let mut device = Device::default();
        let limits = gpu_limits(30, LengthSum::Bits64);
        let mut served = Served::bind(&mut device, range(BASE, cells * MAX), limits).unwrap();
        let key = served.keys[0];
        served.grow(&mut device, range(BASE, cells * MAX + M)).unwrap();
        (served.keys.len(), served.keys[0] == key)
    };
    assert_eq!(grown(18), (1, false));
    assert_eq!(grown(19), (1, false), "11 to spare");
    assert_eq!(grown(20), (2, true), "10 to spare: its key is not touched");
    assert_eq!(grown(30), (2, true));
}

/// A key of no more entries than levels never has 11 to spare. Windows are merged then as regions are otherwise.
#[test]
fn keys_of_few_entries_do_not_pile_up_either() {
    for cap in [1, 2, 3, 4, 8, 11] {
        let mut device = Device::default();
        let limits = gpu_limits(cap, LengthSum::Bits64);
        let mut served = Served::bind(&mut device, range(BASE, M), limits).unwrap();
        for step in 2..=6000u64 {
            served.grow(&mut device, range(BASE, step * M)).unwrap();
            let full = (step * M).div_ceil(limits.window_bytes());
            assert!(u64::from(served.segment.window_count()) <= 2 * full + 15, "cap {cap} step {step}");
        }
        served.check(&device);
        assert!(device.registered_bytes <= 12 * 6000 * M, "cap {cap}: {} pages", device.registered_bytes / M);
    }
}
