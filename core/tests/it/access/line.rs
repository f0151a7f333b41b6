//! The packed line beside a list of batches, over long random histories and at its limits.

use bareverbs_core::access::{Line, MAX_EXCLUSIVE_PLACES, MAX_SHARED_PLACES, Mode, Place, State};
use proptest::prelude::*;

/// A waiting line as a list: one batch for each exclusive waiter and each shared mode. An exclusive one that gave up stays as a
/// batch of nobody as long as somebody stands behind it, and no longer than until a call passes it.
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
        self.0.retain(|batch| !batch.1.is_empty() || batch.0 == Mode::Exclusive);
        while self.0.last().is_some_and(|batch| batch.1.is_empty()) {
            self.0.pop();
        }
    }

    fn first(&self) -> Option<Mode> {
        self.0.iter().find(|batch| !batch.1.is_empty()).map(|batch| batch.0)
    }

    /// How many exclusive places are taken: those that wait, and the gaps between and before those that wait.
    fn exclusive_taken(&self) -> u32 {
        self.0.iter().filter(|batch| batch.0 == Mode::Exclusive).count() as u32
    }

    fn call(&mut self) -> Vec<Place> {
        let first = self.0.iter().position(|batch| !batch.1.is_empty()).expect("somebody waits");
        let (mode, members) = self.0.remove(first);
        // An exclusive one takes the gaps before it along; a shared mode, all before the next that stands.
        let gaps =
            if mode == Mode::Exclusive { first } else { self.0.iter().take_while(|batch| batch.1.is_empty()).count() };
        self.0.drain(..gaps);
        members
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
                        let (waiting, taken) = (line.waiting(), twin.exclusive_taken());
                        match mode {
                            Mode::Read => prop_assert_eq!(waiting.read, MAX_SHARED_PLACES),
                            Mode::Disjoint => prop_assert_eq!(waiting.disjoint, MAX_SHARED_PLACES),
                            Mode::Exclusive => prop_assert_eq!(taken, MAX_EXCLUSIVE_PLACES),
                        }
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
                    prop_assert_eq!(call.map(|call| call.mode), twin.first());
                    if let Some(call) = call {
                        let members = twin.call();
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
            prop_assert_eq!(line.first(), twin.first());
            prop_assert_eq!(line.is_empty(), twin.first().is_none());
            prop_assert_eq!(line.waiting().total() as usize, twin.places().len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// The functions are public, so also of bits that no line reads.
    #[test]
    fn every_change_of_any_bits_is_defined(bits: u32, place_bits: u32) {
        let line = Line::from_bits(bits);
        for mode in Mode::ALL {
            if let Some((next, place)) = line.take_place(mode) {
                prop_assert!(!next.is_called(place));
                prop_assert!(next.give_up(place).is_some());
            }
            // Another line's place.
            if let Some((_, place)) = Line::from_bits(place_bits).take_place(mode) {
                prop_assert_eq!(line.give_up(place).is_none(), line.is_called(place));
            }
        }
        prop_assert_eq!(line.first().is_none(), line.is_empty());
        prop_assert_eq!(line.call(State::VACANT).map(|call| call.mode), line.first());
        prop_assert_eq!(line.waiting().total() == 0, line.is_empty());
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

/// Two shared modes take turns, so that the line is never empty; those that ask to be alone give up, one in each phase.
#[test]
fn those_that_give_up_leave_their_places_though_the_line_is_never_empty() {
    for (mut waits, mut comes) in [(Mode::Disjoint, Mode::Read), (Mode::Read, Mode::Disjoint)] {
        let (mut line, _) = Line::EMPTY.take_place(waits).expect("room");
        for round in 0..100 {
            let (with_exclusive, gives_up) =
                line.take_place(Mode::Exclusive).unwrap_or_else(|| panic!("round {round}: {:?}", line.waiting()));
            let (behind, _) = with_exclusive.take_place(comes).expect("room");
            let call = behind.give_up(gives_up).expect("not called").call(State::VACANT).expect("both modes wait");
            assert_eq!((call.mode, call.count), (waits, 1));
            line = call.rest;
            (waits, comes) = (comes, waits);
        }
    }
}

/// However the places came to be taken: once all that stand there have been called, every place is free, and stays so.
#[test]
fn all_places_are_free_once_those_that_stood_there_have_been_called() {
    // Each subset of seven exclusive waiters gives up, with a batch before and one behind them.
    for who in 0..1u32 << MAX_EXCLUSIVE_PLACES {
        let (mut line, _) = Line::EMPTY.take_place(Mode::Read).expect("room");
        let mut places = Vec::new();
        for _ in 0..MAX_EXCLUSIVE_PLACES {
            let (next, place) = line.take_place(Mode::Exclusive).expect("room");
            line = next;
            places.push(place);
        }
        (line, _) = line.take_place(Mode::Disjoint).expect("room");
        for (at, place) in places.iter().enumerate() {
            if who & (1 << at) != 0 {
                line = line.give_up(*place).expect("not called");
            }
        }
        let standing = line.waiting().exclusive;
        // The call of the readers frees what was given up before all others.
        line = line.call(State::VACANT).expect("readers wait").rest;
        let free = if standing == 0 { MAX_EXCLUSIVE_PLACES } else { who.trailing_ones() };
        for _ in 0..standing {
            let mut filled = line;
            let mut taken = 0;
            while let Some((next, _)) = filled.take_place(Mode::Exclusive) {
                (filled, taken) = (next, taken + 1);
            }
            assert!(taken >= free, "{who:07b}: {taken} of {free}");
            line = line.call(State::VACANT).expect("one waits").rest;
        }
        let call = line.call(State::VACANT).expect("a disjoint writer waits");
        assert_eq!((call.mode, call.rest.is_empty()), (Mode::Disjoint, true));
        let mut line = call.rest;
        for _ in 0..MAX_EXCLUSIVE_PLACES {
            (line, _) = line.take_place(Mode::Exclusive).expect("nobody stands there");
        }
    }
}
