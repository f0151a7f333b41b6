//! A device's name, in the room that the kernel gives it.

use core::fmt;

/// Longest name, bytes: `IBV_SYSFS_NAME_MAX` (`infiniband/verbs.h`) is 64 with the closing NUL.
pub const DEVICE_NAME_MOST_BYTES: usize = 63;

/// The name of a device (`mlx5_0`, `rxe0`, `rdma_en2`): 1 to 63 printable ASCII characters, none a space.
///
/// Names come from peers too and end up in terminals and logs; so no control characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceName {
    /// NUL from `len` on.
    bytes: [u8; DEVICE_NAME_MOST_BYTES],
    len: u8,
}

/// Why bytes are not a device's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DeviceNameError {
    /// No character, or more than 63.
    Length {
        /// How many there are.
        got_bytes: usize,
    },
    /// A character that is not printable ASCII, or a space.
    Character {
        /// Where it stands, counted from 0.
        at: usize,
        /// What it is.
        got: u8,
    },
}

impl fmt::Display for DeviceNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got_bytes } => {
                write!(f, "a device's name has 1 to {DEVICE_NAME_MOST_BYTES} bytes, this has {got_bytes}")
            }
            Self::Character { at, got } => {
                write!(f, "a device's name is printable ASCII without spaces, byte {at} is {got:#04x}")
            }
        }
    }
}

impl core::error::Error for DeviceNameError {}

impl DeviceName {
    /// The name, if it can be one.
    ///
    /// # Errors
    /// [`DeviceNameError`] says what is wrong first, from the front.
    pub fn new(name: &[u8]) -> Result<Self, DeviceNameError> {
        if name.is_empty() || name.len() > DEVICE_NAME_MOST_BYTES {
            return Err(DeviceNameError::Length { got_bytes: name.len() });
        }
        if let Some((at, got)) = name.iter().enumerate().find(|(_, byte)| !byte.is_ascii_graphic()) {
            return Err(DeviceNameError::Character { at, got: *got });
        }
        let mut bytes = [0; DEVICE_NAME_MOST_BYTES];
        for (byte, value) in bytes.iter_mut().zip(name) {
            *byte = *value;
        }
        Ok(Self { bytes, len: name.len() as u8 })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        // Only ASCII was let in.
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The name's bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// All the room, NUL after the name.
    pub(crate) const fn padded(&self) -> &[u8; DEVICE_NAME_MOST_BYTES] {
        &self.bytes
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for DeviceName {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{=str}", self.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_as_devices_have_them_are_kept() {
        for name in ["mlx5_0", "rxe0", "rdma_en2", "a", core::str::from_utf8(&[b'~'; 63]).expect("ASCII")] {
            let kept = DeviceName::new(name.as_bytes()).expect("a name");
            assert_eq!((kept.as_str(), kept.to_string().as_str()), (name, name));
        }
    }

    #[test]
    fn no_name_and_one_a_byte_too_long_are_refused() {
        assert_eq!(DeviceName::new(b""), Err(DeviceNameError::Length { got_bytes: 0 }));
        assert_eq!(DeviceName::new(&[b'x'; 64]), Err(DeviceNameError::Length { got_bytes: 64 }));
    }

    #[test]
    fn what_does_not_belong_on_a_terminal_is_refused_where_it_stands() {
        for got in [0, b'\n', 0x1b, b' ', 0x7f, 0x80, 0xff] {
            assert_eq!(DeviceName::new(&[b'a', got, b'b']), Err(DeviceNameError::Character { at: 1, got }));
        }
        assert!(DeviceName::new(b"!~").is_ok(), "the first and the last that are printable");
    }
}
