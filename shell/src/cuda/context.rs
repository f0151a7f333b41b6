//! The context that owns an address, current on this thread for a while.
//!
//! Queries of ranges, exports and copies need one, and a thread of a pool has none. What was current before is current again
//! after, on every path; what was retained is released once.

use std::fmt;

use bareverbs_core::segments::Ordinal;

use super::calls::{Calls, Context};
use super::driver::CudaDriver;
use super::error::CudaError;
use crate::objects::report::{self, DropFailure};

/// As long as it lives, the context that owns an address is current on this thread. When it drops, the former one is again.
///
/// Guards on one thread are to be dropped in the reverse order in which they were made. It stays on its thread:
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<bareverbs_shell::cuda::ContextGuard<'static>>();
/// ```
#[must_use = "the former context is current again when it drops"]
pub struct ContextGuard<'driver> {
    calls: &'driver Calls,
    address: u64,
    /// What is to be current again. A pointer, so this is not `Send`.
    former: Option<Context>,
    /// The device whose primary context is retained.
    retained: Option<Ordinal>,
}

impl CudaDriver {
    /// Makes the context that owns an address current on this thread.
    ///
    /// That is the one in which the memory was allocated. Memory of a pool and growing memory have none: for those, and where
    /// the driver does not tell, it is the primary context of the device whose memory it is, retained as long as the guard lives.
    ///
    /// # Errors
    /// [`CudaError`]. The context that was current still is, and nothing is retained.
    #[doc(alias("cuCtxSetCurrent", "cuDevicePrimaryCtxRetain"))]
    pub fn make_current(&self, address: u64) -> Result<ContextGuard<'_>, CudaError> {
        let calls = &self.calls;
        let own = calls.context_of(address).ok().filter(|context| context.is_some());
        let ordinal = if own.is_none() { Some(calls.ordinal(address)?) } else { None };
        let former = calls.current()?;
        let mut guard = ContextGuard { calls, address, former: None, retained: None };
        let context = match (own, ordinal) {
            (Some(own), _) => own,
            (None, Some(ordinal)) => {
                let primary = calls.retain_primary(ordinal)?;
                guard.retained = Some(ordinal);
                primary
            }
            (None, None) => unreachable!("without a context of its own, the device was asked for"),
        };
        if context != former {
            calls.set_current(context, address)?;
            guard.former = Some(former);
        }
        Ok(guard)
    }
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        let restored = self.former.take().map_or(Ok(()), |former| self.calls.set_current(former, self.address));
        let released = self.retained.take().map_or(Ok(()), |ordinal| self.calls.release_primary(ordinal));
        for error in [restored, released].into_iter().filter_map(Result::err) {
            report::report(&DropFailure::Context { address: self.address, reason: error.to_string() });
        }
    }
}

impl fmt::Debug for ContextGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextGuard")
            .field("address", &format_args!("{:#x}", self.address))
            .field("retained", &self.retained)
            .finish_non_exhaustive()
    }
}
