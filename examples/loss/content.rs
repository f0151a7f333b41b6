//! What is in a frame: its place in the stream, then bytes that no other frame of any stream has.

use std::fmt;

/// Bytes at a payload's start that hold the frame's place in the stream.
pub(crate) const NUMBER_BYTES: usize = 8;

/// What is wrong with a frame that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It has another length.
    Length { got_bytes: usize },
    /// It is another frame, or its number is corrupt.
    Number { got: u64 },
    /// A byte is not what was sent.
    Byte { at: usize },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got_bytes } => write!(f, "it has {got_bytes} bytes"),
            Self::Number { got } => write!(f, "it says that it is frame {got}"),
            Self::Byte { at } => write!(f, "byte {at} is not what was sent"),
        }
    }
}

/// Fills the payload of frame `number`; it is at least [`NUMBER_BYTES`] long.
pub(crate) fn fill(payload: &mut [u8], seed: u64, number: u64) {
    let (stamp, rest) = payload.split_at_mut(NUMBER_BYTES);
    stamp.copy_from_slice(&number.to_be_bytes());
    for (bytes, word) in rest.chunks_mut(8).zip(words(seed, number)) {
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Checks every byte of what came as frame `number`.
pub(crate) fn check(payload: &[u8], size: usize, seed: u64, number: u64) -> Result<(), Wrong> {
    let Some((stamp, rest)) = payload.split_first_chunk::<NUMBER_BYTES>().filter(|_| payload.len() == size) else {
        return Err(Wrong::Length { got_bytes: payload.len() });
    };
    let got = u64::from_be_bytes(*stamp);
    if got != number {
        return Err(Wrong::Number { got });
    }
    for (place, (bytes, word)) in rest.chunks(8).zip(words(seed, number)).enumerate() {
        if let Some(at) = bytes.iter().zip(word).position(|(came, sent)| *came != sent) {
            return Err(Wrong::Byte { at: NUMBER_BYTES + 8 * place + at });
        }
    }
    Ok(())
}

fn words(seed: u64, number: u64) -> impl Iterator<Item = [u8; 8]> {
    let mut state = (number ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0xd129_0d3d_3d5f_8c6b).rotate_left(23);
        state.to_le_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_frame_counts_and_no_other_frame_passes_for_it() {
        for size in [8, 9, 16, 300] {
            let mut payload = vec![0; size];
            fill(&mut payload, 3, 5);
            assert_eq!(check(&payload, size, 3, 5), Ok(()));
            assert_eq!(check(&payload, size, 3, 6), Err(Wrong::Number { got: 5 }));
            assert_eq!(check(&payload[1..], size, 3, 5), Err(Wrong::Length { got_bytes: size - 1 }));
            assert_eq!(check(&payload, size, 4, 5), if size == 8 { Ok(()) } else { Err(Wrong::Byte { at: 8 }) });
            for at in 0..size {
                payload[at] ^= 0x10;
                let wrong = check(&payload, size, 3, 5).expect_err("a changed byte");
                assert!(at < 8 || wrong == Wrong::Byte { at }, "{wrong}");
                payload[at] ^= 0x10;
            }
        }
    }
}
