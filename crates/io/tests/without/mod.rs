//! Tests once more, in a process whose rings do without io_uring.

use std::process::Command;

const VARIABLE: &str = "DISKSIDE_IO";

/// Whether this process does without.
fn is_without() -> bool {
    std::env::var(VARIABLE).is_ok_and(|name| name == "posix")
}

fn run(args: &[&str]) {
    let this = std::env::current_exe().expect("a test is a program");
    let ran = Command::new(this).args(args).env(VARIABLE, "posix").output().expect("it runs again");
    let (out, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains(" passed"), "without io_uring:\n{out}{said}");
}

/// Runs all tests of the file, except the one that calls this.
#[allow(dead_code, reason = "some files need one, some the other")]
pub(crate) fn all_again(but: &str) {
    if !is_without() {
        run(&["--skip", but]);
    }
}

/// True in such a process; otherwise the test is run in one.
#[allow(dead_code, reason = "as above")]
pub(crate) fn is_here(test: &str) -> bool {
    if !is_without() {
        run(&["--exact", test]);
    }
    is_without()
}
