use bareverbs_core::link::{
    AlreadyStarted, Direction, Fault, Immediate, LinkError, Outstanding, ReceiveError, SendError, Sequence, WorkId,
};
use bareverbs_core::verbs::{EventType, SendFlags, Wc, WcStatus, WrOpcode};

use super::provider::{Answer, QP_NUM, Rig, Seen, accept, rubbish};

fn marker(rig: &mut Rig<Immediate>, marker: WorkId, status: WcStatus) {
    rig.device.world().completions.push_back(Wc { qp_num: QP_NUM, ..rubbish(marker.raw(), status) });
}

#[test]
fn markers_carry_no_memory_and_end_what_is_outstanding() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.send(b"x").unwrap();
    rig.link.post_receives(3).unwrap();
    rig.link.post_marker(Direction::Send).unwrap();
    rig.link.post_marker(Direction::Receive).unwrap();
    let world = rig.device.world();
    let send = world.sends.pop_back().unwrap().wr;
    assert_eq!((send.wr_id, send.num_sge, send.opcode), (WorkId::SEND_MARKER.raw(), 0, WrOpcode::SEND));
    assert_eq!(send.send_flags, SendFlags::SIGNALED);
    let receive = world.receives.pop_back().unwrap().wr;
    assert_eq!((receive.wr_id, receive.num_sge), (WorkId::RECV_MARKER.raw(), 0));
    let cause = Fault::Teardown { direction: Direction::Send };
    assert_eq!(rig.link.next_frame().err(), Some(SendError::Broken { cause }));
    let flushed = rig.device.world().sends.pop_front().unwrap().wr.wr_id;
    rig.device.world().completions.push_back(rubbish(flushed, WcStatus::WR_FLUSH_ERR));
    assert_eq!(accept!(rig), Seen::Error(LinkError::Broken { cause }));
    assert_eq!(rig.link.outstanding(), Outstanding { sends: 0, receives: 3 });
    marker(&mut rig, WorkId::SEND_MARKER, WcStatus::WR_FLUSH_ERR);
    assert_eq!(accept!(rig), Seen::Drained(Direction::Send));
    assert_eq!(rig.link.outstanding(), Outstanding { sends: 0, receives: 3 });
    marker(&mut rig, WorkId::RECV_MARKER, WcStatus::WR_FLUSH_ERR);
    assert_eq!(accept!(rig), Seen::Drained(Direction::Receive));
    assert_eq!(rig.link.outstanding(), Outstanding::default());
}

#[test]
fn a_marker_drains_unsignalled_sends_that_never_complete_and_a_link_that_was_whole() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.link.next_frame().unwrap().post_more(1).unwrap();
    rig.link.post_marker(Direction::Send).unwrap();
    marker(&mut rig, WorkId::SEND_MARKER, WcStatus::SUCCESS);
    assert_eq!(accept!(rig), Seen::Drained(Direction::Send));
    assert_eq!(rig.link.outstanding().sends, 0);
    // Whoever replays it gets it again; nothing can be posted any more.
    marker(&mut rig, WorkId::SEND_MARKER, WcStatus::SUCCESS);
    assert_eq!(accept!(rig), Seen::Drained(Direction::Send));
    let cause = Fault::Teardown { direction: Direction::Send };
    assert_eq!(rig.link.next_frame().err(), Some(SendError::Broken { cause }));
}

#[test]
fn a_marker_that_nobody_posted_ends_nothing_and_breaks_the_link() {
    for (id, other) in [(WorkId::SEND_MARKER, Direction::Receive), (WorkId::RECV_MARKER, Direction::Send)] {
        let mut rig: Rig<Immediate> = Rig::new(Immediate);
        rig.send(b"x").unwrap();
        rig.link.post_receives(3).unwrap();
        marker(&mut rig, id, WcStatus::SUCCESS);
        assert_eq!(accept!(rig), Seen::Error(LinkError::Fault(Fault::UnknownId { wr_id: id.raw() })));
        assert_eq!(rig.link.outstanding(), Outstanding { sends: 1, receives: 3 });
        // The other queue's marker, posted, is no leave for this one's.
        rig.link.post_marker(other).unwrap();
        marker(&mut rig, id, WcStatus::SUCCESS);
        assert!(matches!(accept!(rig), Seen::Error(LinkError::Broken { .. })));
        assert_eq!(rig.link.outstanding(), Outstanding { sends: 1, receives: 3 });
    }
}

#[test]
fn a_marker_of_another_queue_pair_is_foreign() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    let wr_id = WorkId::SEND_MARKER.raw();
    rig.device.world().completions.push_back(Wc { wr_id, qp_num: 1, ..Wc::default() });
    assert_eq!(accept!(rig), Seen::Error(LinkError::ForeignQueuePair { expected: QP_NUM, got: 1 }));
    assert_eq!(rig.link.cause(), None);
}

#[test]
fn a_refused_marker_is_told() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.device.world().answers.push_back(Answer::Silent { accepted: 0, returned: 22 });
    assert_eq!(rig.link.post_marker(Direction::Send).unwrap_err().raw().number(), Some(22));
    assert!(rig.link.cause().is_some(), "teardown was begun");
}

#[test]
fn the_memory_comes_back_whole_when_the_queue_pair_is_gone() {
    let mut rig: Rig<Immediate, 4, 8> = Rig::new(Immediate);
    rig.link.post_receives(8).unwrap();
    let held = rig.link.into_memory();
    // SAFETY: the test's device is the queue pair, and does nothing any more.
    let memory = unsafe { held.release() };
    assert_eq!(memory.len_bytes(), 12 * 256);
    // SAFETY: the memory is ours alone again.
    let bytes = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), memory.len_bytes()) };
    bytes.fill(1);
}

#[test]
fn a_link_whose_completions_were_abandoned_is_broken_for_good_and_says_so() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.link.post_receives(8).unwrap();
    rig.arrive(b"x", Some(0));
    rig.link.abandon();
    let cause = Fault::Abandoned;
    assert_eq!(rig.link.cause(), Some(cause));
    assert_eq!(accept!(rig), Seen::Error(LinkError::Broken { cause }));
    assert_eq!(rig.send(b"x"), Err(SendError::Broken { cause }));
    assert_eq!(rig.link.post_receives(1), Err(ReceiveError::Broken { cause }));
    rig.link.break_for_event(EventType::DEVICE_FATAL);
    assert_eq!(rig.link.cause(), Some(cause), "the first cause stays");
}

#[test]
fn a_link_whose_device_reported_a_failure_is_broken_for_good_and_says_which() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.link.break_for_event(EventType::QP_FATAL);
    let cause = Fault::Device { event: EventType::QP_FATAL };
    assert_eq!((rig.link.cause(), rig.send(b"x")), (Some(cause), Err(SendError::Broken { cause })));
    assert_eq!(rig.link.post_receives(1), Err(ReceiveError::Broken { cause }));
}

#[test]
fn first_numbers_are_set_only_before_anything_is_posted_in_either_direction() {
    let (tx, rx) = (Sequence::new(7), Sequence::new(9));
    let mut fresh: Rig<Immediate> = Rig::new(Immediate);
    assert_eq!(fresh.link.set_starts(tx, rx), Ok(()));
    assert_eq!((fresh.link.next_sequence(), fresh.link.expected_sequence()), (tx, rx));
    let mut received: Rig<Immediate> = Rig::new(Immediate);
    received.link.post_receives(1).unwrap();
    let mut sent: Rig<Immediate> = Rig::new(Immediate);
    sent.send(b"x").unwrap();
    for (rig, next) in [(&mut received, 0), (&mut sent, 1)] {
        assert_eq!(rig.link.set_starts(tx, rx), Err(AlreadyStarted));
        let numbers = (rig.link.next_sequence(), rig.link.expected_sequence());
        assert_eq!(numbers, (Sequence::new(next), Sequence::new(0)), "as they were");
    }
}
