//! Posts that a provider refuses, and completions that it loses: what was not posted changes nothing, and what may have been
//! holds its memory until the queue pair is gone.

use bareverbs_core::link::Fault;
use bareverbs_core::one_sided::{NotStarted, PlanRefused};
use bareverbs_core::verbs::inline_calls::PollError;
use bareverbs_shell::one_sided::{Ended, Event, OperationError, TransferErrorKind};
use bareverbs_shell::soft::{Answer, BadWr, Mode, SoftConfig, SoftDevice};

use crate::scene::{ALL, content, memory, pair, pattern, published, succeed, transfers_config, view};
use crate::world::World;

fn world() -> World {
    World::of_config(
        SoftConfig::default().devices(vec![SoftDevice::new("refusedpost").max_message_bytes(100)]),
        "refused",
    )
}

#[test]
fn a_post_that_is_refused_changes_nothing() {
    let world = world();
    let soft = world.soft.as_ref().expect("a software fabric");
    let (mut a, b) = pair(&world, &transfers_config());
    let (here, there) = (memory(&pattern(250, 1)), memory(&[0; 250]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    soft.fail("ibv_post_send", 1, Answer::returned(12).bad_wr(BadWr::Named));
    let refused = a.write(&local, lease.remote()).expect_err("the first of three requests");
    assert!(matches!(refused.kind, TransferErrorKind::Post(_, Some(errno)) if errno.0 == 12), "{refused}");
    assert!(refused.is_full() && refused.to_string().contains("refusedpost"), "{refused}");
    assert_eq!(a.pending().count(), 0);
    let (gone, weak) = {
        let other = memory(&pattern(250, 2));
        (view(&a, &other, ALL), other.downgrade().expect("owned bytes have a weak form"))
    };
    soft.fail("ibv_post_send", 1, Answer::returned(12).bad_wr(BadWr::Named));
    a.write(&gone, lease.remote()).expect_err("the first of three requests");
    drop(gone);
    assert!(weak.upgrade().is_err(), "the view was given back");
    let write = a.write(&local, lease.remote()).expect("the same again");
    succeed(&mut a, write);
    assert_eq!(content(&there), pattern(250, 1));
}

#[test]
fn an_operation_of_more_parts_than_the_send_queue_has_slots_is_refused_and_one_of_as_many_goes() {
    let world = world();
    let (mut a, b) = pair(&world, &transfers_config().depths(3, 4));
    let (here, there) = (memory(&pattern(301, 1)), memory(&[0; 301]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let limit = PlanRefused::TooLong { len_bytes: 301, limit_bytes: 300 };
    for refused in
        [a.write(&local, lease.remote()), a.write_with_imm(&local, lease.remote(), 1), a.read(&local, lease.remote())]
    {
        let refused = refused.expect_err("four parts");
        assert_eq!(refused.kind, TransferErrorKind::Refused(limit));
        assert!(!refused.is_full(), "waiting makes no room for it");
    }
    assert_eq!(a.pending().count(), 0);
    let (local, remote) = (local.part(0, 300).expect("within"), lease.remote().part(0, 300).expect("within"));
    let write = a.write(&local, &remote).expect("three parts");
    let refused = a.read(&local.part(0, 1).expect("within"), &remote.part(0, 1).expect("within"));
    let no_slots = NotStarted::NoSlots { free: 0, need: 1 };
    assert_eq!(refused.expect_err("all are taken").kind, TransferErrorKind::NotStarted(no_slots));
    succeed(&mut a, write);
    assert_eq!(content(&there)[..300], pattern(301, 1)[..300]);
}

#[test]
fn a_post_of_which_a_part_may_be_out_breaks_and_holds_its_memory() {
    let unnamed = [BadWr::NullNoneAccepted, BadWr::NullAllAccepted, BadWr::StrayAllAccepted];
    let one_of_three = [(2, BadWr::Named), (3, BadWr::Named), (2, BadWr::StrayAllAccepted)];
    let whole_and_first = unnamed.into_iter().flat_map(|named| [(100, 1, named), (250, 1, named)]);
    for (len, nth, named) in whole_and_first.chain(one_of_three.map(|(nth, named)| (250, nth, named))) {
        let world = world();
        let soft = world.soft.as_ref().expect("a software fabric");
        let (mut a, b) = pair(&world, &transfers_config());
        let (here, there) = (memory(&pattern(len, 1)), memory(&vec![0; len]));
        let weak = here.downgrade().expect("owned bytes have a weak form");
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        let before = a.write(&local.part(0, 9).expect("within"), &lease.remote().part(0, 9).expect("within"));
        let before = before.expect("posted");
        soft.fail("ibv_post_send", nth, Answer::returned(12).bad_wr(named));
        let refused = a.write(&local, lease.remote()).expect_err("a request of it");
        let TransferErrorKind::Broken { cause: cause @ Fault::PostUnknown { .. } } = refused.kind else {
            panic!("{refused}");
        };
        drop((here, local));
        assert!(weak.upgrade().is_ok(), "it may be out: {named:?}");
        assert_eq!(a.pending().collect::<Vec<_>>(), [before], "it was told of by its error");
        let mut ends = Vec::new();
        a.poll(|event| ends.push(event)).expect("the one before");
        let ended = |result| Event::Ended(Ended { operation: before, result });
        assert_eq!(ends, [ended(Ok(()))], "it had gone well");
        let broken = a.poll(|event| panic!("{event:?}")).expect_err("for good");
        assert_eq!(broken.kind, TransferErrorKind::Broken { cause });
        // All of it was out, and has completed; else nobody knows.
        let is_done = len == 100 && named != BadWr::NullNoneAccepted;
        assert_eq!(weak.upgrade().is_err(), is_done, "{named:?}, {len} bytes");
        drop(a);
        assert!(weak.upgrade().is_err());
    }
}

#[test]
fn lost_completions_end_every_operation_once_and_hold_its_memory() {
    let world = World::soft(Mode::Prompt);
    let soft = world.soft.as_ref().expect("a software fabric");
    let (mut a, b) = pair(&world, &transfers_config());
    let (here, there) = (memory(&pattern(64, 1)), memory(&[0; 64]));
    let weak = here.downgrade().expect("owned bytes have a weak form");
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let posted =
        [a.write(&local, lease.remote()), a.read(&local, lease.remote())].map(|posted| posted.expect("posted"));
    drop((here, local));
    soft.fail("ibv_poll_cq", 1, Answer::returned(-2));
    let mut ends = Vec::new();
    assert_eq!(a.poll(|event| ends.push(event)), Ok(2));
    let cause = Fault::Poll(PollError::Negative { returned: -2 });
    let broken = |operation| Event::Ended(Ended { operation, result: Err(OperationError::Broken { cause }) });
    assert_eq!(ends, posted.map(broken));
    assert!(weak.upgrade().is_ok(), "nothing tells that the device is done with it");
    let refused = a.poll(|event| panic!("told before: {event:?}"));
    // What comes late keeps the books only.
    assert_eq!(refused.expect_err("for good").kind, TransferErrorKind::Broken { cause });
    drop(a);
    assert!(weak.upgrade().is_err());
    drop(b);
}

#[test]
fn a_panic_of_the_callers_breaks_and_the_rest_is_told_once() {
    let world = World::soft(Mode::Prompt);
    let (mut a, b) = pair(&world, &transfers_config());
    let (here, there) = (memory(&pattern(64, 1)), memory(&[0; 64]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let posted = [(); 3].map(|()| a.write(&local, lease.remote()).expect("posted"));
    let poll = std::panic::AssertUnwindSafe(|| a.poll(|event| panic!("{event:?}")));
    std::panic::catch_unwind(poll).expect_err("the first event");
    let mut ends = Vec::new();
    a.poll(|event| ends.push(event)).expect("the other two");
    let cause = Fault::Abandoned;
    let broken = |operation| Event::Ended(Ended { operation, result: Err(OperationError::Broken { cause }) });
    assert_eq!(ends, [broken(posted[1]), broken(posted[2])]);
    let refused = a.write(&local, lease.remote()).expect_err("for good");
    assert_eq!(refused.kind, TransferErrorKind::NotStarted(NotStarted::Broken { cause }));
}
