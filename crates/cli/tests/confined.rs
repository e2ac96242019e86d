//! The privileges that a server's process keeps: the file system and system calls beyond what it serves are closed to
//! it.

mod common;

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Process, Server, diskside, good, numbers, until};
use rustix::process::Signal;

/// A user that owns nothing here.
const SOMEBODY: u32 = 4711;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A field of `/proc/PID/status`.
fn status(process: &Process, field: &str) -> String {
    let path = format!("/proc/{}/status", process.0.id());
    let status = std::fs::read_to_string(path).expect("it runs");
    status.lines().find_map(|line| line.strip_prefix(field)).expect("it is there").trim().to_owned()
}

/// Its four user IDs are this one.
fn runs_as(process: &Process, uid: u32) -> bool {
    status(process, "Uid:").split_whitespace().all(|found| found == uid.to_string())
}

/// Starts a server of one directory as `data`, perhaps as another user; gives it, its URL and the line that says what holds.
fn serve(export: &str, as_uid: Option<u32>, args: &[&str]) -> (Process, String, String) {
    serve_with(export, as_uid, args, &[("DISKSIDE_LLVM", "")])
}

/// The same, with these variables.
fn serve_with(
    export: &str,
    as_uid: Option<u32>,
    args: &[&str],
    variables: &[(&str, &str)],
) -> (Process, String, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let said = dir.path().join("said");
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--export", export]).args(args);
    command.envs(variables.iter().copied());
    if let Some(uid) = as_uid {
        command.uid(uid).gid(uid).env("HOME", "/nonexistent");
    }
    let file = std::fs::File::create(&said).expect("made");
    let mut child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("diskside runs");
    let mut out = child.stdout.take().expect("piped");
    let process = Process(child);
    let mut printed = String::new();
    until("it serves", || {
        let mut piece = [0; 512];
        let len = out.read(&mut piece).expect("readable");
        assert_ne!(len, 0, "{}", std::fs::read_to_string(&said).expect("text"));
        printed += &String::from_utf8_lossy(&piece[..len]);
        printed.contains("diskside://")
    });
    let url = printed.split_whitespace().find(|word| word.starts_with("diskside://")).expect("a URL").to_owned();
    let said = std::fs::read_to_string(&said).expect("text");
    let line = said.lines().find(|line| line.starts_with("confined: ")).unwrap_or_default().to_owned();
    (process, url, line)
}

/// The Landlock of this kernel, as a server said it: without it what needs it is not tested.
fn has_landlock(line: &str) -> bool {
    let has = line.contains("Landlock ABI ");
    if !has {
        let lacks = ["it is not switched on", "this kernel does not have it"].iter().any(|why| line.contains(why));
        assert!(lacks, "{line}");
        eprintln!("this kernel has no Landlock: {line}");
    }
    has
}

/// Others reach it, which they need not where the environment wants temporary files.
fn open_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/tmp").expect("a directory")
}

/// A directory that somebody can work in.
fn directory_of(uid: u32) -> tempfile::TempDir {
    let dir = open_directory();
    if is_root() {
        chown(dir.path(), Some(uid), Some(uid)).expect("root may");
    }
    dir
}

/// It ran as root, with root's rights to every file, and with every system call.
#[test]
fn a_server_that_root_starts_is_another_user_with_no_rights() {
    if !is_root() {
        return;
    }
    let dir = directory_of(SOMEBODY);
    std::fs::write(dir.path().join("f"), b"one\n").expect("written");
    let export = format!("data={},rw", dir.path().display());
    let (server, url, line) = serve(&export, None, &["--user", &format!("{SOMEBODY}:{SOMEBODY}")]);
    assert!(line.starts_with(&format!("confined: user {SOMEBODY}:{SOMEBODY}, ")), "{line}");
    assert!(line.ends_with(", seccomp"), "{line}");
    assert!(runs_as(&server, SOMEBODY));
    for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
        assert_eq!(u64::from_str_radix(&status(&server, set), 16), Ok(0), "{set}");
    }
    assert_eq!((status(&server, "NoNewPrivs:"), status(&server, "Seccomp:")), ("1".into(), "2".into()));
    // Each thread, not the first alone.
    for thread in std::fs::read_dir(format!("/proc/{}/task", server.0.id())).expect("it runs") {
        let path = thread.expect("it is there").path().join("status");
        let status = std::fs::read_to_string(path).expect("it runs");
        assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
    }
    assert_eq!(good(&["cat", &format!("{url}/f")]), "one\n");
    good(&["cp", &format!("{url}/f"), &format!("{url}/g")]);
    let made = dir.path().join("g").metadata().expect("it was made");
    assert_eq!((made.uid(), made.gid()), (SOMEBODY, SOMEBODY));
}

/// Without a name it is nobody, as long as nobody can open what is served; else it says why it stays root.
#[test]
fn nobody_serves_what_anybody_can_read() {
    if !is_root() || has_account("diskside") || !has_account("nobody") {
        return;
    }
    let dir = open_directory();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    let export = format!("data={}", dir.path().display());
    let (server, _, line) = serve(&export, None, &[]);
    assert!(runs_as(&server, 0));
    let expected = format!(
        "confined: user root (there is no account diskside, and account nobody cannot open {}), ",
        dir.path().display()
    );
    assert!(line.starts_with(&expected), "{line}");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let (server, url, line) = serve(&export, None, &[]);
    assert!(line.starts_with("confined: user nobody, "), "{line}");
    assert!(!runs_as(&server, 0));
    std::fs::write(dir.path().join("f"), b"one\n").expect("written");
    assert_eq!(good(&["cat", &format!("{url}/f")]), "one\n");
    // The file's mode is another question.
    let (server, _, _) = serve(&format!("{export},rw"), None, &[]);
    assert!(runs_as(&server, 0));
}

fn has_account(name: &str) -> bool {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    accounts.lines().any(|line| line.starts_with(&format!("{name}:")))
}

#[test]
fn a_user_that_there_is_not_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let export = format!("data={}", dir.path().display());
    let (code, _, said) =
        diskside(&["serve", "--listen", "127.0.0.1:0", "--export", &export, "--user", "no-such-user"]);
    assert_eq!(code, 4);
    assert!(said.contains("there is no user `no-such-user` on this machine (useradd --system no-such-user"), "{said}");
}

/// A user other than root cannot become another user, and is confined all the same.
#[test]
fn a_server_of_anybody_is_confined() {
    let dir = directory_of(SOMEBODY);
    std::fs::write(dir.path().join("f"), b"one\n").expect("written");
    let export = format!("data={},rw", dir.path().display());
    let (server, url, line) = serve(&export, is_root().then_some(SOMEBODY), &[]);
    assert!(line.starts_with("confined: user ") && line.ends_with(", seccomp"), "{line}");
    assert_eq!((status(&server, "NoNewPrivs:"), status(&server, "Seccomp:")), ("1".into(), "2".into()));
    assert_eq!(good(&["cat", &format!("{url}/f")]), "one\n");
    good(&["cp", &format!("{url}/f"), &format!("{url}/g")]);
}

#[test]
fn without_confinement_it_is_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let export = format!("data={}", dir.path().display());
    let (server, _, line) = serve(&export, None, &["--no-confine"]);
    assert_eq!(line, "");
    assert_eq!((status(&server, "NoNewPrivs:"), status(&server, "Seccomp:")), ("1".into(), "0".into()));
    assert!(runs_as(&server, rustix::process::geteuid().as_raw()));
}

/// The code that resolves paths within an export is one wall, and this is the one behind it: the kernel refuses the
/// process itself what lies outside. A server whose root is moved to another directory follows it, and reaches nothing
/// there any more.
#[test]
fn what_is_not_served_is_out_of_reach() {
    let dir = tempfile::tempdir().expect("a directory");
    let (served, other) = (dir.path().join("served"), dir.path().join("other"));
    for directory in [&served, &other] {
        std::fs::create_dir(directory).expect("made");
    }
    std::fs::write(other.join("secret"), b"secret\n").expect("written");
    std::fs::create_dir(served.join("inner")).expect("made");
    std::fs::write(served.join("inner/f"), b"one\n").expect("written");
    symlink(other.join("secret"), served.join("link")).expect("made");
    symlink("../other/secret", served.join("up")).expect("made");
    symlink(format!("/proc/{}/root{}/secret", std::process::id(), other.display()), served.join("magic"))
        .expect("made");
    let (_server, url, line) = serve(&format!("data={},rw", served.display()), None, &["--user", &own_user()]);
    let mine = dir.path().join("mine");
    std::fs::write(&mine, b"changed\n").expect("written");
    for planted in ["link", "up", "magic", "../other/secret"] {
        let (code, out, _) = diskside(&["cat", &format!("{url}/{planted}")]);
        assert_ne!((code, out), (0, b"secret\n".to_vec()), "{planted}");
        let (_, _, _) = diskside(&["cp", mine.to_str().expect("text"), &format!("{url}/{planted}"), "--force"]);
        assert_eq!(std::fs::read(other.join("secret")).expect("there"), b"secret\n", "{planted}");
    }
    assert_eq!(good(&["cat", &format!("{url}/inner/f")]), "one\n");
    // The open root is what paths are resolved beneath, wherever it is: only Landlock knows where it may be.
    if has_landlock(&line) {
        std::fs::rename(served.join("inner"), other.join("inner")).expect("ours");
        let (code, _, _) = diskside(&["cat", &format!("{url}/inner/f")]);
        assert_ne!(code, 0);
    }
}

/// Who stays who starts the tests.
fn own_user() -> String {
    format!("{}:{}", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// A program of root's that a host overwrote ran as root with what the host wrote.
#[test]
fn what_a_host_overwrites_runs_as_nobody_else() {
    let server = Server::start("");
    let program = server.file("program", b"harmless");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("it is ours");
    let mine = server.file("mine", b"harmful!");
    good(&["cp", mine.to_str().expect("text"), &server.at("program"), "--force"]);
    assert_eq!(std::fs::read(&program).expect("there"), b"harmful!");
    assert_eq!(program.metadata().expect("there").permissions().mode() & 0o6000, 0);
}

#[test]
fn volumes_are_opened_before_and_made_for_their_owner_alone() {
    let (dir, data) = (directory_of(SOMEBODY), tempfile::tempdir().expect("a directory"));
    let volume = data.path().join("volume");
    let spec = format!("disk={},rw,size=8MiB", volume.display());
    let export = format!("data={}", dir.path().display());
    let user = if is_root() { format!("{SOMEBODY}:{SOMEBODY}") } else { own_user() };
    let (_server, url, _) = serve(&export, None, &["--volume", &spec, "--user", &user]);
    let made = volume.metadata().expect("made");
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    // Root's file in root's directory, and the process is somebody else.
    let address = url.split('/').nth(2).expect("an address");
    let found = good(&["discover", &format!("nvme-tcp://{address}")]);
    let nqn = found.split_whitespace().find(|word| word.starts_with("nqn.2026")).expect("its name");
    let mine = dir.path().join("mine");
    std::fs::write(&mine, numbers(1024)).expect("written");
    let at = format!("nvme-tcp://{address}/{nqn}/1");
    good(&["cp", mine.to_str().expect("text"), &at, "--force"]);
    assert_eq!(&std::fs::read(&volume).expect("there")[..8192], numbers(1024));
    good(&["run", "wc", &at]);
}

/// Threads of an export run as its user, which takes a right that the rest of the process keeps for them. A directory that only
/// this user can enter was opened by the process, and refused.
#[test]
fn exports_of_other_users_work_as_these() {
    if !is_root() {
        return;
    }
    let dir = directory_of(SOMEBODY + 1);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    std::fs::write(dir.path().join("f"), b"one\ntwo\n").expect("written");
    chown(dir.path().join("f"), Some(SOMEBODY + 1), Some(SOMEBODY + 1)).expect("root may");
    let uid = SOMEBODY + 1;
    let export = format!("data={},rw,uid={uid},gid={uid}", dir.path().display());
    let (server, url, _) = serve(&export, None, &["--user", &format!("{SOMEBODY}:{SOMEBODY}")]);
    // CAP_SETGID and CAP_SETUID.
    assert_eq!(u64::from_str_radix(&status(&server, "CapEff:"), 16), Ok(0b11 << 6));
    // More threads than the first: each takes the user on, under the filter.
    std::thread::scope(|scope| {
        for number in 0..8 {
            let url = &url;
            scope.spawn(move || good(&["cp", &format!("{url}/f"), &format!("{url}/g{number}")]));
        }
    });
    // The export's threads have not even that.
    let mut threads = 0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", server.0.id())).expect("it runs") {
        let status = std::fs::read_to_string(thread.expect("it is there").path().join("status")).expect("it runs");
        if status.contains("x-data") {
            threads += 1;
            assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
            assert!(status.contains("\nCapPrm:\t0000000000000000\n"), "{status}");
        }
    }
    assert_ne!(threads, 0);
    let made = dir.path().join("g7").metadata().expect("made");
    assert_eq!((made.uid(), made.gid()), (uid, uid));
    assert!(good(&["run", "wc", &format!("{url}/f")]).contains('2'));
    good(&["run", "grep", &format!("{url}/f"), "--out", &format!("{url}/out"), "--arg", "pattern=one"]);
    assert_eq!(std::fs::read(dir.path().join("out")).expect("there"), b"one\n");
}

/// Files, functions and results of every day.
#[test]
fn it_does_what_servers_do() {
    let dir = directory_of(SOMEBODY);
    let user = if is_root() { format!("{SOMEBODY}:{SOMEBODY}") } else { own_user() };
    let export = format!("data={},rw", dir.path().display());
    let (_server, url, _) = serve(&export, None, &["--user", &user]);
    let mine = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(mine.path(), numbers(1 << 19)).expect("written");
    let at = |name: &str| format!("{url}/{name}");
    good(&["mkdir", &at("directory")]);
    good(&["cp", mine.path().to_str().expect("text"), &at("directory/f")]);
    good(&["mv", &at("directory/f"), &at("f")]);
    good(&["cp", &at("f"), &at("g")]);
    for function in ["stats64", "wc"] {
        let there = good(&["run", function, &at("f")]);
        assert_eq!(there, good(&["run", function, mine.path().to_str().expect("text")]), "{function}");
    }
    good(&["run", "grep", &at("f"), "--out", &at("out"), "--arg", "pattern=x"]);
    assert!(good(&["ls", &url]).contains("out"));
    assert!(good(&["functions", url.strip_suffix("/data").expect("its export")]).contains("wc"));
    good(&["rm", &at("g")]);
    assert!(!dir.path().join("g").exists());
}

/// The compiler is the one program that may be started, by a server that finds it when it starts.
#[cfg(feature = "llvm-tests")]
#[test]
fn the_vectorising_compiler_starts_and_keeps_its_code() {
    let (dir, cache) = (directory_of(SOMEBODY), directory_of(SOMEBODY));
    std::fs::write(dir.path().join("f"), numbers(1 << 17)).expect("written");
    let user = if is_root() { format!("{SOMEBODY}:{SOMEBODY}") } else { own_user() };
    let export = format!("data={}", dir.path().display());
    let store = cache.path().to_str().expect("text");
    let (_server, url, _) = serve_with(&export, None, &["--user", &user], &[("CACHE_DIRECTORY", store)]);
    good(&["run", "stats64", &format!("{url}/f"), "--where", "device", "--tier", "llvm"]);
    assert_ne!(std::fs::read_dir(cache.path().join("code")).expect("made").count(), 0);
}

/// The keys are read again as the user that the server has become; files that the start did not know are closed, and
/// the error says so.
#[test]
fn reloading_reaches_what_the_start_knew() {
    let dir = tempfile::tempdir().expect("a directory");
    let (conf, served, new) = (dir.path().join("conf"), dir.path().join("served"), dir.path().join("new"));
    for directory in [&conf, &served, &new] {
        std::fs::create_dir(directory).expect("made");
    }
    let config = conf.join("diskside.toml");
    let text = |more: &str| {
        let export =
            |name: &str, path: &Path| format!("[[export]]\nname = \"{name}\"\npath = \"{}\"\n", path.display());
        std::fs::write(&config, format!("{}{more}", export("data", &served))).expect("written");
        export("new", &new)
    };
    let new_export = text("");
    let said = dir.path().join("said");
    let child = Command::new(env!("CARGO_BIN_EXE_diskside"))
        .args(["serve", "--listen", "127.0.0.1:0", "--user", &own_user(), "--config", config.to_str().expect("text")])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said).expect("made"))
        .spawn()
        .expect("diskside runs");
    let process = Process(child);
    let says = |what: &str| until(what, || std::fs::read_to_string(&said).expect("text").contains(what));
    says("confined: ");
    text(&new_export);
    process.signal(Signal::HUP);
    let line = std::fs::read_to_string(&said).expect("text");
    if !has_landlock(&line) {
        says("diskside: the configuration was read again; served now: export `new`\n");
    } else {
        says("diskside: the configuration stays as it was: export `new`: this server has closed its process to");
        text(&format!("[security]\naudit = \"{}\"\n", new.join("audit").display()));
        process.signal(Signal::HUP);
        says(
            "Permission denied (os error 13); a server reaches only the directories of the files that it had at its start",
        );
    }
}
