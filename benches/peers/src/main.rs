//! What other libraries cost beside ours, on the provider that does nothing: `ibverbs` 0.9.2 and `sideway` 0.4.3, as published.
//!
//! Both reach libibverbs by its name, and find a stand-in there (`standin.c`) whose objects are the provider's; so they, C and
//! we call the same functions. Their loops do what their documentation shows, the least of it: posts without books of what is
//! in flight, polls that look at each entry's status and number. (Ours, in the same run, keep the books of a link and check the
//! queue pair and the sequence, too.) `sideway`'s other queue pair, over `ibv_wr_*`, would need a provider that has those.
#![allow(unsafe_code)]

mod ibverbs_loops;
mod sideway_loops;
mod standin;

use std::env;
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use bareverbs_benches::c_side::Work;
use bareverbs_benches::provider::{Answers, For, Provider};
use bareverbs_benches::timed_blocks::{FRAMES, block, block_rounds};
use bareverbs_benches::timing::{in_turns, time};

/// Turns of each comparison.
const TURNS: u32 = 2000;
/// What is compared.
const WORKS: [(&str, Work); 5] = [
    ("post one send", Work::Post),
    ("post one receive", Work::PostReceive),
    ("poll 16 sends", Work::PollSends),
    ("poll 16 receives", Work::PollReceives),
    ("poll, empty", Work::PollEmpty),
];

/// A library's loops; each answers what came of it, 0 if anything was at fault.
trait Peer {
    fn run(&mut self, work: Work, n: u64) -> u64;
}

fn main() {
    // The loader looks where it is told when a program starts, so this one starts again.
    if env::var_os("LD_LIBRARY_PATH").is_none_or(|folders| folders != env!("STANDIN")) {
        let program = env::current_exe().expect("this program is somewhere");
        let error = Command::new(program).env("LD_LIBRARY_PATH", env!("STANDIN")).exec();
        panic!("this program does not start again: {error}");
    }
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(compare).expect("a thread with a large stack");
    thread.join().expect("all is compared");
}

fn compare() {
    let mut ours = Provider::take(For::Ours).expect("one of ours");
    let mut theirs = Provider::take(For::Peer).expect("one of theirs");
    println!("{:<22} {:<10} {:>10} {:>10} {:>8}", "", "peer", "ours", "theirs", "ratio");
    standin::hand_in(&mut theirs);
    ibverbs_loops::with(|peer| rows("ibverbs", &mut ours, &mut theirs, peer));
    standin::hand_in(&mut theirs);
    sideway_loops::with(|peer| rows("sideway", &mut ours, &mut theirs, peer));
}

fn rows(name: &str, ours: &mut Provider, theirs: &mut Provider, peer: &mut dyn Peer) {
    for (what, work) in WORKS {
        let mut link = ours.link::<FRAMES>();
        let rounds = block_rounds(work);
        let pair = in_turns(TURNS, || block(&mut link, work), || their_block(theirs, peer, work, rounds));
        let (our_ns, their_ns) = (pair.ours_ns / rounds as f64, pair.baseline_ns / rounds as f64);
        println!("{what:<22} {name:<10} {our_ns:>7.2} ns {their_ns:>7.2} ns {:>8.2}", pair.ratio);
    }
}

/// The time of one block of theirs: nothing is in flight for a provider that forgets, so nothing is filled or drained but what
/// polls answer.
fn their_block(provider: &mut Provider, peer: &mut dyn Peer, work: Work, rounds: u64) -> Duration {
    provider.answer(match work {
        Work::PollSends => Answers::Sends,
        Work::PollReceives => Answers::Receives,
        _ => Answers::Nothing,
    });
    time(|| peer.run(black_box(work), black_box(rounds)))
}
