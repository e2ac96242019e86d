//! Compiles `functions/*.bpf.c` to eBPF objects and lists their functions for the crate to embed.

#[allow(unreachable_pub, dead_code, reason = "the library shows it to others")]
#[path = "src/clang.rs"]
mod clang;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Section prefixes of functions.
const KINDS: [&str; 5] = ["read", "write", "lambda", "traverse", "kernel"];

fn main() {
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(env("OUT_DIR"));
    let sources = root.join("functions");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-changed={}", root.join("crates/abi/include").display());
    println!("cargo::rerun-if-env-changed=DISKSIDE_CLANG");
    let clang = clang::find()
        .expect("clang compiles the shipped functions and was not found: apt-get install clang, or set DISKSIDE_CLANG");
    let mut list = String::from("&[\n");
    let mut objects = String::new();
    let mut functions = Vec::new();
    for (index, source) in c_files(&sources).into_iter().enumerate() {
        let file = source.file_name().expect("listed files have names").to_string_lossy().into_owned();
        let object = out.join(file.replace(".bpf.c", ".bpf.o"));
        compile(&clang, &root, &source, &object);
        let text = std::fs::read_to_string(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
        let declared = declared(&text);
        // One over columns is an example: a scan brings its function with it.
        if declared.is_empty() {
            continue;
        }
        writeln!(objects, "const OBJECT_{index}: &[u8] = include_bytes!({object:?});")
            .expect("writing to a string does not fail");
        functions.extend(declared.into_iter().map(|(name, kind)| (name, kind, index, file.clone())));
    }
    functions.sort();
    for (name, kind, index, file) in functions {
        let source = format!("functions/{file}");
        writeln!(list, "    Shipped {{ name: {name:?}, kind: {kind:?}, object: OBJECT_{index}, source: {source:?} }},")
            .expect("writing to a string does not fail");
    }
    list.push(']');
    let text = format!("{{\n{objects}{list}\n}}");
    std::fs::write(out.join("shipped.rs"), text).expect("OUT_DIR is writable");
}

/// Names and kinds of the functions in a source: what its string literals `"KIND/NAME"` and lambda-IO's
/// `LIO_PROG(NAME)` declare. A `combine` belongs to another and is none.
fn declared(source: &str) -> Vec<(String, String)> {
    let sections = source.split('"').skip(1).step_by(2).filter_map(|literal| {
        let (kind, name) = literal.split_once('/')?;
        KINDS.contains(&kind).then(|| (name.to_owned(), kind.to_owned()))
    });
    let macros = source.split("LIO_PROG(").skip(1).filter_map(|rest| rest.split(')').next());
    sections.chain(macros.map(|name| (name.to_owned(), "lambda_io".to_owned()))).collect()
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
    let output = clang::command(clang)
        .args(clang::OPTIONS)
        .arg("-Werror")
        // Relative paths: what the object records must not depend on where the repository lies.
        .current_dir(root)
        .arg(source.strip_prefix(root).expect("sources lie in the repository"))
        .args(["-I", "crates/abi/include", "-fdebug-compilation-dir=."])
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

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
