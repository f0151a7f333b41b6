//! Counts instructions under valgrind's callgrind and asserts the bars; exits 0 when all hold.
//!
//! `instructions` counts all; `instructions WORD...` counts the rows that have one of the words in their names.

use std::env;
use std::process::ExitCode;

use bareverbs_benches::bars::{ROWS, Row};
use bareverbs_benches::callgrind::{Counter, run};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [flag, name, rounds] = &args[..]
        && flag == "--run"
    {
        return ExitCode::from(run(name, rounds));
    }
    let wanted = |row: &&Row| args.is_empty() || args.iter().any(|word| row.what.contains(word.as_str()));
    println!("{:<46} {:>9} {:>9} {:>9}", "instructions", "ours", "baseline", "at most");
    let mut counter = Counter::default();
    let (mut passed, mut failed) = (0, 0);
    for row in ROWS.iter().filter(wanted) {
        match measure(&mut counter, row) {
            Ok(Verdict::Shown) => {}
            Ok(Verdict::Holds) => passed += 1,
            Ok(Verdict::Misses) => failed += 1,
            Err(error) => {
                println!("{}: {error}", row.what);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

enum Verdict {
    Holds,
    Misses,
    Shown,
}

/// Counts one row and prints it.
fn measure(counter: &mut Counter, row: &Row) -> Result<Verdict, String> {
    let per_round = row.per_round as f64;
    let ours = counter.per_round(row.subject, row.rounds)? / per_round;
    let baseline = match row.baseline {
        Some(baseline) => Some(counter.per_round(baseline, row.rounds)? / per_round),
        None => None,
    };
    let limit = row.bar.limit(baseline);
    // A count can be a fraction where a few rounds take another path; less than a hundredth is none.
    let verdict = match limit {
        None => Verdict::Shown,
        Some(limit) if ours <= limit + 0.01 => Verdict::Holds,
        Some(_) => Verdict::Misses,
    };
    let said = match verdict {
        Verdict::Holds => "",
        Verdict::Misses => "  MISSED",
        Verdict::Shown => "  (shown)",
    };
    let cell = |count: Option<f64>| count.map_or_else(|| "-".to_owned(), |count| format!("{count:.2}"));
    println!("{:<46} {ours:>9.2} {:>9} {:>9}{said}", row.what, cell(baseline), cell(limit));
    Ok(verdict)
}
