//! Media that become full in the middle of a function's output: how much of it is there, how much of that is durable,
//! and the error of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::{builder, pattern};
use crate::standard::compiled;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::VolumeSpec;
use diskside_volume::media::MemoryMedium;
use diskside_volume::medium::{Access, Action, Medium, Properties, Step};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome, Trailer,
};
use rustix::io::Errno;

const FREE: u16 = 100;
const OTHER: u32 = 2;
const FULL: u32 = 3;
const LAYOUT: u32 = 4;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LEN: u64 = 8 * MIB;
/// Where the medium is full: behind two whole pieces of output and half of the third.
const ROOM: u64 = 2 * MIB + 512 * KIB;
const INPUT: u64 = 4 * MIB;

/// Memory that takes bytes up to [`ROOM`], behind a cache.
#[derive(Debug)]
struct Filling {
    inner: MemoryMedium,
    properties: Properties,
    errno: Errno,
    /// Flushes fail.
    flushes_fail: AtomicBool,
}

impl Filling {
    fn new(errno: Errno, volatile_write_cache: bool) -> Arc<Self> {
        let inner = MemoryMedium::new(LEN, false).unwrap();
        let properties = Properties { volatile_write_cache, ..inner.properties().clone() };
        Arc::new(Self { inner, properties, errno, flushes_fail: AtomicBool::new(false) })
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        self.inner.memory().unwrap().read(0, &mut bytes);
        bytes
    }
}

impl Medium for Filling {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        match access {
            Access::Write { offset, data, .. } if offset + data.len() as u64 > ROOM => {
                Action::Failed(self.errno).into()
            }
            Access::Flush if self.flushes_fail.load(Ordering::SeqCst) => Action::Failed(Errno::IO).into(),
            _ => self.inner.start(access),
        }
    }
}

struct Fixture {
    _running: Running,
    client: Client,
    medium: Arc<Filling>,
    input: Vec<u8>,
}

impl Fixture {
    fn new(errno: Errno, volatile_write_cache: bool) -> Self {
        let medium = Filling::new(errno, volatile_write_cache);
        let builder = builder().volume("data=mem:4MiB,rw".parse().unwrap());
        let builder = builder.medium(VolumeSpec::new("full", "filling").writable(), medium.clone());
        let running = start(builder.volume("other=mem:1MiB,rw".parse().unwrap()));
        let mut client = Client::connect(&running);
        client.load(FREE, &compiled("invert")).ok();
        client.activate(FREE, true).ok();
        let input = pattern(INPUT as usize, 13);
        client.fill(&input);
        let runs = vec![LayoutRun { logical: 0, physical: 0, len: LEN }];
        let (action, generation, file_len) = (LayoutAction::Set, 1, LEN);
        let bytes = LayoutRequest { action, id: LAYOUT, nsid: FULL, generation, file_len, runs }.encode();
        client.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0).ok();
        Self { _running: running, client, medium, input }
    }

    fn write(&mut self, len: u64, sinks: Vec<Endpoint>) -> Trailer {
        let request = FunctionRequest {
            args: 256_u64.to_le_bytes().to_vec(),
            sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, len)],
            sinks,
            chunk_len: 64 << 10,
            ..FunctionRequest::new(FunctionKind::Write, FREE)
        };
        let (result, trailer) = self.client.run(&request);
        assert!(result.is_empty());
        trailer
    }

    /// The medium has this much of the output from its byte `skip` on, and is as it was behind that.
    #[track_caller]
    fn has(&self, skip: u64, len: u64, told: &str) {
        let content = self.medium.content();
        let (output, rest) = content.split_at(len as usize);
        let written = output.iter().zip(&self.input[skip as usize..]).all(|(byte, input)| *byte == !input);
        assert!(written, "{told}: the output is not there");
        assert!(rest.iter().all(|byte| *byte == 0), "{told}: something was written behind it");
    }
}

fn full(durable: bool) -> Endpoint {
    Endpoint { durable, ..Endpoint::whole(EndpointKind::Volume(FULL)) }
}

fn layout(durable: bool) -> Endpoint {
    Endpoint { durable, generation: 1, ..Endpoint::whole(EndpointKind::Layout(LAYOUT)) }
}

#[test]
fn output_that_a_medium_has_no_room_for_says_how_much_is_durable() {
    let other = Endpoint::whole(EndpointKind::Volume(OTHER));
    for (errno, number, text) in [
        (Errno::NOSPC, 28, "No space left on device (os error 28)"),
        (Errno::DQUOT, 122, "Disk quota exceeded (os error 122)"),
        (Errno::IO, 5, "Input/output error (os error 5)"),
    ] {
        for cached in [false, true] {
            // Without a cache everything is durable that is written; with one, what is flushed because that was asked for.
            let cases = [
                ("full", vec![full(false)], 0, !cached),
                ("full", vec![full(true)], 0, true),
                ("a file on full", vec![layout(false)], 0, !cached),
                ("a file on full", vec![layout(true)], 0, true),
                ("full", vec![other, full(false)], MIB, !cached),
                ("full", vec![other, full(true)], MIB, true),
            ];
            let mut test = Fixture::new(errno, cached);
            for (name, sinks, before, durable) in cases {
                test.medium.inner.start(&Access::Zero { offset: 0, len: LEN, deallocate: true });
                let trailer = test.write(INPUT, sinks.clone());
                let told = format!("{errno:?}, cached: {cached}, {sinks:?}: {trailer:?}");
                assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -number), "{told}");
                assert_eq!(trailer.message, format!("volume {name}, writing at byte {ROOM}: {text}"), "{told}");
                assert_eq!(trailer.media_written, before + ROOM, "{told}");
                assert_eq!(trailer.durable, before + if durable { ROOM } else { 0 }, "{told}");
                test.has(before, ROOM, &told);
            }
        }
    }
}

/// Writes are not durable when the medium cannot say so, and no later success says it either.
#[test]
fn output_that_cannot_be_made_durable_is_told_as_written_and_not_durable() {
    let len = MIB + 5;
    for sink in [full(true), layout(true)] {
        let mut test = Fixture::new(Errno::NOSPC, true);
        test.medium.flushes_fail.store(true, Ordering::SeqCst);
        let trailer = test.write(len, vec![sink]);
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -5), "{trailer:?}");
        assert!(trailer.message.ends_with("writing at byte 1048581: Input/output error (os error 5)"), "{trailer:?}");
        assert_eq!((trailer.media_written, trailer.durable), (len, 0), "{trailer:?}");
        // The volume takes no writes after that: what it said of earlier ones may be wrong.
        test.medium.flushes_fail.store(false, Ordering::SeqCst);
        let trailer = test.write(len, vec![sink]);
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -5), "{trailer:?}");
        assert_eq!((trailer.media_written, trailer.durable), (0, 0), "{trailer:?}");
    }
    let mut test = Fixture::new(Errno::NOSPC, true);
    let trailer = test.write(len, vec![full(true)]);
    assert_eq!((trailer.outcome, trailer.media_written, trailer.durable), (Outcome::Ok, len, len), "{trailer:?}");
    test.has(0, len, "a volume that is fine");
}
