//! GPU memory, as numbers.

mod chunks;
mod cover;
mod decision;
mod entry_cap;
mod growth;
mod limits;
mod locate;
mod plan;
mod reconcile;
mod scan;
mod search;
mod segment;
mod table;
mod windows;

pub use chunks::{Chunk, ChunkError, Chunks, chunks};
pub use decision::{Decision, RebindReason, RefuseReason};
pub use entry_cap::{
    CapError, CapReports, EntryCap, InlineWishes, MAX_KEY_ENTRIES, inline_bytes, inline_entries, key_entries,
};
pub use limits::{Alignment, ChunkLimits, GPU_PAGE_BYTES, LimitsError, MAX_ENTRY_BYTES};
pub use locate::{LocateError, Located};
pub use plan::{PartSource, Plan, PlanError, PlannedPart, PlannedWindow};
pub use reconcile::{IdentityCheck, Reconcile, Terms, reconcile};
pub use scan::{Covers, Scan, ScannedSegment, ServedOrdinals};
pub use segment::{BoundSegment, StalePlan};
pub use table::{InsertError, Ordinal, ResizeError, Row, SegmentKey, SegmentTable};
pub use windows::{LengthSum, Window, WindowLimits, Windows, windows};
