//! Several messages in one call.
//!
//! The rule this file protects: **a chain that was refused half-way leaves what was accepted in flight and the rest as if
//! it had never been staged**, numbers included.

use crate::link::bounds::PostFailure;
use crate::link::carrier::{Carrier, Granting};
use crate::link::error::SendError;
use crate::link::frame::{Frames, Vacant};
use crate::link::health::Health;
use crate::link::rules::Posting;
use crate::link::send_ring::{Message, SendBooks, failed, no_frame, room_bytes, too_long};
use crate::link::sequence::Sequence;
use crate::verbs::SendWr;
use crate::verbs::inline_calls::QueuePairCalls;

/// What a chain posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Posted {
    /// The first message's number; the next free one when nothing was staged.
    pub first: Sequence,
    /// How many messages.
    pub count: u32,
}

/// Messages that are staged one after the other and posted in one call. Dropping it posts nothing: the frames are the
/// next ones again.
pub struct SendChain<'link, C: Carrier, const N: usize> {
    frames: &'link mut Frames<SendWr, N>,
    books: &'link mut SendBooks,
    calls: &'link mut QueuePairCalls,
    health: &'link mut Health,
    carrier: &'link C,
    /// What this end grants with each message, where messages carry that.
    grant: Sequence,
    staged: u32,
    /// Sends since the last signalled one, the staged ones included.
    until_signalled: u32,
}

impl<'link, C: Carrier, const N: usize> SendChain<'link, C, N> {
    #[inline(always)]
    pub(crate) const fn new(
        frames: &'link mut Frames<SendWr, N>,
        books: &'link mut SendBooks,
        calls: &'link mut QueuePairCalls,
        health: &'link mut Health,
        carrier: &'link C,
        grant: Sequence,
    ) -> Self {
        let until_signalled = books.until_signalled;
        Self { frames, books, calls, health, carrier, grant, staged: 0, until_signalled }
    }

    /// The next frame to fill in and stage.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::NoCredit`], [`SendError::Unregistered`], [`SendError::Broken`]; what was staged
    /// stays staged.
    #[inline(always)]
    pub fn next_frame(&mut self) -> Result<ChainFrame<'_, C, N>, SendError> {
        if !self.frames.has_vacant_if(self.health.open(), self.staged) {
            return Err(no_frame(self.frames, self.books, self.staged, self.health));
        }
        let Self { frames, books, carrier, grant, staged, until_signalled, .. } = self;
        match frames.vacant_ahead(*staged) {
            Some(vacant) => Ok(ChainFrame { vacant, books, carrier, grant: *grant, staged, until_signalled }),
            // Unreachable: there was a free one.
            None => Err(SendError::Full { depth: 0 }),
        }
    }

    /// How many messages are staged.
    pub const fn staged(&self) -> u32 {
        self.staged
    }

    /// Posts what was staged: in one call, or one by one where the fabric demands it. The last one is signalled.
    ///
    /// # Errors
    /// [`SendError::Refused`]: the first `accepted` messages are in flight, the others are not and used up no number.
    /// [`SendError::Broken`]: the provider does not say what it did, the link is broken.
    #[inline(always)]
    pub fn post(self) -> Result<Posted, SendError> {
        // Taken apart here, so that the chain need not exist in memory.
        let Self { frames, books, calls, health, grant, staged, .. } = self;
        let first = books.next;
        let posted = post_staged(frames, books, calls, health, staged);
        if C::GRANTING == Granting::EachMessage && books.next != first {
            books.credits.sent_in_message(grant);
        }
        posted
    }
}

/// Posts the next `staged` requests as the rules demand.
#[inline(never)]
fn post_staged<const N: usize>(
    frames: &mut Frames<SendWr, N>,
    books: &mut SendBooks,
    calls: &mut QueuePairCalls,
    health: &mut Health,
    staged: u32,
) -> Result<Posted, SendError> {
    let first = books.next;
    if let Some(last) = staged.checked_sub(1) {
        frames.signal_ahead(last);
    }
    let at_once = match books.rules.posting {
        Posting::Chained => staged,
        Posting::OneAtATime => 1,
    };
    let mut count = 0;
    while count < staged {
        match frames.post_chain(calls, at_once) {
            // Unreachable: what was staged fitted.
            Ok(0) => break,
            Ok(posted) => count = count.wrapping_add(posted),
            Err(failure) => {
                if let PostFailure::Refused { accepted, .. } = failure {
                    books.next = first.plus(count.wrapping_add(accepted));
                }
                // The next one is signalled: what was accepted may lack its signalled end.
                books.until_signalled = 1;
                return Err(failed(failure, count, health));
            }
        }
    }
    books.next = first.plus(count);
    if count != 0 {
        books.until_signalled = books.rules.signal_every;
    }
    Ok(Posted { first, count })
}

/// A frame of a chain, to fill in and stage. Dropping it changes nothing.
pub struct ChainFrame<'chain, C: Carrier, const N: usize> {
    vacant: Vacant<'chain, SendWr, N>,
    books: &'chain SendBooks,
    carrier: &'chain C,
    grant: Sequence,
    staged: &'chain mut u32,
    until_signalled: &'chain mut u32,
}

impl<C: Carrier, const N: usize> ChainFrame<'_, C, N> {
    /// The payload's room, with whatever was in it last.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.vacant.bytes_mut().get_mut(C::ROOM_BYTES as usize..).unwrap_or_default()
    }

    /// Stages the first `payload_bytes` of the payload; answers the number that the message will have.
    ///
    /// # Errors
    /// [`SendError::TooLong`]: nothing was staged.
    #[inline(always)]
    pub fn stage(self, payload_bytes: usize) -> Result<Sequence, SendError> {
        let Self { mut vacant, books, carrier, grant, staged, until_signalled } = self;
        let room_bytes = room_bytes::<C, N>(vacant.ring());
        if payload_bytes > room_bytes as usize {
            return Err(too_long(payload_bytes, room_bytes));
        }
        let sequence = books.next.plus(*staged);
        // The chain's last is signalled when it is posted.
        let signalled = *until_signalled <= 1;
        let payload_bytes = payload_bytes as u32;
        books.prepare(&mut vacant, carrier, Message { sequence, payload_bytes, signalled, grant });
        *until_signalled = if signalled { books.rules.signal_every } else { until_signalled.wrapping_sub(1) };
        *staged = staged.wrapping_add(1);
        Ok(sequence)
    }
}
