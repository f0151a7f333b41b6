//! Views that operations in flight use.
//!
//! The rule this file protects: **a local view stays registered until every request on it has completed, or the queue pair is
//! gone**. The queue pair holds this value as what keeps its memory, so that views that nobody gave back go only after it was
//! destroyed, and never when that failed; whatever becomes of the handles.

use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::{View, ViewGuard};

/// One place for each operation.
pub(super) struct Held {
    places: Mutex<Box<[Option<Kept>]>>,
}

/// What of a view keeps its bytes, and how many they are.
struct Kept {
    #[expect(dead_code, reason = "held, not read: it keeps the bytes registered")]
    guard: Arc<dyn ViewGuard>,
    len_bytes: u64,
}

impl Held {
    pub(super) fn new(places: usize) -> Self {
        Self { places: Mutex::new(std::iter::repeat_with(|| None).take(places).collect()) }
    }

    pub(super) fn hold(&self, slot: usize, view: &View) {
        let kept = Kept { guard: Arc::clone(view.guard()), len_bytes: view.len_bytes() };
        drop(self.replace(slot, Some(kept)));
    }

    pub(super) fn give_back(&self, slot: usize) {
        drop(self.replace(slot, None));
    }

    /// What was held before is dropped by the caller, outside of the lock: it may be a region's last owner.
    fn replace(&self, slot: usize, kept: Option<Kept>) -> Option<Kept> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        match places.get_mut(slot) {
            Some(place) => std::mem::replace(place, kept),
            // Not reached: a place is below the capacity. Nothing that a device may use is let go.
            None => {
                std::mem::forget(kept);
                None
            }
        }
    }

    /// For a queue pair that has nothing outstanding any more.
    pub(super) fn give_back_all(&self) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let held: Vec<Kept> = places.iter_mut().filter_map(Option::take).collect();
        drop(places);
        drop(held);
    }

    /// How many bytes are held by each view.
    pub(super) fn lengths(&self) -> Vec<usize> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.iter().flatten().map(|kept| usize::try_from(kept.len_bytes).unwrap_or(usize::MAX)).collect()
    }
}
