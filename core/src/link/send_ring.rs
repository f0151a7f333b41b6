//! Sends: numbers, lengths, signalling, and what a refusal leaves behind.
//!
//! The rule this file protects: **a message that was refused has used up nothing**: its number is the next message's, its
//! frame the next frame. And a caller that follows [`SendFrame::post_more`] with a [`SendFrame::post`] gets every frame
//! back: every s-th send is signalled, the last that fits, and the last before idle.

use crate::link::carrier::Carrier;
use crate::link::error::{Fault, Health, SendError};
use crate::link::frame::{Frames, Mismatch, PostFailure, Vacant};
use crate::link::rules::{LinkRules, Posting};
use crate::link::sequence::Sequence;
use crate::link::work_id::Direction;
use crate::verbs::inline_calls::{Completion, QueuePairCalls};
use crate::verbs::{SendFlags, SendWr};

/// Whether another send follows at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// None that the caller knows of.
    Idle,
    /// One at least, posted with [`Follow::Idle`] in the end.
    More,
}

/// What a sender keeps besides its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBooks {
    /// The number of the next message.
    pub(crate) next: Sequence,
    /// Sends since the last signalled one.
    unsignalled: u32,
    room_bytes: u32,
    rules: LinkRules,
}

/// Frames and books of one direction.
pub(crate) struct SendRing<const N: usize> {
    frames: Frames<SendWr, N>,
    books: SendBooks,
}

impl<const N: usize> SendRing<N> {
    pub(crate) fn new<C: Carrier>(mut frames: Frames<SendWr, N>, rules: LinkRules, start: Sequence) -> Self {
        frames.set_kind(C::KIND);
        let room_bytes = frames.bounds().frame_bytes.saturating_sub(C::ROOM_BYTES);
        // The ring's bounds have the period, cut to half the depth.
        let rules = LinkRules { signal_every: frames.bounds().released_at_once, ..rules };
        Self { frames, books: SendBooks { next: start, unsignalled: 0, room_bytes, rules } }
    }

    #[inline]
    pub(crate) const fn frames(&self) -> &Frames<SendWr, N> {
        &self.frames
    }

    pub(crate) const fn frames_mut(&mut self) -> &mut Frames<SendWr, N> {
        &mut self.frames
    }

    pub(crate) fn into_frames(self) -> Frames<SendWr, N> {
        self.frames
    }

    #[inline]
    pub(crate) const fn books(&self) -> &SendBooks {
        &self.books
    }

    /// The next frame to fill in.
    #[inline]
    pub(crate) fn next_frame<'link, C: Carrier>(
        &'link mut self,
        calls: &'link mut QueuePairCalls,
        health: &'link mut Health,
        carrier: &'link C,
    ) -> Result<SendFrame<'link, C, N>, SendError> {
        if health.is_broken() || self.frames.free() == 0 {
            return Err(self.no_frame(health));
        }
        match self.frames.vacant() {
            Some(vacant) => Ok(SendFrame { vacant, books: &mut self.books, calls, health, carrier }),
            // Unreachable: there was a free one.
            None => Err(SendError::Full { depth: 0 }),
        }
    }

    #[cold]
    fn no_frame(&self, health: &Health) -> SendError {
        no_frame(&self.frames, health)
    }

    /// A chain to fill in.
    pub(crate) fn chain<'link, C: Carrier>(
        &'link mut self,
        calls: &'link mut QueuePairCalls,
        health: &'link mut Health,
        carrier: &'link C,
    ) -> SendChain<'link, C, N> {
        let unsignalled = self.books.unsignalled;
        SendChain { frames: &mut self.frames, books: &mut self.books, calls, health, carrier, staged: 0, unsignalled }
    }

    /// How many frames a completion gave back.
    #[inline]
    pub(crate) fn release(&mut self, completion: &Completion<'_>) -> Result<u32, Mismatch> {
        self.frames.release(completion).map(|returned| returned.released())
    }
}

#[cold]
fn no_frame<const N: usize>(frames: &Frames<SendWr, N>, health: &Health) -> SendError {
    match health.cause() {
        Some(cause) => SendError::Broken { cause },
        None if !frames.has_key() => SendError::Unregistered,
        None if frames.limit() == 0 => SendError::WorkIdsUsedUp,
        None => SendError::Full { depth: frames.limit() },
    }
}

#[cold]
fn failed(failure: PostFailure, accepted_before: u32, health: &mut Health) -> SendError {
    match failure {
        PostFailure::Refused { accepted, raw } => {
            SendError::Refused { accepted: accepted.wrapping_add(accepted_before), raw }
        }
        PostFailure::Unknown { raw } => {
            let cause = health.break_for(Fault::PostUnknown { direction: Direction::Send, raw });
            SendError::Broken { cause }
        }
    }
}

impl SendBooks {
    pub(crate) const fn room_bytes(&self) -> u32 {
        self.room_bytes
    }

    /// The payload's length, if it fits.
    #[inline]
    fn fitting(&self, payload_bytes: usize) -> Result<u32, SendError> {
        if payload_bytes > self.room_bytes as usize {
            return Err(SendError::TooLong { got_bytes: payload_bytes as u64, room_bytes: self.room_bytes });
        }
        Ok(payload_bytes as u32)
    }

    /// Stamps the number and writes the request; answers whether it is signalled.
    #[inline]
    fn prepare<C: Carrier, const N: usize>(
        &self,
        vacant: &mut Vacant<'_, SendWr, N>,
        carrier: &C,
        message: Message,
    ) -> bool {
        let Message { sequence, payload_bytes, ahead, unsignalled, follow } = message;
        let bounds = *vacant.ring().bounds();
        let wire_bytes = self.rules.wire_bytes(C::ROOM_BYTES, payload_bytes, bounds.frame_bytes);
        let signalled = match follow {
            Follow::Idle => true,
            Follow::More => {
                unsignalled.wrapping_add(1) >= self.rules.signal_every || vacant.ring().free() == ahead.wrapping_add(1)
            }
        };
        let mut flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        // 0 bytes need no inlining: the subtraction makes them the largest number there is.
        if wire_bytes.wrapping_sub(1) < self.rules.inline_limit_bytes {
            flags = flags.union(SendFlags::INLINE);
        }
        let immediate = carrier.stamp(vacant.bytes_mut(), sequence, payload_bytes);
        vacant.patch(wire_bytes, immediate, flags);
        signalled
    }
}

/// What is to be written into a frame and its request.
struct Message {
    sequence: Sequence,
    payload_bytes: u32,
    /// Messages staged before it.
    ahead: u32,
    /// Sends before it since the last signalled one.
    unsignalled: u32,
    follow: Follow,
}

/// A frame to fill in and post. Dropping it changes nothing: the frame is the next one again.
pub struct SendFrame<'link, C: Carrier, const N: usize> {
    vacant: Vacant<'link, SendWr, N>,
    books: &'link mut SendBooks,
    calls: &'link mut QueuePairCalls,
    health: &'link mut Health,
    carrier: &'link C,
}

impl<C: Carrier, const N: usize> SendFrame<'_, C, N> {
    /// The payload's room, with whatever was in it last.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.vacant.bytes_mut().get_mut(C::ROOM_BYTES as usize..).unwrap_or_default()
    }

    /// The number that the message will have.
    #[inline]
    pub fn sequence(&self) -> Sequence {
        self.books.next
    }

    /// Posts the first `payload_bytes` of the payload, signalled: its completion gives back this frame and all before it.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Refused`]: nothing was posted, the frame and its number are the next again.
    /// [`SendError::Broken`]: the provider does not say what it did, the link is broken.
    #[inline]
    pub fn post(self, payload_bytes: usize) -> Result<Sequence, SendError> {
        self.post_following(payload_bytes, Follow::Idle)
    }

    /// As [`SendFrame::post`], where another one follows at once: signalled only every so often
    /// ([`LinkRules::signal_every`]), and when it takes the last free place. The last one is to be posted with
    /// [`SendFrame::post`]; else the frames since the last signalled one come back only with a later one.
    ///
    /// # Errors
    /// Those of [`SendFrame::post`].
    #[inline]
    pub fn post_more(self, payload_bytes: usize) -> Result<Sequence, SendError> {
        self.post_following(payload_bytes, Follow::More)
    }

    #[inline]
    fn post_following(self, payload_bytes: usize, follow: Follow) -> Result<Sequence, SendError> {
        let Self { mut vacant, books, calls, health, carrier } = self;
        let sequence = books.next;
        let unsignalled = books.unsignalled;
        let payload_bytes = books.fitting(payload_bytes)?;
        let signalled =
            books.prepare(&mut vacant, carrier, Message { sequence, payload_bytes, ahead: 0, unsignalled, follow });
        if let Err(failure) = vacant.post(calls) {
            return Err(failed(failure, 0, health));
        }
        books.next = sequence.next();
        books.unsignalled = if signalled { 0 } else { unsignalled.wrapping_add(1) };
        Ok(sequence)
    }
}

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
    staged: u32,
    /// Sends since the last signalled one, the staged ones included.
    unsignalled: u32,
}

impl<'link, C: Carrier, const N: usize> SendChain<'link, C, N> {
    /// The next frame to fill in and stage.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::Unregistered`], [`SendError::Broken`]; what was staged stays staged.
    #[inline]
    pub fn next_frame(&mut self) -> Result<ChainFrame<'_, 'link, C, N>, SendError> {
        if self.health.is_broken() || self.frames.free() <= self.staged {
            return Err(no_frame(self.frames, self.health));
        }
        Ok(ChainFrame { chain: self })
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
    pub fn post(self) -> Result<Posted, SendError> {
        let Self { frames, books, calls, health, staged, .. } = self;
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
                    // Signalling starts anew: what was accepted may lack its signalled end.
                    books.unsignalled = books.rules.signal_every;
                    return Err(failed(failure, count, health));
                }
            }
        }
        books.next = first.plus(count);
        books.unsignalled = if count == 0 { books.unsignalled } else { 0 };
        Ok(Posted { first, count })
    }
}

/// A frame of a chain, to fill in and stage. Dropping it changes nothing.
pub struct ChainFrame<'chain, 'link, C: Carrier, const N: usize> {
    chain: &'chain mut SendChain<'link, C, N>,
}

impl<C: Carrier, const N: usize> ChainFrame<'_, '_, C, N> {
    /// The payload's room, with whatever was in it last.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        match self.chain.frames.vacant_ahead(self.chain.staged) {
            Some(vacant) => vacant.into_bytes_mut().get_mut(C::ROOM_BYTES as usize..).unwrap_or_default(),
            // Unreachable: there was a free one.
            None => Default::default(),
        }
    }

    /// Stages the first `payload_bytes` of the payload; answers the number that the message will have.
    ///
    /// # Errors
    /// [`SendError::TooLong`]: nothing was staged.
    #[inline]
    pub fn stage(self, payload_bytes: usize) -> Result<Sequence, SendError> {
        let SendChain { frames, books, carrier, staged, unsignalled, .. } = self.chain;
        let payload_bytes = books.fitting(payload_bytes)?;
        let sequence = books.next.plus(*staged);
        let Some(mut vacant) = frames.vacant_ahead(*staged) else {
            // Unreachable: there was a free one.
            return Err(SendError::Full { depth: *staged });
        };
        let message =
            Message { sequence, payload_bytes, ahead: *staged, unsignalled: *unsignalled, follow: Follow::More };
        let signalled = books.prepare(&mut vacant, *carrier, message);
        *unsignalled = if signalled { 0 } else { unsignalled.wrapping_add(1) };
        *staged = staged.wrapping_add(1);
        Ok(sequence)
    }
}
