//! What a request carries and its completion brings back: direction, slot and generation in 64 bits.
//!
//! The rule this file protects: **no two requests of a process ever carry the same number**, so that a completion that
//! is replayed, late, or of a queue pair that is gone can never pass for the completion of a request in flight.
//!
//! | bits | what |
//! |---|---|
//! | 63 | direction: 0 send, 1 receive |
//! | 62..32 | block, handed out once per process; 0 (small numbers of other programs) and all ones (markers) never |
//! | 31..0 | number within the block; its low bits are the slot, those above the slot's generation |
//!
//! A ring takes a block when it is made, and another one when half of that is used up (once in 2^31 requests).

use core::sync::atomic::{AtomicU32, Ordering};

/// Which way a request's bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)] // as wide as the counts that it shares places with: a byte there costs instructions on the hot path
pub enum Direction {
    /// To the other end.
    Send,
    /// From the other end.
    Receive,
}

impl core::fmt::Display for Direction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
        })
    }
}

/// The `wr_id` of a request of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WorkId(u64);

impl WorkId {
    const RECEIVE_BIT: u64 = 1 << 63;

    /// Marks the end of the send queue at teardown; carried by no frame.
    pub const SEND_MARKER: Self = Self(!Self::RECEIVE_BIT);
    /// Marks the end of the receive queue at teardown; carried by no frame.
    pub const RECV_MARKER: Self = Self(u64::MAX);

    /// The number as a completion brought it: any value.
    #[inline]
    pub const fn from_raw(wr_id: u64) -> Self {
        Self(wr_id)
    }

    /// The number as a request carries it.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Which way.
    #[inline]
    pub const fn direction(self) -> Direction {
        if self.0 & Self::RECEIVE_BIT == 0 { Direction::Send } else { Direction::Receive }
    }

    /// Which queue's marker this is, if it is one.
    pub const fn marker(self) -> Option<Direction> {
        match self {
            Self::SEND_MARKER => Some(Direction::Send),
            Self::RECV_MARKER => Some(Direction::Receive),
            _ => None,
        }
    }

    /// The marker of a queue.
    pub const fn marker_of(direction: Direction) -> Self {
        match direction {
            Direction::Send => Self::SEND_MARKER,
            Direction::Receive => Self::RECV_MARKER,
        }
    }

    /// The slot, in a ring of `frames` frames (a power of two).
    #[inline]
    pub const fn slot(self, frames: usize) -> usize {
        self.0 as usize & frames.wrapping_sub(1)
    }

    /// The first number of a block, at a slot.
    pub(crate) const fn first_of(direction: Direction, block: u32, slot: u32) -> Self {
        let number = ((block as u64) << 32) | slot as u64;
        match direction {
            Direction::Send => Self(number & !Self::RECEIVE_BIT),
            Direction::Receive => Self(number | Self::RECEIVE_BIT),
        }
    }
}

/// A number with this bit is in the second half of its block: a ring then takes a new block when it next gets a frame
/// back, with far more numbers left than it has frames.
pub(crate) const RENEW_BIT: u64 = 1 << 31;

/// Blocks run from 1 to this, inclusive.
const LAST_BLOCK: u32 = 0x7FFF_FFFE;

/// Hands out blocks, each once.
pub(crate) struct Blocks(AtomicU32);

/// The process's blocks.
pub(crate) static BLOCKS: Blocks = Blocks(AtomicU32::new(1));

impl Blocks {
    /// None left.
    #[cfg(test)]
    pub(crate) const fn used_up() -> Self {
        Self(AtomicU32::new(LAST_BLOCK + 1))
    }

    /// A block that nobody has; `None` when all were handed out, some two thousand million.
    pub(crate) fn take(&self) -> Option<u32> {
        // Relaxed: the number's uniqueness is all that is asked for, it orders nothing.
        let step = |next: u32| (next <= LAST_BLOCK).then(|| next.wrapping_add(1));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_handed_out_once_and_run_out_for_good() {
        let blocks = Blocks(AtomicU32::new(LAST_BLOCK - 1));
        assert_eq!([blocks.take(), blocks.take()], [Some(LAST_BLOCK - 1), Some(LAST_BLOCK)]);
        assert_eq!([blocks.take(), blocks.take()], [None, None]);
    }

    #[test]
    fn no_block_can_hold_a_marker_or_a_small_number() {
        for (direction, marker) in [(Direction::Send, WorkId::SEND_MARKER), (Direction::Receive, WorkId::RECV_MARKER)] {
            assert!(WorkId::first_of(direction, LAST_BLOCK, u32::MAX).raw() < marker.raw());
            assert!(WorkId::first_of(direction, 1, 0).raw() & !WorkId::RECEIVE_BIT > u64::from(u32::MAX));
            assert_eq!(WorkId::first_of(direction, 5, 3).direction(), direction);
            assert_eq!(WorkId::marker_of(direction).marker(), Some(direction));
        }
        assert_eq!(WorkId::first_of(Direction::Receive, 5, 13).slot(8), 5);
    }
}
