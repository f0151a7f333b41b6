//! Operations in flight, oldest first.
//!
//! The rules this file protects: **one word to the caller for each operation, and its place is free only when its last request
//! has completed**, since until then a device may use its memory. Requests of a send queue complete in order, so a completion
//! can only be the oldest operation's.

use core::fmt;

use crate::one_sided::numbers::Numbers;

/// An operation in flight, or one that was: no other in the process ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OperationId(u64);

impl OperationId {
    /// The `wr_id` of its first request.
    pub const fn raw(self) -> u64 {
        self.0
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {:#x}", self.0)
    }
}

/// A place for an operation, not yet taken: for its requests to be posted, and then [`Books::posted`](super::Books::posted).
/// Dropping it changes nothing.
#[must_use = "an operation whose requests were posted is to be entered"]
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    pub(super) first: u64,
    pub(super) parts: u32,
    pub(super) slot: usize,
}

impl Start {
    /// Which place it will have, below the capacity: what keeps its memory is kept there.
    #[inline]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// The `wr_id` of its `n`-th request, counted from 0.
    #[inline]
    pub const fn wr_id(&self, n: u32) -> u64 {
        self.first.wrapping_add(n as u64)
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    Operations,
    Slots { free: u32 },
    WorkIdsUsedUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Live {
    /// Number of the first request.
    first: u64,
    /// How many requests it is.
    parts: u32,
    /// How many of them are known to be done.
    done: u32,
    /// Whether the caller was told of its end.
    told: bool,
}

/// What a completion was of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matched {
    /// A request of the oldest operation.
    Oldest {
        operation: OperationId,
        /// Whether the caller is to be told now.
        tell: bool,
        /// The operation's place, where nothing of it is outstanding any more.
        freed: Option<usize>,
    },
    /// A request of a later one, though that many before it are outstanding.
    Later { skipped: u32 },
    /// Nothing that is in flight.
    Unknown,
}

/// Whether a completion was a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Success,
    Failed,
}

/// At most `N` operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operations<const N: usize> {
    numbers: Numbers,
    ring: [Live; N],
    oldest: usize,
    live: usize,
    /// Of those, how many the caller waits for.
    untold: usize,
    slots: u32,
    slots_used: u32,
}

impl<const N: usize> Operations<N> {
    pub(super) fn new(numbers: Numbers, slots: u32) -> Self {
        let none = Live { first: 0, parts: 0, done: 0, told: true };
        Self { numbers, ring: [none; N], oldest: 0, live: 0, untold: 0, slots, slots_used: 0 }
    }

    pub(super) const fn live(&self) -> usize {
        self.live
    }

    #[inline]
    pub(super) const fn untold(&self) -> usize {
        self.untold
    }

    #[inline]
    pub(super) fn start(&mut self, parts: u32) -> Result<Start, NoPlace> {
        if self.live >= N {
            return Err(NoPlace::Operations);
        }
        let free = self.slots.saturating_sub(self.slots_used);
        // None at all, too: no completion would ever end it. That wraps to more than any number of slots.
        if parts.wrapping_sub(1) >= free {
            return Err(NoPlace::Slots { free });
        }
        let first = self.numbers.peek(parts).ok_or(NoPlace::WorkIdsUsedUp)?;
        Ok(Start { first, parts, slot: self.place(self.live) })
    }

    #[inline]
    pub(super) fn posted(&mut self, start: &Start) -> OperationId {
        let Start { first, parts, slot } = *start;
        if let Some(place) = self.ring.get_mut(slot) {
            *place = Live { first, parts, done: 0, told: false };
            // Below the capacity, and the slots, which was seen before.
            self.live = self.live.wrapping_add(1);
            self.untold = self.untold.wrapping_add(1);
            self.slots_used = self.slots_used.wrapping_add(parts);
            self.numbers.take(parts);
        }
        OperationId(first)
    }

    /// A success that ends the oldest operation, of which the caller waits to be told; `None`, and nothing changed, if it is
    /// anything else: [`complete`](Self::complete) tells what.
    #[inline]
    pub(super) fn end_oldest(&mut self, wr_id: u64) -> Option<(OperationId, usize)> {
        let (slot, any) = (self.oldest, self.live > 0);
        let oldest = self.ring.get_mut(slot).filter(|oldest| any && !oldest.told && oldest.is_last(wr_id))?;
        oldest.done = oldest.parts;
        oldest.told = true;
        let (operation, parts) = (OperationId(oldest.first), oldest.parts);
        self.untold = self.untold.saturating_sub(1);
        self.let_go(parts);
        Some((operation, slot))
    }

    /// The oldest, of so many requests, is in flight no more.
    #[inline]
    fn let_go(&mut self, parts: u32) {
        self.slots_used = self.slots_used.saturating_sub(parts);
        self.live = self.live.saturating_sub(1);
        self.oldest = self.place(1);
    }

    pub(super) fn complete(&mut self, wr_id: u64, status: Status) -> Matched {
        let (slot, any) = (self.oldest, self.live > 0);
        let oldest = match self.ring.get_mut(slot) {
            Some(oldest) if any && (u64::from(oldest.done)..u64::from(oldest.parts)).contains(&oldest.at(wr_id)) => {
                oldest
            }
            _ => return self.not_the_oldest(wr_id),
        };
        // Below the count of its parts, which has 32 bits.
        oldest.done = (oldest.at(wr_id) as u32).wrapping_add(1);
        let (operation, is_whole, parts) = (OperationId(oldest.first), oldest.done == oldest.parts, oldest.parts);
        let tell = !oldest.told && (is_whole || status == Status::Failed);
        oldest.told |= tell;
        if tell {
            self.untold = self.untold.saturating_sub(1);
        }
        if is_whole {
            self.let_go(parts);
        }
        Matched::Oldest { operation, tell, freed: is_whole.then_some(slot) }
    }

    /// The oldest operation that the caller waits for, of which it is told now.
    pub(super) fn tell_next(&mut self) -> Option<OperationId> {
        let slot =
            (0..self.live).map(|nth| self.place(nth)).find(|slot| self.ring.get(*slot).is_some_and(Live::waits))?;
        let live = self.ring.get_mut(slot)?;
        live.told = true;
        self.untold = self.untold.saturating_sub(1);
        Some(OperationId(live.first))
    }

    /// Counts the latest operation as told of.
    pub(super) fn tell_latest(&mut self, operation: OperationId) {
        let latest = self.live.checked_sub(1).map(|nth| self.place(nth));
        if let Some(live) = latest.and_then(|slot| self.ring.get_mut(slot))
            && live.first == operation.0
            && live.waits()
        {
            live.told = true;
            self.untold = self.untold.saturating_sub(1);
        }
    }

    /// None of them is in flight any more, and nobody is told.
    pub(super) const fn forget_all(&mut self) {
        self.live = 0;
        self.untold = 0;
        self.slots_used = 0;
    }

    /// Those that the caller waits for, oldest first.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = OperationId> {
        let all = (0..self.live).filter_map(|nth| self.ring.get(self.place(nth)));
        all.filter(|live| live.waits()).map(|live| OperationId(live.first))
    }

    #[cold]
    fn not_the_oldest(&self, wr_id: u64) -> Matched {
        let mut skipped = 0u32;
        for live in (0..self.live).filter_map(|nth| self.ring.get(self.place(nth))) {
            let at = live.at(wr_id);
            if at < u64::from(live.parts) && at >= u64::from(live.done) {
                return Matched::Later { skipped: skipped.saturating_add(at as u32) };
            }
            skipped = skipped.saturating_add(live.parts.saturating_sub(live.done));
        }
        Matched::Unknown
    }

    /// The place of the `nth` operation after the oldest; `nth` is at most the capacity.
    #[inline]
    fn place(&self, nth: usize) -> usize {
        let at = self.oldest.wrapping_add(nth);
        if at < N { at } else { at.wrapping_sub(N) }
    }
}

impl Live {
    /// Which of its requests has that number; beyond its last if none.
    #[inline]
    fn at(&self, wr_id: u64) -> u64 {
        wr_id.wrapping_sub(self.first)
    }

    /// Whether its last request has that number.
    #[inline]
    fn is_last(&self, wr_id: u64) -> bool {
        self.at(wr_id).wrapping_add(1) == u64::from(self.parts)
    }

    fn waits(&self) -> bool {
        !self.told
    }
}
