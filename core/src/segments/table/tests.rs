use super::*;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec as StdVec;

fn range(base: u64, len_bytes: u64) -> AddressRange {
    AddressRange::new(base, len_bytes).unwrap()
}

fn row(base: u64, len_bytes: u64, ordinal: u32) -> Row<u64> {
    Row { range: range(base, len_bytes), ordinal: Ordinal(ordinal), value: base + u64::from(ordinal) }
}

fn key(base: u64, ordinal: u32) -> SegmentKey {
    SegmentKey { base, ordinal: Ordinal(ordinal) }
}

/// The obvious form of the table: a list, walked.
#[derive(Clone, Debug, Default, PartialEq)]
struct Twin(StdVec<Row<u64>>);

impl Twin {
    fn in_the_way(&self, new: AddressRange, ordinal: Ordinal) -> impl Iterator<Item = &Row<u64>> {
        self.0
            .iter()
            .filter(move |row| row.range.overlaps(new) && (row.range.base() != new.base() || row.ordinal == ordinal))
    }

    fn insert(&mut self, row: Row<u64>, capacity: usize) -> bool {
        let fits = !row.range.is_empty()
            && self.in_the_way(row.range, row.ordinal).next().is_none()
            && self.0.len() < capacity;
        if fits {
            self.0.push(row);
            self.0.sort_by_key(Row::key);
        }
        fits
    }
}

fn agree<const N: usize>(table: &SegmentTable<u64, N>, twin: &Twin, asked: AddressRange) {
    let expected: StdVec<_> =
        twin.0.iter().rev().filter(|row| !asked.is_empty() && row.range.covers(asked)).copied().collect();
    assert_eq!(table.covering(asked).copied().collect::<StdVec<_>>(), expected, "{asked} in {:?}", twin.0);
    assert_eq!(table.lookup(asked), expected.first());
}

#[test]
fn every_pair_of_rows_is_taken_or_refused_and_found_as_the_twin_says() {
    for shift in [0, u64::MAX - 7] {
        let ranges = (0..8u64).flat_map(|base| (0..=8 - base).map(move |len| range(shift.wrapping_add(base), len)));
        let ranges: StdVec<_> = ranges.collect();
        for (&first, &second) in ranges.iter().flat_map(|first| ranges.iter().map(move |second| (first, second))) {
            for ordinal in [0, 1] {
                let (mut table, mut twin) = (SegmentTable::<u64, 4>::new(), Twin::default());
                for (range, ordinal) in [(first, 0), (second, ordinal)] {
                    let row = Row { range, ordinal: Ordinal(ordinal), value: 0 };
                    assert_eq!(table.insert(row).is_ok(), twin.insert(row, 4), "{first} then {second}");
                    assert_eq!(table.rows(), twin.0);
                }
                ranges.iter().for_each(|&asked| agree(&table, &twin, asked));
            }
        }
    }
}

#[test]
fn a_request_is_served_to_the_segments_last_byte_and_no_further() {
    let mut table = SegmentTable::<u64, 4>::new();
    let (base, len) = (0x16_0000_0000, 4 << 20);
    table.insert(row(base, len, 2)).unwrap();
    assert!(table.lookup(range(base + len - 0x6000, 0x6000)).is_some());
    assert!(table.lookup(range(base + len - 2048, 4096)).is_none());
    assert!(table.lookup(range(base - 1, 2)).is_none());
    assert!(table.lookup(range(base, 0)).is_none(), "nothing covers an empty request");
}

#[test]
fn the_top_of_the_address_space_is_served() {
    let mut table = SegmentTable::<u64, 4>::new();
    let base = u64::MAX - 4095;
    table.insert(Row { range: range(base, 4096), ordinal: Ordinal(0), value: 0 }).unwrap();
    assert!(table.lookup(range(u64::MAX, 1)).is_some());
    assert!(table.lookup(range(base, 4096)).is_some());
    assert!(table.lookup(range(base - 1, 4097)).is_none());
    let full = InsertError::Overlap { key: key(u64::MAX, 0), with: key(base, 0) };
    assert_eq!(table.check(range(u64::MAX, 1), Ordinal(0)), Err(full));
}

#[test]
fn insertion_beyond_capacity_is_refused_and_changes_nothing() {
    let mut table = SegmentTable::<u64, 2>::new();
    table.insert(row(0, 2, 0)).unwrap();
    table.insert(row(4, 2, 0)).unwrap();
    let before = table.rows().to_vec();
    let refused = table.insert(row(8, 2, 0)).unwrap_err();
    assert_eq!(refused, InsertError::Full { key: key(8, 0), capacity: 2 });
    assert_eq!(
        refused.to_string(),
        "expected at most 2 bound segments, got one more at 0x8 (ordinal 0): raise the table's capacity"
    );
    assert_eq!(table.rows(), before);
    assert!(table.lookup(range(8, 1)).is_none());
    let mut none = SegmentTable::<u64, 0>::new();
    assert_eq!(none.insert(row(0, 2, 0)), Err(InsertError::Full { key: key(0, 0), capacity: 0 }));
    assert!(none.lookup(range(0, 1)).is_none());
}

#[test]
fn two_ordinals_share_a_base_and_each_is_found() {
    let mut table = SegmentTable::<u64, 4>::new();
    table.insert(row(8, 8, 1)).unwrap();
    table.insert(row(8, 2, 3)).unwrap();
    table.insert(row(8, 4, 0)).unwrap();
    let ordinals: StdVec<_> = table.covering(range(8, 3)).map(|row| row.ordinal.0).collect();
    assert_eq!(ordinals, [1, 0]);
    assert_eq!(table.lookup(range(14, 2)).map(|row| row.ordinal), Some(Ordinal(1)));
    assert!(matches!(table.insert(row(9, 1, 2)), Err(InsertError::Overlap { .. })), "another base overlaps");
    assert!(matches!(table.insert(row(8, 1, 1)), Err(InsertError::Overlap { .. })), "the same key overlaps");
}

#[test]
fn newest_wins_once_those_in_its_way_are_taken_out() {
    let mut table = SegmentTable::<u64, 8>::new();
    for base in [0, 4, 8, 12] {
        table.insert(row(base, 3, 0)).unwrap();
    }
    let mut taken = StdVec::new();
    while let Some(old) = table.take_overlapping(range(5, 4), Ordinal(1)) {
        taken.push(old.range.base());
    }
    taken.sort_unstable();
    assert_eq!(taken, [4, 8]);
    table.insert(row(5, 4, 1)).unwrap();
    assert_eq!(table.rows().iter().map(|row| row.range.base()).collect::<StdVec<_>>(), [0, 5, 12]);
}

#[test]
fn a_row_grows_up_to_its_neighbour() {
    let mut table = SegmentTable::<u64, 8>::new();
    table.insert(row(0, 2, 0)).unwrap();
    table.insert(row(0, 1, 1)).unwrap();
    table.insert(row(8, 2, 0)).unwrap();
    assert_eq!(table.resize(key(0, 0), range(0, 8)), Ok(()));
    assert_eq!(table.row(key(0, 0)).unwrap().range, range(0, 8));
    let refused = ResizeError::Overlap { key: key(0, 1), with: key(8, 0) };
    assert_eq!(table.resize(key(0, 1), range(0, 9)), Err(refused));
    assert_eq!(table.row(key(0, 1)).unwrap().range, range(0, 1));
    assert_eq!(table.resize(key(1, 0), range(1, 2)), Err(ResizeError::Absent { key: key(1, 0) }));
    assert!(matches!(table.resize(key(8, 0), range(7, 2)), Err(ResizeError::Range { .. })));
    assert!(matches!(table.resize(key(8, 0), range(8, 0)), Err(ResizeError::Range { .. })));
    let top = range(8, u64::MAX - 7);
    assert_eq!(table.resize(key(8, 0), top), Ok(()));
    assert!(table.lookup(range(u64::MAX, 1)).is_some());
}

#[test]
fn a_clone_is_what_the_table_was() {
    let mut table = SegmentTable::<u64, 4>::new();
    table.insert(row(0, 2, 0)).unwrap();
    let published = table.clone();
    table.remove(key(0, 0)).unwrap();
    assert!(table.lookup(range(0, 1)).is_none());
    assert_eq!(published.lookup(range(0, 1)), Some(&row(0, 2, 0)));
    // In place, over rows that were there.
    table.insert(row(7, 1, 0)).unwrap();
    table.clone_from(&published);
    assert_eq!((table.rows(), table.lookup(range(7, 1))), (published.rows(), None));
    assert_eq!(table.lookup(range(1, 1)), Some(&row(0, 2, 0)));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64, u32),
    Replace(u64, u64, u32),
    Remove(prop::sample::Index),
    Resize(prop::sample::Index, u64),
}

fn steps() -> impl Strategy<Value = StdVec<Step>> {
    let insert = || (0..200u64, 0..12u64, 0..3u32);
    let step = prop_oneof![
        4 => insert().prop_map(|(base, len, ordinal)| Step::Insert(base, len, ordinal)),
        1 => insert().prop_map(|(base, len, ordinal)| Step::Replace(base, len, ordinal)),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (any::<prop::sample::Index>(), 0..12u64).prop_map(|(at, len)| Step::Resize(at, len)),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn a_life_of_rows_agrees_with_the_twin(steps in steps(), at_top: bool) {
        let low = if at_top { u64::MAX - 210 } else { 0 };
        let (mut table, mut twin) = (SegmentTable::<u64, 16>::new(), Twin::default());
        for step in steps {
            match step {
                Step::Insert(base, len, ordinal) => {
                    let row = Row { range: range(low + base, len), ordinal: Ordinal(ordinal), value: 0 };
                    prop_assert_eq!(table.insert(row).is_ok(), twin.insert(row, 16));
                }
                Step::Replace(base, len, ordinal) => {
                    let (new, ordinal) = (range(low + base, len), Ordinal(ordinal));
                    let mut taken: StdVec<_> = core::iter::from_fn(|| table.take_overlapping(new, ordinal)).collect();
                    taken.sort_by_key(Row::key);
                    prop_assert_eq!(&taken, &twin.in_the_way(new, ordinal).copied().collect::<StdVec<_>>());
                    twin.0.retain(|row| !taken.contains(row));
                }
                Step::Remove(_) | Step::Resize(..) if twin.0.is_empty() => {}
                Step::Remove(at) => {
                    let row = twin.0.remove(at.index(twin.0.len()));
                    prop_assert_eq!(table.remove(row.key()), Some(row));
                    prop_assert_eq!(table.remove(row.key()), None);
                }
                Step::Resize(at, len) => {
                    let at = at.index(twin.0.len());
                    let old = twin.0.remove(at);
                    let to = range(old.range.base(), len);
                    let fits = twin.insert(Row { range: to, ..old }, 16);
                    prop_assert_eq!(table.resize(old.key(), to).is_ok(), fits);
                    if !fits {
                        twin.0.insert(at, old);
                    }
                }
            }
            prop_assert_eq!(table.rows(), &*twin.0);
        }
        for base in 0..210 {
            for len in [0, 1, 2, 5] {
                agree(&table, &twin, range(low + base, len.min(210 - base)));
            }
        }
    }
}
