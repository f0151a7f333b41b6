//! What a drop could not do: a hook that the process can set.
//!
//! A drop never panics and returns nothing. Without a hook, what it could not do is one line at `warn` of the `log`
//! facade, or on standard error where no logger listens.

use std::fmt;
use std::sync::RwLock;
use std::sync::{Arc, PoisonError};

use crate::error::CallError;

/// What a drop could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropFailure {
    /// A destroy failed; the object and its parents are left to the end of the process.
    Destroy(CallError),
    /// A queue pair could not be quiesced; it is destroyed before any region.
    Quiesce {
        /// The device.
        device: Arc<str>,
        /// The queue pair's number.
        qp_num: u32,
        /// Why.
        reason: String,
    },
    /// Memory that the device may still write is left in place for ever.
    Leaked {
        /// The device.
        device: Arc<str>,
        /// How much.
        len_bytes: usize,
    },
    /// A thread's former CUDA context is not current again, or a primary context stays retained.
    Context {
        /// The address whose context was made current.
        address: u64,
        /// Which call failed, and how.
        reason: String,
    },
}

impl fmt::Display for DropFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destroy(error) => write!(f, "while dropping: {error}; it and its parents are left in place"),
            Self::Quiesce { device, qp_num, reason } => {
                write!(f, "while dropping: queue pair {qp_num} on device {device} could not be drained: {reason}")
            }
            Self::Leaked { device, len_bytes } => {
                write!(f, "while dropping: {len_bytes} bytes that device {device} may still write are kept, not freed")
            }
            Self::Context { address, reason } => {
                write!(
                    f,
                    "while dropping: the context from before memory at {address:#x} was reached is not back: {reason}"
                )
            }
        }
    }
}

type Hook = Arc<dyn Fn(&DropFailure) + Send + Sync>;
static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

/// Sets what is called, on the dropping thread, when a drop could not do something; `None` for the default line.
pub fn set_drop_hook(hook: Option<Hook>) {
    let before = std::mem::replace(&mut *HOOK.write().unwrap_or_else(PoisonError::into_inner), hook);
    // With the lock given back: what the hook before holds may have something to report when it goes.
    drop(before);
}

pub(crate) fn report(failure: &DropFailure) {
    let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
    let tell = || match hook {
        Some(hook) => hook(failure),
        None if log::log_enabled!(log::Level::Warn) => log::warn!("{failure}"),
        None => {
            use std::io::Write;
            // `eprintln!` would panic on a closed standard error.
            let _ = writeln!(std::io::stderr(), "bareverbs: {failure}");
        }
    };
    // A hook or a logger that panics must not turn a drop while unwinding into an abort.
    if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(tell)) {
        forget_payload(payload);
    }
}

/// Lets go of what a panic carried. That may panic in turn, and so may what that panic carries: it is dropped where it can
/// do no harm, and what panics there is left in place.
fn forget_payload(payload: Box<dyn std::any::Any + Send>) {
    if let Err(again) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
