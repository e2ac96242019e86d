//! Traces of calls: a command and a server send their spans to a collector, and those of the server are parts of the command's.

mod common;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{Process, numbers, until};

/// A span, as far as the tests look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Span {
    service: String,
    name: String,
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    /// 1 of this process, 2 of a server, 3 of a client.
    kind: u64,
    time: (u64, u64),
    /// 2: it failed.
    status: u64,
    texts: HashMap<String, String>,
}

/// The fields of a message of protobuf: numbers, and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().expect("a number ends");
            (*bytes, value) = (rest, value | u64::from(first & 0x7f) << shift);
            shift += 7;
            if first & 0x80 == 0 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, data): (u64, &[u8]) = match key & 7 {
            0 => (varint(&mut bytes), &[]),
            wire @ (1 | 5) => {
                let (value, rest) = bytes.split_at(if wire == 1 { 8 } else { 4 });
                bytes = rest;
                (value.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)), &[])
            }
            2 => {
                let len = varint(&mut bytes) as usize;
                let (data, rest) = bytes.split_at(len);
                bytes = rest;
                (0, data)
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, number, data));
    }
    found
}

fn all(message: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter(move |(number, ..)| *number == field).map(|(_, _, data)| data)
}

fn texts<'a>(attributes: impl Iterator<Item = &'a [u8]>) -> HashMap<String, String> {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let one = |attribute| {
        let value = all(attribute, 2).next().unwrap_or_default();
        (text(all(attribute, 1).next()), text(all(value, 1).next()))
    };
    attributes.map(one).collect()
}

/// `ExportTraceServiceRequest` of OTLP 1.
fn spans(request: &[u8]) -> Vec<Span> {
    let mut found = Vec::new();
    for of_resource in all(request, 1) {
        let resource = texts(all(all(of_resource, 1).next().expect("a resource"), 1));
        for span in all(of_resource, 2).flat_map(|scope| all(scope, 2).collect::<Vec<_>>()) {
            let mut one = Span { service: resource["service.name"].clone(), ..Span::default() };
            for (field, number, data) in fields(span) {
                match field {
                    1 => one.trace = data.to_vec(),
                    2 => one.id = data.to_vec(),
                    4 => one.parent = data.to_vec(),
                    5 => one.name = String::from_utf8_lossy(data).into_owned(),
                    6 => one.kind = number,
                    7 => one.time.0 = number,
                    8 => one.time.1 = number,
                    15 => {
                        one.status =
                            fields(data).iter().find(|(field, ..)| *field == 3).map_or(0, |(_, code, _)| *code);
                    }
                    _ => {}
                }
            }
            one.texts = texts(all(span, 9));
            found.push(one);
        }
    }
    found
}

/// A collector that keeps what it is sent.
struct Collector {
    endpoint: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        let spans = Arc::default();
        let kept = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream, &kept));
            }
        });
        Self { endpoint, spans }
    }

    fn of(&self, service: &str, name: &str) -> Vec<Span> {
        let spans = self.spans.lock().expect("no panic");
        spans.iter().filter(|span| span.service == service && span.name == name).cloned().collect()
    }

    fn one(&self, service: &str, name: &str) -> Span {
        let found = self.of(service, name);
        assert_eq!(found.len(), 1, "{service} {name}: {found:?}");
        found.into_iter().next().expect("one")
    }
}

fn serve(stream: TcpStream, kept: &Mutex<Vec<Span>>) {
    let mut bytes = Vec::new();
    let read = |bytes: &mut Vec<u8>| {
        let mut more = [0; 4096];
        let len = (&stream).read(&mut more).unwrap_or(0);
        bytes.extend_from_slice(&more[..len]);
        len > 0
    };
    loop {
        let head_len = loop {
            match bytes.windows(4).position(|end| end == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if !read(&mut bytes) => return,
                None => {}
            }
        };
        let head = String::from_utf8_lossy(&bytes[..head_len]).to_lowercase();
        assert!(
            head.starts_with("post /v1/traces ") && head.contains("content-type: application/x-protobuf"),
            "{head}"
        );
        let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let len: usize = len.trim().parse().expect("a number");
        while bytes.len() < head_len + len {
            assert!(read(&mut bytes), "it ends in its body");
        }
        kept.lock().expect("no panic").extend(spans(&bytes[head_len..head_len + len]));
        bytes.drain(..head_len + len);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        (&stream).write_all(answer).expect("answered");
    }
}

fn command(collector: Option<&Collector>, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    command.args(args).env("DISKSIDE_LLVM", "").env("XDG_STATE_HOME", "/dev/null/none");
    command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    if let Some(collector) = collector {
        // Spans of a server are sent while it runs.
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "50");
    }
    command
}

/// A server of a directory with numbers, and the URL of these.
fn server(collector: Option<&Collector>, more: &[&str]) -> (Process, String, tempfile::TempDir) {
    use std::io::{BufRead as _, BufReader};
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("n.u64"), numbers(100_000)).expect("written");
    let export = format!("data={}", dir.path().display());
    let args = [&["serve", "--listen", "127.0.0.1:0", "--export", &export], more].concat();
    let mut child = command(collector, &args).stdout(std::process::Stdio::piped()).spawn().expect("diskside runs");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let line = said.find(|line| line.contains("diskside://")).expect("it says where");
    let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("a URL").to_owned();
    (Process(child), format!("{url}/n.u64"), dir)
}

fn run(collector: Option<&Collector>, args: &[&str]) -> bool {
    let output = command(collector, args).env("OTEL_SERVICE_NAME", "the-host").output().expect("diskside runs");
    output.status.success()
}

#[test]
fn spans_of_a_server_are_parts_of_the_commands_that_call_it() {
    let collector = Collector::start();
    let (_server, url, _dir) = server(Some(&collector), &[]);
    assert!(run(Some(&collector), &["run", "stats64", &url, "--where", "device"]));
    let (host, there) = ("the-host", "diskside-server");
    until("the server's spans have come", || {
        !collector.of(there, "serve").is_empty() && !collector.of(there, "send").is_empty()
    });
    let (root, call, served) = (collector.one(host, "run"), collector.one(host, "call"), collector.one(there, "serve"));
    assert_eq!((root.parent.len(), root.kind), (0, 1), "{root:?}");
    assert_eq!((&call.parent, call.kind), (&root.id, 3), "{call:?}");
    assert_eq!((&served.parent, served.kind), (&call.id, 2), "{served:?}");
    assert_eq!(
        (root.texts["diskside.function"].as_str(), served.texts["diskside.function"].as_str()),
        ("stats64", "stats64")
    );
    let parts: Vec<Span> = ["queue", "run", "send"].map(|name| collector.one(there, name)).to_vec();
    for part in &parts {
        assert_eq!(part.parent, served.id, "{part:?}");
        assert!(
            served.time.0 <= part.time.0 && part.time.0 <= part.time.1 && part.time.1 <= served.time.1,
            "{part:?} in {served:?}"
        );
    }
    for span in parts.iter().chain([&call, &served]) {
        assert_eq!((&span.trace, span.status), (&root.trace, 0), "{span:?}");
    }
    assert!(root.time.0 <= call.time.0 && call.time.1 <= root.time.1);
}

#[test]
fn calls_that_fail_are_told_as_failed() {
    let collector = Collector::start();
    let (_server, url, dir) = server(Some(&collector), &[]);
    // It reads behind the end of its input.
    let source = "#include \"diskside.h\"\nSEC(\"read/bad\")\n__s64 bad(__u64 *out, const __u64 *in, __u64 in_len, \
        const void *args, const struct ds_call *call) { *out = in[in_len / 8]; return 8; }\n";
    let bad = dir.path().join("bad.bpf.c");
    std::fs::write(&bad, source).expect("written");
    assert!(!run(Some(&collector), &["run", &bad.display().to_string(), &url, "--where", "device"]));
    until("the server's span has come", || !collector.of("diskside-server", "serve").is_empty());
    for (service, name) in [("the-host", "run"), ("the-host", "call"), ("diskside-server", "serve")] {
        assert_eq!(collector.one(service, name).status, 2, "{service} {name}");
    }
}

/// A host that does not trace sends no context, and the server has nothing to be a part of.
#[test]
fn nothing_is_told_where_nobody_asks() {
    let collector = Collector::start();
    let (mut server, url, _dir) = server(Some(&collector), &[]);
    assert!(run(None, &["run", "stats64", &url, "--where", "device"]));
    // When it has ended, it has sent everything.
    server.signal(rustix::process::Signal::TERM);
    assert!(server.0.wait().expect("it is ours").success());
    assert_eq!(*collector.spans.lock().expect("no panic"), []);
}

/// A server that does not trace takes the context, and answers as always.
#[test]
fn a_host_traces_alone_where_its_server_does_not() {
    let collector = Collector::start();
    let (_server, url, _dir) = server(None, &["--no-confine"]);
    assert!(run(Some(&collector), &["run", "stats64", &url, "--where", "device"]));
    assert_eq!(collector.one("the-host", "call").parent, collector.one("the-host", "run").id);
}
