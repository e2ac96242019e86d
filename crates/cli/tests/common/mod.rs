//! Real `diskside` processes for tests.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

pub mod place;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that says a line and stays; killed at the end.
pub struct Process(pub Child);

/// Lines that a process said.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// Those with all of this in them.
    pub fn lines(&self, parts: &[&str]) -> Vec<String> {
        let lines = self.0.lock().expect("no panic");
        lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
    }

    /// Waits for one of them.
    pub fn line(&self, parts: &[&str]) -> String {
        until(&format!("a line with {parts:?}"), || !self.lines(parts).is_empty());
        self.lines(parts).remove(0)
    }
}

/// A server of one directory, as `data`.
pub struct Server {
    pub process: Process,
    pub dir: PathBuf,
    pub url: String,
    pub _temporary: Option<tempfile::TempDir>,
}

impl Process {
    /// Starts it, and gives its first line. It has no LLVM.
    pub fn start(args: &[&str]) -> (Self, String) {
        Self::start_until(args, "")
    }

    /// Starts it, and gives its first line that has this in it.
    pub fn start_until(args: &[&str], wanted: &str) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        let mut child =
            command.args(args).env("DISKSIDE_LLVM", "").stdout(Stdio::piped()).spawn().expect("diskside runs");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = said.find_map(|line| line.ok().filter(|line| line.contains(wanted))).expect("it says a line");
        (Self(child), line.trim_end().to_owned())
    }

    /// The same, with what it says on standard error from then on.
    pub fn start_heard(args: &[&str], wanted: &str) -> (Self, String, Heard) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        let command = command.args(args).env("DISKSIDE_LLVM", "").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("diskside runs");
        let heard = Heard::default();
        let (mut log, lines) = (BufReader::new(child.stderr.take().expect("piped")).lines(), heard.clone());
        std::thread::spawn(move || {
            while let Some(Ok(line)) = log.next() {
                eprintln!("{line}");
                lines.0.lock().expect("no panic").push(line);
            }
        });
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = said.find_map(|line| line.ok().filter(|line| line.contains(wanted))).expect("it says a line");
        (Self(child), line.trim_end().to_owned(), heard)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    pub fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is ours");
    }
}

/// Asks a command to end.
pub fn stop(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).expect("it runs");
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Serves a directory of its own. `options` are those of the export, which may be changed unless they say `,ro`.
    pub fn start(options: &str) -> Self {
        Self::start_with(options, &[])
    }

    /// With more arguments of the command.
    pub fn start_with(options: &str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let server = Self::of(dir.path(), options, args);
        Self { _temporary: Some(dir), ..server }
    }

    /// Serves a directory that is there, and stays.
    pub fn of(dir: &Path, options: &str, args: &[&str]) -> Self {
        Self::listening("127.0.0.1:0", dir, options, args)
    }

    /// The same, at an address.
    pub fn listening(address: &str, dir: &Path, options: &str, args: &[&str]) -> Self {
        let access = if options.contains(",ro") { "" } else { ",rw" };
        let export = format!("data={}{access}{options}", dir.display());
        let serve = ["serve", "--listen", address, "--export", &export];
        let (process, line) = Process::start_until(&[&serve, args].concat(), "diskside://");
        let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("it says where");
        Self { process, dir: dir.to_owned(), url: url.to_owned(), _temporary: None }
    }

    /// Makes a file.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// The URL of a file.
    pub fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// The URL of the target.
    pub fn target(&self) -> &str {
        self.url.strip_suffix("/data").expect("the export's name")
    }
}

/// A command whose output is kept, and which knows nothing that another one learnt.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    command.args(args).env("XDG_STATE_HOME", "/dev/null/none").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command whose standard input is a pipe of these bytes.
pub fn fed(args: &[&str], bytes: &[u8]) -> Output {
    let mut child = command(args).stdin(Stdio::piped()).spawn().expect("diskside runs");
    let (mut pipe, bytes) = (child.stdin.take().expect("piped"), bytes.to_vec());
    // Who needs no more of it closes the pipe.
    let feeder = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
    let output = child.wait_with_output().expect("it is ours");
    feeder.join().expect("no panic");
    output
}

/// What a command printed that succeeded.
pub fn output_of(output: &Output) -> &[u8] {
    assert!(output.status.success(), "{}", said(output));
    &output.stdout
}

/// What it said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Exit code, standard output, standard error.
pub fn diskside(args: &[&str]) -> (i32, Vec<u8>, String) {
    // Nothing can be kept there, so no command knows what another one learnt.
    diskside_with_state("/dev/null/none", args)
}

/// The same, with what was learnt kept in a directory.
pub fn diskside_with_state(state: &str, args: &[&str]) -> (i32, Vec<u8>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    let output = command.args(args).env("XDG_STATE_HOME", state).output().expect("diskside runs");
    (
        output.status.code().expect("ended by itself"),
        output.stdout,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// What a command prints that succeeds.
pub fn good(args: &[&str]) -> String {
    let (code, out, said) = diskside(args);
    assert_eq!(code, 0, "{args:?}: {said}");
    String::from_utf8(out).expect("text")
}

pub fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&good(&[args, &["--json"]].concat())).expect("JSON")
}

/// So many numbers of eight bytes.
pub fn numbers(count: u64) -> Vec<u8> {
    (0..count).flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).to_le_bytes()).collect()
}

/// Waits until it is so; what is waited for happens in any case.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never was so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
