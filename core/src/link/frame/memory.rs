//! Bytes for frames, and whose they are: static storage with one owner at a time, memory that somebody else keeps, and the key
//! under which a region covers them.
//!
//! # Safety
//!
//! This file alone guarantees that *a [`FrameMemory`] is the only way to its bytes*: storage has one claim at a time,
//! splitting divides, and [`FrameMemory::from_raw_parts`] makes it its caller's duty. The claim comes back with the drop of a
//! `FrameMemory`, not before every part of it has (`claim`). What a link took comes back as [`HeldMemory`], and its
//! [`release`](HeldMemory::release) makes it its caller's duty that no device knows the bytes any more.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;

use crate::link::claim::{Claim, Claims};

/// What storage is aligned to: the page, 16 KiB on Apple's machines and 4 KiB elsewhere.
pub const PAGE_BYTES: usize = if cfg!(target_vendor = "apple") { 16384 } else { 4096 };

/// Static storage for frames: page-aligned, zeroed at first, claimed by one owner at a time.
///
/// ```
/// use bareverbs_core::link::FrameStorage;
/// static FRAMES: FrameStorage<{ 64 * 4096 }> = FrameStorage::new();
/// let memory = FRAMES.claim().expect("nobody else has it");
/// assert_eq!(memory.len_bytes(), 64 * 4096);
/// assert!(FRAMES.claim().is_none());
/// drop(memory);
/// assert!(FRAMES.claim().is_some());
/// ```
#[cfg_attr(target_vendor = "apple", repr(C, align(16384)))]
#[cfg_attr(not(target_vendor = "apple"), repr(C, align(4096)))]
pub struct FrameStorage<const BYTES: usize> {
    bytes: UnsafeCell<MaybeUninit<[u8; BYTES]>>,
    claims: Claims,
}

// SAFETY: the bytes are reached only by who claimed them, and `Claims` lets one claim pass at a time.
unsafe impl<const BYTES: usize> Sync for FrameStorage<BYTES> {}

impl<const BYTES: usize> FrameStorage<BYTES> {
    /// Zeroed storage, for a `static`.
    #[allow(clippy::new_without_default, reason = "a static needs a const constructor, and nothing else makes sense")]
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new(MaybeUninit::zeroed()), claims: Claims::new() }
    }

    /// The storage's bytes, as their last owner left them; `None` while somebody has them, or a part of them.
    ///
    /// Memory comes back when it is dropped, and all that was split off it is. What a link has taken comes back only by
    /// [`HeldMemory::release`]: a link that is dropped or forgotten keeps the storage claimed for good, since its device
    /// may still write to it.
    pub fn claim(&'static self) -> Option<FrameMemory> {
        let claim = self.claims.claim()?;
        let base = NonNull::new(self.bytes.get().cast::<u8>())?;
        // SAFETY: 1, 2: the storage is `'static`, and zeroed, which the type of the cell allows anyone to write through
        // the pointer. 3: no other claim is out, and none can be made until this one has come back, which is when all of
        // the memory is gone (`claim`); nothing else reads the cell.
        let memory = unsafe { FrameMemory::from_raw_parts(base, BYTES) };
        Some(FrameMemory { claim, ..memory })
    }
}

/// Bytes for frames, exclusively owned, that a device may read and write.
///
/// Possessing one proves that nobody else can reach the bytes, no device included. Dropping it frees nothing; static
/// storage can then be claimed anew.
#[derive(Debug)]
pub struct FrameMemory {
    base: NonNull<u8>,
    len_bytes: usize,
    claim: Claim,
}

// SAFETY: it owns its bytes, as a `Box<[u8]>` does (`from_raw_parts`, 3).
unsafe impl Send for FrameMemory {}
// SAFETY: a shared one tells address and length only.
unsafe impl Sync for FrameMemory {}

impl FrameMemory {
    /// Memory that somebody else keeps: a mapping, an allocation behind an `Arc`.
    ///
    /// Its address is exposed (`expose_provenance`), since devices, and the fabric that stands in for one,
    /// know it as a number.
    ///
    /// # Safety
    /// 1. `base` is valid for reads and writes of `len_bytes` bytes, all initialised, of one allocation of at most
    ///    `isize::MAX` bytes.
    /// 2. It stays so until this value, all that it was split into and every link that took it are gone, **and** every
    ///    queue pair that its frames were posted to is destroyed. A borrow does not do: forgetting a link ends a borrow,
    ///    but not the device's writes.
    /// 3. Nothing else reads or writes the bytes in that time, but for devices that were told to by a link.
    pub unsafe fn from_raw_parts(base: NonNull<u8>, len_bytes: usize) -> Self {
        base.as_ptr().expose_provenance();
        Self { base, len_bytes, claim: Claim::NONE }
    }

    /// Where the bytes start, for registration.
    #[inline(always)]
    pub const fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// How many there are.
    #[inline]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The first `first_bytes` of it, and the rest: one region, several links.
    ///
    /// # Errors
    /// The memory itself, if it has fewer bytes.
    pub fn split_at(self, first_bytes: usize) -> Result<(Self, Self), Self> {
        match self.len_bytes.checked_sub(first_bytes) {
            Some(rest_bytes) => {
                // SAFETY: the sum lies within the memory, or one past its end, as the check says.
                let rest = unsafe { self.base.add(first_bytes) };
                let (claim, rest_claim) = self.claim.split();
                let first = Self { base: self.base, len_bytes: first_bytes, claim };
                Ok((first, Self { base: rest, len_bytes: rest_bytes, claim: rest_claim }))
            }
            None => Err(self),
        }
    }
}

/// The memory of a link that was taken apart, with frames in it that may still be the device's. Dropping it keeps the memory
/// from being used again.
#[derive(Debug)]
pub struct HeldMemory {
    send: ManuallyDrop<FrameMemory>,
    receive: ManuallyDrop<FrameMemory>,
}

impl HeldMemory {
    /// Of the two halves that a link made of one memory, the first half first.
    pub(crate) fn of(send: ManuallyDrop<FrameMemory>, receive: ManuallyDrop<FrameMemory>) -> Self {
        Self { send, receive }
    }

    /// The memory as the link got it: for another link, or, by dropping it, for whoever claims the storage next.
    ///
    /// # Safety
    /// 1. The queue pair that the link posted to is destroyed, or both its teardown markers were polled: no device and no
    ///    fabric reads or writes the frames any more.
    /// 2. Before the memory is dropped, or used otherwise than by a link under the same key, every region over it is
    ///    deregistered. One that could not be keeps it: forget the memory.
    pub unsafe fn release(self) -> FrameMemory {
        let (send, receive) = (ManuallyDrop::into_inner(self.send), ManuallyDrop::into_inner(self.receive));
        // The two are the halves that `Link::new` made of one memory; the first half's pointer reaches over both, and its
        // part of the claim is all of it once the second's is given back.
        FrameMemory { len_bytes: send.len_bytes.wrapping_add(receive.len_bytes), ..send }
    }
}

/// The key under which a link's frames are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKey(u32);

impl FrameKey {
    /// The key `lkey` of a region.
    ///
    /// # Safety
    /// 1. The region maps addresses to themselves (it was registered without an address of its own, `iova`), or does not
    ///    cover the frames that it is used for. A key of the wrong region then fails, and touches nothing.
    pub const unsafe fn new(lkey: u32) -> Self {
        Self(lkey)
    }

    /// The number.
    pub const fn lkey(self) -> u32 {
        self.0
    }
}
