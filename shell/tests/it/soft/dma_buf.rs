//! Regions over dma-bufs: files of memory stand for them.

use std::os::fd::AsRawFd;

use bareverbs_core::verbs::AccessFlags;
use bareverbs_shell::soft::{Answer, Detail, Limits, Record, SoftConfig, SoftDevice, SoftFabric};

use super::raw::dma_buf::{MemFile, reg_dmabuf};
use super::raw::on_soft::{env, modes};
use super::raw::one_sided::{ALL, RELIABLE, Scene, Target, rkey, write};
use super::raw::{End, clear_errno, errno};

const PAGE: u64 = 4096;

fn fabric() -> SoftFabric {
    SoftFabric::new(SoftConfig::default()).expect("a free slot")
}

fn shown(mr: *mut bareverbs_core::verbs::Mr) -> (u64, usize) {
    #[allow(unsafe_code)]
    // SAFETY: the test's own region.
    let mr = unsafe { &*mr };
    (mr.addr.addr() as u64, mr.length)
}

#[test]
fn a_peer_writes_into_the_file_and_sees_what_others_wrote_there() {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let scene = Scene::new(&env(&fabric, "soft0"), RELIABLE);
        let file = MemFile::new(4 * PAGE);
        let mr = reg_dmabuf(&scene.other, PAGE, 2 * PAGE as usize, 0, file.fd(), ALL);
        scene.one.write(0, b"through the region");
        scene.post(write(1, scene.one.sge(0, 18), Target { addr: 10, rkey: rkey(mr) }));
        assert_eq!(scene.one.poll(1)[0].status.0, 0);
        assert_eq!(file.read(PAGE + 10, 18), b"through the region");
        assert!(file.read(0, PAGE as usize + 10).iter().all(|byte| *byte == 0));
        assert_eq!(scene.env.dereg_mr(mr), 0);
        scene.tear_down();
    }
}

#[test]
fn the_regions_address_is_the_offset_and_requests_count_from_the_iova() {
    let fabric = fabric();
    let scene = Scene::new(&env(&fabric, "soft0"), RELIABLE);
    let file = MemFile::new(4 * PAGE);
    let mr = reg_dmabuf(&scene.other, PAGE, PAGE as usize, 7 * PAGE, file.fd(), ALL);
    assert_eq!(shown(mr), (PAGE, PAGE as usize));
    scene.one.write(0, &[9]);
    scene.post(write(1, scene.one.sge(0, 1), Target { addr: 7 * PAGE, rkey: rkey(mr) }));
    assert_eq!(scene.one.poll(1)[0].status.0, 0);
    assert_eq!(file.read(PAGE, 1), [9]);
    assert_eq!(scene.env.dereg_mr(mr), 0);
    scene.tear_down();
}

#[test]
fn an_offset_within_a_page_needs_an_iova_within_a_page() {
    let fabric = fabric();
    let end = End::new(&env(&fabric, "soft0"));
    let file = MemFile::new(4 * PAGE);
    for (offset, iova, answer) in
        [(100, 100, 0), (100, PAGE + 100, 0), (100, 0, 22), (0, 100, 22), (PAGE, 0, 0), (0, u64::MAX - 99, 22)]
    {
        clear_errno();
        let mr = reg_dmabuf(&end, offset, 100, iova, file.fd(), ALL);
        assert_eq!((mr.is_null(), errno()), (answer != 0, answer), "{offset} {iova}");
        if !mr.is_null() {
            assert_eq!(end.env.dereg_mr(mr), 0);
        }
    }
    end.tear_down();
}

#[test]
fn a_range_must_lie_in_the_file_and_the_file_must_be_one() {
    let fabric = fabric();
    let end = End::new(&env(&fabric, "soft0"));
    let file = MemFile::new(2 * PAGE);
    let (read, _write) = std::io::pipe().expect("a pipe");
    let local = AccessFlags::LOCAL_WRITE;
    for (offset, length, fd, access, answer) in [
        (0, 2 * PAGE, file.fd(), ALL, 0),
        (PAGE, PAGE, file.fd(), ALL, 0),
        (0, 2 * PAGE + 1, file.fd(), ALL, 22),
        (PAGE, PAGE + 1, file.fd(), ALL, 22),
        (0, 0, file.fd(), ALL, 22),
        (u64::MAX - PAGE + 1, 2 * PAGE, file.fd(), ALL, 22),
        (0, PAGE, -1, ALL, 9),
        (0, PAGE, read.as_raw_fd(), ALL, 22),
        (0, PAGE, file.fd(), local | AccessFlags::MW_BIND, 22),
        (0, PAGE, file.fd(), local | AccessFlags::ON_DEMAND, 22),
        (0, PAGE, file.fd(), AccessFlags::REMOTE_WRITE, 22),
        (0, PAGE, file.fd(), local | AccessFlags::RELAXED_ORDERING, 0),
    ] {
        clear_errno();
        let mr = reg_dmabuf(&end, offset, length as usize, offset % PAGE, fd, access);
        assert_eq!((mr.is_null(), errno()), (answer != 0, answer), "{offset} {length} {access:?}");
        if !mr.is_null() {
            assert_eq!(end.env.dereg_mr(mr), 0);
        }
    }
    end.tear_down();
}

#[test]
fn a_region_holds_the_memory_after_its_file_was_closed() {
    let fabric = fabric();
    let scene = Scene::new(&env(&fabric, "soft0"), RELIABLE);
    let file = MemFile::new(PAGE);
    let mr = reg_dmabuf(&scene.other, 0, PAGE as usize, 0, file.fd(), ALL);
    drop(file);
    scene.one.write(0, &[7; 8]);
    let place = Target { addr: 0, rkey: rkey(mr) };
    scene.post(write(1, scene.one.sge(0, 8), place));
    scene.post(super::raw::one_sided::read(2, scene.one.sge(8, 8), place));
    assert!(scene.one.poll(2).iter().all(|wc| wc.status.0 == 0));
    assert_eq!(scene.one.read(8, 8), [7; 8]);
    assert_eq!(scene.env.dereg_mr(mr), 0);
    scene.tear_down();
}

#[test]
fn e5_a_registration_is_unsupported_where_it_was_told_to_be() {
    let fabric = fabric();
    let end = End::new(&env(&fabric, "soft0"));
    let file = MemFile::new(PAGE);
    for number in [95, 93, 524, 22] {
        fabric.fail("ibv_reg_dmabuf_mr", 1, Answer::null(number));
        clear_errno();
        assert!(reg_dmabuf(&end, 0, PAGE as usize, 0, file.fd(), ALL).is_null());
        assert_eq!(errno(), number);
    }
    let mr = reg_dmabuf(&end, 0, PAGE as usize, 0, file.fd(), ALL);
    assert_eq!(end.env.dereg_mr(mr), 0);
    end.tear_down();
    let config = SoftConfig::default().without("ibv_reg_dmabuf_mr");
    assert!(SoftFabric::new(config).expect("a free slot").symbols().reg_dmabuf_mr.is_none());
}

#[test]
fn the_record_says_what_was_registered() {
    let fabric = SoftFabric::new(SoftConfig::default().record(Record::Control(64))).expect("a free slot");
    let end = End::new(&env(&fabric, "soft0"));
    let file = MemFile::new(PAGE);
    let mr = reg_dmabuf(&end, 0, PAGE as usize, 0, file.fd(), ALL);
    let call = fabric.record().into_iter().find(|call| call.symbol == "ibv_reg_dmabuf_mr").expect("recorded");
    let detail =
        Detail::RegisterDmaBuf { fd: file.fd(), offset_bytes: 0, length_bytes: PAGE as usize, iova: 0, access: ALL };
    assert_eq!((call.handle, call.detail), (mr.addr(), detail));
    assert_eq!(end.env.dereg_mr(mr), 0);
    end.tear_down();
}

#[test]
fn the_devices_limits_on_regions_hold_for_dma_bufs_too() {
    let limits = Limits { regions: 2, region_bytes: 1 << 20, ..Limits::default() };
    let device = SoftDevice::new("soft0").limits(limits);
    let fabric = SoftFabric::new(SoftConfig::default().devices(vec![device])).expect("a free slot");
    // The end's own region is the first.
    let end = End::new(&env(&fabric, "soft0"));
    let file = MemFile::new(2 << 20);
    let register = |length| reg_dmabuf(&end, 0, length, 0, file.fd(), ALL);
    clear_errno();
    assert!(register((1 << 20) + 1).is_null());
    assert_eq!(errno(), 22);
    let mr = register(1 << 20);
    assert!(!mr.is_null() && register(4096).is_null());
    assert_eq!(errno(), 12);
    assert_eq!(end.env.dereg_mr(mr), 0);
    end.tear_down();
}

#[test]
fn thunderbolt_has_no_dma_bufs() {
    let device = SoftDevice::thunderbolt("rdma_en2");
    let fabric = SoftFabric::new(SoftConfig::default().devices(vec![device])).expect("a free slot");
    let end = End::new(&env(&fabric, "rdma_en2"));
    let file = MemFile::new(PAGE);
    clear_errno();
    assert!(reg_dmabuf(&end, 0, PAGE as usize, 0, file.fd(), ALL).is_null());
    assert_eq!(errno(), 102);
    end.tear_down();
}
