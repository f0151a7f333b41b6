//! What can reach a panic, each in another way: none of these may link.

use crate::exported;

exported! {
    /// Out of bounds.
    fn control_index(bytes: &&[u8], at: usize) -> u8 { bytes[at] }

    /// A division by nothing.
    fn control_division(dividend: u32, divisor: u32) -> u32 { dividend / divisor }

    /// An option that is none, met behind calls that are not inlined.
    fn control_unwrap(range: &bareverbs_core::range::AddressRange, offset: u64) -> u64 { deep(range, offset) }
}

#[inline(never)]
fn deep(range: &bareverbs_core::range::AddressRange, offset: u64) -> u64 {
    range.offset_of(offset).unwrap()
}
