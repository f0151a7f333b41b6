//! The word at its boundaries.

use bareverbs_core::access::{
    AccessRefused, Arrival, Entry, Left, MAX_HOLDERS, Mode, Phase, SpinAccessLock, State, Word,
};

const SHARED: [Mode; 2] = [Mode::Read, Mode::Disjoint];

fn held(mode: Mode, count: u32) -> State {
    State::held(mode, count).expect("at most the limit")
}

#[test]
fn a_count_reads_back_and_its_mode_with_it() {
    for count in [1, 2, 1000, MAX_HOLDERS / 2, MAX_HOLDERS / 2 + 1, MAX_HOLDERS] {
        assert_eq!(held(Mode::Read, count).phase(), Phase::Read(count));
        assert_eq!(held(Mode::Disjoint, count).phase(), Phase::Disjoint(count));
    }
    assert_eq!(held(Mode::Exclusive, 1).phase(), Phase::Exclusive);
    assert_eq!(State::held(Mode::Exclusive, 2), None);
    for mode in SHARED {
        assert_eq!(State::held(mode, 0), Some(State::VACANT));
        assert_eq!(State::held(mode, MAX_HOLDERS + 1), None);
        assert_eq!(State::held(mode, u32::MAX), None);
    }
}

#[test]
fn the_last_that_can_be_counted_enters_and_the_next_is_refused() {
    for mode in SHARED {
        let almost = held(mode, MAX_HOLDERS - 1);
        let full = held(mode, MAX_HOLDERS);
        assert_eq!(almost.arrive(mode), Arrival::Enters(full));
        assert_eq!(almost.join(mode), Some(full));
        assert_eq!(full.arrive(mode), Arrival::Full);
        assert_eq!(full.join(mode), None);
        assert_eq!(full.admit(mode, 1), None);
        assert_eq!(almost.admit(mode, 2), None);
        assert_eq!(full.leave(mode), almost);
    }
}

#[test]
fn every_count_changes_its_own_field_alone_whatever_flags_are_set() {
    let flags = 0b101; // waited for, handed over
    for mode in SHARED {
        for count in [1, 2, MAX_HOLDERS - 1] {
            let plain = held(mode, count);
            for flag in [0, 0b001, 0b100, flags] {
                let flagged = State::from_bits(plain.bits() | flag);
                let joined = flagged.join(mode).expect("below the limit");
                assert_eq!(joined.phase().holders(), count + 1);
                assert_eq!(joined.phase().mode(), Some(mode));
                assert_eq!(joined.bits() & 0b111, flag);
                assert_eq!(flagged.leave(mode).phase().holders(), count - 1);
                assert_eq!(flagged.leave(mode).bits() & 0b111, flag);
                assert_eq!(joined.retract(mode, 1), flagged);
            }
        }
    }
    let alone = State::from_bits(held(Mode::Exclusive, 1).bits() | flags);
    assert_eq!(alone.leave(Mode::Exclusive).bits(), flags);
}

/// Every way to change a state, whatever its bits say.
fn changed_in_every_way(state: State) {
    for mode in Mode::ALL {
        for count in [0, 1, 2, MAX_HOLDERS, u32::MAX] {
            if let Some(next) = state.admit(mode, count) {
                assert_eq!(next.retract(mode, count), state, "{mode:?} {count}");
            }
        }
        let _ = (state.arrive(mode), state.join(mode), state.leave(mode), state.retract(mode, u32::MAX));
    }
    let _ = (state.phase().holders(), state.begin_handover(), state.before_looking(), state.is_left_to_waiters());
    for left in [Left::Nobody, Left::Some] {
        let _ = (state.finish_handover(left), state.with_waiters(left));
    }
}

/// Also of bits that no lock reads, as `-2^20` holders: the functions are public, and total.
#[test]
fn every_transition_of_any_bits_is_defined() {
    for low in 0..1 << 11 {
        for count in [0, 1, 2, MAX_HOLDERS, MAX_HOLDERS + 1, MAX_HOLDERS + 2, (1 << 21) - 1] {
            changed_in_every_way(State::from_bits((count << 11) | low));
        }
    }
    let step = if cfg!(debug_assertions) { 5 } else { 1 };
    for count in (0..1 << 21).step_by(step) {
        changed_in_every_way(State::from_bits(count << 11));
    }
}

#[test]
fn an_idle_lock_reads_zero_after_every_mode() {
    for mode in Mode::ALL {
        assert_eq!(held(mode, 1).leave(mode), State::VACANT);
        assert_eq!(State::VACANT.bits(), 0);
    }
}

#[test]
fn who_arrives_enters_only_an_unclaimed_lock_that_is_vacant_or_of_its_mode() {
    let phases = [State::VACANT, held(Mode::Read, 3), held(Mode::Disjoint, 3), held(Mode::Exclusive, 1)];
    for phase in phases {
        for flag in [0, 0b001, 0b100, 0b101] {
            let state = State::from_bits(phase.bits() | flag);
            for mode in Mode::ALL {
                let compatible = match phase.phase().mode() {
                    None => true,
                    Some(running) => running == mode && mode.is_shared(),
                };
                let enters = compatible && flag == 0;
                match state.arrive(mode) {
                    Arrival::Enters(next) => {
                        assert!(enters, "{mode:?} entered {state:?}");
                        assert_eq!(next.leave(mode), state);
                    }
                    Arrival::Waits(next) => {
                        assert!(!enters, "{mode:?} waits for {state:?}");
                        assert_eq!(next.bits(), state.bits() | 0b001);
                    }
                    Arrival::Full => panic!("three holders are not too many"),
                }
            }
        }
    }
}

#[test]
fn a_handover_looks_again_when_somebody_came_or_all_it_admitted_are_gone() {
    let choosing = State::from_bits(0b100);
    assert_eq!(choosing.finish_handover(Left::Nobody), Some(State::VACANT));
    assert_eq!(choosing.finish_handover(Left::Some), None);
    let noted = State::from_bits(0b101);
    assert_eq!(noted.finish_handover(Left::Nobody), None);
    let admitted = choosing.admit(Mode::Read, 2).expect("vacant");
    let waited_for = State::from_bits(held(Mode::Read, 2).bits() | 0b001);
    assert_eq!(admitted.finish_handover(Left::Some), Some(waited_for));
    assert_eq!(admitted.finish_handover(Left::Nobody), State::held(Mode::Read, 2));
}

#[test]
fn the_word_enters_up_to_the_limit_and_refuses_without_change() {
    for mode in SHARED {
        let word: Word = Word::new();
        assert!(word.admit(mode, MAX_HOLDERS - 1));
        assert_eq!(word.try_enter(mode), Ok(()));
        let full = word.state();
        let refused = Err(AccessRefused::Full { limit: MAX_HOLDERS });
        assert_eq!(word.try_enter(mode), refused);
        assert!(!word.join(mode));
        assert_eq!(word.enter_or_announce(mode), Entry::Full);
        assert_eq!(word.state(), full);
        // Past the half, where the short way in gives up.
        let half: Word = Word::new();
        assert!(half.admit(mode, MAX_HOLDERS / 2));
        for above in 1..=3 {
            assert_eq!(half.try_enter(mode), Ok(()));
            assert_eq!(half.state().phase().holders(), MAX_HOLDERS / 2 + above);
        }
    }
}

#[test]
fn leaked_guards_fill_the_count_and_the_next_is_refused_in_every_way_to_ask() {
    let refused = AccessRefused::Full { limit: MAX_HOLDERS };
    let lock: SpinAccessLock = SpinAccessLock::new();
    for _ in 0..MAX_HOLDERS {
        std::mem::forget(lock.read().expect("below the limit"));
    }
    assert_eq!(lock.phase(), Phase::Read(MAX_HOLDERS));
    assert_eq!(lock.read().err(), Some(refused));
    assert_eq!(lock.try_read().err(), Some(refused));
    assert_eq!(lock.read_until(|| true).err(), Some(refused));
    assert_eq!(lock.read_recursive().err(), Some(refused));
    assert_eq!(lock.try_read_recursive().err(), Some(refused));
    assert_eq!(lock.try_exclusive().err(), Some(AccessRefused::Busy));
    assert_eq!(lock.phase(), Phase::Read(MAX_HOLDERS));

    let lock: SpinAccessLock = SpinAccessLock::new();
    for _ in 0..MAX_HOLDERS {
        std::mem::forget(lock.disjoint().expect("below the limit"));
    }
    assert_eq!(lock.disjoint().err(), Some(refused));
    assert_eq!(lock.try_disjoint().err(), Some(refused));
    assert_eq!(lock.disjoint_until(|| true).err(), Some(refused));
    assert_eq!(lock.try_read().err(), Some(AccessRefused::Busy));
    assert_eq!(lock.phase(), Phase::Disjoint(MAX_HOLDERS));
}

#[test]
fn refusals_say_what_was_expected() {
    let full = AccessRefused::Full { limit: MAX_HOLDERS };
    assert_eq!(
        full.to_string(),
        "expected at most 1048575 holders of an access lock, one more came: are guards leaked?"
    );
    assert!(AccessRefused::Busy.to_string().contains("held or waited for"));
    assert!(AccessRefused::TimedOut.to_string().contains("time given"));
}
