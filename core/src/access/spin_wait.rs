//! How spinning threads wait: the protocol between the lock's word and its line.
//!
//! Holders are in the [`Word`], waiters in the [`Line`]. The rule protected: **count first, then call**. Whoever hands over
//! counts the next holders in the word before it calls them in the line, so nobody leaves before being counted; and it
//! forgets the word's flag before it looks at the line, so nobody who takes a place and then sets the flag is missed.
//!
//! Only the one that has the handover bit calls waiters. Nobody waits for it: others leave it a note (the flag) and go. What a
//! waiter does on its own is give up its place, and join a running phase of its mode when it stands first.

use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};

use spin::RelaxStrategy;

use super::atomic::AtomicWord;
use super::line::{Line, Place};
use super::mode::{AccessRefused, Mode};
use super::state::Left;
use super::word::{Entry, FULL, Word};

/// A word, a line, and the way to relax between two looks.
pub(super) struct SpinQueue<R, A> {
    pub(super) word: Word<A>,
    line: A,
    relax: PhantomData<fn() -> R>,
}

impl<R> SpinQueue<R, AtomicU32> {
    pub(super) const fn new() -> Self {
        SpinQueue { word: Word::new(), line: AtomicU32::new(Line::EMPTY.bits()), relax: PhantomData }
    }
}

impl<R, A: Default> Default for SpinQueue<R, A> {
    fn default() -> Self {
        SpinQueue { word: Word::default(), line: A::default(), relax: PhantomData }
    }
}

impl<R: RelaxStrategy, A: AtomicWord> SpinQueue<R, A> {
    #[inline]
    pub(super) fn acquire(&self, mode: Mode, expired: impl FnMut() -> bool) -> Result<(), AccessRefused> {
        if self.word.enter_plain(mode) {
            return Ok(());
        }
        self.acquire_slowly(mode, expired)
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
        while self.acquire_slowly(Mode::Exclusive, || false).is_err() {}
    }

    #[cold]
    fn acquire_slowly(&self, mode: Mode, mut expired: impl FnMut() -> bool) -> Result<(), AccessRefused> {
        loop {
            match self.word.enter(mode) {
                Entry::Entered => return Ok(()),
                Entry::Full => return Err(FULL),
                Entry::Waits => {}
            }
            if let Some(place) = self.take_place(mode) {
                // From the announcement on, whoever hands over sees the place; so only now is it waited in.
                return match self.word.enter_or_announce(mode) {
                    Entry::Waits => self.wait(place, expired),
                    Entry::Entered => {
                        self.entered_unasked(place);
                        Ok(())
                    }
                    Entry::Full if self.give_up(place) => Err(FULL),
                    Entry::Full => Ok(()),
                };
            }
            if expired() {
                return Err(AccessRefused::TimedOut);
            }
            R::relax();
        }
    }

    fn wait(&self, place: Place, mut expired: impl FnMut() -> bool) -> Result<(), AccessRefused> {
        loop {
            let line = self.line();
            if line.is_called(place) {
                return Ok(());
            }
            // Those who stood before this waiter have given up, and its own mode runs.
            if line.first() == Some(place.mode()) && self.word.join(place.mode()) {
                self.entered_unasked(place);
                return Ok(());
            }
            // The caller's code may panic, and so may its way to relax.
            let standing = Standing { queue: self, place };
            let out_of_patience = expired();
            if !out_of_patience {
                R::relax();
            }
            core::mem::forget(standing);
            if out_of_patience {
                return if self.give_up(place) { Err(AccessRefused::TimedOut) } else { Ok(()) };
            }
        }
    }

    /// The caller holds the lock and leaves the line. If it has been called meanwhile it holds the lock twice.
    fn entered_unasked(&self, place: Place) {
        if !self.give_up(place) {
            self.leave(place.mode());
        }
    }

    pub(super) fn line(&self) -> Line {
        Line::from_bits(self.line.load(Acquire))
    }

    fn replace_line(&self, old: Line, new: Line) -> bool {
        self.line.compare_exchange_weak(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
    }

    fn take_place(&self, mode: Mode) -> Option<Place> {
        loop {
            let line = self.line();
            let (next, place) = line.take_place(mode)?;
            if self.replace_line(line, next) {
                return Some(place);
            }
        }
    }

    /// Leaves the line; false if the place has been called already.
    fn give_up(&self, place: Place) -> bool {
        loop {
            let line = self.line();
            let Some(next) = line.give_up(place) else {
                return false;
            };
            if self.replace_line(line, next) {
                // With nobody left in it, the word must stop saying that somebody waits.
                if next.is_empty() && self.word.begin_handover() {
                    self.hand_over();
                }
                return true;
            }
        }
    }

    #[inline]
    pub(super) fn leave(&self, mode: Mode) {
        if self.word.leave(mode) {
            self.leave_to_waiters();
        }
    }

    #[cold]
    fn leave_to_waiters(&self) {
        if self.word.begin_handover() {
            self.hand_over();
        }
    }

    /// Calls those who are next, if nobody holds the lock. The caller has the handover bit.
    fn hand_over(&self) {
        loop {
            let state = self.word.before_looking();
            let line = self.line();
            let done = match line.call(state) {
                Some(call) => {
                    if self.word.admit(call.mode, call.count) && !self.replace_line(line, call.rest) {
                        self.word.retract(call.mode, call.count);
                    }
                    false
                }
                None if line.is_empty() => self.word.finish_handover(Left::Nobody),
                None => self.word.finish_handover(Left::Some),
            };
            if done {
                return;
            }
        }
    }
}

/// A waiter while code that is not the lock's runs. When that panics, the waiter leaves the line, or the lock if it has
/// been called meanwhile: nobody would hand over to one that is gone, nor leave for it.
struct Standing<'queue, R: RelaxStrategy, A: AtomicWord> {
    queue: &'queue SpinQueue<R, A>,
    place: Place,
}

impl<R: RelaxStrategy, A: AtomicWord> Drop for Standing<'_, R, A> {
    fn drop(&mut self) {
        // A model that waits for ever is ended by a panic inside its way to relax; its atomics must not be touched after that.
        if cfg!(not(all(loom, test))) {
            self.queue.entered_unasked(self.place);
        }
    }
}
