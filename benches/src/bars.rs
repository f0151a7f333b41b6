//! What the instruction counts are held to.

/// What a count must not be above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// The baseline's count and this many more.
    Above(f64),
    /// The baseline's count, times this.
    Times(f64),
    /// This many.
    Count(f64),
    /// Nothing: the numbers are shown.
    Shown,
}

impl Bar {
    /// The greatest count that holds, given the baseline's; none where nothing is held to.
    pub fn limit(self, baseline: Option<f64>) -> Option<f64> {
        match (self, baseline) {
            (Self::Above(more), Some(baseline)) => Some(baseline + more),
            (Self::Times(factor), Some(baseline)) => Some(baseline * factor),
            (Self::Count(count), _) => Some(count),
            (Self::Above(_) | Self::Times(_), None) | (Self::Shown, _) => None,
        }
    }
}

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What is compared, for the reader.
    pub what: &'static str,
    /// The subject that is held to the bar.
    pub subject: &'static str,
    /// What it is held against.
    pub baseline: Option<&'static str>,
    /// Rounds of the shorter run; the longer one has twice as many.
    pub rounds: u64,
    /// What one round does so many of.
    pub per_round: u64,
    /// The bar.
    pub bar: Bar,
}

const fn row(what: &'static str, subject: &'static str, baseline: &'static str, bar: Bar) -> Row {
    Row { what, subject, baseline: Some(baseline), rounds: 10_000, per_round: 1, bar }
}

const fn alone(what: &'static str, subject: &'static str, bar: Bar) -> Row {
    Row { what, subject, baseline: None, rounds: 10_000, per_round: 1, bar }
}

/// Of 16: a ring has frames for two thousand rounds.
const fn by_16(what: &'static str, subject: &'static str, baseline: &'static str, bar: Bar) -> Row {
    Row { what, subject, baseline: Some(baseline), rounds: 1000, per_round: 16, bar }
}

/// All that is counted.
///
/// Posts may cost two instructions more than C's, completions none; a receive that is posted again is both, and may cost four.
/// Bars that are factors (but for the look-up's) keep what was reached.
pub const ROWS: &[Row] = &[
    row("raw prepared call: C's", "raw", "c/raw", Bar::Above(0.0)),
    row("post one prepared send: C, same books", "post", "c/post", Bar::Above(2.0)),
    row("post one prepared send: C filling one", "post", "c/fill", Bar::Times(0.8)),
    row("post one of many: C, same books", "post-more", "c/post-more", Bar::Above(2.0)),
    by_16("chain of 16, each: C, same books", "chain", "c/chain", Bar::Shown),
    by_16("chain of 16, each: C filling one", "chain", "c/fill-chain", Bar::Times(0.85)),
    row("post one receive: C, same books", "receive", "c/receive", Bar::Above(0.0)),
    by_16("poll 16 sends, each: C, same checks", "poll-sends", "c/poll-sends", Bar::Above(0.0)),
    by_16("poll 16 receives, each: C, same checks", "poll-receives", "c/poll-receives", Bar::Above(0.0)),
    by_16("poll 16 and post again: C, same books", "poll-and-repost", "c/poll-and-repost", Bar::Above(4.0)),
    row("poll, empty: C, same checks", "poll-empty", "c/poll-empty", Bar::Above(0.0)),
    row("spinning lock, read: parking_lot read", "spin/read", "parking_lot/read", Bar::Above(0.0)),
    row("spinning lock, disjoint: parking_lot read", "spin/disjoint", "parking_lot/read", Bar::Above(0.0)),
    row("spinning lock, exclusive: parking_lot write", "spin/exclusive", "parking_lot/write", Bar::Above(0.0)),
    row("parking lock, read: parking_lot read", "parking/read", "parking_lot/read", Bar::Above(0.0)),
    row("parking lock, disjoint: parking_lot read", "parking/disjoint", "parking_lot/read", Bar::Above(0.0)),
    row("parking lock, exclusive: parking_lot write", "parking/exclusive", "parking_lot/write", Bar::Above(0.0)),
    alone("one-sided write, and a poll that ends it", "one-sided/write-poll", Bar::Count(300.0)),
    alone("one-sided read, and a wait that ends it", "one-sided/read-wait", Bar::Count(350.0)),
    alone("one-sided poll, empty", "one-sided/poll-empty", Bar::Count(50.0)),
    alone("parts of 1 TiB, count", "part-count", Bar::Count(50.0)),
    alone("parts of 1 TiB, the n-th", "nth-part", Bar::Count(50.0)),
    alone("look-up among 1", "look-up/1", Bar::Shown),
    row("look-up among 64: among 1", "look-up/64", "look-up/1", Bar::Shown),
    row("look-up among 1024: among 1", "look-up/1024", "look-up/1", Bar::Shown),
    row("look-up among 4096: among 1", "look-up/4096", "look-up/1", Bar::Times(3.0)),
    row("look-up among 4096, mixed: among 1", "look-up/4096 mixed", "look-up/1", Bar::Times(3.0)),
    row("look-up among 4096, far apart: among 1", "look-up/4096 far apart", "look-up/1", Bar::Shown),
];
