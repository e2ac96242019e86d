//! Inputs besides regular files: pipes, sockets, files that the kernel makes, and parts of files.

mod common;

use common::{Process, Server, command, diskside, fed, good, output_of, said};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Lines of many lengths, over several chunks of 64 KiB, without a newline at the end.
fn lines() -> Vec<u8> {
    let mut text = Vec::new();
    for n in 0..30_000_u32 {
        writeln!(text, "{n} {} {}", "x".repeat((n % 37) as usize), if n % 1000 == 0 { "ERROR" } else { "ok" })
            .expect("memory");
    }
    text.extend_from_slice(b"the last line ERROR");
    text
}

/// `diskside run wc` of such a file said "invalid UTF-8 was detected in one or more arguments".
#[test]
fn paths_and_urls_may_have_any_bytes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let odd = |end: &str| dir.path().join(OsStr::from_bytes(&[b"na\xffme", end.as_bytes()].concat()));
    std::fs::write(odd(""), "a line\n").expect("written");
    let run = |args: &[&dyn AsRef<OsStr>]| {
        let output = Command::new(env!("CARGO_BIN_EXE_diskside")).args(args).output().expect("it runs");
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, _, said) = run(&[&"run", &"grep", &odd(""), &"--arg", &"pattern=line", &"--out", &odd(".out")]);
    assert_eq!((code, std::fs::read(odd(".out")).expect("written")), (Some(0), b"a line\n".to_vec()), "{said}");
    let (code, printed, said) = run(&[&"run", &"wc", &odd(""), &"--json", &"--out", &odd(".json")]);
    let document: serde_json::Value = serde_json::from_slice(&printed).unwrap_or_else(|e| panic!("{e}: {said}"));
    let shown = |end: &str| odd(end).to_string_lossy().into_owned();
    assert_eq!((code, &document["files"][0], &document["out"]), (Some(0), &shown("").into(), &shown(".json").into()));
    let (code, printed, said) = run(&[&"cp", &odd(""), &odd(".copy"), &"--json"]);
    let document: serde_json::Value = serde_json::from_slice(&printed).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!((code, &document["destination"]), (Some(0), &shown(".copy").into()));
    assert_eq!(std::fs::read(odd(".copy")).expect("copied"), b"a line\n");
    let url = OsStr::from_bytes(b"diskside://127.0.0.1:1/data/na\xffme");
    // They are understood: that nobody serves there is all that is wrong.
    for args in [&[&"run" as &dyn AsRef<OsStr>, &"wc", &url][..], &[&"cp", &url, &"x"], &[&"cp", &odd(""), &url]] {
        let (code, _, said) = run(args);
        assert!(code == Some(4) && said.contains("no server listens there"), "{code:?}: {said}");
    }
}

fn fifo(dir: &Path) -> String {
    let path = dir.join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    path.to_str().expect("text").to_owned()
}

const GREP: [&str; 5] = ["grep", "--arg", "pattern=ERROR", "--chunk", "64KiB"];

#[test]
fn a_stream_gives_what_a_file_of_the_same_bytes_gives() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("lines.txt");
    std::fs::write(&path, lines()).expect("written");
    let path = path.to_str().expect("text");
    let expected = good(&[&["run"][..], &GREP, &[path]].concat()).into_bytes();
    assert!(expected.ends_with(b"the last line ERROR\n") || expected.ends_with(b"the last line ERROR"));
    let run = [&["run"][..], &GREP].concat();

    for input in ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        let piped = fed(&[&run[..], &[input]].concat(), &lines());
        assert_eq!(output_of(&piped), expected, "{input}");
        let file = std::fs::File::open(path).expect("there");
        let redirected = command(&[&run[..], &[input]].concat()).stdin(file).output().expect("diskside runs");
        assert_eq!(output_of(&redirected), expected, "{input}");
    }
    for threads in ["2", "8"] {
        let piped = fed(&[&run[..], &["-", "--threads", threads]].concat(), &lines());
        assert_eq!(output_of(&piped), expected, "{threads} threads");
    }

    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let mut over_socket = command(&[&run[..], &["-"]].concat());
    let child = over_socket.stdin(std::os::fd::OwnedFd::from(theirs)).spawn().expect("diskside runs");
    (&ours).write_all(&lines()).expect("it reads");
    drop(ours);
    assert_eq!(output_of(&child.wait_with_output().expect("ours")), expected, "a socket");

    let script = format!("{} run grep --arg pattern=ERROR --chunk 64KiB <(cat {path})", env!("CARGO_BIN_EXE_diskside"));
    let substituted = Command::new("bash").args(["-c", &script]).output().expect("bash");
    assert_eq!(output_of(&substituted), expected, "process substitution");
}

#[test]
fn a_fifo_is_waited_for_until_somebody_writes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let fifo = fifo(dir.path());
    let child = command(&["run", "wc", &fifo, "--json"]).spawn().expect("diskside runs");
    // Opening it waits for the reader; and again after the first bytes, which are not the end.
    let mut writer = std::fs::File::options().write(true).open(&fifo).expect("a reader comes");
    writer.write_all(b"one\n").expect("read");
    writer.write_all(b"two three\n").expect("read");
    drop(writer);
    let output = child.wait_with_output().expect("ours");
    let json: serde_json::Value = serde_json::from_slice(output_of(&output)).expect("JSON");
    assert_eq!(json["stats"]["input_bytes"], 14, "{json}");
}

/// Starts a command that waits for its standard input, and waits until it does.
fn waiting(args: &[&str]) -> (Child, std::process::ChildStdin) {
    let mut child = command(args).stdin(Stdio::piped()).spawn().expect("diskside runs");
    let pipe = child.stdin.take().expect("piped");
    // The written bytes are read as soon as the function's input is wanted.
    rustix::io::write(&pipe, b"x").expect("room");
    common::until("it reads its input", || rustix::io::ioctl_fionread(&pipe).is_ok_and(|left| left == 0));
    (child, pipe)
}

#[test]
fn an_interrupt_ends_the_wait_for_a_pipe_and_so_does_a_deadline() {
    let (child, _pipe) = waiting(&["run", "wc", "-"]);
    let mut process = Process(child);
    process.signal(Signal::INT);
    let mut told = String::new();
    process.0.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
    assert_eq!(process.0.wait().expect("ours").code(), Some(130), "{told}");
    // The message also names the function where it had just begun.
    let last = told.lines().next_back().unwrap_or_default();
    assert!(last.starts_with("diskside: /dev/stdin") && last.ends_with(": the call was cancelled"), "{told}");

    let (child, _pipe) = waiting(&["run", "wc", "-", "--deadline-ms", "300"]);
    let output = { child }.wait_with_output().expect("ours");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output), "diskside: /dev/stdin: the deadline passed while the call waited for more of it\n");
}

/// The files of /proc say that they have no bytes, and ran as if they were empty; those of /sys say a page, and failed as
/// shortened. Both are read to their end.
#[test]
fn files_that_the_kernel_makes_are_read_to_their_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for made in ["/proc/version", "/proc/filesystems", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let Ok(bytes) = std::fs::read(made) else { continue };
        let copy = dir.path().join("copy");
        std::fs::write(&copy, &bytes).expect("written");
        assert_eq!(good(&["run", "wc", made]), good(&["run", "wc", copy.to_str().expect("text")]), "{made}");
    }
    assert_eq!(good(&["run", "wc", "/dev/null"]), "lines  0\nwords  0\nbytes  0\n");
    assert_eq!(fed(&["run", "wc", "-"], b"").stdout, b"lines  0\nwords  0\nbytes  0\n");
}

#[test]
fn what_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let directory = text(dir.path());
    let told = format!(
        "diskside: {directory}: it is a directory, which has no bytes of its own: name the files in it, or --recursive takes all below it\n"
    );
    assert_eq!(diskside(&["run", "wc", &directory]), (4, Vec::new(), told));
    let socket = text(&dir.path().join("socket"));
    let _listener = UnixListener::bind(&socket).expect("a socket");
    let told = format!(
        "diskside: {socket}: it is a socket, where a program listens: let one connect to it and write into a pipe\n"
    );
    assert_eq!(diskside(&["run", "wc", &socket]), (4, Vec::new(), told));
    let (code, _, told) = diskside(&["run", "wc", "/dev/fd/77"]);
    assert_eq!((code, &told[..]), (4, "diskside: cannot open /dev/fd/77: No such file or directory (os error 2)\n"));
    let output = fed(&["run", "wc", "-", "--where", "device"], b"");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn standard_input_begins_where_others_left_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("lines.txt");
    std::fs::write(&path, "header\none\ntwo\n").expect("written");
    let mut file = std::fs::File::open(&path).expect("there");
    file.read_exact(&mut [0; 7]).expect("a header");
    let output = command(&["run", "wc", "-"]).stdin(file).output().expect("diskside runs");
    assert_eq!(output_of(&output), b"lines  2\nwords  2\nbytes  8\n");
}

#[test]
fn a_part_of_a_file_is_the_same_wherever_it_is() {
    let server = Server::start("");
    let path = server.file("numbers", &common::numbers(100_000));
    let (path, url) = (path.to_str().expect("text").to_owned(), server.at("numbers"));
    let part = server.file("part", &common::numbers(100_000)[8 * 1000..8 * 51_000]);
    let expected = good(&["run", "stats64", part.to_str().expect("text")]);
    let args = ["--offset", "8000", "--length", "400000", "--chunk", "64KiB"];
    for input in [&path, &url] {
        for place in ["auto", "host", "device"] {
            if place == "device" && input == &path {
                continue;
            }
            let told = good(&[&["run", "stats64", input, "--where", place][..], &args].concat());
            assert_eq!(told, expected, "{input} at {place}");
        }
    }
    let piped = fed(&[&["run", "stats64", "-"][..], &args].concat(), &common::numbers(100_000));
    assert_eq!(output_of(&piped), expected.as_bytes());
    // Of several files it is a part of each.
    let twice = good(&[&["run", "stats64", &path, &path, "--json"][..], &args].concat());
    let twice: serde_json::Value = serde_json::from_str(&twice).expect("JSON");
    assert_eq!(twice["stats"]["input_bytes"], 800_000, "{twice}");

    let out = server.dir.join("out");
    let into =
        ["run", "grep", "--arg", "pattern=two", "--offset", "4", "--length", "4", "--out", out.to_str().expect("text")];
    let text = server.file("text", b"one\ntwo\nthree\ntwo\n");
    good(&[&into[..], &[text.to_str().expect("text")]].concat());
    assert_eq!(std::fs::read(&out).expect("written"), b"two\n");
    good(&[&into[..8], &["--out", &server.at("remote"), &server.at("text")]].concat());
    assert_eq!(std::fs::read(server.dir.join("remote")).expect("written"), b"two\n");
}

#[test]
fn a_part_that_is_not_there_is_refused() {
    let server = Server::start("");
    let path = server.file("numbers", &common::numbers(100));
    let path = path.to_str().expect("text");
    let url = server.at("numbers");
    for input in [path, &url] {
        let told = format!("diskside: bytes 700..900 are not in {input}, which has 800\n");
        assert_eq!(diskside(&["run", "stats64", input, "--offset", "700", "--length", "200"]), (2, Vec::new(), told));
        let told = format!("diskside: bytes 801..801 are not in {input}, which has 800\n");
        assert_eq!(diskside(&["run", "stats64", input, "--offset", "801"]), (2, Vec::new(), told));
        let nothing = good(&["run", "stats64", input, "--offset", "800"]);
        assert!(nothing.starts_with("count  0\n"), "{nothing}");
    }
    for (args, range) in [(&["--offset", "801"][..], "801..801"), (&["--offset", "8", "--length", "1KiB"], "8..1032")] {
        let output = fed(&[&["run", "stats64", "-"], args].concat(), &common::numbers(100));
        assert_eq!(output.status.code(), Some(2));
        let told = format!("diskside: bytes {range} are not in /dev/stdin, which has 800\n");
        assert_eq!(said(&output), told);
    }
}
