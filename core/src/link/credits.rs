//! Credits: a sender sends only what finds a receive posted.
//!
//! An unreliable queue pair drops a message that finds no receive, without a word at the other end. So the receiver
//! grants messages, cumulatively, and the sender stops at the grant ([`SendError::NoCredit`]).
//!
//! The rule this file protects: **for every message that may be on its way there is a receive posted**, and **no order of
//! events leaves both ends waiting for each other.**
//!
//! # Grants
//!
//! A grant is the first number that may *not* be sent yet: numbers are agreed per direction, so a number is a count from
//! the agreed start, modular like it. With `expected` the number of the next
//! message to come and `posted` the receives that the device has, a receiver may grant up to `expected + posted - 1`: one
//! receive is kept for a credit message of the other end. The sum never falls (a message moves one from `posted` to
//! `expected`; posting adds), so a grant once given stays covered; what would make it fall, a credit message's receive that
//! cannot be posted again, breaks the link. The first grant is agreed before the first message: each end posts all its
//! receives, and the other begins with one less than that.
//!
//! # How they travel
//!
//! In each message's header, where the carrier has one; and in credit messages, which take no number, are not handed out,
//! and whose receive is posted again at once. One place of each ring is kept for them, in which nothing else is posted. A
//! credit message names the number that its sender sends next: it stands at one place in the order, so a repeated, late or
//! overtaking one is told like any other message.
//!
//! At most **one credit message per direction is not yet known to have been taken in.** No answer is needed to know: one is
//! sent when `G` was granted before; a message with the number `G` or a later one can only come from a sender that knows of
//! a later grant, that is, which has taken in that credit message or one granted after it. Both arrive in order.
//!
//! # Why nobody waits for ever
//!
//! Let A have something to send and B keep receiving and posting receives again. Suppose that A stays without credit: it
//! has sent every number below the last grant `G'` that it took in.
//!
//! 1. No credit message is on its way: else it arrives, since A keeps a receive for it. So A knows all that B granted.
//! 2. B receives all of them. Then `expected = G'`, which is after what was granted before, so the last credit message is
//!    proven, and B may send another one.
//! 3. B has a receive more than the one it keeps, sooner or later. Then there is something to grant, and since all that was
//!    granted has come, B does so for a single receive (`Credits::due`), however small a part of the window it is.
//! 4. B's ring has a place for it: messages leave one free; only an earlier credit message can be in it, which is
//!    signalled, so it completes, and gives back all before it. On a reliable queue pair, that needs a receive at A: there
//!    is one, since messages have credit, and a credit message its receive.
//!
//! Nothing in this depends on the other direction, so both can be busy or idle. It depends on B looking: at each step B
//! polls, or posts receives, and asks then whether a grant is due.
//!
//! # What a lost credit message costs
//!
//! Credits keep a receive posted for each message; they do not make a lossy network whole. A credit message that is lost on
//! an unreliable queue pair leaves no gap, since it has no number, and is not sent again: its sender waits for the proof,
//! which only a message beyond the earlier grant can be, and that grant is all that the other end has.
//!
//! - Where headers carry grants, the next message that its sender sends brings the same grant, or a later one: nothing is
//!   lost. Where none is sent, it is as without headers.
//! - On the immediate carrier nothing else brings it. Its direction stays without credit until the link is made anew. The
//!   end that wants to send learns it from [`SendError::NoCredit`], which goes on, and from its deadline, which names the
//!   message that has no credit; the other end sees nothing but that nothing comes.
//!
//! Nothing is corrupted, nothing is handed out that should not be, and the other direction goes on.
//!
//! # What a post costs
//!
//! Nothing. A ring refuses a request when as many are in flight as may be, and credits lower that limit: to what is in
//! flight and the credits left, a sum that posting a message does not change. It is worked out anew when sends complete,
//! when a grant comes, and when a credit message is posted.
//!
//! # When one is sent
//!
//! When half of the window (the receives less one) is not granted, or when all that was granted has come. So a stream costs
//! one credit message per half window, and the window never runs dry between two that answer each other.
//!
//! Whoever has an answer to send first may leave it until then, as long as the other end has more than half of its window
//! left (`Credits::is_short`): one message at a time never makes it short in rings of 4 and more, a stream does.

use crate::link::carrier::{Carrier, CarrierKind};
use crate::link::crc32c::crc32c;
use crate::link::sequence::Sequence;
use crate::verbs::LinkLayer;

#[allow(unused_imports, reason = "for the documentation")]
use crate::link::error::SendError;

/// Whether a link carries credits; both ends must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum CreditMode {
    /// A sender is not told how many receives are posted: what finds none is lost on an unreliable queue pair.
    #[default]
    Off,
    /// The receiver grants as many messages as it has receives posted, but one.
    On,
}

impl CreditMode {
    /// On, but for the raw carrier, which has no numbers, and Thunderbolt, whose hardware keeps a send back until a
    /// receive is posted.
    pub const fn default_for<C: Carrier>(link_layer: LinkLayer) -> Self {
        match (C::CARRIER, link_layer) {
            (CarrierKind::Raw, _) | (_, LinkLayer::THUNDERBOLT) => Self::Off,
            _ => Self::On,
        }
    }
}

/// The least depth of a queue of a link with credits: one for messages, one for credit messages.
pub const LEAST_DEPTH: u32 = 2;
/// The most receives that an end may say it posts: sums with numbers stay well within half of their range.
pub const MOST_RECEIVES: u32 = 1 << 30;

/// What a link knows of credits: those that it has, and those that it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits {
    mode: CreditMode,
    /// The first number that may not be sent. Means nothing while credits are off.
    until: Sequence,
    /// Receives that the other end posts; 0 while unknown.
    peer_receives: u32,
    /// Receives that this end posts.
    own_receives: u32,
    /// The first number that the other end was not told that it may send.
    announced: Sequence,
    /// What was announced before the last credit message.
    before_last: Option<Sequence>,
}

/// A grant that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbsurdGrant {
    pub(crate) least: Sequence,
    pub(crate) most: Sequence,
}

/// What carries a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantBy {
    /// A message's header: it may repeat what is known.
    Message,
    /// A credit message: it is sent for news only.
    CreditMessage,
}

impl Credits {
    pub(crate) const fn new(mode: CreditMode, own_receives: u32, tx_start: Sequence, rx_start: Sequence) -> Self {
        let (until, announced, before_last) = (tx_start, rx_start, None);
        let new = Self { mode, until, peer_receives: 0, own_receives, announced, before_last };
        new.started_at(tx_start, rx_start)
    }

    /// The same with other first numbers.
    pub(crate) const fn started_at(self, tx_start: Sequence, rx_start: Sequence) -> Self {
        let until = tx_start.plus(self.peer_receives.saturating_sub(1));
        let announced = rx_start.plus(self.own_receives.saturating_sub(1));
        Self { until, announced, before_last: None, ..self }
    }

    /// The same with what the other end posts before the first message, of which `tx_start` is the number.
    pub(crate) const fn agreed(self, peer_receives: u32, tx_start: Sequence) -> Self {
        Self { peer_receives, until: tx_start.plus(peer_receives.saturating_sub(1)), ..self }
    }

    #[inline(always)]
    pub(crate) const fn mode(&self) -> CreditMode {
        self.mode
    }

    /// The first number that may not be sent.
    pub(crate) const fn until(&self) -> Sequence {
        self.until
    }

    /// How many messages may be sent, the next one having this number; while off, many.
    pub(crate) const fn left(&self, next: Sequence) -> u32 {
        match self.mode {
            CreditMode::On => self.until.number().wrapping_sub(next.number()),
            CreditMode::Off => u32::MAX,
        }
    }

    /// What may be granted; never less than was granted. Means nothing while credits are off.
    #[inline]
    pub(crate) const fn grant(&self, expected: Sequence, posted: u32) -> Sequence {
        if matches!(self.mode, CreditMode::Off) {
            return Sequence::new(0);
        }
        let grant = expected.plus(posted.wrapping_sub(1));
        if grant.distance_from(self.announced) > 0 { grant } else { self.announced }
    }

    /// The grant that is to be sent in a credit message now, if one is.
    ///
    /// Asked at least once in 2^31 messages, as whoever polls for them does: a proof is looked for among numbers that go round.
    #[inline]
    pub(crate) const fn due(&mut self, expected: Sequence, posted: u32) -> Option<Sequence> {
        if matches!(self.mode, CreditMode::Off) {
            return None;
        }
        self.look_for_proof(expected);
        let grant = expected.plus(posted.wrapping_sub(1));
        let news = grant.distance_from(self.announced);
        let half_window = (self.own_receives.saturating_sub(1) / 2) as i32;
        let all_came = expected.number() == self.announced.number();
        if news < 1 || news < half_window && !all_came || self.before_last.is_some() {
            return None;
        }
        Some(grant)
    }

    /// Whether the other end has no more than half of the window left, as far as it was told: it may soon have to stop.
    #[inline]
    pub(crate) const fn is_short(&self, expected: Sequence) -> bool {
        let left = self.announced.number().wrapping_sub(expected.number());
        matches!(self.mode, CreditMode::On) && left <= self.own_receives.saturating_sub(1) / 2
    }

    /// Forgets the last credit message once the other end is known to have taken it in, for good: half the numbers later,
    /// the number that proved it would look as if it were still to come.
    const fn look_for_proof(&mut self, expected: Sequence) {
        if let Some(before_last) = self.before_last
            && expected.distance_from(before_last) > 0
        {
            self.before_last = None;
        }
    }

    /// A message with this grant was posted.
    #[inline(always)]
    pub(crate) const fn sent_in_message(&mut self, grant: Sequence) {
        self.announced = grant;
    }

    /// A credit message with this grant was posted; answers how many messages it grants.
    pub(crate) const fn sent_alone(&mut self, grant: Sequence) -> u32 {
        let news = grant.number().wrapping_sub(self.announced.number());
        self.before_last = Some(self.announced);
        self.announced = grant;
        news
    }

    /// Takes a grant in, the next message to be sent having the number `next`; answers how many more may be sent.
    ///
    /// It can only be true if it takes nothing back, and if it is for no more messages than the other end has receives,
    /// beyond those that were sent.
    #[inline]
    pub(crate) const fn take(&mut self, grant: Sequence, next: Sequence, by: GrantBy) -> Result<u32, AbsurdGrant> {
        let had = self.until.number().wrapping_sub(next.number());
        let has = grant.number().wrapping_sub(next.number());
        let news = match by {
            GrantBy::Message => 0,
            GrantBy::CreditMessage => 1,
        };
        let most = self.peer_receives.saturating_sub(1);
        let least = had.saturating_add(news);
        if has < least || has > most {
            return Err(AbsurdGrant { least: next.plus(least), most: next.plus(most) });
        }
        self.until = grant;
        Ok(has.wrapping_sub(had))
    }
}

/// What a credit message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditMessage {
    /// The number of its sender's next message: its place in the order.
    pub place: Sequence,
    /// The first number that may not be sent to its sender.
    pub grant: Sequence,
}

/// Length of a credit message that travels without a header.
pub(crate) const CREDIT_BYTES: u32 = 16;
const MAGIC: [u8; 4] = *b"bVcr";

/// Without a header it is 16 bytes, big-endian: magic `bVcr`, place, grant, CRC32C of these twelve bytes.
impl CreditMessage {
    pub(crate) fn encode(self) -> [u8; CREDIT_BYTES as usize] {
        let mut bytes = [0; CREDIT_BYTES as usize];
        let words = [MAGIC, self.place.number().to_be_bytes(), self.grant.number().to_be_bytes()];
        let (said, crc) = bytes.split_at_mut(12);
        for (into, word) in said.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *into = word;
        }
        crc.copy_from_slice(&crc32c(said).to_be_bytes());
        bytes
    }

    /// The message at the start of `bytes`, if there is one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ CREDIT_BYTES as usize }>()?;
        let [magic, place, grant, crc] = bytes.as_chunks::<4>().0 else { return None };
        let said = bytes.first_chunk::<12>()?;
        if *magic != MAGIC || u32::from_be_bytes(*crc) != crc32c(said) {
            return None;
        }
        let number = |bytes: &[u8; 4]| Sequence::new(u32::from_be_bytes(*bytes));
        Some(Self { place: number(place), grant: number(grant) })
    }
}

#[cfg(test)]
mod tests;
