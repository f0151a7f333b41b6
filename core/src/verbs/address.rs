//! Where a queue pair's packets go: GIDs, global routes, address handles.

use crate::layout::{layout, open_enum};
use crate::verbs::big_endian::Be64;

/// `union ibv_gid`
///
/// Sixteen bytes, aligned as the union's 64-bit halves are. On RoCE a GID is an IPv6 address, or an IPv4 address mapped
/// into one (`::ffff:a.b.c.d`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C, align(8))]
pub struct Gid {
    /// The bytes, most significant first.
    pub raw: [u8; 16],
}

layout! {
    Gid: "union ibv_gid", whole 16 align 8 { raw 0 16; }
    alias { "global" 0 16; "global.subnet_prefix" 0 8; "global.interface_id" 8 8; }
}

impl Gid {
    /// The GID of an empty slot.
    pub const ZERO: Self = Self { raw: [0; 16] };

    /// A GID made of its bytes, most significant first.
    pub const fn new(raw: [u8; 16]) -> Self {
        Self { raw }
    }

    /// Whether all bytes are zero: what a library answers, with success, for an empty slot of the table.
    pub const fn is_zero(&self) -> bool {
        u128::from_ne_bytes(self.raw) == 0
    }

    /// `global.subnet_prefix`: the first eight bytes.
    pub const fn subnet_prefix(&self) -> u64 {
        (u128::from_be_bytes(self.raw) >> 64) as u64
    }

    /// `global.interface_id`: the last eight bytes.
    pub const fn interface_id(&self) -> u64 {
        u128::from_be_bytes(self.raw) as u64
    }

    /// The IPv4 address, where this is an IPv4-mapped GID (`::ffff:a.b.c.d`).
    pub const fn ipv4(&self) -> Option<[u8; 4]> {
        match self.raw {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    /// Whether this is link-local: `fe80::/10`, or an IPv4-mapped address in 169.254/16.
    pub const fn is_link_local(&self) -> bool {
        match self.ipv4() {
            Some([a, b, _, _]) => a == 169 && b == 254,
            None => self.raw[0] == 0xfe && self.raw[1] & 0xc0 == 0x80,
        }
    }

    /// Whether this is a loopback address: `::1`, or an IPv4-mapped address in 127/8.
    pub const fn is_loopback(&self) -> bool {
        match self.ipv4() {
            Some([a, _, _, _]) => a == 127,
            None => u128::from_be_bytes(self.raw) == 1,
        }
    }
}

impl core::fmt::Display for Gid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::net::Ipv6Addr::from(self.raw).fmt(f)
    }
}

impl core::fmt::Debug for Gid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Gid({self})")
    }
}

open_enum! {
    /// `enum ibv_gid_type`
    GidType: u32 {
        IB = 0, "IBV_GID_TYPE_IB";
        ROCE_V1 = 1, "IBV_GID_TYPE_ROCE_V1";
        ROCE_V2 = 2, "IBV_GID_TYPE_ROCE_V2";
    }
}

/// `struct ibv_gid_entry`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Its index in the port's table.
    pub gid_index: u32,
    /// The port, counted from 1.
    pub port_num: u32,
    /// What the GID names.
    pub gid_type: GidType,
    /// Index of the network interface behind it, 0 for none.
    pub ndev_ifindex: u32,
}

layout! {
    GidEntry: "struct ibv_gid_entry", whole 32 align 8 {
        gid 0 16; gid_index 16 4; port_num 20 4; gid_type 24 4; ndev_ifindex 28 4;
    }
}

/// `struct ibv_global_route`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct GlobalRoute {
    /// The other end's GID.
    pub dgid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Index of our own GID in the port's table.
    pub sgid_index: u8,
    /// Routers that a packet may cross.
    pub hop_limit: u8,
    /// Traffic class; on RoCE v2 the byte of DSCP and ECN.
    pub traffic_class: u8,
}

layout! {
    GlobalRoute: "struct ibv_global_route", whole 24 align 8 {
        dgid 0 16; flow_label 16 4; sgid_index 20 1; hop_limit 21 1; traffic_class 22 1;
    }
}

/// `struct ibv_ah_attr`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AhAttr {
    /// The global route, read where `is_global` is set.
    pub grh: GlobalRoute,
    /// The other end's LID, on InfiniBand.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of our own LID, where the port has several.
    pub src_path_bits: u8,
    /// Rate limit, `enum ibv_rate`; 0 for the port's.
    pub static_rate: u8,
    /// Whether packets carry the global route.
    pub is_global: u8,
    /// Our own port, counted from 1.
    pub port_num: u8,
}

layout! {
    AhAttr: "struct ibv_ah_attr", whole 32 align 8 {
        grh 0 24; dlid 24 2; sl 26 1; src_path_bits 27 1; static_rate 28 1; is_global 29 1; port_num 30 1;
    }
}

/// `subnet_prefix` or GUID words as the library stores them.
pub type Guid = Be64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn gid(text: &str) -> Gid {
        Gid::new(text.parse::<std::net::Ipv6Addr>().expect("an address").octets())
    }

    #[test]
    fn an_ipv4_mapped_gid_gives_its_address() {
        assert_eq!(gid("::ffff:10.0.0.1").ipv4(), Some([10, 0, 0, 1]));
        assert_eq!(gid("fe80::1").ipv4(), None);
        assert_eq!(gid("::ffff:10.0.0.1").to_string(), "::ffff:10.0.0.1");
    }

    #[test]
    fn scopes_are_told_apart() {
        assert!(gid("fe80::1").is_link_local());
        assert!(gid("::ffff:169.254.0.9").is_link_local());
        assert!(!gid("::ffff:10.0.0.1").is_link_local());
        assert!(gid("::1").is_loopback() && gid("::ffff:127.0.0.1").is_loopback());
        assert!(!gid("::2").is_loopback());
        assert!(Gid::ZERO.is_zero() && !gid("::1").is_zero());
    }

    #[test]
    fn the_halves_of_a_gid_are_big_endian() {
        let gid = gid("fe80::0102:0304:0506:0708");
        assert_eq!(gid.subnet_prefix(), 0xfe80_0000_0000_0000);
        assert_eq!(gid.interface_id(), 0x0102_0304_0506_0708);
    }
}
