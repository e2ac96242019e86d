//! `diskside attach` and `detach` as processes, one of which is killed. Needs root.

mod common;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};

use common::Process;
use rustix::process::Signal;

const NQN: &str = "nqn.2026-11.org.example:attach";

fn detach(device: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diskside")).args(["detach", device]).output().expect("it runs")
}

/// Unmounts also when the test fails, so that the device can go.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(device: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        program("mount", &[device, directory.path().to_str().expect("a path")]);
        Self(directory)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

fn program(name: &str, args: &[&str]) {
    let output = Command::new(name).args(args).output().expect("it runs");
    assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A path is enough: the device tells its volume, and the function runs at the target, as long as nobody writes.
#[test]
fn a_function_finds_the_volume_of_a_mounted_file_by_itself() {
    if !is_possible() {
        return;
    }
    let (_server, line) =
        Process::start(&["serve", "--listen", "127.0.0.1:0", "--nqn", NQN, "--volume", "data=mem:64MiB,rw"]);
    let url = line.split_once(" at ").expect("a URL").1.to_owned();
    let (_attached, line) = Process::start(&["attach", &url]);
    let device = line.split_once(" is ").expect("a device").1.to_owned();
    program("mkfs.ext4", &["-q", &device]);
    let mount = Mount::new(&device);
    let path = mount.0.path().join("file");
    fs::write(&path, b"one line\nand another\n".repeat(10_000)).expect("written");
    let path = path.to_str().expect("a path");
    let run = |place: &str| {
        let args = ["run", "wc", path, "--where", place, "--explain", "--timeout-ms", "60000"];
        let output = Command::new(env!("CARGO_BIN_EXE_diskside")).args(args).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{err}");
        (out, err)
    };
    let (here, told) = run("host");
    assert!(told.contains("host: the data is here"), "{told}");
    let (there, told) = run("device");
    assert_eq!(there, here);
    assert!(told.contains("device") && !told.contains("file system"), "{told}");
    assert_eq!(run("auto").0, here);
    let writer = fs::OpenOptions::new().append(true).open(path).expect("open");
    let (there, told) = run("device");
    assert_eq!(there, here);
    assert!(told.contains("host, through the file system: someone has it open for writing"), "{told}");
    drop(writer);
    drop(mount);
    assert!(detach(&device).status.success());
}

/// The process that attached the volume is killed under a mounted file system: that fails like one whose disk was
/// pulled out, and comes back from its journal, with all that was durable, when the volume is attached again.
#[test]
fn a_file_system_comes_back_when_its_volume_is_attached_anew() {
    if !is_possible() {
        return;
    }
    let (_server, line) =
        Process::start(&["serve", "--listen", "127.0.0.1:0", "--nqn", NQN, "--volume", "data=mem:64MiB,rw"]);
    let url = line.split_once(" at ").expect("a URL").1.to_owned();
    let (mut attached, line) = Process::start(&["attach", &url]);
    let device = line.split_once(" is ").expect("a device").1.to_owned();
    program("mkfs.ext4", &["-q", &device]);
    let mount = Mount::new(&device);
    let path = mount.0.path().join("file");
    let bytes = vec![0x3c; 3 << 20];
    fs::write(&path, &bytes).and_then(|()| fs::File::open(&path)?.sync_all()).expect("durable");
    attached.signal(Signal::KILL);
    attached.0.wait().expect("our child");
    let gone = fs::OpenOptions::new().write(true).create(true).truncate(true).open(mount.0.path().join("more"));
    let gone = gone.and_then(|file| file.write_all_at(&bytes, 0).and_then(|()| file.sync_all()));
    gone.expect_err("nobody is there");
    drop(mount);
    let output = detach(&device);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let (_attached, line) = Process::start(&["attach", &url]);
    let device = line.split_once(" is ").expect("a device").1.to_owned();
    let mount = Mount::new(&device);
    assert!(fs::read(mount.0.path().join("file")).expect("read") == bytes, "what was durable is there");
    drop(mount);
    program("e2fsck", &["-f", "-n", &device]);
    assert!(detach(&device).status.success());
}

fn is_possible() -> bool {
    let usable = ["/dev/fuse", "/dev/loop-control"].into_iter().all(|path| Path::new(path).exists());
    let possible = rustix::process::geteuid().is_root() && usable;
    if !possible {
        eprintln!("NOT TESTED: attaching needs root, FUSE and loop devices");
    }
    possible
}

#[test]
fn a_device_goes_in_good_order_and_after_a_crash() {
    if !is_possible() {
        return;
    }
    let (_server, line) =
        Process::start(&["serve", "--listen", "127.0.0.1:0", "--nqn", NQN, "--volume", "data=mem:16MiB,rw"]);
    let url = line.split_once(" at ").expect("a URL").1.to_owned();

    // Killed: what was flushed is at the volume, the device fails, and can be taken away.
    let (mut attached, line) = Process::start(&["attach", &url]);
    let device = line.split_once(" is ").expect("a device").1.to_owned();
    assert!(device.starts_with("/dev/loop"), "{line}");
    let disk = fs::OpenOptions::new().read(true).write(true).open(&device).expect("open");
    disk.write_all_at(&[0x77; 1 << 20], 1 << 20).expect("written");
    disk.sync_all().expect("durable");
    attached.signal(Signal::KILL);
    attached.0.wait().expect("our child");
    disk.write_all_at(&[0x78; 4096], 0).and_then(|()| disk.sync_all()).expect_err("nobody is there");
    drop(disk);
    let output = detach(&device);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // Detached by another process: the one that serves ends well.
    let (mut attached, line) = Process::start(&["attach", &url, "--read-only"]);
    let device = line.split_once(" is ").expect("a device").1.to_owned();
    let disk = fs::File::open(&device).expect("open");
    let mut bytes = vec![0; 1 << 20];
    disk.read_exact_at(&mut bytes, 1 << 20).expect("read");
    assert!(bytes.iter().all(|byte| *byte == 0x77), "what was flushed before the crash is there");
    drop(disk);
    assert!(detach(&device).status.success());
    assert!(attached.0.wait().expect("our child").success());

    // Interrupted.
    let (mut attached, _) = Process::start(&["attach", &url]);
    attached.signal(Signal::TERM);
    assert!(attached.0.wait().expect("our child").success());

    let output = detach("/dev/null");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/null shows no attached volume"));
}
