//! What a segment's keys cover: its windows, and each window's parts.
//!
//! Protects: windows and parts lie in order, without a gap. A part is kept as its length only (4 bytes); where it starts
//! follows from those before it.

use heapless::Vec;

use super::locate::WindowLookup;
use super::plan::PlanError;
use crate::range::{AddressRange, Span};

/// One key's stretch of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowSpan {
    /// Where it starts, from the segment's base.
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// Its parts are `first_part..first_part + part_count` of the segment's.
    pub first_part: u32,
    pub part_count: u32,
}

/// Up to `W` windows with up to `E` parts in all, from a base on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cover<const W: usize, const E: usize> {
    base: u64,
    len_bytes: u64,
    windows: Vec<WindowSpan, W>,
    part_lens: Vec<u32, E>,
}

impl<const W: usize, const E: usize> Cover<W, E> {
    pub(super) const fn at(base: u64) -> Self {
        Self { base, len_bytes: 0, windows: Vec::new(), part_lens: Vec::new() }
    }

    pub(super) const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn windows(&self) -> &[WindowSpan] {
        &self.windows
    }

    /// The lengths of all parts, in order.
    pub(super) fn part_lens(&self) -> &[u32] {
        &self.part_lens
    }

    /// Where all parts are, in order.
    pub(super) fn part_spans(&self) -> impl Iterator<Item = Span> {
        self.part_lens.iter().scan(0u64, |end, &len| {
            let span = Span { offset_bytes: *end, len_bytes: u64::from(len) };
            *end = end.wrapping_add(span.len_bytes);
            Some(span)
        })
    }

    pub(super) fn lens_of(&self, window: &WindowSpan) -> &[u32] {
        let first = window.first_part as usize;
        self.part_lens.get(first..first + window.part_count as usize).unwrap_or(&[])
    }

    pub(super) fn window_range(&self, window: &WindowSpan) -> Option<AddressRange> {
        self.range().part(Span { offset_bytes: window.offset_bytes, len_bytes: window.len_bytes })
    }

    /// The ranges of a window's parts, in the order of its key's entries.
    pub(super) fn parts_of<'a>(&'a self, window: &'a WindowSpan) -> impl Iterator<Item = AddressRange> + 'a {
        let mut offset_bytes = window.offset_bytes;
        self.lens_of(window).iter().filter_map(move |&len| {
            let span = Span { offset_bytes, len_bytes: u64::from(len) };
            offset_bytes += span.len_bytes;
            self.range().part(span)
        })
    }

    pub(super) fn range(&self) -> AddressRange {
        self.covered()
    }

    /// Starts a window at the end of what is covered.
    pub(super) fn open_window(&mut self) -> Result<(), PlanError> {
        let window = WindowSpan {
            offset_bytes: self.len_bytes,
            len_bytes: 0,
            first_part: self.part_lens.len() as u32,
            part_count: 0,
        };
        self.windows.push(window).map_err(|_| PlanError::Windows { room: W })
    }

    /// Adds a part to the last window.
    pub(super) fn push_part(&mut self, len_bytes: u32) -> Result<(), PlanError> {
        self.part_lens.push(len_bytes).map_err(|_| PlanError::Parts { room: E })?;
        self.len_bytes += u64::from(len_bytes);
        if let Some(last) = self.windows.last_mut() {
            last.len_bytes += u64::from(len_bytes);
            last.part_count += 1;
        }
        Ok(())
    }

    /// Makes one part of the last window's last two.
    pub(super) fn merge_last_two(&mut self) {
        if let (Some(upper), Some(window)) = (self.part_lens.pop(), self.windows.last_mut()) {
            window.part_count -= 1;
            if let Some(lower) = self.part_lens.last_mut() {
                *lower += upper;
            }
        }
    }
}

impl<const W: usize, const E: usize> WindowLookup for Cover<W, E> {
    fn covered(&self) -> AddressRange {
        // Every cover is cut from a range that exists.
        AddressRange::new(self.base, self.len_bytes).unwrap_or(AddressRange::EMPTY)
    }

    fn window_at(&self, offset_bytes: u64) -> Option<(u32, AddressRange)> {
        let above = self.windows.partition_point(|window| window.offset_bytes <= offset_bytes);
        let at = above.checked_sub(1)?;
        let range = self.windows.get(at).and_then(|window| self.window_range(window))?;
        Some((at as u32, range))
    }
}
