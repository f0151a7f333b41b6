//! What goes wrong while two ends connect: with whom, at which step, and what.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::connect::{HelloError, Mismatch, Refusal, Step, StepError};

use crate::errno::Errno;
use crate::error::Error;

/// Why two ends could not connect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExchangeError {
    /// Who was to be at the other end; empty where nobody is named yet.
    pub peer: Arc<str>,
    /// The address that it has, or was to have.
    pub address: Option<SocketAddr>,
    /// What went wrong.
    pub kind: ExchangeErrorKind,
}

/// What an exchange was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Hellos.
    Hello,
    /// Both were to say that they agree.
    Agreement,
    /// Both were to say that they have receives posted and can send.
    Ready,
    /// Both were to say a last word.
    Leaving,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExchangeErrorKind {
    /// The address is not this machine's own, and the terms allow no other.
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened at.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: SocketError,
    },
    /// Nobody came to the listener in time.
    NobodyCame {
        /// How long was waited.
        waited: Duration,
    },
    /// Nobody answered at any address in time.
    Unreachable {
        /// How often it was tried.
        tries: u32,
        /// What the last try failed with.
        last: Option<SocketError>,
        /// How long it was tried.
        waited: Duration,
    },
    /// The time was over.
    Timeout {
        /// What was awaited.
        during: Phase,
        /// Bytes of it that had come, or gone.
        got_bytes: usize,
        /// Bytes that it has.
        need_bytes: usize,
    },
    /// The other end closed the connection, or its system did.
    PeerClosed {
        /// What was awaited.
        during: Phase,
        /// Bytes of it that had come, or gone.
        got_bytes: usize,
        /// Bytes that it has.
        need_bytes: usize,
    },
    /// Sending or receiving failed.
    Io {
        /// What was being exchanged.
        during: Phase,
        /// Why.
        error: SocketError,
    },
    /// What came is not a hello.
    Hello(HelloError),
    /// What came is not a step.
    Step {
        /// What was awaited.
        during: Phase,
        /// Why.
        error: StepError,
    },
    /// A step came that was not due.
    OutOfTurn {
        /// What was awaited.
        during: Phase,
        /// What came.
        got: Step,
    },
    /// The two ends have differently what both must have alike.
    Mismatch(Mismatch),
    /// The other end goes no further.
    Refused {
        /// What was awaited.
        during: Phase,
        /// What it said.
        refusal: Refusal,
    },
    /// Our own end could not connect.
    Endpoint(Box<Error>),
}

/// What a socket, or a caller's channel, failed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketError {
    /// The kind.
    pub kind: io::ErrorKind,
    /// The system's number, where there is one.
    pub errno: Option<Errno>,
}

impl From<io::Error> for SocketError {
    fn from(error: io::Error) -> Self {
        Self { kind: error.kind(), errno: error.raw_os_error().map(Errno) }
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            Some(errno) => write!(f, "{} [{errno}]", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello => "its hello",
            Self::Agreement => "its agreement",
            Self::Ready => "it to be ready",
            Self::Leaving => "its last word",
        })
    }
}

impl ExchangeError {
    pub(super) fn of(peer: &Arc<str>, address: Option<SocketAddr>, kind: ExchangeErrorKind) -> Self {
        Self { peer: Arc::clone(peer), address, kind }
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connecting to ")?;
        match (self.address, self.peer.as_ref()) {
            (None, "") => f.write_str("a peer")?,
            (None, peer) => f.write_str(peer)?,
            (Some(address), "") => address.fmt(f)?,
            (Some(address), peer) => write!(f, "{peer} ({address})")?,
        }
        write!(f, ": {}", self.kind)
    }
}

impl fmt::Display for ExchangeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback { address } => write!(
                f,
                "{address} is not a loopback address, and the exchange is not authenticated: allow it with \
                 Reach::Anywhere where the network is trusted"
            ),
            Self::Listen { address, error } => write!(f, "cannot listen at {address}: {error}"),
            Self::NobodyCame { waited } => write!(f, "nobody came in {} ms", waited.as_millis()),
            Self::Unreachable { tries, last, waited } => {
                write!(f, "nobody answered in {} ms and {tries} tries", waited.as_millis())?;
                match last {
                    Some(error) => write!(f, "; the last one: {error}"),
                    None => Ok(()),
                }
            }
            Self::Timeout { during, got_bytes, need_bytes } => {
                write!(f, "the time was over while waiting for {during}, at byte {got_bytes} of {need_bytes}")
            }
            Self::PeerClosed { during, got_bytes, need_bytes } => {
                write!(f, "it closed the connection, while {during} was awaited, at byte {got_bytes} of {need_bytes}")
            }
            Self::Io { during, error } => write!(f, "{error}, while waiting for {during}"),
            Self::Hello(error) => error.fmt(f),
            Self::Step { during, error } => write!(f, "{error}, while waiting for {during}"),
            Self::OutOfTurn { during, got } => write!(f, "{got:?} came while waiting for {during}"),
            Self::Mismatch(mismatch) => write!(f, "the two ends do not match: {mismatch}"),
            Self::Refused { during, refusal } => write!(f, "it refused: {refusal}, while waiting for {during}"),
            Self::Endpoint(error) => error.fmt(f),
        }
    }
}

// As every error of the shell: its text says all of it.
impl std::error::Error for ExchangeError {}
