//! The handle by which a test plays the application that owns GPU memory, tells the driver things and asks what happened.

use std::sync::Arc;

use bareverbs_core::cuda::CuResult;

use super::config::{CudaConfig, CudaError};
use super::contexts::Contexts;
use super::memory::{Block, GRANULE_BYTES, MemoryKind};
use super::record::CudaCall;
use super::slots;
use super::state::{self, CudaState, Phase};
use crate::soft::exports;
use crate::symbols::CudaSymbols;

/// A CUDA driver in software. Clones control the same one.
///
/// Methods that allocate, map and free play the application: they need no context, are not recorded, and panic where an
/// application would have a bug.
#[derive(Clone, Debug)]
pub struct SoftCuda(Arc<Control>);

#[derive(Debug)]
struct Control {
    // Field order is drop order: the slot last, for a table still held would keep what is in it.
    symbols: Arc<CudaSymbols>,
    slot: Slot,
}

#[derive(Debug)]
struct Slot(u32);

impl Drop for Slot {
    fn drop(&mut self) {
        state::abandon(self.0);
    }
}

impl SoftCuda {
    /// Makes a stand-in.
    ///
    /// # Errors
    /// [`CudaError`]
    pub fn new(config: CudaConfig) -> Result<Self, CudaError> {
        let library: Arc<str> = "CUDA in software".into();
        let slot = state::claim(&config, &library)?;
        let symbols = Arc::new(slots::symbols(slot, library, &config.missing));
        Ok(Self(Arc::new(Control { symbols, slot: Slot(slot) })))
    }

    /// The table of entry points.
    pub fn symbols(&self) -> Arc<CudaSymbols> {
        Arc::clone(&self.0.symbols)
    }

    fn with<R>(&self, action: impl FnOnce(&mut CudaState) -> R) -> R {
        state::with(self.0.slot.0, action).expect("a stand-in lives as long as its control handle")
    }

    /// Allocates plain memory in a device's primary context, which the application holds from then on.
    ///
    /// # Panics
    /// If there is no such device, or its memory is used up.
    pub fn allocate(&self, ordinal: i32, length_bytes: u64) -> u64 {
        self.with(|state| {
            state.hold_primary(ordinal);
            state.allocate(ordinal, Contexts::primary(ordinal), length_bytes, None).expect("memory")
        })
    }

    /// The same at an address of the caller's choice: right behind another allocation, say.
    ///
    /// # Panics
    /// As [`SoftCuda::allocate`], and if something is there.
    pub fn allocate_at(&self, ordinal: i32, address: u64, length_bytes: u64) {
        self.with(|state| {
            state.hold_primary(ordinal);
            let context = Contexts::primary(ordinal);
            state.allocate(ordinal, context, length_bytes, Some(address)).expect("a free address, and memory");
        });
    }

    /// Makes a context that is not the device's primary one.
    pub fn create_context(&self, ordinal: i32) -> usize {
        self.with(|state| state.contexts.create(ordinal))
    }

    /// Destroys a context that [`SoftCuda::create_context`] made, and frees what was allocated in it.
    pub fn destroy_context(&self, context: usize) {
        self.with(|state| {
            state.contexts.destroy(context);
            state.space.end_context(context);
        });
    }

    /// Allocates plain memory in a context.
    ///
    /// # Panics
    /// If there is no such context, or memory is used up.
    pub fn allocate_in(&self, context: usize, length_bytes: u64) -> u64 {
        self.with(|state| {
            let ordinal = state.contexts.usable(context).expect("a context").ordinal;
            state.allocate(ordinal, context, length_bytes, None).expect("memory")
        })
    }

    /// Allocates memory of a pool, which has no context of its own.
    ///
    /// # Panics
    /// If there is no such device, or its memory is used up.
    pub fn allocate_from_pool(&self, ordinal: i32, length_bytes: u64) -> u64 {
        self.with(|state| state.add(ordinal, MemoryKind::Pool, length_bytes, None).expect("memory"))
    }

    /// Allocates managed memory: its address is one of this process too.
    ///
    /// # Panics
    /// If there is no such device, or its memory is used up.
    pub fn allocate_managed(&self, ordinal: i32, length_bytes: u64) -> u64 {
        self.with(|state| {
            state.hold_primary(ordinal);
            state.add_host(ordinal, MemoryKind::Managed { context: Contexts::primary(ordinal) }, length_bytes)
        })
    }

    /// Allocates pinned host memory: its address is one of this process too.
    ///
    /// # Panics
    /// If there is no such device, or its memory is used up.
    pub fn allocate_pinned(&self, ordinal: i32, length_bytes: u64) -> u64 {
        self.with(|state| {
            state.hold_primary(ordinal);
            state.add_host(ordinal, MemoryKind::Pinned { context: Contexts::primary(ordinal) }, length_bytes)
        })
    }

    /// Frees memory by its start; a mapping of growing memory goes by [`SoftCuda::unmap`].
    ///
    /// # Panics
    /// If no allocation starts there.
    pub fn free(&self, address: u64) {
        self.with(|state| state.free(address).expect("an allocation starts there"));
    }

    /// Reserves addresses for memory that grows; nothing is mapped yet.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn reserve(&self, ordinal: i32, length_bytes: u64) -> u64 {
        self.with(|state| {
            state.gpu(ordinal).expect("a device");
            let address = state.space.gap(length_bytes);
            state.space.reserve(ordinal, address, length_bytes);
            address
        })
    }

    /// Maps new memory into a reservation, under a new id, capable of GPUDirect.
    ///
    /// # Panics
    /// If the range is not whole units of 2 MiB inside one reservation, or some of it is mapped, or memory is used up.
    pub fn map(&self, address: u64, length_bytes: u64) {
        self.map_with(address, length_bytes, true);
    }

    /// As [`SoftCuda::map`], with memory that says it is not capable of GPUDirect.
    ///
    /// # Panics
    /// As [`SoftCuda::map`].
    pub fn map_without_gpu_direct(&self, address: u64, length_bytes: u64) {
        self.map_with(address, length_bytes, false);
    }

    fn map_with(&self, address: u64, length_bytes: u64, gpu_direct: bool) {
        assert!(
            length_bytes > 0 && address.is_multiple_of(GRANULE_BYTES) && length_bytes.is_multiple_of(GRANULE_BYTES),
            "mappings are whole units of 2 MiB"
        );
        self.with(|state| {
            let (reservation, ordinal, reserved_bytes) = state.space.reservation(address).expect("a reservation");
            assert!(address + length_bytes <= reservation + reserved_bytes, "the mapping leaves its reservation");
            let kind = MemoryKind::Growing { reservation, reserved_bytes, gpu_direct };
            state.add(ordinal, kind, length_bytes, Some(address)).expect("nothing mapped there, and memory");
        });
    }

    /// Unmaps one mapping by its start. Its memory stays for as long as an export or a region holds it.
    ///
    /// # Panics
    /// If no mapping starts there.
    pub fn unmap(&self, address: u64) {
        self.with(|state| {
            state.arrive();
            let block = state.space.remove(address).expect("a mapping starts there");
            assert!(matches!(block.kind, MemoryKind::Growing { .. }), "it is no mapping");
        });
        exports::forget_closed();
    }

    /// Reads memory of any kind, as a kernel of the application would.
    ///
    /// # Panics
    /// If some of it is not mapped.
    pub fn read(&self, address: u64, length_bytes: usize) -> Vec<u8> {
        self.with(|state| state.bytes(address, length_bytes).expect("mapped"))
    }

    /// Writes memory of any kind, as a kernel of the application would.
    ///
    /// # Panics
    /// If some of it is not mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.with(|state| {
            state.arrive();
            state.copy_in(address, bytes).expect("mapped");
        });
    }

    /// The handle of a device's primary context.
    pub fn primary_context(&self, ordinal: i32) -> usize {
        Contexts::primary(ordinal)
    }

    /// How often a device's primary context was retained and released through the table.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn retained_and_released(&self, ordinal: i32) -> (u64, u64) {
        self.with(|state| {
            let primary = state.contexts.primaries[ordinal as usize];
            (primary.retained, primary.released)
        })
    }

    /// Bytes of a device's memory in use: by allocations, by exports that are still open, by regions.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn used_bytes(&self, ordinal: i32) -> u64 {
        exports::forget_closed();
        self.with(|state| state.gpus[ordinal as usize].used_bytes())
    }

    /// Lets the driver shut down, as at the end of a process: calls answer 4 from then on.
    pub fn shut_down(&self) {
        self.with(|state| state.phase = Phase::ShuttingDown);
    }

    /// Makes the `nth` call of an entry point from now, counted from 1, answer so and do nothing. The name is C's.
    ///
    /// # Panics
    /// If no entry point has that name, `nth` is 0, or the answer is [`CuResult::SUCCESS`]: nothing was done.
    pub fn fail(&self, symbol: &str, nth: u64, answer: CuResult) {
        self.with(|state| state.plan.add(symbol, nth, false, answer));
    }

    /// Makes the `nth` call of an entry point from now, counted from 1, and all after it answer so and do nothing.
    ///
    /// # Panics
    /// If no entry point has that name, `nth` is 0, or the answer is [`CuResult::SUCCESS`]: nothing was done.
    pub fn fail_from(&self, symbol: &str, nth: u64, answer: CuResult) {
        self.with(|state| state.plan.add(symbol, nth, true, answer));
    }

    /// Drops the failures planned so far.
    pub fn clear_plan(&self) {
        self.with(|state| state.plan.clear());
    }

    /// The calls recorded, oldest first.
    pub fn record(&self) -> Vec<CudaCall> {
        self.with(|state| state.record.calls())
    }
}

impl CudaState {
    /// The application holds a primary context from its first use on.
    fn hold_primary(&mut self, ordinal: i32) {
        let primary = usize::try_from(ordinal).ok().and_then(|ordinal| self.contexts.primaries.get_mut(ordinal));
        let primary = primary.expect("a device");
        if primary.held == primary.retained - primary.released {
            primary.held += 1;
        }
    }

    /// Allocates plain memory in a context.
    pub(super) fn allocate(
        &mut self,
        ordinal: i32,
        context: usize,
        length_bytes: u64,
        at: Option<u64>,
    ) -> Result<u64, CuResult> {
        self.add(ordinal, MemoryKind::Plain { context }, length_bytes, at)
    }

    fn add(&mut self, ordinal: i32, kind: MemoryKind, length_bytes: u64, at: Option<u64>) -> Result<u64, CuResult> {
        self.gpu(ordinal)?;
        exports::forget_closed();
        let memory = self.gpus[ordinal as usize].take(length_bytes).ok_or(CuResult::OUT_OF_MEMORY)?;
        let address = at.unwrap_or_else(|| self.space.gap(length_bytes));
        if length_bytes == 0 || !self.space.is_free(address, length_bytes) {
            return Err(CuResult::INVALID_VALUE);
        }
        Ok(self.space.add(Block { address, length_bytes, ordinal, id: 0, kind, memory }))
    }

    /// Adds memory whose addresses are this process's own.
    fn add_host(&mut self, ordinal: i32, kind: MemoryKind, length_bytes: u64) -> u64 {
        let memory = self.gpus[ordinal as usize].take(length_bytes).expect("memory");
        let address = memory.address(0) as u64;
        self.space.add(Block { address, length_bytes, ordinal, id: 0, kind, memory })
    }

    /// Frees an allocation by its start.
    pub(super) fn free(&mut self, address: u64) -> Result<(), CuResult> {
        self.arrive();
        let block = self.space.block(address).filter(|block| block.address == address);
        match block.map(|block| block.kind) {
            None | Some(MemoryKind::Growing { .. }) => Err(CuResult::INVALID_VALUE),
            Some(_) => {
                self.space.remove(address);
                exports::forget_closed();
                Ok(())
            }
        }
    }
}
