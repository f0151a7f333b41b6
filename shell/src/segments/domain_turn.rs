//! Whose turn it is to scan and bind.
//!
//! Protects: one caller at a time scans, with no lock held, and nobody waits for ever. A turn ends when it is dropped, by a
//! panic too. A caller waits for another's turn no longer than its patience, whatever that one is at: its scanner, or a hook that
//! is told of what could not be freed, may need something that this very caller holds. A thread that comes again within its own
//! turn (a scanner that asks its domain) is told so.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use super::domain_round::Round;

/// The turns of a domain.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// Whose turn it is.
    holder: Option<ThreadId>,
    /// How many turns have begun.
    begun: Ticket,
    /// What the last turn to bind came to.
    last: Option<(Ticket, Arc<Round>)>,
}

/// A turn's number, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// What a caller that wants a turn gets.
pub(super) enum Entry<'a> {
    /// The turn.
    Mine(Turn<'a>),
    /// Another's turn ended: what it came to, if it began after this caller came, and so saw what this caller is about.
    Ended(Option<Arc<Round>>),
    /// This thread has the turn already.
    Reentered,
    /// Another's turn is not over, and this caller's patience is.
    StillScanning,
}

impl Turns {
    /// To be asked when a caller comes: turns that begin later see what it is about.
    pub(super) fn arrive(&self) -> Ticket {
        self.lock().begun
    }

    /// Takes the turn, or waits until another's ends.
    pub(super) fn enter(&self, arrived: Ticket, patience_ends: Option<Instant>) -> Entry<'_> {
        let mut state = self.lock();
        let Some(holder) = state.holder else { return Entry::Mine(self.begin(state)) };
        if holder == thread::current().id() {
            return Entry::Reentered;
        }
        let waited_for = state.begun;
        while state.holder.is_some() && state.begun == waited_for {
            state = match patience_ends.map(|ends| ends.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return Entry::StillScanning,
                Some(left) => self.over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.over.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let seen = state.last.as_ref().filter(|(ticket, _)| *ticket > arrived);
        Entry::Ended(seen.map(|(_, round)| Arc::clone(round)))
    }

    fn begin<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Turn<'a> {
        state.begun = Ticket(state.begun.0 + 1);
        state.holder = Some(thread::current().id());
        Turn { of: self, ticket: state.begun }
    }

    /// Nothing panics with it held, and what it guards is whole at any time.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to scan and bind, until it is dropped.
pub(super) struct Turn<'a> {
    of: &'a Turns,
    ticket: Ticket,
}

impl Turn<'_> {
    /// Ends the turn with what it came to, for those who waited.
    pub(super) fn end(self, round: &Arc<Round>) {
        let before = self.of.lock().last.replace((self.ticket, Arc::clone(round)));
        drop(before);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.lock().holder = None;
        self.of.over.notify_all();
    }
}
