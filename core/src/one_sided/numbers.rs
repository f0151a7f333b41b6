//! Request numbers in order, each once in a process.

use crate::link::work_id::{BLOCKS, Blocks, Direction, WorkId};

/// Where the next number comes from: a block that nobody else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    direction: Direction,
    next: u64,
    /// Numbers left in the block, less 1 each time.
    left: u64,
}

/// Numbers of a block.
const BLOCK: u64 = 1 << 32;

impl Numbers {
    pub(super) fn new(direction: Direction) -> Option<Self> {
        Self::of(&BLOCKS, direction)
    }

    fn of(blocks: &Blocks, direction: Direction) -> Option<Self> {
        let next = WorkId::first_of(direction, blocks.take()?, 0).raw();
        Some(Self { direction, next, left: BLOCK })
    }

    /// The first of `count` numbers that follow each other, without taking them; a new block is taken where they do not fit
    /// into this one. `None` when blocks have run out.
    #[inline]
    pub(super) fn peek(&mut self, count: u32) -> Option<u64> {
        if u64::from(count) > self.left {
            return self.peek_anew();
        }
        Some(self.next)
    }

    #[cold]
    #[inline(never)]
    fn peek_anew(&mut self) -> Option<u64> {
        *self = Self::new(self.direction)?;
        Some(self.next)
    }

    /// Takes what was peeked at.
    #[inline]
    pub(super) fn take(&mut self, count: u32) {
        self.next = self.next.wrapping_add(u64::from(count));
        self.left = self.left.saturating_sub(u64::from(count));
    }

    /// Of a block with so many numbers left.
    #[cfg(test)]
    pub(super) fn nearly_used_up(direction: Direction, left: u64) -> Self {
        let whole = Self::new(direction).expect("a block");
        Self { next: whole.next + (BLOCK - left), left, ..whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_come_from_a_new_block_and_none_is_met_twice() {
        for direction in [Direction::Send, Direction::Receive] {
            let mut numbers = Numbers::nearly_used_up(direction, 3);
            let old = numbers.peek(3).expect("three are left");
            assert_eq!(numbers.peek(3), Some(old), "a look takes nothing");
            numbers.take(2);
            assert_eq!(numbers.peek(1), Some(old + 2));
            let new = numbers.peek(2).expect("a new block");
            assert!(new >> 32 != old >> 32 && new & (BLOCK - 1) == 0, "{new:#x} after {old:#x}");
            for wr_id in [old, new] {
                assert_eq!(WorkId::from_raw(wr_id).direction(), direction);
                assert_eq!(WorkId::from_raw(wr_id).marker(), None);
            }
        }
    }

    #[test]
    fn without_blocks_there_are_no_numbers() {
        assert_eq!(Numbers::of(&Blocks::used_up(), Direction::Send), None);
    }
}
