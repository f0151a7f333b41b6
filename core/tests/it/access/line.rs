//! The packed line beside a list of batches, over long random histories and at its limits.

use bareverbs_core::access::{Line, MAX_EXCLUSIVE_PLACES, MAX_SHARED_PLACES, Mode, Place, State};
use proptest::prelude::*;

/// A waiting line as a list: one batch for each exclusive waiter and each shared mode.
#[derive(Default)]
struct Batches(Vec<(Mode, Vec<Place>)>);

impl Batches {
    fn take_place(&mut self, place: Place) {
        let mode = place.mode();
        let same = |batch: &&mut (Mode, Vec<Place>)| batch.0 == mode && mode.is_shared();
        match self.0.iter_mut().find(same) {
            Some(batch) => batch.1.push(place),
            None => self.0.push((mode, vec![place])),
        }
    }

    fn places(&self) -> Vec<Place> {
        self.0.iter().flat_map(|batch| batch.1.clone()).collect()
    }

    fn give_up(&mut self, place: Place) {
        for batch in &mut self.0 {
            if let Some(at) = batch.1.iter().position(|other| *other == place) {
                batch.1.remove(at);
                break;
            }
        }
        self.0.retain(|batch| !batch.1.is_empty());
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Take(Mode),
    GiveUp(prop::sample::Index),
    Call,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => prop::sample::select(&Mode::ALL[..]).prop_map(Op::Take),
        2 => any::<prop::sample::Index>().prop_map(Op::GiveUp),
        1 => Just(Op::Call),
    ]
}

proptest! {
    #[test]
    fn the_line_calls_whom_a_list_of_batches_calls(ops in prop::collection::vec(any_op(), 0..400)) {
        let (mut line, mut twin) = (Line::EMPTY, Batches::default());
        let mut called: Vec<Place> = Vec::new();
        for op in ops {
            match op {
                Op::Take(mode) => {
                    if let Some((next, place)) = line.take_place(mode) {
                        line = next;
                        twin.take_place(place);
                    } else {
                        // Exclusive slots given up in the middle stay taken until the head passes them.
                        let waiting = line.waiting();
                        prop_assert!(mode == Mode::Exclusive || waiting.read.max(waiting.disjoint) == MAX_SHARED_PLACES);
                    }
                }
                Op::GiveUp(which) => {
                    let places = twin.places();
                    if !places.is_empty() {
                        let place = *which.get(&places);
                        line = line.give_up(place).expect("not called");
                        twin.give_up(place);
                    }
                }
                Op::Call => {
                    let call = line.call(State::VACANT);
                    prop_assert_eq!(call.map(|call| call.mode), twin.0.first().map(|batch| batch.0));
                    if let Some(call) = call {
                        let (_, members) = twin.0.remove(0);
                        prop_assert_eq!(call.count as usize, members.len());
                        line = call.rest;
                        called = members;
                    }
                }
            }
            // Those called last may not have looked yet: they still see it, whatever came since.
            for place in &called {
                prop_assert!(line.is_called(*place));
                prop_assert_eq!(line.give_up(*place), None);
            }
            for place in twin.places() {
                prop_assert!(!line.is_called(place));
            }
            prop_assert_eq!(line.first(), twin.0.first().map(|batch| batch.0));
            prop_assert_eq!(line.is_empty(), twin.0.is_empty());
            prop_assert_eq!(line.waiting().total() as usize, twin.places().len());
        }
    }
}

#[test]
fn nobody_is_called_while_anybody_holds_the_lock() {
    let (line, _) = Line::EMPTY.take_place(Mode::Read).expect("empty");
    for mode in Mode::ALL {
        let held = State::held(mode, 1).expect("one");
        assert_eq!(line.call(held), None);
    }
    assert_eq!(Line::EMPTY.call(State::VACANT), None);
}

#[test]
fn a_line_has_as_many_places_as_it_says_and_refuses_the_next() {
    let limits =
        [(Mode::Read, MAX_SHARED_PLACES), (Mode::Disjoint, MAX_SHARED_PLACES), (Mode::Exclusive, MAX_EXCLUSIVE_PLACES)];
    let mut line = Line::EMPTY;
    for (mode, limit) in limits {
        for taken in 0..limit {
            let before = line.waiting().total();
            (line, _) = line.take_place(mode).unwrap_or_else(|| panic!("{mode:?} {taken}"));
            assert_eq!(line.waiting().total(), before + 1);
        }
        assert_eq!(line.take_place(mode), None);
    }
    let waiting = line.waiting();
    assert_eq!(waiting.read, MAX_SHARED_PLACES);
    assert_eq!(waiting.disjoint, MAX_SHARED_PLACES);
    assert_eq!(waiting.exclusive, MAX_EXCLUSIVE_PLACES);
}

#[test]
fn a_line_comes_round_its_ring_any_number_of_times() {
    let mut line = Line::EMPTY;
    for _ in 0..100 {
        let (first, one) = line.take_place(Mode::Exclusive).expect("room");
        let (both, two) = first.take_place(Mode::Exclusive).expect("room");
        let called = both.call(State::VACANT).expect("two wait").rest;
        assert!(called.is_called(one) && !called.is_called(two));
        line = called.call(State::VACANT).expect("one waits").rest;
        assert!(line.is_called(two) && line.is_empty());
    }
}
