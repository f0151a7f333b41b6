//! Randomised life: an allocator that does what allocators do, a domain that is asked meanwhile, and a peer that writes and reads
//! by every view, against a model of what each may see.
//!
//! Lives run in a process of their own, so that its files can be counted. `BAREVERBS_LONG=1` asks for many more.

mod allocating;
mod asking;
mod faults;
mod local_bytes;
mod machine;
mod memory;
mod scanner;
mod settling;
mod steps;
mod table;
mod threads;
mod watch;

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use self::machine::{Machine, Tally};
use self::steps::{Setup, Step};
use crate::own_process;

fn live(setup: Setup, steps: &[Step]) -> Tally {
    // Files of a stand-in that is gone may stay open until the next one takes its place.
    Machine::new(setup).end();
    let files = open_files();
    let mut machine = Machine::new(setup);
    for step in steps {
        machine.step(*step);
    }
    let tally = machine.end();
    assert_eq!(open_files(), files, "files are left open");
    tally
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a folder").count()
}

#[test]
fn whatever_an_allocator_does_no_view_sees_bytes_that_are_not_its_own_and_nothing_is_left() {
    let name = "segments::life::whatever_an_allocator_does_no_view_sees_bytes_that_are_not_its_own_and_nothing_is_left";
    own_process::run(name, &[], || {
        let long = std::env::var_os("BAREVERBS_LONG").is_some();
        let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
        let cases = cases.unwrap_or(if long { 10_000 } else { 300 });
        let config =
            ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() };
        let lives = (steps::setups(), steps::steps());
        let tally = RefCell::new(Tally::new());
        let outcome = TestRunner::new(config).run(&lives, |(setup, steps)| {
            for (what, times) in live(setup, &steps) {
                *tally.borrow_mut().entry(what).or_default() += times;
            }
            Ok(())
        });
        match outcome {
            Ok(()) => assert_all_came(&tally.into_inner(), cases),
            // On one line: to be kept as a test.
            Err(TestError::Fail(why, (setup, steps))) => panic!("{why}\n{setup:?}\n{steps:?}"),
            Err(other) => panic!("{other}"),
        }
    });
}

/// That lives came by all that is to be shown, unless there were few of them.
fn assert_all_came(tally: &Tally, lives: u32) {
    println!("{tally:#?}");
    let missing: Vec<_> = ALL_THAT_COMES.iter().filter(|what| !tally.contains_key(*what)).collect();
    assert!(missing.is_empty() || lives < 100, "in {lives} lives never: {missing:?}");
}

const ALL_THAT_COMES: &[&str] = &[
    "a binding failed",
    "a growth failed",
    "a growth that failed left its segment as it was",
    "a key served after a scan",
    "a key served at once",
    "a region served what no key does",
    "a region served what straddles",
    "a request for what is not mapped was refused",
    "a request was refused for a fault",
    "a request was served in spite of a fault",
    "a retired key is held",
    "a scanner panicked",
    "a segment grew",
    "a segment was bound",
    "a segment was invalidated",
    "a segment was looked at after a fault",
    "a segment was pruned",
    "a view lies in several mappings",
    "a view sees memory that is mapped no more",
    "a view was kept",
    "several keys served parts",
];

/// A test that hangs fails.
fn within_a_minute(action: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(action));
        done.send(()).expect("somebody waits");
        outcome
    });
    is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("nothing stays locked");
    thread.join().expect("its panics were caught").unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn rounds() -> u64 {
    if std::env::var_os("BAREVERBS_LONG").is_some() { 10_000 } else { 1000 }
}

/// Both policies: where requests do not ask, the allocator says what it frees.
fn live_with_threads(snapshot: bool) {
    for trust in [false, true] {
        within_a_minute(move || threads::live(threads::Manner { snapshot, trust }, rounds()));
    }
}

#[test]
fn threads_that_ask_by_a_walk_while_memory_comes_and_goes_see_what_was_there_when_they_asked() {
    live_with_threads(false);
}

#[test]
fn threads_that_ask_by_a_snapshot_while_memory_comes_and_goes_see_what_was_there_when_they_asked() {
    live_with_threads(true);
}
