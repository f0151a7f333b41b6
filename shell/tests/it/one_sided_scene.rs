//! Two ends for one-sided operations, with memory of their own: shared by the binaries `it` and `conformance`.
//!
//! # Safety
//!
//! Bytes are read and written here only while no operation on them is outstanding; the tests see to that.
#![allow(dead_code, reason = "each of the two binaries uses a part of it")]
#![allow(unsafe_code)]

use bareverbs_core::one_sided::OperationId;
use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::RemoteView;
use bareverbs_shell::memory::{HostDomain, Lease, LocalMemory, OwnedBytes, View};
use bareverbs_shell::one_sided::{Ended, Event, OperationError, Transfers, TransfersConfig, connect_pair};

use crate::world::{World, patiently};

/// Operations in flight at each end.
pub const IN_FLIGHT: usize = 8;

pub type End = Transfers<IN_FLIGHT>;

/// Every access that a region can give.
pub const ALL: AccessFlags = HostDomain::ACCESS.union(AccessFlags::REMOTE_ATOMIC);

/// The configuration that most tests use. A retry comes late enough for an emulated machine.
pub fn transfers_config() -> TransfersConfig {
    TransfersConfig::new("the other end").depths(64, 4).timeout(18)
}

/// Two ends of their own contexts, connected.
pub fn pair(world: &World, config: &TransfersConfig) -> (End, End) {
    let end = || End::new(&world.open(), config.clone()).expect("a queue pair");
    let (mut a, mut b) = (end(), end());
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    (a, b)
}

pub fn memory(bytes: &[u8]) -> LocalMemory {
    LocalMemory::new(OwnedBytes::from(bytes.to_vec())).expect("host memory")
}

/// Registers for an end, with that access.
pub fn view(end: &End, memory: &LocalMemory, access: AccessFlags) -> View {
    let domain = HostDomain::new(end.domain().expect("not closed")).expect("a device").access(access);
    domain.register(memory).expect("registered")
}

/// Registers for an end and publishes.
pub fn published(end: &End, memory: &LocalMemory, access: AccessFlags) -> Lease {
    view(end, memory, access).publish().expect("a key")
}

/// All bytes; no operation on them is outstanding.
pub fn content(memory: &LocalMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.size()];
    // SAFETY: no operation on them is outstanding, as the caller has seen.
    unsafe { memory.read_at(0, &mut bytes) }.expect("all of it");
    bytes
}

/// The number in 8 bytes; no operation on them is outstanding.
pub fn number(memory: &LocalMemory, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: no operation on them is outstanding, as the caller has seen.
    unsafe { memory.read_at(offset, &mut bytes) }.expect("within");
    u64::from_ne_bytes(bytes)
}

/// Bytes that are no others': each depends on its place and on the seed.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}

/// Waits until nothing is outstanding; how each operation ended, in order.
pub fn finish(end: &mut End) -> Vec<(OperationId, Result<(), OperationError>)> {
    let mut ends = Vec::new();
    end.wait_for_all(&patiently(), |event| match event {
        Event::Ended(Ended { operation, result }) => ends.push((operation, result)),
        other => panic!("nobody writes here: {other:?}"),
    })
    .expect("it ends");
    ends
}

/// Waits for an operation that is the only one, and succeeds.
pub fn succeed(end: &mut End, operation: OperationId) {
    assert_eq!(finish(end), [(operation, Ok(()))]);
}

/// A part of a remote view.
pub fn at(remote: &RemoteView, offset: u64, len: u64) -> RemoteView {
    remote.part(offset, len).expect("within")
}
