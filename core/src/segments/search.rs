//! The search that every look-up starts with: the last of some sorted keys that is not above an address.
//!
//! Protects the look-up's cost: the keys stand in the order in which a binary search meets them (root, its two children, their
//! four, ...: a tree in an array, known as the Eytzinger layout), so that a step is a load, a compare and an add, with no branch
//! on the outcome, and the first levels of all searches share cache lines. What the keys stand for is the table's.

use heapless::Vec;

/// Sorted keys, laid out for searching. Built anew whenever they change: that is as many steps as moving them would be.
#[derive(Clone, Debug)]
pub(super) struct SearchTree<const N: usize> {
    /// The children of the key at `k` stand at `2 k + 1` and `2 k + 2`.
    keys: Vec<u64, N>,
    /// Where the key at the same place stands in the sorted order.
    ranks: Vec<u32, N>,
}

impl<const N: usize> SearchTree<N> {
    pub(super) const fn new() -> Self {
        Self { keys: Vec::new(), ranks: Vec::new() }
    }

    /// Takes in `sorted` (not descending; equal keys may follow each other) instead of what it held. Keys beyond `N` are left out.
    pub(super) fn rebuild(&mut self, sorted: impl ExactSizeIterator<Item = u64>) {
        self.keys.clear();
        self.ranks.clear();
        let len = sorted.len().min(N);
        // Both fit: `len` is at most N.
        let _ = self.keys.resize(len, 0);
        let _ = self.ranks.resize(len, 0);
        let mut place = leftmost(0, len);
        for (rank, key) in (0..).zip(sorted.take(len)) {
            if let (Some(key_slot), Some(rank_slot)) = (self.keys.get_mut(place), self.ranks.get_mut(place)) {
                (*key_slot, *rank_slot) = (key, rank);
            }
            place = successor(place, len);
        }
    }

    /// The place in the sorted order of the last key that is at most `address`; none if all are above.
    #[inline]
    pub(super) fn last_at_most(&self, address: u64) -> Option<usize> {
        let keys = self.keys.as_slice();
        let mut place = 0;
        while let Some(&key) = keys.get(place) {
            place = 2 * place + 1 + usize::from(key <= address);
        }
        // Counted from 1, a place's bits are the turns taken (1: right, the key was at most `address`). The last right turn is the
        // lowest 1; what stands above it is the place it was taken at, and no place (0) if there was none.
        let turns = place + 1;
        let found = (turns >> turns.trailing_zeros()) >> 1;
        self.ranks.get(found.wrapping_sub(1)).map(|&rank| rank as usize)
    }
}

/// The first place in sorted order of the subtree at `place`.
fn leftmost(mut place: usize, len: usize) -> usize {
    while 2 * place + 1 < len {
        place = 2 * place + 1;
    }
    place
}

/// The place after `place` in sorted order; some place outside of the tree after the last.
fn successor(place: usize, len: usize) -> usize {
    if 2 * place + 2 < len {
        return leftmost(2 * place + 2, len);
    }
    // Up as long as we come from the right (right children have even places), then once from the left.
    let turns = place + 1;
    match (turns >> turns.trailing_ones()) >> 1 {
        0 => len,
        parent => parent - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec as StdVec;

    fn agrees_with_a_walk(sorted: &[u64], asked: impl Iterator<Item = u64>) {
        let mut tree = SearchTree::<4096>::new();
        tree.rebuild(sorted.iter().copied());
        for address in asked {
            let twin = sorted.iter().rposition(|&key| key <= address);
            assert_eq!(tree.last_at_most(address), twin, "{address} in {sorted:?}");
        }
    }

    #[test]
    fn every_tree_of_up_to_40_keys_finds_what_a_walk_finds() {
        for len in 0..40u64 {
            let spread: StdVec<_> = (0..len).map(|rank| 2 * rank + 1).collect();
            agrees_with_a_walk(&spread, (0..2 * len + 3).chain([u64::MAX]));
            let in_pairs: StdVec<_> = (0..len).map(|rank| rank / 2 * 2).collect();
            agrees_with_a_walk(&in_pairs, 0..len + 2);
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
    fn keys_beyond_the_capacity_are_left_out() {
        let mut tree = SearchTree::<3>::new();
        tree.rebuild([1, 2, 3, 4].into_iter());
        assert_eq!(tree.last_at_most(9), Some(2));
    }

    proptest! {
        #[test]
        fn large_trees_find_what_a_walk_finds(mut keys in prop::collection::vec(any::<u64>(), 1..4096), more: [u64; 8]) {
            keys.sort_unstable();
            let near = [keys[0], keys[keys.len() / 2], keys[keys.len() - 1]];
            let asked = near.into_iter().flat_map(|key| [key.wrapping_sub(1), key, key.wrapping_add(1)]).chain(more);
            agrees_with_a_walk(&keys, asked);
        }
    }
}
