//! GPU memory, as numbers.

mod chunks;
mod entry_cap;
mod limits;
mod locate;
mod search;
mod table;
mod windows;

pub use chunks::{Chunk, ChunkError, Chunks, chunks};
pub use entry_cap::{
    CapError, CapReports, EntryCap, InlineWishes, MAX_KEY_ENTRIES, inline_bytes, inline_entries, key_entries,
};
pub use limits::{Alignment, ChunkLimits, GPU_PAGE_BYTES, LimitsError, MAX_ENTRY_BYTES};
pub use locate::{LocateError, Located};
pub use table::{InsertError, Ordinal, ResizeError, Row, SegmentKey, SegmentTable};
pub use windows::{LengthSum, Window, WindowLimits, Windows, windows};
