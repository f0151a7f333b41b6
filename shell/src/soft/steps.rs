//! Stepped mode: nothing moves until it is told to, step by step.
//!
//! [`SoftFabric::steps`](crate::soft::SoftFabric::steps) lists what can happen now, and
//! [`SoftFabric::take`](crate::soft::SoftFabric::take) lets one of it happen. Who tries each in turn, from the beginning
//! again each time, has met every order.

use bareverbs_core::verbs::QpState;

use crate::soft::engine::Arrival;
use crate::soft::message_faults::MessageFault;
use crate::soft::state::State;

/// Something that a device can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the queue pair that it is done on; devices count on their own.
    pub queue_pair: u32,
    /// What it is.
    pub does: Does,
    index: u32,
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Does {
    /// Takes up the next send, and the message goes on its way; with a fault, where one befalls it.
    Send(Option<MessageFault>),
    /// Lets the second half of the next RDMA write land before the rest of it.
    LandEarly,
    /// Lets a message arrive that was held on its way to this queue pair, by its place among all that are held.
    Arrive(usize),
    /// Flushes the next posted receive of a queue pair in error.
    FlushReceive,
    /// Shows the completion of the next send that is done.
    CompleteSend,
    /// Shows the completion of the next receive that is done.
    CompleteReceive,
}

/// What may befall a message on its way in stepped mode: from these all reorderings and delays can be made. What is spoilt is
/// the last byte. A reliable message that is held or spoilt is lost, and tried again.
const FATES: [Option<MessageFault>; 5] = [
    None,
    Some(MessageFault::Drop),
    Some(MessageFault::Duplicate),
    Some(MessageFault::Hold),
    Some(MessageFault::Corrupt { offset_bytes: u32::MAX }),
];

impl State {
    /// All that can happen now, by queue pair.
    pub(super) fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for index in 0..self.pairs.bound() {
            self.pass_silent_sends(index);
            let Some(pair) = self.pairs.get(index) else { continue };
            let mut add = |does| steps.push(Step { queue_pair: pair.number, does, index });
            if self.may_transmit(index) || pair.waits() {
                // In error nothing goes out, and nothing befalls it.
                let fates = if pair.state != QpState::ERR { &FATES[..] } else { &FATES[..1] };
                fates.iter().for_each(|fate| add(Does::Send(*fate)));
            }
            if self.may_land_early(index) {
                add(Does::LandEarly);
            }
            for (place, _) in
                self.faults.held.iter().enumerate().filter(|(_, held)| held.target == (pair.device, pair.number))
            {
                add(Does::Arrive(place));
            }
            if self.may_flush(index) {
                add(Does::FlushReceive);
            }
            if pair.sends.can_report() {
                add(Does::CompleteSend);
            }
            if pair.receives.can_report() {
                add(Does::CompleteReceive);
            }
        }
        // By number: indices are used again, and the same calls are to meet the same choices.
        steps.sort_by_key(|step| step.queue_pair);
        steps
    }

    /// Sends that are done and make no completion need no step.
    fn pass_silent_sends(&mut self, index: u32) {
        while self.pairs.get(index).and_then(|pair| pair.sends.to_report()).is_some_and(|send| !send.makes_completion())
        {
            self.report_send(index);
        }
    }

    /// Lets one step happen; false where it cannot.
    pub(super) fn take_told(&mut self, step: Step) -> bool {
        if !self.steps().contains(&step) {
            return false;
        }
        match step.does {
            Does::Send(fault) => {
                self.faults.force(fault);
                let _: Arrival = self.transmit(step.index);
                self.faults.force(None);
            }
            Does::LandEarly => self.land_half(step.index),
            Does::Arrive(place) => {
                let held = self.faults.held.remove(place);
                self.arrive_late(&held);
            }
            Does::FlushReceive => self.flush_receive(step.index),
            Does::CompleteSend => drop(self.report_send(step.index)),
            Does::CompleteReceive => drop(self.report_receive(step.index)),
        }
        true
    }

    /// From now on everything moves by itself; what was held on its way is lost.
    pub(super) fn run_freely(&mut self) {
        self.schedule.stop_stepping();
        self.faults.held.clear();
        self.after_change();
    }
}
