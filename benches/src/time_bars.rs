//! What times are compared, and the bars: a side of ours, what it is held against, and the ratio that it must not exceed.

use std::time::{Duration, Instant};

use bareverbs_core::access::SpinAccessLock;
use bareverbs_shell::memory::AccessLock;
use parking_lot::RwLock;

use crate::c_side::{CSide, Compiled, Work};
use crate::domain_loops::{Beside, Bound, Registers, SlowTwin, THREADS, Twin};
use crate::lock_loops::{CondvarLock, ThreeModes, disjoint_pairs, exclusive_pairs, read_pairs, two_threads};
use crate::provider::{For, Provider};
use crate::segment_loops::{self as segments, Lie, REQUESTS};
use crate::sides::{Bare, InC, Side};
use crate::timed_blocks::{FRAMES, block, block_rounds, fill_if_it_stays_full};
use crate::timing::{Pair, in_turns, time};

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What is compared, for the reader.
    pub what: &'static str,
    /// The ratio that holds at most; none where numbers are shown.
    pub bar: Option<f64>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A link, or a bare call, and C.
    Posts(Work, Work),
    /// Pairs of a lock, one thread, each alone.
    Lock(fn() -> Pair),
    /// Look-ups: ours so, the baseline so.
    LookUps((Lie, usize), (Lie, usize)),
    /// Look-ups beside walks over a locked map.
    Walk(usize),
    /// Registrations among so many bound segments, beside those among one.
    Hits(usize),
    /// The same, beside the usual implementation among as many.
    UsualHits(usize),
    /// Registrations of several threads beside a slow one, and without.
    HitsBesideSlow,
    /// The same of the usual implementation, on both sides.
    UsualHitsBesideSlow,
}

const fn row(what: &'static str, bar: f64, kind: Kind) -> Row {
    Row { what, bar: Some(bar), kind }
}

const fn shown(what: &'static str, kind: Kind) -> Row {
    Row { what, bar: None, kind }
}

/// Turns of posts, polls and look-ups; of two threads, which take a hundred times as long.
const TURNS: u32 = 2000;
const LONG_TURNS: u32 = 60;
/// Pairs of one block of a lock; of each of two threads.
const LOCK_PAIRS: u64 = 1000;
const CONTENDED_PAIRS: u64 = 400_000;

use Kind::{Hits, HitsBesideSlow, Lock, LookUps, Posts, UsualHits, UsualHitsBesideSlow, Walk};

/// All that is compared.
pub const ROWS: &[Row] = &[
    row("raw prepared call: C's", 1.05, Posts(Work::Raw, Work::Raw)),
    row("post one prepared send: C filling one", 0.7, Posts(Work::Post, Work::FillAndPost)),
    shown("post one prepared send: C, same books", Posts(Work::Post, Work::Post)),
    shown("post one of many: C, same books", Posts(Work::PostMore, Work::PostMore)),
    row("chain of 16: C filling one", 0.8, Posts(Work::Chain, Work::FillAndPostChain)),
    shown("chain of 16: C, same books", Posts(Work::Chain, Work::Chain)),
    row("post one receive: C, same books", 1.05, Posts(Work::PostReceive, Work::PostReceive)),
    row("poll 16 sends: C, same checks", 1.05, Posts(Work::PollSends, Work::PollSends)),
    row("poll 16 receives: C, same checks", 1.05, Posts(Work::PollReceives, Work::PollReceives)),
    shown("poll 16 receives and post again: C, same books", Posts(Work::PollAndRepost, Work::PollAndRepost)),
    row("poll, empty: C, same checks", 1.05, Posts(Work::PollEmpty, Work::PollEmpty)),
    row("parking lock, read: parking_lot read", 1.05, Lock(reads::<AccessLock, RwLock<()>>)),
    row("parking lock, disjoint: parking_lot read", 1.05, Lock(disjoints::<AccessLock, RwLock<()>>)),
    row("parking lock, exclusive: parking_lot write", 1.05, Lock(exclusives::<AccessLock, RwLock<()>>)),
    row("spinning lock, read: parking_lot read", 1.05, Lock(reads::<SpinAccessLock, RwLock<()>>)),
    row("spinning lock, disjoint: parking_lot read", 1.05, Lock(disjoints::<SpinAccessLock, RwLock<()>>)),
    row("spinning lock, exclusive: parking_lot write", 1.05, Lock(exclusives::<SpinAccessLock, RwLock<()>>)),
    row("parking lock, read: mutex and condvar", 0.5, Lock(reads::<AccessLock, CondvarLock>)),
    row("parking lock, disjoint: mutex and condvar", 0.5, Lock(disjoints::<AccessLock, CondvarLock>)),
    row("parking lock, exclusive: mutex and condvar", 0.5, Lock(exclusives::<AccessLock, CondvarLock>)),
    row("spinning lock, read: mutex and condvar", 0.5, Lock(reads::<SpinAccessLock, CondvarLock>)),
    row("spinning lock, disjoint: mutex and condvar", 0.5, Lock(disjoints::<SpinAccessLock, CondvarLock>)),
    row("spinning lock, exclusive: mutex and condvar", 0.5, Lock(exclusives::<SpinAccessLock, CondvarLock>)),
    row("2 readers, parking: parking_lot readers", 1.0, Lock(|| two::<AccessLock>(read_pairs, read_pairs))),
    row("2 readers, spinning: parking_lot readers", 1.0, Lock(|| two::<SpinAccessLock>(read_pairs, read_pairs))),
    row("2 disjoint, parking: parking_lot readers", 1.0, Lock(|| two::<AccessLock>(disjoint_pairs, read_pairs))),
    row("2 disjoint, spinning: parking_lot readers", 1.0, Lock(|| two::<SpinAccessLock>(disjoint_pairs, read_pairs))),
    shown("look-up among 64: among 1", LookUps((Lie::Evenly, 64), (Lie::Evenly, 1))),
    shown("look-up among 1024: among 1", LookUps((Lie::Evenly, 1024), (Lie::Evenly, 1))),
    row("look-up among 4096: among 1", 3.0, LookUps((Lie::Evenly, 4096), (Lie::Evenly, 1))),
    row("look-up among 4096, mixed lengths: among 1", 3.0, LookUps((Lie::Mixed, 4096), (Lie::Evenly, 1))),
    shown("look-up among 4096, halves far apart: among 1", LookUps((Lie::FarApart, 4096), (Lie::Evenly, 1))),
    shown("look-up among 64: locked map, walked", Walk(64)),
    row("look-up among 4096: locked map, walked", 0.02, Walk(4096)),
    shown("register, bound, among 64: among 1", Hits(64)),
    shown("register, bound, among 1024: among 1", Hits(1024)),
    row("register, bound, among 4096: among 1", 3.0, Hits(4096)),
    shown("register, bound, among 1: the usual way", UsualHits(1)),
    shown("register, bound, among 64: the usual way", UsualHits(64)),
    row("register, bound, among 4096: the usual way", 0.02, UsualHits(4096)),
    row("register, bound, 8 threads beside a slow one: idle", 1.5, HitsBesideSlow),
    shown("the usual way, 8 threads beside a slow one: idle", UsualHitsBesideSlow),
];

/// Measures the rows wanted; tells each one's place and numbers, per round.
pub fn measure(wanted: impl Fn(&Row) -> bool, mut tell: impl FnMut(usize, Pair)) {
    let mut ours = Provider::take(For::Ours).expect("measured once in a process");
    let mut for_c = Provider::take(For::C).expect("measured once in a process");
    let mut c = CSide::take(Compiled::Timed).expect("measured once in a process");
    for (place, row) in ROWS.iter().enumerate().filter(|(_, row)| wanted(row)) {
        let pair = match row.kind {
            Posts(work, in_c) => posts(&mut ours, InC::start(&mut c, &mut for_c), work, in_c),
            Lock(pairs) => pairs(),
            LookUps(ours, baseline) => look_ups(ours, baseline),
            Walk(len) => walk(len),
            Hits(len) => hits(len),
            UsualHits(len) => usual_hits(len),
            HitsBesideSlow => hits_beside_slow(&Bound::new(1024), 100_000),
            UsualHitsBesideSlow => hits_beside_slow(&SlowTwin::new(&segments::segments(Lie::Evenly, 64)), 10_000),
        };
        tell(place, pair);
    }
}

fn per_round(pair: Pair, ours: u64, baseline: u64) -> Pair {
    Pair {
        ours_ns: pair.ours_ns / ours as f64,
        baseline_ns: pair.baseline_ns / baseline as f64,
        ratio: pair.ratio * baseline as f64 / ours as f64,
    }
}

fn posts(provider: &mut Provider, mut c: InC<'_>, work: Work, in_c: Work) -> Pair {
    fn sides(ours: &mut impl Side, work: Work, c: &mut InC<'_>, in_c: Work) -> Pair {
        fill_if_it_stays_full(ours, work);
        fill_if_it_stays_full(c, in_c);
        let pair = in_turns(TURNS, || block(ours, work), || block(c, in_c));
        per_round(pair, block_rounds(work), block_rounds(in_c))
    }
    match work {
        Work::Raw => sides(&mut Bare::<FRAMES>::start(provider), work, &mut c, in_c),
        _ => sides(&mut provider.link::<FRAMES>(), work, &mut c, in_c),
    }
}

fn reads<L: ThreeModes, B: ThreeModes>() -> Pair {
    alone::<L, B>(read_pairs, read_pairs)
}

fn disjoints<L: ThreeModes, B: ThreeModes>() -> Pair {
    alone::<L, B>(disjoint_pairs, disjoint_pairs)
}

fn exclusives<L: ThreeModes, B: ThreeModes>() -> Pair {
    alone::<L, B>(exclusive_pairs, exclusive_pairs)
}

fn alone<L: ThreeModes, B: ThreeModes>(ours: fn(&L, u64) -> u64, baseline: fn(&B, u64) -> u64) -> Pair {
    let (lock, other) = (L::default(), B::default());
    let pair = in_turns(TURNS, || time(|| ours(&lock, LOCK_PAIRS)), || time(|| baseline(&other, LOCK_PAIRS)));
    per_round(pair, LOCK_PAIRS, LOCK_PAIRS)
}

fn two<L: ThreeModes>(ours: fn(&L, u64) -> u64, baseline: fn(&RwLock<()>, u64) -> u64) -> Pair {
    let (lock, other) = (L::default(), RwLock::default());
    let pair = in_turns(
        LONG_TURNS,
        || two_threads(&lock, ours, CONTENDED_PAIRS),
        || two_threads(&other, baseline, CONTENDED_PAIRS),
    );
    per_round(pair, CONTENDED_PAIRS, CONTENDED_PAIRS)
}

fn look_ups((lie, len): (Lie, usize), baseline: (Lie, usize)) -> Pair {
    const N: u64 = REQUESTS as u64;
    let (ours, others) = (segments::segments(lie, len), segments::segments(baseline.0, baseline.1));
    let (table, requests) = (segments::table(&ours), segments::requests(&ours));
    let (other_table, other_requests) = (segments::table(&others), segments::requests(&others));
    let pair = in_turns(
        TURNS,
        || time(|| segments::look_ups(&table, &requests, N)),
        || time(|| segments::look_ups(&other_table, &other_requests, N)),
    );
    per_round(pair, N, N)
}

fn walk(len: usize) -> Pair {
    const N: u64 = REQUESTS as u64;
    const WALKS: u64 = 32;
    let segments = segments::segments(Lie::Evenly, len);
    let (table, requests) = (segments::table(&segments), segments::requests(&segments));
    let map = segments::locked_map(&segments);
    let walks = || {
        let start = Instant::now();
        assert_eq!(segments::map_walks(&map, &requests, WALKS), WALKS, "all are found");
        start.elapsed()
    };
    let pair = in_turns(TURNS / 4, || -> Duration { time(|| segments::look_ups(&table, &requests, N)) }, walks);
    per_round(pair, N, WALKS)
}

fn hits(len: usize) -> Pair {
    const N: u64 = REQUESTS as u64;
    let (ours, one) = (Bound::new(len), Bound::new(1));
    let (requests, of_one) = (ours.requests(), one.requests());
    let pair = in_turns(TURNS / 4, || time(|| ours.hits(&requests, N)), || time(|| one.hits(&of_one, N)));
    per_round(pair, N, N)
}

fn usual_hits(len: usize) -> Pair {
    const N: u64 = REQUESTS as u64;
    let bound = Bound::new(len);
    let (requests, segments) = (bound.requests(), bound.segments().to_vec());
    let twin = Twin::new(bound.segments(), move || segments.clone());
    let walks = (N / len as u64).clamp(32, N);
    let pair = in_turns(TURNS / 4, || time(|| bound.hits(&requests, N)), || time(|| twin.hits(&requests, walks)));
    per_round(pair, N, walks)
}

fn hits_beside_slow(bound: &impl Registers, n: u64) -> Pair {
    let pair = Beside::new(bound).with(|both| in_turns(LONG_TURNS, || both.beside(n), || both.idle(n)));
    per_round(pair, n * THREADS as u64, n * THREADS as u64)
}
