//! An export on a disk that is full: what commands and functions that write there say, and what they leave.
//!
//! The disk is a small file system in memory that only the server sees. It can be mounted as root, or where the kernel lets users
//! have namespaces; elsewhere nothing is tested.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use diskside::ExportUrl;
use diskside::host::function::{Endpoint, EndpointKind, FunctionError, FunctionKind, FunctionRequest};
use diskside::io::buffer::Buffer;
use diskside::session::{Session, SessionOptions};
use diskside::wire::file::FileFlags;
use diskside::wire::function::{Outcome, Placement};

const MIB: usize = 1 << 20;
/// Bytes of the disk.
const DISK: usize = 8 * MIB;
const BEFORE: &[u8] = b"what was there before";
const FULL: &str = "No space left on device (os error 28)";

/// A server of `data` on the small disk, and of `other`, which is not.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
    url: String,
}

impl Server {
    /// `None`: it cannot be mounted here.
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["small", "large"] {
            std::fs::create_dir(dir.path().join(name)).expect("made");
        }
        let mount = format!("mount -t tmpfs -o size={DISK} none \"$0\" && exec \"$@\"");
        let unshare = |args: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(args).args(["sh", "-c", &mount]).arg(dir.path().join("small"));
            command
        };
        let ways: [&[&str]; 2] = [&["--mount"], &["--mount", "--map-root-user"]];
        let can = |args: &&[&str]| {
            let tried = unshare(args).arg("true").stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        };
        let Some(way) = ways.into_iter().find(can) else {
            eprintln!("NOT TESTED: no file system can be mounted here");
            return None;
        };
        let export = |name: &str, at: &str| format!("{name}={},rw", dir.path().join(at).display());
        let mut child = unshare(way)
            .args([env!("CARGO_BIN_EXE_diskside"), "serve", "--listen", "127.0.0.1:0"])
            .args(["--export", &export("data", "small"), "--export", &export("other", "large")])
            .env("DISKSIDE_LLVM", "")
            .stdout(Stdio::piped())
            .spawn()
            .expect("diskside serves");
        // A line for each export, all of which it must be able to say.
        let said = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let lines: Vec<String> = said.filter(|line| line.contains("diskside://")).take(2).collect();
        let url = lines[0].split_whitespace().find(|word| word.starts_with("diskside://")).expect("a URL");
        let url = url.strip_suffix("/data").expect("the export's name").to_owned();
        Some(Self { child, dir, url })
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    fn large(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join("large").join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// Makes a file on the small disk. A removed file takes its room until the target has closed it, which it does when
    /// it hears that its host has gone.
    fn put(&self, name: &str, bytes: &[u8]) {
        let (from, to) = (self.large(name, bytes).display().to_string(), self.at(&format!("data/{name}")));
        let began = Instant::now();
        loop {
            let (code, _, said) = diskside(&["cp", &from, &to]);
            if code == 0 {
                return;
            }
            assert!(said.contains(FULL) && began.elapsed() < Duration::from_secs(60), "{said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Names on the small disk.
    fn names(&self) -> Vec<String> {
        let (code, out, said) = diskside(&["ls", &self.at("data"), "--json"]);
        assert_eq!(code, 0, "{said}");
        let listed: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        let entries = listed["entries"].as_array().expect("a list");
        entries.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    }

    fn content(&self, name: &str) -> Vec<u8> {
        let (code, out, said) = diskside(&["cat", &self.at(&format!("data/{name}"))]);
        assert_eq!(code, 0, "{said}");
        out
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exit code, standard output, standard error.
fn diskside(args: &[&str]) -> (i32, Vec<u8>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    let output = command.args(args).env("XDG_STATE_HOME", "/dev/null/none").output().expect("diskside runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("ended by itself"), output.stdout, said)
}

fn words(len: usize) -> Vec<u8> {
    (0..len as u64 / 8).flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

#[test]
fn commands_that_fill_a_disk_say_so_and_leave_nothing() {
    let Some(server) = Server::start() else { return };
    let large = server.large("large", &words(2 * DISK)).display().to_string();
    // Expanded 32 times it has no room either.
    let runs = server.large("runs", &[64, 7].repeat(DISK / 32)).display().to_string();
    let (made, runs_there) = (server.at("data/made"), server.at("other/runs"));
    let commands: [&[&str]; 6] = [
        &["cp", &large, &made],
        &["cp", &large, &made, "--verify"],
        &["run", "bitmap", &runs_there, "--out", &made, "--where", "device"],
        &["run", "bitmap", &runs_there, "--out", &made, "--where", "host"],
        &["run", "bitmap", &runs_there, "--out", &made],
        &["run", "bitmap", &runs, "--out", &made],
    ];
    for command in commands {
        let (code, _, said) = diskside(command);
        assert_eq!(code, 4, "{command:?}: {said}");
        assert!(said.contains(FULL) && said.contains("made"), "{command:?}: {said}");
        if command[0] == "cp" {
            // It named two: where its own piece began, and the part that the server had refused last of several under way.
            let expected = format!("diskside: {large} to {made}: writing the destination at byte ");
            let position = said.strip_prefix(&expected).and_then(|rest| rest.strip_suffix(&format!(": {FULL}\n")));
            let position: usize = position.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{said}"));
            assert!(position <= DISK, "{said}");
        }
        assert_eq!(server.names(), Vec::<String>::new(), "{command:?} left something");
    }
    // What was there stays, and what has room is written.
    server.put("made", BEFORE);
    for command in commands {
        assert_eq!(diskside(command).0, 4, "{command:?}");
        assert_eq!((server.names(), server.content("made")), (vec!["made".to_owned()], BEFORE.to_vec()), "{command:?}");
    }
}

const SOURCE: &str = r#"
#include "diskside.h"
DS_OUTPUT(1, 1, 0);

/* Gives back its input. */
DS_CONCATENATE;

SEC("write/same")
__s64 same(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    ds_memcpy(out, in, in_len);
    return in_len;
}
"#;

/// A function's output by each way of writing a file: the errno, how much of it is durable, and what is in the file then.
#[test]
fn output_that_fills_a_disk_says_how_much_of_it_is_durable() {
    let Some(server) = Server::start() else { return };
    let source = server.dir.path().join("same.bpf.c");
    std::fs::File::create(&source).and_then(|mut file| file.write_all(SOURCE.as_bytes())).expect("written");
    let input = words(2 * DISK);
    for placement in [Placement::InPlace, Placement::Append, Placement::Replace] {
        server.put("out", BEFORE);
        let error = write(&server, &source, placement, &input);
        let FunctionError::Failed(trailer) = &error else { panic!("{placement:?}: {error}") };
        let told = format!("{placement:?}: {trailer:?}");
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Errno, -28), "{told}");
        assert!(trailer.message.ends_with(FULL), "{told}");
        assert!(trailer.message.contains("data/out"), "the file is named: {told}");
        assert_eq!(server.names(), ["out"], "{told}");
        let after = server.content("out");
        if placement == Placement::InPlace {
            // All that the disk took, of which the call knows.
            let len = trailer.durable as usize;
            assert!(len > DISK / 2 && len <= DISK, "{told}");
            assert_eq!(trailer.media_written, trailer.durable, "{told}");
            assert!(after.len() >= len && after[..len] == input[..len], "{told}");
        } else {
            assert_eq!(trailer.durable, 0, "{told}");
            assert!(after == BEFORE, "{told}: {} bytes", after.len());
        }
        assert_eq!(diskside(&["rm", &server.at("data/out")]).0, 0);
    }
}

fn write(server: &Server, source: &Path, placement: Placement, input: &[u8]) -> FunctionError {
    let session = Session::new(SessionOptions::default());
    let function = session.function(source).expect("it compiles");
    let url = server.at("data/out").parse::<ExportUrl>().expect("a URL");
    let files = session.files(&url).expect("the target has exports");
    let file = files.open(b"data/out", FileFlags::READ_WRITE).expect("it is there");
    let program = files.compute().load(function.object()).expect("it is good");
    let request = FunctionRequest {
        program_id: function.hash(),
        sources: vec![Endpoint::whole(EndpointKind::HostStream)],
        sinks: vec![Endpoint { placement, durable: true, ..file.endpoint(0, Endpoint::TO_END) }],
        ..FunctionRequest::new(FunctionKind::Write, program.index)
    };
    let call = files.compute().call_with(&request, vec![Buffer::copy_of(input)]);
    call.wait().map(|ended| ended.trailer).expect_err("the disk is full")
}
