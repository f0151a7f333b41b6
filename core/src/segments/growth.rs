//! Which regions a segment gets when it grows.
//!
//! Protects: growth in small steps neither ends in a key without free entries nor registers the segment over and over. While
//! entries are free, only the tail is registered. When they run short, neighbours are registered anew as one, of like size as a
//! binary counter carries, so that a byte is registered anew at most once per level; there are 11 levels between 2 MiB and
//! 4 GiB - 2 MiB. A window's parts never cross multiples of the longest part (its *cells*): a full cell can become one entry.
//!
//! Sizes compare by *level*: the power of two in their number of alignment units.

use core::num::NonZeroU64;

use heapless::Vec;

use super::cover::{Cover, WindowSpan};
use super::plan::{PartSource, Plan, PlanError};
use super::windows::{WindowLimits, Windows};
use crate::range::AddressRange;

impl WindowLimits {
    fn max_part_bytes(self) -> u64 {
        self.cell_bytes().get()
    }

    /// The same, to divide by.
    fn cell_bytes(self) -> NonZeroU64 {
        NonZeroU64::from(self.chunk().divisor())
    }

    fn level(self, len_bytes: u64) -> u32 {
        // An alignment is a power of two.
        (len_bytes >> self.chunk().alignment().bytes().trailing_zeros()).checked_ilog2().unwrap_or(0)
    }

    /// How many entries the parts of one cell need at most once they are merged: one per level (11 from 2 MiB to 4 GiB - 2
    /// MiB).
    fn levels(self) -> u64 {
        u64::from(self.level(self.max_part_bytes())) + 1
    }

    fn cells(self, window_len_bytes: u64) -> u64 {
        let cell = self.cell_bytes();
        window_len_bytes / cell + u64::from(!window_len_bytes.is_multiple_of(cell.get()))
    }

    fn entries(self) -> u64 {
        u64::from(self.cap().entries())
    }

    /// How many entries a window of this length may have before neighbours are merged: one per cell, and one per level.
    fn budget(self, window_len_bytes: u64) -> u64 {
        self.entries().min(self.cells(window_len_bytes) + self.levels())
    }

    /// Up to where a window can grow in place; 0 if its key has too few entries for that. Its last cell may need one entry per
    /// level, all others need one.
    fn growth_end_bytes(self) -> u64 {
        let spare = self.entries().saturating_sub(self.levels());
        if spare == 0 { 0 } else { ((spare + 1) * self.max_part_bytes()).min(self.window_bytes()) }
    }

    /// Whether a window of this length takes more, or is closed: it has fewer entries to spare than there are levels. Entries
    /// that merging would give back count as spare.
    fn is_open(self, window_len_bytes: u64) -> bool {
        self.cells(window_len_bytes) + self.levels() <= self.entries() && window_len_bytes < self.growth_end_bytes()
    }
}

/// A cover in the making.
struct Draft<const W: usize, const E: usize> {
    cover: Cover<W, E>,
    sources: Vec<PartSource, E>,
}

/// The plan to make `old` cover `to_bytes`, which is more than it does. Its range, grown so, exists and can be cut.
pub(super) fn grown<const W: usize, const E: usize>(
    old: &Cover<W, E>,
    to_bytes: u64,
    limits: WindowLimits,
) -> Result<Plan<W, E>, PlanError> {
    let mut draft = Draft { cover: Cover::at(old.range().base()), sources: Vec::new() };
    let windows = old.windows();
    let mut kept = windows.len();
    match windows.last() {
        Some(last) if limits.is_open(last.len_bytes) => {
            kept -= 1;
            draft.keep(old, kept)?;
            draft.grow_window(old, last, to_bytes, limits)?;
        }
        Some(_) if limits.growth_end_bytes() == 0 => {
            kept = windows_below_carry(windows, to_bytes, limits);
            draft.keep(old, kept)?;
            draft.join_windows(old, windows.get(kept..).unwrap_or(&[]), to_bytes, limits)?;
        }
        _ => draft.keep(old, kept)?,
    }
    draft.lay_fresh(to_bytes, limits)?;
    Ok(Plan {
        limits,
        cover: draft.cover,
        sources: draft.sources,
        kept_windows: kept as u32,
        made_for: None,
        old_windows: windows.len() as u32,
        old_parts: old.part_lens().len() as u32,
    })
}

/// Where no window can grow in place (a cap of no more entries than levels), whole windows are what is carried, lest each step
/// of growth leave a key behind: how many windows stay when the rest becomes one with the tail.
fn windows_below_carry(windows: &[WindowSpan], to_bytes: u64, limits: WindowLimits) -> usize {
    let mut kept = windows.len();
    let mut from_bytes = windows.last().map_or(0, |last| last.offset_bytes + last.len_bytes);
    while let Some(last) = kept.checked_sub(1).and_then(|at| windows.get(at)) {
        let rest_bytes = to_bytes - from_bytes;
        let fits = to_bytes - last.offset_bytes <= limits.window_bytes();
        if !fits || limits.level(last.len_bytes) > limits.level(rest_bytes) {
            break;
        }
        kept -= 1;
        from_bytes = last.offset_bytes;
    }
    kept
}

impl<const W: usize, const E: usize> Draft<W, E> {
    fn push(&mut self, len_bytes: u32, source: PartSource) -> Result<(), PlanError> {
        self.cover.push_part(len_bytes)?;
        self.sources.push(source).map_err(|_| PlanError::Parts { room: E })
    }

    /// Takes over the first `count` windows as they are.
    fn keep(&mut self, old: &Cover<W, E>, count: usize) -> Result<(), PlanError> {
        for window in old.windows().iter().take(count) {
            self.cover.open_window()?;
            self.reuse(old, window)?;
        }
        Ok(())
    }

    fn reuse(&mut self, old: &Cover<W, E>, window: &WindowSpan) -> Result<(), PlanError> {
        for (part, &len_bytes) in (window.first_part..).zip(old.lens_of(window)) {
            self.push(len_bytes, PartSource::Reuse(part))?;
        }
        Ok(())
    }

    /// The old last window, which is open, with as much of the tail as it takes.
    fn grow_window(
        &mut self,
        old: &Cover<W, E>,
        window: &WindowSpan,
        to_bytes: u64,
        limits: WindowLimits,
    ) -> Result<(), PlanError> {
        let cell = limits.cell_bytes();
        let end_bytes = limits.growth_end_bytes().min(to_bytes - window.offset_bytes);
        let new_parts = limits.cells(end_bytes) - window.len_bytes / cell;
        let parts = u64::from(window.part_count) + new_parts;
        let room = (E - self.sources.len().min(E)) as u64;
        let runs_short = parts > limits.budget(end_bytes).min(room);

        self.cover.open_window()?;
        for (part, &len_bytes) in (window.first_part..).zip(old.lens_of(window)) {
            self.push(len_bytes, PartSource::Reuse(part))?;
            if runs_short {
                self.carry(limits);
            }
        }
        let mut at_bytes = window.len_bytes;
        while at_bytes < end_bytes {
            // To the end of the cell, or of the window: at most the longest part, which is 32 bits.
            let part_bytes = (end_bytes - at_bytes).min(cell.get() - at_bytes % cell);
            self.push(part_bytes as u32, PartSource::Register)?;
            if runs_short {
                self.carry(limits);
            }
            at_bytes += part_bytes;
        }
        Ok(())
    }

    /// Merges the last window's last parts for as long as a binary counter would carry, within their cell; all of a full cell.
    fn carry(&mut self, limits: WindowLimits) {
        let cell = limits.cell_bytes();
        while let (Some(window), [.., lower, upper]) = (self.cover.windows().last(), self.cover.part_lens()) {
            let (lower, upper) = (u64::from(*lower), u64::from(*upper));
            let end_bytes = window.len_bytes;
            let one_cell = window.part_count >= 2 && (end_bytes - lower - upper) / cell == (end_bytes - 1) / cell;
            let carries = limits.level(lower) <= limits.level(upper) || end_bytes.is_multiple_of(cell.get());
            if !(one_cell && carries) {
                break;
            }
            self.cover.merge_last_two();
            self.sources.pop();
            if let Some(source) = self.sources.last_mut() {
                *source = PartSource::Register;
            }
        }
    }

    /// One window of all of `joined` and the tail, with the old regions if its key can have that many entries. Otherwise
    /// nothing yet: what is left uncovered gets fresh windows.
    fn join_windows(
        &mut self,
        old: &Cover<W, E>,
        joined: &[WindowSpan],
        to_bytes: u64,
        limits: WindowLimits,
    ) -> Result<(), PlanError> {
        let tail_bytes = to_bytes - old.len_bytes();
        let old_parts: u64 = joined.iter().map(|window| u64::from(window.part_count)).sum();
        if joined.is_empty() || old_parts + limits.cells(tail_bytes) > limits.entries() {
            return Ok(());
        }
        self.cover.open_window()?;
        for window in joined {
            self.reuse(old, window)?;
        }
        let mut left_bytes = tail_bytes;
        while left_bytes > 0 {
            let part_bytes = left_bytes.min(limits.max_part_bytes());
            self.push(part_bytes as u32, PartSource::Register)?;
            left_bytes -= part_bytes;
        }
        Ok(())
    }

    /// Windows of maximal parts over what is not covered yet.
    fn lay_fresh(&mut self, to_bytes: u64, limits: WindowLimits) -> Result<(), PlanError> {
        let done = self.cover.range();
        let rest_bytes = to_bytes - done.len_bytes();
        let Some(rest) = done.end().and_then(|base| AddressRange::new(base, rest_bytes).ok()) else {
            return Ok(()); // What is covered ends at 2^64: there is no rest.
        };
        let planned = Windows::over(rest, limits);
        // Closed forms first: a plan that does not fit costs no steps.
        if u64::from(planned.window_count()) > (W - self.cover.windows().len()) as u64 {
            return Err(PlanError::Windows { room: W });
        }
        if planned.part_count() > (E - self.sources.len()) as u64 {
            return Err(PlanError::Parts { room: E });
        }
        for window in planned {
            self.cover.open_window()?;
            for part in window.parts() {
                self.push(part.len_bytes, PartSource::Register)?;
            }
        }
        Ok(())
    }
}
