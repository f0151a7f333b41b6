//! What an adversarial fabric does on purpose, and that the same seed does the same.

use bareverbs_core::verbs::{QpCap, QpState, SendFlags, Wc, WcStatus};
use bareverbs_shell::soft::{Mode, Record, SoftConfig, SoftFabric};

use super::raw::on_soft::env;
use super::raw::{CAP, End, connect, pair, post_recv, post_send, receive, send, send_imm, statuses};

const OK: WcStatus = WcStatus::SUCCESS;

fn adversarial(seed: u64) -> SoftFabric {
    SoftFabric::new(SoftConfig::default().mode(Mode::Adversarial { seed })).expect("a free slot")
}

#[test]
fn a_send_changed_before_its_completion_is_sent_changed() {
    for seed in 0..20 {
        let fabric = adversarial(seed);
        let (one, other) = pair(&env(&fabric, "soft0"));
        other.post_receive(1, 0, 64);
        one.write(0, &[1; 64]);
        one.post_send(2, 0, 64);
        one.write(0, &[2; 64]);
        assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
        assert_eq!(other.read(0, 64), [2; 64], "seed {seed}");
        one.tear_down();
        other.tear_down();
    }
}

#[test]
fn a_posted_receive_is_scribbled_over_at_once_and_again() {
    let fabric = adversarial(3);
    let (one, other) = pair(&env(&fabric, "soft0"));
    other.post_receive(1, 0, 4096);
    let first = other.read(0, 4096);
    assert!(first.iter().filter(|byte| **byte != 0).count() > 3000);
    for _ in 0..50 {
        assert!(other.env.poll_once(other.cq).is_none());
    }
    let second = other.read(0, 4096);
    assert_ne!(first, second);
    assert_eq!(other.read(4096, 4096), [0; 4096], "not beyond it");

    one.write(0, &[7; 4096]);
    one.post_send(2, 0, 4096);
    assert_eq!(statuses(&other.poll(1)), [(1, OK)]);
    for _ in 0..50 {
        assert!(other.env.poll_once(other.cq).is_none());
        assert_eq!(other.read(0, 4096), [7; 4096], "a completed receive is left alone");
    }
    one.tear_down();
    other.tear_down();
}

#[test]
fn a_receive_beyond_the_message_keeps_junk() {
    let fabric = adversarial(5);
    let (one, other) = pair(&env(&fabric, "soft0"));
    other.post_receive(1, 0, 4096);
    one.post_send(2, 0, 16);
    assert_eq!(other.poll(1)[0].byte_len, 16);
    assert!(other.read(16, 4080).iter().any(|byte| *byte != 0));
    one.tear_down();
    other.tear_down();
}

/// Which end completed first, over many seeds.
#[test]
fn either_end_completes_first() {
    let mut seen = [false; 2];
    for seed in 0..40 {
        let fabric = adversarial(seed);
        let (one, other) = pair(&env(&fabric, "soft0"));
        other.post_receive(1, 0, 64);
        one.post_send(2, 0, 64);
        let first = loop {
            if one.env.poll_once(one.cq).is_some() {
                break 0;
            }
            if other.env.poll_once(other.cq).is_some() {
                break 1;
            }
        };
        seen[first] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_send_slot_is_free_again_only_after_a_signalled_completion_was_polled() {
    for mode in super::raw::on_soft::modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let cap = QpCap { max_send_wr: 4, ..CAP };
        let env = env(&fabric, "soft0");
        let (one, other) = connect(End::with(&env, cap, |_| ()), End::new(&env));
        let unsignalled = |id| {
            let mut request = send(id, one.sge(0, 64));
            request.send_flags = SendFlags::empty();
            post_send(one.qp, &mut [request])
        };
        assert_eq!((0..3).map(unsignalled).collect::<Vec<_>>(), [(0, None); 3]);
        one.post_send(3, 0, 64);
        assert_eq!(unsignalled(4), (12, Some(0)), "{mode:?}: full, though all may have gone out");
        assert!(env.drain(other.cq).is_empty());
        assert_eq!(unsignalled(4), (12, Some(0)), "{mode:?}: completed, but not polled");
        assert_eq!(statuses(&one.poll(1)), [(3, OK)]);
        assert_eq!((4..8).map(unsignalled).collect::<Vec<_>>(), [(0, None); 4], "{mode:?}");
        assert!(env.drain(one.cq).is_empty());
        assert_eq!(unsignalled(8), (12, Some(0)), "{mode:?}: never signalled, never free");
        one.tear_down();
        other.tear_down();
    }
}

#[test]
fn a_receive_slot_is_free_again_only_after_its_completion_was_polled() {
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let env = env(&fabric, "soft0");
    let (one, other) = connect(End::new(&env), End::with(&env, QpCap { max_recv_wr: 1, ..CAP }, |_| ()));
    let post = || post_recv(other.qp, &mut [receive(1, other.sge(0, 64))]);
    assert_eq!(post(), (0, None));
    one.post_send(2, 0, 64);
    assert_eq!(post(), (12, Some(0)));
    other.poll(1);
    assert_eq!(post(), (0, None));
    one.tear_down();
    other.tear_down();
}

#[test]
fn failed_completions_define_four_fields_only() {
    let fabric = adversarial(1);
    let env = env(&fabric, "soft0");
    let (one, other) = pair(&env);
    one.post_receive(9, 0, 64);
    assert_eq!(env.move_to(one.qp, QpState::ERR), 0);
    let wc = one.poll(1)[0];
    assert_eq!((wc.wr_id, wc.status, wc.qp_num, wc.vendor_err), (9, WcStatus::WR_FLUSH_ERR, one.number(), 0));
    assert_eq!(wc.byte_len, u32::MAX);
    assert!(wc.wc_flags.bits() == u32::MAX, "junk claims an immediate");
    one.tear_down();
    other.tear_down();
}

#[test]
fn a_successful_completion_without_immediate_holds_junk_there_and_no_flag() {
    let fabric = adversarial(1);
    let (one, other) = pair(&env(&fabric, "soft0"));
    other.post_receive(1, 0, 64);
    one.post_send(2, 0, 64);
    let wc = other.poll(1)[0];
    assert_eq!(wc.immediate(), None);
    assert_ne!(wc.imm_data.get(), 0);
    one.tear_down();
    other.tear_down();
}

/// Everything that one run shows: how many completions each poll found, and what memory holds.
fn trace(seed: u64) -> (Vec<(u64, u64)>, Vec<u8>) {
    let config = SoftConfig::default().mode(Mode::Adversarial { seed }).record(Record::Bounded(10_000));
    let fabric = SoftFabric::new(config).expect("a free slot");
    let env = env(&fabric, "soft0");
    let (one, other) = pair(&env);
    for id in 0..8 {
        other.post_receive(id, id as usize * 4096, 4096);
        let mut request = [send_imm(id, one.sge(id as usize * 4096, 100), id as u32)];
        assert_eq!(post_send(one.qp, &mut request), (0, None));
    }
    let mut seen = Vec::new();
    let mut polls = 0;
    while seen.len() < 16 {
        polls += 1;
        let found: Vec<Wc> = [&one, &other].iter().filter_map(|end| env.poll_once(end.cq)).collect();
        seen.extend(found.iter().map(|wc| (polls, wc.wr_id | u64::from(wc.opcode.0) << 32)));
    }
    let memory = other.read(0, 8 * 4096);
    one.tear_down();
    other.tear_down();
    (seen, memory)
}

#[test]
fn a_seed_tells_the_whole_run() {
    for seed in 0..5 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
    assert_ne!(trace(0), trace(1));
}

/// The delayed write of a message that the network still holds finds the region gone, and touches nothing.
#[test]
fn h3_a_held_message_never_reaches_memory_that_is_no_longer_registered() {
    use bareverbs_shell::soft::MessageFault;
    for mode in super::raw::on_soft::modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let env = env(&fabric, "soft0");
        let (one, other) = pair(&env);
        other.post_receive(1, 0, 64);
        other.post_receive(2, 64, 64);
        fabric.message_fault(1, MessageFault::Hold);
        one.write(0, &[5; 64]);
        one.post_send(3, 0, 64);
        one.poll(1);
        assert_eq!(env.dereg_mr(other.mr), 0);
        let before = other.read(0, 128);
        fabric.release_held();
        for _ in 0..20 {
            env.poll_once(one.cq);
        }
        assert_eq!(other.read(0, 128), before, "{mode:?}: nothing is written without a region");
        assert_eq!(statuses(&other.poll(2)), [(1, WcStatus::LOC_PROT_ERR), (2, WcStatus::WR_FLUSH_ERR)]);
        one.tear_down();
    }
}
