//! The access lock: its transitions beside a slow twin, and the spinning form under threads.

mod hooked;
mod line;
mod queues;
mod scenarios;
mod sequences;
mod spin;
mod state;
mod twin;
