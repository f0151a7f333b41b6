//! Carries out a plan: registers what is to be registered, binds fresh keys, takes the rest over.
//!
//! The rule this file protects: **all of a plan, or nothing**. What was there stays as it was until the caller puts the outcome
//! in its place; what was made for a plan that failed goes, keys first. What retires goes with the last view of it.

use std::fmt;
use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{PartSource, Plan};
use bareverbs_core::verbs::AccessFlags;

use crate::objects::MemoryRegion;
use crate::segments::{BindError, Binder, BoundWindow};

/// The keys of a segment, in the order of its windows.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    all: Vec<Arc<BoundWindow>>,
}

impl Windows {
    /// The windows, in order.
    pub fn all(&self) -> &[Arc<BoundWindow>] {
        &self.all
    }

    /// The window with that index.
    pub fn get(&self, index: u32) -> Option<&Arc<BoundWindow>> {
        self.all.get(index as usize)
    }

    /// The regions of all windows, in the order of the segment's parts.
    pub fn regions(&self) -> impl Iterator<Item = &Arc<MemoryRegion>> {
        self.all.iter().flat_map(|window| window.regions())
    }
}

/// Why a plan was not carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CarryOutError<E> {
    /// A range could not be registered; those before it were deregistered.
    Register {
        /// The range.
        range: AddressRange,
        /// Why not.
        error: E,
    },
    /// A key could not be bound; what was registered was deregistered.
    Bind(BindError),
    /// The plan takes over regions or keys that are not there: it was made for another state of the segment.
    Stale {
        /// What is covered now.
        windows: usize,
    },
}

impl<E> From<BindError> for CarryOutError<E> {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

impl<E: fmt::Display> fmt::Display for CarryOutError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register { range, error } => {
                write!(f, "{} bytes at {:#x} were not registered: {error}", range.len_bytes(), range.base())
            }
            Self::Bind(error) => error.fmt(f),
            Self::Stale { windows } => {
                write!(f, "the plan was made for another state of the segment, which has {windows} keys now: plan anew")
            }
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for CarryOutError<E> {}

/// Binds a segment: registers its parts by `register`, and binds a key for each window.
///
/// No lock of the binder's is held while `register` runs.
///
/// # Errors
/// [`CarryOutError`]; nothing is left of what was made.
pub fn bind_segment<E, const W: usize, const P: usize>(
    binder: &Binder,
    access: AccessFlags,
    plan: &Plan<W, P>,
    register: &dyn Fn(AddressRange) -> Result<MemoryRegion, E>,
) -> Result<Windows, CarryOutError<E>> {
    grow(binder, access, plan, &Windows::default(), register)
}

/// Grows a segment that has the keys `old`: the outcome shares those that stay, and the regions of those that retire.
///
/// # Errors
/// [`CarryOutError`]; nothing is left of what was made, and `old` is as it was.
pub fn grow<E, const W: usize, const P: usize>(
    binder: &Binder,
    access: AccessFlags,
    plan: &Plan<W, P>,
    old: &Windows,
    register: &dyn Fn(AddressRange) -> Result<MemoryRegion, E>,
) -> Result<Windows, CarryOutError<E>> {
    let stale = || CarryOutError::Stale { windows: old.all.len() };
    let kept = old.all.get(..plan.kept_windows() as usize).ok_or_else(stale)?;
    let most = plan.fresh_windows().map(|window| window.part_count() as usize).max().unwrap_or(0);
    // Before anything is registered: no region is registered only to be dropped for the cap.
    binder.check_entries(most)?;
    let mut registered = Vec::new();
    for range in plan.to_register() {
        let region = register(range).map_err(|error| CarryOutError::Register { range, error })?;
        registered.push(Arc::new(region));
    }
    let old_regions: Vec<_> = old.regions().collect();
    let mut fresh = registered.iter();
    let mut all = kept.to_vec();
    for window in plan.fresh_windows() {
        let parts = window.parts().map(|part| match part.source {
            PartSource::Register => fresh.next().cloned(),
            PartSource::Reuse(index) => old_regions.get(index as usize).map(|region| Arc::clone(region)),
        });
        let parts = parts.collect::<Option<Vec<_>>>().ok_or_else(stale)?;
        all.push(binder.bind(access, parts, window.range())?);
    }
    Ok(Windows { all })
}
