//! Prints the medians that `cargo bench -p bareverbs-benches` left behind, and their ratios to the first of each group.
//!
//! `ratios [FOLDER]`: criterion's folder, by default `criterion` in cargo's target folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use serde_json::Value;

/// Median times in nanoseconds, by benchmark.
type Group = BTreeMap<String, f64>;

fn main() -> ExitCode {
    let folder = env::args_os().nth(1).map_or_else(default_folder, PathBuf::from);
    match groups(&folder) {
        Ok(groups) if !groups.is_empty() => {
            for (name, group) in &groups {
                print(name, group);
            }
            ExitCode::SUCCESS
        }
        Ok(_) => {
            eprintln!("no results in {}: run `cargo bench -p bareverbs-benches` first", folder.display());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{}: {error}: run `cargo bench -p bareverbs-benches` first", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn default_folder() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from).join("criterion")
}

/// Every group of the folder, the `report` aside.
fn groups(folder: &Path) -> std::io::Result<BTreeMap<String, Group>> {
    let mut groups = BTreeMap::<String, Group>::new();
    for group in fs::read_dir(folder)? {
        for bench in fs::read_dir(group?.path())? {
            let new = bench?.path().join("new");
            if let Some((group, name, median)) = result(&new) {
                groups.entry(group).or_default().insert(name, median);
            }
        }
    }
    Ok(groups)
}

/// Group, name and median of one benchmark; none if the folder holds none.
fn result(new: &Path) -> Option<(String, String, f64)> {
    let read = |file: &str| -> Option<Value> { serde_json::from_slice(&fs::read(new.join(file)).ok()?).ok() };
    let (names, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let median = estimates["median"]["point_estimate"].as_f64()?;
    Some((names["group_id"].as_str()?.to_owned(), names["function_id"].as_str()?.to_owned(), median))
}

/// One group: each of ours beside each of the others.
fn print(name: &str, group: &Group) {
    println!("{name}");
    let (ours, others): (Vec<_>, Vec<_>) = group.iter().partition(|(name, _)| name.starts_with("ours"));
    for (name, median) in group {
        println!("    {name:<28} {median:>12.2} ns");
    }
    for (our_name, our_median) in ours {
        for (name, median) in &others {
            println!("    {our_name} / {name}: {:.2}", our_median / **median);
        }
    }
}
