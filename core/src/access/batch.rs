//! Who of the waiting enters next: the rule of fairness, over any queue in order of arrival.
//!
//! A **batch** is one exclusive waiter, or *all* that wait in one shared mode. The next batch is that of the waiter who
//! has waited longest.
//!
//! # What follows
//!
//! Since a batch takes all waiters of a shared mode, at most one batch of readers and one of disjoint writers wait at a time,
//! and each stands where the first of its members stands. A waiter therefore sees, before its own phase: the phase in
//! progress, the exclusive waiters that came before it, and at most one phase of each other shared mode. Later arrivals of a
//! shared mode whose batch already waits come in with it; all others come behind. While anybody waits, nobody joins the
//! running phase, but for a recursive reader and for waiters before whom nobody waits any more.

use super::mode::Mode;
use super::state::State;

/// A batch as it is gathered from a queue, first waiter first.
///
/// ```
/// use bareverbs_core::access::{Batch, Mode, State, Verdict};
///
/// let (mut state, mut batch) = (State::VACANT, Batch::new());
/// let mut entered = Vec::new();
/// for mode in [Mode::Read, Mode::Exclusive, Mode::Read] {
///     match batch.consider(state, mode) {
///         Verdict::Admit(next) => {
///             batch.admitted(mode);
///             state = next;
///             entered.push(mode);
///         }
///         Verdict::Skip => {}
///         Verdict::Stop => break,
///     }
/// }
/// assert_eq!(entered, [Mode::Read, Mode::Read]); // together; the exclusive one is next
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Batch {
    mode: Option<Mode>,
}

/// What becomes of the waiter that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Verdict {
    /// It enters; the word then reads so.
    Admit(State),
    /// It goes on waiting; those behind it are to be looked at.
    Skip,
    /// It goes on waiting, and so do all behind it.
    Stop,
}

impl Batch {
    /// Nobody gathered yet.
    #[must_use]
    pub const fn new() -> Self {
        Batch { mode: None }
    }

    /// What becomes of the next in the queue, who waits for `mode`, when the lock's word reads `state`. Changes nothing, so
    /// that the question can be put again when the word has changed meanwhile.
    #[must_use]
    pub fn consider(&self, state: State, mode: Mode) -> Verdict {
        match (self.mode, state.admit(mode, 1)) {
            // The longest waiter decides: if it cannot enter, nobody can.
            (None, Some(next)) => Verdict::Admit(next),
            (None, None) | (Some(Mode::Exclusive), _) => Verdict::Stop,
            (Some(batch), Some(next)) if batch == mode => Verdict::Admit(next),
            (Some(_), _) => Verdict::Skip,
        }
    }

    /// The waiter that was considered has entered.
    pub fn admitted(&mut self, mode: Mode) {
        self.mode = Some(mode);
    }
}
