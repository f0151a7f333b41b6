//! The message link over a provider that the tests play.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::forget_non_drop,
    clippy::drop_non_drop,
    reason = "the tests play the provider and the device, and forget handles to see that nothing comes of it"
)]

mod carriers;
mod credits;
mod memory;
mod posting;
pub(crate) mod provider;
mod receiving;
mod sequence;
mod teardown;
mod twin;
