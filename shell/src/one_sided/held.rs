//! Views that operations in flight use.
//!
//! The rule this file protects: **a local view stays registered until every request on it has completed, or the queue pair is
//! gone**. What is held goes only when it is given back, by name: a value of this type that is dropped otherwise, in a panic,
//! in a forked child or beside a queue pair that could not be destroyed, leaves all of it held for ever.
//!
//! One owner, who posts and polls, so there is no lock and nothing is counted but the guard itself.

use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

use crate::memory::{View, ViewGuard};

/// One place for each operation.
pub(super) struct Held<const N: usize> {
    places: ManuallyDrop<[Option<Kept>; N]>,
}

/// What of a view keeps its bytes, and how many they are.
struct Kept {
    #[expect(dead_code, reason = "held, not read: it keeps the bytes registered")]
    guard: Arc<dyn ViewGuard>,
    len_bytes: u64,
}

impl<const N: usize> Held<N> {
    pub(super) fn new() -> Self {
        Self { places: ManuallyDrop::new([const { None }; N]) }
    }

    /// Holds what keeps the view in a place that is free.
    #[inline]
    pub(super) fn hold(&mut self, slot: usize, view: &View) {
        let kept = Kept { guard: Arc::clone(view.guard()), len_bytes: view.len_bytes() };
        // Nothing is there, and every place is below the capacity. Were it otherwise, nothing that a device may use is let go.
        match self.places.get_mut(slot) {
            Some(place) => mem::forget(place.replace(kept)),
            None => mem::forget(kept),
        }
    }

    /// Lets go what is in a place: its last request has completed.
    #[inline]
    pub(super) fn give_back(&mut self, slot: usize) {
        drop(self.places.get_mut(slot).and_then(Option::take));
    }

    /// For a queue pair that has nothing outstanding any more. Nothing is held after that.
    pub(super) fn give_back_all(&mut self) {
        drop(self.take_all());
    }

    /// How many bytes each view has that is held.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.places.iter().flatten().map(|kept| usize::try_from(kept.len_bytes).unwrap_or(usize::MAX))
    }

    /// Leaves all of it held for ever: the device may still use it.
    pub(super) fn leave_all(&mut self) {
        mem::forget(self.take_all());
    }

    fn take_all(&mut self) -> [Option<Kept>; N] {
        mem::replace(&mut *self.places, [const { None }; N])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fabric;
    use crate::memory::{HostDomain, LocalMemory, OwnedBytes};
    use crate::objects::ProtectionDomain;

    #[test]
    fn what_is_held_goes_when_it_is_given_back_and_not_with_the_value() {
        let device = Fabric::soft().expect("a free slot").open(None).expect("the device");
        let domain = HostDomain::new(&ProtectionDomain::new(&device, 1).expect("a domain")).expect("the device");
        let memory = LocalMemory::new(OwnedBytes::from(vec![0; 64])).expect("host memory");
        let view = domain.register_parts(&memory).expect("one part").remove(0);
        let holders = || Arc::strong_count(view.guard());
        let two = || {
            let mut held = Held::<2>::new();
            held.hold(0, &view);
            held.hold(1, &view);
            held
        };
        let before = holders();

        {
            let mut held = two();
            assert_eq!((holders(), held.lengths().collect()), (before + 2, vec![64, 64]));
            held.give_back(1);
            assert_eq!((holders(), held.lengths().collect()), (before + 1, vec![64]));
        }
        assert_eq!(holders(), before + 1, "dropped with a view in use");

        let mut held = two();
        held.give_back_all();
        assert_eq!((holders(), held.lengths().count()), (before + 1, 0));
        // There is no such place: what is put there stays.
        held.hold(2, &view);
        held.give_back(2);
        assert_eq!(holders(), before + 2);

        // Where something is in use, it stays so.
        let mut held = two();
        held.hold(0, &view);
        held.give_back_all();
        assert_eq!(holders(), before + 3);

        let mut held = two();
        held.leave_all();
        held.give_back_all();
        assert_eq!((holders(), held.lengths().count()), (before + 5, 0), "left for ever");
    }
}
