//! Credits: two links over a wire that drops what finds no receive, and counts it.

mod bad_grants;
mod streams;
mod wire;
