//! Waits for one-sided operations that sleep, and what the device reports on its own: whoever waits, and however, is told before
//! the deadline; and what a library makes up holds nobody up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bareverbs_core::link::Fault;
use bareverbs_core::one_sided::Arrival;
use bareverbs_core::teardown_order::{Step, check};
use bareverbs_core::verbs::EventType;
use bareverbs_shell::endpoint::Waking;
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::one_sided::{Ended, Event, OperationError, TransferErrorKind, connect_pair};
use bareverbs_shell::soft::{Answer, LiveCounts, Mode, Record, SoftConfig, SoftFabric};
use bareverbs_shell::{Relax, Wait};

use crate::device_events::{arrive_on_arming, until_it_sleeps};
use crate::drop_log;
use crate::ledger::calls_of;
use crate::scene::{ALL, End, memory, pattern, published, transfers_config, view};
use crate::world::PATIENCE;
use crate::wrapped::{
    made_up_completion_events, on_arming, script_empty_completion_event, script_endless_events, script_event,
    script_made_up_completion_events, wrap,
};

const WAKINGS: [Waking; 2] = [Waking::Polling, Waking::Events];

fn fabric(mode: Mode) -> SoftFabric {
    drop_log::keep();
    SoftFabric::new(SoftConfig::default().mode(mode).record(Record::Bounded(100_000))).expect("a free slot")
}

fn open(soft: &SoftFabric) -> Arc<DeviceContext> {
    DeviceContext::open(&soft.symbols(), None).expect("the device")
}

fn pair(context: &Arc<DeviceContext>, waking: Waking) -> (End, End) {
    let end = || End::new(context, transfers_config().waking(waking)).expect("a queue pair");
    let (mut a, mut b) = (end(), end());
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    (a, b)
}

fn broken(event: EventType) -> TransferErrorKind {
    TransferErrorKind::Broken { cause: Fault::Device { event } }
}

/// Waits with all patience: what ends the wait, which must not be its deadline.
fn before_the_deadline(end: &mut End) -> TransferErrorKind {
    let began = Instant::now();
    let ended = end.wait(&Wait::at_most(PATIENCE), |event| panic!("{event:?}")).expect_err("nothing comes");
    assert!(began.elapsed() < PATIENCE, "it went to its deadline: {ended}");
    ended.kind
}

#[test]
fn a_wait_that_spins_polls_as_often_at_once_and_one_that_sleeps_or_has_news_polls_once() {
    for relax in [Relax::Busy, Relax::Spin] {
        let soft = fabric(Mode::Prompt);
        let context = open(&soft);
        let polls_of = |end: &mut End, time| {
            soft.clear_record();
            let told =
                end.wait(&Wait::at_most(time).relax(relax), |event| panic!("{event:?}")).expect_err("nothing comes");
            (calls_of(&soft.record(), "ibv_poll_cq"), told.kind)
        };
        let (_a, mut asleep) = pair(&context, Waking::Events);
        assert_eq!(polls_of(&mut asleep, Duration::ZERO).0, 1, "{relax:?}, before its deadline is looked at");
        let (_a, mut b) = pair(&context, Waking::Polling);
        let (polls, told) = polls_of(&mut b, Duration::ZERO);
        assert!(matches!(told, TransferErrorKind::Timeout { .. }), "{told:?}");
        assert_eq!(polls, 256, "{relax:?}");
        soft.device_fatal("soft0");
        context.take_events().expect("one");
        let told = polls_of(&mut b, PATIENCE);
        assert_eq!(told, (1, broken(EventType::DEVICE_FATAL)), "{relax:?}: nothing is to be waited for");
    }
}

#[test]
fn an_end_or_an_arrival_wakes_a_wait_that_sleeps() {
    let soft = fabric(Mode::Stepped);
    let context = open(&soft);
    let (mut a, mut b) = pair(&context, Waking::Events);
    let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let mut came = Vec::new();
    for (waits_at_the_writer, immediate) in [(true, 5), (false, 6)] {
        let write = a.write_with_imm(&local, lease.remote(), immediate).expect("posted");
        soft.clear_record();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until_it_sleeps(&soft);
                while let [step, ..] = soft.steps()[..] {
                    soft.take(step);
                }
            });
            let began = Instant::now();
            let end = if waits_at_the_writer { &mut a } else { &mut b };
            let wait = Wait::at_most(PATIENCE);
            assert_eq!(end.wait(&wait, |event| came.push(event)), Ok(1));
            assert!(began.elapsed() < PATIENCE);
        });
        let ended = Event::Ended(Ended { operation: write, result: Ok(()) });
        let arrived = |immediate| Event::Arrived(Arrival { immediate, len_bytes: 8 });
        if waits_at_the_writer {
            assert_eq!(came, [ended]);
            came.clear();
            b.poll(|event| came.push(event)).expect("nothing fails");
            assert_eq!(came, [arrived(5)]);
        } else {
            assert_eq!(came, [arrived(6)]);
        }
        came.clear();
    }
    soft.run_freely();
    for end in [a, b] {
        // An event that was not acknowledged would block the queue's destruction for ever.
        let told = end.close().expect("nothing refuses");
        assert_eq!(check(told.quiesced, told.done()), Ok(()));
        assert!(told.done().any(|step| step == Step::CompletionChannel), "{:?}", told.steps);
    }
}

#[test]
fn what_comes_before_the_queue_is_armed_ends_a_wait_without_sleep() {
    // Without events of the device nothing else ends a sleep early.
    let config = SoftConfig::default().mode(Mode::Stepped).without("ibv_get_async_event");
    let soft = SoftFabric::new(config).expect("a free slot");
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let (mut a, mut b) = pair(&context, Waking::Events);
    let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    for waits_at_the_writer in [true, false] {
        let write = a.write_with_imm(&local, lease.remote(), 5).expect("posted");
        arrive_on_arming(&soft);
        let (limit, began) = (Duration::from_secs(10), Instant::now());
        let (waits, other) = if waits_at_the_writer { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let mut came = Vec::new();
        let count = waits.wait(&Wait::at_most(limit), |event| came.push(event));
        on_arming(None);
        assert!(began.elapsed() < limit, "it slept, to its deadline");
        let ended = Event::Ended(Ended { operation: write, result: Ok(()) });
        let arrived = Event::Arrived(Arrival { immediate: 5, len_bytes: 8 });
        assert_eq!((count, came), (Ok(1), vec![if waits_at_the_writer { ended } else { arrived }]));
        assert_eq!(other.poll(|_| ()), Ok(1));
    }
    soft.run_freely();
}

#[test]
fn a_wait_that_sleeps_ends_at_its_deadline_and_names_what_is_outstanding() {
    let soft = fabric(Mode::Stepped);
    let context = open(&soft);
    let (mut a, b) = pair(&context, Waking::Events);
    let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let write = a.write(&local, lease.remote()).expect("posted");
    let (limit, began) = (Duration::from_millis(50), Instant::now());
    let told = a.wait_for_all(&Wait::at_most(limit), |event| panic!("{event:?}")).expect_err("nothing moves");
    assert!(began.elapsed() >= limit);
    let TransferErrorKind::Timeout { waited, pending, .. } = told.kind else { panic!("{told}") };
    assert!(waited >= limit && pending == [write], "{pending:?}");
    soft.run_freely();
    assert_eq!(a.wait_for_all(&Wait::at_most(PATIENCE), |_| ()), Ok(1), "it goes on");
}

#[test]
fn a_flag_ends_a_wait_that_sleeps() {
    let soft = fabric(Mode::Prompt);
    let context = open(&soft);
    let (_a, mut b) = pair(&context, Waking::Events);
    soft.clear_record();
    let flag = AtomicBool::new(false);
    let (mut told, began) = (None, Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_it_sleeps(&soft);
            flag.store(true, Ordering::Relaxed);
        });
        told = b.wait(&Wait::at_most(PATIENCE).cancelled_by(&flag), |_| ()).err();
    });
    assert_eq!(told.map(|told| told.kind), Some(TransferErrorKind::Cancelled { pending: Vec::new() }));
    assert!(began.elapsed() < PATIENCE, "it slept on to its deadline");
}

#[test]
fn a_device_that_fails_ends_every_operation_and_the_wait_before_its_deadline() {
    for waking in WAKINGS {
        let soft = fabric(Mode::Stepped);
        let context = open(&soft);
        let (mut a, mut b) = pair(&context, waking);
        let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        let write = a.write(&local, lease.remote()).expect("posted");
        soft.clear_record();
        let mut ends = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if waking == Waking::Events {
                    until_it_sleeps(&soft);
                }
                soft.device_fatal("soft0");
            });
            let began = Instant::now();
            a.wait_for_all(&Wait::at_most(PATIENCE), |event| ends.push(event)).expect("ends come first");
            assert!(began.elapsed() < PATIENCE, "{waking:?}");
        });
        let cause = Fault::Device { event: EventType::DEVICE_FATAL };
        let result = Err(OperationError::Broken { cause });
        assert_eq!(ends, [Event::Ended(Ended { operation: write, result })], "{waking:?}");
        for end in [&mut a, &mut b] {
            assert_eq!(before_the_deadline(end), broken(EventType::DEVICE_FATAL), "{waking:?}: for good");
            assert_eq!(end.poll(|_| ()).expect_err("for good").kind, broken(EventType::DEVICE_FATAL));
        }
        drop((a, b, local, lease, here, there, context));
        assert_eq!((soft.live(), soft.misuse()), (LiveCounts::default(), Vec::new()), "{waking:?}");
    }
}

#[test]
fn a_wait_that_sleeps_hears_of_what_another_thread_has_taken() {
    let soft = fabric(Mode::Prompt);
    let context = open(&soft);
    let (_a, mut b) = pair(&context, Waking::Events);
    soft.clear_record();
    let taker = Arc::clone(&context);
    let mut told = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_it_sleeps(&soft);
            soft.device_fatal("soft0");
            taker.take_events().expect("if it is the first to see it");
        });
        told = Some(before_the_deadline(&mut b));
    });
    assert_eq!(told, Some(broken(EventType::DEVICE_FATAL)));
}

#[test]
fn at_its_deadline_a_wait_hears_the_device_before_it_blames_the_peer() {
    for waking in WAKINGS {
        let soft = fabric(Mode::Prompt);
        let context = open(&soft);
        let (_a, mut b) = pair(&context, waking);
        soft.device_fatal("soft0");
        let told = b.wait(&Wait::at_most(Duration::ZERO), |_| ()).expect_err("nothing comes");
        assert_eq!(told.kind, broken(EventType::DEVICE_FATAL), "{waking:?}");
    }
}

#[test]
fn a_failed_queue_or_queue_pair_breaks_its_end_in_either_way_of_waiting_and_no_other() {
    for (waking, event) in WAKINGS.into_iter().flat_map(|waking| {
        [EventType::QP_FATAL, EventType::QP_ACCESS_ERR, EventType::CQ_ERR].map(|event| (waking, event))
    }) {
        let soft = fabric(Mode::Prompt);
        let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
        let (mut a, mut b) = pair(&context, waking);
        script_event(event);
        assert_eq!(before_the_deadline(&mut b), broken(event), "{waking:?}");
        assert_eq!(b.poll(|_| ()).expect_err("for good").kind, broken(event));
        assert_eq!(a.poll(|_| ()), Ok(0), "the other one's is as it was");
    }
}

#[test]
fn a_library_that_makes_up_events_holds_a_wait_up_no_longer_than_its_deadline() {
    const MADE_UP: u32 = 10_000_000;
    for waking in WAKINGS {
        let soft = fabric(Mode::Prompt);
        let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
        let (mut a, mut b) = pair(&context, waking);
        let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
        let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
        let told = b.wait(&Wait::at_most(Duration::from_millis(1)), |_| ()).expect_err("nothing comes; it is armed");
        assert!(matches!(told.kind, TransferErrorKind::Timeout { .. }), "{told}");
        script_endless_events(Some(EventType::PORT_ACTIVE));
        // Something comes, so that the channel's file is readable, and cannot be polled.
        soft.fail_from("ibv_poll_cq", 1, Answer::nothing());
        a.write_with_imm(&local, lease.remote(), 1).expect("posted");
        script_made_up_completion_events(MADE_UP);
        let told = b.wait(&Wait::at_most(Duration::from_millis(50)), |_| ()).expect_err("nothing can be polled");
        assert!(matches!(told.kind, TransferErrorKind::Timeout { .. }), "{waking:?}: {told}");
        let taken = MADE_UP - made_up_completion_events();
        assert!(taken < MADE_UP && (taken > 0) == (waking == Waking::Events), "{waking:?}: {taken} were taken");
        script_made_up_completion_events(0);
        script_endless_events(None);
        soft.clear_plan();
        drop((a, b, local, lease, here, there, context));
        assert_eq!((soft.live(), soft.misuse()), (LiveCounts::default(), Vec::new()));
    }
}

#[test]
fn a_completion_event_that_names_no_queue_is_an_error() {
    let soft = fabric(Mode::Prompt);
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let (mut a, mut b) = pair(&context, Waking::Events);
    let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
    let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    b.wait(&Wait::at_most(Duration::from_millis(1)), |_| ()).expect_err("nothing comes; it is armed");
    soft.fail_from("ibv_poll_cq", 1, Answer::nothing());
    script_empty_completion_event();
    a.write_with_imm(&local, lease.remote(), 1).expect("posted");
    let told = b.wait(&Wait::at_most(PATIENCE), |_| ()).expect_err("the library lies");
    assert!(
        matches!(&told.kind, TransferErrorKind::Sleep(error) if error.to_string().contains("ibv_get_cq_event")),
        "{told}"
    );
    soft.clear_plan();
    assert_eq!(calls_of(&soft.record(), "ibv_destroy_cq"), 0);
}

#[test]
fn what_goes_wrong_with_a_device_ends_in_every_handle_released_once() {
    let data_path = ["ibv_post_send", "ibv_post_recv", "ibv_poll_cq", "ibv_modify_qp"];
    let refuse = |soft: &SoftFabric, errno| {
        for symbol in data_path {
            soft.fail_from(symbol, 1, Answer::returned(errno));
        }
    };
    for waking in WAKINGS {
        let failures: [&dyn Fn(&SoftFabric); 3] =
            [&|soft| soft.device_fatal("soft0"), &|soft| refuse(soft, libc::EIO), &|soft| refuse(soft, libc::ENODEV)];
        for (nth, fail) in failures.into_iter().enumerate() {
            let soft = fabric(Mode::Prompt);
            let context = open(&soft);
            let (mut a, b) = pair(&context, waking);
            let (here, there) = (memory(&pattern(8, 1)), memory(&[0; 8]));
            let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
            let weak = here.downgrade().expect("owned bytes have a weak form");
            a.write(&local, lease.remote()).expect("posted");
            fail(&soft);
            a.write(&local, lease.remote()).expect_err("the device has failed");
            drop((here, local));
            assert!(weak.upgrade().is_ok(), "nobody has said that it is done");
            let told = a.close().expect("whatever can be destroyed is");
            assert!(told.failure().is_none() && weak.upgrade().is_err(), "{told:?}");
            drop((b, lease, there, context));
            assert_eq!((soft.live(), soft.misuse()), (LiveCounts::default(), Vec::new()), "{waking:?}, failure {nth}");
        }
    }
}
