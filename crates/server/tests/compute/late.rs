//! Functions that go wrong late, when much of their output is written: what of it stays, and what the trailer says of it.

use std::path::Path;

use crate::client::{COMPUTE, Client, Received, VOLUME, start};
use crate::common::{builder, pattern};
use crate::standard::compiled;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::ExportSpec;
use diskside_wire::file::FileFlags;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome, Placement, RecordSplit, Trailer,
};

const FREE: u16 = 100;
const OUTPUT: u32 = 2;
const MEMORY: u32 = 1023;
const LAYOUT: u32 = 9;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 * KIB;
/// Before the chunk that the function fails at.
const GOOD: u64 = 3 * MIB;

struct Fixture {
    _running: Running,
    client: Client,
    input: Vec<u8>,
}

impl Fixture {
    fn new(exported: &Path) -> Self {
        let volumes = ["data=mem:4MiB,rw", "output=mem:8MiB,rw"];
        let builder = volumes.into_iter().fold(builder(), |builder, spec| builder.volume(spec.parse().unwrap()));
        let running = start(builder.export(ExportSpec::new("files", exported).writable()));
        let mut client = Client::connect(&running);
        client.load(FREE, &compiled("late")).ok();
        client.activate(FREE, true).ok();
        let mut input = pattern(4 * MIB as usize, 11);
        for chunk in 0..4 * MIB / CHUNK {
            input[(chunk * CHUNK) as usize] = u8::from(chunk * CHUNK == GOOD);
        }
        client.fill(&input);
        Self { _running: running, client, input }
    }

    fn run(&mut self, how: u64, sinks: Vec<Endpoint>) -> Trailer {
        let request = FunctionRequest {
            args: how.to_le_bytes().to_vec(),
            sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, 4 * MIB)],
            sinks,
            chunk_len: CHUNK as u32,
            split: RecordSplit::Fixed(CHUNK as u32),
            budget: 1 << 20,
            // Of several, one may fail before what others made is written.
            threads_max: 1,
            ..FunctionRequest::new(FunctionKind::Write, FREE)
        };
        let (result, trailer) = self.client.run(&request);
        assert!(result.is_empty());
        if trailer.outcome != Outcome::Ok {
            // Prepared it ends in the same way.
            let handle = self.client.prepare(&request);
            let called = Received::of(self.client.call(handle, &how.to_le_bytes(), 4096));
            let told = called.trailer.unwrap();
            let key = |trailer: &Trailer| (trailer.outcome, trailer.returned, trailer.durable, trailer.place);
            assert_eq!((key(&told), &told.message), (key(&trailer), &trailer.message));
            assert!(called.bytes.is_empty() && told.media_written <= GOOD.max(trailer.media_written), "{told:?}");
        }
        trailer
    }

    /// The volume's bytes.
    fn output(&mut self, range: std::ops::Range<u64>) -> Vec<u8> {
        let blocks = self.client.queue.read(OUTPUT, range.start / 4096, ((range.end - range.start) / 4096) as u32);
        blocks.ok()
    }
}

fn volume(offset: u64, len: u64) -> Endpoint {
    Endpoint::new(EndpointKind::Volume(OUTPUT), offset, len)
}

/// Arguments that make it fail, and how.
const WAYS: [(u64, Outcome, i64); 4] =
    [(1, Outcome::Trap, 0), (2, Outcome::Budget, 0), (3, Outcome::OutputFull, 1 << 40), (4, Outcome::Errno, -74)];

/// Bytes in the second sink counted as durable though the first was never written.
#[test]
fn what_is_durable_is_a_prefix_of_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = Fixture::new(dir.path());
    let layout = LayoutRequest {
        action: LayoutAction::Set,
        id: LAYOUT,
        nsid: OUTPUT,
        generation: 1,
        file_len: 8 * MIB,
        runs: vec![LayoutRun { logical: 0, physical: 0, len: 8 * MIB }],
    };
    let bytes = layout.encode();
    test.client.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0).ok();
    let memory = |len| Endpoint::new(EndpointKind::Memory(MEMORY), 0, len);
    let layout = Endpoint { generation: 1, ..Endpoint::new(EndpointKind::Layout(LAYOUT), 0, 8 * MIB) };
    // Sinks are written a MiB at a time, and when they are full.
    let cases = [
        ("a volume", vec![volume(0, 8 * MIB)], GOOD, GOOD),
        ("two sinks", vec![volume(0, CHUNK), volume(CHUNK, 7 * MIB)], CHUNK + 2 * MIB, CHUNK + 2 * MIB),
        ("a layout", vec![layout], GOOD, GOOD),
        ("memory", vec![memory(8 * MIB)], GOOD, 0),
        ("memory and a volume", vec![memory(CHUNK), volume(0, 8 * MIB)], CHUNK + 2 * MIB, 0),
    ];
    for (name, sinks, written, durable) in cases {
        for (how, outcome, returned) in WAYS {
            let zeroes = vec![0; 512 << 10];
            (0..16).for_each(|at| drop(test.client.queue.write(OUTPUT, at * 128, &zeroes).ok()));
            let trailer = test.run(how, sinks.clone());
            let told = format!("{name}, way {how}: {trailer:?}");
            assert_eq!((trailer.outcome, trailer.returned), (outcome, returned), "{told}");
            assert_eq!((trailer.media_written, trailer.durable), (written, durable), "{told}");
            assert_eq!(trailer.place.unwrap().offset, GOOD, "{told}");
            for from in (0..durable / CHUNK).map(|chunk| chunk * CHUNK) {
                let got = test.output(from..from + CHUNK);
                assert!(got == test.input[from as usize..(from + CHUNK) as usize], "byte {from} on: {told}");
            }
        }
    }
}

#[test]
fn files_are_left_whole_or_say_how_much_of_them_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = Fixture::new(dir.path());
    let old = pattern(100_000, 4);
    for (how, outcome, _) in WAYS {
        for placement in [Placement::InPlace, Placement::Append, Placement::Replace] {
            std::fs::write(dir.path().join("x"), &old).unwrap();
            let handle = test.client.open("files/x", FileFlags::READ_WRITE);
            let file = Endpoint {
                generation: handle.generation,
                placement,
                ..Endpoint::new(EndpointKind::File(handle.id), 0, Endpoint::TO_END)
            };
            let trailer = test.run(how, vec![file]);
            let told = format!("{placement:?}, way {how}: {trailer:?}");
            assert_eq!(trailer.outcome, outcome, "{told}");
            let after = std::fs::read(dir.path().join("x")).unwrap();
            if placement == Placement::InPlace {
                assert_eq!((trailer.media_written, trailer.durable), (GOOD, GOOD), "{told}");
                assert!(after == test.input[..GOOD as usize], "{told}");
            } else {
                assert_eq!(trailer.durable, 0, "{told}");
                assert!(after == old, "{told}");
            }
            // A file that is thrown away, then a volume that is not.
            let trailer = test.run(how, vec![Endpoint { len: CHUNK, ..file }, volume(0, 8 * MIB)]);
            let told = format!("{placement:?} and a volume, way {how}: {trailer:?}");
            let durable = if placement == Placement::InPlace { CHUNK + 2 * MIB } else { 0 };
            assert_eq!((trailer.outcome, trailer.durable), (outcome, durable), "{told}");
        }
    }
}

/// The first of two files was replaced, and then the second could not be.
#[test]
fn of_two_replaced_files_neither_is_new_unless_both_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = Fixture::new(dir.path());
    let old = |name: &str| format!("{name} as it was").into_bytes();
    let content = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    // How the function ends; and whether the second file's name means another one by then.
    let cases = [(0, false), (0, true), (1, false), (2, false), (3, false), (4, false)];
    for (how, is_renamed) in cases {
        for name in ["one", "two"] {
            std::fs::write(dir.path().join(name), old(name)).unwrap();
        }
        let sinks = ["one", "two"].map(|name| {
            let file = test.client.open(&format!("files/{name}"), FileFlags::READ_WRITE);
            let (kind, len) = (EndpointKind::File(file.id), if name == "one" { CHUNK } else { Endpoint::TO_END });
            let (generation, placement) = (file.generation, Placement::Replace);
            Endpoint { generation, placement, durable: true, ..Endpoint::new(kind, 0, len) }
        });
        if is_renamed {
            std::fs::remove_file(dir.path().join("two")).unwrap();
            std::fs::write(dir.path().join("two"), old("two")).unwrap();
        }
        let trailer = test.run(how, sinks.to_vec());
        let told = format!("way {how}, renamed: {is_renamed}: {trailer:?}");
        if how == 0 && !is_renamed {
            // The chunk that the function fails at is copied as any other.
            assert_eq!((trailer.outcome, trailer.durable), (Outcome::Ok, 4 * MIB), "{told}");
            assert!(content("one") == test.input[..CHUNK as usize] && content("two") == test.input[CHUNK as usize..]);
        } else {
            let outcome = WAYS.iter().find(|way| way.0 == how).map_or(Outcome::Errno, |way| way.1);
            assert_eq!((trailer.outcome, trailer.durable), (outcome, 0), "{told}");
            assert_eq!((content("one"), content("two")), (old("one"), old("two")), "{told}");
        }
        if is_renamed {
            let message = "replacing files/two: that name means another file by now";
            assert_eq!((trailer.returned, &*trailer.message), (-116, message), "{told}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing beside them: {told}");
    }
}

/// The message counted what was written, not the room.
#[test]
fn output_that_does_not_fit_says_how_much_room_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut test = Fixture::new(dir.path());
    for (len, told) in [(CHUNK, "65536"), (2 * MIB - 7, "2097145")] {
        let trailer = test.run(0, vec![volume(0, len)]);
        let message = format!("the output does not fit its sinks, which hold {told} bytes");
        assert_eq!((trailer.outcome, trailer.message), (Outcome::OutputFull, message));
        assert_eq!((trailer.media_written, trailer.durable), (len, len));
    }
    let trailer = test.run(0, vec![volume(0, 0), volume(0, 4 * MIB), volume(4 * MIB, 0)]);
    assert_eq!((trailer.outcome, trailer.media_written), (Outcome::Ok, 4 * MIB));
}
