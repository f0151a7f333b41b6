//! Where in which window a request lies.
//!
//! Protects: a view lies within one window, because each window has a key of its own; a request that crosses an edge is told
//! so, and can be had in pieces that do not.

use core::fmt;

use crate::range::{AddressRange, Span};

/// A place in one window: what a transfer needs besides the window's key.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::{ChunkLimits, EntryCap, LengthSum, LocateError, WindowLimits, windows};
///
/// const BASE: u64 = 0x10_0000_0000;
/// const MAX: u64 = 4_292_870_144;
/// // Keys of one entry each, so a segment longer than one region lies in several windows.
/// let limits = WindowLimits::new(ChunkLimits::GPU, EntryCap::new(1).unwrap(), LengthSum::Bits64).unwrap();
/// let keys = windows(AddressRange::new(BASE, MAX + (2 << 20)).unwrap(), limits).unwrap();
///
/// let view = keys.locate(AddressRange::new(BASE + MAX + 0x400, 4096).unwrap()).unwrap();
/// assert_eq!((view.window, view.offset_bytes, view.len_bytes), (1, 0x400, 4096));
///
/// // What crosses from one key into the next is refused as a whole, and can be had in pieces.
/// let across = AddressRange::new(BASE + MAX - 4096, 8192).unwrap();
/// assert!(matches!(keys.locate(across), Err(LocateError::Straddles { window: 0, inside_bytes: 4096, .. })));
/// let pieces: Vec<_> = keys.split(across).unwrap().map(|piece| (piece.window, piece.offset_bytes)).collect();
/// assert_eq!(pieces, [(0, MAX - 4096), (1, 0)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Located {
    /// Which window of the segment, from 0.
    pub window: u32,
    /// The address as the window's key sees it: bytes from the window's base.
    pub offset_bytes: u64,
    /// How many bytes; never 0.
    pub len_bytes: u64,
}

/// Windows over a range, however they are kept.
pub(super) trait WindowLookup {
    /// What all windows together cover.
    fn covered(&self) -> AddressRange;

    /// Index and range of the window that holds the byte at this offset in what is covered.
    fn window_at(&self, offset_bytes: u64) -> Option<(u32, AddressRange)>;
}

/// The first piece of `asked`: all of it that lies in the window of its first byte.
fn first_piece(windows: &impl WindowLookup, asked: AddressRange) -> Option<Located> {
    let (window, range) = windows.window_at(windows.covered().offset_of(asked.base())?)?;
    let offset_bytes = range.offset_of(asked.base())?;
    let len_bytes = asked.len_bytes().min(range.len_bytes() - offset_bytes);
    Some(Located { window, offset_bytes, len_bytes })
}

fn checked_piece(windows: &impl WindowLookup, asked: AddressRange) -> Result<Located, LocateError> {
    if asked.is_empty() {
        return Err(LocateError::Empty { base: asked.base() });
    }
    let covered = windows.covered();
    let outside = LocateError::Outside { asked, covered };
    if !covered.covers(asked) {
        return Err(outside);
    }
    first_piece(windows, asked).ok_or(outside)
}

pub(super) fn locate(windows: &impl WindowLookup, asked: AddressRange) -> Result<Located, LocateError> {
    let piece = checked_piece(windows, asked)?;
    if piece.len_bytes < asked.len_bytes() {
        return Err(LocateError::Straddles { asked, window: piece.window, inside_bytes: piece.len_bytes });
    }
    Ok(piece)
}

pub(super) fn split<'a>(
    windows: &'a impl WindowLookup,
    asked: AddressRange,
) -> Result<impl Iterator<Item = Located> + 'a, LocateError> {
    checked_piece(windows, asked)?;
    let mut done_bytes = 0;
    Ok(core::iter::from_fn(move || {
        let len_bytes = asked.len_bytes().checked_sub(done_bytes).filter(|&left| left > 0)?;
        let piece = first_piece(windows, asked.part(Span { offset_bytes: done_bytes, len_bytes })?)?;
        done_bytes += piece.len_bytes;
        Some(piece)
    }))
}

/// A request that no single window serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LocateError {
    /// Nothing was asked for.
    Empty {
        /// The address that was asked for.
        base: u64,
    },
    /// Not all of it is covered.
    Outside {
        /// What was asked for.
        asked: AddressRange,
        /// What is covered.
        covered: AddressRange,
    },
    /// It is covered, but by more than one key.
    Straddles {
        /// What was asked for.
        asked: AddressRange,
        /// The window of its first byte.
        window: u32,
        /// How much of it lies in that window.
        inside_bytes: u64,
    },
}

impl fmt::Display for LocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty { base } => write!(f, "expected at least 1 byte, got 0 at {base:#x}"),
            Self::Outside { asked, covered } => write!(f, "expected a part of {covered}, got {asked}"),
            Self::Straddles { asked, window, inside_bytes } => write!(
                f,
                "expected a range within one key's window, got {asked}, {inside_bytes:#x} bytes of it in window {window}: \
                 ask for it in parts"
            ),
        }
    }
}

impl core::error::Error for LocateError {}
