//! The README's own function compiles and runs as the README says.

use std::path::Path;
use std::process::Command;

#[test]
fn the_function_in_the_readme_compiles_and_finds_the_longest_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README is there");
    let source = readme
        .split("```c\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the README shows a function in C");
    let lines = source.lines().filter(|l| !l.trim().is_empty()).count();
    assert!(lines <= 20, "a first function is short; this one has {lines} lines");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (function, log) = (dir.path().join("longest.bpf.c"), dir.path().join("server.log"));
    std::fs::write(&function, source).expect("written");
    std::fs::write(&log, format!("short\n{}\nlast", "x".repeat(1187))).expect("written");
    let run = |extra: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_diskside"))
            .arg("run")
            .args([&function, &log])
            .args(extra)
            .output()
            .expect("diskside runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(run(&[]), "bytes  1187\n");
    assert_eq!(run(&["--chunk", "64"]), "bytes  1187\n", "a line longer than a chunk is still one line");
    assert_eq!(run(&["--tier", "interp"]), "bytes  1187\n");
    let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).expect("JSON");
    assert_eq!((json["schema"].as_u64(), json["rows"][0]["bytes"].as_u64()), (Some(1), Some(1187)));
}
