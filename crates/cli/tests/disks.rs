//! Disks that hang, fail or go away below the volumes and exports of a server, and what others notice: nothing. The disk is a volume that
//! is attached here, whose program is stopped or killed, or whose own image loses its end. Needs root.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{Heard, Process, diskside, good, numbers, output_of, said};
use diskside::host::{ConnectOptions, Volume};
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo as _, Outcome, Request, block_on};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};

const NQN: &str = "nqn.2026-11.org.example:disks";
const BROKEN: &str = "Input/output error (os error 5)";
const MIB: usize = 1 << 20;
/// Longer than anything takes that need not wait for the disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// A volume that is attached here, with a file system on it.
struct Disk {
    attached: Process,
    _server: Process,
    device: String,
    dir: tempfile::TempDir,
}

/// It hangs as long as this is there.
struct Hang(Pid);

impl Disk {
    fn new() -> Option<Self> {
        let usable = ["/dev/fuse", "/dev/loop-control"].into_iter().all(|path| Path::new(path).exists());
        if !usable || !rustix::process::geteuid().is_root() {
            eprintln!("NOT TESTED: attaching needs root, FUSE and loop devices");
            return None;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["disk", "calm"] {
            fs::create_dir(dir.path().join(name)).expect("made");
        }
        let volume = format!("disk={},rw,size=64MiB", dir.path().join("image").display());
        let (server, line) = Process::start(&["serve", "--listen", "127.0.0.1:0", "--nqn", NQN, "--volume", &volume]);
        let url = line.split_once(" at ").expect("a URL").1.to_owned();
        let (attached, line) = Process::start(&["attach", &url]);
        let device = line.split_once(" is ").expect("a device").1.to_owned();
        let disk = Self { attached, _server: server, device, dir };
        program("mkfs.ext4", &["-q", &disk.device]);
        program("mount", &[&disk.device, disk.at("disk").to_str().expect("text")]);
        Some(disk)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The file below the loop device, whose reads and writes go to the program that is stopped.
    fn file(&self) -> PathBuf {
        let name = self.device.strip_prefix("/dev/").expect("a device");
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).expect("attached");
        file.trim_end().into()
    }

    /// Makes a file that is on the disk, and nowhere else.
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.at("disk").join(name);
        fs::write(&path, bytes).expect("written");
        self.forget(name);
    }

    fn forget(&self, name: &str) {
        let file = File::open(self.at("disk").join(name)).expect("it is there");
        file.sync_all().expect("durable");
        fadvise(&file, 0, None, Advice::DontNeed).expect("forgotten");
    }

    /// Nothing of it is answered until what this returns is dropped.
    fn hang(&self) -> Hang {
        self.attached.signal(Signal::STOP);
        // Each of its threads stops when it comes to it, which takes a while on a busy machine.
        let tasks = format!("/proc/{}/task", self.attached.0.id());
        let is_stopped = |status: String| status.contains("State:\tT");
        let all_stopped = || {
            let mut tasks = fs::read_dir(&tasks).expect("it runs").flatten();
            tasks.all(|task| fs::read_to_string(task.path().join("status")).is_ok_and(is_stopped))
        };
        while !all_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Hang(Pid::from_child(&self.attached.0))
    }

    /// Nothing that lies behind so many bytes of its image can be read any more.
    fn cut(&self, len: u64) {
        OpenOptions::new().write(true).open(self.at("image")).and_then(|image| image.set_len(len)).expect("cut");
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also when a test failed half way: what is left fails or goes by itself.
        let _ = Command::new("umount").arg("-l").arg(self.at("disk")).output();
        let _ = Command::new(env!("CARGO_BIN_EXE_diskside")).args(["detach", &self.device]).output();
    }
}

fn program(name: &str, args: &[&str]) {
    let output = Command::new(name).args(args).output().expect("it runs");
    assert!(output.status.success(), "{name} {args:?}: {}", said(&output));
}

/// Does something on a thread: a disk that hangs fails a test, and does not hang it.
fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    // Nobody may wait for it any more.
    std::thread::spawn(move || drop(sender.send(work())));
    receiver
}

fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    begin(work).recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} waits for a disk of others, or failed"))
}

// -- volumes ----------------------------------------------------------------------------------------------------------

/// A server with a volume at `hung`, and one that is not there.
struct Volumes {
    process: Process,
    target: String,
}

impl Volumes {
    fn start(hung: &str, calm: &Path) -> Self {
        let calm = format!("calm={},rw,size=16MiB", calm.display());
        let volumes = ["--reactors", "1", "--user", "root", "--volume", hung, "--volume", &calm];
        let serve = ["serve", "--listen", "127.0.0.1:0", "--nqn", NQN];
        let (process, line) = Process::start_until(&[&serve[..], &volumes].concat(), "calm");
        let url = line.split_once(" at ").expect("a URL").1;
        Self { process, target: url.rsplit_once('/').expect("a volume of a subsystem").0.to_owned() }
    }

    fn volume(&self, nsid: u32) -> Volume {
        let url = format!("{}/{nsid}", self.target).parse().expect("a URL");
        Volume::connect(&url, &ConnectOptions::default()).expect("connected")
    }

    /// The kernel's threads for what a ring must not wait for.
    fn workers(&self) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.0.id())).expect("it runs");
        let names = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("iou-wrk")).count()
    }
}

fn submit(volume: &Volume, request: Request) -> Receiver<Outcome> {
    let future = volume.submit(request);
    begin(move || block_on(future))
}

fn is_calm(volume: &Volume) {
    let write = Request::Write { offset: 0, buffer: Buffer::zeroed(MIB), durable: false };
    let read = Request::Read { offset: 0, buffer: Buffer::zeroed(MIB) };
    for request in [write, Request::Flush, read, Request::WriteZeroes { offset: 0, len: MIB as u64 }] {
        let what = format!("{request:?}").chars().take(20).collect::<String>();
        let outcome = submit(volume, request).recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} waits"));
        outcome.into_result().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// Flushes of a disk that hung took all threads that the kernel has for a ring, so that those of other volumes waited. A file of FUSE needs
/// such threads for all operations. (Recent kernels give it some without being asked: the test holds there with and without `IOSQE_ASYNC`.)
#[test]
fn a_disk_that_hangs_below_a_volume_takes_a_few_threads_of_the_kernel_and_nothing_of_others() {
    let Some(disk) = Disk::new() else { return };
    let on_file_system = disk.at("disk/volume");
    // Where it is a file of FUSE, even beginning an operation waits, so that all of them are given to threads.
    let cases = [
        (format!("hung={},rw", disk.file().display()), 16, true),
        (format!("hung={},rw,buffered", disk.file().display()), 16, true),
        (format!("hung={},rw,size=16MiB", on_file_system.display()), 2, false),
    ];
    for (spec, workers_max, with_reads) in cases {
        let server = Volumes::start(&spec, &disk.at("calm/volume"));
        let [hung, calm] = [1, 2].map(|nsid| server.volume(nsid));
        is_calm(&calm);
        let is_uring = common::json(&["info", &server.target])["io"]["server"] == "io_uring";
        let hang = disk.hang();
        let mut open: Vec<_> = (0..24).map(|_| submit(&hung, Request::Flush)).collect();
        if with_reads {
            let read = |n: u64| Request::Read { offset: (8 + n) * MIB as u64, buffer: Buffer::zeroed(4096) };
            open.extend((0..24).map(|n| submit(&hung, read(n))));
        }
        for _ in 0..5 {
            is_calm(&calm);
        }
        assert!(open.iter().all(|one| one.try_recv().is_err()), "{spec}: it does not hang");
        // The other volume has two at most.
        let workers = server.workers();
        assert!(workers <= workers_max + 2, "{spec}: {workers}");
        assert!(!is_uring || workers > 0, "{spec}: nothing was given to a thread");
        drop(hang);
        for one in open {
            let ended = one.recv_timeout(PATIENCE).expect("it hangs no more");
            ended.into_result().unwrap_or_else(|error| panic!("{spec}: {error}"));
        }
        is_calm(&calm);

        // The server ends although a read hangs; asked twice, at once. A thread of the kernel that hangs for it keeps any process.
        if with_reads {
            continue;
        }
        let write = Request::Write { offset: 9 * MIB as u64, buffer: Buffer::zeroed(4096), durable: false };
        let written = submit(&hung, write).recv_timeout(PATIENCE).expect("it does not hang yet");
        written.into_result().expect("written");
        let hang = disk.hang();
        let open = submit(&hung, Request::Read { offset: 9 * MIB as u64, buffer: Buffer::zeroed(4096) });
        is_calm(&calm);
        assert!(open.try_recv().is_err(), "{spec}: it does not hang");
        for _ in 0..2 {
            common::stop(&server.process.0);
            std::thread::sleep(Duration::from_millis(300));
        }
        let mut process = server.process;
        let status = soon("the server", move || process.0.wait().expect("it is ours"));
        assert!(status.success(), "{spec}: {status}");
        drop(hang);
    }
}

// -- exports ----------------------------------------------------------------------------------------------------------

/// A server of two directories: one on the disk, as `hung`, and `calm`.
struct Exports {
    process: Process,
    url: String,
    log: Heard,
}

impl Exports {
    fn start(disk: &Disk) -> Self {
        fs::write(disk.at("calm/f"), numbers(1000)).expect("written");
        let export = |name: &str, at: &str| format!("{name}={},rw", disk.at(at).display());
        let exports = ["--export", &export("hung", "disk"), "--export", &export("calm", "calm"), "--user", "root"];
        let (process, line, log) =
            Process::start_heard(&[&["serve", "--listen", "127.0.0.1:0"], &exports[..]].concat(), "/calm");
        let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("a URL");
        Self { process, url: url.rsplit_once('/').expect("an export").0.to_owned(), log }
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    /// The operations that the disk of an export has not answered, and the milliseconds that the oldest of them has waited.
    fn waiting(&self, export: &str) -> (u64, u64) {
        let top = common::json(&["top", &self.url]);
        let entries = top["entries"].as_array().expect("a list");
        let of = |entry: &&serde_json::Value| entry["kind"] == "export" && entry["name"] == export;
        let entry = entries.iter().find(of).expect("it is served");
        let number = |name: &str| entry[name].as_u64().expect("a number");
        (number("waiting"), number("oldest_ms"))
    }

    /// Another host lists the other export, reads it, computes over it and writes there.
    fn is_calm(&self) {
        let (dir, file, copy) = (self.at("calm"), self.at("calm/f"), self.at("calm/copy"));
        let commands: [&[&str]; 4] = [
            &["ls", &dir],
            &["cat", &file],
            &["run", "stats64", &file, "--where", "device"],
            &["cp", &file, &copy, "--force"],
        ];
        for command in commands {
            let of_another = ["--hostnqn", "nqn.2026-11.org.example:another"];
            let args: Vec<String> = command.iter().chain(&of_another).map(|word| (*word).to_owned()).collect();
            let run = move || diskside(&args.iter().map(String::as_str).collect::<Vec<_>>());
            let (code, _, said) = soon(&format!("{command:?}"), run);
            assert_eq!(code, 0, "{command:?}: {said}");
        }
    }
}

fn spawn(args: &[&str]) -> Child {
    common::command(args).spawn().expect("diskside runs")
}

fn ended(child: Child) -> Output {
    let command = fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap_or_default().replace('\0', " ");
    soon(&command, move || child.wait_with_output().expect("it is ours"))
}

fn first_line(stderr: ChildStderr) -> String {
    soon("a line", move || BufReader::new(stderr).lines().next().expect("it says something").expect("text"))
}

/// Threads that read files waited for the disk of one export; nobody looked whether those of another one were there.
#[test]
fn a_disk_that_hangs_below_an_export_holds_its_own_files_alone() {
    let Some(disk) = Disk::new() else { return };
    let bytes = numbers(1 << 17);
    for name in ["f", "g", "h"] {
        disk.put(name, &bytes);
    }
    let server = Exports::start(&disk);
    let (f, g, made) = (server.at("hung/f"), server.at("hung/g"), server.at("hung/made"));
    let calm = disk.at("calm/f").display().to_string();
    let hang = disk.hang();
    // More than the export has threads.
    let reads: Vec<Child> = (0..12).map(|_| spawn(&["cat", &f])).collect();
    let runs: Vec<Child> = (0..4).map(|_| spawn(&["run", "stats64", &g, "--where", "device"])).collect();
    let here = disk.at("disk/h").display().to_string();
    let [made_here, out_here] = ["disk/made-here", "disk/out-here"].map(|name| disk.at(name).display().to_string());
    let copied = disk.at("copied").display().to_string();
    // Each with where it waits: `cp`, `cat` and outputs of `run` printed nothing.
    let (there, on_this) = ("export hung of diskside://", "a file on this machine ");
    let waits: [(&[&str], &str); 8] = [
        (&["run", "wc", &g, "--where", "device"], there),
        (&["run", "wc", &here], on_this),
        (&["run", "wc", &calm, "--out", &server.at("hung/out")], there),
        (&["run", "wc", &calm, "--out", &out_here], on_this),
        (&["cat", &f], there),
        (&["cp", &calm, &made], there),
        (&["cp", &here, &copied], on_this),
        (&["cp", &calm, &made_here], on_this),
    ];
    let mut silent = waits.map(|(args, _)| spawn(args));
    let write = spawn(&["run", "wc", &g, "--out", &server.at("hung/another")]);
    for _ in 0..3 {
        server.is_calm();
    }
    // Ctrl-C ends a command that waits: the first one its function, the second one also a look for its file.
    // It hears Ctrl-C also where the tests themselves run in the background of a shell, which has its children ignore it.
    let mut interrupted = Command::new("env");
    let hears = ["--default-signal=INT", env!("CARGO_BIN_EXE_diskside"), "run", "stats64", &g, "--where", "device"];
    let mut interrupted =
        interrupted.args(hears).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(300));
        if interrupted.try_wait().expect("it is ours").is_some() {
            break;
        }
        kill_process(Pid::from_child(&interrupted), Signal::INT).expect("it runs");
    }
    let output = ended(interrupted);
    assert!(!output.status.success(), "{}", said(&output));
    // So does a deadline, also where the first bytes tell whether a file is compressed.
    for place in ["device", "host"] {
        let late = ended(spawn(&["run", "wc", &g, "--where", place, "--deadline-ms", "1000"]));
        assert!(!late.status.success() && said(&late).contains("deadline"), "{}", said(&late));
    }
    // The operator of the server sees which disk it is, although the calls whose deadlines passed have left it.
    let line = server.log.line(&["WARN", "the disk has not answered for"]);
    assert!(line.contains("export=\"hung\"") && line.contains("waiting="), "{line}");
    let ((waiting, oldest_ms), (calm, _)) = (server.waiting("hung"), server.waiting("calm"));
    assert!(waiting >= 6 && oldest_ms >= 5000 && calm == 0, "{waiting} wait, {oldest_ms} ms; {calm}");
    // Commands that waited for it were silent.
    let told = silent.each_mut().map(|child| first_line(child.stderr.take().expect("piped")));
    for (told, (args, disk)) in told.iter().zip(waits) {
        let begin = format!("diskside: waiting: the disk of {disk}");
        assert!(told.starts_with(&begin) && told.contains("has not answered for"), "{args:?}: {told}");
    }
    // One that goes away is not waited for.
    let mut gone = spawn(&["cat", &g]);
    gone.kill().and_then(|()| gone.wait()).expect("it is ours");
    server.is_calm();

    drop(hang);
    let sum = good(&["run", "stats64", &disk.at("disk/g").display().to_string()]);
    for child in reads {
        assert!(output_of(&ended(child)) == bytes);
    }
    for child in runs {
        assert_eq!(String::from_utf8_lossy(output_of(&ended(child))), sum);
    }
    for child in silent.into_iter().chain([write]) {
        output_of(&ended(child));
    }
    for made in ["disk/made", "disk/made-here"] {
        assert!(fs::read(disk.at(made)).expect("written") == numbers(1000), "{made}");
    }
    let line = server.log.line(&["the disk answers again"]);
    assert!(line.contains("export=\"hung\""), "{line}");
    common::until("nothing waits any more", || server.waiting("hung").0 == 0);
    assert_eq!(server.log.lines(&["the disk"]).len(), 2, "{:?}", server.log.lines(&["the disk"]));

    // A server ends although its disk hangs: what waits there is given up.
    disk.forget("f");
    let hang = disk.hang();
    let read = spawn(&["cat", &f, "--loss-timeout-ms", "2000"]);
    server.is_calm();
    common::stop(&server.process.0);
    let mut process = server.process;
    let status = soon("the server", move || process.0.wait().expect("it is ours"));
    assert!(status.success(), "{status}");
    assert!(!ended(read).status.success());
    drop(hang);
}

/// A disk that loses a part: reads of what is there succeed, and all others say so with the file's name.
#[test]
fn a_disk_that_fails_below_an_export_fails_what_is_there_with_the_name_of_the_file() {
    let Some(disk) = Disk::new() else { return };
    let bytes = numbers(1 << 20);
    // Beyond the first megabytes, where the file system has its own.
    disk.put("ballast", &vec![0x55; 24 * MIB]);
    disk.put("f", &bytes);
    let server = Exports::start(&disk);
    let (f, here) = (server.at("hung/f"), disk.at("out").display().to_string());
    assert!(output_of(&ended(spawn(&["cat", &f]))) == bytes);
    disk.forget("f");
    disk.cut(1 << 20);
    let commands: [&[&str]; 6] = [
        &["cat", &f],
        &["cp", &f, &here],
        &["run", "stats64", &f, "--where", "device"],
        &["run", "stats64", &f, "--where", "host"],
        &["run", "bitmap", &f, "--out", &server.at("calm/out"), "--where", "device"],
        &["cp", &f, &server.at("calm/out")],
    ];
    for command in commands {
        let output = ended(spawn(command));
        let told = said(&output);
        assert_eq!(output.status.code(), Some(4), "{command:?}: {told}");
        assert!(told.contains(BROKEN) && told.contains("hung/f"), "{command:?}: {told}");
    }
    assert!(!disk.at("calm/out").exists() && !disk.at("out").exists(), "nothing is half there");
    // The log had nothing of files.
    let line = server.log.line(&["WARN", "the disk failed an operation"]);
    for part in ["export=\"hung\"", "file=\"hung/f\"", "operation=\"read\"", "offset=", "os error 5"] {
        assert!(line.contains(part), "{line}");
    }
    server.is_calm();
}

/// A disk that is gone: what writes there fails, and what is elsewhere is as before.
#[test]
fn a_disk_that_goes_away_below_an_export_fails_what_writes_there() {
    let Some(mut disk) = Disk::new() else { return };
    disk.put("runs", &[64, 7].repeat(MIB));
    let server = Exports::start(&disk);
    disk.attached.kill();
    let large = disk.at("large");
    fs::write(&large, numbers(1 << 20)).expect("written");
    let (runs, large) = (server.at("hung/runs"), large.display().to_string());
    let commands: [&[&str]; 3] = [
        &["cp", &large, &server.at("hung/made")],
        &["run", "stats64", &large, "--out", &server.at("hung/made")],
        &["run", "bitmap", &runs, "--out", &server.at("calm/out"), "--where", "device"],
    ];
    for command in commands {
        let output = ended(spawn(command));
        let told = said(&output);
        assert!(output.status.code() == Some(4) && told.contains("os error"), "{command:?}: {told}");
    }
    assert!(!disk.at("calm/out").exists());
    server.is_calm();
}
