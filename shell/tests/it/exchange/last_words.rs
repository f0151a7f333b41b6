//! An end that goes no further says why, and that arrives: though the other end sent more than was read, or has closed.

use std::io::Read;
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use bareverbs_core::connect::{Mismatch, Reason, Refusal, Step};
use bareverbs_core::verbs::QpState;
use bareverbs_shell::exchange::{self, ExchangeErrorKind, Phase, Terms};

use super::bad_peers::SLACK;
use super::scene::{AMPLE, Outcome, Played, Scene, against, against_listener, answer_to, loopback};

const REFUSED: Step = Step::Refused(Refusal { reason: Reason::Mismatch, errno: 0 });

/// Sends a hello that does not match, with so much behind it.
fn say_too_much(peer: &mut Played, more: usize) {
    let mut hello = answer_to(&peer.hello());
    hello.frame_bytes *= 2;
    peer.send(&[&hello.encode()[..], &vec![7; more]].concat());
}

fn mismatch(outcome: Outcome) {
    let kind = outcome.expect_err("a mismatch").kind;
    assert!(matches!(kind, ExchangeErrorKind::Mismatch(Mismatch::FrameBytes { .. })), "{kind}");
}

#[test]
fn a_reason_arrives_at_one_that_sent_more_than_is_read_and_then_an_orderly_end() {
    let scene = Scene::new();
    for more in [1, 1000, 60_000] {
        let play = |mut peer: Played| {
            say_too_much(&mut peer, more);
            let told = peer.step();
            (told, peer.0.read(&mut [0; 8]).map_err(|error| error.kind()), peer)
        };
        let (mut accepts, mut connects) = (scene.uc("a peer"), scene.uc("a peer"));
        for (outcome, (told, after, peer)) in [
            against(&mut accepts, Terms::within(AMPLE), play),
            against_listener(&mut connects, Terms::within(AMPLE), play),
        ] {
            mismatch(outcome);
            assert_eq!((told, after), (REFUSED, Ok(0)), "{more} bytes more");
            // What is not read when an end goes resets the connection, and the reset overtakes the reason, on some systems.
            let reset = peer.0.take_error().expect("an open socket");
            assert!(reset.is_none(), "{more} bytes more: {reset:?}");
        }
    }
    assert_eq!(scene.moves_to(QpState::RTR), 0);
}

#[test]
fn a_peer_that_goes_on_sending_keeps_nobody_for_long() {
    let scene = Scene::new();
    // A byte now and then: it is the time that ends it.
    let mut end = scene.uc("a peer");
    let began = Instant::now();
    let (took, ()) = thread::scope(|scope| {
        let (listener, end) = (loopback(&Terms::within(AMPLE)), &mut end);
        let address = listener.address();
        let played = scope.spawn(move || {
            let mut peer = Played::connect(address);
            say_too_much(&mut peer, 1);
            let still_sends = || began.elapsed() < 2 * SLACK;
            while still_sends() && std::io::Write::write(&mut peer.0, &[7]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        mismatch(exchange::accept(&listener, end, &Terms::within(AMPLE)));
        (began.elapsed(), played.join().expect("no panic"))
    });
    assert!(took < SLACK, "{took:?}");
    // As much as there is room for: the bytes or the time end it. That the bytes alone do is shown beside the bound.
    let mut end = scene.uc("a peer");
    let (outcome, sent) = against(&mut end, Terms::within(AMPLE), |mut peer| {
        say_too_much(&mut peer, 1);
        super::bad_peers::flood(&mut peer, &[7; 4096])
    });
    mismatch(outcome);
    assert!(sent < 64 << 20, "nobody took all of it");
}

#[test]
fn the_reason_of_one_that_closed_is_read_before_its_close_is_told() {
    let scene = Scene::new();
    let refusal = Refusal { reason: Reason::Other(77), errno: 5 };
    for (agreed, during) in [(0, Phase::Agreement), (1, Phase::Ready)] {
        let mut end = scene.uc("rank 4");
        let terms = Terms::within(AMPLE);
        let listener = loopback(&terms);
        // It says all that it has to say and is gone before anybody listens to it: what is sent to it then is refused.
        let mut peer = Played::connect(listener.address());
        let steps = [Step::Agreed, Step::Refused(refusal)].map(|step| step.encode());
        peer.send(&[&answer_to(&end.hello(0)).encode()[..], &steps[1 - agreed..].concat()].concat());
        peer.0.shutdown(Shutdown::Both).expect("it is open");
        drop(peer);
        let error = exchange::accept(&listener, &mut end, &terms).expect_err("a refusal");
        assert_eq!(error.kind, ExchangeErrorKind::Refused { during, refusal });
    }
    assert_eq!(scene.moves_to(QpState::RTR), 1, "of the end that both had agreed to move");
}
