//! Bytes that a device reads and writes.
//!
//! # Safety
//!
//! This file guarantees that bytes are touched only inside memory whose owner promised it by registering it
//! ([`RegisteredMemory::new`]) or by posting it inline ([`InlineBytes::new`]), and only while that promise is known to
//! hold: a [`Span`] borrows what it was made from.
//!
//! To a program, a device's copies are no memory accesses of its threads; these are. Two fabrics may be given the same bytes,
//! each by safe code that cannot know of the other, and operate on them at once. So **of all fabrics of the process, one thread at
//! a time is at registered bytes** (by [`COPYING`], or by the lock of the only fabric there ever was at a time): such copies come one
//! after the other, in some order, and are no data race.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bareverbs_core::verbs::Sge;

use crate::soft::rng::Rng;

/// Held while registered bytes are touched. Not one lock for each region: the same bytes may be registered at two places, and
/// mapped at two addresses. Nothing is called meanwhile, so it is always the last lock.
///
/// A process with one fabric does without: its own lock is held by whoever is at registered bytes.
static COPYING: Mutex<()> = Mutex::new(());

/// Whether this process ever had two fabrics at once. Whoever sets it takes every fabric's lock once before the second fabric can be
/// used ([`worlds::claim`](super::worlds::claim)): so who was at bytes without [`COPYING`] is done by then, and whoever holds a
/// fabric's lock later sees it set.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Says that there are several fabrics: to be followed by a turn of each one's lock.
pub(super) fn there_are_several() {
    SEVERAL.store(true, Relaxed);
}

#[inline]
fn alone() -> Option<MutexGuard<'static, ()>> {
    SEVERAL.load(Relaxed).then(|| COPYING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Memory that a caller registered: possessing one proves that it is still registered.
#[derive(Debug)]
pub(super) struct RegisteredMemory {
    address: usize,
    length_bytes: usize,
    writable: bool,
}

impl RegisteredMemory {
    /// # Safety
    /// What `ibv_reg_mr` asks of its caller, until the value is dropped:
    /// 1. the bytes are readable, and writable where `writable` is set;
    /// 2. while a posted request names some of them, no thread writes them but by values of this type, and where the request
    ///    has them written, none reads them but so;
    /// 3. while the other end of a connection may be reading or writing some of them, the same holds; while it may be changing
    ///    a word, no thread touches that but so or by atomics of 8 bytes.
    ///
    /// Other values of this type may be of the same bytes, of whatever fabric: these are not at them at once ([`COPYING`]).
    pub(super) const unsafe fn new(address: usize, length_bytes: usize, writable: bool) -> Self {
        Self { address, length_bytes, writable }
    }

    /// The bytes from `offset` on, if so many are registered there.
    #[inline]
    pub(super) const fn span(&self, offset: usize, length_bytes: usize) -> Option<Span<'_>> {
        match offset.checked_add(length_bytes) {
            Some(end) if end <= self.length_bytes => {
                Some(Span { address: self.address + offset, length_bytes, registered: PhantomData })
            }
            _ => None,
        }
    }

    /// The same to be written; `None` too where the region is not for writing.
    #[inline]
    pub(super) const fn span_mut(&self, offset: usize, length_bytes: usize) -> Option<SpanMut<'_>> {
        match self.span(offset, length_bytes) {
            Some(span) if self.writable => Some(SpanMut(span)),
            _ => None,
        }
    }
}

/// Bytes that may be read for now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'memory> {
    address: usize,
    length_bytes: usize,
    registered: PhantomData<&'memory RegisteredMemory>,
}

/// Bytes that may be written for now.
#[derive(Debug)]
pub(super) struct SpanMut<'memory>(Span<'memory>);

impl<'memory> From<&'memory [u8]> for Span<'memory> {
    fn from(bytes: &'memory [u8]) -> Self {
        Self { address: bytes.as_ptr().expose_provenance(), length_bytes: bytes.len(), registered: PhantomData }
    }
}

impl Span<'_> {
    #[inline]
    pub(super) const fn len(self) -> usize {
        self.length_bytes
    }

    /// The first `count` bytes, or all if there are fewer, and the rest.
    #[inline]
    pub(super) fn split(self, count: usize) -> (Self, Self) {
        let count = count.min(self.length_bytes);
        let head = Self { length_bytes: count, ..self };
        (head, Self { address: self.address + count, length_bytes: self.length_bytes - count, ..self })
    }

    /// Appends the bytes to a message that is kept.
    pub(super) fn append_to(self, message: &mut Vec<u8>) {
        let end = message.len();
        message.resize(end + self.length_bytes, 0);
        let from = with_exposed_provenance::<u8>(self.address);
        let _alone = alone();
        // SAFETY: the span's bytes may be read (see the makers of spans), and no other fabric writes them meanwhile; the vector
        // was grown by as many, and a new vector's bytes are nobody's registered memory.
        unsafe { from.copy_to(message.as_mut_ptr().wrapping_add(end), self.length_bytes) };
    }
}

impl SpanMut<'_> {
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.0.length_bytes
    }

    /// Writes the bytes of `from` to the start; as many as fit both.
    #[inline]
    pub(super) fn write(&mut self, from: Span<'_>) {
        let count = from.length_bytes.min(self.0.length_bytes);
        let source = with_exposed_provenance::<u8>(from.address);
        let target = with_exposed_provenance_mut::<u8>(self.0.address);
        let _alone = alone();
        // SAFETY: the one span's bytes may be read, the other's written, by the promise of who registered them, and no other
        // fabric is at them meanwhile; they may overlap, which `copy` allows.
        unsafe { source.copy_to(target, count) };
    }

    /// Puts `change` of the word that the span is in its place, at one stroke towards this machine's processors too; what it
    /// was, or `None` where the span is no word: 8 bytes at a multiple of 8.
    pub(super) fn update_word(&mut self, change: impl Fn(u64) -> u64) -> Option<u64> {
        let place = with_exposed_provenance_mut::<u64>(self.0.address);
        if self.0.length_bytes != size_of::<u64>() || !place.is_aligned() {
            return None;
        }
        let _alone = alone();
        // SAFETY: aligned; its bytes may be read and written while the span lives, by the promise of who registered them,
        // no other fabric is at them meanwhile, and who else touches them does so by atomics of 8 bytes
        // (`RegisteredMemory::new`, 3).
        let word = unsafe { AtomicU64::from_ptr(place) };
        let mut old = word.load(Relaxed);
        while let Err(now) = word.compare_exchange(old, change(old), AcqRel, Relaxed) {
            old = now;
        }
        Some(old)
    }

    /// Fills it with junk.
    pub(super) fn scribble(&mut self, rng: &mut Rng) {
        let mut junk = [0; 64];
        let mut done = 0;
        while done < self.0.length_bytes {
            for word in junk.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next().to_ne_bytes());
            }
            let (_, rest) = self.0.split(done);
            SpanMut(rest).write(Span::from(&junk[..]));
            done += junk.len();
        }
    }
}

/// Bytes that a request carries inline: read within the post, without a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineBytes<'request>(&'request [Sge]);

impl<'request> InlineBytes<'request> {
    /// # Safety
    /// 1. The bytes that the entries name are readable while the value lives; keys do not count.
    pub(super) const unsafe fn new(entries: &'request [Sge]) -> Self {
        Self(entries)
    }

    /// Copies them into `room`, as far as it goes.
    pub(super) fn copy_into(self, room: &mut [u8]) {
        let mut rest = room;
        for entry in self.0 {
            let count = rest.len().min(entry.length as usize);
            let (here, after) = rest.split_at_mut(count);
            let from = with_exposed_provenance::<u8>(entry.addr as usize);
            // SAFETY: the entry's bytes are readable (`new`, 1); `here` has as many.
            unsafe { from.copy_to(here.as_mut_ptr(), count) };
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(bytes: &mut [u8], writable: bool) -> RegisteredMemory {
        let address = bytes.as_mut_ptr().expose_provenance();
        // SAFETY: the tests keep the bytes for as long as they use the memory, and touch them between uses only.
        unsafe { RegisteredMemory::new(address, bytes.len(), writable) }
    }

    #[test]
    fn a_span_ends_where_the_region_does() {
        let mut bytes = [0; 16];
        let memory = registered(&mut bytes, true);
        assert!(memory.span(0, 16).is_some() && memory.span(16, 0).is_some());
        assert!(memory.span(0, 17).is_none() && memory.span(15, 2).is_none() && memory.span(17, 0).is_none());
        assert!(memory.span(usize::MAX, 2).is_none());
    }

    #[test]
    fn a_region_that_is_not_for_writing_gives_no_span_to_write() {
        let mut bytes = [0; 16];
        assert!(registered(&mut bytes, false).span_mut(0, 1).is_none());
        assert!(registered(&mut bytes, true).span_mut(0, 1).is_some());
    }

    #[test]
    fn scribbling_stays_inside() {
        let mut bytes = [0; 200];
        let memory = registered(&mut bytes, true);
        memory.span_mut(10, 150).expect("inside").scribble(&mut Rng::new(1));
        assert!(bytes[..10].iter().chain(&bytes[160..]).all(|byte| *byte == 0));
        assert!(bytes[10..160].iter().any(|byte| *byte != 0));
    }

    #[test]
    fn overlapping_bytes_move_as_if_through_a_copy() {
        let mut bytes = [1, 2, 3, 4, 5];
        let memory = registered(&mut bytes, true);
        memory.span_mut(1, 4).expect("inside").write(memory.span(0, 4).expect("inside"));
        assert_eq!(bytes, [1, 1, 2, 3, 4]);
    }
}
