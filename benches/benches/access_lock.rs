//! The access lock in both forms, beside `parking_lot::RwLock` and the twin of a mutex and a condition variable.

use std::time::Duration;

use bareverbs_benches::lock_loops::{
    CondvarLock, ThreeModes, disjoint_pairs, exclusive_pairs, read_pairs, two_threads,
};
use bareverbs_benches::timing::{by_blocks, time};
use bareverbs_core::access::SpinAccessLock;
use bareverbs_shell::memory::AccessLock;
use criterion::{Criterion, criterion_group, criterion_main};
use parking_lot::RwLock;

/// Pairs of enter and leave: so many, so often.
type Pairs<L> = fn(&L, u64) -> u64;

/// Pairs of one block.
const BLOCK: u64 = 1000;

/// The time in which one thread does `n` pairs.
fn alone<L: ThreeModes>(pairs: Pairs<L>, n: u64) -> Duration {
    let lock = L::default();
    by_blocks(n, BLOCK, || time(|| pairs(&lock, BLOCK)))
}

/// The time in which two threads do `n` pairs each on one lock.
fn two<L: ThreeModes>(pairs: Pairs<L>, n: u64) -> Duration {
    two_threads(&L::default(), pairs, n)
}

/// One benchmark for each lock, side by side.
macro_rules! side_by_side {
    ($criterion:expr, $group:literal, $time:ident, $pairs:ident) => {
        let mut group = $criterion.benchmark_group($group);
        group.bench_function("ours, parking", |b| b.iter_custom(|n| $time::<AccessLock>($pairs, n)));
        group.bench_function("ours, spinning", |b| b.iter_custom(|n| $time::<SpinAccessLock>($pairs, n)));
        group.bench_function("parking_lot", |b| b.iter_custom(|n| $time::<RwLock<()>>($pairs, n)));
        group.bench_function("mutex and condvar", |b| b.iter_custom(|n| $time::<CondvarLock>($pairs, n)));
        group.finish();
    };
}

fn uncontended(criterion: &mut Criterion) {
    side_by_side!(criterion, "lock and unlock, read", alone, read_pairs);
    side_by_side!(criterion, "lock and unlock, disjoint", alone, disjoint_pairs);
    side_by_side!(criterion, "lock and unlock, exclusive", alone, exclusive_pairs);
}

fn contended(criterion: &mut Criterion) {
    side_by_side!(criterion, "2 readers in a loop", two, read_pairs);
    side_by_side!(criterion, "2 disjoint writers in a loop", two, disjoint_pairs);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = uncontended, contended
}
criterion_main!(benches);
