//! Endpoints on a device with the habits of Thunderbolt RDMA, end to end: made, connected, streaming.

use bareverbs_core::link::{
    Carrier, CarrierError, CreditMode, Fault, Header, Immediate, LinkError, Outstanding, SendError, Sequence,
};
use bareverbs_core::verbs::{QpAttrMask, QpState};
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind};
use bareverbs_shell::soft::{Detail, Mode, Record, SoftConfig};

use crate::world::{World, let_sends_complete, send_next, stream, take};

fn worlds() -> impl Iterator<Item = World> {
    let modes = std::iter::once(Mode::Prompt).chain((0..3).map(|seed| Mode::Adversarial { seed }));
    modes
        .map(|mode| World::of_config(SoftConfig::thunderbolt().mode(mode).record(Record::Control(1000)), "Thunderbolt"))
}

fn pair<C: Carrier>(world: &World, carrier: C) -> (Endpoint<C, 4, 4>, Endpoint<C, 4, 4>) {
    world.pair(carrier, &EndpointConfig::uc("the other end"))
}

#[test]
fn frames_stream_with_numbers_in_headers_and_no_credits() {
    for world in worlds() {
        let (mut a, mut b) = pair(&world, Header::<64>::with_checksum());
        assert_eq!(a.credit_mode(), CreditMode::Off);
        stream(&mut a, &mut b, 50, 4, 4096 - 64, Some(Sequence::new(0)));
        drop((a, b));
        world.assert_clean();
    }
}

#[test]
fn queue_pairs_are_moved_as_apples_peers_do_and_regions_are_registered_before() {
    for world in worlds() {
        let ends = pair(&world, Header::<64>::new());
        let calls = world.soft.as_ref().expect("it is").record();
        let moves = |state| {
            calls.iter().enumerate().filter_map(move |(at, call)| match call.detail {
                Detail::Modify { attr, mask } if attr.qp_state == state => Some((at, call.handle, attr, mask)),
                _ => None,
            })
        };
        let registered: Vec<_> =
            calls.iter().enumerate().filter(|(_, call)| matches!(call.detail, Detail::Register { .. })).collect();
        let begun: Vec<_> = moves(QpState::INIT).collect();
        assert_eq!((registered.len(), begun.len()), (2, 2));
        assert!(
            registered.iter().zip(&begun).all(|((region, _), (init, ..))| region < init),
            "each before its own INIT"
        );
        let mut receiving = 0;
        for (_, _, attr, mask) in moves(QpState::RTR) {
            assert!(mask.contains(QpAttrMask::AV | QpAttrMask::RQ_PSN));
            assert_eq!((attr.rq_psn, attr.ah_attr.is_global, attr.ah_attr.grh.hop_limit), (7, 1, 1));
            receiving += 1;
        }
        let sending: Vec<_> = moves(QpState::RTS).map(|(_, _, attr, _)| attr.sq_psn).collect();
        assert_eq!((receiving, sending), (2, vec![7, 7]));
        drop(ends);
        world.assert_clean();
    }
}

#[test]
fn a_sender_is_kept_back_until_a_receive_is_posted_and_nothing_is_lost() {
    for world in worlds() {
        let (mut a, mut b) = pair(&world, Header::<64>::new());
        assert!((0..4).all(|number| send_next(&mut a, number, 64, 1)));
        let mut taken = 0;
        while taken < 4 {
            b.poll(|event| taken += u64::from(matches!(event, bareverbs_shell::endpoint::Event::Received(_))))
                .expect("a healthy link");
        }
        let_sends_complete(&mut a);
        // No receive is posted: these wait in the device, and their frames with them.
        assert!((4..8).all(|number| send_next(&mut a, number, 64, 1)));
        for _ in 0..50 {
            assert_eq!(a.poll(|_| ()).expect("a healthy link"), 0);
        }
        assert_eq!(a.outstanding(), Outstanding { sends: 4, receives: 4 });
        let full = EndpointErrorKind::Send(SendError::Full { depth: 4 }, None);
        assert_eq!(a.send(1, |_| ()).expect_err("the ring is full").kind, full);
        assert_eq!(b.post_receives(4).expect("frames are free"), 4);
        while taken < 8 {
            taken = take(&mut b, taken, 64, 1, Some(Sequence::new(0)));
        }
        drop((a, b));
        world.assert_clean();
    }
}

#[test]
fn a_number_that_travels_as_an_immediate_is_lost_and_its_message_is_not_handed_out() {
    for world in worlds() {
        let (mut a, mut b) = pair(&world, Immediate);
        assert!(send_next(&mut a, 0, 64, 1));
        let error = loop {
            if let Err(error) = b.poll(|_| panic!("handed out")) {
                break error;
            }
        };
        let EndpointErrorKind::Link(LinkError::Fault(fault)) = error.kind else { panic!("{error}") };
        assert!(matches!(fault, Fault::Unreadable { error: CarrierError::NoImmediate, .. }), "{fault}");
        drop((a, b));
        world.assert_clean();
    }
}
