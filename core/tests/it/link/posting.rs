use bareverbs_core::link::{
    Direction, Fault, Immediate, LinkRules, Outstanding, Posted, ReceiveError, SendError, Sequence,
};
use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_core::verbs::{LinkLayer, SendFlags};

use super::provider::{Answer, FRAME_BYTES, LKEY, Rig, Seen, Wishes, accept};

fn signalling(signal_every: u32) -> Wishes {
    let rules = LinkRules { signal_every, ..LinkRules::for_link_layer(LinkLayer::ETHERNET) };
    Wishes { rules, ..Wishes::default() }
}

/// One send is refused as case A3 says; then one is accepted.
fn a3(returned: i32, number: Option<i32>) {
    let mut rig: Rig<Immediate> = Rig::wish(Immediate, Wishes { start: 41, ..Wishes::default() }).unwrap();
    rig.device.world().answers.push_back(Answer::Refuse { accepted: 0, returned });
    let error = rig.send(b"one").unwrap_err();
    let raw = RawErrno(returned);
    assert_eq!(error, SendError::Refused { accepted: 0, raw });
    assert_eq!(raw.number(), number);
    assert_eq!(rig.link.outstanding(), Outstanding::default());
    assert_eq!(rig.link.next_frame().unwrap().payload_mut()[..3], *b"one", "the frame is the next one again");
    assert_eq!(rig.send(b"two"), Ok(Sequence::new(41)), "the number was not used up");
    assert_eq!(rig.device.world().sends[0].wr.imm_data.get(), 41);
}

#[test]
fn a3_a_positive_errno_refuses_and_uses_up_no_number() {
    a3(12, Some(12));
}

#[test]
fn a3_b_minus_one_leaves_the_errno_to_who_can_read_it() {
    a3(-1, None);
}

#[test]
fn a3_c_another_errno_refuses_and_uses_up_no_number() {
    a3(22, Some(22));
}

#[test]
fn a3_d_minus_one_without_errno_is_no_success() {
    a3(-1, None);
    a3(-12, Some(12));
}

#[test]
fn a_send_too_long_is_refused_before_posting() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    let room = FRAME_BYTES as usize;
    for len in [room + 1, usize::MAX] {
        let refused = rig.link.next_frame().unwrap().post(len);
        assert_eq!(refused, Err(SendError::TooLong { got_bytes: len as u64, room_bytes: FRAME_BYTES }));
    }
    assert!(rig.device.world().send_chains.is_empty());
    for len in [room, room - 1, 0] {
        rig.link.next_frame().unwrap().post(len).unwrap();
        assert_eq!(rig.wire().len(), len);
    }
    assert_eq!(rig.link.next_sequence(), Sequence::new(3));
}

#[test]
fn frames_that_are_not_registered_are_not_posted() {
    let mut rig: Rig<Immediate> = Rig::wish(Immediate, Wishes { registered: false, ..Wishes::default() }).unwrap();
    assert_eq!(rig.link.next_frame().err(), Some(SendError::Unregistered));
    assert_eq!(rig.link.chain().next_frame().err(), Some(SendError::Unregistered));
    assert_eq!(rig.link.post_receives(1), Err(ReceiveError::Unregistered));
    rig.link.set_key(super::provider::key());
    rig.send(b"x").unwrap();
    rig.link.post_receives(1).unwrap();
    assert_eq!((rig.device.world().sends[0].sge.lkey, rig.device.world().receives[0].sge.lkey), (LKEY, LKEY));
}

#[test]
fn a_full_ring_refuses_and_a_completion_makes_room() {
    let mut rig: Rig<Immediate, 4, 4> = Rig::new(Immediate);
    for _ in 0..4 {
        rig.send(b"x").unwrap();
    }
    assert_eq!(rig.link.next_frame().err(), Some(SendError::Full { depth: 4 }));
    rig.complete_send();
    assert_eq!(accept!(rig), Seen::Sent(1));
    assert_eq!(rig.send(b"x"), Ok(Sequence::new(4)));
    assert_eq!(rig.link.next_frame().err(), Some(SendError::Full { depth: 4 }));
}

#[test]
fn a_queue_that_holds_less_than_the_ring_bounds_it() {
    for (capacity, depth) in [(1, 1), (3, 3), (4, 4), (5, 4)] {
        let mut wishes = Wishes::default();
        (wishes.geometry.send_capacity, wishes.geometry.recv_capacity) = (capacity, capacity);
        let mut rig: Rig<Immediate, 4, 4> = Rig::wish(Immediate, wishes).unwrap();
        assert_eq!((rig.link.send_depth(), rig.link.recv_depth()), (depth, depth));
        for round in 0..10 {
            for _ in 0..depth {
                rig.send(b"x").unwrap();
            }
            assert_eq!(rig.link.next_frame().err(), Some(SendError::Full { depth }), "round {round}");
            for _ in 0..depth {
                rig.complete_send();
                assert_eq!(accept!(rig), Seen::Sent(1));
            }
        }
        assert_eq!(rig.link.post_receives(10), Ok(depth as usize));
        assert_eq!(rig.link.post_receives(10), Ok(0));
    }
}

#[test]
fn every_sth_is_signalled_and_the_last_free_and_the_last_before_idle() {
    let mut rig: Rig<Immediate> = Rig::wish(Immediate, signalling(3)).unwrap();
    for _ in 0..8 {
        rig.link.next_frame().unwrap().post_more(1).unwrap();
    }
    let flags = |rig: &mut Rig<Immediate>| -> Vec<bool> {
        rig.device.world().sends.iter().map(|send| send.wr.send_flags == SendFlags::SIGNALED).collect()
    };
    assert_eq!(flags(&mut rig), [false, false, true, false, false, true, false, true], "the last that fits, too");
    for expected in [3, 3, 2] {
        rig.complete_send();
        assert_eq!(accept!(rig), Seen::Sent(expected));
    }
    rig.link.next_frame().unwrap().post_more(1).unwrap();
    rig.send(b"x").unwrap();
    assert_eq!(flags(&mut rig), [false, true], "the last before idle");
}

#[test]
fn the_period_is_at_most_half_the_depth() {
    let mut rig: Rig<Immediate, 4, 4> = Rig::wish(Immediate, signalling(1000)).unwrap();
    for _ in 0..3 {
        rig.link.next_frame().unwrap().post_more(1).unwrap();
    }
    let world = rig.device.world();
    let signalled: Vec<_> = world.sends.iter().map(|send| !send.wr.send_flags.is_empty()).collect();
    assert_eq!(signalled, [false, true, false]);
}

#[test]
fn short_sends_go_inline_where_the_rules_say_so() {
    let rules = LinkRules { inline_limit_bytes: 64, ..Wishes::default().rules };
    let mut rig: Rig<Immediate> = Rig::wish(Immediate, Wishes { rules, ..Wishes::default() }).unwrap();
    for (len, inline) in [(0, false), (1, true), (64, true), (65, false)] {
        rig.link.next_frame().unwrap().post(len).unwrap();
        let send = rig.device.world().sends.back().unwrap();
        assert_eq!(send.wr.send_flags.contains(SendFlags::INLINE), inline, "{len}");
        assert_eq!(send.sge.length as usize, len);
    }
}

fn chain_of(rig: &mut Rig<Immediate>, payloads: &[&[u8]]) -> Result<Posted, SendError> {
    let mut chain = rig.link.chain();
    for payload in payloads {
        let mut frame = chain.next_frame()?;
        frame.payload_mut()[..payload.len()].copy_from_slice(payload);
        frame.stage(payload.len())?;
    }
    chain.post()
}

#[test]
fn a_chain_is_one_call_and_its_last_is_signalled() {
    let mut rig: Rig<Immediate> = Rig::wish(Immediate, signalling(4)).unwrap();
    let posted = chain_of(&mut rig, &[b"a", b"bc", b"def"]).unwrap();
    assert_eq!(posted, Posted { first: Sequence::new(0), count: 3 });
    assert_eq!(rig.device.world().send_chains, [3]);
    let world = rig.device.world();
    let sent: Vec<_> = world.sends.iter().map(|s| (s.wr.imm_data.get(), s.sge.length, s.wr.send_flags)).collect();
    assert_eq!(sent, [(0, 1, SendFlags::empty()), (1, 2, SendFlags::empty()), (2, 3, SendFlags::SIGNALED)]);
    rig.complete_send();
    assert_eq!(accept!(rig), Seen::Sent(3));
    rig.send(b"single").unwrap();
    assert!(rig.device.world().sends[0].wr.next.is_null(), "a single send after a chain is alone");
    assert_eq!(rig.device.world().send_chains, [3, 1]);
}

#[test]
fn a_chain_refused_half_way_keeps_what_was_accepted_and_gives_back_the_rest() {
    for accepted in 0..3u32 {
        let mut rig: Rig<Immediate> = Rig::wish(Immediate, signalling(4)).unwrap();
        rig.device.world().answers.push_back(Answer::Refuse { accepted: accepted as usize, returned: 12 });
        let error = chain_of(&mut rig, &[b"a", b"b", b"c"]).unwrap_err();
        assert_eq!(error, SendError::Refused { accepted, raw: RawErrno(12) });
        assert_eq!(rig.link.outstanding().sends, accepted);
        assert_eq!(rig.link.next_sequence(), Sequence::new(accepted), "accepted ones used up their numbers");
        let refused = [b"a", b"b", b"c"][accepted as usize];
        assert_eq!(rig.link.next_frame().unwrap().payload_mut()[..1], *refused);
        // What was accepted comes back with the next send, which is signalled at once.
        rig.link.next_frame().unwrap().post_more(1).unwrap();
        rig.complete_send();
        assert_eq!(accept!(rig), Seen::Sent(accepted + 1));
        assert_eq!(rig.link.outstanding().sends, 0);
    }
}

#[test]
fn a_chain_that_is_dropped_or_too_long_posts_nothing() {
    let mut rig: Rig<Immediate, 2, 2> = Rig::new(Immediate);
    let mut chain = rig.link.chain();
    chain.next_frame().unwrap().stage(1).unwrap();
    let refused = chain.next_frame().unwrap().stage(FRAME_BYTES as usize + 1);
    assert_eq!(refused, Err(SendError::TooLong { got_bytes: 257, room_bytes: 256 }));
    assert_eq!(chain.staged(), 1);
    chain.next_frame().unwrap().stage(1).unwrap();
    assert_eq!(chain.next_frame().err(), Some(SendError::Full { depth: 2 }));
    core::mem::forget(chain);
    assert_eq!(rig.link.chain().post(), Ok(Posted { first: Sequence::new(0), count: 0 }));
    assert!(rig.device.world().send_chains.is_empty());
    assert_eq!((rig.link.next_sequence(), rig.link.outstanding()), (Sequence::new(0), Outstanding::default()));
}

#[test]
fn a_post_of_unknown_outcome_breaks_the_link_and_leaves_its_frames_with_the_device() {
    let silent = Answer::Silent { accepted: 2, returned: -12 };
    for answer in [silent, Answer::Nonsense { returned: -12 }] {
        let mut rig: Rig<Immediate> = Rig::new(Immediate);
        rig.link.post_receives(3).unwrap();
        rig.device.world().answers.push_back(answer);
        let cause = Fault::PostUnknown { direction: Direction::Send, raw: RawErrno(-12) };
        assert_eq!(chain_of(&mut rig, &[b"a", b"b", b"c"]), Err(SendError::Broken { cause }));
        assert_eq!(rig.link.outstanding(), Outstanding { sends: 3, receives: 3 });
        assert_eq!(rig.link.next_frame().err(), Some(SendError::Broken { cause }));
        assert_eq!(rig.link.chain().next_frame().err(), Some(SendError::Broken { cause }));
        assert_eq!(rig.link.post_receives(1), Err(ReceiveError::Broken { cause }));
        assert_eq!(rig.link.cause(), Some(cause));
    }
}

#[test]
fn a_receive_post_tells_refused_from_unknown() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.device.world().answers.push_back(Answer::Refuse { accepted: 2, returned: 12 });
    assert_eq!(rig.link.post_receives(4), Err(ReceiveError::Refused { accepted: 2, raw: RawErrno(12) }));
    assert_eq!(rig.link.outstanding().receives, 2);
    assert_eq!(rig.link.post_receives(usize::MAX), Ok(6));
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.device.world().answers.push_back(Answer::Silent { accepted: 0, returned: -12 });
    let cause = Fault::PostUnknown { direction: Direction::Receive, raw: RawErrno(-12) };
    assert_eq!(rig.link.post_receives(4), Err(ReceiveError::Broken { cause }));
    assert_eq!(rig.link.outstanding().receives, 4);
    assert_eq!(rig.link.next_frame().err(), Some(SendError::Broken { cause }));
}
