//! Receives that are posted for writes with immediate data: empty ones, since the bytes go where the writer says.

use crate::link::work_id::Direction;
use crate::one_sided::numbers::Numbers;

/// A write with immediate data that has come: its bytes are in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Arrival {
    /// The number that the writer gave.
    pub immediate: u32,
    /// How many bytes the write's last message had, as the device says. A write of several messages has more.
    pub len_bytes: u32,
}

/// Receives posted, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posted {
    numbers: Numbers,
    oldest: u64,
    /// Where numbers went on in another block: the first that was not taken of the old one, and the first of the new.
    jump: Option<(u64, u64)>,
    count: u32,
}

impl Posted {
    pub(super) fn new() -> Option<Self> {
        Numbers::new(Direction::Receive).map(Self::of)
    }

    pub(super) fn of(mut numbers: Numbers) -> Self {
        let oldest = numbers.peek(0).unwrap_or(0);
        Self { numbers, oldest, jump: None, count: 0 }
    }

    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// The number of the next receive to be posted; `None` when numbers have run out.
    pub(super) fn next(&mut self) -> Option<u64> {
        let before = self.numbers.peek(0)?;
        let next = self.numbers.peek(1)?;
        if next != before {
            self.jump = Some((before, next));
            self.oldest = self.after_jump(self.oldest);
        }
        Some(next)
    }

    pub(super) fn posted(&mut self) {
        self.numbers.take(1);
        self.count = self.count.saturating_add(1);
    }

    /// Whether the completion was of the oldest, which it then is not any more; else how many are before it, if it was posted.
    pub(super) fn complete(&mut self, wr_id: u64) -> Result<(), Option<u32>> {
        if self.count == 0 || wr_id != self.oldest {
            return Err(self.before(wr_id));
        }
        self.count = self.count.wrapping_sub(1);
        self.oldest = self.after_jump(self.oldest.wrapping_add(1));
        Ok(())
    }

    /// None of them ends any more.
    pub(super) fn forget_all(&mut self) {
        *self = Self::of(self.numbers);
    }

    fn after_jump(&self, number: u64) -> u64 {
        match self.jump {
            Some((end, start)) if number == end => start,
            _ => number,
        }
    }

    #[cold]
    fn before(&self, wr_id: u64) -> Option<u32> {
        let mut number = self.oldest;
        for before in 0..self.count {
            if number == wr_id {
                return Some(before);
            }
            number = self.after_jump(number.wrapping_add(1));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn receives_end_in_the_order_of_their_posting_across_blocks() {
        for left in 0..6 {
            let mut posted = Posted::of(Numbers::nearly_used_up(Direction::Receive, left));
            let mut twin = VecDeque::new();
            for round in 0..20u64 {
                for _ in 0..3 {
                    let number = posted.next().expect("a number");
                    assert_eq!(posted.next(), Some(number), "a look takes nothing");
                    posted.posted();
                    assert!(!twin.contains(&number));
                    twin.push_back(number);
                }
                assert_eq!(posted.complete(twin[1]), Err(Some(1)), "{left} left, round {round}");
                assert_eq!(posted.complete(twin[0].wrapping_sub(1)), Err(None));
                for _ in 0..2 + round % 2 {
                    let oldest = twin.pop_front().expect("posted");
                    assert_eq!(posted.complete(oldest), Ok(()));
                    assert_eq!(posted.complete(oldest), Err(None), "a replay");
                }
                assert_eq!(posted.count() as usize, twin.len());
            }
        }
    }
}
