//! The system's mlx5 provider, loaded at run time as a library of its own: `libmlx5.so.1`.
//!
//! `libibverbs.so.1` loads the same file under another name; the loader knows that it is one. It comes with rdma-core's
//! providers on every machine, whether there is an mlx5 device or not, and needs none to be loaded.
//!
//! # Safety
//!
//! This file guarantees that a table is filled by the names that it states, from a library that stays mapped. That a library
//! of that name has the header's signatures is its promise.
#![allow(unsafe_code)]

use std::sync::{Arc, OnceLock};

use bareverbs_core::segments::{PORT_SPEED_RELEASE, provider_release};

use crate::symbols::loader::{Library, NotOpen, file_of};
use crate::symbols::system::{self, LoadError};
use crate::symbols::{Mlx5Symbols, Mlx5Table};

/// The provider's name.
pub const LIBRARY: &str = "libmlx5.so.1";

/// The provider of this system.
///
/// # Errors
/// [`LoadError`]. Asking again gives the same answer and opens nothing again.
pub fn load() -> Result<Arc<Mlx5Symbols>, LoadError> {
    static ANSWER: OnceLock<Result<Arc<Mlx5Symbols>, LoadError>> = OnceLock::new();
    ANSWER.get_or_init(|| open(LIBRARY)).clone()
}

fn open(name: &str) -> Result<Arc<Mlx5Symbols>, LoadError> {
    let library = || name.to_owned();
    let opened = Library::open(name).map_err(|why| match why {
        NotOpen::BadName => LoadError::BadName { library: library() },
        NotOpen::Refused(reason) => LoadError::NotFound { library: library(), overridden: false, reason },
    })?;
    // SAFETY: 1: a symbol of the provider has the header's signature, which is its promise; 2: libraries are never closed.
    let table = unsafe { Mlx5Table::from_lookup(Arc::from(name), |symbol| opened.find(symbol)) };
    let table = table.map_err(|symbol| LoadError::MissingSymbol { library: library(), symbol })?;
    let file = file_of(table.create_mkey as *const std::ffi::c_void);
    let file_name: Option<Arc<str>> = file.as_ref().and_then(|file| file.file_name()?.to_str()).map(Arc::from);
    let release = file_name.as_deref().and_then(provider_release).or_else(release_of_verbs);
    // SAFETY: 1 and 2, as above; 3: providers of 61 and later do, as read in their source.
    Ok(Arc::new(unsafe { Mlx5Symbols::new(table, release, file_name) }))
}

/// What the verbs library beside the provider tells, where the file's name tells nothing: they come as one package.
fn release_of_verbs() -> Option<u16> {
    let has_port_speed =
        Library::open(system::LIBRARY).is_ok_and(|verbs| !verbs.find("ibv_query_port_speed").is_null());
    has_port_speed.then_some(PORT_SPEED_RELEASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on every machine that has the package, with a device or without.
    #[test]
    fn the_systems_provider_fills_the_table_and_its_file_tells_the_release() {
        let symbols = match load() {
            Ok(symbols) => symbols,
            Err(error @ LoadError::NotFound { .. }) => return eprintln!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        let file = symbols.file_name().expect("a library has a file").to_owned();
        assert_eq!(symbols.release(), provider_release(&file).or_else(release_of_verbs), "{file}");
        assert!(symbols.release().is_some(), "{file} tells no release");
        assert!(Arc::ptr_eq(&symbols, &load().expect("the same answer")));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_is_no_provider_is_refused_by_the_first_symbol_it_lacks() {
        let error = open("libm.so.6").expect_err("libm has no keys");
        assert_eq!(error, LoadError::MissingSymbol { library: "libm.so.6".into(), symbol: "mlx5dv_is_supported" });
    }

    #[test]
    fn a_provider_that_is_not_there_is_named_with_what_to_install() {
        let text = open("libno-such-mlx5.so.1").expect_err("no such library").to_string();
        assert!(text.contains("libno-such-mlx5.so.1") && text.contains("ibverbs-providers"), "{text}");
    }
}
