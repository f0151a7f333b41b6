//! Verbs called raw, with the owner's duties left to the test: what the shell's own objects never let happen can be done
//! here.
#![allow(dead_code, reason = "two binaries share this, and each uses a part of it")]
#![allow(unused_imports, reason = "as above")]

mod calls;
pub mod channels;
#[cfg(target_os = "linux")]
pub mod cuda;
pub mod dma_buf;
mod ends;
pub mod keys;
pub mod on_soft;
pub mod one_sided;
mod probes;
pub mod reliable;
mod requests;

pub use calls::{Env, clear_errno, device_names, errno, poll_raw};
pub use ends::{
    CAP, End, INIT_MASK, MEMORY, Moved, RTR_MASK, RTS_MASK, connect, init_attr, pair, rtr_attr, rts_attr, uc,
};
pub use probes::*;
pub use requests::{Request, gather, post_recv, post_send, receive, scatter, send, send_imm};
