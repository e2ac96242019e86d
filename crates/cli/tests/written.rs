//! `--out` and `cp` where something has the name already: as root and as another user, here and at a target.

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Server, diskside, good, until};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, makedev, mknodat, setxattr};
use rustix::process::geteuid;

const NOBODY: u32 = 65534;
/// The result of `upper` for a file here: the file.
const SAME: &str = "#include \"diskside.h\"\nDS_SPLIT_LINES;\nDS_CONCATENATE;\nDS_OUTPUT(1, 1, 0);\nSEC(\"write/same\")\n\
    __s64 same(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
    ds_memcpy(out, in, in_len);\nreturn in_len;\n}\n";

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        let dir = Self(tempfile::tempdir().expect("a temporary directory"));
        dir.file("same.bpf.c", SAME.as_bytes(), 0o644);
        dir.file("new", b"new content\n", 0o644);
        dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn file(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        path
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.0.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .filter(|name| !matches!(name.as_str(), "same.bpf.c" | "new"))
            .collect();
        names.sort();
        names
    }

    /// Both ways of writing `new content` to a file.
    fn ways(&self, to: &str) -> [Vec<String>; 2] {
        let [same, new] = ["same.bpf.c", "new"].map(|name| self.text(name));
        [vec!["cp".into(), new.clone(), to.into()], vec!["run".into(), same, new, "--out".into(), to.into()]]
    }

    /// Both ways succeed.
    fn write(&self, to: &str, after: impl Fn(&str)) {
        for way in self.ways(to) {
            let (code, _, said) = diskside(&way.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(code, 0, "{way:?}: {said}");
            after(&way[0]);
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it is there")
}

fn inode_and_mode(path: &Path) -> (u64, u32) {
    let found = std::fs::metadata(path).expect("it is there");
    (found.ino(), found.mode() & 0o7777)
}

/// Output went through X.partial, whatever that was.
#[test]
fn a_file_of_the_users_called_partial_survives() {
    let dir = Dir::new();
    let precious = dir.file("x.partial", b"precious", 0o640);
    let before = inode_and_mode(&precious);
    dir.write(&dir.text("x"), |way| {
        assert_eq!((read(&dir.path("x")).as_str(), read(&precious).as_str()), ("new content\n", "precious"), "{way}");
        assert_eq!((inode_and_mode(&precious), dir.names()), (before, vec!["x".to_owned(), "x.partial".to_owned()]));
    });
    // At a target, too.
    let server = Server::start("");
    let precious = server.file("x.partial", b"precious");
    dir.write(&server.at("x"), |way| {
        assert_eq!(
            (read(&server.dir.join("x")).as_str(), read(&precious).as_str()),
            ("new content\n", "precious"),
            "{way}"
        );
    });
}

#[test]
fn what_a_file_has_it_keeps() {
    let (dir, server) = (Dir::new(), Server::start(""));
    for (to, path) in [(dir.text("x"), dir.path("x")), (server.at("x"), server.dir.join("x"))] {
        std::fs::write(&path, "old").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).expect("it is ours");
        let has_attributes = setxattr(&path, "user.origin", b"here", XattrFlags::empty()).is_ok();
        dir.write(&to, |way| {
            assert_eq!((read(&path).as_str(), inode_and_mode(&path).1), ("new content\n", 0o604), "{way} {to}");
            let mut value = [0; 16];
            let found = getxattr(&path, "user.origin", &mut value[..]);
            assert!(!has_attributes || found == Ok(4) && value.starts_with(b"here"), "{way} {to}: {found:?}");
        });
        let (second, link) = (path.with_file_name("second"), path.with_file_name("link"));
        std::fs::hard_link(&path, &second).expect("made");
        symlink("x", &link).expect("made");
        let before = inode_and_mode(&path);
        for name in ["x", "link"] {
            std::fs::write(&second, "old").expect("written");
            dir.write(&to.replace("/x", &format!("/{name}")), |way| {
                assert_eq!((read(&second).as_str(), inode_and_mode(&path)), ("new content\n", before), "{way} {name}");
                assert!(link.is_symlink(), "{way} {name}");
            });
        }
    }
    symlink("made", dir.path("dangling")).expect("made");
    dir.write(&dir.text("dangling"), |_| assert!(dir.path("dangling").is_symlink()));
    assert_eq!(read(&dir.path("made")), "new content\n");
}

/// The user's own file has two names, and is the input as well: it was emptied before it was read.
#[test]
fn a_file_can_be_its_own_input() {
    let dir = Dir::new();
    let lines: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    let path = dir.file("x", lines.as_bytes(), 0o600);
    std::fs::hard_link(&path, dir.path("y")).expect("made");
    let (same, x, y) = (dir.text("same.bpf.c"), dir.text("x"), dir.text("y"));
    good(&["run", &same, &x, "--out", &y]);
    good(&["cp", &x, &y]);
    good(&["cp", &x, &x]);
    assert!(read(&path) == lines && read(&dir.path("y")) == lines);
    assert_eq!(std::fs::metadata(&path).expect("it is there").nlink(), 2);
}

/// `-o /dev/stdout` took the link /dev/stdout from the machine.
#[test]
fn standard_output_is_streamed_to() {
    let dir = Dir::new();
    let stdout = symlink("/proc/self/fd/1", dir.path("stdout")).map(|()| dir.text("stdout")).expect("made");
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", &stdout] {
        for way in dir.ways(name) {
            // A pipe, and a file that is appended to.
            let args: Vec<&str> = way.iter().map(String::as_str).collect();
            let (code, out, said) = diskside(&args);
            assert_eq!((code, String::from_utf8_lossy(&out).as_ref()), (0, "new content\n"), "{way:?}: {said}");
            let log = dir.file("log", b"before\n", 0o600);
            let out = std::fs::OpenOptions::new().append(true).open(&log).expect("it is there");
            let status =
                Command::new(env!("CARGO_BIN_EXE_diskside")).args(&args).stdout(out).stderr(Stdio::null()).status();
            assert!(status.expect("it runs").success(), "{way:?}");
            assert_eq!(read(&log), "before\nnew content\n", "{way:?}");
        }
    }
    assert!(dir.path("stdout").is_symlink() && Path::new("/dev/stdout").is_symlink());
    let (code, _, said) = diskside(&["cp", &dir.text("new"), "-", "--json"]);
    assert_eq!((code, said.as_str()), (2, "diskside: the copy and --json would both go to standard output\n"));
    let [same, new] = ["same.bpf.c", "new"].map(|name| dir.text(name));
    let (code, _, said) = diskside(&["run", &same, &new, "-o", "-", "--json"]);
    assert_eq!((code, said.as_str()), (2, "diskside: --out - and --json would both go to standard output\n"));
}

#[test]
fn an_output_that_is_closed_or_full_is_no_panic() {
    let dir = Dir::new();
    let big = dir.file("big", &[b'x'; 4 << 20], 0o600).display().to_string();
    let same = dir.text("same.bpf.c");
    for args in [vec!["cp", &big, "-"], vec!["run", &same, &big, "--split", "bytes", "--out", "-"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        let mut child = command.args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut first = [0; 10];
        child.stdout.take().expect("piped").read_exact(&mut first).expect("it writes");
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));

        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        let ended = Command::new(env!("CARGO_BIN_EXE_diskside")).args(&args).stdout(full).output().expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(4), "{args:?}: {said}");
        assert!(said.contains("standard output: No space left on device (os error 28)"), "{args:?}: {said}");
    }
    // Where the last line goes nobody hears what is said, and an error is not said to nobody.
    for to in [dir.text("made"), dir.text("none/made")] {
        let [out, err] =
            [(); 2].map(|()| std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        let status = command.args(["cp", &dir.text("new"), &to]).stdout(out).stderr(err).status().expect("it runs");
        assert_eq!(status.code(), Some(4), "{to}");
    }
}

#[test]
fn what_is_no_regular_file_stays_what_it_is() {
    let dir = Dir::new();
    let fifo = dir.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    let is_fifo = || std::fs::metadata(&fifo).expect("it is there").file_type().is_fifo();
    for way in dir.ways(&dir.text("fifo")) {
        let mut child =
            Command::new(env!("CARGO_BIN_EXE_diskside")).args(&way).stdout(Stdio::null()).spawn().expect("it runs");
        assert_eq!(read(&fifo), "new content\n", "{way:?}");
        assert!(child.wait().expect("it ends").success() && is_fifo(), "{way:?}");
    }
    let (code, _, said) = diskside(&["cp", &dir.text("new"), &dir.text("fifo"), "--verify"]);
    assert_eq!(code, 2, "{said}");
    // An export never opens one.
    let server = Server::start("");
    let there = server.dir.join("fifo");
    mknodat(CWD, &there, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    for way in dir.ways(&server.at("fifo")) {
        let (code, _, said) = diskside(&way.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, 4, "{said}");
        assert!(said.contains("it is a device or a FIFO, which is never replaced"), "{said}");
        assert!(std::fs::metadata(&there).expect("it is there").file_type().is_fifo());
    }
    let null = dir.path("null");
    let made = mknodat(CWD, &null, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 3));
    if made.is_err() || std::fs::OpenOptions::new().write(true).open(&null).is_err() {
        return eprintln!("not tested: device nodes cannot be made and used here");
    }
    dir.write(&dir.text("null"), |way| {
        assert!(std::fs::metadata(&null).expect("it is there").file_type().is_char_device(), "{way}");
    });
}

#[test]
fn what_cannot_be_written_says_what_to_do() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("sub")).expect("made");
    symlink("round", dir.path("round")).expect("made");
    let cut = |said: String| said.replace(&dir.text(""), "");
    for (name, expected) in [
        (
            "none/x",
            "cannot write none/x: No such file or directory (os error 2): there is no directory none; make it first\n",
        ),
        ("new/x", "cannot write new/x: Not a directory (os error 20): new is no directory\n"),
        (
            "round",
            "cannot write round: Too many levels of symbolic links (os error 40): its symbolic links lead in a circle; remove one of them\n",
        ),
    ] {
        for way in dir.ways(&dir.text(name)) {
            let (code, _, said) = diskside(&way.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!((code, cut(said)), (4, format!("diskside: {expected}")), "{way:?}");
        }
    }
    // As cp(1) has it, a copy goes into a directory. A result has no name for there.
    let [copy, run] = dir.ways(&dir.text("sub"));
    good(&copy.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(read(&dir.path("sub/new")), "new content\n");
    let (code, _, said) = diskside(&run.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        (code, cut(said).as_str()),
        (4, "diskside: cannot write sub: Is a directory (os error 21): name a file in it\n")
    );
}

/// The command, as another user. It has no way into the directory that it was built in.
fn as_nobody(dir: &Dir) -> Option<impl Fn(&[String]) -> (Option<i32>, String)> {
    if !geteuid().is_root() {
        eprintln!("not tested as another user: only root can become one");
        return None;
    }
    let program = dir.path("diskside");
    // A file that this process writes may be held open for writing by one that another test starts: then it is not run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_diskside")).arg(&program).status().expect("it is started");
    assert!(copied.success(), "there is room");
    Some(move |args: &[String]| {
        let mut command = Command::new(&program);
        let ended = command.args(args).uid(NOBODY).gid(NOBODY).env("XDG_STATE_HOME", "/dev/null/none").output();
        let ended = ended.expect("it runs");
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    })
}

#[test]
fn another_user_writes_in_place_what_cannot_be_replaced() {
    let dir = Dir::new();
    let Some(run) = as_nobody(&dir) else { return };
    for mode in [0o755, 0o1777, 0o777] {
        std::fs::set_permissions(dir.path(""), std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let shared = dir.file("shared", b"old", 0o666);
        let closed = dir.file("closed", b"old", 0o644);
        let before = inode_and_mode(&shared);
        for way in dir.ways(&dir.text("shared")) {
            let (code, said) = run(&way);
            assert_eq!(code, Some(0), "{way:?}: {said}");
            assert_eq!((read(&shared).as_str(), inode_and_mode(&shared)), ("new content\n", before), "{way:?}");
            std::fs::write(&shared, "old").expect("it is ours");
        }
        for way in dir.ways(&dir.text("closed")) {
            let (code, said) = run(&way);
            assert_eq!((code, read(&closed).as_str()), (Some(4), "old"), "{way:?}");
            assert!(said.ends_with("this user may not write the file; change its mode, or choose another\n"), "{said}");
        }
        assert_eq!(dir.names(), ["closed", "diskside", "shared"]);
    }
}

/// Stopped at any moment, a command leaves the old file and nothing else: the new one has no name.
#[test]
fn a_kill_in_the_middle_leaves_nothing() {
    let dir = Dir::new();
    let old = dir.file("x", b"old", 0o600);
    let fifo = dir.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    command.args(["run", &dir.text("same.bpf.c"), &dir.text("fifo"), "--chunk", "64KiB", "--out", &dir.text("x")]);
    let mut child = command.spawn().expect("it runs");
    let mut input = std::fs::OpenOptions::new().write(true).open(&fifo).expect("it has a reader");
    input.write_all(&b"a line of input\n".repeat(20_000)).expect("it reads");
    // Some of the output, which nobody sees, is written.
    until("it writes", || unnamed_bytes(&child) > 0);
    assert_eq!(dir.names(), ["fifo", "x"]);
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
    assert_eq!((read(&old).as_str(), dir.names()), ("old", vec!["fifo".to_owned(), "x".to_owned()]));
}

/// The length of the file without a name that a process writes.
fn unnamed_bytes(child: &Child) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("it runs");
    let paths = open.filter_map(|entry| Some(entry.ok()?.path()));
    let unnamed =
        paths.filter(|path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().ends_with(" (deleted)")));
    unnamed.filter_map(|path| Some(std::fs::metadata(path).ok()?.len())).max().unwrap_or(0)
}

/// A limit on the length of files, like a full disk: the old content stays, in whichever way it would have been written.
#[test]
fn what_does_not_fit_leaves_the_old_file() {
    let dir = Dir::new();
    dir.file("new", &b"a line of input\n".repeat(20_000), 0o644);
    let single = dir.file("single", b"old", 0o600);
    let double = dir.file("double", b"old", 0o600);
    std::fs::hard_link(&double, dir.path("second")).expect("made");
    for (name, path) in [("single", &single), ("double", &double), ("made", &dir.path("made"))] {
        for way in dir.ways(&dir.text(name)) {
            let script = "ulimit -f 64; exec \"$0\" \"$@\"";
            let mut command = Command::new("sh");
            command.args(["-c", script, env!("CARGO_BIN_EXE_diskside")]).args(&way);
            let ended = command.env("XDG_STATE_HOME", "/dev/null/none").output().expect("it runs");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(4), "{way:?}: {said}");
            assert!(said.contains("File too large (os error 27)") && said.contains(name), "{way:?}: {said}");
            assert!(name == "made" || read(path) == "old", "{way:?}");
        }
    }
    assert_eq!(dir.names(), ["double", "second", "single"]);
}

#[test]
fn a_range_of_a_program_is_written_like_any_file() {
    let dir = Dir::new();
    let source = "#include \"diskside.h\"\nSEC(\"exec/f\")\n\
        __s64 f(const struct ds_exec *call) { return 0; }\n";
    let program = dir.file("f.bpf.c", source.as_bytes(), 0o644).display().to_string();
    let target = dir.file("target", b"old", 0o640);
    symlink("target", dir.path("link")).expect("made");
    let (code, _, said) = diskside(&["execute", &program, "=8", "--out", &format!("1={}", dir.text("link"))]);
    if code == 3 {
        panic!("the program of this test is wrong: {said}");
    }
    assert_eq!(code, 0, "{said}");
    assert!(dir.path("link").is_symlink());
    assert_eq!((std::fs::read(&target).expect("it is there"), inode_and_mode(&target).1), (vec![0; 8], 0o640));
    let (code, _, said) = diskside(&["execute", &program, "=8", "--out", &format!("1={}", dir.text("none/x"))]);
    assert_eq!(code, 4);
    assert!(said.ends_with("none; make it first\n"), "{said}");
}

/// A FIFO that nobody read was waited for without an end: neither a deadline nor the first signal was heard.
#[test]
fn a_fifo_that_nobody_reads_is_waited_for_until_the_deadline_or_a_signal() {
    let dir = Dir::new();
    let fifo = dir.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
    let long = dir.file("long", &b"a line of some length\n".repeat(20_000), 0o644).display().to_string();
    let (same, fifo) = (dir.text("same.bpf.c"), fifo.display().to_string());
    let late = format!("diskside: {fifo}: the deadline passed while nobody read it\n");
    let run = ["run", &same, &long, "--out", &fifo];
    let begin = || common::command(&run).spawn().expect("it runs");
    let stop = |child: Child| {
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
            .expect("it runs");
        let output = child.wait_with_output().expect("it is ours");
        let said = common::said(&output);
        assert!(said.ends_with(&format!("diskside: {fifo}: the call was cancelled\n")), "{}: {said}", output.status);
        assert_eq!(output.status.code(), Some(130));
    };
    assert_eq!(diskside(&[&run[..], &["--deadline-ms", "50"]].concat()), (1, Vec::new(), late.clone()));
    let child = begin();
    // It catches signals before it opens what it writes to.
    until("it waits", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("there is one");
        u64::from_str_radix(caught.trim(), 16).expect("a number") & 1 << 14 != 0
    });
    stop(child);
    // The same where somebody reads, and then no more.
    let open = || {
        let how = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        std::fs::File::from(rustix::fs::open(&fifo, how, Mode::empty()).expect("it is there"))
    };
    let reader = open();
    assert_eq!(diskside(&[&run[..], &["--deadline-ms", "300"]].concat()), (1, Vec::new(), late));
    drop(reader);
    let reader = open();
    let child = begin();
    until("the FIFO is full", || rustix::io::ioctl_fionread(&reader).expect("a FIFO") >= 65_536);
    stop(child);
    drop(reader);
    // And where somebody reads all of it, all of it is there.
    let child = begin();
    let read = std::fs::read(&fifo).expect("it is there");
    assert!(child.wait_with_output().expect("it is ours").status.success());
    assert!(read == std::fs::read(&long).expect("there"));
}

/// `build -o` and `run --out` wrote over the source that they were given, and `sign` over the private key.
#[test]
fn what_is_read_is_not_written_over() {
    let dir = Dir::new();
    let source = dir.text("same.bpf.c");
    std::fs::hard_link(&source, dir.path("hard.o")).expect("linked");
    symlink(&source, dir.path("soft.o")).expect("linked");
    let new = dir.text("new");
    for out in [&source, &dir.text("hard.o"), &dir.text("soft.o")] {
        let (code, _, said) = diskside(&["build", &source, "-o", out]);
        let why = format!("{out}: it is the source, which would be lost: name another file");
        assert!(code == 2 && said.contains(&why), "{said}");
        for function in [source.clone(), format!("{source}:same")] {
            let (code, _, said) = diskside(&["run", &function, &new, "--out", out]);
            assert!(code == 2 && said.contains(": it is the function that runs, which would be lost"), "{said}");
        }
    }
    let (key, object) = (dir.text("key"), dir.text("same.o"));
    good(&["build", &source, "-o", &object]);
    good(&["sign", "--new-key", "--key", &key]);
    let (code, _, said) = diskside(&["sign", &object, "--key", &key, "--out", &key]);
    assert!(code == 2 && said.contains(": it is your private key, which would be lost"), "{said}");
    good(&["sign", &object, "--key", &key]);
    good(&["sign", "--check", &object]);
    assert_eq!(std::fs::read_to_string(&source).expect("there"), SAME);
}

/// `sign` made a regular file of whatever had the name of its output, by way of a file with a predictable name.
#[test]
fn objects_are_written_as_results_are() {
    let dir = Dir::new();
    let (source, key) = (dir.text("same.bpf.c"), dir.text("key"));
    good(&["sign", "--new-key", "--key", &key]);
    let object = dir.text("unsigned");
    good(&["build", &source, "-o", &object]);
    dir.file("mine.new", b"mine", 0o600);
    let write = |out: &str, by: &str| match by {
        "build" => good(&["build", &source, "-o", out]),
        _ => good(&["sign", &object, "--key", &key, "--out", out]),
    };
    for by in ["build", "sign"] {
        let kept = dir.file("mine", b"old", 0o640);
        symlink(&kept, dir.path("soft")).expect("linked");
        write(&dir.text("soft"), by);
        assert!(dir.path("soft").is_symlink() && std::fs::read(&kept).expect("there").starts_with(b"\x7fELF"));
        assert_eq!(std::fs::metadata(&kept).expect("there").mode() & 0o777, 0o640);
        std::fs::hard_link(&kept, dir.path("hard")).expect("linked");
        dir.file("mine", b"old", 0o640);
        write(&dir.text("mine"), by);
        assert!(std::fs::read(dir.path("hard")).expect("there").starts_with(b"\x7fELF"));
        let fifo = dir.path("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || std::fs::read(fifo).expect("read")
        });
        write(&dir.text("fifo"), by);
        assert!(reader.join().expect("it ended").starts_with(b"\x7fELF"));
        assert!(std::fs::metadata(&fifo).expect("there").file_type().is_fifo());
        for name in ["soft", "hard", "fifo"] {
            std::fs::remove_file(dir.path(name)).expect("ours");
        }
    }
    assert_eq!(std::fs::read(dir.path("mine.new")).expect("there"), b"mine");
}

/// Two copies onto a file with two names left pieces of both, and both said that all was well.
#[test]
fn copies_onto_one_file_in_place_come_one_after_the_other() {
    let dir = Dir::new();
    let sources: Vec<_> = [b'a', b'b', b'c'].map(|byte| vec![byte; 24 << 20]).into();
    for (name, bytes) in ["a", "b", "c"].iter().zip(&sources) {
        std::fs::write(dir.path(name), bytes).expect("written");
    }
    let to = dir.file("to", b"old", 0o644);
    std::fs::hard_link(&to, dir.path("other")).expect("linked");
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let (from, to) = (dir.text(name), dir.text("to"));
                scope.spawn(move || good(&["cp", &from, &to]));
            }
        });
        let is = std::fs::read(dir.path("other")).expect("there");
        assert!(sources.contains(&is), "it is a mix");
    }
}

/// The kernel leaves them where root writes, and root's are the ones that matter.
#[test]
fn set_user_id_does_not_stay_on_a_file_that_is_written_in_place() {
    let dir = Dir::new();
    let (to, new) = (dir.file("to", b"old", 0o6755), dir.text("new"));
    std::fs::hard_link(&to, dir.path("other")).expect("linked");
    for way in dir.ways(&dir.text("to")) {
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o6755)).expect("ours");
        good(&way.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(std::fs::read(dir.path("other")).expect("there"), std::fs::read(&new).expect("there"));
        assert_eq!(std::fs::metadata(&to).expect("there").mode() & 0o7777, 0o755, "{way:?}");
    }
}
