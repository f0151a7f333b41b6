//! The habits of Thunderbolt RDMA.

use bareverbs_core::verbs::{AccessFlags, LinkLayer, PortState, QpCap, QpType, TransportType, Wc, WcStatus, WrOpcode};
use bareverbs_shell::soft::{LiveCounts, Mode, SoftConfig, SoftDevice, SoftFabric};

use super::raw::on_soft::env;
use super::raw::{
    CAP, End, Env, RTR_MASK, clear_errno, connect, context_of, errno, pair, post_recv, post_send, receive, rtr_attr,
    send, send_imm, statuses, uc,
};

const OK: WcStatus = WcStatus::SUCCESS;

fn each_mode(case: impl Fn(&SoftFabric, &Env)) {
    for mode in super::raw::on_soft::modes() {
        let fabric = SoftFabric::new(SoftConfig::thunderbolt().mode(mode)).expect("a free slot");
        case(&fabric, &env(&fabric, "rdma_en2"));
        assert_eq!(fabric.live(), LiveCounts::default(), "{mode:?}");
        assert_eq!(fabric.misuse(), Vec::<String>::new());
    }
}

#[test]
fn it_says_what_it_is() {
    each_mode(|fabric, env| {
        assert!(fabric.symbols().wc_status_str.is_none());
        let context = env.open();
        let port = env.port(context);
        assert_eq!((port.link_layer, port.lid), (LinkLayer::THUNDERBOLT, 1));
        assert_eq!(super::raw::transport(context), TransportType::THUNDERBOLT);
        assert_eq!(super::raw::async_fd(context), -1);
        let (index, gid) = env.gid(context);
        assert_eq!((index, gid.ipv4()), (1, Some([169, 254, 0, 1])));
        assert_eq!(env.close(context), 0);
    });
}

#[test]
fn reliable_queue_pairs_are_refused_with_102() {
    each_mode(|_, env| {
        let one = End::new(env);
        let mut init = uc(one.cq, CAP);
        init.qp_type = QpType::RC;
        clear_errno();
        assert!(env.create_qp(one.pd, &mut init).is_null());
        assert_eq!(errno(), 102);
        one.tear_down();
    });
}

#[test]
fn a_send_waits_until_a_receive_is_posted() {
    each_mode(|_, env| {
        let (one, other) = pair(env);
        one.write(0, &[6; 4096]);
        one.post_send(1, 0, 4096);
        assert!(env.drain(one.cq).is_empty() && env.drain(other.cq).is_empty());
        other.post_receive(2, 0, 4096);
        assert_eq!(statuses(&other.poll(1)), [(2, OK)]);
        assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
        assert_eq!(other.read(0, 4096), [6; 4096]);
        one.tear_down();
        other.tear_down();
    });
}

#[test]
fn immediates_are_dropped_and_opcodes_are_not_looked_at() {
    each_mode(|_, env| {
        let (one, other) = pair(env);
        other.post_receive(1, 0, 4096);
        other.post_receive(2, 4096, 4096);
        assert_eq!(post_send(one.qp, &mut [send_imm(3, one.sge(0, 4096), 9)]), (0, None));
        let mut write = send(4, one.sge(0, 4096));
        write.opcode = WrOpcode::RDMA_WRITE;
        assert_eq!(post_send(one.qp, &mut [write]), (0, None));
        let came: Vec<_> = other.poll(2).iter().map(|wc| (wc.wr_id, wc.status, wc.immediate())).collect();
        assert_eq!(came, [(1, OK, None), (2, OK, None)]);
        assert_eq!(statuses(&one.poll(2)), [(3, OK), (4, OK)]);
        one.tear_down();
        other.tear_down();
    });
}

#[test]
fn a_message_and_its_receive_must_have_equally_many_frames() {
    each_mode(|_, env| {
        let (one, other) = pair(env);
        other.post_receive(1, 0, 4096);
        one.post_send(2, 0, 100);
        let came = other.poll(1);
        assert_eq!((came[0].status, came[0].byte_len), (OK, 4096), "whole frames are told");
        other.post_receive(3, 0, 8192);
        one.post_send(4, 0, 4096);
        assert_eq!(statuses(&other.poll(1)), [(3, WcStatus::LOC_LEN_ERR)]);
        assert_eq!(statuses(&one.poll(2)), [(2, OK), (4, OK)]);
        one.tear_down();
        other.tear_down();
    });
}

#[test]
fn queues_count_frames_and_a_full_one_answers_minus_12_and_names_nothing() {
    each_mode(|_, env| {
        let (one, other) = pair(env);
        let post = |frames: u32| post_recv(other.qp, &mut [receive(1, other.sge(0, frames * 4096))]);
        assert_eq!(
            [post(8), post(7), post(2), post(1), post(1)],
            [(0, None), (0, None), (-12, None), (0, None), (-12, None)]
        );
        one.tear_down();
        other.tear_down();
    });
}

#[test]
fn the_depth_granted_is_told_by_a_query_only() {
    each_mode(|_, env| {
        let end = End::with(env, QpCap { max_recv_wr: 5000, ..CAP }, |_| ());
        let (attr, _) = super::raw::query(&end).expect("query_qp is there");
        assert_eq!(attr.cap.max_recv_wr, 4095);
        end.tear_down();
    });
}

#[test]
fn a_region_younger_than_init_cannot_be_posted() {
    each_mode(|_, env| {
        let (one, other) = pair(env);
        let memory = Box::into_raw(vec![0_u8; 4096].into_boxed_slice());
        let late = env.reg_mr(one.pd, memory, AccessFlags::LOCAL_WRITE);
        let mut entry = one.sge(0, 4096);
        entry.lkey = super::raw::key_of(late);
        entry.addr = memory.cast::<u8>().addr() as u64;
        assert_eq!(post_recv(one.qp, &mut [receive(1, entry)]), (-14, None));
        assert_eq!(env.dereg_mr(late), 0);
        super::raw::free(memory);
        one.tear_down();
        other.tear_down();
    });
}

#[test]
fn a_path_without_a_global_route_answers_60() {
    each_mode(|_, env| {
        let (one, other) = (End::new(env), End::new(env));
        one.to_init();
        let (index, gid) = env.gid(one.context);
        let mut attr = rtr_attr(other.number(), gid, index);
        attr.ah_attr.is_global = 0;
        attr.ah_attr.dlid = 1;
        assert_eq!(env.modify(one.qp, &attr, RTR_MASK), 60);
        one.tear_down();
        other.tear_down();
    });
}

#[test]
fn a4_a_down_port_gives_no_protection_domain_and_no_errno() {
    let devices = vec![SoftDevice::thunderbolt("rdma_en2").port_state(PortState::DOWN)];
    let fabric = SoftFabric::new(SoftConfig::thunderbolt().devices(devices)).expect("a free slot");
    let env = env(&fabric, "rdma_en2");
    let context = env.open();
    assert_eq!(env.port(context).state, PortState::DOWN);
    clear_errno();
    assert!(env.alloc_pd(context).is_null());
    assert_eq!(errno(), 0);
    fabric.set_port_state("rdma_en2", 1, PortState::ACTIVE);
    let pd = env.alloc_pd(context);
    assert_eq!([env.dealloc_pd(pd), env.close(context)], [0; 2]);
}

#[test]
fn a5_the_eleventh_queue_pair_is_busy_and_region_101_has_no_memory() {
    let fabric = SoftFabric::new(SoftConfig::thunderbolt()).expect("a free slot");
    let env = env(&fabric, "rdma_en2");
    let ends: Vec<_> = (0..2).map(|_| (env.open(), Vec::new())).collect();
    let mut made: Vec<_> = ends
        .into_iter()
        .map(|(context, pairs): (_, Vec<_>)| (context, env.alloc_pd(context), env.create_cq(context, 64), pairs))
        .collect();
    for at in 0..10 {
        let (_, pd, cq, pairs) = &mut made[at % 2];
        pairs.push(env.create_qp(*pd, &mut uc(*cq, CAP)));
        assert!(!pairs.last().is_some_and(|qp| qp.is_null()), "{at}");
    }
    let (_, pd, cq, pairs) = &mut made[0];
    clear_errno();
    assert!(env.create_qp(*pd, &mut uc(*cq, CAP)).is_null(), "per device, not per context");
    assert_eq!(errno(), 16);
    assert_eq!(env.destroy_qp(pairs.pop().expect("five")), 0);
    pairs.push(env.create_qp(*pd, &mut uc(*cq, CAP)));
    assert!(!pairs.last().is_some_and(|qp| qp.is_null()));

    let mut memory = [0_u8; 64];
    let whole = &raw mut memory;
    let regions: Vec<_> = (0..100).map(|_| env.reg_mr(*pd, whole, AccessFlags::LOCAL_WRITE)).collect();
    assert!(regions.iter().all(|mr| !mr.is_null()));
    clear_errno();
    assert!(env.reg_mr(*pd, whole, AccessFlags::LOCAL_WRITE).is_null());
    assert_eq!(errno(), 12);
    assert!(regions.iter().all(|mr| env.dereg_mr(*mr) == 0));
    for (context, pd, cq, pairs) in made {
        assert_eq!(context_of(cq), context);
        assert!(pairs.iter().all(|qp| env.destroy_qp(*qp) == 0));
        assert_eq!([env.destroy_cq(cq), env.dealloc_pd(pd), env.close(context)], [0; 3]);
    }
    assert_eq!(fabric.live(), LiveCounts::default());
}

#[test]
fn one_entry_and_nothing_inline() {
    each_mode(|_, env| {
        let one = End::new(env);
        assert!(env.create_qp(one.pd, &mut uc(one.cq, QpCap { max_send_sge: 2, ..CAP })).is_null());
        assert!(env.create_qp(one.pd, &mut uc(one.cq, QpCap { max_inline_data: 1, ..CAP })).is_null());
        one.tear_down();
    });
}

#[test]
fn a_dead_peer_shows_in_nothing() {
    let fabric = SoftFabric::new(SoftConfig::thunderbolt().mode(Mode::Prompt)).expect("a free slot");
    let env = env(&fabric, "rdma_en2");
    let (one, other) = connect(End::new(&env), End::new(&env));
    other.tear_down();
    one.post_send(1, 0, 4096);
    let seen: Vec<Wc> = env.drain(one.cq);
    assert!(seen.is_empty(), "{seen:?}");
    one.tear_down();
}
