//! Long results on standard output: they come while the function runs, take little memory, and end with their reader.

mod common;

use common::{Server, command, numbers};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// More than a run would keep in memory.
const LONG: usize = 160 << 20;

/// Chunks of input and output, code and threads, however long the result is.
const MEMORY_MAX_KIB: u64 = 128 << 10;

fn run(args: &[&str]) -> Child {
    command(args).env("DISKSIDE_LLVM", "").spawn().expect("runs")
}

/// Lines of this many bytes.
const LINE: usize = 4096;

fn long_text() -> Vec<u8> {
    (0..LONG / LINE).map(|n| format!("line {n:0>4090}\n")).collect::<String>().into_bytes()
}

/// The most memory that a process had at a time, in KiB.
fn peak_kib(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB").to_owned();
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Where a function runs over a file: the file's name, and what to say besides.
fn everywhere(server: &Server, file: &str) -> Vec<Vec<String>> {
    let local = server.dir.join(file).display().to_string();
    let (url, place) = (server.at(file), |side: &str| vec!["--where".to_owned(), side.to_owned()]);
    vec![
        vec![local],
        vec![url.clone()],
        [vec![url.clone()], place("host")].concat(),
        [vec![url], place("device")].concat(),
    ]
}

/// `diskside run grep` failed where its output was longer than 64 MiB, after all of it was made and kept in memory.
#[test]
fn a_result_of_any_length_is_printed_in_little_memory() {
    let server = Server::start("");
    let text = long_text();
    server.file("long", &text);
    for place in everywhere(&server, "long") {
        let args: Vec<&str> =
            ["run", "grep", "--arg", "pattern=line"].into_iter().chain(place.iter().map(|s| &s[..])).collect();
        let mut child = run(&args);
        let mut out = child.stdout.take().expect("piped");
        let (mut piece, mut at, mut peak) = (vec![0; 1 << 20], 0, 0);
        loop {
            let len = out.read(&mut piece).expect("read");
            if len == 0 {
                break;
            }
            assert_eq!(piece[..len], text[at..at + len], "{args:?}");
            at += len;
            peak = peak.max(peak_kib(&child));
        }
        let output = child.wait_with_output().expect("ends");
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""), "{args:?}");
        assert_eq!(at, LONG, "{args:?}");
        // Bytes that are fetched from a server to run here are kept for the next run, as many as fit.
        let is_kept = args.contains(&"host") || !args.contains(&"device") && args[4].starts_with("diskside:");
        assert!(is_kept || peak < MEMORY_MAX_KIB, "{args:?}: {peak} KiB");
    }
}

/// As with `| head`: no message, and no failure, wherever the function runs.
#[test]
fn a_reader_that_has_enough_ends_the_run_quietly() {
    let server = Server::start("");
    let text = long_text();
    server.file("long", &text);
    for place in everywhere(&server, "long") {
        let args: Vec<&str> =
            ["run", "grep", "--arg", "pattern=line"].into_iter().chain(place.iter().map(|s| &s[..])).collect();
        let mut child = run(&args);
        let mut line = [0; LINE];
        child.stdout.take().expect("piped").read_exact(&mut line).expect("a line");
        assert_eq!(line, text[..LINE], "{args:?}");
        let output = child.wait_with_output().expect("ends");
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""), "{args:?}");
    }
}

/// What is known already is printed before the input has ended.
#[test]
fn output_comes_while_the_input_still_does() {
    let mut child = command(&["run", "grep", "-", "--arg", "pattern=a", "--chunk", "4KiB"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut input = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, "a line\n".repeat(10_000).as_bytes()).expect("it reads");
    let mut line = [0; 7];
    child.stdout.as_mut().expect("piped").read_exact(&mut line).expect("a line");
    assert_eq!(&line, b"a line\n");
    drop(input);
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 69_993));
}

const PAIRS: &str = "#include \"diskside.h\"\nstruct pair { __u64 n; __u32 low; __u8 odd; __u8 pad[3]; };\n\
    SEC(\"read/pairs\")\n\
    __s64 pairs(struct pair *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
    for (__u64 i = 0; i < in_len / 8; i++) {\n\
    out[i].n = in[i]; out[i].low = in[i]; out[i].odd = in[i] & 1; }\n\
    return in_len / 8 * sizeof(struct pair);\n}\nDS_OUTPUT(2, 1, 0);\n";

fn pairs(server: &Server) -> PathBuf {
    server.file("pairs.bpf.c", PAIRS.as_bytes())
}

/// Rows come as they are made: 96 MiB of them, of which nothing is kept.
#[test]
fn rows_stream_as_a_table() {
    let server = Server::start("");
    let (source, count) = (pairs(&server).display().to_string(), 200_000);
    let bytes = numbers(count);
    server.file("n.u64", &bytes);
    let mut tables = Vec::new();
    for place in everywhere(&server, "n.u64") {
        let args: Vec<&str> = ["run", &source].into_iter().chain(place.iter().map(|s| &s[..])).collect();
        tables.push(common::good(&args));
    }
    let table = tables.pop().expect("several");
    assert!(tables.iter().all(|other| *other == table), "the same wherever it runs");
    let mut lines = table.lines();
    let title: Vec<&str> = lines.next().expect("titles").split_whitespace().collect();
    assert_eq!(title, ["n", "low", "odd", "pad"]);
    let widths: Vec<usize> = table.lines().map(str::len).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "the columns line up");
    for (line, bytes) in lines.zip(bytes.chunks(8)) {
        let n = u64::from_le_bytes(bytes.try_into().expect("eight"));
        let row: Vec<&str> = line.split_whitespace().take(3).collect();
        assert_eq!(row, [n.to_string(), (n as u32).to_string(), (n & 1).to_string()]);
    }
}

#[test]
fn rows_stream_as_json() {
    let server = Server::start("");
    let (source, count) = (pairs(&server).display().to_string(), 100_000);
    let bytes = numbers(count);
    server.file("n.u64", &bytes);
    for place in everywhere(&server, "n.u64") {
        let args: Vec<&str> = ["run", &source].into_iter().chain(place.iter().map(|s| &s[..])).collect();
        let document = common::json(&args);
        assert_eq!((&document["schema"], &document["function"]), (&1.into(), &"pairs".into()));
        assert_eq!(document["stats"]["output_bytes"], count * 16);
        let rows = document["rows"].as_array().expect("rows");
        assert_eq!(rows.len() as u64, count);
        for (row, bytes) in rows.iter().zip(bytes.chunks(8)) {
            assert_eq!(row["n"], u64::from_le_bytes(bytes.try_into().expect("eight")));
        }
    }
}

/// One result has one form: what begins as rows and ends with a part of one is an error, after the rows.
#[test]
fn a_result_that_ends_within_a_row_is_an_error() {
    let server = Server::start("");
    let source = PAIRS.replace("sizeof(struct pair);", "sizeof(struct pair) - 6;");
    let source = server.file("bad.bpf.c", source.as_bytes()).display().to_string();
    let local = server.file("n.u64", &numbers(100_000)).display().to_string();
    for json in [&[][..], &["--json"]] {
        let (code, out, said) = common::diskside(&[&["run", &source, &local][..], json].concat());
        assert_eq!(
            (code, said.as_str()),
            (1, "diskside: the result ends with 10 bytes that are no row: pair has 16 bytes\n")
        );
        assert!(!out.is_empty());
    }
}

#[test]
fn json_says_what_to_do_with_text_that_is_too_long() {
    let server = Server::start("");
    let local = server.file("long", &long_text()).display().to_string();
    let (code, out, said) = common::diskside(&["run", "grep", &local, "--arg", "pattern=line", "--json"]);
    let expected = "diskside: the result is longer than 64 MiB, the most that --json has of text or bytes: leave --json \
                    out, or write the result to a file (--out FILE)\n";
    assert_eq!((code, out, said.as_str()), (1, Vec::new(), expected));
}
