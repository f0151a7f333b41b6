//! A provider in the firmware: two queue pairs that are each other's peer. It really moves the bytes.
//!
//! An embedded user brings such functions for a device of its own; core calls them through the same table as it calls a
//! library's. The tables of the C structs are asserted on 64 bits only: here is no C library, so the words have the width that
//! this target gives them, on both sides alike.
//!
//! # Safety
//!
//! This file guarantees that its functions touch an end only while a call of a link or a queue is under way, from one thread,
//! and only the bytes of requests that were posted and are not completed.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use bareverbs_core::link::{Carrier, FrameKey, FrameStorage, Geometry, Link, LinkRules, LinkSetup, Sequence};
use bareverbs_core::verbs::inline_calls::{CheckedContext, CompletionQueueCalls, QueuePairCalls};
use bareverbs_core::verbs::{
    Context, ContextOps, Cq, LinkLayer, Qp, QpState, QpType, RecvWr, SendFlags, SendWr, Sge, Wc, WcFlags, WcOpcode,
    WcStatus, WrOpcode,
};
use heapless::Deque;

pub const FRAME_BYTES: u32 = 256;
pub const DEPTH: usize = 4;
const KEY: u32 = 0x77;

/// What is to happen to a message under way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    /// Its byte of that index is flipped.
    Flipped(usize),
}

/// One end: what its device has, and what it is done with.
pub struct End {
    receives: Deque<(u64, Sge), DEPTH>,
    done: Deque<Wc, 16>,
    peer: *mut End,
    qp_num: u32,
    pub fate: Fate,
    pub calls: u32,
}

/// The objects of one end, as C has them.
pub struct Objects {
    context: Context,
    queue: Cq,
    queue_pair: Qp,
    pub end: End,
}

impl Objects {
    pub const fn new(qp_num: u32) -> Self {
        let ops = ContextOps {
            poll_cq: Some(poll_cq),
            req_notify_cq: Some(req_notify_cq),
            post_send: Some(post_send),
            post_recv: Some(post_recv),
            ..ContextOps::EMPTY
        };
        let context = Context { device: ptr::null_mut(), ops, cmd_fd: -1, async_fd: -1, num_comp_vectors: 1 };
        let queue = Cq {
            context: ptr::null_mut(),
            channel: ptr::null_mut(),
            cq_context: ptr::null_mut(),
            handle: qp_num,
            cqe: 16,
        };
        let queue_pair = Qp {
            context: ptr::null_mut(),
            qp_context: ptr::null_mut(),
            pd: ptr::null_mut(),
            send_cq: ptr::null_mut(),
            recv_cq: ptr::null_mut(),
            srq: ptr::null_mut(),
            handle: qp_num,
            qp_num,
            state: QpState::RTS,
            qp_type: QpType::UC,
        };
        let end = End {
            receives: Deque::new(),
            done: Deque::new(),
            peer: ptr::null_mut(),
            qp_num,
            fate: Fate::Arrives,
            calls: 0,
        };
        Self { context, queue, queue_pair, end }
    }
}

/// A link and the queue of its completions.
pub type Side<C> = (Link<C, DEPTH, DEPTH>, CompletionQueueCalls);

/// Storage of one link's frames.
pub type Storage = FrameStorage<{ 2 * DEPTH * FRAME_BYTES as usize }>;

/// Joins two ends, which stay where they are for ever, and makes a link at each.
pub fn connect<C: Carrier>(
    carrier: C,
    ends: [&'static mut Objects; 2],
    frames: [&'static Storage; 2],
    start: Sequence,
) -> ([Side<C>; 2], [NonNull<End>; 2]) {
    let [one, other] = ends.map(NonNull::from);
    let [a, b] = [join(one, other), join(other, one)];
    let [for_a, for_b] = frames;
    ([side(carrier, one, for_a, start), side(carrier, other, for_b, start)], [a, b])
}

/// Writes the pointers that C objects have to each other, and the way to the peer.
fn join(objects: NonNull<Objects>, peer: NonNull<Objects>) -> NonNull<End> {
    let (this, peer) = (objects.as_ptr(), peer.as_ptr());
    // SAFETY: both live for ever, and no reference to them is kept: only pointers from here on.
    let (context, queue, end, peer) =
        unsafe { (&raw mut (*this).context, &raw mut (*this).queue, &raw mut (*this).end, &raw mut (*peer).end) };
    // SAFETY: as above.
    unsafe { (*end).peer = peer };
    // SAFETY: as above.
    let queue_object = unsafe { &mut (*this).queue };
    (queue_object.context, queue_object.cq_context) = (context, end.cast::<c_void>());
    // SAFETY: as above.
    let queue_pair = unsafe { &mut (*this).queue_pair };
    (queue_pair.context, queue_pair.qp_context) = (context, end.cast::<c_void>());
    (queue_pair.send_cq, queue_pair.recv_cq) = (queue, queue);
    NonNull::new(end).expect("a field of an object")
}

fn side<C: Carrier>(carrier: C, objects: NonNull<Objects>, frames: &'static Storage, start: Sequence) -> Side<C> {
    let this = objects.as_ptr();
    let pointer = |made: Option<_>| made.expect("a field of an object");
    // SAFETY: the context lives for ever, and its table never changes.
    let context = unsafe { CheckedContext::new(NonNull::from(&mut (*this).context)) }.expect("four operations");
    // SAFETY: the objects live for ever, and are used here alone, by one thread.
    let queue = pointer(NonNull::new(unsafe { &raw mut (*this).queue }));
    // SAFETY: as above.
    let queue = unsafe { CompletionQueueCalls::new(queue, context) }.expect("its own context");
    // SAFETY: as above.
    let queue_pair = NonNull::new(unsafe { &raw mut (*this).queue_pair }).expect("a field of an object");
    // SAFETY: as above; made once for each queue pair.
    let calls = unsafe { QueuePairCalls::new(queue_pair, context) }.expect("its own context");
    // SAFETY: this provider reads addresses as they are, and looks at no key.
    let key = unsafe { FrameKey::new(KEY) };
    let setup = LinkSetup {
        send_queue: queue.id(),
        recv_queue: queue.id(),
        geometry: Geometry { frame_bytes: FRAME_BYTES, send_capacity: DEPTH as u32, recv_capacity: DEPTH as u32 },
        rules: LinkRules { signal_every: 2, ..LinkRules::for_link_layer(LinkLayer::ETHERNET) },
        tx_start: start,
        rx_start: start,
        key: Some(key),
    };
    let memory = frames.claim().expect("claimed once");
    (Link::new(carrier, calls, memory, setup).expect("a link"), queue)
}

/// The end behind an object's word.
///
/// # Safety
/// 1. `word` is what `join` wrote. 2. No other reference to that end is alive.
unsafe fn end<'call>(word: *mut c_void) -> &'call mut End {
    // SAFETY: by 1 it points to an end, which lives for ever; by 2 this is the only reference.
    unsafe { &mut *word.cast::<End>() }
}

unsafe extern "C" fn post_recv(qp: *mut Qp, mut wr: *mut RecvWr, bad_wr: *mut *mut RecvWr) -> c_int {
    // SAFETY: called with a queue pair of `join`'s, and nothing else runs.
    let end = unsafe { end((*qp).qp_context) };
    while !wr.is_null() {
        // SAFETY: the caller's chain is live during the call.
        let request = unsafe { &*wr };
        // SAFETY: so are its entries; a receive of a link has one.
        let entry = unsafe { *request.sg_list };
        if end.receives.push_back((request.wr_id, entry)).is_err() {
            // SAFETY: the caller's word for the request that is refused.
            unsafe { *bad_wr = wr };
            return 12;
        }
        wr = request.next;
    }
    0
}

unsafe extern "C" fn post_send(qp: *mut Qp, mut wr: *mut SendWr, bad_wr: *mut *mut SendWr) -> c_int {
    // SAFETY: called with a queue pair of `join`'s, and nothing else runs.
    let this = unsafe { end((*qp).qp_context) };
    this.calls += 1;
    while !wr.is_null() {
        // SAFETY: the caller's chain is live during the call.
        let request = unsafe { &*wr };
        // SAFETY: so are its entries; a send of a link has one.
        let entry = unsafe { *request.sg_list };
        // SAFETY: the peer is another end than `this`, and nothing else refers to it.
        deliver(request, entry, this.fate, unsafe { &mut *this.peer });
        if request.send_flags.contains(SendFlags::SIGNALED) {
            let done = Wc { wr_id: request.wr_id, qp_num: this.qp_num, ..Wc::default() };
            if this.done.push_back(done).is_err() {
                // SAFETY: the caller's word for the request that is refused.
                unsafe { *bad_wr = wr };
                return 12;
            }
        }
        wr = request.next;
    }
    0
}

/// Moves a message into the oldest receive of `peer`. Unreliable: what finds none is lost.
fn deliver(request: &SendWr, entry: Sge, fate: Fate, peer: &mut End) {
    if fate == Fate::Lost {
        return;
    }
    let Some((wr_id, target)) = peer.receives.pop_front() else { return };
    let mut wc = Wc { wr_id, opcode: WcOpcode::RECV, byte_len: entry.length, qp_num: peer.qp_num, ..Wc::default() };
    if entry.length > target.length {
        wc.status = WcStatus::LOC_LEN_ERR;
    } else {
        let from = ptr::with_exposed_provenance::<u8>(entry.addr as usize);
        let to = ptr::with_exposed_provenance_mut::<u8>(target.addr as usize);
        // SAFETY: both are frames of posted requests, which are the device's; those of two links do not overlap.
        unsafe { ptr::copy_nonoverlapping(from, to, entry.length as usize) };
        if let Fate::Flipped(byte) = fate {
            assert!(byte < entry.length as usize);
            // SAFETY: within the frame that was just written.
            let byte = unsafe { &mut *to.add(byte) };
            *byte ^= 1;
        }
    }
    if request.opcode == WrOpcode::SEND_WITH_IMM {
        (wc.imm_data, wc.wc_flags) = (request.imm_data, WcFlags::WITH_IMM);
    }
    assert!(peer.done.push_back(wc).is_ok(), "a completion queue as deep as both rings");
}

unsafe extern "C" fn poll_cq(cq: *mut Cq, room: c_int, wc: *mut Wc) -> c_int {
    // SAFETY: called with a queue of `join`'s, and nothing else runs.
    let end = unsafe { end((*cq).cq_context) };
    let mut count = 0;
    while count < room {
        let Some(entry) = end.done.pop_front() else { break };
        // SAFETY: the caller has room for `room` entries.
        unsafe { wc.add(count as usize).write(entry) };
        count += 1;
    }
    count
}

unsafe extern "C" fn req_notify_cq(_: *mut Cq, _: c_int) -> c_int {
    0
}

/// Decides what becomes of the messages that an end sends from now on; answers how many calls it had.
pub fn set_fate(end: NonNull<End>, fate: Fate) -> u32 {
    // SAFETY: it lives for ever, and no call is under way.
    let end = unsafe { &mut *end.as_ptr() };
    end.fate = fate;
    end.calls
}
