//! Parks threads with `parking_lot_core`.
//!
//! # Safety
//!
//! `parking_lot_core` asks three things of those who park. This file alone guarantees them:
//!
//! 1. The key is an address that the caller controls: it is that of a borrowed [`Word`], which no other kind of lock has, and
//!    which cannot go away while a thread is parked on it.
//! 2. What runs under the queue's lock does not panic: it is nothing but changes of that word.
//! 3. What runs under the queue's lock does not park or unpark: likewise.
#![allow(unsafe_code)]

use core::sync::atomic::AtomicU32;
use std::time::Instant;

use bareverbs_core::access::{Batch, Entry, Mode, Waiting, Word};
use parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, ParkResult, ParkToken};

use super::parker::{Choice, Parked, Parker, left, let_in};

/// The system's queues of sleeping threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SystemParker;

impl Parker for SystemParker {
    type Atomic = AtomicU32;

    fn park(&self, word: &Word, mode: Mode, deadline: Option<Instant>) -> Parked {
        let mut entry = Entry::Waits;
        let register = || {
            entry = word.enter_or_announce(mode);
            entry == Entry::Waits
        };
        let (before_sleep, timed_out) = (|| (), |_, _| ());
        // SAFETY: 1. `key` says why. 2. and 3. `register` only changes the word, the other two do nothing.
        let result =
            unsafe { parking_lot_core::park(key(word), register, before_sleep, timed_out, token(mode), deadline) };
        match result {
            ParkResult::Unparked(_) => Parked::LetIn,
            ParkResult::Invalid => Parked::Not(entry),
            ParkResult::TimedOut => Parked::TimedOut,
        }
    }

    fn hand_over(&self, word: &Word) {
        let mut batch = Batch::new();
        let choose = |waiter| match let_in(word, &mut batch, mode(waiter)) {
            Choice::Wake => FilterOp::Unpark,
            Choice::Skip => FilterOp::Skip,
            Choice::Stop => FilterOp::Stop,
        };
        let note = |result: parking_lot_core::UnparkResult| {
            word.note_waiters(left(result.have_more_threads));
            DEFAULT_UNPARK_TOKEN
        };
        // SAFETY: 1. `key` says why. 2. and 3. `choose` and `note` only change the word.
        let _ = unsafe { parking_lot_core::unpark_filter(key(word), choose, note) };
    }

    fn waiting(&self, word: &Word) -> Waiting {
        let mut waiting = Waiting::default();
        let count = |waiter| {
            waiting.add(mode(waiter));
            FilterOp::Skip
        };
        // SAFETY: 1. `key` says why. 2. and 3. `count` only counts, and wakes nobody.
        let _ = unsafe { parking_lot_core::unpark_filter(key(word), count, |_| DEFAULT_UNPARK_TOKEN) };
        waiting
    }

    fn pause(&self, round: u32) -> bool {
        match round {
            // Longer each time, as long as a holder on another core may be about to leave.
            0..3 => (0..2 << round).for_each(|_| core::hint::spin_loop()),
            3..10 => std::thread::yield_now(),
            _ => return false,
        }
        true
    }
}

/// The address of the word: in use by this lock alone, and borrowed as long as anybody parks on it.
fn key(word: &Word) -> usize {
    core::ptr::from_ref(word).addr()
}

fn token(mode: Mode) -> ParkToken {
    ParkToken(match mode {
        Mode::Read => 0,
        Mode::Disjoint => 1,
        Mode::Exclusive => 2,
    })
}

/// The reverse of [`token`].
fn mode(token: ParkToken) -> Mode {
    match token.0 {
        0 => Mode::Read,
        1 => Mode::Disjoint,
        _ => Mode::Exclusive,
    }
}
