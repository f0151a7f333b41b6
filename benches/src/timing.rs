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

/// What blocks of two sides took, measured in turns.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The lower quartile of our blocks, in nanoseconds.
    pub ours_ns: f64,
    /// The lower quartile of the other side's blocks.
    pub baseline_ns: f64,
    /// The median of the ratios of two blocks that ran one right after the other.
    pub ratio: f64,
}

/// Runs blocks of both sides in turns, `turns` times; who is first changes with each turn.
///
/// Blocks that follow each other within microseconds find the same processor clock and the same neighbours, so their ratio
/// holds on a machine where times do not; a block with another process in between spoils one ratio of many.
pub fn in_turns(turns: u32, mut ours: impl FnMut() -> Duration, mut baseline: impl FnMut() -> Duration) -> Pair {
    let mut pairs = Vec::new();
    for turn in 0..turns {
        let (our_time, baseline_time) = if turn % 2 == 0 {
            let our_time = ours();
            (our_time, baseline())
        } else {
            let baseline_time = baseline();
            (ours(), baseline_time)
        };
        // The first turns fill caches and predictors.
        if turn >= turns / 10 {
            pairs.push((our_time.as_nanos() as f64, baseline_time.as_nanos() as f64));
        }
    }
    Pair {
        ours_ns: quantile(pairs.iter().map(|pair| pair.0), 4),
        baseline_ns: quantile(pairs.iter().map(|pair| pair.1), 4),
        ratio: quantile(pairs.iter().map(|pair| pair.0 / pair.1), 2),
    }
}

/// The value below which one of `parts` of them lie: 2 for the median, 4 for the lower quartile.
pub fn quantile(values: impl Iterator<Item = f64>, parts: usize) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / parts).copied().unwrap_or(f64::NAN)
}
