//! What goes wrong while an endpoint is used: with whom, on which device, and what.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::connect::Service;
use bareverbs_core::link::{LinkError, Outstanding, ReceiveError, SendError, Sequence};
use bareverbs_core::verbs::inline_calls::{PollError, RawErrno};

use crate::errno::{self, Errno};
use crate::error::Error;

/// What went wrong while an endpoint was used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointError {
    /// Who is at the other end.
    pub peer: Arc<str>,
    /// The own device.
    pub device: Arc<str>,
    /// What.
    pub kind: EndpointErrorKind,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointErrorKind {
    /// A send was refused, with the errno if the provider left it in `errno`.
    Send(SendError, Option<Errno>),
    /// Posting receives was refused, with the errno if the provider left it in `errno`.
    Receive(ReceiveError, Option<Errno>),
    /// A completion was not what it must be.
    Link(LinkError),
    /// Polling failed; the link is broken.
    Poll(PollError),
    /// Nothing came in time.
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// What the device still has.
        outstanding: Outstanding,
        /// The number of the next message, if the other end has granted no credit for it.
        no_credit: Option<Sequence>,
        /// The `wr_id`s of what it still has, sends first.
        pending: Vec<u64>,
        /// The queue pair's service: what a peer that is gone looks like depends on it.
        service: Service,
    },
    /// The wait was cancelled.
    Cancelled,
    /// The completion channel cannot be slept on.
    Sleep(Box<Error>),
    /// The endpoint is not connected.
    NotConnected,
    /// Another thread than the only one allowed.
    SecondThread,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link to {} on device {}: ", self.peer, self.device)?;
        match &self.kind {
            EndpointErrorKind::Send(error, errno) => {
                with_errno(f, error, *errno)?;
                with_remedy(f, remedy(matches!(error, SendError::Broken { .. }), *errno))
            }
            EndpointErrorKind::Receive(error, errno) => {
                with_errno(f, error, *errno)?;
                with_remedy(f, remedy(matches!(error, ReceiveError::Broken { .. }), *errno))
            }
            EndpointErrorKind::Link(error) => {
                error.fmt(f)?;
                with_remedy(f, matches!(error, LinkError::Fault(_) | LinkError::Broken { .. }).then_some(MAKE_ANEW))
            }
            EndpointErrorKind::Poll(error) => {
                error.fmt(f)?;
                with_remedy(f, Some(MAKE_ANEW))
            }
            EndpointErrorKind::Timeout { waited, outstanding, no_credit, pending, service } => {
                write!(
                    f,
                    "nothing came in {} ms with {} sends and {} receives outstanding",
                    waited.as_millis(),
                    outstanding.sends,
                    outstanding.receives
                )?;
                if let (Some(first), Some(last)) = (pending.first(), pending.last()) {
                    write!(f, " (wr_id {first:#x} to {last:#x})")?;
                }
                if let Some(next) = no_credit {
                    write!(f, "; no credit for message {next}: {} posts no receive, or its grant was lost", self.peer)?;
                }
                f.write_str(silence(*service))
            }
            EndpointErrorKind::Cancelled => f.write_str("the wait was cancelled"),
            EndpointErrorKind::Sleep(error) => error.fmt(f),
            EndpointErrorKind::NotConnected => {
                f.write_str("it is not connected: exchange destinations and connect first")
            }
            EndpointErrorKind::SecondThread => {
                f.write_str("MLX5_SINGLE_THREADED=1 is set, and this is not the thread that opened the device")
            }
        }
    }
}

fn with_errno(f: &mut fmt::Formatter<'_>, error: &dyn fmt::Display, errno: Option<Errno>) -> fmt::Result {
    error.fmt(f)?;
    match errno {
        Some(errno) => write!(f, " [{errno}]"),
        None => Ok(()),
    }
}

/// What it means that nothing comes, and what to do.
const fn silence(service: Service) -> &'static str {
    match service {
        Service::Uc => "; an unreliable queue pair does not tell that its peer is gone: make the link anew",
        Service::Rc => {
            "; a reliable queue pair tells that its peer is gone when a send has used up its retries, which come after \
             `timeout` each (a larger one, or an rnr_retry of 7, waits longer): send something, or make the link anew"
        }
    }
}

/// What helps a link that is broken, whatever broke it.
const MAKE_ANEW: &str = "make the link anew";

/// What to do about a post that failed, where that is known.
fn remedy(is_broken: bool, errno: Option<Errno>) -> Option<&'static str> {
    match errno {
        _ if is_broken => Some(MAKE_ANEW),
        Some(Errno(libc::ENOMEM)) => Some("the provider's queue is full: take completions, then post again"),
        Some(Errno(libc::EINVAL)) => Some(
            "the queue pair takes no such request: it left its state, or was made for smaller ones; make the link anew",
        ),
        Some(Errno(libc::EIO | libc::ENODEV)) => Some("the device is gone: make the link anew when it is back"),
        _ => None,
    }
}

fn with_remedy(f: &mut fmt::Formatter<'_>, remedy: Option<&str>) -> fmt::Result {
    match remedy {
        Some(remedy) => write!(f, " ({remedy})"),
        None => Ok(()),
    }
}

// As every error of the shell: its text says all of it.
impl std::error::Error for EndpointError {}

impl EndpointError {
    /// Whether the provider said that its queue is full.
    pub fn is_queue_full(&self) -> bool {
        let errno = match &self.kind {
            EndpointErrorKind::Send(SendError::Full { .. }, _) => return true,
            EndpointErrorKind::Send(_, errno) | EndpointErrorKind::Receive(_, errno) => *errno,
            _ => None,
        };
        errno.is_some_and(Errno::is_queue_full)
    }
}

/// The errno behind what a post returned, where there is one: to be asked before anything else is called.
pub(super) fn errno_of_send(error: &SendError) -> Option<Errno> {
    match error {
        SendError::Refused { raw, .. } => resolve(*raw),
        SendError::Broken { cause: bareverbs_core::link::Fault::PostUnknown { raw, .. } } => resolve(*raw),
        _ => None,
    }
}

/// The same for receives.
pub(super) fn errno_of_receive(error: &ReceiveError) -> Option<Errno> {
    match error {
        ReceiveError::Refused { raw, .. } => resolve(*raw),
        ReceiveError::Broken { cause: bareverbs_core::link::Fault::PostUnknown { raw, .. } } => resolve(*raw),
        _ => None,
    }
}

fn resolve(raw: RawErrno) -> Option<Errno> {
    errno::of_return(raw)
}
