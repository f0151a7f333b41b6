//! Which memory it is: the driver's buffer id of each mapping.
//!
//! Protects: an address that was freed and mapped anew is other memory. Ids are unique per mapping and never come back, so a
//! mapping whose id is the one asked at binding is the mapping that was bound, whole: mappings come and go as a whole.

use bareverbs_core::range::AddressRange;

use crate::cuda::{CudaDriver, CudaError, Mapping};

/// The mappings of a range, in order and without a gap, with their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    mappings: Vec<Mapping>,
}

impl Identity {
    /// Asks for it: of each mapping that `range` touches.
    ///
    /// # Errors
    /// [`CudaError::Hole`] where something is not mapped, and others.
    pub(super) fn of(cuda: &CudaDriver, range: AddressRange) -> Result<Self, CudaError> {
        let mut mappings = Vec::new();
        cuda.mappings(range, |mapping| mappings.push(mapping))?;
        Ok(Self { mappings })
    }

    /// Whether all of `asked`, which lies within the range, is the memory that it was: one call for each mapping that it touches.
    #[inline]
    pub(super) fn holds(&self, cuda: &CudaDriver, asked: AddressRange) -> bool {
        let first = self.mappings.partition_point(|mapping| mapping.range.last() < Some(asked.base()));
        let touched = self.mappings.iter().skip(first).take_while(|mapping| mapping.range.overlaps(asked));
        touched.fold((true, false), |(holds, _), mapping| {
            // Anywhere in the mapping is as good; within the request is where it matters.
            let at = mapping.range.base().max(asked.base());
            (holds && matches!(cuda.buffer_id(at), Ok(Some(id)) if id == mapping.buffer_id), true)
        }) == (true, true)
    }

    /// Whether all of `part` is in it.
    pub(super) fn includes(&self, part: &Self) -> bool {
        part.mappings.iter().all(|mapping| self.mappings.contains(mapping))
    }

    /// This, and what follows it.
    pub(super) fn then(&self, tail: &Self) -> Self {
        // A mapping at the seam is in both.
        let seam = self.mappings.last().map(|last| last.range);
        let tail = tail.mappings.iter().filter(|mapping| Some(mapping.range) != seam);
        Self { mappings: self.mappings.iter().chain(tail).copied().collect() }
    }
}
