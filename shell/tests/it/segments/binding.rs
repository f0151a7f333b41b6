//! Keys that are bound: which regions and keys a segment takes, and where bytes go that are written through them.

use std::sync::Arc;

use bareverbs_core::segments::{CapError, EntryCap, LengthSum};
use bareverbs_core::verbs::{AccessFlags, LinkLayer, PortState};
use bareverbs_shell::memory::ViewGuard;
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::objects::gid::GidPolicy;
use bareverbs_shell::segments::{BindError, Binder};
use bareverbs_shell::soft::{Answer, Detail, GidSlot, SoftDevice, SoftPort};

use super::binding_scene::{BASE, Bench, Done, M, MAX, calls, config, done, mlx5, modes, range};
use crate::scene::ALL;

#[test]
fn a_segment_of_one_page_is_one_region_and_one_key_of_one_entry() {
    let bench = Bench::new(mlx5("one_page"), 16 * M);
    let (segment, windows) = bench.bind(M).expect("bound");
    assert_eq!(done(&bench.soft), Done { registered: vec![M], bound: vec![1] });
    assert_eq!((segment.range(), windows.all().len()), (range(BASE, M), 1));
    assert_eq!((windows.all()[0].entries(), windows.all()[0].range()), (1, range(BASE, M)));
    assert_eq!((bench.live().keys, bench.live().mrs), (1, 1));
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn growth_registers_the_tail_and_binds_the_same_first_region_to_a_fresh_key() {
    let bench = Bench::new(mlx5("tail"), 2 * MAX);
    let (mut segment, mut windows) = bench.bind(M).expect("bound");
    let old = Arc::clone(&windows.all()[0]);
    let view = old.view(range(BASE, 64)).expect("within");
    done(&bench.soft);
    bench.grow(&mut segment, &mut windows, 2 * M).expect("grown");
    assert_eq!(done(&bench.soft), Done { registered: vec![M], bound: vec![2] });
    let new = &windows.all()[0];
    assert!(Arc::ptr_eq(&new.regions()[0], &old.regions()[0]), "the same first region");
    assert_eq!(new.regions()[1].range(), range(BASE + M, M));
    assert_ne!((new.lkey(), new.rkey()), (old.lkey(), old.rkey()));
    assert_eq!((view.lkey(), view.rkey()), (old.lkey(), old.rkey()), "the retired key is as it was");
    assert_eq!(segment.range(), range(BASE, 2 * M));
    // To the same size: nothing.
    bench.grow(&mut segment, &mut windows, 2 * M).expect("nothing to do");
    assert_eq!(done(&bench.soft), Done::default());
    // The retired key lives as long as the view.
    drop(old);
    assert_eq!(bench.live().keys, 2);
    drop(view);
    assert_eq!(bench.live().keys, 1);
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn a_segment_longer_than_a_region_is_two_regions_behind_one_key() {
    let bench = Bench::new(mlx5("two"), 2 * MAX);
    let (_, windows) = bench.bind(MAX + M).expect("bound");
    assert_eq!(done(&bench.soft), Done { registered: vec![MAX, M], bound: vec![2] });
    let regions: Vec<_> = windows.regions().map(|region| (region.range(), region.key_base())).collect();
    assert_eq!(regions, [(range(BASE, MAX), 0), (range(BASE + MAX, M), 0)]);
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn where_a_key_has_one_entry_a_segment_has_two_keys() {
    let one = EntryCap::new(1).expect("not 0");
    let bench = Bench::new(mlx5("cap1"), 2 * MAX).configured(config().max_entries(one));
    let (_, windows) = bench.bind(MAX + M).expect("bound");
    assert_eq!(done(&bench.soft), Done { registered: vec![MAX, M], bound: vec![1, 1] });
    let view = windows.all()[1].view(range(BASE + MAX + 0x400, 64)).expect("within");
    assert_eq!((view.key_addr(), view.addr()), (0x400, BASE + MAX + 0x400));
    assert!(windows.all().iter().all(|window| window.view(range(BASE + MAX - 32, 64)).is_none()), "it straddles");
    drop((view, windows));
    bench.assert_all_goes();
}

#[test]
fn a_view_is_at_its_offset_and_holds_the_key() {
    let bench = Bench::new(mlx5("viewed"), 16 * M);
    let window = bench.bind_one(range(BASE, 2 * M)).expect("bound");
    let view = window.view(range(BASE + 0x400, 4096)).expect("within");
    assert_eq!((view.key_addr(), view.len_bytes(), view.device().as_str()), (0x400, 4096, "viewed"));
    assert_eq!((view.lkey(), view.rkey()), (window.lkey(), window.rkey()));
    assert!(Arc::ptr_eq(view.protection_domain().expect("known"), &bench.domain));
    assert_eq!(window.device().as_str(), "viewed");
    assert_eq!(Arc::strong_count(&window), 2);
    // To the last byte, and no further; nothing, and what lies before, is no view.
    assert!(window.view(range(BASE + 2 * M - 1, 1)).is_some());
    for (base, len) in [(BASE + 2 * M - 1, 2), (BASE + 2 * M, 1), (BASE - 1, 1), (BASE, 0), (BASE + 2 * M, 0)] {
        assert!(window.view(range(base, len)).is_none(), "{base:#x} {len}");
    }
    drop(view);
    assert_eq!((Arc::strong_count(&window), bench.live().keys), (1, 1));
    drop(window);
    assert_eq!((bench.live().keys, bench.live().mrs), (0, 0));
    bench.assert_all_goes();
}

#[test]
fn three_binds_take_one_queue_pair_and_none_before_the_first() {
    let bench = Bench::new(mlx5("pairs"), 16 * M);
    assert_eq!((bench.live().qps, bench.live().cqs), (0, 0));
    let windows: Vec<_> = (0..3).map(|at| bench.bind_one(range(BASE + at * M, M)).expect("bound")).collect();
    bench.binder.limits().expect("known");
    assert_eq!(calls(&bench.soft, "mlx5dv_create_qp"), 1);
    assert_eq!((bench.live().qps, bench.live().cqs, bench.live().keys), (1, 1, 3));
    drop(windows);
    bench.assert_all_goes();
}

#[test]
fn bytes_go_through_the_key_into_the_right_region_and_over_its_edge() {
    for mode in modes() {
        let (bench, mut peer) = Bench::with_peer(mlx5("bytes").mode(mode), 16 * M);
        // Regions of unlike length, so that an offset that is off by one region shows.
        let cuts = [range(BASE, 2 * M), range(BASE + 2 * M, M), range(BASE + 3 * M, 3 * M)];
        let regions = cuts.map(|cut| Arc::new(bench.register(cut).expect("a region"))).to_vec();
        let window = bench.binder.bind(ALL, regions, range(BASE, 6 * M)).expect("bound");
        for (offset, seed) in [(0, 1), (2 * M - 4096, 2), (3 * M - 1, 3), (6 * M - 8192, 4)] {
            let view = window.view(range(BASE + offset, 8192)).expect("within");
            assert!(peer.goes_there_and_back(&view, seed), "{mode:?} {offset:#x}");
            let bytes = crate::scene::pattern(8192, seed);
            assert_eq!(bench.gpu.cuda.read(BASE + offset, 8192), bytes, "{mode:?} {offset:#x}");
            assert_eq!(peer.fetched_by_lkey(&view), bytes, "the own device's key sees the same");
        }
        drop((window, peer));
        bench.assert_all_goes();
    }
}

#[test]
fn a_plain_region_stands_in_a_key_by_its_virtual_address() {
    use bareverbs_shell::memory::pages::Pages;
    let (bench, mut peer) = Bench::with_peer(mlx5("plain"), M);
    let pages = Arc::new(Pages::new(2 * 4096).expect("pages"));
    let base = pages.start().as_ptr().expose_provenance();
    let part = |at: usize| {
        #[allow(unsafe_code)]
        // SAFETY: the pages are kept by the region, and nobody has a reference to them.
        let region = unsafe {
            bareverbs_shell::objects::MemoryRegion::register(
                &bench.domain,
                base + at,
                4096,
                ALL,
                Some(Arc::clone(&pages) as _),
            )
        };
        Arc::new(region.expect("a region"))
    };
    let parts = vec![part(0), part(4096)];
    assert_eq!(parts[1].key_base(), base as u64 + 4096);
    let window = bench.binder.bind(ALL, parts, range(base as u64, 8192)).expect("bound");
    let view = window.view(range(base as u64 + 4000, 200)).expect("within");
    assert_eq!(view.key_addr(), 4000);
    assert!(peer.goes_there_and_back(&view, 9));
    drop((view, window, peer));
    bench.assert_all_goes();
}

#[test]
fn a_key_gives_what_was_asked_for_and_no_more() {
    let (bench, mut peer) = Bench::with_peer(mlx5("rights"), 16 * M);
    let region = Arc::new(bench.register(range(BASE, M)).expect("a region"));
    let read_only = bench.binder.bind(AccessFlags::REMOTE_READ, vec![region], range(BASE, M)).expect("bound");
    let view = read_only.view(range(BASE, 64)).expect("within");
    let lease = view.publish().expect("a key");
    assert_eq!(peer.read(lease.remote()), Some(vec![0; 64]));
    assert!(!peer.write(lease.remote(), &[1; 64]));
    drop((lease, view, read_only, peer));
    bench.assert_all_goes();
}

#[test]
fn access_that_a_binding_cannot_give_is_refused_before_any_call() {
    let bench = Bench::new(mlx5("access"), 16 * M);
    let region = Arc::new(bench.register(range(BASE, M)).expect("a region"));
    bench.soft.clear_record();
    for bit in [AccessFlags::RELAXED_ORDERING, AccessFlags::MW_BIND, AccessFlags::ZERO_BASED, AccessFlags::ON_DEMAND] {
        let asked = ALL | bit;
        let refused = bench.binder.bind(asked, vec![Arc::clone(&region)], range(BASE, M));
        let error = refused.expect_err("no binding gives that");
        assert_eq!(error, BindError::Access { device: "access".into(), got: asked });
    }
    assert!(bench.soft.record().is_empty(), "{:?}", bench.soft.record());
    drop(region);
    bench.assert_all_goes();
}

#[test]
fn regions_that_do_not_make_up_the_range_are_refused_with_the_place() {
    let bench = Bench::new(mlx5("parts"), 16 * M);
    let region = |at: u64, len: u64| Arc::new(bench.register(range(BASE + at, len)).expect("a region"));
    let (first, second, third) = (region(0, M), region(M, M), region(2 * M, M));
    let refusal = |parts: &[_], len: u64| bench.binder.bind(ALL, parts.to_vec(), range(BASE, len)).map(|_| ());
    let at =
        |at: u64, len: u64| Err(BindError::Parts { device: "parts".into(), range: range(BASE, len), at: BASE + at });
    let (a, b, c) = (|| Arc::clone(&first), || Arc::clone(&second), || Arc::clone(&third));
    assert_eq!(refusal(&[], M), at(0, M));
    assert_eq!(refusal(&[a()], 2 * M), at(M, 2 * M), "too few");
    assert_eq!(refusal(&[a(), b()], M), at(M, M), "too many");
    assert_eq!(refusal(&[a(), c()], 2 * M), at(M, 2 * M), "a hole");
    assert_eq!(refusal(&[b(), a()], 2 * M), at(0, 2 * M), "another order");
    assert_eq!(refusal(&[a(), a()], 2 * M), at(M, 2 * M), "one twice");
    assert_eq!(refusal(&[a()], 0), at(0, 0), "nothing");
    assert_eq!(bench.live().keys, 0);
    let other = ProtectionDomain::new(bench.context(), 1).expect("a domain");
    let elsewhere = Binder::new(&other, bench.soft.mlx5_symbols(), config()).expect("mlx5");
    let foreign = elsewhere.bind(ALL, vec![a()], range(BASE, M)).map(|_| ());
    assert_eq!(foreign, Err(BindError::ForeignDomain { device: "parts".into() }));
    drop((elsewhere, other, first, second, third));
    bench.assert_all_goes();
}

#[test]
fn more_regions_than_a_key_has_entries_or_longer_ones_are_refused_and_the_queue_pair_stays() {
    let three = EntryCap::new(3).expect("not 0");
    let bench = Bench::new(mlx5("entries"), 2 << 32).configured(config().max_entries(three));
    let regions: Vec<_> =
        (0..4).map(|at| Arc::new(bench.register(range(BASE + at * M, M)).expect("a region"))).collect();
    drop(bench.binder.bind(ALL, regions[..3].to_vec(), range(BASE, 3 * M)).expect("as many as may be"));
    let refused = bench.binder.bind(ALL, regions, range(BASE, 4 * M)).map(|_| ());
    assert_eq!(refused, Err(BindError::Entries { device: "entries".into(), got: 4, cap: 3 }));
    // The device's entries count in 32 bits.
    let device = || "entries".into();
    let refused = bench.bind_one(range(BASE, 1 << 32)).map(|_| ());
    let limit_bytes = (1 << 32) - 1;
    assert_eq!(refused, Err(BindError::Length { device: device(), got_bytes: 1 << 32, limit_bytes }));
    bench.soft.fail("mlx5dv_create_mkey", 1, Answer::null(12));
    bench.bind_one(range(BASE, M)).map(|_| ()).expect_err("no key");
    drop(bench.bind_one(range(BASE, M)).expect("bound"));
    assert_eq!((calls(&bench.soft, "mlx5dv_create_qp"), bench.live().keys, bench.live().mrs), (1, 0, 0));
    bench.assert_all_goes();
}

#[test]
fn on_an_infiniband_port_the_queue_pair_connects_by_lid_and_without_a_gid() {
    let device = SoftDevice::mlx5("by_lid").link_layer(LinkLayer::INFINIBAND).lid(17).gids(vec![]);
    let bench = Bench::new(mlx5("by_lid").devices(vec![device]), 16 * M);
    let window = bench.bind_one(range(BASE, M)).expect("bound");
    let addresses: Vec<_> = bench.soft.record().iter().filter_map(address).collect();
    assert_eq!(addresses, [(0, 17)]);
    drop(window);
    bench.assert_all_goes();
}

#[test]
fn on_ethernet_it_connects_by_the_gid_of_the_policy() {
    let bench = Bench::new(mlx5("by_gid"), 16 * M);
    let window = bench.bind_one(range(BASE, M)).expect("bound");
    assert_eq!(bench.soft.record().iter().filter_map(address).collect::<Vec<_>>(), [(1, 0)]);
    let by = |gid| Binder::new(&bench.domain, bench.soft.mlx5_symbols(), config().gid(gid)).expect("mlx5");
    by(GidPolicy::LinkLocal).limits().expect("connected");
    assert!(matches!(by(GidPolicy::Index(77)).limits(), Err(BindError::Shell(bareverbs_shell::Error::Gid(_)))));
    assert_eq!((bench.live().qps, bench.live().cqs), (1, 1), "what was made for the others is gone");
    drop(window);
    bench.assert_all_goes();
}

#[test]
fn it_is_on_the_port_that_the_configuration_says() {
    let first = SoftPort { state: PortState::DOWN, gids: vec![], ..SoftPort::default() };
    let second = SoftPort { gids: vec![GidSlot::ipv4([10, 0, 0, 2])], ..SoftPort::default() };
    let device = SoftDevice::mlx5("port2").ports(vec![first, second]);
    let bench = Bench::new(mlx5("port2").devices(vec![device]), M);
    assert!(matches!(bench.binder.limits(), Err(BindError::Shell(bareverbs_shell::Error::Gid(_)))));
    bench.soft.clear_record();
    let bench = bench.configured(config().port(2));
    bench.binder.limits().expect("a queue pair");
    let ports = bench.soft.record().into_iter().filter_map(|call| match call.detail {
        Detail::Modify { attr, .. } => Some(attr.port_num.max(attr.ah_attr.port_num)),
        _ => None,
    });
    assert_eq!(ports.collect::<Vec<_>>(), [2, 2, 0], "INIT, RTR, RTS");
    bench.assert_all_goes();
}

/// Whether a move to RTR has a global route, and its LID.
fn address(call: &bareverbs_shell::soft::Call) -> Option<(u8, u16)> {
    match call.detail {
        Detail::Modify { attr, .. } if attr.qp_state == bareverbs_core::verbs::QpState::RTR => {
            Some((attr.ah_attr.is_global, attr.ah_attr.dlid))
        }
        _ => None,
    }
}

#[test]
fn f4_with_an_old_provider_windows_stay_below_2_gib_and_every_offset_is_reached() {
    const LEN: u64 = 0x8020_0000;
    for (config, keys, sum) in
        [(mlx5("sums"), 1, LengthSum::Bits64), (mlx5("sums").old_mlx5_provider(), 2, LengthSum::Signed32)]
    {
        let (bench, mut peer) = Bench::with_peer(config, 2 * MAX);
        assert_eq!(bench.soft.mlx5_symbols().length_sum(), sum);
        let (segment, windows) = bench.bind(LEN).expect("bound");
        assert_eq!(windows.all().len(), keys);
        for (window, index) in windows.all().iter().zip(0..) {
            assert_eq!(Some(window.range()), segment.window(index));
            assert!(keys == 1 || window.range().len_bytes() < 1 << 31);
        }
        for (offset, seed) in [(0x6600_0000, 1), (0x7fff_f000, 2), (0x8000_0000, 3), (LEN - 4096, 4)] {
            let asked = range(BASE + offset, 4096);
            let found = segment.locate(asked).expect("covered");
            let view = windows.get(found.window).expect("there").view(asked).expect("within");
            assert_eq!(view.key_addr(), found.offset_bytes);
            assert!(peer.goes_there_and_back(&view, seed), "{offset:#x}");
            assert_eq!(bench.gpu.cuda.read(BASE + offset, 4096), crate::scene::pattern(4096, seed), "{offset:#x}");
        }
        drop((windows, peer));
        bench.assert_all_goes();
    }
}

#[test]
fn f4_a_window_that_an_old_provider_cannot_count_is_refused() {
    let bench = Bench::new(mlx5("old").old_mlx5_provider(), 2 * MAX);
    let long = range(BASE, 1 << 31);
    let refused = bench.bind_one(long).map(|_| ()).expect_err("its sum is negative");
    let limit_bytes = (1 << 31) - 1;
    assert_eq!(refused, BindError::Length { device: "old".into(), got_bytes: 1 << 31, limit_bytes });
    bench.assert_all_goes();
}

#[test]
fn f2_limits_are_what_device_and_queue_pair_carry() {
    let cap = |device: SoftDevice| {
        let bench = Bench::new(mlx5("caps").devices(vec![device]), M);
        let made = bench.binder.limits().map(|limits| limits.cap().entries());
        let tries = calls(&bench.soft, "mlx5dv_create_qp");
        bench.assert_all_goes();
        (made, tries)
    };
    let device = || SoftDevice::mlx5("caps");
    assert_eq!(cap(device()), (Ok(30), 1));
    // Descriptors of 512 bytes carry 20 entries: 32, 28 and 24 are refused with EINVAL.
    assert_eq!(cap(device().descriptor_bytes(512)), (Ok(20), 4));
    let limits = |entries| bareverbs_shell::soft::Limits { entries, ..bareverbs_shell::soft::Limits::default() };
    assert_eq!(cap(device().limits(limits(3))).0, Ok(3));
    // Reports of 0 and -1, which no queue pair is made for.
    for (entries, got) in [(0, 0), (u32::MAX, -1)] {
        let error = CapError::DeviceMaxSge { got };
        assert_eq!(cap(device().limits(limits(entries))), (Err(BindError::Cap { device: "caps".into(), error }), 0));
    }
}

#[test]
fn f2_a_segment_of_150_gib_is_two_keys_and_all_of_it_is_reached() {
    let (bench, mut peer) = Bench::with_peer(mlx5("large"), 150 << 30);
    let (segment, windows) = bench.bind(150 << 30).expect("bound");
    let Done { registered, bound } = done(&bench.soft);
    assert_eq!((registered.len(), bound), (38, vec![30, 8]));
    for (offset, window) in [(0, 0), (0x1D_FC3F_F000, 0), (0x1D_FC40_0000, 1), ((150 << 30) - 4096, 1)] {
        let asked = range(BASE + offset, 4096);
        let found = segment.locate(asked).expect("covered");
        assert_eq!(found.window, window);
        let view = windows.get(window).expect("there").view(asked).expect("within");
        assert!(peer.goes_there_and_back(&view, window as u8 + 1), "{offset:#x}");
        assert_eq!(bench.gpu.cuda.read(BASE + offset, 4096), crate::scene::pattern(4096, window as u8 + 1));
    }
    let across = range(BASE + 0x1D_FC40_0000 - 2048, 4096);
    assert!(windows.all().iter().all(|window| window.view(across).is_none()));
    assert_eq!(done(&bench.soft).bound, [], "looking costs no call");
    drop((windows, peer));
    bench.assert_all_goes();
}

#[test]
fn a_device_that_is_no_mlx5_is_asked_once_and_nothing_else() {
    let devices = vec![SoftDevice::new("verbs0")];
    let world = crate::world::World::of_config(mlx5("verbs0").devices(devices), "verbs");
    let soft = world.soft.clone().expect("a software fabric");
    let domain = ProtectionDomain::new(&world.open(), 1).expect("a domain");
    soft.clear_record();
    let refused = Binder::new(&domain, soft.mlx5_symbols(), config()).map(|_| ()).expect_err("no mlx5");
    assert_eq!(refused, BindError::Unsupported { device: "verbs0".into() });
    assert!(refused.is_unsupported());
    let called: Vec<_> = soft.record().iter().map(|call| call.symbol).collect();
    assert_eq!(called, ["mlx5dv_is_supported"]);
    // A device whose provider will not say so.
    let bench = Bench::new(mlx5("unsure"), M);
    bench.soft.fail("mlx5dv_is_supported", 1, Answer::returned(1));
    let refused = Binder::new(&bench.domain, bench.soft.mlx5_symbols(), config()).map(|_| ()).expect_err("it says no");
    assert!(refused.is_unsupported());
    bench.assert_all_goes();
}
