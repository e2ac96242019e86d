//! The library as C programs use it.

mod build;

use build::{command, compile, object, root, run, serve, serve_at};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

/// How many numbers the programs expect.
const COUNT: i64 = 100_000;

/// Runs for many seconds: its loop is bounded, and each iteration takes half a microsecond.
const ENDLESS: &str = "#define ONE x = (x + i) / (y | 1) + 3, y += x;\n#define EIGHT ONE ONE ONE ONE ONE ONE ONE ONE\n\
    SEC(\"read/endless\")\n__s64 endless(__u64 *out, const void *in, __u64 in_len, const void *args, \
    const struct ds_call *call) {\n__u64 x = in_len, y = 1;\nfor (volatile __u64 i = 0; i < 1ull << 60; i++) {\n\
    EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT\n*out = y;\n}\nreturn 8;\n}\n";

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A directory to be served: numbers from 1 on, and words.
fn served() -> TempDir {
    let dir = directory();
    let numbers: Vec<u8> = (1..=COUNT).flat_map(i64::to_le_bytes).collect();
    std::fs::write(dir.path().join("numbers"), numbers).expect("written");
    std::fs::write(dir.path().join("words"), "fine\nERROR here\nfine\nERROR there\n").expect("written");
    dir
}

fn program(dir: &TempDir, name: &str) -> PathBuf {
    compile(dir.path(), &root().join("tests").join(name))
}

/// A CSx called `near`, whose export is seen in its own directory.
fn near(url: &str, dir: &Path) -> String {
    format!("near={url},mount=data:{}", dir.canonicalize().expect("it is there").display())
}

#[test]
fn files_and_blocks_are_computed_over_at_the_server() {
    let (dir, here) = (served(), directory());
    let (_running, url) = serve(dir.path());
    let exec = "SEC(\"exec/add\")\n__s64 add(struct ds_exec *x) {\nif (x->nranges != 3) return -DS_EINVAL;\n\
        const __u64 *given = x->data, *in = x->range[1].addr;\n\
        __u64 sum = given[0] + *(const __u32 *)&given[1], count = x->range[1].len / 8;\n\
        if (x->cparam1 != given[0] || x->data_len != 12) return -DS_EINVAL;\n\
        for (__u64 i = 0; i < count; i++) sum += in[i];\n*(__u64 *)x->range[2].addr = sum;\nreturn count;\n}\n";
    let times = |name: &str, by: u32| {
        format!(
            "SEC(\"read/{name}\")\n__s64 {name}(__u64 *out, const __u64 *in, __u64 in_len, const void *args, \
             const struct ds_call *call) {{\n*out = *in * {by};\nreturn 8;\n}}\n"
        )
    };
    let exec = object(here.path(), "add", exec);
    let two = object(here.path(), "two", &(times("first", 1) + &times("second", 2)));
    let seen = dir.path().canonicalize().expect("it is there").display().to_string();
    assert_eq!(run(&program(&here, "whole.c"), &near(&url, dir.path()), &[&seen, &exec, &two]), "good\n");
}

#[test]
fn requests_are_told_of_by_events_and_callbacks_and_go_as_batches() {
    let (dir, here) = (served(), directory());
    let (_running, url) = serve(dir.path());
    let endless = object(here.path(), "endless", ENDLESS);
    let file = dir.path().join("numbers").display().to_string();
    assert_eq!(run(&program(&here, "told.c"), &near(&url, dir.path()), &[&file, &endless]), "good\n");
}

#[test]
fn every_misuse_has_its_status() {
    let (dir, here) = (served(), directory());
    let (_running, url) = serve(dir.path());
    let other = here.path().join("other");
    std::fs::write(&other, [0; 8192]).expect("written");
    let program = program(&here, "misuse.c");
    assert_eq!(run(&program, &near(&url, dir.path()), &[&other.display().to_string()]), "good\n");
}

#[test]
fn a_server_that_vanishes_is_told_and_nothing_hangs() {
    let (dir, here) = (served(), directory());
    let (running, url) = serve(dir.path());
    let address = running.handle().local_addresses()[0];
    let endless = object(here.path(), "endless", ENDLESS);
    let mut command = command(&program(&here, "vanish.c"), &near(&url, dir.path()), &[&endless]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let (mut input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut said = BufReader::new(output).lines().map(|line| line.expect("text"));
    assert_eq!(said.next().as_deref(), Some("ready"));
    drop(running);
    input.write_all(b"\n").expect("it reads");
    assert_eq!(said.next().as_deref(), Some("gone"));
    let _running = serve_at(address, dir.path());
    input.write_all(b"\n").expect("it reads");
    assert_eq!(said.next().as_deref(), Some("good"));
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn thirty_two_threads_of_two_programs_have_memory_of_their_own() {
    let (dir, here) = (served(), directory());
    let (_running, url) = serve(dir.path());
    let program = program(&here, "threads.c");
    let start = || command(&program, &near(&url, dir.path()), &["4"]).stdout(Stdio::piped()).spawn().expect("it runs");
    for child in [start(), start()] {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "good\n");
    }
}

#[test]
fn the_example_and_the_page_are_one() {
    let (dir, here) = (served(), directory());
    let (_running, url) = serve(dir.path());
    let example = std::fs::read_to_string(root().join("examples/grep.c")).expect("the example is there");
    let page = std::fs::read_to_string(root().join("../../docs/csapi.md")).expect("the page is there");
    let shown = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it shows C");
    assert!(example.ends_with(shown), "docs/csapi.md shows examples/grep.c without its first comment");
    // The directory by another name, as mounts often have.
    let link = here.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).expect("linked");
    let words = link.join("words").display().to_string();
    let csxes = format!("near={url},mount=data:{}", link.display());
    let said = run(&compile(here.path(), &root().join("examples/grep.c")), &csxes, &[&words, "ERROR"]);
    assert_eq!(said, "ERROR here\nERROR there\n");
}

/// The table of the page has every call of the header, and no other.
#[test]
fn the_page_lists_every_call() {
    let header = std::fs::read_to_string(root().join("include/cs.h")).expect("the header is there");
    let page = std::fs::read_to_string(root().join("../../docs/csapi.md")).expect("the page is there");
    let is_call = |word: &&str| word.starts_with("cs") || word.starts_with("dsCs");
    let in_header: Vec<&str> = header
        .lines()
        .filter_map(|line| line.split_once('('))
        .filter(|(before, _)| ["CS_STATUS ", "const char *", "void "].iter().any(|kind| before.starts_with(kind)))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(is_call)
        .collect();
    assert!(in_header.len() > 50, "{in_header:?}");
    let table: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let in_page: Vec<&str> = table
        .iter()
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .filter(is_call)
        .collect();
    for call in &in_header {
        assert!(in_page.contains(call), "docs/csapi.md does not list {call}");
    }
    for call in &in_page {
        assert!(
            in_header.contains(call) || *call == "csHelperSetComputeArg",
            "docs/csapi.md lists {call}, which is no call"
        );
    }
}
