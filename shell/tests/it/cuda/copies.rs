//! Local memory that is a device's: copies in the context that owns it, and drops that ask nobody.
//!
//! # Safety
//!
//! The owner here stands for memory of the stand-in, which the tests keep mapped as long as it is touched, and nobody else
//! touches.
#![allow(unsafe_code)]

use std::sync::Arc;

use bareverbs_core::cuda::CuResult;
use bareverbs_shell::memory::{
    Backend, CopyError, Keepalive, LocalMemory, LocalMemoryError, Location, MemoryDriver, RegisterError,
};
use bareverbs_shell::soft::cuda::CudaConfig;

use super::{MIB, World, gpus, world};
use crate::local_memory::{content, each_copy, fake_view};

/// Memory at an address, which nobody frees.
struct At {
    addr: u64,
    len_bytes: u64,
}

// SAFETY: 1: nothing changes them. 2: the tests keep it mapped as long as it is touched. 3: no reference to memory of the
// stand-in is made, and nobody owns it but the test. 4: dropping it does nothing.
unsafe impl Keepalive for At {
    fn addr(&self) -> usize {
        self.addr as usize
    }

    fn size(&self) -> usize {
        self.len_bytes as usize
    }
}

impl World {
    fn local(&self, addr: u64, len_bytes: u64) -> Result<LocalMemory, LocalMemoryError> {
        LocalMemory::with_driver(Arc::new(At { addr, len_bytes }), Arc::new(self.cuda.clone()))
    }

    fn memory(&self, addr: u64, len_bytes: u64) -> LocalMemory {
        self.local(addr, len_bytes).expect("the driver tells where it is")
    }
}

#[test]
fn device_memory_is_read_and_written_byte_by_byte() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2, 2]);
    // Over the edge of two mappings, at an odd place.
    let memory = world.memory(base + 2 * MIB - 3, 8);
    assert_eq!(memory.location(), Location::Device { ordinal: Some(0) });
    assert_eq!(each_copy(&memory, 1, &mut [9; 4], &[1, 2, 3, 4, 5]), [const { Ok(()) }; 3]);
    assert_eq!(content(&memory), [0, 1, 2, 3, 4, 5, 0, 0]);
    assert_eq!(world.soft.read(base + 2 * MIB - 4, 10), [0, 0, 1, 2, 3, 4, 5, 0, 0, 0]);
    let mut two = [0; 2];
    // SAFETY: nobody else touches the memory.
    unsafe { memory.read_at(5, &mut two) }.expect("inside");
    assert_eq!(two, [5, 0]);
}

#[test]
fn d1_a_thread_without_a_context_copies_and_has_none_afterwards() {
    let world = world(CudaConfig::default());
    for (times, base) in [(0, world.soft.allocate(0, 4096)), (4, world.segment(0, &[2]))] {
        let memory = world.memory(base, 4096);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(each_copy(&memory, 4000, &mut [0; 96], &[7; 96]), [const { Ok(()) }; 3]);
                assert_eq!(content(&memory)[4000..], [7; 96]);
                assert_eq!(world.kept(), (0, (times, times)));
            });
        });
    }
}

#[test]
fn d2_memory_of_another_context_and_of_a_pool_is_copied() {
    let world = world(gpus(2));
    let other = world.soft.create_context(1);
    world.raw.set_current(world.soft.primary_context(0)).expect("a context");
    for base in [world.soft.allocate_in(other, 64), world.soft.allocate_from_pool(1, 64)] {
        let memory = world.memory(base, 64);
        assert_eq!(memory.location(), Location::Device { ordinal: Some(1) });
        assert_eq!(each_copy(&memory, 60, &mut [0; 4], b"last"), [const { Ok(()) }; 3]);
        assert_eq!(world.soft.read(base + 60, 4), b"last");
    }
    assert_eq!(world.raw.current(), Ok(world.soft.primary_context(0)));
    assert_eq!((world.soft.retained_and_released(0), world.soft.retained_and_released(1)), ((0, 0), (3, 3)));
    world.soft.destroy_context(other);
}

#[test]
fn d4_managed_memory_is_copied_by_the_driver_and_not_registered() {
    let world = world(CudaConfig::default());
    let memory = world.memory(world.soft.allocate_managed(0, 4096), 4096);
    assert_eq!(memory.location(), Location::Managed);
    assert_eq!(each_copy(&memory, 0, &mut [0; 2], &[1, 2]), [const { Ok(()) }; 3]);
    assert_eq!(content(&memory)[..3], [1, 2, 0]);
    let soft =
        bareverbs_shell::soft::SoftFabric::new(bareverbs_shell::soft::SoftConfig::default()).expect("a free slot");
    let context = bareverbs_shell::objects::DeviceContext::open(&soft.symbols(), None).expect("the device");
    let domain = bareverbs_shell::objects::ProtectionDomain::new(&context, 1).expect("a domain");
    let host = bareverbs_shell::memory::HostDomain::new(&domain).expect("the device can be asked");
    let refused = host.register(&memory).map(drop);
    assert!(matches!(refused, Err(RegisterError::Location { location: Location::Managed, .. })), "{refused:?}");
}

#[test]
fn pinned_memory_is_the_hosts_and_is_copied_without_the_driver() {
    let world = world(CudaConfig::default());
    let memory = world.memory(world.soft.allocate_pinned(0, 4096), 4096);
    let before = world.soft.record().len();
    assert_eq!(each_copy(&memory, 10, &mut [0; 3], &[1, 2, 3]), [const { Ok(()) }; 3]);
    assert_eq!(content(&memory)[9..14], [0, 1, 2, 3, 0]);
    assert_eq!(world.calls(before), Vec::<&str>::new());
}

#[test]
fn bounds_are_checked_before_the_driver_is_asked_and_nothing_needs_none() {
    let world = world(CudaConfig::default());
    let memory = world.memory(world.segment(0, &[2]), 4096);
    let before = world.soft.record().len();
    assert_eq!(each_copy(&memory, 4096, &mut [], &[]), [const { Ok(()) }; 3]);
    assert_eq!(each_copy(&memory, 7, &mut [], &[]), [const { Ok(()) }; 3]);
    for (offset, len) in [(4095, 2), (4096, 1), (0, 4097), (usize::MAX, 2)] {
        let answers = each_copy(&memory, offset, &mut vec![0; len], &vec![1; len]);
        assert!(answers.iter().all(|answer| matches!(answer, Err(CopyError::Bounds(_)))), "{answers:?}");
    }
    assert_eq!(world.calls(before), Vec::<&str>::new());
}

#[test]
fn a_write_has_arrived_when_it_returns() {
    let world = world(CudaConfig::default().lazy_copies());
    let base = world.soft.allocate(0, 2 * MIB);
    let memory = world.memory(base, 2 * MIB);
    let export = world.cuda.export(memory.bytes()).expect("an export");
    let seen = |at: u64| world.soft.read(base + at, 4);
    // SAFETY: nobody else touches the memory.
    unsafe { memory.write_at(0, &[5; 4]) }.expect("inside");
    let record = world.soft.record();
    let copied = record.iter().position(|call| call.symbol == "cuMemcpyHtoD_v2").expect("a copy");
    assert_eq!(record[copied + 1].symbol, "cuStreamSynchronize");
    assert_eq!(seen(0), [5; 4]);
    drop(export);
}

#[test]
fn a_write_that_cannot_be_waited_for_is_none() {
    let world = world(CudaConfig::default().without("cuStreamSynchronize"));
    let memory = world.memory(world.soft.allocate(0, 64), 64);
    let [read, written, beside] = each_copy(&memory, 0, &mut [0; 4], &[1; 4]);
    assert_eq!(read, Ok(()));
    for refused in [written, beside] {
        assert!(refused.expect_err("unsupported").to_string().contains("cuStreamSynchronize"));
    }
    assert_eq!(content(&memory), [0; 64]);
}

#[test]
fn a_failed_copy_names_the_call_and_the_bytes() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2]);
    let memory = world.memory(base, 4096);
    world.soft.fail("cuMemcpyDtoH_v2", 1, CuResult::UNKNOWN);
    let [read, ..] = each_copy(&memory, 16, &mut [0; 4], &[1; 4]);
    let Err(CopyError::Driver(error)) = read else { panic!("the driver refused") };
    assert_eq!((error.call, error.code), ("cuMemcpyDtoH_v2", Some(999)));
    assert_eq!(
        CopyError::Driver(error).to_string(),
        format!("cuMemcpyDtoH_v2 answered 999: (CUDA_ERROR_UNKNOWN) for 0x4 bytes from {:#x}", base + 16)
    );
    world.soft.unmap(base);
    let gone = each_copy(&memory, 0, &mut [0; 4], &[1; 4]);
    assert!(gone.iter().all(|answer| matches!(answer, Err(CopyError::Driver(_)))), "{gone:?}");
    assert!(world.local(base, 4096).is_ok_and(|memory| memory.location() == Location::Host { numa: None }));
}

#[test]
fn memory_whose_place_cannot_be_told_makes_no_handle() {
    let world = world(gpus(2));
    let address = world.soft.allocate(0, 4096);
    world.soft.fail("cuPointerGetAttribute", 1, CuResult::UNKNOWN);
    let Err(LocalMemoryError::Location { error, .. }) = world.local(address, 64) else { panic!("it cannot be told") };
    assert_eq!((error.call, error.code), ("cuPointerGetAttribute", Some(999)));
    let past = world.local(address + 4090, 7).map(drop);
    assert!(matches!(past, Err(LocalMemoryError::Location { .. })), "{past:?}");
    assert!(world.local(address + 4090, 6).is_ok());
}

#[test]
fn g3_handles_and_views_go_without_the_driver_and_its_memory() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2]);
    let memory = world.memory(base, 2 * MIB);
    let (view, deregistered) = fake_view(memory.bytes(), "mlx5_0", 7);
    memory.registrations(Backend::VERBS).install(view).expect("nothing is registered yet");
    world.soft.unmap(base);
    world.soft.fail_from("cuPointerGetAttribute", 1, CuResult::INVALID_VALUE);
    world.soft.shut_down();
    let before = world.soft.record().len();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(memory));
    });
    assert_eq!(deregistered.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(world.calls(before), Vec::<&str>::new());
}

#[test]
fn the_driver_can_be_shared_between_threads() {
    fn is_shared<T: MemoryDriver + Clone + Send + Sync + std::fmt::Debug>() {}
    is_shared::<bareverbs_shell::cuda::CudaDriver>();
    let world = world(CudaConfig::default());
    let memory = world.memory(world.segment(0, &[2]), 8 * 512);
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let memory = memory.clone();
            // SAFETY: each thread has bytes of its own.
            scope.spawn(move || unsafe { memory.write_at_disjoint(usize::from(thread) * 512, &[thread + 1; 512]) });
        }
    });
    assert!(content(&memory).chunks(512).zip(1..).all(|(chunk, value)| chunk == [value; 512]));
    let (_, (retained, released)) = world.kept();
    assert_eq!((retained, released), (9, 9));
}
