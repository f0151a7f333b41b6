//! What is said to a tool over TCP.
//!
//! The rule this file protects: **all of it ends by one deadline**, however few bytes at a time the other end sends or takes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bareverbs_shell::exchange::Channel;

/// A moment, and how long it was to it.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    began: Instant,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { began: Instant::now(), limit }
    }

    /// The time left, no less than a socket's timeout can express; `None` when it is over.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.limit.checked_sub(self.began.elapsed())?;
        (!left.is_zero()).then(|| left.max(Duration::from_micros(10)))
    }
}

/// A connection used until a deadline.
pub(crate) struct Timed<'channel> {
    channel: &'channel Channel,
    /// Who is at the other end.
    peer: String,
    deadline: Deadline,
}

impl<'channel> Timed<'channel> {
    pub(crate) fn new(channel: &'channel Channel, peer: &str, deadline: Deadline) -> Self {
        Self { channel, peer: format!("{peer} ({})", channel.address()), deadline }
    }

    /// Sends all of it, in one piece where the system takes it.
    pub(crate) fn send(&self, bytes: &[u8], what: &str) -> anyhow::Result<()> {
        self.transfer(bytes.len(), "send", what, |mut stream, left, done| {
            stream.set_write_timeout(Some(left))?;
            stream.write(&bytes[done..])
        })
    }

    /// Receives as much as there is room for, and no more.
    pub(crate) fn receive(&self, room: &mut [u8], what: &str) -> anyhow::Result<()> {
        self.transfer(room.len(), "receive", what, |mut stream, left, done| {
            stream.set_read_timeout(Some(left))?;
            stream.read(&mut room[done..])
        })
    }

    /// Goes on with `some`, which moves some bytes and answers how many, until all have moved.
    fn transfer(
        &self,
        need: usize,
        verb: &str,
        what: &str,
        mut some: impl FnMut(&TcpStream, Duration, usize) -> std::io::Result<usize>,
    ) -> anyhow::Result<()> {
        let Self { peer, deadline, .. } = self;
        let mut got = 0;
        while got < need {
            let Some(left) = deadline.left() else {
                bail!(
                    "{peer}: the time to {verb} {what} was over, at byte {got} of {need}, {} ms after the beginning: it takes \
                     a longer --patience, or there is no tool",
                    deadline.limit.as_millis()
                );
            };
            match some(self.channel.stream(), left, got) {
                Ok(0) => bail!("{peer} closed the connection, {what} at byte {got} of {need}"),
                Ok(count) => got += count,
                // Whether the time is over is for the deadline to say.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                }
                Err(error) => return Err(error).with_context(|| format!("{peer}: to {verb} {what}")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use bareverbs_shell::exchange::Terms;

    use super::*;

    /// What a call says that has so much time for all of it, against a peer that plays.
    fn said(
        limit: Duration,
        call: impl FnOnce(&Timed<'_>) -> anyhow::Result<()>,
        play: impl FnOnce(TcpStream) + Send,
    ) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::scope(|scope| {
            scope.spawn(move || play(listener.accept().expect("it comes").0));
            let channel = Channel::connect(&[address], &Terms::within(Duration::from_secs(20))).expect("it listens");
            let outcome = call(&Timed::new(&channel, "the tool", Deadline::after(limit)));
            outcome.map_err(|error| {
                let text = format!("{error:#}");
                assert!(text.starts_with(&format!("the tool ({address})")), "{text}");
                text
            })
        })
    }

    #[test]
    fn a_peer_that_trickles_has_one_limit_and_not_one_for_each_byte() {
        let mut room = [0; 52];
        let (limit, pause) = (Duration::from_millis(200), Duration::from_millis(20));
        let text = said(
            limit,
            |timed| timed.receive(&mut room, "its address"),
            |mut peer| {
                // All of it would be there after five limits, and no byte is later than a tenth of one.
                while peer.write(b"0").is_ok() {
                    thread::sleep(pause);
                }
            },
        )
        .expect_err("too slow");
        assert!(text.contains("the time to receive its address was over") && text.contains(" of 52, 200 ms"), "{text}");
        assert!(room[0] == b'0' && room[51] == 0, "some of it came: {room:?}");
    }

    #[test]
    fn a_peer_that_takes_a_little_at_a_time_has_one_limit_too() {
        let text = said(
            Duration::from_millis(200),
            |timed| timed.send(&vec![7; 32 << 20], "our address"),
            |mut peer| {
                let mut room = vec![0; 1 << 16];
                while peer.read(&mut room).is_ok_and(|count| count > 0) {
                    thread::sleep(Duration::from_millis(5));
                }
            },
        )
        .expect_err("too slow");
        assert!(text.contains("the time to send our address was over"), "{text}");
    }

    #[test]
    fn what_comes_in_time_is_taken_and_a_peer_that_closes_is_told() {
        let mut room = [0; 4];
        let long = Duration::from_secs(20);
        let call = |timed: &Timed<'_>| {
            timed.receive(&mut room, "its first word")?;
            timed.receive(&mut [0; 3], "its last word")
        };
        let text = said(long, call, |mut peer| peer.write_all(b"donex").expect("open")).expect_err("it closed");
        assert!(text.contains("closed the connection, its last word at byte 1 of 3"), "{text}");
        assert_eq!(&room, b"done");
    }
}
