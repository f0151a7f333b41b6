//! Ends that do not match: both say so, with both values, and no queue pair has moved.

use bareverbs_core::connect::{CarrierKind, CreditMode, Hello, Mismatch, Reason, Refusal, Service, Step};
use bareverbs_core::link::{Checksum, Header, Immediate, Raw};
use bareverbs_core::verbs::{LinkLayer, QpState};
use bareverbs_shell::EndpointConfig;
use bareverbs_shell::exchange::{ExchangeErrorKind, Phase, Terms};
use bareverbs_shell::soft::Answer;

use super::scene::{AMPLE, Outcome, Scene, against, alike, answer_to, both, passes};

fn mismatch(outcome: Outcome) -> Mismatch {
    match outcome.expect_err("a mismatch").kind {
        ExchangeErrorKind::Mismatch(mismatch) => mismatch,
        other => panic!("{other}"),
    }
}

#[test]
fn two_ends_with_a_difference_both_say_which_before_either_moves() {
    let scene = Scene::new();
    let terms = Terms::within(AMPLE);
    macro_rules! differ {
        ($ours:expr, $theirs:expr, $terms:expr => $variant:ident $a:expr, $b:expr) => {
            let (mut a, mut b) = ($ours, $theirs);
            let (here, there) = both(&mut a, &mut b, $terms);
            assert_eq!(mismatch(here), Mismatch::$variant { ours: $a, theirs: $b });
            assert_eq!(mismatch(there), Mismatch::$variant { ours: $b, theirs: $a });
        };
    }
    let uc = EndpointConfig::uc;
    differ!(scene.uc("b"), scene.end(Immediate, uc("a").frame_bytes(8192)), alike(terms) => FrameBytes 4096, 8192);
    differ!(scene.uc("b"), scene.end(Raw, uc("a")), alike(terms) => Carrier CarrierKind::Immediate, CarrierKind::Raw);
    differ!(
        scene.end(Header::<64>::new(), uc("b")), scene.end(Header::<128>::new(), uc("a")), alike(terms)
        => HeaderRoom 64, 128
    );
    differ!(
        scene.end(Header::<64>::new(), uc("b")), scene.end(Header::<64>::with_checksum(), uc("a")), alike(terms)
        => Checksum Checksum::Off, Checksum::Crc32c
    );
    differ!(
        scene.uc("b"), scene.end(Immediate, uc("a").credits(CreditMode::Off)), alike(terms)
        => Credits CreditMode::On, CreditMode::Off
    );
    differ!(
        scene.uc("b"), scene.end(Immediate, EndpointConfig::rc("a")), alike(terms)
        => Service Service::Uc, Service::Rc
    );
    differ!(scene.uc("b"), scene.uc("a"), [terms.nonce(1), terms.nonce(2)] => Nonce 1, 2);
    assert_eq!(scene.moves_to(QpState::RTR), 0);
}

#[test]
fn each_field_of_a_hello_that_differs_is_told_to_the_other_end_too() {
    let scene = Scene::new();
    type Change = fn(&mut Hello);
    type Is = fn(&Mismatch) -> bool;
    let changes: [(Change, Is); 10] = [
        (|hello| hello.nonce ^= 1, |mismatch| matches!(mismatch, Mismatch::Nonce { .. })),
        (|hello| hello.service = Service::Rc, |mismatch| matches!(mismatch, Mismatch::Service { .. })),
        (|hello| hello.link_layer = LinkLayer::THUNDERBOLT, |mismatch| matches!(mismatch, Mismatch::LinkLayer { .. })),
        (|hello| hello.frame_bytes += 64, |mismatch| matches!(mismatch, Mismatch::FrameBytes { .. })),
        (|hello| hello.carrier = CarrierKind::Header, |mismatch| matches!(mismatch, Mismatch::Carrier { .. })),
        (|hello| hello.header_room_bytes = 1, |mismatch| matches!(mismatch, Mismatch::HeaderRoom { .. })),
        (|hello| hello.checksum = Checksum::Crc32c, |mismatch| matches!(mismatch, Mismatch::Checksum { .. })),
        (|hello| hello.credits = flipped(hello.credits), |mismatch| matches!(mismatch, Mismatch::Credits { .. })),
        (|hello| hello.recv_depth = 0, |mismatch| matches!(mismatch, Mismatch::NoReceives { .. })),
        (|hello| hello.destination.qp_num ^= 1, |mismatch| matches!(mismatch, Mismatch::OwnHello)),
    ];
    for (change, expected) in changes {
        let mut end = scene.uc("a played peer");
        let (here, told) = against(&mut end, Terms::within(AMPLE), |mut peer| {
            let mut hello = answer_to(&peer.hello());
            change(&mut hello);
            peer.send(&hello.encode());
            let told = peer.step();
            peer.hears_the_end();
            told
        });
        let found = mismatch(here);
        assert!(expected(&found), "{found}");
        assert_eq!(told, Step::Refused(Refusal { reason: Reason::Mismatch, errno: 0 }), "{found}");
    }
    assert_eq!(scene.moves_to(QpState::RTR), 0);
}

fn flipped(credits: CreditMode) -> CreditMode {
    match credits {
        CreditMode::Off => CreditMode::On,
        CreditMode::On => CreditMode::Off,
    }
}

#[test]
fn an_end_whose_queue_pair_has_not_moved_can_be_tried_again() {
    let scene = Scene::new();
    let (mut a, mut b) = (scene.uc("b"), scene.uc("a"));
    let terms = Terms::within(AMPLE);
    let (here, there) = both(&mut a, &mut b, [terms.nonce(1), terms.nonce(2)]);
    assert!(here.is_err() && there.is_err());
    let (here, there) = both(&mut a, &mut b, alike(terms));
    assert!(here.is_ok() && there.is_ok());
    passes(&mut a, &mut b, b"second time");
}

#[test]
fn an_end_that_cannot_connect_tells_the_other_one_why() {
    // Moves in the order of the calls: the first is one end's to RTR, whichever that is.
    for (symbol, errno) in [("ibv_modify_qp", libc::ETIMEDOUT), ("ibv_post_recv", libc::ENOMEM)] {
        let scene = Scene::new();
        let (mut a, mut b) = (scene.uc("rank 1"), scene.uc("rank 0"));
        scene.fabric.fail(symbol, 1, Answer::returned(errno));
        let (here, there) = both(&mut a, &mut b, alike(Terms::within(AMPLE)));
        let (here, there) = (here.expect_err("no link"), there.expect_err("no link"));
        let (own, told) = match here.kind {
            ExchangeErrorKind::Endpoint(_) => (here, there),
            _ => (there, here),
        };
        assert!(matches!(own.kind, ExchangeErrorKind::Endpoint(_)), "{own}");
        let refusal = Refusal { reason: Reason::CannotConnect, errno };
        assert_eq!(told.kind, ExchangeErrorKind::Refused { during: Phase::Ready, refusal }, "{told}");
        assert!(own.to_string().contains("rank ") && told.to_string().contains("rank "), "{own}; {told}");
        // Neither is of any use, and both go in order.
        assert!(a.send(1, |_| ()).is_err() && b.send(1, |_| ()).is_err());
        a.close().expect("an orderly end");
        b.close().expect("an orderly end");
        assert_eq!(scene.fabric.misuse(), Vec::<String>::new());
    }
}
