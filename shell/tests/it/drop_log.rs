//! What drops could not do, kept by device: the hook is the process's, so each test gives its device a name of its own.

use std::sync::{Mutex, Once, PoisonError};

use bareverbs_shell::objects::report::{DropFailure, set_drop_hook};

static LOG: Mutex<Vec<DropFailure>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();
/// Devices for whose next failure the hook panics.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has failures kept from now on.
pub fn keep() {
    HOOK.call_once(|| {
        set_drop_hook(Some(std::sync::Arc::new(|failure: &DropFailure| {
            LOG.lock().unwrap_or_else(PoisonError::into_inner).push(failure.clone());
            let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = panics.extract_if(.., |device| device == device_of(failure)).count();
            drop(panics);
            assert_eq!(asked, 0, "as the test asked for");
        })));
    });
}

/// Has the hook panic at this device's next failure.
pub fn panic_once(device: &str) {
    keep();
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(device.to_owned());
}

/// What drops on this device could not do, in order; it is then forgotten.
pub fn take(device: &str) -> Vec<DropFailure> {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.extract_if(.., |failure| device_of(failure) == device).collect()
}

/// What could not be undone of making a context current for an address, in order; it is then forgotten.
#[cfg(target_os = "linux")]
pub fn take_contexts(address: u64) -> Vec<DropFailure> {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let is_of = |failure: &DropFailure| matches!(failure, DropFailure::Context { address: of, .. } if *of == address);
    log.extract_if(.., |failure| is_of(failure)).collect()
}

fn device_of(failure: &DropFailure) -> &str {
    match failure {
        DropFailure::Destroy(error) => &error.device,
        DropFailure::Quiesce { device, .. } | DropFailure::Leaked { device, .. } => device,
        DropFailure::Context { .. } => "",
        other => panic!("a failure that the tests do not know: {other:?}"),
    }
}
