//! The whole check of tables against headers: presence, numbers, sizes.

use std::collections::HashSet;

use crate::assertions::{hold, present};
use crate::claims::{Item, claims};
use crate::finding::Finding;
use crate::headers::{HeaderSet, Maker};
use crate::tables::Tables;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Assertions that the C compiler was given.
    pub asserted: usize,
    /// Names that the header lacks, and may lack.
    pub absent: Vec<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Holds every number of the tables against the headers.
pub fn check(tables: &Tables, headers: &HeaderSet) -> Report {
    let (items, extents) = claims(tables, headers.scope);
    let there = present(headers, &items);
    let has: HashSet<&str> = names(&items, &there, true);
    let lacks: HashSet<&str> = names(&items, &there, false);
    let (absent, mut findings) = presence(&items, &there, &lacks, headers.maker);

    let mut asserted: Vec<_> = std::iter::zip(&items, &there)
        .filter(|(_, there)| **there)
        .flat_map(|(item, _)| item.claims.iter().cloned())
        .collect();
    asserted.extend(
        extents
            .iter()
            .filter(|extent| has.contains(extent.c_type.as_str()))
            .map(|extent| extent.claim(|name| has.contains(name))),
    );
    findings.extend(hold(headers, &asserted));
    Report { asserted: asserted.len(), absent, findings }
}

fn names<'items>(items: &'items [Item], there: &[bool], which: bool) -> HashSet<&'items str> {
    std::iter::zip(items, there).filter(|(_, there)| **there == which).map(|(item, _)| item.name.as_str()).collect()
}

/// Names that are rightly absent, and what is wrong with the others.
fn presence(items: &[Item], there: &[bool], lacks: &HashSet<&str>, maker: Maker) -> (Vec<String>, Vec<Finding>) {
    let (mut absent, mut findings) = (Vec::new(), Vec::new());
    for (item, &there) in std::iter::zip(items, there) {
        // A type that is not there is told once, not once more for each member.
        if item.of_type.as_deref().is_some_and(|of_type| lacks.contains(of_type)) {
            continue;
        }
        let missing = || Finding::Missing { what: item.name.clone(), since: item.since };
        match (item.since, maker, there) {
            (Some(since), Maker::RdmaCore(Some(release)), true) if since > release => {
                findings.push(Finding::TooEarly { what: item.name.clone(), since });
            }
            (Some(since), Maker::RdmaCore(Some(release)), false) if since <= release => findings.push(missing()),
            (None, Maker::RdmaCore(_), false) => findings.push(missing()),
            (_, _, false) => absent.push(item.name.clone()),
            (_, _, true) => {}
        }
    }
    if maker == Maker::RdmaCore(None) {
        findings.extend(contradiction(items, there));
    }
    (absent, findings)
}

/// Where the release is unknown: the newest name that is there must be older than the oldest that is not.
fn contradiction(items: &[Item], there: &[bool]) -> Option<Finding> {
    let dated = || std::iter::zip(items, there).filter_map(|(item, there)| Some((item.since?, &item.name, *there)));
    let (present_since, present, _) = dated().filter(|(_, _, there)| *there).max_by_key(|(since, _, _)| *since)?;
    let (absent_since, absent, _) = dated().filter(|(_, _, there)| !*there).min_by_key(|(since, _, _)| *since)?;
    (present_since >= absent_since).then(|| Finding::Inconsistent {
        present: present.clone(),
        present_since,
        absent: absent.clone(),
        absent_since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, since: Option<u16>) -> Item {
        Item { name: name.to_owned(), of_type: None, since, probe: String::new(), claims: Vec::new() }
    }

    #[test]
    fn presence_follows_from_a_known_release_exactly() {
        let items = [item("old", None), item("of 44", Some(44)), item("of 45", Some(45))];
        let findings =
            |there: [bool; 3], release| presence(&items, &there, &HashSet::new(), Maker::RdmaCore(release)).1;
        assert_eq!(findings([true, true, false], Some(44)), []);
        assert_eq!(findings([true, true, true], Some(44)), [Finding::TooEarly { what: "of 45".to_owned(), since: 45 }]);
        let missing = |what: &str, since| Finding::Missing { what: what.to_owned(), since };
        assert_eq!(findings([true, true, false], Some(45)), [missing("of 45", Some(45))]);
        assert_eq!(findings([false, false, false], Some(22)), [missing("old", None)]);
    }

    #[test]
    fn an_unknown_release_is_bracketed_by_what_is_there() {
        let items = [item("of 44", Some(44)), item("of 45", Some(45))];
        let findings = |there: [bool; 2]| presence(&items, &there, &HashSet::new(), Maker::RdmaCore(None)).1;
        assert_eq!(findings([true, false]), []);
        assert_eq!(findings([true, true]), []);
        assert_eq!(findings([false, false]), []);
        assert_eq!(findings([false, true]).len(), 1);
    }

    #[test]
    fn apples_header_may_lack_anything_and_it_is_listed() {
        let items = [item("old", None), item("of 45", Some(45))];
        let (absent, findings) = presence(&items, &[false, true], &HashSet::new(), Maker::Apple);
        assert_eq!((absent, findings), (vec!["old".to_owned()], vec![]));
    }
}
