//! One-sided operations that are granted: which bytes move, in which order, and what the completions say.

use bareverbs_core::verbs::{QpCap, QpState, SendFlags, Wc, WcOpcode, WrOpcode};

use crate::OK;
use crate::differences::Difference;
use crate::raw::one_sided::{
    ALL, Buffer, RELIABLE, Scene, Setting, Target, UNRELIABLE, Word, compare_swap, connect_one_way, fetch_add, rdma,
    read, register_at, rkey, write, write_imm,
};
use crate::raw::reliable::rc_end;
use crate::raw::{CAP, Env, MEMORY, post_recv, post_send, receive, scatter, statuses};

/// What a completion says, but for the queue pair.
fn told(wc: &Wc) -> (u64, WcOpcode, u32) {
    assert_eq!(wc.status, OK, "{}", wc.wr_id);
    (wc.wr_id, wc.opcode, wc.byte_len)
}

/// Bytes of which no two neighbours are alike, nor zero.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 + 1).collect()
}

/// One byte, a packet and what is next to it, many packets.
const LENGTHS: [usize; 6] = [1, 64, 1023, 1024, 1025, 20_000];

pub fn a_write_lands_byte_for_byte_and_nobody_is_told(env: &Env) {
    for setting in [RELIABLE, UNRELIABLE] {
        for length in LENGTHS {
            let scene = Scene::new(env, setting);
            scene.one.write(3, &pattern(length));
            scene.post(write(1, scene.one.sge(3, length as u32), scene.target(129)));
            assert_eq!(told(&scene.one.poll(1)[0]), (1, WcOpcode::RDMA_WRITE, length as u32));
            scene.await_byte(128 + length);
            let wanted = [vec![0; 129], pattern(length), vec![0; MEMORY - 129 - length]].concat();
            assert_eq!(scene.other.read(0, MEMORY), wanted);
            assert!(env.poll_once(scene.other.cq).is_none());
            scene.tear_down();
        }
    }
}

pub fn a_write_with_immediate_uses_up_a_receive_and_none_of_its_memory(env: &Env) {
    for setting in [RELIABLE, UNRELIABLE] {
        let scene = Scene::new(env, setting);
        let mut no_key = scene.other.sge(0, 1);
        no_key.lkey = 0;
        let mut receives = [scatter(7, vec![]), receive(8, no_key), receive(9, scene.other.sge(4096, 1))];
        assert_eq!(post_recv(scene.other.qp, &mut receives), (0, None));
        scene.one.write(0, &pattern(3000));
        for id in 0..3_u32 {
            scene.post(write_imm(id.into(), scene.one.sge(0, 1000 * id), scene.target(8192), 0x0102_0304 + id));
        }
        for (id, wc) in (0..3_u32).zip(scene.other.poll(3)) {
            assert_eq!(told(&wc), (7 + u64::from(id), WcOpcode::RECV_RDMA_WITH_IMM, 1000 * id));
            assert_eq!(wc.immediate(), Some(0x0102_0304 + id));
        }
        assert_eq!(scene.other.read(8192, 2000), pattern(2000));
        let sent: Vec<_> = scene.one.poll(3).iter().map(told).collect();
        assert_eq!(sent, [0, 1, 2].map(|id| (id, WcOpcode::RDMA_WRITE, 1000 * id as u32)));
        scene.tear_down();
    }
}

pub fn a_read_brings_byte_for_byte_and_nobody_is_told(env: &Env) {
    for length in LENGTHS {
        let scene = Scene::new(env, RELIABLE);
        scene.other.write(129, &pattern(length));
        scene.post(read(1, scene.one.sge(3, length as u32), scene.target(129)));
        assert_eq!(told(&scene.one.poll(1)[0]), (1, WcOpcode::RDMA_READ, length as u32));
        let wanted = [vec![0; 3], pattern(length), vec![0; MEMORY - 3 - length]].concat();
        assert_eq!(scene.one.read(0, MEMORY), wanted);
        assert!(env.poll_once(scene.other.cq).is_none());
        scene.tear_down();
    }
}

pub fn writes_gather_and_reads_scatter_over_as_many_entries_as_there_may_be(env: &Env) {
    let cap = QpCap { max_send_sge: 32, ..CAP };
    let scene = Scene::new(env, Setting { cap, ..RELIABLE });
    let entries = |step: usize| -> Vec<_> { (0..32).map(|at| scene.one.sge(at * step, at as u32 * 3)).collect() };
    let total: usize = (0..32).map(|at| at * 3).sum();
    let whole = pattern(total);
    let mut done = 0;
    for at in 0..32 {
        scene.one.write(at * 200, &whole[done..done + at * 3]);
        done += at * 3;
    }
    scene.post(rdma(1, WrOpcode::RDMA_WRITE, entries(200), scene.target(5)));
    assert_eq!(told(&scene.one.poll(1)[0]), (1, WcOpcode::RDMA_WRITE, total as u32));
    assert_eq!(scene.other.read(5, total), whole);

    (0..32).for_each(|at| scene.one.write(at * 200, &[0; 200]));
    scene.post(rdma(2, WrOpcode::RDMA_READ, entries(200), scene.target(5)));
    assert_eq!(told(&scene.one.poll(1)[0]), (2, WcOpcode::RDMA_READ, total as u32));
    let mut done = 0;
    for at in 0..32 {
        assert_eq!(scene.one.read(at * 200, at * 3), whole[done..done + at * 3]);
        assert_eq!(scene.one.read(at * 200 + at * 3, 200 - at * 3), vec![0; 200 - at * 3]);
        done += at * 3;
    }
    scene.tear_down();
}

pub fn an_operation_of_no_bytes_needs_no_key_and_no_address(env: &Env) {
    let nowhere = Target { addr: 1, rkey: 0 };
    for setting in [RELIABLE, UNRELIABLE] {
        let scene = Scene::new(env, setting);
        scene.other.post_receive(9, 0, 0);
        let mut empty = scene.one.sge(0, 0);
        empty.lkey = 0;
        let mut chain = vec![
            write(1, empty, nowhere),
            rdma(2, WrOpcode::RDMA_WRITE, vec![], nowhere),
            write_imm(3, empty, nowhere, 5),
        ];
        if setting.kind == RELIABLE.kind {
            chain.extend([read(4, empty, nowhere), rdma(5, WrOpcode::RDMA_READ, vec![], nowhere)]);
        }
        assert_eq!(post_send(scene.one.qp, &mut chain), (0, None));
        assert!(scene.one.poll(chain.len()).iter().map(told).all(|(_, _, length)| length == 0));
        assert_eq!(told(&scene.other.poll(1)[0]), (9, WcOpcode::RECV_RDMA_WITH_IMM, 0));
        scene.tear_down();
    }
}

pub fn inline_bytes_of_a_write_are_read_within_the_post(env: &Env) {
    let cap = QpCap { max_inline_data: 64, max_send_sge: 2, ..CAP };
    for setting in [RELIABLE, UNRELIABLE] {
        let scene = Scene::new(env, Setting { cap, ..setting });
        scene.other.post_receive(9, 4096, 64);
        scene.one.write(0, &pattern(64));
        let mut entries = vec![scene.one.sge(0, 40), scene.one.sge(40, 24)];
        entries.iter_mut().for_each(|entry| entry.lkey = 0);
        let mut request = rdma(1, WrOpcode::RDMA_WRITE_WITH_IMM, entries, scene.target(0));
        request.send_flags |= SendFlags::INLINE;
        scene.post(request);
        scene.one.write(0, &[9; 64]);
        assert_eq!(statuses(&scene.other.poll(1)), [(9, OK)]);
        assert_eq!(scene.other.read(0, 64), pattern(64));
        assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)]);
        scene.tear_down();
    }
}

pub fn an_addition_wraps_and_brings_what_was_there(env: &Env) {
    let scene = Scene::new(env, RELIABLE);
    for (id, before, add) in [(1, 5, 3), (2, u64::MAX, 1), (3, u64::MAX, u64::MAX), (4, 1 << 63, 1 << 63), (5, 7, 0)] {
        scene.other.set_word(128, before);
        scene.post(fetch_add(id, scene.one.sge(16, 8), scene.target(128), add));
        assert_eq!(told(&scene.one.poll(1)[0]), (id, WcOpcode::FETCH_ADD, 8));
        assert_eq!((scene.one.word(16), scene.other.word(128)), (before, before.wrapping_add(add)));
    }
    assert_eq!([scene.other.word(120), scene.other.word(136), scene.one.word(8), scene.one.word(24)], [0; 4]);
    scene.tear_down();
}

pub fn a_word_is_swapped_only_where_it_is_what_was_expected(env: &Env) {
    let scene = Scene::new(env, RELIABLE);
    let high = 1 << 63 | 5;
    for (id, before, compare, after) in [(1, 5, 5, 99), (2, 5, 6, 5), (3, high, 5, high), (4, high, high, 99)] {
        scene.other.set_word(128, before);
        scene.post(compare_swap(id, scene.one.sge(16, 8), scene.target(128), compare, 99));
        assert_eq!(told(&scene.one.poll(1)[0]), (id, WcOpcode::COMP_SWAP, 8));
        assert_eq!((scene.one.word(16), scene.other.word(128)), (before, after));
    }
    assert_eq!([scene.other.word(120), scene.other.word(136), scene.one.word(8), scene.one.word(24)], [0; 4]);
    scene.tear_down();
}

pub fn an_atomic_brings_eight_bytes_however_long_its_entries_are(env: &Env) {
    let cap = QpCap { max_send_sge: 2, ..CAP };
    let scene = Scene::new(env, Setting { cap, ..RELIABLE });
    scene.other.write(128, &pattern(8));
    scene.post(fetch_add(1, scene.one.sge(0, 8), scene.target(128), 0));
    let mut halves = fetch_add(2, scene.one.sge(64, 4), scene.target(128), 0);
    halves.entries.push(scene.one.sge(128, 4));
    halves.num_sge = 2;
    scene.post(halves);
    assert_eq!(statuses(&scene.one.poll(2)), [(1, OK), (2, OK)]);
    assert_eq!(scene.one.read(0, 16), [pattern(8), vec![0; 8]].concat());
    assert_eq!([scene.one.read(64, 8), scene.one.read(128, 8)].concat()[..4], pattern(8)[..4]);
    assert_eq!(scene.one.read(128, 8), [&pattern(8)[4..], &[0; 4]].concat());
    scene.tear_down();
}

pub fn operations_take_effect_in_the_order_of_their_posts(env: &Env) {
    for reads in [1, 4] {
        let scene = Scene::new(env, Setting { reads, answers: reads, ..RELIABLE });
        let (to, local) = (scene.target(128), |at: usize| scene.one.sge(at, 8));
        scene.one.set_word(0, 5);
        let mut chain = [
            write(0, local(0), to),
            fetch_add(1, local(8), to, 3),
            compare_swap(2, local(16), to, 8, 100),
            read(3, local(24), to),
            compare_swap(4, local(32), to, 8, 200),
            write(5, local(0), to),
            read(6, local(40), to),
        ];
        chain[3].send_flags |= SendFlags::FENCE;
        assert_eq!(post_send(scene.one.qp, &mut chain), (0, None));
        assert_eq!(statuses(&scene.one.poll(7)), (0..7).map(|id| (id, OK)).collect::<Vec<_>>());
        assert_eq!([8, 16, 24, 32, 40].map(|at| scene.one.word(at)), [5, 8, 100, 100, 5]);
        scene.tear_down();
    }
}

pub fn more_reads_than_may_be_under_way_wait_their_turn(env: &Env) {
    for reads in [1, 4] {
        let scene = Scene::new(env, Setting { reads, answers: reads, ..RELIABLE });
        scene.other.write(0, &pattern(MEMORY));
        let mut chain: Vec<_> = (0..16)
            .map(|id| read(id, scene.one.sge(id as usize * 4096, 4096), scene.target(id as usize * 4096)))
            .collect();
        assert_eq!(post_send(scene.one.qp, &mut chain), (0, None));
        assert_eq!(statuses(&scene.one.poll(16)), (0..16).map(|id| (id, OK)).collect::<Vec<_>>());
        assert_eq!(scene.one.read(0, MEMORY), pattern(MEMORY));
        scene.tear_down();
    }
}

pub fn only_signalled_operations_complete(env: &Env) {
    let scene = Scene::new(env, RELIABLE);
    let (to, local) = (scene.target(128), |at: usize| scene.one.sge(at, 8));
    scene.one.set_word(0, 5);
    let mut chain =
        [write(0, local(0), to), read(1, local(8), to), fetch_add(2, local(16), to, 1), read(3, local(24), to)];
    chain[..3].iter_mut().for_each(|request| request.send_flags = SendFlags::empty());
    assert_eq!(post_send(scene.one.qp, &mut chain), (0, None));
    assert_eq!(statuses(&scene.one.poll(1)), [(3, OK)]);
    assert_eq!([8, 16, 24].map(|at| scene.one.word(at)), [5, 5, 6]);
    assert!(env.drain(scene.one.cq).is_empty());
    scene.tear_down();
}

pub fn a_queue_pair_that_cannot_send_yet_is_operated_on(env: &Env) {
    let (one, other) = (rc_end(env, CAP), rc_end(env, CAP));
    connect_one_way(&one, &other, RELIABLE);
    let scene = Scene::of(one, other, ALL);
    assert_eq!(crate::raw::query(&scene.other).expect("query_qp is there").0.qp_state, QpState::RTR);
    scene.one.set_word(0, 5);
    scene.post(write(1, scene.one.sge(0, 8), scene.target(128)));
    scene.post(fetch_add(2, scene.one.sge(8, 8), scene.target(128), 1));
    scene.post(read(3, scene.one.sge(16, 8), scene.target(128)));
    assert_eq!(statuses(&scene.one.poll(3)), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!([scene.one.word(8), scene.one.word(16)], [5, 6]);
    scene.tear_down();
}

pub fn additions_of_several_queue_pairs_are_all_counted(env: &Env) {
    let (one, two) = (Scene::new(env, RELIABLE), Scene::new(env, RELIABLE));
    // The second pair's responder reaches the same memory by a region of its own.
    let shared = env.reg_mr(two.other.pd, one.other.memory, ALL);
    for id in 0..8 {
        one.post(fetch_add(id, one.one.sge(8 * id as usize, 8), one.target(128), 1));
        two.post(fetch_add(
            id,
            two.one.sge(8 * id as usize, 8),
            Target { addr: one.target(128).addr, rkey: rkey(shared) },
            1,
        ));
    }
    let mut seen: Vec<u64> = Vec::new();
    for scene in [&one, &two] {
        assert_eq!(statuses(&scene.one.poll(8)), (0..8).map(|id| (id, OK)).collect::<Vec<_>>());
        seen.extend((0..8).map(|id| scene.one.word(8 * id)));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..16).collect::<Vec<_>>(), "each saw another count");
    assert_eq!(one.other.word(128), 16);
    assert_eq!(env.dereg_mr(shared), 0);
    one.tear_down();
    two.tear_down();
}

pub fn a_region_is_addressed_from_where_its_registration_says(env: &Env) {
    let scene = Scene::new(env, RELIABLE);
    let skip = 4096 - scene.target(0).addr as usize % 4096;
    let region = register_at(&scene.other, skip, 4096, 0x10_0000);
    assert!(!region.is_null());
    let at = |addr| Target { addr, rkey: rkey(region) };
    scene.one.set_word(0, 5);
    scene.post(write(1, scene.one.sge(0, 8), at(0x10_0000 + 4088)));
    scene.post(fetch_add(2, scene.one.sge(8, 8), at(0x10_0000 + 4088), 1));
    scene.post(read(3, scene.one.sge(16, 8), at(0x10_0000 + 4088)));
    assert_eq!(statuses(&scene.one.poll(3)), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!([scene.one.word(8), scene.one.word(16), scene.other.word(skip + 4088)], [5, 6, 6]);
    scene.post(write(4, scene.one.sge(0, 8), at(scene.target(skip).addr)));
    assert_eq!(statuses(&scene.one.poll(1)), [(4, bareverbs_core::verbs::WcStatus::REM_ACCESS_ERR)]);
    assert_eq!(env.dereg_mr(region), 0);
    scene.tear_down();
}

pub fn a_write_may_be_as_long_as_the_port_says(env: &Env) {
    for setting in [RELIABLE, UNRELIABLE] {
        for extra in [0, 1] {
            let scene = Scene::new(env, setting);
            let length = env.port(scene.one.context).max_msg_sz + extra;
            let (from, to) =
                (Buffer::new(&scene.one, length as usize, 7), Buffer::new(&scene.other, length as usize, 0));
            scene.post(write(1, from.sge(), to.target()));
            let granted = Difference::LongerThanThePort.by_side(env, extra == 0, true);
            let wanted = if granted { OK } else { bareverbs_core::verbs::WcStatus::LOC_LEN_ERR };
            assert_eq!(statuses(&scene.one.poll(1)), [(1, wanted)]);
            if granted {
                to.await_last(7);
            }
            assert!(to.all_are(if granted { 7 } else { 0 }));
            from.free(env);
            to.free(env);
            scene.tear_down();
        }
    }
}
