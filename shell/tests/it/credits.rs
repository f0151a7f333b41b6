//! Links with credits over whole endpoints: streams for every ring and window, and ends that cannot have credits.
//!
//! `BAREVERBS_LONG=1` streams 10 million frames.

use std::time::Duration;

use bareverbs_core::link::{
    Carrier, CreditMode, Header, Immediate, LinkError, LinkSetupError, Raw, SendError, Sequence,
};
use bareverbs_core::verbs::inline_calls::RawErrno;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Event, Frames, Waking, connect_pair};
use bareverbs_shell::errno::Errno;
use bareverbs_shell::soft::{Answer, BadWr, Mode, SoftConfig, SoftDevice};
use bareverbs_shell::{Error, Relax, Wait};

use crate::world::{World, config, let_sends_complete, stream, without_credits};

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

/// A stream both ways across the end of the numbers, where grants wrap before them.
fn wrap<C: Carrier, const S: usize, const R: usize>(world: &World, carrier: C) {
    for back in 0..=R as u32 + 1 {
        let first = Sequence::new(0_u32.wrapping_sub(back));
        let config = config().frame_bytes(256).sequences(first, first);
        let (mut a, mut b) = world.pair::<C, S, R>(carrier, &config);
        stream(&mut a, &mut b, 100, u64::MAX, 64, Some(first));
    }
    world.assert_clean();
}

#[test]
fn numbers_and_grants_wrap_in_credit_messages_and_in_headers() {
    for mode in [Mode::Prompt, Mode::Adversarial { seed: 1 }] {
        let world = World::soft(mode);
        wrap::<_, 2, 2>(&world, Header::<64>::new());
        wrap::<_, 8, 4>(&world, Header::<64>::with_checksum());
        wrap::<_, 2, 2>(&world, Immediate);
        wrap::<_, 8, 4>(&world, Immediate);
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

/// Takes what came and posts the frames again; answers how many messages, and what the poll did.
fn take_all(end: &mut Endpoint<Immediate, 8, 4>) -> (u32, Result<usize, EndpointErrorKind>) {
    let mut taken = 0;
    let polled = end.poll(|event| {
        if let Event::Received(frame) = event {
            frame.repost().expect("its place is free");
            taken += 1;
        }
    });
    (taken, polled.map_err(|error| error.kind))
}

/// What an end's next wait gives: a letter for each event.
fn told(end: &mut Endpoint<Immediate, 8, 4>) -> Result<String, EndpointErrorKind> {
    let mut told = String::new();
    let waited = end.wait(&Wait::at_most(Duration::from_millis(20)).relax(Relax::Yield), |event| match event {
        Event::Received(frame) => {
            told.push('m');
            frame.repost().expect("its place is free");
        }
        Event::Granted { messages } => told.push_str(&format!("g{messages}")),
        Event::Sent { .. } => told.push('s'),
        Event::Drained(_) => panic!("nobody drains"),
    });
    waited.map(|_| told).map_err(|error| error.kind)
}

const REFUSED: EndpointErrorKind =
    EndpointErrorKind::Send(SendError::Refused { accepted: 0, raw: RawErrno(libc::ENOMEM) }, Some(Errno(libc::ENOMEM)));

#[test]
fn a_refused_credit_message_is_tried_again_by_a_wait_though_nothing_comes_and_the_stream_goes_on() {
    for waking in [Waking::Polling, Waking::Events] {
        let world = World::soft(Mode::Prompt);
        let soft = world.soft.as_ref().expect("a software fabric");
        let (mut a, mut b) = world.pair::<Immediate, 8, 4>(Immediate, &config().waking(waking));
        for _ in 0..3 {
            a.send(8, |_| ()).expect("it is granted");
        }
        let_sends_complete(&mut a);
        // Three posts are refused: one in the poll that takes the messages, since the sender is short of credit, and two in
        // waits.
        (1..=3).for_each(|nth| soft.fail("ibv_post_send", nth, Answer::returned(libc::ENOMEM)));
        assert_eq!(take_all(&mut b), (3, Err(REFUSED)));
        for _ in 0..2 {
            assert_eq!(told(&mut b), Err(REFUSED), "{waking:?}");
            assert_eq!(a.credits_left(), 0);
        }
        assert_eq!(told(&mut b).as_deref(), Ok("s"), "{waking:?}: the credit message was sent");
        assert_eq!(told(&mut a).as_deref(), Ok("g3"), "{waking:?}");
        for number in 3..6 {
            assert_eq!(a.send(8, |_| ()).expect("it is granted"), Sequence::new(number));
        }
        assert_eq!(told(&mut b).as_deref(), Ok("mmm"), "{waking:?}");
        assert_eq!(told(&mut b).as_deref(), Ok("s"), "{waking:?}: the next credit message");
        drop((a, b));
        world.assert_clean();
    }
}

#[test]
fn what_completed_is_given_out_by_a_poll_whose_credit_message_is_refused() {
    let world = World::soft(Mode::Prompt);
    let soft = world.soft.as_ref().expect("a software fabric");
    let (mut a, mut b) = world.pair::<Immediate, 8, 4>(Immediate, &config());
    a.send(8, |_| ()).expect("it is granted");
    assert_eq!(take_all(&mut b), (1, Ok(1)));
    a.send(8, |_| ()).expect("it is granted");
    soft.fail("ibv_post_send", 1, Answer::returned(libc::ENOMEM));
    assert_eq!(take_all(&mut b), (1, Err(REFUSED)), "the second message came");
    assert_eq!(take_all(&mut b).1, Ok(1), "the credit message's completion");
    let_sends_complete(&mut a);
    assert_eq!(a.credits_left(), 3, "both came and were posted again");
    // One of which nobody knows what was done with it breaks the link: that error comes first, then the link's own.
    let unknown = (0..8).find_map(|_| {
        a.send(8, |_| ()).expect("it is granted");
        a.poll(|_| ()).expect("a healthy link");
        soft.fail("ibv_post_send", 1, Answer::minus_one(5).bad_wr(BadWr::NullNoneAccepted));
        let polled = take_all(&mut b).1;
        soft.clear_plan();
        polled.err()
    });
    let Some(EndpointErrorKind::Send(SendError::Broken { cause }, Some(Errno(5)))) = unknown else {
        panic!("{unknown:?}")
    };
    assert_eq!(take_all(&mut b), (0, Err(EndpointErrorKind::Link(LinkError::Broken { cause }))));
    drop((a, b));
    world.assert_clean();
}

#[test]
fn an_answer_goes_out_before_the_grant_that_its_question_made_due() {
    for waking in [Waking::Polling, Waking::Events] {
        let world = World::soft(Mode::Prompt);
        let (mut a, mut b) = world.pair::<Immediate, 8, 4>(Immediate, &config().waking(waking));
        a.send(8, |_| ()).expect("it is granted");
        assert_eq!(told(&mut a).as_deref(), Ok("s"));
        assert_eq!(told(&mut b).as_deref(), Ok("m"));
        b.send(8, |_| ()).expect("it is granted");
        assert_eq!(told(&mut a).as_deref(), Ok("m"), "the answer, and no credit message before it");
        // Each end's next wait grants; the answer's completion is there as well.
        assert_eq!(told(&mut b).as_deref(), Ok("ss"));
        assert_eq!(told(&mut a).as_deref(), Ok("g1s"));
        assert_eq!(told(&mut b).as_deref(), Ok("g1"));
        drop((a, b));
        world.assert_clean();
    }
}
