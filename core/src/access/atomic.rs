//! What the access lock asks of an atomic word, so that a model checker's can stand in for the machine's.

use core::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit atomic.
///
/// The methods are those of [`AtomicU32`], and mean the same.
pub trait AtomicWord {
    /// [`AtomicU32::load`].
    fn load(&self, order: Ordering) -> u32;

    /// [`AtomicU32::compare_exchange_weak`].
    ///
    /// # Errors
    /// The value found, if it was not `current` or for no reason.
    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32>;

    /// [`AtomicU32::fetch_sub`].
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32;
}

impl AtomicWord for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline]
    fn compare_exchange_weak(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        self.compare_exchange_weak(current, new, success, failure)
    }

    #[inline]
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_sub(value, order)
    }
}
