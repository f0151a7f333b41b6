//! The two ways to queue, moved one whole operation at a time: the spinning form's packed line, and a parking form's list.
//!
//! They are the product's pure functions in the order in which the forms apply them; what interleaves *between* them is
//! for the loom models.

use bareverbs_core::access::{Arrival, Batch, Handover, Left, Line, Mode, Phase, Place, State, Verdict, Waiting};

use super::twin::Actor;

/// A lock moved by whole operations.
pub trait Form: Clone + Eq + std::hash::Hash + std::fmt::Debug + Default {
    /// Whether a batch stays where its first member stood when that one gives up.
    const PLACES_ARE_INHERITED: bool;

    fn state(&self) -> State;
    fn set(&mut self, state: State);
    fn waiting(&self) -> Waiting;

    /// Waits; the form has answered [`Arrival::Waits`].
    fn wait(&mut self, actor: Actor, mode: Mode);

    /// Takes back a wait; gives those who enter by it.
    fn give_up(&mut self, actor: Actor) -> Vec<Actor>;

    /// The last has left waiters behind; gives those who enter.
    fn hand_over(&mut self) -> Vec<Actor>;

    fn try_enter(&mut self, mode: Mode) -> bool {
        match self.state().arrive(mode) {
            Arrival::Enters(next) => self.set(next),
            Arrival::Waits(_) => return false,
            Arrival::Full => panic!("a handful of actors fill no count"),
        }
        true
    }

    fn join(&mut self) -> bool {
        let joined = self.state().join(Mode::Read);
        if let Some(next) = joined {
            self.set(next);
        }
        joined.is_some()
    }

    fn leave(&mut self, mode: Mode) -> Vec<Actor> {
        let next = self.state().leave(mode);
        self.set(next);
        if next.is_left_to_waiters() { self.hand_over() } else { Vec::new() }
    }
}

/// As the spinning form queues.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InLine {
    state: State,
    line: Line,
    places: Vec<(Actor, Place)>,
}

impl Default for InLine {
    fn default() -> Self {
        InLine { state: State::VACANT, line: Line::EMPTY, places: Vec::new() }
    }
}

impl InLine {
    /// Those who see themselves called, or see that they may join.
    fn look(&mut self) -> Vec<Actor> {
        let mut entered = Vec::new();
        for (actor, place) in std::mem::take(&mut self.places) {
            if self.line.is_called(place) {
                entered.push(actor);
                continue;
            }
            let joined = self.state.join(place.mode());
            if let (true, Some(next)) = (self.line.first() == Some(place.mode()), joined) {
                self.state = next;
                self.line = self.line.give_up(place).expect("not called");
                entered.push(actor);
                continue;
            }
            self.places.push((actor, place));
        }
        if self.line.is_empty() && self.state.is_waited_for() {
            assert!(self.hand_over_once().is_empty());
        }
        entered
    }

    fn hand_over_once(&mut self) -> Vec<Mode> {
        let Handover::Taken(taken) = self.state.begin_handover() else {
            panic!("somebody waits and nobody else hands over");
        };
        self.state = taken;
        let mut called = Vec::new();
        loop {
            self.state = self.state.before_looking();
            if let Some(call) = self.line.call(self.state) {
                self.state = self.state.admit(call.mode, call.count).expect("vacant");
                self.line = call.rest;
                called.push(call.mode);
                continue;
            }
            let left = if self.line.is_empty() { Left::Nobody } else { Left::Some };
            self.state = self.state.finish_handover(left).expect("nobody came meanwhile");
            return called;
        }
    }
}

impl Form for InLine {
    const PLACES_ARE_INHERITED: bool = true;

    fn state(&self) -> State {
        self.state
    }

    fn set(&mut self, state: State) {
        self.state = state;
    }

    fn waiting(&self) -> Waiting {
        self.line.waiting()
    }

    fn wait(&mut self, actor: Actor, mode: Mode) {
        let (line, place) = self.line.take_place(mode).expect("a handful of actors find places");
        let Arrival::Waits(state) = self.state.arrive(mode) else {
            panic!("nobody has left meanwhile");
        };
        (self.line, self.state) = (line, state);
        self.places.push((actor, place));
    }

    fn give_up(&mut self, actor: Actor) -> Vec<Actor> {
        let at = self.places.iter().position(|place| place.0 == actor).expect("waits");
        let (_, place) = self.places.remove(at);
        self.line = self.line.give_up(place).expect("not called");
        self.look()
    }

    fn hand_over(&mut self) -> Vec<Actor> {
        assert_eq!(self.hand_over_once().len(), 1, "one batch enters at a time");
        self.look()
    }
}

/// As a parking form queues: under its queue's lock, so that no handover bit is needed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InList {
    state: State,
    list: Vec<(Actor, Mode)>,
}

impl Default for InList {
    fn default() -> Self {
        InList { state: State::VACANT, list: Vec::new() }
    }
}

impl Form for InList {
    const PLACES_ARE_INHERITED: bool = false;

    fn state(&self) -> State {
        self.state
    }

    fn set(&mut self, state: State) {
        self.state = state;
    }

    fn waiting(&self) -> Waiting {
        let mut waiting = Waiting::default();
        self.list.iter().for_each(|(_, mode)| waiting.add(*mode));
        waiting
    }

    fn wait(&mut self, actor: Actor, mode: Mode) {
        let Arrival::Waits(state) = self.state.arrive(mode) else {
            panic!("nobody has left meanwhile");
        };
        self.state = state;
        self.list.push((actor, mode));
    }

    fn give_up(&mut self, actor: Actor) -> Vec<Actor> {
        self.list.retain(|waiter| waiter.0 != actor);
        self.hand_over()
    }

    fn hand_over(&mut self) -> Vec<Actor> {
        let (mut batch, mut entered, mut stopped) = (Batch::new(), Vec::new(), false);
        for (actor, mode) in std::mem::take(&mut self.list) {
            let verdict = if stopped { Verdict::Stop } else { batch.consider(self.state, mode) };
            stopped = verdict == Verdict::Stop;
            if let Verdict::Admit(next) = verdict {
                batch.admitted(mode);
                self.state = next;
                entered.push(actor);
            } else {
                self.list.push((actor, mode));
            }
        }
        let left = if self.list.is_empty() { Left::Nobody } else { Left::Some };
        self.state = self.state.with_waiters(left);
        assert!(self.state.phase() != Phase::Vacant || left == Left::Nobody, "nobody was let in");
        entered
    }
}
