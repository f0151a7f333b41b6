//! The shell's integration tests, one binary.

mod exchange;
mod soft;
