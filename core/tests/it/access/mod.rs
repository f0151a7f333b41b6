//! The access lock: its transitions beside a slow twin, and the spinning form under threads.

mod line;
mod queues;
mod sequences;
mod state;
mod twin;
