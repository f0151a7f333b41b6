//! Where an end is: what the other end must know to connect, and its wire form.
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | magic `BVdt` |
//! | 4 | version, 1 |
//! | 5 | reserved, 0 |
//! | 6-7 | LID, 0 where there is none |
//! | 8-11 | queue pair number, 24 bits; the top byte is reserved, 0 |
//! | 12-15 | packet sequence number, 24 bits; the top byte is reserved, 0 |
//! | 16-31 | GID, all zero where there is none |
//!
//! Integers are big-endian. The index of the GID in the own table is not in it: it means nothing to the other end.

use crate::verbs::Gid;

/// A packet sequence number: 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Psn(u32);

impl Psn {
    /// What JACCL's links start with.
    pub const JACCL: Self = Self(7);

    /// The number, if it fits 24 bits.
    pub const fn new(number: u32) -> Option<Self> {
        if number >> 24 == 0 { Some(Self(number)) } else { None }
    }

    /// The low 24 bits, for random input.
    pub const fn from_low_bits(bits: u32) -> Self {
        Self(bits & 0x00ff_ffff)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What the other end must know to connect.
///
/// ```
/// use bareverbs_core::connect::{Destination, Psn};
/// use bareverbs_core::verbs::Gid;
///
/// let here = Destination { lid: 0, qp_num: 17, psn: Psn::JACCL, gid: Gid::ZERO };
/// assert_eq!(Destination::decode(&here.encode()), Ok(here));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Destination {
    /// The port's LID; 0 where there is none.
    pub lid: u16,
    /// The queue pair's number, 24 bits.
    pub qp_num: u32,
    /// The first packet sequence number that this end will send.
    pub psn: Psn,
    /// The port's GID; all zero where there is none.
    pub gid: Gid,
}

/// Length of the wire form, in bytes.
pub const WIRE_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"BVdt";
const VERSION: u8 = 1;

/// Why bytes are not a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DestinationError {
    /// Too few or too many bytes.
    Length {
        /// How many came; 32 are expected.
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
        /// Index of the first byte that must be 0 and is not.
        byte: usize,
        /// What it holds.
        got: u8,
    },
}

impl core::fmt::Display for DestinationError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length { got_bytes } => write!(f, "a destination has {WIRE_BYTES} bytes, {got_bytes} came"),
            Self::Magic { got } => write!(f, "a destination starts with {MAGIC:02x?}, {got:02x?} came: not our peer"),
            Self::Version { got } => write!(f, "destination version {VERSION} is spoken here, {got} came"),
            Self::ReservedBits { byte, got } => {
                write!(f, "byte {byte} of a destination must be 0, {got:#04x} came")
            }
        }
    }
}

impl core::error::Error for DestinationError {}

impl Destination {
    /// The wire form. Of `qp_num` the low 24 bits travel: a queue pair number has no more.
    pub fn encode(&self) -> [u8; WIRE_BYTES] {
        let mut wire = [0; WIRE_BYTES];
        let [l0, l1] = self.lid.to_be_bytes();
        let [_, q1, q2, q3] = self.qp_num.to_be_bytes();
        let [_, p1, p2, p3] = self.psn.get().to_be_bytes();
        let [m0, m1, m2, m3] = MAGIC;
        let head = [m0, m1, m2, m3, VERSION, 0, l0, l1, 0, q1, q2, q3, 0, p1, p2, p3];
        for (byte, value) in wire.iter_mut().zip(head.into_iter().chain(self.gid.raw)) {
            *byte = value;
        }
        wire
    }

    /// Reads the wire form. Total: any bytes give an answer.
    ///
    /// # Errors
    /// [`DestinationError`] says what is wrong first, from the front.
    pub fn decode(bytes: &[u8]) -> Result<Self, DestinationError> {
        let Ok(wire) = <&[u8; WIRE_BYTES]>::try_from(bytes) else {
            return Err(DestinationError::Length { got_bytes: bytes.len() });
        };
        let [m0, m1, m2, m3, version, reserved, l0, l1, q0, q1, q2, q3, p0, p1, p2, p3, gid @ ..] = wire;
        let magic = [*m0, *m1, *m2, *m3];
        if magic != MAGIC {
            return Err(DestinationError::Magic { got: magic });
        }
        if *version != VERSION {
            return Err(DestinationError::Version { got: *version });
        }
        for (byte, got) in [(5, *reserved), (8, *q0), (12, *p0)] {
            if got != 0 {
                return Err(DestinationError::ReservedBits { byte, got });
            }
        }
        Ok(Self {
            lid: u16::from_be_bytes([*l0, *l1]),
            qp_num: u32::from_be_bytes([0, *q1, *q2, *q3]),
            psn: Psn::from_low_bits(u32::from_be_bytes([0, *p1, *p2, *p3])),
            gid: Gid::new(*gid),
        })
    }
}

impl core::fmt::Display for Destination {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "queue pair {} at GID {} (LID {}, PSN {})", self.qp_num, self.gid, self.lid, self.psn.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Destination {
        Destination {
            lid: 0x0102,
            qp_num: 0x0a_0b0c,
            psn: Psn::new(0x11_2233).expect("24 bits"),
            gid: Gid::new([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        }
    }

    #[test]
    fn the_wire_form_is_the_documented_table() {
        let wire = example().encode();
        assert_eq!(&wire[..16], b"BVdt\x01\x00\x01\x02\x00\x0a\x0b\x0c\x00\x11\x22\x33");
        assert_eq!(wire[16..], example().gid.raw);
    }

    #[test]
    fn lengths_next_to_the_right_one_are_refused() {
        let wire = example().encode();
        let mut long = wire.to_vec();
        long.push(0);
        assert_eq!(Destination::decode(&wire[..31]), Err(DestinationError::Length { got_bytes: 31 }));
        assert_eq!(Destination::decode(&long), Err(DestinationError::Length { got_bytes: 33 }));
        assert_eq!(Destination::decode(&[]), Err(DestinationError::Length { got_bytes: 0 }));
    }

    #[test]
    fn a_psn_has_24_bits() {
        assert_eq!(Psn::new(0x00ff_ffff).map(Psn::get), Some(0x00ff_ffff));
        assert_eq!(Psn::new(0x0100_0000), None);
        assert_eq!(Psn::from_low_bits(0xff00_0001).get(), 1);
    }

    #[test]
    fn every_reserved_bit_magic_bit_and_version_bit_is_refused_when_wrong() {
        for byte in [0, 1, 2, 3, 4, 5, 8, 12] {
            for bit in 0..8 {
                let mut wire = example().encode();
                wire[byte] ^= 1 << bit;
                let error = Destination::decode(&wire).expect_err("a flipped bit");
                match byte {
                    0..4 => assert!(matches!(error, DestinationError::Magic { .. })),
                    4 => assert_eq!(error, DestinationError::Version { got: 1 ^ (1 << bit) }),
                    _ => assert_eq!(error, DestinationError::ReservedBits { byte, got: 1 << bit }),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_destination_survives_the_wire(lid: u16, qp_num in 0u32..1 << 24, psn: u32, gid: [u8; 16]) {
            let there = Destination { lid, qp_num, psn: Psn::from_low_bits(psn), gid: Gid::new(gid) };
            prop_assert_eq!(Destination::decode(&there.encode()), Ok(there));
        }

        #[test]
        fn any_bytes_are_refused_or_encode_back_to_themselves(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(destination) = Destination::decode(&bytes) {
                prop_assert_eq!(destination.encode().to_vec(), bytes);
            }
        }

        #[test]
        fn bytes_with_a_right_start_are_refused_or_encode_back(tail: [u8; 27]) {
            let mut wire = [0; WIRE_BYTES];
            wire[..5].copy_from_slice(b"BVdt\x01");
            wire[5..].copy_from_slice(&tail);
            if let Ok(destination) = Destination::decode(&wire) {
                prop_assert_eq!(destination.encode(), wire);
            }
        }
    }
}
