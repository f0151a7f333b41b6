//! Completion channels: a thread sleeps until something completes, or until its deadline.
//!
//! The rule this file protects: **every event is acknowledged at once**, and no more are taken at a time than a bound, whatever
//! the library answers. Destroying a queue waits for ever for an event that was taken and not acknowledged.
//!
//! # Safety
//!
//! This file guarantees that the channel's file is non-blocking before anything is read from it, and that an event is
//! acknowledged on the queue that it names, which cannot be destroyed before.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::verbs::{CompChannel, Cq};

use crate::errno::{self, Errno};
use crate::error::{CallError, Error};
use crate::objects::device::DeviceContext;
use crate::objects::handle::{Handle, Object, Origin};
use crate::symbols::Symbols;

type DestroyFn = unsafe extern "C" fn(*mut CompChannel) -> c_int;
type GetEventFn = unsafe extern "C" fn(*mut CompChannel, *mut *mut Cq, *mut *mut std::ffi::c_void) -> c_int;
type AcknowledgeFn = unsafe extern "C" fn(*mut Cq, std::ffi::c_uint);

/// How many events are taken at a time.
const MOST_EVENTS: usize = 64;

/// How often a thread that sleeps looks for events of the device that another one has taken.
const LOOK_AT_EVENTS_EVERY: Duration = Duration::from_millis(100);

/// What must outlive a channel, and how it is destroyed.
#[derive(Debug)]
pub(super) struct Parents {
    destroy: DestroyFn,
    context: Arc<DeviceContext>,
}

impl Object for CompChannel {
    type Parents = Parents;
    const DESTROY: &'static str = "ibv_destroy_comp_channel";

    fn destroy(parents: &Parents) -> DestroyFn {
        parents.destroy
    }

    fn origin(parents: &Parents) -> &Origin {
        parents.context.origin()
    }
}

/// A channel that completion queues report to.
#[derive(Debug)]
pub struct CompletionChannel {
    handle: Handle<CompChannel>,
    fd: c_int,
    get_event: GetEventFn,
    acknowledge: AcknowledgeFn,
}

impl CompletionChannel {
    /// Makes a channel, its file non-blocking.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library lacks channels; [`Error::Call`] if it refuses.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new(context: &Arc<DeviceContext>) -> Result<Arc<Self>, Error> {
        context.check_use()?;
        let symbols = context.symbols();
        let create = needed(symbols, symbols.create_comp_channel, "ibv_create_comp_channel")?;
        let destroy = needed(symbols, symbols.destroy_comp_channel, "ibv_destroy_comp_channel")?;
        let get_event = needed(symbols, symbols.get_cq_event, "ibv_get_cq_event")?;
        let acknowledge = needed(symbols, symbols.ack_cq_events, "ibv_ack_cq_events")?;
        errno::clear();
        // SAFETY: the context is live.
        let raw = unsafe { create(context.as_ptr()) };
        let parents = Parents { destroy, context: Arc::clone(context) };
        // SAFETY: just returned by this library, or null; errno was cleared.
        let handle = unsafe { Handle::adopt(raw, parents, "ibv_create_comp_channel") }?;
        // SAFETY: the channel is live, and nobody else has it yet.
        let fd = unsafe { handle.raw().as_ref() }.fd;
        make_non_blocking(fd).map_err(|errno| CallError::new("fcntl", context.name(), errno))?;
        Ok(Arc::new(Self { handle, fd, get_event, acknowledge }))
    }

    /// The device it is on.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.handle.parents().context
    }

    pub(super) fn as_ptr(&self) -> *mut CompChannel {
        self.handle.as_ptr()
    }

    /// Sleeps until an event comes, and takes and acknowledges what there is; at most `limit`. Answers how many: 0 when the
    /// time was up, or when a signal came. No more than 64 are taken: what is left ends the next wait at once.
    ///
    /// # Errors
    /// [`Error::Call`] if the file cannot be waited on or an event cannot be taken; [`Error::Forked`] in a child process,
    /// where the file is the parent's; [`Error::SecondThread`].
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self, limit: Duration) -> Result<usize, Error> {
        self.wait_beside(None, limit)
    }

    /// As [`wait`](Self::wait), but 0 at once when the device has an event of its own to tell: one that nobody has taken.
    pub(crate) fn wait_or_event(&self, limit: Duration) -> Result<usize, Error> {
        match self.context().event_file() {
            None => self.wait_beside(None, limit),
            // Somebody else on this device may take the event between the wake-up and the look at the file: then nothing
            // wakes this thread, and it has to look at what was taken by itself.
            Some(fd) => self.wait_beside(Some(fd), limit.min(LOOK_AT_EVENTS_EVERY)),
        }
    }

    fn wait_beside(&self, other: Option<c_int>, limit: Duration) -> Result<usize, Error> {
        self.context().check_use()?;
        let file = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative file is none.
        let mut files = [file(self.fd), file(other.unwrap_or(-1))];
        // Rounded up: a wait of less than a millisecond must not turn into a spin.
        let limit_ms = c_int::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX);
        errno::clear();
        // SAFETY: two entries, ours.
        let ready = unsafe { libc::poll(files.as_mut_ptr(), 2, limit_ms) };
        match ready {
            1.. if files[0].revents != 0 => self.take_some(),
            0.. => Ok(0),
            _ => match errno::last() {
                Some(Errno(libc::EINTR)) => Ok(0),
                errno => Err(CallError::new("poll", self.context().name(), errno).into()),
            },
        }
    }

    /// Takes what there is, up to a bound: a library that keeps inventing events must not hold a wait up for ever.
    fn take_some(&self) -> Result<usize, Error> {
        for taken in 0..MOST_EVENTS {
            let mut queue = std::ptr::null_mut();
            let mut word = std::ptr::null_mut();
            errno::clear();
            // SAFETY: the channel is live; the storage is ours; the file does not block.
            let returned = unsafe { (self.get_event)(self.handle.as_ptr(), &raw mut queue, &raw mut word) };
            if returned == 0 && !queue.is_null() {
                // SAFETY: the event names a queue that is live, since destroying it waits for this.
                unsafe { (self.acknowledge)(queue, 1) };
                continue;
            }
            return match errno::last() {
                Some(Errno(libc::EAGAIN)) if returned != 0 => Ok(taken),
                // Also where it says that there is one, and names no queue.
                errno => Err(CallError::new("ibv_get_cq_event", self.context().name(), errno).into()),
            };
        }
        Ok(MOST_EVENTS)
    }

    /// Destroys the channel if no completion queue uses it; else it goes with the last of them.
    pub(crate) fn close_if_last(self: Arc<Self>) -> Option<Result<(), CallError>> {
        Arc::into_inner(self).map(|this| this.handle.close())
    }
}

fn needed<F>(symbols: &Symbols, symbol: Option<F>, name: &'static str) -> Result<F, Error> {
    symbol.ok_or_else(|| Error::Unsupported { symbol: name, library: Arc::clone(&symbols.library) })
}

pub(super) fn make_non_blocking(fd: c_int) -> Result<(), Option<Errno>> {
    errno::clear();
    // SAFETY: asks for flags of a file that the library opened for us.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(errno::last());
    }
    // SAFETY: sets a flag of the same file.
    let set = unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if set < 0 { Err(errno::last()) } else { Ok(()) }
}
