//! Where spinning waiters stand: the whole waiting line in one word.
//!
//! The spinning form has no memory to queue its waiters in, so the line is packed: exclusive waiters each have one of eight
//! slots, and a shared mode has one batch with a count (`batch.rs` says why one is enough). The rule protected: **a waiter
//! keeps its place, can leave it at any time, and cannot mistake another's turn for its own**.
//!
//! # The word
//!
//! | bits | what |
//! |---|---|
//! | 0..8 | a waiting exclusive one in each slot of a ring |
//! | 8..11 | head: the ring's first slot |
//! | 11..21 | readers: the slot *before* which the batch stands (3), how many wait (6), turn (1) |
//! | 21..31 | disjoint writers: likewise |
//! | 31 | where both batches stand before the same slot: the disjoint writers come first |
//!
//! # Invariants
//!
//! - Distances are counted from the head, and at most seven slots are in use, so a distance of 7 is behind them all.
//! - The turn of a shared mode flips when its batch is called. It cannot flip again before every member has seen it: each
//!   holds the lock from that moment, and the next batch of that mode is called only once nobody does.
//! - The slot of an exclusive waiter that was called lies right behind the ring's end (the head is the slot after it), so it
//!   is not given again before another batch is called, and until then its waiter holds the lock.
//!
//! # The head
//!
//! A batch stays where its first member stood, also when that one gives up while others of it wait. An exclusive waiter stands
//! in its slot until it is called, since it knows itself by that; so a slot that another gives up before it stays a gap in the
//! ring. Gaps behind all that wait are free at once; those before all that wait, with the next call: it moves the head up to
//! the nearest that still stands (a call of an exclusive waiter, to the slot behind its own, which must not be given again
//! yet). So no gap outlives the calls of those that stand around it, whether anybody waits exclusively or not.

use super::mode::{Mode, Phase, Waiting};
use super::state::State;

const SLOTS: u32 = 8;
const SLOT_BITS: u32 = 3;
const SLOT_MASK: u32 = SLOTS - 1;
const IN_USE: u32 = (1 << SLOTS) - 1;
const HEAD_SHIFT: u32 = 8;
const COUNT_SHIFT: u32 = SLOT_BITS;
const TURN_SHIFT: u32 = COUNT_SHIFT + 6;
const DISJOINT_FIRST: u32 = 1 << 31;

/// The most readers, and the most disjoint writers, that can stand in a line; those beyond spin until a place is free.
pub const MAX_SHARED_PLACES: u32 = (1 << (TURN_SHIFT - COUNT_SHIFT)) - 1;

/// The most exclusive waiters that can stand in a line; those beyond spin until a place is free. One that has given up counts
/// as long as others stand before and behind it, and, where it stood first, until the next call.
pub const MAX_EXCLUSIVE_PLACES: u32 = SLOTS - 1;

/// What a line's word says.
///
/// ```
/// use bareverbs_core::access::{Line, Mode, State};
///
/// let (line, reader) = Line::EMPTY.take_place(Mode::Read).unwrap();
/// let (line, writer) = line.take_place(Mode::Exclusive).unwrap();
/// let (line, late_reader) = line.take_place(Mode::Read).unwrap(); // with those of its mode
///
/// let call = line.call(State::VACANT).unwrap(); // nobody holds the lock
/// assert_eq!((call.mode, call.count), (Mode::Read, 2)); // both readers, together
/// assert!(call.rest.is_called(reader) && call.rest.is_called(late_reader));
/// assert!(!call.rest.is_called(writer));
///
/// // Readers hold the lock now, so the writer's turn has not come; it may give up, too.
/// assert_eq!(call.rest.call(State::held(Mode::Read, 2).unwrap()), None);
/// assert!(call.rest.give_up(writer).unwrap().is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Line(u32);

/// A waiter's place in a line: what it must remember to know when its turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Place {
    mode: Mode,
    /// The slot of an exclusive waiter; the turn that a shared one has joined before it was called.
    mark: u32,
}

impl Place {
    /// What is waited for.
    #[must_use]
    pub const fn mode(self) -> Mode {
        self.mode
    }
}

/// Those of a line who enter next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Call {
    /// How they enter.
    pub mode: Mode,
    /// How many they are.
    pub count: u32,
    /// The line without them.
    pub rest: Line,
}

impl Line {
    /// Nobody waits.
    pub const EMPTY: Line = Line(0);

    /// What a word's bits say.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Line(bits)
    }

    /// The word.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether nobody waits.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 & IN_USE == 0 && self.count(Mode::Read) == 0 && self.count(Mode::Disjoint) == 0
    }

    /// How many wait.
    #[must_use]
    pub const fn waiting(self) -> Waiting {
        Waiting {
            read: self.count(Mode::Read),
            disjoint: self.count(Mode::Disjoint),
            exclusive: (self.0 & IN_USE).count_ones(),
        }
    }

    /// One more waits for `mode`: behind all that wait, or with those of its own shared mode. None if its places are taken.
    #[must_use]
    pub fn take_place(self, mode: Mode) -> Option<(Line, Place)> {
        if let Mode::Exclusive = mode {
            let distance = self.end();
            if distance >= MAX_EXCLUSIVE_PLACES {
                return None;
            }
            let slot = self.slot_at(distance);
            let place = Place { mode, mark: slot };
            return Some((Line(self.0 | (1 << slot)), place));
        }
        let count = self.count(mode);
        if count >= MAX_SHARED_PLACES {
            return None;
        }
        let line = if count == 0 { self.stand_last(mode) } else { self };
        let place = Place { mode, mark: line.turn(mode) };
        Some((line.with_count(mode, count + 1), place))
    }

    /// One gives up its place; none if it has been called already, and so holds the lock.
    #[must_use]
    pub const fn give_up(self, place: Place) -> Option<Line> {
        if self.is_called(place) {
            return None;
        }
        match place.mode {
            Mode::Exclusive => Some(Line(self.0 & !(1 << (place.mark & SLOT_MASK)))),
            shared => Some(self.with_count(shared, self.count(shared).saturating_sub(1))),
        }
    }

    /// Whether the one who took this place has been called, and so holds the lock.
    #[must_use]
    pub const fn is_called(self, place: Place) -> bool {
        match place.mode {
            Mode::Exclusive => self.0 & (1 << (place.mark & SLOT_MASK)) == 0,
            shared => self.turn(shared) != place.mark,
        }
    }

    /// The mode of those who are next; none if nobody waits.
    #[must_use]
    pub fn first(self) -> Option<Mode> {
        let disjoint_first = self.0 & DISJOINT_FIRST != 0;
        // A batch stands before its slot, so at the same distance an exclusive waiter is last.
        let ranks = [
            (Mode::Read, self.batch_distance(Mode::Read), u32::from(disjoint_first)),
            (Mode::Disjoint, self.batch_distance(Mode::Disjoint), u32::from(!disjoint_first)),
            (Mode::Exclusive, self.first_slot_in_use(), 2),
        ];
        ranks.into_iter().filter_map(|(mode, distance, tie)| Some(((distance?, tie), mode))).min().map(|(_, mode)| mode)
    }

    /// Who enters next, when the lock's word reads `state`: none while anybody holds it, or nobody waits.
    #[must_use]
    pub fn call(self, state: State) -> Option<Call> {
        if state.phase() != Phase::Vacant {
            return None;
        }
        let mode = self.first()?;
        if mode.is_shared() {
            let turned = Line(self.0 ^ (1 << (shift(mode) + TURN_SHIFT))).with_count(mode, 0);
            // Nobody holds the lock, so whoever was called exclusively before has seen it: no slot is kept for it.
            return Some(Call {
                mode,
                count: self.count(mode),
                rest: turned.with_head(turned.slot_at(turned.start())),
            });
        }
        let slot = self.slot_at(self.first_slot_in_use()?);
        let others = Line(self.0 & !(1 << slot));
        Some(Call { mode, count: 1, rest: others.with_head((slot + 1) & SLOT_MASK) })
    }

    /// The distance of those that stand first; 0 if nobody waits.
    fn start(self) -> u32 {
        let batches = [Mode::Read, Mode::Disjoint].map(|mode| self.batch_distance(mode));
        [self.first_slot_in_use(), batches[0], batches[1]].into_iter().flatten().min().unwrap_or(0)
    }

    /// The distance behind all that wait.
    fn end(self) -> u32 {
        let behind_slots = u32::BITS - self.slots_from_head().leading_zeros();
        let batches = [Mode::Read, Mode::Disjoint].map(|mode| self.batch_distance(mode).unwrap_or(0));
        behind_slots.max(batches[0]).max(batches[1])
    }

    /// The batch of a shared mode, in which nobody waits yet, stands behind all that wait.
    fn stand_last(self, mode: Mode) -> Line {
        let slot = self.slot_at(self.end());
        let place = (self.0 & !(SLOT_MASK << shift(mode))) | (slot << shift(mode));
        match mode {
            Mode::Disjoint => Line(place & !DISJOINT_FIRST),
            _ => Line(place | DISJOINT_FIRST),
        }
    }

    /// How far from the head the batch of a shared mode stands; none if it is empty.
    const fn batch_distance(self, mode: Mode) -> Option<u32> {
        if self.count(mode) == 0 {
            return None;
        }
        let slot = (self.0 >> shift(mode)) & SLOT_MASK;
        Some(slot.wrapping_sub(self.head()) & SLOT_MASK)
    }

    /// How far from the head the first exclusive waiter stands; none if there is none.
    const fn first_slot_in_use(self) -> Option<u32> {
        match self.slots_from_head() {
            0 => None,
            slots => Some(slots.trailing_zeros()),
        }
    }

    /// The slots in use, the head's in bit 0.
    const fn slots_from_head(self) -> u32 {
        let slots = self.0 & IN_USE;
        ((slots >> self.head()) | (slots << (SLOTS - self.head()))) & IN_USE
    }

    const fn slot_at(self, distance: u32) -> u32 {
        (self.head() + distance) & SLOT_MASK
    }

    const fn head(self) -> u32 {
        (self.0 >> HEAD_SHIFT) & SLOT_MASK
    }

    const fn with_head(self, slot: u32) -> Line {
        Line((self.0 & !(SLOT_MASK << HEAD_SHIFT)) | (slot << HEAD_SHIFT))
    }

    const fn turn(self, mode: Mode) -> u32 {
        (self.0 >> (shift(mode) + TURN_SHIFT)) & 1
    }

    const fn count(self, mode: Mode) -> u32 {
        (self.0 >> (shift(mode) + COUNT_SHIFT)) & MAX_SHARED_PLACES
    }

    const fn with_count(self, mode: Mode, count: u32) -> Line {
        let shift = shift(mode) + COUNT_SHIFT;
        Line((self.0 & !(MAX_SHARED_PLACES << shift)) | (count << shift))
    }
}

/// The lowest bit of what a shared mode's batch is said by.
const fn shift(mode: Mode) -> u32 {
    match mode {
        Mode::Disjoint => HEAD_SHIFT + SLOT_BITS + TURN_SHIFT + 1,
        _ => HEAD_SHIFT + SLOT_BITS,
    }
}
