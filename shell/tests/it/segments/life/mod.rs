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
        let cases = cases.unwrap_or(if long { 10_000 } else { 200 });
        let config = ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() };
        let lives = (steps::setups(), steps::steps());
        let tally = RefCell::new(Tally::new());
        let outcome = TestRunner::new(config).run(&lives, |(setup, steps)| {
            for (what, times) in live(setup, &steps) {
                *tally.borrow_mut().entry(what).or_default() += times;
            }
            Ok(())
        });
        match outcome {
            Ok(()) => println!("{:#?}", tally.into_inner()),
            // On one line: to be kept as a test.
            Err(TestError::Fail(why, (setup, steps))) => panic!("{why}\n{setup:?}\n{steps:?}"),
            Err(other) => panic!("{other}"),
        }
    });
}
