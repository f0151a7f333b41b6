//! Frames both ways between two ends of one process: over the software fabric, and by nothing but copies.
//!
//! Both sides do the same to each payload, in the same order, with the same window: fill it in a send buffer, have it copied
//! once, check it in a receive buffer. What the fabric's side does beyond that is all there is to two endpoints: rings,
//! requests, completions, sequence numbers, keys and bounds.

use bareverbs_core::link::{Carrier, CreditMode, FrameMemory};
use bareverbs_shell::Fabric;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, Event, connect_pair};

/// Frames of each ring.
pub const RING: usize = 32;
/// Frames that may be unanswered, each way.
pub const WINDOW: u64 = 16;

/// What is done to a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labour {
    /// Each word is computed from the one before, and compared so: as the example `loopback` does.
    Words,
    /// All bytes are set, and compared with what was set: as fast as the memory takes it.
    Bytes,
    /// The first eight bytes are written and compared.
    Stamp,
}

impl Labour {
    /// Not inlined, so that both sides run the same code.
    #[inline(never)]
    fn fill(self, payload: &mut [u8], number: u64) {
        match self {
            Self::Words => {
                let mut state = number | 1;
                for word in payload.chunks_exact_mut(8) {
                    word.copy_from_slice(&state.to_le_bytes());
                    state = next(state);
                }
            }
            Self::Bytes => payload.fill(number as u8),
            Self::Stamp => payload[..8].copy_from_slice(&number.to_le_bytes()),
        }
    }

    /// Whether the payload is what was filled in.
    #[inline(never)]
    fn check(self, payload: &[u8], number: u64) -> bool {
        match self {
            Self::Words => {
                let mut state = number | 1;
                payload.chunks_exact(8).all(|word| {
                    let due = state.to_le_bytes();
                    state = next(state);
                    word == due
                })
            }
            // No early end, so that it is done for many bytes at once.
            Self::Bytes => payload.iter().fold(0, |differs, byte| differs | (byte ^ number as u8)) == 0,
            Self::Stamp => payload[..8] == number.to_le_bytes(),
        }
    }
}

const fn next(state: u64) -> u64 {
    state.wrapping_mul(0xd129_0d3d_3d5f_8c6b).rotate_left(23)
}

/// Two ends that send each other frames.
pub trait Pair {
    /// Sends `frames` frames each way; how many were received and right, of both.
    fn run(&mut self, labour: Labour, frames: u64) -> u64;
}

/// Static buffers, and copies from one to the other.
#[derive(Debug)]
pub struct Copies {
    size: usize,
    /// For each way, what is sent from and what is received into: [`RING`] frames each.
    ways: [[&'static mut [u8]; 2]; 2],
}

impl Copies {
    /// Frames of `size` bytes in buffers of `frame_bytes` each.
    pub fn new(size: usize, frame_bytes: usize) -> Self {
        let buffer = || &mut *vec![0; RING * frame_bytes].leak();
        Self { size, ways: [[buffer(), buffer()], [buffer(), buffer()]] }
    }
}

impl Pair for Copies {
    fn run(&mut self, labour: Labour, frames: u64) -> u64 {
        let size = self.size;
        let place = |number: u64, buffer: &[u8]| number as usize % RING * (buffer.len() / RING);
        let (mut sent, mut received, mut right) = ([0; 2], [0; 2], 0);
        while received != [frames; 2] {
            for (way, [from, to]) in self.ways.iter_mut().enumerate() {
                while sent[way] < frames && sent[way] - received[way] < WINDOW {
                    let at = place(sent[way], from);
                    labour.fill(&mut from[at..][..size], sent[way]);
                    to[at..][..size].copy_from_slice(&from[at..][..size]);
                    sent[way] += 1;
                }
            }
            for (way, [_, to]) in self.ways.iter().enumerate() {
                while received[way] < sent[way] {
                    let at = place(received[way], to);
                    right += u64::from(labour.check(&to[at..][..size], received[way]));
                    received[way] += 1;
                }
            }
        }
        right
    }
}

/// Two endpoints on the software fabric, in prompt mode.
#[derive(Debug)]
pub struct Ends<C: Carrier> {
    size: usize,
    ends: [Endpoint<C, RING, RING>; 2],
}

impl<C: Carrier> Ends<C> {
    /// Payloads of `size` bytes in frames of `frame_bytes` each.
    ///
    /// # Errors
    /// What the fabric or the endpoints answer.
    pub fn new(
        carrier: C,
        credits: CreditMode,
        size: usize,
        frame_bytes: usize,
        storage: [FrameMemory; 2],
    ) -> Result<Self, bareverbs_shell::Error> {
        let device = Fabric::soft()?.open(None)?;
        let [of_a, of_b] = storage;
        let config = |peer| EndpointConfig::uc(peer).frame_bytes(frame_bytes as u32).credits(credits);
        let mut a = Endpoint::new(&device, carrier, config("b"), of_a)?;
        let mut b = Endpoint::new(&device, carrier, config("a"), of_b)?;
        connect_pair(&mut a, &mut b)?;
        Ok(Self { size, ends: [a, b] })
    }
}

impl<C: Carrier> Pair for Ends<C> {
    fn run(&mut self, labour: Labour, frames: u64) -> u64 {
        let size = self.size;
        let (mut sent, mut received, mut right) = ([0; 2], [0; 2], 0);
        while received != [frames; 2] {
            for (way, end) in self.ends.iter_mut().enumerate() {
                while sent[way] < frames && sent[way] - received[way] < WINDOW {
                    let Ok(mut frame) = end.next_frame() else { break };
                    labour.fill(&mut frame.payload_mut()[..size], sent[way]);
                    sent[way] += 1;
                    let is_last = sent[way] == frames || sent[way] - received[way] == WINDOW;
                    let posted = if is_last { frame.post(size) } else { frame.post_more(size) };
                    assert!(posted.is_ok(), "{posted:?}");
                }
            }
            for (end, way) in self.ends.iter_mut().zip([1, 0]) {
                let polled = end.poll(|event| {
                    if let Event::Received(frame) = event {
                        right += u64::from(labour.check(frame.payload(), received[way]));
                        received[way] += 1;
                        assert!(frame.repost().is_ok(), "a frame could not be posted again");
                    }
                });
                assert!(polled.is_ok(), "{polled:?}");
            }
        }
        right
    }
}
