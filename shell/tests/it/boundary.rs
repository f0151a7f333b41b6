//! Frame memory at a multiple of 4 GiB, which a Thunderbolt region must not cross.
//!
//! # Safety
//!
//! The memory is mapped for good, and each test takes a part of its own mapping once.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use bareverbs_core::link::{FrameMemory, Geometry, Immediate, LinkRules, LinkSetup, LinkSetupError, Sequence};
use bareverbs_core::verbs::LinkLayer;
use bareverbs_shell::objects::{CompletionQueue, DeviceContext};
use bareverbs_shell::soft::{SoftConfig, SoftFabric};

const GIB_4: usize = 1 << 32;

/// `bytes` of memory, of which `before` lie below a multiple of 4 GiB; and that multiple.
fn at_a_boundary(before: usize, bytes: usize) -> (FrameMemory, u64) {
    let anywhere = std::ptr::null_mut();
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, wherever there is room; what is not touched takes no memory.
    let mapped = unsafe { libc::mmap(anywhere, 2 * GIB_4, rights, kind, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // In 8 GiB there is one with as much as is asked for on either side.
    let boundary = (mapped.addr() + before).next_multiple_of(GIB_4);
    let start = mapped.cast::<u8>().wrapping_add(boundary - before - mapped.addr());
    let start = NonNull::new(start).expect("it was mapped");
    // SAFETY: 1: inside the mapping, zeroed; 2: for good; 3: nobody else knows it.
    (unsafe { FrameMemory::from_raw_parts(start, bytes) }, boundary as u64)
}

/// Whether a link of 1 and 1 frames of 4096 bytes takes such memory.
fn checked(link_layer: LinkLayer, before: usize, bytes: usize) -> (Result<(), LinkSetupError>, u64) {
    let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let context = DeviceContext::open(&soft.symbols(), None).expect("the device");
    let queue = CompletionQueue::new(&context, 8).expect("a queue");
    let setup = LinkSetup {
        send_queue: queue.id(),
        recv_queue: queue.id(),
        geometry: Geometry { frame_bytes: 4096, send_capacity: 8, recv_capacity: 8 },
        rules: LinkRules::for_link_layer(link_layer),
        tx_start: Sequence::default(),
        rx_start: Sequence::default(),
        key: None,
    };
    let (memory, boundary) = at_a_boundary(before, bytes);
    (setup.check::<Immediate, 1, 1>(&memory), boundary)
}

#[test]
fn frames_that_cross_4_gib_are_refused_on_thunderbolt_and_nowhere_else() {
    let (crossing, boundary) = checked(LinkLayer::THUNDERBOLT, 4096, 8192);
    assert_eq!(crossing, Err(LinkSetupError::CrossesBoundary { boundary }));
    for (before, bytes) in [(8192, 8192), (0, 8192), (8192, 3 * 4096)] {
        // Up to it, from it on; and what is beyond the frames does not count.
        assert_eq!(checked(LinkLayer::THUNDERBOLT, before, bytes).0, Ok(()), "{before} of {bytes}");
    }
    assert_eq!(checked(LinkLayer::ETHERNET, 4096, 8192).0, Ok(()));
}
