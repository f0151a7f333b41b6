//! Ending what a queue pair has outstanding, before its regions go.
//!
//! The queue pair is moved to the error state; then one marker is posted on each of its queues, and it is drained when both
//! were polled: requests of one queue complete in order, and flushed unsignalled sends that had succeeded never complete,
//! so that nothing else would tell.
//!
//! A provider that posts receives without a system call (soft-RoCE's) does not tell the kernel of a receive posted in the
//! error state, so its marker would lie there for ever. Moving the queue pair to the error state once more makes the kernel
//! look (measured on Linux 6.1); elsewhere it changes nothing.

use std::time::Duration;

use bareverbs_core::connect::Transition;
use bareverbs_core::link::{Direction, WorkId};
use bareverbs_core::verbs::Wc;
use bareverbs_core::verbs::inline_calls::PostError;

use crate::objects::completion_queue::CompletionQueue;
use crate::objects::queue_pair::QueuePair;
use crate::wait::{Ended, Wait};

/// Drains `queue_pair`, whose both directions complete on `queue`.
///
/// # Errors
/// Why it could not be drained, in words: the queue pair is then to be destroyed before any region.
pub(crate) fn drain(
    queue_pair: &mut QueuePair,
    queue: &mut CompletionQueue,
    mut post_marker: impl FnMut(Direction) -> Result<(), PostError>,
    limit: Duration,
) -> Result<(), String> {
    queue_pair.modify(&Transition::to_error()).map_err(|error| error.to_string())?;
    for direction in [Direction::Send, Direction::Receive] {
        post_marker(direction).map_err(|error| format!("the {direction} marker: {error}"))?;
    }
    let qp_num = queue_pair.qp_num();
    let mut seen = [false; 2];
    let mut room = [Wc::default(); 32];
    let mut waiting = Wait::at_most(limit).begin();
    let mut asked_again = false;
    loop {
        let completions = queue.poll_here(&mut room).map_err(|error| error.to_string())?;
        let any = completions.len() != 0;
        for completion in completions.filter(|completion| completion.qp_num() == qp_num) {
            match WorkId::from_raw(completion.wr_id()).marker() {
                Some(Direction::Send) => seen[0] = true,
                Some(Direction::Receive) => seen[1] = true,
                None => {}
            }
        }
        if seen == [true, true] {
            return Ok(());
        }
        if !any && !asked_again {
            asked_again = true;
            // What it answers does not matter: if the markers do not come, the deadline says so.
            let _ = queue_pair.modify(&Transition::to_error());
        }
        // Also where something came: a library that keeps inventing completions must not hold a teardown up for ever.
        if let Err(ended) = waiting.idle() {
            return Err(match ended {
                Ended::Deadline { waited } => format!(
                    "after {} ms the {} marker had not come",
                    waited.as_millis(),
                    if seen[0] { "receive" } else { "send" }
                ),
                Ended::Cancelled => "cancelled".into(),
            });
        }
    }
}
