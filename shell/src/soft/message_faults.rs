//! What is to become of messages on their way.

use bareverbs_core::verbs::Be32;

use crate::soft::one_sided::Target;
use crate::soft::rng::Rng;

/// What happens to a message: a send, or a one-sided operation. A reliable one that is lost or spoilt is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageFault {
    /// It is lost: the sender completes, nothing arrives.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives after the next message for the same queue pair: a delay of 1.
    Reorder,
    /// One bit of its byte at this offset is turned over; of the last byte where the message is shorter.
    Corrupt {
        /// Offset, bytes.
        offset_bytes: u32,
    },
    /// It arrives after so many later messages for the same queue pair, and never if fewer come.
    Delay {
        /// How many.
        messages: u32,
    },
    /// It is kept until [`SoftFabric::release_held`](crate::soft::SoftFabric::release_held).
    Hold,
}

/// A message that is on its way.
#[derive(Debug)]
pub(super) struct Held {
    pub bytes: Vec<u8>,
    pub immediate: Option<Be32>,
    pub target: (u32, u32),
    pub from_device: u32,
    pub solicited: bool,
    /// Where it is to be written, if that is not where a receive says.
    pub write_to: Option<Target>,
    /// Later messages to wait for; `None` until it is released.
    pub wait: Option<u32>,
}

/// How often messages meet a fault, each in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageOdds {
    /// [`MessageFault::Drop`]
    pub drop: u32,
    /// [`MessageFault::Duplicate`]
    pub duplicate: u32,
    /// [`MessageFault::Reorder`]
    pub reorder: u32,
    /// [`MessageFault::Corrupt`], at an offset below this many bytes.
    pub corrupt: u32,
    /// Offsets at which a message is corrupted are below this, bytes.
    pub corrupt_below_bytes: u32,
}

/// The faults that are to come, and the messages kept back by those that came.
#[derive(Debug, Default)]
pub(super) struct MessageFaults {
    planned: Vec<(u64, MessageFault)>,
    odds: Option<(Rng, MessageOdds)>,
    sent: u64,
    met: Vec<(u64, MessageFault)>,
    /// What befalls every message now.
    forced: Option<MessageFault>,
    pub held: Vec<Held>,
}

impl MessageFaults {
    /// Plans what becomes of the `nth` message from now, counted from 1, over the whole fabric.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub(super) fn add(&mut self, nth: u64, fault: MessageFault) {
        assert!(nth > 0, "messages are counted from 1");
        self.planned.push((self.sent + nth, fault));
    }

    /// Sets how often messages meet a fault that nobody planned for them.
    pub(super) fn set_odds(&mut self, seed: u64, odds: MessageOdds) {
        self.odds = (odds != MessageOdds::default()).then(|| (Rng::new(seed), odds));
    }

    /// Sets what befalls every message until this is called again.
    pub(super) const fn force(&mut self, fault: Option<MessageFault>) {
        self.forced = fault;
    }

    /// The messages that met a fault, by their number in the fabric's life, counted from 1.
    pub(super) fn met(&self) -> Vec<(u64, MessageFault)> {
        self.met.clone()
    }

    /// Counts a message, and tells what becomes of it.
    #[inline]
    pub(super) fn on_message(&mut self) -> Option<MessageFault> {
        self.sent += 1;
        if self.planned.is_empty() && self.odds.is_none() && self.forced.is_none() { None } else { self.look_up() }
    }

    #[cold]
    fn look_up(&mut self) -> Option<MessageFault> {
        let planned = self.planned.iter().position(|(number, _)| *number == self.sent);
        let fault = match planned {
            Some(at) => Some(self.planned.swap_remove(at).1),
            None if self.forced.is_some() => self.forced,
            None => self.odds.as_mut().and_then(|(rng, odds)| odds.draw(rng)),
        };
        self.met.extend(fault.map(|fault| (self.sent, fault)));
        fault
    }

    /// Counts a message that arrived at a queue pair, and takes one out that waited for it.
    pub(super) fn due_after_arrival(&mut self, target: (u32, u32)) -> Vec<Held> {
        for held in &mut self.held {
            if held.target == target {
                held.wait = held.wait.map(|wait| wait.saturating_sub(1));
            }
        }
        self.held.extract_if(.., |held| held.target == target && held.wait == Some(0)).collect()
    }

    /// Takes out what waits to be released.
    pub(super) fn release(&mut self) -> Vec<Held> {
        self.held.extract_if(.., |held| held.wait.is_none()).collect()
    }
}

impl MessageOdds {
    fn draw(&self, rng: &mut Rng) -> Option<MessageFault> {
        let mut roll = rng.below(1_000_000);
        let faults = [
            (self.drop, MessageFault::Drop),
            (self.duplicate, MessageFault::Duplicate),
            (self.reorder, MessageFault::Reorder),
            (self.corrupt, MessageFault::Corrupt { offset_bytes: rng.below(self.corrupt_below_bytes) }),
        ];
        for (odds, fault) in faults {
            match roll.checked_sub(odds) {
                None => return Some(fault),
                Some(rest) => roll = rest,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_message_from_now_is_met_and_only_that() {
        let mut faults = MessageFaults::default();
        faults.on_message();
        faults.add(2, MessageFault::Drop);
        assert_eq!((0..3).map(|_| faults.on_message()).collect::<Vec<_>>(), [None, Some(MessageFault::Drop), None]);
    }

    #[test]
    fn odds_are_met_as_often_as_they_say_and_the_same_for_a_seed() {
        let run = |seed| {
            let mut faults = MessageFaults::default();
            faults.set_odds(seed, MessageOdds { drop: 100_000, duplicate: 100_000, ..MessageOdds::default() });
            for _ in 0..10_000 {
                faults.on_message();
            }
            faults.met()
        };
        let met = run(1);
        let drops = met.iter().filter(|(_, fault)| *fault == MessageFault::Drop).count();
        assert!((900..1100).contains(&drops) && (900..1100).contains(&(met.len() - drops)), "{drops} of {}", met.len());
        assert_eq!(met, run(1));
        assert_ne!(met, run(2));
    }

    #[test]
    fn each_of_the_odds_is_of_its_own_fault() {
        let met = |odds| {
            let mut faults = MessageFaults::default();
            faults.set_odds(3, odds);
            (0..100).map(|_| faults.on_message().expect("always")).collect::<Vec<_>>()
        };
        let (always, none) = (1_000_000, MessageOdds::default());
        let all_are = |odds, fault| assert!(met(odds).iter().all(|met| *met == fault), "{fault:?}");
        all_are(MessageOdds { drop: always, ..none }, MessageFault::Drop);
        all_are(MessageOdds { duplicate: always, ..none }, MessageFault::Duplicate);
        all_are(MessageOdds { reorder: always, ..none }, MessageFault::Reorder);
        let spoilt = met(MessageOdds { corrupt: always, corrupt_below_bytes: 2, ..none });
        for offset_bytes in [0, 1] {
            assert!(spoilt.contains(&MessageFault::Corrupt { offset_bytes }));
        }
        let is_below = |fault: &_| matches!(fault, MessageFault::Corrupt { offset_bytes: 0..2 });
        assert!(spoilt.iter().all(is_below));
    }

    #[test]
    fn a_delayed_message_is_due_after_so_many_of_its_own_queue_pair() {
        let held = |wait| Held {
            bytes: vec![],
            immediate: None,
            target: (0, 9),
            from_device: 0,
            solicited: false,
            write_to: None,
            wait,
        };
        let mut faults = MessageFaults { held: vec![held(Some(2)), held(None)], ..MessageFaults::default() };
        assert_eq!(faults.due_after_arrival((0, 8)).len(), 0);
        assert_eq!(faults.due_after_arrival((0, 9)).len(), 0);
        assert_eq!(faults.due_after_arrival((0, 9)).len(), 1);
        assert_eq!(faults.release().len(), 1);
        assert!(faults.held.is_empty());
    }
}
