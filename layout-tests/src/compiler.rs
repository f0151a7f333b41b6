//! The C compiler, asked through files in a folder of its own.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A C compiler that understands what gcc and clang share.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: String,
    /// What it calls itself, first line.
    pub version: String,
}

impl Compiler {
    /// The compiler named by `CC`, else `cc`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn of_this_machine() -> Result<Self, String> {
        Self::named(&std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
    }

    /// The compiler called `program`.
    ///
    /// # Errors
    /// Why it cannot be asked.
    pub fn named(program: &str) -> Result<Self, String> {
        let output = Command::new(program)
            .arg("--version")
            .output()
            .map_err(|error| format!("no C compiler: `{program}` cannot be run ({error})"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next().unwrap_or_default().to_owned();
        if output.status.success() && !version.is_empty() {
            Ok(Self { program: program.to_owned(), version })
        } else {
            Err(format!("no C compiler: `{program} --version` says nothing"))
        }
    }

    /// Whether it is a clang, which compiles for any target.
    pub fn is_clang(&self) -> bool {
        self.version.contains("clang")
    }

    /// Whether `source` compiles, without output.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn accepts(&self, flags: &[String], source: &str) -> Result<(), String> {
        self.run(flags, &["-fsyntax-only"], source).map(|_| ())
    }

    /// The object file that `source` becomes.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn object(&self, flags: &[String], more: &[&str], source: &str) -> Result<Vec<u8>, String> {
        let folder = folder()?;
        let path = folder.path().join("object.o");
        let path_text = path.to_str().ok_or("the folder for temporary files is not UTF-8")?;
        self.run(flags, &[&["-c", "-o", path_text], more].concat(), source)?;
        std::fs::read(&path).map_err(|error| format!("no object file: {error}"))
    }

    /// Every header that `source` includes, at any depth.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn included(&self, flags: &[String], source: &str) -> Result<Vec<PathBuf>, String> {
        let output = self.run(flags, &["-fsyntax-only", "-H"], source)?;
        // `-H` prints one dot per depth, a space and the path.
        let listed = String::from_utf8_lossy(&output.stderr)
            .lines()
            .filter(|line| line.starts_with('.'))
            .filter_map(|line| line.trim_start_matches('.').strip_prefix(' ').map(PathBuf::from))
            .collect();
        Ok(listed)
    }

    /// Where it finds a library of this name, followed to the real file.
    pub fn library(&self, file_name: &str) -> Option<PathBuf> {
        let output = Command::new(&self.program).arg(format!("-print-file-name={file_name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        // A name that is found nowhere comes back as it went.
        if path.is_absolute() { path.canonicalize().ok() } else { None }
    }

    fn run(&self, flags: &[String], more: &[&str], source: &str) -> Result<Output, String> {
        let folder = folder()?;
        let path = folder.path().join("probe.c");
        std::fs::write(&path, source).map_err(|error| format!("cannot write a source file: {error}"))?;
        let output = Command::new(&self.program)
            .args(["-std=gnu11", "-w"])
            .args(flags)
            .args(more)
            .arg(&path)
            .env("LC_ALL", "C")
            .output()
            .map_err(|error| format!("`{}` cannot be run ({error})", self.program))?;
        if output.status.success() { Ok(output) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
}

fn folder() -> Result<tempfile::TempDir, String> {
    tempfile::tempdir().map_err(|error| format!("no folder for temporary files: {error}"))
}
