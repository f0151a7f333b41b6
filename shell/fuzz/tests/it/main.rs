//! The properties without a fuzzer: for every input in the corpus, for bytes near those, and for any bytes.

use std::fs;
use std::path::{Path, PathBuf};

use bareverbs_fuzz::{PROPERTIES, Property};
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// What the corpus has for a property: file by file, in order of their names.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder(name)).unwrap_or_else(|error| panic!("{}: {error}", folder(name).display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seed for {name}");
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Cut(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        4 => (at(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, 1 << bit)),
        2 => (at(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        1 => (at(), 1..8usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => at().prop_map(Edit::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: Edit) {
    let end = bytes.len();
    match edit {
        Edit::Insert(at, new) => drop(bytes.splice(at.index(end + 1)..at.index(end + 1), new)),
        _ if end == 0 => {}
        Edit::Set(at, byte) => bytes[at.index(end)] = byte,
        Edit::Flip(at, bit) => bytes[at.index(end)] ^= bit,
        Edit::Remove(at, count) => drop(bytes.drain(at.index(end)..(at.index(end) + count).min(end))),
        Edit::Cut(at) => bytes.truncate(at.index(end)),
    }
}

/// A seed with a few edits, or any bytes.
fn inputs(name: &str) -> impl Strategy<Value = Vec<u8>> {
    let seeds: Vec<_> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
    let near = (select(seeds), prop::collection::vec(edit(), 0..6)).prop_map(|(mut bytes, edits)| {
        edits.into_iter().for_each(|edit| apply(&mut bytes, edit));
        bytes
    });
    prop_oneof![3 => near, 1 => prop::collection::vec(any::<u8>(), 0..300)]
}

fn property(name: &str) -> Property {
    PROPERTIES.iter().find(|(known, _)| *known == name).unwrap().1
}

macro_rules! tests {
    ($($name:ident)*) => { $(
        mod $name {
            use super::*;

            const NAME: &str = stringify!($name);

            #[test]
            fn holds_for_every_input_of_the_corpus() {
                for (path, bytes) in corpus(NAME) {
                    println!("{}", path.display());
                    property(NAME)(&bytes);
                }
            }

            proptest! {
                #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
                #[test]
                fn holds_near_the_corpus_and_for_any_bytes(bytes in inputs(NAME)) {
                    property(NAME)(&bytes);
                }
            }
        }
    )* };
}

tests! {
    agreement chunks destination exchange growth header hello link one_sided reconcile step tool_address windows
}

#[test]
fn every_property_has_a_fuzz_target_and_a_corpus_and_there_are_no_others() {
    let names: Vec<_> = PROPERTIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let listed = |path: PathBuf| {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(listed(folder("")), names);
    assert_eq!(listed(Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/fuzz_targets")), names);
}
