//! Which bound segment an address lies in.
//!
//! Protects: of two rows that overlap, at most one can be what is mapped; so rows never overlap, except that two devices'
//! segments may share a *base*. A reader can hold a clone of the table while the next one is being made: it is a plain value
//! without pointers, and looking up takes `&self` only. Who publishes which clone to whom is the shell's.

use core::fmt;

use heapless::Vec;

use super::buckets::Buckets;
use crate::range::AddressRange;

/// A device by the number that its driver gives it in this process (a CUDA ordinal; not the minor of its device file).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ordinal(pub u32);

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What tells one row from all others, and orders them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SegmentKey {
    /// The first address of the segment.
    pub base: u64,
    /// The device whose memory it is.
    pub ordinal: Ordinal,
}

impl fmt::Display for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} (ordinal {})", self.base, self.ordinal)
    }
}

/// A bound segment: what it covers, and what the caller keeps with it (a handle, an identity, an index).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Row<T> {
    /// What the segment's keys really cover; never what was merely scanned.
    pub range: AddressRange,
    /// The device whose memory it is.
    pub ordinal: Ordinal,
    /// The caller's.
    pub value: T,
}

impl<T> Row<T> {
    /// Its place in the order of rows.
    #[inline]
    pub const fn key(&self) -> SegmentKey {
        SegmentKey { base: self.range.base(), ordinal: self.ordinal }
    }
}

/// Up to `N` bound segments, sorted by base, then ordinal.
///
/// ```
/// use bareverbs_core::range::AddressRange;
/// use bareverbs_core::segments::{Ordinal, Row, SegmentTable};
///
/// let mut table: SegmentTable<u16, 8> = SegmentTable::new(); // the value: an index into the caller's keys
/// let range = AddressRange::new(0x10_0000_0000, 2 << 20).unwrap();
/// table.insert(Row { range, ordinal: Ordinal(0), value: 7 }).unwrap();
///
/// let asked = AddressRange::new(0x10_0000_0400, 4096).unwrap();
/// let row = table.lookup(asked).unwrap();
/// assert_eq!((row.value, asked.base() - row.range.base()), (7, 0x400));
/// ```
#[derive(Debug)]
pub struct SegmentTable<T, const N: usize> {
    bases: Buckets<N>,
    rows: Vec<Row<T>, N>,
}

impl<T, const N: usize> SegmentTable<T, N> {
    /// A table without rows.
    pub const fn new() -> Self {
        Self { bases: Buckets::new(), rows: Vec::new() }
    }

    /// How many rows there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows, sorted by base, then ordinal.
    pub fn rows(&self) -> &[Row<T>] {
        &self.rows
    }

    /// The row that covers all of `asked`: O(log n), no matter where in the address space. Where devices share a base and
    /// several cover it, the one of the highest ordinal; see [`covering`](Self::covering). Nothing covers an empty range.
    #[inline]
    pub fn lookup(&self, asked: AddressRange) -> Option<&Row<T>> {
        let at = self.last_based_at_most(asked.base())?;
        let row = self.rows.get(at)?;
        if row.range.covers(asked) && !asked.is_empty() {
            return Some(row);
        }
        self.lookup_lower(at, asked)
    }

    /// The rare rest of [`lookup`](Self::lookup): the last row does not cover it; another one with its base may.
    #[cold]
    fn lookup_lower(&self, at: usize, asked: AddressRange) -> Option<&Row<T>> {
        self.sharing_base(at).find(|row| row.range.covers(asked) && !asked.is_empty())
    }

    /// All rows that cover all of `asked`: more than one only where devices share a base. The caller tells them apart by what
    /// it knows of the memory (its ordinal, its identity).
    pub fn covering(&self, asked: AddressRange) -> impl Iterator<Item = &Row<T>> {
        let at = self.last_based_at_most(asked.base());
        at.into_iter()
            .flat_map(|at| self.sharing_base(at))
            .filter(move |row| row.range.covers(asked) && !asked.is_empty())
    }

    /// The place of the last row whose base is at most `address`.
    #[inline]
    fn last_based_at_most(&self, address: u64) -> Option<usize> {
        self.bases.last_at_most(address, |place| self.rows.get(place).map(|row| row.range.base()))
    }

    /// The row at `at` and those before it with its base.
    fn sharing_base(&self, at: usize) -> impl Iterator<Item = &Row<T>> {
        let base = self.rows.get(at).map(|row| row.range.base());
        self.rows.get(..=at).unwrap_or(&[]).iter().rev().take_while(move |row| Some(row.range.base()) == base)
    }

    /// The row of this key.
    pub fn row(&self, key: SegmentKey) -> Option<&Row<T>> {
        self.position(key).ok().and_then(|at| self.rows.get(at))
    }

    /// What the caller keeps with the row of this key.
    pub fn value_mut(&mut self, key: SegmentKey) -> Option<&mut T> {
        let at = self.position(key).ok()?;
        self.rows.get_mut(at).map(|row| &mut row.value)
    }

    /// Whether a row of `ordinal` over `range` could be added now: to be asked before anything is registered for it; O(log n).
    ///
    /// # Errors
    /// [`InsertError`]: the range is empty, a row is in its way, or the table is full.
    pub fn check(&self, range: AddressRange, ordinal: Ordinal) -> Result<(), InsertError> {
        let key = SegmentKey { base: range.base(), ordinal };
        if range.is_empty() {
            return Err(InsertError::Empty { key });
        }
        if let Some(with) = self.overlapping(range, ordinal) {
            return Err(InsertError::Overlap { key, with });
        }
        if self.rows.is_full() {
            return Err(InsertError::Full { key, capacity: N });
        }
        Ok(())
    }

    /// Adds a row; O(n).
    ///
    /// # Errors
    /// As [`check`](Self::check): the row's value is dropped, the table is as it was. Newest wins by
    /// [`take_overlapping`](Self::take_overlapping) first.
    pub fn insert(&mut self, row: Row<T>) -> Result<(), InsertError> {
        let key = row.key();
        self.check(row.range, row.ordinal)?;
        let (Ok(at) | Err(at)) = self.position(key);
        self.rows.push(row).map_err(|_| InsertError::Full { key, capacity: N })?;
        // Not `Vec::insert`: it checks the place once more, and could panic.
        if let Some(later @ [_, ..]) = self.rows.get_mut(at..) {
            later.rotate_right(1);
        }
        self.reindex();
        Ok(())
    }

    /// Lets the row of `key` cover `to`, which starts where the row does; O(log n).
    ///
    /// # Errors
    /// [`ResizeError`]: no such row, another base, an empty range, or an overlap with another row. The table is as it was.
    pub fn resize(&mut self, key: SegmentKey, to: AddressRange) -> Result<(), ResizeError> {
        if to.is_empty() || to.base() != key.base {
            return Err(ResizeError::Range { key, to });
        }
        let at = self.position(key).map_err(|_| ResizeError::Absent { key })?;
        // Rows with this base stay where they are; only a later base can be run into.
        let next = self.rows.iter().skip(at).find(|row| row.range.base() > key.base);
        if let Some(next) = next.filter(|next| next.range.overlaps(to)) {
            return Err(ResizeError::Overlap { key, with: next.key() });
        }
        if let Some(row) = self.rows.get_mut(at) {
            row.range = to;
        }
        Ok(())
    }

    /// Takes out the row of this key; O(n).
    pub fn remove(&mut self, key: SegmentKey) -> Option<Row<T>> {
        let at = self.position(key).ok()?;
        if let Some(later @ [_, ..]) = self.rows.get_mut(at..) {
            later.rotate_left(1);
        }
        let row = self.rows.pop();
        self.reindex();
        row
    }

    /// Takes out one row that [`insert`](Self::insert) would find in the way of a row of `ordinal` over `range`; none if there
    /// is none (left). Called until then, it makes way for a segment that was seen later than they were.
    pub fn take_overlapping(&mut self, range: AddressRange, ordinal: Ordinal) -> Option<Row<T>> {
        self.overlapping(range, ordinal).and_then(|key| self.remove(key))
    }

    /// A row that overlaps `range` and may not do so.
    fn overlapping(&self, range: AddressRange, ordinal: Ordinal) -> Option<SegmentKey> {
        let last = range.last()?;
        // Of the rows that start before the range's end, those of the last base decide: an earlier row that reached into the
        // range would overlap these too, unless these start after the range's base, and then they are in the way themselves.
        let at = self.last_based_at_most(last)?;
        let in_the_way =
            |row: &&Row<T>| row.range.overlaps(range) && (row.range.base() != range.base() || row.ordinal == ordinal);
        self.sharing_base(at).find(in_the_way).map(Row::key)
    }

    fn position(&self, key: SegmentKey) -> Result<usize, usize> {
        self.rows.binary_search_by_key(&key, Row::key)
    }

    fn reindex(&mut self) {
        self.bases.rebuild(self.rows.iter().map(|row| row.range.base()));
    }
}

impl<T: Clone, const N: usize> Clone for SegmentTable<T, N> {
    fn clone(&self) -> Self {
        let mut clone = Self::new();
        clone.clone_from(self);
        clone
    }

    /// In place: a table of some thousand rows need not pass over the stack.
    fn clone_from(&mut self, source: &Self) {
        self.bases.clone_from(&source.bases);
        self.rows.clear();
        for row in &source.rows {
            // It has the same capacity.
            let _ = self.rows.push(row.clone());
        }
    }
}

impl<T, const N: usize> Default for SegmentTable<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A row that cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InsertError {
    /// It covers nothing.
    Empty {
        /// The row's key.
        key: SegmentKey,
    },
    /// Another row covers some of the same addresses.
    Overlap {
        /// The row's key.
        key: SegmentKey,
        /// A row in its way.
        with: SegmentKey,
    },
    /// The table holds no more.
    Full {
        /// The row's key.
        key: SegmentKey,
        /// How many rows the table holds.
        capacity: usize,
    },
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty { key } => write!(f, "expected a segment of at least 1 byte at {key}, got 0"),
            Self::Overlap { key, with } => {
                write!(f, "expected a segment at {key} that overlaps no other, got one that overlaps the one at {with}")
            }
            Self::Full { key, capacity } => {
                write!(
                    f,
                    "expected at most {capacity} bound segments, got one more at {key}: raise the table's capacity"
                )
            }
        }
    }
}

impl core::error::Error for InsertError {}

/// A row that cannot cover what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ResizeError {
    /// The range is empty, or does not start where the row does.
    Range {
        /// The row's key.
        key: SegmentKey,
        /// What it was asked to cover.
        to: AddressRange,
    },
    /// There is no such row.
    Absent {
        /// The key that was given.
        key: SegmentKey,
    },
    /// Another row covers some of the same addresses.
    Overlap {
        /// The row's key.
        key: SegmentKey,
        /// The row in its way.
        with: SegmentKey,
    },
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Range { key, to } => write!(f, "expected a range that starts at {key} and is not empty, got {to}"),
            Self::Absent { key } => write!(f, "expected a bound segment at {key}, got none"),
            Self::Overlap { key, with } => {
                write!(f, "expected the segment at {key} to overlap no other, got one that overlaps the one at {with}")
            }
        }
    }
}

impl core::error::Error for ResizeError {}

#[cfg(test)]
mod tests;
