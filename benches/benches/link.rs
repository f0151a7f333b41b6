//! Posts and polls beside C's, over the provider that does nothing.
//!
//! Time is taken of blocks of as much as a ring holds; what fills it before or empties it after is not timed.

use std::hint::black_box;
use std::time::Duration;

use bareverbs_benches::c_side::{CSide, Compiled, Work};
use bareverbs_benches::provider::Provider;
use bareverbs_benches::sides::{Around, BATCH, Bare, InC, Side};
use bareverbs_benches::timing::{by_blocks, time};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};

/// Frames of a ring: as C's has (`build.rs`).
const FRAMES: usize = 1024;

/// Rounds that use up, or fill, a ring.
fn block_rounds(work: Work) -> u64 {
    match work {
        Work::Chain | Work::FillAndPostChain | Work::PollSends | Work::PollReceives => FRAMES as u64 / BATCH,
        _ => FRAMES as u64,
    }
}

/// The time of `iters` rounds.
fn time_of(side: &mut impl Side, work: Work, iters: u64) -> Duration {
    let (rounds, around) = (block_rounds(work), Around::of(work));
    // A ring that is posted again as it is polled stays full.
    let stays_full = work == Work::PollAndRepost;
    by_blocks(iters, rounds, || {
        assert!(stays_full || around.before(side, FRAMES as u64), "{work:?}: the ring could not be filled");
        let elapsed = time(|| side.run(black_box(work), rounds));
        assert!(around.after(side, FRAMES as u64), "{work:?}: the ring could not be emptied");
        elapsed
    })
}

fn bench(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, side: &mut impl Side, work: Work) {
    if work == Work::PollAndRepost {
        assert!(Around::of(work).before(side, FRAMES as u64), "the ring could not be filled");
    }
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
    let mut provider = Provider::take().expect("one provider");
    let mut c = CSide::take(Compiled::Timed).expect("one C side");
    let mut group = criterion.benchmark_group("raw prepared call");
    bench(&mut group, "ours", &mut Bare::<FRAMES>::start(&mut provider), Work::Raw);
    bench(&mut group, "c", &mut InC::start(&mut c, &mut provider), Work::Raw);
    group.finish();
    for (name, ours, theirs) in GROUPS {
        let mut group = criterion.benchmark_group(*name);
        bench(&mut group, "ours", &mut provider.link::<FRAMES>(), *ours);
        for (side, work) in *theirs {
            bench(&mut group, side, &mut InC::start(&mut c, &mut provider), *work);
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
