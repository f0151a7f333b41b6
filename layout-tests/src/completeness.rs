//! Whether the tables list everything that the structs and enums of a header have.

use std::collections::HashSet;

use crate::assertions::present;
use crate::claims::{Scope, type_item};
use crate::finding::Finding;
use crate::headers::{HeaderSet, Maker};
use crate::members::{DebugInfo, Member, MemberKind};
use crate::tables::Tables;

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Members of C structs that were looked up in the tables.
    pub members: usize,
    /// Constants of C enums that were looked up in the tables.
    pub constants: usize,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Enumerators that are no values: they mark the ends of a range.
const NO_VALUES: [&str; 2] = ["IBV_ACCESS_OPTIONAL_FIRST", "IBV_ACCESS_OPTIONAL_RANGE"];

/// Looks up every member and every enumerator of the headers in the tables.
///
/// # Errors
/// Why the debug information cannot be read: then nothing was compared.
pub fn compare(tables: &Tables, headers: &HeaderSet) -> Result<Compared, String> {
    let expected = expectations(tables, headers.scope);
    let types: Vec<_> = expected.iter().map(|listed| type_item(listed.c_type, 1)).collect();
    // A type that the header lacks is the business of `check`.
    let there = present(headers, &types);
    let expected: Vec<_> =
        std::iter::zip(expected, there).filter_map(|(listed, there)| there.then_some(listed)).collect();
    let c_types: Vec<&str> = expected.iter().map(|listed| listed.c_type).collect();
    let info = DebugInfo::of(headers, &c_types)?;
    let known: HashSet<&str> = tables.structs.iter().map(|table| table.c_type).collect();
    let mut compared = Compared::default();
    for (index, listed) in expected.iter().enumerate() {
        listed.look_up(&info.members(index), "", 0, &known, &mut compared);
    }
    // Apple's enums have values of their own; open integers keep them as they come.
    if headers.maker != Maker::Apple {
        look_up_constants(tables, &info, &mut compared);
    }
    Ok(compared)
}

/// What one table lists of a C struct.
struct Listed<'tables> {
    c_type: &'tables str,
    names: HashSet<&'tables str>,
    /// The part of the struct that the table is about, in bytes: from, and up to but not including.
    from_bytes: u64,
    to_bytes: u64,
}

fn expectations(tables: &Tables, scope: Scope) -> Vec<Listed<'_>> {
    let whole_or_start = tables.structs.iter().filter(|table| scope.covers(table.c_type)).map(|table| Listed {
        c_type: table.c_type,
        names: table.fields.iter().map(|row| row.c_name).collect(),
        from_bytes: 0,
        to_bytes: if table.whole { u64::MAX } else { table.size_bytes as u64 },
    });
    let tails = tables.tails.iter().filter_map(|tail| {
        let platform = scope.platform.filter(|platform| tail.platforms.contains(platform))?;
        let first = tail.fields.iter().map(|row| row.offset_bytes).min()?;
        Some(Listed {
            c_type: tail.c_type,
            names: tail.fields.iter().map(|row| row.c_name).collect(),
            from_bytes: platform.past_mutex(first) as u64,
            to_bytes: u64::MAX,
        })
    });
    whole_or_start.chain(tails).collect()
}

impl Listed<'_> {
    fn look_up(&self, members: &[Member], way: &str, base_bytes: u64, known: &HashSet<&str>, compared: &mut Compared) {
        for Member { name, offset_bytes, kind } in members {
            let offset_bytes = base_bytes + offset_bytes;
            if !(self.from_bytes..self.to_bytes).contains(&offset_bytes) {
                continue;
            }
            let member = format!("{way}{name}");
            let c_type = self.c_type.to_owned();
            compared.members += 1;
            if !self.names.contains(member.as_str()) {
                compared.findings.push(Finding::Unlisted { c_type, member, offset_bytes });
                continue;
            }
            match kind {
                MemberKind::Plain => {}
                MemberKind::Named(inner) if known.contains(inner.as_str()) => {}
                MemberKind::Named(inner) => {
                    compared.findings.push(Finding::NoTable { c_type, member, member_type: inner.clone() });
                }
                MemberKind::Unnamed(_) if known.contains(format!("{c_type}.{member}").as_str()) => {}
                MemberKind::Unnamed(inner) => {
                    self.look_up(inner, &format!("{member}."), offset_bytes, known, compared);
                }
            }
        }
    }
}

fn look_up_constants(tables: &Tables, info: &DebugInfo, compared: &mut Compared) {
    let listed: HashSet<&str> =
        tables.constants.iter().flat_map(|table| table.rows.iter().map(|row| row.c_name)).collect();
    for constants in info.enums() {
        let of_table = tables
            .constants
            .iter()
            .find(|table| table.rows.iter().any(|row| constants.iter().any(|(name, _)| *name == row.c_name)));
        let Some(table) = of_table else { continue };
        for (name, value) in constants {
            compared.constants += 1;
            if !listed.contains(name) && !NO_VALUES.contains(&name) {
                compared.findings.push(Finding::UnlistedConstant {
                    table: table.rust_name.to_owned(),
                    constant: name.to_owned(),
                    value,
                });
            }
        }
    }
}
