//! Two ends whose rings are of different lengths: each begins with what the other posts, by each way of connecting.

use std::time::Duration;

use bareverbs_core::link::{Carrier, Header, Immediate, SendError};
use bareverbs_shell::endpoint::{Endpoint, EndpointErrorKind, Event, Frames, connect_pair};
use bareverbs_shell::exchange::Terms;
use bareverbs_shell::soft::Mode;

use crate::exchange::scene::both;
use crate::world::{World, config};

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
