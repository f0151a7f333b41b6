//! The memory behind handles, and which handles there are.
//!
//! A handle's memory is never unmapped and never serves another kind of object: a destroyed handle stays readable, so that
//! a use after destruction can be told instead of being undefined. In front of each object stands a tag: which fabric it
//! belongs to and its index there. Whether it is still alive is known by the fabric, which compares the address.
//!
//! Memory is used again only when [`give_back`] says so: when the fabric that owned it is gone, or has destroyed very many
//! since.
//!
//! # Safety
//!
//! This file guarantees that only memory of its own making is followed: an address is looked up before, except on the data
//! path ([`data_place`]), whose caller vouches for it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bareverbs_core::verbs::mlx5dv::Mkey;
use bareverbs_core::verbs::{Mr, QpState};

use crate::soft::c_objects::WholeQp;

/// What a handle is a handle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Device,
    Context,
    Domain,
    Region,
    CompletionQueue,
    QueuePair,
    Channel,
    IndirectKey,
}

impl Kind {
    pub(super) const COUNT: usize = 8;

    /// The kind in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Context => "context",
            Self::Domain => "protection domain",
            Self::Region => "memory region",
            Self::CompletionQueue => "completion queue",
            Self::QueuePair => "queue pair",
            Self::Channel => "completion channel",
            Self::IndirectKey => "indirect key",
        }
    }

    /// What the tag in front of such an object starts with: no small number and no address.
    const fn magic(self) -> u32 {
        0xbae5_0f70 | self as u32
    }
}

/// An object whose address, or that of a part of it, is a handle.
pub(super) trait Body {
    /// What the handle points to.
    type Handle;
    const KIND: Kind;
    /// Where in the body the handle points, bytes.
    const HANDLE_OFFSET: usize = 0;
}

/// Where an object is kept: which fabric, and its index among that fabric's objects of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub slot: u32,
    pub index: u32,
}

#[repr(C)]
struct Tag {
    magic: AtomicU32,
    slot: AtomicU32,
    index: AtomicU32,
}

#[repr(C, align(8))]
struct Shell<T> {
    tag: Tag,
    body: T,
}

impl<T: Body> Shell<T> {
    /// From the tag to the handle, bytes.
    const TO_HANDLE: usize = offset_of!(Self, body) + T::HANDLE_OFFSET;
}

/// From the tag to the handle of an object whose handle points to its start.
const TAG_TO_BODY: usize = offset_of!(Shell<u64>, body);

struct Pool {
    /// Every handle ever made, with its tag's address.
    known: BTreeMap<usize, (Kind, usize)>,
    /// Handles to be used again, by kind.
    free: [Vec<usize>; Kind::COUNT],
}

static POOL: Mutex<Pool> = Mutex::new(Pool { known: BTreeMap::new(), free: [const { Vec::new() }; Kind::COUNT] });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an object and returns its handle's address.
pub(super) fn create<T: Body>(place: Place, body: T) -> usize {
    let mut pool = pool();
    let reused = pool.free[T::KIND as usize].pop();
    let handle = reused.unwrap_or_else(|| {
        let tag = allocate(Layout::new::<Shell<T>>());
        let handle = tag + Shell::<T>::TO_HANDLE;
        pool.known.insert(handle, (T::KIND, tag));
        handle
    });
    let shell = with_exposed_provenance_mut::<Shell<T>>(handle - Shell::<T>::TO_HANDLE);
    let tag = Tag {
        magic: AtomicU32::new(T::KIND.magic()),
        slot: AtomicU32::new(place.slot),
        index: AtomicU32::new(place.index),
    };
    // SAFETY: memory for a `Shell<T>`, allocated above or, being of the same kind, by an earlier call; what was in it needs
    // no drop, and nobody may use it: it is new, or was given back.
    unsafe { shell.write(Shell { tag, body }) };
    handle
}

/// Zeroed memory that is never freed; its address, with its provenance exposed.
fn allocate(layout: Layout) -> usize {
    // SAFETY: no shell has size zero: it has a tag.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    memory.expose_provenance()
}

/// Lets the memory of dead handles serve again.
pub(super) fn give_back(kind: Kind, handles: impl IntoIterator<Item = usize>) {
    pool().free[kind as usize].extend(handles);
}

/// Where an object of this kind is kept, or was; `None` if there never was one at this address.
pub(super) fn find(kind: Kind, handle: usize) -> Option<Place> {
    let (found, tag) = *pool().known.get(&handle)?;
    if found != kind {
        return None;
    }
    // SAFETY: the address is that of a tag that `create` wrote; its memory is never freed.
    let tag = unsafe { &*with_exposed_provenance_mut::<Tag>(tag) };
    Some(Place { slot: tag.slot.load(Relaxed), index: tag.index.load(Relaxed) })
}

/// Where a queue pair or completion queue is kept, or was, without looking it up; `None` for null and for an object of
/// another kind.
///
/// # Safety
/// 1. `handle` is null or was made by [`create`] at some time; the object may be dead.
#[inline]
pub(super) unsafe fn data_place(kind: Kind, handle: usize) -> Option<Place> {
    if handle < TAG_TO_BODY {
        return None;
    }
    let tag = with_exposed_provenance_mut::<Tag>(handle - TAG_TO_BODY);
    // SAFETY: by 1 the handle has memory in front of it that is never freed: its tag, or, for a context, the operations.
    // Either is aligned to 8 and was initialised; atomics may be read while another thread writes them.
    let tag = unsafe { &*tag };
    if tag.magic.load(Relaxed) != kind.magic() {
        return None;
    }
    Some(Place { slot: tag.slot.load(Relaxed), index: tag.index.load(Relaxed) })
}

/// Writes the state that C reads into a queue pair.
pub(super) fn set_queue_pair_state(handle: usize, state: QpState) {
    if find(Kind::QueuePair, handle).is_some() {
        let body = with_exposed_provenance_mut::<WholeQp>(handle);
        // SAFETY: a queue pair's handle points to its body, whose memory is never freed.
        let field = unsafe { &raw mut (*body).head.state };
        // SAFETY: as above; C writes it in `ibv_modify_qp` just so, where nobody else may use the queue pair.
        unsafe { field.write(state) };
    }
}

/// The words that builders are given by way of the queue pair: the request's number and flags.
pub(super) fn builder_words(handle: usize) -> (u64, u32) {
    if find(Kind::QueuePair, handle).is_none() {
        return (0, 0);
    }
    let body = with_exposed_provenance_mut::<WholeQp>(handle);
    // SAFETY: a queue pair's handle points to its body, whose memory is never freed.
    let wr_id = unsafe { &raw const (*body).extended.wr_id };
    // SAFETY: as above.
    let wr_flags = unsafe { &raw const (*body).extended.wr_flags };
    // SAFETY: as above; who calls builders writes these words on the same thread.
    let wr_id = unsafe { wr_id.read() };
    // SAFETY: as above.
    (wr_id, unsafe { wr_flags.read() })
}

/// The number that an indirect key's owner has, tag and all.
pub(super) fn key_number(handle: usize) -> u32 {
    if find(Kind::IndirectKey, handle).is_none() {
        return 0;
    }
    let body = with_exposed_provenance_mut::<Mkey>(handle);
    // SAFETY: a key's handle points to its body, whose memory is never freed.
    let lkey = unsafe { &raw const (*body).lkey };
    // SAFETY: as above; who owns the key may write its tag, on the thread that binds it.
    unsafe { lkey.read() }
}

/// Takes the numbers out of a dead indirect key.
pub(super) fn scrub_key(handle: usize) {
    if find(Kind::IndirectKey, handle).is_some() {
        let body = with_exposed_provenance_mut::<Mkey>(handle);
        // SAFETY: a key's handle points to its body, whose memory is never freed; it was just destroyed, so nobody may use it.
        unsafe { body.write(Mkey { lkey: u32::MAX, rkey: u32::MAX }) };
    }
}

/// Takes the keys out of a dead region, so that who reads them then is told by the device.
pub(super) fn scrub_region(handle: usize) {
    if find(Kind::Region, handle).is_some() {
        let body = with_exposed_provenance_mut::<Mr>(handle);
        // SAFETY: a region's handle points to its body, whose memory is never freed.
        let lkey = unsafe { &raw mut (*body).lkey };
        // SAFETY: as above.
        let rkey = unsafe { &raw mut (*body).rkey };
        for key in [lkey, rkey] {
            // SAFETY: as above; the region was just destroyed, so nobody may use it.
            unsafe { key.write(u32::MAX) };
        }
    }
}

/// Reads a device's name out of its body: a C string that lives as long as the process.
pub(super) fn device_name(handle: usize) -> *const std::ffi::c_char {
    let body = with_exposed_provenance_mut::<bareverbs_core::verbs::Device>(handle);
    if find(Kind::Device, handle).is_none() {
        return std::ptr::null();
    }
    // SAFETY: a device's handle points to its body, whose memory is never freed.
    unsafe { (&raw const (*body).name).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_core::verbs::Pd;

    #[test]
    fn a_handle_is_found_by_its_kind_only() {
        let place = Place { slot: 3, index: 9 };
        let handle = create(place, Pd { context: std::ptr::null_mut(), handle: 0 });
        assert_eq!(find(Kind::Domain, handle), Some(place));
        assert_eq!(find(Kind::Region, handle), None);
        assert_eq!(find(Kind::Domain, handle + 8), None);
        assert_eq!(find(Kind::Domain, 0), None);
    }

    #[test]
    fn the_data_path_sees_the_kind_in_front_of_the_handle() {
        let place = Place { slot: 1, index: 2 };
        let handle = create(place, Pd { context: std::ptr::null_mut(), handle: 0 });
        // SAFETY: made above.
        assert_eq!(unsafe { data_place(Kind::Domain, handle) }, Some(place));
        // SAFETY: made above.
        assert_eq!(unsafe { data_place(Kind::QueuePair, handle) }, None);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { data_place(Kind::QueuePair, 0) }, None);
    }
}
