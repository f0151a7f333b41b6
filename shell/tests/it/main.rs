//! The shell from outside: one binary for all of it.

mod checked_messages;
mod access_lock;
mod drop_log;
mod every_call_refused;
mod layout_check;
mod ledger;
mod life;
mod provider_answers;
mod soft;
mod world;
mod wrapped;
