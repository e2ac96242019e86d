//! `diskside serve` under a service manager: the messages to and from it, and a configuration that changes.

mod common;

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::place::{Logged, Place, serve};
use common::{Process, diskside, good, numbers, until};
use rustix::process::Signal;

/// SIGHUP took hosts and keys alone: an export that was added needed a new start, and every host lost its connection.
#[test]
fn exports_and_volumes_come_and_go_while_hosts_are_at_work_and_nothing_wrong_is_taken() {
    let place = Place::new();
    let reach = format!("reach = [\"{}\"]\n", place.dir.path().display());
    place.write(&format!("{reach}{}", place.export("one")));
    let server = Logged::start(&place, &mut serve(place.config()));
    let at = format!("{}/one/f", server.target);
    let (enough, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let session = new_session();
            let file = session.open(&at).expect("it is served");
            let mut count = 0_u32;
            while !enough.load(Ordering::Relaxed) {
                if file.pread(0, 4096).wait().is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                count += 1;
            }
            count
        });
        let volume = "[[volume]]\nname = \"scratch\"\npath = \"mem:1MiB\"\nrw = true\n";
        place.write(&format!("{reach}{}{}{volume}", place.export("one"), place.export("two")));
        server.process.signal(Signal::HUP);
        server.says("read again; served now: volume `scratch`, export `two`");
        assert!(server.reads("two"));
        let found = good(&["discover", &server.target.replace("diskside://", "nvme-tcp://")]);
        assert!(found.contains("nqn."), "{found}");

        place.write(&format!("{reach}{}[[export]]\nname = \"two\"\npath = \"/nowhere/at/all\"\n", place.export("one")));
        server.process.signal(Signal::HUP);
        server.says("stays as it was: export `two`");
        assert!(server.reads("two"), "the old one is served");

        place.write(&format!("{reach}{}\nnonsense = 1\n", place.export("one")));
        server.process.signal(Signal::HUP);
        server.says("diskside.toml:7: unknown field `nonsense`");
        assert!(server.reads("two"));

        place.write(&format!("{reach}reactors = 3\n{}", place.export("one")));
        server.process.signal(Signal::HUP);
        server.says("not served any more: volume `scratch`, export `two`");
        server.says("until the server is started again: reactors");
        assert!(!server.reads("two") && server.reads("one"));
        enough.store(true, Ordering::Relaxed);
        assert!(host.join().expect("no panic") > 0);
    });
    assert!(!failed.load(Ordering::Relaxed), "a host failed while the configuration changed");
}

/// An export whose directory was removed and made again found nothing until the server was started again, and every error was a plain
/// "No such file or directory" for files that were there. A reload takes the new directory where the process reaches it, and otherwise
/// says what does; it is taken all the same, because it may be what keeps a host out.
#[test]
fn a_directory_that_is_made_again_is_served_after_a_reload() {
    for reaches in [true, false] {
        let place = Place::new();
        let reach = if reaches { format!("reach = [\"{}\"]\n", place.dir.path().display()) } else { String::new() };
        place.write(&format!("{reach}{}{}", place.export("one"), place.export("two")));
        let server = Logged::start(&place, &mut serve(place.config()));
        let one = place.dir.path().join("one");
        std::fs::remove_dir_all(&one).expect("ours");
        server.process.signal(Signal::HUP);
        server.says("the next reload tries again: export `one`: its directory was removed, and is not there again");
        std::fs::create_dir(&one).expect("made");
        std::fs::write(one.join("f"), numbers(2000)).expect("written");
        let file = format!("{}/one/f", server.target);
        for command in [&["cat", &*file][..], &["run", "wc", &file], &["ls", &format!("{}/one", server.target)]] {
            let (code, _, said) = diskside(command);
            let told = "the directory of export `one` was removed at the server";
            assert!(code == 4 && said.contains(told), "{command:?} ended with {code}: {said}");
        }
        server.says("its directory was removed: make it again");

        place.write(&format!("{reach}{}", place.export("one")));
        server.process.signal(Signal::HUP);
        server.says("not served any more: export `two`");
        let is_closed = std::fs::read_to_string(&server.log).expect("text").contains("Landlock ABI");
        if reaches || !is_closed {
            server.says("served now: export `one`, whose directory is another one");
            assert!(server.reads("one"));
        } else {
            server.says("in its file for directories there that are made again while it runs");
            assert!(!server.reads("one"));
        }
    }
}

/// A reload that came while the server read its file for the first time ended it.
#[test]
fn a_reload_waits_for_the_start() {
    let place = Place::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &place.file, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let reach = format!("reach = [\"{}\"]", place.dir.path().display());
    let config = format!("listen = [\"127.0.0.1:0\"]\n{reach}\n{}", place.export("one"));
    // Once somebody reads it.
    let write = |text: &str| {
        let mut pipe = OpenOptions::new();
        pipe.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        until("the file is read", || {
            pipe.open(&place.file).is_ok_and(|mut pipe| pipe.write_all(text.as_bytes()).is_ok())
        });
    };
    let server = Logged::start_after(&place, &mut serve(place.config()), |process| {
        let status = format!("/proc/{}/status", process.0.id());
        until("it takes down the signal", || {
            let caught = std::fs::read_to_string(&status).expect("it runs");
            let caught = caught.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("it is told");
            u64::from_str_radix(caught.trim(), 16).expect("a number") & 1 == 1
        });
        process.signal(Signal::HUP);
        write(&config);
    });
    write(&format!("{config}{}", place.export("two")));
    server.says("read again; served now: export `two`");
}

/// A server that others reach lost its hosts by a reload, and anybody who reached it had all of it, to write.
#[test]
fn a_reload_opens_nothing_by_what_is_missing() {
    let place = Place::new();
    let listening = |address: &str, text: &str| {
        std::fs::write(&place.file, format!("listen = [\"{address}\"]\n{}\n{text}", place.export("one")))
            .expect("written");
    };
    // Nobody is let in: it is open to no network, whichever that is.
    listening("0.0.0.0:0", "[security]\nrequire = \"auth\"");
    let server = Logged::start(&place, &mut serve(place.config()));
    listening("127.0.0.1:0", "");
    server.process.signal(Signal::HUP);
    server.says("stays as it was: hosts would have to prove less than before");
    // Nor may it be by what is written: it listens where it did.
    listening("127.0.0.1:0", "[security]\nrequire = \"none\"");
    server.process.signal(Signal::HUP);
    server.says("stays as it was: listen: 0.0.0.0:");
    server.says("hosts are not authenticated");
    assert!(!server.reads("one"));
    drop(server);

    let granted = "[[grant]]\nto = [\"*\"]\nexports = { one = \"r\" }\nfunctions = [\"shipped:wc\"]\n";
    listening("127.0.0.1:0", granted);
    let server = Logged::start(&place, &mut serve(place.config()));
    assert!(server.reads("one"));
    let runs_more = || diskside(&["run", "stats64", &format!("{}/one/f", server.target), "--where", "device"]).0 == 0;
    assert!(!runs_more());
    listening("127.0.0.1:0", "");
    server.process.signal(Signal::HUP);
    server.says("stays as it was: no [[grant]] is left");
    assert!(!runs_more());
    // An editor, or a full disk, cut it off.
    std::fs::write(&place.file, "").expect("written");
    server.process.signal(Signal::HUP);
    server.says("stays as it was: it serves nothing any more");
    assert!(server.reads("one"));
    let ann = "[[host]]\nname = \"ann\"\nnqn = \"nqn.2014-08.org.example:ann\"\n";
    listening("127.0.0.1:0", &format!("{granted}{ann}"));
    server.process.signal(Signal::HUP);
    server.says("read again; hosts let in: ann");
    listening("127.0.0.1:0", granted);
    server.process.signal(Signal::HUP);
    server.says("stays as it was: no [[host]] is left");
    listening("127.0.0.1:0", &format!("{granted}[security]\nrequire = \"auth\"\n"));
    server.process.signal(Signal::HUP);
    server.says("read again; hosts not let in any more: ann");
    listening("127.0.0.1:0", granted);
    server.process.signal(Signal::HUP);
    server.says("stays as it was: hosts would have to prove less than before");
    listening("127.0.0.1:0", &format!("{granted}[security]\nrequire = \"none\"\n"));
    server.process.signal(Signal::HUP);
    until("it is open again", || server.reads("one"));
}

/// Programs that nobody had signed ran after a reload that had lost one line.
#[test]
fn a_reload_does_not_lose_who_signs() {
    let place = Place::new();
    let signers = format!("[security]\nrequire_signed_by = [\"{}\"]\n", "a7".repeat(32));
    place.write(&format!("{signers}{}", place.export("one")));
    let server = Logged::start(&place, &mut serve(place.config()));
    place.write(&place.export("one"));
    server.process.signal(Signal::HUP);
    server.says("stays as it was: security.require_signed_by is gone");
}

/// A host that could write an export with keys in it came in as another host, and one that could write the configuration let itself
/// in.
#[test]
fn an_export_of_what_decides_who_comes_in_is_refused() {
    let place = Place::new();
    let line = good(&["key", "new", "--file", place.dir.path().join("two/ann").to_str().expect("text")]);
    let nqn = line.split_whitespace().next().expect("a name");
    let key = place.dir.path().join("one/key");
    std::fs::write(&key, line.split_whitespace().nth(1).expect("a key")).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, mode).expect("ours");
    let host = format!("[[host]]\nname = \"ann\"\nnqn = \"{nqn}\"\ndhchap_keys = [\"file:{}\"]\n", key.display());
    let refused = |text: &str, why: &str| {
        place.write(text);
        for command in [&["check-config"][..], &["serve", "--config"]] {
            let (code, _, said) = diskside(&[command, &[place.config()]].concat());
            assert!(code != 0 && said.contains(why), "{command:?}: {code}: {said}");
        }
    };
    refused(&format!("{host}{}", place.export("one")), "export `one`: a key is in it");
    let all = format!("[[export]]\nname = \"all\"\npath = \"{}\"\nrw = true\n", place.dir.path().display());
    refused(&all, "export `all`: the configuration is in it");
    // A file that is still to come; and a link, in whose place a host could put a file of its own.
    let one = format!("{}rw = true\n", place.export("one"));
    refused(&format!("security.audit = \"one/audit.jsonl\"\n{one}"), "export `one`: the audit file is in it");
    std::fs::remove_file(&key).expect("it was there");
    std::os::unix::fs::symlink("/dev/null", place.dir.path().join("one/linked")).expect("linked");
    refused(&format!("security.audit = \"one/linked\"\n{one}"), "export `one`: the audit file is in it");
}

/// A session of this process.
fn new_session() -> diskside::session::Session {
    diskside::session::Session::new(diskside::session::SessionOptions::default())
}

#[test]
fn an_export_that_a_confined_server_cannot_reach_is_refused_with_what_to_do() {
    let place = Place::new();
    place.write(&place.export("one"));
    let server = Logged::start(&place, &mut serve(place.config()));
    place.write(&format!("{}{}", place.export("one"), place.export("two")));
    server.process.signal(Signal::HUP);
    server.says("export `two`: this server has closed its process to");
    server.says(&format!("reach = [\"{}\"]", place.dir.path().display()));
    assert!(server.reads("one") && !server.reads("two"));
}

/// systemd waits for READY=1, and ends what does not say WATCHDOG=1 in time.
#[test]
fn a_service_manager_is_told_what_the_server_does() {
    let place = Place::new();
    place.write(&place.export("one"));
    let path = place.dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut command = serve(place.config());
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000").env_remove("WATCHDOG_PID");
    let server = Logged::start(&place, &mut command);
    let told = |wanted: &str| loop {
        let mut bytes = [0; 1024];
        let len = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("{wanted}: {error}"));
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        if text.starts_with(wanted) {
            return text;
        }
    };
    assert!(told("READY=1").contains("STATUS=serving 1 exports and 0 volumes at 127.0.0.1:"));
    told("WATCHDOG=1");
    server.process.signal(Signal::HUP);
    assert!(told("RELOADING=1").contains("MONOTONIC_USEC="));
    told("READY=1");
    server.process.signal(Signal::TERM);
    told("STOPPING=1");
}

/// In the journal every line was as important as any other: nobody found what was refused.
#[test]
fn lines_in_the_journal_have_levels() {
    let place = Place::new();
    place.write(&place.export("one"));
    // It counts only where standard error is that file.
    let in_journal = |command: &mut Command, log: &std::path::Path| {
        let file = std::fs::metadata(log).expect("created");
        command.env("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino()));
    };
    let log = place.dir.path().join("log");
    std::fs::write(&log, "").expect("created");
    let mut command = serve(place.config());
    in_journal(&mut command, &log);
    let server = Logged::start(&place, command.env("DISKSIDE_LOG", "info"));
    server.process.signal(Signal::HUP);
    server.says("<5>diskside: the configuration was read again");
    place.write("nonsense = 1\n");
    server.process.signal(Signal::HUP);
    server.says("<4>diskside: the configuration stays as it was: ");
    let said = std::fs::read_to_string(&server.log).expect("text");
    assert!(
        said.lines().all(|line| ["<3>", "<4>", "<5>", "<6>", "<7>"].iter().any(|level| line.starts_with(level))),
        "{said}"
    );

    let ended = |journal: bool| {
        let log = place.dir.path().join("ended");
        let said = std::fs::File::create(&log).expect("created");
        let mut command = serve("/nowhere/diskside.toml");
        if journal {
            in_journal(&mut command, &log);
        } else {
            command.env("JOURNAL_STREAM", "1:1");
        }
        assert_eq!(command.stderr(said).status().expect("diskside runs").code(), Some(2));
        std::fs::read_to_string(&log).expect("text")
    };
    let (there, elsewhere) = (ended(true), ended(false));
    assert!(there.starts_with("<3>diskside: "), "{there}");
    assert!(elsewhere.starts_with("diskside: "), "{elsewhere}");
}

#[test]
fn a_socket_that_the_service_manager_listens_on_is_served() {
    let place = Place::new();
    place.write(&place.export("one"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let program = env!("CARGO_BIN_EXE_diskside");
    let script = format!("exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 exec {program} serve --config {}", place.config());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("DISKSIDE_LLVM", "").stdin(Stdio::from(OwnedFd::from(listener)));
    let server = Logged::start(&place, &mut command);
    assert_eq!(server.target, format!("diskside://{address}"));
    assert!(server.reads("one"));
}

#[test]
fn a_configuration_is_checked_without_a_server_and_what_is_wrong_has_its_line() {
    let place = Place::new();
    let check = || diskside(&["check-config", place.config()]);
    place.write(&format!("{}{}", place.export("one"), place.export("two")));
    let (code, out, said) = check();
    let expected = format!("{}: good: 2 exports, 0 volumes, 0 hosts, 0 grants, 0 quotas\n", place.config());
    assert_eq!((code, String::from_utf8_lossy(&out).into_owned(), said.as_str()), (0, expected, ""));
    for (text, wrong) in [
        ("nqn = \"nonsense\"\n", ":2: nqn: `nonsense` is not an NQN"),
        ("\n[limits]\ntransfer = \"5KiB\"\n", ":4: limits.transfer: 5KiB is not a power of two"),
        (
            "[[export]]\nname = \"a\"\npath = \"/tmp\"\n[[export]]\npath = \"/\"\nname = \"a\"\n",
            "export `a`: there are two",
        ),
        ("metrics = \"0.0.0.0:9464\"\n", ":2: metrics: 0.0.0.0:9464 is reached from other machines"),
        ("metrics = \"here\"\nlisten = 1\n", ":3: "),
        ("[[export]]\nname = \"gone\"\npath = \"/nowhere/at/all\"\n", "export `gone`: /nowhere/at/all: No such file"),
        ("[[volume]]\nname = \"v\"\npath = \"/nowhere/v\"\n", "volume `v`: /nowhere/v: No such file"),
        ("[security]\naudit = \"/nowhere/at/all/log\"\n", "security.audit: there is no directory /nowhere/at/all"),
        ("[security]\naudit = \"/tmp\"\n", "security.audit: /tmp is a directory"),
        ("reactors = 1\ncores = [4000]\n", "cores: this machine has no processor 4000, or this process may not use it"),
        ("reactors = 2\ncores = [0]\n", ":3: cores: 1 cores for 2 reactors; write one each"),
    ] {
        place.write(text);
        let (code, _, said) = check();
        assert!(code == 2 && said.contains(wrong), "{text}: {code}: {said}");
    }
    let (code, _, said) = diskside(&["check-config", "/nowhere/diskside.toml"]);
    assert!(code == 2 && said.contains("cannot read /nowhere/diskside.toml: No such file"), "{said}");
}

fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("it listens");
    write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut reply = String::new();
    connection.read_to_string(&mut reply).expect("text");
    reply
}

/// The counters of reactors and hosts reached only programs that embed the server.
#[test]
fn a_server_tells_prometheus_and_browsers_what_it_does() {
    let place = Place::new();
    place.write(&format!("metrics = \"127.0.0.1:0\"\n{}", place.export("one")));
    let (_server, line) = Process::start(&["serve", "--config", place.config(), "--volume", "disk=mem:1MiB,rw"]);
    let address = line
        .strip_prefix("what it does at http://")
        .and_then(|rest| rest.strip_suffix('/'))
        .unwrap_or_else(|| panic!("{line}"));
    until("it is asked", || {
        let metrics = get(address, "/metrics");
        metrics.starts_with("HTTP/1.1 200 OK\r\n") && metrics.contains("\ndiskside_up 1")
    });
    let metrics = get(address, "/metrics");
    for name in [
        "diskside_build{version=\"",
        "diskside_reactor_stalled_reads_total{reactor=\"0\"} 0",
        "diskside_reactor_memory_waits_total{reactor=\"0\"} 0",
        "diskside_connections_refused_total 0",
    ] {
        assert!(metrics.contains(name), "{name}\n{metrics}");
    }
    let page = get(address, "/");
    assert!(page.contains("<!doctype html>") && page.contains("Content-Security-Policy: default-src 'none'"), "{page}");
    assert!(!page.contains("<script"), "{page}");
    assert!(get(address, "/elsewhere").starts_with("HTTP/1.1 404 "));
}

#[test]
fn calls_operations_and_hosts_are_told_with_their_latencies() {
    let place = Place::new();
    place.write(&place.export("one"));
    let serve = ["serve", "--config", place.config(), "--metrics", "127.0.0.1:0"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_diskside"))
        .args(serve)
        .env("DISKSIDE_LLVM", "")
        .stdout(Stdio::piped())
        .spawn()
        .expect("diskside runs");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    let mut next = |start: &str| {
        let line = lines.find_map(|line| line.ok().filter(|line| line.contains(start))).expect("it says where");
        line.split_whitespace().last().expect("a URL").to_owned()
    };
    let (page, url) = (next("http://"), next("diskside://"));
    let _server = Process(child);
    good(&["run", "stats64", &format!("{url}/f"), "--where", "device"]);
    // Bytes, and no text.
    assert_eq!(diskside(&["cat", &format!("{url}/f")]).0, 0);
    let address = page.trim_start_matches("http://").trim_end_matches('/');
    let count = |start: &str| {
        let metrics = get(address, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with(start)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    until("a call has its latency", || count("diskside_call_duration_seconds_count{id=\"1\",name=\"stats64\"") == 1.0);
    until("operations have theirs", || {
        count("diskside_export_operation_duration_seconds_count{export=\"one\"}") >= 2.0
    });
    // Nobody could see which host called functions, or read files.
    until("hosts have theirs", || {
        count("diskside_host_calls_total{host=\"") == 1.0 && count("diskside_host_file_read_bytes_total{host=\"") > 0.0
    });
    // Nor why calls came, nor what went wrong.
    until("a choice has its reason", || count("diskside_calls_placed_total{reason=\"told\"}") == 1.0);
    let (code, _, said) = diskside(&["run", "wc", &format!("{url}/f"), "--where", "device", "--budget", "1"]);
    assert_eq!(code, 1, "{said}");
    until("a failure is on the page", || get(address, "/").contains("Failed lately"));
    let page = get(address, "/");
    for text in ["call of stats64", "operation on export one", "the caller says so", "budget"] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

/// It is asked on machines that have none of what it looks for.
#[test]
fn a_doctor_says_what_is_missing_and_what_to_do() {
    let doctor = |path: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        let output =
            command.arg("doctor").args(args).env("PATH", path).env("DISKSIDE_LLVM", "").output().expect("runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (_, out, _) = doctor("/nowhere", &[]);
    assert!(out.contains("slower   clang") && out.contains("apt install clang"), "{out}");
    assert!(out.contains("slower   LLVM"), "{out}");
    let (code, out, said) = doctor("/nowhere", &["/nowhere/at/all"]);
    assert!(code == Some(1) && said.contains("path /nowhere/at/all"), "{code:?} {said}");
    assert!(out.contains("missing  path /nowhere/at/all"), "{out}");
    let (_, out, _) = doctor("/nowhere", &["--json", "/proc"]);
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(told["findings"].as_array().expect("a list").len() > 8, "{out}");
}

#[test]
fn a_bench_tells_what_both_sides_do_with_a_file() {
    let server = common::Server::start("");
    server.file("n.u64", &numbers(100_000));
    let told = common::json(&["bench", &server.at("n.u64"), "--times", "2"]);
    assert_eq!(told["bytes"], 800_000, "{told}");
    for side in ["host_us", "device_us", "short_host_us", "short_device_us"] {
        assert!(told[side].as_u64() > Some(0), "{told}");
    }
    assert!(good(&["bench", &server.at("n.u64"), "--times", "1"]).contains("computed at the server"));
    server.file("empty", b"");
    let (code, _, said) = diskside(&["bench", &server.at("empty")]);
    assert!(code == 2 && said.contains("the file is empty"), "{code}: {said}");
}
