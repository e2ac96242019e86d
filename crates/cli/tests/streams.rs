//! Standard output and standard error that are full, closed, a pipe that nobody reads, or no terminal.

mod common;

use common::{Process, Server, numbers};
use std::fs::File;
use std::process::{Command, Output, Stdio};

const DISKSIDE: &str = env!("CARGO_BIN_EXE_diskside");

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("every Linux has it").into()
}

/// A pipe that nobody reads any more.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Exit code and standard error.
fn ended(output: &Output) -> (i32, String) {
    (output.status.code().expect("ended by itself"), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A server with a file, a volume, and commands that print something.
fn commands(server: &Server) -> Vec<Vec<String>> {
    let local = server.file("n.u64", &numbers(1000)).display().to_string();
    let source = server.file("f.bpf.c", SOURCE).display().to_string();
    let (file, target) = (server.at("n.u64"), server.target().to_owned());
    let volume = format!("nvme-tcp://{}/{NQN}", target.strip_prefix("diskside://").expect("its scheme"));
    let commands: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["completions", "bash"],
        &["run", "stats64", &local],
        &["run", "stats64", &local, "--json"],
        &["run", "topk", &local],
        &["run", "grep", &local, "--arg", "pattern="],
        &["run", "stats64", &file],
        &["run", "grep", &file, "--arg", "pattern="],
        &["execute", &source, &local],
        &["functions"],
        &["functions", "stats64"],
        &["functions", "--helpers"],
        &["functions", &target],
        &["functions", "--json"],
        &["inspect", "stats64"],
        &["inspect", "stats64", "--code", "--ir"],
        &["verify", "stats64"],
        &["explain", "V0301"],
        &["serve", "--print-config"],
        &["discover", &volume],
        &["info", &volume],
        &["info", &volume, "--json"],
        &["ls", &target],
        &["ls", &server.url],
        &["cat", &file],
        &["stat", &file],
        &["top", &target],
        &["top", &target, "--json"],
        &["metrics", &target],
        &["ping", &format!("{volume}/1"), "--count", "1"],
    ];
    commands.iter().map(|command| command.iter().map(|word| (*word).to_owned()).collect()).collect()
}

const NQN: &str = "nqn.2026-11.io.diskside:streams";

const SOURCE: &[u8] = b"#include \"diskside.h\"\nSEC(\"exec/f\")\n\
    __s64 f(const struct ds_exec *call) { return 7; }\n";

fn server() -> Server {
    Server::start_with("", &["--nqn", NQN, "--volume", "v=mem:1MiB,rw"])
}

/// `diskside completions bash >/dev/full` panicked, and `--help` lost its text and exited with 0. A standard output that
/// cannot be written is an error of the environment, for every command.
#[test]
fn a_full_standard_output_is_an_error_of_every_command() {
    let server = server();
    for command in commands(&server) {
        let output = Command::new(DISKSIDE).args(&command).stdout(full()).output().expect("runs");
        let expected = "diskside: writing the output: No space left on device (os error 28)\n".to_owned();
        assert_eq!(ended(&output), (4, expected), "{command:?}");
    }
}

/// The reader has read enough: no message, and no failure.
#[test]
fn a_reader_that_went_away_ends_every_command_quietly() {
    let server = server();
    for command in commands(&server) {
        let output = Command::new(DISKSIDE).args(&command).stdout(unread()).output().expect("runs");
        assert_eq!(ended(&output), (0, String::new()), "{command:?}");
    }
}

/// A closed standard output is one that cannot be written; nothing else that is closed does harm.
#[test]
fn closed_streams_at_the_start_do_no_harm() {
    let server = server();
    for (closed, code) in [("<&- 2>&-", 0), ("<&- >&- 2>&-", 4)] {
        for command in commands(&server) {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$@\" {closed}"), "sh", DISKSIDE]).args(&command).stdout(Stdio::null());
            assert_eq!(shell.status().expect("runs").code(), Some(code), "{command:?} {closed}");
        }
    }
}

/// A message that could not be written was a panic, with an exit code of its own.
#[test]
fn a_standard_error_that_cannot_be_written_leaves_the_exit_code() {
    let server = server();
    let local = server.file("in", b"x\n").display().to_string();
    let broken = server.file("x.o", b"\x7fELF and no more").display().to_string();
    let (missing, out) = (server.dir.join("missing").display().to_string(), server.dir.display().to_string());
    let cases: &[(&[&str], i32)] = &[
        (&["run", "wc", &local, "--stats", "--explain"], 0),
        (&["run", "wc", &local, "--no-such-flag"], 2),
        (&["run", "stats65", &local], 2),
        (&["verify", &broken], 3),
        (&["run", "wc", &missing], 4),
        (&["run", "wc", &local, "--out", &out], 4),
    ];
    for (command, code) in cases {
        for stderr in [full(), unread()] {
            let ended = Command::new(DISKSIDE).args(*command).stdout(Stdio::null()).stderr(stderr).status();
            assert_eq!(ended.expect("runs").code(), Some(*code), "{command:?}");
        }
    }
}

/// A target works on when nobody reads its output.
#[test]
fn a_server_whose_output_is_not_read_serves() {
    let server = Server::start("");
    let port = server.target().rsplit(':').next().expect("a port").to_owned();
    let (dir, address) = (server.dir.clone(), format!("127.0.0.1:{port}"));
    std::fs::write(dir.join("f"), b"one\n").expect("written");
    let export = format!("data={}", dir.display());
    let Server { mut process, _temporary, .. } = server;
    process.kill();
    for stdout in [full(), unread()] {
        let mut command = Command::new(DISKSIDE);
        command.args(["serve", "--listen", &address, "--export", &export]).stdout(stdout).stderr(Stdio::piped());
        let mut again = Process(command.spawn().expect("runs"));
        let file = format!("diskside://{address}/data/f");
        common::until("it answers", || {
            let (code, out, _) = common::diskside(&["cat", &file]);
            code == 0 && out == b"one\n"
        });
        again.kill();
    }
}

/// A server's log in a pipe or a file had the escape sequences of a terminal's colours.
#[test]
fn logs_and_errors_have_colours_only_on_a_terminal() {
    let server = server();
    let run = |command: &[&str]| {
        let command = Command::new(DISKSIDE).args(command).env("DISKSIDE_LOG", "trace").output();
        String::from_utf8_lossy(&command.expect("runs").stderr).into_owned()
    };
    for command in [&["cat", &server.at("none")][..], &["run"], &["nothing"]] {
        let said = run(command);
        assert!(!said.is_empty() && !said.contains('\x1b'), "{said:?}");
    }
    let mut serve = Command::new(DISKSIDE);
    let export = format!("data={}", server.dir.display());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--export", &export]).env("DISKSIDE_LOG", "trace");
    let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("it says where");
    let url = line.split_whitespace().last().expect("its URL").to_owned();
    common::good(&["ls", &url]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .expect("it runs");
    let log = String::from_utf8_lossy(&child.wait_with_output().expect("ends").stderr).into_owned();
    assert!(log.contains("stopping") && !log.contains('\x1b'), "{log:?}");
}
