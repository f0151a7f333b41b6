//! What a drop could not do: a hook that the process can set.
//!
//! A drop never panics and returns nothing. Without a hook, what it could not do is one line at `warn` of the `log`
//! facade, or on standard error where no logger listens.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
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

thread_local! {
    /// What this thread has to tell later; `None` where it tells at once.
    static LATER: RefCell<Option<Vec<DropFailure>>> = const { RefCell::new(None) };
}

/// While it lives, what this thread's drops could not do is noted; it is told when this goes. For who holds a lock: a hook may
/// want it. Within another, that one tells.
#[must_use = "what goes at once defers nothing"]
pub(crate) struct Later {
    is_outermost: bool,
    // It goes on the thread that it was made on.
    _not_send: PhantomData<*const ()>,
}

/// See [`Later`].
pub(crate) fn later() -> Later {
    let is_outermost = LATER.try_with(|later| {
        let mut later = later.borrow_mut();
        let is_outermost = later.is_none();
        later.get_or_insert_default();
        is_outermost
    });
    // Where the thread ends, nothing is noted any more.
    Later { is_outermost: is_outermost.unwrap_or(false), _not_send: PhantomData }
}

impl Drop for Later {
    fn drop(&mut self) {
        if self.is_outermost {
            let noted = LATER.try_with(|later| later.take()).ok().flatten();
            noted.iter().flatten().for_each(tell);
        }
    }
}

pub(crate) fn report(failure: &DropFailure) {
    let is_noted = LATER.try_with(|later| match &mut *later.borrow_mut() {
        Some(noted) => {
            noted.push(failure.clone());
            true
        }
        None => false,
    });
    if !is_noted.unwrap_or(false) {
        tell(failure);
    }
}

fn tell(failure: &DropFailure) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Of a device of this test's own: the hook is the process's.
    fn failure(number: u32) -> DropFailure {
        DropFailure::Quiesce { device: "told later".into(), qp_num: number, reason: String::new() }
    }

    #[test]
    fn what_is_noted_is_told_in_order_when_the_outermost_goes_and_by_its_own_thread_only() {
        static TOLD: Mutex<Vec<u32>> = Mutex::new(Vec::new());
        let told = || TOLD.lock().expect("whole").clone();
        set_drop_hook(Some(Arc::new(|failure: &DropFailure| {
            if let DropFailure::Quiesce { device, qp_num, .. } = failure
                && **device == *"told later"
            {
                TOLD.lock().expect("whole").push(*qp_num);
                // A hook's own failure, noted by it, does not wait for more than the hook.
                if *qp_num == 2 {
                    let _later = later();
                    report(&self::failure(20));
                    assert_eq!(TOLD.lock().expect("whole").last(), Some(&2));
                }
            }
        })));
        let outer = later();
        report(&failure(1));
        let inner = later();
        report(&failure(2));
        drop(inner);
        report(&failure(3));
        assert_eq!(told(), []);
        std::thread::scope(|scope| scope.spawn(|| report(&failure(4))).join().expect("no panic"));
        assert_eq!(told(), [4], "another thread tells at once");
        drop(outer);
        assert_eq!(told(), [4, 1, 2, 20, 3]);
        report(&failure(5));
        assert_eq!(told(), [4, 1, 2, 20, 3, 5], "at once again");
        set_drop_hook(None);
    }
}
