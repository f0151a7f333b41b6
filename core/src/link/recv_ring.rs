//! Receives: posted, brought back by completions, read through the carrier, judged by the sequence.
//!
//! The rule this file protects: **a frame is handed out only as the message that was to come next.** Anything else is a
//! fault, and the frame stays in the ring.

use crate::link::bounds::PostFailure;
use crate::link::carrier::{Arrival, Carrier, MessageParts, Numbered};
use crate::link::credits::CreditMessage;
use crate::link::error::{Fault, ReceiveError};
use crate::link::frame::{Frames, Returned, Vacant};
use crate::link::health::{Health, Refusal};
use crate::link::rules::{LinkRules, Posting};
use crate::link::sequence::{Sequence, SequenceChecker};
use crate::link::work_id::{Direction, WorkId};
use crate::verbs::RecvWr;
use crate::verbs::inline_calls::{Completion, QueuePairCalls};

/// Frames and books of one direction.
#[repr(C)]
pub(crate) struct RecvRing<const N: usize> {
    checker: SequenceChecker,
    rules: LinkRules,
    frames: Frames<RecvWr, N>,
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

    /// Sets the number of the next message; for a ring of which nothing was posted.
    pub(crate) const fn set_start(&mut self, start: Sequence) {
        self.checker = SequenceChecker::new(start);
    }

    pub(crate) const fn expected(&self) -> Sequence {
        self.checker.expected
    }

    /// Posts one of the frames that are not posted; answers how many: one, if there was one.
    #[inline(always)]
    pub(crate) fn post_one(&mut self, calls: &mut QueuePairCalls, health: &mut Health) -> Result<usize, ReceiveError> {
        if self.frames.has_vacant_if(health.open(), 0)
            && let Some(vacant) = self.frames.vacant()
        {
            return vacant.post(calls).map(|()| 1).map_err(|failure| failed(failure, 0, health));
        }
        let mut error = ReceiveError::Unregistered;
        if self.lacks_only_a_frame(health, &mut error) { Ok(0) } else { Err(error) }
    }

    /// Whether nothing but a free frame is missing; else what is.
    #[cold]
    #[inline(never)]
    fn lacks_only_a_frame(&self, health: &Health, error: &mut ReceiveError) -> bool {
        // The limit is not asked: it would be kept in a register on the good path.
        *error = match health.cause() {
            Some(cause) => ReceiveError::Broken { cause },
            None if !self.frames.has_key() || self.frames.is_out_of_ids() => self.no_post(),
            None => return true,
        };
        false
    }

    /// Posts at most `max` of the frames that are not posted; answers how many.
    #[inline(never)]
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
    #[inline(always)]
    pub(crate) fn accept<C: Carrier>(
        &mut self,
        calls: &mut QueuePairCalls,
        health: &mut Health,
        carrier: &C,
        completion: Completion<'_>,
    ) -> Result<Message<'_, N>, Refusal> {
        let mut returned = match self.frames.release(completion, health.released_at_once(Direction::Receive)) {
            Ok(returned) => returned,
            Err(mismatch) => return Err(health.mismatched(completion, mismatch)),
        };
        let Ok(wc) = completion.outcome() else { return Err(health.failed(completion)) };
        let at_a_glance = match carrier.glance(wc) {
            Some(sequence) => returned.trim_to_believed(wc.byte_len).map(|()| sequence),
            None => None,
        };
        let (got, grant) = match at_a_glance {
            Some(sequence) => (sequence, Sequence::new(0)),
            None => match carrier.read(wc, returned.frame(), &self.rules) {
                Ok(Arrival::Message(MessageParts { sequence, header_bytes, payload_bytes, grant })) => {
                    returned.trim(header_bytes, payload_bytes);
                    (sequence, grant)
                }
                Ok(Arrival::Credit(credit)) => {
                    // Taken apart here, so that what returned need not exist in memory.
                    let vacant = returned.into_vacant();
                    return Err(credit_came(vacant, &self.checker, calls, health, completion, credit));
                }
                Err(error) => return Err(health.unreadable(completion, error)),
            },
        };
        if C::NUMBERED == Numbered::Yes && !self.checker.advance(got) {
            return Err(health.out_of_order(&self.checker, completion, got));
        }
        Ok(Message { returned, numbered: C::NUMBERED, sequence: got, grant })
    }
}

/// Takes a credit message in: its receive is posted again at once, so that there is one for the next.
#[cold]
#[inline(never)]
fn credit_came<const N: usize>(
    vacant: Option<Vacant<'_, RecvWr, N>>,
    checker: &SequenceChecker,
    calls: &mut QueuePairCalls,
    health: &mut Health,
    completion: Completion<'_>,
    credit: CreditMessage,
) -> Refusal {
    let CreditMessage { place, grant } = credit;
    if place != checker.expected {
        return health.out_of_order(checker, completion, place);
    }
    // The link was registered when the frame was posted, and a place is free: without one, numbers have run out.
    let Some(vacant) = vacant else { return health.break_now(Fault::CreditReceive { raw: None }) };
    match vacant.post(calls) {
        Ok(()) => Refusal::Credit(health.note(grant.number())),
        Err(PostFailure::Refused { raw, .. }) => health.break_now(Fault::CreditReceive { raw: Some(raw) }),
        Err(PostFailure::Unknown { raw }) => {
            health.break_now(Fault::PostUnknown { direction: Direction::Receive, raw })
        }
    }
}

/// A frame whose number was in order.
pub(crate) struct Message<'link, const N: usize> {
    returned: Returned<'link, RecvWr, N>,
    numbered: Numbered,
    sequence: Sequence,
    grant: Sequence,
}

impl<'link, const N: usize> Message<'link, N> {
    /// Its sender's grant, where each message carries one.
    #[inline(always)]
    pub(crate) const fn grant(&self) -> Sequence {
        self.grant
    }

    /// Joins it with what is needed to post the frame again.
    #[inline(always)]
    pub(crate) fn into_frame(self, calls: &'link mut QueuePairCalls, health: &'link mut Health) -> RecvFrame<'link, N> {
        let Self { returned, numbered, sequence, .. } = self;
        RecvFrame { returned, calls, health, numbered, sequence }
    }
}

/// What a post failed with; breaks the link if nobody knows what was accepted.
#[inline(always)]
fn failed(failure: PostFailure, accepted_before: u32, health: &mut Health) -> ReceiveError {
    let mut error = ReceiveError::Unregistered;
    fail(failure, accepted_before, health, &mut error);
    error
}

/// Answers through a pointer: an error that is returned would be built in place of the answer, which then lies in memory
/// on the good path, too.
#[cold]
#[inline(never)]
fn fail(failure: PostFailure, accepted_before: u32, health: &mut Health, error: &mut ReceiveError) {
    *error = match failure {
        PostFailure::Refused { accepted, raw } => {
            ReceiveError::Refused { accepted: accepted.wrapping_add(accepted_before), raw }
        }
        PostFailure::Unknown { raw } => {
            let cause = Fault::PostUnknown { direction: Direction::Receive, raw };
            health.break_now(cause);
            ReceiveError::Broken { cause }
        }
    };
}

/// A message that came. Dropping it gives its frame back to the ring, not posted.
pub struct RecvFrame<'link, const N: usize> {
    returned: Returned<'link, RecvWr, N>,
    calls: &'link mut QueuePairCalls,
    health: &'link mut Health,
    numbered: Numbered,
    sequence: Sequence,
}

impl<const N: usize> RecvFrame<'_, N> {
    /// The payload.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        self.returned.bytes()
    }

    /// The message's number; `None` with the [`Raw`](crate::link::Raw) carrier.
    #[inline]
    pub const fn sequence(&self) -> Option<Sequence> {
        match self.numbered {
            Numbered::Yes => Some(self.sequence),
            Numbered::No => None,
        }
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
    #[inline(always)]
    pub fn repost(self) -> Result<(), ReceiveError> {
        let Self { returned, calls, health, .. } = self;
        let Some(vacant) = returned.into_vacant() else {
            // The link was registered when the frame was posted, and a place is free: numbers have run out.
            return Err(ReceiveError::WorkIdsUsedUp);
        };
        vacant.post(calls).map_err(|failure| failed(failure, 0, health))
    }
}
