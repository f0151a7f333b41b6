//! What every fabric must do: statuses, errno values, refusals, orders of destruction.
//!
//! The numbers are those measured on soft-RoCE (kernel 6.1, rdma-core 44.0). Where the software fabric is stricter on
//! purpose, a case asks [`Env::strict`].

use bareverbs_core::verbs::{
    AccessFlags, Gid, LinkLayer, Mtu, QpAttr, QpAttrMask, QpCap, QpState, QpType, SendFlags, Sge, WcFlags, WcOpcode,
    WcStatus, WrOpcode,
};

use super::raw::{
    CAP, End, Env, INIT_MASK, RTR_MASK, RTS_MASK, clear_errno, errno, init_attr, pair, post_recv, post_send, receive,
    rtr_attr, rts_attr, send, send_imm, statuses, uc,
};

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const OK: WcStatus = WcStatus::SUCCESS;
const FLUSHED: WcStatus = WcStatus::WR_FLUSH_ERR;

pub fn a_message_arrives_whole(env: &Env) {
    let (one, other) = pair(env);
    one.write(0, b"sixteen bytes ok");
    other.post_receive(1, 4096, 4096);
    one.post_send(2, 0, 16);
    let sent = one.poll(1);
    let came = other.poll(1);
    assert_eq!(statuses(&sent), [(2, OK)]);
    assert_eq!(statuses(&came), [(1, OK)]);
    assert_eq!((came[0].opcode, came[0].byte_len, came[0].qp_num), (WcOpcode::RECV, 16, other.number()));
    assert!(!came[0].wc_flags.contains(WcFlags::WITH_IMM));
    assert_eq!(sent[0].opcode, WcOpcode::SEND);
    assert_eq!(other.read(4096, 16), b"sixteen bytes ok");
    one.tear_down();
    other.tear_down();
}

pub fn an_immediate_travels_big_endian(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 4096);
    let mut request = [send_imm(2, one.sge(0, 4096), 0x0102_0304)];
    assert_eq!(post_send(one.qp, &mut request), (0, None));
    let came = other.poll(1);
    assert_eq!(came[0].immediate(), Some(0x0102_0304));
    one.tear_down();
    other.tear_down();
}

pub fn messages_arrive_in_order(env: &Env) {
    let (one, other) = pair(env);
    for wr_id in 0..8 {
        other.post_receive(wr_id, wr_id as usize * 4096, 4096);
        one.write(wr_id as usize * 4096, &[wr_id as u8; 4096]);
    }
    let mut chain: Vec<_> = (0..8).map(|at| send_imm(at, one.sge(at as usize * 4096, 4096), 100 + at as u32)).collect();
    assert_eq!(post_send(one.qp, &mut chain), (0, None));
    let came: Vec<_> = other.poll(8).iter().map(|wc| (wc.wr_id, wc.immediate(), wc.status)).collect();
    assert_eq!(came, (0..8).map(|id| (id, Some(100 + id as u32), OK)).collect::<Vec<_>>());
    for id in 0..8 {
        assert_eq!(other.read(id * 4096, 4096), [id as u8; 4096]);
    }
    assert_eq!(statuses(&one.poll(8)), (0..8).map(|id| (id, OK)).collect::<Vec<_>>());
    one.tear_down();
    other.tear_down();
}

pub fn a_message_without_a_receive_is_gone_and_the_next_arrives(env: &Env) {
    let (one, other) = pair(env);
    one.post_send(1, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
    assert!(env.drain(other.cq).is_empty());
    other.post_receive(2, 0, 64);
    one.post_send(3, 64, 64);
    assert_eq!(statuses(&other.poll(1)), [(2, OK)]);
    assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn unsignalled_sends_make_no_completion(env: &Env) {
    let (one, other) = pair(env);
    for id in 0..3 {
        other.post_receive(id, 0, 64);
        let mut request = send(id, one.sge(0, 64));
        if id < 2 {
            request.send_flags = SendFlags::empty();
        }
        assert_eq!(post_send(one.qp, &mut [request]), (0, None));
    }
    assert_eq!(other.poll(3).len(), 3);
    assert_eq!(statuses(&env.drain(one.cq)), [(2, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn every_send_completes_where_the_queue_pair_says_so(env: &Env) {
    let one = End::with(env, CAP, |init| init.sq_sig_all = 1);
    let (one, other) = super::raw::connect(one, End::new(env));
    let mut request = send(1, one.sge(0, 64));
    request.send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut [request]), (0, None));
    assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn inline_bytes_are_read_within_the_post(env: &Env) {
    let cap = QpCap { max_inline_data: 64, ..CAP };
    let (one, other) = super::raw::connect(End::with(env, cap, |_| ()), End::with(env, cap, |_| ()));
    other.post_receive(1, 0, 64);
    one.write(0, &[7; 64]);
    let entry = Sge { lkey: 0, ..one.sge(0, 64) };
    let mut request = send(2, entry);
    request.send_flags = SendFlags::SIGNALED | SendFlags::INLINE;
    assert_eq!(post_send(one.qp, &mut [request]), (0, None));
    one.write(0, &[8; 64]);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    assert_eq!(other.read(0, 64), [7; 64]);
    one.tear_down();
    other.tear_down();
}

pub fn oversize_inline_is_refused(env: &Env) {
    let context = env.open();
    let (pd, cq) = (env.alloc_pd(context), env.create_cq(context, 8));
    clear_errno();
    let refused = env.create_qp(pd, &mut uc(cq, QpCap { max_inline_data: 900, ..CAP }));
    assert!(refused.is_null());
    assert_eq!(errno(), EINVAL);
    assert_eq!([env.destroy_cq(cq), env.dealloc_pd(pd), env.close(context)], [0; 3]);

    let (one, other) = super::raw::connect(End::with(env, QpCap { max_inline_data: 64, ..CAP }, |_| ()), End::new(env));
    let mut request = send(1, one.sge(0, 4096));
    request.send_flags = SendFlags::SIGNALED | SendFlags::INLINE;
    assert_eq!(post_send(one.qp, &mut [request]), (EINVAL, Some(0)));
    one.tear_down();
    other.tear_down();
}

pub fn steps_with_a_missing_attribute_are_refused(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    let (index, gid) = env.gid(one.context);
    let rtr = rtr_attr(other.number(), gid, index);
    for (attr, mask) in [(init_attr(), INIT_MASK), (rtr, RTR_MASK), (rts_attr(), RTS_MASK)] {
        for missing in (mask - QpAttrMask::STATE).iter() {
            assert_eq!(env.modify(one.qp, &attr, mask - missing), EINVAL, "{missing:?}");
        }
        assert_eq!(env.modify(one.qp, &attr, mask | QpAttrMask::RETRY_CNT), EINVAL, "reliable only");
        assert_eq!(env.modify(one.qp, &attr, mask), 0);
    }
    one.tear_down();
    other.tear_down();
}

pub fn wrong_steps_are_refused(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    assert_eq!(env.modify(one.qp, &rts_attr(), RTS_MASK), EINVAL, "RESET straight to RTS");
    let wrong_port = QpAttr { port_num: 99, ..init_attr() };
    assert_eq!(env.modify(one.qp, &wrong_port, INIT_MASK), EINVAL);
    one.to_init();
    let (index, gid) = env.gid(one.context);
    let good = rtr_attr(other.number(), gid, index);
    let mut no_route = good;
    no_route.ah_attr.is_global = 0;
    if super::raw::link_layer(env, one.context) == LinkLayer::ETHERNET {
        assert_eq!(env.modify(one.qp, &no_route, RTR_MASK), EINVAL);
    }
    assert_eq!(env.modify(one.qp, &QpAttr { path_mtu: Mtu(9), ..good }, RTR_MASK), EINVAL);
    assert_eq!(env.modify(one.qp, &good, RTR_MASK), 0, "a refusal changed nothing");
    one.tear_down();
    other.tear_down();
}

pub fn an_unreachable_gid_times_out(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    one.to_init();
    let (index, _) = env.gid(one.context);
    let nowhere = Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 9]);
    assert_eq!(env.modify(one.qp, &rtr_attr(other.number(), nowhere, index), RTR_MASK), libc::ETIMEDOUT);
    one.tear_down();
    other.tear_down();
}

pub fn posts_in_the_wrong_state_are_refused(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    let refused_send = |why: &str| {
        assert_eq!(post_send(one.qp, &mut [send(1, one.sge(0, 64))]), (EINVAL, Some(0)), "{why}");
    };
    let post_receive = || post_recv(one.qp, &mut [receive(1, one.sge(0, 64))]);
    refused_send("RESET");
    assert_eq!(post_receive(), (EINVAL, Some(0)), "RESET");
    one.to_init();
    refused_send("INIT");
    assert_eq!(post_receive(), (0, None), "INIT");
    assert_eq!(one.to_rtr(&other), 0);
    refused_send("RTR");
    assert_eq!(post_receive(), (0, None), "RTR");
    one.tear_down();
    other.tear_down();
}

pub fn the_error_state_flushes_what_was_posted_and_what_is_posted(env: &Env) {
    let (one, other) = pair(env);
    for id in 0..3 {
        one.post_receive(id, 0, 64);
    }
    assert_eq!(env.move_to(one.qp, QpState::ERR), 0);
    one.post_receive(3, 0, 64);
    let mut unsignalled = send(10, one.sge(0, 64));
    unsignalled.send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut [unsignalled, send(11, one.sge(0, 64))]), (0, None));
    let flushed = one.poll(6);
    let of =
        |receive: bool| -> Vec<_> { statuses(&flushed).into_iter().filter(|(id, _)| (*id < 10) == receive).collect() };
    assert_eq!(of(true), (0..4).map(|id| (id, FLUSHED)).collect::<Vec<_>>());
    assert_eq!(of(false), [(10, FLUSHED), (11, FLUSHED)]);
    assert!(flushed.iter().all(|wc| wc.qp_num == one.number() && wc.vendor_err == 0));
    one.tear_down();
    other.tear_down();
}

pub fn unsignalled_sends_that_succeeded_are_not_flushed(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(0, 0, 64);
    let mut unsignalled = send(1, one.sge(0, 64));
    unsignalled.send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut [unsignalled]), (0, None));
    assert_eq!(other.poll(1).len(), 1, "it went out");
    assert_eq!(env.move_to(one.qp, QpState::ERR), 0);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&env.drain(one.cq)), [(2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_full_receive_queue_answers_enomem_and_names_the_request(env: &Env) {
    let one = End::new(env);
    one.to_init();
    let mut posted = 0;
    let refusal = loop {
        let answer = post_recv(one.qp, &mut [receive(posted, one.sge(0, 64))]);
        if answer.0 != 0 {
            break answer;
        }
        posted += 1;
        assert!(posted < 10_000, "it never fills");
    };
    assert_eq!(refusal, (ENOMEM, Some(0)));
    assert!(posted >= u64::from(CAP.max_recv_wr), "{posted}");
    if env.strict {
        assert_eq!(posted, u64::from(CAP.max_recv_wr));
    }
    one.tear_down();
}

pub fn a_refused_request_of_a_chain_is_named_and_those_before_it_are_accepted(env: &Env) {
    let (one, other) = pair(env);
    for id in 0..3 {
        other.post_receive(id, 0, 64);
    }
    let mut chain = [1, 2, 3].map(|id| send(id, one.sge(0, 64)));
    chain[1].num_sge = 100;
    assert_eq!(post_send(one.qp, &mut chain), (EINVAL, Some(1)));
    assert_eq!(statuses(&env.drain(one.cq)), [(1, OK)]);
    assert_eq!(statuses(&env.drain(other.cq)), [(0, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_wrong_key_fails_the_send_and_the_queue_pair(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 64);
    let entry = Sge { lkey: one.lkey() ^ 0x5500, ..one.sge(0, 64) };
    assert_eq!(post_send(one.qp, &mut [send(2, entry)]), (0, None));
    let wanted = if env.strict { WcStatus::LOC_PROT_ERR } else { WcStatus::LOC_QP_OP_ERR };
    assert_eq!(statuses(&one.poll(1)), [(2, wanted)]);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(3, FLUSHED)]);
    assert!(env.drain(other.cq).is_empty());
    one.tear_down();
    other.tear_down();
}

pub fn a_message_too_long_fails_the_receiver_only(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 64);
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 65);
    assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
    let wanted = if env.strict { WcStatus::LOC_LEN_ERR } else { WcStatus::LOC_QP_OP_ERR };
    assert_eq!(statuses(&other.poll(2)), [(1, wanted), (2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_read_on_unreliable_queue_pairs_fails_its_completion(env: &Env) {
    let (one, other) = pair(env);
    let mut request = send(1, one.sge(0, 64));
    request.opcode = WrOpcode::RDMA_READ;
    assert_eq!(post_send(one.qp, &mut [request]), (0, None));
    assert_eq!(statuses(&one.poll(1)), [(1, WcStatus::LOC_QP_OP_ERR)]);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, FLUSHED)]);
    one.tear_down();
    other.tear_down();
}

pub fn parents_with_live_children_are_busy_and_work_on(env: &Env) {
    let (one, other) = pair(env);
    assert_eq!(env.destroy_cq(one.cq), EBUSY);
    assert_eq!(env.dealloc_pd(one.pd), EBUSY);
    other.post_receive(1, 0, 64);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    assert_eq!(env.destroy_qp(one.qp), 0);
    assert_eq!(env.dealloc_pd(one.pd), EBUSY, "the region is left");
    assert_eq!([env.destroy_cq(one.cq), env.dereg_mr(one.mr), env.dealloc_pd(one.pd), env.close(one.context)], [0; 4]);
    other.tear_down();
}

pub fn a_region_may_go_while_receives_are_posted_on_it(env: &Env) {
    let one = End::new(env);
    one.to_init();
    one.post_receive(1, 0, 64);
    one.tear_down();
}

pub fn completions_outlive_their_queue_pair(env: &Env) {
    let (one, other) = pair(env);
    // One completion is polled, so that the other, which came before or with it, is in the queue.
    other.post_receive(1, 0, 64);
    other.post_receive(2, 0, 64);
    let number = other.number();
    assert_eq!(env.move_to(other.qp, QpState::ERR), 0);
    let first = other.poll(1);
    assert_eq!(env.destroy_qp(other.qp), 0);
    let left = env.drain(other.cq);
    assert!(first.iter().chain(&left).all(|wc| wc.qp_num == number && wc.status == FLUSHED));
    assert_eq!([env.destroy_cq(other.cq), env.dereg_mr(other.mr), env.dealloc_pd(other.pd)], [0; 3]);
    assert_eq!(env.close(other.context), 0);
    one.tear_down();
}

pub fn registrations_are_checked(env: &Env) {
    let context = env.open();
    let pd = env.alloc_pd(context);
    let mut memory = vec![0_u8; 4096];
    let refused = |memory: *mut [u8], access| {
        clear_errno();
        assert!(env.reg_mr(pd, memory, access).is_null());
        errno()
    };
    let whole: *mut [u8] = memory.as_mut_slice();
    assert_eq!(refused(std::ptr::slice_from_raw_parts_mut(whole.cast(), 0), AccessFlags::LOCAL_WRITE), EINVAL);
    assert_eq!(refused(std::ptr::slice_from_raw_parts_mut(std::ptr::null_mut(), 64), AccessFlags::LOCAL_WRITE), 14);
    assert_eq!(refused(whole, AccessFlags::REMOTE_WRITE), EINVAL);
    assert_eq!(refused(whole, AccessFlags::ON_DEMAND | AccessFlags::LOCAL_WRITE), EINVAL);
    assert_eq!([env.dealloc_pd(pd), env.close(context)], [0; 2]);
}

pub fn completion_queue_sizes_are_checked(env: &Env) {
    let context = env.open();
    for entries in [0, -1, 40_000] {
        clear_errno();
        assert!(env.create_cq(context, entries).is_null());
        assert_eq!(errno(), EINVAL, "{entries}");
    }
    let cq = env.create_cq(context, 1);
    assert!(!cq.is_null());
    assert_eq!([env.destroy_cq(cq), env.close(context)], [0; 2]);
}

pub fn objects_point_back_to_their_parents(env: &Env) {
    let end = End::new(env);
    super::raw::check_back_pointers(&end);
    end.tear_down();
}

pub fn attributes_are_told_back(env: &Env) {
    let (one, other) = pair(env);
    let (attr, init) = super::raw::query(&one).expect("query_qp is there");
    assert_eq!((attr.qp_state, attr.dest_qp_num, attr.sq_psn), (QpState::RTS, other.number(), 7));
    assert!(attr.cap.max_send_wr >= CAP.max_send_wr && attr.cap.max_recv_wr >= CAP.max_recv_wr);
    assert_eq!(init.qp_type, QpType::UC);
    one.tear_down();
    other.tear_down();
}

pub fn a_reset_queue_pair_can_be_connected_anew(env: &Env) {
    let (one, other) = pair(env);
    one.post_receive(1, 0, 64);
    for end in [&one, &other] {
        assert_eq!(env.move_to(end.qp, QpState::ERR), 0);
        assert_eq!(env.move_to(end.qp, QpState::RESET), 0);
        env.drain(end.cq);
    }
    let (one, other) = super::raw::connect(one, other);
    other.post_receive(2, 0, 64);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(2, OK)]);
    assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn an_empty_message_arrives(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 64);
    let mut request = send_imm(2, one.sge(0, 64), 5);
    request.num_sge = 0;
    assert_eq!(post_send(one.qp, &mut [request]), (0, None));
    let came = other.poll(1);
    assert_eq!((came[0].status, came[0].byte_len, came[0].immediate()), (OK, 0, Some(5)));
    one.tear_down();
    other.tear_down();
}

pub fn a_queue_pair_may_be_connected_to_itself(env: &Env) {
    let one = End::new(env);
    one.to_init();
    assert_eq!(one.to_rtr(&one), 0);
    one.to_rts();
    one.write(0, &[9; 64]);
    one.post_receive(1, 4096, 64);
    one.post_send(2, 0, 64);
    let mut found = statuses(&one.poll(2));
    found.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(found, [(1, OK), (2, OK)]);
    assert_eq!(one.read(4096, 64), [9; 64]);
    one.tear_down();
}

pub fn a_draining_queue_pair_holds_its_sends_until_it_runs_again(env: &Env) {
    let (one, other) = pair(env);
    other.post_receive(1, 0, 64);
    assert_eq!(env.move_to(one.qp, QpState::SQD), 0);
    one.post_send(2, 0, 64);
    assert!(env.drain(one.cq).is_empty() && env.drain(other.cq).is_empty());
    assert_eq!(env.move_to(one.qp, QpState::RTS), 0);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    one.tear_down();
    other.tear_down();
}
