//! Frames that a device reads and writes, and who holds each of them. Whose the bytes are, storage, is in `memory`.
//!
//! The rule this file protects: **while a frame is the device's, safe code can hold no reference to its bytes**: from the
//! post to the completion, after a post of which nobody knows the outcome, and whatever completions are replayed, come
//! late or come from elsewhere.
//!
//! It leaves to `send_ring` and `recv_ring` what a request says, when it is signalled and what its outcome means.
//!
//! # Safety
//!
//! This file alone guarantees:
//!
//! 1. *The memory is kept.* A [`FrameMemory`] is the only way to its bytes (`memory`). `Frames` takes it in and gives it out
//!    again ([`HeldMemory::release`]) only against the promise that the queue pair is gone. Until then it neither drops it
//!    nor lets it be dropped (`ManuallyDrop`), so that the claim, which comes back with the drop of a `FrameMemory`, never
//!    comes back while a device may know the bytes.
//! 2. *One queue pair.* The requests of a `Frames` are posted to one queue pair: the link keeps the
//!    [`QueuePairCalls`] to itself and lends it to nobody.
//! 3. *In flight is a run.* Slots are posted in a circle, so the device's are the `in_flight` slots before `next_id`'s.
//!    A request whose refusal is not certain counts as in flight.
//! 4. *Release needs a completion.* `in_flight` falls only against a [`Completion`], which only a poll can make, from the
//!    ring's own queue and queue pair, with the very number that the slot was posted with. Numbers are never used twice in
//!    a process (`work_id`), so a replayed completion matches nothing. Requests of one queue complete in order (IBTA
//!    volume 1, 10.8.5), so it also ends those posted before it.
//! 5. *References come from tokens.* Bytes are reached through `Vacant` and `Returned` only. Each is made for a slot
//!    outside the run and borrows the ring mutably, so nothing is posted while it lives, but by consuming it.
//!
//! Forgetting a token, a ring or a link keeps frames from being used again, and no more. Dropping a ring frees nothing:
//! the memory is `'static`, and stays claimed, or its owner's. A ring may move at any time: the pointers in its requests are
//! written right before the post and not followed after it (ibv_post_send(3): requests may be reused when the call returns).
#![allow(unsafe_code)]

mod memory;

use core::mem::ManuallyDrop;
use core::ptr::null_mut;
use core::slice;

use crate::link::bounds::{Bounds, Mismatch, Origin, PostFailure, SendKind};
use crate::link::rules::ByteLen;
use crate::link::work_id::{BLOCKS, Blocks, Direction, RENEW_BIT, WorkId};
use crate::verbs::inline_calls::{Completion, PostError, QueuePairCalls};
use crate::verbs::{Be32, RecvWr, SendFlags, SendWr, Sge, WrOpcode};

pub use memory::{FrameKey, FrameMemory, FrameStorage, HeldMemory, PAGE_BYTES};

/// Send and receive requests, as far as posting is concerned.
pub(crate) trait Request: Copy {
    const EMPTY: Self;
    const DIRECTION: Direction;
    fn wr_id(&self) -> u64;
    /// Writes what is the ring's to write with every post: the number, and where the entry is now.
    fn aim(&mut self, wr_id: u64, entry: *mut Sge);
    /// Links it; null at rest.
    fn link(&mut self, next: *mut Self);
    /// # Safety
    /// Those of [`QueuePairCalls::post_send`] and [`QueuePairCalls::post_recv`].
    unsafe fn post(calls: &mut QueuePairCalls, chain: *mut Self) -> Result<(), PostError>;
}

impl Request for SendWr {
    const EMPTY: Self = SendWr { num_sge: 1, opcode: WrOpcode::SEND, ..SendWr::EMPTY };
    const DIRECTION: Direction = Direction::Send;

    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline(always)]
    fn aim(&mut self, wr_id: u64, entry: *mut Sge) {
        self.wr_id = wr_id;
        self.sg_list = entry;
    }

    #[inline(always)]
    fn link(&mut self, next: *mut Self) {
        self.next = next;
    }

    #[inline]
    unsafe fn post(calls: &mut QueuePairCalls, chain: *mut Self) -> Result<(), PostError> {
        // SAFETY: 1 and 2 are this function's own duties.
        unsafe { calls.post_send(chain) }
    }
}

impl Request for RecvWr {
    const EMPTY: Self = RecvWr { num_sge: 1, ..RecvWr::EMPTY };
    const DIRECTION: Direction = Direction::Receive;

    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline(always)]
    fn aim(&mut self, wr_id: u64, entry: *mut Sge) {
        self.wr_id = wr_id;
        self.sg_list = entry;
    }

    #[inline(always)]
    fn link(&mut self, next: *mut Self) {
        self.next = next;
    }

    #[inline]
    unsafe fn post(calls: &mut QueuePairCalls, chain: *mut Self) -> Result<(), PostError> {
        // SAFETY: 1 and 2 are this function's own duties.
        unsafe { calls.post_recv(chain) }
    }
}

/// Posts a queue's teardown marker: a request that names no memory.
pub(crate) fn post_marker(calls: &mut QueuePairCalls, direction: Direction) -> Result<(), PostError> {
    let wr_id = WorkId::marker_of(direction).raw();
    match direction {
        Direction::Send => {
            let send_flags = SendFlags::SIGNALED;
            let mut marker = SendWr { wr_id, opcode: WrOpcode::SEND, send_flags, ..SendWr::EMPTY };
            // SAFETY: 1: a local of this call, alone in its chain. 2: it has no entry, so it names no memory.
            unsafe { calls.post_send(&raw mut marker) }
        }
        Direction::Receive => {
            let mut marker = RecvWr { wr_id, ..RecvWr::EMPTY };
            // SAFETY: 1: a local of this call, alone in its chain. 2: it has no entry, so it names no memory.
            unsafe { calls.post_recv(&raw mut marker) }
        }
    }
}

/// A request and its scatter/gather entry, in place: what a post patches lies in one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Slot<W> {
    entry: Sge,
    request: W,
}

/// A circle of `N` frames (a power of two, at most 32768), each with its request.
// What every post and completion looks at comes first, so that short offsets reach it.
#[repr(C)]
pub(crate) struct Frames<W, const N: usize> {
    /// Number of the next request; its low bits are the next slot.
    next_id: u64,
    /// How many requests before that one may be the device's.
    in_flight: u32,
    /// How many may be, those in kept places aside: 0 without a key or without numbers, and less than the depth where a
    /// ceiling is set.
    limit: u32,
    bounds: Bounds,
    /// Lengths below this may be believed of a message that came: 0 for none, else one more than a frame.
    believed_below: u32,
    origin: Origin,
    /// Not dropped with the ring: the device may know it (1).
    memory: ManuallyDrop<FrameMemory>,
    /// Number of the first request.
    first_id: u64,
    has_key: bool,
    out_of_ids: bool,
    slots: [Slot<W>; N],
}

// SAFETY: the memory is `Send`; the pointers inside the requests point into the ring itself, are written before a post,
// and are not followed by us.
unsafe impl<W: Request, const N: usize> Send for Frames<W, N> {}

impl<W: Request, const N: usize> Frames<W, N> {
    const LENGTH_IS_VALID: () =
        assert!(N.is_power_of_two() && N <= 32768, "a ring has a power of two of frames, at most 32768");

    /// A ring over `memory`; `None` if it is too small for `N` frames, or numbers ran out.
    pub(crate) fn new(memory: FrameMemory, origin: Origin, bounds: Bounds) -> Option<Self> {
        let () = Self::LENGTH_IS_VALID;
        if memory.len_bytes() / N < bounds.frame_bytes as usize {
            return None;
        }
        let mut slots = [Slot { entry: Sge::default(), request: W::EMPTY }; N];
        let mut addr = memory.as_ptr().addr() as u64;
        for slot in &mut slots {
            slot.entry = Sge { addr, length: bounds.frame_bytes, lkey: 0 };
            addr = addr.wrapping_add(u64::from(bounds.frame_bytes));
        }
        let next_id = WorkId::first_of(W::DIRECTION, BLOCKS.take()?, 0).raw();
        let believed_below = match bounds.byte_len {
            ByteLen::Trusted => bounds.frame_bytes.saturating_add(1),
            ByteLen::Unknown => 0,
        };
        let bounds = Bounds { depth: bounds.depth.min(N as u32), ..bounds };
        let (has_key, out_of_ids) = (false, false);
        Some(Self {
            slots,
            memory: ManuallyDrop::new(memory),
            origin,
            bounds,
            next_id,
            first_id: next_id,
            in_flight: 0,
            limit: 0,
            believed_below,
            has_key,
            out_of_ids,
        })
    }

    /// Takes the ring apart.
    pub(crate) fn into_memory(self) -> ManuallyDrop<FrameMemory> {
        self.memory
    }

    /// Names the region of the frames; before that, the limit is 0.
    pub(crate) fn set_key(&mut self, key: FrameKey) {
        for slot in &mut self.slots {
            slot.entry.lkey = key.lkey();
        }
        self.has_key = true;
        self.set_ceiling(u32::MAX);
    }

    /// Lets no more requests than this be in flight, those in kept places aside; no more than the depth in any case.
    pub(crate) fn set_ceiling(&mut self, ceiling: u32) {
        self.limit = if self.may_post() { ceiling.min(self.depth()) } else { 0 };
    }

    /// Whether anything may be posted, were there a place.
    pub(crate) const fn may_post(&self) -> bool {
        self.has_key && !self.out_of_ids
    }

    /// How many requests may be in flight at most, those in kept places aside.
    pub(crate) const fn depth(&self) -> u32 {
        self.bounds.depth.saturating_sub(self.bounds.kept)
    }

    pub(crate) const fn has_key(&self) -> bool {
        self.has_key
    }

    /// Whether nothing can be posted any more for want of numbers.
    pub(crate) const fn is_out_of_ids(&self) -> bool {
        self.out_of_ids
    }

    #[inline]
    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The numbers of the requests that may be the device's, oldest first.
    pub(crate) fn pending(&self) -> impl Iterator<Item = WorkId> {
        let oldest = self.next_id.wrapping_sub(u64::from(self.in_flight));
        (0..u64::from(self.in_flight))
            .map(move |place| WorkId::from_raw(self.slot(oldest.wrapping_add(place)).request.wr_id()))
    }

    /// Whether nothing was posted yet: no number is ever used twice.
    pub(crate) const fn is_untouched(&self) -> bool {
        self.next_id == self.first_id
    }

    /// How many more requests may be posted now.
    #[inline]
    pub(crate) const fn free(&self) -> u32 {
        self.limit.saturating_sub(self.in_flight)
    }

    #[inline]
    pub(crate) const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether another request may be posted after `ahead` others.
    #[inline(always)]
    pub(crate) const fn has_vacant(&self, ahead: u32) -> bool {
        // Both are below 2^17, so the sum is right.
        self.in_flight.wrapping_add(ahead) < self.limit
    }

    /// The same where `open` masks the limit: all ones, or 0 for a broken link.
    #[inline(always)]
    pub(crate) const fn has_vacant_if(&self, open: u32, ahead: u32) -> bool {
        self.in_flight.wrapping_add(ahead) < self.limit & open
    }

    /// The frame whose request comes next, if one may be posted.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_, W, N>> {
        self.vacant_ahead(0)
    }

    /// The frame whose request comes after `ahead` others, if that many and one more may be posted.
    #[inline(always)]
    pub(crate) fn vacant_ahead(&mut self, ahead: u32) -> Option<Vacant<'_, W, N>> {
        if !self.has_vacant(ahead) {
            return None;
        }
        let wr_id = self.next_id.wrapping_add(u64::from(ahead));
        Some(Vacant { ring: self, wr_id })
    }

    /// As [`Frames::vacant`], where a kept place will do.
    pub(crate) fn vacant_kept(&mut self) -> Option<Vacant<'_, W, N>> {
        // The bounds' depth is the ring's length at most.
        if !self.may_post() || self.in_flight >= self.bounds.depth {
            return None;
        }
        let wr_id = self.next_id;
        Some(Vacant { ring: self, wr_id })
    }

    /// Posts the next `count` requests as they stand, as one chain; fewer if fewer may be posted.
    pub(crate) fn post_chain(&mut self, calls: &mut QueuePairCalls, count: u32) -> Result<u32, PostFailure> {
        let count = count.min(self.free());
        if count == 0 {
            return Ok(0);
        }
        let first = self.aim_chain(count);
        // SAFETY: 1: the chain lies in `slots`, which nothing touches before the call is over; it ends with null after
        // `count` requests, and names their entries. 2: the entries name frames of `memory`, which outlives the queue
        // pair's use of it (`from_raw_parts`, 2; `HeldMemory`); they are outside the run (`free`), no token exists
        // (`&mut self`), and from here on they count as in flight, or were refused for certain.
        let outcome = unsafe { W::post(calls, first) };
        self.unlink(count);
        self.book(outcome, count)
    }

    /// Numbers and links the next `count` requests, at least one and at most as many as there are; answers the first.
    fn aim_chain(&mut self, count: u32) -> *mut W {
        let start = WorkId::from_raw(self.next_id).slot(N);
        let mut wr_id = self.next_id;
        // All pointers of the chain derive from this one.
        let slots = self.slots.as_mut_ptr();
        let end = slots.wrapping_add(N);
        let mut slot = slots.wrapping_add(start);
        // SAFETY: the index was masked to the array's length.
        let first = unsafe { &raw mut (*slot).request };
        for left in (0..count).rev() {
            let following = slot.wrapping_add(1);
            let following = if following == end { slots } else { following };
            // SAFETY: `slot` walks round the array and never stands at its end.
            let entry = unsafe { &raw mut (*slot).entry };
            // SAFETY: as `slot` does, so does `following`.
            let next = unsafe { &raw mut (*following).request };
            // SAFETY: as before; no other reference to the slot exists.
            let request = unsafe { &mut (*slot).request };
            request.aim(wr_id, entry);
            request.link(if left == 0 { null_mut() } else { next });
            wr_id = wr_id.wrapping_add(1);
            slot = following;
        }
        first
    }

    /// Puts the next `count` requests back to rest.
    fn unlink(&mut self, count: u32) {
        let mut wr_id = self.next_id;
        for _ in 0..count {
            self.slot_mut(wr_id).request.link(null_mut());
            wr_id = wr_id.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn post_one(&mut self, calls: &mut QueuePairCalls) -> Result<(), PostFailure> {
        let wr_id = self.next_id;
        let slot = self.slot_mut(wr_id);
        let entry = &raw mut slot.entry;
        slot.request.aim(wr_id, entry);
        let request = &raw mut slot.request;
        // SAFETY: 1: a chain of one (it is linked to nothing at rest), its entry beside it. 2: as in `post_chain`; that the
        // frame is outside the run, and that the limit allows it, is what the token proves that the caller consumed.
        let outcome = unsafe { W::post(calls, request) };
        if outcome.is_err() {
            return self.book(outcome, 1).map(|_| ());
        }
        self.next_id = self.next_id.wrapping_add(1);
        self.in_flight = self.in_flight.wrapping_add(1);
        Ok(())
    }

    /// Books what a post of `count` left in flight.
    #[cold]
    #[inline(never)]
    fn book(&mut self, outcome: Result<(), PostError>, count: u32) -> Result<u32, PostFailure> {
        let (in_flight, result) = match outcome {
            Ok(()) => (count, Ok(count)),
            Err(PostError::Refused { raw, bad_wr }) => match self.position_in_chain(bad_wr, count) {
                Some(accepted) => (accepted, Err(PostFailure::Refused { accepted, raw })),
                // An address that was not posted says nothing.
                None => (count, Err(PostFailure::Unknown { raw })),
            },
            Err(error) => (count, Err(PostFailure::Unknown { raw: error.raw() })),
        };
        self.next_id = self.next_id.wrapping_add(u64::from(in_flight));
        self.in_flight = self.in_flight.wrapping_add(in_flight);
        result
    }

    fn position_in_chain(&self, bad_wr: usize, count: u32) -> Option<u32> {
        (0..count).find(|ahead| {
            let slot = self.slot(self.next_id.wrapping_add(u64::from(*ahead)));
            (&raw const slot.request).addr() == bad_wr
        })
    }

    /// Ends the request that a completion is of, and those before it, if they are at most `at_once`; answers how many, or
    /// nothing if it ends none ([`Frames::mismatch`] says why).
    #[inline(always)]
    pub(crate) fn end(&mut self, completion: Completion<'_>, at_once: u32) -> Option<u32> {
        let wr_id = completion.wr_id();
        let posted_after = self.posted_after(wr_id);
        // At least 1 for a request in flight; wraps to more than any limit for one that is not.
        let released = self.in_flight.wrapping_sub(posted_after);
        // One branch each: joined by `||`, they cost more instructions.
        if self.slot(wr_id).request.wr_id() != wr_id {
            return None;
        }
        if completion.queue() != self.origin.queue {
            return None;
        }
        if completion.qp_num() != self.origin.qp_num {
            return None;
        }
        if released.wrapping_sub(1) >= at_once {
            return None;
        }
        self.in_flight = posted_after;
        if self.next_id & RENEW_BIT != 0 {
            // Inlined although it is rare: a call here would make callers look at memory again. Said to be cold: else it stands
            // in the middle of a poll's path, which then takes a jump more for each completion.
            core::hint::cold_path();
            self.renew_from(&BLOCKS);
        }
        Some(released)
    }

    /// As [`Frames::end`], and hands out the frame of the last of them. Where `at_once` is 0 the link is broken: its books
    /// are kept, and no frame is handed out.
    #[inline(always)]
    pub(crate) fn release(&mut self, completion: Completion<'_>, at_once: u32) -> Result<Returned<'_, W, N>, Mismatch> {
        match self.end(completion, at_once) {
            Some(_) => {
                let len_bytes = self.bounds.frame_bytes as usize;
                Ok(Returned { ring: self, wr_id: completion.wr_id(), start_bytes: 0, len_bytes })
            }
            None => Err(if at_once == 0 { self.settle(completion) } else { self.mismatch(completion) }),
        }
    }

    /// Keeps the books of a broken link: a completion ends its request and all before it, since completions may be missing.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&mut self, completion: Completion<'_>) -> Mismatch {
        match self.mismatch(completion) {
            Mismatch::Skipped { .. } => {
                self.in_flight = self.posted_after(completion.wr_id());
                Mismatch::Settled
            }
            mismatch => mismatch,
        }
    }

    /// What keeps a completion from ending a request; `Skipped` where only the number of those before it does.
    #[cold]
    #[inline(never)]
    pub(crate) fn mismatch(&self, completion: Completion<'_>) -> Mismatch {
        let wr_id = completion.wr_id();
        if completion.queue() != self.origin.queue {
            Mismatch::Queue
        } else if completion.qp_num() != self.origin.qp_num {
            Mismatch::QueuePair
        } else if self.slot(wr_id).request.wr_id() != wr_id || self.posted_after(wr_id) >= self.in_flight {
            Mismatch::NotInFlight
        } else {
            Mismatch::Skipped { skipped: self.in_flight.wrapping_sub(self.posted_after(wr_id)).wrapping_sub(1) }
        }
    }

    /// How many were posted after the request in the slot of `wr_id`, counted round the circle.
    #[inline(always)]
    fn posted_after(&self, wr_id: u64) -> u32 {
        WorkId::from_raw(self.next_id.wrapping_sub(1).wrapping_sub(wr_id)).slot(N) as u32
    }

    /// Goes on in a new block, at the same slot: called with more numbers left than the ring has frames.
    #[inline]
    fn renew_from(&mut self, blocks: &Blocks) {
        let slot = WorkId::from_raw(self.next_id).slot(N) as u32;
        match blocks.take() {
            Some(block) => self.next_id = WorkId::first_of(W::DIRECTION, block, slot).raw(),
            // Nothing is posted any more, so the block's last number is never passed.
            None => {
                self.out_of_ids = true;
                self.limit = 0;
            }
        }
    }

    #[inline(always)]
    fn slot(&self, wr_id: u64) -> &Slot<W> {
        &self.slots[WorkId::from_raw(wr_id).slot(N)]
    }

    #[inline(always)]
    fn slot_mut(&mut self, wr_id: u64) -> &mut Slot<W> {
        &mut self.slots[WorkId::from_raw(wr_id).slot(N)]
    }

    #[inline(always)]
    fn frame_ptr(&self, wr_id: u64) -> *mut u8 {
        let offset = WorkId::from_raw(wr_id).slot(N).wrapping_mul(self.bounds.frame_bytes as usize);
        self.memory.as_ptr().wrapping_add(offset)
    }
}

/// A frame that is not the device's, whose request comes next: for filling in and posting.
pub(crate) struct Vacant<'ring, W, const N: usize> {
    ring: &'ring mut Frames<W, N>,
    wr_id: u64,
}

impl<W: Request, const N: usize> Vacant<'_, W, N> {
    /// The frame's bytes.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the frame lies in `memory` (`Frames::new`) and is outside the run, and stays so for the borrow (5);
        // `&mut self` makes it the only reference.
        unsafe { slice::from_raw_parts_mut(self.ring.frame_ptr(self.wr_id), self.ring.bounds.frame_bytes as usize) }
    }

    /// The ring's state.
    #[inline]
    pub(crate) const fn ring(&self) -> &Frames<W, N> {
        self.ring
    }

    /// Posts the ring's next request: this one, unless it was asked for ahead.
    #[inline(always)]
    pub(crate) fn post(self, calls: &mut QueuePairCalls) -> Result<(), PostFailure> {
        self.ring.post_one(calls)
    }
}

impl<const N: usize> Vacant<'_, SendWr, N> {
    /// The request's number.
    pub(crate) const fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// As [`Vacant::post`], as another kind of send than the ring's.
    pub(crate) fn post_as(self, kind: SendKind, calls: &mut QueuePairCalls) -> Result<(), PostFailure> {
        let Self { ring, wr_id } = self;
        let of_ring = core::mem::replace(&mut ring.slot_mut(wr_id).request.opcode, kind.opcode());
        let posted = ring.post_one(calls);
        ring.slot_mut(wr_id).request.opcode = of_ring;
        posted
    }

    /// How much of the frame goes out; never more than there is, whatever the caller worked out. (The comparison folds
    /// away where the caller has just made it.)
    #[inline(always)]
    pub(crate) fn set_wire_bytes(&mut self, wire_bytes: u32) {
        let length = wire_bytes.min(self.ring.bounds.frame_bytes);
        self.ring.slot_mut(self.wr_id).entry.length = length;
    }

    /// What else changes from send to send.
    #[inline(always)]
    pub(crate) fn set_request(&mut self, immediate: Be32, flags: SendFlags) {
        let slot = self.ring.slot_mut(self.wr_id);
        slot.request.imm_data = immediate;
        slot.request.send_flags = flags;
    }
}

impl<const N: usize> Frames<SendWr, N> {
    /// What every send of the ring does.
    pub(crate) fn set_kind(&mut self, kind: SendKind) {
        for slot in &mut self.slots {
            slot.request.opcode = kind.opcode();
        }
    }

    /// Signals the request that comes after `ahead` others.
    pub(crate) fn signal_ahead(&mut self, ahead: u32) {
        if ahead < self.free() {
            let wr_id = self.next_id.wrapping_add(u64::from(ahead));
            self.slot_mut(wr_id).request.send_flags |= SendFlags::SIGNALED;
        }
    }
}

/// A frame that a completion has just brought back.
pub(crate) struct Returned<'ring, W, const N: usize> {
    ring: &'ring mut Frames<W, N>,
    wr_id: u64,
    /// The part that `bytes` shows: `start_bytes + len_bytes` is at most a frame.
    start_bytes: usize,
    len_bytes: usize,
}

impl<'ring, W: Request, const N: usize> Returned<'ring, W, N> {
    /// The request's number.
    #[inline]
    pub(crate) const fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// The whole frame's bytes.
    #[inline(always)]
    pub(crate) fn frame(&self) -> &[u8] {
        // SAFETY: the frame lies in `memory` (`Frames::new`) and is outside the run: `release` has shortened it, and
        // nothing can be posted during the borrow (5).
        unsafe { slice::from_raw_parts(self.ring.frame_ptr(self.wr_id), self.ring.bounds.frame_bytes as usize) }
    }

    /// Makes [`Returned::bytes`] show the first `byte_len` bytes of the frame, if that can be believed.
    #[inline(always)]
    pub(crate) fn trim_to_believed(&mut self, byte_len: u32) -> Option<()> {
        // Below one more than a frame, by `Frames::new`: at most a frame.
        if byte_len >= self.ring.believed_below {
            return None;
        }
        (self.start_bytes, self.len_bytes) = (0, byte_len as usize);
        Some(())
    }

    /// Makes [`Returned::bytes`] show a part of the frame only; nothing, if there is no such part.
    #[inline(always)]
    pub(crate) fn trim(&mut self, start_bytes: u32, len_bytes: u32) {
        let fits = u64::from(start_bytes) + u64::from(len_bytes) <= u64::from(self.ring.bounds.frame_bytes);
        (self.start_bytes, self.len_bytes) = if fits { (start_bytes as usize, len_bytes as usize) } else { (0, 0) };
    }

    /// The part of the frame's bytes that was asked for.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.ring.frame_ptr(self.wr_id).wrapping_add(self.start_bytes);
        // SAFETY: as in `frame`; the part lies in the frame (`trim`).
        unsafe { slice::from_raw_parts(start, self.len_bytes) }
    }

    /// Gives it back to the ring, and takes the frame whose request comes next.
    #[inline(always)]
    pub(crate) fn into_vacant(self) -> Option<Vacant<'ring, W, N>> {
        self.ring.vacant()
    }
}

#[cfg(test)]
mod tests;
