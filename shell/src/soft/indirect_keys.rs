//! mlx5's indirect keys: several regions presented as one range that starts at 0.
//!
//! A key is made without regions and gets its list by a posted request, the *binding*. Each access is checked against the key
//! first (bound, its rights, its length), then against the region that each byte lies in: it must be alive, in the key's
//! domain, reach so far and permit as much. So a key dies with its regions, part by part.
//!
//! Stricter than a device may be: an entry beyond the device's `max_sge` is out of reach, an entry cannot be an indirect key,
//! and what is written from elsewhere needs the local right too.

use std::collections::BTreeMap;

use bareverbs_core::verbs::{AccessFlags, Sge};

use crate::soft::slab::Slab;

/// Keys from here on are indirect; regions have those below.
const FIRST_KEY: u32 = 0x8000_0000;

/// A key's numbers are multiples of this: its low byte is a tag.
const STEP: u32 = 0x100;

/// The access that a binding may give.
pub(super) const BINDABLE: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// An indirect key.
#[derive(Debug)]
pub(super) struct IndirectKey {
    pub handle: usize,
    pub domain: u32,
    /// The number by which requests name it.
    pub key: u32,
    /// Entries that it can have.
    pub capacity: u16,
    /// Entries that can be reached: the device's `max_sge`.
    pub reachable: u32,
    /// Bindings posted and not done.
    pub in_flight: u32,
    pub bound: Option<Bound>,
}

/// What a key was bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub access: AccessFlags,
    pub entries: Vec<Sge>,
    /// Bytes, as the provider summed them: a negative length reaches nothing.
    pub length_bytes: i64,
}

/// The indirect keys of a fabric.
#[derive(Debug)]
pub(super) struct IndirectKeys {
    all: Slab<IndirectKey>,
    /// Index by key. Numbers are not used again as long as others are left, so that a key that is gone is known as such.
    by_key: BTreeMap<u32, u32>,
    next: u32,
}

/// Whether a key is an indirect one, dead or alive.
#[inline]
pub(super) const fn is_indirect(key: u32) -> bool {
    key >= FIRST_KEY
}

/// The length of a list as a provider sums it.
pub(super) fn sum(entries: &[Sge], in_32_bits: bool) -> i64 {
    if in_32_bits {
        entries.iter().fold(0_i32, |sum, entry| sum.wrapping_add(entry.length.cast_signed())).into()
    } else {
        entries.iter().map(|entry| i64::from(entry.length)).sum()
    }
}

impl IndirectKeys {
    pub(super) const fn new() -> Self {
        Self { all: Slab::new(), by_key: BTreeMap::new(), next: FIRST_KEY }
    }

    /// The index that the next key will get.
    pub(super) fn next_index(&self) -> u32 {
        self.all.next_index()
    }

    /// The number that the next key will get.
    pub(super) fn next_key(&self) -> u32 {
        let mut key = self.next;
        while self.by_key.contains_key(&key) {
            key = Self::after(key);
        }
        key
    }

    fn after(key: u32) -> u32 {
        key.checked_add(STEP).unwrap_or(FIRST_KEY)
    }

    pub(super) fn insert(&mut self, key: IndirectKey) {
        self.next = Self::after(key.key);
        self.by_key.insert(key.key, self.all.next_index());
        self.all.insert(key);
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<IndirectKey> {
        let key = self.all.remove(index)?;
        self.by_key.remove(&key.key);
        Some(key)
    }

    pub(super) fn get(&self, index: u32) -> Option<&IndirectKey> {
        self.all.get(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut IndirectKey> {
        self.all.get_mut(index)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The index of the key with a number.
    pub(super) fn index_of(&self, key: u32) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The entries that `length_bytes` bytes from `offset` on lie in, each as what its region is asked for; `None` where the
    /// key itself does not reach so far or does not permit it.
    pub(super) fn resolve(
        &self,
        domain: u32,
        key: u32,
        offset: u64,
        length_bytes: u32,
        needs: AccessFlags,
    ) -> Option<Vec<Sge>> {
        let key = self.all.get(self.index_of(key)?).filter(|key| key.domain == domain)?;
        let bound = key.bound.as_ref().filter(|bound| bound.access.contains(needs))?;
        let end = offset.checked_add(length_bytes.into())?;
        if i64::try_from(end).ok()? > bound.length_bytes {
            return None;
        }
        let (mut start, mut found) = (0_u64, Vec::new());
        for (place, entry) in (0_u32..).zip(&bound.entries) {
            let (first, last) = (offset.max(start), end.min(start + u64::from(entry.length)));
            if first < last {
                if place >= key.reachable {
                    return None;
                }
                let addr = entry.addr.checked_add(first - start)?;
                found.push(Sge { addr, length: (last - first) as u32, lkey: entry.lkey });
            }
            start += u64::from(entry.length);
        }
        // All of it is found: a length summed in too few bits is negative, or shorter than the list.
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: AccessFlags = BINDABLE;

    fn keys(entries: &[Sge], in_32_bits: bool) -> (IndirectKeys, u32) {
        let mut keys = IndirectKeys::new();
        let key = keys.next_key();
        let bound = Bound { access: ALL, entries: entries.to_vec(), length_bytes: sum(entries, in_32_bits) };
        let bound = Some(bound);
        keys.insert(IndirectKey { handle: 1, domain: 0, key, capacity: 4, reachable: 3, in_flight: 0, bound });
        (keys, key)
    }

    const fn entry(addr: u64, length: u32, lkey: u32) -> Sge {
        Sge { addr, length, lkey }
    }

    #[test]
    fn a_fresh_key_has_no_tag_and_comes_back_last() {
        let (mut keys, first) = keys(&[], false);
        assert!(is_indirect(first) && first.trailing_zeros() >= 8);
        assert!(keys.remove(0).is_some());
        assert_ne!(keys.next_key(), first);
        assert_eq!(keys.index_of(first), None);
    }

    #[test]
    fn an_offset_counts_over_the_entries_in_order() {
        let (keys, key) = keys(&[entry(100, 10, 1), entry(0, 0, 7), entry(500, 20, 2)], false);
        let at = |offset, length| keys.resolve(0, key, offset, length, ALL);
        assert_eq!(at(0, 10), Some(vec![entry(100, 10, 1)]));
        assert_eq!(at(9, 2), Some(vec![entry(109, 1, 1), entry(500, 1, 2)]));
        assert_eq!(at(10, 20), Some(vec![entry(500, 20, 2)]));
        assert_eq!(at(29, 1), Some(vec![entry(519, 1, 2)]));
        assert_eq!((at(29, 2), at(30, 1), at(u64::MAX, 1)), (None, None, None));
    }

    #[test]
    fn a_key_is_for_its_domain_and_its_rights() {
        let (mut keys, key) = keys(&[entry(0, 10, 1)], false);
        assert_eq!(keys.resolve(1, key, 0, 1, AccessFlags::empty()), None);
        assert_eq!(keys.resolve(0, key + STEP, 0, 1, AccessFlags::empty()), None);
        keys.get_mut(0).and_then(|key| key.bound.as_mut()).expect("bound").access = AccessFlags::REMOTE_READ;
        assert!(keys.resolve(0, key, 0, 1, AccessFlags::REMOTE_READ).is_some());
        assert_eq!(keys.resolve(0, key, 0, 1, AccessFlags::REMOTE_WRITE), None);
        keys.get_mut(0).expect("the key").bound = None;
        assert_eq!(keys.resolve(0, key, 0, 1, AccessFlags::empty()), None);
    }

    #[test]
    fn entries_beyond_the_devices_limit_are_out_of_reach() {
        let list: Vec<Sge> = (0..4).map(|at| entry(at * 100, 10, 1)).collect();
        let (keys, key) = keys(&list, false);
        assert!(keys.resolve(0, key, 29, 1, ALL).is_some());
        assert_eq!((keys.resolve(0, key, 30, 1, ALL), keys.resolve(0, key, 29, 2, ALL)), (None, None));
    }

    #[test]
    fn f4_an_old_provider_sums_in_a_signed_32_bit_number() {
        let two_mib = 2 << 20;
        let long = [entry(0, 4_292_870_144, 1), entry(0, two_mib, 2)];
        assert_eq!((sum(&long, true), sum(&long, false)), (0, 1 << 32));
        let half = [entry(0, 1 << 30, 1), entry(0, 1 << 30, 2), entry(0, two_mib, 3)];
        assert_eq!((sum(&half, true), sum(&half, false)), (i64::from(0x8020_0000_u32.cast_signed()), 0x8020_0000));
        for (list, offset) in [(&long[..], 0x6600_0000), (&half, 0x6600_0000), (&half, 0x8000_0000)] {
            let (old, key) = keys(list, true);
            assert_eq!(old.resolve(0, key, offset, 8, ALL), None, "{offset:#x}");
            let (current, key) = keys(list, false);
            assert!(current.resolve(0, key, offset, 8, ALL).is_some(), "{offset:#x}");
        }
    }

    #[test]
    fn an_old_provider_wraps_to_what_is_left() {
        // 4 GiB + 2 MiB: the sum is 2 MiB.
        let (keys, key) = keys(&[entry(0, 4_292_870_144, 1), entry(0, 4 << 20, 2)], true);
        assert!(keys.resolve(0, key, (2 << 20) - 8, 8, ALL).is_some());
        assert_eq!(keys.resolve(0, key, (2 << 20) - 7, 8, ALL), None);
    }

    proptest::proptest! {
        #[test]
        fn it_agrees_with_a_walk_byte_by_byte(
            lengths in proptest::collection::vec(0..5_u32, 0..4), offset in 0..20_u64, length in 1..8_u32,
        ) {
            let list: Vec<Sge> = (1_u32..).zip(&lengths).map(|(key, length)| entry(u64::from(key) * 100, *length, key)).collect();
            let (mut keys, key) = keys(&list, false);
            keys.get_mut(0).expect("the key").reachable = 4;
            let bytes: Vec<u64> =
                list.iter().flat_map(|entry| (0..u64::from(entry.length)).map(|at| entry.addr + at)).collect();
            let wanted = bytes.get(offset as usize..(offset + u64::from(length)) as usize);
            let found = keys.resolve(0, key, offset, length, ALL);
            let walked = found.map(|found| -> Vec<u64> {
                found.iter().flat_map(|entry| (0..u64::from(entry.length)).map(|at| entry.addr + at)).collect()
            });
            assert_eq!(walked.as_deref(), wanted);
        }
    }
}
