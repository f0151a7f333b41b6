//! Links with credits over whole endpoints: streams for every ring and window, and ends that cannot have credits.
//!
//! `BAREVERBS_LONG=1` streams 10 million frames.

use std::time::Duration;

use bareverbs_core::link::{Carrier, CreditMode, Header, Immediate, LinkSetupError, Raw, SendError, Sequence};
use bareverbs_shell::Error;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Event, Frames, connect_pair};
use bareverbs_shell::exchange::Terms;
use bareverbs_shell::soft::{Mode, SoftConfig, SoftDevice};

use crate::exchange::scene::both;
use crate::world::{World, config, stream, without_credits};

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
fn ends_that_disagree_on_credits_or_do_not_say_what_they_post_do_not_connect() {
    let world = World::soft(Mode::Prompt);
    let end = |config: EndpointConfig| {
        Endpoint::<_, 4, 4>::new(&world.open(), Immediate, config, Frames::Owned).expect("an endpoint")
    };
    let (mut a, mut b) = (end(config()), end(without_credits()));
    let error = connect_pair(&mut a, &mut b).expect_err("one has credits");
    assert!(error.to_string().contains("carries credits"), "{error}");
    drop((a, b));

    let (mut a, b) = (end(config()), end(config()));
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

#[test]
fn credits_are_on_but_for_the_raw_carrier_and_thunderbolt_and_as_the_hello_says() {
    fn mode_of<C: Carrier>(world: &World, carrier: C, config: EndpointConfig) -> CreditMode {
        let end = Endpoint::<_, 4, 4>::new(&world.open(), carrier, config.frame_bytes(4096), Frames::Owned);
        let end = end.expect("an endpoint");
        assert_eq!(end.hello(0).credits, end.credit_mode());
        end.credit_mode()
    }
    let world = World::soft(Mode::Prompt);
    assert_eq!(mode_of(&world, Immediate, config()), CreditMode::On);
    assert_eq!(mode_of(&world, Header::<64>::new(), config()), CreditMode::On);
    assert_eq!(mode_of(&world, Immediate, EndpointConfig::rc("the other end")), CreditMode::On);
    assert_eq!(mode_of(&world, Raw, config()), CreditMode::Off);
    assert_eq!(mode_of(&world, Header::<64>::new(), without_credits()), CreditMode::Off);
    let asked = Endpoint::<_, 4, 4>::new(&world.open(), Raw, config().credits(CreditMode::On), Frames::Owned);
    let Err(Error::Link(refused)) = asked else { panic!("{asked:?}") };
    assert_eq!(refused, LinkSetupError::CreditsWithoutNumbers);
    world.assert_clean();

    let world = World::of_config(SoftConfig::default().devices(vec![SoftDevice::thunderbolt("tb0")]), "Thunderbolt");
    assert_eq!(mode_of(&world, Header::<64>::new(), config()), CreditMode::Off);
    assert_eq!(mode_of(&world, Header::<64>::new(), config().credits(CreditMode::On)), CreditMode::On);
    world.assert_clean();
}

/// An end with a ring of 2 receives and one with 32: each may send at once what the other has posted, less one, and after that
/// both streams go on.
fn begins_with_what_the_other_posts<C: Carrier>(few: &mut Endpoint<C, 64, 2>, many: &mut Endpoint<C, 64, 32>) {
    assert_eq!((few.credits_left(), many.credits_left()), (31, 1));
    // As many as are granted, and no more; each finds a receive.
    for _ in 0..31 {
        few.send(8, |_| ()).expect("it is granted");
    }
    many.send(8, |_| ()).expect("it is granted");
    for error in [few.send(8, |_| ()), many.send(8, |_| ())].map(|sent| sent.expect_err("nothing is left").kind) {
        assert!(matches!(error, EndpointErrorKind::Send(SendError::NoCredit { .. }, None)), "{error:?}");
    }
    assert_eq!((take_all(few), take_all(many)), (1, 31));
    // What is granted anew.
    assert_eq!((take_all(few), take_all(many)), (0, 0));
    for _ in 0..100 {
        let to_many = (0..40).take_while(|_| few.send(8, |_| ()).is_ok()).count() as u32;
        let to_few = (0..40).take_while(|_| many.send(8, |_| ()).is_ok()).count() as u32;
        assert!(to_many > 10 && to_few == 1, "{to_many} and {to_few}");
        assert_eq!((take_all(few), take_all(many)), (to_few, to_many), "none was lost");
        assert_eq!((take_all(few), take_all(many)), (0, 0));
    }
}

/// Takes what came, posting its frames again, until nothing comes; how many messages that were.
fn take_all<C: Carrier, const R: usize>(end: &mut Endpoint<C, 64, R>) -> u32 {
    let (mut messages, mut quiet) = (0, 0);
    while quiet < 2 {
        let events = end.poll(|event| {
            if let Event::Received(frame) = event {
                frame.repost().expect("a receive");
                messages += 1;
            }
        });
        quiet = if events.expect("a healthy link") == 0 { quiet + 1 } else { 0 };
    }
    messages
}

#[test]
fn ends_with_unequal_rings_each_begin_with_what_the_other_posts() {
    fn by_each_way<C: Carrier + Send>(world: &World, carrier: C) {
        let made = || {
            let few = Endpoint::<C, 64, 2>::new(&world.open(), carrier, config(), Frames::Owned);
            let many = Endpoint::<C, 64, 32>::new(&world.open(), carrier, config(), Frames::Owned);
            (few.expect("an endpoint"), many.expect("an endpoint"))
        };
        for few_first in [true, false] {
            let (mut few, mut many) = made();
            match few_first {
                true => connect_pair(&mut few, &mut many),
                false => connect_pair(&mut many, &mut few),
            }
            .expect("both are in INIT");
            begins_with_what_the_other_posts(&mut few, &mut many);
            drop((few, many));

            let (mut few, mut many) = made();
            let terms = [Terms::within(Duration::from_secs(20)); 2];
            let (here, there) = match few_first {
                true => both(&mut few, &mut many, terms),
                false => both(&mut many, &mut few, terms),
            };
            let depths = [here, there].map(|outcome| outcome.expect("a meeting").agreement.remote_recv_depth);
            assert_eq!(depths, if few_first { [32, 2] } else { [2, 32] });
            begins_with_what_the_other_posts(&mut few, &mut many);
        }
    }
    let world = World::soft(Mode::Prompt);
    by_each_way(&world, Immediate);
    by_each_way(&world, Header::<64>::new());
    world.assert_clean();
}
