//! bareverbs-core as an embedded program uses it: static buffers, no allocator, no operating system.
//!
//! Runs on an emulated Cortex-M4, says through semihosting which checks hold, and ends with their count. What it logs with
//! `defmt` goes to standard error.
#![no_std]
#![no_main]

mod access;
mod link;
mod logger;
mod provider;
mod segments;
mod wire;

use core::panic::PanicInfo;

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};

/// A check: panics when it does not hold, which ends the program with a failure.
type Check = (&'static str, fn());

const CHECKS: &[&[Check]] = &[wire::CHECKS, segments::CHECKS, access::CHECKS, link::CHECKS, logger::CHECKS];

#[entry]
fn main() -> ! {
    let mut passed = 0;
    for (name, check) in CHECKS.iter().copied().flatten() {
        hprintln!("check   {}", name);
        check();
        passed += 1;
    }
    hprintln!("{} passed, 0 failed", passed);
    exit(debug::EXIT_SUCCESS)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    hprintln!("FAILED  {}", info);
    hprintln!("0 passed, 1 failed");
    exit(debug::EXIT_FAILURE)
}

fn exit(status: debug::ExitStatus) -> ! {
    loop {
        debug::exit(status);
    }
}
