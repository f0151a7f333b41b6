//! The two sides of a comparison, under one face.

use std::hint::black_box;

use bareverbs_core::verbs::inline_calls::QueuePairCalls;

use crate::c_side::{CSide, Work};
use crate::link_loops as ours;
use crate::provider::{Answers, Connected, PAYLOAD_BYTES, Provider};
use crate::raw_loop::{Prepared, raw};

/// Completions of one poll.
pub const BATCH: u64 = 16;

/// One side of a comparison.
pub trait Side {
    /// Does `n` rounds of `work`; answers what came of it, 0 if anything was at fault.
    fn run(&mut self, work: Work, n: u64) -> u64;
    /// Chooses what polls answer from now on.
    fn answer(&mut self, answers: Answers);
}

/// C, with the books of a link or without.
pub struct InC<'provider> {
    c: &'provider mut CSide,
    provider: &'provider mut Provider,
}

impl<'provider> InC<'provider> {
    /// Starts both anew.
    pub fn start(c: &'provider mut CSide, provider: &'provider mut Provider) -> Self {
        provider.start();
        c.start();
        Self { c, provider }
    }
}

impl Side for InC<'_> {
    #[inline]
    fn run(&mut self, work: Work, n: u64) -> u64 {
        self.c.run(work, n, PAYLOAD_BYTES)
    }

    fn answer(&mut self, answers: Answers) {
        self.provider.answer(answers);
    }
}

/// A link.
impl<const FRAMES: usize> Side for Connected<'_, FRAMES> {
    #[inline]
    fn run(&mut self, work: Work, n: u64) -> u64 {
        let Self { link, send_queue, recv_queue, .. } = self;
        // Neither number is known to the loops, as it is not to C's.
        let (n, bytes) = (black_box(n), black_box(PAYLOAD_BYTES));
        match work {
            Work::Post => ours::post(link, n, bytes),
            Work::PostMore => ours::post_more(link, n, bytes),
            Work::Chain => ours::chain(link, n, bytes),
            Work::PostReceive => ours::post_receive(link, n),
            Work::PollSends => ours::poll_sends(link, send_queue, n),
            Work::PollReceives => ours::poll_receives(link, recv_queue, n),
            Work::PollAndRepost => ours::poll_and_repost(link, recv_queue, n),
            Work::PollEmpty => ours::poll_empty(send_queue, n),
            // A link does nothing without its books.
            Work::Raw | Work::FillAndPost | Work::FillAndPostChain => 0,
        }
    }

    fn answer(&mut self, answers: Answers) {
        Connected::answer(self, answers);
    }
}

/// Our bare call, on prepared requests.
pub struct Bare<'provider, const FRAMES: usize> {
    prepared: Prepared<FRAMES>,
    calls: QueuePairCalls,
    provider: &'provider mut Provider,
}

impl<'provider, const FRAMES: usize> Bare<'provider, FRAMES> {
    /// Starts the provider anew.
    pub fn start(provider: &'provider mut Provider) -> Self {
        provider.start();
        Self { prepared: Prepared::default(), calls: provider.queue_pair(), provider }
    }
}

impl<const FRAMES: usize> Side for Bare<'_, FRAMES> {
    #[inline]
    fn run(&mut self, work: Work, n: u64) -> u64 {
        match work {
            Work::Raw => raw(&mut self.prepared, &mut self.calls, black_box(n), black_box(PAYLOAD_BYTES)),
            _ => 0,
        }
    }

    fn answer(&mut self, answers: Answers) {
        self.provider.answer(answers);
    }
}

/// What makes rounds possible, and what undoes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Nothing: rounds leave the ring as it was.
    Nothing,
    /// The sends that were posted complete afterwards.
    DrainSends,
    /// The receives that were posted complete afterwards.
    DrainReceives,
    /// A full ring of sends is posted before; polls answer them.
    FillSends,
    /// A full ring of receives is posted before; polls answer them.
    FillReceives,
}

impl Around {
    /// What `work` needs.
    pub fn of(work: Work) -> Self {
        match work {
            Work::Raw | Work::FillAndPost | Work::FillAndPostChain | Work::PollEmpty => Self::Nothing,
            Work::Post | Work::PostMore | Work::Chain => Self::DrainSends,
            Work::PostReceive => Self::DrainReceives,
            Work::PollSends => Self::FillSends,
            Work::PollReceives | Work::PollAndRepost => Self::FillReceives,
        }
    }

    /// To be called before a block of rounds, on rings of so many frames; answers whether all went well.
    pub fn before(self, side: &mut impl Side, frames: u64) -> bool {
        match self {
            Self::Nothing | Self::DrainSends | Self::DrainReceives => true,
            Self::FillSends => {
                let posted = side.run(Work::Post, frames);
                side.answer(Answers::Sends);
                posted == frames
            }
            Self::FillReceives => {
                let posted = side.run(Work::PostReceive, frames);
                side.answer(Answers::Receives);
                posted == frames
            }
        }
    }

    /// To be called after a block of rounds that posted so many frames.
    pub fn after(self, side: &mut impl Side, frames: u64) -> bool {
        match self {
            Self::Nothing | Self::FillSends | Self::FillReceives => true,
            Self::DrainSends => {
                side.answer(Answers::Sends);
                side.run(Work::PollSends, frames / BATCH) > 0
            }
            Self::DrainReceives => {
                side.answer(Answers::Receives);
                side.run(Work::PollReceives, frames / BATCH) > 0
            }
        }
    }
}
