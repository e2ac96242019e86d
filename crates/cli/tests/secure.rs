//! Over TLS, from the laptop to the server and back, by the commands; and what somebody in between sees and can do.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::{Process, command, fed, said};

/// Exit code, standard output, standard error, as a host with the key of this file.
fn with_key(key: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command(args).env("DISKSIDE_KEY", key).output().expect("diskside runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ended by itself"), text(&output.stdout), text(&output.stderr))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn new_key(file: &Path, more: &[&str]) -> String {
    let (code, line, said) = with_key(file, &[&["key", "new"], more].concat());
    assert_eq!(code, 0, "{said}");
    line
}

fn allow(config: &Path, name: &str, line: &str) {
    let output = fed(&["key", "allow", "--name", name, "--config", path(config)], line.as_bytes());
    assert!(output.status.success(), "{}", said(&output));
}

struct Server {
    process: Process,
    address: String,
}

impl Server {
    fn start(config: &Path, directory: &Path, more: &[&str]) -> Self {
        let export = format!("data={},rw", directory.display());
        let args = ["serve", "--listen", "127.0.0.1:0", "--config", path(config), "--export", &export];
        let mut serve = Command::new(env!("CARGO_BIN_EXE_diskside"));
        serve.args(args).args(more).env("DISKSIDE_LLVM", "").env("DISKSIDE_LOG", "trace");
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("diskside runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains("diskside://")).expect("it serves");
        let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("it says where");
        let address = url["diskside://".len()..].split('/').next().expect("an address").to_owned();
        Self { process: Process(child), address }
    }

    fn url(&self, file: &str) -> String {
        format!("diskside://{}/data/{file}", self.address)
    }

    /// What it logged, once it has ended.
    fn log(mut self) -> String {
        self.process.kill();
        let mut log = String::new();
        self.process.0.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
        log
    }
}

/// Somebody between the host and the server: sees all bytes, and may change some.
struct Between {
    address: String,
    seen: Arc<Mutex<Vec<u8>>>,
    changes: Arc<AtomicBool>,
}

impl Between {
    fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (seen, changes) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<AtomicBool>::default());
        let (server, shared) = (server.to_owned(), (Arc::clone(&seen), Arc::clone(&changes)));
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let Ok(there) = TcpStream::connect(&server) else { return };
                let both = [(host.try_clone(), there.try_clone()), (Ok(there), Ok(host))];
                for (index, (from, to)) in both.into_iter().enumerate() {
                    let (seen, changes) = (Arc::clone(&shared.0), Arc::clone(&shared.1));
                    let (from, to) = (from.expect("a socket"), to.expect("a socket"));
                    std::thread::spawn(move || pass(from, to, &seen, &changes, index == 1));
                }
            }
        });
        Self { address, seen, changes }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>, changes: &AtomicBool, to_host: bool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        seen.lock().expect("nobody panics").extend_from_slice(&bytes[..len]);
        // Behind the handshake, whose messages are short.
        if to_host && len > 2048 && changes.load(Ordering::Relaxed) {
            bytes[len / 2] ^= 1;
        }
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn nobody_in_between_reads_or_changes_what_a_laptop_and_its_server_say() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let (key, config, data) = (file("key"), file("server/diskside.toml"), file("data"));
    std::fs::create_dir_all(file("server")).expect("made");
    std::fs::create_dir(&data).expect("made");
    let lines: String = (0..20_000).map(|line| format!("a line that nobody else reads, number {line}\n")).collect();
    std::fs::write(data.join("f"), &lines).expect("written");

    let line = new_key(&key, &["--tls"]);
    assert!(line.contains(" NVMeTLSkey-1:01:") && line.split_whitespace().count() == 2, "{line}");
    assert_eq!(with_key(&key, &["key", "show"]).1, line);
    allow(&config, "ann", &line);
    let server = Server::start(&config, &data, &["--volume", "disk=mem:4MiB,rw"]);
    let between = Between::start(&server.address);
    let at = |file: &str| format!("diskside://{}/data/{file}", between.address);
    assert_eq!(with_key(&key, &["cat", &at("f")]), (0, lines.clone(), String::new()));
    assert_eq!(with_key(&key, &["cat", &at("f").replace("diskside", "diskside+tls")]).0, 0);
    let (code, counted, error) = with_key(&key, &["run", "wc", &at("f")]);
    assert!(code == 0 && counted.contains("20000"), "{counted}{error}");
    let local = file("local");
    std::fs::write(&local, &lines).expect("written");
    let (code, _, error) = with_key(&key, &["cp", path(&local), &at("copied")]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(std::fs::read_to_string(data.join("copied")).expect("it is there"), lines);
    let seen = std::mem::take(&mut *between.seen.lock().expect("nobody panics"));
    assert!(seen.len() > 3 * lines.len(), "it all went through here");
    assert!(!seen.windows(20).any(|part| part == b"a line that nobody e"), "and nobody read it");

    between.changes.store(true, Ordering::Relaxed);
    let (code, out, error) = with_key(&key, &["cat", &at("f")]);
    assert!(code != 0 && lines.starts_with(&out), "what came before the change, and no more: {error}");
    assert!(error.contains("changed on its way"), "{error}");

    let log = server.log();
    let secret = &line.split_whitespace().nth(1).expect("the key")[16..48];
    assert!(!log.contains(secret), "the log has no key in it");
    assert!(log.contains("secure channel made"));
}

#[test]
fn who_does_not_come_as_is_meant_is_told_what_to_do() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let (key, config, data) = (file("key"), file("server/diskside.toml"), file("data"));
    std::fs::create_dir_all(file("server")).expect("made");
    std::fs::create_dir(&data).expect("made");
    std::fs::write(data.join("f"), b"one\n").expect("written");
    let line = new_key(&key, &["--tls"]);
    allow(&config, "ann", &line);
    let server = Server::start(&config, &data, &[]);
    let url = server.url("f");
    assert_eq!(with_key(&key, &["cat", &url]).1, "one\n");

    let refused = |key: &Path, url: &str, want: &str| {
        let (code, out, error) = with_key(key, &["cat", url]);
        assert!(code == 4 && out.is_empty() && error.contains(want), "wanted {want}: {error}");
    };
    // Without TLS.
    refused(Path::new("none"), &url, "wants TLS");
    let plain = file("plain");
    new_key(&plain, &[]);
    refused(&plain, &url, "wants TLS");
    let secure = url.replace("diskside", "diskside+tls");
    refused(Path::new("none"), &secure, "no key of TLS");
    refused(&plain, &secure, "no key of TLS");
    // With a key that it does not know.
    let stranger = file("stranger");
    new_key(&stranger, &["--tls"]);
    refused(&stranger, &url, "does not know this host's key");
    let thief = file("thief");
    new_key(&thief, &["--tls", "--nqn", line.split_whitespace().next().expect("a name")]);
    refused(&thief, &url, "keeps another key");
    assert_eq!(with_key(&key, &["cat", &url]).1, "one\n");
    let log = server.log();
    for want in ["does not speak TLS", "no host is known by the identity", "has another key"] {
        assert!(log.contains(want), "wanted {want}: {log}");
    }

    // A server without TLS, where the host has a key for it: nothing is said in the clear.
    std::fs::write(file("open.toml"), "").expect("written");
    let open = Server::start(&file("open.toml"), &data, &[]);
    let (code, _, error) = with_key(&key, &["cat", &open.url("f")]);
    assert!(code == 4 && error.contains("does not know this host's key"), "{error}");
    let (code, out, _) = with_key(Path::new("none"), &["cat", &open.url("f")]);
    assert_eq!((code, out.as_str()), (0, "one\n"));

    // With the user's usual key, servers on this machine are talked to as they want it.
    let usual = file("config/diskside/key");
    std::fs::create_dir_all(file("config/diskside")).expect("made");
    std::fs::rename(&key, &usual).expect("moved");
    let strict = Server::start(&config, &data, &[]);
    let cat = |server: &Server| {
        let mut cat = command(&["cat", &server.url("f")]);
        cat.env("XDG_CONFIG_HOME", file("config")).env_remove("DISKSIDE_KEY").output().expect("it runs")
    };
    for server in [&open, &strict] {
        let output = cat(server);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one\n", "{}", said(&output));
    }
    // One that refused the key closed the connection that was then tried without, and only that was told.
    std::fs::rename(&stranger, &usual).expect("moved");
    let output = cat(&strict);
    assert!(!output.status.success() && said(&output).contains("does not know this host's key"), "{}", said(&output));
}

#[test]
fn a_key_is_changed_for_another_while_it_serves() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let (old, new, config, data) = (file("old"), file("new"), file("server/diskside.toml"), file("data"));
    std::fs::create_dir_all(file("server")).expect("made");
    std::fs::create_dir(&data).expect("made");
    std::fs::write(data.join("f"), b"one\n").expect("written");
    let line = new_key(&old, &["--tls"]);
    allow(&config, "ann", &line);
    let server = Server::start(&config, &data, &[]);
    let url = server.url("f");
    let renewed = new_key(&new, &["--tls", "--nqn", line.split_whitespace().next().expect("a name")]);
    allow(&config, "ann", &renewed);
    let text = std::fs::read_to_string(&config).expect("text");
    assert!(text.contains("tls_keys = [\"file:keys/ann.tls\", \"file:keys/ann.tls.2\"]"), "{text}");
    server.process.signal(rustix::process::Signal::HUP);
    common::until("the new key is taken", || with_key(&new, &["cat", &url]).0 == 0);
    assert_eq!(with_key(&old, &["cat", &url]).0, 0, "and the old one still is");
    std::fs::write(&config, text.replace("\"file:keys/ann.tls\", ", "")).expect("written");
    server.process.signal(rustix::process::Signal::HUP);
    common::until("the old key is not taken any more", || with_key(&old, &["cat", &url]).0 == 4);
    assert_eq!(with_key(&new, &["cat", &url]).0, 0);
}
