//! The rounds: who sends when, what is in the messages, and how long it took.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bareverbs_core::link::Carrier;
use bareverbs_examples::say;
use bareverbs_shell::Wait;
use bareverbs_shell::endpoint::Event;
use hdrhistogram::Histogram;

use crate::{End, Options, Role};

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
    /// Of the client: the server cannot tell a round trip from its peer's pauses.
    round_trips_ns: Option<Histogram<u64>>,
}

/// Runs the rounds. `fill` makes a message, `check` says what is wrong with one that came.
pub(crate) fn run<C: Carrier>(
    options: &Options,
    end: &mut End<C>,
    role: Role,
    mut fill: impl FnMut(&mut [u8], Way, u64),
    mut check: impl FnMut(&[u8], Way, u64) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let Options { iterations, size, .. } = *options;
    let wait = Wait::at_most(options.patience());
    let mut round_trips_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
    let began = Instant::now();
    for number in 0..iterations {
        let is_last = number + 1 == iterations;
        match role {
            Role::Client => {
                let sent = Instant::now();
                send(end, size, is_last, |buffer| fill(buffer, Way::There, number))?;
                receive(end, &wait, |came| check(came, Way::Back, number))?;
                round_trips_ns.saturating_record(sent.elapsed().as_nanos() as u64);
            }
            Role::Server => {
                receive(end, &wait, |came| check(came, Way::There, number))?;
                send(end, size, is_last, |buffer| fill(buffer, Way::Back, number))?;
            }
        }
    }
    let total = began.elapsed();
    while end.outstanding().sends > 0 {
        end.wait(&wait, |_| {})?;
    }
    Ok(Report { iterations, total, round_trips_ns: (role == Role::Client).then_some(round_trips_ns) })
}

/// Fills a frame and posts it. Only every so many sends are signalled, and the last: their completions are nobody's
/// concern while answers come.
fn send<C: Carrier>(end: &mut End<C>, size: usize, is_last: bool, fill: impl FnOnce(&mut [u8])) -> anyhow::Result<()> {
    let mut frame = end.next_frame()?;
    fill(&mut frame.payload_mut()[..size]);
    if is_last {
        frame.post(size)?
    } else {
        frame.post_more(size)?
    };
    Ok(())
}

/// Waits for the next message, checks it, and posts its frame again.
fn receive<C: Carrier>(
    end: &mut End<C>,
    wait: &Wait<'_>,
    mut check: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut outcome = None;
    while outcome.is_none() {
        end.wait(wait, |event| {
            if let Event::Received(frame) = event {
                outcome = Some(match &outcome {
                    None => check(frame.payload()).and_then(|()| Ok(frame.repost()?)),
                    Some(_) => Err(anyhow::anyhow!("two messages came where one was due")),
                });
            }
        })?;
    }
    outcome.unwrap_or(Ok(()))
}

/// Messages that both ends can make: no two of a run are alike, and every byte is checked.
pub(crate) struct Payloads {
    size: usize,
    base: Vec<u8>,
}

/// How many different windows into the base there are.
const WINDOWS: usize = 251;

impl Payloads {
    pub(crate) fn new(size: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let base = std::iter::repeat_with(|| {
            state = state.wrapping_mul(0xd129_0d3d_3d5f_8c6b).rotate_left(23);
            state as u8
        });
        Self { size, base: base.take(size + WINDOWS).collect() }
    }

    /// The bytes of a message, but for its number in front.
    fn window(&self, way: Way, number: u64) -> &[u8] {
        let start = (number.wrapping_mul(2) + u64::from(way == Way::Back)) % WINDOWS as u64;
        &self.base[start as usize..][..self.size]
    }

    fn stamp(way: Way, number: u64) -> [u8; 8] {
        (number << 1 | u64::from(way == Way::Back)).to_be_bytes()
    }

    pub(crate) fn fill(&self, buffer: &mut [u8], way: Way, number: u64) {
        buffer.copy_from_slice(self.window(way, number));
        let stamped = self.size.min(8);
        buffer[..stamped].copy_from_slice(&Self::stamp(way, number)[8 - stamped..]);
    }

    pub(crate) fn check(&self, came: &[u8], way: Way, number: u64) -> anyhow::Result<()> {
        ensure!(came.len() == self.size, "message {number}: {} bytes came, {} are due", came.len(), self.size);
        let stamped = self.size.min(8);
        let (stamp, rest) = came.split_at(stamped);
        ensure!(
            stamp == &Self::stamp(way, number)[8 - stamped..],
            "message {number} has another's number: {stamp:02x?}"
        );
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
            let payloads = Payloads::new(size);
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
}
