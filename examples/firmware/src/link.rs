//! Two links over a provider made of Rust functions: messages there and back, and what breaks a link.

use bareverbs_core::link::{
    Carrier, CarrierError, Event, Fault, Header, HeaderError, Immediate, LinkError, SendError, Sequence,
};
use bareverbs_core::verbs::{ContextOps, Wc};

use crate::Check;
use crate::provider::{DEPTH, Fate, Objects, Side, Storage, connect, set_fate};

pub const CHECKS: &[Check] = &[
    ("messages go there and back over the wrap of their numbers", there_and_back),
    ("a chain of messages is one call", chained),
    ("a flipped bit breaks the link that checks payloads", corrupt),
    ("a lost message is seen by the next one, and breaks the link for good", lost),
    ("operation tables have the width of this machine", width),
];

/// The C objects of two ends, for ever: `static mut` handed out once.
macro_rules! ends {
    () => {
        [
            cortex_m::singleton!(: Objects = Objects::new(7)).expect("once"),
            cortex_m::singleton!(: Objects = Objects::new(8)).expect("once"),
        ]
    };
}

/// Sends what `payload` says.
fn send<C: Carrier>((link, _): &mut Side<C>, payload: &[u8]) -> Result<Sequence, SendError> {
    let mut frame = link.next_frame()?;
    frame.payload_mut()[..payload.len()].copy_from_slice(payload);
    frame.post(payload.len())
}

/// Takes all completions: the payloads that came are compared with `due`, their receives posted again. How many came, and how
/// many sends are done.
fn take<C: Carrier>((link, queue): &mut Side<C>, due: &[&[u8]]) -> Result<(usize, u32), LinkError> {
    let mut room = [Wc::default(); 2 * DEPTH];
    let (mut came, mut sent) = (0, 0);
    for completion in queue.poll(&mut room).expect("a good poll") {
        match link.accept(&completion)? {
            Event::Sent { released } => sent += released,
            Event::Received(message) => {
                assert_eq!(message.payload(), due[came]);
                message.repost().expect("room");
                came += 1;
            }
            Event::Granted { .. } => unreachable!("the link has no credits"),
            Event::Drained(_) => unreachable!("no marker was posted"),
        }
    }
    Ok((came, sent))
}

fn there_and_back() {
    static FRAMES: [Storage; 2] = [const { Storage::new() }; 2];
    let start = Sequence::new(u32::MAX - 2);
    let ([mut a, mut b], _) = connect(Immediate, ends!(), [&FRAMES[0], &FRAMES[1]], start);
    assert!(FRAMES[0].claim().is_none(), "static storage is claimed once");
    for side in [&mut a, &mut b] {
        assert_eq!(side.0.post_receives(usize::MAX), Ok(DEPTH));
    }
    for round in 0..6u32 {
        let (ping, pong) = ([round as u8; 200], round.to_be_bytes());
        assert_eq!(send(&mut a, &ping), Ok(start.plus(round)));
        assert_eq!(take(&mut b, &[&ping]).expect("in order").0, 1);
        assert_eq!(send(&mut b, &pong), Ok(start.plus(round)));
        assert_eq!(take(&mut a, &[&pong]).expect("in order").0, 1);
    }
    let _ = take(&mut b, &[]);
    assert_eq!((a.0.next_sequence().number(), b.0.expected_sequence().number()), (3, 3));
    assert_eq!((a.0.cause(), b.0.cause()), (None, None));
}

fn chained() {
    static FRAMES: [Storage; 2] = [const { Storage::new() }; 2];
    let start = Sequence::default();
    let ([mut a, mut b], [end, _]) = connect(Header::<64>::new(), ends!(), [&FRAMES[0], &FRAMES[1]], start);
    b.0.post_receives(usize::MAX).expect("receives");
    let mut chain = a.0.chain();
    for payload in [b"one", b"two", b"six"] {
        let mut frame = chain.next_frame().expect("a free frame");
        frame.payload_mut()[..3].copy_from_slice(payload);
        frame.stage(3).expect("room");
    }
    assert_eq!(chain.post().map(|posted| posted.count), Ok(3));
    assert_eq!(set_fate(end, Fate::Arrives), 1);
    assert_eq!(take(&mut b, &[b"one", b"two", b"six"]).map(|(came, _)| came), Ok(3));
    send(&mut a, b"4").expect("the last free frame");
    assert_eq!(send(&mut a, b"5"), Err(SendError::Full { depth: DEPTH as u32 }));
    assert_eq!(take(&mut a, &[]), Ok((0, DEPTH as u32)));
}

fn corrupt() {
    static FRAMES: [Storage; 2] = [const { Storage::new() }; 2];
    let carrier = Header::<64>::with_checksum();
    let ([mut a, mut b], [end, _]) = connect(carrier, ends!(), [&FRAMES[0], &FRAMES[1]], Sequence::default());
    b.0.post_receives(usize::MAX).expect("receives");
    send(&mut a, b"hello").expect("sent");
    assert_eq!(take(&mut b, &[b"hello"]).map(|(came, _)| came), Ok(1));
    set_fate(end, Fate::Flipped(66));
    send(&mut a, b"hello").expect("sent");
    let corrupt =
        |fault| matches!(fault, Fault::Unreadable { error: CarrierError::Header(HeaderError::Corrupt { .. }), .. });
    assert!(matches!(take(&mut b, &[]), Err(LinkError::Fault(fault)) if corrupt(fault)));
    assert!(b.0.cause().is_some_and(corrupt));
}

fn lost() {
    static FRAMES: [Storage; 2] = [const { Storage::new() }; 2];
    let ([mut a, mut b], [end, _]) = connect(Immediate, ends!(), [&FRAMES[0], &FRAMES[1]], Sequence::new(5));
    b.0.post_receives(usize::MAX).expect("receives");
    set_fate(end, Fate::Lost);
    send(&mut a, b"lost").expect("its sender does not know");
    assert_eq!(take(&mut b, &[]), Ok((0, 0)));
    set_fate(end, Fate::Arrives);
    send(&mut a, b"next").expect("sent");
    let seen = take(&mut b, &[]);
    assert!(matches!(seen, Err(LinkError::Fault(Fault::Gap { missing: 1, .. }))));
    send(&mut a, b"more").expect("sent");
    let cause = b.0.cause().expect("broken");
    assert_eq!(take(&mut b, &[]), Err(LinkError::Broken { cause }));
    assert_eq!(send(&mut b, b"no"), Err(SendError::Broken { cause }));
}

fn width() {
    assert_eq!(size_of::<usize>(), 4);
    assert_eq!(size_of::<ContextOps>(), 32 * 4);
    // Numbers that travel keep their width.
    assert_eq!((size_of::<Wc>(), align_of::<Wc>()), (48, 8));
}
