//! What a device says of itself.

use core::ffi::{c_char, c_void};

use crate::layout::{layout, open_enum};
use crate::verbs::big_endian::Be64;

open_enum! {
    /// `enum ibv_node_type`
    NodeType: i32 {
        UNKNOWN = -1, "IBV_NODE_UNKNOWN";
        CA = 1, "IBV_NODE_CA";
        SWITCH = 2, "IBV_NODE_SWITCH";
        ROUTER = 3, "IBV_NODE_ROUTER";
        RNIC = 4, "IBV_NODE_RNIC";
        USNIC = 5, "IBV_NODE_USNIC";
        USNIC_UDP = 6, "IBV_NODE_USNIC_UDP";
        UNSPECIFIED = 7, "IBV_NODE_UNSPECIFIED";
    }
}

open_enum! {
    /// `enum ibv_transport_type`
    TransportType: i32 {
        UNKNOWN = -1, "IBV_TRANSPORT_UNKNOWN";
        IB = 0, "IBV_TRANSPORT_IB";
        IWARP = 1, "IBV_TRANSPORT_IWARP";
        USNIC = 2, "IBV_TRANSPORT_USNIC";
        USNIC_UDP = 3, "IBV_TRANSPORT_USNIC_UDP";
        UNSPECIFIED = 4, "IBV_TRANSPORT_UNSPECIFIED";
    }
}

impl TransportType {
    /// Apple's Thunderbolt devices answer 100 (published; in no header we could read).
    pub const THUNDERBOLT: Self = Self(100);
}

open_enum! {
    /// `enum ibv_atomic_cap`
    AtomicCap: u32 {
        NONE = 0, "IBV_ATOMIC_NONE";
        HCA = 1, "IBV_ATOMIC_HCA";
        GLOB = 2, "IBV_ATOMIC_GLOB";
    }
}

/// `struct _ibv_device_ops`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceOps {
    /// Never to be called.
    pub _dummy1: *mut c_void,
    /// Never to be called.
    pub _dummy2: *mut c_void,
}

layout! {
    DeviceOps: "struct _ibv_device_ops", whole 16 align 8 {
        _dummy1 0 8; _dummy2 8 8;
    }
}

/// `struct ibv_device`
///
/// Made by the library only; the names are C strings.
#[derive(Debug)]
#[repr(C)]
pub struct Device {
    /// Compatibility slots.
    pub _ops: DeviceOps,
    /// Kind of node.
    pub node_type: NodeType,
    /// Transport.
    pub transport_type: TransportType,
    /// The kernel's name (`mlx5_0`).
    pub name: [c_char; 64],
    /// Name of the uverbs device.
    pub dev_name: [c_char; 64],
    /// Its path in sysfs.
    pub dev_path: [c_char; 256],
    /// The device's path in sysfs.
    pub ibdev_path: [c_char; 256],
}

layout! {
    Device: "struct ibv_device", whole 664 align 8 {
        _ops 0 16; node_type 16 4; transport_type 20 4; name 24 64; dev_name 88 64; dev_path 152 256;
        ibdev_path 408 256;
    }
}

/// `struct ibv_device_attr`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceAttr {
    /// Firmware version, a C string.
    pub fw_ver: [c_char; 64],
    /// GUID of the node.
    pub node_guid: Be64,
    /// GUID of the system image.
    pub sys_image_guid: Be64,
    /// Largest region, in bytes.
    pub max_mr_size: u64,
    /// Page sizes, as bits.
    pub page_size_cap: u64,
    /// PCI vendor.
    pub vendor_id: u32,
    /// PCI part.
    pub vendor_part_id: u32,
    /// Hardware revision.
    pub hw_ver: u32,
    /// Queue pairs.
    pub max_qp: i32,
    /// Work requests on a queue.
    pub max_qp_wr: i32,
    /// Capability bits.
    pub device_cap_flags: u32,
    /// Scatter/gather entries of a request. Signed: check for 0 and negative.
    pub max_sge: i32,
    /// The same for reads.
    pub max_sge_rd: i32,
    /// Completion queues.
    pub max_cq: i32,
    /// Entries of a completion queue.
    pub max_cqe: i32,
    /// Memory regions.
    pub max_mr: i32,
    /// Protection domains.
    pub max_pd: i32,
    /// Outstanding reads and atomics per queue pair, as responder.
    pub max_qp_rd_atom: i32,
    /// The same per end-to-end context.
    pub max_ee_rd_atom: i32,
    /// The same per device.
    pub max_res_rd_atom: i32,
    /// Outstanding reads and atomics per queue pair, as initiator.
    pub max_qp_init_rd_atom: i32,
    /// The same per end-to-end context.
    pub max_ee_init_rd_atom: i32,
    /// Towards whom atomics are atomic.
    pub atomic_cap: AtomicCap,
    /// End-to-end contexts.
    pub max_ee: i32,
    /// Reliable datagram domains.
    pub max_rdd: i32,
    /// Memory windows.
    pub max_mw: i32,
    /// Raw IPv6 queue pairs.
    pub max_raw_ipv6_qp: i32,
    /// Raw Ethertype queue pairs.
    pub max_raw_ethy_qp: i32,
    /// Multicast groups.
    pub max_mcast_grp: i32,
    /// Queue pairs per multicast group.
    pub max_mcast_qp_attach: i32,
    /// Queue pairs in multicast groups.
    pub max_total_mcast_qp_attach: i32,
    /// Address handles.
    pub max_ah: i32,
    /// Fast memory regions.
    pub max_fmr: i32,
    /// Maps per fast memory region.
    pub max_map_per_fmr: i32,
    /// Shared receive queues.
    pub max_srq: i32,
    /// Requests on a shared receive queue.
    pub max_srq_wr: i32,
    /// Entries of such a request.
    pub max_srq_sge: i32,
    /// Partition keys.
    pub max_pkeys: u16,
    /// Delay of an acknowledgement, coded.
    pub local_ca_ack_delay: u8,
    /// Physical ports.
    pub phys_port_cnt: u8,
}

layout! {
    DeviceAttr: "struct ibv_device_attr", whole 232 align 8 {
        fw_ver 0 64; node_guid 64 8; sys_image_guid 72 8; max_mr_size 80 8; page_size_cap 88 8; vendor_id 96 4;
        vendor_part_id 100 4; hw_ver 104 4; max_qp 108 4; max_qp_wr 112 4; device_cap_flags 116 4; max_sge 120 4;
        max_sge_rd 124 4; max_cq 128 4; max_cqe 132 4; max_mr 136 4; max_pd 140 4; max_qp_rd_atom 144 4;
        max_ee_rd_atom 148 4; max_res_rd_atom 152 4; max_qp_init_rd_atom 156 4; max_ee_init_rd_atom 160 4;
        atomic_cap 164 4; max_ee 168 4; max_rdd 172 4; max_mw 176 4; max_raw_ipv6_qp 180 4; max_raw_ethy_qp 184 4;
        max_mcast_grp 188 4; max_mcast_qp_attach 192 4; max_total_mcast_qp_attach 196 4; max_ah 200 4; max_fmr 204 4;
        max_map_per_fmr 208 4; max_srq 212 4; max_srq_wr 216 4; max_srq_sge 220 4; max_pkeys 224 2;
        local_ca_ack_delay 226 1; phys_port_cnt 227 1;
    }
}

/// `struct ibv_odp_caps`, `per_transport_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct OdpTransportCaps {
    /// Reliable connected.
    pub rc_odp_caps: u32,
    /// Unreliable connected.
    pub uc_odp_caps: u32,
    /// Unreliable datagram.
    pub ud_odp_caps: u32,
}

layout! {
    OdpTransportCaps: "struct ibv_odp_caps.per_transport_caps", whole 12 align 4 { rc_odp_caps 0 4; uc_odp_caps 4 4; ud_odp_caps 8 4; }
}

/// `struct ibv_odp_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct OdpCaps {
    /// On-demand paging in general.
    pub general_caps: u64,
    /// The same per transport.
    pub per_transport_caps: OdpTransportCaps,
}

layout! {
    OdpCaps: "struct ibv_odp_caps", whole 24 align 8 { general_caps 0 8; per_transport_caps 8 12; }
    inner {
        per_transport_caps.rc_odp_caps 8 4;
        per_transport_caps.uc_odp_caps 12 4;
        per_transport_caps.ud_odp_caps 16 4;
    }
}

/// `struct ibv_tso_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TsoCaps {
    /// Largest message to be segmented.
    pub max_tso: u32,
    /// Queue pair types that can.
    pub supported_qpts: u32,
}

layout! {
    TsoCaps: "struct ibv_tso_caps", whole 8 align 4 { max_tso 0 4; supported_qpts 4 4; }
}

/// `struct ibv_rss_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RssCaps {
    /// Queue pair types that can.
    pub supported_qpts: u32,
    /// Indirection tables.
    pub max_rwq_indirection_tables: u32,
    /// Entries of one.
    pub max_rwq_indirection_table_size: u32,
    /// Header fields to hash.
    pub rx_hash_fields_mask: u64,
    /// Hash functions.
    pub rx_hash_function: u8,
}

layout! {
    RssCaps: "struct ibv_rss_caps", whole 32 align 8 {
        supported_qpts 0 4; max_rwq_indirection_tables 4 4; max_rwq_indirection_table_size 8 4;
        rx_hash_fields_mask 16 8; rx_hash_function 24 1;
    }
}

/// `struct ibv_packet_pacing_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PacketPacingCaps {
    /// Lowest rate, kb/s.
    pub qp_rate_limit_min: u32,
    /// Highest rate, kb/s.
    pub qp_rate_limit_max: u32,
    /// Queue pair types that can.
    pub supported_qpts: u32,
}

layout! {
    PacketPacingCaps: "struct ibv_packet_pacing_caps", whole 12 align 4 {
        qp_rate_limit_min 0 4; qp_rate_limit_max 4 4; supported_qpts 8 4;
    }
}

/// `struct ibv_tm_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TmCaps {
    /// Largest rendezvous header.
    pub max_rndv_hdr_size: u32,
    /// Tags in a matching list.
    pub max_num_tags: u32,
    /// Capability bits.
    pub flags: u32,
    /// Outstanding list operations.
    pub max_ops: u32,
    /// Entries of a tagged buffer.
    pub max_sge: u32,
}

layout! {
    TmCaps: "struct ibv_tm_caps", whole 20 align 4 {
        max_rndv_hdr_size 0 4; max_num_tags 4 4; flags 8 4; max_ops 12 4; max_sge 16 4;
    }
}

/// `struct ibv_cq_moderation_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CqModerationCaps {
    /// Largest count.
    pub max_cq_count: u16,
    /// Longest period, microseconds.
    pub max_cq_period: u16,
}

layout! {
    CqModerationCaps: "struct ibv_cq_moderation_caps", whole 4 align 2 { max_cq_count 0 2; max_cq_period 2 2; }
}

/// `struct ibv_pci_atomic_caps`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PciAtomicCaps {
    /// Sizes of fetch-and-add.
    pub fetch_add: u16,
    /// Sizes of swap.
    pub swap: u16,
    /// Sizes of compare-and-swap.
    pub compare_swap: u16,
}

layout! {
    PciAtomicCaps: "struct ibv_pci_atomic_caps", whole 6 align 2 { fetch_add 0 2; swap 2 2; compare_swap 4 2; }
}

/// `struct ibv_device_attr_ex`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceAttrEx {
    /// The plain attributes.
    pub orig_attr: DeviceAttr,
    /// Extensions asked for; 0.
    pub comp_mask: u32,
    /// On-demand paging.
    pub odp_caps: OdpCaps,
    /// Bits of a completion timestamp.
    pub completion_timestamp_mask: u64,
    /// Clock of the device, kHz.
    pub hca_core_clock: u64,
    /// More capability bits.
    pub device_cap_flags_ex: u64,
    /// Segmentation.
    pub tso_caps: TsoCaps,
    /// Receive-side scaling.
    pub rss_caps: RssCaps,
    /// Receive work queues.
    pub max_wq_type_rq: u32,
    /// Pacing.
    pub packet_pacing_caps: PacketPacingCaps,
    /// Raw packets.
    pub raw_packet_caps: u32,
    /// Tag matching.
    pub tm_caps: TmCaps,
    /// Moderation of completions.
    pub cq_mod_caps: CqModerationCaps,
    /// Device memory, bytes.
    pub max_dm_size: u64,
    /// Atomics over PCI.
    pub pci_atomic_caps: PciAtomicCaps,
    /// On-demand paging of XRC.
    pub xrc_odp_caps: u32,
    /// Physical ports, where there are more than a byte counts.
    pub phys_port_cnt_ex: u32,
}

layout! {
    DeviceAttrEx: "struct ibv_device_attr_ex", whole 400 align 8 {
        orig_attr 0 232; comp_mask 232 4; odp_caps 240 24; completion_timestamp_mask 264 8; hca_core_clock 272 8;
        device_cap_flags_ex 280 8; tso_caps 288 8; rss_caps 296 32; max_wq_type_rq 328 4; packet_pacing_caps 332 12;
        raw_packet_caps 344 4; tm_caps 348 20; cq_mod_caps 368 4; max_dm_size 376 8; pci_atomic_caps 384 6;
        xrc_odp_caps 392 4; phys_port_cnt_ex 396 4;
    }
}

/// `struct ibv_query_device_ex_input`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct QueryDeviceExInput {
    /// Must be 0; anything else is refused with EINVAL.
    pub comp_mask: u32,
}

layout! {
    QueryDeviceExInput: "struct ibv_query_device_ex_input", whole 4 align 4 {
        comp_mask 0 4;
    }
}
