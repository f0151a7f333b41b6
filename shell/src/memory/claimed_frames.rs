//! Static storage as a keepalive.
//!
//! # Safety
//!
//! This file guarantees that claimed memory is taken for good by the keepalive, and reached by its address only.
#![allow(unsafe_code)]

use bareverbs_core::link::FrameMemory;

use super::keepalive::Keepalive;

/// Claimed static storage ([`FrameStorage`](bareverbs_core::link::FrameStorage)), or what else a [`FrameMemory`] was made of.
///
/// ```
/// use bareverbs_core::link::FrameStorage;
/// use bareverbs_shell::memory::{ClaimedFrames, Keepalive};
///
/// static BYTES: FrameStorage<8192> = FrameStorage::new();
/// let claimed = ClaimedFrames::from(BYTES.claim().expect("nobody else has it"));
/// assert_eq!(claimed.size(), 8192);
/// ```
#[derive(Debug)]
pub struct ClaimedFrames {
    memory: FrameMemory,
}

// SAFETY: a shared one tells address and length only.
unsafe impl Sync for ClaimedFrames {}

impl From<FrameMemory> for ClaimedFrames {
    fn from(memory: FrameMemory) -> Self {
        Self { memory }
    }
}

// SAFETY: 1: the fields do not change. 2, 3: frame memory is valid, initialised, exposed and its owner's alone while it
// lives (`FrameMemory::from_raw_parts`, 1 to 3), and this owner hands out its address only. 4: dropping it frees nothing.
unsafe impl Keepalive for ClaimedFrames {
    fn addr(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    fn size(&self) -> usize {
        self.memory.len_bytes()
    }
}
