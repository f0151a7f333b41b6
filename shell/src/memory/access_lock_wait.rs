//! How parked threads wait: the protocol between the lock's word and its queue.
//!
//! Holders are in the [`Word`], waiters in the [`Parker`]'s queue; who enters next is decided by `core`'s `Batch`. A waiter
//! that is woken has been let in already: nobody can come between.

use std::time::{Duration, Instant};

use bareverbs_core::access::{AccessRefused, Entry, MAX_HOLDERS, Mode, Phase, Waiting, Word};

use super::parker::{Parked, Parker};

/// A word and the queue of those that wait for it.
pub(super) struct ParkQueue<P: Parker> {
    word: Word<P::Atomic>,
    parker: P,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Endless,
    AtMost(Duration),
}

impl<P: Parker> ParkQueue<P> {
    pub(super) const fn over(word: Word<P::Atomic>, parker: P) -> Self {
        ParkQueue { word, parker }
    }

    #[inline]
    pub(super) fn acquire(&self, mode: Mode, patience: Patience) -> Result<(), AccessRefused> {
        if self.word.enter_plain(mode) {
            return Ok(());
        }
        self.acquire_slowly(mode, patience)
    }

    /// Cannot fail: one alone is never too many, and its patience has no end.
    #[inline]
    pub(super) fn acquire_exclusive(&self) {
        if !self.word.enter_plain(Mode::Exclusive) {
            self.acquire_exclusive_slowly();
        }
    }

    #[cold]
    fn acquire_exclusive_slowly(&self) {
        while self.acquire_slowly(Mode::Exclusive, Patience::Endless).is_err() {}
    }

    #[inline]
    pub(super) fn try_acquire(&self, mode: Mode) -> Result<(), AccessRefused> {
        self.word.try_enter(mode)
    }

    /// Joins a running read phase past all waiters.
    pub(super) fn join_readers(&self) -> bool {
        self.word.join(Mode::Read)
    }

    #[inline]
    pub(super) fn leave(&self, mode: Mode) {
        if self.word.leave(mode) {
            self.hand_over();
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.word.state().phase()
    }

    pub(super) fn waiting(&self) -> Waiting {
        self.parker.waiting(&self.word)
    }

    #[cold]
    fn acquire_slowly(&self, mode: Mode, patience: Patience) -> Result<(), AccessRefused> {
        let deadline = match patience {
            Patience::Endless => None,
            // Past the end of time is as good as never.
            Patience::AtMost(time) => Instant::now().checked_add(time),
        };
        let mut entry = self.word.enter(mode);
        let mut round = 0;
        // Once anybody waits, looking again is no use: nobody overtakes it.
        while entry == Entry::Waits && !self.word.state().is_waited_for() && self.parker.pause(round) {
            entry = self.word.enter(mode);
            round += 1;
        }
        if entry == Entry::Waits {
            entry = match self.parker.park(&self.word, mode, deadline) {
                Parked::Not(entry) => entry,
                Parked::LetIn => {
                    // Whoever let this thread in changed the word; so this orders it behind all that left before.
                    let _ = self.word.state();
                    Entry::Entered
                }
                Parked::TimedOut => {
                    // Those behind it may now be able to enter, or nobody may be left that the word must announce.
                    self.hand_over();
                    return Err(AccessRefused::TimedOut);
                }
            };
        }
        match entry {
            Entry::Entered => Ok(()),
            _ => Err(AccessRefused::Full { limit: MAX_HOLDERS }),
        }
    }

    #[cold]
    fn hand_over(&self) {
        self.parker.hand_over(&self.word);
    }
}
