//! Everything that one stand-in holds, behind one lock, and the stand-ins of this process.
//!
//! The driver's calls are given no handle that could say which stand-in is meant, so each slot has entry points of its own
//! ([`super::slots`]). A slot is used again when the control handle and the table are gone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bareverbs_core::cuda::CuResult;

use super::config::{CudaConfig, CudaError, SoftGpu};
use super::contexts::Contexts;
use super::memory::AddressSpace;
use super::record::{CudaCall, CudaPlan, CudaRecord};
use crate::soft::exports::PhysicalMemory;

/// Stand-ins that one process can have at once.
pub(super) const SLOTS: usize = 64;

/// How far the driver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    NotInitialised,
    Running,
    ShuttingDown,
}

#[derive(Debug)]
pub(super) struct CudaState {
    /// Which stand-in of all that this process ever had.
    pub number: u64,
    pub config: CudaConfig,
    pub phase: Phase,
    pub gpus: Vec<Arc<PhysicalMemory>>,
    pub space: AddressSpace,
    pub contexts: Contexts,
    pub plan: CudaPlan,
    pub record: CudaRecord,
    /// Copies to a device that have not arrived.
    pub pending: Vec<(u64, Vec<u8>)>,
    /// The name of the table: as long as somebody holds it, the table may be called.
    library: Arc<str>,
    abandoned: bool,
}

static STATES: [Mutex<Option<Box<CudaState>>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];

fn lock(slot: u32) -> Option<MutexGuard<'static, Option<Box<CudaState>>>> {
    Some(STATES.get(slot as usize)?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `action` on the stand-in in a slot; `None` where there is none.
pub(super) fn with<R>(slot: u32, action: impl FnOnce(&mut CudaState) -> R) -> Option<R> {
    Some(action(lock(slot)?.as_deref_mut()?))
}

/// Takes a free slot.
pub(super) fn claim(config: &CudaConfig, library: &Arc<str>) -> Result<u32, CudaError> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let no_memory = |errno| CudaError::NoMemory { errno };
    let memory = |gpu: &SoftGpu| PhysicalMemory::new(gpu.memory_bytes);
    for slot in 0..SLOTS as u32 {
        let Some(mut world) = lock(slot) else { continue };
        if world.as_ref().is_some_and(|state| state.is_over()) {
            *world = None;
        }
        if world.is_none() {
            let gpus = config.gpus.iter().map(memory).collect::<Result<Vec<_>, _>>().map_err(no_memory)?;
            *world = Some(Box::new(CudaState {
                number: NEXT.fetch_add(1, Relaxed),
                phase: if config.initialised { Phase::Running } else { Phase::NotInitialised },
                contexts: Contexts::new(gpus.len()),
                gpus,
                space: AddressSpace::default(),
                plan: CudaPlan::default(),
                record: CudaRecord::new(config.record),
                pending: Vec::new(),
                config: config.clone(),
                library: Arc::clone(library),
                abandoned: false,
            }));
            return Ok(slot);
        }
    }
    Err(CudaError::TooMany { limit: SLOTS })
}

/// Says that a stand-in's control handle is gone.
pub(super) fn abandon(slot: u32) {
    let Some(mut world) = lock(slot) else { return };
    if let Some(state) = world.as_deref_mut() {
        state.abandoned = true;
        if state.is_over() {
            *world = None;
        }
    }
}

/// What a call is about, for the record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Subject {
    pub subject: u64,
    pub size: u64,
}

impl CudaState {
    fn is_over(&self) -> bool {
        self.abandoned && Arc::strong_count(&self.library) == 1
    }

    /// What every call but `cuInit` answers before anything else.
    fn hindrance(&self) -> Option<CuResult> {
        match self.phase {
            Phase::NotInitialised => Some(CuResult::NOT_INITIALIZED),
            Phase::ShuttingDown => Some(CuResult::DEINITIALIZED),
            Phase::Running => None,
        }
    }

    /// Makes a call: asks the plan, then runs, then records.
    pub(super) fn call<R>(
        &mut self,
        symbol: &'static str,
        about: Subject,
        needs_init: bool,
        run: impl FnOnce(&mut Self) -> Result<R, CuResult>,
    ) -> Result<R, CuResult> {
        let hindrance = if needs_init { self.hindrance() } else { None };
        let outcome = match self.plan.on_call(symbol).or(hindrance) {
            Some(answer) => Err(answer),
            None => run(self),
        };
        let result = outcome.as_ref().err().copied().unwrap_or(CuResult::SUCCESS);
        self.record.add(CudaCall { number: 0, symbol, subject: about.subject, size: about.size, result });
        outcome
    }

    pub(super) fn gpu(&self, ordinal: i32) -> Result<&SoftGpu, CuResult> {
        let gpu = usize::try_from(ordinal).ok().and_then(|ordinal| self.config.gpus.get(ordinal));
        gpu.ok_or(CuResult::INVALID_DEVICE)
    }
}
