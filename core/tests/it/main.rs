//! What `bareverbs-core` promises, from outside.

mod access;
