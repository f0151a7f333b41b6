//! Completion queues: capacity, overflow, and what a polled completion frees.

use bareverbs_core::verbs::Wc;

use crate::soft::async_events::Unacknowledged;
use crate::soft::channels::Armed;

/// Which of a queue pair's queues a completion is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Direction {
    #[default]
    Send,
    Receive,
}

/// A completion and what polling it frees.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub wc: Wc,
    pub queue_pair: u32,
    /// Which life of the queue pair: after a reset or a destruction nothing is freed.
    pub life: u64,
    pub direction: Direction,
    /// Number of the request in its queue.
    pub number: u64,
}

/// A completion queue. Allocates when made and never again.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub handle: usize,
    pub context: u32,
    /// Queue pairs that complete here; one that sends and receives here counts twice.
    pub users: u32,
    capacity: usize,
    ring: Box<[Entry]>,
    put: usize,
    taken: usize,
    overflowed: bool,
    /// Whether the overflow was told as an asynchronous event.
    pub told: bool,
    /// The channel that it reports to, by index.
    pub channel: Option<u32>,
    /// The word that its maker gave it, for its events.
    pub word: usize,
    pub armed: Armed,
    pub events: Unacknowledged,
}

/// The completion queue had no room: the completion is lost and the queue is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

impl CompletionQueue {
    pub(super) fn new(handle: usize, context: u32, capacity: usize) -> Self {
        let ring = vec![Entry::default(); capacity.next_power_of_two()].into();
        Self {
            handle,
            context,
            users: 0,
            capacity,
            ring,
            put: 0,
            taken: 0,
            overflowed: false,
            told: false,
            channel: None,
            word: 0,
            armed: Armed::No,
            events: Unacknowledged::default(),
        }
    }

    /// Where to write the next completion.
    #[inline]
    pub(super) fn push(&mut self) -> Result<&mut Entry, Overflow> {
        if self.overflowed || self.put.wrapping_sub(self.taken) == self.capacity {
            self.overflowed = true;
            return Err(Overflow);
        }
        let place = self.put & (self.ring.len() - 1);
        self.put = self.put.wrapping_add(1);
        Ok(&mut self.ring[place])
    }

    /// Takes out the oldest completion.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<&Entry> {
        if self.put == self.taken {
            return None;
        }
        let place = self.taken & (self.ring.len() - 1);
        self.taken = self.taken.wrapping_add(1);
        Some(&self.ring[place])
    }

    /// Whether there is nothing to be polled.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.put == self.taken
    }

    /// Whether the queue overflowed and what it still held was polled: from then on every poll fails.
    #[inline]
    pub(super) const fn is_dead(&self) -> bool {
        self.overflowed && self.put == self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_holds_its_capacity_and_dies_of_one_more() {
        let mut queue = CompletionQueue::new(0, 0, 3);
        for number in 0..3 {
            queue.push().expect("room").number = number;
        }
        assert!(queue.push().is_err());
        assert!(!queue.is_dead(), "what it held can still be polled");
        assert_eq!(
            (0..3).map(|_| queue.pop().map(|entry| entry.number)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2)]
        );
        assert!(queue.pop().is_none() && queue.is_dead());
        assert!(queue.push().is_err());
    }

    #[test]
    fn a_queue_goes_round() {
        let mut queue = CompletionQueue::new(0, 0, 3);
        for number in 0..100 {
            queue.push().expect("room").number = number;
            assert_eq!(queue.pop().map(|entry| entry.number), Some(number));
        }
    }
}
