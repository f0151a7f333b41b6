//! One library object and its parents: destroyed once, parents let go only after.
//!
//! The rule this file protects: **a child is destroyed before its parents, once; when that fails, the parents stay**, since
//! destroying them would fail as well. In a child process after `fork` nothing is called and nothing is let go: memory that
//! is registered may not be mapped there (`ibv_fork_init`), so that even to free it would be a fault.
//!
//! # Safety
//!
//! This file guarantees that a destroy function is called at most once, with an object that the library made and that was
//! not destroyed before.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use bareverbs_core::verbs::inline_calls::RawErrno;

use crate::errno;
use crate::error::{CallError, Error};
use crate::objects::report::{DropFailure, report};
use crate::symbols::Symbols;

/// A kind of object that a library makes and destroys.
pub(super) trait Object {
    /// What must outlive it.
    type Parents;
    /// The destroy call, as C names it.
    const DESTROY: &'static str;
    /// The destroy call.
    fn destroy(parents: &Self::Parents) -> unsafe extern "C" fn(*mut Self) -> c_int;
    /// The device that it is on.
    fn origin(parents: &Self::Parents) -> &Origin;
}

/// Where an object comes from: what a destroy needs to know.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) symbols: Arc<Symbols>,
    pub(super) device: Arc<str>,
    pub(super) process: u32,
}

impl Origin {
    /// Whether this process made the object: handles are not for a forked child.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    pub(super) fn check_process(&self) -> Result<(), Error> {
        if self.is_ours() { Ok(()) } else { Err(Error::Forked { device: Arc::clone(&self.device) }) }
    }
}

/// Owner of one object.
#[derive(Debug)]
pub(super) struct Handle<T: Object> {
    raw: NonNull<T>,
    parents: ManuallyDrop<T::Parents>,
}

// SAFETY: a verbs object may be destroyed and named from any thread (the library and the kernel lock); what may not happen
// at the same time (post, poll) goes through calls that need `&mut`. The parents must be sendable themselves.
unsafe impl<T: Object> Send for Handle<T> where T::Parents: Send {}
// SAFETY: through a shared handle only fields that do not change after creation are read.
unsafe impl<T: Object> Sync for Handle<T> where T::Parents: Sync {}

impl<T: Object> Handle<T> {
    /// Takes ownership of what a create call returned.
    ///
    /// # Errors
    /// [`CallError`] if it is null; the parents are let go.
    ///
    /// # Safety
    /// 1. `raw` is null, or was made by the library of `parents` and is owned by nobody else.
    /// 2. `errno` was cleared before the call that returned it.
    pub(super) unsafe fn adopt(raw: *mut T, parents: T::Parents, call: &'static str) -> Result<Self, CallError> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Self { raw, parents: ManuallyDrop::new(parents) }),
            None => Err(CallError::new(call, &T::origin(&parents).device, errno::last())),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    pub(super) fn raw(&self) -> NonNull<T> {
        self.raw
    }

    pub(super) fn parents(&self) -> &T::Parents {
        &self.parents
    }

    pub(super) fn origin(&self) -> &Origin {
        T::origin(&self.parents)
    }

    /// Destroys the object now.
    ///
    /// # Errors
    /// [`CallError`] if the library refuses: the object and its parents then stay for ever, and drop does not try again.
    pub(super) fn close(self) -> Result<(), CallError> {
        // Nothing is left to drop: what this does is all there is.
        let mut this = ManuallyDrop::new(self);
        this.destroy_once()
    }

    /// Destroys and lets the parents go, or leaves both: in a forked child, and when the library refuses. To be called once.
    fn destroy_once(&mut self) -> Result<(), CallError> {
        let origin = T::origin(&self.parents);
        if !origin.is_ours() {
            return Ok(());
        }
        let destroy = T::destroy(&self.parents);
        errno::clear();
        // SAFETY: the object was made by this library (`adopt`, 1) and is destroyed for the first time: both callers
        // consume the handle.
        let returned = unsafe { destroy(self.raw.as_ptr()) };
        if returned != 0 {
            let errno = errno::of_return(RawErrno(returned));
            return Err(CallError::new(T::DESTROY, &origin.device, errno));
        }
        // SAFETY: taken once, for the same reason; on the paths above it is never taken.
        drop(unsafe { ManuallyDrop::take(&mut self.parents) });
        Ok(())
    }
}

impl<T: Object> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy_once() {
            report(&DropFailure::Destroy(error));
        }
    }
}
