//! What a peer needs to reach a view of ours, and its wire form.
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | magic `BVrv` |
//! | 4 | version, 1 |
//! | 5-7 | reserved, 0 |
//! | 8-15 | address as the key sees it |
//! | 16-23 | size in bytes, not 0; address and size end at or below 2^64 |
//! | 24-27 | rkey |
//! | 28-90 | the device's name, 1 to 63 printable ASCII characters, NUL after it |
//! | 91 | reserved, 0 |
//!
//! Integers are big-endian.
//!
//! **An rkey is a capability**: whoever has it, and a queue pair of its domain, can use it until the region is deregistered.
//! Nothing of the wire form is authenticated or secret.

use core::fmt;

use crate::range::AddressRange;
use crate::view::device_name::{DeviceName, DeviceNameError};
use crate::view::keyed_range::KeyedRangeError;
use crate::view::part::check_part;

/// Memory of another process: what one-sided operations need of it.
///
/// It is numbers, and keeps nothing registered: its owner says until when they hold.
///
/// ```
/// use bareverbs_core::view::{DeviceName, RemoteView};
///
/// let there = RemoteView::new(0x7f00_0000_1000, 4096, 20, DeviceName::new(b"mlx5_0")?)?;
/// assert_eq!(RemoteView::decode(&there.encode()), Ok(there));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteView {
    key_addr: u64,
    len_bytes: u64,
    rkey: u32,
    device: DeviceName,
}

/// Length of the wire form, in bytes.
pub const REMOTE_VIEW_BYTES: usize = 92;
const MAGIC: [u8; 4] = *b"BVrv";
const VERSION: u8 = 1;
/// Where the device's name starts.
const DEVICE_AT: usize = 28;

/// Why bytes are not a remote view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RemoteViewError {
    /// Too few or too many bytes.
    Length {
        /// How many came; 92 are expected.
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
    /// No bytes, or bytes above 2^64.
    Range(KeyedRangeError),
    /// The device has no name that could be one.
    Device(DeviceNameError),
}

impl fmt::Display for RemoteViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got_bytes } => write!(f, "a remote view has {REMOTE_VIEW_BYTES} bytes, {got_bytes} came"),
            Self::Magic { got } => write!(f, "a remote view starts with {MAGIC:02x?}, {got:02x?} came: not our peer"),
            Self::Version { got } => write!(f, "remote view version {VERSION} is spoken here, {got} came"),
            Self::ReservedBits { byte, got } => {
                write!(f, "byte {byte} of a remote view must be 0, {got:#04x} came")
            }
            Self::Range(error) => write!(f, "in a remote view: {error}"),
            Self::Device(error) => write!(f, "in a remote view: {error}"),
        }
    }
}

impl core::error::Error for RemoteViewError {}

impl RemoteView {
    /// `len_bytes` bytes under `rkey`, which sees them at `key_addr`.
    ///
    /// # Errors
    /// [`KeyedRangeError::Empty`], [`KeyedRangeError::Wraps`].
    pub const fn new(key_addr: u64, len_bytes: u64, rkey: u32, device: DeviceName) -> Result<Self, KeyedRangeError> {
        if len_bytes == 0 {
            return Err(KeyedRangeError::Empty);
        }
        match AddressRange::new(key_addr, len_bytes) {
            Ok(_) => Ok(Self { key_addr, len_bytes, rkey, device }),
            Err(_) => Err(KeyedRangeError::Wraps { base: key_addr, len_bytes }),
        }
    }

    /// The address of its first byte as the key sees it: what a work request names.
    #[inline]
    pub const fn key_addr(&self) -> u64 {
        self.key_addr
    }

    /// How many bytes; never 0.
    #[inline]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The key.
    #[inline]
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The device of its owner that the key is for.
    #[inline]
    pub const fn device(&self) -> &DeviceName {
        &self.device
    }

    /// The part of it that starts `offset_bytes` into it and is `len_bytes` long, under the same key.
    ///
    /// # Errors
    /// [`KeyedRangeError::Empty`]; [`KeyedRangeError::Part`] if it leaves the view.
    pub const fn part(&self, offset_bytes: u64, len_bytes: u64) -> Result<Self, KeyedRangeError> {
        if len_bytes == 0 {
            return Err(KeyedRangeError::Empty);
        }
        match check_part(offset_bytes, len_bytes, self.len_bytes) {
            // The sum does not overflow: at least one byte follows the offset, and the last byte's address exists.
            Ok(()) => Ok(Self { key_addr: self.key_addr.wrapping_add(offset_bytes), len_bytes, ..*self }),
            Err(error) => Err(KeyedRangeError::Part(error)),
        }
    }

    /// The wire form.
    pub fn encode(&self) -> [u8; REMOTE_VIEW_BYTES] {
        let mut wire = [0; REMOTE_VIEW_BYTES];
        let head = MAGIC.into_iter().chain([VERSION, 0, 0, 0]);
        let numbers = self.key_addr.to_be_bytes().into_iter().chain(self.len_bytes.to_be_bytes());
        let rest = self.rkey.to_be_bytes().into_iter().chain(*self.device.padded());
        for (byte, value) in wire.iter_mut().zip(head.chain(numbers).chain(rest)) {
            *byte = value;
        }
        wire
    }

    /// Reads the wire form. Total: any bytes give an answer.
    ///
    /// # Errors
    /// [`RemoteViewError`] says what is wrong first, from the front.
    pub fn decode(bytes: &[u8]) -> Result<Self, RemoteViewError> {
        let Ok(wire) = <&[u8; REMOTE_VIEW_BYTES]>::try_from(bytes) else {
            return Err(RemoteViewError::Length { got_bytes: bytes.len() });
        };
        let [m0, m1, m2, m3, version, r5, r6, r7, rest @ ..] = wire;
        let magic = [*m0, *m1, *m2, *m3];
        if magic != MAGIC {
            return Err(RemoteViewError::Magic { got: magic });
        }
        if *version != VERSION {
            return Err(RemoteViewError::Version { got: *version });
        }
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, l4, l5, l6, l7, k0, k1, k2, k3, padded @ .., r91] = rest;
        let name_bytes = padded.iter().position(|byte| *byte == 0).unwrap_or(padded.len());
        let after_name = padded.iter().enumerate().skip(name_bytes).map(|(at, byte)| (DEVICE_AT + at, *byte));
        let reserved = [(5, *r5), (6, *r6), (7, *r7)].into_iter().chain(after_name).chain([(91, *r91)]);
        for (byte, got) in reserved {
            if got != 0 {
                return Err(RemoteViewError::ReservedBits { byte, got });
            }
        }
        let device = DeviceName::new(padded.get(..name_bytes).unwrap_or_default()).map_err(RemoteViewError::Device)?;
        let key_addr = u64::from_be_bytes([*a0, *a1, *a2, *a3, *a4, *a5, *a6, *a7]);
        let len_bytes = u64::from_be_bytes([*l0, *l1, *l2, *l3, *l4, *l5, *l6, *l7]);
        let rkey = u32::from_be_bytes([*k0, *k1, *k2, *k3]);
        Self::new(key_addr, len_bytes, rkey, device).map_err(RemoteViewError::Range)
    }
}

impl fmt::Display for RemoteView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key_addr, len_bytes, device, .. } = self;
        // The key is a capability: not for logs.
        write!(f, "{len_bytes} bytes at {key_addr:#x} on device {device}")
    }
}

/// As it is displayed: without the key.
impl fmt::Debug for RemoteView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteView({self})")
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for RemoteView {
    fn format(&self, f: defmt::Formatter<'_>) {
        let Self { key_addr, len_bytes, device, .. } = self;
        defmt::write!(f, "{=u64} bytes at {=u64:#x} on device {}", len_bytes, key_addr, device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::OutOfBounds;
    use proptest::prelude::*;

    fn example() -> RemoteView {
        let device = DeviceName::new(b"mlx5_0").expect("a name");
        RemoteView::new(0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x2122_2324, device).expect("bytes")
    }

    #[test]
    fn the_wire_form_is_the_documented_table() {
        let wire = example().encode();
        assert_eq!(wire[..16], *b"BVrv\x01\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08");
        assert_eq!(wire[16..34], *b"\x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24mlx5_0");
        assert_eq!(wire[34..], [0; 58]);
    }

    #[test]
    fn lengths_next_to_the_right_one_are_refused() {
        let wire = example().encode();
        let mut long = wire.to_vec();
        long.push(0);
        assert_eq!(RemoteView::decode(&wire[..91]), Err(RemoteViewError::Length { got_bytes: 91 }));
        assert_eq!(RemoteView::decode(&long), Err(RemoteViewError::Length { got_bytes: 93 }));
        assert_eq!(RemoteView::decode(&[]), Err(RemoteViewError::Length { got_bytes: 0 }));
    }

    #[test]
    fn every_reserved_bit_magic_bit_and_version_bit_is_refused_when_wrong() {
        for byte in (0..8).chain(35..92) {
            for bit in 0..8 {
                let mut wire = example().encode();
                wire[byte] ^= 1 << bit;
                let error = RemoteView::decode(&wire).expect_err("a flipped bit");
                match byte {
                    0..4 => assert!(matches!(error, RemoteViewError::Magic { .. })),
                    4 => assert_eq!(error, RemoteViewError::Version { got: 1 ^ (1 << bit) }),
                    _ => assert_eq!(error, RemoteViewError::ReservedBits { byte, got: 1 << bit }),
                }
            }
        }
    }

    #[test]
    fn a_range_and_a_name_that_cannot_be_are_refused() {
        let with = |at: usize, bytes: &[u8]| {
            let mut wire = example().encode();
            wire[at..at + bytes.len()].copy_from_slice(bytes);
            RemoteView::decode(&wire)
        };
        assert_eq!(with(16, &[0; 8]), Err(RemoteViewError::Range(KeyedRangeError::Empty)));
        assert_eq!(
            with(8, &[0xff; 8]),
            Err(RemoteViewError::Range(KeyedRangeError::Wraps { base: u64::MAX, len_bytes: 0x1112_1314_1516_1718 }))
        );
        assert_eq!(with(28, &[0; 6]), Err(RemoteViewError::Device(DeviceNameError::Length { got_bytes: 0 })));
        assert_eq!(with(30, b"\n"), Err(RemoteViewError::Device(DeviceNameError::Character { at: 2, got: b'\n' })));
        let longest = with(28, &[b'x'; 63]).expect("the longest name");
        assert_eq!(longest.device().as_str().len(), 63);
        assert_eq!(with(28, &[b'x'; 64]), Err(RemoteViewError::ReservedBits { byte: 91, got: b'x' }));
    }

    #[test]
    fn a_part_keeps_the_key_and_one_that_leaves_the_view_is_told_with_the_numbers() {
        let whole = RemoteView::new(u64::MAX - 7, 8, 3, *example().device()).expect("ends at 2^64");
        assert_eq!(whole.part(7, 1).map(|part| (part.key_addr(), part.rkey())), Ok((u64::MAX, 3)));
        assert_eq!(whole.part(1, 0), Err(KeyedRangeError::Empty));
        let refused = OutOfBounds { offset_bytes: 1, len_bytes: 8, size_bytes: 8 };
        assert_eq!(whole.part(1, 8), Err(KeyedRangeError::Part(refused)));
    }

    #[test]
    fn the_key_is_not_in_the_text() {
        let there = RemoteView::new(16, 32, 0xabcd, *example().device()).expect("bytes");
        assert_eq!(std::format!("{there}"), "32 bytes at 0x10 on device mlx5_0");
        assert_eq!(std::format!("{there:?}"), "RemoteView(32 bytes at 0x10 on device mlx5_0)");
    }

    proptest! {
        #[test]
        fn any_view_survives_the_wire(addr: u64, len in 1u64.., rkey: u32, name in "[!-~]{1,63}") {
            let device = DeviceName::new(name.as_bytes()).expect("printable");
            if let Ok(there) = RemoteView::new(addr, len, rkey, device) {
                prop_assert_eq!(RemoteView::decode(&there.encode()), Ok(there));
            } else {
                prop_assert!(addr.checked_add(len - 1).is_none());
            }
        }

        #[test]
        fn any_bytes_are_refused_or_encode_back_to_themselves(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(view) = RemoteView::decode(&bytes) {
                prop_assert_eq!(view.encode().to_vec(), bytes);
            }
        }

        #[test]
        fn bytes_with_a_right_start_are_refused_or_encode_back(
            numbers in prop::array::uniform20(prop_oneof![Just(0u8), any::<u8>()]),
            name in prop::collection::vec(prop_oneof![Just(0u8), 0x20u8..0x80], 0..=64),
        ) {
            let mut wire = [0; REMOTE_VIEW_BYTES];
            wire[..5].copy_from_slice(b"BVrv\x01");
            wire[8..28].copy_from_slice(&numbers);
            wire[28..28 + name.len()].copy_from_slice(&name);
            if let Ok(view) = RemoteView::decode(&wire) {
                prop_assert_eq!(view.encode(), wire);
            }
        }
    }
}
