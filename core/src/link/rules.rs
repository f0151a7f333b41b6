//! What a link layer demands of frames and posts, and how a link is laid out over its memory.
//!
//! The rule this file protects: **what would fail or be wrong later is refused before the first post.** On Thunderbolt
//! (link layer 100) a send and its receive must have the same number of 4 KiB frames, requests are posted one at a time,
//! and nobody says what a receive's `byte_len` means.

use crate::link::carrier::{Carrier, Numbered};
use crate::link::credits::{CreditMode, LEAST_DEPTH};
use crate::link::frame::{FrameKey, FrameMemory};
use crate::link::sequence::Sequence;
use crate::verbs::inline_calls::QueueId;
use crate::verbs::{LinkLayer, QpCap};

/// The unit in which Thunderbolt links count queue depth and match sends with receives (Apple's technote TN3205).
pub const THUNDERBOLT_FRAME_BYTES: u32 = 4096;

/// A frame's stride, and where its memory starts, are multiples of this.
pub const FRAME_ALIGN_BYTES: u32 = 64;

/// How much of a frame a send puts on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum WireLength {
    /// The carrier's header and the payload.
    Exact,
    /// The whole frame, whatever the payload's length.
    WholeFrame,
}

/// How many requests one call posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Posting {
    /// As many as there are, linked.
    Chained,
    /// One: the provider does not say which request of a chain it refused.
    OneAtATime,
}

/// What a receive completion's `byte_len` is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ByteLen {
    /// It is the message's length on the wire.
    Trusted,
    /// Nobody knows: it is not looked at.
    Unknown,
}

/// What a queue's capacity counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DepthUnit {
    /// Requests.
    Requests,
    /// Pieces of [`THUNDERBOLT_FRAME_BYTES`].
    ThunderboltFrames,
}

/// What the fabric below a link demands and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LinkRules {
    /// How much of a frame a send puts on the wire.
    pub wire_length: WireLength,
    /// How many requests one call posts.
    pub posting: Posting,
    /// What `byte_len` is worth.
    pub byte_len: ByteLen,
    /// What capacities count.
    pub depth_unit: DepthUnit,
    /// Bytes on the wire up to which a send goes inline; 0 for never. At most what the queue pair allows
    /// (`max_inline_data`), and only for memory of the host.
    pub inline_limit_bytes: u32,
    /// Every how many sends one is signalled; at most half of the send ring's depth is used.
    pub signal_every: u32,
    /// Whether the link carries credits: to be agreed with the other end, and not with the raw carrier.
    pub credits: CreditMode,
}

impl LinkRules {
    /// The rules of a link layer; nothing goes inline, and no credits ([`CreditMode::default_for`]) until they are asked for.
    pub const fn for_link_layer(link_layer: LinkLayer) -> Self {
        match link_layer {
            LinkLayer::THUNDERBOLT => Self {
                wire_length: WireLength::WholeFrame,
                posting: Posting::OneAtATime,
                byte_len: ByteLen::Unknown,
                depth_unit: DepthUnit::ThunderboltFrames,
                inline_limit_bytes: 0,
                signal_every: 1,
                credits: CreditMode::Off,
            },
            _ => Self {
                wire_length: WireLength::Exact,
                posting: Posting::Chained,
                byte_len: ByteLen::Trusted,
                depth_unit: DepthUnit::Requests,
                inline_limit_bytes: 0,
                signal_every: 16,
                credits: CreditMode::Off,
            },
        }
    }

    /// Bytes that a message puts on the wire.
    #[inline(always)]
    pub(crate) const fn wire_bytes(&self, header_bytes: u32, payload_bytes: u32, frame_bytes: u32) -> u32 {
        match self.wire_length {
            WireLength::Exact => header_bytes.wrapping_add(payload_bytes),
            WireLength::WholeFrame => frame_bytes,
        }
    }

    /// Requests with frames of `frame_bytes` that a queue of `capacity` holds.
    pub const fn depth(&self, capacity: u32, frame_bytes: u32) -> u32 {
        match self.depth_unit {
            DepthUnit::Requests => capacity,
            DepthUnit::ThunderboltFrames => match capacity.checked_div(frame_bytes.div_ceil(THUNDERBOLT_FRAME_BYTES)) {
                Some(depth) => depth,
                None => 0,
            },
        }
    }
}

/// Frame size, and what the queues hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Geometry {
    /// From one frame to the next, carrier's room included, bytes: a multiple of [`FRAME_ALIGN_BYTES`], with whole frames
    /// one of [`THUNDERBOLT_FRAME_BYTES`].
    pub frame_bytes: u32,
    /// What the send queue holds, as read back, less what the teardown marker needs.
    pub send_capacity: u32,
    /// What the receive queue holds, as read back, less what the teardown marker needs.
    pub recv_capacity: u32,
}

impl Geometry {
    /// Frames of `frame_bytes` over queues as read back; one request of each is set aside for its teardown marker.
    pub const fn of_queues(frame_bytes: u32, cap: &QpCap) -> Self {
        Self {
            frame_bytes,
            send_capacity: cap.max_send_wr.saturating_sub(1),
            recv_capacity: cap.max_recv_wr.saturating_sub(1),
        }
    }
}

/// What a link is made from, besides its carrier, queue pair and memory.
#[derive(Clone, Copy, Debug)]
pub struct LinkSetup {
    /// Where sends complete.
    pub send_queue: QueueId,
    /// Where receives complete; may be the same.
    pub recv_queue: QueueId,
    /// Frame size, and what the queues hold.
    pub geometry: Geometry,
    /// What the fabric demands.
    pub rules: LinkRules,
    /// The number of the first message sent, as agreed.
    pub tx_start: Sequence,
    /// The number of the first message that will come, as agreed.
    pub rx_start: Sequence,
    /// The frames' key, if they are registered already; else [`set_key`](crate::link::Link::set_key) gives it.
    pub key: Option<FrameKey>,
}

/// Why a link cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LinkSetupError {
    /// The frame size is zero, or not a multiple of what is needed.
    FrameSize {
        /// The size, bytes.
        got_bytes: u32,
        /// What it must be a multiple of, bytes.
        multiple_of_bytes: u32,
    },
    /// A frame has no room for payload beside the carrier's header.
    NoPayloadRoom {
        /// The frame's size, bytes.
        frame_bytes: u32,
        /// The header's room, bytes.
        header_bytes: u32,
    },
    /// The memory does not start where frames may start.
    Misaligned {
        /// What its address must be a multiple of, bytes.
        multiple_of_bytes: u32,
    },
    /// The memory is too small for both rings.
    MemoryTooSmall {
        /// Its size, bytes.
        got_bytes: u64,
        /// What both rings need, bytes.
        need_bytes: u64,
    },
    /// The memory crosses a multiple of 4 GiB, which a Thunderbolt region must not.
    CrossesBoundary {
        /// The first address in it that is a multiple of 4 GiB.
        boundary: u64,
    },
    /// A queue holds not one frame.
    NoDepth {
        /// What the send queue holds, in its unit.
        send_capacity: u32,
        /// What the receive queue holds, in its unit.
        recv_capacity: u32,
    },
    /// Credits need places that these queues do not have.
    NoCreditRoom {
        /// Frames that the send queue holds.
        send_depth: u32,
        /// Frames that the receive queue holds.
        recv_depth: u32,
        /// What each must hold at least.
        least: u32,
    },
    /// Credits count numbers, and the carrier has none.
    CreditsWithoutNumbers,
    /// The process has made more links than there are work request numbers for (2^30).
    WorkIdsUsedUp,
}

impl core::fmt::Display for LinkSetupError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::FrameSize { got_bytes, multiple_of_bytes } => {
                write!(f, "frame size must be a positive multiple of {multiple_of_bytes} bytes, got {got_bytes}")
            }
            Self::NoPayloadRoom { frame_bytes, header_bytes } => {
                write!(f, "a frame of {frame_bytes} bytes leaves no payload beside {header_bytes} bytes of header")
            }
            Self::Misaligned { multiple_of_bytes } => {
                write!(f, "frame memory must start at a multiple of {multiple_of_bytes} bytes")
            }
            Self::MemoryTooSmall { got_bytes, need_bytes } => {
                write!(f, "both rings need {need_bytes} bytes of frame memory, got {got_bytes}")
            }
            Self::CrossesBoundary { boundary } => {
                write!(f, "frame memory crosses the 4 GiB boundary at {boundary:#x}: use memory on one side of it")
            }
            Self::NoDepth { send_capacity, recv_capacity } => write!(
                f,
                "each queue must hold one frame at least, got capacities {send_capacity} (send) and {recv_capacity} (receive)"
            ),
            Self::NoCreditRoom { send_depth, recv_depth, least } => write!(
                f,
                "with credits each queue must hold {least} frames at least, got {send_depth} (send) and {recv_depth} (receive)"
            ),
            Self::CreditsWithoutNumbers => f.write_str("the raw carrier has no numbers, so it cannot carry credits"),
            Self::WorkIdsUsedUp => f.write_str("this process has used up all work request numbers: restart it"),
        }
    }
}

impl core::error::Error for LinkSetupError {}

impl LinkSetup {
    /// Whether [`Link::new`](crate::link::Link::new) would take `memory` for rings of `SEND` and `RECV` frames.
    ///
    /// # Errors
    /// [`LinkSetupError`], but for [`LinkSetupError::WorkIdsUsedUp`].
    pub fn check<C: Carrier, const SEND: usize, const RECV: usize>(
        &self,
        memory: &FrameMemory,
    ) -> Result<(), LinkSetupError> {
        let Geometry { frame_bytes, send_capacity, recv_capacity } = self.geometry;
        let multiple_of_bytes = match self.rules.wire_length {
            WireLength::Exact => FRAME_ALIGN_BYTES,
            WireLength::WholeFrame => THUNDERBOLT_FRAME_BYTES,
        };
        if frame_bytes == 0 || !frame_bytes.is_multiple_of(multiple_of_bytes) {
            return Err(LinkSetupError::FrameSize { got_bytes: frame_bytes, multiple_of_bytes });
        }
        if frame_bytes <= C::ROOM_BYTES {
            return Err(LinkSetupError::NoPayloadRoom { frame_bytes, header_bytes: C::ROOM_BYTES });
        }
        let start = memory.as_ptr().addr() as u64;
        if !start.is_multiple_of(u64::from(multiple_of_bytes)) {
            return Err(LinkSetupError::Misaligned { multiple_of_bytes });
        }
        let need_bytes = (SEND as u64).saturating_add(RECV as u64).saturating_mul(u64::from(frame_bytes));
        let got_bytes = memory.len_bytes() as u64;
        if got_bytes < need_bytes {
            return Err(LinkSetupError::MemoryTooSmall { got_bytes, need_bytes });
        }
        if self.rules.depth_unit == DepthUnit::ThunderboltFrames
            && let Some(boundary) = boundary_within(start, need_bytes)
        {
            return Err(LinkSetupError::CrossesBoundary { boundary });
        }
        if self.rules.depth(send_capacity, frame_bytes) == 0 || self.rules.depth(recv_capacity, frame_bytes) == 0 {
            return Err(LinkSetupError::NoDepth { send_capacity, recv_capacity });
        }
        self.check_credits::<C, SEND, RECV>()
    }

    fn check_credits<C: Carrier, const SEND: usize, const RECV: usize>(&self) -> Result<(), LinkSetupError> {
        let Geometry { frame_bytes, send_capacity, recv_capacity } = self.geometry;
        let send_depth = self.rules.depth(send_capacity, frame_bytes).min(SEND as u32);
        let recv_depth = self.rules.depth(recv_capacity, frame_bytes).min(RECV as u32);
        match (self.rules.credits, C::NUMBERED) {
            (CreditMode::Off, _) => Ok(()),
            (CreditMode::On, Numbered::No) => Err(LinkSetupError::CreditsWithoutNumbers),
            (CreditMode::On, Numbered::Yes) if send_depth.min(recv_depth) < LEAST_DEPTH => {
                Err(LinkSetupError::NoCreditRoom { send_depth, recv_depth, least: LEAST_DEPTH })
            }
            (CreditMode::On, Numbered::Yes) => Ok(()),
        }
    }
}

/// The first multiple of 4 GiB that lies inside `len_bytes` bytes from `start` on, where bytes are on both sides of it.
const fn boundary_within(start: u64, len_bytes: u64) -> Option<u64> {
    match (start | 0xFFFF_FFFF).checked_add(1) {
        Some(boundary) if boundary < start.saturating_add(len_bytes) => Some(boundary),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_crosses_a_boundary_when_bytes_are_on_both_sides() {
        const GIB_4: u64 = 1 << 32;
        assert_eq!(boundary_within(GIB_4 - 4096, 4095), None);
        assert_eq!(boundary_within(GIB_4 - 4096, 4096), None, "it ends there");
        assert_eq!(boundary_within(GIB_4 - 4096, 4097), Some(GIB_4));
        assert_eq!(boundary_within(GIB_4, GIB_4), None, "it starts there");
        assert_eq!(boundary_within(3 * GIB_4 + 1, GIB_4), Some(4 * GIB_4));
        assert_eq!(boundary_within(0, GIB_4), None);
        assert_eq!(boundary_within(u64::MAX - 1, u64::MAX), None, "there is none above");
    }

    #[test]
    fn thunderbolt_depth_counts_pieces_of_4_kib_rounded_up() {
        let rules = LinkRules::for_link_layer(LinkLayer::THUNDERBOLT);
        assert_eq!([4096, 4097, 8192, 65536].map(|bytes| rules.depth(1008, bytes)), [1008, 504, 504, 63]);
        assert_eq!(rules.depth(1008, 0), 0, "no frame size, no depth");
        assert_eq!(LinkRules::for_link_layer(LinkLayer::INFINIBAND).depth(64, 65536), 64);
    }
}
