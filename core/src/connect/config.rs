//! What a queue pair shall be: one struct, every number settable, defaults with their reasons.

use crate::connect::destination::Psn;
use crate::verbs::port::{LinkLayer, Mtu};
use crate::verbs::{AccessFlags, QpType};

/// The service of a connected queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Service {
    /// Unreliable connected: what is lost is lost silently.
    Uc,
    /// Reliable connected: acknowledged, in order, or an error.
    Rc,
}

impl Service {
    /// The queue pair type of `<infiniband/verbs.h>`.
    pub const fn qp_type(self) -> QpType {
        match self {
            Self::Uc => QpType::UC,
            Self::Rc => QpType::RC,
        }
    }
}

/// Where the first packet sequence number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PsnPolicy {
    /// 7 on Thunderbolt, as JACCL has it; random elsewhere.
    ByLinkLayer,
    /// This one.
    Fixed(Psn),
}

impl PsnPolicy {
    /// The number to use, given 24 or more random bits.
    pub const fn choose(self, link_layer: LinkLayer, random: u32) -> Psn {
        match self {
            Self::Fixed(psn) => psn,
            Self::ByLinkLayer if link_layer.0 == LinkLayer::THUNDERBOLT.0 => Psn::JACCL,
            Self::ByLinkLayer => Psn::from_low_bits(random),
        }
    }
}

/// When an address on InfiniBand carries a GID. On Ethernet and Thunderbolt it always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum GlobalRouting {
    /// By LID alone.
    WhereNeeded,
    /// With the GID too, where the other end gave one.
    Always,
}

/// Everything about a queue pair that can be set. Start from [`uc`](Self::uc), [`rc`](Self::rc) or
/// [`jaccl`](Self::jaccl) and change what differs.
///
/// ```
/// use bareverbs_core::connect::QueuePairConfig;
///
/// let config = QueuePairConfig::uc().depths(64, 128).port(2);
/// assert_eq!((config.send_depth, config.recv_depth, config.port), (64, 128, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct QueuePairConfig {
    /// Service.
    pub service: Service,
    /// Port of the device, counted from 1.
    pub port: u8,
    /// Send requests outstanding, without the marker's slot.
    pub send_depth: u32,
    /// Receive requests outstanding, without the marker's slot.
    pub recv_depth: u32,
    /// Scatter/gather entries of a request.
    pub max_sge: u32,
    /// Bytes that a send may carry inline.
    pub inline_bytes: u32,
    /// What the other end may do, and the device itself.
    pub access: AccessFlags,
    /// Path MTU; `None` for the least of 4096 and the port's active MTU.
    pub path_mtu: Option<Mtu>,
    /// First packet sequence number. On UC it does not keep stale packets out; the message sequence does.
    pub psn: PsnPolicy,
    /// When an address on InfiniBand carries a GID.
    pub global_routing: GlobalRouting,
    /// Hop limit; `None` for 1 on Thunderbolt and 255 elsewhere.
    pub hop_limit: Option<u8>,
    /// Traffic class.
    pub traffic_class: u8,
    /// Partition key index.
    pub pkey_index: u16,
    /// RC: time to the first retry, 4.096 microseconds times two to this power.
    pub timeout: u8,
    /// RC: retries.
    pub retry_cnt: u8,
    /// RC: retries for want of a receive; 7 is for ever.
    pub rnr_retry: u8,
    /// RC: how long a sender without a receive shall wait, coded; 12 is 0.64 ms.
    pub min_rnr_timer: u8,
    /// RC: reads and atomics outstanding, as initiator and as responder. 0 would block reads for ever.
    pub max_rd_atomic: u8,
}

impl QueuePairConfig {
    /// UC as Apple's links have it: 32 sends, 32 receives, one entry, MTU 1024, local write.
    pub const fn uc() -> Self {
        Self {
            service: Service::Uc,
            port: 1,
            send_depth: 32,
            recv_depth: 32,
            max_sge: 1,
            inline_bytes: 0,
            access: AccessFlags::LOCAL_WRITE,
            path_mtu: Some(Mtu::B1024),
            psn: PsnPolicy::ByLinkLayer,
            global_routing: GlobalRouting::WhereNeeded,
            hop_limit: None,
            traffic_class: 0,
            pkey_index: 0,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
        }
    }

    /// RC: 512 sends, 512 receives, the port's MTU up to 4096.
    pub const fn rc() -> Self {
        Self { service: Service::Rc, send_depth: 512, recv_depth: 512, path_mtu: None, ..Self::uc() }
    }

    /// UC with every setting of MLX's JACCL: access local write, remote write, remote read; packet sequence number 7.
    pub const fn jaccl() -> Self {
        Self {
            access: AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ),
            psn: PsnPolicy::Fixed(Psn::JACCL),
            hop_limit: Some(1),
            ..Self::uc()
        }
    }

    /// With these depths, requests.
    pub const fn depths(self, send_depth: u32, recv_depth: u32) -> Self {
        Self { send_depth, recv_depth, ..self }
    }

    /// On this port, counted from 1.
    pub const fn port(self, port: u8) -> Self {
        Self { port, ..self }
    }

    /// With this access.
    pub const fn access(self, access: AccessFlags) -> Self {
        Self { access, ..self }
    }

    /// With this path MTU.
    pub const fn path_mtu(self, mtu: Mtu) -> Self {
        Self { path_mtu: Some(mtu), ..self }
    }

    /// With this first packet sequence number.
    pub const fn psn(self, psn: Psn) -> Self {
        Self { psn: PsnPolicy::Fixed(psn), ..self }
    }

    /// With room for this many inline bytes.
    pub const fn inline_bytes(self, inline_bytes: u32) -> Self {
        Self { inline_bytes, ..self }
    }

    /// With this hop limit.
    pub const fn hop_limit(self, hop_limit: u8) -> Self {
        Self { hop_limit: Some(hop_limit), ..self }
    }

    /// With this traffic class.
    pub const fn traffic_class(self, traffic_class: u8) -> Self {
        Self { traffic_class, ..self }
    }

    /// With this RC timeout, coded: soft-RoCE in an emulated guest wants 18.
    pub const fn timeout(self, timeout: u8) -> Self {
        Self { timeout, ..self }
    }

    /// The path MTU in force on a port whose active MTU is `active`.
    pub const fn path_mtu_on(&self, active: Mtu) -> Mtu {
        match self.path_mtu {
            Some(mtu) => mtu,
            None if active.0 < Mtu::B4096.0 && active.0 != 0 => active,
            None => Mtu::B4096,
        }
    }
}
