//! Copies onto volumes: what they refuse to overwrite, and what they do when the target is killed meanwhile.

mod common;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{diskside, good, until};
use rustix::process::{Pid, Signal, kill_process};

const NQN: &str = "nqn.2026-11.org.example:copies";
const MIB: usize = 1 << 20;
/// Less than what is written between two flushes, so nothing is durable before the end.
const LEN: usize = 60 * MIB;
const KILLS: usize = 12;

/// A server of the volume `data.img` in a directory.
struct Server {
    child: Child,
    /// Kept open: it says more lines.
    _stdout: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(address: &str, image: &Path) -> Self {
        let volume = format!("data={},size={}MiB,rw", image.display(), LEN / MIB);
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        command.args(["serve", "--listen", address, "--nqn", NQN, "--reactors", "1", "--volume", &volume]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("diskside serves");
        let (mut line, mut stdout) = (String::new(), BufReader::new(child.stdout.take().expect("piped")));
        stdout.read_line(&mut line).expect("it says what it serves");
        let (_, rest) = line.split_once("nvme-tcp://").unwrap_or_else(|| panic!("no URL in {line:?}"));
        let address = rest.split('/').next().expect("an address").to_owned();
        Self { child, _stdout: stdout, address }
    }

    fn url(&self) -> String {
        format!("nvme-tcp://{}/{NQN}/1", self.address)
    }

    fn kill(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Files {
    dir: tempfile::TempDir,
    image: PathBuf,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = dir.path().join("data.img");
        Self { dir, image }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    }

    /// Makes the volume zeroes, as a controller's cache that lost all it had.
    fn forget(&self) {
        let image = File::options().write(true).open(&self.image).expect("it is there");
        image.set_len(0).and_then(|()| image.set_len(LEN as u64)).expect("it is ours");
    }

    /// Whether all of it is there, so that a flush may have succeeded.
    fn hold(&self, bytes: &[u8]) -> bool {
        std::fs::read(&self.image).expect("it is there") == bytes
    }

    fn has_begun(&self) -> bool {
        let mut first = [0];
        File::open(&self.image).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first[0] != 0
    }
}

/// A target that was killed twelve times in a row made a copy fail at its last byte: the flush at the end said that writes might be
/// lost, and nobody wrote them again. Now what no flush covers is written again.
#[test]
fn what_no_flush_covered_is_written_again_after_each_kill() {
    let files = Files::new();
    let bytes: Vec<u8> =
        (0..LEN / 8).flat_map(|n| ((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes()).collect();
    let source = files.file("source", &bytes);
    let mut server = Server::start("127.0.0.1:0", &files.image);
    let (url, address) = (server.url(), server.address.clone());
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    let mut copy = command.args(["cp", &source, &url]).stderr(Stdio::piped()).spawn().expect("it runs");
    let pid = Pid::from_child(&copy);
    let mut kills = 0;
    while kills < KILLS {
        let mut has_ended = false;
        until("it writes or ends", || {
            has_ended = copy.try_wait().expect("our child").is_some();
            has_ended || files.has_begun()
        });
        if has_ended {
            break;
        }
        // It cannot end while the target is killed, and what was not flushed is gone.
        kill_process(pid, Signal::STOP).expect("our child");
        if copy.try_wait().expect("our child").is_none() {
            server.kill();
            // When all of it is there, it may have been flushed, and must not be lost.
            if !files.hold(&bytes) {
                files.forget();
            }
            server = Server::start(&address, &files.image);
            kills += 1;
        }
        kill_process(pid, Signal::CONT).expect("our child");
    }
    let ended = copy.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "after {kills} kills: {}", String::from_utf8_lossy(&ended.stderr));
    assert!(kills > 0, "the copy was over before the target could be killed");
    server.kill();
    assert!(files.hold(&bytes), "after {kills} kills bytes are missing");
}

#[test]
fn a_volume_that_holds_something_is_overwritten_only_with_force() {
    let files = Files::new();
    let server = Server::start("127.0.0.1:0", &files.image);
    let url = server.url();
    let mut ext4 = vec![0; MIB];
    ext4[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    let (short, ext4, new) = (files.file("short", &[7; 100]), files.file("ext4", &ext4), files.file("new", &[9; MIB]));
    let refused = |holds: &str| {
        let (code, out, said) = diskside(&["cp", &new, &url]);
        let told = format!("diskside: {url} holds {holds}, which the copy would overwrite; --force does\n");
        assert_eq!((code, out, said), (2, Vec::new(), told));
    };
    // What is all zero is nobody's loss.
    good(&["cp", &ext4, &url, "--verify"]);
    refused("an ext2, ext3 or ext4 file system");
    good(&["cp", &short, &url, "--force"]);
    refused("an ext2, ext3 or ext4 file system");
    good(&["cp", &new, &url, "--force", "--verify"]);
    // What is behind the copy is not in its way.
    files.forget();
    let image = File::options().write(true).open(&files.image).expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&image, b"x", 2 * MIB as u64).expect("room");
    good(&["cp", &new, &url]);
    refused("data, from byte 0 on");
    files.forget();
    std::os::unix::fs::FileExt::write_all_at(&image, b"x", 5000).expect("room");
    refused("data, from byte 5000 on");
}

/// A FIFO and a file of /proc were copied as files of 0 bytes, with exit code 0.
#[test]
fn what_comes_as_a_stream_is_copied_to_its_end() {
    let files = Files::new();
    let server = Server::start("127.0.0.1:0", &files.image);
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let bytes: Vec<u8> = (0..3 * MIB + 12_345).map(|at| (at / 7 * 31) as u8).collect();
    let fifo = path("fifo");
    let from_fifo = |to: &[&str]| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("made");
        let (feed, bytes) = (fifo.clone(), bytes.clone());
        let feeder = std::thread::spawn(move || std::fs::write(feed, bytes).expect("read to its end"));
        let out = good(&[&["cp", &fifo][..], to].concat());
        feeder.join().expect("no panic");
        std::fs::remove_file(&fifo).expect("it stayed a FIFO");
        out
    };
    from_fifo(&[&path("copy")]);
    assert!(std::fs::read(path("copy")).expect("made") == bytes);
    let export = common::Server::start("");
    from_fifo(&[&export.at("copy")]);
    assert!(std::fs::read(export.dir.join("copy")).expect("made") == bytes);
    // The last block keeps what the volume has behind the stream.
    from_fifo(&[&server.url()]);
    let image = std::fs::read(&files.image).expect("it is there");
    assert!(image[..bytes.len()] == bytes[..] && image[bytes.len()..].iter().all(|byte| *byte == 0));
    let pipe = common::fed(&["cp", "-", &path("piped")], &bytes);
    assert!(common::output_of(&pipe).ends_with(b"/s\n") && std::fs::read(path("piped")).expect("made") == bytes);
    good(&["cp", "/proc/self/limits", &path("limits")]);
    assert!(std::fs::read_to_string(path("limits")).expect("made").starts_with("Limit "));
    assert!(good(&["cp", "/proc/self/limits", "-"]).starts_with("Limit "));
    // What cannot be, says why.
    let (code, _, said) = diskside(&["cp", "/proc/self/limits", &path("limits"), "--verify"]);
    assert!(code == 2 && said.contains("what can be read only once cannot be verified"), "{code}: {said}");
    let pipe = common::fed(&["cp", "-", &dir.path().display().to_string()], b"x");
    let told = "standard input has no name: name the file to write";
    assert!(pipe.status.code() == Some(2) && common::said(&pipe).contains(told), "{}", common::said(&pipe));
}
