//! C programs over the library as it is in the tree.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts libdiskside.so. Nothing in Rust depends on it, so it is built here.
pub(crate) fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("this test");
        let folder = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "-p", "diskside-capi", "--target-dir"]);
        cargo.arg(folder.parent().expect("target/PROFILE"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.current_dir(root()).status().expect("cargo").success(), "libdiskside.so is built");
        folder
    })
}

pub(crate) fn compile(dir: &Path, source: &Path) -> PathBuf {
    let program = dir.join("program");
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-D_GNU_SOURCE", "-I"])
        .arg(root().join("include"))
        .arg(source)
        .arg("-L")
        .arg(libraries())
        .args(["-ldiskside", "-o"])
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}
