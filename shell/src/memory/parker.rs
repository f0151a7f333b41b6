//! What the parking access lock asks of a queue of sleeping threads, so that a model checker's can stand in for the system's.
//!
//! The rule protected: **whoever is in the queue is announced in the word**. Both are changed under the queue's lock alone, so
//! a thread that is told to wait is in the queue before anybody can look for it there.

use std::time::Instant;

use bareverbs_core::access::{AtomicWord, Batch, Entry, Left, Mode, Verdict, Waiting, Word};

/// Queues threads by the word they wait for, in order of arrival.
pub(super) trait Parker {
    /// The atomic of the words that are waited for.
    type Atomic: AtomicWord;

    /// Under the queue's lock: enters, or is announced and queued; then sleeps until a handover wakes this thread or the
    /// deadline passes.
    fn park(&self, word: &Word<Self::Atomic>, mode: Mode, deadline: Option<Instant>) -> Parked;

    /// Under the queue's lock: lets those enter who are next, by [`let_in`], and tells the word by [`Word::note_waiters`]
    /// whether any are left. Then wakes those that have entered.
    fn hand_over(&self, word: &Word<Self::Atomic>);

    /// How many threads wait for this word.
    fn waiting(&self, word: &Word<Self::Atomic>) -> Waiting;

    /// Passes a moment before the `round`-th look at a lock that somebody holds; false once it is time to park.
    fn pause(&self, round: u32) -> bool;
}

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parked {
    /// It never began: the lock was free, or full. Never [`Entry::Waits`].
    Not(Entry),
    /// The thread was let in, and holds the lock.
    LetIn,
    /// The deadline passed. The thread is not in the queue, and does not hold the lock.
    TimedOut,
}

/// What becomes of a queued thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It has entered: take it out and wake it.
    Wake,
    /// It stays; look at the next.
    Skip,
    /// It stays, and so do all behind it.
    Stop,
}

/// Lets the next thread of the queue into the lock if it belongs to the `batch` that enters. To be called in order of arrival.
pub(super) fn let_in<A: AtomicWord>(word: &Word<A>, batch: &mut Batch, mode: Mode) -> Choice {
    loop {
        let state = word.state();
        match batch.consider(state, mode) {
            Verdict::Admit(next) => {
                if word.replace(state, next).is_ok() {
                    batch.admitted(mode);
                    return Choice::Wake;
                }
            }
            Verdict::Skip => return Choice::Skip,
            Verdict::Stop => return Choice::Stop,
        }
    }
}

/// What a queue that still has threads, or has none, tells the word.
pub(super) fn left(some: bool) -> Left {
    if some { Left::Some } else { Left::Nobody }
}
