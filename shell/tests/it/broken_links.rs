//! A link that broke says so, and why, at every poll and wait from then on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bareverbs_core::link::{Fault, Immediate, LinkError};
use bareverbs_core::verbs::EventType;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Frames, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{Answer, LiveCounts, SoftConfig, SoftFabric};
use bareverbs_shell::{Fabric, Wait};

use crate::own_process;
use crate::wrapped::{script_event, wrap};

#[test]
fn a_panic_of_the_callers_code_in_the_middle_of_a_batch_breaks_the_link() {
    let device = Fabric::soft().expect("a fabric").open(None).expect("a device");
    let end = |peer| Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc(peer), Frames::Owned);
    let (mut a, mut b) = (end("b").expect("an end"), end("a").expect("an end"));
    connect_pair(&mut a, &mut b).expect("they connect");
    for _ in 0..3 {
        a.send(1, |_| {}).expect("room");
    }
    assert!(catch_unwind(AssertUnwindSafe(|| b.poll(|_| panic!("the caller's code")))).is_err());
    let cause = Fault::Abandoned;
    let broken = EndpointErrorKind::Link(LinkError::Broken { cause });
    assert_eq!(b.poll(|_| {}).expect_err("messages were lost").kind, broken);
    // A wait does not go to its deadline to blame the peer.
    let waited = b.wait(&Wait::at_most(Duration::from_secs(3600)), |_| {});
    assert_eq!(waited.expect_err("messages were lost").kind, broken);
}

type End = Endpoint<Immediate, 8, 8>;

/// Takes the last messages when it goes, as a guard does.
struct Last<'a>(&'a mut End, &'a mut usize);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        *self.1 = self.0.poll(|_| {}).unwrap_or(0);
    }
}

#[test]
fn a_poll_while_the_thread_unwinds_for_another_reason_breaks_nothing() {
    let device = Fabric::soft().expect("a fabric").open(None).expect("a device");
    let end = |peer| Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc(peer), Frames::Owned);
    let (mut a, mut b) = (end("b").expect("an end"), end("a").expect("an end"));
    connect_pair(&mut a, &mut b).expect("they connect");
    a.send(1, |_| {}).expect("room");
    let mut came = 0;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _last = Last(&mut b, &mut came);
        panic!("something else");
    }));
    assert!(unwound.is_err());
    assert_eq!(came, 1, "the message was given out");
    a.send(1, |_| {}).expect("room");
    assert_eq!(b.poll(|_| {}).expect("nothing was lost"), 1);
}

#[test]
fn an_endpoint_on_a_device_that_was_told_to_be_beyond_use_says_so_at_its_first_poll() {
    let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    script_event(EventType::DEVICE_FATAL);
    assert_eq!(context.take_events().expect("one").len(), 1);
    let mut end =
        End::new(&context, Immediate, EndpointConfig::uc("b"), Frames::Owned).expect("the device still answers");
    let cause = Fault::Device { event: EventType::DEVICE_FATAL };
    let told = end.poll(|_| {}).expect_err("beyond use");
    assert_eq!(told.kind, EndpointErrorKind::Link(LinkError::Fault(cause)));
    drop((end, context));
    assert_eq!(soft.live(), LiveCounts::default());
}

#[test]
fn what_is_said_of_a_queue_pair_breaks_its_endpoint_and_the_first_of_it_is_told() {
    for event in [EventType::QP_FATAL, EventType::QP_REQ_ERR, EventType::QP_ACCESS_ERR] {
        let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
        let end = |peer| End::new(&context, Immediate, EndpointConfig::uc(peer), Frames::Owned).expect("an end");
        let (mut spared, mut struck) = (end("b"), end("a"));
        script_event(event);
        script_event(EventType::QP_FATAL);
        assert_eq!(context.take_events().expect("both").len(), 2);
        let told = struck.poll(|_| {}).expect_err("its queue pair is in the error state");
        assert_eq!(told.kind, EndpointErrorKind::Link(LinkError::Fault(Fault::Device { event })));
        assert_eq!(spared.poll(|_| {}), Ok(0), "another queue pair of the device");
        drop((spared, struck, context));
        assert_eq!(soft.live(), LiveCounts::default());
    }
}

/// A logger that panics.
struct Fails;

impl log::Log for Fails {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        panic!("no logger");
    }

    fn flush(&self) {}
}

#[test]
fn a_drop_does_not_panic_where_the_logger_does() {
    own_process::run("broken_links::a_drop_does_not_panic_where_the_logger_does", &[], || {
        log::set_logger(&Fails).expect("none is set");
        log::set_max_level(log::LevelFilter::Warn);
        let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        let context = DeviceContext::open(&soft.symbols(), None).expect("the device");
        let end = End::new(&context, Immediate, EndpointConfig::uc("b"), Frames::Owned).expect("an endpoint");
        soft.fail("ibv_dereg_mr", 1, Answer::returned(16));
        drop(end);
        assert_eq!(soft.live().mrs, 1, "it was refused");
    });
}
