//! The search that every look-up starts with: the last of some sorted keys that is not above an address.
//!
//! Protects the look-up's cost. The span from the lowest key to the highest is cut into twice as many buckets, of one width, as
//! there are keys; an address's bucket (a subtraction and a multiplication) tells where among the sorted keys to start, and a
//! binary search goes on from there. It takes as many steps as the fullest bucket of all asks for, so that their number is the
//! same for every address: a processor learns it, and no step branches on what it finds. Keys that lie about evenly need a step
//! or two, keys of mixed distances three or four, and the worst (all but one at one end of the span) as many as a binary search
//! over all would. The keys themselves are the caller's, which has them beside what they stand for.

use core::hint::select_unpredictable;

use heapless::Vec;

/// Buckets for each key: with one, keys of mixed distances take a step more; with four, as many as with two.
const PER_KEY: usize = 2;

/// An index over sorted keys. Built anew whenever they change, in as many steps as moving them takes.
#[derive(Debug)]
pub(super) struct Buckets<const N: usize> {
    /// The lowest key: where the first bucket begins.
    lowest: u64,
    /// Buckets per address, times 2^64, rounded up so that evenly spaced keys have a bucket each.
    per_address: u64,
    /// Halvings that the fullest bucket needs.
    steps: u32,
    /// For each bucket, the place in the sorted order of the last key before it; for the first bucket that of its own first
    /// key, which no address with a bucket is below.
    before: Vec<[u32; PER_KEY], N>,
}

impl<const N: usize> Clone for Buckets<N> {
    fn clone(&self) -> Self {
        let mut clone = Self::new();
        clone.clone_from(self);
        clone
    }

    fn clone_from(&mut self, source: &Self) {
        let Self { lowest, per_address, steps, before } = source;
        (self.lowest, self.per_address, self.steps) = (*lowest, *per_address, *steps);
        self.before.clear();
        // It has the same capacity.
        let _ = self.before.extend_from_slice(before);
    }
}

impl<const N: usize> Buckets<N> {
    pub(super) const fn new() -> Self {
        Self { lowest: 0, per_address: 0, steps: 0, before: Vec::new() }
    }

    /// Takes in `sorted` (not descending; equal keys may follow each other) instead of what it held. Keys beyond `N` are left
    /// out.
    pub(super) fn rebuild(&mut self, sorted: impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + Clone) {
        let len = sorted.len().min(N);
        let sorted = sorted.take(len);
        self.lowest = sorted.clone().next().unwrap_or(0);
        let span = sorted.clone().next_back().unwrap_or(0).saturating_sub(self.lowest);
        self.per_address = buckets_per_address(len, span);
        // Buckets after the last key's keep this: there are some only where keys are closer than addresses can tell.
        self.before.clear();
        let _ = self.before.resize(len, [len.saturating_sub(1) as u32; PER_KEY]);
        let (mut filled, mut most_after) = (0, 0);
        for (place, key) in (0u32..).zip(sorted) {
            let bucket = self.bucket(key.saturating_sub(self.lowest));
            let buckets = self.before.as_flattened_mut();
            if let Some(new) = buckets.get_mut(filled..=bucket) {
                new.fill(place.saturating_sub(1));
                filled = bucket + 1;
            }
            let before = buckets.get(bucket).copied().unwrap_or(place);
            most_after = most_after.max(place.saturating_sub(before));
        }
        self.steps = u32::BITS - most_after.leading_zeros();
    }

    /// The place in the sorted order of the last key that is at most `address`; none if all are above. `key_at` gives the key
    /// at a place, none beyond the last.
    #[inline]
    pub(super) fn last_at_most(&self, address: u64, key_at: impl Fn(usize) -> Option<u64>) -> Option<usize> {
        let above_lowest = address.checked_sub(self.lowest)?;
        let &before = self.before.as_flattened().get(self.bucket(above_lowest))?;
        let mut found = before as usize;
        for step in (0..self.steps).rev() {
            let next = found + (1 << step);
            if let Some(key) = key_at(next) {
                found = select_unpredictable(key <= address, next, found);
            }
        }
        Some(found)
    }

    /// The bucket of the address that lies so far above the lowest key. The last one holds what lies beyond.
    #[inline]
    fn bucket(&self, above_lowest: u64) -> usize {
        let bucket = (u128::from(above_lowest) * u128::from(self.per_address)) >> 64;
        (bucket as u64).min(last_bucket(self.before.len())) as usize
    }
}

/// The last bucket of so many keys.
#[inline]
fn last_bucket(keys: usize) -> u64 {
    (keys as u64 * PER_KEY as u64).saturating_sub(1)
}

/// Buckets per address, times 2^64, so that the highest key begins the last of them; at most what a `u64` holds, where one
/// address is a bucket.
fn buckets_per_address(keys: usize, span: u64) -> u64 {
    let last = u128::from(last_bucket(keys)) << 64;
    let rounded_up = (last + u128::from(span.saturating_sub(1))).checked_div(u128::from(span));
    rounded_up.map_or(0, |scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec as StdVec;

    fn agrees_with_a_walk(sorted: &[u64], asked: impl Iterator<Item = u64>) {
        let mut buckets = Buckets::<4096>::new();
        buckets.rebuild(sorted.iter().copied());
        for address in asked {
            let twin = sorted.iter().rposition(|&key| key <= address);
            let found = buckets.last_at_most(address, |place| sorted.get(place).copied());
            assert_eq!(found, twin, "{address} in {sorted:?}");
        }
    }

    /// Each key, and the addresses beside it.
    fn around(keys: &[u64]) -> StdVec<u64> {
        keys.iter().flat_map(|&key| [key.wrapping_sub(1), key, key.wrapping_add(1)]).collect()
    }

    #[test]
    fn every_set_of_up_to_40_keys_that_are_evenly_spaced_or_equal_finds_what_a_walk_finds() {
        for len in 0..40u64 {
            for spacing in 1..5 {
                let spread: StdVec<_> = (0..len).map(|place| spacing * place + 1).collect();
                agrees_with_a_walk(&spread, (0..spacing * len + 3).chain([u64::MAX]));
            }
            let in_pairs: StdVec<_> = (0..len).map(|place| place / 2 * 2).collect();
            agrees_with_a_walk(&in_pairs, 0..len + 2);
        }
    }

    #[test]
    fn every_subset_of_twelve_keys_finds_what_a_walk_finds_at_both_ends_of_the_address_space() {
        for low in [0, u64::MAX - 11] {
            for chosen in 0..1u64 << 12 {
                let keys: StdVec<_> = (0..12).filter(|bit| chosen >> bit & 1 == 1).map(|bit| low + bit).collect();
                agrees_with_a_walk(&keys, low..=low + 11);
            }
        }
    }

    #[test]
    fn both_ends_of_the_address_space_are_found() {
        agrees_with_a_walk(
            &[0, 1, u64::MAX - 1, u64::MAX],
            [0, 1, 2, u64::MAX - 2, u64::MAX - 1, u64::MAX].into_iter(),
        );
    }

    #[test]
    fn keys_that_fill_one_bucket_and_leave_the_others_empty_are_found() {
        let mut keys: StdVec<u64> = (0..4095).collect();
        keys.push(u64::MAX);
        agrees_with_a_walk(&keys, around(&keys[..3]).into_iter().chain(around(&keys[4090..])));
        let halving: StdVec<u64> = (0..64).map(|bit| 1 << bit).collect();
        agrees_with_a_walk(&halving, around(&halving).into_iter());
    }

    #[test]
    fn even_keys_take_one_step_and_the_worst_take_those_of_a_binary_search() {
        let steps = |keys: StdVec<u64>| {
            let mut buckets = Buckets::<4096>::new();
            buckets.rebuild(keys.into_iter());
            buckets.steps
        };
        assert_eq!(steps(StdVec::new()), 0);
        assert_eq!(steps((5..6).collect()), 0);
        for spacing in [1, 2, 3, 0x140_0000, 0x1fff_ffff_ffff] {
            assert_eq!(steps((0..4096).map(|place| place * spacing).collect()), 1, "{spacing}");
        }
        assert_eq!(steps((0..4095).chain([u64::MAX]).collect()), 12);
    }

    #[test]
    fn keys_beyond_the_capacity_are_left_out() {
        let keys = [1, 2, 3, 4];
        let mut buckets = Buckets::<3>::new();
        buckets.rebuild(keys.into_iter());
        assert_eq!(buckets.last_at_most(9, |place| keys[..3].get(place).copied()), Some(2));
    }

    /// Keys in clusters of any width, anywhere.
    fn clustered() -> impl Strategy<Value = StdVec<u64>> {
        let cluster = (any::<u64>(), 0..64u32, prop::collection::vec(any::<u64>(), 1..400));
        prop::collection::vec(cluster, 1..10).prop_map(|clusters| {
            let keys = clusters.into_iter().flat_map(|(low, bits, keys)| {
                keys.into_iter().map(move |key| low.saturating_add(key & ((1 << bits) - 1)))
            });
            keys.take(4096).collect()
        })
    }

    proptest! {
        #[test]
        fn large_sets_find_what_a_walk_finds(
            mut keys in prop_oneof![clustered(), prop::collection::vec(any::<u64>(), 1..4096)],
            more: [u64; 8],
        ) {
            keys.sort_unstable();
            let near = around(&[keys[0], keys[keys.len() / 3], keys[keys.len() / 2], keys[keys.len() - 1]]);
            agrees_with_a_walk(&keys, near.into_iter().chain(more));
        }
    }
}
