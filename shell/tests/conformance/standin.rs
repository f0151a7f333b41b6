//! A stand-in library: a C file that the system's C compiler makes into a shared object, with answers as a test chooses.
//!
//! # Safety
//!
//! This file reads integers that the stand-in exports; it is never unloaded.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use bareverbs_shell::symbols::Symbols;
use bareverbs_shell::symbols::system::{LoadError, load_library};

/// Whether stand-ins can be made here; else why not.
pub fn compiler() -> Result<(), String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("the stand-in knows the layouts of x86_64 Linux only".into());
    }
    match Command::new("cc").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("cc: {}", output.status)),
        Err(error) => Err(format!("cc: {error}")),
    }
}

/// A stand-in in a file of its own.
pub struct Standin {
    path: PathBuf,
    /// Only this user can write there, under a name that nobody can guess. What is loaded from it stays so when it goes.
    _folder: TempDir,
}

impl Standin {
    /// Compiles one with these macros (`PORT_STATE=1`).
    pub fn new(macros: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("libstandin.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/standin.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&path);
        let output = cc.args(macros.iter().map(|each| format!("-D{each}"))).arg(source).output().expect("cc runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { path, _folder: folder }
    }

    pub fn path(&self) -> &str {
        self.path.to_str().expect("a name of ours")
    }

    pub fn load(&self) -> Result<Arc<Symbols>, LoadError> {
        // SAFETY: the stand-in has the header's signatures, as far as it has the entry points.
        unsafe { load_library(self.path()) }
    }

    /// How often an entry point was called, without its `ibv_`.
    pub fn count(&self, name: &str) -> i32 {
        let handle = self.handle().expect("it is loaded");
        let symbol = CString::new(format!("standin_count_{name}")).expect("a name of ours");
        // SAFETY: the handle was just had, the name is a C string.
        let found = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
        // SAFETY: had above; the library stays loaded for the shell's own handle.
        unsafe { libc::dlclose(handle) };
        assert!(!found.is_null(), "{name} is not counted");
        // SAFETY: an `int` of the stand-in, which this thread's calls alone change.
        unsafe { found.cast::<c_int>().read() }
    }

    /// A handle on it, if it is loaded.
    fn handle(&self) -> Option<*mut libc::c_void> {
        let path = CString::new(self.path()).expect("a name of ours");
        // SAFETY: a C string; nothing is loaded that was not.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(handle)
    }

    /// How many handles are open on it. They are closed by that: only for a library that nobody uses.
    pub fn count_handles(self) -> u32 {
        let mut closed = 0;
        while let Some(handle) = self.handle() {
            // SAFETY: the one just had.
            unsafe { libc::dlclose(handle) };
            // SAFETY: one that was open before; nobody uses the library, as the caller says.
            unsafe { libc::dlclose(handle) };
            closed += 1;
        }
        closed
    }
}
