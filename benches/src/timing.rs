//! Times on a machine that others use, too.

use std::time::{Duration, Instant};

/// The time of one call.
pub fn time(work: impl FnOnce() -> u64) -> Duration {
    let start = Instant::now();
    let sum = work();
    let elapsed = start.elapsed();
    assert!(sum > 0, "a round failed");
    elapsed
}

/// What `iters` rounds take, from blocks of `rounds` rounds each: the *median* block, times how many blocks they make.
///
/// A block is microseconds long, so that most of them run without another process in between; a sum would hold
/// those others' time.
pub fn by_blocks(iters: u64, rounds: u64, mut block: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..iters.div_ceil(rounds)).map(|_| block()).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    median.mul_f64(iters as f64 / rounds as f64)
}
