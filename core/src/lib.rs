//! The half of bareverbs that decides.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod access;
pub mod connect;
pub mod layout;
pub mod link;
pub mod range;
pub mod segments;
pub mod teardown_order;
pub mod verbs;
