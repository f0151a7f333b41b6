//! The worked values of local memory, row by row.
//!
//! # Safety
//!
//! No device knows these bytes, and one thread touches them.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use bareverbs_core::view::OutOfBounds;
use bareverbs_shell::memory::{Backend, CopyError, InstallError, Location, Registered};

use super::{content, each_copy, fake_failure, fake_view, host_memory};

#[test]
fn three_bytes_are_read_from_the_middle_of_five() {
    let memory = host_memory(&[1, 2, 3, 4, 5]);
    let mut read = [0; 3];
    // SAFETY: as said at the top.
    unsafe { memory.read_at(1, &mut read) }.expect("inside");
    assert_eq!(read, [2, 3, 4]);
}

#[test]
fn what_is_written_into_the_middle_of_five_zeros_is_read_back_between_zeros() {
    let memory = host_memory(&[0; 5]);
    // SAFETY: as said at the top.
    unsafe { memory.write_at(1, &[7, 8, 9]) }.expect("inside");
    assert_eq!(content(&memory), [0, 7, 8, 9, 0]);
}

#[test]
fn three_bytes_at_one_of_three_are_refused_with_the_numbers_and_nothing_is_touched() {
    let memory = host_memory(&[1, 2, 3]);
    let refused = CopyError::Bounds(OutOfBounds { offset_bytes: 1, len_bytes: 3, size_bytes: 3 });
    let mut read = [9; 3];
    let answers = each_copy(&memory, 1, &mut read, &[7; 3]);
    assert_eq!(answers, [Err(refused.clone()), Err(refused.clone()), Err(refused)]);
    assert_eq!((read, content(&memory)), ([9; 3], vec![1, 2, 3]));
}

#[test]
fn host_memory_is_on_the_host_of_no_known_numa_node() {
    assert_eq!(host_memory(&[0]).location(), Location::Host { numa: None });
}

#[test]
fn each_device_answers_its_own_key_and_a_third_answers_nothing() {
    let memory = host_memory(&[0; 64]);
    let registrations = memory.registrations(Backend::VERBS);
    for (name, key) in [("mlx5_0", 10), ("mlx5_1", 20)] {
        let (view, _) = fake_view(memory.bytes(), name, key);
        assert_eq!(registrations.install(view).expect("the first").lkey(), key);
    }
    let key = |name| registrations.registered(name).view().map(|view| view.lkey());
    assert_eq!((key("mlx5_0"), key("mlx5_1")), (Some(10), Some(20)));
    assert!(matches!(registrations.registered("mlx5_2"), Registered::Nothing));
    assert_eq!(registrations.iter().map(|view| view.lkey()).collect::<Vec<_>>(), [10, 20]);
}

#[test]
fn a_second_key_on_a_device_gives_way_to_the_first_and_is_deregistered() {
    let memory = host_memory(&[0; 64]);
    let registrations = memory.registrations(Backend::VERBS);
    let (first, first_gone) = fake_view(memory.bytes(), "mlx5_0", 10);
    let (second, second_gone) = fake_view(memory.bytes(), "mlx5_0", 20);
    assert_eq!(registrations.install(first).expect("the first").lkey(), 10);
    assert_eq!(registrations.install(second).expect("the first once more").lkey(), 10);
    let gone = || (first_gone.load(Ordering::Relaxed), second_gone.load(Ordering::Relaxed));
    assert_eq!(gone(), (0, 1));
    assert_eq!(registrations.registered("mlx5_0").view().map(|view| view.lkey()), Some(10));
    drop(memory);
    assert_eq!(gone(), (1, 1));
}

#[test]
fn a_recorded_failure_refuses_an_installation_with_its_text_and_stands() {
    let memory = host_memory(&[0; 64]);
    let registrations = memory.registrations(Backend::VERBS);
    let failure = fake_failure(memory.bytes(), "mlx5_0", libc::EAGAIN, "out of memory keys");
    let recorded = registrations.record_failure(failure).expect("nothing is in force");
    let (view, gone) = fake_view(memory.bytes(), "mlx5_0", 10);
    let error = registrations.install(view).expect_err("a failure stands");
    assert!(error.to_string().contains("out of memory keys"), "{error}");
    assert_eq!(error, InstallError::Failed(recorded.clone()));
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    assert_eq!(registrations.registered("mlx5_0").failure(), Some(recorded));
    let (other, _) = fake_view(memory.bytes(), "mlx5_1", 20);
    assert_eq!(registrations.install(other).expect("another device").lkey(), 20);
    assert_eq!(registrations.iter().count(), 1);
}

#[test]
fn a_registration_in_force_outlives_a_failure_that_is_recorded_after_it() {
    let memory = host_memory(&[0; 64]);
    let registrations = memory.registrations(Backend::VERBS);
    let (view, gone) = fake_view(memory.bytes(), "mlx5_0", 10);
    registrations.install(view).expect("the first");
    let failure = fake_failure(memory.bytes(), "mlx5_0", libc::ENOMEM, "ibv_reg_mr");
    let stands = registrations.record_failure(failure).expect_err("it stands").view();
    assert_eq!(stands.map(|view| view.lkey()), Some(10));
    assert_eq!(registrations.registered("mlx5_0").view().map(|view| view.lkey()), Some(10));
    assert_eq!(gone.load(Ordering::Relaxed), 0);
    assert_eq!(registrations.forget_failure("mlx5_0"), None);
}
