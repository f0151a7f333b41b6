//! The shell's integration tests, one binary.

mod soft;
