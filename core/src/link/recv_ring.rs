//! Receives: posted, brought back by completions, read through the carrier, judged by the sequence.
//!
//! The rule this file protects: **a frame is handed out only as the message that was to come next.** Anything else is a
//! fault, and the frame stays in the ring.

use core::ops::Range;

use crate::link::carrier::{Arrival, Carrier};
use crate::link::error::{Fault, Health, ReceiveError};
use crate::link::frame::{Frames, Mismatch, PostFailure, Returned};
use crate::link::rules::{LinkRules, Posting};
use crate::link::sequence::{Sequence, SequenceChecker, Verdict};
use crate::link::work_id::{Direction, WorkId};
use crate::verbs::RecvWr;
use crate::verbs::inline_calls::{Completion, QueuePairCalls};

/// Frames and books of one direction.
pub(crate) struct RecvRing<const N: usize> {
    frames: Frames<RecvWr, N>,
    checker: SequenceChecker,
    rules: LinkRules,
}

/// Why a completion gives no message.
pub(crate) enum Rejected {
    /// It ends no request of this ring.
    Mismatch(Mismatch),
    /// It breaks the link.
    Fault(Fault),
}

impl<const N: usize> RecvRing<N> {
    pub(crate) const fn new(frames: Frames<RecvWr, N>, rules: LinkRules, start: Sequence) -> Self {
        Self { frames, checker: SequenceChecker::new(start), rules }
    }

    #[inline]
    pub(crate) const fn frames(&self) -> &Frames<RecvWr, N> {
        &self.frames
    }

    pub(crate) const fn frames_mut(&mut self) -> &mut Frames<RecvWr, N> {
        &mut self.frames
    }

    pub(crate) fn into_frames(self) -> Frames<RecvWr, N> {
        self.frames
    }

    pub(crate) const fn expected(&self) -> Sequence {
        self.checker.expected
    }

    /// Posts at most `max` of the frames that are not posted; answers how many.
    pub(crate) fn post(
        &mut self,
        calls: &mut QueuePairCalls,
        health: &mut Health,
        max: usize,
    ) -> Result<usize, ReceiveError> {
        if let Some(cause) = health.cause() {
            return Err(ReceiveError::Broken { cause });
        }
        if self.frames.limit() == 0 {
            return Err(self.no_post());
        }
        let wanted = self.frames.free().min(u32::try_from(max).unwrap_or(u32::MAX));
        let at_once = match self.rules.posting {
            Posting::Chained => wanted,
            Posting::OneAtATime => 1,
        };
        let mut count = 0;
        while count < wanted {
            match self.frames.post_chain(calls, at_once) {
                // Unreachable: so many are free.
                Ok(0) => break,
                Ok(posted) => count = count.wrapping_add(posted),
                Err(failure) => return Err(failed(failure, count, health)),
            }
        }
        Ok(count as usize)
    }

    #[cold]
    fn no_post(&self) -> ReceiveError {
        if self.frames.has_key() { ReceiveError::WorkIdsUsedUp } else { ReceiveError::Unregistered }
    }

    /// The message that a completion brings, if it is the one that was to come.
    #[inline]
    pub(crate) fn accept<C: Carrier>(
        &mut self,
        carrier: &C,
        completion: &Completion<'_>,
    ) -> Result<Message<'_, N>, Rejected> {
        let returned = match self.frames.release(completion) {
            Ok(returned) => returned,
            Err(mismatch) => return Err(Rejected::Mismatch(mismatch)),
        };
        let wr_id = returned.wr_id();
        let wc = match completion.outcome() {
            Ok(wc) => wc,
            Err(failed) => return Err(Rejected::Fault(Fault::Failed(failed))),
        };
        let arrival = match carrier.read(wc, returned.bytes(), &self.rules) {
            Ok(arrival) => arrival,
            Err(error) => return Err(Rejected::Fault(Fault::Unreadable { wr_id, error })),
        };
        if let Some(got) = arrival.sequence {
            let expected = self.checker.expected;
            match self.checker.check(got) {
                Verdict::InOrder => {}
                verdict => return Err(Rejected::Fault(out_of_order(verdict, wr_id, expected, got))),
            }
        }
        Ok(Message { returned, arrival })
    }
}

/// A frame whose number was in order.
pub(crate) struct Message<'link, const N: usize> {
    returned: Returned<'link, RecvWr, N>,
    arrival: Arrival,
}

impl<'link, const N: usize> Message<'link, N> {
    /// Joins it with what is needed to post the frame again.
    #[inline]
    pub(crate) fn into_frame(self, calls: &'link mut QueuePairCalls, health: &'link mut Health) -> RecvFrame<'link, N> {
        RecvFrame { returned: self.returned, calls, health, arrival: self.arrival }
    }
}

#[cold]
fn out_of_order(verdict: Verdict, wr_id: u64, expected: Sequence, got: Sequence) -> Fault {
    match verdict {
        Verdict::Gap { missing } => Fault::Gap { wr_id, expected, got, missing },
        Verdict::Old { behind } => Fault::Old { wr_id, expected, got, behind },
        Verdict::InOrder => Fault::UnknownId { wr_id }, // not reached: the caller asks for the other two
    }
}

#[cold]
fn failed(failure: PostFailure, accepted_before: u32, health: &mut Health) -> ReceiveError {
    match failure {
        PostFailure::Refused { accepted, raw } => {
            ReceiveError::Refused { accepted: accepted.wrapping_add(accepted_before), raw }
        }
        PostFailure::Unknown { raw } => {
            let cause = health.break_for(Fault::PostUnknown { direction: Direction::Receive, raw });
            ReceiveError::Broken { cause }
        }
    }
}

/// A message that came. Dropping it gives its frame back to the ring, not posted.
pub struct RecvFrame<'link, const N: usize> {
    returned: Returned<'link, RecvWr, N>,
    calls: &'link mut QueuePairCalls,
    health: &'link mut Health,
    arrival: Arrival,
}

impl<const N: usize> RecvFrame<'_, N> {
    /// The payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let start = self.arrival.header_bytes as usize;
        let range: Range<usize> = start..start.saturating_add(self.arrival.payload_bytes as usize);
        // The carrier saw to it that the range lies in the frame.
        self.returned.bytes().get(range).unwrap_or_default()
    }

    /// The message's number; `None` with the [`Raw`](crate::link::Raw) carrier.
    #[inline]
    pub const fn sequence(&self) -> Option<Sequence> {
        self.arrival.sequence
    }

    /// The receive's number.
    #[inline]
    pub const fn wr_id(&self) -> WorkId {
        WorkId::from_raw(self.returned.wr_id())
    }

    /// Gives the frame back and posts a receive.
    ///
    /// # Errors
    /// [`ReceiveError::Refused`]: the frame is in the ring, not posted. [`ReceiveError::Broken`]: the provider does not
    /// say what it did, the link is broken.
    #[inline]
    pub fn repost(self) -> Result<(), ReceiveError> {
        let Self { returned, calls, health, .. } = self;
        let Some(vacant) = returned.into_vacant() else {
            // The link was registered when the frame was posted, and a place is free: numbers have run out.
            return Err(ReceiveError::WorkIdsUsedUp);
        };
        vacant.post(calls).map_err(|failure| failed(failure, 0, health))
    }
}
