//! What a link makes of completions: cases B1, B2, B4, B6.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bareverbs_core::link::{Fault, Immediate, LinkError, ReadError, SendError, Sequence};
use bareverbs_core::verbs::inline_calls::PollError;
use bareverbs_core::verbs::{Be32, Wc, WcFlags, WcOpcode, WcStatus};
use bareverbs_shell::endpoint::{
    Endpoint, EndpointConfig, EndpointError, EndpointErrorKind, Event, Frames, MessageEndpoint, connect_pair,
};
use bareverbs_shell::objects::{CompletionQueue, DeviceContext};
use bareverbs_shell::soft::{Answer, LiveCounts, MessageFault, Mode, Record, SoftConfig, SoftFabric};
use bareverbs_shell::wait::Clock;
use bareverbs_shell::{Relax, Wait};

use crate::world::{World, config, patiently};
use crate::wrapped::{raw_word, receives, script_poll, sends, wrap};

type End = Endpoint<Immediate, 4, 4>;

/// A receive that succeeded, with this number.
fn received(wr_id: u64, immediate: u32, qp_num: u32) -> Wc {
    Wc {
        wr_id,
        status: WcStatus::SUCCESS,
        opcode: WcOpcode::RECV,
        wc_flags: WcFlags::WITH_IMM,
        imm_data: Be32::new(immediate),
        qp_num,
        ..Wc::default()
    }
}

/// A failed one, with junk in every field that is then not defined.
fn junk(wr_id: u64, qp_num: u32) -> Wc {
    Wc {
        status: WcStatus::WR_FLUSH_ERR,
        opcode: WcOpcode(0x2317),
        wc_flags: WcFlags::from_bits_retain(0xFFFF_FFFF),
        byte_len: 0xFFFF_FFFF,
        ..received(wr_id, 0xDEAD_BEEF, qp_num)
    }
}

/// Two connected ends over a table whose polls can be scripted on this thread.
fn scripted(soft: &SoftFabric, config: &EndpointConfig) -> (End, End) {
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let end = || Endpoint::new(&context, Immediate, config.clone(), Frames::Owned).expect("an endpoint");
    let (mut a, mut b) = (end(), end());
    connect_pair(&mut a, &mut b).expect("both are in INIT");
    (a, b)
}

/// Polls once: numbers of the messages handed out, and how it ended.
fn poll(end: &mut End) -> (Vec<u32>, Result<usize, EndpointErrorKind>) {
    let mut numbers = Vec::new();
    let outcome = end.poll(|event| {
        if let Event::Received(frame) = event {
            numbers.extend(frame.sequence().map(Sequence::number));
        }
    });
    (numbers, outcome.map_err(|error| error.kind))
}

#[test]
fn b1_a_failed_completion_gives_its_defined_fields_and_nothing_else() {
    let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let context = DeviceContext::open(&wrap(soft.symbols(), None), None).expect("the device");
    let mut queue = CompletionQueue::new(&context, 8).expect("a queue");
    script_poll(vec![received(1, 7, 9), junk(2, 9), received(3, 8, 9)]);
    let mut room = [Wc::default(); 8];
    let came: Vec<_> = queue.poll(&mut room).expect("three entries").collect();
    assert_eq!(came.iter().map(|entry| entry.wr_id()).collect::<Vec<_>>(), [1, 2, 3]);
    let number = |at: usize| came[at].outcome().map(Immediate::read);
    assert_eq!(number(0), Ok(Ok(Sequence::new(7))));
    assert_eq!(number(2), Ok(Ok(Sequence::new(8))), "as a raw completion it stands alone");
    let failed = number(1).expect_err("status 5");
    assert_eq!((failed.wr_id, failed.status, failed.qp_num), (2, WcStatus::WR_FLUSH_ERR, 9));
    let text = failed.to_string();
    assert!(!text.to_lowercase().contains("deadbeef") && text.contains('5'), "{text}");
    // The number is not read even when it is asked for.
    assert_eq!(Immediate::read(&junk(2, 9)), Err(ReadError::Failed(failed)));
}

#[test]
fn b1_on_a_link_it_breaks_the_link_and_what_follows_is_not_handed_out() {
    let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let (mut a, b) = scripted(&soft, &config().sequences(Sequence::new(7), Sequence::new(7)));
    let (number, posted) = (a.qp_num(), receives());
    // a was connected first: the first four are its receives.
    script_poll(vec![received(posted[0], 7, number), junk(posted[1], number), received(posted[2], 8, number)]);
    let (numbers, outcome) = poll(&mut a);
    assert_eq!(numbers, [7]);
    let Err(EndpointErrorKind::Link(LinkError::Fault(cause @ Fault::Failed(failed)))) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((failed.wr_id, failed.status), (posted[1], WcStatus::WR_FLUSH_ERR));
    // For good: what comes later is the same link's, and broken.
    script_poll(vec![received(posted[3], 8, number)]);
    assert_eq!(poll(&mut a), (vec![], Err(EndpointErrorKind::Link(LinkError::Broken { cause }))));
    let refused = a.send(1, |_| ()).expect_err("broken");
    assert_eq!(refused.kind, EndpointErrorKind::Send(SendError::Broken { cause }, None));
    drop((a, b));
    assert_eq!(soft.live(), LiveCounts::default());
}

#[test]
fn b2_a_number_travels_big_endian_and_comes_back_exactly() {
    for (number, bytes) in [(0x0102_0304, [1, 2, 3, 4]), (0x89AB_CDEF, [0x89, 0xAB, 0xCD, 0xEF])] {
        let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        let (mut a, mut b) = scripted(&soft, &config().sequences(Sequence::new(number), Sequence::new(number)));
        let before = sends().len();
        assert_eq!(a.send(0, |_| ()).expect("a healthy link"), Sequence::new(number));
        assert_eq!(sends()[before].immediate, bytes, "as it lies in the request");
        // Fed back as raw bytes.
        // The last four receives are b's.
        let posted = receives();
        let mut fed = received(posted[posted.len() - 4], 0, b.qp_num());
        fed.imm_data = raw_word(sends()[before].immediate);
        script_poll(vec![fed]);
        assert_eq!(poll(&mut b), (vec![number], Ok(1)));
        drop((a, b));
    }
    let unflagged = Wc { wc_flags: WcFlags::empty(), ..received(5, 0x0102_0304, 1) };
    assert_eq!(Immediate::read(&unflagged), Err(ReadError::NoImmediate { wr_id: 5 }));
}

/// Sends `messages`, the `nth` with this fault: the numbers handed out, and how the first poll that failed ended.
fn with_fault(mode: Mode, nth: u64, fault: MessageFault, messages: u32) -> (Vec<u32>, Fault) {
    let world = World::soft(mode);
    let soft = world.soft.as_ref().expect("a software fabric");
    let (mut a, mut b) = world.pair::<Immediate, 8, 8>(Immediate, &config());
    soft.message_fault(nth, fault);
    for number in 0..messages {
        a.send(1, |payload| payload[0] = number as u8).expect("a healthy link");
    }
    let (mut numbers, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    let mut take = || {
        b.poll(|event| {
            if let Event::Received(frame) = event {
                assert_eq!(frame.payload(), [frame.sequence().expect("it has one").number() as u8]);
                numbers.push(frame.sequence().expect("it has one").number());
            }
        })
    };
    let broken = loop {
        match take() {
            Ok(_) => assert!(Instant::now() < deadline, "it never breaks"),
            Err(error) => break error,
        }
    };
    let EndpointErrorKind::Link(LinkError::Fault(cause)) = broken.kind else { panic!("{broken}") };
    // No resync: whatever comes later reports the same.
    for _ in 0..50 {
        match take() {
            Ok(count) => assert_eq!(count, 0, "something was handed out after the break"),
            Err(error) => assert_eq!(error.kind, EndpointErrorKind::Link(LinkError::Broken { cause })),
        }
    }
    let refused = b.send(1, |_| ()).expect_err("the link is broken both ways");
    assert_eq!(refused.kind, EndpointErrorKind::Send(SendError::Broken { cause }, None));
    drop((a, b));
    world.assert_clean();
    (numbers, cause)
}

/// What is out of order: the number expected, the one that came, and how far off it is.
fn numbers_of(cause: Fault) -> (&'static str, u32, u32, u32) {
    match cause {
        Fault::Gap { expected, got, missing, .. } => ("gap", expected.number(), got.number(), missing),
        Fault::Old { expected, got, behind, .. } => ("old", expected.number(), got.number(), behind),
        other => panic!("{other}"),
    }
}

#[test]
fn b4_a_loss_a_repetition_and_a_reordering_break_the_link_at_the_message_that_shows_it() {
    let modes = std::iter::once(Mode::Prompt).chain((1..=16).map(|seed| Mode::Adversarial { seed }));
    for mode in modes {
        let (numbers, cause) = with_fault(mode, 3, MessageFault::Drop, 5);
        assert_eq!(numbers, [0, 1], "{mode:?}");
        assert_eq!(numbers_of(cause), ("gap", 2, 3, 1));

        let (numbers, cause) = with_fault(mode, 2, MessageFault::Duplicate, 3);
        assert_eq!(numbers, [0, 1], "{mode:?}");
        assert_eq!(numbers_of(cause), ("old", 2, 1, 1));

        let (numbers, cause) = with_fault(mode, 2, MessageFault::Reorder, 3);
        assert_eq!(numbers, [0], "{mode:?}");
        assert_eq!(numbers_of(cause), ("gap", 1, 2, 1));
    }
}

#[test]
fn b4_the_error_is_about_the_receive_that_the_wrong_message_came_in() {
    let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let (a, mut b) = scripted(&soft, &config());
    let (number, posted) = (b.qp_num(), receives());
    script_poll(vec![received(posted[4], 0, number), received(posted[5], 2, number), received(posted[6], 1, number)]);
    let (numbers, outcome) = poll(&mut b);
    assert_eq!(numbers, [0]);
    let gap = Fault::Gap { wr_id: posted[5], expected: Sequence::new(1), got: Sequence::new(2), missing: 1 };
    assert_eq!(outcome, Err(EndpointErrorKind::Link(LinkError::Fault(gap))));
    drop((a, b));
}

/// A clock that goes on by 10 ms whenever it is asked, and does something at a moment.
struct Steps<'a> {
    at: Cell<u64>,
    moment_ms: u64,
    act: &'a dyn Fn(),
}

impl Clock for Steps<'_> {
    fn now(&self) -> Duration {
        let at = self.at.get();
        if at == self.moment_ms {
            (self.act)();
        }
        self.at.set(at + 10);
        Duration::from_millis(at)
    }
}

/// Waits 50 ms by the test's clock; `act` happens at 30 ms.
fn wait_50_ms(end: &mut End, act: &dyn Fn()) -> Result<usize, EndpointError> {
    let clock = Steps { at: Cell::new(0), moment_ms: 30, act };
    let outcome = end.wait(&Wait::at_most(Duration::from_millis(50)).clock(&clock).relax(Relax::Yield), |_| ());
    assert!(outcome.is_ok() || clock.at.get() <= 60, "it went on after the deadline");
    outcome
}

/// A fabric on which polling finds nothing, and two connected ends of it.
fn dead_peer(device: &str) -> (SoftFabric, End, End) {
    let devices = vec![bareverbs_shell::soft::SoftDevice::new(device)];
    let config = SoftConfig::default().devices(devices).record(Record::Bounded(100_000));
    let world = World::of_config(config, "dead peer");
    let short = crate::world::config().drain_limit(Duration::from_millis(20));
    let (a, b) = world.pair(Immediate, &short);
    let soft = world.soft.expect("a software fabric");
    soft.fail_from("ibv_poll_cq", 1, Answer::nothing());
    (soft, a, b)
}

#[test]
fn b6_a_dead_peer_is_a_timeout_at_the_deadline_that_names_it_and_what_is_pending() {
    crate::drop_log::keep();
    let (soft, mut a, b) = dead_peer("b6dead");
    a.send(1, |_| ()).expect("a healthy link");
    let error = wait_50_ms(&mut a, &|| ()).expect_err("nothing ever comes");
    let EndpointErrorKind::Timeout { waited, outstanding, no_credit: None, pending, .. } = &error.kind else {
        panic!("{error}")
    };
    assert_eq!(*waited, Duration::from_millis(50), "not before the deadline");
    assert_eq!((outstanding.sends, outstanding.receives), (1, 4));
    let mut posted: Vec<u64> = soft
        .record()
        .iter()
        .filter_map(|call| match call.detail {
            bareverbs_shell::soft::Detail::Post { first_wr_id, accepted } => Some((first_wr_id, accepted)),
            _ => None,
        })
        .flat_map(|(first, accepted)| first..first + u64::from(accepted))
        .collect();
    // a's receives, b's receives, a's send.
    posted.drain(4..8);
    posted.rotate_right(1);
    assert_eq!(*pending, posted, "sends first");
    assert!(error.to_string().contains("the other end") && error.to_string().contains("b6dead"), "{error}");

    // The end can be dropped: the drain gives up, the queue pair goes before the region, and all of it is gone.
    let began = Instant::now();
    drop((a, b));
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(soft.live(), LiveCounts::default());
    assert_eq!(crate::drop_log::take("b6dead").len(), 2, "both ends say that they could not be drained");
}

#[test]
fn b6_an_end_behind_a_pointer_times_out_at_the_deadline_and_names_peer_and_what_is_pending() {
    crate::drop_log::keep();
    let (soft, mut a, b) = dead_peer("b6boxed");
    a.send(1, |_| ()).expect("a healthy link");
    let mut a: Box<dyn MessageEndpoint> = Box::new(a);
    let clock = Steps { at: Cell::new(0), moment_ms: 30, act: &|| () };
    let wait = Wait::at_most(Duration::from_millis(50)).clock(&clock).relax(Relax::Yield);
    let error = a.receive_with(&wait, &mut |_, _| panic!("a message")).expect_err("nothing ever comes");
    assert!(clock.at.get() <= 60, "it went on after the deadline");
    let EndpointErrorKind::Timeout { waited, outstanding, no_credit: None, pending, .. } = &error.kind else {
        panic!("{error}")
    };
    assert_eq!(*waited, Duration::from_millis(50), "not before the deadline");
    assert_eq!((*outstanding, pending.len()), (a.outstanding(), 5), "a send and four receives");
    assert_eq!((outstanding.sends, outstanding.receives), (1, 4));
    assert_eq!((&*error.peer, &*error.device, a.peer()), ("the other end", "b6boxed", "the other end"));
    assert!(error.to_string().contains("1 sends and 4 receives outstanding"), "{error}");
    a.close_boxed().expect("what cannot be drained is destroyed");
    drop(b);
    assert_eq!(soft.live(), LiveCounts::default());
}

#[test]
fn b6_send_completions_do_not_put_off_the_deadline_of_a_wait_for_a_message() {
    let world = World::soft(Mode::Prompt);
    let (a, b) = world.pair::<Immediate, 4, 4>(Immediate, &config());
    let mut a: Box<dyn MessageEndpoint> = Box::new(a);
    a.send_with(1, &mut |_| ()).expect("a healthy link");
    // The send completes at once: that is no message.
    let clock = Steps { at: Cell::new(0), moment_ms: 30, act: &|| () };
    let wait = Wait::at_most(Duration::from_millis(50)).clock(&clock);
    let error = a.receive_with(&wait, &mut |_, _| panic!("a message")).expect_err("no message comes");
    let EndpointErrorKind::Timeout { waited, outstanding, .. } = &error.kind else { panic!("{error}") };
    assert_eq!((*waited, outstanding.sends, outstanding.receives), (Duration::from_millis(50), 0, 4));
    drop((a, b));
    world.assert_clean();
}

#[test]
fn b6_a_negative_poll_is_an_error_at_once() {
    crate::drop_log::keep();
    let (soft, mut a, b) = dead_peer("b6negative");
    soft.clear_plan();
    soft.fail("ibv_poll_cq", 1, Answer::returned(-1));
    let error = wait_50_ms(&mut a, &|| panic!("it went on waiting")).expect_err("negative");
    assert_eq!(error.kind, EndpointErrorKind::Poll(PollError::Negative { returned: -1 }));
    let refused = a.send(1, |_| ()).expect_err("the link is broken");
    assert!(matches!(refused.kind, EndpointErrorKind::Send(SendError::Broken { cause: Fault::Poll(_) }, None)));
    drop((a, b));
    assert_eq!(soft.live(), LiveCounts::default());
}

#[test]
fn b6_a_completion_before_the_deadline_is_a_success() {
    let (soft, mut a, mut b) = dead_peer("b6late");
    b.send(1, |_| ()).expect("a healthy link");
    assert_eq!(wait_50_ms(&mut a, &|| soft.clear_plan()).expect("it came at 30 ms of 50"), 1);
    drop((a, b));
}

#[test]
fn a_cancelled_wait_ends_before_its_deadline_and_the_endpoint_can_go() {
    let world = World::soft(Mode::Prompt);
    let (mut a, b) = world.pair::<Immediate, 4, 4>(Immediate, &config());
    let cancel = AtomicBool::new(true);
    let error = a.wait(&patiently().cancelled_by(&cancel), |_| ()).expect_err("cancelled");
    assert_eq!(error.kind, EndpointErrorKind::Cancelled);
    drop((a, b));
    world.assert_clean();
}
