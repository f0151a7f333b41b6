//! The access lock: entering and leaving, and every transition behind them.

use bareverbs_core::access::{
    AccessRefused, Arrival, Batch, Call, Entry, Handover, Left, Line, Mode, Place, SpinAccessLock, State, Verdict, Word,
};

use crate::exported;

exported! {
    fn proof_lock_read(lock: &SpinAccessLock) -> Result<(), AccessRefused> { lock.read().map(drop) }
    fn proof_lock_disjoint(lock: &SpinAccessLock) -> Result<(), AccessRefused> { lock.disjoint().map(drop) }
    fn proof_lock_exclusive(lock: &SpinAccessLock) -> () { drop(lock.exclusive()) }
    fn proof_lock_read_recursive(lock: &SpinAccessLock) -> Result<(), AccessRefused> { lock.read_recursive().map(drop) }

    fn proof_lock_try(lock: &SpinAccessLock) -> [Result<(), AccessRefused>; 3] {
        [lock.try_read().map(drop), lock.try_disjoint().map(drop), lock.try_exclusive().map(drop)]
    }

    fn proof_lock_until(lock: &SpinAccessLock, looks: u32) -> [Result<(), AccessRefused>; 3] {
        let mut left = looks;
        let mut expired = move || { left = left.saturating_sub(1); left == 0 };
        [
            lock.read_until(&mut expired).map(drop),
            lock.disjoint_until(&mut expired).map(drop),
            lock.exclusive_until(&mut expired).map(drop),
        ]
    }

    fn proof_word_fast(word: &Word, mode: &Mode) -> (Result<(), AccessRefused>, bool) {
        (word.try_enter(*mode), word.leave(*mode))
    }

    fn proof_word_slow(word: &Word, mode: &Mode, count: u32) -> (Entry, [bool; 4]) {
        word.note_waiters(Left::Some);
        word.retract(*mode, count);
        let joined = word.join(*mode);
        let admitted = word.admit(*mode, count);
        (word.enter_or_announce(*mode), [joined, admitted, word.begin_handover(), word.finish_handover(Left::Nobody)])
    }

    fn proof_state_arrive(state: &State, mode: &Mode) -> (Arrival, Option<State>) {
        (state.arrive(*mode), state.join(*mode))
    }

    fn proof_state_admit(state: &State, mode: &Mode, count: u32) -> (Option<State>, State) {
        (state.admit(*mode, count), state.retract(*mode, count))
    }

    fn proof_state_handover(state: &State) -> (Handover, State, Option<State>) {
        (state.begin_handover(), state.before_looking(), state.finish_handover(Left::Some))
    }

    fn proof_batch(batch: &mut Batch, state: &State, mode: &Mode) -> Verdict {
        let verdict = batch.consider(*state, *mode);
        batch.admitted(*mode);
        verdict
    }

    fn proof_line_places(line: &Line, mode: &Mode, place: &Place) -> (Option<(Line, Place)>, Option<Line>, bool) {
        (line.take_place(*mode), line.give_up(*place), line.is_called(*place))
    }

    fn proof_line_call(line: &Line, state: &State) -> (Option<Call>, Option<Mode>, u32) {
        (line.call(*state), line.first(), line.waiting().total())
    }
}
