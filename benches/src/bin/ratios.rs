//! Takes times of two sides in turns and prints their ratios beside the bars. Nothing is asserted: times are a machine's.
//!
//! `ratios [PROCESSES] [WORD...]`: in so many processes (5), the rows that have one of the words in their names. Each process
//! has its memory elsewhere, so the range of their ratios says what placement does.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::{env, thread};

use bareverbs_benches::time_bars::{self, ROWS, Row};
use bareverbs_benches::timing::{Pair, quantile};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [flag, words @ ..] = &args[..]
        && flag == "--measure"
    {
        return measure(words);
    }
    let (processes, words) = match args.split_first() {
        Some((first, words)) if first.parse::<u32>().is_ok() => (first.parse().unwrap_or(5), words),
        _ => (5, &args[..]),
    };
    match collect(processes, words) {
        Ok(pairs) => {
            print(&pairs);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the rows wanted, once, and prints their numbers.
fn measure(words: &[String]) -> ExitCode {
    let wanted = |row: &Row| words.is_empty() || words.iter().any(|word| row.what.contains(word.as_str()));
    let print = |row, pair: Pair| println!("{row}\t{}\t{}\t{}", pair.ours_ns, pair.baseline_ns, pair.ratio);
    let measured = thread::scope(|scope| {
        // Rings are large, and moved about by value while they are made.
        let large = thread::Builder::new().stack_size(64 << 20);
        let thread = large.spawn_scoped(scope, || time_bars::measure(wanted, print));
        thread.is_ok_and(|thread| thread.join().is_ok())
    });
    if measured { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The numbers of all processes, by row.
fn collect(processes: u32, words: &[String]) -> Result<BTreeMap<usize, Vec<Pair>>, String> {
    let program = env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    let mut pairs = BTreeMap::<usize, Vec<Pair>>::new();
    for _ in 0..processes {
        let output = Command::new(&program).arg("--measure").args(words).output();
        let output = output.map_err(|error| format!("this program does not start: {error}"))?;
        if !output.status.success() {
            return Err(format!("a process failed: {}", String::from_utf8_lossy(&output.stderr)));
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let numbers: Vec<f64> = line.split('\t').filter_map(|cell| cell.parse().ok()).collect();
            let &[row, ours_ns, baseline_ns, ratio] = &numbers[..] else { return Err(format!("not numbers: {line}")) };
            pairs.entry(row as usize).or_default().push(Pair { ours_ns, baseline_ns, ratio });
        }
    }
    Ok(pairs)
}

/// One line for each row: medians over the processes of each one's lower quartile of times and median of ratios, and how far
/// their ratios lie apart.
fn print(pairs: &BTreeMap<usize, Vec<Pair>>) {
    println!(
        "{:<58} {:>9} {:>9} {:>7}  {:<14} {:>8}",
        "times (lower quartiles; the ratio is a median)", "ours", "baseline", "ratio", "of processes", "at most"
    );
    for (&row, pairs) in pairs {
        let Some(Row { what, bar, .. }) = ROWS.get(row) else { continue };
        let median = |of: fn(&Pair) -> f64| quantile(pairs.iter().map(of), 2);
        let ratio = median(|pair| pair.ratio);
        let least = pairs.iter().map(|pair| pair.ratio).fold(f64::INFINITY, f64::min);
        let most = pairs.iter().map(|pair| pair.ratio).fold(0.0, f64::max);
        let (at_most, verdict) = match *bar {
            None => ("-".to_owned(), ""),
            Some(bar) => (format!("{bar}"), if ratio <= bar { "  holds" } else { "  MISSED" }),
        };
        println!(
            "{what:<58} {:>6.2} ns {:>6.2} ns {ratio:>7.3}  {:<14} {at_most:>8}{verdict}",
            median(|pair| pair.ours_ns),
            median(|pair| pair.baseline_ns),
            format!("{least:.3}-{most:.3}"),
        );
    }
}
