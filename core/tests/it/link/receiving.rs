use bareverbs_core::link::{
    CarrierError, Direction, Event, Fault, Header, HeaderError, Immediate, LinkError, Outstanding, Raw, ReceiveError,
    SendError, Sequence, WorkId,
};
use bareverbs_core::verbs::completion::FailedCompletion;
use bareverbs_core::verbs::inline_calls::{CompletionQueueCalls, PollError};
use bareverbs_core::verbs::{Be32, Wc, WcFlags, WcOpcode, WcStatus};

use super::provider::{Answer, Device, FRAME_BYTES, QP_NUM, Rig, Seen, Wishes, accept};

fn started(start: u32) -> Rig<Immediate> {
    let mut rig = Rig::wish(Immediate, Wishes { start, ..Wishes::default() }).unwrap();
    assert_eq!(rig.link.post_receives(usize::MAX), Ok(8));
    rig
}

#[test]
fn b1_a_failed_completion_breaks_the_link_and_nothing_undefined_is_read() {
    let mut rig = started(7);
    let first = rig.arrive(b"seven", Some(7));
    let second = rig.fail_receive(WcStatus(5));
    rig.arrive(b"eight", Some(8));
    let received = Seen::Received { payload: b"seven".to_vec(), sequence: Some(7), wr_id: first };
    assert_eq!(accept!(rig), received);
    let failed = FailedCompletion { wr_id: second, status: WcStatus(5), qp_num: QP_NUM, vendor_err: 9 };
    assert_eq!(accept!(rig), Seen::Error(LinkError::Fault(Fault::Failed(failed))));
    assert_eq!(rig.link.expected_sequence(), Sequence::new(8), "the checker was not fed");
    assert_eq!(accept!(rig), Seen::Error(LinkError::Broken { cause: Fault::Failed(failed) }));
    assert_eq!(rig.link.outstanding(), Outstanding { sends: 0, receives: 5 }, "the books go on");
}

#[test]
fn b1_raw_entries_stand_alone() {
    let mut rig = started(7);
    rig.arrive(b"", Some(7));
    rig.fail_receive(WcStatus(5));
    rig.arrive(b"", Some(8));
    let read: Vec<_> = (0..3).map(|_| Immediate::read(&rig.take()).map(Sequence::number).ok()).collect();
    assert_eq!(read, [Some(7), None, Some(8)]);
}

/// Messages come with these numbers; answers what the link says to each.
fn b4(numbers: &[u32]) -> (Vec<u64>, Vec<Seen>) {
    let mut rig = started(0);
    let wr_ids = numbers.iter().map(|number| rig.arrive(b"x", Some(*number))).collect();
    (wr_ids, numbers.iter().map(|_| accept!(rig)).collect())
}

fn good(wr_id: u64, number: u32) -> Seen {
    Seen::Received { payload: b"x".to_vec(), sequence: Some(number), wr_id }
}

#[test]
fn b4_a_lost_message_breaks_the_link_at_the_next_for_good() {
    let (wr_ids, seen) = b4(&[0, 1, 3, 4]);
    let (expected, got) = (Sequence::new(2), Sequence::new(3));
    let cause = Fault::Gap { wr_id: wr_ids[2], expected, got, missing: 1 };
    assert_eq!(seen[..2], [good(wr_ids[0], 0), good(wr_ids[1], 1)]);
    assert_eq!(seen[2..], [Seen::Error(LinkError::Fault(cause)), Seen::Error(LinkError::Broken { cause })]);
}

#[test]
fn b4_a_repeated_message_breaks_the_link_at_the_second_of_them() {
    let (wr_ids, seen) = b4(&[0, 1, 1, 2]);
    let (expected, got) = (Sequence::new(2), Sequence::new(1));
    let cause = Fault::Old { wr_id: wr_ids[2], expected, got, behind: 1 };
    assert_eq!(seen[2..], [Seen::Error(LinkError::Fault(cause)), Seen::Error(LinkError::Broken { cause })]);
}

#[test]
fn b4_a_reordered_message_breaks_the_link_at_the_early_one() {
    let (wr_ids, seen) = b4(&[0, 2, 1]);
    let (expected, got) = (Sequence::new(1), Sequence::new(2));
    let cause = Fault::Gap { wr_id: wr_ids[1], expected, got, missing: 1 };
    assert_eq!(seen[1..], [Seen::Error(LinkError::Fault(cause)), Seen::Error(LinkError::Broken { cause })]);
}

#[test]
fn the_first_number_is_the_agreed_one_and_not_whatever_comes() {
    let (_, seen) = b4(&[5]);
    assert!(matches!(seen[0], Seen::Error(LinkError::Fault(Fault::Gap { missing: 5, .. }))));
}

fn unreadable(rig: &mut Rig<Immediate>, shape: impl FnOnce(&mut Wc)) -> CarrierError {
    rig.arrive_as(b"x", |wc| {
        wc.imm_data = Be32::new(0);
        wc.wc_flags = WcFlags::WITH_IMM;
        shape(wc);
    });
    match accept!(rig) {
        Seen::Error(LinkError::Fault(Fault::Unreadable { error, .. })) => error,
        seen => panic!("{seen:?}"),
    }
}

#[test]
fn a_receive_without_immediate_is_an_error_and_never_a_pass() {
    let error = unreadable(&mut started(0), |wc| wc.wc_flags = WcFlags::empty());
    assert_eq!(error, CarrierError::NoImmediate);
}

#[test]
fn a_length_beyond_the_frame_and_another_opcode_are_errors() {
    let error = unreadable(&mut started(0), |wc| wc.byte_len = FRAME_BYTES + 1);
    assert_eq!(error, CarrierError::TooLong { got_bytes: FRAME_BYTES + 1, room_bytes: FRAME_BYTES });
    let error = unreadable(&mut started(0), |wc| wc.opcode = WcOpcode::RECV_RDMA_WITH_IMM);
    assert_eq!(error, CarrierError::Opcode { got: WcOpcode::RECV_RDMA_WITH_IMM });
    let mut rig = started(0);
    let whole = [9; FRAME_BYTES as usize];
    rig.arrive(&whole, Some(0));
    rig.arrive(b"", Some(1));
    assert!(matches!(accept!(rig), Seen::Received { payload, .. } if payload == whole));
    assert!(matches!(accept!(rig), Seen::Received { payload, .. } if payload.is_empty()));
}

#[test]
fn a_bad_header_is_an_error_and_stale_bytes_are_not_read() {
    let mut rig: Rig<Header> = Rig::new(Header::new());
    rig.link.post_receives(8).unwrap();
    rig.arrive(&[0; 100], None);
    let error = CarrierError::Header(HeaderError::Magic { got: 0 });
    assert!(matches!(accept!(rig), Seen::Error(LinkError::Fault(Fault::Unreadable { error: e, .. })) if e == error));
    // A good header lies in the frame already, and fewer bytes come than it needs.
    let mut rig: Rig<Header> = Rig::new(Header::new());
    rig.link.post_receives(8).unwrap();
    rig.send(b"payload").unwrap();
    let wire = rig.wire();
    rig.arrive_as(&wire, |wc| wc.byte_len = 63);
    let error = CarrierError::Header(HeaderError::TooShort { got_bytes: 63, need_bytes: 64 });
    assert!(matches!(accept!(rig), Seen::Error(LinkError::Fault(Fault::Unreadable { error: e, .. })) if e == error));
    // The header's length and the device's disagree.
    let mut rig: Rig<Header> = Rig::new(Header::new());
    rig.link.post_receives(8).unwrap();
    rig.arrive_as(&wire, |wc| wc.byte_len += 1);
    let error = CarrierError::Length { expected_bytes: 71, got_bytes: 72 };
    assert!(matches!(accept!(rig), Seen::Error(LinkError::Fault(Fault::Unreadable { error: e, .. })) if e == error));
}

#[test]
fn the_raw_carrier_promises_nothing() {
    let mut rig: Rig<Raw> = Rig::new(Raw);
    rig.link.post_receives(8).unwrap();
    for payload in [&b"one"[..], b"", b"three"] {
        let wr_id = rig.arrive(payload, None);
        assert_eq!(accept!(rig), Seen::Received { payload: payload.to_vec(), sequence: None, wr_id });
    }
}

#[test]
fn an_unknown_number_breaks_the_link() {
    for direction in [Direction::Send, Direction::Receive] {
        let mut rig = started(0);
        rig.send(b"x").unwrap();
        let bit = match direction {
            Direction::Send => 0,
            Direction::Receive => 1 << 63,
        };
        let wr_id = bit | 0x1234;
        rig.device.world().completions.push_back(Wc { wr_id, qp_num: QP_NUM, ..Wc::default() });
        assert_eq!(accept!(rig), Seen::Error(LinkError::Fault(Fault::UnknownId { wr_id })));
        assert_eq!(rig.link.outstanding(), Outstanding { sends: 1, receives: 8 });
        assert_eq!(rig.link.next_frame().err(), Some(SendError::Broken { cause: Fault::UnknownId { wr_id } }));
    }
}

#[test]
fn a_replayed_completion_gives_nothing_back_however_often_its_slot_is_used_again() {
    let mut rig = started(0);
    rig.send(b"x").unwrap();
    rig.complete_send();
    let old = rig.take();
    rig.device.world().completions.push_back(old);
    assert_eq!(accept!(rig), Seen::Sent(1));
    // The same slot, posted again.
    for _ in 0..8 {
        rig.send(b"y").unwrap();
    }
    rig.device.world().completions.push_back(old);
    let seen = accept!(rig);
    assert_eq!(seen, Seen::Error(LinkError::Fault(Fault::UnknownId { wr_id: old.wr_id })));
    assert_eq!(rig.link.outstanding().sends, 8);
}

#[test]
fn completions_of_other_queues_and_queue_pairs_leave_the_link_as_it_was() {
    let mut rig = started(0);
    rig.send(b"x").unwrap();
    rig.complete_send();
    let good = rig.take();
    rig.device.world().completions.push_back(Wc { qp_num: QP_NUM + 1, ..good });
    let foreign = LinkError::ForeignQueuePair { expected: QP_NUM, got: QP_NUM + 1 };
    assert_eq!(accept!(rig), Seen::Error(foreign));
    let mut other = Device::new(QP_NUM);
    other.world().completions.push_back(good);
    let mut room = [Wc::default()];
    let mut queue = other.queue();
    let completion = queue.poll(&mut room).unwrap().next().unwrap();
    assert_eq!(Seen::of(rig.link.accept(&completion)), Seen::Error(LinkError::ForeignQueue));
    assert_eq!((rig.link.cause(), rig.link.outstanding().sends), (None, 1));
    rig.device.world().completions.push_back(good);
    assert_eq!(accept!(rig), Seen::Sent(1));
}

#[test]
fn a_completion_that_overtakes_others_breaks_the_link() {
    let mut rig = started(0);
    for _ in 0..3 {
        rig.send(b"x").unwrap();
    }
    rig.complete_send();
    rig.take();
    let wr_id = rig.complete_send().unwrap();
    let cause = Fault::Skipped { wr_id, skipped: 1 };
    assert_eq!(accept!(rig), Seen::Error(LinkError::Fault(cause)));
    assert_eq!(rig.link.outstanding().sends, 3, "a refusal changes nothing");
    let mut rig = started(0);
    rig.arrive(b"", Some(0));
    rig.take();
    let wr_id = rig.arrive(b"", Some(1));
    let cause = Fault::Skipped { wr_id, skipped: 1 };
    assert_eq!(accept!(rig), Seen::Error(LinkError::Fault(cause)));
}

#[test]
fn a_negative_poll_breaks_the_link_for_good() {
    let mut rig = started(0);
    rig.arrive(b"lost", Some(0));
    rig.device.world().poll_returns = Some(-2);
    let error = rig.queue.poll(&mut [Wc::default()]).map(|completions| completions.len()).unwrap_err();
    assert_eq!(error, PollError::Negative { returned: -2 });
    rig.link.break_with(error);
    let cause = Fault::Poll(error);
    assert_eq!(rig.link.next_frame().err(), Some(SendError::Broken { cause }));
    assert_eq!(rig.link.post_receives(1), Err(ReceiveError::Broken { cause }));
    assert_eq!(accept!(rig), Seen::Error(LinkError::Broken { cause }));
    // Completions may be missing now: the books take each as the end of those before it.
    rig.arrive(b"", Some(1));
    rig.take();
    rig.arrive(b"", Some(2));
    assert_eq!(accept!(rig), Seen::Error(LinkError::Broken { cause }));
    assert_eq!(rig.link.outstanding().receives, 5);
}

#[test]
fn a_poll_that_goes_on_ends_with_what_comes_with_an_error_and_when_it_is_told_to() {
    let mut rig = started(0);
    rig.arrive(b"", Some(0));
    let entry = rig.take();
    let Rig { queue, device, .. } = &mut rig;
    let mut room = [Wc::default(); 4];
    let mut asked = 0;
    let mut polled = |queue: &mut CompletionQueueCalls, then: &mut dyn FnMut(u32) -> bool| {
        asked = 0;
        let again = || {
            asked += 1;
            then(asked)
        };
        let found = queue.poll_while(&mut room, again).map(|completions| completions.len());
        (found, asked)
    };
    assert_eq!(polled(queue, &mut |asked| asked < 3), (Ok(0), 3), "told to end");
    let mut come = |asked| {
        if asked == 5 {
            device.world().completions.extend([entry; 2]);
        }
        true
    };
    assert_eq!(polled(queue, &mut come), (Ok(2), 5), "not asked once something came");
    let mut fail = |asked| {
        if asked == 2 {
            device.world().poll_returns = Some(-2);
        }
        true
    };
    assert_eq!(polled(queue, &mut fail), (Err(PollError::Negative { returned: -2 }), 2));
}

#[test]
fn a_received_frame_is_given_back_or_posted_again() {
    let mut rig = started(0);
    rig.arrive(b"dropped", Some(0));
    assert!(matches!(accept!(rig), Seen::Received { .. }));
    assert_eq!(rig.link.outstanding().receives, 7);
    rig.arrive(b"reposted", Some(1));
    let mut room = [Wc::default()];
    let completion = rig.queue.poll(&mut room).unwrap().next().unwrap();
    let Ok(Event::Received(frame)) = rig.link.accept(&completion) else { panic!() };
    assert_eq!((frame.payload(), frame.sequence()), (&b"reposted"[..], Some(Sequence::new(1))));
    assert_eq!(frame.wr_id(), WorkId::from_raw(completion.wr_id()));
    frame.repost().unwrap();
    assert_eq!(rig.link.outstanding().receives, 7);
    assert_eq!(rig.link.post_receives(usize::MAX), Ok(1));
}

#[test]
fn a_repost_that_fails_is_told_like_any_post() {
    let repost = |rig: &mut Rig<Immediate>, answer| {
        rig.arrive(b"", Some(rig.link.expected_sequence().number()));
        rig.device.world().answers.push_back(answer);
        let mut room = [Wc::default()];
        let completion = rig.queue.poll(&mut room).unwrap().next().unwrap();
        let Ok(Event::Received(frame)) = rig.link.accept(&completion) else { panic!() };
        frame.repost()
    };
    let mut rig = started(0);
    let refused = repost(&mut rig, Answer::Refuse { accepted: 0, returned: 12 });
    assert!(matches!(refused, Err(ReceiveError::Refused { accepted: 0, .. })));
    assert_eq!((rig.link.outstanding().receives, rig.link.cause()), (7, None));
    let unknown = repost(&mut rig, Answer::Silent { accepted: 0, returned: -12 });
    assert!(matches!(unknown, Err(ReceiveError::Broken { cause: Fault::PostUnknown { .. } })));
    assert_eq!(rig.link.outstanding().receives, 7, "six, and one that may be");
}
