//! Everything that one fabric holds, behind one lock, and what destroying and misusing things means.

use std::sync::Arc;

use bareverbs_core::verbs::PortState;

use crate::soft::async_events::AsyncEvents;
use crate::soft::bindings::BindingFaults;
use crate::soft::channels::Channel;
use crate::soft::completion::CompletionQueue;
use crate::soft::config::SoftConfig;
use crate::soft::device::{Limits, SoftPort};
use crate::soft::handles::{self, Kind};
use crate::soft::message_faults::MessageFaults;
use crate::soft::plan::Plan;
use crate::soft::profile::Profile;
use crate::soft::queue_pair::QueuePair;
use crate::soft::record::CallRecord;
use crate::soft::regions::Regions;
use crate::soft::schedule::Schedule;
use crate::soft::slab::Slab;

/// A device in operation.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub handle: usize,
    pub name: String,
    pub guid: u64,
    pub profile: Profile,
    pub limits: Limits,
    pub ports: Vec<SoftPort>,
    pub queue_pairs: u32,
    pub regions: u32,
    /// Number of the next queue pair; devices count on their own, so that two of them have equal numbers.
    pub next_number: u32,
    /// Longest send descriptor of a queue pair that binds keys.
    pub descriptor_bytes: u32,
    /// Lists that it is in and contexts open on it: with none, its handle must not be used.
    pub references: u32,
    /// Whether it failed for good.
    pub fatal: bool,
}

impl DeviceState {
    /// A port by its number, counted from 1.
    pub(super) fn port(&self, number: u8) -> Option<&SoftPort> {
        self.ports.get(usize::from(number).checked_sub(1)?)
    }

    #[inline]
    pub(super) fn is_active(&self, number: u8) -> bool {
        self.port(number).is_some_and(|port| port.state == PortState::ACTIVE)
    }
}

/// An open context.
#[derive(Debug)]
pub(super) struct ContextState {
    pub handle: usize,
    pub device: u32,
    /// Whether it was closed with children alive, which keep its place.
    pub closed: bool,
    pub children: u32,
    /// Asynchronous events, where the device has them.
    pub events: Option<AsyncEvents>,
}

/// A protection domain.
#[derive(Debug)]
pub(super) struct DomainState {
    pub handle: usize,
    pub context: u32,
    pub children: u32,
}

/// How many objects are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveCounts {
    /// Open contexts.
    pub contexts: usize,
    /// Protection domains.
    pub pds: usize,
    /// Memory regions.
    pub mrs: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Completion channels.
    pub channels: usize,
    /// Indirect keys.
    pub keys: usize,
}

/// Destroyed handles whose memory is kept from being used again, per kind.
const QUARANTINE: usize = 1 << 16;

/// Most misuses that are kept.
const MISUSE_KEPT: usize = 1024;

/// Everything that one fabric holds.
#[derive(Debug)]
pub(super) struct State {
    pub slot: u32,
    pub devices: Vec<DeviceState>,
    pub contexts: Slab<ContextState>,
    pub domains: Slab<DomainState>,
    pub regions: Regions,
    pub queues: Slab<CompletionQueue>,
    pub pairs: Slab<QueuePair>,
    pub channels: Slab<Channel>,
    pub lists: Vec<(usize, usize)>,
    pub schedule: Schedule,
    pub faults: MessageFaults,
    pub plan: Plan,
    pub record: CallRecord,
    misuse: Vec<String>,
    pub query_port_bytes: usize,
    /// What the fabric is to lack, by C name.
    pub missing: Vec<&'static str>,
    /// Counts what has an order: registrations, moves to INIT, lives of queue pairs.
    events: u64,
    destroyed: [std::collections::VecDeque<usize>; Kind::COUNT],
    /// The name of the table of entry points: as long as somebody holds it, the table may be called.
    pub library: Arc<str>,
    /// Whether the last control handle is gone.
    pub abandoned: bool,
    /// Whether a device failed for good.
    pub any_fatal: bool,
    pub binding_faults: BindingFaults,
    /// Whether a binding was late at some time.
    pub some_binding_is_late: bool,
    /// Whether lengths of indirect keys are summed in a signed 32-bit number.
    pub sums_in_32_bits: bool,
}

impl State {
    pub(super) fn new(slot: u32, config: &SoftConfig, devices: Vec<DeviceState>, library: Arc<str>) -> Self {
        Self {
            slot,
            devices,
            contexts: Slab::new(),
            domains: Slab::new(),
            regions: Regions::new(),
            queues: Slab::new(),
            pairs: Slab::new(),
            channels: Slab::new(),
            lists: Vec::new(),
            schedule: Schedule::new(config.mode),
            faults: MessageFaults::default(),
            plan: Plan::default(),
            record: CallRecord::new(config.record),
            misuse: Vec::new(),
            query_port_bytes: config.query_port_bytes,
            missing: config.missing.clone(),
            events: 0,
            destroyed: [const { std::collections::VecDeque::new() }; Kind::COUNT],
            library,
            abandoned: false,
            any_fatal: false,
            binding_faults: BindingFaults::default(),
            some_binding_is_late: false,
            sums_in_32_bits: config.old_mlx5,
        }
    }

    /// The number of the next event.
    pub(super) const fn next_event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    pub(super) fn live(&self) -> LiveCounts {
        LiveCounts {
            contexts: self.contexts.iter().filter(|(_, context)| !context.closed).count(),
            pds: self.domains.len(),
            mrs: self.regions.len(),
            cqs: self.queues.len(),
            qps: self.pairs.len(),
            channels: self.channels.len(),
            keys: self.regions.indirect.len(),
        }
    }

    /// Whether nobody can call into this fabric any more but with a destroyed handle.
    pub(super) fn is_over(&self) -> bool {
        self.abandoned
            && self.live() == LiveCounts::default()
            && self.lists.is_empty()
            && Arc::strong_count(&self.library) == 1
    }

    /// Whether posts and polls need a look at the plan or the record.
    #[inline]
    pub(super) fn watches_data_path(&self) -> bool {
        !self.plan.is_empty() || self.record.takes_data_path()
    }

    /// Whether an object is alive and may be used.
    pub(super) fn is_live(&self, kind: Kind, index: u32, handle: usize) -> bool {
        let found = match kind {
            Kind::Device => self.devices.get(index as usize).map(|device| (device.handle, device.references > 0)),
            Kind::Context => self.contexts.get(index).map(|context| (context.handle, !context.closed)),
            Kind::Domain => self.domains.get(index).map(|domain| (domain.handle, self.is_open(domain.context))),
            Kind::Region => self.regions.get(index).map(|region| (region.handle, self.is_domain_open(region.domain))),
            Kind::CompletionQueue => self.queues.get(index).map(|queue| (queue.handle, self.is_open(queue.context))),
            Kind::Channel => self.channels.get(index).map(|channel| (channel.handle, self.is_open(channel.context))),
            Kind::QueuePair => self.pairs.get(index).map(|pair| (pair.handle, self.is_open(pair.context))),
            Kind::IndirectKey => {
                self.regions.indirect.get(index).map(|key| (key.handle, self.is_domain_open(key.domain)))
            }
        };
        found == Some((handle, true))
    }

    #[inline]
    pub(super) fn is_open(&self, context: u32) -> bool {
        self.contexts.get(context).is_some_and(|context| !context.closed)
    }

    fn is_domain_open(&self, domain: u32) -> bool {
        self.domains.get(domain).is_some_and(|domain| self.is_open(domain.context))
    }

    /// Whether the device of an object failed for good.
    pub(super) fn is_fatal(&self, kind: Kind, index: u32) -> bool {
        let of_context = |context| self.contexts.get(context).map(|context| context.device);
        let of_domain = |domain| of_context(self.domains.get(domain)?.context);
        let device = match kind {
            Kind::Device => Some(index),
            Kind::Context => of_context(index),
            Kind::Domain => of_domain(index),
            Kind::Region => self.regions.get(index).and_then(|region| of_domain(region.domain)),
            Kind::IndirectKey => self.regions.indirect.get(index).and_then(|key| of_domain(key.domain)),
            Kind::CompletionQueue => self.queues.get(index).and_then(|queue| of_context(queue.context)),
            Kind::QueuePair => self.pairs.get(index).map(|pair| pair.device),
            Kind::Channel => self.channels.get(index).and_then(|channel| of_context(channel.context)),
        };
        device.and_then(|device| self.devices.get(device as usize)).is_some_and(|device| device.fatal)
    }

    /// Remembers that a handle is dead, so that its memory is not used again too soon.
    pub(super) fn bury(&mut self, kind: Kind, handle: usize) {
        let dead = &mut self.destroyed[kind as usize];
        dead.push_back(handle);
        if dead.len() > QUARANTINE {
            handles::give_back(kind, dead.pop_front());
        }
    }

    /// Notes a use of a handle that must not be used.
    pub(super) fn note_misuse(&mut self, symbol: &str, kind: Kind, handle: usize) {
        let why = match kind {
            Kind::Device => "is in no list and has no open context",
            _ => "is destroyed or its context is closed",
        };
        self.blame(format!("{symbol}: {} {handle:#x} {why}", kind.name()));
    }

    /// Notes a misuse, in words; the first ones are kept, for what follows from them is less telling.
    pub(super) fn blame(&mut self, words: String) {
        if self.misuse.len() < MISUSE_KEPT {
            self.misuse.push(words);
        }
    }

    pub(super) fn misuse(&self) -> Vec<String> {
        self.misuse.clone()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let kinds = [
            Kind::Device,
            Kind::Context,
            Kind::Domain,
            Kind::Region,
            Kind::CompletionQueue,
            Kind::QueuePair,
            Kind::Channel,
            Kind::IndirectKey,
        ];
        for kind in kinds {
            handles::give_back(kind, std::mem::take(&mut self.destroyed[kind as usize]));
        }
        handles::give_back(Kind::Device, self.devices.iter().map(|device| device.handle));
    }
}
