//! The words of C: mirrors of the verbs structs, enums and flags, and the calls that C has inline.
//!
//! Every mirror keeps the header's field names and is followed by its table ([`crate::layout`]). Numbers come from
//! rdma-core 44.0's `<infiniband/verbs.h>` and `<infiniband/mlx5dv.h>`; members and constants that came later say in the
//! tables *since* which release they are there. [`STRUCTS`], [`TARGET_OFFSETS`] and [`CONSTANTS`] list all of them for the
//! C compiler.
//!
//! These files know no policy: what values a queue pair should have is decided in `connect`, what a request carries in
//! `link`.

pub mod address;
pub mod big_endian;
pub mod completion;
pub mod context;
pub mod device;
pub mod event;
pub mod inline_calls;
pub mod memory_region;
pub mod mlx5dv;
pub mod platform;
pub mod port;
pub mod queue_pair;
pub mod work_request;

mod tables;

pub use address::{AhAttr, Gid, GidEntry, GidType, GlobalRoute};
pub use big_endian::{Be32, Be64};
pub use completion::{CompChannel, Cq, Wc, WcFlags, WcOpcode, WcStatus};
pub use context::{Context, ContextOps};
pub use device::{AtomicCap, Device, DeviceAttr, DeviceAttrEx, NodeType, TransportType};
pub use event::{AsyncEvent, EventType};
pub use memory_region::{AccessFlags, Mr, Pd};
pub use port::{LinkLayer, Mtu, PortAttr, PortState};
pub use queue_pair::{
    CreateQpMask, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpInitAttrEx, QpState, QpType, SendOpsFlags,
};
pub use tables::{CONSTANTS, STRUCTS, TARGET_OFFSETS};
pub use work_request::{RecvWr, SendFlags, SendWr, Sge, WrOpcode};
