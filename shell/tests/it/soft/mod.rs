//! The software fabric, through the table of entry points that it supplies.
//!
//! `conformance` says what any fabric must do, and can run on a real device; the others say what this one adds.

mod adversary;
mod conformance;
mod faults;
mod misuse;
mod on_soft;
mod raw;
mod thunderbolt;
mod worlds;
