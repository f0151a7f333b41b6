//! What `bareverbs-core` decides, seen from outside: one binary for all of it.

mod access;
mod link;
mod one_sided;
mod segments;
