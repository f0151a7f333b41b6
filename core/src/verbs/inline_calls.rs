//! Post, poll and arm: what C has inline, through the context's operation table.
//!
//! The rule this file protects: **a call costs what C's costs** (load, load, indirect call), **and no answer of a provider
//! is lost or believed without a look**. The slots are checked once, when a device is opened ([`CheckedContext`]); a post
//! tells refused from unknown ([`PostError`]); a poll tells negative from empty ([`PollError`]) and hands out completions
//! that nobody else can make ([`Completion`]).
//!
//! It leaves to others what a request says (`link`), and what -1 with `errno` means (the shell, which can read `errno`).
//!
//! After a poll hands out a success, the payload may be read: the provider's poll has the barrier towards the device, and
//! this file adds the compiler's. Watching payload bytes to learn that a message came is not supported: the order in
//! which a device writes them is not promised by anyone.
//!
//! # Safety
//!
//! This file guarantees that a call through the table is made only through a slot that was seen to be present, on an
//! object whose owner promised ([`QueuePairCalls::new`], [`CompletionQueueCalls::new`]) that it lives and is not used by
//! another thread at the same time; and that a [`Completion`] stands for an entry that a provider wrote.
#![allow(unsafe_code)]

use core::ffi::c_int;
use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{Ordering, compiler_fence};

use crate::verbs::completion::{Cq, FailedCompletion, Wc};
use crate::verbs::context::{Context, PollCqFn, PostRecvFn, PostSendFn, ReqNotifyCqFn};
use crate::verbs::queue_pair::Qp;
use crate::verbs::work_request::{RecvWr, SendWr};

/// What a verbs call returned when it failed: positive, negative (Apple), or -1 with `errno` set (some providers).
///
/// This is the one place where the three ways are told apart. The raw value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RawErrno(pub i32);

impl RawErrno {
    /// The error's number, positive; `None` when it is to be read from the thread's `errno` (-1).
    #[inline]
    pub const fn number(self) -> Option<i32> {
        match self.0 {
            -1 | 0 => None,
            raw => Some(raw.saturating_abs()),
        }
    }
}

impl core::fmt::Display for RawErrno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.number() {
            Some(number) => write!(f, "errno {number} (returned {})", self.0),
            None => write!(f, "errno not returned (returned {})", self.0),
        }
    }
}

/// A slot of the operation table that is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct MissingSlot {
    /// The operation's name in `struct ibv_context_ops`.
    pub name: &'static str,
    /// The slot, counted from 0.
    pub slot: u8,
}

impl core::fmt::Display for MissingSlot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the provider has no {} (slot {} of its operation table is null)", self.name, self.slot)
    }
}

impl core::error::Error for MissingSlot {}

/// Possessing one proves that the context's `poll_cq`, `req_notify_cq`, `post_send` and `post_recv` were not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedContext(NonNull<Context>);

impl CheckedContext {
    /// Looks at the four slots.
    ///
    /// # Errors
    /// [`MissingSlot`] names the first that is null.
    ///
    /// # Safety
    /// 1. `context` was returned by a library's open, and is not closed before the last use of what is made from this.
    /// 2. The library does not take an operation away again while the context is open.
    pub unsafe fn new(context: NonNull<Context>) -> Result<Self, MissingSlot> {
        // SAFETY: by 1 the context is live; the table is copied, no reference to it is kept.
        let ops = unsafe { (*context.as_ptr()).ops };
        let slots = [
            (ops.poll_cq.is_some(), "poll_cq", 11),
            (ops.req_notify_cq.is_some(), "req_notify_cq", 12),
            (ops.post_send.is_some(), "post_send", 25),
            (ops.post_recv.is_some(), "post_recv", 26),
        ];
        for (present, name, slot) in slots {
            if !present {
                return Err(MissingSlot { name, slot });
            }
        }
        Ok(Self(context))
    }

    /// The context.
    pub const fn as_ptr(self) -> *mut Context {
        self.0.as_ptr()
    }
}

/// An object that belongs to another context than the one it is used with: the kernel does not catch that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ForeignContext;

impl core::fmt::Display for ForeignContext {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the object belongs to another device context")
    }
}

impl core::error::Error for ForeignContext {}

/// How a post failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PostError {
    /// The provider named the request that it refused: those before it are accepted, it and those after it are not.
    Refused {
        /// What the call returned.
        raw: RawErrno,
        /// Address of the refused request, to be compared with those posted, never followed.
        bad_wr: usize,
    },
    /// The provider named none: how many were accepted is unknown, and all of them may still be used by the device.
    ///
    /// Seen from soft-RoCE, which queues all requests and returns its doorbell's error, and from Apple's, which never
    /// sets it.
    Unknown {
        /// What the call returned.
        raw: RawErrno,
    },
}

impl PostError {
    /// What the call returned.
    pub const fn raw(self) -> RawErrno {
        match self {
            Self::Refused { raw, .. } | Self::Unknown { raw } => raw,
        }
    }
}

impl core::fmt::Display for PostError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Refused { raw, .. } => write!(f, "post refused: {raw}"),
            Self::Unknown { raw } => {
                write!(f, "post failed and the provider does not say which requests it accepted: {raw}")
            }
        }
    }
}

impl core::error::Error for PostError {}

/// How a poll failed. Either way what the provider consumed in that call is lost: every link on the queue is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PollError {
    /// A negative answer, which is no errno (mlx5 returns -2).
    Negative {
        /// What the call returned.
        returned: i32,
    },
    /// More entries than there was room for.
    TooMany {
        /// What the call returned.
        returned: i32,
        /// Room that it was told of, entries.
        room: i32,
    },
}

impl core::fmt::Display for PollError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Negative { returned } => {
                write!(f, "polling returned {returned}: completions were lost, links on this queue are broken")
            }
            Self::TooMany { returned, room } => {
                write!(f, "polling returned {returned} completions into room for {room}: the library cannot be trusted")
            }
        }
    }
}

impl core::error::Error for PollError {}

/// The calls of one queue pair: `&mut` to post, `Send`, not `Sync`.
#[derive(Debug)]
pub struct QueuePairCalls {
    qp: NonNull<Qp>,
    qp_num: u32,
}

// SAFETY: verbs objects may be used from any thread, one at a time (ibv_post_send(3): the library locks per queue, or, with
// MLX5_SINGLE_THREADED=1, relies on one thread at a time); `&mut self` makes it one at a time.
unsafe impl Send for QueuePairCalls {}

impl QueuePairCalls {
    /// The calls of `qp`.
    ///
    /// # Errors
    /// [`ForeignContext`] if the queue pair is not of `context`.
    ///
    /// # Safety
    /// 1. `qp` was returned by a library's create call, and is not destroyed before the last use of this value.
    /// 2. Nothing else posts to it while this value exists, but for the owner's teardown, which needs it exclusively.
    pub unsafe fn new(qp: NonNull<Qp>, context: CheckedContext) -> Result<Self, ForeignContext> {
        // SAFETY: by 1 the queue pair is live.
        let owner = unsafe { (*qp.as_ptr()).context };
        // SAFETY: by 1 the queue pair is live.
        let qp_num = unsafe { (*qp.as_ptr()).qp_num };
        if owner == context.as_ptr() { Ok(Self { qp, qp_num }) } else { Err(ForeignContext) }
    }

    /// The queue pair's number, 24 bits.
    #[inline]
    pub const fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Posts a chain of sends.
    ///
    /// # Errors
    /// [`PostError`] tells what was accepted.
    ///
    /// # Safety
    /// 1. `chain`, every request that its `next` leads to, and the entries that they name, are valid for the call.
    /// 2. The memory that the entries name stays readable (for RDMA read and atomics, writable), and free of Rust
    ///    references that this would break, until the request's completion was polled or the queue pair was destroyed.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub unsafe fn post_send(&mut self, chain: *mut SendWr) -> Result<(), PostError> {
        let mut bad_wr: *mut SendWr = null_mut();
        let call = self.post_send_slot();
        // SAFETY: the slot is the provider's own for this queue pair, which is live (`new`, 1) and used by us alone
        // (`new`, 2); the chain is valid (1), its memory stays so (2).
        let returned = unsafe { call(self.qp.as_ptr(), chain, &raw mut bad_wr) };
        post_result(returned, bad_wr.addr())
    }

    /// Posts a chain of receives.
    ///
    /// # Errors
    /// [`PostError`] tells what was accepted.
    ///
    /// # Safety
    /// 1. `chain`, every request that its `next` leads to, and the entries that they name, are valid for the call.
    /// 2. The memory that the entries name stays writable, and free of any Rust reference, until the request's completion
    ///    was polled or the queue pair was destroyed.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub unsafe fn post_recv(&mut self, chain: *mut RecvWr) -> Result<(), PostError> {
        let mut bad_wr: *mut RecvWr = null_mut();
        let call = self.post_recv_slot();
        // SAFETY: the slot is the provider's own for this queue pair, which is live (`new`, 1) and used by us alone
        // (`new`, 2); the chain is valid (1), its memory stays so (2).
        let returned = unsafe { call(self.qp.as_ptr(), chain, &raw mut bad_wr) };
        post_result(returned, bad_wr.addr())
    }

    #[inline]
    fn post_send_slot(&self) -> PostSendFn {
        // SAFETY: the queue pair is live (`new`, 1).
        let context = unsafe { (*self.qp.as_ptr()).context };
        // SAFETY: a context outlives its queue pairs, so it is live.
        let slot = unsafe { (*context).ops.post_send };
        // SAFETY: a `CheckedContext` of this context existed in `new`: the slot is not null.
        unsafe { slot.unwrap_unchecked() }
    }

    #[inline]
    fn post_recv_slot(&self) -> PostRecvFn {
        // SAFETY: the queue pair is live (`new`, 1).
        let context = unsafe { (*self.qp.as_ptr()).context };
        // SAFETY: a context outlives its queue pairs, so it is live.
        let slot = unsafe { (*context).ops.post_recv };
        // SAFETY: a `CheckedContext` of this context existed in `new`: the slot is not null.
        unsafe { slot.unwrap_unchecked() }
    }
}

#[inline]
fn post_result(returned: c_int, bad_wr: usize) -> Result<(), PostError> {
    if returned == 0 { Ok(()) } else { Err(post_error(RawErrno(returned), bad_wr)) }
}

#[cold]
fn post_error(raw: RawErrno, bad_wr: usize) -> PostError {
    if bad_wr == 0 { PostError::Unknown { raw } } else { PostError::Refused { raw, bad_wr } }
}

/// The calls of one completion queue: `&mut` to poll, `Send`, not `Sync`.
#[derive(Debug)]
pub struct CompletionQueueCalls {
    cq: NonNull<Cq>,
}

// SAFETY: verbs objects may be used from any thread, one at a time (ibv_poll_cq(3): the library locks per queue, or, with
// MLX5_SINGLE_THREADED=1, relies on one thread at a time); `&mut self` makes it one at a time.
unsafe impl Send for CompletionQueueCalls {}

/// Which completion queue a completion came from: two queues of two devices can hold equal queue pair numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueId(usize);

impl QueueId {
    /// The queue at this address, which an asynchronous event names; it is not followed.
    pub fn of(cq: *const Cq) -> Self {
        Self(cq.addr())
    }
}

impl CompletionQueueCalls {
    /// The calls of `cq`.
    ///
    /// # Errors
    /// [`ForeignContext`] if the completion queue is not of `context`.
    ///
    /// # Safety
    /// 1. `cq` was returned by a library's create call, and is not destroyed before the last use of this value.
    /// 2. Nothing else polls it while this value exists, but for the owner's teardown, which needs it exclusively.
    pub unsafe fn new(cq: NonNull<Cq>, context: CheckedContext) -> Result<Self, ForeignContext> {
        // SAFETY: by 1 the completion queue is live.
        let owner = unsafe { (*cq.as_ptr()).context };
        if owner == context.as_ptr() { Ok(Self { cq }) } else { Err(ForeignContext) }
    }

    /// Which queue this is.
    #[inline]
    pub fn id(&self) -> QueueId {
        QueueId(self.cq.addr().get())
    }

    /// Takes completions out of the queue into `room`, as many as there are and fit.
    ///
    /// # Errors
    /// [`PollError`]: completions were lost, every link on this queue is broken for good.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll<'room>(&mut self, room: &'room mut [Wc]) -> Result<Completions<'room>, PollError> {
        self.poll_while(room, || false)
    }

    /// As [`poll`](Self::poll), and once more as long as nothing comes and `again` says so: for a thread that spins, the fewest
    /// instructions between two polls.
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll).
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll_while<'room>(
        &mut self,
        room: &'room mut [Wc],
        mut again: impl FnMut() -> bool,
    ) -> Result<Completions<'room>, PollError> {
        let asked = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        // SAFETY: the completion queue is live (`new`, 1).
        let context = unsafe { (*self.cq.as_ptr()).context };
        // SAFETY: a context outlives its completion queues, so it is live.
        let slot: Option<PollCqFn> = unsafe { (*context).ops.poll_cq };
        // SAFETY: a `CheckedContext` of this context existed in `new`: the slot is not null.
        let call = unsafe { slot.unwrap_unchecked() };
        let mut returned;
        loop {
            // SAFETY: the slot is the provider's own for this queue, which is live and polled by us alone (`new`, 1 and 2);
            // `room` has `asked` entries that may be written.
            returned = unsafe { call(self.cq.as_ptr(), asked, room.as_mut_ptr()) };
            if returned != 0 || !again() {
                break;
            }
        }
        // Payload reads must not move before the poll that makes them readable. That the call is one whose body nobody knows
        // forbids it already, so no test can miss this; it costs no instruction, and says what is relied on.
        compiler_fence(Ordering::Acquire);
        // One unsigned comparison catches both: a negative answer is far above `asked`.
        match room.get(..returned as u32 as usize) {
            Some(entries) if returned as u32 <= asked as u32 => {
                Ok(Completions { entries: entries.iter(), queue: self.id() })
            }
            _ => Err(poll_error(returned, asked)),
        }
    }

    /// Asks for an event at the next completion, on the queue's completion channel.
    ///
    /// # Errors
    /// What the call returned, if not 0.
    #[doc(alias = "ibv_req_notify_cq")]
    #[inline]
    pub fn arm(&mut self, which: Notify) -> Result<(), RawErrno> {
        // SAFETY: the completion queue is live (`new`, 1).
        let context = unsafe { (*self.cq.as_ptr()).context };
        // SAFETY: a context outlives its completion queues, so it is live.
        let slot: Option<ReqNotifyCqFn> = unsafe { (*context).ops.req_notify_cq };
        // SAFETY: a `CheckedContext` of this context existed in `new`: the slot is not null.
        let call = unsafe { slot.unwrap_unchecked() };
        // SAFETY: the slot is the provider's own for this queue, which is live and used by us alone (`new`, 1 and 2).
        let returned = unsafe { call(self.cq.as_ptr(), which as c_int) };
        if returned == 0 { Ok(()) } else { Err(RawErrno(returned)) }
    }
}

#[cold]
fn poll_error(returned: c_int, room: c_int) -> PollError {
    if returned < 0 { PollError::Negative { returned } } else { PollError::TooMany { returned, room } }
}

/// Which completions make an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Notify {
    /// Every one.
    Any = 0,
    /// Those of messages sent with the solicited flag, and failures.
    Solicited = 1,
}

/// What one poll took out of a queue, in order.
#[derive(Clone, Debug)]
pub struct Completions<'room> {
    entries: core::slice::Iter<'room, Wc>,
    queue: QueueId,
}

impl<'room> Iterator for Completions<'room> {
    type Item = Completion<'room>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let wc = self.entries.next()?;
        Some(Completion { wc, queue: self.queue, unforgeable: PhantomData })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Completions<'_> {}

/// One entry that a provider wrote: only [`CompletionQueueCalls::poll`] makes it, so safe code cannot claim that a frame
/// came back from the device.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'room> {
    wc: &'room Wc,
    queue: QueueId,
    unforgeable: PhantomData<()>,
}

impl<'room> Completion<'room> {
    /// Which queue it came from.
    #[inline]
    pub const fn queue(&self) -> QueueId {
        self.queue
    }

    /// What the request carried; defined whatever the status is.
    #[inline]
    pub const fn wr_id(&self) -> u64 {
        self.wc.wr_id
    }

    /// The own queue pair's number; defined whatever the status is.
    #[inline]
    pub const fn qp_num(&self) -> u32 {
        self.wc.qp_num
    }

    /// The entry if it succeeded, else what a failed one says.
    ///
    /// # Errors
    /// [`FailedCompletion`] with the four fields that are defined.
    #[inline]
    pub const fn outcome(&self) -> Result<&'room Wc, FailedCompletion> {
        self.wc.outcome()
    }
}
