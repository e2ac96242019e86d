//! C programs over the library as it is in the tree.

use diskside_server::config::{ExportSpec, VolumeSpec};
use diskside_server::{Running, Target};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts libdiskside_csapi.so. Nothing in Rust depends on it, so it is built here.
pub(crate) fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("this test");
        let folder = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "-p", "diskside-csapi", "--target-dir"]);
        cargo.arg(folder.parent().expect("target/PROFILE"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.current_dir(root()).status().expect("cargo").success(), "libdiskside_csapi.so is built");
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
        .args(["-ldiskside_csapi", "-lpthread", "-o"])
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A program that runs with these CSxes.
pub(crate) fn command(program: &Path, csxes: &str, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg("120").arg(program).args(args);
    command.env("LD_LIBRARY_PATH", libraries()).env("DISKSIDE_CSX", csxes).env("DISKSIDE_KEY", "none");
    command
}

pub(crate) fn run(program: &Path, csxes: &str, args: &[&str]) -> String {
    let output = command(program, csxes, args).output().expect("it runs");
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{told}", output.status);
    said.into_owned()
}

/// A server with this directory as its export `data`, a volume of 8 MiB, and 64 MiB of device memory.
pub(crate) fn serve(dir: &Path) -> (Running, String) {
    let running = serve_at("127.0.0.1:0".parse().expect("an address"), dir);
    let url = format!("diskside://{}", running.handle().local_addresses()[0]);
    (running, url)
}

/// The same at an address.
pub(crate) fn serve_at(address: SocketAddr, dir: &Path) -> Running {
    Target::builder()
        .nqn("nqn.2026-11.org.example:csapi")
        .listen([address])
        .export(ExportSpec::new("data", dir).writable())
        .volume(VolumeSpec::new("volume", "mem:8MiB").writable())
        .build()
        .and_then(Target::start)
        .expect("it serves")
}

/// An object from C source.
pub(crate) fn object(dir: &Path, name: &str, source: &str) -> String {
    let path = dir.join(name).with_extension("bpf.c");
    std::fs::write(&path, format!("#include \"diskside.h\"\n{source}")).expect("written");
    let object = diskside::compile::compile(&path).expect("it compiles");
    let place = dir.join(name).with_extension("o");
    std::fs::write(&place, object).expect("written");
    place.display().to_string()
}
