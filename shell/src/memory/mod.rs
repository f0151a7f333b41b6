//! Local memory.
