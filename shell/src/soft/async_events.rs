//! Asynchronous events: what befalls a device, its ports, queues and queue pairs while nobody asks.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::with_exposed_provenance_mut;

use bareverbs_core::verbs::event::EventElement;
use bareverbs_core::verbs::{AsyncEvent, EventType, PortState, QpState};

use crate::soft::handles::Kind;
use crate::soft::signal::Signal;
use crate::soft::state::State;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Queue,
    Pair,
    Port,
    Device,
}

/// What events of a type are about.
pub(super) const fn subject(event: EventType) -> Subject {
    match event {
        EventType::CQ_ERR => Subject::Queue,
        EventType::QP_FATAL | EventType::QP_REQ_ERR | EventType::QP_ACCESS_ERR | EventType::SQ_DRAINED => Subject::Pair,
        EventType::DEVICE_FATAL => Subject::Device,
        _ => Subject::Port,
    }
}

/// Events fetched for an object and not acknowledged: while there are any, it must not be destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unacknowledged {
    /// Of a completion channel.
    pub fetched: u32,
    /// Asynchronous.
    pub asynchronous: u32,
}

impl Unacknowledged {
    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

/// The events of a context that were not fetched.
#[derive(Debug)]
pub(super) struct AsyncEvents {
    signal: Signal,
    /// What happened, and the queue, the queue pair (by index) or the port that it happened to.
    waiting: VecDeque<(EventType, u32)>,
}

impl AsyncEvents {
    pub(super) const fn new(signal: Signal) -> Self {
        Self { signal, waiting: VecDeque::new() }
    }
}

impl State {
    /// Tells the owner of a context; nobody where it has no file of events.
    pub(super) fn tell(&mut self, context: u32, event: EventType, about: u32) {
        let events = self.contexts.get_mut(context).and_then(|context| context.events.as_mut());
        if let Some(events) = events {
            events.waiting.push_back((event, about));
            events.signal.raise();
        }
    }

    /// Tells the owners of all contexts of a device.
    pub(super) fn tell_all(&mut self, device: u32, event: EventType, port: u8) {
        for context in 0..self.contexts.bound() {
            if self.contexts.get(context).is_some_and(|context| context.device == device && !context.closed) {
                self.tell(context, event, port.into());
            }
        }
    }

    /// A completion queue overflowed while a queue pair completed to it: both are of no use any more.
    #[cold]
    pub(super) fn overflow(&mut self, queue: u32, pair: u32) {
        if let Some(dead) = self.queues.get_mut(queue)
            && !std::mem::replace(&mut dead.told, true)
        {
            let context = dead.context;
            self.tell(context, EventType::CQ_ERR, queue);
        }
        let Some(fatal) = self.pairs.get_mut(pair) else { return };
        if fatal.state != QpState::ERR {
            fatal.state = QpState::ERR;
            let context = fatal.context;
            self.tell(context, EventType::QP_FATAL, pair);
        }
    }

    /// Tells that the send queue of a queue pair is drained, if that was asked for: what had begun of its sends is done and
    /// shown, and the rest is held.
    #[cold]
    pub(super) fn tell_if_drained(&mut self, index: u32) {
        let Some(pair) = self.pairs.get_mut(index).filter(|pair| pair.tells_drained) else { return };
        if pair.state != QpState::SQD {
            // It failed on the way: its completions tell.
            pair.tells_drained = false;
        } else if !pair.waits() && !pair.sends.can_report() {
            pair.tells_drained = false;
            let context = pair.context;
            self.tell(context, EventType::SQ_DRAINED, index);
        }
    }

    /// Takes out the next event of a context, or tells on which file to wait.
    pub(super) fn fetch_async_event(&mut self, index: u32) -> Result<AsyncEvent, c_int> {
        let events = self.contexts.get_mut(index).and_then(|context| context.events.as_mut()).ok_or(-1)?;
        let Some((event_type, about)) = events.waiting.pop_front() else { return Err(events.signal.fd()) };
        events.signal.lower();
        let element = match subject(event_type) {
            Subject::Queue => {
                let queue = self.queues.get_mut(about).ok_or(-1)?;
                queue.events.asynchronous += 1;
                EventElement { cq: with_exposed_provenance_mut(queue.handle) }
            }
            Subject::Pair => {
                let pair = self.pairs.get_mut(about).ok_or(-1)?;
                pair.events.asynchronous += 1;
                EventElement { qp: with_exposed_provenance_mut(pair.handle) }
            }
            Subject::Port | Subject::Device => EventElement { port_num: about.cast_signed() },
        };
        Ok(AsyncEvent { element, event_type })
    }

    pub(super) fn acknowledge_async_event(&mut self, kind: Kind, index: u32) {
        let events = match kind {
            Kind::CompletionQueue => self.queues.get_mut(index).map(|queue| &mut queue.events),
            _ => self.pairs.get_mut(index).map(|pair| &mut pair.events),
        };
        if let Some(events) = events {
            events.asynchronous = events.asynchronous.saturating_sub(1);
        }
    }

    /// Forgets what was not fetched of an object that goes.
    pub(super) fn forget_events(&mut self, context: u32, about: Subject, index: u32) {
        let events = self.contexts.get_mut(context).and_then(|context| context.events.as_mut());
        let Some(AsyncEvents { signal, waiting }) = events else { return };
        let before = waiting.len();
        waiting.retain(|(event, whom)| subject(*event) != about || *whom != index);
        (waiting.len()..before).for_each(|_| signal.lower());
    }

    /// Whether an object may go as far as its events go; the library would wait for ever.
    pub(super) fn refuse_unacknowledged(
        &mut self,
        call: &str,
        handle: usize,
        events: Unacknowledged,
    ) -> Result<(), c_int> {
        if events.any() {
            self.blame(format!("{call}: {handle:#x} has events that were fetched and not acknowledged"));
            return Err(libc::EBUSY);
        }
        Ok(())
    }

    /// What a port's change of state is told as.
    pub(super) fn tell_port_state(&mut self, device: u32, port: u8, before: PortState, now: PortState) {
        match (before == PortState::ACTIVE, now == PortState::ACTIVE) {
            (true, false) => self.tell_all(device, EventType::PORT_ERR, port),
            (false, true) => self.tell_all(device, EventType::PORT_ACTIVE, port),
            _ => {}
        }
    }

    /// The device fails for good: ports are down, nothing can be made or moved, what there is can be destroyed.
    pub(super) fn fail_device(&mut self, index: u32) {
        let Some(device) = self.devices.get_mut(index as usize) else { return };
        device.fatal = true;
        self.any_fatal = true;
        for port in &mut device.ports {
            port.state = PortState::DOWN;
        }
        self.tell_all(index, EventType::DEVICE_FATAL, 0);
    }
}
