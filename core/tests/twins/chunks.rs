//! Chunks, slow and obvious.

use std::vec::Vec;

/// Cuts off one part after the other: address and length of each.
pub fn parts(base: u64, len_bytes: u64, max_bytes: u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut done = 0;
    while done < len_bytes {
        let part = max_bytes.min(len_bytes - done);
        parts.push((base + done, part));
        done += part;
    }
    parts
}
