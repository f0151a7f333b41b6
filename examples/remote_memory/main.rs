//! One end publishes memory, the other writes it, reads it back, adds and swaps in it, over one-sided operations: the owner's
//! processor does nothing meanwhile. Everything is verified at both ends.
//!
//! ```text
//! cargo run --release --example remote_memory                               # both ends in this process
//! cargo run --release --example remote_memory -- --server                   # or in two
//! cargo run --release --example remote_memory -- --client 127.0.0.1
//! ```
//!
//! What happens, in order:
//! 1. Each end makes a reliable queue pair, and they meet over TCP (`bareverbs_shell::exchange`).
//! 2. The owner registers memory and publishes a view of it. What the visitor needs of it, address, size, key and device, goes
//!    over the same connection: 92 bytes (`owner.rs`).
//! 3. The visitor registers memory of its own, and operates on the owner's (`visitor.rs`). After each step it says a word over
//!    the TCP connection: the owner waits as long as words come, and no longer.
//! 4. Its last write has immediate data, which tell the owner that it is done; so does its last word.
//! 5. The owner verifies what is in its memory now, and withdraws the view. Both say a last word, and go.

mod owner;
mod visitor;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bareverbs_examples::{FabricChoice, say};
use bareverbs_shell::exchange::{Listener, Reach, Terms};
use bareverbs_shell::memory::{LocalMemory, OwnedBytes};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::objects::gid::GidPolicy;
use bareverbs_shell::one_sided::{Transfers, TransfersConfig};
use bareverbs_shell::{FabricKind, Relax, Wait};
use clap::Parser;

/// Operations that may be in flight.
const IN_FLIGHT: usize = 8;
/// Bytes of the counter at the memory's start, in which the visitor adds and swaps.
const WORD_BYTES: usize = 8;
/// What the counter is at first.
const WORD_START: u64 = 5;

type End = Transfers<IN_FLIGHT>;

/// Writes, reads, adds and swaps in memory that another end has published, and verifies everything.
///
/// Without --server and --client both ends are in this process. The exit status is 0 only when everything was as it must be.
#[derive(Parser)]
struct Options {
    /// Own the memory, and wait for a visitor.
    #[arg(long, conflicts_with = "client")]
    server: bool,
    /// Visit the memory of the server on this host.
    #[arg(long, value_name = "HOST")]
    client: Option<String>,
    /// TCP port that the server listens at. (A device's port is --ib-port.)
    #[arg(long, default_value_t = 18516)]
    port: u16,
    /// Address that the server listens at.
    #[arg(long, default_value = "127.0.0.1")]
    listen: std::net::IpAddr,
    /// Allow other hosts. The exchange is not authenticated, and who has the key can use it: for networks where everybody is
    /// trusted.
    #[arg(long)]
    anywhere: bool,
    /// Which fabric to use. The software fabric lives in one process.
    #[arg(long, value_enum, default_value = "best")]
    fabric: FabricChoice,
    /// Device name; the first with an active port if not given.
    #[arg(long)]
    device: Option<String>,
    /// Port of the device, counted from 1.
    #[arg(long, default_value_t = 1)]
    ib_port: u8,
    /// Index of the GID to use; the first IPv4-mapped one if not given.
    #[arg(long)]
    gid_index: Option<u8>,
    /// Time to a retry, coded as 4.096 microseconds times 2 to this power. Emulated devices want 18.
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    timeout: u8,
    /// Bytes of the memory: 16 to 1073741824. The same at both ends.
    #[arg(long, default_value_t = 65536, value_parser = clap::value_parser!(u64).range(16..=1 << 30))]
    size: u64,
    /// Rounds of a write, a read, an addition and two swaps.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds that the other end may take to come, and then for each step.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    patience: u64,
}

/// What the visitor says over the TCP connection when a step is done.
const STEP: u8 = b'.';
/// What it says when all are.
const DONE: u8 = b'!';

/// What an end has done and found.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    /// Operations that ended well.
    operations: u64,
    /// Bytes that they moved.
    bytes: u64,
    /// Values that were not what they must be.
    wrong: u64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let fabric = options.fabric.make()?;
    let alone = !options.server && options.client.is_none();
    if fabric.kind() == FabricKind::Soft && !alone {
        bail!("the software fabric lives in one process ({}): leave --server and --client out", fabric.reason());
    }
    let device = fabric.open(options.device.as_deref())?;
    say!("fabric {}, device {}: {}", fabric.kind(), device.name(), fabric.reason());
    let report = match &options.client {
        Some(host) => {
            let servers: Vec<SocketAddr> =
                (host.as_str(), options.port).to_socket_addrs().context("the server")?.collect();
            visitor::visit(&options, &device, &servers)?
        }
        None if options.server => owner::serve(&options, &device, &options.listener(options.port)?)?,
        None => {
            // Any port that is free.
            let listener = options.listener(0)?;
            std::thread::scope(|scope| {
                let owner = scope.spawn(|| owner::serve(&options, &device, &listener));
                let visited = visitor::visit(&options, &device, &[listener.address()]);
                let owned = owner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                both(visited, owned)
            })?
        }
    };
    let Report { operations, bytes, wrong } = report;
    say!("result operations={operations} bytes={bytes} wrong={wrong}");
    ensure!(wrong == 0, "{wrong} values were not what they must be");
    Ok(())
}

/// What both ends found; of two that failed, one has often failed because the other did, so both are told.
fn both(visited: anyhow::Result<Report>, owned: anyhow::Result<Report>) -> anyhow::Result<Report> {
    match (visited, owned) {
        (Ok(visited), Ok(owned)) => Ok(Report { wrong: visited.wrong + owned.wrong, ..visited }),
        (Err(visitor), Err(owner)) => bail!("the visitor: {visitor:#}; and the owner: {owner:#}"),
        (Err(visitor), Ok(_)) => Err(visitor.context("the visitor")),
        (Ok(_), Err(owner)) => Err(owner.context("the owner")),
    }
}

impl Options {
    fn listener(&self, port: u16) -> anyhow::Result<Listener> {
        Ok(Listener::bind(SocketAddr::new(self.listen, port), &self.terms())?)
    }

    fn terms(&self) -> Terms {
        let reach = if self.anywhere { Reach::Anywhere } else { Reach::Loopback };
        Terms::within(self.patience()).reach(reach)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    fn wait(&self) -> Wait<'static> {
        Wait::at_most(self.patience()).relax(Relax::SpinThenYield(64))
    }

    fn end(&self, device: &Arc<DeviceContext>, peer: &str) -> anyhow::Result<End> {
        let mut config = TransfersConfig::new(peer).timeout(self.timeout);
        config.queue_pair = config.queue_pair.port(self.ib_port);
        if let Some(index) = self.gid_index {
            config = config.gid(GidPolicy::Index(index));
        }
        Ok(Transfers::new(device, config)?)
    }

    fn memory(&self) -> anyhow::Result<LocalMemory> {
        Ok(LocalMemory::new(OwnedBytes::from(vec![0; self.size as usize]))?)
    }

    fn data_bytes(&self) -> usize {
        self.size as usize - WORD_BYTES
    }
}

/// What the visitor writes in a round: no two rounds have a byte alike at one place.
fn pattern(round: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(round as u8)).collect()
}

/// What the counter is after so many rounds: in each, 3 are added and then, by a swap, 1000.
fn word_after(rounds: u32) -> u64 {
    WORD_START.wrapping_add(u64::from(rounds).wrapping_mul(1003))
}
