//! The shell's integration tests, one binary.

mod checked_messages;
mod drop_log;
mod every_call_refused;
mod layout_check;
mod ledger;
mod life;
mod provider_answers;
mod soft;
mod world;
mod wrapped;
