//! Waits for one-sided operations that sleep on a completion channel, where the library has channels.

use std::time::{Duration, Instant};

use bareverbs_core::one_sided::Arrival;
use bareverbs_core::teardown_order::{Step, check};
use bareverbs_shell::Wait;
use bareverbs_shell::endpoint::Waking;
use bareverbs_shell::one_sided::{Event, TransferErrorKind};

use crate::endpoints::Case;
use crate::scene::{ALL, End, content, memory, pair, pattern, published, succeed, transfers_config, view};
use crate::world::{World, patiently};

pub fn cases() -> Vec<Case> {
    vec![
        ("a_sleeping_wait_sees_every_end_and_every_arrival", sleeps_and_sees),
        ("a_sleeping_wait_ends_at_its_deadline_and_names_nothing_that_is_done", sleeps_until_the_deadline),
    ]
}

fn sleepers(world: &World) -> (End, End) {
    pair(world, &transfers_config().waking(Waking::Events))
}

fn sleeps_and_sees(world: &World) {
    let (mut a, mut b) = sleepers(world);
    let there = memory(&[0; 64]);
    let lease = published(&b, &there, ALL);
    for round in 0..20u8 {
        let here = memory(&pattern(64, round));
        let local = view(&a, &here, ALL);
        let write = a.write_with_imm(&local, lease.remote(), u32::from(round)).expect("room");
        // In turn, so that each wait begins before, or after, what it waits for.
        if round % 3 == 0 {
            world.settle();
        }
        let mut came = Vec::new();
        while came.is_empty() {
            b.wait(&patiently(), |event| came.push(event)).expect("it comes");
        }
        assert_eq!(came, [Event::Arrived(Arrival { immediate: u32::from(round), len_bytes: 64 })]);
        succeed(&mut a, write);
        assert_eq!(content(&there), pattern(64, round));
        let read = a.read(&local, lease.remote()).expect("room");
        succeed(&mut a, read);
    }
    close(a);
    close(b);
}

fn sleeps_until_the_deadline(world: &World) {
    let (mut a, b) = sleepers(world);
    let (here, there) = (memory(&[1; 64]), memory(&[0; 64]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let write = a.write(&local, lease.remote()).expect("room");
    succeed(&mut a, write);
    let (limit, began) = (Duration::from_millis(100), Instant::now());
    let error = a.wait(&Wait::at_most(limit), |event| panic!("{event:?}")).expect_err("nothing is outstanding");
    let TransferErrorKind::Timeout { waited, pending, .. } = &error.kind else { panic!("{error}") };
    assert!(*waited >= limit && pending.is_empty(), "{error}");
    assert!(began.elapsed() >= limit);
    close(a);
    close(b);
}

/// Closes it: an event that was not acknowledged would block the queue's destruction for ever.
fn close(end: End) {
    let told = end.close().expect("nothing refuses");
    assert_eq!(check(told.quiesced, told.done()), Ok(()));
    assert!(told.done().any(|step| step == Step::CompletionChannel), "{:?}", told.steps);
}
