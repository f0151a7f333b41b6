//! Two endpoints of one process, connected to each other: frames from static buffers stream both ways over unreliable
//! connected queue pairs, each checked by its number and content at the other end, and everything is torn down in order.
//!
//! `cargo run --release --example loopback` needs no RDMA: with `--fabric best` it takes the system's RDMA when a port is
//! active, and the software fabric otherwise.
//!
//! What happens, in order:
//! 1. Static storage is claimed, one piece for each end: a device may write to it at any time, so nobody else may have it.
//! 2. Each end is made: domain, completion queue, queue pair, region over its frames, INIT.
//! 3. The ends learn of each other and connect: RTR, receives posted, RTS.
//! 4. Frames stream, each end as far as the other has granted credits (`--credits on`), so that no message finds no
//!    receive posted. `--window` caps what is unanswered; without credits (`--credits off`) that alone does it.
//! 5. The ends are closed, and what was done is held against the required order.
//!
//! `--sweep` does that for every pair of ring length and window, and for rings that differ at the two ends, with both carriers,
//! `--frames` in all each way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bareverbs_core::connect::QueuePairConfig;
use bareverbs_core::link::{Carrier, CreditMode, FrameStorage, Header, Immediate, SendError};
use bareverbs_core::teardown_order;
use bareverbs_core::verbs::LinkLayer;
use bareverbs_examples::{CreditChoice, FabricChoice, in_range, say};
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Event, Frames, Teardown, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::{Relax, Wait};
use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

/// Frames of each ring.
const RING: usize = 32;
/// Largest frame, bytes.
const MAX_FRAME: usize = 65536;

static FRAMES_A: FrameStorage<{ 2 * RING * MAX_FRAME }> = FrameStorage::new();
static FRAMES_B: FrameStorage<{ 2 * RING * MAX_FRAME }> = FrameStorage::new();

/// How a message's number travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CarrierChoice {
    /// As immediate data.
    Immediate,
    /// In a header at the frame's start.
    Header,
}

/// Streams checked frames between two endpoints of this process.
///
/// --frames counts each way; the last line, and the throughput, count both ways together.
#[derive(Clone, Parser)]
struct Options {
    /// Which fabric to use.
    #[arg(long, value_enum, default_value = "best")]
    fabric: FabricChoice,
    /// Device name; the first with an active port if not given.
    #[arg(long)]
    device: Option<String>,
    /// Port of the device, counted from 1.
    #[arg(long, default_value_t = 1, value_parser = in_range::<u8>(1..=255))]
    port: u8,
    /// Frames to send each way, at least 1.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=u64::MAX / 4))]
    frames: u64,
    /// Payload bytes of a frame: 8 to 65472.
    #[arg(long, default_value_t = 4096, value_parser = in_range::<usize>(8..=MAX_FRAME as u64 - 64))]
    size: usize,
    /// Frames that may be unanswered each way: 1 to 32; 16 without credits, else no limit but those.
    #[arg(long, value_parser = in_range::<u64>(1..=RING as u64))]
    window: Option<u64>,
    /// Whether the ends grant each other credits; by default what the link layer suggests.
    #[arg(long, value_enum)]
    credits: Option<CreditChoice>,
    /// How a frame's number travels; by default what the link layer allows.
    #[arg(long, value_enum)]
    carrier: Option<CarrierChoice>,
    /// Stream with rings of 2 to 32 frames, alike at both ends or not, windows of 1, half a ring and none, and both carriers; the
    /// frames are shared out.
    #[arg(long, conflicts_with_all = ["window", "carrier"])]
    sweep: bool,
    /// Seconds without any completion after which the run fails.
    #[arg(long, default_value_t = 10)]
    patience: u64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let fabric = options.fabric.make()?;
    say!("fabric {}: {}", fabric.kind(), fabric.reason());
    let device = fabric.open(options.device.as_deref())?;
    let link_layer = device.port(options.port)?.link_layer();
    // Thunderbolt is said to lose immediate data.
    let carrier = options.carrier.unwrap_or(match link_layer {
        LinkLayer::THUNDERBOLT => CarrierChoice::Header,
        _ => CarrierChoice::Immediate,
    });
    say!("device {}, {link_layer:?}, carrier {carrier:?}", device.name());
    if options.sweep {
        return sweep(&options, &device);
    }
    let storage_a = FRAMES_A.claim().context("storage of end a is claimed once")?;
    let storage_b = FRAMES_B.claim().context("storage of end b is claimed once")?;
    let storage = [storage_a, storage_b].map(Frames::Static);
    match carrier {
        CarrierChoice::Immediate => run::<_, RING, RING>(&options, &device, Immediate, storage),
        CarrierChoice::Header => run::<_, RING, RING>(&options, &device, Header::<64>::new(), storage),
    }
}

/// Runs with every ring length, window and carrier, and with a short ring at one end and a long one at the other.
fn sweep(options: &Options, device: &Arc<DeviceContext>) -> anyhow::Result<()> {
    const RUNS: u64 = (5 + 4) * 3 * 2;
    let began = Instant::now();
    let mut runs = 0;
    macro_rules! rings {
        ($($a:literal $b:literal,)*) => { $(
            for window in [Some(1), Some($a.max($b) / 2), None] {
                let options = Options { window, frames: options.frames.div_ceil(RUNS), ..options.clone() };
                run::<_, $a, $b>(&options, device, Immediate, [Frames::Owned, Frames::Owned])?;
                run::<_, $a, $b>(&options, device, Header::<64>::new(), [Frames::Owned, Frames::Owned])?;
                runs += 2;
            }
        )* };
    }
    rings!(2 2, 4 4, 8 8, 16 16, 32 32, 2 32, 32 2, 4 16, 8 2,);
    ensure!(runs == RUNS, "{runs} runs");
    let frames = 2 * RUNS * options.frames.div_ceil(RUNS);
    say!("result frames={frames} lost=0 corrupt=0 seconds={:.3}", began.elapsed().as_secs_f64());
    Ok(())
}

type End<C, const N: usize> = Endpoint<C, N, N>;

fn run<C: Carrier, const A: usize, const B: usize>(
    options: &Options,
    device: &Arc<DeviceContext>,
    carrier: C,
    storage: [Frames; 2],
) -> anyhow::Result<()> {
    let frame_bytes = (options.size + C::ROOM_BYTES as usize).next_multiple_of(4096) as u32;
    let queue_pair = QueuePairConfig::uc().port(options.port);
    let config = |peer| {
        let config = EndpointConfig::uc(peer).frame_bytes(frame_bytes).queue_pair(queue_pair);
        match options.credits {
            Some(credits) => config.credits(credits.into()),
            None => config,
        }
    };
    let [storage_a, storage_b] = storage;
    let mut a: End<C, A> = Endpoint::new(device, carrier, config("end b"), storage_a)?;
    let mut b: End<C, B> = Endpoint::new(device, carrier, config("end a"), storage_b)?;
    connect_pair(&mut a, &mut b)?;
    say!("a: {}", a.destination());
    say!("b: {}", b.destination());

    let window = options.window.unwrap_or(match a.credit_mode() {
        CreditMode::On => A.max(B) as u64,
        CreditMode::Off => A.min(B) as u64 / 2,
    });
    say!("carrier {:?}, rings of {A} and {B}, credits {:?}, window {window}", C::CARRIER, a.credit_mode());
    let mut stream = Stream::new(options, window)?;
    let began = Instant::now();
    stream.run(&mut a, &mut b)?;
    let seconds = began.elapsed().as_secs_f64();

    say!("teardown");
    for (name, teardown) in [("a", a.close()?), ("b", b.close()?)] {
        print_teardown(name, &teardown)?;
    }
    stream.print(seconds);
    say!("result frames={} lost=0 corrupt=0 seconds={seconds:.3}", 2 * options.frames);
    Ok(())
}

/// A stream both ways, and what was seen of it.
struct Stream<'options> {
    options: &'options Options,
    window: u64,
    progress: ProgressBar,
    latency_ns: Histogram<u64>,
    began: Instant,
    ways: [Way; 2],
}

/// One direction of the stream.
#[derive(Clone, Copy, Default)]
struct Way {
    sent: u64,
    received: u64,
}

impl<'options> Stream<'options> {
    fn new(options: &'options Options, window: u64) -> anyhow::Result<Self> {
        // Drawn on a terminal only; elsewhere it draws nothing.
        let progress = ProgressBar::new(2 * options.frames);
        progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} frames, {per_sec}, {eta} left")?);
        let latency_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        Ok(Self { options, window, progress, latency_ns, began: Instant::now(), ways: [Way::default(); 2] })
    }

    fn run<C: Carrier, const A: usize, const B: usize>(
        &mut self,
        a: &mut End<C, A>,
        b: &mut End<C, B>,
    ) -> anyhow::Result<()> {
        let patience = Duration::from_secs(self.options.patience);
        let mut last_progress = Instant::now();
        while self.ways.iter().any(|way| way.received < self.options.frames) {
            let before = self.total();
            self.send(0, a)?;
            self.send(1, b)?;
            self.receive(1, a)?;
            self.receive(0, b)?;
            if self.total() != before {
                last_progress = Instant::now();
            } else if last_progress.elapsed() >= patience {
                // Says who, what is outstanding, and for how long nothing came.
                a.wait(&Wait::at_most(Duration::ZERO).relax(Relax::Yield), |_| {})?;
            } else {
                // The two ends may share a core with the fabric.
                std::thread::yield_now();
            }
        }
        self.progress.finish_and_clear();
        self.settle(a, patience)?;
        self.settle(b, patience)
    }

    fn total(&self) -> u64 {
        self.ways.iter().map(|way| way.sent + way.received).sum()
    }

    /// Sends what credits and window allow. The last of a burst is signalled, so that no frame stays out for want of a
    /// signal: the last one that has a place or credit is by itself.
    fn send<C: Carrier, const N: usize>(&mut self, way: usize, end: &mut End<C, N>) -> anyhow::Result<()> {
        let (window, &Options { frames, size, .. }) = (self.window, self.options);
        loop {
            let Way { sent, received } = self.ways[way];
            if sent == frames || sent - received == window {
                return Ok(());
            }
            let now_ns = self.began.elapsed().as_nanos() as u64;
            let mut frame = match end.next_frame() {
                Ok(frame) => frame,
                // Later: the other end has yet to post receives, or this one to take completions.
                Err(error) if is_not_now(&error.kind) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            fill(&mut frame.payload_mut()[..size], way, sent, now_ns);
            if sent + 1 == frames || sent + 1 - received == window {
                frame.post(size)?;
            } else {
                frame.post_more(size)?;
            }
            self.ways[way].sent += 1;
        }
    }

    /// Takes what came, checks every byte, and posts the frames again.
    fn receive<C: Carrier, const N: usize>(&mut self, way: usize, end: &mut End<C, N>) -> anyhow::Result<()> {
        let Self { options, progress, latency_ns, began, ways, .. } = self;
        let mut outcome = Ok(());
        end.poll(|event| {
            if let Event::Received(frame) = event
                && outcome.is_ok()
            {
                let number = ways[way].received;
                outcome = check(frame.payload(), way, number, options.size).and_then(|sent_ns| {
                    let now_ns = began.elapsed().as_nanos() as u64;
                    latency_ns.saturating_record(now_ns.saturating_sub(sent_ns).max(1));
                    frame.repost().map_err(anyhow::Error::from)
                });
                ways[way].received += 1;
                if number.is_multiple_of(1024) {
                    progress.set_position(ways[0].received + ways[1].received);
                }
            }
        })?;
        outcome
    }

    /// Waits until the last sends have completed.
    fn settle<C: Carrier, const N: usize>(&self, end: &mut End<C, N>, patience: Duration) -> anyhow::Result<()> {
        while end.outstanding().sends > 0 {
            end.wait(&Wait::at_most(patience), |_| {})?;
        }
        Ok(())
    }

    fn print(&self, seconds: f64) {
        let bytes = 2.0 * self.options.frames as f64 * self.options.size as f64;
        say!(
            "throughput {:.1} MB/s, {:.0} frames/s",
            bytes / seconds / 1e6,
            2.0 * self.options.frames as f64 / seconds
        );
        for percentile in [50.0, 90.0, 99.0, 99.9, 100.0] {
            let us = self.latency_ns.value_at_percentile(percentile) as f64 / 1e3;
            say!("latency p{percentile}: {us:.1} us");
        }
    }
}

fn is_not_now(kind: &EndpointErrorKind) -> bool {
    matches!(kind, EndpointErrorKind::Send(SendError::Full { .. } | SendError::NoCredit { .. }, _))
}

/// Fills a payload: when it was sent, then a pattern that depends on direction, number and place.
fn fill(payload: &mut [u8], way: usize, number: u64, now_ns: u64) {
    let (stamp, rest) = payload.split_at_mut(8);
    stamp.copy_from_slice(&now_ns.to_be_bytes());
    let mut words = rest.chunks_exact_mut(8);
    let mut state = seed(way, number);
    for word in &mut words {
        word.copy_from_slice(&state.to_le_bytes());
        state = next(state);
    }
    let tail = words.into_remainder();
    let bytes = state.to_le_bytes();
    tail.copy_from_slice(&bytes[..tail.len()]);
}

/// Checks a payload byte by byte; answers when it was sent.
fn check(payload: &[u8], way: usize, number: u64, size: usize) -> anyhow::Result<u64> {
    ensure!(payload.len() == size, "frame {number}: {} bytes came, {size} were sent", payload.len());
    let (stamp, rest) = payload.split_at(8);
    let mut state = seed(way, number);
    let words = rest.chunks_exact(8);
    let tail = words.remainder();
    for (index, word) in words.enumerate() {
        ensure!(
            word == state.to_le_bytes(),
            "frame {number} is corrupt in bytes {} to {}",
            8 + 8 * index,
            15 + 8 * index
        );
        state = next(state);
    }
    ensure!(tail == &state.to_le_bytes()[..tail.len()], "frame {number} is corrupt in its last {} bytes", tail.len());
    Ok(u64::from_be_bytes(stamp.try_into()?))
}

const fn seed(way: usize, number: u64) -> u64 {
    (number << 1 | way as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

const fn next(state: u64) -> u64 {
    state.wrapping_mul(0xd129_0d3d_3d5f_8c6b).rotate_left(23)
}

fn print_teardown(name: &str, teardown: &Teardown) -> anyhow::Result<()> {
    let steps: Vec<_> = teardown.done().map(|step| format!("{step:?}")).collect();
    say!("  {name}: {}", steps.join(" -> "));
    if let Some(reason) = &teardown.not_drained {
        say!("  {name}: not drained, so the queue pair went first: {reason}");
    }
    teardown_order::check(teardown.quiesced, teardown.done())?;
    Ok(())
}
