//! A completion's status in words.
//!
//! # Safety
//!
//! This file guarantees that what the library answers is read only where it is not null, and copied at once.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::CStr;

use bareverbs_core::verbs::WcStatus;

use crate::symbols::Symbols;

/// The library's words, which may know statuses that we do not; our own table where it lacks the call.
pub(super) fn in_words(symbols: &Symbols, status: WcStatus) -> Cow<'static, str> {
    let Some(call) = symbols.wc_status_str else { return Cow::Borrowed(status.text()) };
    // SAFETY: callable with any number: it answers for those that it does not know, too.
    let words = unsafe { call(status) };
    if words.is_null() {
        return Cow::Borrowed(status.text());
    }
    // SAFETY: not null, and a C string of the library's own, which is never unloaded.
    let words = unsafe { CStr::from_ptr(words) };
    Cow::Owned(words.to_string_lossy().into_owned())
}
