//! The header, the library and a C compiler agree.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("the file is there")
}

/// Name and number of parameters of each function, from C or from Rust.
fn functions(text: &str, starts: &str) -> BTreeSet<(String, usize)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(starts) {
        let before = text[..at].chars().next_back();
        let rest = &text[at..];
        let Some(open) = rest.find(|c| !is_name(c)) else { continue };
        if before.is_some_and(is_name) || !rest[open..].starts_with('(') {
            continue;
        }
        let Some(close) = rest.find(')') else { continue };
        let inner = rest[open + 1..close].trim().trim_end_matches(',');
        let count = if inner.is_empty() || inner == "void" { 0 } else { inner.matches(',').count() + 1 };
        found.insert((rest[..open].to_owned(), count));
    }
    found
}

#[test]
fn the_headers_declare_what_the_library_defines() {
    let defined: Vec<String> = [read("src/lib.rs"), read("src/lambda.rs")]
        .iter()
        .flat_map(|text| {
            text.match_indices("extern \"C\" fn ")
                .map(|(at, what)| text[at + what.len()..].split('{').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let defined: BTreeSet<(String, usize)> =
        defined.iter().flat_map(|text| functions(text, text.split('(').next().unwrap_or_default())).collect();
    let without_comments = |text: String| {
        text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code).to_owned()).collect::<String>()
    };
    let mut declared = functions(&without_comments(read("include/libdiskside.h")), "ds_");
    let lambda = without_comments(read("include/lambda_io.h"));
    for name in ["load_lambda", "pread_lambda", "pwrite_lambda"] {
        declared.extend(functions(&lambda, name));
    }
    assert!(declared.len() >= 25, "{declared:?}");
    assert_eq!(declared, defined);
}

/// Where cargo puts libdiskside.so. Nothing in Rust depends on it, so it is built here.
fn libraries() -> &'static Path {
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

fn compile(dir: &Path, source: &Path) -> PathBuf {
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

fn run(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("LD_LIBRARY_PATH", libraries()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_example_runs_over_a_file_here_and_at_a_target() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bytes: Vec<u8> = (1..=1000_i64).flat_map(i64::to_le_bytes).collect();
    std::fs::write(dir.path().join("n"), bytes).expect("written");
    let program = compile(dir.path(), &root().join("examples/stats.c"));
    let wanted = "1000 numbers, sum 500500, least 1, greatest 1000\n";
    assert_eq!(run(&program, &[&dir.path().join("n").display().to_string()]), wanted);
    let target = serve(dir.path());
    let url = format!("diskside://{}/data/n", target.handle().local_addresses()[0]);
    assert_eq!(run(&program, &[&url]), wanted);
}

fn serve(dir: &Path) -> diskside_target::Running {
    use diskside_target::Target;
    use diskside_target::config::ExportSpec;
    Target::builder()
        .nqn("nqn.2026-11.org.example:capi")
        .listen(["127.0.0.1:0".parse().expect("an address")])
        .export(ExportSpec::new("data", dir))
        .build()
        .and_then(Target::start)
        .expect("it serves")
}

/// Kind and source line, the same from a file here, at the device, and from the host over a target's file.
#[test]
fn a_function_that_fails_says_how_and_on_which_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("in"), [0; 64]).expect("written");
    let head = "(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n";
    let one = |name: &str, body: &str| format!("SEC(\"read/{name}\")\n__s64 {name}{head}{body}\nreturn 8;\n}}\n");
    let source = "#include \"diskside.h\"\n".to_owned()
        + &one("trap", "*out = in[in_len / 8];")
        + &one("budget", "for (volatile __u64 i = 0; i < 1ull << 60; i++) *out = i;")
        + &one("returned", "if (in_len) return -22;");
    let function = dir.path().join("f.bpf.c");
    std::fs::write(&function, source).expect("written");
    let program = compile(dir.path(), &root().join("tests/failures.c"));
    let target = serve(dir.path());
    let url = format!("diskside://{}/data/in", target.handle().local_addresses()[0]);
    let local = dir.path().join("in").display().to_string();
    for (file, place) in [(&local, "0"), (&url, "1"), (&url, "2")] {
        let said = run(&program, &[&function.display().to_string(), file, place]);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("-5 3 "), "where {place}: {said}");
        assert!(lines[0].contains("f.bpf.c:4: *out = in[in_len / 8];"), "where {place}: {said}");
        assert!(lines[0].ends_with("out-of-bounds read of 8 bytes of input at offset 64, which is 64 bytes long"));
        assert!(lines[1].starts_with("-5 4 ") && lines[1].contains("f.bpf.c:9"), "where {place}: {said}");
        assert!(lines[2].starts_with("-22 7 "), "where {place}: {said}");
    }
}

#[test]
fn every_call_works_and_every_misuse_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile(dir.path(), &root().join("tests/calls.c"));
    let path = dir.path().join("file").display().to_string();
    assert_eq!(run(&program, &[&path]), "good\n");
}
