//! How two processes come to be connected: each tells the other where it is and what it takes for granted, and neither
//! goes on before both are ready.
//!
//! In order, at both ends alike:
//! 1. the [`Hello`] goes out, the other one's comes in;
//! 2. [`agree`]: a mismatch is an error at both ends, and no queue pair has moved;
//! 3. both say that they agree;
//! 4. the endpoint connects: RTR, **receives posted**, RTS;
//! 5. both say that they are ready.
//!
//! So when it ends well, both ends have receives posted and are in RTS, and the first message finds a receive. An end that
//! goes no further says so, with its reason, and the other one's error names it.
//!
//! | over | with |
//! |---|---|
//! | TCP | [`Listener::bind`] and [`accept`] at one end, [`connect`] at the other |
//! | a channel of the caller's | [`over`], given how to send and how to receive bytes |
//! | anything, step by step | [`Endpoint::hello`], [`agree`], [`Endpoint::connect_as_agreed`]; the barrier is then the caller's
//! |
//!
//! # What it does not do
//!
//! **Nothing is authenticated or encrypted.** Whoever can reach the socket can pretend to be the peer, and reads addresses
//! and nonce. So only loopback addresses are taken unless the caller says otherwise ([`Reach`]); on a network that is not
//! trusted, bring a channel that is authenticated, and use [`over`]. The nonce tells two pairs of processes apart that meet
//! by mistake; it keeps nobody out.
//!
//! # Bad peers
//!
//! A peer that is gone, slow, or sends without end costs the time given and no more, and memory that does not depend on
//! it: no more than the bytes of the next step are ever read. What it sends is decoded totally ([`Hello::decode`],
//! [`Step::decode`](bareverbs_core::connect::Step::decode)).
//!
//! ```
//! use bareverbs_core::link::Immediate;
//! use bareverbs_shell::endpoint::{Endpoint, Frames};
//! use bareverbs_shell::exchange::{self, Listener, Terms};
//! use bareverbs_shell::{EndpointConfig, Fabric};
//! use std::time::Duration;
//!
//! let device = Fabric::soft()?.open(None)?;
//! let terms = Terms::within(Duration::from_secs(10)).nonce(0x6a6f62);
//! let listener = Listener::bind("127.0.0.1:0".parse()?, &terms)?;
//! let address = listener.address();
//! let mut a = Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc("rank 1"), Frames::Owned)?;
//! let mut b = Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc("rank 0"), Frames::Owned)?;
//!
//! // In two processes, this is.
//! std::thread::scope(|scope| {
//!     let there = scope.spawn(|| exchange::connect(&[address], &mut b, &terms));
//!     let here = exchange::accept(&listener, &mut a, &terms)?;
//!     let there = there.join().expect("no panic")?;
//!     assert_eq!(here.agreement.tx_start, there.agreement.rx_start);
//!     Ok::<(), exchange::ExchangeError>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod protocol;
mod tcp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::connect::{Agreement, Hello};
use bareverbs_core::link::Carrier;

#[cfg(doc)]
use bareverbs_core::connect::agree;

pub use error::{ExchangeError, ExchangeErrorKind, Phase, SocketError};
pub use tcp::{Channel, Listener};

use crate::endpoint::Endpoint;
use crate::error::Error;
use protocol::Closures;
use tcp::Deadline;

/// What an exchange needs of an endpoint, whatever its carrier and rings.
pub trait Connect {
    /// Who is at the other end.
    fn peer(&self) -> &Arc<str>;

    /// As [`Endpoint::hello`].
    fn hello(&self, nonce: u64) -> Hello;

    /// As [`Endpoint::connect_as_agreed`].
    ///
    /// # Errors
    /// As [`Endpoint::connect_as_agreed`].
    fn connect_as_agreed(&mut self, agreement: &Agreement) -> Result<(), Error>;

    /// As [`Endpoint::abandon`].
    fn abandon(&mut self);
}

impl<C: Carrier, const SEND: usize, const RECV: usize> Connect for Endpoint<C, SEND, RECV> {
    fn peer(&self) -> &Arc<str> {
        Endpoint::peer(self)
    }

    fn hello(&self, nonce: u64) -> Hello {
        Endpoint::hello(self, nonce)
    }

    fn connect_as_agreed(&mut self, agreement: &Agreement) -> Result<(), Error> {
        Endpoint::connect_as_agreed(self, agreement)
    }

    fn abandon(&mut self) {
        Endpoint::abandon(self);
    }
}

/// Which addresses an exchange may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Those of this machine only.
    #[default]
    Loopback,
    /// All. Nothing is authenticated: for networks where everybody is trusted.
    Anywhere,
}

/// How an exchange shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Terms {
    /// How long it may take, from the call to the end: waiting for the peer, and every read and write. Telling the peer of
    /// an error may take a quarter of a second more.
    pub limit: Duration,
    /// What both callers must have given alike: a number of the job, or of the pair. It travels in clear.
    pub nonce: u64,
    /// Which addresses it may use.
    pub reach: Reach,
}

impl Terms {
    /// Within that time, over loopback, with nonce 0.
    pub const fn within(limit: Duration) -> Self {
        Self { limit, nonce: 0, reach: Reach::Loopback }
    }

    /// With this nonce.
    #[must_use]
    pub const fn nonce(self, nonce: u64) -> Self {
        Self { nonce, ..self }
    }

    /// With this reach.
    #[must_use]
    pub const fn reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }
}

/// A connected endpoint's agreement, and the channel to its peer.
#[derive(Debug)]
pub struct Exchanged {
    /// What both ends go by.
    pub agreement: Agreement,
    /// The channel, for a last word.
    pub channel: Channel,
}

/// Waits for a peer at `listener` and exchanges with it.
///
/// # Errors
/// [`ExchangeError`]. An endpoint whose queue pair has not moved is as it was, and can be tried again: with an error before
/// [`Phase::Ready`]. Else it is abandoned ([`Endpoint::abandon`]).
pub fn accept(listener: &Listener, endpoint: &mut dyn Connect, terms: &Terms) -> Result<Exchanged, ExchangeError> {
    let deadline = Deadline::after(terms.limit);
    let channel =
        listener.accept_by(&deadline, terms.reach).map_err(|kind| ExchangeError::of(endpoint.peer(), None, kind))?;
    exchange(channel, endpoint, terms, &deadline)
}

/// Connects to a peer that listens at one of `addresses`, or will before the time is over, and exchanges with it.
///
/// # Errors
/// As [`accept`]; [`ExchangeErrorKind::NotLoopback`], [`ExchangeErrorKind::Unreachable`].
pub fn connect(
    addresses: &[SocketAddr],
    endpoint: &mut dyn Connect,
    terms: &Terms,
) -> Result<Exchanged, ExchangeError> {
    let deadline = Deadline::after(terms.limit);
    let address = match addresses {
        [only] => Some(*only),
        _ => None,
    };
    let channel = Channel::connect_by(addresses, terms.reach, &deadline)
        .map_err(|kind| ExchangeError::of(endpoint.peer(), address, kind))?;
    exchange(channel, endpoint, terms, &deadline)
}

fn exchange(
    mut channel: Channel,
    endpoint: &mut dyn Connect,
    terms: &Terms,
    deadline: &Deadline,
) -> Result<Exchanged, ExchangeError> {
    channel.name_peer(endpoint.peer());
    match protocol::run(endpoint, terms.nonce, &mut channel.wire(deadline)) {
        Ok(agreement) => Ok(Exchanged { agreement, channel }),
        Err(kind) => Err(channel.error(kind)),
    }
}

/// Exchanges over a channel of the caller's: `send` sends all of the bytes, `receive` fills all of the room, and both keep
/// the caller's own deadline.
///
/// Both ends send before they receive: `send` must not wait until the other end receives (64 bytes at most are under way).
/// After an error the channel may hold bytes of the exchange: use another one for the next.
///
/// # Errors
/// As [`accept`]; what the closures fail with is [`ExchangeErrorKind::Io`].
pub fn over(
    endpoint: &mut dyn Connect,
    nonce: u64,
    send: impl FnMut(&[u8]) -> io::Result<()>,
    receive: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> Result<Agreement, ExchangeError> {
    let mut wire = Closures { send, receive };
    protocol::run(endpoint, nonce, &mut wire).map_err(|kind| ExchangeError::of(endpoint.peer(), None, kind))
}
