//! Compiles `functions/*.bpf.c` to eBPF objects and lists them for the crate to embed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Versioned names of clang to look for after `clang` itself, newest first.
const CLANG_VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;

fn main() {
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(env("OUT_DIR"));
    let sources = root.join("functions");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-changed={}", root.join("crates/abi/include").display());
    println!("cargo::rerun-if-env-changed=DISKSIDE_CLANG");
    let clang = clang();
    let mut list = String::from("&[\n");
    for source in c_files(&sources) {
        let file = source.file_name().expect("listed files have names").to_string_lossy().into_owned();
        let name = file.trim_end_matches(".bpf.c").to_owned();
        let object = out.join(format!("{name}.bpf.o"));
        compile(&clang, &root, &source, &object);
        writeln!(
            list,
            "    Shipped {{ name: {name:?}, object: include_bytes!({object:?}), source: \"functions/{file}\" }},"
        )
        .expect("writing to a string does not fail");
    }
    list.push(']');
    std::fs::write(out.join("shipped.rs"), list).expect("OUT_DIR is writable");
}

fn c_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| p.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    files.sort();
    files
}

fn compile(clang: &Path, root: &Path, source: &Path, object: &Path) {
    let output = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-c"])
        .arg(source)
        .arg("-I")
        .arg(root.join("crates/abi/include"))
        .arg("-o")
        .arg(object)
        .output()
        .unwrap_or_else(|e| panic!("cannot run {}: {e}", clang.display()));
    assert!(
        output.status.success(),
        "{} does not compile:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn clang() -> PathBuf {
    if let Some(named) = std::env::var_os("DISKSIDE_CLANG") {
        return named.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versioned = CLANG_VERSIONS.rev().map(|n| format!("clang-{n}"));
    std::iter::once("clang".to_owned())
        .chain(versioned)
        .find_map(|name| std::env::split_paths(&path).map(|d| d.join(&name)).find(|p| p.is_file()))
        .expect("clang compiles the shipped functions and was not found: apt-get install clang, or set DISKSIDE_CLANG")
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
