//! Failures and message faults on demand, and the record of calls.

use bareverbs_core::verbs::{AccessFlags, PortState, QpCap, QpState, Wc, WcStatus};
use bareverbs_shell::soft::{
    Answer, BadWr, Detail, LiveCounts, MessageFault, MessageOdds, Mode, Record, SoftConfig, SoftFabric,
};

use super::raw::on_soft::{env, modes};
use super::raw::{
    CAP, End, Env, clear_errno, connect, errno, gather, pair, poll_raw, post_recv, post_send, receive, scatter, send,
    send_imm, statuses, uc,
};

const OK: WcStatus = WcStatus::SUCCESS;

fn fabric() -> SoftFabric {
    SoftFabric::new(SoftConfig::default()).expect("a free slot")
}

#[test]
fn a_call_that_makes_something_fails_with_null_and_the_errno_asked_for() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let context = env.open();
    for (answer, left) in [(Answer::null(19), 19), (Answer::null(0), 0), (Answer::returned(-12), 12)] {
        fabric.fail("ibv_alloc_pd", 1, answer);
        clear_errno();
        assert!(env.alloc_pd(context).is_null());
        assert_eq!(errno(), left, "{answer:?}");
    }
    assert_eq!(fabric.live().pds, 0);
    let pd = env.alloc_pd(context);
    assert_eq!([env.dealloc_pd(pd), env.close(context)], [0; 2]);
}

#[test]
fn a_destroy_that_fails_leaves_the_object_as_it_was() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let context = env.open();
    let pd = env.alloc_pd(context);
    for answer in [Answer::returned(16), Answer::returned(-16), Answer::minus_one(16)] {
        fabric.fail("ibv_dealloc_pd", 1, answer);
        clear_errno();
        let returned = env.dealloc_pd(pd);
        assert!(returned == 16 || returned == -16 || (returned == -1 && errno() == 16), "{answer:?}: {returned}");
        assert_eq!(fabric.live().pds, 1);
    }
    assert_eq!([env.dealloc_pd(pd), env.close(context)], [0; 2]);
}

#[test]
fn a_list_of_devices_may_be_refused() {
    let fabric = fabric();
    fabric.fail("ibv_get_device_list", 1, Answer::null(38));
    clear_errno();
    assert!(super::raw::device_list_is_null(&fabric.symbols()));
    assert_eq!(errno(), 38);
    assert_eq!(super::raw::device_names(&fabric.symbols()), ["soft0"]);
}

#[test]
fn posts_fail_in_every_way_that_providers_have() {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let (one, other) = pair(&env(&fabric, "soft0"));
        other.post_receive(1, 0, 64);
        let post = || post_send(one.qp, &mut [send(2, one.sge(0, 64))]);
        for (answer, seen) in [
            (Answer::returned(12), (12, Some(0))),
            (Answer::returned(22), (22, Some(0))),
            (Answer::returned(-12).bad_wr(BadWr::NullNoneAccepted), (-12, None)),
            (Answer::minus_one(12), (-1, Some(0))),
            (Answer::minus_one(0), (-1, Some(0))),
        ] {
            fabric.fail("ibv_post_send", 1, answer);
            assert_eq!(post(), seen, "{answer:?}");
        }
        assert!(one.env.drain(one.cq).is_empty(), "none was accepted");
        fabric.fail("ibv_post_send", 1, Answer::returned(11).bad_wr(BadWr::NullAllAccepted));
        assert_eq!(post(), (11, None));
        assert_eq!(statuses(&one.poll(1)), [(2, OK)], "accepted for all that");
        assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
        fabric.fail("ibv_post_send", 1, Answer::returned(11).bad_wr(BadWr::StrayAllAccepted));
        other.post_receive(5, 0, 64);
        let (returned, named) = post();
        assert!(returned == 11 && named != Some(0), "none of those that were posted: {named:?}");
        assert_eq!(statuses(&one.poll(1)), [(2, OK)], "accepted for all that");
        assert_eq!(statuses(&other.poll(1)), [(5, OK)]);

        fabric.fail("ibv_post_recv", 2, Answer::returned(12));
        other.post_receive(3, 0, 64);
        assert_eq!(post_recv(other.qp, &mut [receive(4, other.sge(0, 64))]), (12, Some(0)));
        one.tear_down();
        other.tear_down();
    }
}

#[test]
fn polls_fail_and_find_nothing_on_demand() {
    let fabric = fabric();
    let (one, other) = pair(&env(&fabric, "soft0"));
    one.post_send(1, 0, 64);
    let mut room = [Wc::default(); 4];
    fabric.fail("ibv_poll_cq", 1, Answer::returned(-2));
    assert_eq!(poll_raw(one.cq, &mut room), -2);
    fabric.fail_from("ibv_poll_cq", 1, Answer::nothing());
    assert!((0..10).all(|_| poll_raw(one.cq, &mut room) == 0));
    fabric.clear_plan();
    assert_eq!(poll_raw(one.cq, &mut room), 1);
    one.tear_down();
    other.tear_down();
}

#[test]
fn a_poll_that_is_planned_to_find_something_brings_entries_that_are_nobodys() {
    let fabric = fabric();
    let (one, other) = pair(&env(&fabric, "soft0"));
    let forged = Wc { wr_id: 0x8000_0001_0000_0000, qp_num: 17, byte_len: 99, ..Wc::default() };
    for (planned, filled) in [(1, 1), (3, 3), (4, 4), (5, 4), (i32::MAX, 4)] {
        let mut room = [forged; 5];
        fabric.fail("ibv_poll_cq", 1, Answer::returned(planned));
        assert_eq!(poll_raw(one.cq, &mut room[..4]), planned);
        let nobodys = |wc: &Wc| wc.wr_id == u64::MAX && wc.qp_num > 0xff_ffff && wc.status != OK;
        assert!(room[..filled].iter().all(nobodys), "{room:?}");
        assert!(room[filled..].iter().all(|wc| wc.wr_id == forged.wr_id), "{room:?}");
    }
    one.tear_down();
    other.tear_down();
}

/// Sends five messages, numbered from 0, into five receives; the immediates that arrive, in order of arrival.
fn numbers_after(fabric: &SoftFabric, plan: impl FnOnce()) -> Vec<u32> {
    let env = env(fabric, "soft0");
    let (one, other) = pair(&env);
    (0..8).for_each(|id| other.post_receive(id, id as usize * 4096, 4096));
    plan();
    for id in 0..5_u32 {
        assert_eq!(post_send(one.qp, &mut [send_imm(id.into(), one.sge(0, 64), id)]), (0, None));
    }
    assert_eq!(statuses(&one.poll(5)), (0..5).map(|id| (id, OK)).collect::<Vec<_>>(), "the sender sees nothing of it");
    let came = env.drain(other.cq);
    assert!(came.iter().all(|wc| wc.status == OK));
    one.tear_down();
    other.tear_down();
    came.iter().map(|wc| wc.immediate().expect("each has one")).collect()
}

#[test]
fn b4_messages_are_lost_doubled_and_reordered_without_a_sign() {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let with = |fault| numbers_after(&fabric, || fabric.message_fault(3, fault));
        assert_eq!(numbers_after(&fabric, || ()), [0, 1, 2, 3, 4]);
        assert_eq!(with(MessageFault::Drop), [0, 1, 3, 4], "{mode:?}");
        assert_eq!(with(MessageFault::Duplicate), [0, 1, 2, 2, 3, 4], "{mode:?}");
        assert_eq!(with(MessageFault::Reorder), [0, 1, 3, 2, 4], "{mode:?}");
        assert_eq!(with(MessageFault::Delay { messages: 2 }), [0, 1, 3, 4, 2], "{mode:?}");
        assert_eq!(with(MessageFault::Delay { messages: 3 }), [0, 1, 3, 4], "{mode:?}");
    }
}

#[test]
fn one_bit_of_one_byte_is_corrupted() {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let (one, other) = pair(&env(&fabric, "soft0"));
        one.write(0, &[0x10; 64]);
        other.post_receive(1, 0, 64);
        fabric.message_fault(1, MessageFault::Corrupt { offset_bytes: 5 });
        one.post_send(2, 0, 64);
        assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
        let mut wanted = [0x10; 64];
        wanted[5] = 0x11;
        assert_eq!(other.read(0, 64), wanted);
        assert_eq!(one.read(0, 64), [0x10; 64], "the sender's memory is its own");
        one.tear_down();
        other.tear_down();
    }
}

#[test]
fn a_held_message_arrives_when_it_is_released() {
    let fabric = fabric();
    let (one, other) = pair(&env(&fabric, "soft0"));
    fabric.message_fault(1, MessageFault::Hold);
    other.post_receive(1, 0, 64);
    one.write(0, &[3; 64]);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    one.write(0, &[4; 64]);
    assert!(other.env.drain(other.cq).is_empty());
    assert_eq!(fabric.release_held(), 1);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    assert_eq!(other.read(0, 64), [3; 64]);
    assert_eq!(fabric.release_held(), 0);
    one.tear_down();
    other.tear_down();
}

#[test]
fn faults_by_chance_are_told() {
    let fabric = fabric();
    fabric.message_odds(7, MessageOdds { drop: 300_000, ..MessageOdds::default() });
    let came = numbers_after(&fabric, || ());
    let dropped: Vec<u32> = fabric.message_faults_met().iter().map(|(number, _)| *number as u32 - 1).collect();
    assert_eq!(came, (0..5).filter(|number| !dropped.contains(number)).collect::<Vec<_>>());
}

#[test]
fn nothing_passes_a_port_that_is_down() {
    let fabric = fabric();
    let (one, other) = pair(&env(&fabric, "soft0"));
    other.post_receive(1, 0, 64);
    fabric.set_port_state("soft0", 1, PortState::DOWN);
    assert_eq!(one.env.port(one.context).state, PortState::DOWN);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)], "unreliable: the sender is not told");
    assert!(one.env.drain(other.cq).is_empty());
    fabric.set_port_state("soft0", 1, PortState::ACTIVE);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    one.tear_down();
    other.tear_down();
}

#[test]
fn a_completion_queue_that_overflows_fails_its_queue_pair_and_then_every_poll() {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let env = env(&fabric, "soft0");
        let small = env.create_cq(env.open(), 2);
        let context = super::raw::context_of(small);
        let pd = env.alloc_pd(context);
        let mut init = uc(small, CAP);
        let qp = env.create_qp(pd, &mut init);
        assert_eq!(env.modify(qp, &super::raw::init_attr(), super::raw::INIT_MASK), 0);
        let one = End::new(&env);
        for id in 0..3 {
            assert_eq!(post_recv(qp, &mut [receive(id, one.sge(0, 64))]), (0, None));
        }
        assert_eq!(env.move_to(qp, QpState::ERR), 0);
        for _ in 0..200 {
            assert!(env.poll_once(one.cq).is_none());
        }
        let mut room = [Wc::default(); 8];
        assert_eq!(poll_raw(small, &mut room), 2, "{mode:?}: what it held is there");
        assert_eq!(poll_raw(small, &mut room), -2, "{mode:?}");
        assert_eq!(poll_raw(small, &mut room), -2, "{mode:?}");
        assert_eq!([env.destroy_qp(qp), env.destroy_cq(small), env.dealloc_pd(pd), env.close(context)], [0; 4]);
        one.tear_down();
    }
}

#[test]
fn the_record_tells_every_call_in_order_with_its_handles() {
    let fabric = SoftFabric::new(SoftConfig::default().record(Record::Control(1000))).expect("a free slot");
    let (one, other) = pair(&env(&fabric, "soft0"));
    let (pd, cq, qp, mr) = (one.pd.addr(), one.cq.addr(), one.qp.addr(), one.mr.addr());
    let record = fabric.record();
    let made = record.iter().find(|call| call.handle == qp && call.symbol == "ibv_create_qp").expect("recorded");
    assert_eq!(made.parents, [pd, cq, cq]);
    let to_rtr = record.iter().find_map(|call| match call.detail {
        Detail::Modify { attr, .. } if call.handle == qp && attr.qp_state == QpState::RTR => Some(attr),
        _ => None,
    });
    assert_eq!(to_rtr.map(|attr| attr.ah_attr.grh.sgid_index), Some(1));
    let registered = record.iter().find(|call| call.handle == mr).expect("recorded");
    assert!(matches!(registered.detail, Detail::Register { access: AccessFlags::LOCAL_WRITE, .. }));
    fabric.clear_record();
    one.tear_down();
    other.tear_down();
    let torn: Vec<_> = fabric.record().iter().take(5).map(|call| (call.symbol, call.returned)).collect();
    assert_eq!(
        torn,
        [
            ("ibv_dereg_mr", 0),
            ("ibv_destroy_qp", 0),
            ("ibv_destroy_cq", 0),
            ("ibv_dealloc_pd", 0),
            ("ibv_close_device", 0)
        ]
    );
}

#[test]
fn the_record_is_off_unless_asked_for_and_bounded_when_on() {
    let run = |record| {
        let fabric = SoftFabric::new(SoftConfig::default().record(record)).expect("a free slot");
        let (one, other) = pair(&env(&fabric, "soft0"));
        one.post_send(1, 0, 64);
        one.poll(1);
        one.tear_down();
        other.tear_down();
        fabric.record()
    };
    assert_eq!(run(Record::Off), []);
    let all = run(Record::Bounded(1000));
    assert!(all.iter().zip(0..).all(|(call, number)| call.number == number));
    assert!(all.iter().any(|call| call.symbol == "ibv_poll_cq" && call.returned == 1));
    assert!(all.iter().any(|call| matches!(call.detail, Detail::Post { first_wr_id: 1, accepted: 1 })));
    let last = run(Record::Bounded(3));
    assert_eq!(
        last.iter().map(|call| call.symbol).collect::<Vec<_>>(),
        ["ibv_destroy_cq", "ibv_dealloc_pd", "ibv_close_device"]
    );
    assert!(
        run(Record::Control(1000)).iter().all(|call| !call.symbol.contains("po") || call.symbol == "ibv_query_port")
    );
}

#[test]
fn unknown_opcodes_and_negative_counts_are_refused() {
    let fabric = fabric();
    let (one, other) = pair(&env(&fabric, "soft0"));
    let mut unknown = send(1, one.sge(0, 64));
    unknown.opcode.0 = 77;
    assert_eq!(post_send(one.qp, &mut [unknown]), (22, Some(0)));
    let mut negative = send(1, one.sge(0, 64));
    negative.num_sge = -1;
    assert_eq!(post_send(one.qp, &mut [negative]), (22, Some(0)));
    let mut nowhere = send(1, one.sge(0, 64));
    nowhere.entries.clear();
    assert_eq!(post_send(one.qp, &mut [nowhere]), (22, Some(0)));
    assert!(one.env.drain(one.cq).is_empty());
    one.tear_down();
    other.tear_down();
}

#[test]
fn several_entries_are_gathered_and_scattered() {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let env = env(&fabric, "soft0");
        let cap = QpCap { max_send_sge: 3, max_recv_sge: 3, ..CAP };
        let (one, other) = connect(End::with(&env, cap, |_| ()), End::with(&env, cap, |_| ()));
        one.write(0, &[1; 10]);
        one.write(100, &[2; 20]);
        one.write(200, &[3; 5]);
        let mut to = [scatter(1, vec![other.sge(0, 7), other.sge(50, 20), other.sge(100, 100)])];
        assert_eq!(post_recv(other.qp, &mut to), (0, None));
        let mut from = [gather(2, vec![one.sge(0, 10), one.sge(100, 20), one.sge(200, 5)])];
        assert_eq!(post_send(one.qp, &mut from), (0, None));
        assert_eq!(other.poll(1)[0].byte_len, 35);
        let got = [other.read(0, 7), other.read(50, 20), other.read(100, 8)].concat();
        let wanted = [vec![1; 10], vec![2; 20], vec![3; 5]].concat();
        assert_eq!(got, wanted, "{mode:?}");
        one.tear_down();
        other.tear_down();
    }
}

/// Every entry point that a whole life uses, each of its calls refused in turn: the life goes as far as it can, and what
/// was made can still be destroyed.
#[test]
fn every_call_of_a_life_can_be_refused() {
    let count = {
        let fabric = SoftFabric::new(SoftConfig::default().record(Record::Bounded(1000))).expect("a free slot");
        life(&env(&fabric, "soft0"));
        fabric.record().iter().map(|call| call.symbol).collect::<Vec<_>>()
    };
    for (at, symbol) in count.iter().enumerate() {
        if matches!(*symbol, "ibv_free_device_list" | "ibv_get_device_name") {
            continue;
        }
        let nth = count[..=at].iter().filter(|other| other == &symbol).count() as u64;
        let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        fabric.fail(symbol, nth, Answer::minus_one(5));
        let refused = life(&env(&fabric, "soft0"));
        assert!(refused, "{symbol} {nth} was refused");
        assert_eq!(fabric.misuse(), Vec::<String>::new());
        assert_eq!(fabric.live(), LiveCounts::default(), "{symbol} {nth}");
    }
}

/// Makes and destroys one of everything, as far as calls are granted; whether one was refused. A destruction that was
/// refused changed nothing, so it is asked for again.
fn life(env: &Env) -> bool {
    let refused = std::cell::Cell::new(false);
    let granted = |yes: bool| {
        refused.set(refused.get() || !yes);
        yes
    };
    let destroyed = |destroy: &dyn Fn() -> i32| {
        if !granted(destroy() == 0) {
            assert_eq!(destroy(), 0);
        }
    };
    let Some(context) = super::raw::try_open(&env.symbols, env.device).filter(|context| granted(!context.is_null()))
    else {
        return true;
    };
    let pd = env.alloc_pd(context);
    let cq = env.create_cq(context, 8);
    if granted(!pd.is_null()) && granted(!cq.is_null()) {
        let qp = env.create_qp(pd, &mut uc(cq, CAP));
        if granted(!qp.is_null()) {
            granted(env.modify(qp, &super::raw::init_attr(), super::raw::INIT_MASK) == 0);
            destroyed(&|| env.destroy_qp(qp));
        }
    }
    if granted(!cq.is_null()) {
        destroyed(&|| env.destroy_cq(cq));
    }
    if granted(!pd.is_null()) {
        destroyed(&|| env.dealloc_pd(pd));
    }
    destroyed(&|| env.close(context));
    refused.get()
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever the entries are: the receiver holds the sender's bytes as if both were one range.
    #[test]
    fn any_entries_carry_the_same_bytes(
        from in proptest::collection::vec(0..200_u32, 1..6),
        to in proptest::collection::vec(0..200_u32, 1..6),
        seed in 0..4_u64,
    ) {
        let mode = if seed == 0 { Mode::Prompt } else { Mode::Adversarial { seed } };
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let env = env(&fabric, "soft0");
        let cap = QpCap { max_send_sge: 6, max_recv_sge: 6, ..CAP };
        let (one, other) = connect(End::with(&env, cap, |_| ()), End::with(&env, cap, |_| ()));
        let entries = |end: &End, lengths: &[u32]| -> Vec<_> {
            lengths.iter().enumerate().map(|(at, length)| end.sge(at * 256, *length)).collect()
        };
        let whole = |end: &End, lengths: &[u32]| -> Vec<u8> {
            lengths.iter().enumerate().flat_map(|(at, length)| end.read(at * 256, *length as usize)).collect()
        };
        one.write(0, &(0..2048_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>());
        assert_eq!(post_recv(other.qp, &mut [scatter(1, entries(&other, &to))]), (0, None));
        assert_eq!(post_send(one.qp, &mut [gather(2, entries(&one, &from))]), (0, None));
        let came = other.poll(1)[0];
        let (sent, room) = (from.iter().sum::<u32>(), to.iter().sum::<u32>());
        if sent <= room {
            assert_eq!((came.status, came.byte_len), (OK, sent));
            assert_eq!(whole(&other, &to)[..sent as usize], whole(&one, &from)[..]);
        } else {
            assert_eq!(came.status, WcStatus::LOC_LEN_ERR);
        }
        one.tear_down();
        other.tear_down();
    }
}
