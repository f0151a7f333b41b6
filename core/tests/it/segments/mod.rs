//! Chunks, windows, growth, the table and reconcile together, as a caller without the shell uses them.

mod bounds;
mod cases;
mod device;
mod growth;
mod reconcile;
mod stale_plans;
mod worked_values;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{Alignment, ChunkLimits, EntryCap, LengthSum, WindowLimits};

/// 2 MiB.
const M: u64 = 2 << 20;
/// The longest region.
const MAX: u64 = 4_292_870_144;
const BASE: u64 = 0x10_0000_0000;

fn range(base: u64, len_bytes: u64) -> AddressRange {
    AddressRange::new(base, len_bytes).unwrap()
}

fn gpu_limits(cap: u16, sum: LengthSum) -> WindowLimits {
    WindowLimits::new(ChunkLimits::GPU, EntryCap::new(cap).unwrap(), sum).unwrap()
}

/// Regions of at most `max_bytes` bytes, in units of one byte.
fn tiny_limits(max_bytes: u64, cap: u16) -> WindowLimits {
    let chunk = ChunkLimits::new(Alignment::new(1).unwrap(), max_bytes).unwrap();
    WindowLimits::new(chunk, EntryCap::new(cap).unwrap(), LengthSum::Bits64).unwrap()
}
