//! The whole way of a GPU segment, raw: mappings of the CUDA stand-in, exported, registered, bound to an indirect key, written
//! by a peer through the key, and read back through the CUDA driver.

use std::os::fd::AsRawFd;

use bareverbs_core::verbs::{Mr, WcStatus};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};
use bareverbs_shell::soft::{Mode, SoftConfig, SoftDevice, SoftFabric};

use super::raw::End;
use super::raw::cuda::Driver;
use super::raw::dma_buf::reg_dmabuf;
use super::raw::keys::{Binder, at, destroy_key, key, listed};
use super::raw::on_soft::{env, modes};
use super::raw::one_sided::{ALL, RELIABLE, Scene, read, write};

const MIB: u64 = 1 << 20;
const OK: WcStatus = WcStatus::SUCCESS;

struct World {
    cuda: SoftCuda,
    driver: Driver,
    fabric: SoftFabric,
    scene: Scene,
    /// A segment of three mappings of 2 MiB.
    base: u64,
}

fn world(mode: Mode) -> World {
    let cuda = SoftCuda::new(CudaConfig::default()).expect("a free slot");
    let driver = Driver(cuda.symbols());
    driver.retain_primary(0).and_then(|context| driver.set_current(context)).expect("a context");
    let config = SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")]).mode(mode);
    let fabric = SoftFabric::new(config).expect("a free slot");
    let scene = Scene::new(&env(&fabric, "mlx5_0"), RELIABLE);
    let base = cuda.reserve(0, 1 << 30);
    (0..3).for_each(|at| cuda.map(base + at * 2 * MIB, 2 * MIB));
    World { cuda, driver, fabric, scene, base }
}

impl World {
    /// Exports and registers a part of the segment; the file is closed at once.
    fn register(&self, end: &End, offset: u64, length: u64) -> *mut Mr {
        let file = self.driver.export(self.base + offset, length).expect("an export");
        let mr = reg_dmabuf(end, 0, length as usize, 0, file.as_raw_fd(), ALL);
        assert!(!mr.is_null());
        mr
    }

    fn tear_down(self) {
        self.scene.tear_down();
        assert_eq!(self.fabric.misuse(), Vec::<String>::new());
    }
}

#[test]
fn a_peer_writes_through_the_key_and_the_gpu_reads_it_across_the_regions() {
    for mode in modes() {
        let world = world(mode);
        let Scene { env, one, other, .. } = &world.scene;
        let mut binder = Binder::new(other);
        // Two regions: one over two mappings, one over the third.
        let regions = [world.register(other, 0, 4 * MIB), world.register(other, 4 * MIB, 2 * MIB)];
        let key = key(other, 4);
        assert_eq!(binder.bind(key, ALL, &regions.map(listed)).status, OK);
        let bytes: Vec<u8> = (0..8192_u32).map(|at| (at % 251) as u8 + 1).collect();
        one.write(0, &bytes);
        // Over the edge of two mappings of one region, and over the edge of two regions.
        for edge in [2 * MIB, 4 * MIB] {
            world.scene.post(write(1, one.sge(0, 8192), at(key, edge - 4096)));
            assert_eq!(one.poll(1)[0].status, OK, "{mode:?}");
            assert_eq!(world.driver.copy_out(world.base + edge - 4096, 8192).as_deref(), Ok(&bytes[..]), "{mode:?}");
        }
        assert_eq!(world.driver.copy_out(world.base + 6 * MIB - 8, 8), Ok(vec![0; 8]));
        // And the other way: what the GPU wrote is read by the peer.
        world.driver.copy_in(world.base + 4 * MIB - 3, b"from the GPU").expect("mapped");
        world.scene.post(read(2, one.sge(100, 12), at(key, 4 * MIB - 3)));
        assert_eq!(one.poll(1)[0].status, OK);
        assert_eq!(one.read(100, 12), b"from the GPU");
        assert_eq!(destroy_key(env, key), 0);
        assert_eq!(regions.map(|mr| env.dereg_mr(mr)), [0; 2]);
        binder.tear_down();
        world.tear_down();
    }
}

#[test]
fn e2_an_export_within_an_allocation_is_where_it_says() {
    let world = world(Mode::Prompt);
    let Scene { env, one, other, .. } = &world.scene;
    let base = world.cuda.allocate(0, 64 * MIB);
    let file = world.driver.export(base + 0x123_4000, 4096).expect("an export");
    let mr = reg_dmabuf(other, 0, 4096, 0, file.as_raw_fd(), ALL);
    one.write(0, &[0xee; 16]);
    world.scene.post(write(
        1,
        one.sge(0, 16),
        super::raw::one_sided::Target { addr: 0, rkey: super::raw::one_sided::rkey(mr) },
    ));
    assert_eq!(one.poll(1)[0].status, OK);
    assert_eq!(world.cuda.read(base + 0x123_4000 - 1, 18), [&[0][..], &[0xee; 16], &[0]].concat());
    // An offset in the file is an offset in the range.
    let second = reg_dmabuf(other, 0, 8192, 0, file.as_raw_fd(), ALL);
    assert!(second.is_null(), "longer than the export");
    assert_eq!(env.dereg_mr(mr), 0);
    world.tear_down();
}

#[test]
fn f5_a_stale_region_writes_the_old_memory_and_never_the_new() {
    let world = world(Mode::Prompt);
    let Scene { env, one, other, .. } = &world.scene;
    let mut binder = Binder::new(other);
    let region = world.register(other, 0, 6 * MIB);
    let key = key(other, 4);
    assert_eq!(binder.bind(key, ALL, &[listed(region)]).status, OK);
    // The middle mapping goes and comes back at the same address.
    world.cuda.unmap(world.base + 2 * MIB);
    world.cuda.map(world.base + 2 * MIB, 2 * MIB);
    assert_eq!(world.cuda.used_bytes(0), 8 * MIB, "the region holds what was unmapped");
    one.write(0, &[9; 16]);
    world.scene.post(write(1, one.sge(0, 16), at(key, 2 * MIB - 8)));
    assert_eq!(one.poll(1)[0].status, OK);
    assert_eq!(world.cuda.read(world.base + 2 * MIB - 8, 8), [9; 8], "a neighbour that stayed");
    assert_eq!(world.cuda.read(world.base + 2 * MIB, 8), [0; 8], "the new mapping is untouched");
    assert_eq!([destroy_key(env, key), env.dereg_mr(region)], [0; 2]);
    assert_eq!(world.cuda.used_bytes(0), 6 * MIB);
    binder.tear_down();
    world.tear_down();
}

#[test]
fn g3_regions_and_keys_go_though_the_driver_is_gone() {
    let world = world(Mode::Prompt);
    let Scene { env, other, .. } = &world.scene;
    let mut binder = Binder::new(other);
    let region = world.register(other, 0, 2 * MIB);
    let key = key(other, 4);
    assert_eq!(binder.bind(key, ALL, &[listed(region)]).status, OK);
    world.cuda.unmap(world.base);
    world.cuda.shut_down();
    assert_eq!([destroy_key(env, key), env.dereg_mr(region)], [0; 2]);
    binder.tear_down();
    world.tear_down();
}

#[test]
fn e4_no_file_is_left_open() {
    let open = || std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    let exports = || {
        let links = open().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("bareverbs-dma-buf")).count()
    };
    let world = world(Mode::Prompt);
    for turn in 0..200 {
        if turn % 3 == 0 {
            world.fabric.fail("ibv_reg_dmabuf_mr", 1, bareverbs_shell::soft::Answer::null(12));
            let file = world.driver.export(world.base, 2 * MIB).expect("an export");
            assert!(reg_dmabuf(&world.scene.other, 0, 4096, 0, file.as_raw_fd(), ALL).is_null());
            continue;
        }
        let mr = world.register(&world.scene.other, 0, 2 * MIB);
        assert_eq!(world.scene.env.dereg_mr(mr), 0);
    }
    // Other tests of this process export too, a few at a time.
    assert!(exports() < 100, "{}", exports());
    world.tear_down();
}

#[test]
fn f2_a_segment_of_150_gib_takes_no_more_memory_than_is_written() {
    let world = world(Mode::Prompt);
    let Scene { env, one, other, .. } = &world.scene;
    let large = world.cuda.allocate(0, 150 << 30);
    let mut binder = Binder::new(other);
    let part = 4_292_870_144_u64;
    let regions: Vec<_> = (0..30)
        .map(|at| {
            let file = world.driver.export(large + at * part, part).expect("an export");
            reg_dmabuf(other, 0, part as usize, 0, file.as_raw_fd(), ALL)
        })
        .collect();
    assert!(regions.iter().all(|mr| !mr.is_null()));
    let key = key(other, 32);
    let list: Vec<_> = regions.iter().map(|mr| listed(*mr)).collect();
    assert_eq!(binder.bind(key, ALL, &list).status, OK);
    let offset = 0x1D_FC3F_F000;
    one.write(0, &[3; 4096]);
    world.scene.post(write(1, one.sge(0, 4096), at(key, offset)));
    assert_eq!(one.poll(1)[0].status, OK);
    assert_eq!(world.driver.copy_out(large + offset, 4096), Ok(vec![3; 4096]));
    assert_eq!(destroy_key(env, key), 0);
    assert!(regions.iter().all(|mr| env.dereg_mr(*mr) == 0));
    binder.tear_down();
    world.tear_down();
}
