//! URLs of several servers that hold copies of the same files, some of which vanish.

#![allow(unreachable_pub, reason = "a file of helpers")]

mod proxy;

use diskside::host::ConnectOptions;
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo, Request, block_on};
use diskside::session::{
    FailureKind, File, FileWriter, OpenMode, Ran, RunOptions, Session, SessionError, SessionFunction, SessionOptions,
    Where, is_another_version,
};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside::{ExportUrl, args};
use proxy::{Proxy, Way};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A server of a directory of its own, and the way to it.
struct Served {
    _running: Running,
    dir: tempfile::TempDir,
    way: Proxy,
}

impl Served {
    fn new(way: Way) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let builder = Target::builder().nqn("nqn.2026-11.org.example:copies").listen(["127.0.0.1:0".parse().unwrap()]);
        let running = builder.export(ExportSpec::new("data", dir.path()).writable()).build().unwrap().start().unwrap();
        let way = Proxy::new(running.handle().local_addresses()[0], way);
        Self { _running: running, dir, way }
    }

    fn server(&self) -> String {
        self.way.address.to_string()
    }

    /// A file that was changed then.
    fn file(&self, name: &str, bytes: &[u8], at: SystemTime) {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    }
}

/// Two servers, of which only the first one can be reached at first.
struct Pair {
    a: Served,
    b: Served,
}

fn some_time_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

impl Pair {
    fn new() -> Self {
        Self { a: Served::new(Way::Open), b: Served::new(Way::Closed) }
    }

    /// With the same file at both.
    fn of(name: &str, bytes: &[u8]) -> Self {
        let pair = Self::new();
        pair.copy(name, bytes);
        pair
    }

    fn copy(&self, name: &str, bytes: &[u8]) {
        [&self.a, &self.b].into_iter().for_each(|served| served.file(name, bytes, some_time_ago()));
    }

    fn url(&self, name: &str) -> String {
        format!("diskside://{},{}/data/{name}", self.a.server(), self.b.server())
    }

    fn export(&self, name: &str) -> ExportUrl {
        self.url(name).parse().unwrap()
    }

    /// The first server vanishes, and the second one can be reached.
    fn change(&self) {
        self.b.way.set(Way::Open);
        self.a.way.set(Way::Closed);
    }
}

fn session() -> Session {
    session_with(ConnectOptions { loss_timeout: Duration::ZERO, ..ConnectOptions::default() })
}

fn session_with(connect: ConnectOptions) -> Session {
    Session::new(SessionOptions { connect, ..SessionOptions::default() })
}

fn numbers(count: u64, seed: u64) -> Vec<u8> {
    (0..count).flat_map(|n| (n * 7 + seed).to_le_bytes()).collect()
}

/// Output of which the first bytes let something happen.
struct Then<F: FnMut()> {
    written: Vec<u8>,
    then: Option<F>,
}

impl<F: FnMut()> Then<F> {
    fn new(then: F) -> Self {
        Self { written: Vec::new(), then: Some(then) }
    }
}

impl<F: FnMut()> Write for Then<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(mut then) = self.then.take() {
            then();
        }
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn at(place: Where) -> RunOptions {
    RunOptions { place, ..RunOptions::default() }
}

fn grep(session: &Session) -> (SessionFunction, Vec<u8>) {
    let grep = session.function("grep").unwrap();
    let args = args::encode(grep.args().unwrap(), &[("pattern".into(), "a".into())]).unwrap();
    (grep, args)
}

/// Far more than a target sends ahead.
const LINES: usize = 1 << 20;

fn lines(word: &str) -> Vec<u8> {
    some_lines(word, LINES)
}

fn some_lines(word: &str, count: usize) -> Vec<u8> {
    (0..count).flat_map(|n| format!("{word} line {n:016}\n").into_bytes()).collect()
}

#[test]
fn the_server_that_answers_is_taken_and_told() {
    let pair = Pair::of("n", &numbers(1000, 1));
    let session = session();
    let file = session.open(&pair.url("n")).unwrap();
    assert_eq!(file.location().to_string(), pair.url("n"));
    assert_eq!(file.len_bytes().unwrap(), 8000);
    pair.change();
    let stats = session.function("stats64").unwrap();
    for place in [Where::Device, Where::Host, Where::Auto] {
        let ran = file.fold_fn(&stats, &[], &at(place)).wait().unwrap();
        let [answered] = &ran.answered[..] else { panic!("{:?}", ran.answered) };
        assert_eq!(
            (&answered.url, &answered.server),
            (&format!("diskside://{},{}", pair.a.server(), pair.b.server()), &pair.b.server())
        );
        assert!(ran.parts.iter().all(|part| part.name.contains(&pair.b.server())), "{:?}", ran.parts);
        assert_eq!(ran.input_bytes, 8000);
    }
}

/// Runs over files whose server vanishes when the first bytes of the result have come.
fn run_across(pair: &Pair, files: &[&str], options: &RunOptions) -> (Result<Ran, SessionError>, Vec<u8>) {
    let session = session();
    let (grep, args) = grep(&session);
    let files: Vec<File> =
        files.iter().map(|name| session.open_late(&pair.url(name).parse().unwrap()).unwrap()).collect();
    let mut out = Then::new(|| pair.change());
    let ran = session.run(&files, &grep, &args, options, Some(&mut out));
    assert!(out.then.is_none(), "it began at the first server");
    (ran, out.written)
}

#[test]
fn a_run_goes_on_at_another_server_and_gives_what_one_server_gives() {
    // A host has up to six windows of 4 MiB before it writes the first bytes: with no more than those, the other server was not needed.
    let bytes = some_lines("a", 2 * LINES);
    for place in [Where::Device, Where::Host] {
        let pair = Pair::of("lines", &bytes);
        let (ran, written) = run_across(&pair, &["lines"], &at(place));
        let ran = ran.unwrap();
        assert!(written == bytes, "{place:?}: {} bytes", written.len());
        let [answered] = &ran.answered[..] else { panic!("{:?}", ran.answered) };
        assert_eq!(answered.server, pair.b.server(), "{place:?}: {answered:?}, {:?}", ran.parts);
        assert_eq!(answered.failed.iter().map(|failure| &failure.server).collect::<Vec<_>>(), [&pair.a.server()]);
        assert!(ran.parts.iter().all(|part| part.name.contains(&pair.b.server())), "{:?}", ran.parts);
    }
}

#[test]
fn a_run_over_many_files_is_begun_again_over_all_of_them() {
    let (pair, bytes) = (Pair::new(), lines("a"));
    let names: Vec<String> = (0..12).map(|n| format!("f{n:02}")).collect();
    let part = bytes.len() / names.len() / 24 * 24;
    names.iter().enumerate().for_each(|(n, name)| pair.copy(name, &bytes[n * part..(n + 1) * part]));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for count in [3, 12] {
        pair.b.way.set(Way::Closed);
        pair.a.way.set(Way::Open);
        let (ran, written) = run_across(&pair, &names[..count], &at(Where::Device));
        ran.unwrap();
        assert!(written == bytes[..count * part], "{count} files: {} bytes", written.len());
    }
}

/// Bytes of two copies in one result would be a result of neither.
#[test]
fn a_result_that_was_begun_over_another_copy_fails() {
    let pair = Pair::new();
    pair.a.file("lines", &lines("a"), some_time_ago());
    pair.b.file("lines", &lines("b a"), some_time_ago());
    let (ran, written) = run_across(&pair, &["lines"], &at(Where::Device));
    let error = ran.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Changed, "{error}");
    assert!(matches!(error, SessionError::OtherResult(_)), "{error}");
    assert!(lines("a").starts_with(&written), "nothing of the other copy was written");
}

/// A result that is given only when it is whole is that of one copy.
#[test]
fn a_folded_result_is_of_one_copy() {
    let pair = Pair::new();
    pair.a.file("n", &numbers(4000, 1), some_time_ago());
    pair.b.file("n", &numbers(3000, 2), some_time_ago());
    let (session, alone) = (session(), session());
    let stats = session.function("stats64").unwrap();
    let file = session.open(&pair.url("n")).unwrap();
    // The first half of its blocks is kept.
    file.pread(0, 16_000).wait().unwrap();
    pair.change();
    let ran = file.fold_fn(&stats, &[], &at(Where::Auto)).wait().unwrap();
    let b = alone.open(&format!("diskside://{}/data/n", pair.b.server())).unwrap();
    assert_eq!(ran.result, b.fold_fn(&stats, &[], &at(Where::Device)).wait().unwrap().result);
    assert_eq!(ran.input_bytes, 24_000);
}

#[test]
fn reads_go_on_in_a_copy_that_looks_the_same_and_in_no_other() {
    let pair = Pair::of("same", &numbers(1000, 1));
    let later = some_time_ago() + Duration::from_secs(1);
    for (name, bytes, at) in [("longer", numbers(1001, 1), some_time_ago()), ("later", numbers(1000, 1), later)] {
        pair.a.file(name, &numbers(1000, 1), some_time_ago());
        pair.b.file(name, &bytes, at);
    }
    let session = session();
    let open = |name: &str| session.open(&pair.url(name)).unwrap();
    let [same, longer, later] = ["same", "longer", "later"].map(open);
    for file in [&same, &longer, &later] {
        assert_eq!(&file.pread(8, 8).wait().unwrap()[..], 8_u64.to_le_bytes());
    }
    let versions = [&same, &longer, &later].map(|file| file.version_io().unwrap());
    let read = |(io, len): &(Arc<dyn AsyncIo>, u64)| {
        assert_eq!(*len, 8000);
        block_on(io.submit(Request::Read { offset: 16, buffer: Buffer::zeroed(8) })).into_read()
    };
    assert!(versions.iter().all(|version| read(version).unwrap()[..] == 15_u64.to_le_bytes()));
    pair.change();
    assert_eq!(&same.pread(16, 8).wait().unwrap()[..], 15_u64.to_le_bytes());
    let [same, others @ ..] = &versions;
    assert_eq!(&read(same).unwrap()[..], 15_u64.to_le_bytes());
    for other in others {
        let error = read(other).unwrap_err();
        assert!(is_another_version(&error), "{error}");
    }
    for file in [&longer, &later] {
        let error = file.pread(16, 8).wait().unwrap_err();
        assert!(matches!(error, SessionError::Copies { .. }), "{error}");
        assert!(
            error.to_string().contains(&pair.b.server()) && error.to_string().contains(&pair.a.server()),
            "{error}"
        );
    }
    // Opened again, it is that of the other server alone.
    assert_eq!(open("longer").pread(8000, 8).wait().unwrap().len(), 8);
}

#[test]
fn copies_are_not_written() {
    let pair = Pair::of("n", &numbers(10, 1));
    let session = session();
    let (url, location) = (pair.export("n"), pair.url("n").parse().unwrap());
    let stats = session.function("stats64").unwrap();
    let bitmap = session.function("bitmap").unwrap();
    let file = session.open(&pair.url("n")).unwrap();
    let tried = [
        session.open_as(&location, OpenMode::Write).err(),
        session.open_as(&location, OpenMode::Create).err(),
        FileWriter::create(&session, &url).err(),
        session.files(&url).err(),
        session.run_into(std::slice::from_ref(&file), &stats, &[], &at(Where::Auto), &url).err(),
        file.pwrite(0, Buffer::zeroed(8), false).wait().err(),
        file.pwrite_fn(0, Buffer::zeroed(8), &bitmap, &[], &at(Where::Auto)).wait().err(),
        file.truncate(0).err(),
    ];
    for (index, error) in tried.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("{index} was allowed"));
        assert_eq!(error.kind(), FailureKind::Usage, "{index}: {error}");
        assert!(
            error.to_string().contains("several servers that hold copies, which are only read"),
            "{index}: {error}"
        );
    }
    assert_eq!(std::fs::read(pair.a.dir.path().join("n")).unwrap(), numbers(10, 1));
}

#[test]
fn where_no_server_answers_the_error_has_each_and_why() {
    let pair = Pair::of("n", &numbers(10, 1));
    let session = session();
    let file = session.open(&pair.url("n")).unwrap();
    pair.a.way.set(Way::Closed);
    // Nobody listens there any more.
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let never = session.open(&format!("diskside://{refused},{}/data/n", pair.b.server())).unwrap_err();
    let stats = session.function("stats64").unwrap();
    let vanished = file.fold_fn(&stats, &[], &at(Where::Device)).wait().unwrap_err();
    let read = file.pread(0, 8).wait().unwrap_err();
    for (error, servers) in [
        (never, [refused.to_string(), pair.b.server()]),
        (vanished, [pair.a.server(), pair.b.server()]),
        (read, [pair.a.server(), pair.b.server()]),
    ] {
        assert!(matches!(error, SessionError::NoCopy { .. }), "{error}");
        assert_eq!(error.kind(), FailureKind::Environment);
        let text = error.to_string();
        assert!(text.starts_with("no server of diskside://"), "{text}");
        let SessionError::NoCopy { failures, .. } = error else { unreachable!() };
        let mut told: Vec<_> = failures.iter().map(|failure| failure.server.clone()).collect();
        told.sort();
        let mut servers = servers.to_vec();
        servers.sort();
        assert_eq!(told, servers, "{text}");
    }
}

/// A server that neither answers nor closes its connections is missed when it does not answer Keep Alive.
#[test]
fn a_silent_server_is_left_for_another() {
    let pair = Pair::of("n", &numbers(1000, 1));
    let session = session_with(ConnectOptions { keep_alive: Duration::from_millis(400), ..ConnectOptions::default() });
    let file = session.open(&pair.url("n")).unwrap();
    let stats = session.function("stats64").unwrap();
    pair.b.way.set(Way::Open);
    pair.a.way.set(Way::Silent);
    let ran = file.fold_fn(&stats, &[], &at(Where::Device)).wait().unwrap();
    assert_eq!(ran.answered[0].server, pair.b.server());
    assert_eq!(&file.pread(8, 8).wait().unwrap()[..], 8_u64.to_le_bytes());
}

/// One that accepts connections and says nothing keeps nobody from the other.
#[test]
fn a_server_that_is_silent_from_the_start_is_not_waited_for() {
    let pair = Pair::of("n", &numbers(1000, 1));
    pair.a.way.set(Way::Silent);
    pair.b.way.set(Way::Open);
    let connect = ConnectOptions { connect_timeout: Duration::from_secs(600), ..ConnectOptions::default() };
    let session = session_with(connect);
    assert_eq!(session.open(&pair.url("n")).unwrap().len_bytes().unwrap(), 8000);
}

/// As one server that was lost is waited for, so are several.
#[test]
fn a_run_waits_for_a_server_that_comes_back() {
    let bytes = lines("a");
    let pair = Pair::of("lines", &bytes);
    let session = session_with(ConnectOptions { loss_timeout: Duration::from_secs(60), ..ConnectOptions::default() });
    let (grep, args) = grep(&session);
    let file = session.open(&pair.url("lines")).unwrap();
    std::thread::scope(|scope| {
        let mut out = Then::new(|| {
            pair.a.way.set(Way::Closed);
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                pair.a.way.set(Way::Open);
            });
        });
        session.run(&[file], &grep, &args, &at(Where::Device), Some(&mut out)).unwrap();
        assert!(out.written == bytes);
    });
}

/// A request that ends every server that it comes to is given up.
#[test]
fn a_request_does_not_end_servers_for_ever() {
    let pair = Pair::of("n", &numbers(1000, 1));
    pair.b.way.set(Way::Open);
    let session = session_with(ConnectOptions { loss_timeout: Duration::from_secs(600), ..ConnectOptions::default() });
    let file = session.open(&pair.url("n")).unwrap();
    let mut tries = 0;
    let ended = file.with_version(|io, _| {
        tries += 1;
        for way in [Way::Closed, Way::Open] {
            [&pair.a, &pair.b].into_iter().for_each(|served| served.way.set(way));
        }
        let request = Request::Read { offset: 0, buffer: Buffer::zeroed(8) };
        block_on(io.submit(request)).into_read().map(drop)
    });
    assert_eq!(ended.unwrap_err().kind(), FailureKind::Environment);
    assert_eq!(tries, 9);
}

#[test]
fn directories_are_looked_at_where_a_server_answers() {
    let pair = Pair::of("n", &numbers(1000, 1));
    let (session, url) = (session(), pair.export(""));
    let look = || session.look(&url, |files| files.list(b"data")).unwrap().unwrap();
    assert_eq!(look().len(), 1);
    pair.change();
    assert_eq!(look()[0].name, b"n");
    assert_eq!(session.exports(&url).unwrap()[0].name, "data");
    // What a server says is an answer, and no other one is asked.
    let missing = session.look(&url, |files| files.stat(b"data/none")).unwrap().unwrap_err();
    assert_eq!(missing.errno(), Some(2));
}

#[test]
fn prepared_calls_go_on_at_another_server() {
    let pair = Pair::of("n", &numbers(1000, 1));
    let session = session();
    let stats = session.function("stats64").unwrap();
    for place in [Where::Device, Where::Host] {
        pair.b.way.set(Way::Closed);
        pair.a.way.set(Way::Open);
        let file = session.open(&pair.url("n")).unwrap();
        let prepared = file.prepare(0..8000, &stats, &[], &at(place)).unwrap();
        let before = prepared.call(&[]).wait().unwrap();
        pair.change();
        assert_eq!(prepared.call(&[]).wait().unwrap(), before, "{place:?}");
        assert_eq!(prepared.call(&[]).wait().unwrap(), before, "{place:?}");
    }
}

/// A version is read to its end, or from its beginning.
#[test]
fn a_version_is_read_again_from_its_beginning() {
    let pair = Pair::of("n", &numbers(1000, 1));
    let session = session();
    let file = session.open(&pair.url("n")).unwrap();
    let mut tries = 0;
    let read = file.with_version(|io, len| {
        tries += 1;
        let read = |offset| {
            let request = Request::Read { offset, buffer: Buffer::zeroed(len as usize / 2) };
            block_on(io.submit(request)).into_read()
        };
        let first = read(0)?.to_vec();
        if tries == 1 {
            pair.change();
        }
        Ok::<_, std::io::Error>([first, read(len / 2)?.to_vec()].concat())
    });
    assert_eq!((read.unwrap().unwrap(), tries), (numbers(1000, 1), 2));
}
