//! When work moves: promptly, or whenever a malicious device might.
//!
//! Both ways take the same steps ([`crate::soft::engine`]); they differ in when. A third, in which a test says which
//! step is next, stands beside these two ([`crate::soft::steps`]).

use bareverbs_core::verbs::{Be32, QpState, Wc, WcFlags, WcOpcode, WcStatus};

use crate::soft::channels::Armed;
use crate::soft::completion::CompletionQueue;
use crate::soft::config::Mode;
use crate::soft::queue_pair::QueuePair;
use crate::soft::rng::Rng;
use crate::soft::state::State;

/// Polls in a row that may pass with nothing moved though something could.
const PATIENCE: u32 = 3;
/// Most bytes of a posted receive that one poll scribbles over.
const SCRIBBLE_BYTES: u32 = 64;

/// The way of a fabric: with an adversary, or promptly without.
#[derive(Debug)]
pub(super) struct Schedule {
    adversary: Option<Adversary>,
    /// Whether a test says what happens next.
    stepped: bool,
    /// Whether a reliable send may be waiting for another try.
    pub somebody_waits: bool,
}

#[derive(Debug)]
struct Adversary {
    rng: Rng,
    idle: u32,
}

impl Schedule {
    pub(super) fn new(mode: Mode) -> Self {
        let adversary = match mode {
            Mode::Prompt | Mode::Stepped => None,
            Mode::Adversarial { seed } => Some(Adversary { rng: Rng::new(seed), idle: 0 }),
        };
        Self { adversary, stepped: mode == Mode::Stepped, somebody_waits: false }
    }

    /// From now on everything moves promptly.
    pub(super) const fn stop_stepping(&mut self) {
        self.stepped = false;
    }

    /// From now on nothing moves but by steps.
    pub(super) fn start_stepping(&mut self) {
        self.stepped = self.adversary.is_none();
    }

    /// What an adversary chooses by, where there is one.
    pub(super) fn rng(&mut self) -> Option<&mut Rng> {
        self.adversary.as_mut().map(|adversary| &mut adversary.rng)
    }

    #[inline]
    const fn is_prompt(&self) -> bool {
        self.adversary.is_none() && !self.stepped
    }

    /// Puts junk into the fields that a completion does not define.
    #[inline]
    pub(super) fn spoil_undefined(&mut self, wc: &mut Wc) {
        let Some(Adversary { rng, .. }) = &mut self.adversary else { return };
        if wc.status != WcStatus::SUCCESS {
            let junk = rng.next();
            wc.opcode = WcOpcode(junk as u32);
            wc.byte_len = !0;
            wc.imm_data = Be32::new((junk >> 32) as u32);
            wc.wc_flags = WcFlags::from_bits_retain(!0);
            wc.src_qp = junk as u32;
        } else if !wc.wc_flags.contains(WcFlags::WITH_IMM) {
            wc.imm_data = Be32::new(rng.next() as u32);
        }
    }
}

/// A step that an adversary can take on a queue pair.
#[derive(Clone, Copy)]
enum Step {
    Transmit,
    FlushReceive,
    ReportSend,
    ReportReceive,
}

impl State {
    /// After sends were posted to a queue pair.
    #[inline]
    pub(super) fn after_post_send(&mut self, index: u32) {
        if self.schedule.is_prompt() {
            self.settle(index);
        } else {
            self.exhaust();
        }
    }

    /// After receives were posted to a queue pair.
    #[inline]
    pub(super) fn after_post_receive(&mut self, index: u32) {
        if !self.schedule.is_prompt() {
            return self.exhaust();
        }
        let Some(pair) = self.pairs.get(index) else { return };
        if pair.profile.send_waits_for_receive() || self.schedule.somebody_waits {
            self.settle_all();
        } else if pair.state == QpState::ERR {
            self.settle(index);
        }
    }

    /// After something else may have set work free: a move, a release.
    pub(super) fn after_change(&mut self) {
        if self.schedule.is_prompt() {
            self.settle_all();
        } else {
            self.exhaust();
        }
    }

    /// After a queue was armed: whoever armed it may sleep until it makes an event, and poll no more.
    pub(super) fn after_arming(&mut self) {
        if !self.schedule.is_prompt() {
            self.exhaust();
        }
    }

    /// Takes steps until there is none, if somebody sleeps.
    fn exhaust(&mut self) {
        if self.schedule.adversary.is_some() && self.queues.iter().any(|(_, queue)| queue.armed != Armed::No) {
            // A send that waits for ever has steps for ever.
            let most = 64 * (self.pairs.bound() + 1) * 64;
            let _ = (0..most).find(|_| !self.step());
        }
    }

    /// Before a completion queue is polled.
    #[inline]
    pub(super) fn before_poll(&mut self, queue: u32) {
        if self.some_binding_is_late {
            self.pass_time(queue);
        }
        if !self.schedule.is_prompt() {
            self.disturb();
        } else if self.schedule.somebody_waits && self.queues.get(queue).is_some_and(CompletionQueue::is_empty) {
            self.try_again(queue);
        }
    }

    /// Takes every step that can be taken on one queue pair, and those that follow from them on others.
    pub(super) fn settle(&mut self, index: u32) {
        while self.may_transmit(index) {
            self.deliver(index);
        }
        self.settle_error(index);
    }

    /// Takes up the next send of a queue pair, and reports at both ends what came of it.
    #[inline]
    pub(super) fn deliver(&mut self, index: u32) {
        let arrival = self.transmit(index);
        self.report_send(index);
        if let Some(arrival) = arrival {
            while self.report_receive(arrival) {}
            self.settle_error(arrival);
        }
    }

    /// Flushes what is posted on a queue pair that is in error, and reports all.
    #[inline]
    fn settle_error(&mut self, index: u32) {
        if self.pairs.get(index).is_some_and(|pair| pair.state == QpState::ERR) {
            self.flush(index);
        }
    }

    #[cold]
    fn flush(&mut self, index: u32) {
        while self.may_transmit(index) {
            self.transmit(index);
        }
        while self.may_flush(index) {
            self.flush_receive(index);
        }
        while self.report_send(index) || self.report_receive(index) {}
    }

    fn settle_all(&mut self) {
        for index in 0..self.pairs.bound() {
            while self.report_receive(index) {}
            self.settle(index);
        }
    }

    /// What an adversary does between two calls: a few steps, or none; and junk over a posted receive.
    fn disturb(&mut self) {
        let Some(adversary) = &mut self.schedule.adversary else { return };
        let mut steps = adversary.rng.below(4);
        if adversary.idle >= PATIENCE {
            steps = steps.max(1);
        }
        let mut moved = false;
        for _ in 0..steps {
            moved |= self.step();
        }
        if let Some(adversary) = &mut self.schedule.adversary {
            adversary.idle = if moved { 0 } else { adversary.idle + 1 };
        }
        self.scribble_somewhere();
        self.land_somewhere();
    }

    /// Takes one step of those that can be taken; false if there is none.
    fn step(&mut self) -> bool {
        let bound = self.pairs.bound();
        let first = self.roll(bound);
        for index in (first..bound).chain(0..first) {
            let mut steps = [Step::Transmit; 4];
            let mut count = 0;
            let possible = [
                (Step::Transmit, self.may_transmit(index) || self.pairs.get(index).is_some_and(QueuePair::waits)),
                (Step::FlushReceive, self.may_flush(index)),
                (Step::ReportSend, self.pairs.get(index).is_some_and(|pair| pair.sends.can_report())),
                (Step::ReportReceive, self.pairs.get(index).is_some_and(|pair| pair.receives.can_report())),
            ];
            for (step, _) in possible.into_iter().filter(|(_, possible)| *possible) {
                steps[count] = step;
                count += 1;
            }
            if count > 0 {
                let chosen = self.roll(count as u32);
                self.take(index, steps[chosen as usize]);
                return true;
            }
        }
        false
    }

    fn take(&mut self, index: u32, step: Step) {
        match step {
            Step::FlushReceive => self.flush_receive(index),
            Step::ReportSend => drop(self.report_send(index)),
            Step::ReportReceive => drop(self.report_receive(index)),
            Step::Transmit => {
                // The bytes are read at the moment that the first of the two completions appears, not earlier.
                let arrival = self.transmit(index);
                match arrival {
                    Some(arrival) if self.roll(2) == 0 => while self.report_receive(arrival) {},
                    _ => while self.report_send(index) {},
                }
            }
        }
    }

    /// A number below `bound`.
    pub(super) fn roll(&mut self, bound: u32) -> u32 {
        self.schedule.adversary.as_mut().map_or(0, |adversary| adversary.rng.below(bound))
    }

    /// Scribbles over a whole receive that was just posted, the last of its queue.
    #[inline]
    pub(super) fn scribble_posted(&mut self, index: u32) {
        if self.schedule.is_prompt() {
            return;
        }
        let Some(pair) = self.pairs.get(index) else { return };
        if let Some(last) = pair.receives.waiting().checked_sub(1) {
            self.scribble(index, last, 0, u32::MAX);
        }
    }

    fn scribble_somewhere(&mut self) {
        let index = self.roll(self.pairs.bound());
        let Some(pair) = self.pairs.get(index) else { return };
        let waiting = u32::try_from(pair.receives.waiting()).unwrap_or(u32::MAX);
        if waiting > 0 {
            let ahead = u64::from(self.roll(waiting));
            let room: u32 = self.pairs.get(index).map_or(0, |pair| {
                pair.receives.waiting_entries(ahead).iter().fold(0, |sum, entry| u32::saturating_add(sum, entry.length))
            });
            let start = self.roll(room);
            self.scribble(index, ahead, start, start.saturating_add(SCRIBBLE_BYTES));
        }
    }

    /// Scribbles over bytes of a posted receive, as far as its keys reach.
    fn scribble(&mut self, index: u32, ahead: u64, from_byte: u32, to_byte: u32) {
        let Some(Adversary { rng, .. }) = &mut self.schedule.adversary else { return };
        let Some(pair) = self.pairs.get(index) else { return };
        let entries = pair.receives.waiting_entries(ahead);
        // A key that does not reach ends it: the receive will fail, and may as well do so later.
        let _ = self.regions.each_part(pair.domain, entries, from_byte, to_byte, |mut span| span.scribble(rng));
    }
}
