//! What can go wrong on a link: why it broke, and what each operation answers.
//!
//! One enum per operation; every fault is a value that can be compared, and carries its numbers.

use crate::link::carrier::CarrierError;
use crate::link::sequence::Sequence;
use crate::link::work_id::Direction;
use crate::verbs::EventType;
use crate::verbs::completion::FailedCompletion;
use crate::verbs::inline_calls::{PollError, RawErrno};

/// Why a link broke, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Fault {
    /// A completion failed.
    Failed(FailedCompletion),
    /// A completion of this queue pair has a number that no request in flight has.
    UnknownId {
        /// What it carries.
        wr_id: u64,
    },
    /// A completion came although completions of earlier requests did not.
    Skipped {
        /// What it carries.
        wr_id: u64,
        /// Requests before it, in flight when it came.
        skipped: u32,
    },
    /// A frame came that is not a message of the link's carrier.
    Unreadable {
        /// The receive's number.
        wr_id: u64,
        /// What is wrong with it.
        error: CarrierError,
    },
    /// Messages are missing.
    Gap {
        /// The receive's number.
        wr_id: u64,
        /// The number that was to come.
        expected: Sequence,
        /// The number that came.
        got: Sequence,
        /// How many are missing.
        missing: u32,
    },
    /// A message came twice, or late.
    Old {
        /// The receive's number.
        wr_id: u64,
        /// The number that was to come.
        expected: Sequence,
        /// The number that came.
        got: Sequence,
        /// How far it is behind.
        behind: u32,
    },
    /// The other end grants credits that it cannot have: fewer than before, or more than it has receives.
    Grant {
        /// The receive's number.
        wr_id: u64,
        /// The least that it can have granted: a grant is the first number that may not be sent.
        least: Sequence,
        /// The most.
        most: Sequence,
        /// What came.
        got: Sequence,
    },
    /// The receive that is kept for credit messages could not be posted again: what was granted is not covered any more.
    CreditReceive {
        /// What the call returned; `None` where there was no call, for want of numbers.
        raw: Option<RawErrno>,
    },
    /// Polling failed; completions are lost.
    Poll(PollError),
    /// A post failed, and nobody knows which of its requests were accepted.
    PostUnknown {
        /// On which queue.
        direction: Direction,
        /// What the call returned.
        raw: RawErrno,
    },
    /// The device reported that the queue pair, its completion queue or the device itself is beyond use.
    Device {
        /// What it reported.
        event: EventType,
    },
    /// Completions were taken out of the queue and given to nobody: the caller's code panicked in between.
    Abandoned,
    /// A teardown marker was posted, or came: the link is being taken down.
    Teardown {
        /// Which queue.
        direction: Direction,
    },
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Failed(failed) => failed.fmt(f),
            Self::UnknownId { wr_id } => write!(f, "completion of wr_id {wr_id:#x}, which is not in flight"),
            Self::Skipped { wr_id, skipped } => {
                write!(f, "completion of wr_id {wr_id:#x} came before those of {skipped} requests posted earlier")
            }
            Self::Unreadable { wr_id, error } => write!(f, "receive {wr_id:#x}: {error}"),
            Self::Gap { wr_id, expected, got, missing } => {
                write!(f, "receive {wr_id:#x}: expected message {expected}, got {got}: {missing} missing")
            }
            Self::Old { wr_id, expected, got, behind } => {
                write!(f, "receive {wr_id:#x}: expected message {expected}, got {got}: repeated or late by {behind}")
            }
            Self::Grant { wr_id, least, most, got } => {
                write!(f, "receive {wr_id:#x}: messages are granted up to {got}, possible are {least} to {most}")
            }
            Self::CreditReceive { raw: Some(raw) } => write!(f, "the receive for credit messages was refused: {raw}"),
            Self::CreditReceive { raw: None } => {
                f.write_str("the receive for credit messages: work request numbers are used up")
            }
            Self::Poll(error) => error.fmt(f),
            Self::PostUnknown { direction, raw } => {
                write!(f, "{direction} post failed and the provider does not say which requests it accepted: {raw}")
            }
            Self::Device { event } => write!(f, "the device reported {event:?}"),
            Self::Abandoned => {
                f.write_str("completions were taken and not looked at, since the code that looks at them panicked")
            }
            Self::Teardown { direction } => write!(f, "{direction} queue is being drained for teardown"),
        }
    }
}

impl core::error::Error for Fault {}

/// How a send failed. The frame stays the ring's next, with what was written into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// All requests that may be in flight are.
    Full {
        /// How many that is.
        depth: u32,
    },
    /// All that the other end granted was sent: it has no receive posted for another message, or its grant is on its way.
    NoCredit {
        /// The first number that is not granted: that of the message refused.
        until: Sequence,
    },
    /// The frames' key is not set: they are not registered.
    Unregistered,
    /// The payload is larger than a frame's room.
    TooLong {
        /// Its length, bytes.
        got_bytes: u64,
        /// The room, bytes.
        room_bytes: u32,
    },
    /// The provider refused. What it refused used up no sequence number.
    Refused {
        /// Messages of the same chain that it accepted before: they are in flight.
        accepted: u32,
        /// What the call returned.
        raw: RawErrno,
    },
    /// The link is broken, or has just been broken by this post ([`Fault::PostUnknown`]).
    Broken {
        /// Why.
        cause: Fault,
    },
    /// The process has used up its work request numbers.
    WorkIdsUsedUp,
}

impl core::fmt::Display for SendError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Full { depth } => write!(f, "all {depth} sends are in flight: take completions first"),
            Self::NoCredit { until } => {
                write!(f, "no credit for message {until}: take completions until the other end has posted receives")
            }
            Self::Unregistered => f.write_str("frames are not registered: set their key first"),
            Self::TooLong { got_bytes, room_bytes } => {
                write!(f, "payload of {got_bytes} bytes, a frame has room for {room_bytes}")
            }
            Self::Refused { accepted, raw } => write!(f, "send refused after {accepted} accepted: {raw}"),
            Self::Broken { cause } => write!(f, "link is broken: {cause}"),
            Self::WorkIdsUsedUp => f.write_str("work request numbers are used up"),
        }
    }
}

impl core::error::Error for SendError {}

/// How posting receives failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ReceiveError {
    /// The frames' key is not set: they are not registered.
    Unregistered,
    /// The provider refused.
    Refused {
        /// Receives that it accepted before, in the same call of ours.
        accepted: u32,
        /// What the call returned.
        raw: RawErrno,
    },
    /// The link is broken, or has just been broken by this post ([`Fault::PostUnknown`]).
    Broken {
        /// Why.
        cause: Fault,
    },
    /// The process has used up its work request numbers.
    WorkIdsUsedUp,
}

impl core::fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unregistered => f.write_str("frames are not registered: set their key first"),
            Self::Refused { accepted, raw } => write!(f, "receive refused after {accepted} accepted: {raw}"),
            Self::Broken { cause } => write!(f, "link is broken: {cause}"),
            Self::WorkIdsUsedUp => f.write_str("work request numbers are used up"),
        }
    }
}

impl core::error::Error for ReceiveError {}

/// Why a completion gives no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LinkError {
    /// It came from a completion queue that is not this link's. The link is as it was.
    ForeignQueue,
    /// It is another queue pair's, perhaps of one that is gone. The link is as it was.
    ForeignQueuePair {
        /// This link's.
        expected: u32,
        /// The completion's.
        got: u32,
    },
    /// The link has just been broken by it.
    Fault(Fault),
    /// The link was broken before. The books of what is outstanding were kept.
    Broken {
        /// Why.
        cause: Fault,
    },
}

impl core::fmt::Display for LinkError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::ForeignQueue => f.write_str("completion of another completion queue"),
            Self::ForeignQueuePair { expected, got } => {
                write!(f, "expected a completion of queue pair {expected}, got one of {got}")
            }
            Self::Fault(fault) => write!(f, "link breaks: {fault}"),
            Self::Broken { cause } => write!(f, "link is broken: {cause}"),
        }
    }
}

impl core::error::Error for LinkError {}

/// First numbers cannot be set any more: something was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AlreadyStarted;

impl core::fmt::Display for AlreadyStarted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("first numbers are set before the first post, and something was posted: make a new link")
    }
}

impl core::error::Error for AlreadyStarted {}

/// What the other end posts cannot be agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum AgreeError {
    /// So many receives make no link with credits.
    Receives {
        /// What the other end says.
        got: u32,
        /// The least: one for messages, one for credit messages.
        least: u32,
        /// The most.
        most: u32,
    },
    /// Something was posted already.
    AlreadyStarted,
}

impl core::fmt::Display for AgreeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Receives { got, least, most } => {
                write!(f, "with credits the other end must post {least} to {most} receives, it says {got}")
            }
            Self::AlreadyStarted => AlreadyStarted.fmt(f),
        }
    }
}

impl core::error::Error for AgreeError {}
