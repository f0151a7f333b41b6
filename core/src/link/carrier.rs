//! How a message's number travels: in immediate data, in a header at the frame's start, or not at all.
//!
//! The rule this file protects: **a message without its number is never a pass.** It leaves to `sequence` what a number
//! means.

use crate::link::bounds::SendKind;
use crate::link::credits::{CREDIT_BYTES, CreditMessage, CreditMode};
use crate::link::header::{Checksum, Flags, Header, HeaderError, HeaderFields};
use crate::link::rules::{ByteLen, LinkRules};
use crate::link::sequence::Sequence;
use crate::verbs::completion::FailedCompletion;
use crate::verbs::{Be32, Wc, WcOpcode};

/// How a link's messages carry their numbers: [`Immediate`], [`Header`] or [`Raw`].
pub trait Carrier: sealed::Carry {
    /// Bytes at each frame's start that are the carrier's, not the payload's.
    const ROOM_BYTES: u32;
    /// Which carrier it is: both ends must have the same.
    const CARRIER: CarrierKind;

    /// Whether payloads carry a checksum: both ends must agree.
    fn checksum(&self) -> Checksum {
        Checksum::Off
    }
}

/// Which carrier a link has, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum CarrierKind {
    /// [`Immediate`]
    Immediate,
    /// [`Header`]
    Header,
    /// [`Raw`]
    Raw,
}

pub(crate) mod sealed {
    use super::{Arrival, CarrierError, CreditMessage, Granting, LinkRules, Numbered, SendKind, Sequence, Wc};
    use crate::verbs::Be32;

    /// What a carrier does to frames.
    pub trait Carry: Copy + Send {
        /// What kind of send carries its messages.
        const KIND: SendKind;
        /// Whether they have numbers.
        const NUMBERED: Numbered;
        /// Whether they carry grants.
        const GRANTING: Granting;

        /// Writes the number where it travels, and the grant if it travels with it; answers the request's immediate data.
        fn stamp(&self, frame: &mut [u8], sequence: Sequence, payload_bytes: u32, grant: Sequence) -> Be32;

        /// Writes a credit message at a frame's start; answers its length. It travels without immediate data.
        fn stamp_credit(&self, frame: &mut [u8], credit: CreditMessage) -> u32;

        /// The number, if the message is well formed and all that came is payload; `None` where more than a glance at
        /// the completion is needed.
        #[inline(always)]
        fn glance(&self, _wc: &Wc) -> Option<Sequence> {
            None
        }

        /// Reads a successful receive.
        fn read(&self, wc: &Wc, frame: &[u8], rules: &LinkRules) -> Result<Arrival, CarrierError>;
    }
}
use sealed::Carry;

/// Whether a carrier's messages have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// Each has one.
    Yes,
    /// None has.
    No,
}

/// Whether each of a carrier's messages carries the grant of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granting {
    /// Each does.
    EachMessage,
    /// None does: credit messages do.
    Apart,
}

/// What came in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message.
    Message(MessageParts),
    /// A credit message.
    Credit(CreditMessage),
}

/// What a message is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageParts {
    /// Its number; means nothing where the carrier has none.
    pub sequence: Sequence,
    /// Bytes before the payload.
    pub header_bytes: u32,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Its sender's grant, where each message carries one.
    pub grant: Sequence,
}

/// Why a receive that succeeded is not a message of this carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CarrierError {
    /// It came without immediate data.
    NoImmediate,
    /// It was not a plain receive.
    Opcode {
        /// What it was.
        got: WcOpcode,
    },
    /// The device says that more came than the frame holds.
    TooLong {
        /// What `byte_len` says.
        got_bytes: u32,
        /// What the frame holds.
        room_bytes: u32,
    },
    /// The header's length and the device's do not agree.
    Length {
        /// Bytes on the wire that the header's payload length makes.
        expected_bytes: u32,
        /// What `byte_len` says.
        got_bytes: u32,
    },
    /// The header cannot be read.
    Header(HeaderError),
}

impl core::fmt::Display for CarrierError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoImmediate => f.write_str("message came without the immediate data that carries its number"),
            Self::Opcode { got } => write!(f, "expected a receive completion (128), got opcode {}", got.0),
            Self::TooLong { got_bytes, room_bytes } => {
                write!(f, "message of {got_bytes} bytes in a frame of {room_bytes}")
            }
            Self::Length { expected_bytes, got_bytes } => {
                write!(f, "header says {expected_bytes} bytes on the wire, the device {got_bytes}")
            }
            Self::Header(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CarrierError {}

/// Bytes on the wire: what the device says, where that is worth something, checked against the frame.
#[inline(always)]
fn wire_bytes(wc: &Wc, frame: &[u8], rules: &LinkRules) -> Result<u32, CarrierError> {
    let room_bytes = frame.len() as u32;
    match rules.byte_len {
        ByteLen::Unknown => Ok(room_bytes),
        ByteLen::Trusted if wc.byte_len <= room_bytes => Ok(wc.byte_len),
        ByteLen::Trusted => Err(CarrierError::TooLong { got_bytes: wc.byte_len, room_bytes }),
    }
}

#[inline(always)]
fn plain_receive(wc: &Wc) -> Result<(), CarrierError> {
    if wc.opcode == WcOpcode::RECV { Ok(()) } else { Err(CarrierError::Opcode { got: wc.opcode }) }
}

/// The number travels as immediate data: SEND with immediate, big-endian, the whole frame is payload.
///
/// Not for Thunderbolt, where every published account says that immediate data are lost: each message would then be
/// [`CarrierError::NoImmediate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Immediate;

/// Why a completion, taken by itself, gives no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ReadError {
    /// It failed.
    Failed(FailedCompletion),
    /// It succeeded, and has no immediate data.
    NoImmediate {
        /// What the request carried.
        wr_id: u64,
    },
}

impl core::fmt::Display for ReadError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Failed(failed) => failed.fmt(f),
            Self::NoImmediate { wr_id } => write!(f, "completion of wr_id {wr_id:#x} has no immediate data"),
        }
    }
}

impl core::error::Error for ReadError {}

impl Immediate {
    /// The number in a completion, without a link: each entry stands alone.
    ///
    /// # Errors
    /// [`ReadError::Failed`] if the status is not success: then nothing but the four defined fields was read;
    /// [`ReadError::NoImmediate`] if there is no number.
    #[inline(always)]
    pub const fn read(wc: &Wc) -> Result<Sequence, ReadError> {
        match wc.outcome() {
            Ok(wc) => match wc.immediate() {
                Some(number) => Ok(Sequence::new(number)),
                None => Err(ReadError::NoImmediate { wr_id: wc.wr_id }),
            },
            Err(failed) => Err(ReadError::Failed(failed)),
        }
    }
}

impl Carrier for Immediate {
    const ROOM_BYTES: u32 = 0;
    const CARRIER: CarrierKind = CarrierKind::Immediate;
}

impl Carry for Immediate {
    const KIND: SendKind = SendKind::WithImmediate;
    const NUMBERED: Numbered = Numbered::Yes;
    const GRANTING: Granting = Granting::Apart;

    #[inline(always)]
    fn stamp(&self, _frame: &mut [u8], sequence: Sequence, _payload_bytes: u32, _grant: Sequence) -> Be32 {
        Be32::new(sequence.number())
    }

    fn stamp_credit(&self, frame: &mut [u8], credit: CreditMessage) -> u32 {
        if let Some(start) = frame.first_chunk_mut() {
            *start = credit.encode();
        }
        CREDIT_BYTES
    }

    #[inline(always)]
    fn glance(&self, wc: &Wc) -> Option<Sequence> {
        if wc.opcode != WcOpcode::RECV {
            return None;
        }
        wc.immediate().map(Sequence::new)
    }

    #[cold]
    #[inline(never)]
    fn read(&self, wc: &Wc, frame: &[u8], rules: &LinkRules) -> Result<Arrival, CarrierError> {
        plain_receive(wc)?;
        let Some(number) = wc.immediate() else {
            return credit_without_immediate(wc, frame, rules).ok_or(CarrierError::NoImmediate);
        };
        let payload_bytes = wire_bytes(wc, frame, rules)?;
        Ok(Arrival::unheaded(Sequence::new(number), payload_bytes))
    }
}

/// A message without immediate data, where it is a credit message: of its one length, with its magic.
fn credit_without_immediate(wc: &Wc, frame: &[u8], rules: &LinkRules) -> Option<Arrival> {
    let wire_bytes = wire_bytes(wc, frame, rules).ok()?;
    if rules.credits == CreditMode::Off || wire_bytes != rules.wire_bytes(0, CREDIT_BYTES, frame.len() as u32) {
        return None;
    }
    CreditMessage::decode(frame).map(Arrival::Credit)
}

impl Arrival {
    /// A message whose bytes are all payload.
    fn unheaded(sequence: Sequence, payload_bytes: u32) -> Self {
        Self::Message(MessageParts { sequence, header_bytes: 0, payload_bytes, grant: Sequence::new(0) })
    }
}

/// No number at all: for talking to others' programs. It promises nothing: loss, repeats and reordering go unnoticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Raw;

impl Carrier for Raw {
    const ROOM_BYTES: u32 = 0;
    const CARRIER: CarrierKind = CarrierKind::Raw;
}

impl Carry for Raw {
    const KIND: SendKind = SendKind::Plain;
    const NUMBERED: Numbered = Numbered::No;
    const GRANTING: Granting = Granting::Apart;

    #[inline(always)]
    fn stamp(&self, _frame: &mut [u8], _sequence: Sequence, _payload_bytes: u32, _grant: Sequence) -> Be32 {
        Be32::new(0)
    }

    /// Without numbers there are no credits (`LinkSetup::check`).
    fn stamp_credit(&self, _frame: &mut [u8], _credit: CreditMessage) -> u32 {
        0
    }

    #[inline(always)]
    fn glance(&self, wc: &Wc) -> Option<Sequence> {
        (wc.opcode == WcOpcode::RECV).then_some(Sequence::new(0))
    }

    #[cold]
    #[inline(never)]
    fn read(&self, wc: &Wc, frame: &[u8], rules: &LinkRules) -> Result<Arrival, CarrierError> {
        plain_receive(wc)?;
        Ok(Arrival::unheaded(Sequence::new(0), wire_bytes(wc, frame, rules)?))
    }
}

impl<const ROOM: usize> Carrier for Header<ROOM> {
    const ROOM_BYTES: u32 = Self::ROOM_IN_U32;
    const CARRIER: CarrierKind = CarrierKind::Header;

    fn checksum(&self) -> Checksum {
        self.checksum
    }
}

impl<const ROOM: usize> Carry for Header<ROOM> {
    const KIND: SendKind = SendKind::Plain;
    const NUMBERED: Numbered = Numbered::Yes;
    const GRANTING: Granting = Granting::EachMessage;

    #[inline(always)]
    fn stamp(&self, frame: &mut [u8], sequence: Sequence, payload_bytes: u32, grant: Sequence) -> Be32 {
        let credits = grant.number();
        self.encode_fields(frame, HeaderFields { sequence, payload_bytes, credits }, Flags::empty());
        Be32::new(0)
    }

    fn stamp_credit(&self, frame: &mut [u8], credit: CreditMessage) -> u32 {
        let fields = HeaderFields { sequence: credit.place, payload_bytes: 0, credits: credit.grant.number() };
        self.encode_fields(frame, fields, Flags::CREDIT);
        Self::ROOM_IN_U32
    }

    #[inline(never)]
    fn read(&self, wc: &Wc, frame: &[u8], rules: &LinkRules) -> Result<Arrival, CarrierError> {
        plain_receive(wc)?;
        // What lies beyond the bytes that came is an older message's.
        let wire_bytes = wire_bytes(wc, frame, rules)?;
        let came = frame.get(..wire_bytes as usize).unwrap_or(frame);
        let (fields, flags) = self.decode_fields(came, rules.credits).map_err(CarrierError::Header)?;
        let HeaderFields { sequence, payload_bytes, credits } = fields;
        let expected_bytes = rules.wire_bytes(Self::ROOM_IN_U32, payload_bytes, frame.len() as u32);
        if rules.byte_len == ByteLen::Trusted && wire_bytes != expected_bytes {
            return Err(CarrierError::Length { expected_bytes, got_bytes: wire_bytes });
        }
        let grant = Sequence::new(credits);
        if flags.contains(Flags::CREDIT) {
            return Ok(Arrival::Credit(CreditMessage { place: sequence, grant }));
        }
        Ok(Arrival::Message(MessageParts { sequence, header_bytes: Self::ROOM_IN_U32, payload_bytes, grant }))
    }
}
