//! The header and its mirror describe one layout, in every compiler at hand.

use diskside_abi::HEADERS;
use diskside_abi::context::{BpfXrp, DsCall, DsExec, DsKernel, DsNext, DsRange, DsTraverse, LambdaContext};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// C source whose compilation fails where the mirror and the header differ.
fn assertions() -> String {
    let mut c = String::from("#include \"diskside.h\"\n#include \"lambda_io.h\"\n#include \"xrp.h\"\n");
    let structs: [(_, _, &[_]); 8] = [
        ("ds_call", DsCall::LEN_BYTES, DsCall::FIELDS),
        ("ds_next", DsNext::LEN_BYTES, DsNext::FIELDS),
        ("ds_traverse", DsTraverse::LEN_BYTES, DsTraverse::FIELDS),
        ("ds_kernel", DsKernel::LEN_BYTES, DsKernel::FIELDS),
        ("ds_range", DsRange::LEN_BYTES, DsRange::FIELDS),
        ("ds_exec", DsExec::LEN_BYTES, DsExec::FIELDS),
        ("context", LambdaContext::LEN_BYTES, LambdaContext::FIELDS),
        ("bpf_xrp", BpfXrp::LEN_BYTES, BpfXrp::FIELDS),
    ];
    for (name, len, fields) in structs {
        writeln!(c, "DS_LAYOUT(struct {name}, {len});").unwrap();
        for (field, offset) in fields {
            writeln!(c, "DS_FIELD(struct {name}, {field}, {offset});").unwrap();
        }
    }
    c
}

/// Compilers of `PATH` by these names.
fn compilers(names: &[&str]) -> Vec<String> {
    let found: Vec<String> = names
        .iter()
        .filter(|n| Command::new(n).arg("--version").output().is_ok_and(|o| o.status.success()))
        .map(|n| (*n).to_owned())
        .collect();
    assert!(!found.is_empty(), "none of {names:?} is installed; on Debian: apt-get install clang");
    found
}

fn compile(compiler: &str, flags: &[&str], directory: &Path, source: &str) {
    let file = directory.join("check.c");
    std::fs::write(&file, source).unwrap();
    let output = Command::new(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .args(flags)
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{compiler} {flags:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

fn with_headers(test: impl Fn(&Path)) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("diskside")).unwrap();
    for header in HEADERS {
        std::fs::write(directory.path().join(header.name), header.text).unwrap();
    }
    test(directory.path());
}

const CLANGS: [&str; 10] = [
    "clang", "clang-14", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19", "clang-20", "clang-21", "clang-22",
];

#[test]
fn every_clang_lays_the_structures_out_as_the_mirror() {
    with_headers(|directory| {
        for clang in compilers(&CLANGS) {
            compile(&clang, &["-target", "bpf"], directory, &assertions());
        }
    });
}

#[test]
fn native_compilers_take_the_same_source() {
    with_headers(|directory| {
        for compiler in compilers(&["cc", "clang"]) {
            compile(&compiler, &["-std=c11"], directory, &assertions());
        }
    });
}

#[test]
fn a_mirror_that_differs_is_found() {
    with_headers(|directory| {
        let wrong = assertions().replace("DS_FIELD(struct ds_call, flags, 4)", "DS_FIELD(struct ds_call, flags, 8)");
        assert_ne!(wrong, assertions());
        let failed = std::panic::catch_unwind(|| compile("clang", &["-target", "bpf"], directory, &wrong));
        assert!(failed.is_err());
    });
}

#[test]
fn big_endian_is_refused_by_name() {
    with_headers(|directory| {
        std::fs::write(directory.join("check.c"), "#include \"diskside.h\"\n").unwrap();
        let output = Command::new("clang")
            .args(["-fsyntax-only", "-target", "bpfeb"])
            .arg(directory.join("check.c"))
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("Diskside runs little-endian programs"), "{said}");
    });
}

/// The numbers of `DS_E…` are Linux's, and each has its name in the mirror.
#[test]
fn error_numbers_have_names() {
    let header = HEADERS[0].text;
    let mut seen = 0;
    for line in header.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("#define") {
            continue;
        }
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            continue;
        };
        if name.starts_with("DS_E") {
            let value: i64 = value.parse().unwrap();
            assert_eq!(diskside_abi::error_name(-value), Some(name));
            seen += 1;
        }
    }
    assert!(seen >= 8, "the header defines {seen} errors");
}
