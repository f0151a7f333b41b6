//! What a device reports on its own: failed queues and queue pairs, changed GIDs, a port that came or went.
//!
//! The rule this file protects: **an event is acknowledged in the same breath in which it is taken**. Destroying what an
//! event names waits for ever for its acknowledgement. One owner, the device context, takes them; nobody else may.
//!
//! # Safety
//!
//! This file guarantees that the context's file is non-blocking before an event is asked for, and that what an event names
//! is looked at only before the event is acknowledged, when it cannot be destroyed.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bareverbs_core::verbs::inline_calls::QueueId;
use bareverbs_core::verbs::{AsyncEvent, Context, EventType};

use crate::errno::{self, Errno};
use crate::error::CallError;
use crate::objects::completion_channel::make_non_blocking;
use crate::symbols::Symbols;

/// How many events are taken at a time.
pub(super) const MOST_EVENTS: usize = 64;

/// Something that a device reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceEvent {
    /// What happened.
    pub event: EventType,
    /// To whom.
    pub about: About,
}

/// Whom an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum About {
    /// A queue pair, by its number.
    QueuePair(u32),
    /// A completion queue.
    CompletionQueue(QueueId),
    /// A port, counted from 1.
    Port(i32),
    /// The device.
    Device,
    /// Something that this crate does not make.
    Other,
}

impl DeviceEvent {
    /// Whether what it concerns is beyond use: links on it are broken. A queue pair that refused its peer's request
    /// (`QP_REQ_ERR`, `QP_ACCESS_ERR`) is in the error state, as after a failure of its own.
    pub const fn is_fatal(&self) -> bool {
        matches!(
            self.event,
            EventType::CQ_ERR
                | EventType::QP_FATAL
                | EventType::QP_REQ_ERR
                | EventType::QP_ACCESS_ERR
                | EventType::DEVICE_FATAL
        )
    }
}

type GetFn = unsafe extern "C" fn(*mut Context, *mut AsyncEvent) -> c_int;
type AcknowledgeFn = unsafe extern "C" fn(*mut AsyncEvent);

/// A context's events: how to take them, and what they broke.
#[derive(Debug)]
pub(super) struct Events {
    calls: Option<(GetFn, AcknowledgeFn)>,
    /// The context's file, which is readable while an event waits to be taken.
    file: c_int,
    broken: Mutex<Broken>,
    /// Counts fatal events, so that whoever waits sees at a glance whether there was one.
    fatal: AtomicU32,
}

#[derive(Debug, Default)]
struct Broken {
    device: Option<EventType>,
    /// Queue pairs, with the first that was said of each.
    pairs: BTreeMap<u32, EventType>,
    queues: Vec<QueueId>,
}

impl Events {
    /// Events of a context, if its library and system have any: Apple's file is none.
    pub(super) fn new(symbols: &Symbols, async_fd: c_int) -> Self {
        let calls = symbols.get_async_event.zip(symbols.ack_async_event);
        let has_file = async_fd >= 0 && !cfg!(target_vendor = "apple");
        let calls = calls.filter(|_| has_file && make_non_blocking(async_fd).is_ok());
        Self { calls, file: async_fd, broken: Mutex::default(), fatal: AtomicU32::new(0) }
    }

    /// Takes and acknowledges events and gives each to `on`; answers how many. No more than [`MOST_EVENTS`]: a library that
    /// keeps inventing them must not hold its caller up for ever.
    pub(super) fn take(
        &self,
        context: *mut Context,
        device: &Arc<str>,
        mut on: impl FnMut(DeviceEvent),
    ) -> Result<usize, CallError> {
        let Some((get, acknowledge)) = self.calls else { return Ok(0) };
        for taken in 0..MOST_EVENTS {
            let mut event = MaybeUninit::<AsyncEvent>::zeroed();
            // One taker at a time, so that what is told of one thing first is noted first; a panic while holding it leaves
            // nothing half-way.
            let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
            errno::clear();
            // SAFETY: the context is live, its file does not block; the storage is an event.
            let returned = unsafe { get(context, event.as_mut_ptr()) };
            if returned != 0 {
                return match errno::last() {
                    Some(Errno(libc::EAGAIN)) => Ok(taken),
                    errno => Err(CallError::new("ibv_get_async_event", device, errno)),
                };
            }
            // SAFETY: filled by the library; zero before.
            let mut event = unsafe { event.assume_init() };
            let about = about(&event);
            let known = DeviceEvent { event: event.event_type, about: about.unwrap_or(About::Other) };
            if about.is_some() {
                // SAFETY: the event was just taken from this library, names something, and is acknowledged once.
                unsafe { acknowledge(&raw mut event) };
            }
            if known.is_fatal() {
                broken.note(known);
                self.fatal.fetch_add(1, Ordering::Release);
            }
            drop(broken);
            on(known);
        }
        Ok(MOST_EVENTS)
    }

    /// What is readable while an event waits to be taken, where there are events.
    pub(super) fn file(&self) -> Option<c_int> {
        self.calls.map(|_| self.file)
    }

    /// How many fatal events there were.
    pub(super) fn fatal_count(&self) -> u32 {
        self.fatal.load(Ordering::Acquire)
    }

    /// Forgets what was said of a queue pair's number: a new one has it now.
    pub(super) fn forget_pair(&self, qp_num: u32) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).pairs.remove(&qp_num);
    }

    /// Forgets what was said of a completion queue's address: a new one has it now.
    pub(super) fn forget_queue(&self, queue: QueueId) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).queues.retain(|known| *known != queue);
    }

    /// What broke a link over this queue pair and queue, if anything did.
    pub(super) fn fault_of(&self, qp_num: u32, queue: QueueId) -> Option<EventType> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.device.is_some() {
            broken.device
        } else if broken.queues.contains(&queue) {
            Some(EventType::CQ_ERR)
        } else {
            broken.pairs.get(&qp_num).copied()
        }
    }
}

impl Broken {
    fn note(&mut self, event: DeviceEvent) {
        match event.about {
            About::QueuePair(qp_num) => {
                self.pairs.entry(qp_num).or_insert(event.event);
            }
            // Told again and again of one queue, the list does not grow.
            About::CompletionQueue(queue) if self.queues.contains(&queue) => {}
            About::CompletionQueue(queue) => self.queues.push(queue),
            // The device itself, or something that is not told: everything is in doubt.
            _ => self.device = self.device.or(Some(event.event)),
        }
    }
}

/// Whom an event concerns, looked up before it is acknowledged; `None` where it should name an object and names none.
fn about(event: &AsyncEvent) -> Option<About> {
    let element = event.element;
    Some(match event.event_type {
        EventType::CQ_ERR => {
            // SAFETY: for this event the library filled in the queue, and zeros were there before.
            let queue = NonNull::new(unsafe { element.cq })?;
            About::CompletionQueue(QueueId::of(queue.as_ptr()))
        }
        EventType::QP_FATAL
        | EventType::QP_REQ_ERR
        | EventType::QP_ACCESS_ERR
        | EventType::COMM_EST
        | EventType::SQ_DRAINED
        | EventType::PATH_MIG
        | EventType::PATH_MIG_ERR
        | EventType::QP_LAST_WQE_REACHED => {
            // SAFETY: for these events the library filled in the queue pair, and zeros were there before.
            let pair = NonNull::new(unsafe { element.qp })?;
            // SAFETY: it cannot be destroyed before this event is acknowledged.
            About::QueuePair(unsafe { (*pair.as_ptr()).qp_num })
        }
        EventType::DEVICE_FATAL => About::Device,
        EventType::PORT_ACTIVE
        | EventType::PORT_ERR
        | EventType::LID_CHANGE
        | EventType::PKEY_CHANGE
        | EventType::SM_CHANGE
        | EventType::CLIENT_REREGISTER
        | EventType::GID_CHANGE => {
            // SAFETY: for these events the library filled in the port.
            About::Port(unsafe { element.port_num })
        }
        _ => About::Other,
    })
}
