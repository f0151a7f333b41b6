//! Waits that sleep on a completion channel, where the library has channels.

use std::time::{Duration, Instant};

use bareverbs_core::link::{Immediate, Sequence};
use bareverbs_core::teardown_order::{Step, check};
use bareverbs_shell::Error;
use bareverbs_shell::endpoint::{Endpoint, EndpointErrorKind, Event, Frames, Waking};
use bareverbs_shell::wait::Wait;

use crate::endpoints::Case;
use crate::world::{World, config, patiently, send_next};

pub fn cases() -> Vec<Case> {
    vec![
        ("a_sleeping_wait_sees_every_message", sleeps_and_sees),
        ("a_sleeping_wait_ends_at_its_deadline_and_the_end_can_go", sleeps_until_the_deadline),
    ]
}

/// Two ends that sleep while they wait; none where the library has no channels, which must be told by name.
fn sleepers(world: &World) -> Option<(Endpoint<Immediate, 8, 8>, Endpoint<Immediate, 8, 8>)> {
    let config = config().waking(Waking::Events);
    if world.fabric.symbols().create_comp_channel.is_none() {
        let made = Endpoint::<_, 8, 8>::new(&world.open(), Immediate, config, Frames::Owned);
        let error = made.expect_err("there are no channels");
        assert!(matches!(error, Error::Unsupported { symbol: "ibv_create_comp_channel", .. }), "{error}");
        return None;
    }
    Some(world.pair(Immediate, &config))
}

fn sleeps_and_sees(world: &World) {
    let Some((mut a, mut b)) = sleepers(world) else { return };
    for number in 0..50 {
        // In turn, so that each wait begins before, or after, its message comes.
        // What the one grants at its next poll, the other takes in at one of its own.
        while !send_next(&mut a, number, 1024, 1) {
            a.poll(|_| ()).expect("a healthy link");
            b.poll(|event| assert!(!matches!(event, Event::Received(_)))).expect("a healthy link");
        }
        if number % 3 == 0 {
            world.settle();
        }
        let mut came = None;
        while came.is_none() {
            b.wait(&patiently(), |event| {
                if let Event::Received(frame) = event {
                    came = frame.sequence();
                    frame.repost().expect("its place is free");
                }
            })
            .expect("a message");
        }
        assert_eq!(came, Some(Sequence::new(number as u32)));
        a.poll(|_| ()).expect("a healthy link");
    }
    close(a);
    close(b);
}

fn sleeps_until_the_deadline(world: &World) {
    let Some((a, mut b)) = sleepers(world) else { return };
    drop(a);
    let (limit, began) = (Duration::from_millis(100), Instant::now());
    let error = b.wait(&Wait::at_most(limit), |_| ()).expect_err("nobody is there");
    assert!(matches!(error.kind, EndpointErrorKind::Timeout { .. }), "{error}");
    assert!(began.elapsed() >= limit);
    close(b);
}

/// Closes it: an event that was not acknowledged would block the queue's destruction for ever.
fn close(end: Endpoint<Immediate, 8, 8>) {
    let told = end.close().expect("nothing refuses");
    assert_eq!(check(told.quiesced, told.done()), Ok(()));
    assert!(told.done().any(|step| step == Step::CompletionChannel), "{:?}", told.steps);
}
