//! Handles of files that are not, or not any more, what a call takes them for: as sources, as sinks and in traversals,
//! sent and prepared. Each fails with its errno and its name, and nothing is written anywhere.

use crate::client::{Client, Received, VOLUME, start};
use crate::common::{builder, pattern};
use crate::standard::compiled;
use diskside_server::Running;
use diskside_server::config::ExportSpec;
use diskside_wire::file::{FileFlags, FileHandle, FileRequest};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, Placement, Trailer};

const WALKS: u16 = 100;
const COPIES: u16 = 101;
const ESTALE: i64 = -116;
const ENOENT: i64 = -2;
const EBADF: i64 = -9;
const EISDIR: i64 = -21;
const PLACEMENTS: [Placement; 3] = [Placement::InPlace, Placement::Append, Placement::Replace];

struct Fixture {
    dir: tempfile::TempDir,
    running: Running,
    client: Client,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), pattern(10_000, 1)).unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let builder = builder().volume("scratch=mem:1MiB,rw".parse().unwrap());
        let running = start(builder.export(ExportSpec::new("data", dir.path()).writable()));
        let mut client = Client::connect(&running);
        for (pind, name) in [(WALKS, "walk"), (COPIES, "late")] {
            client.load(pind, &compiled(name)).ok();
            client.activate(pind, true).ok();
        }
        client.fill(&[0; 8192]);
        Self { dir, running, client }
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("x")).unwrap()
    }

    /// How a call ends, sent and then prepared: both must say the same.
    #[track_caller]
    fn ends(&mut self, request: &FunctionRequest) -> Trailer {
        let (result, sent) = self.client.run(request);
        let handle = self.client.prepare(request);
        let received = Received::of(self.client.call(handle, &[], 64 << 10));
        let called = received.trailer.expect("there is room for it");
        let key = |trailer: &Trailer| (trailer.outcome, trailer.returned, trailer.message.clone());
        assert_eq!(key(&sent), key(&called), "{request:?}");
        if sent.outcome != Outcome::Ok {
            assert!(result.is_empty() && received.bytes.is_empty() && received.answer.end);
            assert_eq!((sent.media_written, sent.durable), (0, 0), "{sent:?}");
            assert_eq!((called.media_written, called.durable), (0, 0), "{called:?}");
        }
        sent
    }

    #[track_caller]
    fn fails(&mut self, request: &FunctionRequest, errno: i64, told: &str) {
        let trailer = self.ends(request);
        assert_eq!(
            (trailer.outcome, trailer.returned, &*trailer.message),
            (Outcome::Errno, errno, told),
            "{request:?}"
        );
    }
}

fn endpoint(file: FileHandle) -> Endpoint {
    Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) }
}

fn volume(offset: u64) -> Endpoint {
    Endpoint::new(EndpointKind::Volume(VOLUME), offset, 4096)
}

fn reads(source: Endpoint) -> FunctionRequest {
    FunctionRequest { sources: vec![source], args: vec![0; 8], ..FunctionRequest::new(FunctionKind::Read, COPIES) }
}

fn writes(sinks: Vec<Endpoint>) -> FunctionRequest {
    FunctionRequest { kind: FunctionKind::Write, sinks, ..reads(volume(0)) }
}

fn walks(source: Endpoint) -> FunctionRequest {
    let (function, sources) = (Some("walk".into()), vec![source]);
    FunctionRequest { function, sources, args: vec![0; 16], ..FunctionRequest::new(FunctionKind::Traverse, WALKS) }
}

#[test]
fn a_handle_that_is_not_open_is_told_wherever_it_stands() {
    let mut test = Fixture::new();
    let mut other = Client::connect(&test.running);
    // So that the other's are not among this one's by chance.
    for _ in 0..3 {
        other.open("data/x", FileFlags::READ);
    }
    let foreign = other.open("data/x", FileFlags::READ_WRITE);
    let closed = test.client.open("data/x", FileFlags::READ_WRITE);
    test.client.file(FileRequest::Close { file: closed });
    let open = test.client.open("data/x", FileFlags::READ_WRITE);
    assert_eq!(closed.id, open.id, "it stands for another file now");
    let wrong = FileHandle { generation: open.generation + 1, ..open };
    let never = FileHandle { id: 4711, generation: 0 };
    let zero = FileHandle { id: 0, generation: 0 };
    let before = test.content();
    for (what, file) in
        [("foreign", foreign), ("closed", closed), ("generation", wrong), ("never", never), ("zero", zero)]
    {
        let told = |op: &str| format!("{op}: handle {} is not open (any more); look the file up again", file.id);
        test.fails(&reads(endpoint(file)), ESTALE, &told("read"));
        test.fails(&walks(endpoint(file)), ESTALE, &told("read"));
        for placement in PLACEMENTS {
            let sink = Endpoint { placement, ..endpoint(file) };
            test.fails(&writes(vec![sink]), ESTALE, &told("write"));
            // Beside one that could be written, in either order.
            test.fails(&writes(vec![volume(8192), sink]), ESTALE, &told("write"));
            test.fails(&writes(vec![sink, volume(8192)]), ESTALE, &told("write"));
        }
        assert!(test.content() == before, "{what}");
    }
    assert_eq!(test.client.queue.read(VOLUME, 2, 1).ok(), [0; 4096]);
    assert_eq!(test.client.result(&reads(endpoint(open))), before);
}

#[test]
fn a_handle_closed_after_a_request_was_prepared_is_told_by_its_calls() {
    let mut test = Fixture::new();
    for request in [reads, walks, |sink| writes(vec![sink])] {
        let file = test.client.open("data/x", FileFlags::READ_WRITE);
        let handle = test.client.prepare(&request(endpoint(file)));
        let call = |test: &mut Fixture| Received::of(test.client.call(handle, &[], 64 << 10)).trailer.unwrap();
        assert_eq!(call(&mut test).outcome, Outcome::Ok);
        test.client.file(FileRequest::Close { file });
        let after = test.content();
        let trailer = call(&mut test);
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Errno, ESTALE), "{trailer:?}");
        // Another file has its place in the table, and not its generation.
        test.client.open("data/x", FileFlags::READ_WRITE);
        let trailer = call(&mut test);
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Errno, ESTALE), "{trailer:?}");
        assert!(test.content() == after);
    }
}

#[test]
fn a_file_that_was_opened_for_something_else_is_told() {
    let mut test = Fixture::new();
    let (read_only, write_only) =
        (test.client.open("data/x", FileFlags::READ), test.client.open("data/x", FileFlags::WRITE));
    let dir = test.client.open("data/d", FileFlags::READ);
    test.fails(&reads(endpoint(write_only)), EBADF, "read data/x: the handle was not opened for reading");
    test.fails(&walks(endpoint(write_only)), EBADF, "read data/x: the handle was not opened for reading");
    for placement in PLACEMENTS {
        let sink = Endpoint { placement, ..endpoint(read_only) };
        test.fails(&writes(vec![sink]), EBADF, "write data/x: the handle was not opened for writing");
    }
    for request in [reads, walks] {
        test.fails(&request(endpoint(dir)), EISDIR, "data/d is a directory; a function reads a file");
    }
}

/// A program that has it open uses it as before; only its name is gone.
#[test]
fn a_deleted_file_is_read_and_written_and_nothing_takes_its_name() {
    let mut test = Fixture::new();
    let bytes = test.content();
    let file = test.client.open("data/x", FileFlags::READ_WRITE);
    std::fs::remove_file(test.dir.path().join("x")).unwrap();
    assert_eq!(test.client.result(&reads(endpoint(file))), bytes);
    assert_eq!(test.ends(&walks(endpoint(file))).outcome, Outcome::Ok);
    let trailer = test.ends(&writes(vec![Endpoint { placement: Placement::Append, ..endpoint(file) }]));
    assert_eq!((trailer.outcome, trailer.durable), (Outcome::Ok, 4096), "{trailer:?}");
    assert_eq!(test.client.result(&reads(endpoint(file))), [&bytes[..], &[0; 8192]].concat(), "sent and prepared");
    let replace = Endpoint { placement: Placement::Replace, ..endpoint(file) };
    test.fails(&writes(vec![replace]), ENOENT, "replacing data/x: No such file or directory (os error 2)");
    assert!(!test.dir.path().join("x").exists());
    // Another file has the name by now: it stays.
    std::fs::write(test.dir.path().join("x"), "else").unwrap();
    let told = "replacing data/x: that name means another file by now";
    test.fails(&writes(vec![replace]), ESTALE, told);
    assert_eq!(test.content(), b"else");
    assert_eq!(std::fs::read_dir(test.dir.path()).unwrap().count(), 2, "and nothing beside it");
}
