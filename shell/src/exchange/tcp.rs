//! The exchange's own channel: TCP, with a deadline on everything.
//!
//! The rule this file protects: **every call ends by its deadline**, whatever the peer does, and reads no more than it was
//! asked for.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bareverbs_core::connect::Step;

use crate::exchange::error::{ExchangeError, ExchangeErrorKind, Phase, SocketError};
use crate::exchange::protocol::{self, Wire};
use crate::exchange::{Reach, Terms};

/// Between two looks at a listener, and between the first two tries to connect.
const PAUSE: Duration = Duration::from_millis(1);
/// Between two tries to connect, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long a refusal may take to go out, and how long is waited for the peer to have read it.
const LAST_WORD: Duration = Duration::from_millis(250);
/// How much of a flood is thrown away while that is waited for.
const LAST_WORD_BYTES: usize = 1 << 16;

/// A moment, and how long it was to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    began: Instant,
    limit: Duration,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self { began: Instant::now(), limit }
    }

    /// The time left; `None` when it is over. Not less than a socket's timeout can express.
    fn left(&self) -> Option<Duration> {
        let left = self.limit.checked_sub(self.began.elapsed())?;
        (!left.is_zero()).then(|| left.max(Duration::from_micros(10)))
    }

    fn waited(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Where peers may come to. It can be used for any number of them, one after the other.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens at an address; port 0 is for the system to choose.
    ///
    /// # Errors
    /// [`ExchangeErrorKind::NotLoopback`], [`ExchangeErrorKind::Listen`].
    pub fn bind(address: SocketAddr, terms: &Terms) -> Result<Self, ExchangeError> {
        let fail = |kind| ExchangeError::of(&Arc::from(""), Some(address), kind);
        check_reach(&address, terms.reach).map_err(fail)?;
        let listen = || {
            let listener = TcpListener::bind(address)?;
            // Waiting in a call that has no deadline is not possible.
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        listen().map_err(|error: std::io::Error| fail(ExchangeErrorKind::Listen { address, error: error.into() }))
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a peer, from wherever it comes, without exchanging anything.
    ///
    /// # Errors
    /// [`ExchangeErrorKind::NobodyCame`], [`ExchangeErrorKind::Listen`].
    pub fn accept(&self, limit: Duration) -> Result<Channel, ExchangeError> {
        let accepted = self.accept_by(&Deadline::after(limit), Reach::Anywhere);
        accepted.map_err(|kind| ExchangeError::of(&Arc::from(""), Some(self.address), kind))
    }

    /// Whoever comes from beyond the reach is sent away, and does not end the wait.
    pub(super) fn accept_by(&self, deadline: &Deadline, reach: Reach) -> Result<Channel, ExchangeErrorKind> {
        self.accept_from(|| self.listener.accept(), deadline, reach)
    }

    /// As [`accept_by`](Self::accept_by), of those that `next` brings.
    fn accept_from(
        &self,
        mut next: impl FnMut() -> std::io::Result<(TcpStream, SocketAddr)>,
        deadline: &Deadline,
        reach: Reach,
    ) -> Result<Channel, ExchangeErrorKind> {
        let fail = |error: std::io::Error| ExchangeErrorKind::Listen { address: self.address, error: error.into() };
        loop {
            let pause = match next() {
                Ok((_, address)) if check_reach(&address, reach).is_err() => Duration::ZERO,
                Ok((stream, address)) => {
                    // Some systems hand the listener's mode on.
                    stream.set_nonblocking(false).map_err(fail)?;
                    return Ok(Channel::new(stream, address));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => PAUSE,
                // It came and went.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                    Duration::ZERO
                }
                Err(error) => return Err(fail(error)),
            };
            let left = deadline.left();
            let left = left.ok_or(ExchangeErrorKind::NobodyCame { waited: deadline.waited() })?;
            if !pause.is_zero() {
                std::thread::sleep(pause.min(left));
            }
        }
    }
}

/// A connection to one peer.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    address: SocketAddr,
    peer: Arc<str>,
}

impl Channel {
    fn new(stream: TcpStream, address: SocketAddr) -> Self {
        // Small steps that are waited for: not to be collected. Where that cannot be had, it is slower.
        let _ = stream.set_nodelay(true);
        Self { stream, address, peer: Arc::from("") }
    }

    /// Connects to the first of `addresses` that answers, and goes on trying until the time is over: the peer may not
    /// listen yet.
    ///
    /// # Errors
    /// [`ExchangeErrorKind::NotLoopback`], [`ExchangeErrorKind::Unreachable`].
    pub fn connect(addresses: &[SocketAddr], terms: &Terms) -> Result<Self, ExchangeError> {
        let connected = Self::connect_by(addresses, terms.reach, &Deadline::after(terms.limit));
        connected.map_err(|kind| ExchangeError::of(&Arc::from(""), addresses.first().copied(), kind))
    }

    pub(super) fn connect_by(
        addresses: &[SocketAddr],
        reach: Reach,
        deadline: &Deadline,
    ) -> Result<Self, ExchangeErrorKind> {
        addresses.iter().try_for_each(|address| check_reach(address, reach))?;
        let (mut tries, mut last, mut pause) = (0, None, PAUSE);
        loop {
            for (place, address) in addresses.iter().enumerate() {
                let Some(left) = deadline.left() else { break };
                tries += 1;
                // One that does not even refuse has its share of the time, and the others theirs.
                let share = left / u32::try_from(addresses.len() - place).unwrap_or(u32::MAX);
                match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
                    // A port that nobody listens at can be given to the very socket that tries it.
                    Ok(stream) if stream.local_addr().ok() == Some(*address) => {}
                    Ok(stream) => return Ok(Self::new(stream, *address)),
                    Err(error) => last = Some(SocketError::from(error)),
                }
            }
            match deadline.left() {
                Some(left) if !addresses.is_empty() => std::thread::sleep(pause.min(left)),
                _ => return Err(ExchangeErrorKind::Unreachable { tries, last, waited: deadline.waited() }),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The peer's address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connection, for what the two programs have to say to each other besides.
    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Says a last word and waits for the peer's: then both ends have all that they waited for, and either may go.
    ///
    /// A reliable connected end needs that. The answer to its last message may not have gone out when it knows of the
    /// message; if it goes first, the other end sends again and again.
    ///
    /// # Errors
    /// [`ExchangeError`] at [`Phase::Leaving`].
    pub fn leave(self, limit: Duration) -> Result<(), ExchangeError> {
        let left = protocol::meet(&mut self.wire(&Deadline::after(limit)), Step::Leaving, Phase::Leaving);
        left.map_err(|kind| self.error(kind))
    }

    pub(super) fn name_peer(&mut self, peer: &Arc<str>) {
        self.peer = Arc::clone(peer);
    }

    pub(super) fn error(&self, kind: ExchangeErrorKind) -> ExchangeError {
        ExchangeError::of(&self.peer, Some(self.address), kind)
    }

    pub(super) fn wire(&self, deadline: &Deadline) -> Timed<'_> {
        Timed { stream: &self.stream, deadline: *deadline }
    }
}

/// A connection used until a deadline.
pub(super) struct Timed<'channel> {
    stream: &'channel TcpStream,
    deadline: Deadline,
}

impl Wire for Timed<'_> {
    fn send(&mut self, bytes: &[u8], during: Phase) -> Result<(), ExchangeErrorKind> {
        self.transfer(bytes.len(), during, |mut stream, left, done| {
            stream.set_write_timeout(Some(left))?;
            stream.write(bytes.get(done..).unwrap_or_default())
        })
    }

    fn receive(&mut self, room: &mut [u8], during: Phase) -> Result<(), ExchangeErrorKind> {
        self.transfer(room.len(), during, |mut stream, left, done| {
            stream.set_read_timeout(Some(left))?;
            stream.read(room.get_mut(done..).unwrap_or_default())
        })
    }

    /// A connection that is closed with bytes unread is reset, and the reset overtakes what was sent: so the peer is given a
    /// moment to read it, while what it goes on sending is thrown away.
    fn send_last(&mut self, bytes: &[u8]) {
        self.deadline = Deadline::after(LAST_WORD);
        if self.send(bytes, Phase::Hello).is_err() || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        self.throw_away();
    }
}

impl Timed<'_> {
    /// Reads until the peer has closed, or the time is over, or [`LAST_WORD_BYTES`] were read; answers how many were.
    fn throw_away(&self) -> usize {
        let mut stream = self.stream;
        let mut thrown_away = 0;
        let mut room = [0; 512];
        while thrown_away < LAST_WORD_BYTES {
            let Some(left) = self.deadline.left() else { break };
            if stream.set_read_timeout(Some(left)).is_err() {
                break;
            }
            match stream.read(&mut room) {
                Ok(0) | Err(_) => break,
                Ok(count) => thrown_away += count,
            }
        }
        thrown_away
    }

    /// Goes on with `some`, which moves some bytes and answers how many, until all of them have moved.
    fn transfer(
        &self,
        need_bytes: usize,
        during: Phase,
        mut some: impl FnMut(&TcpStream, Duration, usize) -> std::io::Result<usize>,
    ) -> Result<(), ExchangeErrorKind> {
        let mut got_bytes = 0;
        while got_bytes < need_bytes {
            let Some(left) = self.deadline.left() else {
                return Err(ExchangeErrorKind::Timeout { during, got_bytes, need_bytes });
            };
            match some(self.stream, left, got_bytes) {
                Ok(0) => return Err(ExchangeErrorKind::PeerClosed { during, got_bytes, need_bytes }),
                Ok(count) => got_bytes += count,
                Err(error) => match error.kind() {
                    // Whether the time is over is for the deadline to say.
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                        return Err(ExchangeErrorKind::PeerClosed { during, got_bytes, need_bytes });
                    }
                    _ => return Err(ExchangeErrorKind::Io { during, error: error.into() }),
                },
            }
        }
        Ok(())
    }
}

fn check_reach(address: &SocketAddr, reach: Reach) -> Result<(), ExchangeErrorKind> {
    match reach {
        Reach::Loopback if !address.ip().to_canonical().is_loopback() => {
            Err(ExchangeErrorKind::NotLoopback { address: *address })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> Listener {
        Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &Terms::within(Duration::ZERO)).expect("a port")
    }

    #[test]
    fn peers_that_come_and_go_hold_nobody_beyond_the_deadline() {
        let limit = Duration::from_millis(20);
        for kind in [ErrorKind::ConnectionAborted, ErrorKind::Interrupted] {
            let (deadline, mut came) = (Deadline::after(limit), 0_u64);
            let next = || {
                came += 1;
                assert!(deadline.waited() < Duration::from_secs(10), "it goes round after its deadline");
                Err(kind.into())
            };
            let ended = listener().accept_from(next, &deadline, Reach::Loopback).expect_err("nobody stays");
            assert!(matches!(ended, ExchangeErrorKind::NobodyCame { waited } if waited >= limit), "{ended}");
            assert!(came > 0);
        }
    }

    #[test]
    fn of_a_flood_no_more_is_thrown_away_than_was_meant_to_be_however_much_time_there_is() {
        const FLOOD: usize = 4 << 20;
        let listener = listener();
        let thrown_away = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut peer = TcpStream::connect(listener.address()).expect("it listens");
                // It closes when all of it has gone, or when nobody listens any more.
                let _ = peer.write_all(&vec![7; FLOOD]);
            });
            let channel = listener.accept(Duration::from_secs(60)).expect("it comes");
            channel.wire(&Deadline::after(Duration::from_secs(60))).throw_away()
        });
        // The last read may go beyond it, by its room less one.
        assert!((LAST_WORD_BYTES..LAST_WORD_BYTES + 512).contains(&thrown_away), "{thrown_away}");
    }
}
