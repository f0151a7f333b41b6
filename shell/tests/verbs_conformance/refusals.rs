//! One-sided operations that are refused: by the other end's rights and bounds, or by one's own.

use bareverbs_core::verbs::{AccessFlags, EventType, Mr, QpAttr, QpCap, QpState, QpType, SendFlags, WcStatus};

use crate::differences::Difference;
use crate::raw::channels::do_not_block;
use crate::raw::one_sided::{
    ALL, OPERATIONS, Operation, RELIABLE, Scene, Setting, Target, UNRELIABLE, Word, fetch_add, read, register_at,
    write, write_imm,
};
use crate::raw::reliable::{HASTY, PATIENT, Patience, RC_RTR_MASK, RC_RTS_MASK, rc_end, rc_rtr_attr, rc_rts_attr};
use crate::raw::{
    CAP, Env, INIT_MASK, MEMORY, async_fd, clear_errno, errno, init_attr, key_of, post_send, query, rtr_attr, send,
    statuses,
};
use crate::{EINVAL, FLUSHED, OK};

const REFUSED: WcStatus = WcStatus::REM_ACCESS_ERR;
const INVALID: WcStatus = WcStatus::REM_INV_REQ_ERR;
const NOT_MINE: WcStatus = WcStatus::LOC_PROT_ERR;

/// The state of an end's queue pair.
fn state(end: &crate::raw::End) -> QpState {
    query(end).expect("query_qp is there").0.qp_state
}

/// Asynchronous events of an end.
fn events(env: &Env, end: &crate::raw::End) -> Vec<EventType> {
    do_not_block(async_fd(end.context));
    let fetched = std::iter::from_fn(|| env.async_event(end.context).ok());
    fetched
        .map(|event| {
            env.ack_async(event);
            event.event_type
        })
        .collect()
}

/// Posts an operation and one behind it, and asserts that the first is refused and both queue pairs are in error.
fn is_refused(scene: &Scene, operation: &Operation, at: Target, wanted: WcStatus, why: &str) {
    let (env, why) = (&scene.env, format!("{} {why}", operation.name));
    scene.other.post_receive(9, 4096, 64);
    scene.other.set_word(128, 5);
    let mut chain = [(operation.build)(1, scene.one.sge(0, 8), at), write(2, scene.one.sge(0, 8), scene.target(128))];
    // A refusal is told whether or not success would be.
    chain[0].send_flags = SendFlags::empty();
    assert_eq!(post_send(scene.one.qp, &mut chain), (0, None), "{why}");
    assert_eq!(statuses(&scene.one.poll(2)), [(1, wanted), (2, FLUSHED)], "{why}");
    let used_up = operation.uses_receive && wanted == REFUSED;
    assert_eq!(statuses(&scene.other.poll(1)), [(9, if used_up { REFUSED } else { FLUSHED })], "{why}");
    assert_eq!([state(&scene.one), state(&scene.other)], [QpState::ERR; 2], "{why}");
    let told = if wanted == REFUSED { EventType::QP_ACCESS_ERR } else { EventType::QP_REQ_ERR };
    assert_eq!(events(env, &scene.other), Difference::Refusals.by_side(env, vec![told], vec![]), "{why}");
    assert_eq!(events(env, &scene.one), [], "{why}");
    assert_eq!(scene.other.word(128), 5, "{why}: nothing was touched");
    scene.other.post_send(5, 0, 8);
    assert_eq!(statuses(&scene.other.poll(1)), [(5, FLUSHED)], "{why}");
}

/// Runs `refused` for every operation in a scene of its own.
fn for_each(env: &Env, setting: impl Fn(&Operation) -> Setting, refused: impl Fn(&Scene, &Operation)) {
    for operation in &OPERATIONS {
        let scene = Scene::new(env, setting(operation));
        refused(&scene, operation);
        scene.tear_down();
    }
}

pub fn a_key_that_nobody_has_is_refused(env: &Env) {
    for flip in [0x5500, 1] {
        for_each(
            env,
            |_| RELIABLE,
            |scene, operation| {
                let at = scene.target(128);
                is_refused(scene, operation, Target { rkey: at.rkey ^ flip, ..at }, REFUSED, "key");
            },
        );
    }
}

pub fn a_key_ends_with_its_region(env: &Env) {
    for_each(
        env,
        |_| RELIABLE,
        |scene, operation| {
            let gone = scene.other.register(ALL);
            let at = scene.other.target(gone, 128);
            assert_eq!(env.dereg_mr(gone), 0);
            is_refused(scene, operation, at, REFUSED, "deregistered");
        },
    );
}

pub fn a_key_of_another_domain_is_refused(env: &Env) {
    for_each(
        env,
        |_| RELIABLE,
        |scene, operation| {
            let pd = env.alloc_pd(scene.other.context);
            let foreign = env.reg_mr(pd, scene.other.memory, ALL);
            is_refused(scene, operation, scene.other.target(foreign, 128), REFUSED, "another domain");
            assert_eq!([env.dereg_mr(foreign), env.dealloc_pd(pd)], [0; 2]);
        },
    );
}

pub fn a_region_without_the_right_is_refused(env: &Env) {
    let all_but = |operation: &Operation| ALL - operation.needs;
    for (rights, why) in
        [(&all_but as &dyn Fn(&Operation) -> AccessFlags, "others"), (&|_| AccessFlags::LOCAL_WRITE, "none")]
    {
        let setting = |operation: &Operation| Setting { region: rights(operation), ..RELIABLE };
        for_each(env, setting, |scene, operation| {
            // The local key, for without any right soft-RoCE tells no other.
            let at = Target { rkey: key_of(scene.exposed), ..scene.target(128) };
            is_refused(scene, operation, at, REFUSED, why);
        });
    }
}

pub fn a_queue_pair_without_the_right_calls_it_an_invalid_request(env: &Env) {
    for_each(
        env,
        |operation| Setting { queue_pair: ALL - operation.needs, ..RELIABLE },
        |scene, operation| is_refused(scene, operation, scene.target(128), INVALID, "others"),
    );
    for_each(
        env,
        |_| Setting { queue_pair: AccessFlags::empty(), ..RELIABLE },
        |scene, operation| {
            is_refused(scene, operation, Target { rkey: 0, ..scene.target(128) }, INVALID, "none, nor key")
        },
    );
}

/// One byte, or for words 8, before and after what the region has, and around the end of all addresses.
pub fn an_operation_that_leaves_the_region_is_refused(env: &Env) {
    for operation in &OPERATIONS {
        let step = if operation.is_atomic { 8 } else { 1 };
        let addresses: [fn(&Scene, u64) -> u64; 3] = [
            |scene, step| scene.target(0).addr - step,
            |scene, step| scene.target(MEMORY - 8).addr + step,
            |_, step| 0_u64.wrapping_sub(step),
        ];
        for address in addresses {
            let scene = Scene::new(env, RELIABLE);
            let at = Target { addr: address(&scene, step), ..scene.target(0) };
            is_refused(&scene, operation, at, REFUSED, "outside");
            scene.tear_down();
        }
    }
}

pub fn an_operation_may_reach_both_ends_of_the_region(env: &Env) {
    for_each(
        env,
        |_| RELIABLE,
        |scene, operation| {
            for offset in [0, MEMORY - 8] {
                scene.other.post_receive(9, 4096, 64);
                scene.post((operation.build)(1, scene.one.sge(0, 8), scene.target(offset)));
                assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)], "{}", operation.name);
            }
        },
    );
}

pub fn a_long_operation_that_leaves_the_region_is_refused(env: &Env) {
    for build in [write as crate::raw::one_sided::Build, read] {
        let scene = Scene::new(env, RELIABLE);
        scene.post(build(1, scene.one.sge(0, 4000), scene.target(MEMORY - 3999)));
        assert_eq!(statuses(&scene.one.poll(1)), [(1, REFUSED)]);
        assert_eq!([state(&scene.one), state(&scene.other)], [QpState::ERR; 2]);
        assert!(scene.other.read(0, MEMORY).iter().all(|byte| *byte == 0));
        scene.tear_down();
    }
}

pub fn a_responder_that_answers_nothing_refuses_reads_and_atomics(env: &Env) {
    for_each(
        env,
        |_| Setting { answers: 0, ..RELIABLE },
        |scene, operation| {
            if operation.is_answered {
                return is_refused(scene, operation, scene.target(128), INVALID, "no answers");
            }
            scene.other.post_receive(9, 4096, 64);
            scene.post((operation.build)(1, scene.one.sge(0, 8), scene.target(128)));
            assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)], "{}", operation.name);
        },
    );
}

pub fn a_requester_that_may_have_none_under_way_waits_until_it_is_flushed(env: &Env) {
    for_each(
        env,
        |_| Setting { reads: 0, ..RELIABLE },
        |scene, operation| {
            scene.other.post_receive(9, 4096, 64);
            scene.post((operation.build)(1, scene.one.sge(0, 8), scene.target(128)));
            if !operation.is_answered {
                assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)], "{}", operation.name);
                return;
            }
            scene.post(write(2, scene.one.sge(0, 8), scene.target(128)));
            assert!(env.drain(scene.one.cq).is_empty(), "{}", operation.name);
            assert_eq!(env.move_to(scene.one.qp, QpState::ERR), 0);
            assert_eq!(statuses(&scene.one.poll(2)), [(1, FLUSHED), (2, FLUSHED)], "{}", operation.name);
        },
    );
}

pub fn limits_of_reads_and_atomics_are_checked(env: &Env) {
    for (reads, answers) in [(128, 128), (129, 128), (128, 129)] {
        let (one, other) = (rc_end(env, CAP), rc_end(env, CAP));
        assert_eq!(env.modify(one.qp, &init_attr(), INIT_MASK), 0);
        let ((index, _), (_, dgid)) = (env.gid(one.context), env.gid(other.context));
        let attr =
            |answers| QpAttr { max_dest_rd_atomic: answers, ..rc_rtr_attr(rtr_attr(other.number(), dgid, index)) };
        let wanted = if answers > 128 { Difference::Answers.by_side(env, EINVAL, 0) } else { 0 };
        assert_eq!(env.modify(one.qp, &attr(answers), RC_RTR_MASK), wanted, "answers {answers}");
        if wanted != 0 {
            assert_eq!(env.modify(one.qp, &attr(128), RC_RTR_MASK), 0, "a refusal changed nothing");
        }
        let attr = |reads| QpAttr { max_rd_atomic: reads, ..rc_rts_attr(PATIENT) };
        let wanted = if reads > 128 { EINVAL } else { 0 };
        assert_eq!(env.modify(one.qp, &attr(reads), RC_RTS_MASK), wanted, "reads {reads}");
        one.tear_down();
        other.tear_down();
    }
}

pub fn an_atomic_on_no_word_is_refused_by_the_post(env: &Env) {
    for kind in [RELIABLE, UNRELIABLE] {
        let scene = Scene::new(env, kind);
        for operation in OPERATIONS.iter().filter(|operation| operation.is_atomic) {
            for (offset, length) in [(129, 8), (132, 8), (135, 8), (128, 7), (128, 0)] {
                let good = write(1, scene.one.sge(0, 8), scene.target(128));
                let bad = (operation.build)(2, scene.one.sge(0, length), scene.target(offset));
                let named = post_send(scene.one.qp, &mut [good, bad]);
                assert_eq!(named, (EINVAL, Some(1)), "{} {offset} {length}", operation.name);
                assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)], "what stood before it went out");
            }
        }
        scene.tear_down();
    }
}

/// So what is a word by the key's address is one in memory.
pub fn a_region_is_not_addressed_from_another_place_within_its_page(env: &Env) {
    let scene = Scene::new(env, RELIABLE);
    let skip = 4096 - scene.target(0).addr as usize % 4096;
    for (skip, iova) in [(skip + 1, 0x10_0000), (skip, 0x10_0008), (skip + 4095, 0x10_0000)] {
        clear_errno();
        assert!(register_at(&scene.other, skip, 64, iova).is_null());
        assert_eq!(errno(), EINVAL);
    }
    scene.tear_down();
}

/// Posts an operation whose own entry is not granted, and asserts that only its own end fails.
fn fails_at_home(scene: &Scene, operation: &Operation, entry: bareverbs_core::verbs::Sge, wanted: WcStatus) {
    scene.other.post_receive(9, 4096, 64);
    let mut chain = [(operation.build)(1, entry, scene.target(128)), write(2, scene.one.sge(0, 8), scene.target(256))];
    assert_eq!(post_send(scene.one.qp, &mut chain), (0, None), "{}", operation.name);
    assert_eq!(statuses(&scene.one.poll(2)), [(1, wanted), (2, FLUSHED)], "{}", operation.name);
    assert_eq!([state(&scene.one), state(&scene.other)], [QpState::ERR, QpState::RTS], "{}", operation.name);
    assert!(scene.env.poll_once(scene.other.cq).is_none(), "{}", operation.name);
    assert_eq!(scene.other.word(256), 0, "{}", operation.name);
    // The other end has done its part of an atomic before its answer is found to have no place.
    assert_eq!(scene.other.word(128), u64::from(operation.is_atomic), "{}", operation.name);
}

pub fn entries_of_ones_own_that_are_not_granted_fail_the_requester_only(env: &Env) {
    for_each(
        env,
        |_| RELIABLE,
        |scene, operation| {
            let entry = scene.one.sge(0, 8);
            let entry = bareverbs_core::verbs::Sge { lkey: entry.lkey ^ 0x5500, ..entry };
            let wanted = if operation.is_answered {
                NOT_MINE
            } else {
                Difference::WrongKey.by_side(env, NOT_MINE, WcStatus::LOC_QP_OP_ERR)
            };
            fails_at_home(scene, operation, entry, wanted);
        },
    );
    for_each(
        env,
        |_| RELIABLE,
        |scene, operation| {
            fails_at_home(scene, operation, scene.one.sge(MEMORY - 7, 8), NOT_MINE);
        },
    );
}

pub fn a_region_not_for_writing_may_be_sent_from_and_not_read_into(env: &Env) {
    for_each(
        env,
        |_| RELIABLE,
        |scene, operation| {
            let read_only: *mut Mr = scene.one.register(AccessFlags::empty());
            let mut entry = scene.one.sge(0, 8);
            entry.lkey = key_of(read_only);
            if operation.is_answered {
                fails_at_home(scene, operation, entry, NOT_MINE);
                assert_eq!(scene.one.word(0), 0, "{}", operation.name);
            } else {
                scene.other.post_receive(9, 4096, 64);
                scene.post((operation.build)(1, entry, scene.target(128)));
                assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)], "{}", operation.name);
            }
            assert_eq!(env.dereg_mr(read_only), 0);
        },
    );
}

pub fn an_answer_has_no_place_in_an_inline_request(env: &Env) {
    let cap = QpCap { max_inline_data: 64, ..CAP };
    for_each(
        env,
        |_| Setting { cap, ..RELIABLE },
        |scene, operation| {
            if operation.is_answered {
                let mut request = (operation.build)(1, scene.one.sge(0, 8), scene.target(128));
                request.send_flags |= SendFlags::INLINE;
                scene.post(request);
                assert_eq!(statuses(&scene.one.poll(1)), [(1, NOT_MINE)], "{}", operation.name);
            }
        },
    );
}

pub fn a_write_with_immediate_waits_for_a_receive(env: &Env) {
    let scene = Scene::new(env, Setting { patience: PATIENT, ..RELIABLE });
    scene.one.set_word(0, 5);
    scene.post(write_imm(1, scene.one.sge(0, 8), scene.target(128), 7));
    scene.post(read(2, scene.one.sge(8, 8), scene.target(128)));
    assert!(env.drain(scene.one.cq).is_empty());
    scene.other.post_receive(9, 4096, 64);
    assert_eq!(scene.other.poll(1)[0].immediate(), Some(7));
    assert_eq!(statuses(&scene.one.poll(2)), [(1, OK), (2, OK)]);
    assert_eq!([scene.other.word(128), scene.one.word(8)], [5, 5]);
    scene.tear_down();
}

pub fn a_write_with_immediate_without_a_receive_fails_when_its_retries_are_used_up(env: &Env) {
    for rnr_retry in [0, 3] {
        let scene = Scene::new(env, Setting { patience: Patience { rnr_retry, ..PATIENT }, ..RELIABLE });
        // A wrong key is found only once there is a receive.
        scene.post(write_imm(1, scene.one.sge(0, 8), Target { rkey: 0, ..scene.target(128) }, 7));
        scene.post(write(2, scene.one.sge(0, 8), scene.target(128)));
        assert_eq!(statuses(&scene.one.poll(2)), [(1, WcStatus::RNR_RETRY_EXC_ERR), (2, FLUSHED)]);
        assert_eq!([state(&scene.one), state(&scene.other)], [QpState::ERR, QpState::RTS]);
        scene.tear_down();
    }
}

pub fn a_peer_in_error_is_missed_by_every_operation(env: &Env) {
    for_each(
        env,
        |_| Setting { patience: HASTY, ..RELIABLE },
        |scene, operation| {
            assert_eq!(env.move_to(scene.other.qp, QpState::ERR), 0);
            scene.post((operation.build)(1, scene.one.sge(0, 8), scene.target(128)));
            assert_eq!(statuses(&scene.one.poll(1)), [(1, WcStatus::RETRY_EXC_ERR)], "{}", operation.name);
            assert_eq!(scene.other.word(128), 0);
        },
    );
}

pub fn an_unreliable_write_that_is_refused_is_lost_in_silence(env: &Env) {
    for operation in OPERATIONS.iter().filter(|operation| !operation.is_answered) {
        let lost = |setting: Setting, at: &dyn Fn(&Scene) -> Target, why: &str| {
            let scene = Scene::new(env, setting);
            let at = at(&scene);
            // The receive that is not used up is there already.
            scene.other.post_receive(9, 4096, 64);
            scene.one.set_word(0, 5);
            scene.post((operation.build)(1, scene.one.sge(0, 8), at));
            assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)], "{why}: nobody tells");
            scene.post(send(2, scene.one.sge(0, 8)));
            assert_eq!(statuses(&scene.one.poll(1)), [(2, OK)], "{why}");
            let came = scene.other.poll(1);
            assert_eq!((statuses(&came), came[0].immediate()), (vec![(9, OK)], None), "{why}");
            assert_eq!([state(&scene.one), state(&scene.other)], [QpState::RTS; 2], "{why}");
            assert_eq!(events(env, &scene.other), [], "{why}");
            assert_eq!([0, 128].map(|at| scene.other.word(at)), [0; 2], "{why}: nothing was touched");
            scene.tear_down();
        };
        let good = |scene: &Scene| scene.target(128);
        lost(UNRELIABLE, &|scene| Target { rkey: good(scene).rkey ^ 0x5500, ..good(scene) }, "key");
        lost(UNRELIABLE, &|scene| scene.target(MEMORY - 7), "end");
        lost(UNRELIABLE, &|scene| Target { addr: scene.target(0).addr - 1, ..good(scene) }, "start");
        lost(Setting { region: ALL - operation.needs, ..UNRELIABLE }, &good, "region");
        lost(Setting { queue_pair: ALL - operation.needs, ..UNRELIABLE }, &good, "queue pair");
    }
}

/// Of its bytes some may be there all the same. One packet: on soft-RoCE a longer one takes the next message with it.
pub fn an_unreliable_write_with_immediate_without_a_receive_is_lost(env: &Env) {
    let scene = Scene::new(env, UNRELIABLE);
    scene.one.write(0, &[5; 64]);
    scene.post(write_imm(1, scene.one.sge(0, 64), scene.target(128), 7));
    assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)], "nobody tells");
    assert!(env.drain(scene.other.cq).is_empty());
    scene.other.post_receive(9, 8192, 64);
    scene.post(send(2, scene.one.sge(0, 8)));
    assert_eq!(statuses(&scene.one.poll(1)), [(2, OK)]);
    let came = scene.other.poll(1);
    assert_eq!((statuses(&came), came[0].immediate()), (vec![(9, OK)], None), "the next uses up the receive");
    assert_eq!([state(&scene.one), state(&scene.other)], [QpState::RTS; 2]);
    let memory = scene.other.read(0, 8192);
    assert!(memory[..128].iter().chain(&memory[128 + 64..]).all(|byte| *byte == 0), "nothing beyond it");
    scene.tear_down();
}

pub fn what_must_be_answered_fails_on_unreliable_queue_pairs(env: &Env) {
    for_each(
        env,
        |_| UNRELIABLE,
        |scene, operation| {
            if !operation.is_answered {
                return;
            }
            let mut chain = [
                (operation.build)(1, scene.one.sge(0, 8), scene.target(128)),
                write(2, scene.one.sge(0, 8), scene.target(128)),
            ];
            assert_eq!(post_send(scene.one.qp, &mut chain), (0, None));
            assert_eq!(
                statuses(&scene.one.poll(2)),
                [(1, WcStatus::LOC_QP_OP_ERR), (2, FLUSHED)],
                "{}",
                operation.name
            );
            assert_eq!([state(&scene.one), state(&scene.other)], [QpState::ERR, QpState::RTS]);
            assert_eq!(scene.other.word(128), 0);
        },
    );
}

pub fn the_error_state_flushes_operations_in_order(env: &Env) {
    for kind in [QpType::RC, QpType::UC] {
        let scene = Scene::new(env, Setting { kind, ..RELIABLE });
        assert_eq!(env.move_to(scene.one.qp, QpState::ERR), 0);
        let mut chain = [
            write(1, scene.one.sge(0, 8), scene.target(128)),
            write_imm(2, scene.one.sge(0, 8), scene.target(128), 7),
            read(3, scene.one.sge(0, 8), scene.target(128)),
            fetch_add(4, scene.one.sge(0, 8), scene.target(128), 1),
        ];
        chain[1].send_flags = SendFlags::empty();
        assert_eq!(post_send(scene.one.qp, &mut chain), (0, None));
        assert_eq!(statuses(&scene.one.poll(4)), [1, 2, 3, 4].map(|id| (id, FLUSHED)));
        assert_eq!(scene.other.word(128), 0);
        scene.tear_down();
    }
}
