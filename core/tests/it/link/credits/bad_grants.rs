//! A peer that grants what cannot be, sends garbage for a credit message, or is refused by its own provider.

use bareverbs_core::link::{
    AgreeError, CarrierError, CreditMode, Fault, Geometry, Header, HeaderError, Immediate, LinkError, LinkRules,
    LinkSetupError, Raw, SendError, Sequence,
};
use bareverbs_core::verbs::LinkLayer;
use bareverbs_core::verbs::inline_calls::RawErrno;
use proptest::prelude::*;

use super::wire::{End, Pair, Repost, Shape, wishes};
use crate::link::provider::{Answer, FRAME_BYTES, Rig, Seen, Wishes, accept};

const SHAPE: Shape = Shape { send_depth: 8, recv_depth: 4, start: 100 };

/// CRC32C bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

/// A credit message as it travels without a header.
fn bare(place: u32, grant: u32) -> Vec<u8> {
    let mut bytes = b"bVcr".to_vec();
    bytes.extend(place.to_be_bytes());
    bytes.extend(grant.to_be_bytes());
    bytes.extend(crc32c(&bytes).to_be_bytes());
    bytes
}

/// And with a header of 64 bytes.
fn headed(place: u32, grant: u32) -> Vec<u8> {
    let mut bytes = vec![b'b', b'V', 1, 2];
    for word in [place, 0, grant, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.resize(64, 0);
    bytes
}

/// An end of 4 receives with numbers from 100, whose peer has 6 receives: first credits up to 105.
fn end<C: bareverbs_core::link::Carrier>(carrier: C) -> End<C, 8, 8> {
    let mut end = End::new(carrier, SHAPE);
    end.begin(6);
    end
}

#[test]
fn a_grant_is_for_no_fewer_messages_than_before_and_no_more_than_the_peer_has_receives() {
    // Two were sent, so the peer may have granted 103 to 107; a credit message says more than 105.
    for (grant, is_good) in
        [(0, false), (104, false), (105, false), (106, true), (107, true), (108, false), (u32::MAX, false)]
    {
        for header in [false, true] {
            let (seen, wr_id, left) = if header {
                let mut end = end(Header::<64>::new());
                assert!(end.send(false) && end.send(false));
                let wr_id = end.rig.arrive(&headed(100, grant), None);
                (accept!(end.rig), wr_id, end.rig.link.credits_left())
            } else {
                let mut end = end(Immediate);
                assert!(end.send(false) && end.send(false));
                let wr_id = end.rig.arrive(&bare(100, grant), None);
                (accept!(end.rig), wr_id, end.rig.link.credits_left())
            };
            if is_good {
                assert_eq!((seen, left), (Seen::Granted(grant - 105), grant - 102));
            } else {
                let [least, most, got] = [106, 107, grant].map(Sequence::new);
                assert_eq!(seen, Seen::Error(LinkError::Fault(Fault::Grant { wr_id, least, most, got })));
            }
        }
    }
}

#[test]
fn a_messages_grant_may_repeat_what_is_known_and_is_otherwise_held_to_the_same_bounds() {
    for (grant, is_good) in [(99, false), (104, false), (105, true), (107, true), (108, false)] {
        let mut end = end(Header::<64>::new());
        assert!(end.send(false) && end.send(false));
        let mut frame = vec![0; 64 + 8];
        Header::<64>::new().encode(&mut frame, Sequence::new(100), 8);
        frame[12..16].copy_from_slice(&u32::to_be_bytes(grant));
        let wr_id = end.rig.arrive(&frame, None);
        let seen = accept!(end.rig);
        if is_good {
            assert!(matches!(seen, Seen::Received { .. }), "{seen:?}");
            assert_eq!(end.rig.link.credits_left(), grant - 102);
        } else {
            let [least, most, got] = [105, 107, grant].map(Sequence::new);
            assert_eq!(seen, Seen::Error(LinkError::Fault(Fault::Grant { wr_id, least, most, got })));
            assert!(matches!(end.rig.send(&[1]), Err(SendError::Broken { .. })));
        }
    }
}

#[test]
fn a_credit_message_that_is_early_late_or_repeated_breaks_the_link() {
    for place in [99, 101] {
        let mut end = end(Immediate);
        let wr_id = end.rig.arrive(&bare(place, 106), None);
        let [expected, got] = [100, place].map(Sequence::new);
        let fault = match place {
            101 => Fault::Gap { wr_id, expected, got, missing: 1 },
            _ => Fault::Old { wr_id, expected, got, behind: 1 },
        };
        assert_eq!(accept!(end.rig), Seen::Error(LinkError::Fault(fault)));
    }
    let mut end = end(Immediate);
    assert!(end.send(false));
    end.rig.arrive(&bare(100, 106), None);
    assert_eq!(accept!(end.rig), Seen::Granted(1));
    end.rig.arrive(&bare(100, 106), None);
    assert!(matches!(accept!(end.rig), Seen::Error(LinkError::Fault(Fault::Grant { .. }))));
}

proptest! {
    #[test]
    fn whatever_comes_without_immediate_data_and_is_no_credit_message_is_no_immediate(
        bytes in prop::collection::vec(any::<u8>(), 0..40), flip in prop::option::of((0usize..16, 0u8..8)), longer in any::<bool>(),
    ) {
        let sent = match flip {
            None => bytes,
            Some((at, bit)) => {
                let mut sent = bare(100, 106);
                sent[at] ^= 1 << bit;
                if longer { sent.push(0) }
                sent
            }
        };
        let mut end = end(Immediate);
        let wr_id = end.rig.arrive(&sent, None);
        let fault = Fault::Unreadable { wr_id, error: CarrierError::NoImmediate };
        prop_assert_eq!(accept!(end.rig), Seen::Error(LinkError::Fault(fault)));
    }
}

#[test]
fn a_credit_message_of_a_header_has_no_payload() {
    let mut end = end(Header::<64>::new());
    let mut sent = headed(100, 106);
    sent[11] = 1;
    sent.push(0);
    let wr_id = end.rig.arrive(&sent, None);
    let error = CarrierError::Header(HeaderError::CreditWithPayload { got_bytes: 1 });
    assert_eq!(accept!(end.rig), Seen::Error(LinkError::Fault(Fault::Unreadable { wr_id, error })));
}

#[test]
fn without_credits_a_credit_message_is_no_message() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.link.post_receives(1).unwrap();
    let wr_id = rig.arrive(&bare(0, 1), None);
    let fault = Fault::Unreadable { wr_id, error: CarrierError::NoImmediate };
    assert_eq!(accept!(rig), Seen::Error(LinkError::Fault(fault)));

    let mut rig: Rig<Header<64>> = Rig::new(Header::new());
    rig.link.post_receives(1).unwrap();
    let wr_id = rig.arrive(&headed(0, 1), None);
    let error = CarrierError::Header(HeaderError::ReservedBits { got: 2 });
    assert_eq!(accept!(rig), Seen::Error(LinkError::Fault(Fault::Unreadable { wr_id, error })));
}

#[test]
fn without_credits_the_place_of_a_grant_in_a_header_is_not_looked_at() {
    for word in [0, 1, 0x8000_0000, u32::MAX] {
        let mut rig: Rig<Header<64>> = Rig::new(Header::new());
        rig.link.post_receives(1).unwrap();
        let mut frame = vec![0; 64 + 8];
        Header::<64>::new().encode(&mut frame, Sequence::new(0), 8);
        frame[12..16].copy_from_slice(&u32::to_be_bytes(word));
        rig.arrive(&frame, None);
        assert!(matches!(accept!(rig), Seen::Received { .. }), "{word:#x}");
        assert_eq!((rig.link.credits_left(), rig.link.cause()), (u32::MAX, None));
        // What it sends has nothing there.
        rig.send(&[1]).expect("a healthy link");
        assert_eq!(rig.link.credits_left(), u32::MAX);
    }
}

#[test]
fn a_peer_of_the_most_receives_grants_as_many_less_one_and_not_one_more_across_the_wrap() {
    const MOST: u32 = 1 << 30;
    for start in [0, u32::MAX - 2, 0x7FFF_FFFF, u32::MAX - MOST] {
        for (beyond, is_good) in [(0, true), (1, false)] {
            let mut end: End<_, 8, 8> = End::new(Immediate, Shape { start, ..SHAPE });
            end.begin(MOST);
            assert_eq!(end.rig.link.credits_left(), MOST - 1);
            // The wrap is among these.
            for _ in 0..6 {
                assert!(end.send(false), "start {start}");
            }
            let most = end.next().number().wrapping_add(MOST - 1);
            end.rig.arrive(&bare(start, most.wrapping_add(beyond)), None);
            let seen = accept!(end.rig);
            if is_good {
                assert_eq!(seen, Seen::Granted(6));
                assert_eq!(end.rig.link.credits_left(), MOST - 1);
            } else {
                assert!(matches!(seen, Seen::Error(LinkError::Fault(Fault::Grant { .. }))), "{seen:?}");
            }
        }
    }
}

#[test]
fn a_credit_message_whose_receive_cannot_be_posted_again_breaks_the_link() {
    for (answer, fault) in [
        (Answer::Refuse { accepted: 0, returned: 12 }, Fault::CreditReceive { raw: Some(RawErrno(12)) }),
        (
            Answer::Silent { accepted: 0, returned: 5 },
            Fault::PostUnknown { direction: bareverbs_core::link::Direction::Receive, raw: RawErrno(5) },
        ),
    ] {
        let mut end = end(Immediate);
        assert!(end.send(false));
        end.rig.arrive(&bare(100, 106), None);
        end.rig.device.world().answers.push_back(answer);
        assert_eq!(accept!(end.rig), Seen::Error(LinkError::Fault(fault)));
    }
}

#[test]
fn a_refused_credit_message_grants_nothing_and_is_due_again() {
    let mut pair: Pair<_, 8, 8> = Pair::new(Immediate, [SHAPE; 2]);
    let [a, b] = &mut pair.ends;
    while a.send(false) {}
    while a.transmit(&mut pair.wires[1]) {}
    while b.arrive(&mut pair.wires[1]) {}
    b.poll(16, Repost::Later);
    assert_eq!(b.rig.link.post_receives(9), Ok(3));
    let refusal = Answer::Refuse { accepted: 0, returned: 12 };
    b.rig.device.world().answers.push_back(refusal);
    let before = (b.next(), b.rig.link.outstanding());
    assert_eq!(b.rig.link.grant_credits(), Err(SendError::Refused { accepted: 0, raw: RawErrno(12) }));
    assert_eq!(before, (b.next(), b.rig.link.outstanding()));
    assert_eq!(b.rig.link.grant_credits(), Ok(3));
    assert_eq!(b.rig.link.grant_credits(), Ok(0));
    // The slot sends messages with immediate data as before.
    b.poll(16, Repost::AtOnce);
    pair.settle();
    for _ in 0..20 {
        assert!(pair.ends[1].send(false));
        pair.settle();
    }
    pair.assert_nothing_dropped();
}

#[test]
fn credits_need_two_places_each_way_and_numbers() {
    for (send_depth, recv_depth) in [(1, 2), (2, 1), (2, 2)] {
        let shape = Shape { send_depth, recv_depth, start: 0 };
        let made = Rig::<_, 8, 8>::wish(Immediate, wishes(shape)).map(drop);
        let refused = Err(LinkSetupError::NoCreditRoom { send_depth, recv_depth, least: 2 });
        assert_eq!(made, if send_depth.min(recv_depth) < 2 { refused } else { Ok(()) });
    }
    assert_eq!(Rig::<_, 8, 8>::wish(Raw, wishes(SHAPE)).map(drop), Err(LinkSetupError::CreditsWithoutNumbers));
    let rules = LinkRules { credits: CreditMode::Off, ..wishes(SHAPE).rules };
    let geometry = Geometry { frame_bytes: FRAME_BYTES, send_capacity: 1, recv_capacity: 1 };
    assert!(Rig::<_, 8, 8>::wish(Raw, Wishes { rules, geometry, ..wishes(SHAPE) }).is_ok());
}

#[test]
fn credits_are_on_but_for_the_raw_carrier_and_thunderbolt() {
    use CreditMode::{Off, On};
    for (link_layer, on_ethernet) in
        [(LinkLayer::ETHERNET, On), (LinkLayer::INFINIBAND, On), (LinkLayer::THUNDERBOLT, Off)]
    {
        assert_eq!(CreditMode::default_for::<Immediate>(link_layer), on_ethernet);
        assert_eq!(CreditMode::default_for::<Header>(link_layer), on_ethernet);
        assert_eq!(CreditMode::default_for::<Raw>(link_layer), Off);
    }
}

#[test]
fn what_the_peer_posts_is_agreed_once_before_the_first_message() {
    let mut end: End<_, 8, 8> = End::new(Immediate, SHAPE);
    assert!(!end.send(false), "nothing is granted yet");
    let range = |got| Err(AgreeError::Receives { got, least: 2, most: 1 << 30 });
    for (receives, answer) in
        [(0, range(0)), (1, range(1)), (2, Ok(())), (1 << 30, Ok(())), (u32::MAX, range(u32::MAX))]
    {
        assert_eq!(end.rig.link.agree_credits(receives), answer);
    }
    end.rig.link.agree_credits(2).unwrap();
    end.rig.link.set_starts(Sequence::new(9), Sequence::new(9)).unwrap();
    assert_eq!(end.rig.link.credits_left(), 1, "other first numbers, the same credits");
    assert!(end.send(false) && !end.send(false));
    assert_eq!(end.rig.link.agree_credits(8), Err(AgreeError::AlreadyStarted));
}
