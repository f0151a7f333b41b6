//! Compiles C's side of the comparisons, and looks at what the compiler made of it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Frames of a ring where instructions are counted: as many as one run posts.
const COUNTED_FRAMES: &str = "32768";
/// Frames of a ring where time is taken: what a cache holds, as in use.
const TIMED_FRAMES: &str = "1024";

fn main() {
    for file in ["provider.h", "provider.c", "twin.h", "loops.c"] {
        println!("cargo::rerun-if-changed=c/{file}");
    }
    // Valgrind 3.19 knows no AVX-512, and `rep stos` (what -O3 alone clears a request with) counts as one instruction.
    let portable: &[&str] = &["-mmemset-strategy=unrolled_loop:-1:noalign"];
    compile("counted", portable, Some(COUNTED_FRAMES));
    // Where a loop lies is worth a cycle: C's begin at a cache line's start.
    let aligned = ["-falign-functions=64", "-falign-loops=64"];
    compile("timed", &[aligned[0], aligned[1], timed_flag(portable[0])], Some(TIMED_FRAMES));
    compile("provider", &[aligned[0], aligned[1], portable[0]], None);
}

/// Where time is taken, C is compiled for the processor that we are compiled for: this one if we are, else any.
fn timed_flag(portable: &str) -> &str {
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let ours = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if ours.contains("target-cpu=native") { "-march=native" } else { portable }
}

/// Compiles one library; `frames` marks C's loops, in a table of the library's name.
fn compile(name: &str, flags: &[&str], frames: Option<&str>) {
    let mut build = cc::Build::new();
    // The level is the same in every profile: what is compared with stands still.
    build.opt_level(3).debug(false).warnings(true).extra_warnings(true).warnings_into_errors(true);
    for flag in flags {
        build.flag_if_supported(flag);
    }
    match frames {
        Some(frames) => {
            let table = format!("{name}_c_loops");
            build.file("c/loops.c").define("SIDE", Some(table.as_str())).define("LEN", frames);
        }
        None => {
            build.file("c/provider.c");
        }
    }
    build.compile(&format!("bareverbs_{name}"));
    let out_dir = env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    assert_no_string_stores(&out_dir.join(format!("libbareverbs_{name}.a")));
}

/// A work request cleared by `rep stos` takes three times as long: not a fair baseline.
fn assert_no_string_stores(archive: &Path) {
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    let output = Command::new("objdump").arg("-d").arg(archive).output();
    let output = output.expect("objdump (binutils) looks at what the C compiler made");
    assert!(output.status.success(), "objdump failed on {}", archive.display());
    let listing = String::from_utf8_lossy(&output.stdout);
    assert!(listing.contains("<poll_sends>:"), "{} has no code to look at", archive.display());
    let found = listing.lines().find(|line| line.contains("rep stos"));
    assert!(found.is_none(), "the C compiler clears requests with `rep stos`: {found:?}");
}
