//! What only the inside of a ring shows: numbers that run out.

use core::ptr::NonNull;
use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::link::carrier::Immediate;
use crate::link::credits::{CreditMode, Credits};
use crate::link::error::{ReceiveError, SendError};
use crate::link::health::Health;
use crate::link::recv_ring::RecvRing;
use crate::link::rules::LinkRules;
use crate::link::send_ring::SendRing;
use crate::link::sequence::Sequence;
use crate::link::work_id::{Blocks, RENEW_BIT};
use crate::verbs::inline_calls::{CheckedContext, CompletionQueueCalls};
use crate::verbs::{Context, ContextOps, Cq, LinkLayer, Qp, QpState, QpType, Wc};

const QP_NUM: u32 = 5;

unsafe extern "C" fn accept_send(_: *mut Qp, _: *mut SendWr, _: *mut *mut SendWr) -> i32 {
    0
}

unsafe extern "C" fn accept_recv(_: *mut Qp, _: *mut RecvWr, _: *mut *mut RecvWr) -> i32 {
    0
}

unsafe extern "C" fn notify(_: *mut Cq, _: i32) -> i32 {
    0
}

/// Answers one completion: the one that `cq_context` points to.
unsafe extern "C" fn poll(cq: *mut Cq, _: i32, wc: *mut Wc) -> i32 {
    // SAFETY: the test made the queue.
    let context = unsafe { (*cq).cq_context };
    // SAFETY: the test points the context at an entry.
    let entry = unsafe { *context.cast::<Wc>() };
    // SAFETY: `poll` has room for one.
    unsafe { *wc = entry };
    1
}

struct Bench {
    calls: QueuePairCalls,
    queue: CompletionQueueCalls,
    entry: NonNull<Wc>,
    ring: Frames<RecvWr, 4>,
}

fn bench() -> Bench {
    let leak = |entry| NonNull::from(Box::leak(Box::new(entry)));
    let entry: NonNull<Wc> = leak(Wc::default());
    let ops = ContextOps {
        poll_cq: Some(poll),
        req_notify_cq: Some(notify),
        post_send: Some(accept_send),
        post_recv: Some(accept_recv),
        ..ContextOps::EMPTY
    };
    let context = Context { device: null_mut(), ops, cmd_fd: -1, async_fd: -1, num_comp_vectors: 1 };
    let context = NonNull::from(Box::leak(Box::new(context)));
    let cq_context = entry.as_ptr().cast();
    let cq = Cq { context: context.as_ptr(), channel: null_mut(), cq_context, handle: 0, cqe: 1 };
    let cq = NonNull::from(Box::leak(Box::new(cq)));
    let qp = Qp {
        context: context.as_ptr(),
        qp_context: null_mut(),
        pd: null_mut(),
        send_cq: cq.as_ptr(),
        recv_cq: cq.as_ptr(),
        srq: null_mut(),
        handle: 0,
        qp_num: QP_NUM,
        state: QpState::RTS,
        qp_type: QpType::UC,
    };
    let qp = NonNull::from(Box::leak(Box::new(qp)));
    // SAFETY: leaked, so it lives.
    let checked = unsafe { CheckedContext::new(context) }.unwrap();
    // SAFETY: leaked, and used here alone.
    let calls = unsafe { QueuePairCalls::new(qp, checked) }.unwrap();
    // SAFETY: leaked, and used here alone.
    let queue = unsafe { CompletionQueueCalls::new(cq, checked) }.unwrap();
    let bytes = Box::leak(Box::new([0u8; 4 * 64]));
    // SAFETY: leaked, initialised, and nobody else has it.
    let memory = unsafe { FrameMemory::from_raw_parts(NonNull::from(bytes).cast(), 4 * 64) };
    let origin = Origin { queue: queue.id(), qp_num: QP_NUM };
    let bounds = Bounds { frame_bytes: 64, depth: 4, kept: 0, released_at_once: 1, byte_len: ByteLen::Trusted };
    let mut ring = Frames::new(memory, origin, bounds).unwrap();
    // SAFETY: no device reads it.
    ring.set_key(unsafe { FrameKey::new(1) });
    Bench { calls, queue, entry, ring }
}

impl Bench {
    fn post(&mut self) -> u64 {
        let wr_id = self.ring.next_id;
        self.ring.vacant().unwrap().post(&mut self.calls).unwrap();
        wr_id
    }

    fn complete(&mut self, wr_id: u64) -> Result<u32, Mismatch> {
        // SAFETY: leaked; read by `poll` only.
        unsafe { *self.entry.as_mut() = Wc { wr_id, qp_num: QP_NUM, ..Wc::default() } };
        let mut room = [Wc::default()];
        let completion = self.queue.poll(&mut room).unwrap().next().unwrap();
        {
            let at_once = self.ring.bounds.released_at_once;
            self.ring.end(completion, at_once).ok_or_else(|| self.ring.mismatch(completion))
        }
    }
}

#[test]
fn a_ring_goes_on_in_a_new_block_with_requests_of_the_old_one_in_flight() {
    for offset in 0..6 {
        let mut bench = bench();
        let block = bench.ring.next_id;
        bench.ring.next_id |= RENEW_BIT - offset;
        let mut all = Vec::new();
        let mut in_flight = std::collections::VecDeque::new();
        for _ in 0..4 {
            in_flight.push_back(bench.post());
        }
        for _ in 0..20 {
            let wr_id = in_flight.pop_front().unwrap();
            assert_eq!(bench.complete(wr_id), Ok(1));
            all.push(wr_id);
            for old in &all {
                assert_eq!(bench.complete(*old), Err(Mismatch::NotInFlight), "a replay, across the blocks, too");
            }
            in_flight.push_back(bench.post());
            assert_eq!(bench.ring.in_flight(), 4);
        }
        assert_ne!(bench.ring.next_id >> 32, block >> 32, "a new block was taken");
        let slots: Vec<_> = all.iter().map(|wr_id| wr_id & 3).collect();
        let first = slots[0];
        assert!(slots.iter().zip(0..).all(|(slot, step)| *slot == (first + step) & 3), "slots go on in order");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20, "no number twice");
    }
}

#[test]
fn a_ring_without_a_new_block_posts_no_more_and_takes_back_what_is_in_flight() {
    let mut bench = bench();
    bench.ring.next_id |= RENEW_BIT;
    let in_flight: Vec<u64> = (0..3).map(|_| bench.post()).collect();
    let none_left = Blocks::used_up();
    bench.ring.renew_from(&none_left);
    assert!(bench.ring.vacant().is_none());
    bench.ring.set_key(bench_key());
    assert!(bench.ring.vacant().is_none(), "a key does not open it again");
    assert_eq!(bench.complete(in_flight[1]), Err(Mismatch::Skipped { skipped: 1 }));
    for wr_id in in_flight {
        assert_eq!(bench.complete(wr_id), Ok(1));
    }
    assert_eq!(bench.ring.in_flight(), 0);
}

#[test]
fn a_ring_without_a_new_block_says_so_however_it_is_asked_to_post() {
    let rules = LinkRules::for_link_layer(LinkLayer::ETHERNET);
    let mut bench = bench();
    bench.ring.renew_from(&Blocks::used_up());
    assert!(bench.ring.is_out_of_ids() && !bench.ring.may_post());
    let Bench { mut calls, ring, .. } = bench;
    let mut receives = RecvRing::new(ring, rules, Sequence::new(0));
    let mut health = Health::new(1, 1);
    assert_eq!(receives.post_one(&mut calls, &mut health), Err(ReceiveError::WorkIdsUsedUp));
    assert_eq!(receives.post(&mut calls, &mut health, 2), Err(ReceiveError::WorkIdsUsedUp));

    let mut sends = send_ring();
    sends.renew_from(&Blocks::used_up());
    let mut sends = SendRing::new::<Immediate>(sends, rules, Sequence::new(0), credits());
    let frame = sends.next_frame(&mut calls, &mut health, &Immediate, Sequence::new(0));
    assert_eq!(frame.err(), Some(SendError::WorkIdsUsedUp));
}

#[test]
fn a_send_goes_out_with_no_more_than_its_frame_whatever_was_worked_out() {
    for (asked, length) in [(0, 0), (63, 63), (64, 64), (65, 64), (u32::MAX, 64)] {
        let mut ring = send_ring();
        let mut vacant = ring.vacant().unwrap();
        vacant.set_wire_bytes(asked);
        let wr_id = vacant.wr_id();
        assert_eq!(ring.slot(wr_id).entry.length, length, "{asked}");
    }
}

/// A ring of four sends of 64 bytes, which nobody posts.
fn send_ring() -> Frames<SendWr, 4> {
    let Bench { queue, ring, .. } = bench();
    let Frames { bounds, .. } = ring;
    let bytes = Box::leak(Box::new([0u8; 4 * 64]));
    // SAFETY: leaked, initialised, and nobody else has it.
    let memory = unsafe { FrameMemory::from_raw_parts(NonNull::from(bytes).cast(), 4 * 64) };
    let mut ring = Frames::new(memory, Origin { queue: queue.id(), qp_num: QP_NUM }, bounds).unwrap();
    ring.set_key(bench_key());
    ring
}

fn credits() -> Credits {
    Credits::new(CreditMode::Off, 4, Sequence::new(0), Sequence::new(0))
}

fn bench_key() -> FrameKey {
    // SAFETY: no device reads it.
    unsafe { FrameKey::new(2) }
}
