//! What a port says of itself.

use crate::layout::{layout, open_enum};

open_enum! {
    /// `enum ibv_port_state`
    PortState: u32 {
        NOP = 0, "IBV_PORT_NOP";
        DOWN = 1, "IBV_PORT_DOWN";
        INIT = 2, "IBV_PORT_INIT";
        ARMED = 3, "IBV_PORT_ARMED";
        ACTIVE = 4, "IBV_PORT_ACTIVE";
        ACTIVE_DEFER = 5, "IBV_PORT_ACTIVE_DEFER";
    }
}

open_enum! {
    /// `enum ibv_mtu`
    Mtu: u32 {
        B256 = 1, "IBV_MTU_256";
        B512 = 2, "IBV_MTU_512";
        B1024 = 3, "IBV_MTU_1024";
        B2048 = 4, "IBV_MTU_2048";
        B4096 = 5, "IBV_MTU_4096";
    }
}

impl Mtu {
    /// The MTU in bytes, if the value is one of the five known.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }
}

open_enum! {
    /// `IBV_LINK_LAYER_*`
    ///
    /// In a port's attributes it is one byte. [`LinkLayer::THUNDERBOLT`] has no name in any published header.
    LinkLayer: u8 {
        UNSPECIFIED = 0, "IBV_LINK_LAYER_UNSPECIFIED";
        INFINIBAND = 1, "IBV_LINK_LAYER_INFINIBAND";
        ETHERNET = 2, "IBV_LINK_LAYER_ETHERNET";
    }
}

impl LinkLayer {
    /// Apple's Thunderbolt links answer 100 (published by several users of `librdma.dylib`; in no header we could read).
    pub const THUNDERBOLT: Self = Self(100);

    /// Whether packets always carry a global route: Ethernet and Thunderbolt.
    pub const fn needs_global_route(self) -> bool {
        matches!(self, Self::ETHERNET | Self::THUNDERBOLT)
    }
}

/// `struct ibv_port_attr`
///
/// The struct grew: 48 bytes to rdma-core 21, 52 to 48, 56 since. This mirror is the longest. A library fills what it
/// knows, and the exported `ibv_query_port` fills 48 bytes whatever it knows: hand out zeroed storage of at least
/// [`QUERY_PORT_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// Largest MTU the port can have.
    pub max_mtu: Mtu,
    /// MTU in force.
    pub active_mtu: Mtu,
    /// Entries of the GID table.
    pub gid_tbl_len: i32,
    /// Capability bits.
    pub port_cap_flags: u32,
    /// Largest message, in bytes.
    pub max_msg_sz: u32,
    /// Bad partition keys seen.
    pub bad_pkey_cntr: u32,
    /// Queue key violations seen.
    pub qkey_viol_cntr: u32,
    /// Entries of the partition key table.
    pub pkey_tbl_len: u16,
    /// The port's LID, on InfiniBand.
    pub lid: u16,
    /// The subnet manager's LID.
    pub sm_lid: u16,
    /// LID mask control.
    pub lmc: u8,
    /// Virtual lanes.
    pub max_vl_num: u8,
    /// The subnet manager's service level.
    pub sm_sl: u8,
    /// Subnet propagation delay.
    pub subnet_timeout: u8,
    /// Type of initialisation.
    pub init_type_reply: u8,
    /// Width in force, coded.
    pub active_width: u8,
    /// Speed in force, coded.
    pub active_speed: u8,
    /// Physical state.
    pub phys_state: u8,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// Flags of the port query.
    pub flags: u8,
    /// More capability bits.
    pub port_cap_flags2: u16,
    /// Speed in force, coded as `active_speed` is and wide enough for speeds that a byte cannot hold (256 is 200 Gb/s a
    /// lane), from rdma-core 49 on; 0 where the library does not say (`ibv_query_port(3)`: then `active_speed` counts).
    pub active_speed_ex: u32,
}

layout! {
    PortAttr: "struct ibv_port_attr", whole 56 align 4 {
        state 0 4; max_mtu 4 4; active_mtu 8 4; gid_tbl_len 12 4; port_cap_flags 16 4; max_msg_sz 20 4;
        bad_pkey_cntr 24 4; qkey_viol_cntr 28 4; pkey_tbl_len 32 2; lid 34 2; sm_lid 36 2; lmc 38 1; max_vl_num 39 1;
        sm_sl 40 1; subnet_timeout 41 1; init_type_reply 42 1; active_width 43 1; active_speed 44 1; phys_state 45 1;
        link_layer 46 1; flags 47 1 since 22; port_cap_flags2 48 2 since 22; active_speed_ex 52 4 since 49;
    }
    grew { "port_cap_flags2" 48; "active_speed_ex" 52; }
}

/// Bytes of zeroed storage to hand to a port query: more than any known library's struct.
pub const QUERY_PORT_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_in_bytes_is_known_for_the_five_values_only() {
        let bytes: std::vec::Vec<_> = (0..7).map(|n| Mtu(n).bytes()).collect();
        assert_eq!(bytes, [None, Some(256), Some(512), Some(1024), Some(2048), Some(4096), None]);
    }

    #[test]
    fn an_unknown_link_layer_keeps_its_number() {
        assert_eq!(std::format!("{:?}", LinkLayer(7)), "LinkLayer(7)");
        assert_eq!(LinkLayer(100), LinkLayer::THUNDERBOLT);
        assert!(LinkLayer::ETHERNET.needs_global_route() && !LinkLayer::INFINIBAND.needs_global_route());
    }
}
