//! Bytes of a peer's own.
//!
//! # Safety
//!
//! Bytes are written here only while no operation on them is outstanding; the machine sees to that.
#![allow(unsafe_code)]

use bareverbs_shell::memory::LocalMemory;

/// Writes the first bytes; no operation on them is outstanding.
pub fn put(memory: &LocalMemory, bytes: &[u8]) {
    // SAFETY: no operation on them is outstanding, as the caller has seen.
    unsafe { memory.write_at(0, bytes) }.expect("they fit");
}
