//! The only seam between the shell and the outside: tables of C entry points.
//!
//! The system's library fills a [`Symbols`] by `dlopen` ([`system`]); the software fabric fills one with its own
//! `extern "C"` functions ([`crate::soft`]); tests wrap either. Nothing else in the shell knows which it is.

pub mod system;
pub mod verbs;

pub use verbs::{SymbolTable, Symbols};
