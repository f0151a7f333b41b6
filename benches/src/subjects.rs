//! All that instructions are counted of, by name: each sets up its world and then does one thing `n` times.

use bareverbs_core::access::SpinAccessLock;
use bareverbs_shell::memory::AccessLock;
use parking_lot::RwLock;

use crate::c_side::{CSide, Compiled, Work};
use crate::lock_loops::{ThreeModes, disjoint_pairs, exclusive_pairs, read_pairs};
use crate::one_sided_loop;
use crate::provider::{For, Provider};
use crate::segment_loops::{self as segments, Lie};
use crate::sides::{Around, Bare, InC, Side};

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
    "c/raw" => |n| in_c(Work::Raw, n),
    "c/fill" => |n| in_c(Work::FillAndPost, n),
    "c/fill-chain" => |n| in_c(Work::FillAndPostChain, n),
    "c/post" => |n| in_c(Work::Post, n),
    "c/post-more" => |n| in_c(Work::PostMore, n),
    "c/chain" => |n| in_c(Work::Chain, n),
    "c/receive" => |n| in_c(Work::PostReceive, n),
    "c/poll-sends" => |n| in_c(Work::PollSends, n),
    "c/poll-receives" => |n| in_c(Work::PollReceives, n),
    "c/poll-and-repost" => |n| in_c(Work::PollAndRepost, n),
    "c/poll-empty" => |n| in_c(Work::PollEmpty, n),
    "raw" => |n| rounds(&mut Bare::<FRAMES>::start(&mut provider(For::Ours)), Work::Raw, n),
    "post" => |n| ours(Work::Post, n),
    "post-more" => |n| ours(Work::PostMore, n),
    "chain" => |n| ours(Work::Chain, n),
    "receive" => |n| ours(Work::PostReceive, n),
    "poll-sends" => |n| ours(Work::PollSends, n),
    "poll-receives" => |n| ours(Work::PollReceives, n),
    "poll-and-repost" => |n| ours(Work::PollAndRepost, n),
    "poll-empty" => |n| ours(Work::PollEmpty, n),
    "spin/read" => read::<SpinAccessLock>,
    "spin/disjoint" => disjoint::<SpinAccessLock>,
    "spin/exclusive" => exclusive::<SpinAccessLock>,
    "parking/read" => read::<AccessLock>,
    "parking/disjoint" => disjoint::<AccessLock>,
    "parking/exclusive" => exclusive::<AccessLock>,
    "parking_lot/read" => read::<RwLock<()>>,
    "parking_lot/write" => exclusive::<RwLock<()>>,
    "one-sided/write-poll" => one_sided_loop::writes_and_polls,
    "one-sided/read-wait" => one_sided_loop::reads_and_waits,
    "one-sided/poll-empty" => one_sided_loop::empty_polls,
    "part-count" => |n| segments::part_counts(segments::tebibyte(), n),
    "nth-part" => |n| segments::nth_parts(segments::tebibyte(), n),
    "look-up/1" => |n| look_ups(Lie::Evenly, 1, n),
    "look-up/64" => |n| look_ups(Lie::Evenly, 64, n),
    "look-up/1024" => |n| look_ups(Lie::Evenly, 1024, n),
    "look-up/4096" => |n| look_ups(Lie::Evenly, 4096, n),
    "look-up/4096 mixed" => |n| look_ups(Lie::Mixed, 4096, n),
    "look-up/4096 far apart" => |n| look_ups(Lie::FarApart, 4096, n),
}

fn look_ups(lie: Lie, len: usize, n: u64) -> u64 {
    let lie = segments::segments(lie, len);
    segments::look_ups(&segments::table(&lie), &segments::requests(&lie), n)
}

fn provider(side: For) -> Provider {
    Provider::take(side).expect("a process runs one subject")
}

fn in_c(work: Work, n: u64) -> u64 {
    let mut c = CSide::take(Compiled::Counted).expect("a process runs one subject");
    rounds(&mut InC::start(&mut c, &mut provider(For::C)), work, n)
}

fn ours(work: Work, n: u64) -> u64 {
    rounds(&mut provider(For::Ours).link::<FRAMES>(), work, n)
}

fn rounds(side: &mut impl Side, work: Work, n: u64) -> u64 {
    if Around::of(work).before(side, FRAMES as u64) { side.run(work, n) } else { 0 }
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
