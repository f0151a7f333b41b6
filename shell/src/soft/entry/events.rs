//! Completion channels and asynchronous events: fetching and acknowledging.
//!
//! # Safety
//!
//! This file guarantees that what a caller gives is written or read only where it is not null.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use bareverbs_core::verbs::{AsyncEvent, CompChannel, Context, Cq};

use crate::soft::async_events::{self, Subject};
use crate::soft::channels::Fetched;
use crate::soft::entry::{Asked, pointer, status};
use crate::soft::handles::Kind;
use crate::soft::plan::Answer;
use crate::soft::signal;
use crate::soft::state::State;

pub(in crate::soft) extern "C" fn create_comp_channel(context: *mut Context) -> *mut CompChannel {
    let asked = Asked::making("ibv_create_comp_channel", Kind::Context, context.addr());
    pointer(asked.call(|state, index| state.create_channel(index)))
}

pub(in crate::soft) extern "C" fn destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    let asked = Asked::on("ibv_destroy_comp_channel", Kind::Channel, channel.addr());
    status(asked.call(|state, index| state.destroy_channel(index).map(|()| 0)))
}

/// Fetches something from the fabric, or waits on the file that `fetch` names as its error until it can.
fn fetch<T>(asked: &Asked, fetch: impl Fn(&mut State, u32) -> Result<T, c_int>) -> Result<T, Answer> {
    loop {
        let mut found = Err(-1);
        asked.call(|state, index| {
            found = fetch(state, index);
            Ok(0)
        })?;
        match found {
            Ok(found) => return Ok(found),
            Err(fd) => signal::wait(fd).map_err(Answer::minus_one)?,
        }
    }
}

/// -1 with `errno` where it fails, as the library does.
fn fetched<T>(outcome: Result<T, Answer>, give: impl FnOnce(T)) -> c_int {
    status(
        outcome
            .map(|found| {
                give(found);
                0
            })
            .map_err(|answer| match answer.errno {
                None if answer.returned > 0 => Answer::minus_one(answer.returned),
                _ => answer,
            }),
    )
}

/// # Safety
/// 1. `cq` and `word` are each null or valid for a write.
pub(in crate::soft) unsafe extern "C" fn get_cq_event(
    channel: *mut CompChannel,
    cq: *mut *mut Cq,
    word: *mut *mut c_void,
) -> c_int {
    let asked = Asked::on("ibv_get_cq_event", Kind::Channel, channel.addr());
    fetched(fetch(&asked, State::fetch_event), |event: Fetched| {
        if !cq.is_null() {
            // SAFETY: not null, so valid by 1.
            unsafe { cq.write(event.queue) };
        }
        if !word.is_null() {
            // SAFETY: as above.
            unsafe { word.write(event.word) };
        }
    })
}

pub(in crate::soft) extern "C" fn ack_cq_events(cq: *mut Cq, count: c_uint) {
    let asked = Asked::on("ibv_ack_cq_events", Kind::CompletionQueue, cq.addr());
    let _ = asked.call(|state, index| {
        state.acknowledge_events(index, count);
        Ok(0)
    });
}

/// # Safety
/// 1. `event` is null or valid for a write.
pub(in crate::soft) unsafe extern "C" fn get_async_event(context: *mut Context, event: *mut AsyncEvent) -> c_int {
    let asked = Asked::on("ibv_get_async_event", Kind::Context, context.addr());
    fetched(fetch(&asked, State::fetch_async_event), |found: AsyncEvent| {
        if !event.is_null() {
            // SAFETY: not null, so valid by 1.
            unsafe { event.write(found) };
        }
    })
}

/// # Safety
/// 1. `event` is null or was filled by [`get_async_event`].
pub(in crate::soft) unsafe extern "C" fn ack_async_event(event: *mut AsyncEvent) {
    // SAFETY: null or valid by 1.
    let Some(event) = (unsafe { event.as_ref() }) else { return };
    let (kind, handle) = match async_events::subject(event.event_type) {
        Subject::Queue => {
            // SAFETY: by 1 an event of a queue, so its element is that.
            (Kind::CompletionQueue, unsafe { event.element.cq }.addr())
        }
        Subject::Pair => {
            // SAFETY: by 1 an event of a queue pair, so its element is that.
            (Kind::QueuePair, unsafe { event.element.qp }.addr())
        }
        // Nobody waits for the acknowledgement of these.
        Subject::Port | Subject::Device => return,
    };
    let asked = Asked::on("ibv_ack_async_event", kind, handle);
    let _ = asked.call(|state, index| {
        state.acknowledge_async_event(kind, index);
        Ok(0)
    });
}
