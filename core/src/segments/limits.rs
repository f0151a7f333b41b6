//! What a registered part of memory may look like: on what it starts, and how long it is at most.
//!
//! Protects: limits that exist make sense, so that no later division or rounding over them can fail. The cutting itself is
//! [`chunks`](super::chunks())'s.

use core::fmt;
use core::num::NonZeroU32;

use super::chunks::ChunkError;
use crate::range::AddressRange;

/// The unit of GPU memory: regions are whole multiples of it, as the drivers' physical mappings are (2 MiB).
pub const GPU_PAGE_BYTES: u32 = 2 << 20;

/// The longest region that an indirect key's entry can name, in whole GPU pages: the device's entry length is 32 bits, so
/// 4 GiB does not fit and 4 GiB - 2 MiB is the next multiple (4 292 870 144).
pub const MAX_ENTRY_BYTES: u32 = u32::MAX - (GPU_PAGE_BYTES - 1);

/// What parts start on and are multiples of: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Alignment(u32);

impl Alignment {
    /// 2 MiB, for GPU memory: [`GPU_PAGE_BYTES`].
    pub const GPU_PAGE: Self = Self(GPU_PAGE_BYTES);

    /// An alignment of `bytes`.
    ///
    /// # Errors
    /// [`LimitsError::Alignment`] unless `bytes` is a power of two.
    pub const fn new(bytes: u32) -> Result<Self, LimitsError> {
        if bytes.is_power_of_two() { Ok(Self(bytes)) } else { Err(LimitsError::Alignment { got_bytes: bytes }) }
    }

    /// In bytes; never 0.
    #[inline]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    #[inline]
    const fn divides(self, value: u64) -> bool {
        value & (self.0 as u64 - 1) == 0
    }
}

/// How long a part may be, and on what it starts. One that exists makes sense: the maximum is a multiple of the alignment,
/// not 0, and fits 32 bits.
///
/// ```
/// use bareverbs_core::segments::{Alignment, ChunkLimits, GPU_PAGE_BYTES, LimitsError};
///
/// assert_eq!(ChunkLimits::GPU.max_bytes(), 4_292_870_144); // 4 GiB - 2 MiB: what 32 bits hold, in whole GPU pages
///
/// // Host memory: pages of 4 KiB, regions of at most 1 GiB.
/// let limits = ChunkLimits::new(Alignment::new(4096)?, 1 << 30)?;
/// assert_eq!(limits.capped(10_000)?.max_bytes(), 8192); // what is left is a multiple, too
///
/// let refused = LimitsError::MaxUnaligned { got_bytes: 3 << 20, alignment_bytes: GPU_PAGE_BYTES };
/// assert_eq!(ChunkLimits::new(Alignment::GPU_PAGE, 3 << 20), Err(refused));
/// # Ok::<(), LimitsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ChunkLimits {
    alignment: Alignment,
    max_bytes: NonZeroU32,
}

impl ChunkLimits {
    /// Those of an mlx5 indirect key over GPU memory: 2 MiB, and 4 GiB - 2 MiB ([`MAX_ENTRY_BYTES`]).
    pub const GPU: Self = Self { alignment: Alignment::GPU_PAGE, max_bytes: NonZeroU32::new(MAX_ENTRY_BYTES).unwrap() };

    /// Parts of at most `max_bytes`.
    ///
    /// # Errors
    /// [`LimitsError`] if the maximum is below the alignment (0 included), no multiple of it, or more than 32 bits hold.
    pub const fn new(alignment: Alignment, max_bytes: u64) -> Result<Self, LimitsError> {
        let alignment_bytes = alignment.bytes();
        if max_bytes < alignment_bytes as u64 {
            return Err(LimitsError::MaxBelowAlignment { got_bytes: max_bytes, alignment_bytes });
        }
        if !alignment.divides(max_bytes) {
            return Err(LimitsError::MaxUnaligned { got_bytes: max_bytes, alignment_bytes });
        }
        if max_bytes > u32::MAX as u64 {
            return Err(LimitsError::MaxTooLong { got_bytes: max_bytes });
        }
        match NonZeroU32::new(max_bytes as u32) {
            Some(max_bytes) => Ok(Self { alignment, max_bytes }),
            // Not reached: no alignment is 0.
            None => Err(LimitsError::MaxBelowAlignment { got_bytes: max_bytes, alignment_bytes }),
        }
    }

    /// These limits, with the maximum brought down to the greatest multiple of the alignment in `most_bytes` if that is less.
    ///
    /// # Errors
    /// [`LimitsError::MaxBelowAlignment`] if nothing is left.
    pub const fn capped(self, most_bytes: u64) -> Result<Self, LimitsError> {
        if most_bytes >= self.max_bytes() as u64 {
            return Ok(self);
        }
        Self::new(self.alignment, most_bytes & !(self.alignment.0 as u64 - 1))
    }

    /// What parts start on and are multiples of.
    #[inline]
    pub const fn alignment(self) -> Alignment {
        self.alignment
    }

    /// The longest part, in bytes; never 0.
    #[inline]
    pub const fn max_bytes(self) -> u32 {
        self.max_bytes.get()
    }

    /// The same, as what a division may be made by without a look.
    #[inline]
    pub(super) const fn divisor(self) -> NonZeroU32 {
        self.max_bytes
    }

    /// Whether `range` can be cut into whole parts, and if not, why.
    ///
    /// # Errors
    /// [`ChunkError`]: base or length off the alignment, or more parts than `u32` counts.
    pub const fn check(self, range: AddressRange) -> Result<(), ChunkError> {
        let alignment_bytes = self.alignment.bytes();
        if !self.alignment.divides(range.base()) {
            return Err(ChunkError::Base { got: range.base(), alignment_bytes });
        }
        if !self.alignment.divides(range.len_bytes()) {
            return Err(ChunkError::Length { got_bytes: range.len_bytes(), alignment_bytes });
        }
        let count = range.len_bytes().div_ceil(self.max_bytes() as u64);
        if count > u32::MAX as u64 {
            return Err(ChunkError::Count { got: count });
        }
        Ok(())
    }
}

/// Limits that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LimitsError {
    /// The alignment is no power of two.
    Alignment {
        /// The alignment that was given.
        got_bytes: u32,
    },
    /// No part could be as long as the alignment.
    MaxBelowAlignment {
        /// The maximum that was given.
        got_bytes: u64,
        /// The alignment that it is below.
        alignment_bytes: u32,
    },
    /// A part of the maximal length would not be a multiple of the alignment.
    MaxUnaligned {
        /// The maximum that was given.
        got_bytes: u64,
        /// The alignment that does not divide it.
        alignment_bytes: u32,
    },
    /// A part's length would not fit the device's 32 bits.
    MaxTooLong {
        /// The maximum that was given.
        got_bytes: u64,
    },
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Alignment { got_bytes } => {
                write!(f, "expected an alignment that is a power of two, got {got_bytes} bytes")
            }
            Self::MaxBelowAlignment { got_bytes, alignment_bytes } => {
                write!(f, "expected a maximum of at least the alignment, {alignment_bytes} bytes, got {got_bytes}")
            }
            Self::MaxUnaligned { got_bytes, alignment_bytes } => {
                write!(f, "expected a maximum that is a multiple of {alignment_bytes} bytes, got {got_bytes}")
            }
            Self::MaxTooLong { got_bytes } => {
                write!(f, "expected a maximum that fits the device's 32 bits ({} bytes), got {got_bytes}", u32::MAX)
            }
        }
    }
}

impl core::error::Error for LimitsError {}
