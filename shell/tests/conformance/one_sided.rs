//! What queue pairs for one-sided operations do on every fabric: values, bounds, access, parts, guards, and a peer that is
//! gone.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bareverbs_core::one_sided::{Arrival, NotStarted, OperationId, PlanRefused};
use bareverbs_core::teardown_order::check;
use bareverbs_core::verbs::{AccessFlags, WcStatus};
use bareverbs_core::view::RemoteView;
use bareverbs_shell::memory::View;
use bareverbs_shell::one_sided::{Event, OperationError, TransferError, TransferErrorKind, Transfers, connect_pair};
use bareverbs_shell::soft::{Mode, SoftConfig, SoftDevice};
use bareverbs_shell::{Relax, Wait};

use crate::endpoints::Case;
use crate::scene::{
    ALL, End, IN_FLIGHT, at, content, finish, memory, number, pair, pattern, published, succeed, transfers_config, view,
};
use crate::world::{World, patiently};

macro_rules! cases {
    ($($name:ident)*) => {
        pub fn cases() -> Vec<Case> {
            vec![$((stringify!($name), $name)),*]
        }
    };
}

cases! {
    writes_and_reads_move_the_bytes_and_no_others
    a_write_with_immediate_data_arrives_with_its_number_after_its_bytes
    atomics_change_the_word_and_bring_what_it_was
    lengths_bounds_and_alignment_are_refused_before_posting
    a_view_of_another_domain_is_refused_before_posting
    without_reads_agreed_on_they_are_refused_and_writes_go
    access_that_was_not_given_ends_the_operation_and_all_behind_it_once
    what_the_local_view_does_not_permit_is_refused_before_posting
    a_withdrawn_view_cannot_be_reached
    as_many_as_may_be_in_flight_and_no_more
    above_the_largest_message_an_operation_is_split_and_ends_once
    an_error_on_any_part_is_the_operations
    a_guard_is_held_until_completion_whatever_becomes_of_the_handles
    a_guard_is_held_until_the_queue_pair_is_gone
    a_peer_that_is_gone_costs_the_deadline_and_the_end_can_be_dropped
    a_cancelled_wait_names_what_is_outstanding
    an_end_can_be_closed_at_every_stage
}

fn writes_and_reads_move_the_bytes_and_no_others(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&pattern(300, 1)), memory(&pattern(300, 2)));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let mut wanted = content(&there);
    for (from, to, len) in [(0, 0, 1), (3, 200, 100), (299, 0, 1), (0, 0, 300), (17, 5, 64)] {
        let part = local.part(from, len).expect("within");
        let write = a.write(&part, &at(lease.remote(), to, len)).expect("posted");
        succeed(&mut a, write);
        let (from, to, len) = (from as usize, to as usize, len as usize);
        wanted[to..to + len].copy_from_slice(&content(&here)[from..from + len]);
        assert_eq!(content(&there), wanted);
    }
    let mut wanted = content(&here);
    for (from, to, len) in [(9, 0, 1), (200, 3, 100), (0, 299, 1), (5, 17, 64)] {
        let part = local.part(to, len).expect("within");
        let read = a.read(&part, &at(lease.remote(), from, len)).expect("posted");
        succeed(&mut a, read);
        let (from, to, len) = (from as usize, to as usize, len as usize);
        wanted[to..to + len].copy_from_slice(&content(&there)[from..from + len]);
        assert_eq!(content(&here), wanted);
    }
}

fn a_write_with_immediate_data_arrives_with_its_number_after_its_bytes(world: &World) {
    let (mut a, mut b) = pair(world, &transfers_config());
    let there = memory(&[0; 64]);
    let lease = published(&b, &there, ALL);
    // More than the receives that are posted: each is replaced.
    for round in 0..10u8 {
        let here = memory(&pattern(64, round));
        let local = view(&a, &here, ALL);
        let immediate = 0xA0B0_C0D0 + u32::from(round);
        let write = a.write_with_imm(&local, lease.remote(), immediate).expect("posted");
        let mut came = Vec::new();
        while came.is_empty() {
            b.wait(&patiently(), |event| came.push(event)).expect("it comes");
        }
        assert_eq!(came, [Event::Arrived(Arrival { immediate, len_bytes: 64 })]);
        assert_eq!(content(&there), pattern(64, round));
        succeed(&mut a, write);
    }
}

fn atomics_change_the_word_and_bring_what_it_was(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    assert_ne!(a.atomics().0, 0, "soft-RoCE and the software fabric have atomics");
    let start = 0xFFFF_FFFF_FFFF_FFFEu64;
    let (here, there) = (memory(&[9; 24]), memory(&[[7; 8], start.to_ne_bytes(), [7; 8]].concat()));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let (answer, word) = (local.part(8, 8).expect("within"), at(lease.remote(), 8, 8));
    let add = a.fetch_add(&answer, &word, 5).expect("posted");
    succeed(&mut a, add);
    assert_eq!((number(&here, 8), number(&there, 8)), (start, 3), "the sum wraps");
    let swap = a.compare_swap(&answer, &word, 3, 40).expect("posted");
    succeed(&mut a, swap);
    assert_eq!((number(&here, 8), number(&there, 8)), (3, 40));
    let not = a.compare_swap(&answer, &word, 3, 50).expect("posted");
    succeed(&mut a, not);
    assert_eq!((number(&here, 8), number(&there, 8)), (40, 40), "it was another: nothing is stored");
    assert_eq!((content(&here)[..8].to_vec(), content(&here)[16..].to_vec()), (vec![9; 8], vec![9; 8]));
    assert_eq!((content(&there)[..8].to_vec(), content(&there)[16..].to_vec()), (vec![7; 8], vec![7; 8]));
}

fn lengths_bounds_and_alignment_are_refused_before_posting(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&pattern(64, 1)), memory(&[0; 64]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let remote = lease.remote();
    assert!(local.part(1, 64).is_err() && remote.part(1, 64).is_err() && remote.part(u64::MAX, 2).is_err());
    let part = local.part(0, 63).expect("within");
    let refused = a.write(&part, remote).expect_err("one byte less here");
    let lengths = PlanRefused::Lengths { local_bytes: 63, remote_bytes: 64 };
    assert_eq!(refused.kind, TransferErrorKind::Refused(lengths));
    let text = refused.to_string();
    assert!(
        text.contains("the other end") && text.contains(world.device()) && text.contains("63 bytes here"),
        "{text}"
    );
    let odd = a.fetch_add(&local.part(0, 8).expect("within"), &at(remote, 4, 8), 1).expect_err("not aligned");
    assert!(matches!(odd.kind, TransferErrorKind::Refused(PlanRefused::AtomicAlignment { .. })), "{odd}");
    let long = a.compare_swap(&local, remote, 1, 2).expect_err("64 bytes");
    assert_eq!(long.kind, TransferErrorKind::Refused(PlanRefused::AtomicLength { got_bytes: 64 }));
    assert_eq!(a.pending().count(), 0);
    let write = a.write(&local, remote).expect("a refusal changed nothing");
    succeed(&mut a, write);
    assert_eq!(content(&there), pattern(64, 1));
}

fn a_view_of_another_domain_is_refused_before_posting(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&[0; 8]), memory(&[0; 8]));
    let (foreign, lease) = (view(&b, &here, ALL), published(&b, &there, ALL));
    let refused = a.read(&foreign, lease.remote()).expect_err("the other end's domain");
    assert_eq!(refused.kind, TransferErrorKind::ForeignView);
    assert_eq!(a.pending().count(), 0);
    // In one domain both can use it.
    let mut c = End::in_domain(b.domain().expect("not closed"), transfers_config()).expect("a queue pair");
    let mut d = End::new(&world.open(), transfers_config()).expect("a queue pair");
    connect_pair(&mut c, &mut d).expect("both are in INIT");
    let target = memory(&[1; 8]);
    let write = c.write(&foreign, published(&d, &target, ALL).remote()).expect("posted");
    succeed(&mut c, write);
    assert_eq!(content(&target), [0; 8]);
}

fn without_reads_agreed_on_they_are_refused_and_writes_go(world: &World) {
    let mut none = transfers_config();
    none.queue_pair.max_rd_atomic = 0;
    for (of_a, of_b) in [(&none, &transfers_config()), (&transfers_config(), &none)] {
        let mut a = End::new(&world.open(), of_a.clone()).expect("a queue pair");
        let mut b = End::new(&world.open(), of_b.clone()).expect("a queue pair");
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        let (here, there) = (memory(&[5; 8]), memory(&[0; 8]));
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        let refused = [
            a.read(&local, lease.remote()),
            a.fetch_add(&local, lease.remote(), 1),
            a.compare_swap(&local, lease.remote(), 0, 1),
        ];
        for refused in refused {
            assert_eq!(refused.expect_err("none").kind, TransferErrorKind::Refused(PlanRefused::NoReads));
        }
        let write = a.write(&local, lease.remote()).expect("posted");
        succeed(&mut a, write);
        assert_eq!(content(&there), [5; 8]);
    }
}

fn access_that_was_not_given_ends_the_operation_and_all_behind_it_once(world: &World) {
    let read_only = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    let write_only = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    type Begin = fn(&mut End, &View, &RemoteView) -> Result<OperationId, TransferError>;
    let cases: [(AccessFlags, Begin); 3] = [
        (read_only, |end, local, remote| end.write(local, remote)),
        (write_only, |end, local, remote| end.read(local, remote)),
        (read_only, |end, local, remote| end.fetch_add(local, remote, 1)),
    ];
    for (access, begin) in cases {
        let (mut a, b) = pair(world, &transfers_config());
        let (here, there) = (memory(&[3; 8]), memory(&[4; 8]));
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, access));
        begin(&mut a, &local, lease.remote()).expect("posted");
        for _ in 0..2 {
            // Not taken any more where the failure was seen already.
            let _ = a.write(&local, lease.remote());
        }
        let pending: Vec<_> = a.pending().collect();
        let ends = finish(&mut a);
        assert_eq!(ends.iter().map(|end| end.0).collect::<Vec<_>>(), pending, "each once, in order");
        let Err(OperationError::Failed(failure)) = ends[0].1 else { panic!("{ends:?}") };
        assert_eq!(failure.status, WcStatus::REM_ACCESS_ERR);
        assert!(ends.iter().all(|end| end.1.is_err()), "{ends:?}");
        let broken = a.poll(|event| panic!("told before: {event:?}")).expect_err("for good");
        assert!(matches!(broken.kind, TransferErrorKind::Broken { .. }), "{broken}");
        let refused = a.write(&local, lease.remote()).expect_err("for good");
        assert!(matches!(refused.kind, TransferErrorKind::NotStarted(NotStarted::Broken { .. })), "{refused}");
        assert_eq!(content(&there), [4; 8]);
    }
}

fn what_the_local_view_does_not_permit_is_refused_before_posting(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&[3; 8]), memory(&[4; 8]));
    // The own region does not let the own device write: what comes back could not land.
    let (local, lease) = (view(&a, &here, AccessFlags::empty()), published(&b, &there, ALL));
    let remote = lease.remote();
    for refused in [a.read(&local, remote), a.fetch_add(&local, remote, 1), a.compare_swap(&local, remote, 4, 5)] {
        let (needs, has) = (AccessFlags::LOCAL_WRITE, AccessFlags::empty());
        let refused = refused.expect_err("nothing can land");
        assert_eq!(refused.kind, TransferErrorKind::LocalAccess { needs, has });
        assert!(refused.to_string().contains("LOCAL_WRITE"), "{refused}");
    }
    assert_eq!((a.pending().count(), content(&here), content(&there)), (0, vec![3; 8], vec![4; 8]));
    let write = a.write(&local, remote).expect("its bytes may be read");
    succeed(&mut a, write);
    assert_eq!(content(&there), [3; 8]);
}

fn a_withdrawn_view_cannot_be_reached(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let here = memory(&[3; 8]);
    let local = view(&a, &here, ALL);
    let there = memory(&[4; 8]);
    let lease = published(&b, &there, ALL);
    let (remote, acknowledgement) = (*lease.remote(), lease.acknowledgement());
    lease.withdraw();
    drop(there);
    let write = a.write(&local, &remote).expect("posted");
    succeed(&mut a, write);
    acknowledgement.came();
    let late = a.write(&local, &remote).expect("numbers do not tell");
    let ends = finish(&mut a);
    let [(told, Err(OperationError::Failed(failure)))] = ends[..] else { panic!("{ends:?}") };
    assert_eq!((told, failure.status), (late, WcStatus::REM_ACCESS_ERR));
}

fn as_many_as_may_be_in_flight_and_no_more(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&pattern(16, 3)), memory(&[0; 16]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let part = |n: usize| local.part(n as u64, 1).expect("within");
    let posted: Vec<_> =
        (0..IN_FLIGHT).map(|n| a.write(&part(n), &at(lease.remote(), n as u64, 1)).expect("room")).collect();
    let full = a.write(&part(8), &at(lease.remote(), 8, 1)).expect_err("one too many");
    assert_eq!(full.kind, TransferErrorKind::NotStarted(NotStarted::Full { operations: IN_FLIGHT }));
    assert!(full.is_full());
    let ends = finish(&mut a);
    assert_eq!(ends, posted.iter().map(|operation| (*operation, Ok(()))).collect::<Vec<_>>());
    let write = a.write(&part(8), &at(lease.remote(), 8, 1)).expect("the same, later");
    succeed(&mut a, write);
    assert_eq!(content(&there)[..9], pattern(16, 3)[..9]);
}

fn above_the_largest_message_an_operation_is_split_and_ends_once(world: &World) {
    with_small_messages(world, split_on);
}

fn an_error_on_any_part_is_the_operations(world: &World) {
    with_small_messages(world, fails_in_part);
}

/// On a software fabric of the case's own, whose largest message is of 1000 bytes; a system's are as large as they are.
fn with_small_messages(world: &World, case: fn(&World)) {
    if world.soft.is_none() {
        return case(world);
    }
    for mode in [Mode::Prompt, Mode::Adversarial { seed: 1 }, Mode::Adversarial { seed: 2 }] {
        let device = SoftDevice::new("soft0").max_message_bytes(1000);
        let small = World::of_config(SoftConfig::default().devices(vec![device]).mode(mode), "small messages");
        case(&small);
        small.assert_clean();
    }
}

/// Two whole messages and a byte; soft-RoCE's are of 8 MiB.
fn split_on(world: &World) {
    let (mut a, mut b) = pair(world, &transfers_config());
    let most = a.limits().max_message_bytes as usize;
    let len = 2 * most + 1;
    let (here, there) = (memory(&pattern(len, 1)), memory(&vec![0; len]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let write = a.write_with_imm(&local, lease.remote(), 77).expect("three parts");
    assert_eq!(a.pending().collect::<Vec<_>>(), [write]);
    let mut came = Vec::new();
    b.wait(&patiently(), |event| came.push(event)).expect("it comes");
    assert_eq!(came, [Event::Arrived(Arrival { immediate: 77, len_bytes: 1 })], "with the last part only");
    succeed(&mut a, write);
    assert!(content(&there) == pattern(len, 1));
    let back = memory(&vec![0; len]);
    let landing = view(&a, &back, ALL);
    let read = a.read(&landing, lease.remote()).expect("three parts");
    succeed(&mut a, read);
    assert!(content(&back) == pattern(len, 1));
}

/// Three parts, of which the second, or the third, is not the other end's to give.
fn fails_in_part(world: &World) {
    for registered_parts in [1, 2] {
        let (mut a, b) = pair(world, &transfers_config());
        let most = a.limits().max_message_bytes as usize;
        let len = 2 * most + 1;
        let (here, there) = (memory(&pattern(len, 1)), memory(&vec![0; registered_parts * most]));
        let weak = here.downgrade().expect("owned bytes have a weak form");
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        // As a peer says that does not tell the truth.
        let (base, rkey) = (lease.remote().key_addr(), lease.remote().rkey());
        let claimed = RemoteView::new(base, len as u64, rkey, *lease.remote().device()).expect("a range");
        let write = a.write_with_imm(&local, &claimed, 7).expect("three parts");
        drop((here, local));
        let ends = finish(&mut a);
        let [(told, Err(OperationError::Failed(failure)))] = ends[..] else { panic!("{ends:?}") };
        assert_eq!((told, failure.status), (write, WcStatus::REM_ACCESS_ERR));
        assert!(content(&there)[..most] == pattern(len, 1)[..most], "what went before it is there");
        drop(a);
        assert!(weak.upgrade().is_err(), "all parts are done with");
    }
}

fn a_guard_is_held_until_completion_whatever_becomes_of_the_handles(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let there = memory(&[0; 64]);
    let lease = published(&b, &there, ALL);
    let here = memory(&pattern(64, 9));
    let weak = here.downgrade().expect("owned bytes have a weak form");
    let local = view(&a, &here, ALL);
    // The operation's name is not kept, and no handle is.
    a.write(&local, lease.remote()).expect("posted");
    drop((here, local));
    assert!(weak.upgrade().is_ok(), "in flight: its memory is mapped");
    if let Some(soft) = &world.soft {
        assert_eq!(soft.live().mrs, 2, "and registered");
    }
    assert_eq!(finish(&mut a).len(), 1);
    assert!(weak.upgrade().is_err(), "given back with its completion");
    if let Some(soft) = &world.soft {
        assert_eq!(soft.live().mrs, 1);
    }
    assert_eq!(content(&there), pattern(64, 9));
}

fn a_guard_is_held_until_the_queue_pair_is_gone(world: &World) {
    for close in [false, true] {
        let (mut a, b) = pair(world, &transfers_config());
        let there = memory(&[0; 64]);
        let lease = published(&b, &there, ALL);
        let here = memory(&pattern(64, 9));
        let weak = here.downgrade().expect("owned bytes have a weak form");
        let local = view(&a, &here, ALL);
        a.read(&local, lease.remote()).expect("posted");
        drop((here, local));
        // Nobody polls: nothing tells that it is done.
        assert!(weak.upgrade().is_ok());
        if close {
            let told = a.close().expect("nothing refuses");
            assert_eq!(check(told.quiesced, told.done()), Ok(()));
        } else {
            drop(a);
        }
        assert!(weak.upgrade().is_err(), "nothing is left");
        if let Some(soft) = &world.soft {
            assert_eq!((soft.live().qps, soft.live().mrs), (1, 1), "the other end's");
        }
    }
}

fn a_peer_that_is_gone_costs_the_deadline_and_the_end_can_be_dropped(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&[1; 64]), memory(&[0; 64]));
    let weak = here.downgrade().expect("owned bytes have a weak form");
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let remote = *lease.remote();
    drop((b, lease, there));
    let operation = a.write(&local, &remote).expect("posted");
    drop((here, local));
    let mut ends = Vec::new();
    let limit = Duration::from_millis(200);
    let waited = a.wait_for_all(&Wait::at_most(limit).relax(Relax::Yield), |event| ends.push(event));
    match waited {
        Ok(_) => {
            // The device gave up before the deadline.
            let [Event::Ended(ended)] = ends[..] else { panic!("{ends:?}") };
            assert!(ended.operation == operation && ended.result.is_err(), "{ended:?}");
        }
        Err(error) => {
            let TransferErrorKind::Timeout { waited, pending, .. } = &error.kind else { panic!("{error}") };
            assert!(*waited >= limit && *pending == [operation], "{error}");
            assert!(error.to_string().contains("the other end"), "{error}");
            assert!(weak.upgrade().is_ok(), "still held");
        }
    }
    drop(a);
    assert!(weak.upgrade().is_err());
}

fn a_cancelled_wait_names_what_is_outstanding(world: &World) {
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&[1; 64]), memory(&[0; 64]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let cancel = AtomicBool::new(true);
    let wait = patiently().cancelled_by(&cancel);
    let nothing = a.wait(&wait, |event| panic!("{event:?}")).expect_err("cancelled");
    assert_eq!(nothing.kind, TransferErrorKind::Cancelled { pending: Vec::new() });
    let operation = a.write(&local, lease.remote()).expect("posted");
    assert_eq!(a.pending().collect::<Vec<_>>(), [operation]);
    succeed(&mut a, operation);
}

fn an_end_can_be_closed_at_every_stage(world: &World) {
    let closed = |end: Transfers<IN_FLIGHT>| {
        let told = end.close().expect("nothing refuses");
        assert_eq!(check(told.quiesced, told.done()), Ok(()));
        assert_eq!(told.not_drained, None);
    };
    let fresh = || End::new(&world.open(), transfers_config()).expect("a queue pair");
    closed(fresh());
    let mut half = fresh();
    let other = fresh();
    half.connect(&other.destination(), half.path_mtu(), 1).expect("it is in INIT");
    closed(half);
    closed(other);
    let (a, b) = pair(world, &transfers_config());
    closed(b);
    closed(a);
    let (mut a, b) = pair(world, &transfers_config());
    let (here, there) = (memory(&[1; 64]), memory(&[0; 64]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    for _ in 0..IN_FLIGHT {
        a.write(&local, lease.remote()).expect("room");
    }
    closed(b);
    closed(a);
}
