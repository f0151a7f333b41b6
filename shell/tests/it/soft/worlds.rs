//! Many fabrics in one process, many threads on one fabric, and what devices and ports say.

use bareverbs_core::verbs::{Gid, LinkLayer, PortState, QpState, WcStatus};
use bareverbs_shell::soft::{GidSlot, LiveCounts, Mode, SoftConfig, SoftDevice, SoftError, SoftFabric};

use super::raw::on_soft::env;
use super::raw::{self, End, Moved, clear_errno, connect, device_names, errno, pair, post_send, send_imm, statuses};

const OK: WcStatus = WcStatus::SUCCESS;

#[test]
fn fabrics_do_not_see_each_other() {
    let threads: Vec<_> = (0..8_u64)
        .map(|at| {
            std::thread::spawn(move || {
                for round in 0..20 {
                    let name: &'static str = ["a", "b", "c", "d", "e", "f", "g", "h"][at as usize];
                    let mode = if at % 2 == 0 { Mode::Prompt } else { Mode::Adversarial { seed: at * 100 + round } };
                    let config = SoftConfig::default().devices(vec![SoftDevice::new(name)]).mode(mode);
                    let fabric = SoftFabric::new(config).expect("a free slot");
                    assert_eq!(device_names(&fabric.symbols()), [name]);
                    let (one, other) = pair(&env(&fabric, name));
                    other.post_receive(1, 0, 64);
                    one.write(0, &[at as u8; 64]);
                    one.post_send(2, 0, 64);
                    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
                    assert_eq!(other.read(0, 64), [at as u8; 64]);
                    assert_eq!(fabric.live().qps, 2);
                    one.tear_down();
                    other.tear_down();
                    assert_eq!(fabric.live(), LiveCounts::default());
                    assert_eq!(fabric.misuse(), Vec::<String>::new());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("the thread's assertions held"));
}

#[test]
fn slots_are_used_again_when_nobody_holds_anything() {
    for _ in 0..2000 {
        let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        End::new(&env(&fabric, "soft0")).tear_down();
    }
}

#[test]
fn a_table_and_its_objects_outlive_the_control_handle() {
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let env = env(&fabric, "soft0");
    drop(fabric);
    let (one, other) = pair(&env);
    other.post_receive(1, 0, 64);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    one.tear_down();
    other.tear_down();
}

#[test]
fn entry_points_of_a_fabric_that_is_gone_answer_with_errors() {
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let env = env(&fabric, "soft0");
    let one = End::new(&env);
    let (qp, entry) = (one.qp, one.sge(0, 0));
    one.tear_down();
    drop(env);
    drop(fabric);
    let (answer, _) = post_send(qp, &mut [raw::send(1, entry)]);
    assert_ne!(answer, 0);
}

#[test]
fn a_description_that_cannot_be_is_refused() {
    let twins = vec![SoftDevice::new("a"), SoftDevice::new("a")];
    let refusal = SoftFabric::new(SoftConfig::default().devices(twins)).err();
    assert_eq!(refusal, Some(SoftError::DuplicateDevice { name: "a".into() }));
}

#[test]
fn a_machine_may_have_no_device() {
    let fabric = SoftFabric::new(SoftConfig::default().devices(vec![])).expect("a free slot");
    assert_eq!(device_names(&fabric.symbols()), Vec::<String>::new());
}

#[test]
fn two_devices_reach_each_other_and_number_on_their_own() {
    let devices = vec![SoftDevice::new("soft0"), SoftDevice::new("soft1")];
    for mode in super::raw::on_soft::modes() {
        let fabric = SoftFabric::new(SoftConfig::default().devices(devices.clone()).mode(mode)).expect("a free slot");
        let (one, other) = (End::new(&env(&fabric, "soft0")), End::new(&env(&fabric, "soft1")));
        assert_eq!(one.number(), other.number());
        let (one, other) = connect(one, other);
        other.post_receive(1, 0, 64);
        assert_eq!(post_send(one.qp, &mut [send_imm(2, one.sge(0, 64), 3)]), (0, None));
        assert_eq!(other.poll(1)[0].immediate(), Some(3));
        assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
        one.tear_down();
        other.tear_down();
    }
}

#[test]
fn on_infiniband_a_lid_is_address_enough() {
    let device = |name, lid| SoftDevice::new(name).link_layer(LinkLayer::INFINIBAND).lid(lid).gids(vec![]);
    let devices = vec![device("ib0", 4), device("ib1", 5)];
    let fabric = SoftFabric::new(SoftConfig::default().devices(devices)).expect("a free slot");
    let (one, other) = (End::new(&env(&fabric, "ib0")), End::new(&env(&fabric, "ib1")));
    for (end, peer, dlid) in [(&one, &other, 5), (&other, &one, 4)] {
        end.to_init();
        let mut attr = raw::rtr_attr(peer.number(), Gid::ZERO, 0);
        attr.ah_attr.is_global = 0;
        attr.ah_attr.dlid = 77;
        assert_eq!(end.env.modify(end.qp, &attr, raw::RTR_MASK), libc::ETIMEDOUT);
        attr.ah_attr.dlid = dlid;
        assert_eq!(end.env.modify(end.qp, &attr, raw::RTR_MASK), 0);
        end.to_rts();
    }
    other.post_receive(1, 0, 64);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    one.tear_down();
    other.tear_down();
}

#[test]
fn a6_gid_tables_have_empty_and_failing_slots() {
    let slots = vec![GidSlot::link_local(1), GidSlot::Empty, GidSlot::Fails(5), GidSlot::ipv4([10, 0, 0, 1])];
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    fabric.set_gids("soft0", 1, slots);
    let env = env(&fabric, "soft0");
    let (one, other) = (End::new(&env), End::new(&env));
    let plain: Vec<_> = (0..5)
        .map(|index| {
            clear_errno();
            let (answer, gid) = raw::query_gid(&env, one.context, index);
            // What succeeds may leave anything there: a lock that somebody else held does.
            (answer, if answer == 0 { 0 } else { errno() }, gid.to_string())
        })
        .collect();
    let said = |answer, errno, gid: &str| (answer, errno, gid.to_owned());
    assert_eq!(
        plain,
        [said(0, 0, "fe80::1"), said(0, 0, "::"), said(-1, 5, "::"), said(0, 0, "::ffff:10.0.0.1"), said(-1, 22, "::")]
    );
    let with_type: Vec<_> = (0..5).map(|index| raw::query_gid_ex(&env, one.context, index)).collect();
    assert_eq!(with_type, [Ok((0, 2)), Err(libc::ENODATA), Err(5), Ok((3, 2)), Err(22)]);

    one.to_init();
    let gid = GidSlot::ipv4([10, 0, 0, 1]);
    let GidSlot::Gid(gid, _) = gid else { unreachable!("made so") };
    for (index, answer) in [(1, libc::ENODATA), (2, 5), (4, 22), (3, 0)] {
        assert_eq!(env.modify(one.qp, &raw::rtr_attr(other.number(), gid, index), raw::RTR_MASK), answer, "{index}");
    }
    one.tear_down();
    other.tear_down();
}

#[test]
fn a1_the_exported_port_query_fills_48_bytes_and_the_slot_what_it_is_asked_for() {
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let test_env = env(&fabric, "soft0");
    let context = test_env.open();
    assert_eq!(raw::bytes_of_port_query(&test_env, context), 48);
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (asked, filled) in [(48, 48), (52, 52), (56, 56), (64, 56), (10, 10)] {
        assert_eq!(raw::bytes_of_extended_port_query(context, asked), filled, "{asked}");
    }
    assert_eq!(test_env.close(context), 0);
    let newer = SoftFabric::new(SoftConfig::default().query_port_bytes(56)).expect("a free slot");
    let newer_env = env(&newer, "soft0");
    let context = newer_env.open();
    assert_eq!(raw::bytes_of_port_query(&newer_env, context), 56);
    assert_eq!(newer_env.close(context), 0);
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn the_device_tells_its_limits_both_ways() {
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let env = env(&fabric, "soft0");
    let context = env.open();
    let (plain, extended, refused) = raw::query_device_both_ways(&env, context);
    assert_eq!((plain.max_sge, plain.max_cqe, plain.phys_port_cnt), (32, 32_767, 1));
    assert_eq!((extended.orig_attr.max_sge, extended.phys_port_cnt_ex), (32, 1));
    assert_eq!(refused, 22, "nothing but 0 may be asked for in its mask");
    assert_eq!(env.close(context), 0);
}

#[test]
#[should_panic(expected = "there is no port 2")]
fn a_port_that_is_not_there_is_the_callers_bug() {
    SoftFabric::new(SoftConfig::default()).expect("a free slot").set_port_state("soft0", 2, PortState::DOWN);
}

#[test]
fn entry_points_are_missing_on_demand() {
    let config = SoftConfig::default().without("ibv_query_qp").without("_ibv_query_gid_ex").without("ibv_post_recv");
    let fabric = SoftFabric::new(config).expect("a free slot");
    let symbols = fabric.symbols();
    assert!(symbols.query_qp.is_none() && symbols.query_gid_ex.is_none() && symbols.query_device.is_some());
    let env = env(&fabric, "soft0");
    let context = env.open();
    assert_eq!(raw::inline_operations(context), [true, true, true, false]);
    assert_eq!(env.close(context), 0);
}

#[test]
fn a_fabric_that_is_not_told_otherwise_has_delivered_when_the_post_returns() {
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let (one, other) = pair(&env(&fabric, "soft0"));
    one.write(0, &[5; 64]);
    other.post_receive(1, 0, 64);
    one.post_send(2, 0, 64);
    assert_eq!(other.read(0, 64), [5; 64], "before anybody polls");
    // One look at each queue.
    let one_look = |end: &End| end.env.poll_once(end.cq).map(|wc| (wc.wr_id, wc.status));
    assert_eq!((one_look(&other), one_look(&one)), (Some((1, OK)), Some((2, OK))));
    one.tear_down();
    other.tear_down();
}

/// Two threads, each with one end, under one fabric: what a provider's callers may do.
#[test]
fn ends_may_be_on_different_threads() {
    for mode in [Mode::Prompt, Mode::Adversarial { seed: 11 }] {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let (one, other) = pair(&env(&fabric, "soft0"));
        const ROUNDS: u64 = 2000;
        for id in 0..8 {
            other.post_receive(id, id as usize * 4096, 64);
            one.post_receive(id, id as usize * 4096, 64);
        }
        let (one, other) = (Moved(one), Moved(other));
        let run = |end: Moved, first: bool| {
            move || {
                let Moved(end) = end.whole();
                let mut got = 0;
                if first {
                    assert_eq!(post_send(end.qp, &mut [send_imm(1 << 32, end.sge(40_960, 64), 0)]), (0, None));
                }
                while got < ROUNDS {
                    let Some(wc) = end.env.poll_once(end.cq) else {
                        std::thread::yield_now();
                        continue;
                    };
                    assert_eq!(wc.status, OK);
                    if wc.wr_id >> 32 == 1 {
                        continue;
                    }
                    end.post_receive(wc.wr_id, wc.wr_id as usize * 4096, 64);
                    let number = wc.immediate().expect("each has one") + 1;
                    got += 1;
                    let entry = end.sge(40_960, 64);
                    assert_eq!(post_send(end.qp, &mut [send_imm(1 << 32, entry, number)]), (0, None));
                }
                Moved(end)
            }
        };
        let (left, right) = std::thread::scope(|scope| {
            let left = scope.spawn(run(one, true));
            let right = scope.spawn(run(other, false));
            (left.join().expect("held"), right.join().expect("held"))
        });
        for Moved(end) in [left, right] {
            assert_eq!(end.env.move_to(end.qp, QpState::ERR), 0);
            end.tear_down();
        }
        assert_eq!(fabric.misuse(), Vec::<String>::new());
    }
}
