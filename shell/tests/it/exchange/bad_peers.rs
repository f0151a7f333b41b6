//! Peers that are gone, slow, flooding, or something else altogether: typed, in time, and before RTR.

use std::thread;
use std::time::{Duration, Instant};

use bareverbs_core::connect::{HELLO_BYTES, Hello, HelloError, Reason, Refusal, STEP_BYTES, Step, StepError};
use bareverbs_core::verbs::QpState;
use bareverbs_shell::exchange::{self, ExchangeErrorKind, Phase, Terms};

use super::scene::{AMPLE, End, Outcome, Played, Scene, against, answer_to, loopback};

/// What an end may need beyond its limit, on a busy machine.
pub const SLACK: Duration = Duration::from_secs(5);

fn unreadable() -> Step {
    Step::Refused(Refusal { reason: Reason::Unreadable, errno: 0 })
}

/// Plays a peer that sends these bytes instead of a hello.
fn says(bytes: &[u8]) -> ExchangeErrorKind {
    let scene = Scene::new();
    let mut end = scene.uc("something");
    let (here, told) = against(&mut end, Terms::within(AMPLE), |mut peer| {
        peer.hello();
        peer.send(bytes);
        let told = peer.step();
        peer.hears_the_end();
        told
    });
    assert_eq!(told, unreadable());
    assert_eq!(scene.moves_to(QpState::RTR), 0);
    let error = here.expect_err("not a peer");
    assert!(error.to_string().contains("something (127.0.0.1:"), "{error}");
    error.kind
}

#[test]
fn garbage_is_told_from_its_first_bytes() {
    let magic = |got: &[u8; 4]| ExchangeErrorKind::Hello(HelloError::Magic { got: *got });
    assert_eq!(says(b"GET / HTTP/1.1\r\n\r\n"), magic(b"GET "));
    assert_eq!(says(b"SSH-2.0-x\r\n"), magic(b"SSH-"));
    assert_eq!(says(&[0; 5]), magic(&[0; 4]));
    assert_eq!(says(b"0000:000012:d080ba:00000000000000000000ffff7f000001\0"), magic(b"0000"), "another ping-pong");
    let step = Step::Agreed.encode();
    assert_eq!(says(&step), magic(b"BVst"), "a step where a hello is due");
}

#[test]
fn another_version_is_told_without_waiting_for_as_many_bytes_as_ours_has() {
    assert_eq!(says(b"BVhi\x02"), ExchangeErrorKind::Hello(HelloError::Version { got: 2 }));
    assert_eq!(says(&[b"BVhi\xff".as_slice(), &[7; 500]].concat()), {
        ExchangeErrorKind::Hello(HelloError::Version { got: 255 })
    });
}

#[test]
fn a_hello_with_a_bad_field_is_told_by_the_field() {
    let scene = Scene::new();
    type Is = fn(&HelloError) -> bool;
    let fields: [(usize, Is); 6] = [
        (5, |error| matches!(error, HelloError::Service { got: 0xff })),
        (7, |error| matches!(error, HelloError::Mtu { got: 0xff })),
        (8, |error| matches!(error, HelloError::Carrier { got: 0xff })),
        (9, |error| matches!(error, HelloError::ReservedBits { byte: 9, got: 0xff })),
        (32, |error| matches!(error, HelloError::Destination(_))),
        (40, |error| matches!(error, HelloError::Destination(_))),
    ];
    for (byte, expected) in fields {
        let mut end = scene.uc("a peer");
        let (here, told) = against(&mut end, Terms::within(AMPLE), |mut peer| {
            let mut bytes = answer_to(&peer.hello()).encode();
            bytes[byte] = 0xff;
            peer.send(&bytes);
            peer.step()
        });
        assert_eq!(told, unreadable());
        let ExchangeErrorKind::Hello(error) = here.expect_err("a bad hello").kind else { panic!("byte {byte}") };
        assert!(expected(&error), "byte {byte}: {error}");
    }
    assert_eq!(scene.moves_to(QpState::RTR), 0);
}

#[test]
fn a_peer_that_closes_is_told_at_every_byte_that_it_can_close_at() {
    let scene = Scene::new();
    let script =
        |hello: &Hello| [&answer_to(hello).encode()[..], &Step::Agreed.encode(), &Step::Ready.encode()].concat();
    for sent in 0..HELLO_BYTES + 2 * STEP_BYTES {
        let mut end = scene.uc("a peer");
        let (here, ()) = against(&mut end, Terms::within(AMPLE), |mut peer| {
            let bytes = script(&peer.hello());
            peer.send(&bytes[..sent]);
        });
        let (during, got_bytes, need_bytes) = match sent.checked_sub(HELLO_BYTES) {
            None => (Phase::Hello, sent, HELLO_BYTES),
            Some(steps) if steps < STEP_BYTES => (Phase::Agreement, steps, STEP_BYTES),
            Some(steps) => (Phase::Ready, steps - STEP_BYTES, STEP_BYTES),
        };
        match here.expect_err("it closed").kind {
            ExchangeErrorKind::PeerClosed { during: at, got_bytes: got, need_bytes: need } => {
                assert_eq!((at, need), (during, need_bytes), "{sent} bytes sent");
                // A step is sent before one is received: there the close can be met first.
                assert!(got == got_bytes || during != Phase::Hello && got == 0, "{sent} bytes sent, {got} got");
            }
            other => panic!("{sent} bytes sent: {other}"),
        }
        // Agreed by the peer's last word: only then may anything have moved.
        assert_eq!(scene.moves_to(QpState::RTR), sent.saturating_sub(HELLO_BYTES + STEP_BYTES - 1));
    }
}

#[test]
fn a_peer_that_says_nothing_costs_the_limit() {
    let scene = Scene::new();
    let limit = Duration::from_millis(150);
    for steps in 0..3 {
        let mut end = scene.uc("a peer");
        let began = Instant::now();
        let (here, told) = against(&mut end, Terms::within(limit), |mut peer| {
            let hello = peer.hello();
            let script = [&answer_to(&hello).encode()[..], &Step::Agreed.encode()];
            for (part, own) in script[..steps].iter().zip([Some(Step::Agreed), Some(Step::Ready)]) {
                peer.send(part);
                assert_eq!(Some(peer.step()), own);
            }
            peer.step()
        });
        let during = [Phase::Hello, Phase::Agreement, Phase::Ready][steps];
        let error = here.expect_err("silence");
        assert!(
            matches!(error.kind, ExchangeErrorKind::Timeout { during: at, got_bytes: 0, .. } if at == during),
            "{error}"
        );
        assert_eq!(told, Step::Refused(Refusal { reason: Reason::Withdrawn, errno: 0 }));
        assert!(began.elapsed() >= limit && began.elapsed() < limit + SLACK);
    }
}

#[test]
fn a_peer_that_trickles_costs_the_limit_and_not_a_limit_per_byte() {
    let scene = Scene::new();
    let limit = Duration::from_millis(300);
    let mut end = scene.uc("a peer");
    let began = Instant::now();
    let (here, ()) = against(&mut end, Terms::within(limit), |mut peer| {
        let bytes = answer_to(&peer.hello()).encode();
        for byte in bytes.chunks(1) {
            peer.send(byte);
            thread::sleep(Duration::from_millis(40));
        }
    });
    let error = here.expect_err("too slow");
    let ExchangeErrorKind::Timeout { during: Phase::Hello, got_bytes, need_bytes: 64 } = error.kind else {
        panic!("{error}")
    };
    assert!((1..64).contains(&got_bytes), "{got_bytes}");
    assert!(began.elapsed() < limit + Duration::from_millis(64 * 40) + SLACK);
    assert_eq!(scene.moves_to(QpState::RTR), 0);
}

#[test]
fn the_time_that_a_peer_took_to_come_is_not_given_again() {
    let scene = Scene::new();
    let (mut accepts, mut connects) = (scene.uc("a late peer"), scene.uc("a late peer"));
    let limit = Duration::from_secs(4);
    let terms = Terms::within(limit);
    let outcome = |end: &mut End, meet: &dyn Fn(&mut End) -> Outcome| {
        let began = Instant::now();
        let error = meet(end).expect_err("it says nothing");
        (error.kind, began.elapsed())
    };
    let listener = loopback(&terms);
    let comes_to = listener.address();
    // A port that was free a moment ago.
    let listens_at = loopback(&terms).address();
    let (here, there) = thread::scope(|scope| {
        let late = scope.spawn(move || {
            thread::sleep(limit * 4 / 5);
            // Neither says a word, until both ends have given up.
            let comes = Played::connect(comes_to);
            let listens = std::net::TcpListener::bind(listens_at).expect("still free");
            thread::sleep(limit);
            drop((comes, listens));
        });
        let there = scope.spawn(|| outcome(&mut connects, &|end| exchange::connect(&[listens_at], end, &terms)));
        let here = outcome(&mut accepts, &|end| exchange::accept(&listener, end, &terms));
        let there = there.join().expect("no panic");
        late.join().expect("no panic");
        (here, there)
    });
    let silent = ExchangeErrorKind::Timeout { during: Phase::Hello, got_bytes: 0, need_bytes: HELLO_BYTES };
    for (kind, took) in [here, there] {
        assert_eq!(kind, silent);
        // With a limit of its own for what comes after, it would be 1.8 limits.
        assert!(took >= limit && took < limit * 3 / 2, "{took:?}");
    }
    assert_eq!(scene.moves_to(QpState::RTR), 0);
}

/// Sends for as long as it is listened to; answers how much went.
pub fn flood(peer: &mut Played, with: &[u8]) -> usize {
    use std::io::Write;
    peer.0.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let block = with.repeat(4096 / with.len() + 1);
    let mut sent = 0;
    while sent < 64 << 20 {
        match peer.0.write(&block) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    sent
}

#[test]
fn a_flood_ends_within_the_limit_wherever_it_begins() {
    let scene = Scene::new();
    let began = Instant::now();
    let terms = Terms::within(Duration::from_secs(2));

    let mut end = scene.uc("a flood");
    let (here, sent) = against(&mut end, terms, |mut peer| flood(&mut peer, b"BVhi\x01"));
    assert!(matches!(here.expect_err("a flood").kind, ExchangeErrorKind::Hello(_)));
    assert!(sent < 64 << 20, "nobody took all of it");

    let mut end = scene.uc("a flood");
    let (here, sent) = against(&mut end, terms, |mut peer| {
        let hello = answer_to(&peer.hello()).encode();
        peer.send(&hello);
        flood(&mut peer, &hello)
    });
    let kind = here.expect_err("a flood").kind;
    assert!(
        matches!(kind, ExchangeErrorKind::Step { during: Phase::Agreement, error: StepError::Magic { .. } }),
        "{kind}"
    );
    assert!(sent < 64 << 20);
    assert_eq!(scene.moves_to(QpState::RTR), 0);

    let mut end = scene.uc("a flood");
    let (here, _) = against(&mut end, terms, |mut peer| {
        let hello = answer_to(&peer.hello()).encode();
        peer.send(&hello);
        flood(&mut peer, &Step::Agreed.encode())
    });
    let kind = here.expect_err("a flood").kind;
    assert_eq!(kind, ExchangeErrorKind::OutOfTurn { during: Phase::Ready, got: Step::Agreed });
    assert!(began.elapsed() < 3 * terms.limit + SLACK);
    assert!(end.send(1, |_| ()).is_err(), "it was abandoned");
}

#[test]
fn a_peer_that_refuses_is_quoted() {
    let scene = Scene::new();
    let refusal = Refusal { reason: Reason::Other(77), errno: 5 };
    for (steps, during) in [(0, Phase::Agreement), (1, Phase::Ready)] {
        let mut end = scene.uc("rank 4");
        let (here, ()) = against(&mut end, Terms::within(AMPLE), |mut peer| {
            let hello = answer_to(&peer.hello()).encode();
            peer.send(&hello);
            (0..steps).for_each(|_| peer.send(&Step::Agreed.encode()));
            peer.send(&Step::Refused(refusal).encode());
            let _ = peer.step();
        });
        let error = here.expect_err("a refusal");
        assert_eq!(error.kind, ExchangeErrorKind::Refused { during, refusal });
        assert!(error.to_string().contains("rank 4") && error.to_string().contains("77"), "{error}");
    }
    assert_eq!(scene.moves_to(QpState::RTR), 1, "of the end that both had agreed to move");
}
