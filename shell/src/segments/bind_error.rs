//! Why a key was not bound.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{CapError, LimitsError};
use bareverbs_core::verbs::completion::FailedCompletion;
use bareverbs_core::verbs::inline_calls::PollError;
use bareverbs_core::verbs::{AccessFlags, WcOpcode};

use crate::errno::Errno;
use crate::error::Error;
use crate::objects::list_queue_pair::NoListQueuePair;
use crate::segments::BINDABLE_ACCESS;
use crate::symbols::mr_list::NoBuilder;

/// Why a key was not bound, or cannot be on this device.
///
/// After any of these the next binding is tried anew: a queue pair on which one failed is thrown away.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// The provider says that the device is none of its own. It was asked nothing else.
    Unsupported {
        /// The device.
        device: Arc<str>,
    },
    /// The provider's table does not go with the library that opened the device.
    OtherLibrary {
        /// Whose table it is.
        mlx5: Arc<str>,
        /// What opened the device.
        verbs: Arc<str>,
    },
    /// A binding cannot give such access.
    Access {
        /// The device.
        device: Arc<str>,
        /// What was asked for.
        got: AccessFlags,
    },
    /// A region does not permit what the key is to permit.
    RegionAccess {
        /// The device.
        device: Arc<str>,
        /// The region.
        range: AddressRange,
        /// What it was registered with.
        access: AccessFlags,
        /// What was asked for.
        got: AccessFlags,
    },
    /// The device reports limits that leave no entry.
    Cap {
        /// The device.
        device: Arc<str>,
        /// Which.
        error: CapError,
    },
    /// No window is as long as a part must be.
    Limits {
        /// The device.
        device: Arc<str>,
        /// Why not.
        error: LimitsError,
    },
    /// The queue pair cannot carry the request.
    Builder {
        /// The device.
        device: Arc<str>,
        /// Why not.
        error: NoBuilder,
    },
    /// The regions do not follow each other through the range, of which this part is missing or another's.
    Parts {
        /// The device.
        device: Arc<str>,
        /// The range to be presented.
        range: AddressRange,
        /// Where the regions leave it.
        at: u64,
    },
    /// More regions than a key of this device presents, or none.
    Entries {
        /// The device.
        device: Arc<str>,
        /// How many there are.
        got: usize,
        /// How many there may be.
        cap: u16,
    },
    /// A region, or all together, are longer than the device or the provider counts.
    Length {
        /// The device.
        device: Arc<str>,
        /// How long.
        got_bytes: u64,
        /// How long it may be.
        limit_bytes: u64,
    },
    /// Regions are to be cut at no multiples of the host's page, where memory cannot be exported.
    Alignment {
        /// The device.
        device: Arc<str>,
        /// How regions are to be aligned.
        got_bytes: u64,
        /// The host's page.
        page_bytes: u64,
    },
    /// A region is of another protection domain, where this one's keys are of no use.
    ForeignDomain {
        /// The device.
        device: Arc<str>,
    },
    /// The provider refused the request.
    Refused {
        /// The device.
        device: Arc<str>,
        /// What it answered, if it said.
        errno: Option<Errno>,
        /// How many entries.
        entries: usize,
    },
    /// Polling failed: whether the key was bound is not known, and it is not used.
    Poll {
        /// The device.
        device: Arc<str>,
        /// How.
        error: PollError,
    },
    /// No completion came.
    Late {
        /// The device.
        device: Arc<str>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The device refused.
    Status {
        /// The device.
        device: Arc<str>,
        /// With what.
        error: FailedCompletion,
    },
    /// Something else completed on a queue that is for bindings alone.
    Unexpected {
        /// The device.
        device: Arc<str>,
        /// The number that was posted.
        expected_wr_id: u64,
        /// The number that came.
        wr_id: u64,
        /// The operation that came; 135 is expected.
        opcode: WcOpcode,
    },
    /// Something else of the shell.
    Shell(Error),
}

impl BindError {
    /// Whether the device, its driver or its library cannot do this at all, so that trying again does not help.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Unsupported { .. } | Self::OtherLibrary { .. } | Self::Builder { .. } => true,
            Self::Shell(error) => error.is_unsupported(),
            _ => false,
        }
    }

    pub(super) fn of_queue_pair(device: &Arc<str>, error: NoListQueuePair) -> Self {
        match error {
            NoListQueuePair::Shell(error) => Self::Shell(error),
            NoListQueuePair::Builder(error) => Self::Builder { device: Arc::clone(device), error },
        }
    }
}

impl From<Error> for BindError {
    fn from(error: Error) -> Self {
        Self::Shell(error)
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { device } => {
                write!(f, "device {device} is no mlx5 device of this provider: it has no indirect keys")
            }
            Self::OtherLibrary { mlx5, verbs } => {
                write!(f, "{mlx5} does not serve devices that {verbs} opened: take both from one fabric")
            }
            Self::Access { device, got } => write!(
                f,
                "device {device}: a key can be given access {:#x} at most, and {:#x} was asked for",
                BINDABLE_ACCESS.bits(),
                got.bits()
            ),
            Self::RegionAccess { device, range, access, got } => write!(
                f,
                "device {device}: a key cannot be given access {:#x} over the {} bytes at {:#x}, whose region permits {:#x}: \
                 register it with as much, or ask for less",
                got.bits(),
                range.len_bytes(),
                range.base(),
                access.bits()
            ),
            Self::Cap { device, error } => write!(f, "device {device}: {error}"),
            Self::Limits { device, error } => write!(f, "device {device}: {error}"),
            Self::Builder { device, error } => write!(f, "device {device}: {error}"),
            Self::Parts { device, range, at } => write!(
                f,
                "device {device}: the regions do not make up {} bytes at {:#x}: look at {at:#x}",
                range.len_bytes(),
                range.base()
            ),
            Self::Entries { device, got, cap } => {
                write!(
                    f,
                    "device {device}: a key presents 1 to {cap} regions, and {got} are to be bound: use several keys"
                )
            }
            Self::Length { device, got_bytes, limit_bytes } => {
                write!(f, "device {device}: {got_bytes} bytes are more than the {limit_bytes} that can be counted")
            }
            Self::Alignment { device, got_bytes, page_bytes } => write!(
                f,
                "device {device}: regions aligned to {got_bytes} bytes are no whole pages of {page_bytes}: set \
                 `BinderConfig::chunk` to a multiple of that"
            ),
            Self::ForeignDomain { device } => {
                write!(f, "device {device}: a region is of another protection domain than the key")
            }
            Self::Refused { device, errno, entries } => {
                write!(f, "device {device}: binding {entries} regions was refused")?;
                match errno {
                    Some(errno) => write!(f, ": {errno}"),
                    None => f.write_str(", and errno was not set"),
                }
            }
            Self::Poll { device, error } => write!(f, "device {device}: a binding's completion: {error}"),
            Self::Late { device, waited } => {
                write!(f, "device {device}: no completion of a binding in {} ms", waited.as_millis())
            }
            Self::Status { device, error } => write!(f, "device {device}: binding failed: {error}"),
            Self::Unexpected { device, expected_wr_id, wr_id, opcode } => write!(
                f,
                "device {device}: expected the completion of binding {expected_wr_id:#x} (opcode 135), got {wr_id:#x} \
                 (opcode {})",
                opcode.0
            ),
            Self::Shell(error) => error.fmt(f),
        }
    }
}

// Its text is whole by itself, as the shell's other errors are.
impl std::error::Error for BindError {}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_core::verbs::WcStatus;

    /// One of each. The match makes a new variant known here: it does not compile without it.
    fn errors() -> Vec<BindError> {
        let device: Arc<str> = "dev0".into();
        let d = || Arc::clone(&device);
        let range = AddressRange::new(0x10_0000, 4096).expect("below 2^64");
        let failed = FailedCompletion { wr_id: 7, status: WcStatus::LOC_QP_OP_ERR, qp_num: 5, vendor_err: 0x88 };
        let of = |error: BindError| match error {
            BindError::Unsupported { .. }
            | BindError::OtherLibrary { .. }
            | BindError::Access { .. }
            | BindError::RegionAccess { .. }
            | BindError::Cap { .. }
            | BindError::Limits { .. }
            | BindError::Builder { .. }
            | BindError::Parts { .. }
            | BindError::Entries { .. }
            | BindError::Length { .. }
            | BindError::Alignment { .. }
            | BindError::ForeignDomain { .. }
            | BindError::Refused { .. }
            | BindError::Poll { .. }
            | BindError::Late { .. }
            | BindError::Status { .. }
            | BindError::Unexpected { .. }
            | BindError::Shell(_) => error,
        };
        [
            BindError::Unsupported { device: d() },
            BindError::OtherLibrary { mlx5: "of dev0".into(), verbs: "libverbs".into() },
            BindError::Access { device: d(), got: AccessFlags::RELAXED_ORDERING },
            BindError::Cap { device: d(), error: CapError::DeviceMaxSge { got: -1 } },
            BindError::Limits { device: d(), error: LimitsError::MaxTooLong { got_bytes: 1 << 33 } },
            BindError::Builder { device: d(), error: NoBuilder::NotExtended },
            BindError::Parts { device: d(), range, at: 0x10_1000 },
            BindError::Entries { device: d(), got: 31, cap: 30 },
            BindError::Length { device: d(), got_bytes: 1 << 32, limit_bytes: u32::MAX.into() },
            BindError::ForeignDomain { device: d() },
            BindError::Refused { device: d(), errno: Some(Errno(12)), entries: 3 },
            BindError::Poll { device: d(), error: PollError::Negative { returned: -2 } },
            BindError::Late { device: d(), waited: Duration::from_millis(7) },
            BindError::Status { device: d(), error: failed },
            BindError::Unexpected { device: d(), expected_wr_id: 1, wr_id: 2, opcode: WcOpcode::RECV },
            BindError::Shell(Error::Forked { device: d() }),
            BindError::Alignment { device: d(), got_bytes: 512, page_bytes: 4096 },
            BindError::RegionAccess { device: d(), range, access: AccessFlags::LOCAL_WRITE, got: BINDABLE_ACCESS },
        ]
        .map(of)
        .into()
    }

    #[test]
    fn each_names_its_device_and_has_a_text_of_its_own() {
        let texts: std::collections::BTreeSet<String> = errors().iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 18);
        assert!(texts.iter().all(|text| text.contains("dev0")), "{texts:#?}");
    }

    #[test]
    fn the_numbers_are_in_the_text() {
        let texts: Vec<String> = errors().iter().map(ToString::to_string).collect();
        for (at, words) in [
            (2, &["0xf ", "0x100000"][..]),
            (7, &["1 to 30", "31"]),
            (8, &["4294967296", "4294967295"]),
            (10, &["3 regions", "errno 12 (ENOMEM)"]),
            (11, &["-2"]),
            (12, &["7 ms"]),
            (13, &["LOC_QP_OP_ERR", "queue pair 5", "0x88"]),
            (16, &["512 bytes", "4096", "BinderConfig::chunk"]),
            (14, &["0x1 ", "0x2 ", "135", "128"]),
            (17, &["0xf ", "4096 bytes", "0x100000", "0x1:"]),
        ] {
            for word in words {
                assert!(texts[at].contains(word), "{word:?} in {:?}", texts[at]);
            }
        }
    }

    #[test]
    fn only_what_stays_so_is_unsupported() {
        let unsupported: Vec<_> = errors().into_iter().filter(BindError::is_unsupported).collect();
        assert!(matches!(
            &unsupported[..],
            [BindError::Unsupported { .. }, BindError::OtherLibrary { .. }, BindError::Builder { .. }]
        ));
    }
}
