//! What a check found wrong, in words that name the struct, the member, what was expected and what is there.

use std::fmt;

/// A disagreement between the tables and a header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// C has another number.
    Differs {
        /// What was measured (`struct ibv_sge.lkey: offset`).
        what: String,
        /// The table's number.
        expected: i64,
        /// The C compiler's.
        got: i64,
    },
    /// A table has a name that the header lacks, and ought to have.
    Missing {
        /// The name.
        what: String,
        /// The release since which the table says that it is there.
        since: Option<u16>,
    },
    /// The header has a name that its release ought not to have.
    TooEarly {
        /// The name.
        what: String,
        /// The release since which the table says that it is there.
        since: u16,
    },
    /// Presence of names contradicts itself: the *since* of one of the two is wrong.
    Inconsistent {
        /// A name that is there.
        present: String,
        /// Its *since*.
        present_since: u16,
        /// A name that is not, though it came no later.
        absent: String,
        /// Its *since*.
        absent_since: u16,
    },
    /// A C struct has a member that no table lists.
    Unlisted {
        /// The struct.
        c_type: String,
        /// The member.
        member: String,
        /// Where it is, in bytes.
        offset_bytes: u64,
    },
    /// A member is a named struct that has no table.
    NoTable {
        /// The struct whose member it is.
        c_type: String,
        /// The member.
        member: String,
        /// The member's type.
        member_type: String,
    },
    /// A C enum has a constant that no table lists.
    UnlistedConstant {
        /// The table that has the enum's other constants.
        table: String,
        /// The constant.
        constant: String,
        /// Its value.
        value: i64,
    },
    /// The C compiler refused, and measuring does not show why.
    Compiler {
        /// What it said.
        said: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs { what, expected, got } => write!(f, "{what}: the table says {expected}, C says {got}"),
            Self::Missing { what, since: None } => write!(f, "{what}: not in the header"),
            Self::Missing { what, since: Some(since) } => {
                write!(f, "{what}: not in the header, though the table says since {since}")
            }
            Self::TooEarly { what, since } => {
                write!(f, "{what}: in the header of an earlier release, though the table says since {since}")
            }
            Self::Inconsistent { present, present_since, absent, absent_since } => write!(
                f,
                "{present} (since {present_since}) is in the header, {absent} (since {absent_since}) is not: \
                 one of the two is wrong"
            ),
            Self::Unlisted { c_type, member, offset_bytes } => {
                write!(f, "{c_type}.{member}: at {offset_bytes} in C, in no table")
            }
            Self::NoTable { c_type, member, member_type } => {
                write!(f, "{c_type}.{member}: {member_type} has no table")
            }
            Self::UnlistedConstant { table, constant, value } => {
                write!(f, "{constant} = {value}: in C, not in the table of {table}")
            }
            Self::Compiler { said } => write!(f, "the C compiler refuses the assertions:\n{said}"),
        }
    }
}

/// One finding a line.
pub fn listed(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("  {finding}\n")).collect()
}
