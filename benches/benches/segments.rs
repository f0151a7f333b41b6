//! Parts of 1 TiB in closed form and walked; look-ups in the segment table and in a locked hash map; registrations in bound
//! segments, ours and the usual way.

use std::time::Duration;

use bareverbs_benches::domain_loops::{Bound, Twin};
use bareverbs_benches::segment_loops::{
    Lie, REQUESTS, locked_map, look_ups, map_walks, nth_parts, part_counts, requests, segments, table, tebibyte,
    walked_parts,
};
use bareverbs_benches::timing::{by_blocks, time};
use criterion::{Criterion, criterion_group, criterion_main};

/// Rounds of one block: parts, look-ups (enough to meet all of a table), walks over a map.
const BLOCK: u64 = 1000;
const LOOK_UPS: u64 = REQUESTS as u64;
const WALKS: u64 = 64;

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts of 1 TiB");
    group.bench_function("count", |b| {
        b.iter_custom(|n| by_blocks(n, BLOCK, || time(|| part_counts(tebibyte(), BLOCK))))
    });
    group.bench_function("n-th", |b| b.iter_custom(|n| by_blocks(n, BLOCK, || time(|| nth_parts(tebibyte(), BLOCK)))));
    group.bench_function("n-th, walked", |b| {
        b.iter_custom(|n| by_blocks(n, BLOCK, || time(|| walked_parts(tebibyte(), BLOCK))))
    });
    group.finish();
}

fn look_up(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("look-up");
    for len in [1, 64, 1024, 4096] {
        let segments = segments(Lie::Evenly, len);
        let (table, map, requests) = (table(&segments), locked_map(&segments), requests(&segments));
        group.bench_function(format!("table of {len}"), |b| {
            b.iter_custom(|n| by_blocks(n, LOOK_UPS, || time(|| look_ups(&table, &requests, LOOK_UPS))))
        });
        group.bench_function(format!("map of {len}, walked"), |b| {
            b.iter_custom(|n| by_blocks(n, WALKS, || time(|| map_walks(&map, &requests, WALKS))))
        });
    }
    for (name, lie) in [("table of 4096, mixed", Lie::Mixed), ("table of 4096, far apart", Lie::FarApart)] {
        let segments = segments(lie, 4096);
        let (table, requests) = (table(&segments), requests(&segments));
        group.bench_function(name, |b| {
            b.iter_custom(|n| by_blocks(n, LOOK_UPS, || time(|| look_ups(&table, &requests, LOOK_UPS))))
        });
    }
    group.finish();
}

fn register(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("register, bound");
    for len in [1, 64, 1024, 4096] {
        let bound = Bound::new(len);
        let (requests, segments) = (bound.requests(), bound.segments().to_vec());
        let twin = Twin::new(bound.segments(), move || segments.clone());
        group.bench_function(format!("ours, {len}"), |b| {
            b.iter_custom(|n| by_blocks(n, LOOK_UPS, || time(|| bound.hits(&requests, LOOK_UPS))))
        });
        group.bench_function(format!("the usual way, {len}"), |b| {
            b.iter_custom(|n| by_blocks(n, WALKS, || time(|| twin.hits(&requests, WALKS))))
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = parts, look_up, register
}
criterion_main!(benches);
