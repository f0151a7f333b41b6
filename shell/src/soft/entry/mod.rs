//! The C functions that stand in the table, and what is common to all of them.
//!
//! Each finds its fabric by the handle it was given, asks the plan whether to fail, does its work on the fabric's state,
//! and records the call. A handle that is not alive is answered with EINVAL and noted as misuse.

pub(super) mod data_path;
pub(super) mod devices;
pub(super) mod events;
pub(super) mod memory;
pub(super) mod mlx5;
pub(super) mod queries;
pub(super) mod queues;
pub(super) mod slots;
mod targets;

use std::ffi::c_int;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, PoisonError};

use crate::soft::handles::{self, Kind};
use crate::soft::plan::Answer;
use crate::soft::record::{Call, Detail};
use crate::soft::state::State;
use crate::soft::{errno, worlds};

/// Handles that never were any: no fabric to note them with.
static STRAY: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Most strays that are kept.
const STRAYS_KEPT: usize = 1024;

/// The uses of handles that no fabric of this process ever gave out, null among them, the latest 1024.
pub fn stray_misuse() -> Vec<String> {
    STRAY.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn note_stray(symbol: &str, kind: Kind, handle: usize) {
    let mut stray = STRAY.lock().unwrap_or_else(PoisonError::into_inner);
    if stray.len() == STRAYS_KEPT {
        stray.remove(0);
    }
    stray.push(format!("{symbol}: {handle:#x} never was a {}", kind.name()));
}

/// A call: who is called, on what, with what.
struct Asked {
    symbol: &'static str,
    kind: Kind,
    handle: usize,
    /// Whether it makes something.
    makes: bool,
    /// The first parent of what it makes: the handle, unless it is told otherwise.
    first_parent: usize,
    more_parents: [usize; 2],
    detail: Detail,
}

impl Asked {
    fn on(symbol: &'static str, kind: Kind, handle: usize) -> Self {
        Self { symbol, kind, handle, makes: false, first_parent: handle, more_parents: [0; 2], detail: Detail::None }
    }

    fn making(symbol: &'static str, kind: Kind, handle: usize) -> Self {
        Self { makes: true, ..Self::on(symbol, kind, handle) }
    }

    fn with(self, detail: Detail) -> Self {
        Self { detail, ..self }
    }

    /// Whether it gives something back or fetches what there is, which a device that failed for good does not hinder.
    fn releases(&self) -> bool {
        let starts = ["ibv_destroy", "ibv_de", "ibv_close", "ibv_ack", "ibv_get", "ibv_free", "mlx5dv_destroy"];
        starts.iter().any(|start| self.symbol.starts_with(start))
    }

    /// Makes the call: `run` is told the object's index, and answers with what it made, or 0, or the errno of its refusal.
    fn call(&self, run: impl FnOnce(&mut State, u32) -> Result<usize, c_int>) -> Result<usize, Answer> {
        let refusal = Err(Answer::returned(libc::EINVAL));
        let Some(place) = handles::find(self.kind, self.handle) else {
            note_stray(self.symbol, self.kind, self.handle);
            return refusal;
        };
        let answer = worlds::with(place.slot, |state| {
            let outcome = if !state.is_live(self.kind, place.index, self.handle) {
                state.note_misuse(self.symbol, self.kind, self.handle);
                refusal
            } else if let Some(answer) = state.plan.on_call(self.symbol) {
                Err(answer)
            } else if state.is_fatal(self.kind, place.index) && !self.releases() {
                Err(if self.makes { Answer::null(libc::EIO) } else { Answer::returned(libc::EIO) })
            } else {
                run(state, place.index).map_err(|number| match number {
                    0 => Answer { errno: None, ..Answer::null(0) },
                    number => Answer::returned(number),
                })
            };
            self.record(state, outcome);
            outcome
        });
        answer.unwrap_or(refusal)
    }

    /// Does something on a live object without asking the plan and without a record: what follows a call.
    fn aside(&self, run: impl FnOnce(&mut State, u32)) {
        let Some(place) = handles::find(self.kind, self.handle) else { return };
        worlds::with(place.slot, |state| {
            if state.is_live(self.kind, place.index, self.handle) {
                run(state, place.index);
            }
        });
    }

    fn record(&self, state: &mut State, outcome: Result<usize, Answer>) {
        let [second, third] = self.more_parents;
        let (handle, parents) = match (self.makes, outcome) {
            (true, made) => (made.unwrap_or(0), [self.first_parent, second, third]),
            (false, _) => (self.handle, [0; 3]),
        };
        let returned = match outcome {
            Ok(_) => 0,
            Err(_) if self.makes => -1,
            Err(answer) => answer.returned,
        };
        let errno = outcome.err().and_then(|answer| answer.errno_left(self.makes));
        state.record.add(Call {
            number: 0,
            symbol: self.symbol,
            handle,
            parents,
            detail: self.detail,
            returned,
            errno,
        });
    }
}

impl Answer {
    /// The error's number, for a call that has no other way to tell.
    fn number(self) -> c_int {
        match self.errno {
            Some(number) => number,
            None => self.returned.saturating_abs(),
        }
    }

    /// What it leaves in `errno`.
    const fn errno_left(self, makes: bool) -> Option<c_int> {
        match self.errno {
            None if makes && self.returned != -1 => Some(self.returned.saturating_abs()),
            errno => errno,
        }
    }
}

/// What a call that makes something returns.
fn pointer<T>(outcome: Result<usize, Answer>) -> *mut T {
    match outcome {
        Ok(handle) => with_exposed_provenance_mut(handle),
        Err(answer) => {
            if let Some(number) = answer.errno_left(true) {
                errno::set(number);
            }
            std::ptr::null_mut()
        }
    }
}

/// What a call that answers with a status returns.
fn status(outcome: Result<usize, Answer>) -> c_int {
    match outcome {
        Ok(_) => 0,
        Err(answer) => {
            if let Some(number) = answer.errno_left(false) {
                errno::set(number);
            }
            answer.returned
        }
    }
}
