//! How many regions one indirect key can present.
//!
//! Protects: the cap is the least of three reports, and a report that makes no sense (0, negative, too small for one entry)
//! is an error, never a number that wraps. Asking the device is the caller's.

use core::fmt;
use core::iter::FusedIterator;
use core::num::NonZeroU16;

/// The most entries that a key can be created with: `max_entries` is a u16, which the provider rounds up to a multiple of 4
/// in place, so that 65 533 and above would wrap to 0.
pub const MAX_KEY_ENTRIES: u16 = u16::MAX / ENTRY_GROUP * ENTRY_GROUP;

/// Entries come in fours: the provider rounds a key's up so, and a send slot is a multiple of 64 bytes, four entries.
const ENTRY_GROUP: u16 = 4;

/// What one entry takes of a request's inline room.
const ENTRY_INLINE_BYTES: u32 = 16;

/// The inline header, which a list of entries does not need: `n` entries fit if 16 n - 4 bytes are reported.
const INLINE_HEADER_BYTES: u32 = 4;

/// What was reported of the three things that bound a key's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CapReports {
    /// The device's `max_sge` (`struct ibv_device_attr`: a signed int).
    pub device_max_sge: i32,
    /// The `max_entries` that keys are created with (`struct mlx5dv_mkey_init_attr`: a u16); what the provider rounds it up to
    /// counts.
    pub key_max_entries: u16,
    /// The binding queue pair's `max_inline_data`, as the library wrote it back *after* creation, in bytes.
    pub max_inline_bytes: u32,
}

/// How many entries one key may have; at least 1.
///
/// ```
/// use bareverbs_core::segments::{CapReports, EntryCap};
///
/// let reports = CapReports { device_max_sge: 30, key_max_entries: 32, max_inline_bytes: 508 };
/// assert_eq!(EntryCap::least_of(reports).unwrap().entries(), 30);
/// let broken = CapReports { device_max_sge: -1, ..reports };
/// assert!(EntryCap::least_of(broken).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryCap(NonZeroU16);

impl EntryCap {
    /// The highest: all that a key can be made with.
    pub const MAX: Self = Self(NonZeroU16::new(MAX_KEY_ENTRIES).unwrap());

    /// A cap that is known already.
    ///
    /// # Errors
    /// [`CapError::KeyEntries`] for 0.
    pub const fn new(entries: u16) -> Result<Self, CapError> {
        match NonZeroU16::new(entries) {
            Some(entries) => Ok(Self(entries)),
            None => Err(CapError::KeyEntries),
        }
    }

    /// The least of what the device, the key and the queue pair carry.
    ///
    /// # Errors
    /// [`CapError`] names the report that leaves no entry.
    pub fn least_of(reports: CapReports) -> Result<Self, CapError> {
        let CapReports { device_max_sge, key_max_entries, max_inline_bytes } = reports;
        let device = match u32::try_from(device_max_sge) {
            Ok(0) | Err(_) => return Err(CapError::DeviceMaxSge { got: device_max_sge }),
            // More than a u16 is no bound on what the other two leave.
            Ok(entries) => u16::try_from(entries).unwrap_or(u16::MAX),
        };
        let inline = inline_entries(max_inline_bytes);
        if inline == 0 {
            return Err(CapError::Inline { got_bytes: max_inline_bytes });
        }
        Self::new(device.min(key_entries(key_max_entries)).min(inline))
    }

    /// As a number; at least 1.
    #[inline]
    pub const fn entries(self) -> u16 {
        self.0.get()
    }

    /// The `max_inline_data` values to ask for when creating the binding queue pair, so that this many entries fit: from the
    /// full wish down in steps of one send-slot unit (four entries), to be asked for until one is granted. Beyond the largest
    /// send descriptor, creation fails with EINVAL, and nothing reports where that is.
    #[inline]
    pub fn inline_wishes(self) -> InlineWishes {
        InlineWishes { entries: key_entries(self.entries()) }
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for EntryCap {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "EntryCap({=u16})", self.entries());
    }
}

/// What a key asked for with `max_entries` can hold: the provider rounds up to a multiple of 4. Where that would not fit the
/// field, the greatest multiple that does ([`MAX_KEY_ENTRIES`]): ask for this number, not for the one before rounding.
#[inline]
pub const fn key_entries(max_entries: u16) -> u16 {
    match max_entries.checked_next_multiple_of(ENTRY_GROUP) {
        Some(entries) => entries,
        None => MAX_KEY_ENTRIES,
    }
}

/// How many entries a queue pair with this `max_inline_data` (as reported after creation) carries in one request:
/// (bytes + 4) / 16, at most what a u16 holds.
#[inline]
pub const fn inline_entries(max_inline_bytes: u32) -> u16 {
    let entries = max_inline_bytes.saturating_add(INLINE_HEADER_BYTES) / ENTRY_INLINE_BYTES;
    if entries > u16::MAX as u32 { u16::MAX } else { entries as u16 }
}

/// The `max_inline_data` to ask for so that `entries` fit: 16 n - 4 bytes, 0 for none.
#[inline]
pub const fn inline_bytes(entries: u16) -> u32 {
    (entries as u32 * ENTRY_INLINE_BYTES).saturating_sub(INLINE_HEADER_BYTES)
}

/// Inline sizes in bytes to ask for, the greatest first: see [`EntryCap::inline_wishes`].
#[derive(Clone, Debug)]
#[must_use = "iterators do nothing until they are asked"]
pub struct InlineWishes {
    /// The next wish, a multiple of four; 0 when there is none left.
    entries: u16,
}

impl Iterator for InlineWishes {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let entries = NonZeroU16::new(self.entries)?.get();
        self.entries = entries.saturating_sub(ENTRY_GROUP);
        Some(inline_bytes(entries))
    }
}

impl FusedIterator for InlineWishes {}

/// No entry would fit a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CapError {
    /// The device reports no scatter/gather entries, or a negative number of them.
    DeviceMaxSge {
        /// What it reported.
        got: i32,
    },
    /// Keys would be created with no entries.
    KeyEntries,
    /// The queue pair carries less inline than one entry takes.
    Inline {
        /// What it carries.
        got_bytes: u32,
    },
}

impl fmt::Display for CapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DeviceMaxSge { got } => write!(f, "expected a device max_sge of at least 1, got {got}"),
            Self::KeyEntries => f.write_str("expected keys of at least 1 entry, got 0"),
            Self::Inline { got_bytes } => {
                let least = inline_bytes(1);
                write!(
                    f,
                    "expected a queue pair that carries at least {least} bytes inline, got {got_bytes}: ask for more"
                )
            }
        }
    }
}

impl core::error::Error for CapError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    const REPORTS: CapReports = CapReports { device_max_sge: 30, key_max_entries: 32, max_inline_bytes: 508 };

    fn cap(reports: CapReports) -> Result<u16, CapError> {
        EntryCap::least_of(reports).map(EntryCap::entries)
    }

    #[test]
    fn the_cap_is_the_least_of_device_key_and_queue_pair() {
        assert_eq!(cap(REPORTS), Ok(30));
        assert_eq!(cap(CapReports { device_max_sge: i32::MAX, ..REPORTS }), Ok(32));
        assert_eq!(cap(CapReports { device_max_sge: 0x1_0001, key_max_entries: 4, ..REPORTS }), Ok(4));
        assert_eq!(cap(CapReports { key_max_entries: 5, ..REPORTS }), Ok(8), "rounded up to 4");
        assert_eq!(cap(CapReports { max_inline_bytes: 59, ..REPORTS }), Ok(3));
        assert_eq!(cap(CapReports { max_inline_bytes: 60, ..REPORTS }), Ok(4));
        assert_eq!(cap(CapReports { max_inline_bytes: u32::MAX, ..REPORTS }), Ok(30));
    }

    #[test]
    fn f2_reports_that_leave_no_entry_are_errors_and_nothing_wraps() {
        for got in [0, -1, i32::MIN] {
            assert_eq!(cap(CapReports { device_max_sge: got, ..REPORTS }), Err(CapError::DeviceMaxSge { got }));
        }
        assert_eq!(cap(CapReports { device_max_sge: 1, ..REPORTS }), Ok(1));
        assert_eq!(cap(CapReports { key_max_entries: 0, ..REPORTS }), Err(CapError::KeyEntries));
        for got_bytes in [0, 11] {
            assert_eq!(cap(CapReports { max_inline_bytes: got_bytes, ..REPORTS }), Err(CapError::Inline { got_bytes }));
        }
        assert_eq!(cap(CapReports { max_inline_bytes: 12, ..REPORTS }), Ok(1));
        assert_eq!(CapError::DeviceMaxSge { got: -1 }.to_string(), "expected a device max_sge of at least 1, got -1");
    }

    #[test]
    fn a_key_holds_its_entries_rounded_up_to_4_and_never_wraps_to_0() {
        for asked in 0..=u16::MAX {
            let twin = (u32::from(asked).div_ceil(4) * 4).min(u32::from(MAX_KEY_ENTRIES));
            assert_eq!(u32::from(key_entries(asked)), twin);
        }
        assert_eq!(MAX_KEY_ENTRIES, 65_532);
    }

    #[test]
    fn the_inline_size_asked_for_n_entries_is_the_least_that_carries_them() {
        for entries in 1..=u16::MAX {
            assert_eq!(inline_entries(inline_bytes(entries)), entries);
            assert_eq!(inline_entries(inline_bytes(entries) - 1), entries - 1);
        }
        assert_eq!((inline_bytes(0), inline_bytes(1), inline_bytes(32)), (0, 12, 508));
    }

    #[test]
    fn a_queue_pair_made_without_inline_carries_its_send_entries_rounded_up_to_4() {
        // Slots of 64 bytes after a fixed part of 192, reported less the 4 bytes of the inline header.
        for (max_send_sge, entries) in [(1, 4), (4, 4), (5, 8), (30, 32)] {
            let reported = u32::next_multiple_of(max_send_sge * 16, 64) - 4;
            assert_eq!(inline_entries(reported), entries);
        }
    }

    #[test]
    fn wishes_go_down_by_four_entries_to_the_least_useful() {
        let wishes: Vec<_> = EntryCap::new(10).unwrap().inline_wishes().map(inline_entries).collect();
        assert_eq!(wishes, [12, 8, 4]);
        assert_eq!(EntryCap::new(u16::MAX).unwrap().inline_wishes().next(), Some(inline_bytes(MAX_KEY_ENTRIES)));
    }
}
