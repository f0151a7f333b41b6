//! What befalls one-sided operations before they complete, and on their way.

use bareverbs_core::verbs::{QpCap, QpState, WcStatus};
use bareverbs_shell::soft::{Does, MessageFault, Mode, SoftConfig, SoftFabric};

use super::raw::on_soft::{env, modes};
use super::raw::one_sided::{
    RELIABLE, Scene, Setting, Target, UNRELIABLE, Word, fetch_add, rdma, read, write, write_imm,
};
use super::raw::{CAP, statuses};

const OK: WcStatus = WcStatus::SUCCESS;

fn fabric(mode: Mode) -> SoftFabric {
    SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot")
}

fn adversarial(seed: u64) -> SoftFabric {
    fabric(Mode::Adversarial { seed })
}

#[test]
fn a_write_changed_before_its_completion_is_written_changed() {
    for setting in [RELIABLE, UNRELIABLE] {
        for seed in 0..20 {
            let fabric = adversarial(seed);
            let scene = Scene::new(&env(&fabric, "soft0"), setting);
            scene.one.write(0, &[1; 64]);
            scene.post(write(1, scene.one.sge(0, 64), scene.target(0)));
            scene.one.write(0, &[2; 64]);
            assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)]);
            assert_eq!(scene.other.read(0, 64), [2; 64], "seed {seed}");
            scene.tear_down();
        }
    }
}

/// What a watcher sees of a write of `length` bytes until it completes: one picture for each poll, `true` where a byte came.
fn pictures(seed: u64, setting: Setting, length: u32) -> Vec<Vec<bool>> {
    let fabric = adversarial(seed);
    let scene = Scene::new(&env(&fabric, "soft0"), setting);
    scene.one.write(0, &vec![1; length as usize]);
    // Several entries, and the pieces go across their ends.
    let entries = vec![scene.one.sge(0, length / 3), scene.one.sge(length as usize / 3, length - length / 3)];
    scene.post(rdma(1, bareverbs_core::verbs::WrOpcode::RDMA_WRITE, entries, scene.target(8)));
    let mut seen = Vec::new();
    loop {
        let done = scene.env.poll_once(scene.one.cq).is_some();
        let memory = scene.other.read(0, length as usize + 16);
        assert!(memory.iter().all(|byte| *byte < 2), "old or new, never junk");
        assert!(memory[..8].iter().chain(&memory[8 + length as usize..]).all(|byte| *byte == 0), "nothing beside it");
        let came: Vec<_> = memory[8..8 + length as usize].iter().map(|byte| *byte == 1).collect();
        assert!(!done || came.iter().all(|byte| *byte), "complete, so all there");
        seen.push(came);
        if done {
            break;
        }
    }
    scene.tear_down();
    seen
}

#[test]
fn bytes_of_a_write_land_before_its_completion_in_any_order() {
    let setting = Setting { cap: QpCap { max_send_sge: 2, ..CAP }, ..RELIABLE };
    for setting in [setting, Setting { kind: UNRELIABLE.kind, ..setting }] {
        let all: Vec<_> = (0..1000).flat_map(|seed| pictures(seed, setting, 300)).collect();
        let has = |what: fn(&[bool]) -> bool| all.iter().any(|picture| what(picture));
        assert!(has(|came| !came.contains(&true)), "nothing yet");
        assert!(has(|came| came.contains(&true) && came.contains(&false)), "a part");
        assert!(has(|came| !came[0] && came[299]), "the end before the start");
        assert!(has(|came| came[0] && !came[299]), "the start before the end");
        assert!(has(|came| came[99] != came[100]) || has(|came| came[99] && came[100] && !came[0]), "across entries");
    }
    assert_eq!(pictures(7, setting, 300), pictures(7, setting, 300), "a seed tells the whole run");
}

#[test]
fn what_an_answer_will_land_in_is_scribbled_over_at_once_and_again() {
    let fabric = adversarial(3);
    let scene = Scene::new(&env(&fabric, "soft0"), Setting { reads: 0, ..RELIABLE });
    // With no depth it never completes.
    scene.post(read(1, scene.one.sge(4096, 4096), scene.target(0)));
    let first = scene.one.read(4096, 4096);
    assert!(first.iter().filter(|byte| **byte != 0).count() > 3000);
    (0..50).for_each(|_| assert!(scene.env.poll_once(scene.one.cq).is_none()));
    assert_ne!(first, scene.one.read(4096, 4096));
    assert_eq!([scene.one.read(0, 4096), scene.one.read(8192, 4096)], [vec![0; 4096], vec![0; 4096]], "not beyond it");
    assert_eq!(scene.other.read(0, 4096), [0; 4096], "and not where it is read from");
    scene.tear_down();
}

#[test]
fn a_piece_of_a_write_that_is_to_be_refused_never_lands() {
    for seed in 0..40 {
        let fabric = adversarial(seed);
        let scene = Scene::new(&env(&fabric, "soft0"), RELIABLE);
        scene.one.write(0, &[1; 64]);
        scene.post(write(1, scene.one.sge(0, 64), scene.target(super::raw::MEMORY - 63)));
        assert_eq!(statuses(&scene.one.poll(1)), [(1, WcStatus::REM_ACCESS_ERR)]);
        assert!(scene.other.read(0, super::raw::MEMORY).iter().all(|byte| *byte == 0), "seed {seed}");
        scene.tear_down();
    }
}

/// All orders of two writes of two bytes each, and what a watcher can see of them after each step.
#[test]
fn steps_meet_every_order_of_landing() {
    let mut seen = std::collections::BTreeSet::new();
    let (mut prescribed, mut orders): (Vec<Vec<usize>>, u32) = (vec![vec![]], 0);
    while let Some(choices) = prescribed.pop() {
        let fabric = fabric(Mode::Stepped);
        let scene = Scene::new(&env(&fabric, "soft0"), RELIABLE);
        scene.one.write(0, &[1, 2, 3, 4]);
        scene.post(write(1, scene.one.sge(0, 2), scene.target(0)));
        scene.post(write(2, scene.one.sge(2, 2), scene.target(2)));
        let mut at = 0;
        loop {
            seen.insert(scene.other.read(0, 4));
            let mut steps = fabric.steps();
            // Without faults.
            steps.retain(|step| !matches!(step.does, Does::Send(Some(_))));
            if steps.is_empty() {
                break;
            }
            let chosen = choices.get(at).copied().unwrap_or(0);
            if at >= choices.len() {
                prescribed.extend((1..steps.len()).map(|other| {
                    let first = (0..at).map(|at| choices.get(at).copied().unwrap_or(0));
                    first.chain([other]).collect()
                }));
            }
            assert!(fabric.take(steps[chosen]), "{:?}", steps[chosen]);
            at += 1;
        }
        orders += 1;
        fabric.run_freely();
        assert_eq!(statuses(&scene.one.poll(2)), [(1, OK), (2, OK)]);
        scene.tear_down();
    }
    let wanted = [[0, 0, 0, 0], [0, 2, 0, 0], [1, 2, 0, 0], [1, 2, 0, 4], [1, 2, 3, 4]].map(Vec::from);
    assert_eq!(seen, wanted.into_iter().collect());
    assert_eq!(orders, 10, "as many orders as there are");
}

#[test]
fn a_part_lands_early_once_and_only_where_there_are_two() {
    let fabric = fabric(Mode::Stepped);
    let scene = Scene::new(&env(&fabric, "soft0"), RELIABLE);
    let early = || fabric.steps().into_iter().find(|step| step.does == Does::LandEarly);
    scene.post(write(1, scene.one.sge(0, 1), scene.target(0)));
    assert_eq!(early(), None, "one byte");
    let send = fabric.steps()[0];
    assert!(fabric.take(send));
    scene.post(write(2, scene.one.sge(0, 8), scene.target(0)));
    assert!(fabric.take(early().expect("eight bytes")));
    assert_eq!(early(), None, "once");
    assert_eq!(scene.env.move_to(scene.one.qp, QpState::ERR), 0);
    assert_eq!(early(), None, "not in error");
    fabric.run_freely();
    scene.tear_down();
}

#[test]
fn a_lost_unreliable_write_is_not_there_and_uses_up_no_receive() {
    for mode in modes() {
        let fabric = fabric(mode);
        let scene = Scene::new(&env(&fabric, "soft0"), UNRELIABLE);
        scene.other.post_receive(9, 4096, 64);
        fabric.message_fault(1, MessageFault::Drop);
        fabric.message_fault(2, MessageFault::Drop);
        scene.one.write(0, &[1; 128]);
        scene.post(write(1, scene.one.sge(0, 64), scene.target(0)));
        scene.post(write_imm(2, scene.one.sge(0, 64), scene.target(64), 7));
        assert_eq!(statuses(&scene.one.poll(2)), [(1, OK), (2, OK)], "nobody tells");
        assert!(scene.env.drain(scene.other.cq).is_empty());
        if mode == Mode::Prompt {
            assert_eq!(scene.other.read(0, 128), [0; 128]);
        }
        scene.post(write_imm(3, scene.one.sge(0, 64), scene.target(128), 8));
        assert_eq!(scene.other.poll(1)[0].immediate(), Some(8), "{mode:?}");
        scene.tear_down();
    }
}

#[test]
fn an_unreliable_write_meets_every_fault_of_a_message() {
    let fabric = fabric(Mode::Prompt);
    let scene = Scene::new(&env(&fabric, "soft0"), UNRELIABLE);
    (0..4).for_each(|id| scene.other.post_receive(id, 4096, 64));
    let written = |id, fault, value| {
        fabric.message_fault(1, fault);
        scene.one.write(0, &[value; 8]);
        scene.post(write_imm(id, scene.one.sge(0, 8), scene.target(0), id as u32));
        assert_eq!(statuses(&scene.one.poll(1)), [(id, OK)]);
        (scene.env.drain(scene.other.cq).len(), scene.other.read(0, 8))
    };
    assert_eq!(written(1, MessageFault::Duplicate, 1), (2, vec![1; 8]));
    assert_eq!(written(2, MessageFault::Corrupt { offset_bytes: 2 }, 2), (1, vec![2, 2, 3, 2, 2, 2, 2, 2]));
    assert_eq!(written(3, MessageFault::Hold, 4), (0, vec![2, 2, 3, 2, 2, 2, 2, 2]));
    fabric.release_held();
    assert_eq!((scene.other.poll(1)[0].immediate(), scene.other.read(0, 8)), (Some(3), vec![4; 8]));
    scene.tear_down();
}

#[test]
fn h3_a_held_write_never_reaches_memory_that_is_no_longer_registered() {
    for mode in modes() {
        let fabric = fabric(mode);
        let scene = Scene::new(&env(&fabric, "soft0"), UNRELIABLE);
        let exposed = scene.other.register(super::raw::one_sided::ALL);
        scene.other.post_receive(9, 4096, 64);
        fabric.message_fault(1, MessageFault::Hold);
        // One byte, of which no part can land early and the rest not.
        scene.one.write(0, &[5]);
        scene.post(write_imm(1, scene.one.sge(0, 1), scene.other.target(exposed, 0), 7));
        assert_eq!(statuses(&scene.one.poll(1)), [(1, OK)]);
        let before = scene.other.read(0, 1);
        scene.other.write(0, &[0]);
        assert_eq!(scene.env.dereg_mr(exposed), 0);
        fabric.release_held();
        assert!(scene.env.drain(scene.other.cq).is_empty(), "{mode:?}: before {before:?}");
        assert_eq!(scene.other.read(0, 1), [0], "{mode:?}: nothing is written without a region");
        scene.tear_down();
    }
}

#[test]
fn a_reliable_operation_lost_on_its_way_is_done_once() {
    for mode in modes() {
        for fault in [MessageFault::Drop, MessageFault::Duplicate, MessageFault::Hold] {
            let fabric = fabric(mode);
            let scene = Scene::new(&env(&fabric, "soft0"), RELIABLE);
            fabric.message_fault(1, fault);
            scene.post(fetch_add(1, scene.one.sge(0, 8), scene.target(128), 1));
            scene.post(read(2, scene.one.sge(8, 8), scene.target(128)));
            assert_eq!(statuses(&scene.one.poll(2)), [(1, OK), (2, OK)], "{mode:?} {fault:?}");
            assert_eq!([scene.one.word(0), scene.one.word(8), scene.other.word(128)], [0, 1, 1], "{mode:?} {fault:?}");
            scene.tear_down();
        }
    }
}

#[test]
fn a_refusal_that_nobody_fetched_goes_with_its_queue_pair_and_one_unacknowledged_keeps_it() {
    let fabric = fabric(Mode::Prompt);
    let env = env(&fabric, "soft0");
    for fetched in [false, true] {
        let scene = Scene::new(&env, RELIABLE);
        scene.post(write(1, scene.one.sge(0, 8), Target { rkey: 0, ..scene.target(0) }));
        assert_eq!(statuses(&scene.one.poll(1)), [(1, WcStatus::REM_ACCESS_ERR)]);
        if fetched {
            let event = env.async_event(scene.other.context).expect("it is told");
            assert_eq!(env.destroy_qp(scene.other.qp), 16);
            env.ack_async(event);
        }
        scene.tear_down();
    }
    assert_eq!(fabric.misuse().len(), 1);
}

#[test]
fn a_queue_pair_may_operate_on_its_own_memory() {
    for mode in modes() {
        let fabric = fabric(mode);
        let env = env(&fabric, "soft0");
        let end = super::raw::reliable::rc_end(&env, CAP);
        super::raw::one_sided::connect_to_itself(&end, RELIABLE);
        let exposed = end.register(super::raw::one_sided::ALL);
        end.set_word(0, 5);
        let post = |request| assert_eq!(super::raw::post_send(end.qp, &mut [request]), (0, None));
        post(write(1, end.sge(0, 8), end.target(exposed, 128)));
        post(fetch_add(2, end.sge(8, 8), end.target(exposed, 128), 2));
        post(read(3, end.sge(16, 8), end.target(exposed, 128)));
        assert_eq!(statuses(&end.poll(3)), [(1, OK), (2, OK), (3, OK)], "{mode:?}");
        assert_eq!([end.word(8), end.word(16), end.word(128)], [5, 7, 7], "{mode:?}");
        assert_eq!(env.dereg_mr(exposed), 0);
        end.tear_down();
    }
}
