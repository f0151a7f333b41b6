//! Headers to hold the tables against: where they are, and what may be missing in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use bareverbs_core::verbs::platform::Platform;
use tempfile::TempDir;

use crate::claims::Scope;
use crate::compiler::Compiler;

/// Headers, and a compiler that reads them.
#[derive(Debug)]
pub struct HeaderSet {
    /// What they are, for people.
    pub name: String,
    /// Whose headers they are.
    pub maker: Maker,
    /// What of the tables they can have.
    pub scope: Scope,
    compiler: Compiler,
    flags: Vec<String>,
    /// The folder that was laid out for them, while they are in use.
    folder: Option<TempDir>,
}

/// Whose headers, which decides what may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// rdma-core's; the release where it is known from elsewhere.
    RdmaCore(Option<u16>),
    /// Apple's: whatever is missing is listed, and is no fault.
    Apple,
}

/// Headers, or why there are none.
pub type Found = Result<HeaderSet, String>;

impl HeaderSet {
    /// The system's headers, as `libibverbs-dev` or `rdma-core-devel` install them.
    ///
    /// # Errors
    /// Why there are none.
    pub fn of_this_system() -> Found {
        if cfg!(target_os = "macos") {
            return Err("on macOS the SDK's headers stand for the system's".to_owned());
        }
        let compiler = Compiler::of_this_machine()?;
        let release = compiler.library("libibverbs.so").and_then(|path| release_of(&path));
        let found = Self::new("the system's headers", compiler, Vec::new(), Maker::RdmaCore(release), Platform::THIS);
        found.map_err(|_| "no <infiniband/verbs.h> (on Debian: apt-get install libibverbs-dev)".to_owned())
    }

    /// rdma-core 55's headers, as the published crate `ibverbs-sys` carries them.
    ///
    /// # Errors
    /// Why they cannot be had.
    pub fn of_rdma_core_55() -> Found {
        Self::rdma_core_55("rdma-core 55", Compiler::of_this_machine()?, Platform::THIS)
    }

    /// The same headers, as the C compiler for aarch64 glibc sees them.
    ///
    /// # Errors
    /// Why they cannot be had.
    pub fn of_rdma_core_55_for_aarch64() -> Found {
        let compiler = Compiler::named("aarch64-linux-gnu-gcc").map_err(
            |_| "no aarch64-linux-gnu-gcc (on Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)",
        )?;
        Self::rdma_core_55("rdma-core 55 for aarch64 glibc", compiler, Some(Platform::GlibcAarch64))
    }

    fn rdma_core_55(name: &str, compiler: Compiler, platform: Option<Platform>) -> Found {
        let folder = laid_out(&carried_by_crate()?)?;
        let flags = vec![format!("-I{}", folder.path().display())];
        let mut headers = Self::new(name, compiler, flags, Maker::RdmaCore(Some(55)), platform)?;
        headers.folder = Some(folder);
        headers.refuse_strangers()?;
        Ok(headers)
    }

    /// The headers in a folder, for a header that no installation has any more.
    ///
    /// # Errors
    /// Why they cannot be had.
    pub fn in_folder(name: &str, folder: &Path, release: Option<u16>) -> Found {
        let flags = vec![format!("-I{}", folder.display())];
        Self::new(name, Compiler::of_this_machine()?, flags, Maker::RdmaCore(release), Platform::THIS)
    }

    /// The headers of Apple's SDK, 26.2 or later.
    ///
    /// # Errors
    /// Why there are none.
    pub fn of_macos_sdk() -> Found {
        let sdk = sdk_path()?;
        if !sdk.join("usr/include/infiniband/verbs.h").is_file() {
            return Err(format!("the SDK at {} has no <infiniband/verbs.h> (26.2 and later have it)", sdk.display()));
        }
        let compiler = Compiler::of_this_machine()?;
        if !compiler.is_clang() {
            return Err(format!("an SDK needs clang, and the C compiler is {} (set CC)", compiler.version));
        }
        let flags = ["-isysroot".to_owned(), sdk.display().to_string(), "--target=arm64-apple-macos26.2".to_owned()];
        Self::new("the macOS SDK", compiler, flags.to_vec(), Maker::Apple, Some(Platform::DarwinAarch64))
    }

    fn new(
        name: &str,
        compiler: Compiler,
        flags: Vec<String>,
        maker: Maker,
        platform: Option<Platform>,
    ) -> Result<Self, String> {
        compiler.accepts(&flags, "#include <infiniband/verbs.h>\n")?;
        let mlx5dv = compiler.accepts(&flags, "#include <infiniband/mlx5dv.h>\n").is_ok();
        let scope = Scope { platform, mlx5dv };
        Ok(Self { name: name.to_owned(), maker, scope, compiler, flags, folder: None })
    }

    /// The system's headers mixed in would pass for those that were laid out.
    fn refuse_strangers(&self) -> Result<(), String> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let verbs =
            |path: &Path| ["infiniband", "rdma"].iter().any(|part| path.components().any(|c| c.as_os_str() == *part));
        let included = self.compiler.included(&self.flags, &self.preamble())?;
        match included.iter().find(|path| verbs(path) && !path.starts_with(folder.path())) {
            Some(stranger) => Err(format!("{} was mixed into the headers of {}", stranger.display(), self.name)),
            None if included.iter().any(|path| path.starts_with(folder.path())) => Ok(()),
            None => Err("the compiler does not list the headers that it reads (-H)".to_owned()),
        }
    }

    /// The includes that every source begins with.
    pub fn preamble(&self) -> String {
        let mlx5dv = if self.scope.mlx5dv { "#include <infiniband/mlx5dv.h>\n" } else { "" };
        format!("#include <stddef.h>\n#include <stdint.h>\n#include <infiniband/verbs.h>\n{mlx5dv}")
    }

    /// Whether the body compiles behind the preamble.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn accepts(&self, body: &str) -> Result<(), String> {
        self.compiler.accepts(&self.flags, &(self.preamble() + body))
    }

    /// The object file of the body behind the preamble.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn object(&self, more: &[&str], body: &str) -> Result<Vec<u8>, String> {
        self.compiler.object(&self.flags, more, &(self.preamble() + body))
    }
}

/// rdma-core's release: the last but one number of `libibverbs.so.1.14.44.0`.
fn release_of(library: &Path) -> Option<u16> {
    let mut numbers = library.file_name()?.to_str()?.rsplit('.');
    numbers.next()?;
    numbers.next()?.parse().ok().filter(|&release| release > 1)
}

/// Where cargo unpacked the sources of rdma-core 55.
fn carried_by_crate() -> Result<PathBuf, String> {
    let known = package_folder(&["--offline"]).or_else(|_| {
        cargo(&["fetch"])?;
        package_folder(&["--offline"])
    });
    let folder = known.map_err(|why| format!("the crate ibverbs-sys is not there and cannot be fetched: {why}"))?;
    let sources = folder.join("vendor/rdma-core");
    if sources.is_dir() { Ok(sources) } else { Err(format!("{} carries no rdma-core", folder.display())) }
}

fn package_folder(more: &[&str]) -> Result<PathBuf, String> {
    let text = cargo(&[&["metadata", "--format-version", "1"], more].concat())?;
    let metadata: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let manifest = packages
        .iter()
        .find(|package| package["name"] == "ibverbs-sys")
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or("cargo metadata does not list it")?;
    Path::new(manifest).parent().map(Path::to_owned).ok_or_else(|| format!("{manifest} is in no folder"))
}

fn cargo(arguments: &[&str]) -> Result<String, String> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(program)
        .args(arguments)
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .map_err(|error| format!("cargo cannot be run ({error})"))?;
    if output.status.success() {
        String::from_utf8(output.stdout).map_err(|error| error.to_string())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
    }
}

/// The headers of a source tree as an installation would lay them out. Without the two ioctl headers the system's would
/// be found instead.
fn laid_out(sources: &Path) -> Result<TempDir, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let copy = |from: PathBuf, to: &str| -> Result<(), String> {
        let name = from.file_name().ok_or("a header without a name")?;
        let target = folder.path().join(to);
        std::fs::create_dir_all(&target).map_err(|error| error.to_string())?;
        std::fs::copy(&from, target.join(name)).map_err(|error| format!("{}: {error}", from.display()))?;
        Ok(())
    };
    let headers_in = |from: &str| -> Result<Vec<PathBuf>, String> {
        let entries = std::fs::read_dir(sources.join(from)).map_err(|error| format!("{from}: {error}"))?;
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "h")).collect())
    };
    for path in headers_in("libibverbs")? {
        copy(path, "infiniband")?;
    }
    for path in [
        "providers/mlx5/mlx5dv.h",
        "providers/mlx5/mlx5_api.h",
        "kernel-headers/rdma/ib_user_ioctl_verbs.h",
        "kernel-headers/rdma/mlx5_user_ioctl_verbs.h",
    ] {
        copy(sources.join(path), "infiniband")?;
    }
    for path in headers_in("kernel-headers/rdma")? {
        copy(path, "rdma")?;
    }
    Ok(folder)
}

fn sdk_path() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("BAREVERBS_SDK") {
        return Ok(path.into());
    }
    let output = Command::new("xcrun")
        .args(["--sdk", "macosx", "--show-sdk-path"])
        .output()
        .map_err(|_| "no macOS SDK (BAREVERBS_SDK is not set, xcrun is not there)".to_owned())?;
    match String::from_utf8(output.stdout) {
        Ok(path) if output.status.success() && !path.trim().is_empty() => Ok(path.trim().into()),
        _ => Err("no macOS SDK (xcrun --show-sdk-path names none)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::release_of;
    use std::path::Path;

    #[test]
    fn a_librarys_file_name_tells_the_release() {
        assert_eq!(release_of(Path::new("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0")), Some(44));
        assert_eq!(release_of(Path::new("/usr/lib/libibverbs.so.1")), None);
        assert_eq!(release_of(Path::new("/usr/lib/libibverbs.so")), None);
    }
}
