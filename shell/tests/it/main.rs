//! The shell from outside: one binary for all of it.

mod access_lock;
mod soft;
