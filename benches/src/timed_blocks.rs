//! Blocks of posts and polls that time is taken of: as much as a ring holds. What fills it before or empties it after is not
//! timed.

use std::hint::black_box;
use std::time::Duration;

use crate::c_side::Work;
use crate::sides::{Around, BATCH, Side};
use crate::timing::time;

/// Frames of a ring: as C's has (`build.rs`).
pub const FRAMES: usize = 1024;

/// Rounds that use up, or fill, a ring.
pub fn block_rounds(work: Work) -> u64 {
    match work {
        Work::Chain | Work::FillAndPostChain | Work::PollSends | Work::PollReceives => FRAMES as u64 / BATCH,
        _ => FRAMES as u64,
    }
}

/// To be called before the first [`block`]: a ring that is posted again as it is polled stays full.
///
/// # Panics
/// If the ring cannot be filled.
pub fn fill_if_it_stays_full(side: &mut impl Side, work: Work) {
    let full = work != Work::PollAndRepost || Around::of(work).before(side, FRAMES as u64);
    assert!(full, "the ring could not be filled");
}

/// The time of one block.
///
/// # Panics
/// If a round fails.
pub fn block(side: &mut impl Side, work: Work) -> Duration {
    let (rounds, around) = (block_rounds(work), Around::of(work));
    assert!(
        work == Work::PollAndRepost || around.before(side, FRAMES as u64),
        "{work:?}: the ring could not be filled"
    );
    let elapsed = time(|| side.run(black_box(work), rounds));
    assert!(around.after(side, FRAMES as u64), "{work:?}: the ring could not be emptied");
    elapsed
}
