//! Exported files over the wire: operations, functions over them, and functions that write them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, locally, runs, start};
use crate::common::{builder, pattern};
use diskside_nvme::Status;
use diskside_server::Running;
use diskside_server::config::{ExportSpec, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::file::{Export, FileFlags, FileHandle, FileRequest, OpenedFile};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, Placement, StatisticsEntry, StatisticsPage,
    Trailer, function_log, statistics_kind,
};
use zerocopy::FromBytes;

/// A target that exports a directory as `data`.
fn target(dir: &Path) -> Running {
    start(builder().export(ExportSpec::new("data", dir).writable()).volume("scratch=mem:1MiB,rw".parse().unwrap()))
}

impl Client {
    pub(crate) fn file(&mut self, request: FileRequest<'_>) -> (Vec<u8>, Trailer) {
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
        .fails_with(Status::INVALID_FIELD.dnr());
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

/// A file operation took sources, sinks and a program, and did nothing with them.
#[test]
fn a_file_operation_has_nothing_but_its_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    let mut client = Client::connect(&running);
    let args = FileRequest::ListExports { cursor: 0, len_max: 4096 }.to_bytes();
    let plain = FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) };
    let volume = vec![Endpoint::whole(EndpointKind::Volume(1))];
    let cases = [
        (FunctionRequest { pind: 1, ..plain.clone() }, 8, "a file operation runs no program: PIND is 0"),
        (FunctionRequest { sources: volume.clone(), ..plain.clone() }, 10, "a file operation has no sources"),
        (FunctionRequest { sinks: volume, ..plain.clone() }, 12, "a file operation has no sinks"),
        (FunctionRequest { program_id: 1, ..plain.clone() }, 16, "runs no program, so none of this content hash"),
        (
            FunctionRequest { function: Some("wc".into()), ..plain.clone() },
            60,
            "it has no function's name and no state",
        ),
    ];
    for (request, at, told) in cases {
        let tag = client.tag();
        client.send(tag, &request).fails_with(Status::INVALID_FIELD.dnr());
        let record = &client.errors()[0];
        assert!(record.location == Some(at) && record.message.contains(told), "{record:?}");
    }
    assert_eq!(client.run(&plain).1.outcome, Outcome::Ok);
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
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} files stay open for a host that is gone", open());
}

impl Client {
    /// The entry of a kind and a name: operations, bytes read, bytes written, failed.
    pub(crate) fn counted(&mut self, kind: u8, name: &str) -> Option<([u64; 4], StatisticsEntry)> {
        let entries = StatisticsPage::decode(&self.log(function_log::STATISTICS, 0)).unwrap().1;
        let entry = entries.into_iter().find(|entry| entry.kind == kind && entry.name() == name)?;
        Some((
            [entry.operations, entry.read, entry.written, entry.failed].map(zerocopy::little_endian::U64::get),
            entry,
        ))
    }
}

/// Exports were missing from the statistics once, and nobody counted what hosts did with files.
#[test]
fn what_happens_to_an_export_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x"), pattern(1 << 20, 3)).unwrap();
    let second = tempfile::tempdir().unwrap();
    let running = start(
        builder()
            .export(ExportSpec::new("data", dir.path()).writable())
            .export(ExportSpec::new("b", second.path()).writable()),
    );
    let mut client = Client::connect(&running);
    let (plain, functions) = (statistics_kind::EXPORT, statistics_kind::EXPORT_BY_FUNCTIONS);
    for (id, name) in [(0, "data"), (1, "b")] {
        let (counts, entry) = client.counted(plain, name).unwrap();
        assert_eq!((counts, entry.id.get(), entry.busy_us.get()), ([0; 4], id, 0));
        assert!(client.counted(functions, name).is_none());
    }
    let file = client.open("data/x", FileFlags::READ_WRITE);
    client.file(FileRequest::Read { file, offset: 0, len: 100_000 });
    client.file(FileRequest::Read { file, offset: (1 << 20) - 50, len: 100 });
    client.file(FileRequest::Write { file, offset: 10, data: &[7; 300], flags: FileFlags::default() });
    let missing = FileRequest::Lookup { dir: None, path: b"data/nothing", flags: FileFlags::READ };
    assert_eq!(client.file(missing).1.outcome, Outcome::Errno);
    let (counts, entry) = client.counted(plain, "data").unwrap();
    assert_eq!(counts, [5, 100_050, 300, 1]);
    assert!(entry.busy_us.get() > 0);

    // A function reads it, and another one writes it.
    let over = client.over_file("stats64", file);
    client.result(&over);
    let (counts, entry) = client.counted(functions, "data").unwrap();
    assert_eq!((counts[1..].to_vec(), counts[0] > 0), (vec![1 << 20, 0, 0], true));
    let (read, busy_us) = (counts[0], entry.busy_us.get());
    assert!(busy_us > 0);
    let sinks = vec![Endpoint { placement: Placement::InPlace, ..endpoint(file) }];
    let expand = client.over("bitmap", &[], 0);
    std::fs::write(dir.path().join("runs"), runs(4096)).unwrap();
    let input = client.open("data/runs", FileFlags::READ);
    let write = FunctionRequest { kind: FunctionKind::Write, sources: vec![endpoint(input)], sinks, ..expand };
    client.result(&write);
    let (counts, _) = client.counted(functions, "data").unwrap();
    assert_eq!(counts[1..], [(1 << 20) + 4096, 32 * 4096, 0]);
    assert!(counts[0] > read);
    assert_eq!(client.counted(plain, "data").unwrap().0, [6, 100_050, 300, 1], "hosts themselves: one Lookup more");
    assert_eq!(client.counted(plain, "b").unwrap().0, [0; 4]);
}

#[test]
fn what_happens_to_a_volume_is_counted() {
    let delay = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(20), ..FaultPlan::default() };
    let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(1 << 20, false).unwrap()), 4096, delay);
    let running = start(builder().medium(VolumeSpec::new("slow", "faulty").writable(), Arc::new(medium)));
    let mut client = Client::connect(&running);
    let (plain, functions) = (statistics_kind::VOLUME, statistics_kind::VOLUME_BY_FUNCTIONS);
    for _ in 0..8 {
        client.queue.write(1, 0, &[1; 4096]).ok();
        client.queue.read(1, 0, 2).ok();
    }
    let (counts, entry) = client.counted(plain, "slow").unwrap();
    assert_eq!(counts, [16, 8 * 8192, 8 * 4096, 0]);
    assert!(entry.busy_us.get() > 1000, "{entry:?}: sixteen commands that waited for up to 20 ms");
    assert!(client.counted(functions, "slow").is_none());
    let request = client.over("stats64", &[], 1 << 20);
    client.result(&request);
    let (counts, entry) = client.counted(functions, "slow").unwrap();
    assert_eq!(counts[1..], [1 << 20, 0, 0]);
    assert!(counts[0] > 0 && entry.busy_us.get() > 0, "{entry:?}");
    assert_eq!(client.counted(plain, "slow").unwrap().0, [16, 8 * 8192, 8 * 4096, 0]);
}
