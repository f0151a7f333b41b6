//! Where the software fabric answers otherwise than soft-RoCE, on purpose.
//!
//! Each is a row of the table in the software fabric's documentation, and is asserted on both sides by some case.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libtest_mimic::Failed;

use crate::raw::Env;

/// On which side of a difference a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Soft,
    Device,
}

macro_rules! differences {
    ($($name:ident { what: $what:literal, soft: $soft:literal, device: $device:literal, why: $why:literal })*) => {
        /// A difference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Difference {
            $($name),*
        }

        impl Difference {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// What is asked, what the software fabric answers, what soft-RoCE answers, and why they differ.
            const fn row(self) -> [&'static str; 4] {
                match self {
                    $(Self::$name => [$what, $soft, $device, $why]),*
                }
            }
        }
    };
}

differences! {
    WrongKey {
        what: "a send whose lkey is wrong",
        soft: "`LOC_PROT_ERR`",
        device: "`LOC_QP_OP_ERR`",
        why: "hardware says so"
    }
    UnreliableTooLong {
        what: "a UC message longer than the receive",
        soft: "receiver `LOC_LEN_ERR`",
        device: "receiver `LOC_QP_OP_ERR`",
        why: "hardware says so"
    }
    ReliableTooLong {
        what: "an RC message longer than the receive",
        soft: "receiver `LOC_LEN_ERR`, sender `REM_INV_REQ_ERR`",
        device: "receiver `LOC_QP_OP_ERR`, sender `REM_OP_ERR`",
        why: "hardware says so"
    }
    SevenRetries {
        what: "an RC send that nobody answers, `retry_cnt` 7",
        soft: "`RETRY_EXC_ERR` after 8 tries",
        device: "is tried for ever",
        why: "the InfiniBand specification has 7 retries; for ever is `rnr_retry` 7 alone"
    }
    Third {
        what: "an RC message from a third queue pair of the device, with the packet number that is due",
        soft: "is not heard",
        device: "is taken for the connected one's",
        why: "packets do not name their sender; other numbers are not heard there either"
    }
    LongerThanThePort {
        what: "a message longer than the port's `max_msg_sz`",
        soft: "`LOC_LEN_ERR`",
        device: "goes out",
        why: "hardware says so"
    }
    Refusals {
        what: "a one-sided operation that an RC responder refuses",
        soft: "its owner is told: `QP_ACCESS_ERR` or `QP_REQ_ERR`",
        device: "no event",
        why: "the InfiniBand specification tells it, and nothing else does where no receive is posted"
    }
    Answers {
        what: "`max_dest_rd_atomic` of 129",
        soft: "22 (EINVAL)",
        device: "granted",
        why: "the device says 128: hardware refuses it"
    }
    DmaBuf {
        what: "a region over a dma-buf",
        soft: "granted; any file that can be mapped serves",
        device: "95 (EOPNOTSUPP)",
        why: "hardware has it, and GPU memory needs it"
    }
    FailedSendSolicits {
        what: "a failed send, its queue armed for solicited completions",
        soft: "makes an event",
        device: "makes none",
        why: "the InfiniBand specification counts failed completions as solicited"
    }
    Unacknowledged {
        what: "`ibv_destroy_cq` with an event fetched and not acknowledged",
        soft: "16 (EBUSY), and noted as misuse",
        device: "blocks until it is acknowledged",
        why: "a test must not hang"
    }
    Resumed {
        what: "sends held while draining (SQD), back in RTS",
        soft: "go out",
        device: "wait for the next post",
        why: "the InfiniBand specification resumes them"
    }
    TriedWhileDraining {
        what: "an RC send that found no receive, its queue draining (SQD)",
        soft: "is tried on; then it is drained",
        device: "is held, and it is drained at once",
        why: "the InfiniBand specification finishes what was begun"
    }
    DrainedUnasked {
        what: "a send queue that is drained without `EN_SQD_ASYNC_NOTIFY`",
        soft: "no event",
        device: "`SQ_DRAINED`",
        why: "the InfiniBand specification tells who asked for it"
    }
    NoRoute {
        what: "RTR towards a GID to which no route leads",
        soft: "110 (ETIMEDOUT)",
        device: "19 (ENODEV)",
        why: "no routes in one process: it is as one that does not answer"
    }
    RefusedPost {
        what: "`bad_wr` of a post in the wrong state (22)",
        soft: "names the request",
        device: "null",
        why: "what was accepted is known here"
    }
    LateReceive {
        what: "a receive posted in the error state",
        soft: "is flushed",
        device: "is flushed after one more move to the error state",
        why: "the InfiniBand specification flushes it"
    }
    Unsignalled {
        what: "a queue whose sends are never signalled",
        soft: "fills up: 12 (ENOMEM)",
        device: "never fills",
        why: "hardware fills up: a slot is free when a later completion was polled"
    }
    EmptyRegion {
        what: "a region of no bytes",
        soft: "22 (EINVAL)",
        device: "22 at a page's start, granted within a page",
        why: "it can be of no use"
    }
    ReceiveDepth {
        what: "receives that a queue of 16 takes",
        soft: "16",
        device: "more",
        why: "depth is what was granted: relying on more fails elsewhere"
    }
}

/// Differences asserted so far, a bit each, by side.
static ASSERTED: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

impl Difference {
    /// What is right on this side, which the caller asserts.
    pub fn by_side<T>(self, env: &Env, soft: T, device: T) -> T {
        let side = if env.strict { Side::Soft } else { Side::Device };
        ASSERTED[side as usize].fetch_or(1 << self as u32, Relaxed);
        if env.strict { soft } else { device }
    }
}

/// What no case asserted on sides that were run.
pub fn not_asserted(sides: &[Side]) -> Vec<(Side, Difference)> {
    let missing = |side: Side| {
        let asserted = ASSERTED[side as usize].load(Relaxed);
        Difference::ALL.iter().filter(move |it| asserted >> **it as u32 & 1 == 0).map(move |it| (side, *it))
    };
    sides.iter().flat_map(|side| missing(*side)).collect()
}

/// Whether the documentation's table is this one.
pub fn are_documented() -> Result<(), Failed> {
    const DOCUMENTED: &str = include_str!("../../src/soft/differences.md");
    let mut table = String::from("| what | software fabric | soft-RoCE | why |\n|---|---|---|---|\n");
    for [what, soft, device, why] in Difference::ALL.iter().map(|it| it.row()) {
        writeln!(table, "| {what} | {soft} | {device} | {why} |").expect("a string takes all");
    }
    if DOCUMENTED == table { Ok(()) } else { Err(format!("it should be:\n{table}").into()) }
}
