//! The thread's `errno`, which C reads after a call.
//!
//! # Safety
//!
//! This file guarantees that `errno` is reached only through the C library's own accessor, on the calling thread.
#![allow(unsafe_code)]

use std::ffi::c_int;

fn location() -> *mut c_int {
    #[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
    // SAFETY: takes nothing and may be called from any thread.
    let location = unsafe { libc::__error() };
    #[cfg(not(any(target_os = "macos", target_os = "ios", target_os = "freebsd")))]
    // SAFETY: takes nothing and may be called from any thread.
    let location = unsafe { libc::__errno_location() };
    location
}

/// Sets the calling thread's `errno`.
pub(super) fn set(number: c_int) {
    // SAFETY: the C library's accessor gives a pointer to this thread's own `errno`, valid for as long as the thread runs.
    unsafe { location().write(number) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_set_is_what_the_standard_library_reads() {
        super::set(61);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(61));
    }
}
