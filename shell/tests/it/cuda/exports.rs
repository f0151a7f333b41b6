//! Device memory as a dma-buf: what is exported for what was asked, and that its file is closed once.

use std::os::fd::AsRawFd;

use bareverbs_core::cuda::{CuResult, DeviceAttribute, PointerAttribute};
use bareverbs_core::segments::Ordinal;
use bareverbs_core::verbs::WcStatus;
use bareverbs_shell::cuda::{CudaError, Exported};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftGpu};
use bareverbs_shell::soft::{Answer, SoftConfig, SoftDevice, SoftFabric};

use super::{MIB, range, world};
use crate::own_process;
use crate::soft::raw::End;
use crate::soft::raw::dma_buf::reg_dmabuf;
use crate::soft::raw::on_soft::env;
use crate::soft::raw::one_sided::{ALL, RELIABLE, Scene, Target, rkey, write};

/// What the driver was asked to export last.
fn asked(world: &super::World) -> (u64, u64) {
    let record = world.soft.record();
    let last = record.iter().rev().find(|call| call.symbol == "cuMemGetHandleForAddressRange").expect("an export");
    (last.subject, last.size)
}

fn place(export: &Exported) -> (u64, u64, u64) {
    (export.range().base(), export.range().len_bytes(), export.offset_bytes())
}

#[test]
fn e1_what_is_no_whole_pages_is_exported_with_its_allocation_and_its_place_is_told() {
    for page in [4096, 65_536] {
        let mut world = world(CudaConfig::default().page_bytes(page));
        world.cuda = world.cuda.with_page_bytes(page);
        let base = 0x7f40_0000_0000;
        world.soft.allocate_at(0, base, 2 * MIB);
        let whole = (base, 2 * MIB);
        for (offset, len_bytes) in [
            (0xa10, 100),
            (4095, 4097),
            (0, 100),
            (0, page - 1),
            (0, page + 1),
            (1, page),
            (page / 2, page),
            (2 * MIB - 1, 1),
            (1, 2 * MIB - 1),
        ] {
            let export = world.cuda.export(range(base + offset, len_bytes)).expect("an export");
            assert_eq!(place(&export), (base, 2 * MIB, offset), "{page}: {offset} {len_bytes}");
            assert_eq!(asked(&world), whole);
        }
        for (offset, len_bytes) in [(0, page), (page, page), (2 * MIB - page, page), (0, 2 * MIB), (3 * page, 5 * page)]
        {
            let export = world.cuda.export(range(base + offset, len_bytes)).expect("an export");
            assert_eq!(place(&export), (base + offset, len_bytes, 0), "{page}: whole pages as they are");
            assert_eq!(asked(&world), (base + offset, len_bytes));
        }
    }
}

#[test]
fn e1_nothing_is_refused_before_any_call() {
    let world = world(CudaConfig::default());
    let address = world.soft.allocate(0, 4096);
    assert_eq!(world.cuda.export(range(address, 0)).map(drop), Err(CudaError::Empty { address }));
    assert_eq!(world.soft.record(), []);
}

#[test]
fn an_export_goes_over_mappings_and_not_over_a_hole_or_past_the_end() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[20, 20, 20]);
    let across = world.cuda.export(range(base + 20 * MIB - 5, 10)).expect("an export");
    assert_eq!(place(&across), (base, 40 * MIB, 20 * MIB - 5), "both mappings, whole");
    assert_eq!(world.cuda.export(range(base, 60 * MIB)).as_ref().map(place), Ok((base, 60 * MIB, 0)));
    let part = world.cuda.export(range(base + 19 * MIB, 2 * MIB));
    assert_eq!(part.as_ref().map(place), Ok((base + 19 * MIB, 2 * MIB, 0)));
    let exports = world.calls(0).iter().filter(|call| **call == "cuMemGetHandleForAddressRange").count();
    for (offset, len_bytes, hole) in [(59 * MIB, 2 * MIB, 60 * MIB), (60 * MIB - 1, 2, 60 * MIB)] {
        let asked = range(base + offset, len_bytes);
        let refused = CudaError::Hole { range: asked, address: base + hole };
        assert_eq!(world.cuda.export(asked).map(drop), Err(refused));
    }
    world.soft.unmap(base + 20 * MIB);
    let whole = range(base, 60 * MIB);
    let hole = CudaError::Hole { range: whole, address: base + 20 * MIB };
    assert_eq!(world.cuda.export(whole).map(drop), Err(hole));
    assert_eq!(
        world.calls(0).iter().filter(|call| **call == "cuMemGetHandleForAddressRange").count(),
        exports,
        "the driver is not asked for what is not mapped"
    );
    let (_, (retained, released)) = world.kept();
    assert_eq!(retained, released);
}

#[test]
fn an_allocation_that_ends_within_a_page_offers_its_own_bytes_only() {
    let world = world(CudaConfig::default());
    let odd = world.soft.allocate(0, 5 * MIB + 100);
    let export = world.cuda.export(range(odd + 5 * MIB + 50, 50)).expect("an export");
    assert_eq!(place(&export), (odd, 5 * MIB + 100, 5 * MIB + 50));
    assert_eq!(asked(&world), (odd, 5 * MIB + 4096), "the file is whole pages");
    let tail = range(odd + 5 * MIB, 4096);
    let refused = CudaError::Hole { range: tail, address: odd + 5 * MIB + 100 };
    assert_eq!(world.cuda.export(tail).map(drop), Err(refused), "whole pages, of which some bytes are nobody's");
}

#[test]
fn an_allocation_that_starts_within_a_page_is_refused_by_name() {
    let world = world(CudaConfig::default());
    let base = world.soft.allocate(0, 512);
    world.soft.allocate_at(0, base + 512, 8192);
    let refused = CudaError::Unaligned { mapping: range(base + 512, 8192), page_bytes: 4096 };
    assert_eq!(world.cuda.export(range(base + 600, 8)).map(drop), Err(refused.clone()));
    assert!(refused.to_string().contains("4096"), "{refused}");
    // Whole pages in it are no other allocation's.
    let inside = world.cuda.export(range(base + 4096, 4096)).map(|export| place(&export));
    assert_eq!(inside, Ok((base + 4096, 4096, 0)));
}

#[test]
fn allocations_side_by_side_are_no_one_export_whatever_the_driver_would_say() {
    let world = world(CudaConfig::default());
    // Within 2 MiB, so the driver exports as much from the first one's start: not the second one's bytes.
    let first = world.soft.allocate(0, 4096);
    world.soft.allocate_at(0, first + 4096, 4096);
    let primary = world.raw.retain_primary(0).expect("a context");
    world.raw.set_current(primary).expect("retained");
    assert!(world.raw.export(first, 8192).is_ok());
    let pool = [world.soft.allocate_from_pool(0, 2 * MIB), world.soft.allocate_from_pool(0, 2 * MIB)];
    for (asked, address) in [
        (range(first, 8192), first + 4096),
        (range(first + 4000, 200), first + 4096),
        (range(pool[0], 4 * MIB), pool[1]),
    ] {
        let refused = CudaError::Several { range: asked, address };
        assert_eq!(world.cuda.export(asked).map(drop), Err(refused.clone()));
        assert!(refused.to_string().contains("export each by itself"), "{refused}");
    }
    assert!(world.cuda.export(range(first + 4096, 4096)).is_ok());
}

#[test]
fn a_device_that_exports_none_is_not_asked_to_and_one_that_does_not_say_is() {
    let denies = SoftGpu::default().attribute(DeviceAttribute::DMA_BUF_SUPPORTED, 0);
    let world = world(CudaConfig::default().gpus(vec![SoftGpu::default(), denies]));
    let [has, none] = [0, 1].map(|ordinal| range(world.soft.allocate(ordinal, 4096), 4096));
    let refused = CudaError::NoDmaBuf { ordinal: Ordinal(1) };
    assert_eq!(world.cuda.export(none).map(drop), Err(refused.clone()));
    assert!(refused.to_string().contains("DMA_BUF_SUPPORTED"), "{refused}");
    assert!(!world.calls(0).contains(&"cuMemGetHandleForAddressRange"));
    // An older driver does not know the attribute.
    world.soft.fail("cuDeviceGetAttribute", 1, CuResult::INVALID_VALUE);
    assert!(world.cuda.export(has).is_ok());
    world.soft.fail("cuDeviceGetAttribute", 1, CuResult::UNKNOWN);
    assert_eq!(world.cuda.export(has).err().and_then(|error| error.result()), Some(CuResult::UNKNOWN));
    let older = super::world(CudaConfig::default().without("cuDeviceGetAttribute"));
    assert!(older.cuda.export(range(older.soft.allocate(0, 4096), 4096)).is_ok());
}

#[test]
fn memory_that_denies_gpudirect_is_exported_if_that_succeeds_and_else_the_attribute_is_named() {
    let world = world(CudaConfig::default());
    let base = world.soft.reserve(0, 8 * MIB);
    world.soft.map_without_gpu_direct(base, 2 * MIB);
    world.soft.map(base + 2 * MIB, 2 * MIB);
    assert!(world.cuda.export(range(base, 4 * MIB)).is_ok());
    let attribute = u64::from(PointerAttribute::IS_GPU_DIRECT_RDMA_CAPABLE.0);
    assert!(world.soft.record().iter().all(|call| call.size != attribute), "of no use while it succeeds");
    for (base, denies) in [(base, true), (base + 2 * MIB, false)] {
        world.soft.fail("cuMemGetHandleForAddressRange", 1, CuResult::INVALID_VALUE);
        let error = world.cuda.export(range(base, 2 * MIB)).expect_err("refused");
        let CudaError::Export { error: call, gpu_direct_capable } = &error else { panic!("{error}") };
        assert_eq!((call.result, *gpu_direct_capable), (CuResult::INVALID_VALUE, Some(u32::from(!denies))));
        let text = error.to_string();
        assert!(text.contains("cuMemGetHandleForAddressRange answered 1 (CUDA_ERROR_INVALID_VALUE)"), "{text}");
        assert_eq!(text.contains("CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE (15) is 0"), denies, "{text}");
    }
}

#[test]
fn d1_a_pools_thread_exports_and_its_context_is_as_it_was() {
    let world = world(CudaConfig::default());
    let (plain, growing) = (world.soft.allocate(0, 4 * MIB), world.segment(0, &[4]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (times, base) in [(0, plain), (1, growing)] {
                assert!(world.cuda.export(range(base, 4 * MIB)).is_ok());
                assert_eq!(world.kept(), (0, (times, times)));
            }
        });
    });
}

/// Two ends of a fabric whose regions are over dma-bufs.
fn scene() -> (SoftFabric, Scene) {
    let config = SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")]);
    let fabric = SoftFabric::new(config).expect("a free slot");
    let scene = Scene::new(&env(&fabric, "mlx5_0"), RELIABLE);
    (fabric, scene)
}

fn register(end: &End, export: &Exported) -> *mut bareverbs_core::verbs::Mr {
    reg_dmabuf(end, 0, export.range().len_bytes() as usize, 0, export.file().as_raw_fd(), ALL)
}

#[test]
fn e2_a_write_at_the_offset_lands_on_the_byte_that_was_asked_for_and_on_no_other() {
    let world = world(CudaConfig::default());
    let (_fabric, scene) = scene();
    let (base, small) = (0x7f40_0000_0000, world.soft.allocate(0, 2 * MIB));
    world.soft.allocate_at(0, base, 64 * MIB);
    let segment = world.segment(0, &[2, 2]);
    for (around, len_bytes, at) in [
        (base, 64 * MIB, base + 0x123_4000),
        (small, 2 * MIB, small + 0xa10),
        (segment, 4 * MIB, segment + 2 * MIB - 7),
        (segment, 4 * MIB, segment + 2 * MIB),
    ] {
        for asked in [4096, 100] {
            let mut before = vec![0; len_bytes as usize];
            before.chunks_exact_mut(4096).zip(0..).for_each(|(page, number): (_, u64)| page.fill((number % 251) as u8));
            world.soft.write(around, &before);
            let export = world.cuda.export(range(at, asked)).expect("an export");
            let mr = register(&scene.other, &export);
            assert!(!mr.is_null());
            let addr = export.offset_bytes();
            drop(export);
            scene.one.write(0, &[0xee; 16]);
            scene.post(write(1, scene.one.sge(0, 16), Target { addr, rkey: rkey(mr) }));
            assert_eq!(scene.one.poll(1)[0].status, WcStatus::SUCCESS);
            let mut expected = before;
            expected[(at - around) as usize..][..16].fill(0xee);
            assert!(world.soft.read(around, len_bytes as usize) == expected, "{asked} at {at:#x}");
            assert_eq!(scene.env.dereg_mr(mr), 0);
        }
    }
    scene.tear_down();
}

/// The files that this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

#[test]
fn e4_no_registration_leaves_a_file_open() {
    own_process::run("cuda::exports::e4_no_registration_leaves_a_file_open", &[], || {
        let world = world(CudaConfig::default());
        let (fabric, scene) = scene();
        let base = world.segment(0, &[4, 4]);
        let before = open_files();
        for turn in 0..200 {
            let asked = range(base + turn * 4096 + turn % 2, 4096);
            match turn % 4 {
                0 => fabric.fail("ibv_reg_dmabuf_mr", 1, Answer::null(libc::ENOMEM)),
                1 => world.soft.fail("cuMemGetHandleForAddressRange", 1, CuResult::OPERATING_SYSTEM),
                _ => {}
            }
            let Ok(export) = world.cuda.export(asked) else {
                assert_eq!(turn % 4, 1);
                continue;
            };
            let mr = register(&scene.other, &export);
            assert_eq!(mr.is_null(), turn % 4 == 0);
            assert_eq!(open_files(), before + 1, "its own");
            drop(export);
            assert!(mr.is_null() || scene.env.dereg_mr(mr) == 0);
            assert_eq!(open_files(), before);
        }
        scene.tear_down();
    });
}

#[test]
#[allow(unsafe_code)]
fn e4_file_0_is_as_good_as_any_and_is_closed_once() {
    use std::os::fd::{FromRawFd, OwnedFd};
    own_process::run("cuda::exports::e4_file_0_is_as_good_as_any_and_is_closed_once", &[], || {
        let world = world(CudaConfig::default());
        let (_fabric, scene) = scene();
        let whole = range(world.soft.allocate(0, 4096), 4096);
        // SAFETY: this process is the test's own, and reads nothing from its standard input.
        drop(unsafe { OwnedFd::from_raw_fd(0) });
        let export = world.cuda.export(whole).expect("an export");
        assert_eq!(export.file().as_raw_fd(), 0);
        let mr = register(&scene.other, &export);
        assert!(!mr.is_null());
        drop(export);
        // The lowest number is free again.
        let file = std::fs::File::open("/proc/self/cmdline").expect("Linux");
        assert_eq!(file.as_raw_fd(), 0);
        assert_eq!(scene.env.dereg_mr(mr), 0);
        scene.tear_down();
    });
}

#[test]
fn an_export_keeps_its_memory_though_the_process_may_open_no_more_files() {
    own_process::run(
        "cuda::exports::an_export_keeps_its_memory_though_the_process_may_open_no_more_files",
        &[],
        || {
            let world = world(CudaConfig::default());
            let base = world.segment(0, &[2]);
            let whole = range(base, 2 * MIB);
            let export = world.cuda.export(whole).expect("an export");
            let before = limit_files(0);
            assert!(matches!(world.cuda.export(whole), Err(CudaError::Export { .. })));
            limit_files(before);
            world.soft.unmap(base);
            assert_eq!(world.soft.used_bytes(0), 2 * MIB, "by the file that is open");
            drop(export);
            assert_eq!(world.soft.used_bytes(0), 0);
        },
    );
}

/// Limits the files that this process may have open by their numbers; answers the limit before.
#[allow(unsafe_code, reason = "to set a limit of the process")]
fn limit_files(count: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is ours.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, count);
    // SAFETY: as above; the limit of a process that has this test only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    before
}

#[test]
fn g3_what_was_exported_goes_without_the_driver() {
    let world = world(CudaConfig::default());
    let (_fabric, scene) = scene();
    let base = world.segment(0, &[2]);
    let export = world.cuda.export(range(base, 2 * MIB)).expect("an export");
    let mr = register(&scene.other, &export);
    world.soft.unmap(base);
    world.soft.fail_from("cuPointerGetAttribute", 1, CuResult::INVALID_VALUE);
    world.soft.shut_down();
    let before = world.soft.record().len();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(export));
    });
    assert_eq!(scene.env.dereg_mr(mr), 0);
    assert_eq!(world.calls(before), Vec::<&str>::new(), "no drop asks the driver anything");
    assert_eq!(world.soft.used_bytes(0), 0, "and nothing keeps the memory");
    scene.tear_down();
}
