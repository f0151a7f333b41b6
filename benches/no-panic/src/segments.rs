//! Chunks, windows, and the segment table.

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{
    Alignment, BoundSegment, Chunk, ChunkError, ChunkLimits, Chunks, Decision, IdentityCheck, InsertError, LimitsError,
    LocateError, Located, Ordinal, Plan, PlanError, ResizeError, Row, Scan, SegmentKey, SegmentTable, StalePlan, Terms,
    Window, WindowLimits, Windows, chunks, reconcile, windows,
};

use crate::exported;

type Table = SegmentTable<u32, 4096>;
type Segment = BoundSegment<u64, 8, 160>;
type SegmentPlan = Plan<8, 160>;

exported! {
    fn proof_limits(alignment_bytes: u32, max_bytes: u64) -> Result<ChunkLimits, LimitsError> {
        ChunkLimits::new(Alignment::new(alignment_bytes)?, max_bytes)
    }

    fn proof_chunks(range: &AddressRange, limits: &ChunkLimits) -> Result<Chunks, ChunkError> {
        chunks(*range, *limits)
    }

    fn proof_chunk_count(parts: &Chunks) -> (u32, usize) {
        (parts.part_count(), parts.len())
    }

    fn proof_chunk_nth(parts: &mut Chunks, n: usize) -> Option<Chunk> {
        parts.nth(n)
    }

    fn proof_chunk_part(parts: &Chunks, index: u32) -> Option<Chunk> {
        parts.part(index)
    }

    fn proof_chunk_holding(parts: &Chunks, offset_bytes: u64) -> Option<Chunk> {
        parts.part_holding(offset_bytes)
    }

    fn proof_chunk_walk(parts: &mut Chunks) -> (u64, Option<Chunk>) {
        let last = parts.next_back();
        (parts.map(|part| u64::from(part.len_bytes)).sum(), last)
    }

    fn proof_windows(range: &AddressRange, limits: &WindowLimits) -> Result<Windows, ChunkError> {
        windows(*range, *limits)
    }

    fn proof_window(windows: &Windows, index: u32) -> Option<Window> {
        windows.window(index)
    }

    fn proof_window_holding(windows: &Windows, offset_bytes: u64) -> Option<Window> {
        windows.window_holding(offset_bytes)
    }

    fn proof_window_locate(windows: &Windows, asked: &AddressRange) -> Result<Located, LocateError> {
        windows.locate(*asked)
    }

    fn proof_plan_bind(range: &AddressRange, limits: &WindowLimits) -> Result<SegmentPlan, PlanError> {
        Segment::plan_bind(*range, *limits)
    }

    fn proof_plan_growth(segment: &Segment, to: &AddressRange) -> Result<Option<SegmentPlan>, PlanError> {
        segment.plan_growth(*to)
    }

    fn proof_plan_walk(plan: &SegmentPlan) -> (u64, u32, u64) {
        let registers = plan.to_register().map(|range| range.len_bytes()).fold(0, u64::wrapping_add);
        let released = plan.released_parts().fold(0, u32::wrapping_add);
        let parts = plan.fresh_windows().flat_map(|window| window.parts());
        (registers, released, parts.map(|part| part.range.len_bytes()).fold(0, u64::wrapping_add))
    }

    fn proof_grow(segment: &mut Segment, plan: &SegmentPlan, identity: u64) -> Result<(), StalePlan> {
        segment.grow(plan.clone(), identity)
    }

    fn proof_locate(segment: &Segment, asked: &AddressRange) -> Result<Located, LocateError> {
        segment.locate(*asked)
    }

    fn proof_split(segment: &Segment, asked: &AddressRange) -> Result<u64, LocateError> {
        Ok(segment.split(*asked)?.map(|piece| piece.len_bytes).fold(0, u64::wrapping_add))
    }

    fn proof_reconcile(table: &Table, scan: &Scan<'_>, terms: &Terms<'_>, valid: u32) -> (u32, u64) {
        let ask = |row: &Row<u32>| if row.value == valid { IdentityCheck::Holds } else { IdentityCheck::Changed };
        let mut decisions = reconcile(table, *scan, *terms, ask);
        let before = decisions.drops().fold(0, |sum, key| sum ^ key.base);
        let drops = decisions.by_ref().filter(|decision| matches!(decision, Decision::Drop { .. })).count();
        (drops as u32, before)
    }

    fn proof_look_up(table: &Table, asked: &AddressRange) -> Option<u32> {
        table.lookup(*asked).map(|row| row.value)
    }

    fn proof_table_check(table: &Table, range: &AddressRange, ordinal: u32) -> Result<(), InsertError> {
        table.check(*range, Ordinal(ordinal))
    }

    fn proof_table_insert(table: &mut Table, row: &Row<u32>) -> Result<(), InsertError> {
        table.insert(*row)
    }

    fn proof_table_resize(table: &mut Table, base: u64, ordinal: u32, to: &AddressRange) -> Result<(), ResizeError> {
        table.resize(SegmentKey { base, ordinal: Ordinal(ordinal) }, *to)
    }

    fn proof_table_remove(table: &mut Table, base: u64, ordinal: u32) -> Option<Row<u32>> {
        table.remove(SegmentKey { base, ordinal: Ordinal(ordinal) })
    }

    fn proof_table_take_overlapping(table: &mut Table, range: &AddressRange, ordinal: u32) -> Option<Row<u32>> {
        table.take_overlapping(*range, Ordinal(ordinal))
    }

    fn proof_covering(table: &Table, asked: &AddressRange) -> u64 {
        table.covering(*asked).map(|row| u64::from(row.value)).sum()
    }
}
