//! What is mapped side by side: the allocation at an address, the run of mappings around it, and those under a range.
//!
//! An allocator's segment that grows is found by walking from mapping to mapping, so nobody has to ask the allocator. The walk
//! must not run into a neighbour that is another allocation: only growing memory is walked, and only to more of its kind.

use bareverbs_core::cuda::CuResult;
use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::Ordinal;

use super::driver::CudaDriver;
use super::error::CudaError;
use crate::memory::Location;

/// The most mappings that [`CudaDriver::extent`] walks: 512 GiB in the smallest of 2 MiB, and an end to a driver that has none.
pub const MAX_MAPPINGS: usize = 1 << 18;

/// What mappings of growing memory are multiples of, bytes.
const GRANULE_BYTES: u64 = 2 << 20;

/// The run of memory around an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Its addresses.
    pub range: AddressRange,
    /// The device whose memory it is.
    pub ordinal: Ordinal,
    /// Whether it can grow in place: mappings of a reservation. An allocation, of a pool or not, cannot.
    pub expandable: bool,
    /// Why it does not begin lower.
    pub below: Edge,
    /// Why it does not end higher.
    pub above: Edge,
}

/// Why a run of memory ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edge {
    /// It is one allocation, which ends there. What is beside it was not asked for.
    Allocation,
    /// Nothing is mapped there.
    Unmapped,
    /// Another device's memory.
    OtherDevice,
    /// Memory of another kind: not growing, or not a device's.
    OtherKind,
    /// A mapping that is no multiple of 2 MiB.
    OddMapping,
    /// As many mappings were walked as was allowed. What comes next was not asked for.
    Limit,
    /// The address space ends there.
    AddressSpace,
}

/// One allocation, or one mapping of growing memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// Its addresses.
    pub range: AddressRange,
    /// The driver's id of it: see [`CudaDriver::buffer_id`].
    pub buffer_id: u64,
}

/// How memory came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Allocated in a context.
    Plain,
    /// Allocated from a pool.
    Pool,
    /// Mapped into a reservation.
    Growing,
}

impl CudaDriver {
    /// The allocation or mapping that holds an address. Of growing memory that is one mapping of many.
    ///
    /// # Errors
    /// [`CudaError::Unmapped`]; others.
    #[doc(alias = "cuMemGetAddressRange")]
    pub fn allocation(&self, address: u64) -> Result<AddressRange, CudaError> {
        let _current = self.make_current(address).map_err(|error| unmapped(error, address))?;
        self.mapping_at(address)
    }

    /// The run of device memory around an address: the allocation that holds it, or of growing memory all mappings side by side.
    ///
    /// A walk of growing memory ends where nothing is mapped, at another device's memory, at memory of another kind, at a
    /// mapping that is no multiple of 2 MiB, and after [`MAX_MAPPINGS`].
    ///
    /// # Errors
    /// [`CudaError::NotDevice`], [`CudaError::Managed`], [`CudaError::Unmapped`] if it is freed meanwhile; others.
    pub fn extent(&self, address: u64) -> Result<Extent, CudaError> {
        self.extent_of_at_most(address, MAX_MAPPINGS)
    }

    /// As [`extent`](Self::extent), with a limit of one's own; upwards first, then downwards with what is left of it.
    ///
    /// # Errors
    /// As [`extent`](Self::extent).
    pub fn extent_of_at_most(&self, address: u64, mappings: usize) -> Result<Extent, CudaError> {
        let ordinal = self.device_of(address)?;
        let _current = self.make_current(address).map_err(|error| unmapped(error, address))?;
        let first = self.mapping_at(address)?;
        let expandable = self.kind_of(address)? == Kind::Growing && is_whole_granules(first);
        if !expandable {
            let (below, above) = (Edge::Allocation, Edge::Allocation);
            return Ok(Extent { range: first, ordinal, expandable, below, above });
        }
        let mut walk = Walk { driver: self, ordinal, run: first, left: mappings.saturating_sub(1) };
        let above = walk.up()?;
        let below = walk.down()?;
        Ok(Extent { range: walk.run, ordinal, expandable, below, above })
    }

    /// Calls `each` with every mapping that touches a range, in order of address.
    ///
    /// # Errors
    /// [`CudaError::Hole`] where something of the range is not mapped, after `each` saw what lies before it; others.
    pub fn mappings(&self, range: AddressRange, mut each: impl FnMut(Mapping)) -> Result<(), CudaError> {
        if range.is_empty() {
            return Ok(());
        }
        let _current =
            self.make_current(range.base()).map_err(|error| hole_of(range, unmapped(error, range.base())))?;
        self.walk(range, |mapping| {
            let address = mapping.base().max(range.base());
            let buffer_id = self.buffer_id(address)?.ok_or(CudaError::Hole { range, address })?;
            each(Mapping { range: mapping, buffer_id });
            Ok(())
        })
    }

    /// Calls `each` with every mapping that touches a range of a byte at least, in order, in the context that is current.
    pub(super) fn walk(
        &self,
        range: AddressRange,
        mut each: impl FnMut(AddressRange) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let mut next = Some(range.base());
        while let Some(address) = next {
            let mapping = self.mapping_at(address).map_err(|error| hole_of(range, error))?;
            if address != range.base() && mapping.base() != address {
                return Err(misfit(address, mapping));
            }
            each(mapping)?;
            next = mapping.end().filter(|end| range.offset_of(*end).is_some());
        }
        Ok(())
    }

    /// The allocation or mapping at an address, in the context that is current.
    pub(super) fn mapping_at(&self, address: u64) -> Result<AddressRange, CudaError> {
        let (base, len_bytes) = self.calls.address_range(address).map_err(|error| unmapped(error, address))?;
        let range = AddressRange::new(base, len_bytes).ok().filter(|range| range.offset_of(address).is_some());
        range.ok_or(CudaError::Mapping { address, base, len_bytes })
    }

    /// Whether the memory at an address of a range is growing memory.
    pub(super) fn grows(&self, range: AddressRange, address: u64) -> Result<bool, CudaError> {
        self.kind_of(address).map(|kind| kind == Kind::Growing).map_err(|error| hole_of(range, error))
    }

    fn kind_of(&self, address: u64) -> Result<Kind, CudaError> {
        let of_pool = |address| self.calls.is_of_pool(address);
        let kind = match self.calls.context_of(address) {
            Ok(context) if context.is_some() => Ok(Kind::Plain),
            Ok(_) => of_pool(address).map(|of_pool| if of_pool { Kind::Pool } else { Kind::Growing }),
            Err(error) => Err(error),
        };
        kind.map_err(|error| unmapped(error, address))
    }
}

/// What is not mapped, seen from a range.
fn hole_of(range: AddressRange, error: CudaError) -> CudaError {
    match error {
        CudaError::Unmapped { address } => CudaError::Hole { range, address },
        other => other,
    }
}

/// A failed query by which the driver says that it knows no memory there.
fn unmapped(error: CudaError, address: u64) -> CudaError {
    match error.result() {
        Some(CuResult::NOT_FOUND | CuResult::INVALID_VALUE) => CudaError::Unmapped { address },
        _ => error,
    }
}

fn is_whole_granules(range: AddressRange) -> bool {
    range.base().is_multiple_of(GRANULE_BYTES) && range.len_bytes().is_multiple_of(GRANULE_BYTES)
}

/// A walk from mapping to mapping of growing memory, in the context that is current.
struct Walk<'driver> {
    driver: &'driver CudaDriver,
    ordinal: Ordinal,
    run: AddressRange,
    left: usize,
}

impl Walk<'_> {
    fn up(&mut self) -> Result<Edge, CudaError> {
        loop {
            let Some(address) = self.run.end() else { return Ok(Edge::AddressSpace) };
            match self.step(address)? {
                Ok(next) if next.base() == address => self.take(self.run.base(), next)?,
                Ok(next) => return Err(misfit(address, next)),
                Err(edge) => return Ok(edge),
            }
        }
    }

    fn down(&mut self) -> Result<Edge, CudaError> {
        loop {
            let Some(address) = self.run.base().checked_sub(1) else { return Ok(Edge::AddressSpace) };
            match self.step(address)? {
                Ok(next) if next.last() == Some(address) => self.take(next.base(), next)?,
                Ok(next) => return Err(misfit(address, next)),
                Err(edge) => return Ok(edge),
            }
        }
    }

    /// Takes in a mapping beside the run, which starts at `base` then.
    fn take(&mut self, base: u64, next: AddressRange) -> Result<(), CudaError> {
        // Both may make up all 2^64 bytes, which are no range.
        let len_bytes = self.run.len_bytes().checked_add(next.len_bytes());
        let run = len_bytes.and_then(|len_bytes| AddressRange::new(base, len_bytes).ok());
        self.run = run.ok_or_else(|| misfit(next.base(), next))?;
        self.left -= 1;
        Ok(())
    }

    /// The mapping at an address if it goes on there, else why not.
    fn step(&self, address: u64) -> Result<Result<AddressRange, Edge>, CudaError> {
        if self.left == 0 {
            return Ok(Err(Edge::Limit));
        }
        match self.next(address) {
            // What goes between two questions is not there.
            Err(CudaError::Unmapped { .. }) => Ok(Err(Edge::Unmapped)),
            other => other,
        }
    }

    fn next(&self, address: u64) -> Result<Result<AddressRange, Edge>, CudaError> {
        let mapping = self.driver.mapping_at(address)?;
        match self.driver.location(address).map_err(|error| unmapped(error, address))? {
            Location::Device { ordinal } if ordinal == Some(self.ordinal.0) => {}
            Location::Device { .. } => return Ok(Err(Edge::OtherDevice)),
            _ => return Ok(Err(Edge::OtherKind)),
        }
        if self.driver.kind_of(address)? != Kind::Growing {
            return Ok(Err(Edge::OtherKind));
        }
        Ok(if is_whole_granules(mapping) { Ok(mapping) } else { Err(Edge::OddMapping) })
    }
}

/// A mapping that does not go with what else the driver says.
pub(super) fn misfit(address: u64, mapping: AddressRange) -> CudaError {
    CudaError::Mapping { address, base: mapping.base(), len_bytes: mapping.len_bytes() }
}
