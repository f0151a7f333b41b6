//! GPU memory, as numbers: segments that grow, cut into regions, presented by keys, found by address.
//!
//! Protects: what is registered is what a device can hold, what is served is what a key really covers, and what a scan shows
//! gone or changed is served no more. Nothing here allocates, calls a driver or panics on what one reports; ranges may lie at
//! either end of the 64-bit address space, on hosts of 32 bits too.
//!
//! | question | answered by |
//! |---|---|
//! | into which regions is a range cut? | [`chunks`](chunks()) within [`ChunkLimits`] |
//! | how many regions does one key present? | [`EntryCap`] |
//! | does a provider sum a key's length in 64 bits? | [`provider_release`], [`LengthSum`] |
//! | which regions share a key? | [`windows`](windows()) within [`WindowLimits`] |
//! | what does binding, or growth, take? | [`BoundSegment`] makes a [`Plan`] |
//! | in which segment is an address? | [`SegmentTable`] |
//! | what to do after a scan? | [`reconcile`](reconcile()) gives [`Decision`]s |
//!
//! Left to others: registering, binding keys, keeping views alive, scanning, and who may read which table while another is
//! made.

mod buckets;
mod chunks;
mod cover;
mod decision;
mod entry_cap;
mod growth;
mod limits;
mod locate;
mod plan;
mod provider;
mod reconcile;
mod scan;
mod segment;
mod stale_plan;
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
pub use provider::{PORT_SPEED_RELEASE, provider_release};
pub use reconcile::{IdentityCheck, Reconcile, Terms, reconcile};
pub use scan::{Covers, Scan, ScannedSegment, ServedOrdinals};
pub use segment::BoundSegment;
pub use stale_plan::StalePlan;
pub use table::{InsertError, Ordinal, ResizeError, Row, SegmentKey, SegmentTable};
pub use windows::{LengthSum, Window, WindowLimits, Windows, windows};
