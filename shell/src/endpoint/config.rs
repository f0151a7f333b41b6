//! How an endpoint shall be: one struct, every setting, a builder.

use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::connect::QueuePairConfig;
use bareverbs_core::link::{CreditMode, Sequence};

use crate::objects::gid::GidPolicy;

/// How a wait learns of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waking {
    /// It polls: the quickest, and a busy processor.
    Polling,
    /// It sleeps on a completion channel: for those who share processors. Not every library has channels: Apple's has none
    /// that can be slept on.
    Events,
}

/// How an endpoint shall be.
///
/// ```
/// use bareverbs_shell::EndpointConfig;
///
/// let config = EndpointConfig::uc("rank 1").frame_bytes(16384);
/// assert_eq!(config.queue_pair.send_depth, 32);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Who is at the other end: a rank or an address, for error messages.
    pub peer: Arc<str>,
    /// The queue pair. Depths are set from the rings' lengths.
    pub queue_pair: QueuePairConfig,
    /// Which GID to use.
    pub gid: GidPolicy,
    /// Bytes of a frame, the carrier's room included: a multiple of 64, on Thunderbolt of 4096.
    pub frame_bytes: u32,
    /// Every how many sends one is signalled; `None` for what the link layer suggests.
    pub signal_every: Option<u32>,
    /// The number of the first message sent; `None` for a random one where the ends agree by their hellos, and 0 where they
    /// connect by destinations alone.
    pub tx_start: Option<Sequence>,
    /// The number of the first message that will come, where the ends connect by destinations alone; `None` for 0. A hello
    /// says it otherwise.
    pub rx_start: Option<Sequence>,
    /// How a wait learns of a completion.
    pub waking: Waking,
    /// Whether the link carries credits, as the other end's must; `None` for what suits carrier and link layer
    /// ([`CreditMode::default_for`]).
    pub credits: Option<CreditMode>,
    /// How long a teardown may wait for what is outstanding.
    pub drain_limit: Duration,
}

impl EndpointConfig {
    /// An unreliable connected endpoint with 4 KiB frames and the first IPv4-mapped GID.
    pub fn uc(peer: &str) -> Self {
        Self {
            peer: Arc::from(peer),
            queue_pair: QueuePairConfig::uc(),
            gid: GidPolicy::Ipv4Mapped,
            frame_bytes: 4096,
            signal_every: None,
            tx_start: None,
            rx_start: None,
            waking: Waking::Polling,
            credits: None,
            drain_limit: Duration::from_secs(2),
        }
    }

    /// A reliable connected endpoint: the same, but for the path MTU, which is the port's up to 4096.
    ///
    /// What is lost is sent again by the device, or an error: its limits are in
    /// [`QueuePairConfig`](bareverbs_core::connect::QueuePairConfig), of which [`timeout`](Self::timeout) is the one that a
    /// slow machine needs. The sequence is checked all the same.
    ///
    /// The last message may be answered only after its receiver has seen it. An end that goes at once takes that answer
    /// with it, and the other end sends again and again: say a last word first, as
    /// [`Channel::leave`](crate::exchange::Channel::leave) does.
    pub fn rc(peer: &str) -> Self {
        Self { queue_pair: QueuePairConfig::rc(), ..Self::uc(peer) }
    }

    /// As [`uc`](Self::uc), with every queue pair setting of MLX's JACCL.
    pub fn jaccl(peer: &str) -> Self {
        Self { queue_pair: QueuePairConfig::jaccl(), ..Self::uc(peer) }
    }

    /// With this queue pair.
    #[must_use]
    pub fn queue_pair(self, queue_pair: QueuePairConfig) -> Self {
        Self { queue_pair, ..self }
    }

    /// With this choice of GID.
    #[must_use]
    pub fn gid(self, gid: GidPolicy) -> Self {
        Self { gid, ..self }
    }

    /// With frames of this many bytes.
    #[must_use]
    pub fn frame_bytes(self, frame_bytes: u32) -> Self {
        Self { frame_bytes, ..self }
    }

    /// With one of that many sends signalled.
    #[must_use]
    pub fn signal_every(self, signal_every: u32) -> Self {
        Self { signal_every: Some(signal_every), ..self }
    }

    /// With this RC timeout, coded: 4.096 microseconds times two to this power. Emulated soft-RoCE wants 18.
    #[must_use]
    pub fn timeout(self, timeout: u8) -> Self {
        Self { queue_pair: self.queue_pair.timeout(timeout), ..self }
    }

    /// With these first numbers.
    #[must_use]
    pub fn sequences(self, tx_start: Sequence, rx_start: Sequence) -> Self {
        Self { tx_start: Some(tx_start), rx_start: Some(rx_start), ..self }
    }

    /// With waits that sleep until the completion queue's channel has an event.
    #[must_use]
    pub fn waking(self, waking: Waking) -> Self {
        Self { waking, ..self }
    }

    /// With credits, or without.
    #[must_use]
    pub fn credits(self, credits: CreditMode) -> Self {
        Self { credits: Some(credits), ..self }
    }

    /// With this limit on a teardown's wait.
    #[must_use]
    pub fn drain_limit(self, drain_limit: Duration) -> Self {
        Self { drain_limit, ..self }
    }
}
