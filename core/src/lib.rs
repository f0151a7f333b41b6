//! The half of bareverbs that decides.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod access;
pub mod range;
pub mod segments;
