//! Error numbers: read without ever showing a stale one, and named as this operating system names them.
//!
//! The same number means another thing on Darwin and on Linux (60 is ETIMEDOUT there and ENOSTR here), so names come from
//! the platform's own constants.
//!
//! # Safety
//!
//! This file guarantees that only the calling thread's `errno` is written.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::ptr;

use bareverbs_core::verbs::inline_calls::RawErrno;

/// An error number of the operating system, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            /// The number's name on this operating system, if it is a common one.
            pub fn name(self) -> Option<&'static str> {
                // A list and not a match: on some systems two names share a number.
                [$((libc::$name, stringify!($name)),)*]
                    .iter()
                    .find(|(number, _)| *number == self.0)
                    .map(|(_, name)| *name)
            }
        }
    };
}

names! {
    EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL ENFILE EMFILE ENOSPC EPIPE
    ERANGE EDEADLK ENOSYS ENODATA EPROTO EOVERFLOW EMSGSIZE EPROTONOSUPPORT EOPNOTSUPP ENOTSUP EADDRINUSE
    EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS ENOTCONN ETIMEDOUT ECONNREFUSED
    EHOSTDOWN EHOSTUNREACH ECANCELED
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "errno {} ({name})", self.0),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Errno {
    /// Whether this is "out of room" as providers say it for a full queue.
    pub fn is_queue_full(self) -> bool {
        self.0 == libc::ENOMEM
    }
}

/// Where the calling thread's `errno` is. Every post clears it first, so the library is asked once for each thread: a call
/// costs more than the store.
#[inline]
fn location() -> *mut i32 {
    thread_local! {
        static PLACE: Cell<*mut i32> = const { Cell::new(ptr::null_mut()) };
    }
    PLACE.with(|place| {
        if place.get().is_null() {
            place.set(ask_for_location());
        }
        place.get()
    })
}

#[cold]
fn ask_for_location() -> *mut i32 {
    #[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
    let location = libc::__error;
    #[cfg(not(any(target_os = "macos", target_os = "ios", target_os = "freebsd")))]
    let location = libc::__errno_location;
    // SAFETY: always callable; gives the calling thread's own location, which is where it is as long as the thread lives.
    unsafe { location() }
}

/// Sets the thread's `errno` to 0, so that a later [`last`] tells what a call set from what was there.
#[inline]
pub fn clear() {
    set(0);
}

/// Sets the thread's `errno`, as a C function does that fails.
#[inline]
pub fn set(number: i32) {
    // SAFETY: the location is this thread's own and lives as long as the thread.
    unsafe { location().write(number) };
}

/// What the last call set, if it set anything since [`clear`].
pub fn last() -> Option<Errno> {
    // SAFETY: the location is this thread's own and lives as long as the thread.
    let number = unsafe { location().read() };
    (number != 0).then_some(Errno(number))
}

/// The number behind what a verbs call returned: positive, negative, or -1 with `errno` set.
///
/// `errno` must have been cleared before the call.
pub fn of_return(raw: RawErrno) -> Option<Errno> {
    raw.number().map(Errno).or_else(last)
}

/// The locked-memory limit of this process, in words.
pub fn locked_memory_limit() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is ours and large enough.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0;
    if failed {
        "unknown".into()
    } else if limit.rlim_cur == libc::RLIM_INFINITY {
        "unlimited".into()
    } else {
        format!("{} bytes", limit.rlim_cur)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_ways_of_returning_an_error_give_the_same_number() {
        clear();
        assert_eq!(of_return(RawErrno(12)), Some(Errno(12)));
        assert_eq!(of_return(RawErrno(-12)), Some(Errno(12)));
        assert_eq!(of_return(RawErrno(-1)), None);
        set(12);
        assert_eq!(of_return(RawErrno(-1)), Some(Errno(12)));
        assert_eq!(of_return(RawErrno(22)), Some(Errno(22)), "a returned number beats errno");
    }

    #[test]
    fn a_number_without_a_name_is_printed_as_a_number() {
        assert_eq!(Errno(524).to_string(), "errno 524");
        assert_eq!(Errno(libc::EINVAL).to_string(), format!("errno {} (EINVAL)", libc::EINVAL));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_are_those_of_linux() {
        assert_eq!(Errno(110).name(), Some("ETIMEDOUT"));
        assert_eq!(Errno(95).name(), Some("EOPNOTSUPP"));
        assert_eq!(Errno(61).name(), Some("ENODATA"));
        assert_eq!(Errno(60).name(), None);
    }
}
