//! The access lock's word, and every way it can change, as pure functions.
//!
//! Both waiting forms, the spinning one here and the parking one elsewhere, change their word by these functions and no
//! others. The rule protected: **holders of different modes never overlap, and nobody who arrives overtakes those who
//! wait**. Who of the waiting comes next is not decided here but by [`Batch`](super::Batch) and [`Line`](super::Line).
//!
//! # The word
//!
//! | bits | what |
//! |---|---|
//! | 0 | somebody waits: nobody who arrives may enter |
//! | 1 | held in exclusive mode |
//! | 2 | somebody is choosing the next phase (spinning form only; the parking form holds its queue's lock meanwhile) |
//! | 3..11 | zero |
//! | 11..32 | holders, signed: readers count up from zero, disjoint writers count down |
//!
//! The count stands on top, so that a disjoint writer who leaves adds one to `-1` and the carry falls off the end: each
//! mode leaves by one addition that needs to know nothing else, and a lock that nobody holds or waits for is `0`.

use super::mode::{Mode, Phase};

/// The most readers, or disjoint writers, that can hold a lock together (leaked guards count).
pub const MAX_HOLDERS: u32 = (1 << 20) - 1;

const WAITING: u32 = 1 << 0;
const EXCLUSIVE: u32 = 1 << 1;
const HANDOVER: u32 = 1 << 2;
const COUNT_SHIFT: u32 = 11;
const ONE: u32 = 1 << COUNT_SHIFT;

/// Set in the word (of readers) or in its negation (of disjoint writers) when entering takes more than adding one: a flag
/// is set, the other mode holds, or the count has reached half of what it can.
pub(super) const NOT_PLAIN: u32 = (ONE - 1) | (0b11 << 30);

/// What the lock's word says.
///
/// ```
/// use bareverbs_core::access::{Arrival, Mode, Phase, State};
///
/// let Arrival::Enters(one) = State::VACANT.arrive(Mode::Read) else { panic!("nobody holds it") };
/// assert_eq!(one.phase(), Phase::Read(1));
///
/// // A writer waits for the reader. From then on nobody who arrives overtakes it...
/// let Arrival::Waits(waited_for) = one.arrive(Mode::Exclusive) else { panic!("it is held") };
/// assert_eq!(waited_for.arrive(Mode::Read), Arrival::Waits(waited_for));
/// // ...but a reader that is inside already may come in once more.
/// let two = waited_for.join(Mode::Read).unwrap();
/// assert_eq!(two.phase(), Phase::Read(2));
///
/// // The last to leave hands the lock over.
/// let left = two.leave(Mode::Read).leave(Mode::Read);
/// assert!(left.is_left_to_waiters());
/// assert_eq!(left.admit(Mode::Exclusive, 1).unwrap().phase(), Phase::Exclusive);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct State(u32);

/// What becomes of one who arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Arrival {
    /// May enter; the word then reads so.
    Enters(State),
    /// Must wait; the word of a lock that is waited for reads so.
    Waits(State),
    /// The phase has [`MAX_HOLDERS`] holders.
    Full,
}

/// What one who wants to choose the next phase finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Handover {
    /// Nobody waits: nothing to do.
    Nobody,
    /// Another is choosing, and with this word will look once more before it is done.
    Noted(State),
    /// The choice is the caller's, once the word reads so.
    Taken(State),
}

impl State {
    /// Nobody holds the lock, nobody waits.
    pub const VACANT: State = State(0);

    /// What a word's bits say.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        State(bits)
    }

    /// The word.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The word of a lock that `count` hold in `mode` and nobody waits for; none if so many cannot.
    #[must_use]
    pub const fn held(mode: Mode, count: u32) -> Option<Self> {
        State::VACANT.admit(mode, count)
    }

    /// Who holds the lock.
    #[inline]
    #[must_use]
    pub const fn phase(self) -> Phase {
        let count = (self.0 as i32) >> COUNT_SHIFT;
        match count {
            _ if self.0 & EXCLUSIVE != 0 => Phase::Exclusive,
            0 => Phase::Vacant,
            1.. => Phase::Read(count.unsigned_abs()),
            _ => Phase::Disjoint(count.unsigned_abs()),
        }
    }

    /// Whether somebody waits, so that nobody who arrives may enter.
    #[inline]
    #[must_use]
    pub const fn is_waited_for(self) -> bool {
        self.0 & WAITING != 0
    }

    /// Whether somebody is choosing the next phase.
    #[inline]
    #[must_use]
    pub const fn is_handed_over(self) -> bool {
        self.0 & HANDOVER != 0
    }

    /// Whether the last holder has left waiters behind: whoever made it so hands the lock over.
    #[inline]
    #[must_use]
    pub const fn is_left_to_waiters(self) -> bool {
        self.0 == WAITING
    }

    /// One arrives and wants `mode`.
    #[must_use]
    pub const fn arrive(self, mode: Mode) -> Arrival {
        let same_phase = self.is_running(mode);
        if same_phase && self.phase().holders() >= MAX_HOLDERS {
            return Arrival::Full;
        }
        let unclaimed = self.0 & (WAITING | HANDOVER) == 0;
        if unclaimed && (same_phase || matches!(self.phase(), Phase::Vacant)) {
            Arrival::Enters(self.plus(mode, 1))
        } else {
            Arrival::Waits(State(self.0 | WAITING))
        }
    }

    /// One enters the running phase of a shared `mode` past all waiters; none if no such phase runs or it is full.
    ///
    /// For a reader that already holds the lock, and for waiters of the running mode before whom nobody else waits.
    #[must_use]
    pub const fn join(self, mode: Mode) -> Option<State> {
        if self.is_running(mode) { self.admit(mode, 1) } else { None }
    }

    /// `count` waiters enter together; none if the lock is held in another mode, or cannot count so many.
    #[must_use]
    pub const fn admit(self, mode: Mode, count: u32) -> Option<State> {
        let running = match self.phase() {
            Phase::Vacant => 0,
            phase if self.is_running(mode) => phase.holders(),
            _ => return None,
        };
        let limit = if mode.is_shared() { MAX_HOLDERS } else { 1 };
        // Bits that no lock reads can say of more holders than the limit.
        if count > limit.saturating_sub(running) {
            return None;
        }
        Some(self.plus(mode, count))
    }

    /// `count` of those admitted turn out not to wait any more. The reverse of [`admit`](Self::admit).
    #[must_use]
    pub const fn retract(self, mode: Mode, count: u32) -> State {
        State(self.0.wrapping_sub(step(mode).wrapping_mul(count)))
    }

    /// One that holds the lock in `mode` leaves.
    #[inline]
    #[must_use]
    pub const fn leave(self, mode: Mode) -> State {
        State(self.0.wrapping_sub(step(mode)))
    }

    /// One wants to choose the next phase: the last to leave, or the last waiter to give up.
    #[must_use]
    pub const fn begin_handover(self) -> Handover {
        if self.is_handed_over() {
            Handover::Noted(State(self.0 | WAITING))
        } else if self.is_waited_for() {
            Handover::Taken(State(self.0 | HANDOVER))
        } else {
            Handover::Nobody
        }
    }

    /// The one that is choosing is about to look at those who wait: whoever comes after it has looked sets the flag anew.
    #[inline]
    #[must_use]
    pub const fn before_looking(self) -> State {
        State(self.0 & !WAITING)
    }

    /// The one that was choosing has no more to admit, and `left` still wait; none if it must look again: somebody came
    /// meanwhile, or those it admitted are gone already.
    #[must_use]
    pub const fn finish_handover(self, left: Left) -> Option<State> {
        let vacant = matches!(self.phase(), Phase::Vacant);
        match left {
            _ if self.is_waited_for() => None,
            Left::Nobody => Some(State(self.0 & !HANDOVER)),
            Left::Some if vacant => None,
            Left::Some => Some(State((self.0 & !HANDOVER) | WAITING)),
        }
    }

    /// Those who wait are counted under their queue's own lock, which gives what `left` says.
    #[must_use]
    pub const fn with_waiters(self, left: Left) -> State {
        match left {
            Left::Nobody => State(self.0 & !WAITING),
            Left::Some => State(self.0 | WAITING),
        }
    }

    /// Whether a phase of this shared mode runs.
    const fn is_running(self, mode: Mode) -> bool {
        matches!((self.phase(), mode), (Phase::Read(_), Mode::Read) | (Phase::Disjoint(_), Mode::Disjoint))
    }

    #[inline]
    const fn plus(self, mode: Mode, count: u32) -> State {
        State(self.0.wrapping_add(step(mode).wrapping_mul(count)))
    }
}

/// Whether anybody is left to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Left {
    /// Nobody.
    Nobody,
    /// One or more.
    Some,
}

/// What a holder of `mode` adds to the word.
#[inline]
pub(super) const fn step(mode: Mode) -> u32 {
    match mode {
        Mode::Read => ONE,
        Mode::Disjoint => ONE.wrapping_neg(),
        Mode::Exclusive => EXCLUSIVE,
    }
}
