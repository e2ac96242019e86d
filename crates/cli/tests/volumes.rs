//! The volume commands against a real `diskside serve`: two processes, and nothing else between them than TCP.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const NQN: &str = "nqn.2026-11.org.example:cli";

/// A `diskside serve` process, stopped in good order at the end.
struct Server {
    child: Option<Child>,
    /// Kept open: it says a line for each volume.
    _stdout: BufReader<ChildStdout>,
    dir: tempfile::TempDir,
    address: String,
}

impl Server {
    /// Serves `volumes`, whose `DIR` is a directory of its own, with further `flags`.
    fn start(volumes: &[&str], flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--nqn", NQN, "--reactors", "1"]).args(flags);
        for volume in volumes {
            command.args(["--volume", &volume.replace("DIR", dir.path().to_str().expect("a path in UTF-8"))]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("diskside serves");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("it says what it serves");
        let (_, rest) = line.split_once("nvme-tcp://").unwrap_or_else(|| panic!("no URL in {line:?}"));
        let address = rest.split('/').next().expect("an address").to_owned();
        Self { child: Some(child), _stdout: stdout, dir, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn target(&self) -> String {
        format!("nvme-tcp://{}", self.address)
    }

    fn volume(&self, nsid: u32) -> String {
        format!("{}/{NQN}/{nsid}", self.target())
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
            let ended = child.wait().expect("our child");
            assert!(std::thread::panicking() || ended.success(), "serve ended with {ended}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Exit code, standard output and standard error.
fn diskside(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_diskside")).args(args).output().expect("diskside runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (output.status.code().expect("ended by itself"), text(&output.stdout), text(&output.stderr))
}

fn json(args: &[&str]) -> Value {
    let (code, out, said) = diskside(&[args, &["--json"]].concat());
    assert_eq!(code, 0, "{args:?}: {said}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?} printed no JSON: {error}: {out}"))
}

fn refused(args: &[&str], exit_code: i32, expected: &str) {
    let (code, out, said) = diskside(args);
    assert_eq!((code, out.as_str()), (exit_code, ""), "{args:?}: {said}");
    assert!(said.starts_with("diskside: ") || exit_code == 2, "{said}");
    assert!(said.contains(expected), "{args:?}: expected {expected:?} in {said:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Bytes that differ from block to block.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .flat_map(|i| (i / 128).wrapping_mul(2_654_435_761).rotate_left(i % 32).to_le_bytes())
        .take(len)
        .collect()
}

#[test]
fn what_is_copied_to_a_volume_is_in_its_file_and_comes_back() {
    let mut server = Server::start(&["data=DIR/data.img,size=3MiB,rw"], &[]);
    let (there, back) = (server.path("there"), server.path("back"));
    let bytes = pattern(3 << 20);
    std::fs::write(&there, &bytes).expect("written");
    let volume = server.volume(1);
    let copied = json(&["cp", text(&there), &volume, "--verify"]);
    assert_eq!((copied["bytes"].as_u64(), copied["verified"].as_bool()), (Some(3 << 20), Some(true)));
    for flags in [&[][..], &["--digests"], &["--queues", "2"]] {
        let (code, out, said) = diskside(&[&["cp", volume.as_str(), text(&back)], flags].concat());
        assert_eq!(code, 0, "{flags:?}: {said}");
        assert!(out.starts_with("3.0 MiB copied, "), "{out}");
        assert_eq!(std::fs::read(&back).expect("the copy"), bytes, "{flags:?}");
    }
    server.stop();
    assert_eq!(std::fs::read(server.path("data.img")).expect("the volume's file"), bytes);
}

#[test]
fn a_copy_that_fails_leaves_no_file_and_says_why() {
    let server = Server::start(&["small=mem:1MiB,rw", "fixed=mem:1MiB,ro"], &[]);
    let (long, back) = (server.path("long"), server.path("back"));
    std::fs::write(&long, pattern((1 << 20) + 512)).expect("written");
    refused(&["cp", text(&long), &server.volume(1)], 4, "long");
    refused(&["cp", text(&long), &server.volume(2)], 4, "the volume is read-only");
    refused(&["cp", &server.volume(3), text(&back)], 4, "namespace 3");
    assert!(!back.exists() && !server.path("back.partial").exists(), "nothing is left of a copy that failed");
}

#[test]
fn info_tells_the_subsystem_and_its_volumes() {
    let server = Server::start(&["a=mem:1MiB,block=512,rw", "b=mem:8MiB,ro"], &[]);
    let whole = json(&["info", &format!("{}/{NQN}", server.target())]);
    assert_eq!(whole["subsystem"], NQN);
    let volumes: Vec<_> = whole["volumes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| (v["nsid"].as_u64(), v["size_bytes"].as_u64(), v["block_bytes"].as_u64(), v["read_only"].as_bool()))
        .collect();
    let mib = |n: u64| Some(n << 20);
    assert_eq!(volumes, [(Some(1), mib(1), Some(512), Some(false)), (Some(2), mib(8), Some(4096), Some(true))]);
    assert_eq!(json(&["info", &server.volume(2)])["volumes"], serde_json::json!([whole["volumes"][1]]));
    let (code, out, said) = diskside(&["info", &server.volume(2)]);
    assert_eq!(code, 0, "{said}");
    assert!(out.contains("read-only") && out.contains("8.0 MiB") && !out.contains("1.0 MiB "), "{out}");
    refused(&["info", &server.volume(7)], 4, "7");
}

/// Operators of a slow server had to look for one line of its log, or for its metrics.
#[test]
fn info_tells_how_host_and_server_read_and_write() {
    let (server, mute) = (Server::start(&["a=mem:1MiB"], &[]), Server::start(&["a=mem:1MiB"], &["--no-compute"]));
    let whole = |server: &Server| format!("{}/{NQN}", server.target());
    let here = json(&["info", &whole(&server)])["io"].clone();
    // Both have this process's environment and this machine's kernel.
    assert!(here["host"] == "io_uring" || here["host"] == "posix", "{here}");
    assert_eq!(here["server"], here["host"]);
    let (_, out, _) = diskside(&["info", &whole(&server)]);
    let line = format!("io          host {0}, server {0}", here["host"].as_str().expect("a name"));
    assert!(out.lines().any(|said| said == line), "{out}");

    let of_mute = json(&["info", &whole(&mute)])["io"].clone();
    assert_eq!(of_mute, serde_json::json!({"host": here["host"], "server": null}), "no functions, no page");
    let (_, out, _) = diskside(&["info", &whole(&mute)]);
    assert!(out.contains(", server not known\n"), "{out}");
}

#[test]
fn discover_finds_what_info_then_takes() {
    let server = Server::start(&["a=mem:1MiB,rw"], &[]);
    let found = json(&["discover", &server.target()]);
    let subsystems = found["subsystems"].as_array().expect("a list");
    let ours = subsystems.iter().find(|s| s["nqn"] == NQN).unwrap_or_else(|| panic!("not in {found}"));
    assert_eq!((&ours["type"], &ours["transport"]), (&Value::from("nvm"), &Value::from("tcp")));
    let address = format!("{}:{}", ours["address"].as_str().unwrap_or("?"), ours["port"].as_str().unwrap_or("?"));
    assert_eq!(address, server.address);
    let (code, out, said) = diskside(&["discover", &server.target()]);
    assert_eq!(code, 0, "{said}");
    assert!(out.lines().any(|line| line.contains("nvm") && line.ends_with(NQN)), "{out}");
    assert_eq!(json(&["info", &format!("nvme-tcp://{address}/{NQN}")])["subsystem"], NQN);
}

#[test]
fn ping_reads_one_block_as_often_as_it_is_told() {
    let server = Server::start(&["a=mem:1MiB,block=4096,rw"], &[]);
    let args = ["ping", &server.volume(1), "-c", "3", "--interval-ms", "1"];
    let said = json(&args);
    assert_eq!(said["count"], 3);
    let at = |name: &str| said[name].as_u64().unwrap_or_else(|| panic!("no {name} in {said}"));
    assert!(at("min_us") <= at("median_us") && at("median_us") <= at("max_us"));
    let (code, out, _) = diskside(&args);
    assert_eq!((code, out.lines().count()), (0, 4));
    assert!(out.starts_with("read of 4096 bytes from nvme-tcp://"), "{out}");
}

#[test]
fn who_may_not_connect_and_who_is_not_there_are_told_apart() {
    const FRIEND: &str = "nqn.2026-11.org.example:friend";
    let mut server = Server::start(&["a=mem:1MiB,rw"], &["--hosts", FRIEND]);
    let volume = server.volume(1);
    assert_eq!(json(&["ping", &volume, "-c", "1", "--hostnqn", FRIEND])["count"], 1);
    refused(&["ping", &volume, "-c", "1"], 4, "Connect Invalid Host");
    refused(
        &["ping", &format!("{}/nqn.2026-11.org.example:other/1", server.target())],
        4,
        "there is no such subsystem",
    );
    refused(&["ping", "nvme-tcp://127.0.0.1"], 2, "nvme-tcp://host:port/NQN/NSID");
    refused(&["info", "http://127.0.0.1"], 2, "nvme-tcp");
    server.stop();
    refused(&["ping", &volume, "-c", "1", "--hostnqn", FRIEND], 4, &server.address);
}
