//! A prepared request, patched and posted through the bare call: the floor under every post.
#![allow(unsafe_code)]

use bareverbs_core::verbs::inline_calls::QueuePairCalls;
use bareverbs_core::verbs::{Be32, SendFlags, SendWr, Sge, WrOpcode};

use crate::provider::FRAME_BYTES;

/// A request and its entry, as C's loop has them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Slot {
    entry: Sge,
    request: SendWr,
}

/// Prepared requests. No memory is behind their addresses: the provider follows none.
pub struct Prepared<const FRAMES: usize> {
    slots: Box<[Slot]>,
}

impl<const FRAMES: usize> Default for Prepared<FRAMES> {
    fn default() -> Self {
        let entry = Sge { addr: 4096, length: FRAME_BYTES, lkey: 7 };
        let request =
            SendWr { num_sge: 1, opcode: WrOpcode::SEND_WITH_IMM, send_flags: SendFlags::SIGNALED, ..SendWr::EMPTY };
        let mut slots = vec![Slot { entry, request }; FRAMES].into_boxed_slice();
        for Slot { request, entry } in &mut slots {
            request.sg_list = entry;
        }
        Self { slots }
    }
}

/// Patches and posts `n` times; answers how many were accepted.
#[inline(never)]
pub fn raw<const FRAMES: usize>(
    prepared: &mut Prepared<FRAMES>,
    calls: &mut QueuePairCalls,
    n: u64,
    bytes: usize,
) -> u64 {
    let slots = prepared.slots.as_mut_ptr();
    assert!(prepared.slots.len() == FRAMES && FRAMES.is_power_of_two(), "a ring of so many");
    let mut sum = 0;
    for i in 0..n {
        let slot = slots.wrapping_add(i as usize & (FRAMES - 1));
        // SAFETY: the index was masked to the length; nobody else has the slots.
        let Slot { request, entry } = unsafe { &mut *slot };
        request.wr_id = i;
        request.imm_data = Be32::new(i as u32);
        entry.length = bytes as u32;
        // SAFETY: 1: a chain of one, its entry beside it. 2: the provider touches no memory.
        sum += u64::from(unsafe { calls.post_send(request) }.is_ok());
    }
    sum
}
