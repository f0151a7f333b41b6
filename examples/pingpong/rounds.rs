//! The rounds: who sends when, what is in the messages, and how long it took.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bareverbs_core::link::{Carrier, SendError};
use bareverbs_examples::say;
use bareverbs_shell::Wait;
use bareverbs_shell::endpoint::{EndpointError, EndpointErrorKind, Event};
use hdrhistogram::Histogram;

use crate::{End, Options, PayloadChoice, Role, TimesChoice};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the client to the server.
    There,
    /// From the server to the client.
    Back,
}

/// What the rounds took.
pub(crate) struct Report {
    iterations: u64,
    total: Duration,
    /// Of a client that times each: the server cannot tell a round trip from its peer's pauses.
    round_trips_ns: Option<Histogram<u64>>,
}

/// Runs the rounds. `fill` makes a message, `check` says what is wrong with one that came.
///
/// The client keeps `--window` messages unanswered, the server answers what has come; both send when the other end has a
/// receive and this one a frame. What the other end does not wait for is done after what it waits for has been sent.
pub(crate) fn run<C: Carrier, const N: usize>(
    options: &Options,
    end: &mut End<C, N>,
    role: Role,
    mut fill: impl FnMut(&mut [u8], Way, u64),
    mut check: impl FnMut(&[u8], Way, u64) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let Options { iterations, size, window, times, .. } = *options;
    let (sends, receives) = match role {
        Role::Client => (Way::There, Way::Back),
        Role::Server => (Way::Back, Way::There),
    };
    // Without credits the other end sends as many at once as the window has, whatever is posted here.
    let repost = if 2 * window > N { Repost::BeforeAnswers } else { Repost::InChains };
    let wait = options.wait();
    let times_each = role == Role::Client && times == TimesChoice::Each;
    let mut round_trips = RoundTrips::new(if times_each { window } else { 0 })?;
    let mut turn = Instant::now();
    let began = turn;
    let (mut sent, mut received, mut timed, mut reposted) = (0, 0, 0, 0);
    while sent < iterations || received < iterations {
        let limit = match role {
            Role::Client => iterations.min(received + window as u64),
            Role::Server => received,
        };
        while sent < limit && send(end, size, sent + 1 == iterations, |buffer| fill(buffer, sends, sent))? {
            round_trips.begin(sent, turn);
            sent += 1;
        }
        (timed..received).for_each(|number| round_trips.end(number, turn));
        timed = received;
        if repost == Repost::InChains && received - reposted >= (N as u64).div_ceil(4) {
            end.post_receives(usize::MAX)?;
            reposted = received;
        }
        if received < iterations {
            let due = if role == Role::Client { sent } else { iterations };
            received += receive(end, &wait, repost, due - received, |came, nth| check(came, receives, received + nth))?;
            if times_each {
                turn = Instant::now();
            }
        } else if sent < iterations {
            // The ring is full, or there is no credit: what is awaited is no message.
            receive(end, &wait, repost, 0, |_, _| Ok(()))?;
        }
    }
    let total = began.elapsed();
    (timed..received).for_each(|number| round_trips.end(number, turn));
    while end.outstanding().sends > 0 {
        end.wait(&wait, |_| {})?;
    }
    Ok(Report { iterations, total, round_trips_ns: times_each.then_some(round_trips.ns) })
}

/// When the frame of a message that came is posted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repost {
    /// At once: no receive can be spared.
    BeforeAnswers,
    /// When the answers are out, and nobody waits for it: a quarter of the ring in one call.
    InChains,
}

/// When each message that is under way set out, and what the others took. One look at the clock for each turn: a message
/// sets out when what allowed it had come. Twice as many as are under way: the next may have set out before it is written down
/// what the last took.
struct RoundTrips {
    began: Vec<Instant>,
    ns: Histogram<u64>,
}

impl RoundTrips {
    /// For as many under way; with 0, none is kept.
    fn new(window: usize) -> anyhow::Result<Self> {
        let ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        Ok(Self { began: vec![Instant::now(); 2 * window], ns })
    }

    #[inline]
    fn begin(&mut self, number: u64, at: Instant) {
        if !self.began.is_empty() {
            let place = (number % self.began.len() as u64) as usize;
            self.began[place] = at;
        }
    }

    #[inline]
    fn end(&mut self, number: u64, at: Instant) {
        if !self.began.is_empty() {
            let place = (number % self.began.len() as u64) as usize;
            self.ns.saturating_record((at - self.began[place]).as_nanos() as u64);
        }
    }
}

/// Fills a frame and posts it; `false` where all frames are out, or the other end has granted no more. Only every so many
/// sends are signalled, and the last: their completions are nobody's concern while answers come.
fn send<C: Carrier, const N: usize>(
    end: &mut End<C, N>,
    size: usize,
    is_last: bool,
    fill: impl FnOnce(&mut [u8]),
) -> anyhow::Result<bool> {
    let mut frame = match end.next_frame() {
        Ok(frame) => frame,
        Err(EndpointError {
            kind: EndpointErrorKind::Send(SendError::Full { .. } | SendError::NoCredit { .. }, _),
            ..
        }) => {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    fill(&mut frame.payload_mut()[..size]);
    if is_last {
        frame.post(size)?
    } else {
        frame.post_more(size)?
    };
    Ok(true)
}

/// Waits until something comes; checks each message, of which at most `due` may come, and posts its frame again if it is time to.
/// Answers how many they were: none, where what came lets a message be sent.
fn receive<C: Carrier, const N: usize>(
    end: &mut End<C, N>,
    wait: &Wait<'_>,
    repost: Repost,
    due: u64,
    mut check: impl FnMut(&[u8], u64) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let (mut came, mut outcome) = (0, Ok(()));
    end.wait(wait, |event| {
        if let Event::Received(frame) = event
            && outcome.is_ok()
        {
            outcome = match came {
                came if came < due => check(frame.payload(), came).and_then(|()| match repost {
                    Repost::BeforeAnswers => Ok(frame.repost()?),
                    Repost::InChains => Ok(()),
                }),
                _ => Err(anyhow::anyhow!("{} messages came where {due} were due", came + 1)),
            };
            came += 1;
        }
    })?;
    outcome.map(|()| came)
}

/// Messages that both ends can make: no two of a run are alike. Every byte is filled in and checked, or the number at the
/// front alone.
pub(crate) struct Payloads {
    size: usize,
    choice: PayloadChoice,
    base: Vec<u8>,
}

/// A number's length at the front of a message; of a shorter message its last bytes.
const NUMBER_BYTES: usize = 8;
/// How many different windows into the base there are.
const WINDOWS: usize = 251;

impl Payloads {
    pub(crate) fn new(size: usize, choice: PayloadChoice) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let base = std::iter::repeat_with(|| {
            state = state.wrapping_mul(0xd129_0d3d_3d5f_8c6b).rotate_left(23);
            state as u8
        });
        Self { size, choice, base: base.take(size + WINDOWS).collect() }
    }

    /// How many bytes at the front of a message are filled in and checked.
    pub(crate) fn checked_bytes(&self) -> usize {
        match self.choice {
            PayloadChoice::Check => self.size,
            PayloadChoice::Number => self.size.min(NUMBER_BYTES),
        }
    }

    /// The bytes of a message, but for its number in front, as far as they are checked.
    fn window(&self, way: Way, number: u64) -> &[u8] {
        let start = (number.wrapping_mul(2) + u64::from(way == Way::Back)) % WINDOWS as u64;
        &self.base[start as usize..][..self.checked_bytes()]
    }

    fn stamp(way: Way, number: u64) -> [u8; NUMBER_BYTES] {
        (number << 1 | u64::from(way == Way::Back)).to_be_bytes()
    }

    #[inline]
    pub(crate) fn fill(&self, buffer: &mut [u8], way: Way, number: u64) {
        let stamp = Self::stamp(way, number);
        match (self.choice, buffer.first_chunk_mut()) {
            (PayloadChoice::Number, Some(front)) => *front = stamp,
            _ => self.fill_all(buffer, way, number, stamp),
        }
    }

    #[inline(never)]
    fn fill_all(&self, buffer: &mut [u8], way: Way, number: u64, stamp: [u8; NUMBER_BYTES]) {
        let window = self.window(way, number);
        buffer[..window.len()].copy_from_slice(window);
        let stamped = self.size.min(NUMBER_BYTES);
        buffer[..stamped].copy_from_slice(&stamp[NUMBER_BYTES - stamped..]);
    }

    #[inline]
    pub(crate) fn check(&self, came: &[u8], way: Way, number: u64) -> anyhow::Result<()> {
        let stamp = Self::stamp(way, number);
        if self.choice == PayloadChoice::Number && came.len() == self.size && came.first_chunk() == Some(&stamp) {
            return Ok(());
        }
        self.check_all(came, way, number, stamp)
    }

    #[inline(never)]
    fn check_all(&self, came: &[u8], way: Way, number: u64, due: [u8; NUMBER_BYTES]) -> anyhow::Result<()> {
        ensure!(came.len() == self.size, "message {number}: {} bytes came, {} are due", came.len(), self.size);
        let stamped = self.size.min(NUMBER_BYTES);
        let (stamp, rest) = came[..self.checked_bytes()].split_at(stamped);
        ensure!(stamp == &due[NUMBER_BYTES - stamped..], "message {number} has another's number: {stamp:02x?}");
        let due = &self.window(way, number)[stamped..];
        if rest == due {
            return Ok(());
        }
        let at = rest.iter().zip(due).take_while(|(came, due)| came == due).count();
        bail!("message {number} is wrong at byte {}", stamped + at)
    }
}

impl Report {
    pub(crate) fn print(&self, size: usize, role: Role) {
        let Self { iterations, total, round_trips_ns } = self;
        let mean_us = total.as_secs_f64() * 1e6 / *iterations as f64;
        if let Some(round_trips) = round_trips_ns {
            for percentile in [0.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
                let us = round_trips.value_at_percentile(percentile) as f64 / 1e3;
                say!("round trip p{percentile}: {us:.1} us");
            }
        }
        say!(
            "result role={} iterations={iterations} size={size} mean_us={mean_us:.2} wrong=0",
            format!("{role:?}").to_lowercase()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_message_counts_and_no_other_message_passes_for_it() {
        for size in [1, 7, 8, 9, 300] {
            let payloads = Payloads::new(size, PayloadChoice::Check);
            let mut message = vec![0; size];
            payloads.fill(&mut message, Way::There, 5);
            assert!(payloads.check(&message, Way::There, 5).is_ok());
            assert!(payloads.check(&message, Way::Back, 5).is_err());
            assert!(payloads.check(&message, Way::There, 6).is_err());
            assert!(payloads.check(&message[..size - 1], Way::There, 5).is_err());
            for byte in 0..size {
                message[byte] ^= 0x10;
                assert!(payloads.check(&message, Way::There, 5).is_err(), "size {size}, byte {byte}");
                message[byte] ^= 0x10;
            }
        }
    }
    #[test]
    fn where_the_number_alone_counts_the_rest_is_neither_written_nor_looked_at() {
        for size in [1, 7, 8, 9, 300] {
            let payloads = Payloads::new(size, PayloadChoice::Number);
            let mut message = vec![0xA5; size];
            payloads.fill(&mut message, Way::There, 5);
            assert!(message[size.min(8)..].iter().all(|byte| *byte == 0xA5));
            assert!(payloads.check(&message, Way::Back, 5).is_err());
            assert!(payloads.check(&message, Way::There, 6).is_err());
            assert!(payloads.check(&message[..size - 1], Way::There, 5).is_err());
            for byte in 0..size {
                message[byte] ^= 0x10;
                assert_eq!(payloads.check(&message, Way::There, 5).is_ok(), byte >= 8, "size {size}, byte {byte}");
                message[byte] ^= 0x10;
            }
        }
    }
}
