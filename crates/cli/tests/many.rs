//! Very many files: here, at a server, and by patterns that the server expands.

mod common;

use std::io::Write as _;
use std::path::Path;

use common::{Process, Server, diskside, good, json, numbers};

/// Its result differs when a file is missing, comes twice or at another place, or when the index, length or end that it
/// gets of one differs.
/// end of one.
const SEEN: &str = r#"
#include "diskside.h"
DS_SPLIT_LINES;

struct seen { __u64 digest; __u64 files; __u64 last; };

SEC("read/seen")
__s64 seen(struct seen *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call) {
    __u64 digest = call->source_index * 1000003ull + call->flags * 17 + call->chunk_index * 13 + call->source_len;
    for (__u64 i = 0; i < in_len; i++) digest = (digest ^ in[i]) * 1099511628211ull;
    out->digest = digest;
    out->files = 1;
    out->last = call->source_index;
    return sizeof(*out);
}

SEC("combine/seen")
__s64 seen_fold(struct seen *acc, __u64 acc_len, __u64 cap, const struct seen *part, __u64 part_len) {
    acc->digest = (acc->digest ^ part->digest) * 6364136223846793005ull;
    acc->files += part->files;
    acc->last = part->last;
    return sizeof(*acc);
}
"#;

/// So many short files, and the function that looks at them. Some have no line, and one in a hundred is longer.
fn fill(directory: &Path, count: usize) -> String {
    std::fs::create_dir_all(directory).expect("made");
    for number in 0..count {
        let lines = if number % 100 == 7 { 20_000 } else { number % 40 };
        let text: String = (0..lines).map(|line| format!("line {line} of {number}\n")).collect();
        // Each file says itself whether it is compressed.
        let bytes = if number % 50 == 3 { gzip(text.as_bytes()) } else { text.into_bytes() };
        std::fs::write(directory.join(format!("f{number:05}.log")), bytes).expect("written");
    }
    let source = directory.with_file_name("seen.bpf.c");
    std::fs::write(&source, SEEN).expect("written");
    source.display().to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// A run over 5,000 files of an export failed at the 1,024th, because each had a handle of its own as long as the run. Now
/// any number of files of a target is one request, and the function is called as it is over the same files here.
#[test]
fn thousands_of_files_give_the_same_at_the_server_on_the_host_and_here() {
    let server = Server::start("");
    for count in [1100, 5000] {
        let directory = server.dir.join(format!("d{count}"));
        let seen = fill(&directory, count);
        let names: Vec<String> = (0..count).map(|number| format!("d{count}/f{number:05}.log")).collect();
        let path = |name: &String| server.dir.join(name).display().to_string();
        let (here, there): (Vec<String>, Vec<String>) = names.iter().map(|name| (path(name), server.at(name))).unzip();
        let run = |files: &[String], more: &[&str]| {
            let files = files.iter().map(String::as_str);
            let args: Vec<&str> = ["run", &seen].into_iter().chain(files).chain(more.iter().copied()).collect();
            json(&args)
        };
        let local = run(&here, &[]);
        assert_eq!((&local["rows"][0]["files"], &local["rows"][0]["last"]), (&count.into(), &(count - 1).into()));
        let pattern = [server.at(&format!("d{count}/*.log"))];
        let all = [server.at(&format!("d{count}"))];
        for (files, more) in [
            (&there[..], &["--where", "device"][..]),
            (&there, &["--where", "device", "--threads", "2"]),
            (&there, &["--where", "host"]),
            (&there, &[]),
            (&pattern, &[]),
            (&all, &["--recursive"]),
        ] {
            let ran = run(files, more);
            assert_eq!(ran["rows"], local["rows"], "{more:?}");
            assert_eq!(ran["parts_count"], 1, "one request for all of them: {more:?}");
        }
        assert_eq!(run(&[directory.display().to_string()], &["-r"])["rows"], local["rows"]);
        let explained = run(&pattern, &[]);
        assert_eq!(explained["decisions"][0]["reason"], "many_files");
    }
}

#[test]
fn outputs_of_many_files_stand_in_their_order() {
    let server = Server::start("");
    fill(&server.dir.join("d"), 300);
    let local = server.dir.join("d").display().to_string();
    let wanted = good(&["run", "grep", &local, "-r", "--arg", "pattern=line 1"]);
    assert!(wanted.lines().count() > 300);
    for place in ["device", "host", "auto"] {
        let out = server.dir.join("out");
        let (run, out) = (["run", "grep", &server.at("d/*"), "--arg", "pattern=line 1", "--where", place], out);
        assert_eq!(good(&run), wanted, "{place}");
        for to in [out.display().to_string(), server.at("out")] {
            good(&[&run[..], &["--out", &to]].concat());
            assert_eq!(std::fs::read_to_string(&out).expect("written"), wanted, "{place}, --out {to}");
        }
    }
}

/// A header that the function is not given has to be left out of one of many files as of one alone.
#[test]
fn arrays_among_many_files_are_given_without_their_headers() {
    let server = Server::start("");
    let (numbers, directory) = (numbers(1000), server.dir.join("a"));
    std::fs::create_dir(&directory).expect("made");
    for number in 0..12 {
        let text = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", numbers.len() / 8);
        let header = [b"\x93NUMPY\x01\0v\0", format!("{text:<117}\n").as_bytes()].concat();
        let head = if number == 9 { &header[..] } else { &[] };
        std::fs::write(directory.join(format!("{number:02}")), [head, &numbers].concat()).expect("written");
    }
    let local = json(&["run", "stats64", "-r", &directory.display().to_string()]);
    assert_eq!(local["stats"]["input_bytes"], 12 * 8000);
    for place in ["device", "host", "auto"] {
        let there = json(&["run", "stats64", &server.at("a/*"), "--where", place]);
        assert_eq!(there["rows"], local["rows"], "{place}");
    }
    let all = json(&["run", "stats64", &server.at("a/*"), "--header", "none"]);
    assert_eq!(all["stats"]["input_bytes"], 12 * 8000 + 128);
}

/// An array among more than a few short files of a server was refused where the output leaves early, and given without
/// its header here.
#[test]
fn an_array_among_many_files_whose_outputs_stream_is_given_without_its_header() {
    let server = Server::start("");
    std::fs::create_dir(server.dir.join("d")).expect("made");
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (6,), }";
    let array = [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes(), b"ERROR\n"].concat();
    for number in 0..14 {
        let lines = format!("ERROR {number}\nfine\n");
        let bytes = if number == 11 { &array } else { lines.as_bytes() };
        std::fs::write(server.dir.join(format!("d/{number:02}")), bytes).expect("written");
    }
    let here: Vec<String> =
        (0..14).map(|number| server.dir.join(format!("d/{number:02}")).display().to_string()).collect();
    let here = [&["run", "grep", "--arg", "pattern=ERROR"][..], &here.iter().map(String::as_str).collect::<Vec<_>>()];
    let expected = good(&here.concat());
    assert_eq!(expected.lines().count(), 14, "{expected}");
    let out = server.dir.join("out").display().to_string();
    for place in ["auto", "device", "host"] {
        let there = ["run", "grep", &server.at("d/*"), "--arg", "pattern=ERROR", "--where", place];
        assert_eq!(good(&there), expected, "{place}");
        good(&[&there[..], &["--out", &out]].concat());
        assert_eq!(std::fs::read_to_string(&out).expect("written"), expected, "{place}");
    }
}

/// Folds until it meets a 3.
const FUSSY: &str = r#"
#include "diskside.h"
struct sum { __u64 value; };
SEC("read/fussy")
__s64 fussy(struct sum *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {
    for (__u64 i = 0; i < in_len / 8; i++) out->value += in[i];
    return sizeof(*out);
}
SEC("combine/fussy")
__s64 fold(struct sum *acc, __u64 acc_len, __u64 cap, const struct sum *part, __u64 part_len) {
    if (part->value == 3) return DS_FAIL(22, "third");
    acc->value += part->value;
    return sizeof(*acc);
}
"#;

/// The error of a fold that fails early, with a wrong file behind it, depended on how many files there were, and where.
#[test]
fn of_two_failures_the_first_in_the_order_of_the_files_is_told() {
    let server = Server::start("");
    let source = server.file("fussy.bpf.c", FUSSY.as_bytes()).display().to_string();
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }";
    let array = [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes(), &[0; 8]].concat();
    for count in [4_u64, 12] {
        let name = |number: u64| format!("c{count}-{number}");
        for number in 0..count {
            let value = if number == 2 { 3 } else { 1_u64 }.to_le_bytes();
            server.file(&name(number), if number == count - 1 { &array } else { &value });
        }
        let here: Vec<String> = (0..count).map(|number| server.dir.join(name(number)).display().to_string()).collect();
        let there: Vec<String> = (0..count).map(|number| server.at(&name(number))).collect();
        for (files, place) in [(&here, "auto"), (&there, "auto"), (&there, "device"), (&there, "host")] {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let (code, out, told) = diskside(&[&["run", &source, "--where", place][..], &files].concat());
            assert!(code == 1 && out.is_empty() && told.contains("third"), "{count} files, {place}: {code}, {told}");
        }
    }
}

/// A heap of nothing was one of the default's length at a server.
#[test]
fn a_heap_of_no_bytes_has_none_anywhere() {
    let server = Server::start("");
    let source = "#include \"diskside.h\"\nDS_CONCATENATE;\nDS_SPLIT_BYTES;\nstruct got { __u64 some; };\nSEC(\"read/heap\")\n\
        __s64 heap(struct got *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        char *some = ds_alloc(64);\nif (some) { some[in_len % 64] = 1; out->some = 1; }\nreturn sizeof(*out);\n}\n";
    let source = server.file("heap.bpf.c", source.as_bytes()).display().to_string();
    let local = server.file("data", b"some").display().to_string();
    for (heap, expected) in [("0", "some  0\n"), ("64", "some  1\n")] {
        for (file, place) in [(&local, "auto"), (&server.at("data"), "host"), (&server.at("data"), "device")] {
            assert_eq!(good(&["run", &source, file, "--heap", heap, "--where", place]), expected, "{heap}, {place}");
        }
    }
}

/// A server kept as many lines as anybody, and did not say that there were more.
#[test]
fn lines_that_are_too_many_are_counted_everywhere() {
    let server = Server::start("");
    let source = "#include \"diskside.h\"\nDS_CONCATENATE;\nDS_SPLIT_BYTES;\nSEC(\"read/chatty\")\n\
        __s64 chatty(char *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        ds_log(\"called\", 6);\nreturn 0;\n}\n";
    let source = server.file("chatty.bpf.c", source.as_bytes()).display().to_string();
    let local = server.file("data", &[b'x'; 5000]).display().to_string();
    for (file, place) in [(&local, "auto"), (&server.at("data"), "host"), (&server.at("data"), "device")] {
        let told = json(&["run", &source, file, "--chunk", "10", "--where", place]);
        let lines = told["log"].as_array().expect("lines").len() as u64;
        assert_eq!(lines + told["log_dropped"].as_u64().expect("a count"), 500, "{place}: {told}");
    }
}

#[test]
fn one_of_many_files_that_cannot_be_read_is_named() {
    let server = Server::start("");
    fill(&server.dir.join("d"), 40);
    std::os::unix::fs::symlink("nowhere", server.dir.join("d/f00020x.log")).expect("linked");
    for place in ["device", "host"] {
        let (code, out, said) = diskside(&["run", "wc", &server.at("d/*.log"), "--where", place]);
        assert_eq!((code, &out[..]), (4, &b""[..]), "{said}");
        assert!(said.contains("data/d/f00020x.log: No such file or directory (os error 2)"), "{place}: {said}");
    }
    let urls: Vec<String> = (0..20).map(|number| server.at(&format!("d/f{number:05}.log"))).collect();
    let mut args = vec!["run", "wc"];
    args.extend(urls.iter().map(String::as_str));
    let missing = server.at("d/missing");
    args.insert(9, &missing);
    let (code, _, said) = diskside(&args);
    assert_eq!(code, 4);
    assert!(said.contains("data/d/missing: No such file or directory (os error 2)"), "{said}");
}

#[test]
fn a_pattern_that_means_nothing_is_told_as_ls_tells_it() {
    let server = Server::start("");
    server.file("a.log", b"x\n");
    for command in [&["ls"][..], &["run", "wc"]] {
        for name in ["*.txt", "a.log/*", "none/**/x", "?"] {
            let url = server.at(name);
            let (code, _, said) = diskside(&[command, &[&url]].concat());
            assert_eq!(code, 2, "{said}");
            assert_eq!(said, format!("diskside: cannot access '{url}': No such file or directory\n"));
        }
        let (code, _, said) = diskside(&[command, &[&server.at("[b-a]")]].concat());
        assert_eq!(code, 4);
        assert!(said.contains("\"[b-a]\" is no pattern of a name: invalid range"), "{said}");
    }
    let (code, _, said) = diskside(&["run", "wc", &format!("{}/*/x", server.target())]);
    assert_eq!(code, 2);
    assert!(said.contains("find: there is no export `*`"), "{said}");
}

/// A file of that very name is meant, whatever characters it has.
#[test]
fn a_file_whose_name_is_a_pattern_can_be_named() {
    let server = Server::start("");
    for (name, text) in [("[ab].log", "1\n"), ("a.log", "1\n2\n"), ("b.log", "1\n2\n3\n"), ("x*", "4\n"), ("xy", "5\n")]
    {
        server.file(name, text.as_bytes());
    }
    let names = |pattern: &str| {
        let listed = json(&["ls", &server.at(pattern)]);
        let name = |entry: &serde_json::Value| entry["name"].as_str().expect("a name").to_owned();
        listed["entries"].as_array().expect("entries").iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("[ab].log"), ["data/[ab].log"]);
    assert_eq!(names("[ab]?log"), ["data/a.log", "data/b.log"]);
    assert_eq!(names("x*"), ["data/x*"]);
    assert_eq!(names("x[*]"), ["data/x*"]);
    assert_eq!(names("x?"), ["data/x*", "data/xy"]);
}

#[test]
fn a_pattern_reaches_nothing_outside_of_its_export() {
    let outside = tempfile::tempdir().expect("a directory");
    std::fs::write(outside.path().join("secret.log"), "x\n").expect("written");
    let server = Server::start("");
    server.file("a.log", b"x\n");
    std::os::unix::fs::symlink(outside.path(), server.dir.join("out")).expect("linked");
    std::os::unix::fs::symlink(outside.path().join("secret.log"), server.dir.join("secret.log")).expect("linked");
    for pattern in ["out/*", "../*", "*/secret.log", "**/secret.?og/x"] {
        let (code, out, said) = diskside(&["run", "wc", &server.at(pattern)]);
        assert_eq!((code, &out[..]), (2, &b""[..]), "{pattern}: {said}");
    }
    // The link is there, and cannot be read.
    let (code, _, said) = diskside(&["run", "wc", &server.at("*.log")]);
    assert_eq!(code, 4);
    assert!(said.contains("data/secret.log: "), "{said}");
    assert_eq!(json(&["run", "wc", "-r", &server.url])["rows"][0]["lines"], 1, "no link is followed");
}

/// The server opens files late and closes them early: it reads more of them than it may have open, long ones, too.
#[test]
fn a_server_that_may_have_few_files_open_reads_many() {
    let directory = tempfile::tempdir().expect("a directory");
    for number in 0..150 {
        std::fs::write(directory.path().join(format!("{number:03}")), vec![b'\n'; 300_000]).expect("written");
    }
    let export = format!("data={}", directory.path().display());
    let serve =
        format!("ulimit -n 100; exec {} serve --listen 127.0.0.1:0 --export {export}", env!("CARGO_BIN_EXE_diskside"));
    let mut child = std::process::Command::new("sh")
        .args(["-c", &serve])
        .env("DISKSIDE_LLVM", "")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sh runs");
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    let line = said.find_map(|line| line.ok().filter(|line| line.contains("diskside://"))).expect("it says where");
    let _process = Process(child);
    let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("a URL").to_owned();
    let pattern = format!("{url}/*");
    for place in ["device", "host"] {
        let ran = json(&["run", "wc", &pattern, "--where", place]);
        assert_eq!(ran["rows"][0]["lines"], 150 * 300_000, "{place}");
    }
}

/// A group for which a server has no memory may fit this machine: then all its files run here. No test had a group that
/// was refused behind its first files, and where those had given much output already, the run ended there.
#[test]
fn a_group_that_the_server_refuses_half_way_runs_here() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "[compute]\nengines = 1\nhost_memory = \"128MiB\"\n").expect("written");
    let server = Server::start_with("", &["--config", config.to_str().expect("text")]);
    std::fs::create_dir(server.dir.join("d")).expect("made");
    let line = |at: usize| format!("line {at}\n").repeat(20_000).into_bytes();
    for at in 0..20 {
        let long = if at == 7 { [&vec![b'x'; 48 << 20][..], b"\n"].concat() } else { Vec::new() };
        std::fs::write(server.dir.join(format!("d/{at:02}")), [line(at), long, line(at)].concat()).expect("written");
    }
    let (here, there) = (server.dir.join("d").display().to_string(), server.at("d/*"));
    let short = ["--chunk", "64KiB"];
    // The piece with the long line gives nothing.
    let every = 15 * line(0).len() - line(0).len() % (64 << 10) / 7 * 7;
    for (function, before) in [
        (&["grep_count", "--arg", "pattern=line"][..], 0),
        (&["grep", "--arg", "pattern=line 1"], line(1).len() * 2),
        (&["grep", "--arg", "pattern=line"], every),
    ] {
        let run = |more: &[&str]| diskside(&[&["run"], function, &short, more].concat());
        let local = run(&[&here, "-r"]);
        assert_eq!(local.0, 0, "{}", local.2);
        let (code, out, said) = run(&[&there, "--where", "device"]);
        assert_eq!(code, 1, "{said}");
        let told = format!("diskside: {}/07, bytes ", server.at("d"));
        assert!(
            said.starts_with(&told) && said.contains("the record does not end here, and for a longer one there is no"),
            "{said}"
        );
        // The output before it: the lines of the files before it, and those before the long one.
        assert!(out.len() == before && local.1.starts_with(&out), "{function:?}: {} bytes", out.len());
        for place in ["host", "auto"] {
            let (code, out, said) = run(&[&there, "--where", place]);
            assert!((code, &out) == (0, &local.1), "{function:?} {place}: {said}");
        }
    }
}

/// Files of two servers run at once, and their results stand in the order in which the files are named, also those that are too
/// long to wait for their turn in memory.
#[test]
fn results_of_two_servers_stream_in_the_order_of_the_files() {
    let servers = [Server::start(""), Server::start("")];
    let mut inputs = Vec::new();
    let mut expected = Vec::new();
    for at in 0..10_usize {
        // The first of each server are the longest: the others are done before.
        let count = if at < 2 { 700_000 } else { 1_000 * (10 - at) };
        let text: Vec<u8> = (0..count).flat_map(|n| format!("file {at} line {n}\n").into_bytes()).collect();
        servers[at % 2].file(&format!("f{at}"), &text);
        inputs.push(servers[at % 2].at(&format!("f{at}")));
        expected.extend_from_slice(&text);
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    for place in ["device", "host", "auto"] {
        let (code, out, said) =
            diskside(&[&["run", "grep", "--arg", "pattern=file", "--where", place][..], &inputs].concat());
        assert_eq!(code, 0, "{place}: {said}");
        assert!(out == expected, "{place}: {} of {} bytes", out.len(), expected.len());
    }
}
