//! What bareverbs costs, beside something that stands still: C's inline verbs over a provider that does nothing,
//! `parking_lot`'s lock, naive twins.
//!
//! - `instructions` (a binary) counts instructions with valgrind and asserts the bars: `.ci/proofs` runs it.
//! - `ratios` (a binary) takes times of two sides in turns and prints their ratios beside the bars: those of `RESULTS.md`.
//! - `benches/` takes times of each side alone, to be compared with what they were: `cargo bench -p bareverbs-benches`.
//! - `no-panic/` (a workspace of its own) shows that no panic can be reached from the hot paths.
//! - `peers/` (a workspace of its own, and no part of CI: it needs cmake and libclang) takes times of other libraries.
//!
//! Needs a C compiler.

pub mod bars;
pub mod c_side;
pub mod callgrind;
pub mod copy_loop;
pub mod link_loops;
pub mod lock_loops;
pub mod one_sided_loop;
pub mod provider;
pub mod raw_loop;
pub mod segment_loops;
pub mod sides;
pub mod subjects;
pub mod time_bars;
pub mod timed_blocks;
pub mod timing;
