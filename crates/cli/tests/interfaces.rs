//! An everyday job over each interface to the kernel: the one that is there, epoll and threads by choice, and the same because a
//! container denies io_uring, or little memory may be locked. The results do not differ. A container can deny the older asynchronous
//! interface, too: then threads do what passes the page cache by.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use common::numbers;

/// How a command gets at its rings.
#[derive(Clone, Copy, Debug)]
enum Way {
    Usual,
    /// By `DISKSIDE_IO`.
    Chosen,
    /// io_uring's system calls fail with this.
    Denied(i32),
    /// These fail as well.
    DeniedToo(&'static [libc::c_long]),
    /// So many KiB may be locked.
    Locked(u64),
}

struct Server {
    child: Child,
    export: String,
    volume: String,
    /// Of its page, and of its metrics.
    page: String,
}

impl Way {
    fn command(self, args: &[&str]) -> Command {
        let mut command = common::command(args);
        match self {
            Self::Usual => {}
            Self::Chosen => drop(command.env("DISKSIDE_IO", "posix")),
            Self::Denied(errno) => {
                command.env_remove("DISKSIDE_IO");
                deny(&mut command, IO_URING, errno);
            }
            Self::DeniedToo(others) => {
                command.env_remove("DISKSIDE_IO");
                deny(&mut command, &[IO_URING, others].concat(), libc::EPERM);
            }
            Self::Locked(kib) => {
                command.env_remove("DISKSIDE_IO");
                limit_locked_memory(&mut command, kib);
            }
        }
        command
    }

    /// How `info` says that it reads and writes itself, and the server.
    fn io(self, server: &Server) -> serde_json::Value {
        let subsystem = server.volume.rsplit_once('/').expect("a volume of a subsystem").0;
        let ran = self.command(&["info", subsystem, "--json"]).output().expect("diskside runs");
        let said: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        said["io"].clone()
    }

    /// Exit code, standard output and standard error, except what differs from server to server.
    fn run(self, server: &Server, args: &[&str]) -> (Option<i32>, Vec<u8>, String) {
        let ran = self.command(args).output().expect("diskside runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        (ran.status.code(), ran.stdout, said.replace(&server.export, "EXPORT").replace(&server.volume, "VOLUME"))
    }
}

impl Server {
    fn start(way: Way, dir: &Path) -> Self {
        let export = format!("data={},rw", dir.display());
        let volume = format!("disk={},rw,size=16MiB", dir.join("disk").display());
        let serve =
            ["serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--export", &export, "--volume", &volume];
        let mut child = way.command(&serve).spawn().expect("diskside runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut url = |scheme: &str| {
            let line = lines.find_map(|line| line.ok().filter(|line| line.contains(scheme))).expect("it says where");
            line.split_whitespace().next_back().expect("a word").to_owned()
        };
        Self { page: url(" http://"), volume: url("nvme-tcp://"), export: url("diskside://"), child }
    }

    /// A metric without labels, once the server tells it.
    fn metric(&self, name: &str) -> String {
        let address = self.page.trim_start_matches("http://").trim_end_matches('/');
        let mut found = None;
        common::until("its metrics tell it", || {
            let mut connection = TcpStream::connect(address).expect("it listens");
            write!(connection, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            let mut reply = String::new();
            connection.read_to_string(&mut reply).expect("text");
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
            found = reply.lines().find_map(value);
            found.is_some()
        });
        found.expect("it was told")
    }

    /// Whether all its descriptors of a file have `O_DIRECT`. Only root may look.
    fn is_direct(&self, path: &str) -> bool {
        let process = format!("/proc/{}", self.child.id());
        let Ok(descriptors) = std::fs::read_dir(format!("{process}/fd")) else {
            eprintln!("NOT TESTED: only root sees how the server opened its volume");
            return true;
        };
        let numbers =
            descriptors.map(|entry| entry.expect("a descriptor").file_name().into_string().expect("a number"));
        let is_its = |number: &String| {
            std::fs::read_link(format!("{process}/fd/{number}")).is_ok_and(|file| file == Path::new(path))
        };
        let flags = numbers.filter(is_its).map(|number| {
            let info = std::fs::read_to_string(format!("{process}/fdinfo/{number}")).expect("it stays open");
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("each has flags");
            i32::from_str_radix(flags.trim(), 8).expect("octal")
        });
        let flags: Vec<_> = flags.collect();
        !flags.is_empty() && flags.iter().all(|flags| flags & libc::O_DIRECT != 0)
    }

    fn has_thread(&self, name: &str) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        threads
            .flatten()
            .any(|thread| std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|found| found.trim() == name))
    }

    /// Stops it; what it said meanwhile.
    fn stop(mut self) -> String {
        common::stop(&self.child);
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(self.child.wait().expect("it is ours").success(), "{said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
    }
}

/// Copies, runs here and there, a volume, and mistakes.
fn job(way: Way, server: &Server, dir: &Path) -> Vec<(Option<i32>, Vec<u8>, String)> {
    let path = |name: &str| dir.join(name).to_str().expect("text").to_owned();
    let (here, back, image) = (path("here"), path("back"), path("image"));
    // More than one chunk, so that it is read ahead.
    std::fs::write(&here, numbers(1_100_001)).expect("written");
    std::fs::write(&image, numbers(1 << 20)).expect("written");
    let there = format!("{}/there", server.export);
    let jobs: &[&[&str]] = &[
        &["cp", &here, &there, "--force"],
        &["cat", &there],
        &["cp", &there, &back, "--force"],
        &["run", "stats64", &here],
        &["run", "stats64", &there, "--where", "device"],
        &["run", "stats64", &there, "--where", "host"],
        &["run", "wc", &there, &there],
        &["cp", &image, &server.volume, "--force", "--verify"],
        &["cp", &server.volume, &back, "--force"],
        &["cat", &format!("{}/nothing", server.export)],
        &["run", "wc", &path("nothing")],
    ];
    let of = |args: &&[&str]| match (way.run(server, args), args[0]) {
        // It says how long it took.
        ((code, _, said), "cp") => (code, Vec::new(), said),
        (ended, _) => ended,
    };
    let mut ended: Vec<_> = jobs.iter().map(of).collect();
    ended.push((None, std::fs::read(&back).expect("copied"), String::new()));
    ended
}

#[test]
fn a_job_gives_the_same_whatever_the_kernel_allows() {
    let mut expected = None;
    let ways = [Way::Usual, Way::Chosen, Way::Denied(libc::EPERM), Way::Denied(libc::ENOSYS)];
    // Linux 6.14 and later count all memory of rings. With 256 and 768 KiB some rings can be made; it ended with the others.
    let limited = [Way::Locked(0), Way::Locked(256), Way::Locked(768)];
    for way in ways.into_iter().chain(limited) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let server = Server::start(way, dir.path());
        let io = way.io(&server);
        let ended = job(way, &server, dir.path());
        assert!(
            ended[..9].iter().all(|(code, ..)| *code == Some(0)),
            "{way:?}: {:?}",
            ended.iter().map(|(.., said)| said)
        );
        let lines: Vec<_> =
            ended.into_iter().map(|(code, out, said)| (code, out, without_names(&said, dir.path()))).collect();
        // The message shows text that differs, and not its bytes, which would fill a screen.
        let expected = expected.get_or_insert_with(|| lines.clone());
        for (at, (found, expected)) in lines.iter().zip(&*expected).enumerate() {
            assert_eq!((found.0, &found.2), (expected.0, &expected.2), "{way:?}, {at}");
            assert!(found.1 == expected.1, "{way:?}: the output of {at} differs");
        }
        let metric = server.metric("diskside_io_uring");
        let said = server.stop();
        let told = said.lines().filter(|line| line.contains("instead of io_uring")).count();
        // The server says in its log what `info` says of it.
        assert_eq!(io["server"], if told == 0 { "io_uring" } else { "posix" }, "{way:?}: {said}");
        // No test failed when the metric said the opposite.
        assert_eq!(metric, if told == 0 { "1.0" } else { "0.0" }, "{way:?}: {said}");
        let is_without = matches!(way, Way::Chosen | Way::Denied(_));
        assert!(!is_without || io["host"] == "posix", "{way:?}: {io}");
        match way {
            Way::Usual => {}
            // Before 6.14 they have room.
            Way::Locked(_) => assert!(told == 0 || (told == 1 && said.contains("RLIMIT_MEMLOCK")), "{said}"),
            Way::Chosen => assert!(told == 1 && said.contains("DISKSIDE_IO asks for it"), "{said}"),
            Way::Denied(libc::EPERM) => {
                assert!(told == 1 && said.contains("denie") && said.contains("seccomp"), "{said}");
            }
            Way::Denied(_) => assert!(told == 1 && said.contains("this kernel has no io_uring"), "{said}"),
            Way::DeniedToo(_) => unreachable!("it is not one of these"),
        }
    }
}

fn without_names(said: &str, dir: &Path) -> String {
    said.replace(dir.to_str().expect("text"), "DIR")
}

/// Reads and writes with `O_DIRECT` go to the kernel by `io_submit` where there is no io_uring. That threads do them where it is denied
/// was tested nowhere: container engines that deny io_uring allow it. The first denial lets a ring make its context, and then
/// refuses each operation.
#[test]
fn threads_pass_the_page_cache_by_where_all_else_is_denied() {
    for denied in [&[libc::SYS_io_submit][..], &[libc::SYS_io_setup, libc::SYS_io_submit]] {
        let way = Way::DeniedToo(denied);
        // Not memory, which `O_DIRECT` is not for.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
        let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
        let (image, back) = (path("image"), path("back"));
        let bytes = numbers((16 << 20) / 8);
        std::fs::write(&image, &bytes).expect("written");
        let server = Server::start(way, dir.path());
        let disk = std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(path("disk"));
        disk.expect("the build directory's file system takes O_DIRECT");
        assert_eq!(way.io(&server), serde_json::json!({"host": "posix", "server": "posix"}), "{way:?}");
        let ran = |args: &[&str]| {
            let (code, out, said) = way.run(&server, args);
            assert_eq!(code, Some(0), "{way:?}, {args:?}: {said}");
            out
        };
        ran(&["cp", &image, &server.volume, "--force", "--verify"]);
        assert!(std::fs::read(path("disk")).expect("it is ours") == bytes, "{way:?}: other bytes were written");
        ran(&["cp", &server.volume, &back, "--force"]);
        assert!(std::fs::read(&back).expect("copied") == bytes, "{way:?}: other bytes were read");
        // The rings of calls.
        let there = ran(&["run", "stats64", &server.volume, "--where", "device"]);
        assert!(there == ran(&["run", "stats64", &image]), "{way:?}: a function read other bytes");
        assert!(server.is_direct(&path("disk")), "{way:?}: the volume is not served past the page cache");
        assert!(server.has_thread("io-file"), "{way:?}: no thread read or wrote a file");
        server.stop();
    }
}

/// A wrong value was an error of the environment in commands that came to need a ring, with the name of whatever file or server they were
/// about, and no error in the others.
#[test]
fn an_interface_that_there_is_not_is_wrong_usage_in_all_commands() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("f");
    std::fs::write(&file, vec![b'\n'; 20 << 20]).expect("written");
    let (file, copy) = (file.to_str().expect("text"), dir.path().join("copy"));
    let (copy, export) = (copy.to_str().expect("text"), format!("data={}", dir.path().display()));
    let commands: [&[&str]; 7] = [
        &["run", "wc", file],
        &["cp", file, copy],
        &["cat", "diskside://127.0.0.1:1/data/f"],
        &["serve", "--listen", "127.0.0.1:0", "--export", &export],
        &["check-config"],
        &["doctor"],
        &["functions"],
    ];
    // As a wrong option that is not the parser's to find.
    let usual = common::diskside(&["run", "wc", file, "--offset", "1", "--length", &u64::MAX.to_string()]);
    assert!(usual.0 == 2 && usual.2.starts_with("diskside: --offset"), "{usual:?}");
    for args in commands {
        let ran = common::command(args).env("DISKSIDE_IO", "kqueue").output().expect("diskside runs");
        let said = common::said(&ran);
        let expected = "diskside: DISKSIDE_IO is \"kqueue\"; it can be io_uring or posix\n";
        assert_eq!((ran.status.code(), &*said), (Some(2), expected), "{args:?}");
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
    assert!(!Path::new(copy).exists());
}

/// Somebody who had set the variable, or whose unit had, was told to change the kernel's settings.
#[test]
fn a_doctor_says_that_the_variable_chose_and_not_the_kernel() {
    let doctor = |way: Way| {
        let ran = way.command(&["doctor", "--json"]).output().expect("diskside runs");
        let told: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        let findings = told["findings"].as_array().expect("a list").clone();
        findings.into_iter().find(|one| one["what"] == "io_uring").expect("it is looked at")
    };
    let chosen = doctor(Way::Chosen);
    let (found, remedy) = (chosen["found"].as_str().expect("text"), chosen["remedy"].as_str().expect("text"));
    assert!(chosen["state"] == "slower" && found.contains("the variable DISKSIDE_IO is posix"), "{chosen}");
    assert!(remedy.starts_with("unset DISKSIDE_IO") && !remedy.contains("sysctl"), "{chosen}");
    let denied = doctor(Way::Denied(libc::EPERM));
    assert!(!denied.to_string().contains("DISKSIDE_IO"), "{denied}");
    assert!(denied["remedy"].as_str().expect("text").contains("sysctl"), "{denied}");
}

/// Lets a command and all that it starts lock so much memory, and root no more than others.
fn limit_locked_memory(command: &mut Command, kib: u64) {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let limit = libc::rlimit { rlim_cur: kib << 10, rlim_max: kib << 10 };
    let install = move || {
        // SAFETY: both take numbers, and the second a limit that lives through the call. Who is not root has no such right.
        let done = unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(install) };
}

const IO_URING: &[libc::c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Denies system calls to a command and all that it starts, as container engines do.
fn deny(command: &mut Command, calls: &[libc::c_long], errno: i32) {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let rule = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let calls = calls.to_vec();
    let mut rules = vec![rule(BPF_LD | BPF_W | BPF_ABS, 0, 0)];
    for number in &calls {
        rules.push(rule(BPF_JMP | BPF_JEQ | BPF_K, 1, *number as u32));
        rules.push(rule(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    rules.push(rule(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let install = move || {
        let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_ptr().cast_mut() };
        // SAFETY: both take numbers, and the second a program that lives through the call.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        let is_denied = |number: &libc::c_long| {
            // SAFETY: with nothing but zeroes none of these calls does anything.
            let answer = unsafe { libc::syscall(*number, 0, 0, 0, 0, 0, 0) };
            answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(errno)
        };
        if !done {
            return Err(std::io::Error::last_os_error());
        }
        if calls.iter().all(is_denied) { Ok(()) } else { Err(std::io::ErrorKind::Unsupported.into()) }
    };
    // SAFETY: between fork and exec it makes system calls, and allocates nothing.
    unsafe { command.pre_exec(install) };
}
