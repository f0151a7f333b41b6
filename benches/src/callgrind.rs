//! Counting instructions: the same program runs `n` rounds and twice as many under callgrind; the difference is theirs.

use std::collections::HashMap;
use std::env;
use std::process::Command;

use crate::subjects::subject;

/// Counts, each pair of subject and rounds once.
#[derive(Debug, Default)]
pub struct Counter {
    known: HashMap<(&'static str, u64), f64>,
}

impl Counter {
    /// Instructions that one round of a subject executes.
    ///
    /// # Errors
    /// What kept valgrind from saying so.
    pub fn per_round(&mut self, name: &'static str, rounds: u64) -> Result<f64, String> {
        if let Some(&known) = self.known.get(&(name, rounds)) {
            return Ok(known);
        }
        let (short, long) = (collected(name, rounds)?, collected(name, 2 * rounds)?);
        let count = (long as f64 - short as f64) / rounds as f64;
        self.known.insert((name, rounds), count);
        Ok(count)
    }
}

/// Runs a subject in this process, as [`Counter`] has asked for; answers the exit status.
pub fn run(name: &str, rounds: &str) -> u8 {
    let (Some(subject), Ok(rounds)) = (subject(name), rounds.parse()) else { return 2 };
    // Rings are large, and moved about by value while they are made.
    let sum = std::thread::Builder::new().stack_size(256 << 20).spawn(move || subject(rounds));
    let sum = sum.map(|thread| thread.join().unwrap_or(0)).unwrap_or(0);
    println!("{name} {rounds}: {sum}");
    u8::from(sum == 0)
}

/// Instructions of a whole run.
fn collected(name: &str, rounds: u64) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--run", name, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind does not start ({error}): install it"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{name} failed under valgrind ({}): {said}", output.status));
    }
    let count = said.lines().find_map(|line| line.split_once("Collected :")).map(|(_, count)| count.trim().parse());
    match count {
        Some(Ok(count)) => Ok(count),
        _ => Err(format!("valgrind says no count: {said}")),
    }
}
