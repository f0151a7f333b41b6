//! The CUDA stand-in: each row of what was measured on an H200 is a test.

use std::os::fd::AsRawFd;

use bareverbs_core::cuda::{CuResult, DeviceAttribute, MemoryType, PointerAttribute, RangeHandleType};
use bareverbs_shell::soft::cuda::{CudaConfig, CudaError, HostAnswer, SoftCuda, SoftGpu};

use super::raw::cuda::Driver;

const MIB: u64 = 1 << 20;
const INVALID: CuResult = CuResult::INVALID_VALUE;

/// A stand-in with the device's primary context current on this thread.
fn cuda(config: CudaConfig) -> (SoftCuda, Driver) {
    let cuda = SoftCuda::new(config).expect("a free slot");
    let driver = Driver(cuda.symbols());
    if let Ok(context) = driver.retain_primary(0) {
        driver.set_current(context).expect("retained");
    }
    (cuda, driver)
}

/// A segment of this many mappings of 20 MiB.
fn segment(cuda: &SoftCuda, mappings: u64) -> u64 {
    let base = cuda.reserve(0, 1 << 34);
    (0..mappings).for_each(|at| cuda.map(base + at * 20 * MIB, 20 * MIB));
    base
}

#[test]
fn kinds_of_memory_answer_as_measured() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let primary = cuda.primary_context(0) as u64;
    let (device, host) = (u64::from(MemoryType::DEVICE.0), u64::from(MemoryType::HOST.0));
    for (name, address, kind, context, managed, exports) in [
        ("plain", cuda.allocate(0, 2 * MIB), device, primary, 0, true),
        ("growing", segment(&cuda, 2), device, 0, 0, true),
        ("of a pool", cuda.allocate_from_pool(0, 2 * MIB), device, 0, 0, true),
        ("managed", cuda.allocate_managed(0, 2 * MIB), device, primary, 1, false),
        ("pinned", cuda.allocate_pinned(0, 2 * MIB), host, primary, 0, false),
    ] {
        let ask = |attribute| driver.attribute(attribute, address + 100);
        assert_eq!(ask(PointerAttribute::MEMORY_TYPE), Ok(kind), "{name}");
        assert_eq!(ask(PointerAttribute::CONTEXT), Ok(context), "{name}");
        assert_eq!(ask(PointerAttribute::DEVICE_ORDINAL), Ok(0), "{name}");
        assert_eq!(ask(PointerAttribute::IS_MANAGED), Ok(managed), "{name}");
        assert_eq!(driver.range(address + 100).map(|(base, _)| base), Ok(address), "{name}");
        assert_eq!(driver.export(address, 4096).map(drop), if exports { Ok(()) } else { Err(INVALID) }, "{name}");
    }
    let local = 0_u8;
    let host = std::ptr::from_ref(&local).addr() as u64;
    for attribute in [1, 2, 7, 8, 9, 11, 12, 13, 15, 17].map(PointerAttribute) {
        assert_eq!(driver.attribute(attribute, host), Err(INVALID), "{attribute:?}");
    }
    assert_eq!(driver.range(host), Err(CuResult::NOT_FOUND));
}

#[test]
fn freed_memory_is_not_known_any_more() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let address = cuda.allocate(0, 2 * MIB);
    cuda.free(address);
    assert_eq!((driver.id(address), driver.range(address)), (Err(INVALID), Err(CuResult::NOT_FOUND)));
}

#[test]
fn some_drivers_answer_zero_for_pageable_memory() {
    let (_cuda, driver) = cuda(CudaConfig::default().host_answer(HostAnswer::Zero));
    for attribute in [PointerAttribute::MEMORY_TYPE, PointerAttribute::CONTEXT, PointerAttribute::BUFFER_ID] {
        assert_eq!(driver.attribute(attribute, 0x1234), Ok(0));
    }
    assert_eq!(driver.attribute(PointerAttribute(999), 0x1234), Err(INVALID));
}

#[test]
fn nothing_is_answered_before_initialisation_and_after_the_end() {
    let (cuda, driver) = cuda(CudaConfig::default().not_initialised());
    assert_eq!(driver.id(0x1234), Err(CuResult::NOT_INITIALIZED));
    assert_eq!(driver.device_count(), Err(CuResult::NOT_INITIALIZED));
    assert_eq!(driver.init(), Ok(()));
    assert_eq!((driver.device_count(), driver.id(0x1234)), (Ok(1), Err(INVALID)));
    cuda.shut_down();
    assert_eq!(driver.id(0x1234), Err(CuResult::DEINITIALIZED));
    assert_eq!(driver.current(), Err(CuResult::DEINITIALIZED));
}

#[test]
fn a_growing_segment_is_seen_mapping_by_mapping() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let base = segment(&cuda, 10);
    let mut at = base;
    while let Ok((start, size)) = driver.range(at) {
        assert_eq!((start, size as u64), (at, 20 * MIB));
        at += size as u64;
    }
    assert_eq!(at - base, 200 * MIB);
    assert_eq!(driver.attribute(PointerAttribute::RANGE_START_ADDR, base + 21 * MIB), Ok(base + 20 * MIB));
    assert_eq!(driver.attribute(PointerAttribute::RANGE_SIZE, base), Ok(1 << 34), "the whole reservation");
    let ids: Vec<_> = (0..3).map(|at| driver.id(base + at * 20 * MIB).expect("mapped")).collect();
    assert_eq!([ids[1] - ids[0], ids[2] - ids[1]], [1, 1]);
    assert_eq!(driver.id(base + 5), Ok(ids[0]), "one for the whole mapping");
}

#[test]
fn a_walk_may_meet_another_allocation_right_behind() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let base = cuda.allocate(0, 2 * MIB);
    cuda.allocate_at(0, base + 2 * MIB, 15);
    assert_eq!(driver.range(base + 2 * MIB), Ok((base + 2 * MIB, 15)));
    assert_eq!(driver.export(base, 2 * MIB + 4096).err(), Some(INVALID), "two allocations are no one range");
}

#[test]
fn mappings_of_reservations_that_touch_are_no_one_export() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let bases = [4 * MIB, 2 * MIB].map(|length| cuda.reserve(0, length));
    assert_eq!(bases[1], bases[0] + 4 * MIB, "they touch");
    for at in [bases[0], bases[0] + 2 * MIB, bases[1]] {
        cuda.map(at, 2 * MIB);
    }
    assert_eq!(driver.export(bases[0], 4 * MIB).map(drop), Ok(()), "two mappings of one");
    assert_eq!(driver.export(bases[0] + 2 * MIB, 4 * MIB).err(), Some(INVALID), "over the edge");
    assert_eq!(driver.export(bases[1], 2 * MIB).map(drop), Ok(()));
}

#[test]
fn a_mapping_made_anew_has_a_new_id_and_its_neighbours_keep_theirs() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let base = segment(&cuda, 3);
    let ids = || [0, 20, 40].map(|at| driver.id(base + at * MIB));
    let before = ids();
    cuda.unmap(base + 20 * MIB);
    assert_eq!(driver.id(base + 20 * MIB), Err(INVALID));
    cuda.map(base + 20 * MIB, 20 * MIB);
    let after = ids();
    assert_eq!((after[0], after[2]), (before[0], before[2]));
    assert!(after[1] > before[2] && after[1] != before[1], "{before:?} {after:?}");
}

#[test]
fn f5_an_address_comes_back_with_another_id() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let first = driver.alloc(2 << 20).expect("memory");
    let id = driver.id(first).expect("known");
    cuda.write(first, &[7; 8]);
    assert_eq!(driver.free(first), Ok(()));
    assert_eq!(driver.alloc(2 << 20), Ok(first), "the same address");
    assert_eq!(driver.id(first), Ok(id + 1));
    assert_eq!(cuda.read(first, 8), [0; 8], "and no old bytes");
    assert_eq!(driver.free(first + 1), Err(INVALID));
}

#[test]
fn e1_exports_are_whole_pages_inside_what_is_mapped() {
    for page in [4096, 65_536] {
        let (cuda, driver) = cuda(CudaConfig::default().page_bytes(page));
        let base = segment(&cuda, 10);
        for (offset, length, answer) in [
            (0, 20 * MIB, Ok(())),
            (0, page, Ok(())),
            (page, page, Ok(())),
            (0, 65_536, Ok(())),
            (2 * MIB, 2 * MIB, Ok(())),
            (0, 40 * MIB, Ok(())),
            (0, 200 * MIB, Ok(())),
            (0, 100, Err(INVALID)),
            (100, page, Err(INVALID)),
            (0, 0, Err(INVALID)),
            (0, page / 2, Err(INVALID)),
            (200 * MIB - page, 2 * page, Err(INVALID)),
            (200 * MIB, page, Err(INVALID)),
        ] {
            assert_eq!(driver.export(base + offset, length).map(drop), answer, "{page}: {offset} {length}");
        }
        cuda.unmap(base + 20 * MIB);
        assert_eq!(driver.export(base, 60 * MIB).err(), Some(INVALID), "a hole");
        assert_eq!(driver.export(base + 40 * MIB, 40 * MIB).map(drop), Ok(()));
    }
    let (cuda, driver) = cuda(CudaConfig::default());
    let large = cuda.allocate(0, 6 << 30);
    assert_eq!(driver.export(large, 6 << 30).map(drop), Ok(()), "more than 4 GiB");
    let kind = RangeHandleType::DMA_BUF_FD;
    assert_eq!(driver.export_with(large, 4096, kind, 1).err(), Some(CuResult::NOT_SUPPORTED), "over PCIe");
    assert_eq!(driver.export_with(large, 4096, kind, 2).err(), Some(INVALID));
    assert_eq!(driver.export_with(large, 4096, RangeHandleType(7), 0).err(), Some(INVALID));
}

#[test]
fn memory_without_the_gpudirect_flag_says_so_and_is_exported_all_the_same() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let base = cuda.reserve(0, 8 * MIB);
    cuda.map_without_gpu_direct(base, 2 * MIB);
    cuda.map(base + 2 * MIB, 2 * MIB);
    let capable = PointerAttribute::IS_GPU_DIRECT_RDMA_CAPABLE;
    assert_eq!((driver.attribute(capable, base), driver.attribute(capable, base + 2 * MIB)), (Ok(0), Ok(1)));
    for address in [cuda.allocate_managed(0, 4096), cuda.allocate_pinned(0, 4096), cuda.allocate_from_pool(0, 4096)] {
        assert_eq!(driver.attribute(capable, address), Ok(0));
    }
    assert_eq!(driver.attribute(capable, cuda.allocate(0, 4096)), Ok(1));
    assert_eq!(driver.export(base, 4 * MIB).map(drop), Ok(()));
}

#[test]
fn an_export_keeps_memory_until_its_file_is_closed() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let base = cuda.allocate(0, 64 * MIB);
    let growing = segment(&cuda, 1);
    let files = [driver.export(base, 64 * MIB).expect("plain"), driver.export(growing, 20 * MIB).expect("growing")];
    cuda.free(base);
    cuda.unmap(growing);
    assert_eq!(cuda.used_bytes(0), 84 * MIB);
    drop(files);
    assert_eq!(cuda.used_bytes(0), 0);
}

#[test]
fn an_exports_file_is_as_long_as_its_range_and_is_closed_on_exec() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let file = driver.export(cuda.allocate(0, 2 * MIB), 8192).expect("an export");
    let file = std::fs::File::from(file);
    assert_eq!(file.metadata().expect("a file").len(), 8192);
    assert!(file.as_raw_fd() >= 0);
}

#[test]
fn attributes_need_no_context_and_copies_and_exports_do() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let address = cuda.allocate(0, 2 * MIB);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(driver.current(), Ok(0), "a new thread has none");
            let none = Some(CuResult::INVALID_CONTEXT);
            assert!(driver.id(address).is_ok());
            assert_eq!(driver.range(address).err(), none);
            assert_eq!(driver.copy_out(address, 64).err(), none);
            assert_eq!(driver.copy_in(address, &[1]).err(), none);
            assert_eq!(driver.export(address, 4096).err(), none);
            assert_eq!((driver.synchronize().err(), driver.flush().err(), driver.alloc(64).err()), (none, none, none));
            assert_eq!(driver.set_current(cuda.primary_context(0)), Ok(()));
            assert_eq!(driver.copy_out(address, 64), Ok(vec![0; 64]));
            assert_eq!((driver.synchronize(), driver.flush()), (Ok(()), Ok(())));
        });
    });
}

#[test]
fn what_was_allocated_in_a_context_goes_with_it_and_a_free_needs_none() {
    let config = CudaConfig::default().gpus(vec![SoftGpu::default(), SoftGpu::default()]);
    let (cuda, driver) = cuda(config);
    driver.retain_primary(1).and_then(|context| driver.set_current(context)).expect("a context");
    let (kept, freed) = (driver.alloc(64).expect("memory"), driver.alloc(64).expect("memory"));
    assert_eq!((driver.set_current(0), driver.free(freed)), (Ok(()), Ok(())));
    assert!(driver.id(kept).is_ok());
    assert_eq!((driver.release_primary(1), driver.id(kept)), (Ok(()), Err(INVALID)));
    let other = cuda.create_context(0);
    let address = cuda.allocate_in(other, 64);
    cuda.destroy_context(other);
    assert_eq!(driver.id(address), Err(INVALID));
}

#[test]
fn an_export_of_a_plain_allocation_may_reach_to_the_end_of_its_2_mib() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let small = cuda.allocate(0, 100);
    for (length, answer) in
        [(4096, Ok(())), (8192, Ok(())), (65_536, Ok(())), (2 * MIB, Ok(())), (2 * MIB + 4096, Err(INVALID))]
    {
        assert_eq!(driver.export(small, length).map(drop), answer, "{length}");
    }
    let odd = cuda.allocate(0, 5 * MIB + 100);
    for (length, answer) in [(5 * MIB + 4096, Ok(())), (6 * MIB, Ok(())), (6 * MIB + 4096, Err(INVALID))] {
        assert_eq!(driver.export(odd, length).map(drop), answer, "{length}");
    }
}

#[test]
fn d2_contexts_are_retained_released_and_current_per_thread() {
    let config = CudaConfig::default().gpus(vec![SoftGpu::default(), SoftGpu::default().pci(1, 0xcd, 2)]);
    let (cuda, driver) = cuda(config);
    let destroyed = Some(CuResult::CONTEXT_IS_DESTROYED);
    assert_eq!(driver.set_current(cuda.primary_context(1)), Ok(()), "granted though nobody holds it");
    assert_eq!((driver.alloc(64).err(), driver.synchronize().err()), (destroyed, destroyed));
    assert_eq!(driver.retain_primary(1), Ok(cuda.primary_context(1)));
    assert_eq!(driver.set_current(cuda.primary_context(1)), Ok(()));
    assert_eq!(driver.release_primary(1), Ok(()));
    assert_eq!(driver.release_primary(1), Err(CuResult::INVALID_CONTEXT));
    assert_eq!(cuda.retained_and_released(1), (1, 1));
    assert_eq!(driver.copy_in(0, &[]).err(), destroyed, "what was current is gone");
    assert_eq!(driver.retain_primary(2), Err(CuResult::INVALID_DEVICE));
    let other = cuda.create_context(1);
    let address = cuda.allocate_in(other, 4096);
    assert_eq!(driver.attribute(PointerAttribute::CONTEXT, address), Ok(other as u64));
    assert_eq!(driver.attribute(PointerAttribute::DEVICE_ORDINAL, address), Ok(1));
    assert_eq!((driver.set_current(other), driver.current()), (Ok(()), Ok(other)));
    assert_eq!(driver.set_current(other + 1), Err(CuResult::INVALID_CONTEXT));
    assert_eq!(driver.set_current(0), Ok(()));
    cuda.destroy_context(other);
    assert_eq!(driver.set_current(other), Err(CuResult::INVALID_CONTEXT));
    assert_eq!(cuda.retained_and_released(1), (1, 1), "the primary one was left alone");
}

#[test]
fn devices_are_found_by_ordinal_and_say_where_they_are() {
    let config = CudaConfig::default().gpus(vec![
        SoftGpu::default(),
        SoftGpu::default().pci(1, 0xcd, 2).attribute(DeviceAttribute::DMA_BUF_SUPPORTED, 0),
    ]);
    let (_cuda, driver) = cuda(config);
    assert_eq!(
        (driver.device_count(), driver.device(1), driver.device(2)),
        (Ok(2), Ok(1), Err(CuResult::INVALID_DEVICE))
    );
    assert_eq!(driver.pci_bus_id(0, 32).as_deref(), Ok("0000:4E:00.0"));
    assert_eq!(driver.pci_bus_id(1, 13).as_deref(), Ok("0001:CD:02.0"));
    assert_eq!(driver.pci_bus_id(1, 12), Err(INVALID));
    for (attribute, values) in
        [(102, [1, 1]), (110, [1, 1]), (116, [1, 1]), (117, [1, 1]), (118, [100, 100]), (124, [1, 0])]
    {
        let attribute = DeviceAttribute(attribute);
        assert_eq!([0, 1].map(|device| driver.device_attribute(attribute, device)), values.map(Ok), "{attribute:?}");
    }
    assert_eq!(driver.device_attribute(DeviceAttribute(9999), 0), Err(INVALID));
}

#[test]
fn copies_copy_across_mappings_and_not_beyond_them() {
    let (cuda, driver) = cuda(CudaConfig::default());
    let base = segment(&cuda, 2);
    let edge = base + 20 * MIB;
    assert_eq!(driver.copy_in(edge - 3, b"across"), Ok(()));
    assert_eq!(driver.copy_out(edge - 3, 6).as_deref(), Ok(&b"across"[..]));
    assert_eq!(cuda.read(edge, 3), b"oss");
    assert_eq!(driver.copy_in(base + 40 * MIB - 2, b"across"), Err(INVALID));
    assert_eq!(cuda.read(base + 40 * MIB - 2, 2), [0; 2], "a refused copy copies nothing");
    assert_eq!(driver.copy_out(base + 40 * MIB, 1), Err(INVALID));
}

#[test]
fn a_lazy_copy_is_there_once_its_stream_is_synchronised() {
    let (cuda, driver) = cuda(CudaConfig::default().lazy_copies());
    let address = cuda.allocate(0, 2 * MIB);
    let file = driver.export(address, 4096).expect("an export");
    assert_eq!(driver.copy_in(address, &[5; 4]), Ok(()));
    assert_eq!(driver.synchronize(), Ok(()));
    assert_eq!(cuda.read(address, 4), [5; 4]);
    drop(file);
}

#[test]
fn host_memory_of_the_driver_is_this_processs_too() {
    let (cuda, driver) = cuda(CudaConfig::default());
    for address in [cuda.allocate_pinned(0, 4096), cuda.allocate_managed(0, 4096)] {
        let place = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        #[allow(unsafe_code)]
        // SAFETY: pinned and managed memory of the stand-in is mapped in this process.
        unsafe {
            place.write(9);
        }
        assert_eq!(driver.copy_out(address, 1), Ok(vec![9]));
        cuda.free(address);
    }
}

#[test]
fn every_call_fails_on_demand_and_is_recorded() {
    let (cuda, driver) = cuda(CudaConfig::default().record(64).without("cuMemFree_v2"));
    let address = cuda.allocate(0, 2 * MIB);
    cuda.fail("cuPointerGetAttribute", 2, CuResult::UNKNOWN);
    assert!(driver.id(address).is_ok());
    assert_eq!(driver.id(address), Err(CuResult::UNKNOWN));
    cuda.fail_from("cuMemGetHandleForAddressRange", 1, INVALID);
    assert_eq!([driver.export(address, 4096).err(), driver.export(address, 4096).err()], [Some(INVALID); 2]);
    cuda.clear_plan();
    assert!(driver.export(address, 4096).is_ok());
    let calls: Vec<_> = cuda.record().iter().map(|call| (call.symbol, call.result)).collect();
    assert_eq!(calls[..2], [("cuDevicePrimaryCtxRetain", CuResult::SUCCESS), ("cuCtxSetCurrent", CuResult::SUCCESS)]);
    assert_eq!(calls[3], ("cuPointerGetAttribute", CuResult::UNKNOWN));
    let last = cuda.record().pop().expect("recorded");
    assert_eq!(
        (last.symbol, last.subject, last.size, last.number),
        ("cuMemGetHandleForAddressRange", address, 4096, 6)
    );
    assert!(cuda.symbols().mem_free.is_none());
}

#[test]
fn stand_ins_live_beside_each_other_and_their_slots_come_back() {
    let small = || CudaConfig::default().gpus(vec![SoftGpu::default().memory_bytes(4 * MIB)]);
    let (one, other) = (cuda(small()), cuda(small()));
    let address = one.0.allocate(0, 2 * MIB);
    assert_eq!(other.1.id(address), Err(INVALID));
    let mut last = None;
    for _ in 0..200 {
        last = Some(SoftCuda::new(small()).map(drop));
    }
    assert_ne!(last, Some(Err(CudaError::TooMany { limit: 64 })));
    one.0.allocate(0, 2 * MIB);
    assert_eq!(one.1.alloc(1), Err(CuResult::OUT_OF_MEMORY));
}
