//! Completion queues: capacity, overflow, and what a polled completion frees.

use std::collections::VecDeque;

use bareverbs_core::verbs::Wc;

/// Which of a queue pair's queues a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Send,
    Receive,
}

/// A completion and what polling it frees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub wc: Wc,
    pub queue_pair: u32,
    /// Which life of the queue pair: after a reset or a destruction nothing is freed.
    pub life: u64,
    pub direction: Direction,
    /// Number of the request in its queue.
    pub number: u64,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub handle: usize,
    pub context: u32,
    /// Queue pairs that complete here; one that sends and receives here counts twice.
    pub users: u32,
    capacity: usize,
    entries: VecDeque<Entry>,
    overflowed: bool,
}

/// The completion queue had no room: the completion is lost and the queue is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

impl CompletionQueue {
    pub(super) fn new(handle: usize, context: u32, capacity: usize) -> Self {
        Self { handle, context, users: 0, capacity, entries: VecDeque::with_capacity(capacity), overflowed: false }
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> Result<(), Overflow> {
        if self.overflowed || self.entries.len() == self.capacity {
            self.overflowed = true;
            return Err(Overflow);
        }
        self.entries.push_back(entry);
        Ok(())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// Whether the queue overflowed and what it still held was polled: from then on every poll fails.
    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.overflowed && self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry { wc: Wc::default(), queue_pair: 0, life: 0, direction: Direction::Send, number }
    }

    #[test]
    fn a_queue_holds_its_capacity_and_dies_of_one_more() {
        let mut queue = CompletionQueue::new(0, 0, 2);
        assert_eq!((queue.push(entry(0)), queue.push(entry(1)), queue.push(entry(2))), (Ok(()), Ok(()), Err(Overflow)));
        assert!(!queue.is_dead(), "what it held can still be polled");
        assert_eq!((0..2).map(|_| queue.pop().map(|entry| entry.number)).collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert!(queue.is_dead());
        assert_eq!(queue.push(entry(3)), Err(Overflow));
    }
}
