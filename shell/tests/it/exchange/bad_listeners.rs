//! What listens is no peer: the end that connects tells it as the end that accepts does ([`super::bad_peers`]).

use std::time::{Duration, Instant};

use bareverbs_core::connect::{HELLO_BYTES, HelloError, Mismatch, Reason, Refusal, Step};
use bareverbs_core::verbs::QpState;
use bareverbs_shell::exchange::{ExchangeErrorKind, Phase, Terms};

use super::bad_peers::{SLACK, flood};
use super::scene::{AMPLE, Played, Scene, against_listener, answer_to};

/// Plays a listener; what the end that connects says, and what it told the listener last, if it told it anything.
fn meets(terms: Terms, play: impl FnOnce(&mut Played) + Send) -> (ExchangeErrorKind, Option<Step>) {
    let scene = Scene::new();
    let mut end = scene.uc("rank 3");
    let (outcome, told) = against_listener(&mut end, terms, |mut peer| {
        play(&mut peer);
        peer.step_if_any()
    });
    let error = outcome.expect_err("not a peer");
    assert!(error.to_string().contains("rank 3 (127.0.0.1:"), "{error}");
    assert_eq!(scene.moves_to(QpState::RTR), 0);
    end.close().expect("an orderly end");
    (error.kind, told)
}

fn refused(reason: Reason) -> Option<Step> {
    Some(Step::Refused(Refusal { reason, errno: 0 }))
}

#[test]
fn garbage_another_magic_and_another_version_are_told_from_their_first_bytes() {
    let says = |bytes: &'static [u8]| {
        meets(Terms::within(AMPLE), |peer| {
            peer.hello();
            peer.send(bytes);
        })
    };
    let hello = |error| (ExchangeErrorKind::Hello(error), refused(Reason::Unreadable));
    assert_eq!(says(b"220 mail.example ESMTP\r\n"), hello(HelloError::Magic { got: *b"220 " }));
    assert_eq!(says(b"BVst\x01"), hello(HelloError::Magic { got: *b"BVst" }));
    assert_eq!(says(b"BVhi\x02"), hello(HelloError::Version { got: 2 }));
}

#[test]
fn a_mismatch_is_told_to_the_listener_too() {
    let (kind, told) = meets(Terms::within(AMPLE), |peer| {
        let mut hello = answer_to(&peer.hello());
        hello.frame_bytes *= 2;
        peer.send(&hello.encode());
    });
    assert_eq!(kind, ExchangeErrorKind::Mismatch(Mismatch::FrameBytes { ours: 4096, theirs: 8192 }));
    assert_eq!(told, refused(Reason::Mismatch));
}

#[test]
fn a_listener_that_closes_is_told_by_how_far_it_came() {
    for sent in [0, 1, HELLO_BYTES - 1] {
        let (kind, told) = meets(Terms::within(AMPLE), |peer| {
            let hello = answer_to(&peer.hello()).encode();
            peer.send(&hello[..sent]);
            peer.0.shutdown(std::net::Shutdown::Write).expect("it is open");
        });
        let closed = ExchangeErrorKind::PeerClosed { during: Phase::Hello, got_bytes: sent, need_bytes: HELLO_BYTES };
        assert_eq!((kind, told), (closed, None));
    }
}

#[test]
fn a_listener_that_says_nothing_or_too_much_costs_the_limit_at_most() {
    let limit = Duration::from_millis(300);
    let began = Instant::now();
    let (kind, told) = meets(Terms::within(limit), |peer| {
        peer.hello();
    });
    let late = ExchangeErrorKind::Timeout { during: Phase::Hello, got_bytes: 0, need_bytes: HELLO_BYTES };
    assert_eq!((kind, told), (late, refused(Reason::Withdrawn)));
    assert!(began.elapsed() >= limit && began.elapsed() < limit + SLACK);

    let began = Instant::now();
    let (kind, _) = meets(Terms::within(limit), |peer| {
        peer.hello();
        assert!(flood(peer, b"BVhi\x02") < 64 << 20, "nobody took all of it");
    });
    assert_eq!(kind, ExchangeErrorKind::Hello(HelloError::Version { got: 2 }));
    assert!(began.elapsed() < limit + SLACK);
}
