//! One end of a conversation.

pub mod carrier;
pub mod crc32c;
pub mod credits;
pub mod error;
pub mod frame;
pub mod header;
#[allow(clippy::module_inception, reason = "the house's name for it")]
pub mod link;
pub mod rules;
pub mod sequence;
pub mod work_id;

mod health;
mod recv_ring;
mod send_ring;

pub use carrier::{Carrier, CarrierError, CarrierKind, Immediate, Raw, ReadError};
pub use credits::CreditMode;
pub use error::{AgreeError, AlreadyStarted, Fault, LinkError, ReceiveError, SendError};
pub use frame::{FrameKey, FrameMemory, FrameStorage, HeldMemory, PAGE_BYTES};
pub use header::{Checksum, Header, HeaderError, HeaderFields};
pub use link::{Event, Link, Outstanding};
pub use recv_ring::RecvFrame;
pub use rules::{
    ByteLen, DepthUnit, Geometry, LinkRules, LinkSetup, LinkSetupError, Posting, THUNDERBOLT_FRAME_BYTES, WireLength,
};
pub use send_ring::{ChainFrame, Posted, SendChain, SendFrame};
pub use sequence::{Sequence, SequenceChecker, Verdict};
pub use work_id::{Direction, WorkId};
