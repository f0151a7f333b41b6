//! The system's RDMA library, loaded at run time.
//!
//! Linux: `libibverbs.so.1`. macOS: `librdma.dylib`, by name only, since it is not a file on disk; with all symbols bound at
//! once and globally, because a lazily bound one was seen to hang on later devices. `BAREVERBS_LIBRARY` overrides the
//! name. Symbols are looked up plainly: a fixed symbol version would miss those that exist only as `IBVERBS_1.0`.
//!
//! A library is never unloaded: its providers keep threads, handlers and open files.
//!
//! # Safety
//!
//! This file guarantees that a table is filled by the names that it states, from a library that stays mapped. That a library
//! of that name has the header's signatures is its promise, checked as far as can be when the first objects are made.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::symbols::loader::{Library, NotOpen};
use crate::symbols::{SymbolTable, Symbols};

/// The library's name on this system, unless `BAREVERBS_LIBRARY` says another.
pub const LIBRARY: &str = if cfg!(target_os = "macos") { "librdma.dylib" } else { "libibverbs.so.1" };

/// The variable that overrides [`LIBRARY`].
pub const LIBRARY_VARIABLE: &str = "BAREVERBS_LIBRARY";

/// Why a library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The loader found no such library, or could not load it.
    NotFound {
        /// The name tried, with U+FFFD for what is no UTF-8 in it.
        library: String,
        /// Whether the name came from `BAREVERBS_LIBRARY`.
        overridden: bool,
        /// The loader's own words.
        reason: String,
    },
    /// The library lacks a required entry point.
    MissingSymbol {
        /// The library.
        library: String,
        /// The entry point's name in C.
        symbol: &'static str,
    },
    /// The name has a NUL in it.
    BadName {
        /// The name.
        library: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { library, overridden, reason } => {
                write!(f, "RDMA library {library} could not be loaded: {reason}. ")?;
                if *overridden {
                    write!(f, "The name comes from {LIBRARY_VARIABLE}; unset it for {LIBRARY}")
                } else if cfg!(target_os = "macos") {
                    f.write_str("It comes with macOS 26.2 and later on Apple silicon; nothing can be installed")
                } else {
                    f.write_str("Install it: Debian and Ubuntu: libibverbs1 ibverbs-providers; Fedora: libibverbs")
                }
            }
            Self::MissingSymbol { library, symbol } => {
                write!(f, "{library} has no {symbol}: it is no RDMA library that can be used")
            }
            Self::BadName { library } => write!(f, "{library:?} cannot be a library's name"),
        }
    }
}

impl std::error::Error for LoadError {}

/// The system's library, or what `BAREVERBS_LIBRARY` names.
///
/// # Errors
/// [`LoadError`]. Asking again gives the same answer and opens nothing again.
pub fn load() -> Result<Arc<Symbols>, LoadError> {
    // Its bytes, whether they are text or not: a file's name need not be.
    match std::env::var_os(LIBRARY_VARIABLE) {
        Some(name) if !name.is_empty() => load_named(&name, true),
        _ => load_named(LIBRARY.as_ref(), false),
    }
}

/// The library of that name or path.
///
/// # Errors
/// [`LoadError`]. Asking again gives the same answer and opens nothing again.
///
/// # Safety
/// 1. If there is such a library, and it has the required entry points, then it is a verbs library: each does what
///    `<infiniband/verbs.h>` says of its name.
pub unsafe fn load_library(name: &str) -> Result<Arc<Symbols>, LoadError> {
    load_named(name.as_ref(), false)
}

type Answers = BTreeMap<OsString, Result<Arc<Symbols>, LoadError>>;

fn load_named(name: &OsStr, overridden: bool) -> Result<Arc<Symbols>, LoadError> {
    static ANSWERS: Mutex<Answers> = Mutex::new(BTreeMap::new());
    // A panic while loading leaves the map as it was: its content can be trusted.
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = answers.get(name) {
        return answer.clone();
    }
    let answer = open(name, overridden);
    answers.insert(name.to_owned(), answer.clone());
    answer
}

fn open(name: &OsStr, overridden: bool) -> Result<Arc<Symbols>, LoadError> {
    let library = || name.to_string_lossy().into_owned();
    let opened = Library::open(name).map_err(|why| match why {
        NotOpen::BadName => LoadError::BadName { library: library() },
        NotOpen::Refused(reason) => LoadError::NotFound { library: library(), overridden, reason },
    })?;
    // SAFETY: 1: a symbol of a verbs library has the header's signature, which is the library's promise (checked on the
    // first objects, `objects::self_check`); 2: libraries are never closed.
    let table = unsafe { SymbolTable::from_lookup(Arc::from(library()), |symbol| opened.find(symbol)) };
    // SAFETY: 1 and 2, as above.
    let symbols = table.map(|table| unsafe { Symbols::new(table) });
    symbols.map(Arc::new).map_err(|symbol| LoadError::MissingSymbol { library: library(), symbol })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_named_str(name: &str, overridden: bool) -> Result<Arc<Symbols>, LoadError> {
        load_named(name.as_ref(), overridden)
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_what_to_install() {
        let error = load_named_str("libno-such-verbs.so.1", false).expect_err("no such library");
        let text = error.to_string();
        assert!(text.contains("libno-such-verbs.so.1") && text.contains("libibverbs1"), "{text}");
        assert_eq!(load_named_str("libno-such-verbs.so.1", false).err(), Some(error), "the same answer again");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_is_no_verbs_library_is_refused_by_the_first_symbol_it_lacks() {
        let error = load_named_str("libm.so.6", false).expect_err("libm has no verbs");
        assert_eq!(error, LoadError::MissingSymbol { library: "libm.so.6".into(), symbol: "ibv_get_device_list" });
    }

    #[test]
    fn a_name_with_a_nul_is_refused() {
        assert_eq!(load_named_str("a\0b", false).err(), Some(LoadError::BadName { library: "a\0b".into() }));
    }
}
