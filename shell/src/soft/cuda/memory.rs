//! What addresses mean: allocations and mappings over physical memory, and their ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::soft::exports::{PhysicalRange, Piece};

/// What kind of memory an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryKind {
    /// Allocated in a context.
    Plain {
        context: usize,
    },
    /// One mapping of a reservation, which starts there and is so long.
    Growing {
        reservation: u64,
        reserved_bytes: u64,
        gpu_direct: bool,
    },
    /// Of a pool.
    Pool,
    Managed {
        context: usize,
    },
    Pinned {
        context: usize,
    },
}

/// A run of addresses that was allocated or mapped at once.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub length_bytes: u64,
    pub ordinal: i32,
    pub id: u64,
    pub kind: MemoryKind,
    pub memory: Arc<PhysicalRange>,
}

impl Block {
    const fn end(&self) -> u64 {
        self.address + self.length_bytes
    }

    /// A part of it, which may reach beyond its end as far as the unit of 2 MiB that it ends in: what is exported is physical.
    pub(super) fn piece_to_granule(&self, address: u64, length_bytes: u64) -> Option<Piece> {
        let offset_bytes = address - self.address;
        let end = offset_bytes.checked_add(length_bytes)?;
        let whole = self.length_bytes.next_multiple_of(GRANULE_BYTES);
        (end <= whole).then(|| Piece { range: Arc::clone(&self.memory), offset_bytes, length_bytes })
    }

    /// The context whose end is its own.
    const fn context(&self) -> Option<usize> {
        match self.kind {
            MemoryKind::Plain { context } | MemoryKind::Managed { context } | MemoryKind::Pinned { context } => {
                Some(context)
            }
            MemoryKind::Growing { .. } | MemoryKind::Pool => None,
        }
    }

    /// Whether it is a GPU's own.
    pub(super) const fn is_device(&self) -> bool {
        !matches!(self.kind, MemoryKind::Managed { .. } | MemoryKind::Pinned { .. })
    }
}

/// Where device addresses begin: no process has anything of its own there.
const FIRST_ADDRESS: u64 = 0x10_0000_0000;

/// The granule of a GPU's mappings, bytes.
pub(super) const GRANULE_BYTES: u64 = 2 << 20;

/// All blocks and reservations, by address.
#[derive(Debug, Default)]
pub(super) struct AddressSpace {
    blocks: BTreeMap<u64, Block>,
    /// Start to ordinal and length.
    reservations: BTreeMap<u64, (i32, u64)>,
    last_id: u64,
}

impl AddressSpace {
    /// The block that holds an address.
    pub(super) fn block(&self, address: u64) -> Option<&Block> {
        self.blocks.range(..=address).next_back().map(|(_, block)| block).filter(|block| address < block.end())
    }

    /// The reservation that holds an address: its start, ordinal and length.
    pub(super) fn reservation(&self, address: u64) -> Option<(u64, i32, u64)> {
        let (start, (ordinal, length)) = self.reservations.range(..=address).next_back()?;
        (address - start < *length).then_some((*start, *ordinal, *length))
    }

    /// The lowest free run of so many addresses; what is freed is used again first.
    pub(super) fn gap(&self, length_bytes: u64) -> u64 {
        let mut taken: Vec<(u64, u64)> = self
            .blocks
            .values()
            .map(|block| (block.address, block.end()))
            .chain(self.reservations.iter().map(|(start, (_, length))| (*start, start + length)))
            .collect();
        taken.sort_unstable();
        let mut start = FIRST_ADDRESS;
        for (from, to) in taken {
            if from >= start && from - start >= length_bytes {
                break;
            }
            start = start.max(to.next_multiple_of(GRANULE_BYTES));
        }
        start
    }

    /// Whether nothing lies in a run of addresses, reservations left aside.
    pub(super) fn is_free(&self, address: u64, length_bytes: u64) -> bool {
        let Some(end) = address.checked_add(length_bytes) else { return false };
        self.blocks.range(..end).next_back().is_none_or(|(_, block)| block.end() <= address)
    }

    /// Adds a block under a new id.
    pub(super) fn add(&mut self, mut block: Block) -> u64 {
        self.last_id += 1;
        block.id = self.last_id;
        let address = block.address;
        self.blocks.insert(address, block);
        address
    }

    /// Takes a block out by its very start.
    pub(super) fn remove(&mut self, address: u64) -> Option<Block> {
        self.blocks.remove(&address)
    }

    /// Frees what was allocated in a context.
    pub(super) fn end_context(&mut self, context: usize) {
        self.blocks.retain(|_, block| block.context() != Some(context));
    }

    pub(super) fn reserve(&mut self, ordinal: i32, address: u64, length_bytes: u64) {
        self.reservations.insert(address, (ordinal, length_bytes));
    }

    /// The pieces of memory under a run of addresses, `None` where some of it is unmapped.
    pub(super) fn pieces(&self, address: u64, length_bytes: u64) -> Option<Vec<(&Block, Piece)>> {
        let end = address.checked_add(length_bytes)?;
        let (mut at, mut found) = (address, Vec::new());
        while at < end {
            let block = self.block(at)?;
            let last = block.end().min(end);
            let piece =
                Piece { range: Arc::clone(&block.memory), offset_bytes: at - block.address, length_bytes: last - at };
            found.push((block, piece));
            at = last;
        }
        Some(found)
    }
}
