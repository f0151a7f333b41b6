//! GPU memory that grows, behind one key at a time: an allocator maps step after step, a peer keeps writing tensors into it
//! through views of several generations, and what was promised of keys, regions and device calls is counted.
//!
//! ```text
//! cargo run --release --example grow_segment
//! cargo run --release --example grow_segment -- --steps 100 --step-mib 2
//! cargo run --release --example grow_segment -- --fabric system --device mlx5_0
//! ```
//!
//! The GPU is the CUDA stand-in (`bareverbs_shell::soft::cuda`) on either fabric: its memory is a memfd. What happens:
//! 1. An allocator reserves addresses, and maps a step of memory at a time (`growth.rs`). After each, tensors are registered: in
//!    the new step, across the seam to the one before, and in the first. The segment's new end makes it grow; views of before stay.
//! 2. A peer in another thread writes each tensor and reads it back, over and over, while the segment grows (`peer.rs`).
//! 3. After each step everything is verified, on the GPU too, and what the step cost is held against what is promised: regions
//!    for its own bytes, one key, one binding; an old key goes with the last view of it (`promises.rs`).
//! 4. Then the segment shrinks, gets a hole, is freed, and other memory comes to its addresses (`reuse.rs`): what is not mapped
//!    is refused, what is mapped is bound anew, and a stale view never reaches new memory.
//!
//! With `--fabric system` the device must be one that has indirect keys. Any other refuses by name and with the reason: it has no
//! keys, and the stand-in's memory is none that a kernel registers. So does an mlx5 device, since the kernel asks a memfd for its
//! dma-buf: there is none. It shows how far the way goes, and what is said where it ends.

mod growth;
mod peer;
mod promises;
mod reuse;
mod scene;
mod tensor;

use std::time::Duration;

use anyhow::ensure;
use bareverbs_examples::{in_range, say};
use bareverbs_shell::objects::gid::GidPolicy;
use bareverbs_shell::{Relax, Wait};
use clap::{Parser, ValueEnum};

/// Which fabric to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// The embedded software fabric, with an mlx5 device in software.
    Soft,
    /// The system's library. A real device cannot register the stand-in's memory, a memfd that has no dma-buf: it ends in a
    /// refusal, which is shown.
    System,
}

/// Grows GPU memory behind indirect keys while a peer writes into it, and holds what it costs against what is promised.
///
/// The GPU is a stand-in, whose memory no real device can register: `--fabric system` ends in the refusal. The exit status is 0
/// only when every byte and every count was as it must be, and nothing was left.
#[derive(Parser)]
struct Options {
    /// Which fabric to use.
    #[arg(long, value_enum, default_value = "soft")]
    fabric: Choice,
    /// Device name; the first with an active port if not given.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Port of the device, counted from 1.
    #[arg(long, default_value_t = 1)]
    ib_port: u8,
    /// Index of the GID to use; the first IPv4-mapped one if not given.
    #[arg(long)]
    gid_index: Option<u8>,
    /// Time to a retry, coded as 4.096 microseconds times 2 to this power. Emulated devices want 18.
    #[arg(long, default_value_t = 14, value_parser = in_range::<u8>(0..=31))]
    timeout: u8,
    /// MiB by which the segment grows: an even number up to 1024.
    #[arg(long, default_value_t = 20, value_parser = in_range::<u64>(2..=1024))]
    step_mib: u64,
    /// Steps by which it grows: 4 to 1024, and 64 GiB at most.
    #[arg(long, default_value_t = 9, value_parser = in_range::<u64>(4..=1024))]
    steps: u64,
    /// Bytes of each tensor: 8 to 16384.
    #[arg(long, default_value_t = 16384, value_parser = in_range::<u64>(8..=16384))]
    tensor_bytes: u64,
    /// Generations of views that are kept: 0 to 16.
    #[arg(long, default_value_t = 3, value_parser = in_range::<u64>(0..=16))]
    keep: u64,
    /// Seconds that anything may take: 1 to 86400.
    #[arg(long, default_value_t = 10, value_parser = in_range::<u64>(1..=86400))]
    patience: u64,
}

/// What was done, and what was not as it must be.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    /// Bytes that the peer wrote and read back.
    bytes: u64,
    /// Bytes, counts and answers that were not what they must be.
    wrong: u64,
}

impl Report {
    /// Counts a promise that was not kept, and says which.
    fn hold(&mut self, kept: bool, promise: std::fmt::Arguments<'_>) {
        if !kept {
            self.wrong += 1;
            say!("WRONG: {promise}");
        }
    }
}

/// What the allocator's part goes by.
struct Run<'a> {
    options: &'a Options,
    scene: &'a scene::Scene,
    peer: peer::Peer,
    report: Report,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(options.step_mib.is_multiple_of(2), "--step-mib {}: a GPU maps units of 2 MiB", options.step_mib);
    ensure!(options.steps * options.step_mib <= 64 << 10, "--steps times --step-mib is more than 64 GiB");
    let (scene, peer_end) = scene::Scene::new(&options)?;
    let report = std::thread::scope(|scope| {
        let (orders, incoming) = peer::orders();
        let writing = scope.spawn(|| peer::write(&options, peer_end, incoming));
        let peer = peer::Peer::new(orders, &options);
        let mut run = Run { options: &options, scene: &scene, peer, report: Report::default() };
        let done = growth::grow(&mut run).and_then(|grown| reuse::reuse(&mut run, grown));
        let Run { peer, mut report, .. } = run;
        // The thread ends when nobody gives it orders any more. Its error is told before one that follows from it.
        drop(peer);
        let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        report.bytes += written.bytes;
        report.wrong += written.wrong;
        done.map(|()| report)
    })?;
    let leaked = scene.close()?;
    let Report { bytes, wrong } = report;
    say!("result bytes={bytes} wrong={wrong} leaked={leaked}");
    ensure!(
        wrong == 0 && leaked == 0,
        "{wrong} bytes and promises were wrong, and {leaked} objects and bytes were left"
    );
    Ok(())
}

impl Options {
    fn step_bytes(&self) -> u64 {
        self.step_mib << 20
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    fn wait(&self) -> Wait<'static> {
        Wait::at_most(self.patience()).relax(Relax::SpinThenYield(64))
    }

    fn gid(&self) -> GidPolicy {
        self.gid_index.map_or(GidPolicy::RoceV2Global, GidPolicy::Index)
    }
}
