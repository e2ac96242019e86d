//! The kernel refuses most things to a process that confined itself as `diskside serve` does. Each test runs once more, in a process
//! of its own, because nothing takes back what a process gave up.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use diskside_io::ring::{Op, Ring, RingConfig};
use diskside_io::socket::{SocketOptions, socket_for};
use diskside_server::config::{ServeConfig, Settings};
use diskside_server::confine::{Confinement, confine, give_up};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use rustix::process::{getegid, geteuid, getpid, getppid, test_kill_process};

/// Names the directory of such a process.
const VARIABLE: &str = "DISKSIDE_TEST_CONFINED";
const COMPILER: &str = "DISKSIDE_LLVM";

/// In a process of its own, the directory that it serves. Otherwise the test is run in one, with this compiler, and passes there.
fn alone(test: &str, compiler: &Path) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(VARIABLE) {
        return Some(dir.into());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let ran = Command::new(this_program())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, dir.path())
        .envs([(COMPILER, compiler), ("DISKSIDE_SCAN", Path::new("")), ("CACHE_DIRECTORY", dir.path())])
        .output()
        .expect("it runs");
    let (out, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    eprint!("{said}");
    // A program that was started in its place would also succeed, and not print this.
    assert!(ran.status.success() && out.contains(" 1 passed"), "{out}");
    None
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a test is a program")
}

/// Confines this process to a server of this directory, up to its system calls.
fn confined(dir: &Path, connects_to: Option<u16>) -> Confinement {
    let user = format!("{}:{}", geteuid().as_raw(), getegid().as_raw());
    let text = format!("user = '{user}'\n[[export]]\nname = 'data'\npath = '{}'\nrw = true\n", dir.display());
    let config = Settings::from_toml(&text, "d.toml").and_then(ServeConfig::resolve).expect("it is right");
    give_up(&config).expect("it may");
    confine(&config, &[], connects_to).expect("it may")
}

/// The version of this kernel's Landlock: what needs a newer one is not tested.
fn has_landlock(confinement: &Confinement, wanted: u32) -> bool {
    let line = confinement.to_string();
    let found = line.split_once("Landlock ABI ").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
    let has = found.is_some_and(|found: u32| found >= wanted);
    let lacks =
        found.is_some() || line.contains("it is not switched on") || line.contains("this kernel does not have it");
    assert!(has || lacks, "{line}");
    if !has {
        eprintln!("not tested: this needs Landlock ABI {wanted}: {line}");
    }
    has
}

/// Why it is refused.
fn refusal<T>(done: Result<T, impl Into<io::Error>>) -> Option<Errno> {
    done.err().and_then(|error| Errno::from_io_error(&error.into()))
}

/// A filter that allows every call was as good: tests looked whether there is one, and not what it refuses.
#[test]
fn calls_that_a_server_does_not_make_are_refused() {
    let Some(dir) = alone("calls_that_a_server_does_not_make_are_refused", Path::new("")) else { return };
    let mut confinement = confined(&dir, None);
    for (call, _) in harmful_calls().into_iter().filter(|(_, error)| *error == Some(Errno::PERM)) {
        eprintln!("not tested: {call} is refused here without the filter, too");
    }
    let (start, started) = mpsc::channel::<()>();
    let earlier_thread = std::thread::spawn(move || {
        started.recv().expect("it is told to");
        harmful_calls()
    });
    confinement.filter_calls();
    assert!(confinement.to_string().ends_with(", seccomp"), "{confinement}");
    start.send(()).expect("it waits");
    let of_earlier_thread = earlier_thread.join().expect("no panic");
    let of_later_thread = std::thread::spawn(harmful_calls).join().expect("no panic");
    for (call, error) in harmful_calls().into_iter().chain(of_earlier_thread).chain(of_later_thread) {
        assert_eq!(error, Some(Errno::PERM), "{call}");
    }
    // Landlock would say that access is denied.
    let started = Command::new("/bin/sh").args(["-c", "true"]).exec();
    assert_eq!(started.raw_os_error(), Some(Errno::PERM.raw_os_error()), "{started}");

    std::fs::write(dir.join("f"), b"one\n").expect("its own files");
    assert_eq!(std::fs::read(dir.join("f")).expect("its own files"), b"one\n");
    UdpSocket::bind("127.0.0.1:0").expect("names are asked for by UDP");
    UnixDatagram::unbound().expect("service managers are told by datagrams");
    for (family, kind, protocol) in [
        (AddressFamily::INET, SocketType::STREAM, None),
        (AddressFamily::INET6, SocketType::STREAM, Some(ipproto::TCP)),
        (AddressFamily::NETLINK, SocketType::RAW, None),
    ] {
        assert_ne!(refusal(rustix::net::socket(family, kind, protocol)), Some(Errno::PERM), "{family:?}");
    }
}

/// Calls that need no privilege and do no harm here, each with its error.
fn harmful_calls() -> Vec<(&'static str, Option<Errno>)> {
    let mut copy = [0; 4];
    let text = b"text";
    let remote = RemoteIoVec { base: text.as_ptr().addr(), len: text.len() };
    let this = nix::unistd::Pid::this();
    let stream = || rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let socket = |family, kind, protocol| refusal(rustix::net::socket(family, kind, protocol));
    let (internet, streams) = (AddressFamily::INET, SocketType::STREAM);
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    vec![
        ("ptrace", refusal(nix::sys::ptrace::detach(this, None))),
        ("process_vm_readv", refusal(process_vm_readv(this, &mut [io::IoSliceMut::new(&mut copy)], &[remote]))),
        ("kill", refusal(test_kill_process(getpid()))),
        ("listen", refusal(rustix::net::listen(stream(), 1))),
        ("socket of MPTCP", socket(internet, streams, Some(ipproto::MPTCP))),
        ("socket of SCTP", socket(internet, SocketType::SEQPACKET, None)),
        ("socket of SCTP by name", socket(internet, streams, Some(ipproto::SCTP))),
        ("socket of DCCP", socket(internet, SocketType::from_raw(SOCK_DCCP), None)),
        ("socket of another family", socket(AddressFamily::from_raw(libc::AF_ALG as u16), streams, None)),
        ("sendto that connects", refusal(rustix::net::sendto(stream(), text, FAST_OPEN, &nobody))),
    ]
}

const SOCK_DCCP: u32 = 6;
const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());

/// Only files were tested: a Landlock that leaves devices, ports and sockets open would have passed.
#[test]
fn devices_ports_and_sockets_of_others_are_out_of_reach() {
    let Some(dir) = alone("devices_ports_and_sockets_of_others_are_out_of_reach", Path::new("")) else { return };
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (collector, other) = (listen(), listen());
    let [collector, other] = [&collector, &other].map(|listener| listener.local_addr().expect("it has one"));
    let name = UnixAddress::from_abstract_name(format!("diskside-{}", std::process::id())).expect("short");
    let _others = UnixListener::bind_addr(&name).expect("nobody else has it");
    File::open("/dev/zero").expect("anybody may");
    TcpStream::connect(other).expect("anybody may");
    UnixStream::connect_addr(&name).expect("anybody may");
    test_kill_process(getppid().expect("the other half of this test")).expect("it is the same user's");

    let confinement = confined(&dir, Some(collector.port()));
    if !has_landlock(&confinement, 1) {
        return;
    }
    assert_eq!(refusal(File::open("/dev/zero")), Some(Errno::ACCESS));
    File::open("/dev/null").expect("it may");
    std::fs::write(dir.join("f"), b"one\n").expect("its own files");
    let mode = Mode::from_raw_mode(0o600);
    for (kind, device) in [(FileType::Fifo, 0), (FileType::CharacterDevice, makedev(1, 5))] {
        assert_eq!(refusal(mknodat(CWD, dir.join("made"), kind, mode, device)), Some(Errno::ACCESS), "{kind:?}");
    }
    assert_eq!(refusal(UnixListener::bind(dir.join("made"))), Some(Errno::ACCESS));
    if has_landlock(&confinement, 4) {
        TcpStream::connect(collector).expect("it may");
        assert_eq!(refusal(TcpStream::connect(other)), Some(Errno::ACCESS));
        assert_eq!(connected_by_ring(other), Err(Errno::ACCESS));
        assert_eq!(refusal(TcpListener::bind("127.0.0.1:0")), Some(Errno::ACCESS));
    }
    if has_landlock(&confinement, 6) {
        assert_eq!(refusal(UnixStream::connect_addr(&name)), Some(Errno::PERM));
        assert_eq!(refusal(test_kill_process(getppid().expect("it waits"))), Some(Errno::PERM));
    }
}

fn connected_by_ring(address: SocketAddr) -> Result<u32, Errno> {
    let mut ring = Ring::new(&RingConfig { spin: Duration::ZERO, ..RingConfig::default() }).expect("a ring");
    let socket = Arc::new(socket_for(address, &SocketOptions::default()).expect("a socket"));
    ring.push(1, Op::Connect { socket, address });
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(done) = ring.next_completion() {
            return done.result;
        }
        assert!(Instant::now() < deadline, "the ring did not answer");
        ring.wait(Some(Duration::from_millis(100))).expect("it waits");
    }
}

/// The filter has to take all programs where there is one that may be started; Landlock takes this one alone.
#[test]
fn no_program_starts_but_the_compiler() {
    let compiler = this_program();
    let Some(dir) = alone("no_program_starts_but_the_compiler", &compiler) else { return };
    let run = |program: &Path| Command::new(program).arg("--list").env_remove(VARIABLE).output();
    assert!(Command::new("/bin/sh").args(["-c", "true"]).status().expect("anybody may").success());
    let mut confinement = confined(&dir, None);
    confinement.filter_calls();
    assert!(run(&compiler).expect("it may").status.success());
    if has_landlock(&confinement, 1) {
        assert_eq!(refusal(run(Path::new("/bin/sh"))), Some(Errno::ACCESS));
    }
}
