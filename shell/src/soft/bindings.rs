//! Binding indirect keys: the builders of an mlx5 queue pair, and the posted request that gives a key its regions.
//!
//! A run of builders is remembered until it is completed; the first thing that was wrong in it is what complete answers, and
//! then nothing of it is posted. A binding is a request like others: it takes a slot of the send queue, takes effect when its
//! turn comes, and completes as a driver's operation (135).
//!
//! A key that is bound is bound anew only after a local invalidation: a binding over it fails with `MW_BIND_ERR`. So does one
//! whose key is gone or is of another domain.

use std::ffi::c_int;

use bareverbs_core::verbs::{AccessFlags, SendFlags, Sge, WcStatus, WrOpcode};

use crate::soft::indirect_keys::{BINDABLE, Bound, sum};
use crate::soft::queue_pair::SendRequest;
use crate::soft::queue_state::takes_sends;
use crate::soft::state::State;

/// What befalls a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindingFault {
    /// It takes effect, and its completion never shows.
    Lost,
    /// It waits for so many polls of its completion queue, and what was posted after it waits with it; with `u64::MAX` for
    /// ever.
    Late {
        /// How many.
        polls: u64,
    },
    /// It has no effect, and fails with this status.
    Fails(WcStatus),
}

/// What an mlx5 queue pair has besides what every queue pair has.
#[derive(Debug)]
pub(super) struct Lists {
    /// Entries that one binding carries.
    pub entries: u32,
    /// The run of builders under way.
    run: Option<Run>,
    /// Bindings posted, by their place in the send ring.
    posted: Box<[Option<Posted>]>,
}

#[derive(Debug, Default)]
struct Run {
    refusal: Option<c_int>,
    bindings: Vec<(SendRequest, Posted)>,
}

/// A posted binding.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    /// Which key, by index and number.
    key: (u32, u32),
    access: AccessFlags,
    entries: Vec<Sge>,
    fault: Option<BindingFault>,
}

/// What a builder is given.
pub(super) struct Listed {
    pub wr_id: u64,
    pub flags: SendFlags,
    /// Which key, by index.
    pub key: u32,
    /// The number that its owner's copy of the key says.
    pub number: u32,
    pub access: AccessFlags,
    pub entries: Vec<Sge>,
}

impl Lists {
    pub(super) fn new(entries: u32, ring: usize) -> Self {
        Self { entries, run: None, posted: (0..ring).map(|_| None).collect() }
    }
}

impl State {
    /// Starts a run of builders.
    pub(super) fn start_run(&mut self, index: u32, refusal: Option<c_int>) -> Result<(), c_int> {
        let pair = self.pairs.get_mut(index).ok_or(libc::EINVAL)?;
        let (handle, lists) = (pair.handle, pair.lists.as_mut().ok_or(libc::EINVAL)?);
        let before = lists.run.replace(Run { refusal, bindings: Vec::new() });
        if before.is_some() {
            self.blame(format!(
                "ibv_wr_start: queue pair {handle:#x} was started before: a provider would wait for ever"
            ));
        }
        Ok(())
    }

    /// Whether a run of builders is under way, which holds the send queue.
    pub(super) fn is_in_run(&self, index: u32) -> bool {
        self.pairs.get(index).and_then(|pair| pair.lists.as_ref()).is_some_and(|lists| lists.run.is_some())
    }

    /// Adds a binding to the run, or what is wrong with it.
    pub(super) fn add_to_run(&mut self, index: u32, listed: Result<Listed, c_int>) {
        let outcome = listed.and_then(|listed| self.check_listed(index, listed));
        let Some(lists) = self.pairs.get_mut(index).and_then(|pair| pair.lists.as_mut()) else { return };
        let Some(run) = &mut lists.run else {
            return self.blame("mlx5dv_wr_mr_list: no ibv_wr_start before it".into());
        };
        match outcome {
            Ok(binding) => run.bindings.push(binding),
            Err(number) => run.refusal = run.refusal.or(Some(number)),
        }
    }

    fn check_listed(&self, index: u32, listed: Listed) -> Result<(SendRequest, Posted), c_int> {
        let Listed { wr_id, flags, key, number, access, entries } = listed;
        if !flags.contains(SendFlags::INLINE) {
            return Err(libc::EOPNOTSUPP);
        }
        // The kernel that this stands for knows no tags.
        if number & 0xff != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if !BINDABLE.contains(access) {
            return Err(libc::EINVAL);
        }
        let room = self.pairs.get(index).and_then(|pair| pair.lists.as_ref()).map_or(0, |lists| lists.entries);
        let capacity = self.regions.indirect.get(key).ok_or(libc::EINVAL)?.capacity;
        if entries.len() > usize::from(capacity) || entries.len() > room as usize {
            return Err(libc::ENOMEM);
        }
        let signaled = flags.contains(SendFlags::SIGNALED);
        let request = SendRequest { wr_id, opcode: WrOpcode::DRIVER1, signaled, slots: 1, ..SendRequest::default() };
        Ok((request, Posted { key: (key, number), access, entries, fault: None }))
    }

    /// Ends a run: posts all of it, or nothing.
    pub(super) fn complete_run(&mut self, index: u32) -> Result<(), c_int> {
        let pair = self.pairs.get_mut(index).ok_or(libc::EINVAL)?;
        let run = pair.lists.as_mut().and_then(|lists| lists.run.take());
        let Some(run) = run else {
            self.blame("ibv_wr_complete: no ibv_wr_start before it".into());
            return Err(libc::EINVAL);
        };
        if let Some(number) = run.refusal {
            return Err(number);
        }
        let pair = self.pairs.get_mut(index).ok_or(libc::EINVAL)?;
        if !takes_sends(pair.state) {
            return Err(libc::EINVAL);
        }
        pair.sends.room(run.bindings.len() as u32).map_err(|_| libc::ENOMEM)?;
        for (request, mut binding) in run.bindings {
            binding.fault = self.binding_faults.on_binding();
            self.some_binding_is_late |= matches!(binding.fault, Some(BindingFault::Late { .. }));
            let key = binding.key.0;
            let Some(pair) = self.pairs.get_mut(index) else { continue };
            let (Ok(place), Some(lists)) = (pair.sends.room(1), &mut pair.lists) else { continue };
            lists.posted[place] = Some(binding);
            pair.sends.push(request, &[]).map_err(|_| libc::ENOMEM)?;
            self.count_in_flight(key, 1);
        }
        self.after_post_send(index);
        Ok(())
    }

    /// Ends a run and forgets it.
    pub(super) fn abort_run(&mut self, index: u32) {
        let lists = self.pairs.get_mut(index).and_then(|pair| pair.lists.as_mut());
        if lists.and_then(|lists| lists.run.take()).is_none() {
            self.blame("ibv_wr_abort: no ibv_wr_start before it".into());
        }
    }

    fn count_in_flight(&mut self, key: u32, by: i32) {
        if let Some(key) = self.regions.indirect.get_mut(key) {
            key.in_flight = key.in_flight.saturating_add_signed(by);
        }
    }

    /// Whether the next request of a queue pair is a binding that is late.
    pub(super) fn is_late(&self, index: u32) -> bool {
        let late = || {
            let pair = self.pairs.get(index)?;
            let (place, request) = pair.sends.to_do()?;
            let binding = pair.lists.as_ref()?.posted.get(place)?.as_ref()?;
            let waits = matches!(binding.fault, Some(BindingFault::Late { polls }) if polls > 0);
            Some(waits && request.opcode == WrOpcode::DRIVER1)
        };
        self.some_binding_is_late && late().unwrap_or(false)
    }

    /// Lets the time of one poll pass for bindings that are late and complete to a queue.
    #[cold]
    pub(super) fn pass_time(&mut self, queue: u32) {
        for index in 0..self.pairs.bound() {
            if !self.is_late(index) || self.pairs.get(index).is_none_or(|pair| pair.send_cq != queue) {
                continue;
            }
            let Some(pair) = self.pairs.get_mut(index) else { continue };
            let place = pair.sends.to_do().map(|(place, _)| place);
            let binding = place.and_then(|place| pair.lists.as_mut()?.posted.get_mut(place)?.as_mut());
            if let Some(Posted { fault: Some(BindingFault::Late { polls }), .. }) = binding
                && *polls != u64::MAX
            {
                *polls -= 1;
            }
            if !self.is_late(index) {
                self.after_post_send(index);
            }
        }
    }

    /// Performs a binding or a local invalidation; the status that it ends with, and whether nobody is to be told.
    pub(super) fn bind_or_invalidate(&mut self, index: u32, place: usize, request: &SendRequest) -> (WcStatus, bool) {
        if request.opcode == WrOpcode::LOCAL_INV {
            // In C the word is a union with the immediate, and not big-endian.
            return (self.invalidate(index, request.immediate.get().to_be()), false);
        }
        let Some(binding) = self.take_binding(index, place) else { return (WcStatus::LOC_QP_OP_ERR, false) };
        match binding.fault {
            Some(BindingFault::Fails(status)) => (status, false),
            fault => (self.bind(index, binding), fault == Some(BindingFault::Lost)),
        }
    }

    /// Takes a posted binding out of its place: it is done, or flushed.
    pub(super) fn take_binding(&mut self, index: u32, place: usize) -> Option<Posted> {
        let binding = self.pairs.get_mut(index)?.lists.as_mut()?.posted.get_mut(place)?.take()?;
        self.count_in_flight(binding.key.0, -1);
        Some(binding)
    }

    fn bind(&mut self, index: u32, binding: Posted) -> WcStatus {
        let in_32_bits = self.sums_in_32_bits;
        let Some(domain) = self.pairs.get(index).map(|pair| pair.domain) else { return WcStatus::GENERAL_ERR };
        let key = self.regions.indirect.get_mut(binding.key.0);
        let key = key.filter(|key| key.key == binding.key.1 && key.domain == domain && key.bound.is_none());
        let Some(key) = key else { return WcStatus::MW_BIND_ERR };
        let length_bytes = sum(&binding.entries, in_32_bits);
        key.bound = Some(Bound { access: binding.access, entries: binding.entries, length_bytes });
        WcStatus::SUCCESS
    }

    fn invalidate(&mut self, index: u32, key: u32) -> WcStatus {
        let Some(domain) = self.pairs.get(index).map(|pair| pair.domain) else { return WcStatus::GENERAL_ERR };
        let found = self.regions.indirect.index_of(key).and_then(|index| self.regions.indirect.get_mut(index));
        match found.filter(|key| key.domain == domain) {
            Some(key) => {
                key.bound = None;
                WcStatus::SUCCESS
            }
            None => WcStatus::MW_BIND_ERR,
        }
    }

    /// Lets go of the keys that posted bindings of a queue pair name: it is reset or destroyed.
    pub(super) fn drop_bindings(&mut self, index: u32) {
        let ring = self.pairs.get(index).and_then(|pair| pair.lists.as_ref()).map_or(0, |lists| lists.posted.len());
        for place in 0..ring {
            self.take_binding(index, place);
        }
    }
}

/// Faults planned for bindings, each with how many come before it.
#[derive(Debug, Default)]
pub(super) struct BindingFaults(Vec<(u64, BindingFault)>);

impl BindingFaults {
    /// # Panics
    /// If `nth` is 0.
    pub(super) fn add(&mut self, nth: u64, fault: BindingFault) {
        self.0.push((nth.checked_sub(1).expect("bindings are counted from 1"), fault));
    }

    fn on_binding(&mut self) -> Option<BindingFault> {
        let mut met = None;
        self.0.retain_mut(|(spare, fault)| match spare.checked_sub(1) {
            Some(left) => {
                *spare = left;
                true
            }
            None => {
                met = met.or(Some(*fault));
                false
            }
        });
        met
    }
}
