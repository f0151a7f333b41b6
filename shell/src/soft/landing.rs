//! Bytes of one-sided operations that land before they must: what an adversary does with them.
//!
//! Until its completion, the bytes of a write may be there or not, in any order; the entries that an answer lands in hold
//! anything. So pieces of the next write land early, where the whole write would be granted, and entries that wait for an
//! answer are scribbled over.

use bareverbs_core::verbs::{QpState, Sge};

use crate::soft::bytes::Span;
use crate::soft::one_sided::Operation;
use crate::soft::queue_pair::QueuePair;
use crate::soft::state::State;

/// Most bytes that one disturbance lands or scribbles over.
const PIECE_BYTES: u32 = 64;

impl State {
    /// Lets a piece of some next write land, or scribbles over what some next answer will land in.
    pub(super) fn land_somewhere(&mut self) {
        let is_one = |pair: &QueuePair| pair.state == QpState::RTS && pair.next_operation().is_some();
        let count = self.pairs.iter().filter(|(_, pair)| is_one(pair)).count() as u32;
        if count == 0 || self.roll(2) == 0 {
            return;
        }
        let chosen = self.roll(count) as usize;
        let found = self.pairs.iter().filter(|(_, pair)| is_one(pair)).nth(chosen);
        let Some((index, length_bytes, operation)) =
            found.and_then(|(index, pair)| Some((index, pair.sends.to_do()?.1.length_bytes, pair.next_operation()?)))
        else {
            return;
        };
        // Wherever a piece may begin or end, so that the first byte lands as often early as the last.
        let end = self.roll(length_bytes.saturating_add(PIECE_BYTES)).saturating_add(1);
        let (start, end) = (end.saturating_sub(PIECE_BYTES), end.min(length_bytes));
        if operation.is_answered() {
            self.scribble_answer(index, 0, start, end);
        } else {
            self.land_piece(index, start, end);
        }
    }

    /// Scribbles over all that the answer to the request posted last will land in.
    pub(super) fn scribble_answer_posted(&mut self, index: u32) {
        let Some(pair) = self.pairs.get(index) else { return };
        if let Some(last) = pair.sends.waiting().checked_sub(1) {
            self.scribble_answer(index, last, 0, u32::MAX);
        }
    }

    fn scribble_answer(&mut self, index: u32, ahead: u64, from_byte: u32, to_byte: u32) {
        let Some(rng) = self.schedule.rng() else { return };
        let Some(pair) = self.pairs.get(index) else { return };
        // A key that does not reach ends it: the operation will fail, and may as well do so later.
        let entries = pair.sends.waiting_entries(ahead);
        let _ = self.regions.each_part(pair.domain, entries, from_byte, to_byte, |mut span| span.scribble(rng));
    }

    /// Whether a part of a queue pair's next write can land before the rest.
    pub(super) fn may_land_early(&self, index: u32) -> bool {
        let Some(pair) = self.pairs.get(index) else { return false };
        !pair.landed_early && self.early_target(index).is_some_and(|(_, to)| to.length > 1)
    }

    /// Lets the second half of a queue pair's next write land.
    pub(super) fn land_half(&mut self, index: u32) {
        let Some((_, to)) = self.early_target(index) else { return };
        self.land_piece(index, to.length / 2, to.length);
        if let Some(pair) = self.pairs.get_mut(index) {
            pair.landed_early = true;
        }
    }

    /// Domain and memory that a queue pair's next write goes to, if it is to be granted.
    fn early_target(&self, index: u32) -> Option<(u32, Sge)> {
        let from = self.pairs.get(index).filter(|pair| pair.state == QpState::RTS)?;
        let operation = from.next_operation().filter(|operation| !operation.is_answered())?;
        let (place, request) = from.sends.to_do()?;
        let device = self.devices.get(from.device as usize)?;
        let longest = device.port(from.attr.port_num)?.max_message_bytes;
        let to = self.pairs.get(self.find_listener(index)?)?;
        let memory = from.targets[place].entry(request.length_bytes);
        let reads = request.inline || self.regions.check_read(from.domain, from.sends.waiting_entries(0)).is_ok();
        let granted = reads
            && request.length_bytes <= longest
            && to.permits(operation)
            && self.regions.reaches(to.domain, &memory, Operation::needs(operation));
        granted.then_some((to.domain, memory))
    }

    /// Lets the bytes `from_byte..to_byte` of a queue pair's next write land, if it is to be granted.
    fn land_piece(&self, index: u32, from_byte: u32, to_byte: u32) {
        let Some((domain, memory)) = self.early_target(index) else { return };
        let Some(pair) = self.pairs.get(index) else { return };
        let Some((place, request)) = pair.sends.to_do() else { return };
        let put = |at: u32, mut from: Span<'_>| {
            // A target out of reach ends it: the write will fail.
            let _ = self.regions.each_span_mut(domain, &memory, at, from.len() as u32, |mut to| {
                let (now, later) = from.split(to.len());
                to.write(now);
                from = later;
            });
        };
        if request.inline {
            let own = &pair.inline[place * pair.cap.max_inline_data as usize..][..request.length_bytes as usize];
            let (first, last) = (from_byte as usize, (to_byte as usize).min(own.len()));
            return put(from_byte, own.get(first..last).unwrap_or_default().into());
        }
        let mut start = 0;
        for entry in pair.sends.waiting_entries(0) {
            let end = u32::saturating_add(start, entry.length);
            let (first, last) = (from_byte.max(start), to_byte.min(end));
            if first < last {
                let piece = Sge { addr: entry.addr + u64::from(first - start), length: last - first, ..*entry };
                let mut at = first;
                let _ = self.regions.each_span(pair.domain, &piece, |from| {
                    put(at, from);
                    at += from.len() as u32;
                    Ok(())
                });
            }
            start = end;
        }
    }
}
