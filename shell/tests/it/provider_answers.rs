//! What providers answer, and what becomes of it: cases A3, A4, A5, A6. (A1 needs a library file: `conformance`.)

use std::sync::Arc;

use bareverbs_core::connect::QueuePairConfig;
use bareverbs_core::link::{Header, Immediate, SendError, Sequence};
use bareverbs_core::verbs::{AccessFlags, Gid, PortState, QpState, WcStatus};
use bareverbs_shell::endpoint::{Endpoint, EndpointErrorKind, Event, Frames, connect_pair};
use bareverbs_shell::errno::{self, Errno};
use bareverbs_shell::memory::pages::{PAGE_BYTES, Pages};
use bareverbs_shell::objects::gid::GidPolicy;
use bareverbs_shell::objects::{DeviceContext, MemoryRegion, ProtectionDomain};
use bareverbs_shell::soft::{Answer, Call, Detail, GidSlot, LiveCounts, Record, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::{CallError, Error};

use crate::ledger::{Ledger, calls_of};
use crate::world::{World, config, patiently, stream};
use crate::wrapped::worded;

fn recorded(devices: Vec<SoftDevice>) -> World {
    World::of_config(SoftConfig::default().devices(devices).record(Record::Bounded(100_000)), "recorded")
}

fn control(world: &World) -> &SoftFabric {
    world.soft.as_ref().expect("a software fabric")
}

#[test]
fn a3_a_failed_post_is_told_alike_however_the_provider_says_it_and_uses_up_no_number() {
    for (answer, wanted, full) in [
        (Answer::returned(12), Some(Errno(12)), true),
        (Answer::minus_one(12), Some(Errno(12)), true),
        (Answer::returned(22), Some(Errno(22)), false),
        (Answer::minus_one(0), None, false),
        // Apple's sign.
        (Answer::returned(-12), Some(Errno(12)), true),
    ] {
        let world = recorded(vec![SoftDevice::new("soft0")]);
        let (mut a, mut b) = world.pair::<_, 4, 4>(Immediate, &config());
        a.send(1, |payload| payload[0] = 0).expect("a healthy link");
        control(&world).fail("ibv_post_send", 1, answer);
        // What an earlier call left must not be shown.
        errno::set(libc::EPROTO);
        let error = a.send(1, |payload| payload[0] = 99).expect_err("refused");
        let EndpointErrorKind::Send(SendError::Refused { accepted: 0, .. }, got) = error.kind else {
            panic!("{answer:?}: {error}");
        };
        assert_eq!((got, error.is_queue_full()), (wanted, full), "{answer:?}");
        assert_eq!(&*error.device, "soft0");
        // The next good send carries the number that the failed one would have had.
        assert_eq!(a.send(1, |payload| payload[0] = 1).expect("a healthy link"), Sequence::new(1));
        let mut came = Vec::new();
        while came.len() < 2 {
            b.wait(&patiently(), |event| {
                if let Event::Received(frame) = event {
                    came.push((frame.sequence(), frame.payload().to_vec()));
                }
            })
            .expect("both in order");
        }
        assert_eq!(came, [(Some(Sequence::new(0)), vec![0]), (Some(Sequence::new(1)), vec![1])]);
    }
}

#[test]
fn a4_a_null_domain_on_a_port_that_is_down_names_device_step_state_and_errno() {
    for (answer, wanted) in [(Answer::null(0), None), (Answer::null(19), Some(Errno(19))), (Answer::returned(-1), None)]
    {
        let world = recorded(vec![SoftDevice::new("down0").port_state(PortState::DOWN)]);
        let context = world.open();
        let soft = control(&world);
        soft.clear_record();
        soft.fail("ibv_alloc_pd", 1, answer);
        errno::set(libc::ENOENT);
        let error = Endpoint::<_, 4, 4>::new(&context, Immediate, config(), Frames::Owned).expect_err("no domain");
        drop(context);
        let Error::Call(CallError { call, device, errno, port, .. }) = &error else { panic!("{error}") };
        assert_eq!((*call, &**device, *errno), ("ibv_alloc_pd", "down0", wanted));
        assert_eq!(*port, Some((1, PortState::DOWN)));
        let text = error.to_string();
        for word in
            ["ibv_alloc_pd", "down0", "DOWN", if wanted.is_some() { "errno 19 (ENODEV)" } else { "was not set" }]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
        let record = soft.record();
        assert_eq!(calls_of(&record, "ibv_reg_mr") + calls_of(&record, "ibv_create_qp"), 0, "{record:?}");
        assert_eq!(calls_of(&record, "ibv_close_device"), 1);
    }
}

/// Makes endpoints as Macs have them, until one is refused.
fn endpoints_until_refused(world: &World) -> (Vec<Endpoint<Header, 1, 1>>, Error) {
    let mut ends = Vec::new();
    loop {
        control(world).clear_record();
        match Endpoint::new(&world.open(), Header::default(), config().frame_bytes(4096), Frames::Owned) {
            Ok(end) => ends.push(end),
            Err(error) => return (ends, error),
        }
    }
}

#[test]
fn a5_an_eleventh_queue_pair_is_refused_once_and_its_queue_and_domain_are_freed() {
    let world = recorded(vec![SoftDevice::thunderbolt("rdma_en2")]);
    let (mut ends, error) = endpoints_until_refused(&world);
    assert_eq!(ends.len(), 10);
    let Error::Call(call) = &error else { panic!("{error}") };
    assert_eq!((call.call, call.errno), ("ibv_create_qp", Some(Errno(16))));
    assert!(error.to_string().contains("Apple's devices have 10"), "{error}");
    let record = control(&world).record();
    assert_eq!(calls_of(&record, "ibv_create_qp"), 1, "tried again: {record:?}");
    Ledger::replay(&record).assert_all_gone();

    ends.pop();
    let (mut more, _) = endpoints_until_refused(&world);
    assert_eq!(more.len(), 1, "one was given back, one can be had");
    ends.append(&mut more);
    drop(ends);
    world.assert_clean();
}

#[test]
fn a5_a_hundred_and_first_region_is_refused_and_the_others_stay_usable() {
    let world = recorded(vec![SoftDevice::thunderbolt("rdma_en2")]);
    let (mut a, mut b) = world.pair::<Header, 2, 2>(Header::default(), &config().frame_bytes(4096));
    let domain = ProtectionDomain::new(&world.open(), 1).expect("a domain");
    let mut regions = Vec::new();
    let error = loop {
        let pages = Arc::new(Pages::new(PAGE_BYTES).expect("a page"));
        let (start, bytes) = (pages.start().addr().get(), pages.len_bytes());
        #[allow(unsafe_code)]
        // SAFETY: 1: the keeper holds the pages. 2: only their address is known.
        let region = unsafe { MemoryRegion::register(&domain, start, bytes, AccessFlags::LOCAL_WRITE, Some(pages)) };
        match region {
            Ok(region) => regions.push(region),
            Err(error) => break error,
        }
    };
    assert_eq!(regions.len(), 98, "two are the endpoints'");
    let Error::Call(call) = &error else { panic!("{error}") };
    assert_eq!((call.call, call.errno), ("ibv_reg_mr", Some(Errno(12))));
    assert!(error.to_string().contains("100 on Apple's devices") && error.to_string().contains("ulimit"), "{error}");
    assert_eq!(control(&world).live().mrs, 100);
    stream(&mut a, &mut b, 20, 2, 4096 - 64, Some(Sequence::new(0)));
    drop((a, b, regions, domain));
    assert_eq!(control(&world).live(), LiveCounts::default());
}

const LINK_LOCAL: GidSlot = GidSlot::link_local(1);

/// The move to RTR, as it was asked for.
fn to_rtr(record: &[Call]) -> Vec<(u8, Gid)> {
    let moves = record.iter().filter_map(|call| match call.detail {
        Detail::Modify { attr, .. } if attr.qp_state == QpState::RTR => Some(attr.ah_attr.grh),
        _ => None,
    });
    moves.map(|grh| (grh.sgid_index, grh.dgid)).collect()
}

#[test]
fn a6_the_gid_that_was_found_is_published_and_its_index_is_used() {
    let t1 = vec![LINK_LOCAL, GidSlot::Empty, GidSlot::ipv4([169, 254, 0, 9])];
    let t3 = vec![GidSlot::Fails(libc::EIO), GidSlot::ipv4([10, 0, 0, 1])];
    for (table, address, index) in [(t1, [169, 254, 0, 9], 2), (t3, [10, 0, 0, 1], 1)] {
        let world = recorded(vec![SoftDevice::new("soft0").gids(table)]);
        let (mut a, mut b) = world.ends::<_, 4, 4>(Immediate, &config());
        assert_eq!(a.destination().gid.ipv4(), Some(address));
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        assert_eq!(to_rtr(&control(&world).record()), [(index, b.destination().gid), (index, a.destination().gid)]);
        stream(&mut a, &mut b, 10, 4, 100, Some(Sequence::new(0)));
    }
}

/// A long table in which most slots fail and the rest is empty, but for these.
fn long_table(len: usize, mapped: &[usize]) -> Vec<GidSlot> {
    let slot = |at: usize| match at {
        _ if mapped.contains(&at) => GidSlot::ipv4([10, 0, (at >> 8) as u8, at as u8]),
        3 => LINK_LOCAL,
        _ if at.is_multiple_of(9) => GidSlot::Empty,
        _ => GidSlot::Fails(libc::EIO),
    };
    (0..len).map(slot).collect()
}

#[test]
fn a6_in_a_long_table_failing_slots_are_skipped_and_the_first_good_ones_index_is_used() {
    for (mapped, wanted) in [(&[200, 230, 299][..], 200), (&[5, 256], 5), (&[255, 256], 255)] {
        let world = recorded(vec![SoftDevice::new("soft0").gids(long_table(300, mapped))]);
        let (mut a, mut b) = world.ends::<_, 4, 4>(Immediate, &config());
        assert_eq!(a.gid().map(|gid| gid.index), Some(wanted));
        assert_eq!(a.destination().gid.ipv4(), Some([10, 0, 0, wanted]));
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        let used = to_rtr(&control(&world).record());
        assert_eq!(used, [(wanted, b.destination().gid), (wanted, a.destination().gid)]);
        stream(&mut a, &mut b, 10, 4, 100, Some(Sequence::new(0)));
    }
    // An index beyond what an address vector can hold is of no use.
    let world = recorded(vec![SoftDevice::new("soft0").gids(long_table(300, &[256, 299]))]);
    let made = Endpoint::<_, 4, 4>::new(&world.open(), Immediate, config(), Frames::Owned);
    let Err(Error::Gid(error)) = made else { panic!("{made:?}") };
    assert_eq!(error.found.iter().map(|gid| gid.index).collect::<Vec<_>>(), [3]);
}

#[test]
fn a6_a_gid_asked_for_by_its_index_is_found_behind_any_number_of_empty_slots() {
    let mut table = vec![GidSlot::Empty; 201];
    table[200] = GidSlot::ipv4([10, 0, 0, 1]);
    let world = recorded(vec![SoftDevice::new("soft0").gids(table)]);
    let (mut a, mut b) = world.ends::<_, 4, 4>(Immediate, &config().gid(GidPolicy::Index(200)));
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    assert_eq!(to_rtr(&control(&world).record())[0].0, 200);
    let by_index = config().gid(GidPolicy::Index(199));
    let made = Endpoint::<Immediate, 4, 4>::new(&world.open(), Immediate, by_index, Frames::Owned);
    assert!(matches!(made, Err(Error::Gid(_))), "an empty slot is none");
}

#[test]
fn a6_without_a_mapped_gid_nothing_is_made_and_the_remedy_is_named() {
    let tables = [vec![LINK_LOCAL], vec![GidSlot::Empty], vec![GidSlot::Fails(libc::EIO)], Vec::new()];
    for (devices, remedy) in [
        (tables.clone().map(|table| SoftDevice::new("soft0").gids(table)), "an IPv4 address"),
        (tables.map(|table| SoftDevice::thunderbolt("soft0").gids(table)), "not the bridge over it"),
    ] {
        for device in devices {
            let world = recorded(vec![device]);
            let made = Endpoint::<_, 4, 4>::new(&world.open(), Immediate, config(), Frames::Owned);
            let error = made.expect_err("no mapped GID");
            assert!(matches!(&error, Error::Gid(gid) if gid.policy == GidPolicy::Ipv4Mapped), "{error}");
            let text = error.to_string();
            assert!(text.contains("no IPv4-mapped GID") && text.contains(remedy), "{text}");
            let record = control(&world).record();
            assert_eq!(calls_of(&record, "ibv_modify_qp") + calls_of(&record, "ibv_alloc_pd"), 0);
            world.assert_clean();
        }
    }
}

#[test]
fn a6_a_gid_that_changes_before_or_after_rtr_is_an_error_and_not_used_by_its_old_index() {
    let before = vec![LINK_LOCAL, GidSlot::ipv4([10, 0, 0, 1])];
    let after = vec![LINK_LOCAL, GidSlot::Empty, GidSlot::ipv4([10, 0, 0, 1])];
    let world = recorded(vec![SoftDevice::new("soft0").gids(before)]);
    let (mut a, b) = world.ends::<_, 4, 4>(Immediate, &config());
    control(&world).set_gids("soft0", 1, after);
    let error = a.connect(&b.destination(), a.path_mtu()).expect_err("it moved");
    assert_eq!(error, Error::GidChanged { device: Arc::from("soft0"), index: 1 });
    assert_eq!(to_rtr(&control(&world).record()), []);
    drop((a, b));

    // And between RTR and the next look at it: the one read there fails.
    let world = recorded(vec![SoftDevice::new("soft0")]);
    let (mut a, b) = world.ends::<_, 4, 4>(Immediate, &config());
    control(&world).fail("ibv_query_gid", 2, Answer::minus_one(libc::EIO));
    let error = a.connect(&b.destination(), a.path_mtu()).expect_err("it is gone");
    assert_eq!(error, Error::GidChanged { device: Arc::from("soft0"), index: 1 });
    assert_eq!(to_rtr(&control(&world).record()).len(), 1);
    assert_eq!(control(&world).live().qps, 1, "the queue pair that was in RTR is destroyed");
    drop((a, b));
    world.assert_clean();
}

#[test]
fn a_reliable_queue_pair_on_a_thunderbolt_like_device_is_refused_by_number_and_name() {
    let world = recorded(vec![SoftDevice::thunderbolt("rdma_en2")]);
    let reliable = config().queue_pair(QueuePairConfig::rc()).frame_bytes(4096);
    let made = Endpoint::<_, 1, 1>::new(&world.open(), Header::<64>::default(), reliable, Frames::Owned);
    let Err(Error::Call(call)) = made else { panic!("{made:?}") };
    assert_eq!((call.call, call.errno), ("ibv_create_qp", Some(Errno(102))));
    assert!(call.to_string().contains("errno 102 ("), "{call}");
    world.assert_clean();
}

#[test]
fn a_status_is_told_in_the_librarys_words_and_in_our_own_where_it_has_none() {
    let told = |symbols| {
        let context = DeviceContext::open(&symbols, None).expect("a device");
        [WcStatus::WR_FLUSH_ERR, WcStatus(77)].map(|status| context.status_text(status).into_owned())
    };
    let soft = |config| SoftFabric::new(config).expect("a free slot").symbols();
    assert_eq!(told(soft(SoftConfig::default())), ["Work Request Flushed Error", "unknown"]);
    assert_eq!(
        told(soft(SoftConfig::default().without("ibv_wc_status_str"))),
        ["Work Request Flushed Error", "unknown"],
        "our own"
    );
    assert_eq!(told(worded(soft(SoftConfig::default()))), ["words of the library's", "words of the library's"]);
    let null = DeviceContext::open(&worded(soft(SoftConfig::default())), None).expect("a device");
    assert_eq!(null.status_text(WcStatus::SUCCESS), "success", "it answered null");
}
