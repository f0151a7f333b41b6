//! rustc against wrong tables: `core`'s macro, compiled with a mirror of its own.

use std::path::Path;
use std::process::Command;

use crate::layer::Layer;

const LAYOUT_RS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src/layout.rs");

/// What the macro uses of the crate `static_assertions`, so that one file compiles by itself.
const ASSERTIONS: &str = "
#[allow(unused_macros)]
mod static_assertions {
    macro_rules! const_assert_eq { ($left:expr, $right:expr) => { const _: () = assert!($left == $right); } }
    pub(crate) use const_assert_eq;
}
";

const MIRROR: &str = "
#[repr(C)]
pub struct Mirror { pub a: u64, pub b: u32, pub c: u16 }
";

/// Tables of the mirror, and what rustc says of each; nothing for the right one.
const TABLES: [(&str, &str, Option<&str>); 7] = [
    ("the right table", "whole 16 align 8 { a 0 8; b 8 4; c 12 2; }", None),
    ("a forgotten field", "whole 16 align 8 { a 0 8; b 8 4; }", Some("pattern requires `..`")),
    ("a field that is not there", "whole 16 align 8 { a 0 8; b 8 4; c 12 2; d 14 2; }", Some("no field `d`")),
    ("a wrong offset", "whole 16 align 8 { a 0 8; b 8 4; c 14 2; }", Some("assertion failed")),
    ("a wrong size of a field", "whole 16 align 8 { a 0 8; b 8 4; c 12 4; }", Some("assertion failed")),
    ("a wrong size", "whole 24 align 8 { a 0 8; b 8 4; c 12 2; }", Some("assertion failed")),
    ("a wrong alignment", "whole 16 align 4 { a 0 8; b 8 4; c 12 2; }", Some("assertion failed")),
];

pub fn add_to(layer: &mut Layer) {
    for (name, table, expected) in TABLES {
        let verb = if expected.is_some() { "does not compile" } else { "compiles" };
        layer.test(&format!("{name} {verb}"), move || match (compile(table)?, expected) {
            (Ok(()), None) => Ok(()),
            (Err(said), Some(expected)) if said.contains(expected) => Ok(()),
            (result, expected) => Err(format!("expected {expected:?}, rustc says {result:?}").into()),
        });
    }
}

fn compile(table: &str) -> Result<Result<(), String>, std::io::Error> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("mirror.rs");
    let text = format!(
        "#![no_std]\n#![allow(unused)]\n#[path = {LAYOUT_RS:?}]\npub mod layout;\n{ASSERTIONS}{MIRROR}\
         layout::layout! {{ Mirror: \"struct mirror\", {table} }}\n"
    );
    std::fs::write(&source, text)?;
    let output = Command::new(rustc())
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"])
        .arg(folder.path())
        .arg(&source)
        .output()?;
    Ok(if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) })
}

/// The rustc beside the cargo that runs the tests.
fn rustc() -> std::ffi::OsString {
    let beside_cargo = || Some(Path::new(&std::env::var_os("CARGO")?).with_file_name("rustc").into_os_string());
    std::env::var_os("RUSTC").or_else(beside_cargo).unwrap_or_else(|| "rustc".into())
}
