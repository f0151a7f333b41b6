//! The other end is rdma-core's `ibv_uc_pingpong` or `ibv_rc_pingpong` (seen with version 44).
//!
//! What they say over TCP, as traced:
//!
//! | who | what |
//! |---|---|
//! | client | its address, 52 bytes ([`tool_address`](bareverbs_examples::tool_address)) |
//! | server | connects its queue pair, then the same of its own |
//! | client | `done` and a NUL, 5 bytes, and then connects its queue pair |
//!
//! They read with one call each, so a message must go out in one piece, and nothing after it. Then they close.
//!
//! The client begins. Each end keeps one buffer for what it sends and what it receives, so a tool answers with what it was
//! sent: that is how we check. As a server we cannot know what the first message holds but by the tool's source, where a
//! client's buffer is filled with `0x7b`; all others are what we sent before. So with a tool one message is under way at a
//! time: with more, a tool's buffer holds what came last, and not what it answers.
//!
//! Defaults of theirs that both ends must have alike: size 4096, 1000 iterations, MTU 1024. A GID index (`-g`) must be
//! given to them on Ethernet.

use std::time::Duration;

use anyhow::{Context, ensure};
use bareverbs_core::connect::Destination;
use bareverbs_core::link::Raw;
use bareverbs_core::verbs::Mtu;
use bareverbs_examples::say;
use bareverbs_examples::tool_address::{self, ADDRESS_BYTES};
use bareverbs_shell::exchange::{Channel, Listener};

use crate::rounds::{self, Payloads, Report, Way};
use crate::timed::{Deadline, Timed};
use crate::{End, Options, Role, with_option};

/// The tools' path MTU.
pub(crate) const MTU: Mtu = Mtu::B1024;
/// What a tool's client fills its buffer with.
const FIRST_BYTE: u8 = 0x7b;
const DONE: &[u8; 5] = b"done\0";

/// Connects to a tool and runs the rounds with it. All that is said over TCP, the tool's coming included, has one deadline.
pub(crate) fn run<const N: usize>(options: &Options, end: &mut End<Raw, N>, role: Role) -> anyhow::Result<Report> {
    let terms = options.terms();
    let deadline = Deadline::after(terms.limit);
    let (channel, remote) = match role {
        Role::Server => {
            let listener = Listener::bind(options.listen_at(), &terms).map_err(with_option)?;
            let channel = listener.accept(terms.limit)?;
            let tool = Timed::new(&channel, "the client", deadline);
            let remote = receive_address(&tool)?;
            // Before the answer: the client begins as soon as it has it.
            end.connect(&remote, end.path_mtu())?;
            tool.send(&tool_address::write(&end.destination()), "our address")?;
            let mut done = [0; DONE.len()];
            tool.receive(&mut done, "its last word")?;
            ensure!(done == *DONE, "the client says {done:02x?} where \"done\" is due");
            (channel, remote)
        }
        Role::Client => {
            let channel = Channel::connect(&options.server_addresses()?, &terms).map_err(with_option)?;
            let tool = Timed::new(&channel, options.client.as_deref().unwrap_or("the server"), deadline);
            tool.send(&tool_address::write(&end.destination()), "our address")?;
            let remote = receive_address(&tool)?;
            tool.send(DONE, "our last word")?;
            end.connect(&remote, end.path_mtu())?;
            (channel, remote)
        }
    };
    say!("{role:?}: {} to {remote} at {}", end.destination(), channel.address());
    let report = play(options, end, role)?;
    // The tools have no last word: this gives the device time to answer theirs before its queue pair goes.
    std::thread::sleep(Duration::from_millis(100));
    Ok(report)
}

/// The rounds with somebody who sends back what it got.
fn play<const N: usize>(options: &Options, end: &mut End<Raw, N>, role: Role) -> anyhow::Result<Report> {
    let payloads = Payloads::new(options.size, options.payload);
    let ours = if role == Role::Client { Way::There } else { Way::Back };
    rounds::run(
        options,
        end,
        role,
        |buffer, way, number| payloads.fill(buffer, way, number),
        |came, way, number| match way {
            // The answer to this very message.
            Way::Back => payloads.check(came, ours, number),
            Way::There if number == 0 => {
                let checked = payloads.checked_bytes().min(came.len());
                let expected = came.len() == options.size && came[..checked].iter().all(|byte| *byte == FIRST_BYTE);
                ensure!(expected, "the first message is not {} bytes of {FIRST_BYTE:#04x}", options.size);
                Ok(())
            }
            // What we answered the one before with.
            Way::There => payloads.check(came, ours, number - 1),
        },
    )
}

fn receive_address(tool: &Timed<'_>) -> anyhow::Result<Destination> {
    let mut bytes = [0; ADDRESS_BYTES];
    tool.receive(&mut bytes, "its address")?;
    tool_address::parse(&bytes).with_context(|| format!("{:?} is no address", String::from_utf8_lossy(&bytes)))
}
