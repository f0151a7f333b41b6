//! Parts of 1 TiB in closed form and walked; look-ups in the segment table and in a locked hash map.

use std::time::{Duration, Instant};

use bareverbs_benches::segment_loops::{
    locked_map, look_ups, map_walks, nth_parts, part_counts, requests, table, tebibyte, walked_parts,
};
use criterion::{Criterion, criterion_group, criterion_main};

fn timed(rounds: impl FnOnce() -> u64) -> Duration {
    let start = Instant::now();
    assert!(rounds() > 0, "something came of it");
    start.elapsed()
}

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts of 1 TiB");
    group.bench_function("count", |b| b.iter_custom(|n| timed(|| part_counts(tebibyte(), n))));
    group.bench_function("n-th", |b| b.iter_custom(|n| timed(|| nth_parts(tebibyte(), n))));
    group.bench_function("n-th, walked", |b| b.iter_custom(|n| timed(|| walked_parts(tebibyte(), n))));
    group.finish();
}

fn look_up(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("look-up");
    group.bench_function("making the request", |b| b.iter_custom(|n| timed(|| requests(4096, n))));
    for len in [1, 64, 1024, 4096] {
        let (table, map) = (table(len), locked_map(len));
        group.bench_function(format!("table of {len}"), |b| b.iter_custom(|n| timed(|| look_ups(&table, n))));
        group.bench_function(format!("map of {len}, walked"), |b| b.iter_custom(|n| timed(|| map_walks(&map, n))));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = parts, look_up
}
criterion_main!(benches);
