//! Credits on every fabric: streams without a window of the caller's, and peers that grant nothing, or what cannot be.
//!
//! Such a peer is an end without credits that sends what a credit message's bytes are, or are not.

use std::time::Duration;

use bareverbs_core::link::crc32c::crc32c;
use bareverbs_core::link::{
    Carrier, CarrierError, CreditMode, Fault, Header, HeaderError, Immediate, LinkError, Raw, SendError, Sequence,
};
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Event, Frames};
use bareverbs_shell::{Relax, Wait};

use crate::endpoints::{Case, wait_until};
use crate::world::{World, config, let_sends_complete, patiently, send_next, stream, take};

macro_rules! cases {
    ($($name:ident)*) => {
        pub fn cases() -> Vec<Case> {
            vec![$((stringify!($name), $name)),*]
        }
    };
}

cases! {
    streams_without_a_window_lose_nothing
    a_stream_one_way_goes_on_by_credit_messages_alone
    reliable_ends_stream_with_credits_too
    without_credit_a_send_is_refused_and_the_next_grant_ends_the_wait
    a_peer_that_never_grants_is_named_at_the_deadline
    a_grant_that_cannot_be_breaks_the_link
    what_is_no_credit_message_is_a_message_without_its_number
}

const FIRST: Option<Sequence> = Some(Sequence::new(0));

/// An end's kind of carrier, ring lengths, and messages each way.
fn stream_unbounded<C: Carrier, const S: usize, const R: usize>(world: &World, carrier: C, config: &EndpointConfig) {
    let (mut a, mut b) = world.pair::<C, S, R>(carrier, config);
    assert_eq!((a.credit_mode(), a.credits_left()), (CreditMode::On, R as u32 - 1));
    stream(&mut a, &mut b, 60, u64::MAX, 512, FIRST);
}

fn streams_without_a_window_lose_nothing(world: &World) {
    stream_unbounded::<_, 2, 2>(world, Immediate, &config());
    stream_unbounded::<_, 8, 4>(world, Immediate, &config());
    stream_unbounded::<_, 2, 16>(world, Immediate, &config());
    stream_unbounded::<_, 2, 2>(world, Header::<64>::new(), &config());
    stream_unbounded::<_, 8, 4>(world, Header::<64>::with_checksum(), &config());
    stream_unbounded::<_, 2, 16>(world, Header::<64>::new(), &config());
}

fn reliable_ends_stream_with_credits_too(world: &World) {
    // Emulated soft-RoCE is slow.
    let config = EndpointConfig::rc("the other end").frame_bytes(1024).timeout(18);
    stream_unbounded::<_, 8, 4>(world, Immediate, &config);
    stream_unbounded::<_, 2, 2>(world, Header::<64>::new(), &config);
}

fn one_way<C: Carrier>(world: &World, carrier: C) {
    let (mut a, mut b) = world.pair::<C, 8, 4>(carrier, &config());
    let (mut sent, mut taken) = (0, 0);
    wait_until(|| {
        while sent < 40 && send_next(&mut a, sent, 512, 1) {
            sent += 1;
        }
        a.poll(|event| assert!(matches!(event, Event::Sent { .. } | Event::Granted { .. }))).expect("a healthy link");
        taken = take(&mut b, taken, 512, 1, FIRST);
        taken == 40
    });
}

fn a_stream_one_way_goes_on_by_credit_messages_alone(world: &World) {
    one_way(world, Immediate);
    one_way(world, Header::<64>::new());
}

fn soon() -> Wait<'static> {
    Wait::at_most(Duration::from_millis(20)).relax(Relax::Yield)
}

/// Sends all that is granted to begin with, without a receive posted for another; answers the error of one more.
fn use_up<C: Carrier, D: Carrier>(a: &mut Endpoint<C, 8, 4>, b: &mut Endpoint<D, 8, 4>) {
    for number in 0..3 {
        assert_eq!(a.send(8, |_| ()).expect("it is granted"), Sequence::new(number));
    }
    let error = a.send(8, |_| panic!("nothing is filled in")).expect_err("nothing is left");
    let until = Sequence::new(3);
    assert_eq!(error.kind, EndpointErrorKind::Send(SendError::NoCredit { until }, None));
    assert!(error.to_string().contains("no credit for message 3"), "{error}");
    assert!(!error.is_queue_full());
    let chained = a.chain().expect("connected").next_frame().err().map(|error| error.kind);
    assert_eq!(chained, Some(EndpointErrorKind::Send(SendError::NoCredit { until }, None)));
    let mut taken = 0;
    wait_until(|| {
        b.poll(|event| taken += u32::from(matches!(event, Event::Received(_)))).expect("a healthy link");
        taken == 3
    });
    let_sends_complete(a);
}

fn without_credit_a_send_is_refused_and_the_next_grant_ends_the_wait(world: &World) {
    let (mut a, mut b) = world.pair::<_, 8, 4>(Immediate, &config());
    use_up(&mut a, &mut b);
    // The peer has no new receive, so it grants nothing, and only a deadline tells.
    let error = a.wait(&soon(), |_| panic!("nothing comes")).expect_err("nothing comes");
    assert!(matches!(error.kind, EndpointErrorKind::Timeout { no_credit: Some(_), .. }), "{error}");

    assert_eq!(b.post_receives(1).expect("frames are free"), 1);
    let mut granted = 0;
    wait_until(|| {
        a.wait(&patiently(), |event| match event {
            Event::Granted { messages } => granted += messages,
            _ => panic!("sends have completed"),
        })
        .expect("a grant");
        granted > 0
    });
    assert_eq!((granted, a.credits_left()), (1, 1));
    assert_eq!(a.send(8, |_| ()).expect("it is granted"), Sequence::new(3), "a refusal used up no number");
}

fn a_peer_that_never_grants_is_named_at_the_deadline(world: &World) {
    let (mut a, mut b) = with_raw_peer(world, Immediate);
    use_up(&mut a, &mut b);
    b.post_receives(4).expect("frames are free");
    for _ in 0..2 {
        let error = a.wait(&soon(), |_| panic!("nothing comes")).expect_err("it grants nothing");
        let EndpointErrorKind::Timeout { no_credit, .. } = error.kind else { panic!("{error}") };
        assert_eq!(no_credit, Some(Sequence::new(3)));
        let said = error.to_string();
        assert!(said.contains("no credit for message 3: the other end"), "{said}");
    }
}

/// An end with credits, and one without numbers that can say anything.
fn with_raw_peer<C: Carrier>(world: &World, carrier: C) -> (Endpoint<C, 8, 4>, Endpoint<Raw, 8, 4>) {
    let mut a = Endpoint::new(&world.open(), carrier, config(), Frames::Owned).expect("an endpoint");
    let mut b = Endpoint::new(&world.open(), Raw, config(), Frames::Owned).expect("an endpoint");
    let (to_a, to_b, mtu) = (a.destination(), b.destination(), a.path_mtu());
    a.agree_credits(4).expect("nothing was sent");
    a.connect(&to_b, mtu).expect("it is in INIT");
    b.connect(&to_a, mtu).expect("it is in INIT");
    (a, b)
}

/// What an end makes of some bytes that its peer sends.
fn heard<C: Carrier>(a: &mut Endpoint<C, 8, 4>, b: &mut Endpoint<Raw, 8, 4>, bytes: &[u8]) -> Result<u32, Fault> {
    b.send(bytes.len(), |payload| payload[..bytes.len()].copy_from_slice(bytes)).expect("a healthy link");
    let mut granted = 0;
    let waited = a.wait(&patiently(), |event| match event {
        Event::Granted { messages } => granted = messages,
        _ => panic!("nothing else was sent"),
    });
    match waited.map_err(|error| error.kind) {
        Ok(_) => Ok(granted),
        Err(EndpointErrorKind::Link(LinkError::Fault(fault))) => Err(fault),
        Err(other) => panic!("{other:?}"),
    }
}

/// A credit message without a header: magic, the number of the next message, the grant, and a checksum of the three.
fn plain(place: u32, grant: u32) -> Vec<u8> {
    let mut bytes = b"bVcr".to_vec();
    bytes.extend(place.to_be_bytes());
    bytes.extend(grant.to_be_bytes());
    let checksum = crc32c(&bytes);
    bytes.extend(checksum.to_be_bytes());
    bytes
}

/// One in a header of 64 bytes: magic, version, flags, number, length, grant, no checksum.
fn headed(place: u32, grant: u32) -> Vec<u8> {
    let mut bytes = b"bV\x01\x02".to_vec();
    for word in [place, 0, grant, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.resize(64, 0);
    bytes
}

fn absurd<C: Carrier>(world: &World, carrier: C, message: fn(u32, u32) -> Vec<u8>) {
    // 3 are granted to begin with, and the peer said that it posts 4 receives: without a message sent, there is no more.
    for got in [4, 3, 2, 0, u32::MAX, 1 << 31, 1000] {
        let (mut a, mut b) = with_raw_peer(world, carrier);
        let fault = heard(&mut a, &mut b, &message(0, got)).expect_err("it cannot be");
        let Fault::Grant { least, most, got: said, .. } = fault else { panic!("{fault}") };
        assert_eq!([least, most, said], [4, 3, got].map(Sequence::new));
        let error = a.send(1, |_| ()).expect_err("the link is broken");
        assert!(matches!(error.kind, EndpointErrorKind::Send(SendError::Broken { .. }, None)), "{error}");
    }
    // One message sent: one more may be granted, and no two.
    for (got, granted) in [(4, Some(1)), (5, None), (3, None)] {
        let (mut a, mut b) = with_raw_peer(world, carrier);
        a.send(8, |_| ()).expect("it is granted");
        let_sends_complete(&mut a);
        assert_eq!(heard(&mut a, &mut b, &message(0, got)).ok(), granted, "{got}");
    }
    // It stands at its place in the order.
    let (mut a, mut b) = with_raw_peer(world, carrier);
    a.send(8, |_| ()).expect("it is granted");
    let_sends_complete(&mut a);
    let fault = heard(&mut a, &mut b, &message(1, 4)).expect_err("a message is missing before it");
    assert!(matches!(fault, Fault::Gap { missing: 1, .. }), "{fault}");
}

fn a_grant_that_cannot_be_breaks_the_link(world: &World) {
    absurd(world, Immediate, plain);
    absurd(world, Header::<64>::new(), headed);
}

fn what_is_no_credit_message_is_a_message_without_its_number(world: &World) {
    let good = plain(0, 4);
    let mut others = vec![Vec::new(), good[..15].to_vec(), [&good[..], &[0]].concat()];
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        others.push(bytes);
    }
    for bytes in others {
        let (mut a, mut b) = with_raw_peer(world, Immediate);
        let fault = heard(&mut a, &mut b, &bytes).expect_err("it has no number");
        assert!(matches!(fault, Fault::Unreadable { error: CarrierError::NoImmediate, .. }), "{bytes:02x?}: {fault}");
    }
    let mut with_payload = headed(0, 4);
    with_payload[11] = 1;
    with_payload.push(0);
    let (mut a, mut b) = with_raw_peer(world, Header::<64>::new());
    let fault = heard(&mut a, &mut b, &with_payload).expect_err("it has a payload");
    let expected = CarrierError::Header(HeaderError::CreditWithPayload { got_bytes: 1 });
    assert!(matches!(fault, Fault::Unreadable { error, .. } if error == expected), "{fault}");
}
