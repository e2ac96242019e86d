//! Parts of the tests of attached volumes.

use std::path::Path;

/// Whether it can be tested here; says so if not.
pub(crate) fn possible() -> bool {
    let missing = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| !Path::new(path).exists());
    if !rustix::process::geteuid().is_root() || missing.is_some() {
        eprintln!("NOT TESTED: attaching needs root, FUSE and loop devices");
        return false;
    }
    true
}
