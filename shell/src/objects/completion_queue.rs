//! Completion queues: polled by one owner, destroyed after the last queue pair that uses them.
//!
//! # Safety
//!
//! This file guarantees that a queue's calls are made only while the queue lives: they sit beside its handle, and the
//! handle is shared with queue pairs only.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use bareverbs_core::verbs::inline_calls::{CompletionQueueCalls, Completions, Notify, PollError, QueueId};
use bareverbs_core::verbs::{Cq, Wc};

use crate::errno;
use crate::error::{CallError, Doing, Error};
use crate::objects::completion_channel::CompletionChannel;
use crate::objects::device::DeviceContext;
use crate::objects::handle::{Handle, Object, Origin};

/// What must outlive a completion queue. When destroying it fails, all of it stays.
#[derive(Debug)]
pub(super) struct Parents {
    // Field order is drop order: the channel before the context.
    channel: Option<Arc<CompletionChannel>>,
    context: Arc<DeviceContext>,
}

impl Object for Cq {
    type Parents = Parents;
    const DESTROY: &'static str = "ibv_destroy_cq";

    fn destroy(parents: &Self::Parents) -> unsafe extern "C" fn(*mut Self) -> c_int {
        Self::origin(parents).symbols.destroy_cq
    }

    fn origin(parents: &Self::Parents) -> &Origin {
        parents.context.origin()
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    calls: CompletionQueueCalls,
    handle: Arc<Handle<Cq>>,
    capacity: u32,
    /// Whether only the thread that opened the device may poll.
    one_thread: bool,
}

impl CompletionQueue {
    /// Makes a queue of at least that many entries.
    ///
    /// # Errors
    /// [`Error::Size`] for 0 or more than fits an `int`; [`Error::Call`] if the library refuses; [`Error::Granted`] if it
    /// makes a smaller one.
    #[doc(alias = "ibv_create_cq")]
    pub fn new(context: &Arc<DeviceContext>, entries: u32) -> Result<Self, Error> {
        Self::make(context, entries, None)
    }

    /// Makes a queue that reports to a channel: a thread can then sleep until something completes.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::ForeignContext`] if the channel is of another context.
    pub fn with_channel(channel: &Arc<CompletionChannel>, entries: u32) -> Result<Self, Error> {
        Self::make(channel.context(), entries, Some(channel))
    }

    fn make(
        context: &Arc<DeviceContext>,
        entries: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Self, Error> {
        context.check_use()?;
        let wished = c_int::try_from(entries).ok().filter(|wished| *wished > 0);
        let wished = wished.ok_or(Error::Size { what: "a completion queue", got: entries.into() })?;
        errno::clear();
        let word = std::ptr::null_mut();
        let raw_channel = channel.map_or(std::ptr::null_mut(), |channel| channel.as_ptr());
        // SAFETY: context and channel, if any, are live and of one device; no word of ours.
        let raw = unsafe { (context.symbols().create_cq)(context.as_ptr(), wished, word, raw_channel, 0) };
        let parents = Parents { channel: channel.cloned(), context: Arc::clone(context) };
        // SAFETY: just returned by this library, or null; errno was cleared.
        let handle = unsafe { Handle::adopt(raw, parents, "ibv_create_cq") }
            .map_err(|error| error.doing(Doing::Create(format!("a completion queue of {entries}"))))?;
        // SAFETY: the queue is live, and nobody else has it yet; its start is the same in every library, which is what is
        // being checked.
        let queue = unsafe { handle.raw().as_ref() };
        let owner = queue.context.addr() as u64;
        super::check_layout(context.name(), "ibv_cq.context", context.as_ptr().addr() as u64, owner)?;
        let granted = queue.cqe;
        // SAFETY: 1: the handle beside the calls outlives them; 2: the raw queue is shared with queue pairs, which do not
        // poll, and with this value's owner alone.
        let calls = unsafe { CompletionQueueCalls::new(handle.raw(), context.checked()) }
            .map_err(|_| Error::ForeignContext { device: Arc::clone(context.name()), making: "a completion queue" })?;
        // One that overflows loses completions: nobody would know which.
        let capacity = u32::try_from(granted).ok().filter(|capacity| *capacity >= entries);
        let device = || Arc::clone(context.name());
        let too_small =
            || Error::Granted { device: device(), what: "a completion queue's entries", asked: entries, granted };
        let capacity = capacity.ok_or_else(too_small)?;
        context.events().forget_queue(calls.id());
        Ok(Self { calls, handle: Arc::new(handle), capacity, one_thread: context.is_for_one_thread() })
    }

    /// Which queue this is.
    pub fn id(&self) -> QueueId {
        self.calls.id()
    }

    /// Entries that it holds, as the library answered.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Takes completions out.
    ///
    /// # Errors
    /// [`Error::Poll`]: completions were lost, every link on this queue is to be broken. [`Error::SecondThread`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll<'room>(&mut self, room: &'room mut [Wc]) -> Result<Completions<'room>, Error> {
        if self.one_thread {
            self.context().check_use()?;
        }
        self.poll_here(room).map_err(Error::Poll)
    }

    /// As [`poll`](Self::poll), on a thread that may.
    #[inline]
    pub(crate) fn poll_here<'room>(&mut self, room: &'room mut [Wc]) -> Result<Completions<'room>, PollError> {
        self.calls.poll(room)
    }

    /// As [`poll_here`](Self::poll_here), and once more as long as nothing comes and `again` says so.
    #[inline]
    pub(crate) fn poll_here_while<'room>(
        &mut self,
        room: &'room mut [Wc],
        again: impl FnMut() -> bool,
    ) -> Result<Completions<'room>, PollError> {
        self.calls.poll_while(room, again)
    }

    /// The device it is on.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.handle.parents().context
    }

    /// The channel that it reports to, if any.
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.handle.parents().channel.as_ref()
    }

    /// Asks for one event on the channel at the next completion. Poll once more after it: what came before makes no event.
    ///
    /// # Errors
    /// [`Error::Call`] if the provider refuses; [`Error::Forked`]; [`Error::SecondThread`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, which: Notify) -> Result<(), Error> {
        self.context().check_use()?;
        errno::clear();
        self.calls
            .arm(which)
            .map_err(|raw| CallError::new("ibv_req_notify_cq", self.context().name(), errno::of_return(raw)).into())
    }

    pub(super) fn shared(&self) -> &Arc<Handle<Cq>> {
        &self.handle
    }

    /// Destroys the queue if no queue pair uses it; else it goes with the last of them.
    pub(crate) fn close_if_last(self) -> Option<Result<(), CallError>> {
        Arc::into_inner(self.handle).map(Handle::close)
    }

    /// Destroys the queue now.
    ///
    /// # Errors
    /// [`Error::State`] if a queue pair uses it, and it is then destroyed with the last of them; [`Error::Call`] if the
    /// library refuses; [`Error::Forked`] in a forked child: nothing was done.
    pub fn close(self) -> Result<(), Error> {
        self.handle.origin().check_process()?;
        let device = Arc::clone(self.context().name());
        match Arc::try_unwrap(self.handle) {
            Ok(handle) => Ok(handle.close()?),
            Err(_) => Err(Error::State { device, what: "a queue pair uses the completion queue: drop that first" }),
        }
    }
}
