//! Links with credits over whole endpoints: streams without a window of the caller's, and peers that grant nothing.
//!
//! `BAREVERBS_LONG=1` streams 10 million frames.

use std::time::Duration;

use bareverbs_core::link::{Carrier, CreditMode, Header, Immediate, LinkSetupError, Raw, SendError, Sequence};
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Frames, connect_pair};
use bareverbs_shell::soft::Mode;
use bareverbs_shell::{Error, Relax, Wait};

use crate::world::{World, config, stream};

/// Streams `messages` each way, never more than each window unanswered.
fn sweep_windows<C: Carrier, const S: usize, const R: usize>(world: &World, carrier: C, messages: u64) -> u64 {
    let mut frames = 0;
    // A window above the ring's is no limit: credits are.
    for window in [1, 2, R as u64 / 2, R as u64 - 1, u64::MAX] {
        let (mut a, mut b) = world.pair::<C, S, R>(carrier, &EndpointConfig::uc("the other end").frame_bytes(256));
        assert_eq!((a.credit_mode(), a.credits_left()), (CreditMode::On, R as u32 - 1));
        stream(&mut a, &mut b, messages, window, 64, Some(Sequence::new(0)));
        frames += 2 * messages;
    }
    world.assert_clean();
    frames
}

/// Every pair of ring sizes; answers how many frames there were.
fn sweep(world: &World, messages: u64) -> u64 {
    let mut frames = 0;
    macro_rules! rings {
        ($($send:literal: $($recv:literal)*;)*) => { $($(
            frames += sweep_windows::<_, $send, $recv>(world, Immediate, messages);
            frames += sweep_windows::<_, $send, $recv>(world, Header::<64>::new(), messages);
        )*)* };
    }
    rings! {
        2: 2 4 8 16 32;
        4: 2 4 8 16 32;
        8: 2 4 8 16 32;
        16: 2 4 8 16 32;
        32: 2 4 8 16 32;
    }
    frames
}

#[test]
fn streams_without_a_window_lose_nothing_for_any_ring_size() {
    // 25 pairs of rings, 2 carriers, 5 windows, 2 directions: 500 streams.
    let messages = if std::env::var_os("BAREVERBS_LONG").is_some() { 20_000 } else { 200 };
    assert_eq!(sweep(&World::soft(Mode::Prompt), messages), 500 * messages);
}

#[test]
fn streams_lose_nothing_when_messages_and_completions_come_late() {
    for seed in 0..3 {
        sweep(&World::soft(Mode::Adversarial { seed }), 20);
    }
}

#[test]
fn without_credit_a_send_is_refused_typed_and_the_next_grant_ends_the_wait() {
    let world = World::soft(Mode::Prompt);
    let (mut a, mut b) = world.pair::<_, 8, 4>(Immediate, &config());
    for _ in 0..3 {
        a.send(8, |_| ()).expect("it is granted");
    }
    let error = a.send(8, |_| panic!("nothing is filled in")).expect_err("nothing is left");
    let until = Sequence::new(3);
    assert_eq!(error.kind, EndpointErrorKind::Send(SendError::NoCredit { until }, None));
    assert!(error.to_string().contains("no credit for message 3"), "{error}");
    assert!(!error.is_queue_full());

    // The peer takes them, and posts no receive: nothing is granted, and only a deadline tells.
    let soon = || Wait::at_most(Duration::from_millis(5)).relax(Relax::Yield);
    let mut taken = 0;
    while taken < 3 {
        taken += b.wait(&soon(), |_| ()).expect("messages are there");
    }
    while a.outstanding().sends > 0 {
        a.wait(&soon(), |_| ()).expect("sends complete");
    }
    let error = a.wait(&soon(), |_| ()).expect_err("nothing comes");
    assert!(matches!(error.kind, EndpointErrorKind::Timeout { .. }), "{error}");

    assert_eq!(b.post_receives(1).expect("frames are free"), 1);
    let mut granted = 0;
    a.wait(&soon(), |event| {
        if let bareverbs_core::link::Event::Granted { messages } = event {
            granted += messages;
        }
    })
    .expect("a grant");
    assert_eq!((granted, a.credits_left()), (1, 1));
    a.send(8, |_| ()).expect("it is granted");
    drop((a, b));
    world.assert_clean();
}

#[test]
fn ends_that_disagree_on_credits_or_do_not_say_what_they_post_do_not_connect() {
    let world = World::soft(Mode::Prompt);
    let ends = || world.ends::<_, 4, 4>(Immediate, &config());
    let end = |config: EndpointConfig| Endpoint::<_, 4, 4>::new(&world.open(), Immediate, config, Frames::Owned);
    let (mut a, mut b) = (ends().0, end(config().credits(CreditMode::Off)).expect("an endpoint"));
    let error = connect_pair(&mut a, &mut b).expect_err("one has credits");
    assert!(error.to_string().contains("carries credits"), "{error}");

    let (mut a, b) = ends();
    let error = a.connect(&b.destination(), a.path_mtu()).expect_err("it cannot know");
    assert!(matches!(error, Error::State { .. }), "{error}");
    // Nothing was done: it can still be said.
    let error = a.agree_credits(1).expect_err("not enough");
    assert!(matches!(error, Error::Credits(_)), "{error}");
    a.agree_credits(b.recv_depth()).expect("nothing was sent");
    a.connect(&b.destination(), a.path_mtu()).expect("it is in INIT");
    drop((a, b));

    let made = Endpoint::<_, 1, 4>::new(&world.open(), Immediate, config(), Frames::Owned);
    let Err(Error::Link(refused)) = made else { panic!("{made:?}") };
    assert_eq!(refused, LinkSetupError::NoCreditRoom { send_depth: 1, recv_depth: 4, least: 2 });
    let raw = Endpoint::<_, 1, 1>::new(&world.open(), Raw, config(), Frames::Owned).expect("no credits, one place");
    assert_eq!(raw.credit_mode(), CreditMode::Off);
    drop(raw);
    world.assert_clean();
}
