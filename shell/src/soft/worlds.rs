//! The fabrics of this process: a fixed number of slots, so that C functions can find theirs.
//!
//! `ibv_get_device_list` takes no argument that could say which fabric is meant. So each slot has entry points of its own
//! for the few calls of that kind ([`crate::soft::entry`]), and every object carries its slot in its tag.
//!
//! A slot is used again when its fabric's last control handle, last table of entry points and last object are gone.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::soft::bytes;
use crate::soft::config::SoftError;
use crate::soft::state::State;

/// Fabrics that one process can have at once.
pub(super) const SLOTS: usize = 256;

/// A slot; a cache line and its neighbour of its own, so that two fabrics do not slow each other.
#[repr(align(128))]
struct World(Mutex<Option<Box<State>>>);

static WORLDS: [World; SLOTS] = [const { World(Mutex::new(None)) }; SLOTS];

#[inline]
fn lock(slot: usize) -> Option<MutexGuard<'static, Option<Box<State>>>> {
    Some(WORLDS.get(slot)?.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `action` on the fabric in a slot; `None` where there is none.
#[inline]
pub(super) fn with<R>(slot: u32, action: impl FnOnce(&mut State) -> R) -> Option<R> {
    let mut world = lock(slot as usize)?;
    Some(action(world.as_deref_mut()?))
}

/// Takes a free slot for the fabric that `make` makes, told its number.
pub(super) fn claim(make: impl FnOnce(u32) -> State) -> Result<u32, SoftError> {
    for (slot, world) in WORLDS.iter().enumerate() {
        // A slot that is locked is in use.
        let mut world = match world.0.try_lock() {
            Ok(world) => world,
            Err(TryLockError::Poisoned(world)) => world.into_inner(),
            Err(TryLockError::WouldBlock) => continue,
        };
        if world.as_ref().is_some_and(|state| state.is_over()) {
            *world = None;
        }
        if world.is_none() {
            *world = Some(Box::new(make(slot as u32)));
            drop(world);
            heed_others(slot);
            return Ok(slot as u32);
        }
    }
    Err(SoftError::TooManyFabrics { limit: SLOTS })
}

/// Has the fabrics' copies take turns if there is another one than that in `own`, which is there and not yet in use. Of two that
/// come at once, the one that looks last sees the other.
fn heed_others(own: usize) {
    let others = || (0..SLOTS).filter(|slot| *slot != own).filter_map(lock);
    if others().any(|world| world.is_some()) {
        bytes::there_are_several();
        // Copies that do not know it yet end before the own fabric can make any.
        others().for_each(drop);
    }
}

/// Says that a fabric's last control handle is gone.
pub(super) fn abandon(slot: u32) {
    let Some(mut world) = lock(slot as usize) else { return };
    if let Some(state) = world.as_deref_mut() {
        state.abandoned = true;
        if state.is_over() {
            *world = None;
        }
    }
}
