//! Posts and polls beside C's, over the provider that does nothing.
//!
//! Time is taken of blocks of as much as a ring holds; what fills it before or empties it after is not timed.

use std::time::Duration;

use bareverbs_benches::c_side::{CSide, Compiled, Work};
use bareverbs_benches::provider::{For, Provider};
use bareverbs_benches::sides::{Bare, InC, Side};
use bareverbs_benches::timed_blocks::{FRAMES, block, block_rounds, fill_if_it_stays_full};
use bareverbs_benches::timing::by_blocks;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};

/// The time of `iters` rounds.
fn time_of(side: &mut impl Side, work: Work, iters: u64) -> Duration {
    by_blocks(iters, block_rounds(work), || block(side, work))
}

fn bench(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, side: &mut impl Side, work: Work) {
    fill_if_it_stays_full(side, work);
    group.bench_function(name, |bencher| bencher.iter_custom(|iters| time_of(side, work, iters)));
}

/// What is compared: the group's name, what a link does, and what C does, by name.
type Group = (&'static str, Work, &'static [(&'static str, Work)]);

const GROUPS: &[Group] = &[
    ("post one", Work::Post, &[("c, same books", Work::Post), ("c, filling", Work::FillAndPost)]),
    ("post one of many", Work::PostMore, &[("c, same books", Work::PostMore), ("c, filling", Work::FillAndPost)]),
    ("chain of 16", Work::Chain, &[("c, same books", Work::Chain), ("c, filling", Work::FillAndPostChain)]),
    ("post one receive", Work::PostReceive, &[("c, same books", Work::PostReceive)]),
    ("poll 16 sends", Work::PollSends, &[("c, same checks", Work::PollSends)]),
    ("poll 16 receives", Work::PollReceives, &[("c, same checks", Work::PollReceives)]),
    ("poll 16 and post again", Work::PollAndRepost, &[("c, same books", Work::PollAndRepost)]),
    ("poll, empty", Work::PollEmpty, &[("c, same checks", Work::PollEmpty)]),
];

fn link(criterion: &mut Criterion) {
    let mut provider = Provider::take(For::Ours).expect("one provider");
    let mut for_c = Provider::take(For::C).expect("one provider");
    let mut c = CSide::take(Compiled::Timed).expect("one C side");
    let mut group = criterion.benchmark_group("raw prepared call");
    bench(&mut group, "ours", &mut Bare::<FRAMES>::start(&mut provider), Work::Raw);
    bench(&mut group, "c", &mut InC::start(&mut c, &mut for_c), Work::Raw);
    group.finish();
    for (name, ours, theirs) in GROUPS {
        let mut group = criterion.benchmark_group(*name);
        bench(&mut group, "ours", &mut provider.link::<FRAMES>(), *ours);
        for (side, work) in *theirs {
            bench(&mut group, side, &mut InC::start(&mut c, &mut for_c), *work);
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = link
}
criterion_main!(benches);
