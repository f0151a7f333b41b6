//! The shell's integration tests, one binary.

mod drop_log;
mod every_call_refused;
mod ledger;
mod life;
mod soft;
mod world;
