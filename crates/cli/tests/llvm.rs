//! The page on functions that vectorise says what happens, and the tier gives what others give.
#![cfg(feature = "llvm-tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectorising.md");
    std::fs::read_to_string(path).expect("the page is there")
}

/// Each function of the page, with what the page says of it.
fn examples() -> Vec<(String, String)> {
    let page = page();
    let block = |text: &str, kind: &str| {
        text.split_once(&format!("```{kind}\n"))
            .and_then(|(_, rest)| rest.split_once("```\n"))
            .map(|(b, _)| b.to_owned())
    };
    let functions = page.split("```c\n").skip(1).map(|rest| {
        let source = rest.split("```\n").next().expect("a block ends").to_owned();
        (source, block(rest, "console").expect("each function comes with what is said of it"))
    });
    functions.collect()
}

fn diskside(args: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_diskside"))
        .args(args)
        .env("XDG_CACHE_HOME", dir.path())
        .output()
        .expect("diskside runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text") + &String::from_utf8(output.stderr).expect("text")
}

fn written(dir: &tempfile::TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

/// The report of `inspect` on loops, without the parts that depend on processor and clang.
fn said(inspected: &str) -> String {
    let mut text = String::new();
    let mut skipping = false;
    let (_, programs) = inspected.split_once("\n\n").expect("a summary, then the programs");
    for line in programs.lines() {
        if let Some((_, place)) = line.strip_prefix("  loop at instruction ").and_then(|l| l.split_once(" (")) {
            let (file, what) = place.split_once("): ").expect("a place, and what");
            let number = file.rsplit(':').next().expect("a line");
            skipping = what == "no accesses of its own";
            if !skipping {
                text += &format!("  loop at line {number}: {what}\n");
            }
        } else if skipping && line.starts_with("    ") {
        } else if line.starts_with("    vectorised: ") {
            text += "    vectorised\n";
        } else if let Some((_, why)) = line.strip_prefix("    insn ").and_then(|l| l.split_once(": ")) {
            text += &format!("    {why}\n");
        } else {
            text += &format!("{line}\n");
        }
    }
    text
}

#[test]
fn the_page_says_what_becomes_of_each_loop() {
    let dir = tempfile::tempdir().expect("a directory");
    let examples = examples();
    assert!(examples.len() >= 6);
    for (source, expected) in examples {
        let path = written(&dir, "example.bpf.c", &source);
        let inspected = diskside(&["inspect", "--tier", "llvm", path.to_str().expect("text")]);
        assert_eq!(said(&inspected), expected, "{source}\n{inspected}");
    }
}

#[test]
fn the_functions_of_the_page_give_the_same_in_every_tier() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8 | 1).collect();
    let data = written(&dir, "data", &bytes[..8 * 1024 * 20]);
    for (source, _) in examples() {
        let path = written(&dir, "example.bpf.c", &source);
        let run = |tier| {
            let out = dir.path().join("out");
            let (path, data) = (path.to_str().expect("text"), data.to_str().expect("text"));
            diskside(&["run", path, data, "--tier", tier, "--out", out.to_str().expect("text")]);
            std::fs::read(out).expect("the result")
        };
        let expected = run("interp");
        assert!(!expected.is_empty());
        assert_eq!(run("llvm"), expected, "{source}");
        assert_eq!(run("cranelift"), expected, "{source}");
    }
}

#[test]
fn stats_say_what_llvm_did() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = written(&dir, "data", [7; 4096]);
    let said = diskside(&["run", "stats64", data.to_str().expect("text"), "--tier", "llvm", "--stats"]);
    // The function, and the one that folds its results.
    assert!(said.contains("llvm: 2 compiled, 0 from the store, 0 failed"), "{said}");
}

/// `double` was answered with the name of a function of the compiler's library. The guide's moving average compiles, is
/// built to an object, and gives the same in every tier.
#[test]
fn the_guides_function_in_double_compiles_and_is_right_in_every_tier() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    let mut blocks = guide.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let source = blocks.find(|block| block.contains("read/moving_average")).expect("it shows the function");
    let dir = tempfile::tempdir().expect("a directory");
    let values: Vec<f64> = (0..10_000).map(|i| f64::from(i * 7919 % 1000) / 8.0).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let source = written(&dir, "moving_average.bpf.c", source);
    let input = written(&dir, "data.bin", bytes);
    let object = dir.path().join("moving_average.o");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    diskside(&["build", &text(&source), "-o", &text(&object)]);
    let mut sum = 0.0;
    let mut expected = Vec::new();
    for (i, x) in values.iter().enumerate() {
        sum += x;
        if i >= 7 {
            sum -= values[i - 7];
        }
        expected.extend((sum / (i + 1).min(7) as f64).to_le_bytes());
    }
    for function in [&source, &object] {
        for tier in ["interp", "cranelift", "llvm"] {
            let out = dir.path().join("out.bin");
            diskside(&["run", &text(function), &text(&input), "--tier", tier, "--out", &text(&out)]);
            assert!(std::fs::read(&out).expect("it is written") == expected, "{tier}: {}", function.display());
        }
    }
}
