//! How endpoints go on every fabric: closed or dropped, at every stage, with work in flight.

use std::sync::Barrier;
use std::thread;

use bareverbs_core::link::Immediate;
use bareverbs_core::teardown_order::{Quiesced, Step, check};
use bareverbs_core::verbs::Mtu;
use bareverbs_shell::endpoint::{Endpoint, Event};

use crate::endpoints::Case;
use crate::world::{World, config, let_sends_complete, patiently, send_next, stream, without_credits};

type End = Endpoint<Immediate, 8, 8>;

/// Brings an endpoint to a stage; the other end stays beside it.
type Stage = fn(&World) -> (End, End);

const STAGES: &[(&str, Stage)] = &[
    ("fresh", |world| world.ends(Immediate, &config())),
    ("one end connected", |world| {
        let (mut a, b) = world.ends(Immediate, &config());
        a.connect(&b.destination(), a.path_mtu()).expect("it is in INIT");
        (a, b)
    }),
    ("failed", |world| {
        let (mut a, b) = world.ends(Immediate, &config());
        a.connect(&b.destination(), Mtu(9)).expect_err("no such MTU");
        (a, b)
    }),
    ("connected", |world| world.pair(Immediate, &config())),
    ("sends in flight", |world| {
        let (mut a, b) = world.pair(Immediate, &without_credits());
        assert!((0..8).all(|number| send_next(&mut a, number, 1024, 1)));
        (a, b)
    }),
    ("unsignalled sends in flight", |world| {
        let (mut a, b) = world.pair(Immediate, &config().signal_every(4));
        for _ in 0..3 {
            let frame = a.next_frame().expect("a free frame");
            frame.post_more(10).expect("a healthy link");
        }
        (a, b)
    }),
    ("messages not polled", |world| {
        let (a, mut b) = world.pair(Immediate, &config());
        assert!((0..4).all(|number| send_next(&mut b, number, 1024, 1)));
        let_sends_complete(&mut b);
        world.settle();
        (a, b)
    }),
    ("some polled, not posted again", |world| {
        let (mut a, mut b) = world.pair(Immediate, &config());
        assert!((0..4).all(|number| send_next(&mut b, number, 1024, 1)));
        a.wait(&patiently(), |event| assert!(matches!(event, Event::Received(_)))).expect("a message");
        assert!((0..3).all(|number| send_next(&mut a, number, 1024, 1)));
        (a, b)
    }),
    ("everything answered", |world| {
        let (mut a, mut b) = world.pair(Immediate, &config());
        stream(&mut a, &mut b, 20, 8, 1024, Some(bareverbs_core::link::Sequence::new(0)));
        let_sends_complete(&mut a);
        (a, b)
    }),
    ("the other end gone", |world| {
        let (mut a, b) = world.pair(Immediate, &config());
        drop(b);
        assert!((0..3).all(|number| send_next(&mut a, number, 1024, 1)));
        (a, world.ends::<_, 8, 8>(Immediate, &config()).0)
    }),
];

pub fn cases() -> Vec<Case> {
    vec![
        ("an_endpoint_can_be_closed_at_every_stage", closed_at_every_stage),
        ("an_endpoint_can_be_dropped_at_every_stage", dropped_at_every_stage),
        ("both_ends_close_at_once_with_messages_under_way", both_ends_close_at_once),
        ("many_endpoints_come_and_go", many_come_and_go),
    ]
}

/// Closes the end; what is told is held against the order.
fn close(end: End, stage: &str) {
    // A queue pair that failed on its way to RTS is destroyed at once, before the region, and not drained.
    let failed = stage == "failed";
    let outstanding = end.outstanding();
    let told = end.close().unwrap_or_else(|error| panic!("{stage}: {error}"));
    assert_eq!(check(told.quiesced, told.done()), Ok(()), "{stage}");
    let quiesced = if failed { Quiesced::No } else { Quiesced::Yes };
    assert_eq!((told.quiesced, &told.not_drained), (quiesced, &None), "{stage}");
    let mut wanted = match (failed, outstanding.sends + outstanding.receives) {
        (true, _) => vec![Step::QueuePair, Step::MemoryRegion],
        (false, 0) => vec![Step::MemoryRegion, Step::QueuePair],
        (false, _) => vec![Step::Quiesce, Step::MemoryRegion, Step::QueuePair],
    };
    wanted.extend([Step::CompletionQueue, Step::ProtectionDomain, Step::DeviceContext]);
    assert_eq!(told.done().collect::<Vec<_>>(), wanted, "{stage}");
}

fn closed_at_every_stage(world: &World) {
    for (stage, bring) in STAGES {
        let (a, b) = bring(world);
        close(a, stage);
        b.close().unwrap_or_else(|error| panic!("{stage}, other end: {error}"));
        world.assert_clean();
    }
}

fn dropped_at_every_stage(world: &World) {
    for (_, bring) in STAGES {
        for other_first in [false, true] {
            let (a, b) = bring(world);
            if other_first {
                drop(b);
                drop(a);
            } else {
                drop(a);
                drop(b);
            }
            world.assert_clean();
        }
    }
}

fn both_ends_close_at_once(world: &World) {
    for polled in [false, true] {
        let (mut a, mut b) = world.pair(Immediate, &without_credits());
        for end in [&mut a, &mut b] {
            assert!((0..8).all(|number| send_next(end, number, 1024, 1)));
        }
        if polled {
            for end in [&mut a, &mut b] {
                end.wait(&patiently(), |_| ()).expect("a completion");
            }
        }
        let together = Barrier::new(2);
        thread::scope(|scope| {
            for (end, name) in [(a, "one end"), (b, "the other end")] {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    close(end, name);
                });
            }
        });
        world.assert_clean();
    }
}

fn many_come_and_go(world: &World) {
    // More than the least that a device has of anything.
    for _ in 0..40 {
        let (mut a, mut b) = world.pair::<_, 2, 2>(Immediate, &config());
        assert!(send_next(&mut a, 0, 64, 1));
        b.wait(&patiently(), |_| ()).expect("a message");
    }
}
