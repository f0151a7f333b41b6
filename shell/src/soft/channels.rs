//! Completion channels, and which completions make events on them.
//!
//! An armed queue makes one event, at the first completion after the arming (or the first solicited or failed one), and is
//! then no longer armed. Completions from before the arming make none.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;

use bareverbs_core::verbs::{CompChannel, Cq};

use crate::soft::handles::{self, Kind};
use crate::soft::signal::Signal;
use crate::soft::state::State;

/// A completion channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub handle: usize,
    pub context: u32,
    /// Completion queues that report to it.
    pub users: u32,
    signal: Signal,
    /// The queues of the events that were not fetched, by index.
    waiting: VecDeque<u32>,
}

/// What a queue waits for before it makes an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Armed {
    #[default]
    No,
    /// A solicited completion, or a failed one.
    Solicited,
    /// Any completion.
    Any,
}

/// A fetched event: the queue's handle, and the word that its maker gave it.
pub(super) struct Fetched {
    pub queue: *mut Cq,
    pub word: *mut c_void,
}

impl State {
    pub(super) fn create_channel(&mut self, context: u32) -> Result<usize, c_int> {
        let device = self.device_of(context).ok_or(libc::EINVAL)?;
        if !device.profile.has_events() {
            return Err(device.profile.unsupported());
        }
        let signal = Signal::new()?;
        let index = self.channels.next_index();
        let body = CompChannel { context: self.context_pointer(context), fd: signal.fd(), refcnt: 0 };
        let handle = handles::create(self.place(index), body);
        self.channels.insert(Channel { handle, context, users: 0, signal, waiting: VecDeque::new() });
        self.adopt(context, 1);
        Ok(handle)
    }

    pub(super) fn destroy_channel(&mut self, index: u32) -> Result<(), c_int> {
        if self.channels.get(index).ok_or(libc::EINVAL)?.users > 0 {
            return Err(libc::EBUSY);
        }
        if let Some(channel) = self.channels.remove(index) {
            self.adopt(channel.context, -1);
            self.bury(Kind::Channel, channel.handle);
        }
        Ok(())
    }

    /// Takes out the next event of a channel, or tells on which file to wait.
    pub(super) fn fetch_event(&mut self, index: u32) -> Result<Fetched, c_int> {
        let channel = self.channels.get_mut(index).ok_or(-1)?;
        let Some(queue) = channel.waiting.pop_front() else { return Err(channel.signal.fd()) };
        channel.signal.lower();
        let queue = self.queues.get_mut(queue).ok_or(-1)?;
        queue.events.fetched += 1;
        Ok(Fetched { queue: with_exposed_provenance_mut(queue.handle), word: with_exposed_provenance_mut(queue.word) })
    }

    pub(super) fn acknowledge_events(&mut self, index: u32, count: u32) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        let (handle, open) = (queue.handle, queue.events.fetched);
        queue.events.fetched = open.saturating_sub(count);
        if count > open {
            self.blame(format!(
                "ibv_ack_cq_events: {count} of completion queue {handle:#x} acknowledged, {open} were fetched"
            ));
        }
    }

    pub(super) fn arm_queue(&mut self, index: u32, solicited_only: bool) {
        let Some(queue) = self.queues.get_mut(index).filter(|queue| queue.channel.is_some()) else { return };
        queue.armed = match (queue.armed, solicited_only) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            (_, true) => Armed::Solicited,
        };
        self.after_arming();
    }

    /// After a completion was put into a queue that is armed: `solicits` where it is a solicited or a failed one.
    #[cold]
    pub(super) fn wake(&mut self, index: u32, solicits: bool) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        if queue.armed == Armed::Any || solicits {
            queue.armed = Armed::No;
            let Some(channel) = queue.channel.and_then(|channel| self.channels.get_mut(channel)) else { return };
            channel.waiting.push_back(index);
            channel.signal.raise();
        }
    }

    /// Takes a queue that goes off its channel, with what it had not told.
    pub(super) fn leave_channel(&mut self, queue: u32, channel: u32) {
        let Some(channel) = self.channels.get_mut(channel) else { return };
        channel.users = channel.users.saturating_sub(1);
        let before = channel.waiting.len();
        channel.waiting.retain(|waiting| *waiting != queue);
        (channel.waiting.len()..before).for_each(|_| channel.signal.lower());
    }
}
