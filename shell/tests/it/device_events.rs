//! What a device reports on its own breaks the links that it concerns, whoever waits and however; and what a library makes up
//! holds nobody up.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bareverbs_core::link::{Fault, Immediate, LinkError};
use bareverbs_core::verbs::{EventType, Wc};
use bareverbs_shell::endpoint::{
    Endpoint, EndpointConfig, EndpointErrorKind, Event, Frames, MessageEndpoint, Waking, connect_pair,
};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::objects::events::About;
use bareverbs_shell::soft::{Answer, LiveCounts, Mode, Record, SoftConfig, SoftFabric};
use bareverbs_shell::wait::Clock;
use bareverbs_shell::{Error, Relax, Wait};

use crate::drop_log;
use crate::ledger::calls_of;
use crate::world::{PATIENCE, config, without_credits};
use crate::wrapped::{
    Spoiled, made_up_completion_events, on_arming, on_making_a_queue, script_empty_completion_event,
    script_empty_event, script_endless_events, script_event, script_made_up_completion_events, script_poll, sends,
    spoil, wrap,
};

type End = Endpoint<Immediate, 8, 8>;

const WAKINGS: [Waking; 2] = [Waking::Polling, Waking::Events];

fn fabric() -> SoftFabric {
    drop_log::keep();
    SoftFabric::new(SoftConfig::default().record(Record::Bounded(100_000))).expect("a free slot")
}

fn open(soft: &SoftFabric) -> Arc<DeviceContext> {
    DeviceContext::open(&soft.symbols(), None).expect("the device")
}

fn pair(context: &Arc<DeviceContext>, config: &EndpointConfig) -> (End, End) {
    let end = || End::new(context, Immediate, config.clone(), Frames::Owned).expect("an end");
    let (mut a, mut b) = (end(), end());
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    (a, b)
}

fn fault(event: EventType) -> EndpointErrorKind {
    EndpointErrorKind::Link(LinkError::Fault(Fault::Device { event }))
}

fn broken(event: EventType) -> EndpointErrorKind {
    EndpointErrorKind::Link(LinkError::Broken { cause: Fault::Device { event } })
}

/// Waits with all patience: what ends the wait, which must not be its deadline.
fn before_the_deadline(end: &mut End) -> EndpointErrorKind {
    let began = Instant::now();
    let ended = end.wait(&Wait::at_most(PATIENCE), |_| ()).expect_err("nobody sends");
    assert!(began.elapsed() < PATIENCE, "it went to its deadline: {ended}");
    ended.kind
}

/// Returns when a thread is about to sleep on a completion channel, or sleeps.
pub fn until_it_sleeps(soft: &SoftFabric) {
    let deadline = Instant::now() + PATIENCE;
    while calls_of(&soft.record(), "ibv_req_notify_cq") == 0 {
        assert!(Instant::now() < deadline, "nobody goes to sleep");
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_device_that_fails_ends_a_wait_that_polls_and_one_that_sleeps_before_their_deadlines() {
    for waking in WAKINGS {
        let soft = fabric();
        let context = open(&soft);
        let (_a, mut b) = pair(&context, &config().waking(waking));
        soft.clear_record();
        let mut told = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if waking == Waking::Events {
                    until_it_sleeps(&soft);
                }
                soft.device_fatal("soft0");
            });
            told = Some(before_the_deadline(&mut b));
        });
        assert_eq!(told, Some(fault(EventType::DEVICE_FATAL)), "{waking:?}");
        assert_eq!(before_the_deadline(&mut b), broken(EventType::DEVICE_FATAL), "{waking:?}: for good");
        assert_eq!(b.poll(|_| ()).expect_err("for good").kind, broken(EventType::DEVICE_FATAL));
    }
}

#[test]
fn a_wait_that_sleeps_hears_of_what_another_thread_has_taken() {
    let soft = fabric();
    let context = open(&soft);
    let (_a, mut b) = pair(&context, &config().waking(Waking::Events));
    soft.clear_record();
    // Taken before it sleeps: its file does not wake it.
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
    assert_eq!(told, Some(fault(EventType::DEVICE_FATAL)));
}

#[test]
fn at_its_deadline_a_wait_hears_the_device_before_it_blames_the_peer() {
    for waking in WAKINGS {
        let soft = fabric();
        let context = open(&soft);
        let (_a, mut b) = pair(&context, &config().waking(waking));
        soft.device_fatal("soft0");
        let told = b.wait(&Wait::at_most(Duration::ZERO), |_| ()).expect_err("nobody sends");
        assert_eq!(told.kind, fault(EventType::DEVICE_FATAL), "{waking:?}");
    }
}

#[test]
fn a_wait_that_polls_takes_what_the_device_reports_long_before_its_deadline() {
    let soft = fabric();
    let context = open(&soft);
    let (_a, mut b) = pair(&context, &config());
    soft.device_fatal("soft0");
    assert_eq!(before_the_deadline(&mut b), fault(EventType::DEVICE_FATAL));
}

/// An end whose completion queue has overflowed, which the device has told; and an end that has nothing to do with it.
fn overflowed(soft: &SoftFabric, waking: Waking) -> (Arc<DeviceContext>, End, End) {
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let config = without_credits().waking(waking).signal_every(1);
    let end = || End::new(&context, Immediate, config.clone(), Frames::Owned).expect("an end");
    let mut a = end();
    spoil(Some(Spoiled::SmallQueue));
    let mut b = end();
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    for _ in 0..4 {
        b.send(1, |_| ()).expect("room in the ring");
    }
    (context, a, b)
}

#[test]
fn an_overflow_of_its_completion_queue_breaks_a_link_in_either_way_of_waiting_and_for_good() {
    for waking in WAKINGS {
        let soft = fabric();
        let (context, mut a, mut b) = overflowed(&soft, waking);
        // What a poll says of it aside: only the event tells.
        soft.fail_from("ibv_poll_cq", 1, Answer::nothing());
        assert_eq!(before_the_deadline(&mut b), fault(EventType::CQ_ERR), "{waking:?}");
        assert_eq!(b.poll(|_| ()).expect_err("for good").kind, broken(EventType::CQ_ERR), "{waking:?}");
        assert_eq!(before_the_deadline(&mut b), broken(EventType::CQ_ERR), "{waking:?}");
        b.send(1, |_| ()).expect_err("for good");
        soft.clear_plan();
        assert_eq!(a.poll(|_| ()), Ok(3), "the other end's queue is another one");
        drop((a, b, context));
        assert_eq!(soft.live(), LiveCounts::default());
    }
}

#[test]
fn what_the_device_tells_of_an_overflow_names_queue_and_queue_pair_and_is_fatal_for_both() {
    let soft = fabric();
    let (context, _a, b) = overflowed(&soft, Waking::Polling);
    let told = context.take_events().expect("both");
    assert_eq!(told.iter().map(|told| told.event).collect::<Vec<_>>(), [EventType::CQ_ERR, EventType::QP_FATAL]);
    assert!(told.iter().all(|told| told.is_fatal()), "{told:?}");
    assert!(matches!(told[0].about, About::CompletionQueue(_)));
    assert_eq!(told[1].about, About::QueuePair(b.qp_num()));
}

#[test]
fn a_failed_queue_pair_breaks_its_link_in_either_way_of_waiting_and_for_good() {
    for waking in WAKINGS {
        let soft = fabric();
        let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
        let (mut a, mut b) = pair(&context, &config().waking(waking));
        script_event(EventType::QP_FATAL);
        assert_eq!(before_the_deadline(&mut b), fault(EventType::QP_FATAL), "{waking:?}");
        assert_eq!(before_the_deadline(&mut b), broken(EventType::QP_FATAL), "{waking:?}");
        assert_eq!(b.poll(|_| ()).expect_err("for good").kind, broken(EventType::QP_FATAL));
        assert_eq!(a.poll(|_| ()), Ok(0), "the other one's is as it was");
    }
}

#[test]
fn a_new_queue_pair_with_the_number_of_a_failed_one_is_not_blamed_for_it() {
    let soft = fabric();
    let context = DeviceContext::open(&wrap(soft.symbols(), Some(Spoiled::Numbered(7))), None).expect("the device");
    let end = || End::new(&context, Immediate, config(), Frames::Owned).expect("an end");
    let mut failed = end();
    script_event(EventType::QP_FATAL);
    context.take_events().expect("one");
    assert_eq!(failed.poll(|_| ()).expect_err("it failed").kind, fault(EventType::QP_FATAL));
    drop(failed);
    let mut anew = end();
    assert_eq!((anew.qp_num(), anew.poll(|_| ())), (7, Ok(0)));
}

#[test]
fn a_new_completion_queue_at_the_address_of_a_failed_one_is_not_blamed_for_it() {
    let soft = fabric();
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    // That the queue before it at this address had failed was told when it was made.
    let teller = Arc::clone(&context);
    on_making_a_queue(Some(Box::new(move || {
        script_event(EventType::CQ_ERR);
        assert_eq!(teller.take_events().expect("one").len(), 1);
    })));
    let mut end = End::new(&context, Immediate, config(), Frames::Owned).expect("an end");
    on_making_a_queue(None);
    assert_eq!(end.poll(|_| ()), Ok(0));
    // Of this one it is told later.
    script_event(EventType::CQ_ERR);
    context.take_events().expect("one");
    assert_eq!(end.poll(|_| ()).expect_err("it failed").kind, fault(EventType::CQ_ERR));
}

#[test]
fn a_library_that_makes_up_events_of_the_device_without_end_holds_nobody_up() {
    for waking in WAKINGS {
        let soft = fabric();
        let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
        let (_a, mut b) = pair(&context, &config().waking(waking));
        script_endless_events(Some(EventType::PORT_ACTIVE));
        assert_eq!(context.take_events().expect("some of them").len(), 64);
        let told = b.wait(&Wait::at_most(Duration::from_millis(50)), |_| ()).expect_err("nobody sends");
        assert!(matches!(told.kind, EndpointErrorKind::Timeout { .. }), "{waking:?}: {told}");
        script_endless_events(None);
    }
}

#[test]
fn an_event_that_names_no_object_is_not_followed_and_puts_the_device_in_doubt() {
    let soft = fabric();
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let (_a, mut b) = pair(&context, &config());
    // It answers 0 and fills nothing in: event 0 is that of a completion queue.
    script_empty_event();
    let told = context.take_events().expect("one");
    assert_eq!(
        told.iter().map(|told| (told.event, told.about)).collect::<Vec<_>>(),
        [(EventType::CQ_ERR, About::Other)]
    );
    assert_eq!(b.poll(|_| ()).expect_err("in doubt").kind, fault(EventType::CQ_ERR));
    assert_eq!(soft.misuse(), Vec::<String>::new(), "nothing was acknowledged");
}

#[test]
fn a_library_that_makes_up_completion_events_holds_a_wait_up_no_longer_than_its_deadline() {
    const MADE_UP: u32 = 10_000_000;
    let soft = fabric();
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let (mut a, mut b) = pair(&context, &config().waking(Waking::Events));
    b.wait(&Wait::at_most(Duration::from_millis(1)), |_| ()).expect_err("nobody sends; the queue is armed");
    // Something comes, so that the channel's file is readable, and cannot be polled.
    soft.fail_from("ibv_poll_cq", 1, Answer::nothing());
    a.send(1, |_| ()).expect("a healthy link");
    script_made_up_completion_events(MADE_UP);
    let told = b.wait(&Wait::at_most(Duration::from_millis(50)), |_| ()).expect_err("nothing can be polled");
    assert!(matches!(told.kind, EndpointErrorKind::Timeout { .. }), "{told}");
    let taken = MADE_UP - made_up_completion_events();
    assert!(taken > 0 && taken < MADE_UP, "{taken} were taken");
    script_made_up_completion_events(0);
    soft.clear_plan();
    drop((a, b, context));
    assert_eq!((soft.live(), soft.misuse()), (LiveCounts::default(), Vec::new()));
}

#[test]
fn a_completion_event_that_names_no_queue_is_an_error_and_not_acknowledged() {
    let soft = fabric();
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let (mut a, mut b) = pair(&context, &config().waking(Waking::Events));
    b.wait(&Wait::at_most(Duration::from_millis(1)), |_| ()).expect_err("nobody sends; the queue is armed");
    soft.fail_from("ibv_poll_cq", 1, Answer::nothing());
    script_empty_completion_event();
    a.send(1, |_| ()).expect("a healthy link");
    let told = b.wait(&Wait::at_most(PATIENCE), |_| ()).expect_err("the library lies");
    let EndpointErrorKind::Sleep(error) = told.kind else { panic!("{told}") };
    assert!(matches!(*error, Error::Call(ref call) if call.call == "ibv_get_cq_event"), "{error}");
    soft.clear_plan();
    drop((a, b));
    assert_eq!(soft.misuse(), Vec::<String>::new());
}

#[test]
fn what_comes_before_the_queue_is_armed_ends_a_wait_without_sleep() {
    // Without events of the device nothing else ends a sleep early.
    let config = SoftConfig::default().mode(Mode::Stepped).without("ibv_get_async_event");
    let soft = SoftFabric::new(config).expect("a free slot");
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let (mut a, mut b) = pair(&context, &without_credits().waking(Waking::Events));
    a.send(1, |_| ()).expect("a healthy link");
    // The poll before it has found nothing; a completion that is there when a queue is armed makes no event.
    arrive_on_arming(&soft);
    let (limit, began) = (Duration::from_secs(10), Instant::now());
    let came = b.wait(&Wait::at_most(limit), |event| assert!(matches!(event, Event::Received(_))));
    on_arming(None);
    assert_eq!(came, Ok(1));
    assert!(began.elapsed() < limit, "it slept, to its deadline");
    soft.run_freely();
}

/// How many polls a wait makes, and how it ends.
fn polls_of(soft: &SoftFabric, end: &mut End, relax: Relax, time: Duration) -> (usize, EndpointErrorKind) {
    soft.clear_record();
    let told = end.wait(&Wait::at_most(time).relax(relax), |_| ()).expect_err("nobody sends");
    (calls_of(&soft.record(), "ibv_poll_cq"), told.kind)
}

#[test]
fn a_wait_that_spins_polls_as_often_at_once_and_one_that_sleeps_or_has_news_polls_once() {
    for relax in [Relax::Busy, Relax::Spin] {
        let soft = fabric();
        let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
        let (mut a, mut b) = pair(&context, &config());
        let (polls, told) = polls_of(&soft, &mut b, relax, Duration::ZERO);
        assert!(matches!(told, EndpointErrorKind::Timeout { .. }), "{told:?}");
        assert_eq!(polls, 256, "{relax:?}");
        script_event(EventType::QP_FATAL);
        context.take_events().expect("one");
        b.poll(|_| ()).expect_err("it failed");
        let told = polls_of(&soft, &mut b, relax, PATIENCE);
        assert_eq!(told, (1, broken(EventType::QP_FATAL)), "{relax:?}: nothing is to be waited for");
        a.poll(|_| ()).expect("a healthy link");

        let (_a, mut b) = pair(&context, &config().waking(Waking::Events));
        assert_eq!(polls_of(&soft, &mut b, relax, Duration::ZERO).0, 1, "{relax:?}, before its deadline is looked at");
    }
}

/// Lets all that can happen do so between a wait's first poll and the arming that comes after it.
pub fn arrive_on_arming(soft: &SoftFabric) {
    let soft = soft.clone();
    on_arming(Some(Box::new(move || {
        assert!(!soft.steps().is_empty(), "once, and something is on its way");
        while let [step, ..] = soft.steps()[..] {
            soft.take(step);
        }
    })));
}

#[test]
fn a_flag_ends_a_wait_that_sleeps() {
    let soft = fabric();
    let context = open(&soft);
    let (_a, mut b) = pair(&context, &config().waking(Waking::Events));
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
    assert_eq!(told.map(|told| told.kind), Some(EndpointErrorKind::Cancelled));
    assert!(began.elapsed() < PATIENCE, "it slept on to its deadline");
}

#[test]
fn what_goes_wrong_with_a_device_ends_in_every_handle_released_once() {
    for waking in WAKINGS {
        // Both ends are in use, with messages on their way, when the device fails: at once, or by what calls answer.
        let failures: [&dyn Fn(&SoftFabric); 3] = [
            &|soft| soft.device_fatal("soft0"),
            &|soft| data_path().for_each(|symbol| soft.fail_from(symbol, 1, Answer::returned(5))),
            &|soft| data_path().for_each(|symbol| soft.fail_from(symbol, 1, Answer::returned(19))),
        ];
        for (nth, fail) in failures.into_iter().enumerate() {
            let soft = fabric();
            let context = open(&soft);
            let (mut a, mut b) = pair(&context, &config().waking(waking));
            a.send(1, |_| ()).expect("a healthy link");
            b.send(1, |_| ()).expect("a healthy link");
            fail(&soft);
            a.send(1, |_| ()).expect_err("the device has failed");
            let told = a.close().expect("whatever can be destroyed is");
            assert!(told.failure().is_none(), "{told:?}");
            drop((b, context));
            assert_eq!((soft.live(), soft.misuse()), (LiveCounts::default(), Vec::new()), "{waking:?}, failure {nth}");
        }
    }
}

/// What a device that fails refuses, destroying aside.
fn data_path() -> impl Iterator<Item = &'static str> {
    ["ibv_post_send", "ibv_post_recv", "ibv_poll_cq", "ibv_modify_qp"].into_iter()
}

/// A clock whose time is up as soon as a wait has begun.
struct Later(Cell<u64>);

impl Clock for Later {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.replace(3600))
    }
}

#[test]
fn a_wait_for_a_message_ends_at_its_deadline_whatever_else_comes() {
    let soft = fabric();
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let (mut a, mut b) = pair(&context, &without_credits().signal_every(1));
    a.send(1, |_| ()).expect("a healthy link");
    let sent = sends()[0].wr_id;
    b.send(1, |_| ()).expect("a healthy link");
    // First it learns that its own message has left; the other end's comes when the time is up.
    script_poll(vec![Wc { wr_id: sent, qp_num: a.qp_num(), ..Wc::default() }]);
    let clock = Later(Cell::new(0));
    let told = a.receive_with(&Wait::at_most(PATIENCE).clock(&clock), &mut |_, _| ()).expect_err("too late");
    assert!(matches!(told.kind, EndpointErrorKind::Timeout { .. }), "{told}");
}
