//! Windows, slow and obvious.

use std::vec::Vec;

/// Fills a window byte by byte until its total or its entries are used up. (window, part) of each byte.
pub fn places(len_bytes: u64, max_bytes: u64, cap: u64, total_bytes: u64) -> Vec<(u32, u32)> {
    let max_bytes = max_bytes.min(total_bytes);
    let (mut window, mut in_window) = (0, 0);
    let mut bytes = Vec::new();
    for _ in 0..len_bytes {
        if in_window == total_bytes || in_window == cap * max_bytes {
            (window, in_window) = (window + 1, 0);
        }
        bytes.push((window, (in_window / max_bytes) as u32));
        in_window += 1;
    }
    bytes
}
