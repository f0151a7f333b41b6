//! A link: one queue pair, its rings and numbers. It breaks once, for good.
//!
//! The rule this file protects: **after the first fault no frame is handed out and nothing is posted**, while the books
//! of what is outstanding go on, so that teardown knows what it waits for.

use crate::link::bounds::{Bounds, Origin};
use crate::link::carrier::{Carrier, Granting};
use crate::link::credits::{CreditMode, Credits, LEAST_DEPTH, MOST_RECEIVES};
use crate::link::error::{AgreeError, AlreadyStarted, Fault, LinkError, ReceiveError, SendError};
use crate::link::frame::{self, FrameKey, FrameMemory, Frames, HeldMemory};
use crate::link::header::Checksum;
use crate::link::health::{Health, Refusal};
use crate::link::recv_ring::{RecvFrame, RecvRing};
use crate::link::rules::{LinkSetup, LinkSetupError};
use crate::link::send_chain::SendChain;
use crate::link::send_ring::{SendFrame, SendRing};
use crate::link::sequence::Sequence;
use crate::link::work_id::{Direction, WorkId};
use crate::verbs::EventType;
use crate::verbs::inline_calls::{Completion, PollError, PostError, QueuePairCalls};

/// One end of a conversation: `SEND` frames to send from, `RECV` to receive into, over one queue pair.
///
/// `SEND` and `RECV` are powers of two, at most 32768. A queue that holds fewer requests than its ring has frames has
/// that many in flight at most.
///
/// A link holds its requests in place: 192 bytes for each send frame and 64 for each receive frame. Rings of thousands
/// want a thread with a large stack, since the link is built there.
#[repr(C)]
pub struct Link<C: Carrier, const SEND: usize, const RECV: usize> {
    calls: QueuePairCalls,
    health: Health,
    carrier: C,
    send: SendRing<SEND>,
    recv: RecvRing<RECV>,
}

/// What a completion means.
pub enum Event<'link, const RECV: usize> {
    /// Sends are done: their frames have left this end, which says nothing of the other.
    Sent {
        /// How many messages; 0 when it was a credit message only.
        released: u32,
    },
    /// A credit message came: the other end takes more messages.
    Granted {
        /// How many more.
        messages: u32,
    },
    /// The next message came.
    Received(RecvFrame<'link, RECV>),
    /// A queue's teardown marker came: nothing of it is outstanding any more. The link takes no more posts.
    Drained(Direction),
}

/// Requests that the device has, or may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Outstanding {
    /// Sends.
    pub sends: u32,
    /// Receives.
    pub receives: u32,
}

impl<C: Carrier, const SEND: usize, const RECV: usize> Link<C, SEND, RECV> {
    /// A link over a queue pair and memory for its frames: first `SEND` to send from, then `RECV` to receive into.
    ///
    /// Nothing is posted. The memory is not registered here: see [`LinkSetup::key`] and [`Link::set_key`].
    ///
    /// # Errors
    /// [`LinkSetupError`]; the memory is then dropped, and static storage can be claimed again, but where work request numbers
    /// are used up: it then stays claimed. [`LinkSetup::check`] asks beforehand.
    pub fn new(
        carrier: C,
        calls: QueuePairCalls,
        memory: FrameMemory,
        setup: LinkSetup,
    ) -> Result<Self, LinkSetupError> {
        setup.check::<C, SEND, RECV>(&memory)?;
        let LinkSetup { send_queue, recv_queue, geometry, rules, tx_start, rx_start, key } = setup;
        let frame_bytes = geometry.frame_bytes;
        let depth = rules.depth(geometry.send_capacity, frame_bytes).min(SEND as u32);
        let released_at_once = rules.signal_every.clamp(1, (depth / 2).max(1));
        let byte_len = rules.byte_len;
        let (kept, at_a_glance) = match rules.credits {
            CreditMode::Off => (0, released_at_once),
            CreditMode::On => (1, 0),
        };
        let send_bounds = Bounds { frame_bytes, depth, kept, released_at_once, byte_len };
        let depth = rules.depth(geometry.recv_capacity, frame_bytes).min(RECV as u32);
        let recv_bounds = Bounds { frame_bytes, depth, kept: 0, released_at_once: 1, byte_len };
        let credits = Credits::new(rules.credits, depth, tx_start, rx_start);
        let (send_memory, recv_memory) =
            memory.split_at(SEND.wrapping_mul(frame_bytes as usize)).map_err(|memory| {
                let got_bytes = memory.len_bytes() as u64;
                LinkSetupError::MemoryTooSmall { got_bytes, need_bytes: got_bytes.saturating_add(1) }
            })?;
        let qp_num = calls.qp_num();
        let send = Frames::new(send_memory, Origin { queue: send_queue, qp_num }, send_bounds);
        let recv = Frames::new(recv_memory, Origin { queue: recv_queue, qp_num }, recv_bounds);
        let (Some(send), Some(recv)) = (send, recv) else { return Err(LinkSetupError::WorkIdsUsedUp) };
        let send = SendRing::new::<C>(send, rules, tx_start, credits);
        let recv = RecvRing::new(recv, rules, rx_start);
        let health = Health::new(at_a_glance, 1);
        let mut link = Self { calls, health, carrier, send, recv };
        if let Some(key) = key {
            link.set_key(key);
        }
        Ok(link)
    }

    /// Says under which key the frames are registered. Until then every post is `Unregistered`.
    pub fn set_key(&mut self, key: FrameKey) {
        self.send.set_key(key);
        self.recv.frames_mut().set_key(key);
    }

    /// Sets the first numbers, where they are agreed on only after the link was made.
    ///
    /// # Errors
    /// [`AlreadyStarted`] once anything was posted: numbers in use do not change, there is no resynchronising.
    pub fn set_starts(&mut self, tx_start: Sequence, rx_start: Sequence) -> Result<(), AlreadyStarted> {
        if !self.send.frames().is_untouched() || !self.recv.frames().is_untouched() {
            return Err(AlreadyStarted);
        }
        self.send.set_start(tx_start, self.send.credits().started_at(tx_start, rx_start));
        self.recv.set_start(rx_start);
        Ok(())
    }

    /// Says how many receives the other end posts before the first message, where the link carries credits: so many less
    /// one may be sent to begin with, and no grant can be for more. Before that nothing may be sent. This end is to post
    /// all its receives ([`recv_depth`](Self::recv_depth)), before the other end sends.
    ///
    /// # Errors
    /// [`AgreeError::Receives`] if no link with credits can be made of so many; [`AgreeError::AlreadyStarted`] once a
    /// message was posted. Without credits there is nothing to agree on, and no error.
    pub fn agree_credits(&mut self, peer_receives: u32) -> Result<(), AgreeError> {
        if self.credit_mode() == CreditMode::Off {
            return Ok(());
        }
        if !(LEAST_DEPTH..=MOST_RECEIVES).contains(&peer_receives) {
            return Err(AgreeError::Receives { got: peer_receives, least: LEAST_DEPTH, most: MOST_RECEIVES });
        }
        if !self.send.frames().is_untouched() {
            return Err(AgreeError::AlreadyStarted);
        }
        let next = self.send.next_sequence();
        self.send.set_start(next, self.send.credits().agreed(peer_receives, next));
        Ok(())
    }

    /// Whether the link carries credits.
    pub const fn credit_mode(&self) -> CreditMode {
        self.send.credits().mode()
    }

    /// How many messages the other end takes now, beyond those that were sent; very many where there are no credits.
    pub const fn credits_left(&self) -> u32 {
        self.send.credits().left(self.send.next_sequence())
    }

    /// The number of the next message, if the other end has granted no credit for it.
    pub const fn no_credit(&self) -> Option<Sequence> {
        if self.credits_left() == 0 { Some(self.send.next_sequence()) } else { None }
    }

    /// Posts a credit message if one is due: the other end may be waiting for it. Answers how many messages it grants; 0 if
    /// none is due, or there is no place for it before a send completes.
    ///
    /// With credits, it is to be called whenever completions were taken or receives were posted, after that; it costs a few
    /// instructions where nothing is due. What was written into the frame that comes next is then in the one after it.
    ///
    /// # Errors
    /// [`SendError::Refused`]: nothing was granted, and it is due again. [`SendError::Broken`]: the provider does not say
    /// what it did, the link has just been broken.
    #[inline]
    pub fn grant_credits(&mut self) -> Result<u32, SendError> {
        let Self { calls, health, carrier, send, recv, .. } = self;
        match send.credits_mut().due(recv.expected(), recv.frames().in_flight()) {
            Some(grant) => send.post_credit(calls, health, carrier, grant),
            None => Ok(0),
        }
    }

    /// Whether [`grant_credits`](Self::grant_credits) would post a credit message, if there is a place for it; never without
    /// credits.
    #[inline]
    pub const fn grant_is_due(&mut self) -> bool {
        self.send.credits_mut().due(self.recv.expected(), self.recv.frames().in_flight()).is_some()
    }

    /// Whether the other end has no more than half of its window left, as far as it was told; never without credits. Then what
    /// is due should go out at once, and can otherwise wait for what this end has to send first.
    #[inline]
    pub const fn peer_is_short_of_credit(&self) -> bool {
        self.send.credits().is_short(self.recv.expected())
    }

    /// What goes along with a message, where each message carries a grant.
    #[inline(always)]
    fn grant_along(&self) -> Sequence {
        match C::GRANTING {
            Granting::EachMessage => self.send.credits().grant(self.recv.expected(), self.recv.frames().in_flight()),
            Granting::Apart => Sequence::new(0),
        }
    }

    /// The next frame to fill in and post.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::NoCredit`], [`SendError::Unregistered`], [`SendError::Broken`].
    #[inline(always)]
    pub fn next_frame(&mut self) -> Result<SendFrame<'_, C, SEND>, SendError> {
        let grant = self.grant_along();
        self.send.next_frame(&mut self.calls, &mut self.health, &self.carrier, grant)
    }

    /// Messages to be staged and posted in one call.
    #[inline(always)]
    pub fn chain(&mut self) -> SendChain<'_, C, SEND> {
        let grant = self.grant_along();
        let (frames, books) = self.send.parts();
        SendChain::new(frames, books, &mut self.calls, &mut self.health, &self.carrier, grant)
    }

    /// Posts at most `max` receives, of the frames that are not posted; answers how many.
    ///
    /// # Errors
    /// [`ReceiveError`]; those that it counts as accepted are posted.
    #[inline(always)]
    pub fn post_receives(&mut self, max: usize) -> Result<usize, ReceiveError> {
        match max {
            1 => self.recv.post_one(&mut self.calls, &mut self.health),
            _ => self.recv.post(&mut self.calls, &mut self.health, max),
        }
    }

    /// Takes a completion of this link's queue pair.
    ///
    /// # Errors
    /// [`LinkError::ForeignQueue`] and [`LinkError::ForeignQueuePair`] leave the link as it was; [`LinkError::Fault`]
    /// breaks it; [`LinkError::Broken`] is the answer to all that come after that, but for teardown markers.
    #[inline(always)]
    pub fn accept(&mut self, completion: &Completion<'_>) -> Result<Event<'_, RECV>, LinkError> {
        let completion = *completion;
        // Whether the link is broken is not asked: no completion matches a broken one (`Health::released_at_once`).
        let refusal = match WorkId::from_raw(completion.wr_id()).direction() {
            Direction::Send => match self.send.accept(&mut self.health, completion) {
                Ok(released) => return Ok(Event::Sent { released }),
                Err(refusal) => refusal,
            },
            Direction::Receive => {
                match self.recv.accept(&mut self.calls, &mut self.health, &self.carrier, completion) {
                    Ok(message) => match self.send.take_along::<C>(message.grant(), &mut self.health, completion) {
                        Ok(()) => {
                            let frame = message.into_frame(&mut self.calls, &mut self.health);
                            return Ok(Event::Received(frame));
                        }
                        Err(refusal) => refusal,
                    },
                    Err(Refusal::Credit(grant)) => self.send.take_alone(grant, &mut self.health, completion),
                    Err(refusal) => refusal,
                }
            }
        };
        match refusal {
            Refusal::Drained(direction) => Ok(Event::Drained(direction)),
            Refusal::Sent(released) => Ok(Event::Sent { released: self.health.noted(released) }),
            Refusal::Granted(messages) => Ok(Event::Granted { messages: self.health.noted(messages) }),
            refusal => Err(self.health.error(refusal, completion, self.calls.qp_num())),
        }
    }

    /// Breaks the link because polling its completion queue failed: completions are lost.
    pub fn break_with(&mut self, error: PollError) {
        self.health.break_now(Fault::Poll(error));
    }

    /// Breaks since completions were taken out of the queue and will not be given to [`accept`](Self::accept).
    pub fn abandon(&mut self) {
        self.health.break_now(Fault::Abandoned);
    }

    /// Breaks for what the device reported on its own.
    pub fn break_for_event(&mut self, event: EventType) {
        self.health.break_now(Fault::Device { event });
    }

    /// Posts a queue's teardown marker, for a queue pair in the error state; the link takes no more posts. Its completion
    /// is [`Event::Drained`], whatever its status is.
    ///
    /// # Errors
    /// What the provider answers. The queue pair is then to be destroyed without waiting.
    pub fn post_marker(&mut self, direction: Direction) -> Result<(), PostError> {
        self.health.break_now(Fault::Teardown { direction });
        frame::post_marker(&mut self.calls, direction)?;
        self.health.marker_posted(direction);
        Ok(())
    }

    /// What the device has, or may have.
    pub const fn outstanding(&self) -> Outstanding {
        Outstanding {
            sends: if self.health.is_drained(Direction::Send) { 0 } else { self.send.frames().in_flight() },
            receives: if self.health.is_drained(Direction::Receive) { 0 } else { self.recv.frames().in_flight() },
        }
    }

    /// The numbers of the requests that [`outstanding`](Self::outstanding) counts: sends first, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = WorkId> {
        let Outstanding { sends, receives } = self.outstanding();
        let sends = self.send.frames().pending().take(sends as usize);
        sends.chain(self.recv.frames().pending().take(receives as usize))
    }

    /// Why the link is broken, if it is.
    pub const fn cause(&self) -> Option<Fault> {
        self.health.cause()
    }

    /// The number of the next message to be sent.
    pub const fn next_sequence(&self) -> Sequence {
        self.send.next_sequence()
    }

    /// The number of the next message to come.
    pub const fn expected_sequence(&self) -> Sequence {
        self.recv.expected()
    }

    /// Whether payloads carry a checksum.
    pub fn checksum(&self) -> Checksum {
        self.carrier.checksum()
    }

    /// Sends that may be in flight at once; with credits, the place for a credit message is not counted.
    pub const fn send_depth(&self) -> u32 {
        self.send.frames().depth()
    }

    /// Receives that may be posted at once.
    pub const fn recv_depth(&self) -> u32 {
        self.recv.frames().bounds().depth
    }

    /// The largest payload, bytes.
    pub const fn payload_room_bytes(&self) -> u32 {
        self.send.frames().bounds().frame_bytes.saturating_sub(C::ROOM_BYTES)
    }

    /// The queue pair's number.
    pub const fn qp_num(&self) -> u32 {
        self.calls.qp_num()
    }

    /// Takes the link apart; its memory can be had again once the queue pair is gone ([`HeldMemory::release`]).
    pub fn into_memory(self) -> HeldMemory {
        HeldMemory::of(self.send.into_frames().into_memory(), self.recv.into_frames().into_memory())
    }
}

impl<C: Carrier, const SEND: usize, const RECV: usize> core::fmt::Debug for Link<C, SEND, RECV> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Link")
            .field("qp_num", &self.qp_num())
            .field("outstanding", &self.outstanding())
            .field("next_sequence", &self.next_sequence())
            .field("expected_sequence", &self.expected_sequence())
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}
