//! A list that only grows: one slot for each backend and device, found without a lock.
//!
//! There are as many slots as the process has devices and kinds of registration: a few, so that a walk beats a hash.

use std::sync::OnceLock;

use bareverbs_core::view::DeviceName;

use super::backend::Backend;

/// Slots by backend and device. None is ever removed, so a look holds nothing that an addition waits for.
#[derive(Debug)]
pub(super) struct Slots<T> {
    first: Link<T>,
}

type Link<T> = OnceLock<Box<Slot<T>>>;

#[derive(Debug)]
struct Slot<T> {
    backend: Backend,
    device: DeviceName,
    value: T,
    next: Link<T>,
}

impl<T: Default> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// The slot of that backend and device, if there is one. No lock, no allocation.
    #[inline]
    pub(super) fn find(&self, backend: Backend, device: &[u8]) -> Option<&T> {
        let mut link = &self.first;
        while let Some(slot) = link.get() {
            if slot.backend == backend && slot.device.as_bytes() == device {
                return Some(&slot.value);
            }
            link = &slot.next;
        }
        None
    }

    /// The slot of that backend and device, made if there is none.
    pub(super) fn find_or_add(&self, backend: Backend, device: &DeviceName) -> &T {
        let mut link = &self.first;
        loop {
            // Of two that find the end at once one adds, and the other walks on.
            let make = || Box::new(Slot { backend, device: *device, value: T::default(), next: OnceLock::new() });
            let slot = link.get_or_init(make);
            if slot.backend == backend && slot.device == *device {
                return &slot.value;
            }
            link = &slot.next;
        }
    }

    /// All slots of a backend, in the order in which they were added.
    pub(super) fn of(&self, backend: Backend) -> impl Iterator<Item = &T> {
        let mut link = &self.first;
        std::iter::from_fn(move || {
            let slot = link.get()?;
            link = &slot.next;
            Some(slot)
        })
        .filter(move |slot| slot.backend == backend)
        .map(|slot| &slot.value)
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // Not by recursion, however long the list is.
        let mut next = self.first.take();
        while let Some(mut slot) = next {
            next = slot.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    enum Other {}
    impl super::super::backend::BackendKind for Other {
        const NAME: &'static str = "other";
    }

    fn name(number: usize) -> DeviceName {
        DeviceName::new(format!("d{number}").as_bytes()).expect("a name")
    }

    #[test]
    fn slots_are_found_by_backend_and_device_and_listed_by_backend() {
        let slots = Slots::<AtomicU32>::new();
        assert!(slots.find(Backend::VERBS, b"d1").is_none());
        slots.find_or_add(Backend::VERBS, &name(1)).store(11, Ordering::Relaxed);
        slots.find_or_add(Backend::of::<Other>(), &name(1)).store(21, Ordering::Relaxed);
        slots.find_or_add(Backend::VERBS, &name(2)).store(12, Ordering::Relaxed);
        let value = |backend, device: &[u8]| slots.find(backend, device).map(|value| value.load(Ordering::Relaxed));
        assert_eq!(value(Backend::VERBS, b"d1"), Some(11));
        assert_eq!(value(Backend::VERBS, b"d2"), Some(12));
        assert_eq!(value(Backend::of::<Other>(), b"d1"), Some(21));
        assert_eq!(value(Backend::of::<Other>(), b"d2"), None);
        assert_eq!(value(Backend::VERBS, b"d"), None);
        let listed: Vec<_> = slots.of(Backend::VERBS).map(|value| value.load(Ordering::Relaxed)).collect();
        assert_eq!(listed, [11, 12]);
    }

    #[test]
    fn threads_that_add_at_once_agree_on_one_slot_for_each_device() {
        for _ in 0..50 {
            let (slots, together) = (Slots::<AtomicU32>::new(), Barrier::new(4));
            std::thread::scope(|threads| {
                for _ in 0..4 {
                    threads.spawn(|| {
                        together.wait();
                        for device in 0..8 {
                            slots.find_or_add(Backend::VERBS, &name(device)).fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            let counts: Vec<_> = slots.of(Backend::VERBS).map(|value| value.load(Ordering::Relaxed)).collect();
            assert_eq!(counts, [4; 8]);
            let places: BTreeSet<_> = slots.of(Backend::VERBS).map(|value| value.as_ptr().addr()).collect();
            assert_eq!(places.len(), 8);
        }
    }

    #[test]
    fn a_long_list_is_dropped_without_recursion() {
        let slots = Slots::<AtomicU32>::new();
        let mut link = &slots.first;
        for number in 0..200_000 {
            let next = OnceLock::new();
            let value = AtomicU32::new(0);
            let slot = Slot { backend: Backend::VERBS, device: name(number), value, next };
            link = &link.get_or_init(|| Box::new(slot)).next;
        }
        drop(slots);
    }
}
