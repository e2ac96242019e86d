//! The library from C++ and C: programs that use a database as always, except when they open it.

use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Compiles a program against the library, and runs it over a database in an export: what it prints.
fn run(compiler: &str, options: &[&str], source: &str, how: &str) -> String {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let target = Target::builder().listen(["127.0.0.1:0".parse().expect("an address")]);
    let target = target.export(ExportSpec::new("data", directory.path()));
    let running: Running = target.build().and_then(Target::start).expect("started");
    let url = format!("diskside://{}/data/db", running.handle().local_addresses()[0]);
    let (root, program) = (Path::new(env!("CARGO_MANIFEST_DIR")), directory.path().join("program"));
    let library = library();
    let mut compile = Command::new(compiler);
    compile.args(options).args(["-Wall", "-Werror", "-O1", "-I"]).arg(root.join("include"));
    compile.arg(root.join("tests").join(source)).arg("-o").arg(&program).arg("-L").arg(&library);
    compile.args(["-ldiskside_rocksdb", "-lrocksdb"]).arg(format!("-Wl,-rpath,{}", library.display()));
    finish(&mut compile);
    finish(Command::new(program).arg(directory.path().join("db")).arg(url).arg(how))
}

fn finish(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Where cargo puts the library. Nothing in Rust depends on it, so it is built here.
fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("this test");
        let folder = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--locked",
            "--quiet",
            "-p",
            "diskside-rocksdb-c",
            "--features",
            "librocksdb",
            "--target-dir",
        ]);
        cargo.arg(folder.parent().expect("target/PROFILE"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        finish(&mut cargo);
        folder
    });
    built.clone()
}

#[test]
fn a_program_in_cpp_changes_its_opening_alone() {
    for how in ["always", "auto"] {
        let said = run("c++", &["-std=c++17"], "program.cpp", how);
        let at_server: u64 = said.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        let least = if how == "always" { 4000 } else { 20 };
        assert!(at_server > least && said.ends_with(" 0 fallbacks\n"), "{how}: {said}");
    }
}

#[test]
fn a_program_in_c_wraps_its_handle() {
    assert_eq!(run("cc", &["-std=c11"], "program.c", "always"), "well\n");
}
