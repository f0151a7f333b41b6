//! How a layer of proof says what ran and what was skipped, to people and to the test command.
//!
//! One line a layer: `layer`, `ran` or `skipped`, count of tests that passed, reason; tabs between. It goes to standard
//! output, and is appended to the file that `BAREVERBS_LAYERS` names, where that is set. This file needs nothing but
//! `std`.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// What became of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many tests passed; what else there is to say.
    Ran(usize, String),
    /// Nothing ran, for this reason.
    Skipped(String),
}

/// The line of a layer, without its end.
pub fn line(layer: &str, outcome: &Outcome) -> String {
    let (word, count, reason) = match outcome {
        Outcome::Ran(count, remark) => ("ran", *count, remark),
        Outcome::Skipped(reason) => ("skipped", 0, reason),
    };
    format!("{layer}\t{word}\t{count}\t{}", reason.replace(['\t', '\n'], " "))
}

/// Says it.
///
/// # Errors
/// What the file system says of the file that `BAREVERBS_LAYERS` names.
pub fn report(layer: &str, outcome: &Outcome) -> io::Result<()> {
    let line = line(layer, outcome);
    println!("{line}");
    if let Some(path) = std::env::var_os("BAREVERBS_LAYERS") {
        // One write a line: several test binaries may append at a time.
        OpenOptions::new().create(true).append(true).open(path)?.write_all((line + "\n").as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Outcome, line};

    #[test]
    fn a_line_has_four_columns_whatever_the_reason_holds() {
        assert_eq!(line("a layer", &Outcome::Ran(3, String::new())), "a layer\tran\t3\t");
        assert_eq!(
            line("a layer", &Outcome::Skipped("no\theader\nhere".into())),
            "a layer\tskipped\t0\tno header here"
        );
    }
}
