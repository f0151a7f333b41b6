//! Local memory.

pub mod pages;
