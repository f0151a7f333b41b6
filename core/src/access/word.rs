//! The lock's word as an atomic: which ordering each change has, and what an uncontended change costs.
//!
//! The rule protected: **whoever enters sees what those before wrote**. Entering is an acquire, leaving a release; every
//! change is a read-modify-write, so a chain of leavers is one release sequence and who enters synchronises with all of it.
//!
//! Entering an idle lock is one compare-exchange, leaving it one addition. All else is `#[cold]`.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::atomic::AtomicWord;
use super::mode::{AccessRefused, Mode};
use super::state::{Arrival, Handover, Left, MAX_HOLDERS, NOT_PLAIN, State, step};

/// An access lock without a way to wait: what each waiting form is built on.
///
/// It counts holders and trusts its user: who calls [`leave`](Self::leave) without having entered breaks the exclusion of
/// this word (nothing else). The forms keep it private and hand out guards.
///
/// A form that waits asks, and is told when to hand over; who comes next is its queue's to say:
///
/// ```
/// use bareverbs_core::access::{AccessRefused, Entry, Left, Mode, Phase, Word};
///
/// let word = Word::new();
/// assert_eq!(word.try_enter(Mode::Disjoint), Ok(()));
/// assert_eq!(word.try_enter(Mode::Read), Err(AccessRefused::Busy)); // and has changed nothing
/// assert_eq!(word.enter_or_announce(Mode::Read), Entry::Waits); // now somebody waits
/// assert_eq!(word.try_enter(Mode::Disjoint), Err(AccessRefused::Busy)); // and is not overtaken
///
/// assert!(word.leave(Mode::Disjoint)); // the last one out: somebody waits
/// assert!(word.begin_handover()); // the choice is ours
/// word.before_looking();
/// assert!(word.admit(Mode::Read, 1)); // our queue holds that one reader
/// assert!(word.finish_handover(Left::Nobody));
/// assert_eq!(word.state().phase(), Phase::Read(1));
/// ```
#[derive(Debug, Default)]
pub struct Word<A = AtomicU32> {
    bits: A,
}

/// What became of one who arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Entry {
    /// It holds the lock.
    Entered,
    /// It must wait.
    Waits,
    /// It is refused: the phase has [`MAX_HOLDERS`] holders.
    Full,
}

impl Word {
    /// A lock that nobody holds.
    #[must_use]
    pub const fn new() -> Self {
        Word { bits: AtomicU32::new(0) }
    }
}

impl<A: AtomicWord> Word<A> {
    /// What the word says now.
    #[inline]
    pub fn state(&self) -> State {
        State::from_bits(self.bits.load(Acquire))
    }

    /// Enters a lock in which this takes no more than counting one up: one compare-exchange. False says nothing but that
    /// [`enter`](Self::enter) has to look closer.
    #[inline]
    #[must_use]
    pub fn enter_plain(&self, mode: Mode) -> bool {
        // An exclusive one can only enter a word that reads 0, so it need not look.
        let seen = if mode.is_shared() { self.bits.load(Relaxed) } else { 0 };
        let plain = match mode {
            Mode::Read => seen & NOT_PLAIN == 0,
            Mode::Disjoint => seen.wrapping_neg() & NOT_PLAIN == 0,
            Mode::Exclusive => true,
        };
        plain && self.bits.compare_exchange_weak(seen, seen.wrapping_add(step(mode)), Acquire, Relaxed).is_ok()
    }

    /// Enters if the lock is free for `mode` and nobody waits.
    ///
    /// # Errors
    /// [`Busy`](AccessRefused::Busy) or [`Full`](AccessRefused::Full).
    #[inline]
    pub fn try_enter(&self, mode: Mode) -> Result<(), AccessRefused> {
        if self.enter_plain(mode) {
            return Ok(());
        }
        match self.enter(mode) {
            Entry::Entered => Ok(()),
            Entry::Waits => Err(AccessRefused::Busy),
            Entry::Full => Err(FULL),
        }
    }

    /// Enters if the lock is free for `mode` and nobody waits; changes nothing otherwise.
    #[cold]
    pub fn enter(&self, mode: Mode) -> Entry {
        self.arrive(mode, |_| None)
    }

    /// Enters, or says that somebody waits. On [`Entry::Waits`] the word has been written even where that changed nothing, so
    /// that whoever chooses the next phase after this has seen all that the caller did before.
    #[cold]
    pub fn enter_or_announce(&self, mode: Mode) -> Entry {
        self.arrive(mode, Some)
    }

    /// Enters the running phase of a shared mode past all waiters; false if no such phase runs or it is full.
    pub fn join(&self, mode: Mode) -> bool {
        self.update(|state| state.join(mode)).is_ok()
    }

    /// Leaves. True if the lock may now be left to those who wait: the caller must hand it over, or see that another does.
    #[inline]
    #[must_use]
    pub fn leave(&self, mode: Mode) -> bool {
        let before = self.bits.fetch_sub(step(mode), Release);
        let after = State::from_bits(before).leave(mode);
        match mode {
            // One alone leaves nothing but flags; against zero they are told for free.
            Mode::Exclusive => after != State::VACANT,
            _ => after.is_left_to_waiters(),
        }
    }

    /// Takes the right to choose the next phase, or sees to it that whoever has it looks once more; false if there is nothing
    /// for the caller to do.
    pub fn begin_handover(&self) -> bool {
        let mut taken = false;
        let _ = self.update(|state| {
            let next;
            (taken, next) = match state.begin_handover() {
                Handover::Nobody => (false, None),
                Handover::Noted(next) => (false, Some(next)),
                Handover::Taken(next) => (true, Some(next)),
            };
            next
        });
        taken
    }

    /// The one that is choosing is about to look at those who wait.
    pub fn before_looking(&self) -> State {
        match self.update(|state| Some(state.before_looking())) {
            Ok(state) | Err(state) => state,
        }
    }

    /// `count` waiters enter together; false if the lock is held in another mode, or cannot count so many.
    pub fn admit(&self, mode: Mode, count: u32) -> bool {
        self.update(|state| state.admit(mode, count)).is_ok()
    }

    /// The reverse of [`admit`](Self::admit).
    pub fn retract(&self, mode: Mode, count: u32) {
        let _ = self.update(|state| Some(state.retract(mode, count)));
    }

    /// The one that was choosing is done; false if it must look again.
    pub fn finish_handover(&self, left: Left) -> bool {
        self.update(|state| state.finish_handover(left)).is_ok()
    }

    /// Those who wait were counted under their queue's lock.
    pub fn note_waiters(&self, left: Left) {
        let _ = self.update(|state| Some(state.with_waiters(left)));
    }

    /// Arrives; `waiting` says what the word shall read if the caller must wait.
    fn arrive(&self, mode: Mode, waiting: impl Fn(State) -> Option<State>) -> Entry {
        let mut entry = Entry::Waits;
        let _ = self.update(|state| {
            let next;
            (entry, next) = match state.arrive(mode) {
                Arrival::Enters(next) => (Entry::Entered, Some(next)),
                Arrival::Waits(next) => (Entry::Waits, waiting(next)),
                Arrival::Full => (Entry::Full, None),
            };
            next
        });
        entry
    }

    /// Changes the word from one state to another; the state found, if it is another.
    ///
    /// # Errors
    /// The state found.
    pub fn replace(&self, old: State, new: State) -> Result<(), State> {
        self.bits.compare_exchange_weak(old.bits(), new.bits(), AcqRel, Acquire).map(drop).map_err(State::from_bits)
    }

    /// Changes the word as `change` says of the newest state, and gives the new state; or the newest, if it says none.
    fn update(&self, mut change: impl FnMut(State) -> Option<State>) -> Result<State, State> {
        let mut state = self.state();
        while let Some(next) = change(state) {
            match self.replace(state, next) {
                Ok(()) => return Ok(next),
                Err(newest) => state = newest,
            }
        }
        Err(state)
    }
}

/// Refused for want of room in the count.
pub(super) const FULL: AccessRefused = AccessRefused::Full { limit: MAX_HOLDERS };
