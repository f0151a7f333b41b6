//! Every sequence of operations up to a length, on both ways to queue, beside the twin.
//!
//! Sequences that lead to equal locks beside equal twins are followed once: what comes after them is the same.

use std::collections::HashSet;

use bareverbs_core::access::Mode;

use super::queues::{Form, InLine, InList};
use super::twin::{Actor, Twin};

/// What an actor does.
#[derive(Clone, Copy, Debug)]
enum Op {
    Try(Mode),
    Ask(Mode),
    AskRecursively,
    Leave,
    GiveUp,
}

/// A lock and its twin after the same operations.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Pair<F> {
    form: F,
    twin: Twin,
}

impl<F: Form> Pair<F> {
    fn ops(&self, actor: Actor) -> Vec<Op> {
        let asks = Mode::ALL.into_iter().flat_map(|mode| [Op::Try(mode), Op::Ask(mode)]);
        match (self.twin.waits(actor), self.twin.holds(actor)) {
            (true, _) => vec![Op::GiveUp],
            (false, None) => asks.chain([Op::AskRecursively]).collect(),
            (false, Some(Mode::Read)) if self.twin.times_held(actor) < 2 => {
                vec![Op::Leave, Op::AskRecursively]
            }
            (false, Some(_)) => vec![Op::Leave],
        }
    }

    fn apply(&mut self, actor: Actor, op: Op) {
        match op {
            Op::Try(mode) => {
                assert_eq!(self.form.try_enter(mode), self.twin.try_enter(actor, mode))
            }
            Op::Ask(mode) => self.ask(actor, mode),
            Op::AskRecursively => {
                let joined = self.form.join();
                assert_eq!(joined, self.twin.join(actor));
                if !joined {
                    self.ask(actor, Mode::Read);
                }
            }
            Op::Leave => {
                let mode = self.twin.holds(actor).expect("holds");
                let (form, twin) = (self.form.leave(mode), self.twin.leave(actor));
                assert_eq!(sorted(form), sorted(twin), "{actor} left: {self:?}");
            }
            Op::GiveUp => {
                let twin = self.twin.give_up(actor, F::PLACES_ARE_INHERITED);
                let form = self.form.give_up(actor);
                assert_eq!(sorted(form), sorted(twin), "{actor} gave up: {self:?}");
            }
        }
    }

    fn ask(&mut self, actor: Actor, mode: Mode) {
        let entered = self.form.try_enter(mode);
        assert_eq!(entered, self.twin.try_enter(actor, mode));
        if !entered {
            self.form.wait(actor, mode);
            self.twin.wait(actor, mode);
        }
    }

    fn assert_agrees(&self) {
        let (state, waiting) = (self.form.state(), self.form.waiting());
        assert_eq!(state.phase().mode(), self.twin.running());
        assert_eq!(state.phase().holders() as usize, self.twin.holders());
        assert_eq!(state.is_waited_for(), !self.twin.queue_is_empty());
        assert!(!state.is_handed_over(), "a handover was left unfinished");
        assert_eq!(waiting.read as usize, self.twin.waiting(Mode::Read));
        assert_eq!(waiting.disjoint as usize, self.twin.waiting(Mode::Disjoint));
        assert_eq!(waiting.exclusive as usize, self.twin.waiting(Mode::Exclusive));
    }
}

fn sorted(mut actors: Vec<Actor>) -> Vec<Actor> {
    actors.sort_unstable();
    actors
}

/// Follows every sequence of at most `length` operations by `actors`; gives how many different pairs were met.
fn explore<F: Form>(actors: usize, length: usize) -> usize {
    let mut met: HashSet<Pair<F>> = HashSet::from([Pair::default()]);
    let mut newest: Vec<Pair<F>> = met.iter().cloned().collect();
    for _ in 0..length {
        let mut next = Vec::new();
        for pair in &newest {
            // An actor that has done nothing yet is like any other that has not.
            let mut strangers = 0;
            for actor in 0..actors {
                let idle = !pair.twin.waits(actor) && pair.twin.holds(actor).is_none();
                strangers += usize::from(idle);
                if idle && strangers > 1 {
                    continue;
                }
                for op in pair.ops(actor) {
                    let mut after = pair.clone();
                    after.apply(actor, op);
                    after.assert_agrees();
                    if met.insert(after.clone()) {
                        next.push(after);
                    }
                }
            }
        }
        newest = next;
    }
    met.len()
}

/// As long as runs within a minute in release, and a few seconds otherwise.
const LENGTH: usize = if cfg!(debug_assertions) { 7 } else { 11 };

#[test]
fn every_sequence_of_five_actors_agrees_with_the_twin_in_the_packed_line() {
    let met = explore::<InLine>(5, LENGTH);
    assert!(met > 10_000, "only {met} different locks were met");
}

#[test]
fn every_sequence_of_five_actors_agrees_with_the_twin_in_a_list() {
    let met = explore::<InList>(5, LENGTH);
    assert!(met > 1_000, "only {met} different locks were met");
}
