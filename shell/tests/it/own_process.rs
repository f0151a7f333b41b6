//! Tests that need a process of their own: for its environment, or because they fork.
#![allow(dead_code, reason = "two binaries use it, each a part")]

use std::ffi::OsStr;
use std::process::Command;

const CHILD: &str = "BAREVERBS_TEST_CHILD";

/// Runs `body` in a process that runs this one test, with these variables set.
///
/// `test` is the test's full name. It is run a second time, as a child, and runs `body` there.
///
/// # Panics
/// If the child fails; its output is shown.
pub fn run(test: &str, variables: &[(&str, &OsStr)], body: impl FnOnce()) {
    if is_child_of(test) { body() } else { start(test, variables) }
}

/// Whether this process was started for that test.
pub fn is_child_of(test: &str) -> bool {
    std::env::var_os(CHILD).is_some_and(|child| child == test)
}

/// Runs that test in a process of its own.
///
/// # Panics
/// If it fails there; its output is shown.
pub fn start(test: &str, variables: &[(&str, &OsStr)]) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--test-threads=1"]).env(CHILD, test).envs(variables.iter().copied());
    let output = command.output().expect("the same program starts again");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    // A name that matches nothing passes too.
    assert!(said.contains("1 passed"), "{test} is not the test's name:\n{said}");
}
