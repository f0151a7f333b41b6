//! The table that requests are served from, and how a changed one takes its place.
//!
//! Protects: readers never wait. Whoever changes the table changes a copy, and publishes it whole; a reader sees the one before
//! or the one after. What is invalidated meanwhile is taken out of the copy, too, so that it does not come back with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{SegmentKey, SegmentTable};

use super::served::ServedSegment;

/// How many segments a domain serves.
pub const MAX_SEGMENTS: usize = 4096;

pub(super) type Table = SegmentTable<Arc<ServedSegment>, MAX_SEGMENTS>;

/// The published table.
pub(super) struct ServedTable {
    current: ArcSwap<Table>,
    changes: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    /// Whether a draft is open.
    drafting: bool,
    /// What was invalidated since it was opened.
    invalidated: Vec<AddressRange>,
}

impl ServedTable {
    pub(super) fn new() -> Self {
        Self { current: ArcSwap::new(Arc::new(Table::new())), changes: Mutex::default() }
    }

    /// The table as it is now. No lock, and no allocation but the first time that a thread reads any.
    #[inline]
    pub(super) fn read(&self) -> Guard<Arc<Table>> {
        self.current.load()
    }

    /// A copy to be changed. There is one at a time.
    pub(super) fn draft(&self) -> Draft<'_> {
        let mut changes = self.lock();
        *changes = Changes { drafting: true, invalidated: Vec::new() };
        Draft { of: self, table: copy(&self.read()), dirty: false }
    }

    /// Takes out all that overlaps `range`, here and in a draft that is open. What was taken out is answered, so that the caller
    /// lets it go with no lock held.
    pub(super) fn invalidate(&self, range: AddressRange) -> Vec<Arc<ServedSegment>> {
        let mut changes = self.lock();
        if changes.drafting {
            changes.invalidated.push(range);
        }
        let current = self.read();
        if !current.rows().iter().any(|row| row.range.overlaps(range)) {
            return Vec::new();
        }
        let mut next = copy(&current);
        drop(current);
        let taken = Arc::get_mut(&mut next).map(|next| take_overlapping(next, range)).unwrap_or_default();
        let before = self.current.swap(next);
        drop(changes);
        drop(before);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        // Whatever a thread that panicked left there is whole.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of the table, which is published [when asked](Self::publish) and when it goes: by a panic, too, so that what was
/// carried out until then is served.
pub(super) struct Draft<'a> {
    of: &'a ServedTable,
    /// Nobody else has it.
    table: Arc<Table>,
    dirty: bool,
}

impl Draft<'_> {
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Changes the draft.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Table) -> R) -> R {
        self.dirty = true;
        if Arc::get_mut(&mut self.table).is_none() {
            self.table = copy(&self.table);
        }
        let table = Arc::get_mut(&mut self.table).expect("a copy has one owner");
        change(table)
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, key: SegmentKey) -> Option<Arc<ServedSegment>> {
        self.change(|table| table.remove(key)).map(|row| row.value)
    }

    /// Lets readers see it as it is now.
    pub(super) fn publish(&mut self) {
        if !self.dirty {
            return;
        }
        let mut changes = self.of.lock();
        let invalidated = std::mem::take(&mut changes.invalidated);
        let taken: Vec<_> =
            invalidated.into_iter().flat_map(|range| self.change(|table| take_overlapping(table, range))).collect();
        self.dirty = false;
        let before = self.of.current.swap(Arc::clone(&self.table));
        // What nobody needs any more is given back with no lock held.
        drop(changes);
        drop(before);
        drop(taken);
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.publish();
        self.of.lock().drafting = false;
    }
}

/// In place on the heap: a table is large for a stack.
fn copy(table: &Table) -> Arc<Table> {
    let mut copy = empty();
    if let Some(copy) = Arc::get_mut(&mut copy) {
        copy.clone_from(table);
    }
    copy
}

/// Not within its callers' frames.
#[inline(never)]
fn empty() -> Arc<Table> {
    Arc::new(Table::new())
}

fn take_overlapping(table: &mut Table, range: AddressRange) -> Vec<Arc<ServedSegment>> {
    let keys: Vec<_> = table.rows().iter().filter(|row| row.range.overlaps(range)).map(|row| row.key()).collect();
    keys.into_iter().filter_map(|key| table.remove(key)).map(|row| row.value).collect()
}
