//! What a ring of frames is told, and how it answers: the words between `frame` and the rings over it.

use crate::link::rules::ByteLen;
use crate::verbs::WrOpcode;
use crate::verbs::inline_calls::{QueueId, RawErrno};

/// What a send carries besides its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendKind {
    /// Nothing.
    Plain,
    /// Immediate data.
    WithImmediate,
}

impl SendKind {
    pub(crate) const fn opcode(self) -> WrOpcode {
        match self {
            Self::Plain => WrOpcode::SEND,
            Self::WithImmediate => WrOpcode::SEND_WITH_IMM,
        }
    }
}

/// Where a ring's completions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) queue: QueueId,
    pub(crate) qp_num: u32,
}

/// How a ring is laid out and bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// From one frame to the next, bytes.
    pub(crate) frame_bytes: u32,
    /// Requests that may be in flight, at most the ring's length.
    pub(crate) depth: u32,
    /// How many of those places are kept: only `Frames::vacant_kept` has them.
    pub(crate) kept: u32,
    /// Requests that one completion may end, without those before it having had one of their own.
    pub(crate) released_at_once: u32,
    /// Whether what a completion says of its message's length may be believed.
    pub(crate) byte_len: ByteLen,
}

/// Why a completion ends no request of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// It came from another completion queue.
    Queue,
    /// It is another queue pair's.
    QueuePair,
    /// Its number is not that of a request in flight.
    NotInFlight,
    /// It is in flight, but so many are before it that completions must be missing.
    Skipped { skipped: u32 },
    /// It did end one, for the books of a broken link; no frame is handed out.
    Settled,
}

/// How a post failed, and what it left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostFailure {
    /// The first `accepted` are in flight, the others are not.
    Refused { accepted: u32, raw: RawErrno },
    /// All may be in flight.
    Unknown { raw: RawErrno },
}
