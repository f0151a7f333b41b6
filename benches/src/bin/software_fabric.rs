//! What the software fabric costs in prompt mode: frames both ways between two endpoints, beside a twin that only copies them
//! ([`copy_loop`](bareverbs_benches::copy_loop)); and what credits cost of that, beside the same without.
//!
//! `software_fabric [PAIRS]`: interleaved pairs, each a few milliseconds of either, the first of it alternating; by default
//! 101 for each line. Shown are the medians, and the median of the pairs' ratios with its quartiles.
//!
//! `software_fabric MODE SIZE FRAMES` with `ours` or `copies` runs one side alone, for a profiler.

use std::env;
use std::time::Duration;

use bareverbs_benches::copy_loop::{Copies, Ends, Labour, Pair, RING};
use bareverbs_benches::timing::time;
use bareverbs_core::link::{Carrier, CreditMode, FrameStorage, Header, Immediate};

/// Room for a header, in every frame.
const FRAME_BYTES: usize = 4096 + 64;

static STORAGE: [FrameStorage<{ 2 * RING * FRAME_BYTES }>; 8] = [const { FrameStorage::new() }; 8];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [side, size, frames] => alone(side, size.parse()?, frames.parse()?),
        [] => compare(101),
        [pairs] => compare(pairs.parse()?),
        _ => Err("software_fabric [PAIRS], or software_fabric ours|copies SIZE FRAMES".into()),
    }
}

fn ends<C: Carrier>(carrier: C, credits: CreditMode, size: usize) -> Result<Ends<C>, Box<dyn std::error::Error>> {
    let mut free = STORAGE.iter().filter_map(FrameStorage::claim);
    let mut claim = || free.next().ok_or("more pairs than storage");
    Ok(Ends::new(carrier, credits, size, FRAME_BYTES, [claim()?, claim()?])?)
}

fn alone(side: &str, size: usize, frames: u64) -> Result<(), Box<dyn std::error::Error>> {
    let right = match side {
        "ours" => ends(Immediate, CreditMode::On, size)?.run(Labour::Stamp, frames),
        "copies" => Copies::new(size, FRAME_BYTES).run(Labour::Stamp, frames),
        _ => return Err("the side is ours or copies".into()),
    };
    if right == 2 * frames { Ok(()) } else { Err(format!("{right} of {} frames were right", 2 * frames).into()) }
}

fn compare(pairs: usize) -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<34} {:>9} {:>9}   ours / copies (quartiles)", "a frame, filled, sent and checked", "ours", "copies");
    for size in [4096, 64] {
        let mut copies = Copies::new(size, FRAME_BYTES);
        let mut immediate = ends(Immediate, CreditMode::On, size)?;
        let mut header = ends(Header::<64>::new(), CreditMode::On, size)?;
        for labour in [Labour::Words, Labour::Bytes, Labour::Stamp] {
            line(&format!("{size} bytes, {labour:?}, immediate"), pairs, labour, &mut immediate, &mut copies);
            line(&format!("{size} bytes, {labour:?}, header"), pairs, labour, &mut header, &mut copies);
        }
    }
    println!("{:<34} {:>9} {:>9}   on / off (quartiles)", "the same", "credits", "none");
    for size in [4096, 64] {
        let mut on = (ends(Immediate, CreditMode::On, size)?, ends(Header::<64>::new(), CreditMode::On, size)?);
        let mut off = (ends(Immediate, CreditMode::Off, size)?, ends(Header::<64>::new(), CreditMode::Off, size)?);
        for labour in [Labour::Words, Labour::Stamp] {
            line(&format!("{size} bytes, {labour:?}, immediate"), pairs, labour, &mut on.0, &mut off.0);
            line(&format!("{size} bytes, {labour:?}, header"), pairs, labour, &mut on.1, &mut off.1);
        }
    }
    Ok(())
}

/// Frames each way of one side of a pair.
const FRAMES: u64 = 4096;

fn line(what: &str, pairs: usize, labour: Labour, ours: &mut impl Pair, copies: &mut impl Pair) {
    let mut run = |pair: usize| -> (Duration, Duration) {
        let mut of_ours = || time(|| all_right(ours.run(labour, FRAMES)));
        let mut of_copies = || time(|| all_right(copies.run(labour, FRAMES)));
        if pair.is_multiple_of(2) {
            (of_ours(), of_copies())
        } else {
            let later = of_copies();
            (of_ours(), later)
        }
    };
    // The first touches memory that nobody has touched.
    run(0);
    let times: Vec<_> = (0..pairs.max(1)).map(run).collect();
    let ns_each = |of: fn(&(Duration, Duration)) -> Duration| {
        sorted(times.iter().map(|pair| of(pair).as_nanos() as f64 / (2 * FRAMES) as f64))
    };
    let (ours, copies) = (ns_each(|pair| pair.0), ns_each(|pair| pair.1));
    let ratios = sorted(times.iter().map(|(ours, copies)| ours.as_secs_f64() / copies.as_secs_f64()));
    let at = |sorted: &[f64], quarter: usize| sorted[(sorted.len() - 1) * quarter / 4];
    println!(
        "{what:<34} {:>6.1} ns {:>6.1} ns   {:.2} ({:.2} to {:.2})",
        at(&ours, 2),
        at(&copies, 2),
        at(&ratios, 2),
        at(&ratios, 1),
        at(&ratios, 3)
    );
}

fn all_right(right: u64) -> u64 {
    assert_eq!(right, 2 * FRAMES, "a frame was wrong");
    right
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
