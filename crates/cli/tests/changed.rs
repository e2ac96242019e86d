//! Files that somebody changes while a function reads them: nobody is given a result that mixes two contents.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diskside::session::{FailureKind, RunOptions, Session, SessionError, SessionOptions, Where};

/// Bytes of the file: to read them takes a while.
const LEN: usize = 16 << 20;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    child: Child,
    dir: tempfile::TempDir,
    url: String,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("file"), vec![1; LEN]).expect("written");
        let export = format!("data={},rw", dir.path().display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_diskside"))
            .args(["serve", "--listen", "127.0.0.1:0", "--export", &export])
            .env("DISKSIDE_LLVM", "")
            .stdout(Stdio::piped())
            .spawn()
            .expect("diskside serves");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = said.find_map(|line| line.ok().filter(|line| line.contains("diskside://"))).expect("it says where");
        let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("a URL").to_owned();
        Self { child, dir, url }
    }

    /// Does it again and again while the file changes all the time, until it gives something.
    fn while_it_changes<T>(&self, mut act: impl FnMut() -> Option<T>) -> T {
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let file = OpenOptions::new().write(true).open(self.dir.path().join("file")).expect("it is there");
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    // The bytes that are there already: only the times of the file show the write.
                    file.write_all_at(&[1; 8], 64).expect("written");
                }
            });
            // On a busy machine the writer may not come in between.
            let began = Instant::now();
            let given = loop {
                match act() {
                    Some(given) => break Some(given),
                    None if began.elapsed() > PATIENCE => break None,
                    None => {}
                }
            };
            stop.store(true, Ordering::SeqCst);
            given.expect("nobody heard of a change")
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_command_over_a_file_that_changes_exits_with_4_and_says_so() {
    let server = Server::start();
    let url = format!("{}/file", server.url);
    let local = server.dir.path().join("file").display().to_string();
    for (path, place) in [(&url, "device"), (&url, "host"), (&url, "auto"), (&local, "auto")] {
        let command = ["run", "stats64", path, "--where", place];
        let (code, out, said) = server.while_it_changes(|| {
            let mut run = Command::new(env!("CARGO_BIN_EXE_diskside"));
            let output = run.args(command).env("XDG_STATE_HOME", "/dev/null/none").output().expect("diskside runs");
            (!output.status.success()).then(|| {
                (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
            })
        });
        let told = format!("diskside: {path} changed while it was read: its result would mix two versions");
        assert_eq!((code, said), (Some(4), told), "{command:?}");
        assert!(out.is_empty(), "{command:?}: nothing of a result is printed");
    }
    // When it stays as it is there is a result again.
    let here = Command::new(env!("CARGO_BIN_EXE_diskside")).args(["run", "stats64", &local]).output().expect("it runs");
    assert!(here.status.success());
}

/// By URL a function without effects ran again over a file that had changed, and over the same file here it failed.
#[test]
fn a_file_of_this_machine_that_changed_once_is_read_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; LEN]).expect("written");
    let source = dir.path().join("slow.bpf.c");
    let slow = "#include \"diskside.h\"\nstruct sum { __u64 value; };\nSEC(\"read/slow\")\n\
        __s64 slow(struct sum *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        for (volatile __u64 i = 0; i < 100000; i++);\n\
        for (__u64 i = 0; i < in_len / 8; i++) out->value += in[i];\nreturn sizeof(*out);\n}\n\
        SEC(\"combine/slow\")\n\
        __s64 fold(struct sum *acc, __u64 acc_len, __u64 cap, const struct sum *part, __u64 part_len) {\n\
        acc->value += part->value;\nreturn sizeof(*acc);\n}\n";
    std::fs::write(&source, slow).expect("written");
    let session = Session::new(SessionOptions::default());
    let function = session.function(&source).expect("it compiles");
    let file = session.open(&path.display().to_string()).expect("it is there");
    let progress = Arc::new(AtomicU64::new(0));
    let mut options = RunOptions { progress: Some(Arc::clone(&progress)), fold: true, ..RunOptions::default() };
    options.chunk_len = Some(64 << 10);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let file = OpenOptions::new().write(true).open(&path).expect("it is there");
            file.write_all_at(&7_u64.to_le_bytes(), 0).expect("written");
        });
        session.run(&[file], &function, &[], &options, None)
    });
    assert_eq!(ran.expect("it runs again").result, 7_u64.to_le_bytes());
}

#[test]
fn a_session_has_a_kind_for_a_file_that_changes() {
    let server = Server::start();
    let session = Session::new(SessionOptions::default());
    let function = session.function("stats64").expect("it is shipped");
    let file = session.open(&format!("{}/file", server.url)).expect("it is there");
    for place in [Where::Device, Where::Host] {
        let error = server.while_it_changes(|| {
            let options = RunOptions { place, ..RunOptions::default() };
            file.pread_fn(.., &function, &[], &options).wait().err()
        });
        assert_eq!(error.kind(), FailureKind::Changed, "{place:?}: {error}");
        assert!(matches!(error, SessionError::Changed(_)), "{place:?}: {error:?}");
        let told = format!("{}/file changed while it was read: its result would mix two versions", server.url);
        assert_eq!(error.to_string(), told, "{place:?}");
    }
}

/// Where each piece ends, and how long the file is said to be.
const ENDS: &str = r#"
#include "diskside.h"
DS_SPLIT_RECORDS(8);
DS_CONCATENATE;
struct end { __u64 source_len; __u64 at; };
SEC("read/ends")
__s64 ends(struct end *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    out->source_len = call->source_len;
    out->at = call->in_offset + in_len;
    return sizeof(*out);
}
"#;

/// A log that is written while it is read was an error at a server, and read to its end here. It is read to the length that it had
/// when that began, on both sides.
#[test]
fn a_file_that_only_grows_is_read_as_far_as_it_was() {
    let server = Server::start();
    let url = format!("{}/file", server.url);
    let local = server.dir.path().join("file").display().to_string();
    let ends = server.dir.path().join("ends.bpf.c");
    std::fs::write(&ends, ENDS).expect("written");
    let ends = ends.display().to_string();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut file = OpenOptions::new().append(true).open(&local).expect("it is there");
        scope.spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                std::io::Write::write_all(&mut file, &[1; 8]).expect("written");
            }
        });
        let mut read = Vec::new();
        for (path, place) in [(&url, "device"), (&url, "host"), (&url, "auto"), (&local, "auto")].repeat(2) {
            let before = std::fs::metadata(&local).expect("it is there").len();
            let command = ["run", "stats64", path, "--where", place, "--json"];
            let mut run = Command::new(env!("CARGO_BIN_EXE_diskside"));
            let output = run.args(command).env("XDG_STATE_HOME", "/dev/null/none").output().expect("diskside runs");
            let after = std::fs::metadata(&local).expect("it is there").len();
            read.push((path, place, output, before..=after));
        }
        // A server said the length that the file had by the time when it was opened there.
        let mut told = Vec::new();
        for (path, place) in [(&url, "device"), (&url, "host"), (&url, "auto"), (&local, "auto")].repeat(2) {
            let command = ["run", &ends, path, "--where", place, "--chunk", "4MB", "--json"];
            let mut run = Command::new(env!("CARGO_BIN_EXE_diskside"));
            let output = run.args(command).env("XDG_STATE_HOME", "/dev/null/none").output().expect("diskside runs");
            told.push((path, place, output));
        }
        stop.store(true, Ordering::SeqCst);
        for (path, place, output) in told {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{path} {place}: {said}");
            let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let rows = told["rows"].as_array().expect("rows");
            let len = &rows.last().expect("some")["at"];
            assert!(rows.len() > 4 && rows.iter().all(|row| &row["source_len"] == len), "{path} {place}: {told}");
        }
        for (path, place, output, lengths) in read {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{path} {place}: {said}");
            let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let len = 8 * told["rows"][0]["count"].as_u64().expect("a number");
            assert!(lengths.contains(&len), "{path} {place}: {len} of {lengths:?}");
        }
    });
}
