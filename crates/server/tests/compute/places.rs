//! Where in a call's sources something went wrong: which of them, and which bytes of it, also behind the first one.

use std::sync::Arc;

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::{builder, pattern};
use crate::standard::{MEMORY, compiled};
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::{ExportSpec, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::file::FileFlags;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome, PlaceInSource, RecordSplit, Trailer,
};

const FREE: u16 = 100;
const BROKEN: u32 = 2;
const CHUNK: u64 = 4096;
/// The byte at which the function goes wrong, where a chunk begins with it. Nothing else begins so.
const BAD: u8 = 0xee;

struct Fixture {
    dir: tempfile::TempDir,
    _running: Running,
    client: Client,
}

impl Fixture {
    /// Everything that a source can be, 64 KiB of each, and a volume that cannot be read.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plan = FaultPlan { eio_ppm: 1_000_000, ..FaultPlan::default() };
        let broken = FaultyMedium::new(Arc::new(MemoryMedium::new(1 << 20, false).unwrap()), 4096, plan);
        let builder = builder().volume("data=mem:1MiB,rw".parse().unwrap());
        let builder = builder.medium(VolumeSpec::new("broken", "faulty").writable(), Arc::new(broken));
        let running = start(builder.export(ExportSpec::new("files", dir.path()).writable()));
        let mut client = Client::connect(&running);
        client.load(FREE, &compiled("invert")).ok();
        client.activate(FREE, true).ok();
        Self { dir, _running: running, client }
    }

    fn run(&mut self, sources: &[Endpoint]) -> Trailer {
        let request = FunctionRequest {
            args: u64::from(BAD).to_le_bytes().to_vec(),
            sources: sources.to_vec(),
            chunk_len: CHUNK as u32,
            split: RecordSplit::Fixed(CHUNK as u32),
            ..FunctionRequest::new(FunctionKind::Read, FREE)
        };
        let (result, trailer) = self.client.run(&request);
        // What came before is given out, and not to be used.
        assert!(trailer.outcome != Outcome::Ok && result.len() as u64 == trailer.result_len);
        let handle = self.client.prepare(&request);
        let called = crate::client::Received::of(self.client.call(handle, &[], 4096)).trailer.unwrap();
        assert_eq!((called.outcome, called.place, &called.message), (trailer.outcome, trailer.place, &trailer.message));
        trailer
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Endpoint {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
        let file = self.client.open(&format!("files/{name}"), FileFlags::READ);
        Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) }
    }

    fn layout(&mut self, id: u32, nsid: u32, physical: u64) -> Endpoint {
        let runs = vec![LayoutRun { logical: 0, physical, len: 16 * CHUNK }];
        let (action, generation, file_len) = (LayoutAction::Set, 1, 16 * CHUNK);
        let bytes = LayoutRequest { action, id, nsid, generation, file_len, runs }.encode();
        self.client.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0).ok();
        Endpoint { generation: 1, ..Endpoint::whole(EndpointKind::Layout(id)) }
    }
}

/// 64 KiB, of which the chunk with this number is bad.
fn bytes(bad: Option<u64>) -> Vec<u8> {
    let mut bytes = pattern(16 * CHUNK as usize, 3);
    for (index, chunk) in (0..).zip(bytes.chunks_mut(CHUNK as usize)) {
        chunk[0] = if Some(index) == bad { BAD } else { 0 };
    }
    bytes
}

fn range(nsid: u32, first: u64, chunks: u64) -> Endpoint {
    Endpoint::new(EndpointKind::Volume(nsid), first * CHUNK, chunks * CHUNK)
}

#[test]
fn a_trap_names_the_source_that_it_was_in() {
    let mut test = Fixture::new();
    test.client.fill(&[bytes(None), bytes(Some(3))].concat());
    let (good, bad) = (test.file("good", &bytes(None)), test.file("bad", &bytes(Some(3))));
    let layouts = [test.layout(1, VOLUME, 0), test.layout(2, VOLUME, 16 * CHUNK)];
    let memory = [bytes(None), bytes(Some(3))].concat();
    test.client.memory_write(0, &memory).ok();
    let of_memory = |first: u64| Endpoint::new(EndpointKind::Memory(MEMORY), first * CHUNK, 16 * CHUNK);
    let cases = [
        ("two files", vec![good, bad], 1, 3, "files/bad"),
        ("three files", vec![good, good, bad], 2, 3, "files/bad"),
        ("two ranges of a volume", vec![range(VOLUME, 0, 16), range(VOLUME, 16, 16)], 1, 19, "data"),
        (
            "ranges the other way round",
            vec![range(VOLUME, 8, 2), range(VOLUME, 4, 1), range(VOLUME, 18, 4)],
            2,
            19,
            "data",
        ),
        ("two layouts", layouts.to_vec(), 1, 3, "a file on data"),
        ("two ranges of memory", vec![of_memory(0), of_memory(16)], 1, 19, "memory"),
        ("a volume, a layout, a file", vec![range(VOLUME, 0, 1), layouts[0], bad], 2, 3, "files/bad"),
    ];
    for (what, sources, source_index, chunk, name) in cases {
        let trailer = test.run(&sources);
        assert_eq!((trailer.outcome, trailer.trap_kind), (Outcome::Trap, 1), "{what}: {trailer:?}");
        let place = PlaceInSource { source_index, offset: chunk * CHUNK, len: CHUNK };
        assert_eq!(trailer.place, Some(place), "{what}: {trailer:?}");
        let told = format!("{name}, bytes {}..{}: read/invert was stopped", chunk * CHUNK, (chunk + 1) * CHUNK);
        assert!(trailer.message.starts_with(&told), "{what}: {}", trailer.message);
    }
}

/// A read error named a file, a volume or a layout, and not which of the sources it was: of two layouts of one volume nobody
/// could tell.
#[test]
fn a_read_that_fails_names_the_source_that_it_was_of() {
    let mut test = Fixture::new();
    test.client.fill(&bytes(None));
    let file = test.file("good", &bytes(None));
    let (good, bad) = (test.layout(1, VOLUME, 0), test.layout(2, BROKEN, 0));
    let cases = [
        ("the first", vec![range(BROKEN, 4, 1), file], 0, 4, "reading broken at byte 16384"),
        ("a second volume", vec![range(VOLUME, 0, 4), range(BROKEN, 8, 4)], 1, 8, "reading broken at byte 32768"),
        ("behind a file", vec![file, file, range(BROKEN, 0, 4)], 2, 0, "reading broken at byte 0"),
        ("a second layout", vec![good, bad], 1, 0, "reading a file on broken at byte 0"),
    ];
    for (what, sources, source_index, chunk, told) in cases {
        let trailer = test.run(&sources);
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -5), "{what}: {trailer:?}");
        let place = PlaceInSource { source_index, offset: chunk * CHUNK, len: 0 };
        assert_eq!(trailer.place, Some(place), "{what}: {trailer:?}");
        assert_eq!(trailer.message, format!("{told}: Input/output error (os error 5)"), "{what}");
    }
}
