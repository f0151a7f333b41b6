//! What the driver says of pointers, and what it exports.

use std::os::fd::OwnedFd;

use bareverbs_core::cuda::{CuResult, MemoryType, PointerAttribute};

use super::config::HostAnswer;
use super::contexts;
use super::memory::{Block, MemoryKind};
use super::state::CudaState;
use crate::soft::exports;

/// An attribute's value, and how wide it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Bits32(u32),
    Bits64(u64),
}

impl Value {
    /// Zero, as wide as an attribute is; `None` for one that the stand-in does not know.
    fn zero(attribute: PointerAttribute) -> Option<Self> {
        match attribute {
            PointerAttribute::CONTEXT
            | PointerAttribute::BUFFER_ID
            | PointerAttribute::RANGE_START_ADDR
            | PointerAttribute::RANGE_SIZE
            | PointerAttribute::MEMPOOL_HANDLE => Some(Self::Bits64(0)),
            PointerAttribute::MEMORY_TYPE
            | PointerAttribute::IS_MANAGED
            | PointerAttribute::DEVICE_ORDINAL
            | PointerAttribute::MAPPED
            | PointerAttribute::IS_GPU_DIRECT_RDMA_CAPABLE => Some(Self::Bits32(0)),
            _ => None,
        }
    }
}

/// The handle of a pool: no address, and never followed.
const POOL_HANDLE: u64 = 0xb0_0000;

impl CudaState {
    pub(super) fn attribute(&self, attribute: PointerAttribute, address: u64) -> Result<Value, CuResult> {
        let zero = Value::zero(attribute).ok_or(CuResult::INVALID_VALUE)?;
        match self.space.block(address) {
            Some(block) => Ok(of_block(block, attribute)),
            None if self.config.host == HostAnswer::Zero => Ok(zero),
            None => Err(CuResult::INVALID_VALUE),
        }
    }

    /// The allocation or mapping that holds an address.
    pub(super) fn address_range(&self, address: u64) -> Result<(u64, u64), CuResult> {
        let block = self.space.block(address).ok_or(CuResult::NOT_FOUND)?;
        Ok((block.address, block.length_bytes))
    }

    /// Exports a range as a file that stands for its memory.
    pub(super) fn export(&self, address: u64, length_bytes: u64, flags: u64) -> Result<OwnedFd, CuResult> {
        match flags {
            0 => {}
            // Over PCIe: not on this machine.
            1 => return Err(CuResult::NOT_SUPPORTED),
            _ => return Err(CuResult::INVALID_VALUE),
        }
        let page = self.config.page_bytes;
        if length_bytes == 0 || !address.is_multiple_of(page) || !length_bytes.is_multiple_of(page) {
            return Err(CuResult::INVALID_VALUE);
        }
        let first = self.space.block(address).filter(|block| block.is_device()).ok_or(CuResult::INVALID_VALUE)?;
        let pieces = match first.kind {
            MemoryKind::Growing { .. } => {
                let found = self.space.pieces(address, length_bytes).ok_or(CuResult::INVALID_VALUE)?;
                if !found.iter().all(|(block, _)| continues(first, block)) {
                    return Err(CuResult::INVALID_VALUE);
                }
                found.into_iter().map(|(_, piece)| piece).collect()
            }
            _ => vec![first.piece_to_granule(address, length_bytes).ok_or(CuResult::INVALID_VALUE)?],
        };
        exports::export(pieces).map_err(|_| CuResult::OPERATING_SYSTEM)
    }

    /// Whether the calling thread has a context current that can be used.
    pub(super) fn needs_context(&self) -> Result<(), CuResult> {
        let current = contexts::current(self.number);
        self.contexts.usable(current).map(drop)
    }
}

/// Whether two mappings may go into one export: those of one reservation.
fn continues(first: &Block, next: &Block) -> bool {
    match (first.kind, next.kind) {
        (MemoryKind::Growing { reservation: one, .. }, MemoryKind::Growing { reservation: other, .. }) => one == other,
        _ => false,
    }
}

fn of_block(block: &Block, attribute: PointerAttribute) -> Value {
    let (context, range_bytes) = match block.kind {
        MemoryKind::Plain { context } | MemoryKind::Managed { context } | MemoryKind::Pinned { context } => {
            (context, block.length_bytes)
        }
        // Null, with success.
        MemoryKind::Pool => (0, block.length_bytes),
        MemoryKind::Growing { reserved_bytes, .. } => (0, reserved_bytes),
    };
    let kind = if matches!(block.kind, MemoryKind::Pinned { .. }) { MemoryType::HOST } else { MemoryType::DEVICE };
    let capable = match block.kind {
        MemoryKind::Growing { gpu_direct, .. } => gpu_direct,
        MemoryKind::Plain { .. } => true,
        MemoryKind::Pool | MemoryKind::Managed { .. } | MemoryKind::Pinned { .. } => false,
    };
    match attribute {
        PointerAttribute::CONTEXT => Value::Bits64(context as u64),
        PointerAttribute::MEMORY_TYPE => Value::Bits32(kind.0),
        PointerAttribute::BUFFER_ID => Value::Bits64(block.id),
        PointerAttribute::IS_MANAGED => Value::Bits32(matches!(block.kind, MemoryKind::Managed { .. }).into()),
        PointerAttribute::DEVICE_ORDINAL => Value::Bits32(block.ordinal.cast_unsigned()),
        PointerAttribute::RANGE_START_ADDR => Value::Bits64(block.address),
        PointerAttribute::RANGE_SIZE => Value::Bits64(range_bytes),
        PointerAttribute::MAPPED => Value::Bits32(1),
        PointerAttribute::IS_GPU_DIRECT_RDMA_CAPABLE => Value::Bits32(capable.into()),
        _ => Value::Bits64(if block.kind == MemoryKind::Pool { POOL_HANDLE } else { 0 }),
    }
}
