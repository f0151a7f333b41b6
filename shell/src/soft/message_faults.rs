//! What is to become of messages on their way.

use bareverbs_core::verbs::Be32;

/// What happens to a message.
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
    /// Later messages to wait for; `None` until it is released.
    pub wait: Option<u32>,
}

/// The faults that are to come, and the messages kept back by those that came.
#[derive(Debug, Default)]
pub(super) struct MessageFaults {
    planned: Vec<(u64, MessageFault)>,
    sent: u64,
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

    /// Counts a message, and tells what becomes of it.
    #[inline]
    pub(super) fn on_message(&mut self) -> Option<MessageFault> {
        self.sent += 1;
        if self.planned.is_empty() {
            return None;
        }
        let at = self.planned.iter().position(|(number, _)| *number == self.sent)?;
        Some(self.planned.swap_remove(at).1)
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
    fn a_delayed_message_is_due_after_so_many_of_its_own_queue_pair() {
        let held = |wait| Held { bytes: vec![], immediate: None, target: (0, 9), from_device: 0, wait };
        let mut faults = MessageFaults { held: vec![held(Some(2)), held(None)], ..MessageFaults::default() };
        assert_eq!(faults.due_after_arrival((0, 8)).len(), 0);
        assert_eq!(faults.due_after_arrival((0, 9)).len(), 0);
        assert_eq!(faults.due_after_arrival((0, 9)).len(), 1);
        assert_eq!(faults.release().len(), 1);
        assert!(faults.held.is_empty());
    }
}
