//! How a queue pair for one-sided operations shall be.

use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::connect::QueuePairConfig;

use crate::endpoint::Waking;
use crate::objects::gid::GidPolicy;

/// How a queue pair for one-sided operations shall be.
///
/// ```
/// use bareverbs_shell::one_sided::TransfersConfig;
///
/// let config = TransfersConfig::new("rank 1").depths(64, 4);
/// assert_eq!((config.queue_pair.send_depth, config.queue_pair.recv_depth), (64, 4));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransfersConfig {
    /// Who is at the other end: a rank or an address, for error messages.
    pub peer: Arc<str>,
    /// The queue pair, a reliable one. What its access lets the other end do is besides bounded by each region's access.
    pub queue_pair: QueuePairConfig,
    /// Which GID to use.
    pub gid: GidPolicy,
    /// How a wait learns of a completion.
    pub waking: Waking,
    /// How long a teardown may wait for what is outstanding.
    pub drain_limit: Duration,
}

impl TransfersConfig {
    /// 512 requests, 16 receives for writes with immediate data, the first IPv4-mapped GID. The other end may write and read
    /// where regions permit it, and perform atomics where the device has them.
    pub fn new(peer: &str) -> Self {
        Self {
            peer: Arc::from(peer),
            queue_pair: QueuePairConfig::rc().depths(512, 16),
            gid: GidPolicy::Ipv4Mapped,
            waking: Waking::Polling,
            drain_limit: Duration::from_secs(2),
        }
    }

    /// With this queue pair. Its access is set by [`Transfers::new`](super::Transfers::new) where it is what
    /// [`QueuePairConfig::rc`] has.
    #[must_use]
    pub fn queue_pair(self, queue_pair: QueuePairConfig) -> Self {
        Self { queue_pair, ..self }
    }

    /// With so many requests outstanding, and so many receives posted for writes with immediate data.
    #[must_use]
    pub fn depths(self, send_depth: u32, recv_depth: u32) -> Self {
        Self { queue_pair: self.queue_pair.depths(send_depth, recv_depth), ..self }
    }

    /// With this choice of GID.
    #[must_use]
    pub fn gid(self, gid: GidPolicy) -> Self {
        Self { gid, ..self }
    }

    /// With this time to a retry, coded: 4.096 microseconds times two to this power. Emulated soft-RoCE wants 18.
    #[must_use]
    pub fn timeout(self, timeout: u8) -> Self {
        Self { queue_pair: self.queue_pair.timeout(timeout), ..self }
    }

    /// With waits that sleep until the completion queue's channel has an event.
    #[must_use]
    pub fn waking(self, waking: Waking) -> Self {
        Self { waking, ..self }
    }

    /// With this limit on a teardown's wait.
    #[must_use]
    pub fn drain_limit(self, drain_limit: Duration) -> Self {
        Self { drain_limit, ..self }
    }
}
