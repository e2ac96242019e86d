//! Tests once more, in a process whose rings do without io_uring.

use std::process::Command;

const VARIABLE: &str = "DISKSIDE_IO";

/// Set where a test has a process of its own: others would open descriptors and start threads that it counts.
const ALONE: &str = "DISKSIDE_TEST_ALONE";

/// Whether this process does without.
#[allow(dead_code, reason = "some files need one, some the other")]
fn is_without() -> bool {
    std::env::var(VARIABLE).is_ok_and(|name| name == "posix")
}

fn run(args: &[&str], is_alone: bool) {
    let this = std::env::current_exe().expect("a test is a program");
    let mut command = Command::new(this);
    command.args(args).env(VARIABLE, "posix");
    if is_alone {
        command.env(ALONE, "1");
    }
    let ran = command.output().expect("it runs again");
    let (out, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains(" passed"), "without io_uring:\n{out}{said}");
}

/// Runs all tests of the file, except the one that calls this.
#[allow(dead_code, reason = "some files need one, some the other")]
pub(crate) fn all_again(but: &str) {
    if !is_without() {
        run(&["--skip", but], false);
    }
}

/// True in such a process that has no other test; otherwise the test is run in one.
#[allow(dead_code, reason = "as above")]
pub(crate) fn is_here(test: &str) -> bool {
    let is_alone = std::env::var_os(ALONE).is_some();
    if !is_alone {
        run(&["--exact", test], true);
    }
    is_alone
}
