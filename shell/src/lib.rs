//! The half of bareverbs that does.

pub mod memory;
pub mod soft;
pub mod symbols;
