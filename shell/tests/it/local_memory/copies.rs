//! Copies: bounds before all else, the lock's modes, and what is not host memory.
//!
//! # Safety
//!
//! Each test's threads touch disjoint bytes, or go by the lock; no device knows them.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use bareverbs_core::access::Phase;
use bareverbs_core::range::AddressRange;
use bareverbs_core::view::OutOfBounds;
use bareverbs_shell::memory::{
    CopyError, DriverError, LocalMemory, LocalMemoryError, Location, MemoryDriver, OwnedBytes, Placement,
};
use proptest::prelude::*;

use super::{content, each_copy, host_memory};

#[test]
fn nothing_at_the_very_end_is_fine_and_nothing_beyond_it_is_not() {
    let memory = host_memory(&[1, 2, 3]);
    let at = |offset| each_copy(&memory, offset, &mut [], &[]);
    assert_eq!(at(0), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(at(3), [Ok(()), Ok(()), Ok(())]);
    for offset in [4, usize::MAX] {
        let refused = CopyError::Bounds(OutOfBounds { offset_bytes: offset as u64, len_bytes: 0, size_bytes: 3 });
        assert_eq!(at(offset), [Err(refused.clone()), Err(refused.clone()), Err(refused)]);
    }
    let empty = host_memory(&[]);
    // SAFETY: as said at the top.
    assert_eq!(unsafe { empty.read_at(0, &mut []) }, Ok(()));
}

#[test]
fn an_offset_that_wraps_is_refused_with_the_three_numbers() {
    let memory = host_memory(&[1, 2, 3]);
    // SAFETY: as said at the top.
    let error = unsafe { memory.write_at(usize::MAX, &[1, 2]) }.expect_err("it wraps");
    let bounds = OutOfBounds { offset_bytes: usize::MAX as u64, len_bytes: 2, size_bytes: 3 };
    assert_eq!(error, CopyError::Bounds(bounds));
    for number in [usize::MAX.to_string(), "2 bytes".into(), "3 bytes".into()] {
        assert!(error.to_string().contains(&number), "{number} in {error}");
    }
}

#[test]
fn what_is_out_of_bounds_is_refused_without_the_lock() {
    let memory = host_memory(&[0; 8]);
    let _alone = memory.access_lock().exclusive();
    let answers = each_copy(&memory, 0, &mut [0; 9], &[0; 9]);
    assert!(answers.iter().all(|answer| matches!(answer, Err(CopyError::Bounds(_)))), "none waited: {answers:?}");
}

/// A driver that keeps a device's bytes, and looks at the lock while it copies.
#[derive(Default)]
struct FakeDriver {
    bytes: Mutex<Vec<u8>>,
    /// The memory whose lock is looked at, once it is built.
    memory: Mutex<Option<LocalMemory>>,
    phases: Mutex<Vec<Phase>>,
    placed: Mutex<u32>,
    cannot_tell: bool,
}

const BASE: usize = 0x7000_0000;

impl FakeDriver {
    fn look(&self) {
        let memory = self.memory.lock().expect("no panic");
        self.phases.lock().expect("no panic").extend(memory.as_ref().map(|memory| memory.access_lock().phase()));
    }
}

// SAFETY: 1: it calls nothing the host's. 2: it touches its own vector only.
unsafe impl MemoryDriver for FakeDriver {
    fn place(&self, _: AddressRange) -> Result<Placement, DriverError> {
        *self.placed.lock().expect("no panic") += 1;
        if self.cannot_tell {
            return Err(DriverError::new("cuPointerGetAttribute", Some(1), "invalid value"));
        }
        let location = Location::Device { ordinal: Some(3) };
        Ok(Placement { location, host_bytes_per_s: None, device_bytes_per_s: Some(5) })
    }

    unsafe fn copy_out(&self, from: usize, to: &mut [u8]) -> Result<(), DriverError> {
        self.look();
        let bytes = self.bytes.lock().expect("no panic");
        to.copy_from_slice(&bytes[from - BASE..][..to.len()]);
        Ok(())
    }

    unsafe fn copy_in(&self, to: usize, from: &[u8]) -> Result<(), DriverError> {
        self.look();
        if from == [13] {
            return Err(DriverError::new("cuMemcpyHtoD", Some(700), "illegal address"));
        }
        self.bytes.lock().expect("no panic")[to - BASE..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}

/// An owner of a device's bytes.
struct DeviceBytes;

// SAFETY: 1: constants. 2: the fake driver's. 3, 4: there is nothing.
unsafe impl bareverbs_shell::memory::Keepalive for DeviceBytes {
    fn addr(&self) -> usize {
        BASE
    }

    fn size(&self) -> usize {
        4
    }
}

#[test]
fn memory_of_a_device_is_copied_by_its_driver_in_the_right_mode() {
    let driver = Arc::new(FakeDriver { bytes: Mutex::new(vec![1, 2, 3, 4]), ..FakeDriver::default() });
    let memory = LocalMemory::with_driver(Arc::new(DeviceBytes), driver.clone()).expect("it can tell");
    *driver.memory.lock().expect("no panic") = Some(memory.clone());
    assert_eq!(memory.location(), Location::Device { ordinal: Some(3) });
    assert_eq!((memory.placement().host_bytes_per_s, memory.placement().device_bytes_per_s), (None, Some(5)));
    // SAFETY: as said at the top.
    unsafe { memory.write_at(1, &[7]) }.expect("inside");
    // SAFETY: as said at the top.
    unsafe { memory.write_at_disjoint(2, &[8, 9]) }.expect("inside");
    assert_eq!(content(&memory), [1, 7, 8, 9]);
    let phases = driver.phases.lock().expect("no panic").clone();
    assert!(matches!(phases[..], [Phase::Exclusive, Phase::Disjoint(1), Phase::Read(1)]), "{phases:?}");
    // SAFETY: as said at the top.
    let error = unsafe { memory.write_at(0, &[13]) }.expect_err("the driver cannot");
    assert!(error.to_string().contains("cuMemcpyHtoD") && error.to_string().contains("700"), "{error}");
    assert_eq!(memory.access_lock().phase(), Phase::Vacant, "the lock is left");
    assert_eq!(*driver.placed.lock().expect("no panic"), 1, "asked once");
    *driver.memory.lock().expect("no panic") = None;
}

#[test]
fn memory_whose_place_cannot_be_told_gets_no_handle() {
    let driver = Arc::new(FakeDriver { cannot_tell: true, ..FakeDriver::default() });
    let error = LocalMemory::with_driver(Arc::new(DeviceBytes), driver).expect_err("it cannot tell");
    assert!(matches!(error, LocalMemoryError::Location { .. }));
    for part in ["4 bytes", "0x70000000", "cuPointerGetAttribute", "invalid value"] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
}

#[test]
fn disjoint_writers_of_many_threads_leave_every_byte_as_written() {
    const THREADS: usize = 4;
    let memory = host_memory(&[0; 64 * THREADS]);
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let memory = memory.clone();
            threads.spawn(move || {
                for round in 0..200_u8 {
                    // SAFETY: each thread has 64 bytes of its own.
                    unsafe { memory.write_at_disjoint(64 * thread, &[round; 64]) }.expect("inside");
                    let mut read = [0; 64];
                    // SAFETY: as above; the others' writes are disjoint and wait for readers.
                    unsafe { memory.read_at(64 * thread, &mut read) }.expect("inside");
                    assert_eq!(read, [round; 64]);
                }
            });
        }
    });
    assert_eq!(content(&memory), [199; 64 * THREADS]);
}

proptest! {
    #[test]
    fn copies_agree_with_a_vector(
        size in 0_usize..40,
        steps in prop::collection::vec((0_usize..50, prop::collection::vec(any::<u8>(), 0..20), 0..3), 0..30),
    ) {
        let memory = LocalMemory::new(OwnedBytes::from(vec![0; size])).expect("host memory");
        let mut twin = vec![0; size];
        for (offset, bytes, how) in steps {
            let place = twin.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len()));
            let inside = place.is_some();
            let mut read = bytes.clone();
            #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one of three is called")]
            // SAFETY: as said at the top.
            let answer = unsafe {
                match how {
                    0 => memory.read_at(offset, &mut read),
                    1 => memory.write_at(offset, &bytes),
                    _ => memory.write_at_disjoint(offset, &bytes),
                }
            };
            prop_assert_eq!(answer.is_ok(), inside);
            match (place, how) {
                (Some(place), 0) => prop_assert_eq!(place, &read[..]),
                (Some(place), _) => place.copy_from_slice(&bytes),
                (None, _) => prop_assert_eq!(&read, &bytes),
            }
        }
        prop_assert_eq!(content(&memory), twin);
    }
}
