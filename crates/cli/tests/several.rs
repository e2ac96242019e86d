//! Commands whose URLs name several servers that hold copies, one of which is killed.

mod common;

use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Output;

use common::{Server, command, diskside, good, json, numbers, said};

const MIB: usize = 1 << 20;
/// Far more than a pipe holds and a copy reads ahead.
const LEN: usize = 48 * MIB;

/// A server, and the address of one that is started later over the same directory, so that both have the same files.
struct Pair {
    a: Server,
    b: String,
    dir: tempfile::TempDir,
}

/// Nobody listens there; what does later is ours.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound").to_string()
}

impl Pair {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self { a: Server::of(dir.path(), ",ro", &[]), b: free_address(), dir }
    }

    fn address(&self) -> &str {
        self.a.target().strip_prefix("diskside://").expect("a URL")
    }

    fn target(&self) -> String {
        format!("diskside://{},{}", self.address(), self.b)
    }

    fn at(&self, name: &str) -> String {
        format!("{}/data/{name}", self.target())
    }

    fn start_b(&self, dir: &Path) -> Server {
        Server::listening(&self.b, dir, ",ro", &[])
    }

    /// Runs a command whose server is killed when the first of its output has come, while there is another one.
    fn across(&mut self, args: &[&str], dir: &Path) -> (Output, Vec<u8>, Server) {
        let mut child = command(args).spawn().expect("diskside runs");
        let mut out = child.stdout.take().expect("piped");
        let mut all = vec![0; MIB];
        out.read_exact(&mut all).expect("the first bytes come");
        let b = self.start_b(dir);
        self.a.process.kill();
        out.read_to_end(&mut all).expect("read");
        (child.wait_with_output().expect("it ends"), all, b)
    }
}

#[test]
fn commands_go_on_at_another_server_when_theirs_is_killed() {
    let line = b"a line of text\n";
    let bytes = line.repeat(LEN / line.len());
    for args in [
        &["cat", "URL"][..],
        &["cp", "URL", "-"],
        &["run", "grep", "--arg", "pattern=text", "--where", "device", "--stats", "URL"],
        &["run", "grep", "--arg", "pattern=text", "--where", "host", "--explain", "URL"],
    ] {
        let mut pair = Pair::new();
        pair.a.file("lines", &bytes);
        let url = pair.at("lines");
        let args: Vec<&str> = args.iter().map(|arg| if *arg == "URL" { url.as_str() } else { *arg }).collect();
        let dir = pair.dir.path().to_owned();
        let (ended, all, _b) = pair.across(&args, &dir);
        let told = said(&ended);
        assert!(ended.status.success(), "{args:?}: {told}");
        assert!(all == bytes, "{args:?}: {} bytes of {}", all.len(), bytes.len());
        assert!(told.contains("; another server is tried"), "{args:?}: {told}");
        if args[0] == "run" {
            let answered = format!("{}: {} answered; not used: ", pair.target(), pair.b);
            assert!(told.contains(&answered), "{args:?}: {told}");
        }
    }
}

/// The bytes that were printed are of one copy, and the other one has others.
#[test]
fn output_that_was_begun_is_not_continued_from_another_copy() {
    for args in [&["cat", "URL"][..], &["run", "grep", "--arg", "pattern=text", "--where", "device", "URL"]] {
        let (mut pair, other) = (Pair::new(), tempfile::tempdir().expect("a temporary directory"));
        let bytes = b"a line of text\n".repeat(LEN / 15);
        pair.a.file("lines", &bytes);
        std::fs::write(other.path().join("lines"), b"another text..\n".repeat(LEN / 15)).expect("written");
        let url = pair.at("lines");
        let args: Vec<&str> = args.iter().map(|arg| if *arg == "URL" { url.as_str() } else { *arg }).collect();
        let (ended, all, _b) = pair.across(&args, other.path());
        assert_eq!(ended.status.code(), Some(4), "{args:?}");
        assert!(bytes.starts_with(&all) && all.len() < bytes.len(), "{args:?}: {}", all.len());
        assert!(said(&ended).contains("its result does not begin with the bytes that were written before"), "{args:?}");
    }
}

/// A file is written once more from its beginning.
#[test]
fn a_file_is_copied_again_from_another_server() {
    let mut pair = Pair::new();
    let bytes = numbers(LEN as u64 / 8);
    pair.a.file("n", &bytes);
    let out = pair.dir.path().join("out");
    let (url, path) = (pair.at("n"), out.display().to_string());
    let child = command(&["cp", &url, &path, "--verify"]).spawn().expect("diskside runs");
    let _b = pair.start_b(pair.dir.path());
    pair.a.process.kill();
    let ended = child.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", said(&ended));
    assert!(std::fs::read(&out).expect("there") == bytes);
}

#[test]
fn every_command_that_reads_takes_such_urls_and_the_others_say_why_not() {
    let mut pair = Pair::new();
    pair.a.file("n.u64", &numbers(100));
    let file = pair.at("n.u64");
    let (all, target) = (format!("{}/data", pair.target()), pair.target());
    let check = |pair: &Pair, server: &str| {
        let ran = json(&["run", "stats64", &file]);
        assert_eq!(ran["rows"][0]["count"], 100);
        assert_eq!(ran["answered"][0]["server"], server, "{ran}");
        assert_eq!(ran["answered"][0]["url"], target.as_str());
        let pattern = json(&["run", "stats64", &pair.at("*.u64")]);
        assert_eq!(pattern["rows"][0]["count"], 100);
        assert!(good(&["ls", &all]).contains("n.u64"));
        assert!(good(&["ls", &pair.at("*")]).contains("n.u64"));
        assert_eq!(json(&["ls", &target])["exports"][0]["name"], "data");
        assert_eq!(json(&["stat", &file])["size_bytes"], 800);
        let (code, _, said) = diskside(&["cat", &pair.at("n.u6")]);
        assert!(code == 4 && said.contains("did you mean ") && said.contains(&file), "{said}");
    };
    check(&pair, pair.address());
    let _b = pair.start_b(pair.dir.path());
    pair.a.process.kill();
    check(&pair, &pair.b);
    let other = pair.at("other");
    let here = pair.dir.path().join("n.u64").display().to_string();
    for args in [
        &["cp", &here, &other][..],
        &["rm", &file],
        &["mkdir", &other],
        &["mv", &file, &other],
        &["run", "stats64", &file, "--out", &other],
    ] {
        let (code, _, said) = diskside(args);
        let why = "names several servers that hold copies, which are only read: name the one server to write to";
        assert!(code == 2 && said.contains(why), "{args:?}: {code} {said}");
    }
    for args in [&["top", &target][..], &["metrics", &target], &["functions", &target]] {
        let (code, _, said) = diskside(args);
        assert!(code == 2 && said.contains("names several servers, and one is needed here"), "{args:?}: {code} {said}");
    }
}

#[test]
fn where_all_servers_are_gone_each_is_named_and_why() {
    let pair = Pair::new();
    let (a, b) = (free_address(), &pair.b);
    let (code, _, told) = diskside(&["run", "wc", &format!("diskside://{a},{b}/data/x")]);
    assert_eq!(code, 4, "{told}");
    assert!(told.starts_with(&format!("diskside: no server of diskside://{a},{b} can be used: ")), "{told}");
    for server in [&a, b] {
        assert!(told.contains(&format!("cannot connect to {server}: Connection refused")), "{told}");
    }
}

/// An answer to a question for the SRV records of a service (RFC 1035, 4): the servers are in turn less wanted.
fn srv_answer(question: &[u8], ports: &[u16]) -> Vec<u8> {
    // The question has one name, and ends four bytes behind it.
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).expect("a name") + 5;
    let mut answer = question[..end].to_vec();
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, ports.len() as u8, 0, 0, 0, 0]);
    let target = b"\x09localhost\x00";
    for (priority, port) in ports.iter().enumerate() {
        // The name again, SRV, IN, its time to live, and the length of the rest.
        answer.extend_from_slice(&[0xC0, 12, 0, 33, 0, 1, 0, 0, 0, 60, 0, 6 + target.len() as u8]);
        answer.extend_from_slice(&[0, priority as u8, 0, 0]);
        answer.extend_from_slice(&port.to_be_bytes());
        answer.extend_from_slice(target);
    }
    answer
}

#[test]
fn a_service_has_its_servers_in_dns() {
    let mut pair = Pair::new();
    pair.a.file("n.u64", &numbers(100));
    let port = |address: &str| address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let ports: [u16; 2] = [port(pair.address()), port(&pair.b)];
    let dns = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let nameserver = dns.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((len, from)) = dns.recv_from(&mut question) {
            let name = b"\x09_diskside\x04_tcp\x04logs\x07example\x00";
            let asks = question[12..len].starts_with(name);
            dns.send_to(&srv_answer(&question[..len], if asks { &ports } else { &[] }), from).expect("sent");
        }
    });
    let run = |service: &str| {
        let url = format!("diskside+srv://{service}/data/n.u64");
        let output = command(&["run", "stats64", &url, "--json"]).env("DISKSIDE_NAMESERVER", &nameserver).output();
        output.expect("diskside runs")
    };
    let answered = |output: &Output| {
        assert!(output.status.success(), "{}", said(output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        document["answered"][0]["server"].as_str().expect("a server").to_owned()
    };
    // Both serve, and the first one is the one of the lower priority.
    let _b = pair.start_b(pair.dir.path());
    assert_eq!(answered(&run("logs.example")), format!("localhost:{}", ports[0]));
    pair.a.process.kill();
    assert_eq!(answered(&run("logs.example")), format!("localhost:{}", ports[1]));
    let unknown = run("none.example");
    assert_eq!(unknown.status.code(), Some(4));
    assert!(
        said(&unknown).contains("cannot find the servers of _diskside._tcp.none.example: it has no SRV records"),
        "{}",
        said(&unknown)
    );
}
