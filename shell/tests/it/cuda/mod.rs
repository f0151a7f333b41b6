//! What the CUDA driver is asked about memory, over the stand-in.

mod contexts;
mod copies;
mod every_call_fails;
mod exports;
mod extents;
mod model;
mod places;
mod says_nothing;

use bareverbs_core::range::AddressRange;
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda, SoftGpu};

use crate::soft::raw::cuda::Driver;

pub const MIB: u64 = 1 << 20;

/// The stand-in, its table called raw, and what is tested.
pub struct World {
    pub soft: SoftCuda,
    pub raw: Driver,
    pub cuda: CudaDriver,
}

pub fn world(config: CudaConfig) -> World {
    let soft = SoftCuda::new(config.record(4096)).expect("a free slot");
    World { raw: Driver(soft.symbols()), cuda: CudaDriver::with_symbols(soft.symbols()), soft }
}

/// With so many GPUs.
pub fn gpus(count: usize) -> CudaConfig {
    CudaConfig::default().gpus(vec![SoftGpu::default(); count])
}

pub fn range(base: u64, len_bytes: u64) -> AddressRange {
    AddressRange::new(base, len_bytes).expect("a range")
}

impl World {
    /// A segment of mappings of so many MiB on a device, each; its first address.
    pub fn segment(&self, ordinal: i32, mappings_mib: &[u64]) -> u64 {
        let base = self.soft.reserve(ordinal, 1 << 34);
        let mut next = base;
        for len_mib in mappings_mib {
            self.soft.map(next, len_mib * MIB);
            next += len_mib * MIB;
        }
        base
    }

    /// The current context of this thread, and (retained, released) of the first device's primary one.
    pub fn kept(&self) -> (usize, (u64, u64)) {
        (self.raw.current().expect("it can be asked"), self.soft.retained_and_released(0))
    }

    /// The names of the calls made from the `since`th on.
    pub fn calls(&self, since: usize) -> Vec<&'static str> {
        self.soft.record()[since..].iter().map(|call| call.symbol).collect()
    }
}
