//! No key of any kind is in what a server, its operator and its hosts print, log, count or record.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Process, command, fed, output_of, said, until};
use diskside_keys::HostKey;
use diskside_nvme::auth::{Accepted, Credentials, TlsPsk, TlsSecret};
use diskside_nvme::host::{Admin, AdminConfig, AdminEvent, HostIdentity, Login};
use diskside_nvme::{BufferId, BufferSlice, Buffers, Nqn, Segment, Transmit};
use diskside_tls::Handshake;
use rustix::process::Signal;

const SUBSYSTEM: &str = "nqn.2026-11.org.example:secrets";

/// Everything that was said, by what said it.
#[derive(Default)]
struct Said(Vec<(String, String)>);

impl Said {
    fn add(&mut self, what: &str, text: impl Into<String>) {
        self.0.push((what.to_owned(), text.into()));
    }

    /// Runs a command of a host or of the operator.
    fn run(&mut self, key: &Path, args: &[&str]) -> bool {
        let output =
            command(args).env("DISKSIDE_KEY", key).env("DISKSIDE_LOG", "trace").output().expect("diskside runs");
        self.add(&format!("{args:?}"), format!("{}{}", String::from_utf8_lossy(&output.stdout), said(&output)));
        output.status.success()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// The bytes of a key's text: base64, perhaps with a checksum behind it.
fn decoded(base64: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = base64.bytes().filter(|digit| *digit != b'=').map(|digit| value(digit).into()).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().enumerate().fold(0, |bits, (index, value)| bits | value << (18 - 6 * index));
        bits.to_be_bytes()[1..four.len()].to_vec()
    });
    bytes.collect()
}

/// How 32 bytes can be written: digits of each base, and as Rust writes lists of numbers.
fn written(secret: &[u8]) -> Vec<String> {
    let some = &secret[4..16];
    let hex: String = some.iter().map(|byte| format!("{byte:02x}")).collect();
    let list: Vec<String> = some.iter().map(u8::to_string).collect();
    vec![hex.clone(), hex.to_uppercase(), list.join(", "), list.join(",")]
}

fn connected(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
    stream
}

/// The server's answer over HTTP; a connection that took too long to ask is closed without one.
fn fetched(address: &str, path: &str) -> String {
    let mut reply = String::new();
    until("it answers", || {
        let mut connection = connected(address);
        reply.clear();
        let asked = write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        asked.and_then(|()| connection.read_to_string(&mut reply)).is_ok() && reply.starts_with("HTTP/1.1 200 OK\r\n")
    });
    reply
}

/// A host that has no use for data.
struct NoBuffers;

impl Buffers for NoBuffers {
    fn write(&mut self, _: BufferId, _: u32, _: &[u8]) {}

    fn digest(&mut self, _: BufferSlice) -> u32 {
        0
    }

    fn release(&mut self, _: BufferId) {}
}

/// The key of a secure channel that authenticating makes, with a host's key. No file has it, so the test is the host.
fn made_by_authenticating(address: &str, key: &Path) -> TlsPsk {
    let HostKey { nqn, key, server_key, .. } = HostKey::read(key).expect("a key");
    let credentials = Credentials {
        key: key.expect("one of authentication"),
        controller_key: server_key,
        accepted: Accepted::usual(),
        concatenate: true,
    };
    let config = AdminConfig {
        host: HostIdentity { nqn, id: [7; 16] },
        subsystem: Nqn::new(SUBSYSTEM).expect("a name"),
        io_queues: 1,
        io_queue_entries: 32,
        keep_alive_ms: 0,
        header_digest: false,
        data_digest: false,
        login: Login::Always(Arc::new(credentials)),
        connect_timeout: Duration::from_secs(120),
        command_timeout: Duration::from_secs(120),
    };
    let mut stream = connected(address);
    let (mut admin, mut transmit) = (Admin::new(config, Instant::now()), Transmit::new());
    let mut random = |bytes: &mut [u8]| bytes.iter_mut().zip(11..).for_each(|(byte, next)| *byte = next);
    loop {
        while admin.poll_transmit(&mut transmit) {
            let parts = transmit.segments().map(|segment| match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Buffer(_) => panic!("it sends no data"),
            });
            let bytes = parts.collect::<Vec<_>>().concat();
            transmit.advance(bytes.len(), |_| {});
            admin.handle_transmitted(&mut transmit);
            stream.write_all(&bytes).expect("sent");
        }
        match admin.poll_event() {
            Some(AdminEvent::Compute(work)) => admin.computed(Instant::now(), work.run(&mut random)),
            Some(AdminEvent::Channel(psk)) => return psk,
            Some(event) => panic!("it authenticates: {event:?}"),
            None => {
                let mut bytes = [0; 4096];
                let len = stream.read(&mut bytes).expect("an answer");
                assert!(len > 0, "the server stays");
                admin.handle_bytes(Instant::now(), &bytes[..len], &mut NoBuffers);
            }
        }
    }
}

/// Makes a secure channel, and leaves.
fn come_over_tls(address: &str, psk: TlsPsk) {
    let (mut stream, mut handshake) = (connected(address), Handshake::host(psk).expect("OpenSSL"));
    let mut step = handshake.step(&[]).expect("it begins");
    while step.done.is_none() {
        stream.write_all(&step.output).expect("sent");
        let mut bytes = [0; 4096];
        let len = stream.read(&mut bytes).expect("an answer");
        assert!(len > 0, "the server takes the key");
        step = handshake.step(&bytes[..len]).expect("it goes on");
    }
    stream.write_all(&step.output).expect("sent");
}

#[test]
fn no_key_is_printed_logged_counted_or_recorded() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| -> PathBuf { dir.path().join(name) };
    let mut everything = Said::default();
    for directory in ["server", "data"] {
        std::fs::create_dir(at(directory)).expect("made");
    }
    std::fs::write(at("data/f"), b"one\n").expect("written");
    let config = at("server/diskside.toml");
    let security = "[security]\naudit = \"audit.jsonl\"\nrequire = \"auth\"\n";
    let settings = format!("nqn = \"{SUBSYSTEM}\"\nmetrics = \"127.0.0.1:0\"\n{security}");
    std::fs::write(&config, settings).expect("written");
    let config = text(&config);

    // A key of each kind, and keys that are wrong.
    let mut secrets = Vec::new();
    for (host, kind) in [("ann", "--mutual"), ("bob", "--tls"), ("thief", "--tls"), ("liar", "--mutual")] {
        let output = command(&["key", "new", kind]).env("DISKSIDE_KEY", at(host)).output().expect("diskside runs");
        let line = String::from_utf8(output_of(&output).to_vec()).expect("text");
        everything.add("key new", said(&output));
        secrets.extend(line.split_whitespace().skip(1).map(str::to_owned));
        if let "ann" | "bob" = host {
            let output = fed(&["key", "allow", "--name", host, "--config", config], line.as_bytes());
            everything.add("key allow", String::from_utf8_lossy(output_of(&output)) + &*said(&output));
        }
    }
    let invite = ["invite", "--name", "carl", "--at", "127.0.0.1:1", "--config", config];
    let output = command(&invite).output().expect("diskside runs");
    let invitation = String::from_utf8(output_of(&output).to_vec()).expect("text");
    everything.add("invite", said(&output));
    let carl = std::fs::read_to_string(at("server/keys/carl.tls")).expect("a key");
    secrets.push(carl.trim().to_owned());
    let sign = ["sign", "--new-key", "--key", text(&at("signing"))].map(str::to_owned);
    let sign: Vec<&str> = sign.iter().map(String::as_str).collect();
    assert!(everything.run(Path::new("none"), &sign));
    assert!(everything.run(Path::new("none"), &["sign", "--show", "--key", text(&at("signing"))]));

    // Who has the name of another, and a key of their own.
    for (stolen, from) in [("thief", "bob"), ("liar", "ann")] {
        let of = |name: &str| std::fs::read_to_string(at(name)).expect("a key");
        let nqn = |text: &str| text.lines().find(|line| line.starts_with("nqn ")).expect("a name").to_owned();
        let (own, other) = (of(stolen), of(from));
        std::fs::write(at(stolen), own.replace(&nqn(&own), &nqn(&other))).expect("written");
    }
    let export = format!("data={}", at("data").display());
    let mut serve = Command::new(env!("CARGO_BIN_EXE_diskside"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--config", config, "--export", &export]);
    serve.env("DISKSIDE_LLVM", "").env("DISKSIDE_LOG", "trace").stdout(Stdio::piped());
    serve.stderr(std::fs::File::create(at("log")).expect("made"));
    let mut process = Process(serve.spawn().expect("diskside runs"));
    let mut lines = BufReader::new(process.0.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut next = |scheme: &str| {
        let line = lines.find(|line| line.contains(scheme)).expect("it serves");
        line.split_whitespace().find(|word| word.starts_with(scheme)).expect("where").to_owned()
    };
    let (page, url) = (next("http://"), next("diskside://"));
    let http = page.trim_start_matches("http://").trim_end_matches('/');
    let target = url.strip_suffix("/data").expect("its export").to_owned();
    let address = target.strip_prefix("diskside://").expect("an address");

    let file = format!("{url}/f");
    for host in ["ann", "bob"] {
        assert!(everything.run(&at(host), &["cat", &file]), "{host}");
        assert!(everything.run(&at(host), &["run", "wc", &file]), "{host}");
        assert!(everything.run(&at(host), &["metrics", &target]), "{host}");
    }
    for host in ["thief", "liar"] {
        assert!(!everything.run(&at(host), &["cat", &file]), "{host}");
    }
    // Keys that authenticating makes: of a channel of a command, and of one of which the test knows it.
    assert!(everything.run(&at("ann"), &["cat", &file.replace("diskside://", "diskside+tls://")]));
    let psk = made_by_authenticating(address, &at("ann"));
    secrets.push(TlsSecret::new(&psk.key, None).expect("a key").to_text().to_string());
    come_over_tls(address, psk);
    // A key in the place of its file's name is a mistake that somebody makes.
    let inline = at("inline.toml");
    let host =
        format!("[[host]]\nname = \"x\"\nnqn = \"nqn.2014-08.org.example:x\"\ndhchap_keys = [\"{}\"]\n", secrets[0]);
    std::fs::write(&inline, host).expect("written");
    assert!(!everything.run(Path::new("none"), &["serve", "--config", text(&inline), "--print-config"]));
    assert!(everything.run(Path::new("none"), &["serve", "--config", config, "--print-config"]));
    process.signal(Signal::HUP);
    let audit = || std::fs::read_to_string(at("server/audit.jsonl")).expect("text");
    for event in ["\"connect\"", "\"auth.fail\"", "\"program.run\"", "\"reload\""] {
        until(event, || audit().contains(event));
    }
    until("what ann called is counted", || {
        fetched(http, "/metrics").contains("diskside_host_calls_total{host=\"ann\"} 1")
    });
    for path in ["/metrics", "/"] {
        everything.add(path, fetched(http, path));
    }
    process.kill();
    everything.add("the audit file", audit());
    let mut log = String::new();
    std::fs::File::open(at("log")).expect("there").read_to_string(&mut log).expect("text");
    for event in ["did not authenticate", "secure channel made"] {
        assert!(log.contains(event), "{event}: {log}");
    }
    everything.add("the log", log);
    everything.add("the configuration", std::fs::read_to_string(config).expect("text"));

    let mut needles = vec![invitation.trim()[invitation.trim().len() - 40..].to_owned()];
    for secret in &secrets {
        let base64 = secret.split(':').nth(2).expect("a key is TEXT:HASH:BASE64:");
        needles.push(base64[4..24].to_owned());
        needles.extend(written(&decoded(base64)));
    }
    let signing = std::fs::read_to_string(at("signing")).expect("a key");
    needles.push(signing.trim().rsplit(':').next().expect("digits")[8..32].to_owned());
    // Two keys of each mutual host, one of each other, one of the invitation, one that authenticating made.
    assert_eq!(secrets.len(), 8);
    assert_eq!(decoded("AAECAwQFBgc="), [0, 1, 2, 3, 4, 5, 6, 7]);
    for (what, text) in &everything.0 {
        for needle in &needles {
            assert!(!text.contains(needle.as_str()), "{what} has a key in it: {text}");
        }
    }
}
