//! Libraries of the system, opened by name and never closed.
//!
//! # Safety
//!
//! This file guarantees that what it finds in a library stays mapped: no handle is ever closed.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An open library.
#[derive(Debug)]
pub(super) struct Library {
    handle: *mut c_void,
}

/// Why a library is not open.
#[derive(Debug)]
pub(super) enum NotOpen {
    /// The name has a NUL in it.
    BadName,
    /// The loader's own words.
    Refused(String),
}

impl Library {
    /// Opens a library by name or path, which need be no text; its initialisers run as for any library that the process links.
    pub(super) fn open(name: impl AsRef<OsStr>) -> Result<Self, NotOpen> {
        Self::with_mode(
            name.as_ref(),
            if cfg!(target_os = "macos") { libc::RTLD_NOW | libc::RTLD_GLOBAL } else { libc::RTLD_NOW },
        )
    }

    /// Opens a library that this process has already, and no other.
    pub(super) fn adopt(name: &str) -> Result<Self, NotOpen> {
        Self::with_mode(name.as_ref(), libc::RTLD_NOW | libc::RTLD_NOLOAD)
    }

    fn with_mode(name: &OsStr, mode: c_int) -> Result<Self, NotOpen> {
        let name = CString::new(name.as_bytes()).map_err(|_| NotOpen::BadName)?;
        // SAFETY: the name is a C string.
        let handle = unsafe { libc::dlopen(name.as_ptr(), mode) };
        if handle.is_null() { Err(NotOpen::Refused(loader_words())) } else { Ok(Self { handle }) }
    }

    /// The address of a symbol, or null.
    pub(super) fn find(&self, symbol: &'static str) -> *mut c_void {
        match CString::new(symbol) {
            // SAFETY: the handle is open and never closed; the name is a C string.
            Ok(symbol) => unsafe { libc::dlsym(self.handle, symbol.as_ptr()) },
            Err(_) => std::ptr::null_mut(),
        }
    }
}

/// The file that a symbol's library was loaded from, links followed, if the loader and the file system tell.
pub(super) fn file_of(symbol: *const c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the struct is ours; an address of nothing is answered with 0.
    if unsafe { libc::dladdr(symbol, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed to begin with, and filled in where the answer is not 0.
    let path = unsafe { info.assume_init() }.dli_fname;
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, and a C string that lives as long as its library, which is never closed.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    Path::new(path).canonicalize().ok()
}

fn loader_words() -> String {
    // SAFETY: always callable; the text is the thread's own until its next call to the loader.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: not null, and a C string that nobody changes before this thread calls the loader again.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}
