//! The system's CUDA driver: `libcuda.so.1`, where the process has it already, or loaded when asked for.
//!
//! A process that has nothing to do with CUDA pays one failed look-up, which is remembered until somebody asks to look again.
//!
//! # Safety
//!
//! This file guarantees that a table is filled by the names that it states, from a library that stays mapped. That a library
//! of that name has the header's signatures is its promise.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::symbols::loader::{Library, NotOpen};
use crate::symbols::{CudaSymbols, CudaTable};

/// The driver's name.
pub const LIBRARY: &str = "libcuda.so.1";

/// Why there is no driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaAbsent {
    /// This process has not loaded it.
    NotLoaded {
        /// The name looked for.
        library: &'static str,
    },
    /// The loader found no such library, or could not load it.
    NotFound {
        /// The name tried.
        library: &'static str,
        /// The loader's own words.
        reason: String,
    },
}

impl fmt::Display for CudaAbsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded { library } => {
                write!(f, "this process has not loaded {library}: load it, or initialise CUDA first and look again")
            }
            Self::NotFound { library, reason } => {
                write!(f, "{library} could not be loaded: {reason}. It comes with NVIDIA's driver")
            }
        }
    }
}

impl std::error::Error for CudaAbsent {}

/// The driver, if this process has it loaded: by CUDA's runtime, or by [`load`].
///
/// # Errors
/// [`CudaAbsent`]. A refusal is remembered, whatever the process loads afterwards, until [`look_again`] or [`load`].
pub fn adopt() -> Result<Arc<CudaSymbols>, CudaAbsent> {
    DRIVER.adopt()
}

/// As [`adopt`], with a remembered refusal forgotten first.
///
/// # Errors
/// [`CudaAbsent`]
pub fn look_again() -> Result<Arc<CudaSymbols>, CudaAbsent> {
    DRIVER.look_again()
}

/// The driver, loaded if the process does not have it yet. It is not initialised by that.
///
/// # Errors
/// [`CudaAbsent`]; a refusal is remembered until [`look_again`].
pub fn load() -> Result<Arc<CudaSymbols>, CudaAbsent> {
    DRIVER.load()
}

static DRIVER: Driver = Driver::named(LIBRARY);

/// What is known of a driver.
#[derive(Debug)]
struct Driver {
    library: &'static str,
    known: Mutex<Option<Result<Arc<CudaSymbols>, CudaAbsent>>>,
}

impl Driver {
    const fn named(library: &'static str) -> Self {
        Self { library, known: Mutex::new(None) }
    }

    fn adopt(&self) -> Result<Arc<CudaSymbols>, CudaAbsent> {
        self.ask(|known| known.is_some(), || Library::adopt(self.library), |_| self.not_loaded())
    }

    fn look_again(&self) -> Result<Arc<CudaSymbols>, CudaAbsent> {
        self.ask(|known| matches!(known, Some(Ok(_))), || Library::adopt(self.library), |_| self.not_loaded())
    }

    fn load(&self) -> Result<Arc<CudaSymbols>, CudaAbsent> {
        let is_final = |known: &Option<_>| matches!(known, Some(Ok(_) | Err(CudaAbsent::NotFound { .. })));
        self.ask(
            is_final,
            || Library::open(self.library),
            |reason| CudaAbsent::NotFound { library: self.library, reason },
        )
    }

    fn not_loaded(&self) -> CudaAbsent {
        CudaAbsent::NotLoaded { library: self.library }
    }

    /// What is known, if that will do, else what opening the library shows, which is known from then on.
    fn ask(
        &self,
        will_do: impl FnOnce(&Option<Result<Arc<CudaSymbols>, CudaAbsent>>) -> bool,
        open: impl FnOnce() -> Result<Library, NotOpen>,
        refusal: impl FnOnce(String) -> CudaAbsent,
    ) -> Result<Arc<CudaSymbols>, CudaAbsent> {
        // A panic while loading leaves what was known: it can be trusted.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known.as_ref().filter(|_| will_do(&known)) {
            return answer.clone();
        }
        let answer = match open() {
            Ok(library) => Ok(Arc::new(table_of(self.library, &library))),
            Err(NotOpen::Refused(reason)) => Err(refusal(reason)),
            Err(NotOpen::BadName) => Err(refusal("the name has a NUL in it".into())),
        };
        known.insert(answer).clone()
    }
}

fn table_of(name: &'static str, library: &Library) -> CudaSymbols {
    // SAFETY: 1: a symbol of the driver has the header's signature, which is its promise; 2: libraries are never closed.
    let table = unsafe { CudaTable::from_lookup(Arc::from(name), |symbol| library.find(symbol)) };
    let table = table.unwrap_or_else(|symbol| unreachable!("{symbol}: no entry point is required"));
    // SAFETY: 1 and 2, as above.
    unsafe { CudaSymbols::new(table) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_the_process_has_is_adopted_and_what_it_lacks_is_absent() {
        let driver = Driver::named("libc.so.6");
        let symbols = driver.adopt().expect("this process has a C library");
        assert!(symbols.init.is_none() && symbols.pointer_get_attribute.is_none());
        assert!(Arc::ptr_eq(&symbols, &driver.load().expect("known")), "looked up once");
    }

    #[test]
    fn adopting_loads_nothing_and_a_refusal_is_remembered_until_asked_again() {
        // A library that every Linux has and that no Rust program loads.
        let driver = Driver::named(if cfg!(target_os = "linux") { "libthread_db.so.1" } else { "libno-such.dylib" });
        let refusal = driver.adopt().expect_err("not loaded");
        assert_eq!(refusal, driver.not_loaded());
        assert!(refusal.to_string().contains("look again"), "{refusal}");
        let Ok(_loaded) = Library::open(driver.library) else {
            return eprintln!("skipped: {} is not here", driver.library);
        };
        assert_eq!(driver.adopt().err(), Some(refusal), "remembered");
        assert!(driver.look_again().is_ok());
        assert!(driver.adopt().is_ok());
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_tried_once_until_asked_again() {
        let driver = Driver::named("libno-such-cuda.so.1");
        let refusal = driver.load().expect_err("no such library");
        assert!(refusal.to_string().contains("libno-such-cuda.so.1"), "{refusal}");
        assert_eq!(driver.load().err(), Some(refusal.clone()));
        assert_eq!(driver.adopt().err(), Some(refusal));
        assert_eq!(driver.look_again().err(), Some(driver.not_loaded()));
    }

    #[test]
    fn a_refusal_to_adopt_does_not_keep_from_loading() {
        let driver = Driver::named("libno-such-cuda.so.1");
        assert_eq!(driver.adopt().err(), Some(driver.not_loaded()));
        assert!(matches!(driver.load(), Err(CudaAbsent::NotFound { .. })));
    }
}
