//! The shell from outside: one binary for all of it.

mod access_lock;
mod drop_log;
mod every_call_refused;
mod ledger;
mod life;
mod soft;
mod world;
