//! What an end says of a link that is no good any more, without the numbers that differ from link to link.

use std::fmt;

use bareverbs_core::link::{CarrierError, Fault, HeaderError, LinkError};
use bareverbs_shell::endpoint::{EndpointError, EndpointErrorKind};

/// Why a link is to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// So many messages are missing before the one that came.
    Gap { missing: u32 },
    /// A message came again, or late: so far behind the one that was to come.
    Old { behind: u32 },
    /// A payload does not have its checksum.
    Checksum,
    /// The sender had no credit for its next message until the deadline: a credit message was lost, or the other end is gone.
    NoCredit,
    /// Nothing came within the deadline though something was sent: the last messages were lost, or the other end is gone.
    Silence,
    /// Another fault of the link.
    Other,
}

impl Verdict {
    /// The verdict that an error of an endpoint is; `None` for one that says nothing of the link.
    pub(crate) fn of(error: &EndpointError) -> Option<Self> {
        let fault = match &error.kind {
            EndpointErrorKind::Timeout { no_credit: Some(_), .. } => return Some(Self::NoCredit),
            EndpointErrorKind::Timeout { .. } => return Some(Self::Silence),
            EndpointErrorKind::Link(LinkError::Fault(fault)) => fault,
            EndpointErrorKind::Link(_) | EndpointErrorKind::Poll(_) => return Some(Self::Other),
            _ => return None,
        };
        Some(match *fault {
            Fault::Gap { missing, .. } => Self::Gap { missing },
            Fault::Old { behind, .. } => Self::Old { behind },
            Fault::Unreadable { error: CarrierError::Header(HeaderError::Corrupt { .. }), .. } => Self::Checksum,
            _ => Self::Other,
        })
    }

    /// Who says so.
    pub(crate) const fn who(self) -> &'static str {
        match self {
            Self::NoCredit => "sender",
            _ => "receiver",
        }
    }

    /// What kind of verdict it is, in a word or two.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Gap { .. } => "gap",
            Self::Old { .. } => "duplicate or old",
            Self::Checksum => "checksum",
            Self::NoCredit => "no credit",
            Self::Silence => "silence",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { missing } => write!(f, "a gap of {missing}"),
            Self::Old { behind } => write!(f, "a message {behind} behind"),
            Self::Checksum => f.write_str("a checksum that does not match"),
            Self::NoCredit => f.write_str("no credit until the deadline"),
            Self::Silence => f.write_str("silence until the deadline"),
            Self::Other => f.write_str("another fault"),
        }
    }
}
