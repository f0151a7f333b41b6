//! Makes the stand-in for libibverbs: a shared library of its name.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=standin.c");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("standin");
    std::fs::create_dir_all(&folder).expect("a folder for the stand-in");
    let library = folder.join("libibverbs.so.1");
    let compiler = cc::Build::new().get_compiler();
    let status = Command::new(compiler.path())
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", "-o"])
        .args([&library, &PathBuf::from("standin.c")])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the stand-in compiles");
    println!("cargo::rustc-env=STANDIN={}", folder.display());
}
