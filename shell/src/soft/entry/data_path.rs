//! Post, poll and arm: the operations of a context's table.
//!
//! They look nothing up: the tag in front of the handle says where the object is kept, and one lock is taken. With neither
//! plan nor record they allocate nothing.
//!
//! # Safety
//!
//! This file guarantees that a request is followed only as far as its chain and its counts say, and that a completion is
//! written only into room that the caller named.
#![allow(unsafe_code)]

use std::ffi::c_int;

use bareverbs_core::verbs::{Cq, Qp, RecvWr, SendWr, Sge, Wc, WcStatus};

use crate::soft::bytes::InlineBytes;
use crate::soft::entry::note_stray;
use crate::soft::entry::targets::target;
use crate::soft::handles::{Kind, data_place};
use crate::soft::plan::{Answer, BadWr};
use crate::soft::record::{Call, Detail};
use crate::soft::state::State;
use crate::soft::{errno, worlds};

/// A request of a chain.
trait WorkRequest {
    const SYMBOL: &'static str;
    fn wr_id(&self) -> u64;
    fn next(&self) -> *mut Self;
    fn entries(&self) -> (*mut Sge, c_int);
    /// Takes the request in.
    ///
    /// # Safety
    /// 1. What `entries` name is readable where the request is inline.
    /// 2. The member of its union that its opcode means is filled in.
    unsafe fn accept(&self, state: &mut State, index: u32, entries: &[Sge]) -> Result<(), c_int>;
    /// Entries that a request of the queue pair may have.
    fn most_entries(state: &State, index: u32) -> u32;
    fn after(state: &mut State, index: u32);
}

impl WorkRequest for SendWr {
    const SYMBOL: &'static str = "ibv_post_send";

    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn next(&self) -> *mut Self {
        self.next
    }

    #[inline]
    fn entries(&self) -> (*mut Sge, c_int) {
        (self.sg_list, self.num_sge)
    }

    #[inline]
    unsafe fn accept(&self, state: &mut State, index: u32, entries: &[Sge]) -> Result<(), c_int> {
        // SAFETY: by 1; looked at only where the request is inline.
        let inline = unsafe { InlineBytes::new(entries) };
        // SAFETY: by 2.
        match unsafe { target(self) } {
            Some(target) => state.accept_one_sided(index, self, entries, inline, target),
            None => state.accept_send(index, self, entries, inline),
        }
    }

    #[inline]
    fn most_entries(state: &State, index: u32) -> u32 {
        state.pairs.get(index).map_or(0, |pair| pair.cap.max_send_sge)
    }

    #[inline]
    fn after(state: &mut State, index: u32) {
        state.after_post_send(index);
    }
}

impl WorkRequest for RecvWr {
    const SYMBOL: &'static str = "ibv_post_recv";

    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn next(&self) -> *mut Self {
        self.next
    }

    #[inline]
    fn entries(&self) -> (*mut Sge, c_int) {
        (self.sg_list, self.num_sge)
    }

    #[inline]
    unsafe fn accept(&self, state: &mut State, index: u32, entries: &[Sge]) -> Result<(), c_int> {
        state.accept_receive(index, self, entries)
    }

    #[inline]
    fn most_entries(state: &State, index: u32) -> u32 {
        state.pairs.get(index).map_or(0, |pair| pair.cap.max_recv_sge)
    }

    #[inline]
    fn after(state: &mut State, index: u32) {
        state.after_post_receive(index);
    }
}

/// # Safety
/// 1. `qp` was made by a fabric of this process at some time.
/// 2. The chain, every request that it leads to, and the entries that they name, are valid for the call; what inline
///    requests name is readable.
/// 3. `bad_wr` is null or valid for a write.
/// 4. What the entries name stays as `ibv_post_send` asks until the request has completed.
pub(in crate::soft) unsafe extern "C" fn post_send(qp: *mut Qp, wr: *mut SendWr, bad_wr: *mut *mut SendWr) -> c_int {
    // SAFETY: the same duties.
    unsafe { post(qp, wr, bad_wr) }
}

/// # Safety
/// 1. `qp` was made by a fabric of this process at some time.
/// 2. The chain, every request that it leads to, and the entries that they name, are valid for the call.
/// 3. `bad_wr` is null or valid for a write.
/// 4. What the entries name stays as `ibv_post_recv` asks until the request has completed.
pub(in crate::soft) unsafe extern "C" fn post_recv(qp: *mut Qp, wr: *mut RecvWr, bad_wr: *mut *mut RecvWr) -> c_int {
    // SAFETY: the same duties.
    unsafe { post(qp, wr, bad_wr) }
}

/// # Safety
/// Those of [`post_send`].
#[inline]
unsafe fn post<W: WorkRequest>(qp: *mut Qp, wr: *mut W, bad_wr: *mut *mut W) -> c_int {
    // SAFETY: by 1.
    let Some(place) = (unsafe { data_place(Kind::QueuePair, qp.addr()) }) else {
        note_stray(W::SYMBOL, Kind::QueuePair, qp.addr());
        // SAFETY: by 3.
        return unsafe { refuse(bad_wr, wr, libc::EINVAL) };
    };
    let answer = worlds::with(place.slot, |state| {
        if !state.is_live(Kind::QueuePair, place.index, qp.addr()) {
            state.note_misuse(W::SYMBOL, Kind::QueuePair, qp.addr());
            return (libc::EINVAL, wr);
        }
        if state.any_fatal && state.is_fatal(Kind::QueuePair, place.index) {
            return (libc::EIO, wr);
        }
        if state.is_in_run(place.index) {
            state.blame(format!("{}: queue pair {:#x} is in a run of builders, which holds it", W::SYMBOL, qp.addr()));
            return (libc::EINVAL, wr);
        }
        if state.watches_data_path() {
            // SAFETY: by 2.
            return unsafe { watched_post(state, place.index, qp, wr) };
        }
        // SAFETY: by 2.
        let (_, refused) = unsafe { accept_chain(state, place.index, wr) };
        refusal(state, place.index, refused)
    });
    let (returned, named) = answer.unwrap_or((libc::EINVAL, wr));
    if returned == 0 {
        return 0;
    }
    // SAFETY: by 3.
    unsafe { refuse(bad_wr, named, returned) }
}

/// Names the refused request, unless there is none to name, and passes the answer on.
///
/// # Safety
/// 1. `bad_wr` is null or valid for a write.
#[cold]
unsafe fn refuse<W>(bad_wr: *mut *mut W, named: *mut W, returned: c_int) -> c_int {
    if !bad_wr.is_null() && !named.is_null() {
        // SAFETY: not null, so valid by 1.
        unsafe { bad_wr.write(named) };
    }
    returned
}

/// What a post returns, and the request that it names, for a device of this profile.
#[inline]
fn refusal<W>(state: &State, index: u32, refused: Option<(c_int, *mut W)>) -> (c_int, *mut W) {
    let Some((number, at)) = refused else { return (0, std::ptr::null_mut()) };
    let (returned, names) = state.pairs.get(index).map_or((number, true), |pair| pair.profile.post_refusal(number));
    (returned, if names { at } else { std::ptr::null_mut() })
}

/// Takes in a chain up to the first request that is refused, and lets work move. How many were taken in, and the errno and
/// the request of the refusal.
///
/// # Safety
/// 1. The chain, every request that it leads to, and the entries that they name, are valid for the call; what inline
///    requests name is readable.
#[inline]
unsafe fn accept_chain<W: WorkRequest>(state: &mut State, index: u32, chain: *mut W) -> (u32, Option<(c_int, *mut W)>) {
    let most = W::most_entries(state, index);
    let (mut next, mut accepted, mut refused) = (chain, 0, None);
    // SAFETY: null, which ends the chain, or valid by 1.
    while let Some(request) = unsafe { next.as_ref() } {
        let (list, count) = request.entries();
        let count = u32::try_from(count).ok().filter(|count| *count <= most);
        let outcome = match count {
            None => Err(libc::EINVAL),
            Some(0) => {
                // SAFETY: no entries name nothing.
                unsafe { request.accept(state, index, &[]) }
            }
            Some(_) if list.is_null() => Err(libc::EINVAL),
            Some(count) => {
                // SAFETY: not null, and as many entries as the request says, by 1.
                let entries = unsafe { std::slice::from_raw_parts(list, count as usize) };
                // SAFETY: by 1.
                unsafe { request.accept(state, index, entries) }
            }
        };
        if let Err(number) = outcome {
            refused = Some((number, next));
            break;
        }
        accepted += 1;
        next = request.next();
    }
    W::after(state, index);
    (accepted, refused)
}

/// A post with the plan asked and the call recorded.
///
/// # Safety
/// Those of [`accept_chain`].
#[cold]
unsafe fn watched_post<W: WorkRequest>(state: &mut State, index: u32, qp: *mut Qp, chain: *mut W) -> (c_int, *mut W) {
    let planned = state.plan.on_call(W::SYMBOL);
    let accepts =
        planned.is_none_or(|answer| matches!(answer.bad_wr, BadWr::NullAllAccepted | BadWr::StrayAllAccepted));
    let (accepted, refused) = if accepts {
        // SAFETY: by the caller.
        unsafe { accept_chain(state, index, chain) }
    } else {
        (0, None)
    };
    let (returned, named) = match planned {
        None => refusal(state, index, refused),
        Some(answer) => {
            let named = match answer.bad_wr {
                BadWr::Named => chain,
                BadWr::NullNoneAccepted | BadWr::NullAllAccepted => std::ptr::null_mut(),
                // Never followed, by whoever is told.
                BadWr::StrayAllAccepted => chain.wrapping_add(1),
            };
            (leave_errno(answer), named)
        }
    };
    if state.record.takes_data_path() {
        // SAFETY: null or valid, by the caller.
        let first_wr_id = unsafe { chain.as_ref() }.map_or(0, W::wr_id);
        let detail = Detail::Post { first_wr_id, accepted };
        let errno = planned.and_then(|answer| answer.errno);
        let (symbol, handle) = (W::SYMBOL, qp.addr());
        state.record.add(Call { number: 0, symbol, handle, parents: [0; 3], detail, returned, errno });
    }
    (returned, named)
}

fn leave_errno(answer: Answer) -> c_int {
    if let Some(number) = answer.errno {
        errno::set(number);
    }
    answer.returned
}

/// # Safety
/// 1. `cq` was made by a fabric of this process at some time.
/// 2. `room` is valid for `most` writes.
pub(in crate::soft) unsafe extern "C" fn poll_cq(cq: *mut Cq, most: c_int, room: *mut Wc) -> c_int {
    const SYMBOL: &str = "ibv_poll_cq";
    // SAFETY: by 1.
    let Some(place) = (unsafe { data_place(Kind::CompletionQueue, cq.addr()) }) else {
        note_stray(SYMBOL, Kind::CompletionQueue, cq.addr());
        return -libc::EINVAL;
    };
    let taken = worlds::with(place.slot, |state| {
        if !state.is_live(Kind::CompletionQueue, place.index, cq.addr()) {
            state.note_misuse(SYMBOL, Kind::CompletionQueue, cq.addr());
            return -libc::EINVAL;
        }
        let planned = if state.watches_data_path() { state.plan.on_call(SYMBOL) } else { None };
        let returned = match planned {
            Some(answer) => {
                // SAFETY: by 2.
                unsafe { fill_with_strangers(answer.returned.min(most), room) };
                leave_errno(answer)
            }
            None => {
                // SAFETY: by 2.
                unsafe { take_completions(state, place.index, most, room) }
            }
        };
        if state.record.takes_data_path() {
            let errno = planned.and_then(|answer| answer.errno);
            let (parents, detail) = ([0; 3], Detail::None);
            state.record.add(Call { number: 0, symbol: SYMBOL, handle: cq.addr(), parents, detail, returned, errno });
        }
        returned
    });
    taken.unwrap_or(-libc::EINVAL)
}

/// Entries for a planned answer, so that no caller takes what lay in its room for completions: of failed requests, of a queue
/// pair that cannot be, since numbers have 24 bits.
///
/// # Safety
/// 1. `room` is valid for `count` writes, where that is positive.
#[cold]
unsafe fn fill_with_strangers(count: c_int, room: *mut Wc) {
    let stranger = Wc { wr_id: u64::MAX, status: WcStatus::GENERAL_ERR, qp_num: u32::MAX, ..Wc::default() };
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: fewer than `count`, so by 1 there is room.
        let place = unsafe { room.add(at) };
        // SAFETY: as above.
        unsafe { place.write(stranger) };
    }
}

/// What polling an overflowed queue answers once it is empty: no errno, as mlx5's -2 is none.
const DEAD_QUEUE: c_int = -2;

/// # Safety
/// 1. `room` is valid for `most` writes.
#[inline]
unsafe fn take_completions(state: &mut State, index: u32, most: c_int, room: *mut Wc) -> c_int {
    state.before_poll(index);
    let mut taken = 0;
    while taken < most {
        let Some(completion) = state.take_completion(index) else { break };
        // SAFETY: fewer than `most` were written, so by 1 there is room.
        let place = unsafe { room.add(taken as usize) };
        // SAFETY: as above.
        unsafe { place.write(*completion) };
        taken += 1;
    }
    if taken == 0 && state.queues.get(index).is_some_and(|queue| queue.is_dead()) { DEAD_QUEUE } else { taken }
}

/// A queue without a channel has nobody to tell: granted, as a provider does.
///
/// # Safety
/// 1. `cq` was made by a fabric of this process at some time.
pub(in crate::soft) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, solicited_only: c_int) -> c_int {
    let asked = super::Asked::on("ibv_req_notify_cq", Kind::CompletionQueue, cq.addr());
    super::status(asked.call(|state, index| {
        state.arm_queue(index, solicited_only != 0);
        Ok(0)
    }))
}
