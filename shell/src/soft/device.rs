//! The devices of a fabric, as a caller describes them.

use bareverbs_core::verbs::{Gid, GidType, LinkLayer, Mtu, PortState};

use crate::soft::profile::Profile;

/// One slot of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidSlot {
    /// Nothing: a plain query succeeds with an all-zero GID.
    Empty,
    /// A GID and what it names.
    Gid(Gid, GidType),
    /// A slot whose query fails with this errno.
    Fails(i32),
}

impl GidSlot {
    /// A RoCE v2 GID.
    pub const fn roce_v2(gid: Gid) -> Self {
        Self::Gid(gid, GidType::ROCE_V2)
    }

    /// The RoCE v2 GID of an IPv4 address, `::ffff:a.b.c.d`.
    pub const fn ipv4(address: [u8; 4]) -> Self {
        let [a, b, c, d] = address;
        Self::roce_v2(Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]))
    }

    /// The link-local RoCE v2 GID with this interface id, `fe80::...`.
    pub const fn link_local(interface_id: u64) -> Self {
        Self::roce_v2(Gid::new(((0xfe80_u128 << 112) | interface_id as u128).to_be_bytes()))
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftPort {
    /// Its state; messages travel through an active one only.
    pub state: PortState,
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// MTU in force.
    pub active_mtu: Mtu,
    /// Its LID, 0 where LIDs are not used.
    pub lid: u16,
    /// Its GID table.
    pub gids: Vec<GidSlot>,
    /// Largest message, bytes.
    pub max_message_bytes: u32,
}

impl Default for SoftPort {
    /// An active Ethernet port, MTU 1024, no GIDs.
    fn default() -> Self {
        Self {
            state: PortState::ACTIVE,
            link_layer: LinkLayer::ETHERNET,
            active_mtu: Mtu::B1024,
            lid: 0,
            gids: Vec::new(),
            max_message_bytes: 8 << 20,
        }
    }
}

/// How much of everything a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs alive at once.
    pub queue_pairs: u32,
    /// Memory regions alive at once.
    pub regions: u32,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// Requests on a queue.
    pub queue_depth: u32,
    /// Scatter/gather entries of a request.
    pub entries: u32,
    /// Bytes that a send may carry inline.
    pub inline_bytes: u32,
    /// Entries of a completion queue.
    pub completion_entries: u32,
}

impl Default for Limits {
    /// Those of soft-RoCE, but for the queue pairs (4096) and regions (65 536).
    fn default() -> Self {
        Self {
            queue_pairs: 4096,
            regions: 65_536,
            region_bytes: u64::MAX,
            queue_depth: 16_384,
            entries: 32,
            inline_bytes: 512,
            completion_entries: 32_767,
        }
    }
}

/// A device.
///
/// ```
/// use bareverbs_shell::soft::{GidSlot, SoftDevice};
///
/// let device = SoftDevice::new("soft0").gids(vec![GidSlot::Empty, GidSlot::ipv4([10, 0, 0, 1])]);
/// # let _ = device;
/// ```
#[derive(Clone, Debug)]
pub struct SoftDevice {
    pub(super) name: String,
    pub(super) guid: u64,
    pub(super) profile: Profile,
    pub(super) limits: Limits,
    pub(super) ports: Vec<SoftPort>,
    /// Longest send descriptor of an mlx5 queue pair.
    pub(super) descriptor_bytes: u32,
    /// Whether the GIDs of the first port are to be made up from the device's place in the list.
    pub(super) gids_by_place: bool,
}

impl SoftDevice {
    /// A device with one active Ethernet port.
    ///
    /// Its GIDs, unless [`SoftDevice::gids`] gives others, are `fe80::n` and `::ffff:127.0.0.n` for the n-th device of the
    /// list, counted from 1.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            guid: 0,
            profile: Profile::Verbs,
            limits: Limits::default(),
            ports: vec![SoftPort::default()],
            gids_by_place: true,
            descriptor_bytes: 1024,
        }
    }

    /// A device with the habits of Thunderbolt RDMA on a Mac, so that a program for it can be developed anywhere.
    ///
    /// Link layer and transport 100; UC SEND only (reliable queue pairs refused with 102); a send waits until a receive is
    /// posted; immediates are dropped; a message and its receive must have equally many 4 KiB frames, or the receive fails;
    /// queues count 4 KiB frames, at most 4095; a full one answers -12 and leaves `bad_wr` alone; 10 queue pairs (then
    /// EBUSY), 100 regions (then ENOMEM), 1 entry; RTR without a global route answers 60; on a down port `alloc_pd` returns
    /// null. Its GIDs are `fe80::n` and `::ffff:169.254.0.n`.
    pub fn thunderbolt(name: impl Into<String>) -> Self {
        Self {
            profile: Profile::Thunderbolt,
            limits: Limits {
                queue_pairs: 10,
                regions: 100,
                region_bytes: u64::MAX,
                queue_depth: 4095,
                entries: 1,
                inline_bytes: 0,
                completion_entries: 32_767,
            },
            ports: vec![SoftPort {
                link_layer: LinkLayer::THUNDERBOLT,
                active_mtu: Mtu::B4096,
                lid: 1,
                max_message_bytes: 16_773_120,
                ..SoftPort::default()
            }],
            ..Self::new(name)
        }
    }

    /// A device with what an mlx5 provider adds: `mlx5dv_is_supported` says so, and indirect keys can be made and bound
    /// ([`SoftFabric::mlx5_symbols`](crate::soft::SoftFabric::mlx5_symbols)).
    ///
    /// 30 entries to a request and to an indirect key, as a ConnectX-7; send descriptors of at most 1024 bytes.
    pub fn mlx5(name: impl Into<String>) -> Self {
        let limits = Limits { entries: 30, inline_bytes: 828, ..Limits::default() };
        Self { profile: Profile::Mlx5, limits, ..Self::new(name) }
    }

    /// Sets the longest send descriptor of an mlx5 device's queue pairs, bytes: what bounds the entries of a binding.
    #[must_use]
    pub const fn descriptor_bytes(mut self, bytes: u32) -> Self {
        self.descriptor_bytes = bytes;
        self.limits.inline_bytes = bytes.saturating_sub(196);
        self
    }

    /// Gives it a GUID; by default one is made up from its place in the list.
    #[must_use]
    pub const fn guid(mut self, guid: u64) -> Self {
        self.guid = guid;
        self
    }

    /// Replaces its limits.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Replaces the GID table of its first port.
    #[must_use]
    pub fn gids(mut self, gids: Vec<GidSlot>) -> Self {
        self.gids_by_place = false;
        self.on_first_port(|port| port.gids = gids)
    }

    /// Sets the state of its first port.
    #[must_use]
    pub fn port_state(self, state: PortState) -> Self {
        self.on_first_port(|port| port.state = state)
    }

    /// Sets the link layer of its first port.
    #[must_use]
    pub fn link_layer(self, link_layer: LinkLayer) -> Self {
        self.on_first_port(|port| port.link_layer = link_layer)
    }

    /// Sets the LID of its first port.
    #[must_use]
    pub fn lid(self, lid: u16) -> Self {
        self.on_first_port(|port| port.lid = lid)
    }

    /// Sets the MTU in force on its first port.
    #[must_use]
    pub fn active_mtu(self, mtu: Mtu) -> Self {
        self.on_first_port(|port| port.active_mtu = mtu)
    }

    /// Sets the largest message of its first port, bytes.
    #[must_use]
    pub fn max_message_bytes(self, max_message_bytes: u32) -> Self {
        self.on_first_port(|port| port.max_message_bytes = max_message_bytes)
    }

    /// Replaces all its ports.
    #[must_use]
    pub fn ports(mut self, ports: Vec<SoftPort>) -> Self {
        self.gids_by_place = false;
        self.ports = ports;
        self
    }

    fn on_first_port(mut self, change: impl FnOnce(&mut SoftPort)) -> Self {
        if let Some(port) = self.ports.first_mut() {
            change(port);
        }
        self
    }

    /// Fills in what depends on the device's place in the list, counted from 0.
    pub(super) fn placed(mut self, place: usize) -> Self {
        let number = place as u64 + 1;
        if self.guid == 0 {
            self.guid = 0x0200_00ff_fe00_0000 | number;
        }
        if self.gids_by_place {
            let last = (number % 255) as u8;
            let address = if self.profile == Profile::Thunderbolt { [169, 254, 0, last] } else { [127, 0, 0, last] };
            self = self.gids(vec![GidSlot::link_local(number), GidSlot::ipv4(address)]);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(slot: GidSlot) -> String {
        match slot {
            GidSlot::Gid(gid, _) => gid.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn gids_come_from_the_place_unless_they_are_given() {
        let placed = SoftDevice::new("a").placed(1);
        assert_eq!(
            placed.ports[0].gids.iter().map(|slot| text(*slot)).collect::<Vec<_>>(),
            ["fe80::2", "::ffff:127.0.0.2"]
        );
        let given = SoftDevice::new("a").gids(vec![GidSlot::Empty]).placed(1);
        assert_eq!(given.ports[0].gids, [GidSlot::Empty]);
    }

    #[test]
    fn guids_differ_by_place() {
        assert_ne!(SoftDevice::new("a").placed(0).guid, SoftDevice::new("a").placed(1).guid);
        assert_eq!(SoftDevice::new("a").guid(5).placed(1).guid, 5);
    }
}
