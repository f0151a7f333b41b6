//! Protection domains.
//!
//! # Safety
//!
//! This file guarantees that a domain is made from a live context, which it holds.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use bareverbs_core::verbs::Pd;

use crate::errno;
use crate::error::{CallError, Error};
use crate::objects::device::DeviceContext;
use crate::objects::handle::{Handle, Object, Origin};

impl Object for Pd {
    type Parents = Arc<DeviceContext>;
    const DESTROY: &'static str = "ibv_dealloc_pd";

    fn destroy(parents: &Self::Parents) -> unsafe extern "C" fn(*mut Self) -> c_int {
        Self::origin(parents).symbols.dealloc_pd
    }

    fn origin(parents: &Self::Parents) -> &Origin {
        parents.origin()
    }
}

/// A protection domain: regions and queue pairs of one domain may be used together.
#[derive(Debug)]
pub struct ProtectionDomain {
    handle: Handle<Pd>,
}

impl ProtectionDomain {
    /// Makes a domain. `port` is only asked for its state when this fails: on a port that is down, Apple's library answers
    /// null.
    ///
    /// # Errors
    /// [`Error::Call`], with the port's state.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(context: &Arc<DeviceContext>, port: u8) -> Result<Arc<Self>, Error> {
        context.check_use()?;
        errno::clear();
        // SAFETY: the context is live.
        let raw = unsafe { (context.symbols().alloc_pd)(context.as_ptr()) };
        // SAFETY: just returned by this library, or null; errno was cleared.
        match unsafe { Handle::adopt(raw, Arc::clone(context), "ibv_alloc_pd") } {
            Ok(handle) => Ok(Arc::new(Self { handle })),
            Err(error) => Err(context.call_error(error.call, error.errno, Some(port)).into()),
        }
    }

    /// The device it is on.
    pub fn context(&self) -> &Arc<DeviceContext> {
        self.handle.parents()
    }

    /// The C object, for calls that this crate does not wrap. It is live as long as `self`.
    pub fn as_ptr(&self) -> *mut Pd {
        self.handle.as_ptr()
    }

    /// Deallocates the domain if nothing else holds it; else it goes with its last owner.
    pub(crate) fn close_if_last(self: Arc<Self>) -> Option<Result<(), CallError>> {
        Arc::into_inner(self).map(|this| this.handle.close())
    }

    /// Deallocates the domain now.
    ///
    /// # Errors
    /// [`Error::State`] if something made from it is alive; [`Error::Call`] if the library refuses, and then it and its
    /// parents stay for ever. [`Error::Forked`] in a forked child: nothing was done.
    pub fn close(self: Arc<Self>) -> Result<(), Error> {
        self.handle.origin().check_process()?;
        let device = Arc::clone(self.context().name());
        match Arc::try_unwrap(self) {
            Ok(this) => Ok(this.handle.close()?),
            Err(_) => {
                Err(Error::State { device, what: "the protection domain is in use: drop what was made from it first" })
            }
        }
    }
}
