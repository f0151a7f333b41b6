//! Messages of unreliable connected queue pairs: what arrives, and which completions tell of it.

use bareverbs_core::verbs::{QpCap, QpState, SendFlags, Sge, WcFlags, WcOpcode};

use crate::OK;
use crate::differences::Difference;
use crate::raw::{CAP, End, Env, gather, pair, post_recv, post_send, scatter, send, send_imm, statuses};

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
    let (one, other) = crate::raw::connect(one, End::new(env));
    let mut request = send(1, one.sge(0, 64));
    request.send_flags = SendFlags::empty();
    assert_eq!(post_send(one.qp, &mut [request]), (0, None));
    assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn inline_bytes_are_read_within_the_post(env: &Env) {
    let cap = QpCap { max_inline_data: 64, ..CAP };
    let (one, other) = crate::raw::connect(End::with(env, cap, |_| ()), End::with(env, cap, |_| ()));
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
    if !Difference::Resumed.by_side(env, true, false) {
        assert!(env.drain(one.cq).is_empty());
        one.post_send(3, 0, 64);
        assert_eq!(statuses(&one.poll(2)), [(2, OK), (3, OK)]);
    } else {
        assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    }
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_message_of_many_packets_arrives_whole(env: &Env) {
    let (one, other) = pair(env);
    let bytes: Vec<u8> = (0..20_001_u32).map(|at| (at * 7 % 251) as u8).collect();
    one.write(3, &bytes);
    other.post_receive(1, 5, 32_768);
    one.post_send(2, 3, bytes.len() as u32);
    let came = other.poll(1);
    assert_eq!((came[0].status, came[0].byte_len), (OK, bytes.len() as u32));
    assert_eq!(other.read(5, bytes.len()), bytes);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn entries_are_gathered_and_scattered_in_order(env: &Env) {
    let cap = QpCap { max_send_sge: 3, max_recv_sge: 2, ..CAP };
    let (one, other) = crate::raw::connect(End::with(env, cap, |_| ()), End::with(env, cap, |_| ()));
    one.write(0, b"abcdefghij");
    let mut receive = [scatter(1, vec![other.sge(0, 4), other.sge(100, 4)])];
    assert_eq!(post_recv(other.qp, &mut receive), (0, None));
    let mut send = [gather(2, vec![one.sge(7, 3), one.sge(0, 1), one.sge(4, 2)])];
    assert_eq!(post_send(one.qp, &mut send), (0, None));
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    assert_eq!((other.read(0, 4), other.read(100, 2)), (b"hija".to_vec(), b"ef".to_vec()));
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_queue_pair_that_cannot_send_yet_receives(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    one.to_init();
    assert_eq!(one.to_rtr(&other), 0);
    one.to_rts();
    other.to_init();
    other.post_receive(1, 0, 64);
    assert_eq!(other.to_rtr(&one), 0);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn a_peer_that_is_gone_is_not_missed(env: &Env) {
    let (one, other) = pair(env);
    other.tear_down();
    one.post_send(1, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
    one.tear_down();
}
