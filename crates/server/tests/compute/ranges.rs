//! Ranges at the edges of what they are of, and ranges that overlap: of volumes, files, layouts and memory.

use std::os::unix::fs::FileExt as _;

use crate::client::{COMPUTE, Client, VOLUME, locally, start};
use crate::common::{builder, pattern};
use crate::standard::{MEMORY, compiled};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::ExportSpec;
use diskside_wire::file::{FileFlags, FileHandle};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome, Placement, Trailer,
};

const INVERTS: u16 = 100;
const WALKS: u16 = 101;
const LAYOUT: u32 = 5;
const MIB: u64 = 1 << 20;
const EINVAL: i64 = -22;
/// Bytes of the file `x`, and of the layout.
const FILE_LEN: u64 = 10_000;

struct Fixture {
    dir: tempfile::TempDir,
    _running: Running,
    client: Client,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let builder = builder().volume("data=mem:4MiB,rw".parse().unwrap());
        let running = start(builder.export(ExportSpec::new("files", dir.path()).writable()));
        let mut client = Client::connect(&running);
        for (pind, name) in [(INVERTS, "invert"), (WALKS, "walk")] {
            client.load(pind, &compiled(name)).ok();
            client.activate(pind, true).ok();
        }
        Self { dir, _running: running, client }
    }

    fn file(&mut self, name: &str) -> FileHandle {
        self.client.open(&format!("files/{name}"), FileFlags::READ_WRITE)
    }

    fn set_layout(&mut self, file_len: u64, runs: Vec<LayoutRun>) {
        let (action, generation) = (LayoutAction::Set, 1);
        let bytes = LayoutRequest { action, id: LAYOUT, nsid: VOLUME, generation, file_len, runs }.encode();
        self.client.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0).ok();
    }

    /// The volume's first bytes.
    fn volume(&mut self, len: usize) -> Vec<u8> {
        let parts =
            (0..len.div_ceil(512 << 10) as u64).map(|part| self.client.queue.read(VOLUME, part * 128, 128).ok());
        let mut bytes = parts.collect::<Vec<_>>().concat();
        bytes.truncate(len);
        bytes
    }

    fn run(&mut self, request: &FunctionRequest) -> (Vec<u8>, Trailer) {
        self.client.run(request)
    }
}

fn of_file(file: FileHandle, offset: u64, len: u64) -> Endpoint {
    Endpoint { generation: file.generation, ..Endpoint::new(EndpointKind::File(file.id), offset, len) }
}

fn of_volume(offset: u64, len: u64) -> Endpoint {
    Endpoint::new(EndpointKind::Volume(VOLUME), offset, len)
}

fn of_layout(offset: u64, len: u64) -> Endpoint {
    Endpoint { generation: 1, ..Endpoint::new(EndpointKind::Layout(LAYOUT), offset, len) }
}

fn of_memory(offset: u64, len: u64) -> Endpoint {
    Endpoint::new(EndpointKind::Memory(MEMORY), offset, len)
}

/// Inverts the source into the sink, in small pieces that several threads have.
fn inverts(sources: Vec<Endpoint>, sinks: Vec<Endpoint>) -> FunctionRequest {
    let args = 256_u64.to_le_bytes().to_vec();
    FunctionRequest { args, sources, sinks, chunk_len: 64 << 10, ..FunctionRequest::new(FunctionKind::Write, INVERTS) }
}

/// Reads the word at `at`, in one step.
fn walks(source: Endpoint, at: u64) -> FunctionRequest {
    let args = [1, at].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let (function, sources) = (Some("walk".into()), vec![source]);
    FunctionRequest { function, sources, args, ..FunctionRequest::new(FunctionKind::Traverse, WALKS) }
}

fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

#[test]
fn a_range_that_is_not_in_its_file_is_told() {
    let mut test = Fixture::new();
    let bytes = pattern(FILE_LEN as usize, 2);
    std::fs::write(test.dir.path().join("x"), &bytes).unwrap();
    let file = test.file("x");
    let over = |client: &mut Client, offset, len| FunctionRequest {
        sources: vec![of_file(file, offset, len)],
        ..client.over("stats64", &[], 0)
    };
    for (offset, len) in [(FILE_LEN + 1, Endpoint::TO_END), (FILE_LEN, 1), (0, FILE_LEN + 1), (u64::MAX - 9, 8)] {
        let request = over(&mut test.client, offset, len);
        let (result, trailer) = test.run(&request);
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Errno, EINVAL), "{trailer:?}");
        assert_eq!(
            trailer.message,
            format!("the range from byte {offset} on is not in files/x, which has 10000 bytes")
        );
        assert!(result.is_empty());
    }
    for (offset, len) in [(FILE_LEN, Endpoint::TO_END), (FILE_LEN, 0), (8, 0), (FILE_LEN - 8, 8)] {
        let request = over(&mut test.client, offset, len);
        let end = (offset + len.min(FILE_LEN)).min(FILE_LEN) as usize;
        let wanted = locally("stats64", &[], &bytes[offset as usize..end]);
        assert_eq!(test.client.result(&request), wanted, "{len} bytes at {offset}");
    }
}

/// The host that has a layout knows how long its file is: what it asks for behind that has no bytes.
#[test]
fn a_range_of_a_layout_goes_as_far_as_its_file() {
    let mut test = Fixture::new();
    let bytes = pattern(FILE_LEN as usize, 2);
    test.client.fill(&bytes);
    test.set_layout(FILE_LEN, vec![LayoutRun { logical: 0, physical: 0, len: FILE_LEN }]);
    for (offset, len) in [(FILE_LEN - 8, MIB), (FILE_LEN, MIB), (FILE_LEN + 5, Endpoint::TO_END), (u64::MAX - 9, 8)] {
        let sources = vec![of_layout(offset, len)];
        let request = FunctionRequest { sources, ..test.client.over("stats64", &[], 0) };
        let from = offset.min(FILE_LEN) as usize;
        assert_eq!(test.client.result(&request), locally("stats64", &[], &bytes[from..]), "{len} bytes at {offset}");
        // As a sink it takes no byte there.
        let room = FILE_LEN - from as u64;
        let (_, trailer) = test.run(&inverts(vec![of_volume(MIB, room + 1)], vec![of_layout(offset, len)]));
        assert_eq!((trailer.outcome, trailer.media_written), (Outcome::OutputFull, room), "{trailer:?}");
        assert_eq!(trailer.message, format!("the output does not fit its sinks, which hold {room} bytes"));
    }
}

#[test]
fn a_window_of_a_traversal_ends_where_its_file_does() {
    let mut test = Fixture::new();
    let words: Vec<u8> = (0..512_u64).flat_map(u64::to_le_bytes).collect();
    test.client.fill(&[&words[..], &vec![0; (4 * MIB) as usize - words.len()]].concat());
    std::fs::write(test.dir.path().join("x"), &words).unwrap();
    test.set_layout(4096, vec![LayoutRun { logical: 0, physical: 0, len: 4096 }]);
    test.client.memory_write(0, &words).ok();
    let file = test.file("x");
    // Of volumes and of memory all of it must be there.
    for (offset, len) in [(4 * MIB - 8, 9), (4 * MIB + 1, Endpoint::TO_END), (4 * MIB, 1)] {
        let told = format!("the range from byte {offset} on is not in volume data, which has 4194304");
        test.client.is_refused(
            FunctionKind::Traverse,
            &walks(of_volume(offset, len), 0),
            Status::LBA_OUT_OF_RANGE.dnr(),
            &told,
        );
    }
    let told = "the range from byte 67108860 on is not in the memory namespace, which has 67108864";
    let beyond = walks(of_memory((64 << 20) - 4, 8), 0);
    test.client.is_refused(FunctionKind::Traverse, &beyond, Status::LBA_OUT_OF_RANGE.dnr(), told);
    // Windows of a file and of a layout, as far as they go.
    let windows = [
        ("a volume", of_volume(4000, 96), 96),
        ("memory", of_memory(4000, 96), 96),
        ("a file", of_file(file, 4000, 96), 96),
        ("a file, further than it goes", of_file(file, 4000, MIB), 96),
        ("behind a file", of_file(file, 5000, 8), 0),
        ("a layout", of_layout(4000, Endpoint::TO_END), 96),
        ("a layout, further than it goes", of_layout(4000, MIB), 96),
        ("behind a layout", of_layout(5000, 8), 0),
    ];
    for (what, source, len) in windows {
        if len > 0 {
            let (result, trailer) = test.run(&walks(source, len - 8));
            assert_eq!(
                (trailer.outcome, &result[..]),
                (Outcome::Ok, &511_u64.to_le_bytes()[..]),
                "{what}: {trailer:?}"
            );
        }
        for at in [len, len.max(7) - 7, u64::MAX - 7] {
            let (result, trailer) = test.run(&walks(source, at));
            let told =
                format!("traverse/walk, hop 0: asks for 8 bytes at offset {at} of file 0, which is {len} bytes long");
            assert_eq!((trailer.outcome, trailer.returned), (Outcome::Errno, EINVAL), "{what}: {trailer:?}");
            assert_eq!((&trailer.message, trailer.hop), (&told, 0), "{what}");
            assert!(result.is_empty());
        }
    }
}

/// Output that is nowhere longer than the input up to there goes over it: the bytes that it takes were read.
#[test]
fn what_is_written_over_its_own_source_was_read_before() {
    let mut test = Fixture::new();
    let before = pattern(4 * MIB as usize, 8);
    let (source, len) = (MIB + 4099, 2 * MIB + 77);
    let run = |logical, physical, len| LayoutRun { logical, physical, len };
    // On the same bytes, and before them, off the blocks of the volume.
    for sink in [source, source - 1, source - 5000, MIB / 2 + 1] {
        let mut wanted = before.clone();
        wanted[sink as usize..][..len as usize].copy_from_slice(&inverted(&before[source as usize..][..len as usize]));
        test.client.fill(&before);
        let (_, trailer) = test.run(&inverts(vec![of_volume(source, len)], vec![of_volume(sink, len)]));
        assert_eq!((trailer.outcome, trailer.media_written), (Outcome::Ok, len), "{}", trailer.message);
        assert!(test.volume(before.len()) == wanted, "a volume, {sink}");

        for (at, part) in (0..).step_by(512 << 10).zip(before.chunks(512 << 10)) {
            test.client.memory_write(at, part).ok();
        }
        let (_, trailer) = test.run(&inverts(vec![of_memory(source, len)], vec![of_memory(sink, len)]));
        assert_eq!((trailer.outcome, trailer.media_written), (Outcome::Ok, len), "{}", trailer.message);
        let read = |at: u64| test.client.memory_read(at, 512 << 10);
        assert!((0..8).map(|part| part * (512 << 10)).flat_map(read).collect::<Vec<_>>() == wanted, "memory, {sink}");
    }
    // A file in two pieces, by its layout.
    test.client.fill(&before);
    test.set_layout(2 * MIB, vec![run(0, 2 * MIB + 5, MIB), run(MIB, 3, MIB)]);
    let (_, trailer) = test.run(&inverts(vec![of_layout(0, 2 * MIB)], vec![of_layout(0, 2 * MIB)]));
    assert_eq!((trailer.outcome, trailer.media_written), (Outcome::Ok, 2 * MIB), "{}", trailer.message);
    let mut wanted = before.clone();
    for from in [2 * MIB as usize + 5, 3] {
        wanted[from..][..MIB as usize].copy_from_slice(&inverted(&before[from..][..MIB as usize]));
    }
    assert!(test.volume(before.len()) == wanted, "a layout");
}

/// Sinks are filled one after the other, also where they are the same bytes.
#[test]
fn of_sinks_that_overlap_the_last_one_stays() {
    let mut test = Fixture::new();
    let bytes = pattern(3 * MIB as usize, 9);
    test.client.fill(&bytes);
    let sink = |at, len| of_volume(3 * MIB + at, len);
    let sinks = vec![sink(0, 1000), sink(500, 5000), sink(500, 100)];
    let (_, trailer) = test.run(&inverts(vec![of_volume(0, 6100)], sinks));
    assert_eq!((trailer.outcome, trailer.media_written), (Outcome::Ok, 6100), "{}", trailer.message);
    let output = inverted(&bytes[..6100]);
    let mut wanted = vec![0; 5500];
    wanted[..1000].copy_from_slice(&output[..1000]);
    wanted[500..5500].copy_from_slice(&output[1000..6000]);
    wanted[500..600].copy_from_slice(&output[6000..]);
    assert!(test.client.queue.read(VOLUME, 768, 2).ok()[..5500] == wanted);
}

/// A file that was read and written in place was reported as changed when the function was done, and was lost by then;
/// one that two sinks replaced was replaced by the first, and the call failed.
#[test]
fn a_file_is_no_source_and_sink_at_once_unless_a_new_one_takes_its_place() {
    let mut test = Fixture::new();
    let path = test.dir.path().join("x");
    let bytes = pattern(200_000, 7);
    std::fs::write(&path, &bytes).unwrap();
    std::fs::hard_link(&path, test.dir.path().join("y")).unwrap();
    std::fs::write(test.dir.path().join("z"), "else").unwrap();
    let (x, again, link, other) = (test.file("x"), test.file("x"), test.file("y"), test.file("z"));
    let whole = |file| of_file(file, 0, Endpoint::TO_END);
    let sink = |file, placement| Endpoint { placement, ..whole(file) };
    let (place, append, replace) = (Placement::InPlace, Placement::Append, Placement::Replace);
    let is_read = |name: &str| {
        format!(
            "{name} is a source of this call, which would change it while it reads: let its output replace the file, or go elsewhere"
        )
    };
    let twice =
        |name: &str| format!("{name} is more than one sink of this call, and not written in place by all of them");
    let cases = [
        (vec![whole(x)], vec![sink(x, place)], is_read("files/x")),
        (vec![whole(x)], vec![sink(again, append)], is_read("files/x")),
        (vec![whole(other), whole(x)], vec![sink(link, place)], is_read("files/y")),
        (vec![of_file(x, 0, 10)], vec![sink(other, append), sink(x, append)], is_read("files/x")),
        (vec![of_volume(0, 4096)], vec![sink(x, replace), sink(again, replace)], twice("files/x")),
        (vec![of_volume(0, 4096)], vec![sink(x, place), sink(link, replace)], twice("files/y")),
        (vec![of_volume(0, 4096)], vec![sink(x, append), sink(x, append)], twice("files/x")),
    ];
    for (sources, sinks, told) in cases {
        let (_, trailer) = test.run(&inverts(sources, sinks));
        assert_eq!((trailer.outcome, &trailer.message), (Outcome::Refused, &told));
        assert_eq!((trailer.media_written, trailer.durable), (0, 0), "{trailer:?}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{told}");
        assert_eq!(std::fs::read(test.dir.path().join("z")).unwrap(), b"else", "{told}");
        assert_eq!(std::fs::read_dir(test.dir.path()).unwrap().count(), 3, "nothing beside them");
    }
    // Two places of one file, and a new file for the old.
    let sinks =
        vec![Endpoint { len: 10, ..sink(other, place) }, Endpoint { offset: 50, len: 10, ..sink(other, place) }];
    let (_, trailer) = test.run(&inverts(vec![of_file(x, 0, 20)], sinks));
    assert_eq!((trailer.outcome, trailer.durable), (Outcome::Ok, 20), "{trailer:?}");
    let (mut read, z) = ([0; 10], std::fs::File::open(test.dir.path().join("z")).unwrap());
    for (at, from) in [(0, 0), (50, 10)] {
        z.read_exact_at(&mut read, at).unwrap();
        assert_eq!(read[..], inverted(&bytes[from..from + 10]));
    }
    let (_, trailer) = test.run(&inverts(vec![whole(x)], vec![sink(x, replace)]));
    assert_eq!((trailer.outcome, trailer.durable), (Outcome::Ok, 200_000), "{trailer:?}");
    assert!(std::fs::read(&path).unwrap() == inverted(&bytes));
    assert!(std::fs::read(test.dir.path().join("y")).unwrap() == inverted(&bytes), "its other name means it, too");
}
