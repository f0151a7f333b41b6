//! The first thing that one end tells the other: where it is, and what it takes for granted.
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | magic `BVhi` |
//! | 4 | version, 1 |
//! | 5 | service: 1 unreliable connected, 2 reliable connected |
//! | 6 | link layer, as the port says it |
//! | 7 | path MTU that this end can have, coded 1 (256) to 5 (4096) |
//! | 8 | carrier: 1 immediate, 2 header, 3 raw |
//! | 9 | bit 0: the link carries credits; bit 1: payloads carry a CRC32C; bits 2-7: reads and atomics, below; 0 with frames |
//! | 10-11 | the carrier's room at a frame's start, bytes |
//! | 12-15 | frame size, bytes; 0 for a queue pair without messages, for one-sided operations |
//! | 16-19 | receives that this end keeps posted |
//! | 20-23 | number of the first message that this end will send |
//! | 24-31 | nonce, as the caller gave it |
//! | 32-63 | [`Destination`] |
//!
//! Integers are big-endian. A reliable queue pair for one-sided operations says in bits 2-7 of byte 9 how many reads and
//! atomics it can have under way. The rule this file protects: **decoding is total, and each hello has one wire form.** What
//! two hellos make together is decided in [`agreement`](crate::connect::agreement).

use crate::connect::config::Service;
use crate::connect::destination::{self, Destination, DestinationError};
use crate::link::{CarrierKind, Checksum, CreditMode, Sequence};
use crate::verbs::port::{LinkLayer, Mtu};

/// Length of a hello's wire form, in bytes.
pub const HELLO_BYTES: usize = 64;
/// Length of its start, by which another program and another version are told: [`Hello::check_start`].
pub const HELLO_START_BYTES: usize = 5;
const DESTINATION_AT: usize = HELLO_BYTES - destination::WIRE_BYTES;
const MAGIC: [u8; 4] = *b"BVhi";
const VERSION: u8 = 1;
const FLAG_CREDITS: u8 = 1;
const FLAG_CHECKSUM: u8 = 2;
/// Where in the flags the number of reads and atomics stands.
const RD_ATOMIC_SHIFT: u32 = 2;
/// The most reads and atomics that a hello can say.
pub const MOST_RD_ATOMIC: u8 = u8::MAX >> RD_ATOMIC_SHIFT;

/// What one end tells the other before either connects.
///
/// ```
/// use bareverbs_core::connect::{CreditMode, Destination, Hello, Psn, Service};
/// use bareverbs_core::link::{CarrierKind, Checksum, Sequence};
/// use bareverbs_core::verbs::{Gid, LinkLayer, Mtu};
///
/// let hello = Hello {
///     destination: Destination { lid: 0, qp_num: 17, psn: Psn::JACCL, gid: Gid::ZERO },
///     service: Service::Uc,
///     link_layer: LinkLayer::ETHERNET,
///     path_mtu: Mtu::B1024,
///     frame_bytes: 4096,
///     carrier: CarrierKind::Immediate,
///     header_room_bytes: 0,
///     checksum: Checksum::Off,
///     credits: CreditMode::Off,
///     max_rd_atomic: 0,
///     recv_depth: 32,
///     first_sequence: Sequence::new(0xFFFF_FFFE),
///     nonce: 0,
/// };
/// assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Hello {
    /// Where this end is.
    pub destination: Destination,
    /// The transport service.
    pub service: Service,
    /// The port's link layer.
    pub link_layer: LinkLayer,
    /// The path MTU that this end can have: one of the five known.
    pub path_mtu: Mtu,
    /// Bytes of a frame, the carrier's room included.
    pub frame_bytes: u32,
    /// How messages carry their numbers.
    pub carrier: CarrierKind,
    /// Bytes at a frame's start that are the carrier's.
    pub header_room_bytes: u16,
    /// Whether payloads carry a checksum.
    pub checksum: Checksum,
    /// Whether the link carries credits.
    pub credits: CreditMode,
    /// Reads and atomics that this end can have under way, as initiator and as responder: at most [`MOST_RD_ATOMIC`], and 0 but
    /// for a reliable queue pair without frames.
    pub max_rd_atomic: u8,
    /// Receives that this end keeps posted.
    pub recv_depth: u32,
    /// The number of the first message that this end will send.
    pub first_sequence: Sequence,
    /// What the caller gave, to tell one pair of processes from another. It is no secret: it travels in clear.
    pub nonce: u64,
}

/// Why bytes are not a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum HelloError {
    /// Too few or too many bytes.
    Length {
        /// How many came.
        got_bytes: usize,
    },
    /// Not our magic: something else is talking.
    Magic {
        /// What came.
        got: [u8; 4],
    },
    /// A version that this library does not speak.
    Version {
        /// What came; 1 is expected.
        got: u8,
    },
    /// A bit that must be 0 is set.
    ReservedBits {
        /// Index of the byte.
        byte: usize,
        /// What it holds.
        got: u8,
    },
    /// A service that this library does not know.
    Service {
        /// What came.
        got: u8,
    },
    /// An MTU that does not exist.
    Mtu {
        /// What came, coded.
        got: u8,
    },
    /// A carrier that this library does not know.
    Carrier {
        /// What came.
        got: u8,
    },
    /// Its destination cannot be read.
    Destination(DestinationError),
}

impl core::fmt::Display for HelloError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length { got_bytes } => write!(f, "a hello has {HELLO_BYTES} bytes, {got_bytes} came"),
            Self::Magic { got } => {
                write!(f, "a hello starts with {MAGIC:02x?}, {got:02x?} came: another program is talking")
            }
            Self::Version { got } => {
                write!(f, "hello version {VERSION} is spoken here, {got} came: use one release at both ends")
            }
            Self::ReservedBits { byte, got } => write!(f, "byte {byte} of a hello has reserved bits set: {got:#04x}"),
            Self::Service { got } => write!(f, "hello with service {got}: 1 (UC) and 2 (RC) are known"),
            Self::Mtu { got } => write!(f, "hello with MTU code {got}: 1 (256) to 5 (4096) exist"),
            Self::Carrier { got } => {
                write!(f, "hello with carrier {got}: 1 (immediate), 2 (header) and 3 (raw) are known")
            }
            Self::Destination(error) => write!(f, "hello: {error}"),
        }
    }
}

impl core::error::Error for HelloError {}

impl Hello {
    /// The wire form. An MTU that is none of the five known goes out as it is, and is refused at the other end.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut wire = [0; HELLO_BYTES];
        let (head, destination) = wire.split_at_mut(DESTINATION_AT);
        let mut flags = 0;
        if self.credits == CreditMode::On {
            flags |= FLAG_CREDITS;
        }
        if self.checksum == Checksum::Crc32c {
            flags |= FLAG_CHECKSUM;
        }
        if is_one_sided(self.service, self.frame_bytes) {
            flags |= self.max_rd_atomic.min(MOST_RD_ATOMIC) << RD_ATOMIC_SHIFT;
        }
        head[..4].copy_from_slice(&MAGIC);
        head[4] = VERSION;
        head[5] = service_code(self.service);
        head[6] = self.link_layer.0;
        head[7] = u8::try_from(self.path_mtu.0).unwrap_or(u8::MAX);
        head[8] = carrier_code(self.carrier);
        head[9] = flags;
        head[10..12].copy_from_slice(&self.header_room_bytes.to_be_bytes());
        head[12..16].copy_from_slice(&self.frame_bytes.to_be_bytes());
        head[16..20].copy_from_slice(&self.recv_depth.to_be_bytes());
        head[20..24].copy_from_slice(&self.first_sequence.number().to_be_bytes());
        head[24..].copy_from_slice(&self.nonce.to_be_bytes());
        destination.copy_from_slice(&self.destination.encode());
        wire
    }

    /// Whether a hello can start like this: to be asked before more is waited for, since another program may never send
    /// 64 bytes, and another version may have another length.
    ///
    /// # Errors
    /// [`HelloError::Magic`], [`HelloError::Version`].
    pub fn check_start(start: &[u8; HELLO_START_BYTES]) -> Result<(), HelloError> {
        let [m0, m1, m2, m3, version] = *start;
        let got = [m0, m1, m2, m3];
        if got != MAGIC {
            return Err(HelloError::Magic { got });
        }
        if version != VERSION {
            return Err(HelloError::Version { got: version });
        }
        Ok(())
    }

    /// Reads the wire form. Total: any bytes give an answer.
    ///
    /// # Errors
    /// [`HelloError`] says what is wrong first, from the front.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let length = HelloError::Length { got_bytes: bytes.len() };
        let wire = <&[u8; HELLO_BYTES]>::try_from(bytes).map_err(|_| length)?;
        let start = wire.first_chunk::<HELLO_START_BYTES>().ok_or(length)?;
        let (head, destination) = wire.split_first_chunk::<DESTINATION_AT>().ok_or(length)?;
        Self::check_start(start)?;
        let [_, _, _, _, _, service, link_layer, mtu, carrier, flags, rest @ ..] = *head;
        let service = service_of(service).ok_or(HelloError::Service { got: service })?;
        let path_mtu = Mtu(u32::from(mtu));
        if path_mtu.bytes().is_none() {
            return Err(HelloError::Mtu { got: mtu });
        }
        let carrier = carrier_of(carrier).ok_or(HelloError::Carrier { got: carrier })?;
        let [h0, h1, f0, f1, f2, f3, r0, r1, r2, r3, s0, s1, s2, s3, nonce @ ..] = rest;
        let frame_bytes = u32::from_be_bytes([f0, f1, f2, f3]);
        let max_rd_atomic = flags >> RD_ATOMIC_SHIFT;
        if max_rd_atomic != 0 && !is_one_sided(service, frame_bytes) {
            return Err(HelloError::ReservedBits { byte: 9, got: flags });
        }
        Ok(Self {
            destination: Destination::decode(destination).map_err(HelloError::Destination)?,
            service,
            link_layer: LinkLayer(link_layer),
            path_mtu,
            frame_bytes,
            carrier,
            header_room_bytes: u16::from_be_bytes([h0, h1]),
            checksum: if flags & FLAG_CHECKSUM == 0 { Checksum::Off } else { Checksum::Crc32c },
            credits: if flags & FLAG_CREDITS == 0 { CreditMode::Off } else { CreditMode::On },
            max_rd_atomic,
            recv_depth: u32::from_be_bytes([r0, r1, r2, r3]),
            first_sequence: Sequence::new(u32::from_be_bytes([s0, s1, s2, s3])),
            nonce: u64::from_be_bytes(nonce),
        })
    }
}

/// Whether it is for one-sided operations: reliable, and without frames.
const fn is_one_sided(service: Service, frame_bytes: u32) -> bool {
    matches!(service, Service::Rc) && frame_bytes == 0
}

const fn service_code(service: Service) -> u8 {
    match service {
        Service::Uc => 1,
        Service::Rc => 2,
    }
}

const fn service_of(code: u8) -> Option<Service> {
    match code {
        1 => Some(Service::Uc),
        2 => Some(Service::Rc),
        _ => None,
    }
}

const fn carrier_code(carrier: CarrierKind) -> u8 {
    match carrier {
        CarrierKind::Immediate => 1,
        CarrierKind::Header => 2,
        CarrierKind::Raw => 3,
    }
}

const fn carrier_of(code: u8) -> Option<CarrierKind> {
    match code {
        1 => Some(CarrierKind::Immediate),
        2 => Some(CarrierKind::Header),
        3 => Some(CarrierKind::Raw),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
