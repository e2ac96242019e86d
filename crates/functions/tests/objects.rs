//! Every function, by every clang at hand and for every version of the instruction set.

mod common;

use common::{load, shipped};
use diskside_sbpf::image::Kind;
use std::path::{Path, PathBuf};
use std::process::Command;

const CLANGS: [&str; 9] =
    ["clang-14", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19", "clang-20", "clang-21", "clang-22"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles a source; `None` when this clang does not know that version of the instruction set.
fn compile(clang: &str, cpu: &str, source: &Path, object: &Path) -> Option<Vec<u8>> {
    let output = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-fno-builtin", "-Wall", "-Werror", "-c"])
        .arg(format!("-mcpu={cpu}"))
        .arg("-I")
        .arg(root().join("crates/abi/include"))
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if cpu == "v4" && said.contains("unknown target CPU") {
        return None;
    }
    assert!(output.status.success(), "{clang} -mcpu={cpu} {}:\n{said}", source.display());
    Some(std::fs::read(object).unwrap())
}

#[test]
fn all_compile_load_and_verify() {
    let directory = tempfile::tempdir().unwrap();
    let mut objects = 0;
    let present = |c: &&str| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    let mut clangs: Vec<&str> = CLANGS.into_iter().filter(present).collect();
    if clangs.is_empty() {
        clangs.push("clang");
    }
    for clang in clangs {
        for cpu in ["v1", "v2", "v3", "v4"] {
            let mut last = ("", Vec::new());
            for function in diskside_functions::shipped() {
                if last.0 != function.source {
                    let object = directory.path().join("function.o");
                    let Some(bytes) = compile(clang, cpu, &root().join(function.source), &object) else { continue };
                    last = (function.source, bytes);
                    objects += 1;
                }
                load(&last.1, function.name);
            }
        }
    }
    assert!(objects >= 3 * 12, "only {objects} objects were compiled: is clang installed?");
}

/// Functions without effects can be probed on both sides, retried, split and moved: all shipped ones but kernels, which read
/// and write files.
#[test]
fn all_are_pure() {
    for function in diskside_functions::shipped() {
        let loaded = shipped(function.name);
        assert_eq!(loaded.kind().name(), function.kind, "{}", function.name);
        assert_eq!(loaded.is_pure(), loaded.kind() != Kind::Kernel, "{}", function.name);
    }
}

/// Results that can be folded by the documentation are; the others' outputs are put one after another.
#[test]
fn those_that_fold_have_a_combine() {
    let apart = ["bitmap", "copy", "grep", "lambda_io_sum", "lambda_sum", "regex"];
    for function in diskside_functions::shipped() {
        if matches!(shipped(function.name).kind(), Kind::Traverse | Kind::Kernel) {
            continue;
        }
        let concatenated = apart.contains(&function.name) || function.name.starts_with("filter_");
        assert_eq!(shipped(function.name).folds(), !concatenated, "{}", function.name);
    }
}

/// Numbers out of their range are refused before the function sees them.
#[test]
fn arguments_are_described() {
    for (name, arguments) in [
        ("knn", "row_len k metric target"),
        ("grep", "row_len pattern"),
        ("histogram", "row_len offset type bins lo width"),
        ("topk", "row_len offset type k"),
        ("aggregate", "row_len key_offset key_type value_offset value_type"),
        ("filter_f64", "op form lo hi row_len offset"),
    ] {
        let function = shipped(name);
        let program = function.image.programs.iter().find(|p| p.name == name).unwrap();
        let schema = program.args.as_ref().unwrap_or_else(|| panic!("{name} describes no arguments"));
        let names: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names.join(" "), arguments, "{name}");
        assert!(schema.fields.iter().all(|f| f.doc.is_some()), "{name}: each argument has a line of help");
    }
}

#[test]
fn the_empty_input_is_an_input() {
    for (name, len) in
        [("stats64", 32), ("stats32", 24), ("wc", 24), ("grep_count", 8), ("grep", 0), ("bitmap", 0), ("aggregate", 0)]
    {
        let args: &[(&str, &str)] = match name {
            "grep" | "grep_count" => &[("pattern", "x")],
            "aggregate" => &[("row_len", "8")],
            _ => &[],
        };
        assert_eq!(shipped(name).run(&[], args).map(|r| r.len()), Ok(len), "{name}");
    }
}
