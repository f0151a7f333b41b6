//! Verbs called raw, with the owner's duties left to the test: what the shell's own objects never let happen can be done
//! here.

mod calls;
mod ends;
mod probes;
mod requests;

pub use calls::{Env, clear_errno, device_names, errno, poll_raw};
pub use ends::{CAP, End, INIT_MASK, Moved, RTR_MASK, RTS_MASK, connect, init_attr, pair, rtr_attr, rts_attr, uc};
pub use probes::*;
pub use requests::{gather, post_recv, post_send, receive, scatter, send, send_imm};
