//! What bareverbs costs, beside something that stands still: C's inline verbs over a provider that does nothing,
//! `parking_lot`'s lock, naive twins.
//!
//! - `instructions` (a binary) counts instructions with valgrind and asserts the bars: `.ci/proofs` runs it.
//! - `benches/` takes times, side by side in one run: `cargo bench -p bareverbs-benches`; `ratios` (a binary) then prints
//!   medians and their ratios. They are in `RESULTS.md`, with the machine and the date.
//! - `no-panic/` (a workspace of its own) shows that no panic can be reached from the hot paths.
//!
//! Needs a C compiler.

pub mod bars;
pub mod c_side;
pub mod callgrind;
pub mod copy_loop;
pub mod link_loops;
pub mod lock_loops;
pub mod provider;
pub mod raw_loop;
pub mod segment_loops;
pub mod sides;
pub mod subjects;
pub mod timing;
