//! The header at a frame's start, for fabrics that lose immediate data.
//!
//! Big-endian, [`HEADER_BYTES`] long, in a room of `ROOM` bytes (64 by default, so that payloads stay aligned to the
//! cache line); the rest of the room is not looked at.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | magic, `bV` ([`MAGIC`]) |
//! | 2 | version ([`VERSION`]) |
//! | 3 | flags: bit 0, a checksum follows; bit 1, a credit message (see `credits`); bits 2..8 zero |
//! | 4..8 | sequence number; of a credit message, that of the next message |
//! | 8..12 | payload length, bytes; of a credit message 0 |
//! | 12..16 | the first number that may not be sent yet to this one's sender; on links without credits zero, and not looked at |
//! | 16..20 | CRC32C of the payload, or zero |
//!
//! The rule this file protects: **decoding is total.** Any bytes give fields that fit the bytes, or a typed error.

use bitflags::bitflags;

use crate::link::crc32c::crc32c;
use crate::link::credits::CreditMode;
use crate::link::sequence::Sequence;

/// Bytes of the header that mean something.
pub const HEADER_BYTES: usize = 20;
/// The header's first two bytes.
pub const MAGIC: u16 = u16::from_be_bytes(*b"bV");
/// The version that this code writes, and the only one it reads.
pub const VERSION: u8 = 1;

bitflags! {
    /// The header's flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Flags: u8 {
        /// A checksum follows.
        const CHECKSUM = 1;
        /// It is a credit message.
        const CREDIT = 2;
    }
}

/// Whether a payload's checksum travels with it; both ends must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Checksum {
    /// None: corruption of the payload goes unnoticed, the link's own checks aside.
    #[default]
    Off,
    /// CRC32C.
    Crc32c,
}

/// The number travels in a header at the frame's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Header<const ROOM: usize = 64> {
    /// Whether payloads are checked.
    pub checksum: Checksum,
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HeaderFields {
    /// The message's number.
    pub sequence: Sequence,
    /// Its payload's length, bytes; lies within the bytes that were decoded.
    pub payload_bytes: u32,
    /// The first number that its sender cannot receive yet; zero on links without credits.
    pub credits: u32,
}

/// Why bytes are not a header with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than the header's room.
    TooShort {
        /// How many came.
        got_bytes: u64,
        /// The room.
        need_bytes: u32,
    },
    /// Another magic.
    Magic {
        /// What came.
        got: u16,
    },
    /// A version that this code does not know.
    Version {
        /// What came.
        got: u8,
    },
    /// Bits are set that nothing defines.
    ReservedBits {
        /// The flags that came.
        got: u8,
    },
    /// One end checks payloads and the other does not.
    ChecksumDisagreement {
        /// Whether this end does.
        expected: Checksum,
    },
    /// The payload would reach beyond the frame.
    TooLong {
        /// What the header says, bytes.
        got_bytes: u32,
        /// The room there is, bytes.
        room_bytes: u32,
    },
    /// A credit message has a payload.
    CreditWithPayload {
        /// What the header says, bytes.
        got_bytes: u32,
    },
    /// The payload is not what was sent.
    Corrupt {
        /// The CRC32C in the header.
        expected: u32,
        /// The payload's.
        got: u32,
    },
}

impl core::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooShort { got_bytes, need_bytes } => {
                write!(f, "header needs {need_bytes} bytes, got {got_bytes}")
            }
            Self::Magic { got } => write!(f, "header starts with {MAGIC:#06x}, got {got:#06x}"),
            Self::Version { got } => write!(f, "header version is {VERSION}, got {got}"),
            Self::ReservedBits { got } => write!(f, "reserved header flags must be zero, got {got:#04x}"),
            Self::ChecksumDisagreement { expected: Checksum::Off } => {
                f.write_str("header carries a checksum that was not agreed on")
            }
            Self::ChecksumDisagreement { expected: Checksum::Crc32c } => {
                f.write_str("header lacks the checksum that was agreed on")
            }
            Self::TooLong { got_bytes, room_bytes } => {
                write!(f, "header says {got_bytes} bytes of payload, there is room for {room_bytes}")
            }
            Self::CreditWithPayload { got_bytes } => write!(f, "credit message with {got_bytes} bytes of payload"),
            Self::Corrupt { expected, got } => {
                write!(f, "payload is corrupt: its CRC32C is {got:#010x}, the header says {expected:#010x}")
            }
        }
    }
}

impl core::error::Error for HeaderError {}

impl<const ROOM: usize> Header<ROOM> {
    pub(crate) const ROOM_IN_U32: u32 = {
        assert!(ROOM >= HEADER_BYTES && ROOM <= 4096, "a header's room is 20 to 4096 bytes");
        ROOM as u32
    };

    /// Payloads are not checked.
    pub const fn new() -> Self {
        Self { checksum: Checksum::Off }
    }

    /// Payloads are checked by CRC32C.
    pub const fn with_checksum() -> Self {
        Self { checksum: Checksum::Crc32c }
    }

    /// Writes a header in front of the payload that lies at `frame[ROOM..ROOM + payload_bytes]`.
    ///
    /// A frame shorter than that is left as it is; a link never has one.
    #[inline]
    pub fn encode(&self, frame: &mut [u8], sequence: Sequence, payload_bytes: u32) {
        self.encode_fields(frame, HeaderFields { sequence, payload_bytes, credits: 0 }, Flags::empty());
    }

    /// As [`Header::encode`]: all fields, and flags besides the checksum's.
    #[inline]
    pub(crate) fn encode_fields(&self, frame: &mut [u8], fields: HeaderFields, flags: Flags) {
        let HeaderFields { sequence, payload_bytes, credits } = fields;
        let Some((room, rest)) = frame.split_at_mut_checked(ROOM) else { return };
        let Some(payload) = rest.get(..payload_bytes as usize) else { return };
        let (flags, crc) = match self.checksum {
            Checksum::Off => (flags, 0),
            Checksum::Crc32c => (flags | Flags::CHECKSUM, crc32c(payload)),
        };
        let Some(header) = room.first_chunk_mut::<HEADER_BYTES>() else { return };
        let [m0, m1] = MAGIC.to_be_bytes();
        let start = u32::from_be_bytes([m0, m1, VERSION, flags.bits()]);
        let words = [start, sequence.number(), payload_bytes, credits, crc];
        for (bytes, word) in header.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
    }

    /// Reads the header of a message that came as `bytes`, and checks its payload.
    ///
    /// # Errors
    /// [`HeaderError`] says what is wrong with the bytes, the first thing in the order of the variants.
    #[inline]
    pub fn decode(&self, bytes: &[u8]) -> Result<HeaderFields, HeaderError> {
        self.decode_fields(bytes, CreditMode::Off).map(|(fields, _)| fields)
    }

    /// As [`Header::decode`], credit messages included where there are credits.
    #[inline]
    pub(crate) fn decode_fields(
        &self,
        bytes: &[u8],
        credits_are: CreditMode,
    ) -> Result<(HeaderFields, Flags), HeaderError> {
        let too_short = HeaderError::TooShort { got_bytes: bytes.len() as u64, need_bytes: Self::ROOM_IN_U32 };
        let (room, rest) = bytes.split_at_checked(ROOM).ok_or(too_short)?;
        let header = room.first_chunk::<HEADER_BYTES>().ok_or(too_short)?;
        let mut words = [0; HEADER_BYTES / 4];
        for (word, bytes) in words.iter_mut().zip(header.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        let [start, sequence, payload_bytes, credits, crc] = words;
        let [m0, m1, version, flags] = start.to_be_bytes();
        let got = u16::from_be_bytes([m0, m1]);
        if got != MAGIC {
            return Err(HeaderError::Magic { got });
        }
        if version != VERSION {
            return Err(HeaderError::Version { got: version });
        }
        let reserved = HeaderError::ReservedBits { got: flags };
        let flags = Flags::from_bits(flags).ok_or(reserved)?;
        if flags.contains(Flags::CREDIT) && credits_are == CreditMode::Off {
            return Err(reserved);
        }
        if flags.contains(Flags::CHECKSUM) != (self.checksum == Checksum::Crc32c) {
            return Err(HeaderError::ChecksumDisagreement { expected: self.checksum });
        }
        let room_bytes = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let too_long = HeaderError::TooLong { got_bytes: payload_bytes, room_bytes };
        let payload = rest.get(..payload_bytes as usize).ok_or(too_long)?;
        if flags.contains(Flags::CREDIT) && payload_bytes != 0 {
            return Err(HeaderError::CreditWithPayload { got_bytes: payload_bytes });
        }
        if self.checksum == Checksum::Crc32c {
            let got = crc32c(payload);
            if got != crc {
                return Err(HeaderError::Corrupt { expected: crc, got });
            }
        }
        Ok((HeaderFields { sequence: Sequence::new(sequence), payload_bytes, credits }, flags))
    }
}
