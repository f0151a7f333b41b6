//! Integration tests of the core, one binary.
#![allow(unsafe_code, missing_docs, reason = "the tests play the provider and the device")]

mod link;
