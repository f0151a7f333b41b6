//! The table that requests are served from, and how a changed one takes its place.
//!
//! Protects: readers never wait. Whoever changes the table changes a copy, and publishes it whole; a reader sees the one before
//! or the one after. What is invalidated from the start of a turn on, the scan included, is taken out of the copy, too, so that
//! it does not come back with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{SegmentKey, SegmentTable};

/// How many segments a domain serves.
pub const MAX_SEGMENTS: usize = 4096;

pub(super) type Table<V> = SegmentTable<Arc<V>, MAX_SEGMENTS>;

/// The published table.
pub(super) struct ServedTable<V> {
    current: ArcSwap<Table<V>>,
    changes: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    /// Whether somebody watches.
    watched: bool,
    /// What was invalidated since.
    invalidated: Vec<AddressRange>,
}

impl<V> ServedTable<V> {
    pub(super) fn new() -> Self {
        Self { current: ArcSwap::new(empty()), changes: Mutex::default() }
    }

    /// The table as it is now. No lock, and no allocation but the first time that a thread reads any.
    #[inline]
    pub(super) fn read(&self) -> Guard<Arc<Table<V>>> {
        self.current.load()
    }

    /// Remembers from now on what is invalidated. There is one who watches at a time.
    pub(super) fn watch(&self) -> Watch<'_, V> {
        *self.lock() = Changes { watched: true, invalidated: Vec::new() };
        Watch { of: self }
    }

    /// Takes out all that overlaps `range`, here and in a draft that is open. What was taken out is answered, so that the caller
    /// lets it go with no lock held.
    pub(super) fn invalidate(&self, range: AddressRange) -> Vec<Arc<V>> {
        let mut changes = self.lock();
        if changes.watched {
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

/// What is invalidated is remembered while it lives.
pub(super) struct Watch<'a, V> {
    of: &'a ServedTable<V>,
}

impl<V> Watch<'_, V> {
    /// A copy to be changed. There is one at a time.
    pub(super) fn draft(&self) -> Draft<'_, V> {
        Draft { of: self.of, table: copy(&self.of.read()), dirty: false }
    }
}

impl<V> Drop for Watch<'_, V> {
    fn drop(&mut self) {
        *self.of.lock() = Changes::default();
    }
}

/// A copy of the table, which is published [when asked](Self::publish) and when it goes: by a panic, too, so that what was
/// carried out until then is served.
pub(super) struct Draft<'a, V> {
    of: &'a ServedTable<V>,
    /// Nobody else has it, but right after it was published.
    table: Arc<Table<V>>,
    dirty: bool,
}

impl<V> Draft<'_, V> {
    pub(super) fn table(&self) -> &Table<V> {
        &self.table
    }

    /// Changes the draft.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Table<V>) -> R) -> R {
        self.dirty = true;
        if Arc::get_mut(&mut self.table).is_none() {
            self.table = copy(&self.table);
        }
        let table = Arc::get_mut(&mut self.table).expect("a copy has one owner");
        change(table)
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, key: SegmentKey) -> Option<Arc<V>> {
        self.change(|table| table.remove(key)).map(|row| row.value)
    }

    /// Whether any of `range` was invalidated since the [watch](ServedTable::watch) began: a scan of it may be out of date.
    pub(super) fn is_invalidated(&self, range: AddressRange) -> bool {
        self.of.lock().invalidated.iter().any(|gone| gone.overlaps(range))
    }

    /// Lets readers see it as it is now.
    pub(super) fn publish(&mut self) {
        if !self.dirty {
            return;
        }
        let changes = self.of.lock();
        let invalidated = changes.invalidated.iter();
        let taken: Vec<_> =
            invalidated.flat_map(|range| self.change(|table| take_overlapping(table, *range))).collect();
        self.dirty = false;
        let before = self.of.current.swap(Arc::clone(&self.table));
        // What nobody needs any more is given back with no lock held.
        drop(changes);
        drop(before);
        drop(taken);
    }
}

impl<V> Drop for Draft<'_, V> {
    fn drop(&mut self) {
        self.publish();
    }
}

/// In place on the heap: a table is large for a stack.
fn copy<V>(table: &Table<V>) -> Arc<Table<V>> {
    let mut copy = empty();
    if let Some(copy) = Arc::get_mut(&mut copy) {
        copy.clone_from(table);
    }
    copy
}

/// Not within its callers' frames.
#[inline(never)]
fn empty<V>() -> Arc<Table<V>> {
    Arc::new(Table::new())
}

fn take_overlapping<V>(table: &mut Table<V>, range: AddressRange) -> Vec<Arc<V>> {
    let keys: Vec<_> = table.rows().iter().filter(|row| row.range.overlaps(range)).map(|row| row.key()).collect();
    keys.into_iter().filter_map(|key| table.remove(key)).map(|row| row.value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_core::segments::{Ordinal, Row};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn range(base: u64, len: u64) -> AddressRange {
        AddressRange::new(base, len).expect("below 2^64")
    }

    fn row(base: u64, value: &Arc<u32>) -> Row<Arc<u32>> {
        Row { range: range(base, 10), ordinal: Ordinal(0), value: Arc::clone(value) }
    }

    fn add(draft: &mut Draft<'_, u32>, base: u64, value: &Arc<u32>) {
        draft.change(|table| table.insert(row(base, value))).expect("room");
    }

    fn bases(table: &ServedTable<u32>) -> Vec<u64> {
        table.read().rows().iter().map(|row| row.range.base()).collect()
    }

    #[test]
    fn readers_see_a_change_when_it_is_published_and_keep_what_they_read() {
        let (table, value) = (ServedTable::new(), Arc::new(1));
        let watch = table.watch();
        let mut draft = watch.draft();
        add(&mut draft, 0, &value);
        assert_eq!(bases(&table), []);
        draft.publish();
        let before = table.read();
        add(&mut draft, 20, &value);
        assert_eq!(bases(&table), [0]);
        drop(draft);
        assert_eq!((bases(&table), before.len()), (vec![0, 20], 1));
    }

    #[test]
    fn a_panic_publishes_what_was_done_and_the_next_draft_begins_there() {
        let (table, value) = (ServedTable::new(), Arc::new(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let watch = table.watch();
            let mut draft = watch.draft();
            add(&mut draft, 0, &value);
            panic!("in the midst");
        }));
        assert!(panicked.is_err());
        let watch = table.watch();
        let mut draft = watch.draft();
        add(&mut draft, 20, &value);
        drop(draft);
        assert_eq!(bases(&table), [0, 20]);
    }

    #[test]
    fn what_is_invalidated_while_a_draft_is_open_does_not_come_back_with_it() {
        let (table, value) = (ServedTable::new(), Arc::new(1));
        let watch = table.watch();
        let mut draft = watch.draft();
        [0, 20, 40].into_iter().for_each(|base| add(&mut draft, base, &value));
        draft.publish();
        assert_eq!(table.invalidate(range(25, 1)).len(), 1);
        assert_eq!(bases(&table), [0, 40]);
        add(&mut draft, 60, &value);
        // Not published yet, and invalidated.
        assert_eq!(table.invalidate(range(60, 1)).len(), 0);
        drop(draft);
        assert_eq!(bases(&table), [0, 40]);
        // Not even if it is bound again: what was scanned before may be out of date.
        let mut draft = watch.draft();
        assert!(draft.is_invalidated(range(20, 10)) && !draft.is_invalidated(range(26, 20)));
        add(&mut draft, 20, &value);
        drop(draft);
        drop(watch);
        assert_eq!(bases(&table), [0, 40]);
        // Later ones know nothing of it.
        let watch = table.watch();
        let mut draft = watch.draft();
        add(&mut draft, 20, &value);
        drop(draft);
        assert_eq!(bases(&table), [0, 20, 40]);
    }

    #[test]
    fn nothing_keeps_a_value_that_was_taken_out() {
        let (table, value) = (ServedTable::new(), Arc::new(1));
        let watch = table.watch();
        let mut draft = watch.draft();
        [0, 20].into_iter().for_each(|base| add(&mut draft, base, &value));
        draft.publish();
        drop(draft.remove(SegmentKey { base: 0, ordinal: Ordinal(0) }));
        draft.publish();
        // Its own, one row's in the published table that the draft shares.
        assert_eq!(Arc::strong_count(&value), 2);
        drop(draft);
        drop(table.invalidate(range(0, 100)));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_table_is_changed_on_a_small_stack() {
        // Unoptimised, a new table passes over the stack a few times; a copy never does.
        let changed = std::thread::Builder::new().stack_size(1 << 20).spawn(|| {
            let (table, value) = (ServedTable::new(), Arc::new(1));
            let watch = table.watch();
            let mut draft = watch.draft();
            (0..100).for_each(|at| add(&mut draft, at * 20, &value));
            draft.publish();
            drop(draft);
            bases(&table).len()
        });
        assert_eq!(changed.expect("a thread").join().expect("no overflow"), 100);
    }
}
