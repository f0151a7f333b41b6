//! Two ends come to be connected, or both say why not.
//!
//! On the software fabric, in one process: two threads, or one thread and a peer that a test plays byte by byte.

mod bad_listeners;
mod bad_peers;
mod last_words;
mod meeting;
mod mismatches;
mod reach;
mod reliable;
pub mod scene;
