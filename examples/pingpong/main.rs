//! Ping-pong between two processes or two hosts: one message there, one message back, each checked byte by byte, and the
//! percentiles of the round trip. With `--window` several are under way, and the server answers each, in order.
//!
//! ```text
//! cargo run --release --example pingpong -- --server
//! cargo run --release --example pingpong -- --client 127.0.0.1
//! ```
//!
//! What happens, in order:
//! 1. The server listens; the client connects, and tries again until the server is there.
//! 2. Each end makes its endpoint, and they exchange hellos, agree, connect, and wait for each other
//!    (`bareverbs_shell::exchange`).
//! 3. The client sends, the server answers, `--iterations` times. With credits (`--credits on`) the grants go between them,
//!    after the answers. A message waits for one only where more are under way (`--window`) than the other end's ring
//!    (`--ring`) has receives for, less one.
//! 4. Both say a last word, so that neither goes while the other still waits for an answer of its device.
//!
//! `--payload number` leaves all but the first bytes of a message as they are, and `--times total` looks at no clock between the
//! first message and the last: for a comparison with programs that neither fill in, nor check, nor time each.
//!
//! With `--interop` the other end is rdma-core's `ibv_uc_pingpong` or `ibv_rc_pingpong`: see `interop.rs`.

mod interop;
mod rounds;
mod timed;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bareverbs_core::link::{Carrier, Header, Immediate, Raw};
use bareverbs_core::verbs::{LinkLayer, Mtu};
use bareverbs_examples::{CreditChoice, FabricChoice, in_range, say};
use bareverbs_shell::endpoint::{Endpoint, Frames};
use bareverbs_shell::exchange::{self, ExchangeError, ExchangeErrorKind, Listener, Reach, Terms};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::objects::gid::GidPolicy;
use bareverbs_shell::{EndpointConfig, FabricKind, Relax, Wait};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

use rounds::{Payloads, Report};

/// Largest message, bytes.
const MAX_SIZE: usize = 1 << 20;
/// What an end's frames may take, bytes: they are pinned.
const MAX_MEMORY: usize = 32 << 20;

/// One end, whatever its carrier and however long its rings.
type End<C, const N: usize> = Endpoint<C, N, N>;

/// Frames of each ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ring {
    /// One for messages where there are credits, and one for those.
    #[value(name = "2")]
    Of2 = 2,
    /// For large messages.
    #[value(name = "8")]
    Of8 = 8,
    /// As JACCL's links have.
    #[value(name = "32")]
    Of32 = 32,
    /// For many under way.
    #[value(name = "128")]
    Of128 = 128,
    /// As long as those of rdma-core's tools, or so.
    #[value(name = "512")]
    Of512 = 512,
}

/// What of a message's bytes is filled in and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PayloadChoice {
    /// Every byte.
    Check,
    /// The number at its front.
    Number,
}

/// Service of the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// Unreliable connected.
    Uc,
    /// Reliable connected.
    Rc,
}

/// How a message's number travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CarrierChoice {
    /// As immediate data.
    Immediate,
    /// In a header at the frame's start.
    Header,
}

/// What an end does between two polls that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RelaxChoice {
    /// Polls again at once, as rdma-core's tools do.
    Busy,
    /// Tells the processor that this is a spin, then polls again.
    Spin,
    /// Gives the processor away.
    Yield,
    /// Polls 64 times, then gives the processor away each time.
    SpinThenYield,
}

/// What the client looks at the clock for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TimesChoice {
    /// Each round trip: their percentiles are printed.
    Each,
    /// All of them together, as rdma-core's tools do: their mean is printed, and no look at a clock is in it.
    Total,
}

/// Sends messages there and back between two processes, checks each, and prints the round trip's percentiles.
///
/// Start `pingpong --server` at one end and `pingpong --client HOST` at the other; everything else alike at both. The exit
/// status is 0 only when every message was there, in order, with every byte right.
///
/// Without RDMA, both ends can run in one process: `pingpong --server --client 127.0.0.1 --fabric soft`.
///
/// To talk to rdma-core's tools add --interop: `pingpong --interop --server` with `ibv_uc_pingpong -g 1 HOST`, or
/// `ibv_rc_pingpong -g 1` with `pingpong --interop --transport rc --client HOST`.
#[derive(Parser)]
struct Options {
    /// Wait for a client.
    #[arg(long, required_unless_present = "client")]
    server: bool,
    /// Connect to the server on this host.
    #[arg(long, value_name = "HOST")]
    client: Option<String>,
    /// TCP port that the server listens at. (A device's port is --ib-port.)
    #[arg(long, default_value_t = 18515)]
    port: u16,
    /// Address that the server listens at.
    #[arg(long, default_value = "127.0.0.1")]
    listen: std::net::IpAddr,
    /// Allow other hosts. The exchange of addresses is not authenticated: for networks where everybody is trusted.
    #[arg(long)]
    anywhere: bool,
    /// Service of the queue pairs.
    #[arg(long, value_enum, default_value = "uc")]
    transport: Transport,
    /// Which fabric to use. The software fabric lives in one process: give --server and --client together.
    #[arg(long, value_enum, default_value = "system")]
    fabric: FabricChoice,
    /// Device name; the first with an active port if not given.
    #[arg(long)]
    device: Option<String>,
    /// Port of the device, counted from 1.
    #[arg(long, default_value_t = 1, value_parser = in_range::<u8>(1..=255))]
    ib_port: u8,
    /// Index of the GID to use; the first IPv4-mapped one if not given.
    #[arg(long)]
    gid_index: Option<u8>,
    /// Path MTU in bytes: 256 to 4096. By default 1024, and the port's for rc without --interop.
    #[arg(long, value_parser = mtu_of)]
    mtu: Option<Mtu>,
    /// Time to an rc retry, coded as 4.096 microseconds times 2 to this power. Emulated devices want 18.
    #[arg(long, default_value_t = 14, value_parser = in_range::<u8>(0..=31))]
    timeout: u8,
    /// Bytes of a message: 1 to 1048576.
    #[arg(long, default_value_t = 4096, value_parser = in_range::<usize>(1..=MAX_SIZE as u64))]
    size: usize,
    /// Round trips.
    #[arg(long, default_value_t = 1000, value_parser = in_range::<u64>(1..=u64::MAX))]
    iterations: u64,
    /// Frames of each ring; 32, or 8 where those would take more than 32 MiB.
    #[arg(long, value_enum)]
    ring: Option<Ring>,
    /// Round trips under way: 1 to 128, and no more than the rings have frames.
    #[arg(long, default_value_t = 1, value_parser = in_range::<usize>(1..=128), conflicts_with = "interop")]
    window: usize,
    /// What of a message is filled in and checked: every byte, or its number only, as long as 8 bytes or the message.
    #[arg(long, value_enum, default_value = "check")]
    payload: PayloadChoice,
    /// How a message's number travels; by default what the link layer allows.
    #[arg(long, value_enum, conflicts_with = "interop")]
    carrier: Option<CarrierChoice>,
    /// Whether the ends grant each other credits, alike at both; by default what carrier and link layer suggest.
    #[arg(long, value_enum, conflicts_with = "interop")]
    credits: Option<CreditChoice>,
    /// What an end does between two polls that found nothing.
    #[arg(long, value_enum, default_value = "spin-then-yield")]
    relax: RelaxChoice,
    /// What is timed: each round trip, or all of them together.
    #[arg(long, value_enum, default_value = "each")]
    times: TimesChoice,
    /// A number that both ends must have given alike.
    #[arg(long, default_value_t = 0)]
    nonce: u64,
    /// Seconds that the other end may take to come, and then for each message.
    #[arg(long, default_value_t = 10)]
    patience: u64,
    /// Talk to rdma-core's ibv_uc_pingpong or ibv_rc_pingpong, whose messages carry no number.
    #[arg(long)]
    interop: bool,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It listens, and answers.
    Server,
    /// It connects, and begins.
    Client,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let both = options.server && options.client.is_some();
    if both && options.interop {
        // With both ends ours, neither is a tool that sends back what it got.
        let words = "--interop talks to a tool: of --server and --client one can be ours";
        Options::command().error(ErrorKind::ArgumentConflict, words).exit();
    }
    let fabric = options.fabric.make()?;
    if fabric.kind() == FabricKind::Soft && !both {
        bail!("the software fabric lives in one process ({}): give --server and --client together", fabric.reason());
    }
    let device = fabric.open(options.device.as_deref())?;
    say!("fabric {}, device {}: {}", fabric.kind(), device.name(), fabric.reason());
    match (options.server, &options.client) {
        (true, None) => end(&options, &device, Role::Server),
        (false, _) => end(&options, &device, Role::Client),
        (true, Some(_)) => std::thread::scope(|scope| {
            let server = scope.spawn(|| end(&options, &device, Role::Server));
            let client = end(&options, &device, Role::Client);
            let server = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            of_both(client, server)
        }),
    }
}

/// How both ends fared. Where both failed, the one may say why the other did.
fn of_both(client: anyhow::Result<()>, server: anyhow::Result<()>) -> anyhow::Result<()> {
    match (client, server) {
        (Err(client), Err(server)) => bail!("client: {client:#}; server: {server:#}"),
        (client, server) => client.context("client").and(server.context("server")),
    }
}

/// An error of connecting, with this program's option where it names the library's remedy.
pub(crate) fn with_option(error: ExchangeError) -> anyhow::Error {
    match error.kind {
        ExchangeErrorKind::NotLoopback { .. } => anyhow!("{error} (here: --anywhere)"),
        _ => error.into(),
    }
}

fn end(options: &Options, device: &Arc<DeviceContext>, role: Role) -> anyhow::Result<()> {
    let report = match options.ring()? {
        Ring::Of2 => end_of::<2>(options, device, role),
        Ring::Of8 => end_of::<8>(options, device, role),
        Ring::Of32 => end_of::<32>(options, device, role),
        Ring::Of128 => end_of::<128>(options, device, role),
        Ring::Of512 => end_of::<512>(options, device, role),
    }?;
    report.print(options.size, role);
    Ok(())
}

/// An end with rings of so many frames.
fn end_of<const N: usize>(options: &Options, device: &Arc<DeviceContext>, role: Role) -> anyhow::Result<Report> {
    if options.interop {
        let mut end = make::<_, N>(options, device, Raw)?;
        let report = interop::run(options, &mut end, role)?;
        end.close()?;
        return Ok(report);
    }
    let carrier = options.carrier.unwrap_or(match device.port(options.ib_port)?.link_layer() {
        // Thunderbolt is said to lose immediate data.
        LinkLayer::THUNDERBOLT => CarrierChoice::Header,
        _ => CarrierChoice::Immediate,
    });
    match carrier {
        CarrierChoice::Immediate => meet(options, make::<_, N>(options, device, Immediate)?, role),
        CarrierChoice::Header => meet(options, make::<_, N>(options, device, Header::<64>::new())?, role),
    }
}

fn make<C: Carrier, const N: usize>(
    options: &Options,
    device: &Arc<DeviceContext>,
    carrier: C,
) -> anyhow::Result<End<C, N>> {
    let peer = options.client.as_deref().unwrap_or("the client");
    let mut config = match options.transport {
        Transport::Uc => EndpointConfig::uc(peer),
        Transport::Rc => EndpointConfig::rc(peer).timeout(options.timeout),
    };
    let mut queue_pair = config.queue_pair.port(options.ib_port);
    if let Some(mtu) = options.mtu.or(options.interop.then_some(interop::MTU)) {
        queue_pair = queue_pair.path_mtu(mtu);
    }
    config = config.queue_pair(queue_pair);
    if let Some(credits) = options.credits {
        config = config.credits(credits.into());
    }
    if let Some(index) = options.gid_index {
        config = config.gid(GidPolicy::Index(index));
    }
    let frame_bytes = match device.port(options.ib_port)?.link_layer() {
        LinkLayer::THUNDERBOLT => options.frame_bytes().next_multiple_of(4096),
        _ => options.frame_bytes(),
    };
    Ok(Endpoint::new(device, carrier, config.frame_bytes(frame_bytes as u32), Frames::Owned)?)
}

fn mtu_of(bytes: &str) -> Result<Mtu, &'static str> {
    let known = (1..=5).map(Mtu).find(|mtu| mtu.bytes().is_some_and(|known| known.to_string() == bytes));
    known.ok_or("it must be 256, 512, 1024, 2048 or 4096")
}

/// Our own exchange, and rounds whose payloads both ends know.
fn meet<C: Carrier, const N: usize>(options: &Options, mut end: End<C, N>, role: Role) -> anyhow::Result<Report> {
    let terms = options.terms();
    let met = match role {
        Role::Server => Listener::bind(options.listen_at(), &terms)
            .and_then(|listener| exchange::accept(&listener, &mut end, &terms)),
        Role::Client => exchange::connect(&options.server_addresses()?, &mut end, &terms),
    }
    .map_err(with_option)?;
    say!("{role:?}: {} to {}, {:?}", end.destination(), met.agreement.remote, met.agreement.path_mtu);
    say!("{role:?}: rings of {N}, credits {:?}, window {}", end.credit_mode(), options.window);
    let payloads = Payloads::new(options.size, options.payload);
    let report = rounds::run(options, &mut end, role, |buffer, way, number| payloads.fill(buffer, way, number), {
        |came, way, number| payloads.check(came, way, number)
    })?;
    met.channel.leave(options.patience())?;
    end.close()?;
    Ok(report)
}

impl Options {
    /// A frame's length, whatever the carrier takes of it: whole cache lines. Frames of a page each would have all first lines
    /// of a ring compete for the same places of the cache.
    fn frame_bytes(&self) -> usize {
        (self.size + Header::<64>::ROOM_BYTES as usize).next_multiple_of(64)
    }

    /// How long the rings are: as told, or as long as is sensible.
    fn ring(&self) -> anyhow::Result<Ring> {
        let memory = |ring: Ring| 2 * ring as usize * self.frame_bytes();
        let ring = match self.ring {
            Some(ring) => ring,
            None if self.window <= 8 && memory(Ring::Of32) > MAX_MEMORY => Ring::Of8,
            None if self.window <= 32 => Ring::Of32,
            None => Ring::Of128,
        };
        ensure!(
            memory(ring) <= MAX_MEMORY,
            "two rings of {} frames of {} bytes take {} MiB of pinned memory, which is more than {} MiB: take a shorter \
             --ring or a smaller --size",
            ring as usize,
            self.frame_bytes(),
            memory(ring) >> 20,
            MAX_MEMORY >> 20
        );
        ensure!(
            self.window <= ring as usize,
            "{} round trips under way want as many receives posted, and rings of {} frames have no more than that: take a \
             longer --ring or a smaller --window",
            self.window,
            ring as usize
        );
        Ok(ring)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    /// How to wait for what is to come next.
    fn wait(&self) -> Wait<'static> {
        Wait::at_most(self.patience()).relax(match self.relax {
            RelaxChoice::Busy => Relax::Busy,
            RelaxChoice::Spin => Relax::Spin,
            RelaxChoice::Yield => Relax::Yield,
            RelaxChoice::SpinThenYield => Relax::SpinThenYield(64),
        })
    }

    fn terms(&self) -> Terms {
        let reach = if self.anywhere { Reach::Anywhere } else { Reach::Loopback };
        Terms::within(self.patience()).nonce(self.nonce).reach(reach)
    }

    fn listen_at(&self) -> SocketAddr {
        SocketAddr::new(self.listen, self.port)
    }

    fn server_addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let host = self.client.as_deref().context("a client is told its server")?;
        let found = (host, self.port).to_socket_addrs().with_context(|| format!("looking up {host}"))?;
        Ok(found.collect())
    }
}
