//! Completion channels: which completions make an event, and what must be acknowledged.

use std::sync::mpsc;
use std::time::Duration;

use bareverbs_core::verbs::{EventType, QpAttr, QpAttrMask, QpState, QpType, SendFlags, WcStatus};

use crate::differences::Difference;
use crate::raw::channels::{Told, channel_fd, do_not_block, readable};
use crate::raw::reliable::{PATIENT, rc_pair};
use crate::raw::{CAP, End, Env, Moved, async_fd, clear_errno, connect, errno, pair, post_send, send, statuses};
use crate::{EBUSY, FLUSHED, OK};

const EAGAIN: i32 = libc::EAGAIN;

/// An end that is told of completions, connected to one that sends to it.
fn told_and_sender(env: &Env) -> (Told, End) {
    let Told { channel, end } = Told::new(env, QpType::UC, 64);
    let (end, sender) = connect(end, End::new(env));
    (Told { channel, end }, sender)
}

/// Waits for an event.
fn await_event(told: &Told) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !told.woken() {
        assert!(std::time::Instant::now() < deadline, "no event came");
        std::thread::yield_now();
    }
}

/// Sends to an end, with these flags, and waits until it was received.
fn send_to(told: &Told, sender: &End, flags: SendFlags) {
    told.end.post_receive(1, 0, 64);
    let mut request = send(2, sender.sge(0, 64));
    request.send_flags = SendFlags::SIGNALED | flags;
    assert_eq!(post_send(sender.qp, &mut [request]), (0, None));
    assert_eq!(statuses(&told.end.poll(1)), [(1, OK)]);
    assert_eq!(statuses(&sender.poll(1)), [(2, OK)]);
}

pub fn an_armed_queue_makes_one_event_at_its_next_completion(env: &Env) {
    let (told, sender) = told_and_sender(env);
    send_to(&told, &sender, SendFlags::empty());
    assert!(!told.woken(), "it was not armed");
    assert_eq!(env.arm(told.end.cq, false), 0);
    assert!(!told.woken() && !readable(channel_fd(told.channel)), "what came before the arming makes no event");
    send_to(&told, &sender, SendFlags::empty());
    await_event(&told);
    send_to(&told, &sender, SendFlags::empty());
    assert!(!told.woken(), "armed once, told once");
    assert_eq!(env.cq_event(told.channel).err(), Some(EAGAIN));
    told.tear_down();
    sender.tear_down();
}

pub fn completions_that_lie_in_the_queue_make_no_event(env: &Env) {
    let (told, sender) = told_and_sender(env);
    told.end.post_receive(1, 0, 64);
    sender.post_send(2, 0, 64);
    assert_eq!(statuses(&sender.poll(1)), [(2, OK)]);
    let mut came = env.drain(sender.cq);
    came.extend(wait_unpolled(env));
    assert_eq!(env.arm(told.end.cq, false), 0);
    // Whichever of the two: an event, or a completion that is there already.
    let found = told.end.poll(1);
    assert_eq!(statuses(&found), [(1, OK)]);
    while told.woken() {}
    told.tear_down();
    sender.tear_down();
}

/// Lets a device have its time.
fn wait_unpolled(env: &Env) -> Option<bareverbs_core::verbs::Wc> {
    std::thread::sleep(env.quiet);
    None
}

pub fn a_queue_armed_for_solicited_ones_hears_of_no_others(env: &Env) {
    let (told, sender) = told_and_sender(env);
    assert_eq!(env.arm(told.end.cq, true), 0);
    send_to(&told, &sender, SendFlags::empty());
    assert!(!told.woken());
    send_to(&told, &sender, SendFlags::SOLICITED);
    await_event(&told);
    told.tear_down();
    sender.tear_down();
}

pub fn arming_for_any_is_not_undone_by_arming_for_solicited_ones(env: &Env) {
    let (told, sender) = told_and_sender(env);
    assert_eq!([env.arm(told.end.cq, false), env.arm(told.end.cq, true)], [0; 2]);
    send_to(&told, &sender, SendFlags::empty());
    await_event(&told);
    told.tear_down();
    sender.tear_down();
}

pub fn a_flushed_receive_wakes_who_armed_for_solicited_ones(env: &Env) {
    let (told, sender) = told_and_sender(env);
    told.end.post_receive(1, 0, 64);
    assert_eq!(env.arm(told.end.cq, true), 0);
    assert_eq!(env.move_to(told.end.qp, QpState::ERR), 0);
    await_event(&told);
    assert_eq!(statuses(&told.end.poll(1)), [(1, FLUSHED)]);
    told.tear_down();
    sender.tear_down();
}

pub fn a_failed_send_wakes_who_armed_for_solicited_ones(env: &Env) {
    let (told, sender) = told_and_sender(env);
    assert_eq!(env.arm(told.end.cq, true), 0);
    let mut request = send(1, told.end.sge(0, 64));
    request.entries[0].lkey ^= 0x5500;
    assert_eq!(post_send(told.end.qp, &mut [request]), (0, None));
    let status = Difference::WrongKey.by_side(env, WcStatus::LOC_PROT_ERR, WcStatus::LOC_QP_OP_ERR);
    assert_eq!(statuses(&told.end.poll(1)), [(1, status)]);
    std::thread::sleep(env.quiet);
    assert_eq!(told.woken(), Difference::FailedSendSolicits.by_side(env, true, false));
    told.tear_down();
    sender.tear_down();
}

pub fn a_thread_that_waits_is_woken(env: &Env) {
    let (told, sender) = told_and_sender(env);
    crate::raw::channels::block(channel_fd(told.channel));
    told.end.post_receive(1, 0, 64);
    assert_eq!(env.arm(told.end.cq, false), 0);
    let sender = std::thread::scope(|scope| {
        let moved = Moved(sender);
        let sending = scope.spawn(move || {
            let sender = moved.whole();
            std::thread::sleep(Duration::from_millis(5));
            sender.0.post_send(2, 0, 64);
            sender
        });
        assert!(told.woken(), "it blocks until then");
        sending.join().expect("it sent").0
    });
    assert_eq!(statuses(&told.end.poll(1)), [(1, OK)]);
    assert_eq!(statuses(&sender.poll(1)), [(2, OK)]);
    told.tear_down();
    sender.tear_down();
}

pub fn a_channel_is_busy_while_a_queue_reports_to_it(env: &Env) {
    let told = Told::new(env, QpType::UC, 8);
    clear_errno();
    assert_eq!((env.destroy_channel(told.channel), errno()), (EBUSY, 0), "errno stays as it was");
    told.tear_down();
}

pub fn events_that_nobody_fetched_go_with_their_queue(env: &Env) {
    let (told, sender) = told_and_sender(env);
    assert_eq!(env.arm(told.end.cq, false), 0);
    send_to(&told, &sender, SendFlags::empty());
    std::thread::sleep(env.quiet);
    assert!(readable(channel_fd(told.channel)));
    let Told { channel, end } = told;
    let context = end.context;
    end.tear_down_to_context();
    assert_eq!(env.cq_event(channel).err(), Some(EAGAIN));
    assert_eq!([env.destroy_channel(channel), env.close(context)], [0; 2]);
    sender.tear_down();
}

/// Destroying it is done by another thread, which a kernel keeps until the event is acknowledged.
pub fn a_queue_with_an_unacknowledged_event_is_not_destroyed(env: &Env) {
    let (told, sender) = told_and_sender(env);
    assert_eq!(env.arm(told.end.cq, false), 0);
    send_to(&told, &sender, SendFlags::empty());
    std::thread::sleep(env.quiet);
    let (cq, _) = env.cq_event(told.channel).expect("an event");
    assert_eq!(cq, told.end.cq);
    let Told { channel, end } = told;
    assert_eq!([env.dereg_mr(end.mr), env.destroy_qp(end.qp)], [0; 2]);
    let (tell, told) = mpsc::channel();
    // An answer comes as soon as the other thread runs; that none comes is believed sooner.
    let (moved, limit) = (Moved(end), if env.strict { Duration::from_secs(10) } else { 2 * env.quiet });
    let answer = std::thread::scope(|scope| {
        let destroying = scope.spawn(move || {
            let end = moved.whole();
            let _ = tell.send(end.0.env.destroy_cq(end.0.cq));
            end
        });
        let early = told.recv_timeout(limit).ok();
        env.ack_cq(cq, 1);
        let end = destroying.join().expect("it returned");
        (early, told.recv().ok(), end)
    });
    let (early, late, Moved(end)) = answer;
    assert_eq!((early, late), Difference::Unacknowledged.by_side(env, (Some(EBUSY), None), (None, Some(0))));
    if env.strict {
        assert_eq!(env.destroy_cq(end.cq), 0, "once it is acknowledged");
    }
    assert_eq!([env.dealloc_pd(end.pd), env.destroy_channel(channel), env.close(end.context)], [0; 3]);
    end.free_memory();
    sender.tear_down();
}

pub fn a_channel_of_another_context_is_refused(env: &Env) {
    let (one, other) = (env.open(), env.open());
    let channel = env.create_channel(one);
    clear_errno();
    let cq = env.create_cq_on(other, 8, channel, std::ptr::null_mut());
    assert!(cq.is_null());
    assert_eq!(errno(), libc::EBADF);
    assert_eq!([env.destroy_channel(channel), env.close(one), env.close(other)], [0; 3]);
}

/// Room for as many as are wanted, and no more.
pub fn a_queue_that_overflows_is_told_as_an_event(env: &Env) {
    let context = env.open();
    crate::raw::channels::do_not_block(crate::raw::async_fd(context));
    let cq = env.create_cq(context, 1);
    let one = End::on(env, context, cq, CAP, |_| ());
    let (one, other) = connect(one, End::new(env));
    for id in 0..8 {
        one.post_send(id, 0, 64);
    }
    for _ in 0..200 {
        // An adversary moves in polls; the queue that overflows is not polled.
        let _ = env.poll_once(other.cq);
        std::thread::yield_now();
    }
    assert_eq!(env.wait_for(context, EventType::CQ_ERR), one.cq.addr());
    one.tear_down();
    other.tear_down();
}

/// Moves an end's queue pair to SQD, to be told when it is drained or not.
fn begin_to_drain(end: &End, notify: u8) {
    let attr = QpAttr { qp_state: QpState::SQD, en_sqd_async_notify: notify, ..QpAttr::default() };
    let mask = QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY;
    assert_eq!(end.env.modify(end.qp, &attr, mask), 0);
}

/// The asynchronous events of an end.
fn told_of(end: &End) -> Vec<EventType> {
    std::iter::from_fn(|| end.env.async_event(end.context).ok())
        .map(|event| {
            end.env.ack_async(event);
            event.event_type
        })
        .collect()
}

pub fn a_send_queue_that_is_drained_is_told_once_its_sends_have_completed(env: &Env) {
    let (one, other) = pair(env);
    do_not_block(async_fd(one.context));
    let mut completed = Vec::new();
    for id in 0..16 {
        other.post_receive(id, 0, 64);
        one.post_send(id, 0, 64);
        // An adversary moves in polls: some sends are done and not shown when the queue begins to drain.
        completed.extend(env.poll_once(one.cq));
    }
    begin_to_drain(&one, 1);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let mut told = told_of(&one);
    while told.is_empty() {
        assert!(std::time::Instant::now() < deadline, "it never says so");
        std::thread::yield_now();
        told = told_of(&one);
        if env.strict {
            let _ = env.poll_once(other.cq);
        }
    }
    completed.extend(std::iter::from_fn(|| env.poll_once(one.cq)));
    assert!(env.drain(one.cq).is_empty(), "{} completed before it was told, and others after", completed.len());
    assert_eq!((told, told_of(&one)), (vec![EventType::SQ_DRAINED], vec![]), "it is told once");
    one.tear_down();
    other.tear_down();
}

pub fn a_send_that_is_being_tried_is_finished_before_its_queue_is_drained(env: &Env) {
    let (one, other) = rc_pair(env, PATIENT);
    do_not_block(async_fd(one.context));
    one.post_send(1, 0, 64);
    assert!(env.drain(one.cq).is_empty(), "there is no receive: it is begun, and not done");
    begin_to_drain(&one, 1);
    one.post_send(2, 0, 64);
    assert!(env.drain(one.cq).is_empty());
    let goes_on = Difference::TriedWhileDraining.by_side(env, true, false);
    assert_eq!(told_of(&one), if goes_on { vec![] } else { vec![EventType::SQ_DRAINED] });
    other.post_receive(3, 0, 64);
    other.post_receive(4, 0, 64);
    if goes_on {
        assert_eq!(statuses(&one.poll(1)), [(1, OK)]);
        assert_eq!(env.wait_for(one.context, EventType::SQ_DRAINED), one.qp.addr());
        assert_eq!(statuses(&other.poll(1)), [(3, OK)]);
    }
    assert!(env.drain(one.cq).is_empty(), "the rest is held");
    assert_eq!(told_of(&one), [], "it is told once");
    one.tear_down();
    other.tear_down();
}

pub fn an_idle_send_queue_is_drained_at_once(env: &Env) {
    let unasked = Difference::DrainedUnasked.by_side(env, vec![], vec![EventType::SQ_DRAINED]);
    for (notify, told) in [(1, vec![EventType::SQ_DRAINED]), (0, unasked)] {
        let (one, other) = pair(env);
        do_not_block(async_fd(one.context));
        begin_to_drain(&one, notify);
        std::thread::sleep(env.quiet);
        assert_eq!(told_of(&one), told, "notify {notify}");
        one.tear_down();
        other.tear_down();
    }
}

pub fn no_asynchronous_event_is_eagain(env: &Env) {
    let context = env.open();
    crate::raw::channels::do_not_block(crate::raw::async_fd(context));
    assert_eq!(env.async_event(context).err(), Some(EAGAIN));
    assert_eq!(env.close(context), 0);
}
