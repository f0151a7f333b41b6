//! What goes wrong with one-sided operations: with whom, on which device, and what.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::link::Fault;
use bareverbs_core::one_sided::{NotStarted, OperationId, PlanRefused};
use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::verbs::completion::FailedCompletion;
use bareverbs_core::verbs::inline_calls::RawErrno;

use crate::errno::Errno;
use crate::error::Error;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferError {
    /// Who is at the other end.
    pub peer: Arc<str>,
    /// The own device.
    pub device: Arc<str>,
    /// What.
    pub kind: TransferErrorKind,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferErrorKind {
    /// The operation cannot be. Nothing was posted.
    Refused(PlanRefused),
    /// There is no room for it now, or never again. Nothing was posted.
    NotStarted(NotStarted),
    /// The local view is of another protection domain, or of another device. Nothing was posted.
    ForeignView,
    /// The local view was registered without what the operation does to it. Nothing was posted.
    LocalAccess {
        /// What the operation needs.
        needs: AccessFlags,
        /// What the view permits.
        has: AccessFlags,
    },
    /// The provider refused. Nothing was posted.
    Post(RawErrno, Option<Errno>),
    /// The queue pair is broken. What was outstanding was told.
    Broken {
        /// Why.
        cause: Fault,
    },
    /// Nothing came in time.
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// Operations that have not ended, oldest first.
        pending: Vec<OperationId>,
        /// Receives that are posted.
        receives: u32,
    },
    /// The wait was cancelled.
    Cancelled {
        /// Operations that have not ended, oldest first.
        pending: Vec<OperationId>,
    },
    /// The completion channel cannot be slept on, or the device cannot be asked for events.
    Sleep(Box<Error>),
    /// It is not connected yet.
    NotConnected,
    /// It was abandoned, or connecting it failed: its queue pair is gone.
    Gone,
    /// Another thread than the only one allowed.
    SecondThread,
}

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationError {
    /// A request of it completed with an error.
    Failed(FailedCompletion),
    /// The queue pair broke, and nobody knows how far the operation had come.
    Broken {
        /// Why.
        cause: Fault,
    },
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Broken { cause } => write!(f, "how far it came is unknown, since the queue pair broke: {cause}"),
        }
    }
}

impl std::error::Error for OperationError {}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one-sided to {} on device {}: ", self.peer, self.device)?;
        match &self.kind {
            TransferErrorKind::Refused(error) => error.fmt(f),
            TransferErrorKind::NotStarted(error) => error.fmt(f),
            TransferErrorKind::ForeignView => f.write_str(
                "the local view is of another protection domain or device: register the memory in this one's domain",
            ),
            TransferErrorKind::LocalAccess { needs, has } => {
                write!(f, "the operation needs {needs:?} of the local view, which was registered with {has:?}")
            }
            TransferErrorKind::Post(raw, errno) => post_refused(f, *raw, *errno),
            TransferErrorKind::Broken { cause } => write!(f, "the queue pair is broken: {cause} (make it anew)"),
            TransferErrorKind::Timeout { waited, pending, receives } => {
                write!(
                    f,
                    "nothing came in {} ms with {} operations and {receives} receives outstanding",
                    waited.as_millis(),
                    pending.len()
                )?;
                range_of(f, pending)?;
                f.write_str("; if the peer is gone, close this end: what is registered stays so until then")
            }
            TransferErrorKind::Cancelled { pending } => {
                write!(f, "the wait was cancelled with {} operations outstanding", pending.len())?;
                range_of(f, pending)
            }
            TransferErrorKind::Sleep(error) => error.fmt(f),
            TransferErrorKind::NotConnected => {
                f.write_str("it is not connected: exchange destinations and connect first")
            }
            TransferErrorKind::Gone => {
                f.write_str("its queue pair is gone, since it was abandoned or did not connect: make it anew")
            }
            TransferErrorKind::SecondThread => {
                f.write_str("MLX5_SINGLE_THREADED=1 is set, and this is not the thread that opened the device")
            }
        }
    }
}

fn post_refused(f: &mut fmt::Formatter<'_>, raw: RawErrno, errno: Option<Errno>) -> fmt::Result {
    write!(f, "the provider refused a request: {raw}")?;
    match errno {
        Some(errno) => write!(f, " [{errno}]"),
        None => Ok(()),
    }
}

fn range_of(f: &mut fmt::Formatter<'_>, pending: &[OperationId]) -> fmt::Result {
    match (pending.first(), pending.last()) {
        (Some(first), Some(last)) => write!(f, " (wr_id {:#x} to {:#x})", first.raw(), last.raw()),
        _ => Ok(()),
    }
}

// As every error of the shell: its text says all of it.
impl std::error::Error for TransferError {}

impl TransferError {
    /// Whether completions make room: the operation can be tried again when some were taken.
    pub fn is_full(&self) -> bool {
        match &self.kind {
            TransferErrorKind::NotStarted(NotStarted::Full { .. } | NotStarted::NoSlots { .. }) => true,
            TransferErrorKind::Post(_, errno) => errno.is_some_and(Errno::is_queue_full),
            _ => false,
        }
    }
}
