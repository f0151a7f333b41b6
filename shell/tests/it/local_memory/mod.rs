//! Local memory: copies, registrations over a registrar that is none, and over the software fabric.
//!
//! # Safety
//!
//! The views of a registrar that is none have keys that no device knows; nobody posts them.
#![allow(unsafe_code)]

mod copies;
mod handles;
mod host_domain;
mod late_writes;
mod refusals;
mod register_races;
mod registrations;
mod twin;
mod worked_values;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bareverbs_core::range::AddressRange;
use bareverbs_core::view::{DeviceName, KeyedRange};
use bareverbs_shell::errno::Errno;
use bareverbs_shell::memory::{CopyError, LocalMemory, OwnedBytes, RegistrationFailure, View, ViewGuard};

pub fn device(name: &str) -> DeviceName {
    DeviceName::new(name.as_bytes()).expect("a name")
}

pub fn host_memory(bytes: &[u8]) -> LocalMemory {
    LocalMemory::new(OwnedBytes::from(bytes.to_vec())).expect("host memory")
}

/// Counts how often what it stands for was deregistered.
struct FakeRegion {
    device: DeviceName,
    deregistered: Arc<AtomicU32>,
}

impl ViewGuard for FakeRegion {
    fn device(&self) -> &DeviceName {
        &self.device
    }
}

impl Drop for FakeRegion {
    fn drop(&mut self) {
        self.deregistered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Registers on a device that is none, under that key; the count says how often that was deregistered.
pub fn fake_view(bytes: AddressRange, name: &str, key: u32) -> (View, Arc<AtomicU32>) {
    let deregistered = Arc::new(AtomicU32::new(0));
    let guard = FakeRegion { device: device(name), deregistered: Arc::clone(&deregistered) };
    let range = KeyedRange::new(bytes.base(), bytes.base(), bytes.len_bytes(), key, key).expect("bytes");
    // SAFETY: 1, 2: no device knows the key, so no work request reaches anything under it. 3: the name is the guard's own.
    (unsafe { View::new(range, Arc::new(guard)) }, deregistered)
}

pub fn fake_failure(bytes: AddressRange, name: &str, errno: i32, reason: &str) -> RegistrationFailure {
    RegistrationFailure::new(bytes, device(name), Some(Errno(errno)), reason)
}

/// Reads into `into`, writes `from`, and writes it beside others, all at `offset`; what each answers.
pub fn each_copy(memory: &LocalMemory, offset: usize, into: &mut [u8], from: &[u8]) -> [Result<(), CopyError>; 3] {
    // SAFETY: the tests touch the bytes by the handle's lock only, and no device knows them.
    let read = unsafe { memory.read_at(offset, into) };
    // SAFETY: as above.
    let written = unsafe { memory.write_at(offset, from) };
    // SAFETY: as above.
    [read, written, unsafe { memory.write_at_disjoint(offset, from) }]
}

/// Reads all of it.
pub fn content(memory: &LocalMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.size()];
    // SAFETY: the tests touch the bytes by the handle's lock only, and no device knows them.
    unsafe { memory.read_at(0, &mut bytes) }.expect("all of it");
    bytes
}
