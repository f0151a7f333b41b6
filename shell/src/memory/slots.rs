//! A list that only grows: one slot for each backend and device, found without a lock.
//!
//! There are as many slots as the process has devices and kinds of registration: a few, so that a look at each beats a hash. What
//! is looked at is the last word of the device's name, and those of a block of slots lie side by side.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bareverbs_core::view::DeviceName;

use super::backend::Backend;

/// Slots by backend and device. None is ever removed, so a look holds nothing that an addition waits for.
#[derive(Debug)]
pub(super) struct Slots<T> {
    first: Block<T>,
}

/// How many slots lie side by side: a machine with more devices is rare.
const BLOCK: usize = 8;

#[derive(Debug)]
struct Block<T> {
    /// The word of each slot's device, 0 where there is no slot yet. A slot is found by it only, so who wants the slot found sets it.
    words: [AtomicU64; BLOCK],
    slots: [OnceLock<Box<Slot<T>>>; BLOCK],
    next: OnceLock<Box<Block<T>>>,
}

#[derive(Debug)]
struct Slot<T> {
    backend: Backend,
    ends: Ends,
    device: DeviceName,
    value: T,
}

impl<T: Default> Slots<T> {
    pub(super) fn new() -> Self {
        Self { first: Block::new() }
    }

    /// The slot of that backend and device, if there is one. No lock, no allocation.
    #[inline]
    pub(super) fn find(&self, backend: Backend, device: &[u8]) -> Option<&T> {
        self.find_by(backend, &Ends::of(device), device)
    }

    /// The same where the name's ends are known.
    #[inline]
    pub(super) fn find_by(&self, backend: Backend, ends: &Ends, device: &[u8]) -> Option<&T> {
        let mut block = &self.first;
        loop {
            let mut from = 0;
            while let Some(at) = block.position(ends.last, from) {
                if let Some(slot) = block.slots.get(at)?.get()
                    && slot.is_of(backend, ends, device)
                {
                    return Some(&slot.value);
                }
                from = at + 1;
            }
            block = block.next.get()?;
        }
    }

    /// The slot of that backend and device, made if there is none.
    pub(super) fn find_or_add(&self, backend: Backend, device: &DeviceName) -> &T {
        let ends = Ends::of(device.as_bytes());
        let mut block = &self.first;
        loop {
            for (word, slot) in block.words.iter().zip(&block.slots) {
                // Of two that find the end at once one adds, and the other looks on.
                let slot = slot.get_or_init(|| Box::new(Slot { backend, ends, device: *device, value: T::default() }));
                if slot.backend == backend && slot.device == *device {
                    // Whoever added it may not have come so far.
                    word.store(ends.last, Ordering::Release);
                    return &slot.value;
                }
            }
            block = block.next.get_or_init(|| Box::new(Block::new()));
        }
    }

    /// All slots of a backend, in the order in which they were added.
    pub(super) fn of(&self, backend: Backend) -> impl Iterator<Item = &T> {
        let blocks = std::iter::successors(Some(&self.first), |block| block.next.get().map(|next| &**next));
        blocks
            .flat_map(|block| block.slots.iter().map_while(OnceLock::get))
            .filter(move |slot| slot.backend == backend)
            .map(|slot| &slot.value)
    }
}

impl<T> Block<T> {
    fn new() -> Self {
        let words = array::from_fn(|_| AtomicU64::new(0));
        Self { words, slots: array::from_fn(|_| OnceLock::new()), next: OnceLock::new() }
    }

    /// Where that word is, at `from` or later.
    #[inline]
    fn position(&self, word: u64, from: usize) -> Option<usize> {
        (from..BLOCK).find(|at| self.words.get(*at).is_some_and(|known| known.load(Ordering::Acquire) == word))
    }
}

impl<T> Slot<T> {
    #[inline]
    fn is_of(&self, backend: Backend, ends: &Ends, device: &[u8]) -> bool {
        self.backend == backend && self.ends == *ends && (ends.are_all() || self.device.as_bytes() == device)
    }
}

/// Both ends of a name and its length: all of it, if it is no longer than two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// The last word, which is where names of one machine differ; 0 for the empty name only, since none has a NUL.
    last: u64,
    /// The first word; 0 where there are fewer bytes than that, since the last has them all.
    first: u64,
    len: usize,
}

impl Ends {
    const WORD_BYTES: usize = size_of::<u64>();

    #[inline]
    pub(super) fn of(name: &[u8]) -> Self {
        let len = name.len();
        if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            return Self { last: u64::from_le_bytes(*last), first: u64::from_le_bytes(*first), len };
        }
        if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            // Halves, which overlap where there are fewer than 8 bytes.
            let last = u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
            return Self { last, first: 0, len };
        }
        Self { last: name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), first: 0, len }
    }

    /// Whether they leave nothing out: they overlap, or meet.
    #[inline]
    const fn are_all(&self) -> bool {
        self.len <= 2 * Self::WORD_BYTES
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // Not by recursion, however long the list is.
        let mut next = self.first.next.take();
        while let Some(mut block) = next {
            next = block.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::Strategy;
    use std::collections::BTreeSet;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;

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
        let mut block = &slots.first;
        for _ in 0..200_000 {
            block = block.next.get_or_init(|| Box::new(Block::new()));
        }
        drop(slots);
    }

    #[test]
    fn slots_beyond_a_block_are_found_and_listed_in_order() {
        let slots = Slots::<AtomicU32>::new();
        for number in 0..3 * BLOCK {
            slots.find_or_add(Backend::VERBS, &name(number)).store(number as u32, Ordering::Relaxed);
        }
        for number in 0..3 * BLOCK {
            let found = slots.find(Backend::VERBS, format!("d{number}").as_bytes());
            assert_eq!(found.map(|value| value.load(Ordering::Relaxed)), Some(number as u32));
        }
        assert!(slots.find(Backend::VERBS, format!("d{}", 3 * BLOCK).as_bytes()).is_none());
        let listed: Vec<_> = slots.of(Backend::VERBS).map(|value| value.load(Ordering::Relaxed) as usize).collect();
        assert_eq!(listed, (0..3 * BLOCK).collect::<Vec<_>>());
    }

    /// Names that end alike, or begin alike, or are a word long, or one byte more or less.
    #[test]
    fn names_with_the_same_word_are_told_apart() {
        let names = [
            "0",
            "00",
            "000",
            "0000",
            "00000",
            "1_mlx5_0",
            "11_mlx5_0",
            "21_mlx5_0",
            "mlx5_bond_0",
            "mlx6_bond_0",
            "0123456789abcdef",
            "1123456789abcdef",
            "0123456x89abcdef",
            "0x23456789abcdefg",
            "0y23456789abcdefg",
            "0123456789abcdefg",
            "01234567x9abcdefg",
        ];
        let slots = Slots::<AtomicU32>::new();
        for (number, name) in names.iter().enumerate() {
            assert!(slots.find(Backend::VERBS, name.as_bytes()).is_none(), "{name} is none of those before it");
            let device = DeviceName::new(name.as_bytes()).expect("a name");
            slots.find_or_add(Backend::VERBS, &device).store(number as u32, Ordering::Relaxed);
        }
        for (number, name) in names.iter().enumerate() {
            let found = slots.find(Backend::VERBS, name.as_bytes()).map(|value| value.load(Ordering::Relaxed));
            assert_eq!(found, Some(number as u32), "{name}");
        }
        for none in ["", "x0000", "mlx5_bond_", "lx5_bond_0"] {
            assert!(slots.find(Backend::VERBS, none.as_bytes()).is_none(), "{none}");
        }
    }

    proptest::proptest! {
        #[test]
        fn ends_tell_all_of_a_name_that_is_no_longer_than_both(
            (one, other) in (1usize..=2 * Ends::WORD_BYTES).prop_flat_map(|len| {
                let name = || proptest::collection::vec(proptest::sample::select(vec![b'0', b'1', 0x7e]), len);
                (name(), name(), proptest::sample::select(vec![false, true]))
            }).prop_map(|(one, other, alike)| {
                // Of long names few are alike but for one byte.
                let mut near = one.clone();
                let at = other.iter().map(|byte| usize::from(*byte)).sum::<usize>() % one.len();
                near[at] = other[at];
                (one, if alike { near } else { other })
            }),
        ) {
            let (ends_of_one, ends_of_other) = (Ends::of(&one), Ends::of(&other));
            proptest::prop_assert!(ends_of_one.are_all());
            proptest::prop_assert_eq!(ends_of_one == ends_of_other, one == other);
            proptest::prop_assert_ne!(ends_of_one.last, 0);
        }
    }
}
