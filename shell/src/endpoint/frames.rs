//! Where an endpoint's frames live, and what keeps them there.
//!
//! The rule this file protects: **the memory of frames is let go when both their region and their queue pair are gone, and
//! never when either had to be left behind.** Region and queue pair each hold its keeper, so this holds on every path: a
//! close, a drop, an [`Endpoint::new`](super::Endpoint::new) that fails half-way. An endpoint that is forgotten keeps it, and
//! so does a forked child, where no handle lets anything go.
//!
//! # Safety
//!
//! This file guarantees that the memory given to a link stays what it is, and the link's alone, as long as its keeper lives.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use bareverbs_core::link::FrameMemory;

use crate::error::Error;
use crate::memory::pages::Pages;
use crate::objects::memory_region::Keeper;

/// Where an endpoint's frames live.
#[derive(Debug)]
pub enum Frames {
    /// Memory that the endpoint allocates and frees.
    Owned,
    /// Static storage, claimed. It can be claimed anew when the endpoint is closed or dropped, or could not be made, for a
    /// link that is made anew, say:
    ///
    /// ```
    /// use bareverbs_core::link::{FrameStorage, Immediate};
    /// use bareverbs_shell::endpoint::{Endpoint, EndpointConfig};
    /// use bareverbs_shell::Fabric;
    ///
    /// static FRAMES: FrameStorage<{ 16 * 4096 }> = FrameStorage::new();
    /// let device = Fabric::soft()?.open(None)?;
    /// for _ in 0..2 {
    ///     let frames = FRAMES.claim().expect("the link before is gone");
    ///     let end = Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc("b"), frames)?;
    ///     assert!(FRAMES.claim().is_none());
    ///     end.close()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It stays claimed for good when its region could not be deregistered or its queue pair not be destroyed, which a close
    /// and a drop tell; when the endpoint is forgotten; and in a child process after `fork`.
    Static(FrameMemory),
}

impl From<FrameMemory> for Frames {
    fn from(memory: FrameMemory) -> Self {
        Self::Static(memory)
    }
}

/// The memory for a link, of at least `len_bytes` if it is the endpoint's own, and its keeper: region and queue pair must each
/// hold that.
pub(super) fn memory(frames: Frames, len_bytes: usize) -> Result<(FrameMemory, Keeper), Error> {
    match frames {
        Frames::Static(memory) => {
            let len_bytes = memory.len_bytes();
            let base = NonNull::new(memory.as_ptr()).ok_or(Error::Size { what: "frame memory", got: 0 })?;
            let keeper = Arc::new(memory);
            // SAFETY: 1: what is claimed is frame memory already. 2, 3: the keeper has it, does not look at it, and lives
            // until the region that covers it is deregistered and the queue pair that it is posted to is destroyed; the
            // endpoint does nothing with its link after that.
            let lent = unsafe { FrameMemory::from_raw_parts(base, len_bytes) };
            Ok((lent, Some(keeper)))
        }
        Frames::Owned => {
            let pages =
                Arc::new(Pages::new(len_bytes).ok_or(Error::Size { what: "frame memory", got: len_bytes as u64 })?);
            // SAFETY: 1: the pages are ours, zeroed, of that length. 2: they are their own keeper: as above. 3: only their
            // address is known elsewhere.
            let memory = unsafe { FrameMemory::from_raw_parts(pages.start(), pages.len_bytes()) };
            Ok((memory, Some(pages)))
        }
    }
}
