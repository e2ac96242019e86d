//! Functions that go wrong late, when much of their output is written: what of it stays, and what the trailer says of it.

use std::path::Path;

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::{builder, pattern};
use crate::standard::compiled;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::file::FileFlags;
use diskside_nvme::wire::function::{
    Endpoint, EndpointKind, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun, Outcome, Placement,
    RecordSplit, Trailer,
};
use diskside_target::Running;
use diskside_target::config::ExportSpec;

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
        let volumes = ["data=mem:4MiB", "output=mem:8MiB"];
        let builder = volumes.into_iter().fold(builder(), |builder, spec| builder.volume(spec.parse().unwrap()));
        let running = start(builder.export(ExportSpec::new("files", exported)));
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
