//! GPU memory, as numbers.

mod chunks;
mod limits;

pub use chunks::{Chunk, ChunkError, Chunks, chunks};
pub use limits::{Alignment, ChunkLimits, GPU_PAGE_BYTES, LimitsError, MAX_ENTRY_BYTES};
