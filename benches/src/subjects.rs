//! All that instructions are counted of, by name: each sets up its world and then does one thing `n` times.

use bareverbs_core::access::SpinAccessLock;
use parking_lot::RwLock;

use crate::c_side::{CLoop, CSide, Compiled};
use crate::link_loops as ours;
use crate::lock_loops::{ThreeModes, disjoint_pairs, exclusive_pairs, read_pairs};
use crate::provider::{Answers, Connected, PAYLOAD_BYTES, Provider};
use crate::raw_loop::{Prepared, raw};
use crate::segment_loops as segments;

/// Frames of a ring where instructions are counted: more than any count posts, so that posts need no polls between.
pub const FRAMES: usize = 32768;

/// Sets up and does one thing `n` times; answers what came of it, 0 if anything was at fault.
pub type Subject = fn(u64) -> u64;

macro_rules! subjects {
    ($($name:literal => $subject:expr,)*) => {
        /// The subject of this name.
        pub fn subject(name: &str) -> Option<Subject> {
            match name {
                $($name => Some($subject),)*
                _ => None,
            }
        }
    };
}

subjects! {
    "c/raw" => |n| c_side(CLoop::Raw, Answers::Nothing, n),
    "c/fill" => |n| c_side(CLoop::FillAndPost, Answers::Nothing, n),
    "c/fill-chain" => |n| c_side(CLoop::FillAndPostChain, Answers::Nothing, n),
    "c/post" => |n| c_side(CLoop::Post, Answers::Nothing, n),
    "c/post-more" => |n| c_side(CLoop::PostMore, Answers::Nothing, n),
    "c/chain" => |n| c_side(CLoop::Chain, Answers::Nothing, n),
    "c/receive" => |n| c_side(CLoop::PostReceive, Answers::Nothing, n),
    "c/poll-sends" => |n| c_side(CLoop::PollSends, Answers::Sends, n),
    "c/poll-receives" => |n| c_side(CLoop::PollReceives, Answers::Receives, n),
    "c/poll-and-repost" => |n| c_side(CLoop::PollAndRepost, Answers::Receives, n),
    "c/poll-empty" => |n| c_side(CLoop::PollEmpty, Answers::Nothing, n),
    "raw" => |n| raw::<FRAMES>(&mut Prepared::default(), &mut started().queue_pair(), n, PAYLOAD_BYTES),
    "post" => |n| linked(|at| ours::post(&mut at.link, n, PAYLOAD_BYTES)),
    "post-more" => |n| linked(|at| ours::post_more(&mut at.link, n, PAYLOAD_BYTES)),
    "chain" => |n| linked(|at| ours::chain(&mut at.link, n, PAYLOAD_BYTES)),
    "receive" => |n| linked(|at| ours::post_receive(&mut at.link, n)),
    "poll-sends" => |n| linked(|at| {
        ours::post(&mut at.link, FRAMES as u64, PAYLOAD_BYTES);
        at.answer(Answers::Sends);
        ours::poll_sends(&mut at.link, &mut at.send_queue, n)
    }),
    "poll-receives" => |n| linked(|at| {
        ours::post_receive(&mut at.link, FRAMES as u64);
        at.answer(Answers::Receives);
        ours::poll_receives(&mut at.link, &mut at.recv_queue, n)
    }),
    "poll-and-repost" => |n| linked(|at| {
        ours::post_receive(&mut at.link, FRAMES as u64);
        at.answer(Answers::Receives);
        ours::poll_and_repost(&mut at.link, &mut at.recv_queue, n)
    }),
    "poll-empty" => |n| linked(|at| ours::poll_empty(&mut at.send_queue, n)),
    "spin/read" => read::<SpinAccessLock>,
    "spin/disjoint" => disjoint::<SpinAccessLock>,
    "spin/exclusive" => exclusive::<SpinAccessLock>,
    "parking_lot/read" => read::<RwLock<()>>,
    "parking_lot/write" => exclusive::<RwLock<()>>,
    "part-count" => |n| segments::part_counts(segments::tebibyte(), n),
    "nth-part" => |n| segments::nth_parts(segments::tebibyte(), n),
    "requests" => |n| segments::requests(4096, n),
    "look-up/1" => |n| segments::look_ups(&segments::table(1), n),
    "look-up/64" => |n| segments::look_ups(&segments::table(64), n),
    "look-up/1024" => |n| segments::look_ups(&segments::table(1024), n),
    "look-up/4096" => |n| segments::look_ups(&segments::table(4096), n),
}

fn started() -> Provider {
    let mut provider = Provider::take().expect("a process runs one subject");
    provider.start();
    provider
}

fn c_side(which: CLoop, answers: Answers, n: u64) -> u64 {
    let mut provider = started();
    let mut c = CSide::take(Compiled::Counted).expect("a process runs one subject");
    c.start();
    match answers {
        Answers::Nothing => {}
        Answers::Sends => drop(c.run(CLoop::Post, FRAMES as u64, PAYLOAD_BYTES)),
        Answers::Receives => drop(c.run(CLoop::PostReceive, FRAMES as u64, PAYLOAD_BYTES)),
    }
    provider.answer(answers);
    c.run(which, n, PAYLOAD_BYTES)
}

fn linked(subject: impl FnOnce(&mut Connected<'_, FRAMES>) -> u64) -> u64 {
    subject(&mut started().link())
}

fn read<L: ThreeModes>(n: u64) -> u64 {
    read_pairs(&L::default(), n)
}

fn disjoint<L: ThreeModes>(n: u64) -> u64 {
    disjoint_pairs(&L::default(), n)
}

fn exclusive<L: ThreeModes>(n: u64) -> u64 {
    exclusive_pairs(&L::default(), n)
}
