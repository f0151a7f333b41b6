//! Sends: numbers, lengths, signalling, and what a refusal leaves behind.
//!
//! The rule this file protects: **a message that was refused has used up nothing**: its number is the next message's, its
//! frame the next frame. And a caller that follows [`SendFrame::post_more`] with a [`SendFrame::post`] gets every frame
//! back: every s-th send is signalled, the last that fits, and the last before idle.

use crate::link::bounds::{PostFailure, SendKind};
use crate::link::carrier::{Carrier, Granting};
use crate::link::credits::{CreditMessage, CreditMode, Credits, GrantBy};
use crate::link::error::{Fault, SendError};
use crate::link::frame::{FrameKey, Frames, Vacant};
use crate::link::health::{Health, Noted, Refusal};
use crate::link::rules::{LinkRules, WireLength};
use crate::link::sequence::Sequence;
use crate::link::work_id::Direction;
use crate::verbs::inline_calls::{Completion, QueuePairCalls};
use crate::verbs::{Be32, SendFlags, SendWr};

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
    /// Sends until the next signalled one, which counts: 1 or 0 when that is the next.
    pub(super) until_signalled: u32,
    /// Credits that were had and given.
    pub(super) credits: Credits,
    /// Number of the last credit message's request; 0, which no request has, before the first.
    credit_id: u64,
    /// Whether requests go out as long as their message, and not inline: the common case, decided by one look.
    plain: bool,
    pub(super) rules: LinkRules,
}

/// Frames and books of one direction.
#[repr(C)]
pub(crate) struct SendRing<const N: usize> {
    books: SendBooks,
    frames: Frames<SendWr, N>,
}

impl<const N: usize> SendRing<N> {
    pub(crate) fn new<C: Carrier>(
        mut frames: Frames<SendWr, N>,
        rules: LinkRules,
        start: Sequence,
        credits: Credits,
    ) -> Self {
        frames.set_kind(C::KIND);
        // The ring's bounds have the period, cut to half the depth.
        let rules = LinkRules { signal_every: frames.bounds().released_at_once, ..rules };
        let plain = rules.wire_length == WireLength::Exact && rules.inline_limit_bytes == 0;
        Self {
            frames,
            books: SendBooks { next: start, until_signalled: rules.signal_every, credits, credit_id: 0, plain, rules },
        }
    }

    #[inline]
    pub(crate) const fn frames(&self) -> &Frames<SendWr, N> {
        &self.frames
    }

    pub(crate) fn into_frames(self) -> Frames<SendWr, N> {
        self.frames
    }

    /// Sets the number of the next message; for a ring of which nothing was posted.
    pub(crate) fn set_start(&mut self, start: Sequence, credits: Credits) {
        self.books.next = start;
        self.books.credits = credits;
        self.set_limit();
    }

    /// Names the region of the frames.
    pub(crate) fn set_key(&mut self, key: FrameKey) {
        self.frames.set_key(key);
        self.set_limit();
    }

    #[inline(always)]
    pub(crate) const fn credits(&self) -> &Credits {
        &self.books.credits
    }

    pub(crate) const fn credits_mut(&mut self) -> &mut Credits {
        &mut self.books.credits
    }

    pub(crate) const fn next_sequence(&self) -> Sequence {
        self.books.next
    }

    /// The next frame to fill in.
    #[inline(always)]
    pub(crate) fn next_frame<'link, C: Carrier>(
        &'link mut self,
        calls: &'link mut QueuePairCalls,
        health: &'link mut Health,
        carrier: &'link C,
        grant: Sequence,
    ) -> Result<SendFrame<'link, C, N>, SendError> {
        if !self.frames.has_vacant_if(health.open(), 0) {
            return Err(no_frame(&self.frames, &self.books, 0, health));
        }
        match self.frames.vacant() {
            Some(vacant) => Ok(SendFrame { vacant, books: &mut self.books, calls, health, carrier, grant }),
            // Unreachable: there was a free one.
            None => Err(SendError::Full { depth: 0 }),
        }
    }

    /// Frames and books, for a chain.
    #[inline(always)]
    pub(crate) const fn parts(&mut self) -> (&mut Frames<SendWr, N>, &mut SendBooks) {
        (&mut self.frames, &mut self.books)
    }

    /// Posts a credit message with this grant, if there is a place; answers how many messages it grants.
    #[cold]
    #[inline(never)]
    pub(crate) fn post_credit<C: Carrier>(
        &mut self,
        calls: &mut QueuePairCalls,
        health: &mut Health,
        carrier: &C,
        grant: Sequence,
    ) -> Result<u32, SendError> {
        let Self { frames, books } = self;
        if health.is_broken() {
            return Ok(0);
        }
        let Some(mut vacant) = frames.vacant_kept() else { return Ok(0) };
        let credit_bytes = carrier.stamp_credit(vacant.bytes_mut(), CreditMessage { place: books.next, grant });
        let (wire_bytes, more_flags) = books.by_rules(credit_bytes, vacant.ring().bounds().frame_bytes);
        vacant.set_wire_bytes(wire_bytes);
        vacant.set_request(Be32::new(0), SendFlags::SIGNALED | more_flags);
        let credit_id = vacant.wr_id();
        if let Err(failure) = vacant.post_as(SendKind::Plain, calls) {
            return Err(failed(failure, 0, health));
        }
        books.credit_id = credit_id;
        books.until_signalled = books.rules.signal_every;
        let messages = books.credits.sent_alone(grant);
        self.set_limit();
        Ok(messages)
    }

    /// Takes in the grant that came with a message, where messages carry one.
    #[inline(always)]
    pub(crate) fn take_along<C: Carrier>(
        &mut self,
        grant: Sequence,
        health: &mut Health,
        completion: Completion<'_>,
    ) -> Result<(), Refusal> {
        if C::GRANTING == Granting::Apart || self.books.credits.mode() == CreditMode::Off {
            return Ok(());
        }
        match self.books.credits.take(grant, self.books.next, GrantBy::Message) {
            Ok(0) => Ok(()),
            Ok(_) => {
                self.set_limit();
                Ok(())
            }
            Err(absurd) => Err(health.absurd(completion, grant, absurd)),
        }
    }

    /// Takes in the grant of a credit message that has come.
    #[inline(never)]
    pub(crate) fn take_alone(&mut self, grant: Noted, health: &mut Health, completion: Completion<'_>) -> Refusal {
        let grant = Sequence::new(health.noted(grant));
        match self.books.credits.take(grant, self.books.next, GrantBy::CreditMessage) {
            Ok(messages) => {
                self.set_limit();
                Refusal::Granted(health.note(messages))
            }
            Err(absurd) => health.absurd(completion, grant, absurd),
        }
    }

    /// How many messages' frames a completion gave back; a credit message's is not counted.
    #[inline(always)]
    pub(crate) fn accept(&mut self, health: &mut Health, completion: Completion<'_>) -> Result<u32, Refusal> {
        let Some(released) = self.frames.end(completion, health.released_at_once(Direction::Send)) else {
            return Err(self.accept_on_credit(health, completion));
        };
        if completion.outcome().is_err() {
            core::hint::cold_path();
            return Err(health.failed(completion));
        }
        Ok(released)
    }

    /// What is not taken at a glance: with credits that is every completion, since the limit changes with each.
    #[inline(never)]
    fn accept_on_credit(&mut self, health: &mut Health, completion: Completion<'_>) -> Refusal {
        if health.is_broken() {
            return health.mismatched(completion, self.frames.settle(completion));
        }
        let ended = match self.books.credits.mode() {
            CreditMode::On => self.frames.end(completion, self.frames.bounds().released_at_once),
            CreditMode::Off => None,
        };
        let Some(released) = ended else { return health.mismatched(completion, self.frames.mismatch(completion)) };
        if completion.outcome().is_err() {
            return health.failed(completion);
        }
        self.set_limit();
        // A credit message is signalled, and requests complete in order: its own completion is what gives its place back.
        let is_credit = completion.wr_id() == self.books.credit_id;
        Refusal::Sent(health.note(if is_credit { released.wrapping_sub(1) } else { released }))
    }

    /// Lets as many requests be in flight as there are credits for: see `credits`.
    fn set_limit(&mut self) {
        let in_flight = self.frames.in_flight();
        self.frames.set_ceiling(in_flight.saturating_add(self.books.credits.left(self.books.next)));
    }
}

/// Why there is no frame; the numbers are in the ring and the health (see `health`).
#[derive(Clone, Copy)]
enum NoFrame {
    Broken,
    Unregistered,
    WorkIdsUsedUp,
    Full,
    NoCredit,
}

#[cold]
#[inline(never)]
fn why_no_frame<const N: usize>(frames: &Frames<SendWr, N>, staged: u32, health: &Health) -> NoFrame {
    if health.is_broken() {
        NoFrame::Broken
    } else if !frames.has_key() {
        NoFrame::Unregistered
    } else if !frames.may_post() {
        NoFrame::WorkIdsUsedUp
    } else if frames.in_flight().saturating_add(staged) < frames.depth() {
        NoFrame::NoCredit
    } else {
        NoFrame::Full
    }
}

#[inline(always)]
pub(super) fn no_frame<const N: usize>(
    frames: &Frames<SendWr, N>,
    books: &SendBooks,
    staged: u32,
    health: &Health,
) -> SendError {
    let full = SendError::Full { depth: frames.depth() };
    match why_no_frame(frames, staged, health) {
        // A broken link has a cause.
        NoFrame::Broken => health.cause().map_or(full, |cause| SendError::Broken { cause }),
        NoFrame::Unregistered => SendError::Unregistered,
        NoFrame::WorkIdsUsedUp => SendError::WorkIdsUsedUp,
        NoFrame::Full => full,
        NoFrame::NoCredit => SendError::NoCredit { until: books.credits.until() },
    }
}

/// What a post failed with; breaks the link if nobody knows what was accepted.
#[cold]
#[inline(never)]
pub(super) fn failed(failure: PostFailure, accepted_before: u32, health: &mut Health) -> SendError {
    match failure {
        PostFailure::Refused { accepted, raw } => {
            SendError::Refused { accepted: accepted.wrapping_add(accepted_before), raw }
        }
        PostFailure::Unknown { raw } => {
            let cause = Fault::PostUnknown { direction: Direction::Send, raw };
            health.break_now(cause);
            SendError::Broken { cause }
        }
    }
}

/// Bytes of payload that a frame has room for.
#[inline(always)]
pub(super) fn room_bytes<C: Carrier, const N: usize>(frames: &Frames<SendWr, N>) -> u32 {
    frames.bounds().frame_bytes.saturating_sub(C::ROOM_BYTES)
}

#[cold]
pub(super) fn too_long(payload_bytes: usize, room_bytes: u32) -> SendError {
    SendError::TooLong { got_bytes: payload_bytes as u64, room_bytes }
}

impl SendBooks {
    /// Stamps the number and writes the request.
    #[inline(always)]
    pub(super) fn prepare<C: Carrier, const N: usize>(
        &self,
        vacant: &mut Vacant<'_, SendWr, N>,
        carrier: &C,
        message: Message,
    ) {
        let Message { sequence, payload_bytes, signalled, grant } = message;
        let flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let immediate = carrier.stamp(vacant.bytes_mut(), sequence, payload_bytes, grant);
        let message_bytes = C::ROOM_BYTES.wrapping_add(payload_bytes);
        let flags = if self.plain {
            vacant.set_wire_bytes(message_bytes);
            flags
        } else {
            let (wire_bytes, more_flags) = self.by_rules(message_bytes, vacant.ring().bounds().frame_bytes);
            vacant.set_wire_bytes(wire_bytes);
            flags | more_flags
        };
        vacant.set_request(immediate, flags);
    }

    /// Whole frames, and what goes inline: bytes on the wire, and the flags that they ask for.
    #[inline(always)]
    fn by_rules(&self, message_bytes: u32, frame_bytes: u32) -> (u32, SendFlags) {
        let wire_bytes = self.rules.wire_bytes(0, message_bytes, frame_bytes);
        // 0 bytes need no inlining: the subtraction makes them the largest number there is.
        let inline = wire_bytes.wrapping_sub(1) < self.rules.inline_limit_bytes;
        (wire_bytes, if inline { SendFlags::INLINE } else { SendFlags::empty() })
    }
}

/// What is to be written into a frame and its request.
pub(super) struct Message {
    pub(super) sequence: Sequence,
    pub(super) payload_bytes: u32,
    pub(super) signalled: bool,
    pub(super) grant: Sequence,
}

/// A frame to fill in and post. Dropping it changes nothing: the frame is the next one again.
pub struct SendFrame<'link, C: Carrier, const N: usize> {
    vacant: Vacant<'link, SendWr, N>,
    books: &'link mut SendBooks,
    calls: &'link mut QueuePairCalls,
    health: &'link mut Health,
    carrier: &'link C,
    /// What this end grants with the message, where messages carry that.
    grant: Sequence,
}

impl<C: Carrier, const N: usize> SendFrame<'_, C, N> {
    /// The payload's room, with whatever was in it last.
    #[inline(always)]
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
    #[inline(always)]
    pub fn post(self, payload_bytes: usize) -> Result<Sequence, SendError> {
        self.post_following(payload_bytes, Follow::Idle)
    }

    /// As [`SendFrame::post`], where another one follows at once: signalled only every so often
    /// ([`LinkRules::signal_every`]), and when it takes the last free place. The last one is to be posted with
    /// [`SendFrame::post`]; else the frames since the last signalled one come back only with a later one.
    ///
    /// # Errors
    /// Those of [`SendFrame::post`].
    #[inline(always)]
    pub fn post_more(self, payload_bytes: usize) -> Result<Sequence, SendError> {
        self.post_following(payload_bytes, Follow::More)
    }

    #[inline(always)]
    fn post_following(self, payload_bytes: usize, follow: Follow) -> Result<Sequence, SendError> {
        let Self { mut vacant, books, calls, health, carrier, grant } = self;
        let sequence = books.next;
        let room_bytes = room_bytes::<C, N>(vacant.ring());
        if payload_bytes > room_bytes as usize {
            return Err(too_long(payload_bytes, room_bytes));
        }
        let payload_bytes = payload_bytes as u32;
        let signalled = match follow {
            Follow::Idle => true,
            // Every so often, and when it takes the last free place.
            Follow::More => books.until_signalled <= 1 || !vacant.ring().has_vacant(1),
        };
        books.prepare(&mut vacant, carrier, Message { sequence, payload_bytes, signalled, grant });
        if let Err(failure) = vacant.post(calls) {
            return Err(failed(failure, 0, health));
        }
        books.next = books.next.next();
        books.until_signalled =
            if signalled { books.rules.signal_every } else { books.until_signalled.wrapping_sub(1) };
        if C::GRANTING == Granting::EachMessage {
            books.credits.sent_in_message(grant);
        }
        Ok(sequence)
    }
}
