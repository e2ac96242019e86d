//! Exported files over the wire: operations, functions over them, and functions that write them.

use std::path::Path;

use crate::client::{Client, locally, runs, start};
use crate::common::{builder, pattern};
use diskside_nvme::Status;
use diskside_nvme::wire::file::{Export, FileFlags, FileHandle, FileRequest, OpenedFile};
use diskside_nvme::wire::function::{
    Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, Placement, Trailer,
};
use diskside_target::Running;
use diskside_target::config::ExportSpec;
use zerocopy::FromBytes;

/// A target that exports a directory as `data`.
fn target(dir: &Path) -> Running {
    start(builder().export(ExportSpec::new("data", dir)).volume("scratch=mem:1MiB".parse().unwrap()))
}

impl Client {
    fn file(&mut self, request: FileRequest<'_>) -> (Vec<u8>, Trailer) {
        let args = request.to_bytes();
        self.run(&FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) })
    }

    pub(crate) fn open(&mut self, path: &str, flags: FileFlags) -> FileHandle {
        let (result, trailer) = self.file(FileRequest::Lookup { dir: None, path: path.as_bytes(), flags });
        assert_eq!(trailer.outcome, Outcome::Ok, "{}", trailer.message);
        OpenedFile::read_from_bytes(&result).unwrap().handle()
    }

    /// A request that reads a file.
    fn over_file(&mut self, name: &str, file: FileHandle) -> FunctionRequest {
        FunctionRequest { sources: vec![endpoint(file)], ..self.over(name, &[], 0) }
    }
}

fn endpoint(file: FileHandle) -> Endpoint {
    Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) }
}

#[test]
fn files_are_used_over_the_wire() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    let mut client = Client::connect(&running);
    let (exports, trailer) = client.file(FileRequest::ListExports { cursor: 0, len_max: 4096 });
    assert_eq!(trailer.returned, 1);
    assert_eq!(Export::parse_all(&exports).next().unwrap().unwrap().name, b"data");

    let flags = FileFlags::READ_WRITE | FileFlags::EXCLUSIVE;
    let create = FileRequest::Create { dir: None, path: b"data/x", mode: 0o600, flags };
    let (made, trailer) = client.file(create);
    let opened = OpenedFile::read_from_bytes(&made).unwrap();
    assert_eq!((opened.created.get(), trailer.generation), (1, opened.attributes.version.get()));
    let (file, bytes) = (opened.handle(), pattern(300_000, 2));
    for (at, part) in bytes.chunks(100_000).enumerate() {
        let request = FileRequest::Write { file, offset: at as u64 * 100_000, data: part, flags: FileFlags::DURABLE };
        let (_, trailer) = client.file(request);
        assert_eq!((trailer.returned, trailer.durable), (100_000, 100_000));
    }
    let (read, trailer) = client.file(FileRequest::Read { file, offset: 100, len: 250_000 });
    assert_eq!(trailer.returned, 250_000);
    assert!(read == bytes[100..250_100]);
    let (_, trailer) = client.file(create);
    assert_eq!((trailer.outcome, trailer.returned), (Outcome::Errno, -17));
    assert_eq!(trailer.message, "create data/x: File exists (os error 17)");

    // Another queue of the same association has the same handles, another association has not.
    let second = client.controller.io_queue(2, 64);
    let first = std::mem::replace(&mut client.queue, second);
    assert_eq!(client.file(FileRequest::Read { file, offset: 0, len: 4 }).0, bytes[..4]);
    client.queue = first;
    let mut other = Client::connect(&running);
    let (_, trailer) = other.file(FileRequest::Read { file, offset: 0, len: 4 });
    assert_eq!(trailer.returned, -i64::from(rustix::io::Errno::STALE.raw_os_error()));
}

#[test]
fn a_malformed_operation_names_its_byte() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    let mut client = Client::connect(&running);
    let mut args = FileRequest::ListExports { cursor: 0, len_max: 64 }.to_bytes();
    args[50] = 1;
    let tag = client.tag();
    client
        .send(tag, &FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) })
        .fails_with(Status::INVALID_FIELD);
    let record = &client.errors()[0];
    assert!(record.message.contains("file request, byte 44: reserved, and not 0"), "{record:?}");
}

#[test]
fn functions_over_a_file_see_one_version_of_it_or_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    let mut client = Client::connect(&running);
    let bytes = pattern(3 << 20, 4);
    std::fs::write(dir.path().join("x"), &bytes).unwrap();
    let file = client.open("data/x", FileFlags::READ);
    let request = client.over_file("stats64", file);
    let (result, trailer) = client.run(&request);
    assert_eq!((trailer.outcome, &result), (Outcome::Ok, &locally("stats64", &[], &bytes)));
    let (_, stat) = client.file(FileRequest::Stat { base: Some(file), path: b"", flags: FileFlags::NONE });
    assert_eq!(trailer.generation, stat.generation, "the version that was read");
    assert_eq!(trailer.media_read, 3 << 20);

    // Somebody changes the file for as long as the function reads it.
    let slow = FunctionRequest { chunk_len: 4096, ..request.clone() };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let path = dir.path().join("x");
    let changed = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            use std::os::unix::fs::FileExt;
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                file.write_all_at(&[1; 8], 8).unwrap();
            }
        });
        let ended = client.run(&slow).1;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        ended
    });
    assert_eq!(changed.outcome, Outcome::Stale);
    assert_eq!(changed.message, "data/x changed while it was read; read it again");

    std::fs::remove_file(dir.path().join("x")).unwrap();
    let (_, trailer) = client.run(&request);
    assert_eq!(trailer.outcome, Outcome::Ok, "an open file can be read without a name");
    client.file(FileRequest::Close { file });
    let (_, trailer) = client.run(&request);
    assert_eq!(trailer.outcome, Outcome::Errno);
    assert!(trailer.message.contains("look the file up again"), "{}", trailer.message);
}

#[test]
fn functions_write_files_in_place_at_the_end_or_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    let mut client = Client::connect(&running);
    let input = runs(8 << 10);
    let expanded = locally("bitmap", &[], &input);
    std::fs::write(dir.path().join("in"), &input).unwrap();
    std::fs::write(dir.path().join("out"), "before").unwrap();
    let (source, sink) = (client.open("data/in", FileFlags::READ), client.open("data/out", FileFlags::READ_WRITE));
    for (placement, want) in [
        (Placement::Append, [&b"before"[..], &expanded].concat()),
        (Placement::Replace, expanded.clone()),
        (Placement::InPlace, [&expanded[..3], &expanded].concat()),
    ] {
        let offset = if placement == Placement::InPlace { 3 } else { 0 };
        let sinks = vec![Endpoint { placement, offset, durable: true, ..endpoint(sink) }];
        let over = client.over_file("bitmap", source);
        let request = FunctionRequest { kind: FunctionKind::Write, sinks, ..over };
        let (_, trailer) = client.run(&request);
        assert_eq!(trailer.outcome, Outcome::Ok, "{placement:?}: {}", trailer.message);
        assert_eq!(trailer.durable, expanded.len() as u64, "{placement:?}");
        assert!(std::fs::read(dir.path().join("out")).unwrap() == want, "{placement:?}");
    }
    // One that fails in the middle leaves the old content.
    let before = std::fs::read(dir.path().join("out")).unwrap();
    let sinks = vec![Endpoint { placement: Placement::Replace, len: 1000, ..endpoint(sink) }];
    let over = client.over_file("bitmap", source);
    let (_, trailer) = client.run(&FunctionRequest { kind: FunctionKind::Write, sinks, ..over });
    assert_eq!(trailer.outcome, Outcome::OutputFull);
    assert!(std::fs::read(dir.path().join("out")).unwrap() == before);
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 2, "and nothing beside it");
}

#[test]
fn files_are_closed_when_their_host_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x"), "x").unwrap();
    let running = target(dir.path());
    let mut client = Client::connect(&running);
    for _ in 0..50 {
        client.open("data/x", FileFlags::READ);
    }
    let path = std::fs::canonicalize(dir.path().join("x")).unwrap();
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
        links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path)).count()
    };
    assert_eq!(open(), 50);
    drop(client);
    for _ in 0..2000 {
        if open() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} files stay open for a host that is gone", open());
}
