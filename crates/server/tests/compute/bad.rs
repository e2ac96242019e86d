//! Functions that fail, in each way and at each step at which they can: outcome, trap and message say how, the host
//! gets nothing of a result, sinks say how much of them was written, and the target works on.

use crate::client::{COMPUTE, Client, Received, VOLUME, start};
use crate::common::builder;
use crate::standard::compiled;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::{Running, TargetBuilder};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, RecordSplit, Trailer,
};

const FREE: u16 = 100;
const OUTPUT: u32 = 2;
const CHUNK: u32 = 4096;
/// The chunk that the function is hostile to.
const BAD_CHUNK: u64 = 5;

/// A way to go wrong.
pub(crate) struct Way {
    pub(crate) how: u64,
    pub(crate) outcome: Outcome,
    pub(crate) returned: i64,
    /// Kind of the trap; 0: none.
    trap: u16,
    pub(crate) message: &'static str,
}

pub(crate) const WAYS: [Way; 5] = [
    Way { how: 1, outcome: Outcome::Trap, returned: 0, trap: 1, message: "out[0] = in[in_len" },
    Way { how: 2, outcome: Outcome::Trap, returned: 0, trap: 1, message: "out-of-bounds write of 1 bytes" },
    Way { how: 3, outcome: Outcome::Budget, returned: 0, trap: 5, message: "hostile.bpf.c:2" },
    Way { how: 4, outcome: Outcome::OutputFull, returned: 1 << 40, trap: 0, message: "1099511627776" },
    Way { how: 5, outcome: Outcome::Errno, returned: -74, trap: 0, message: "-74" },
];

fn target() -> (Running, Client) {
    let volumes = ["data=mem:1MiB,rw", "output=mem:1MiB,rw"];
    hostile(volumes.into_iter().fold(builder(), |builder, spec| builder.volume(spec.parse().unwrap())))
}

fn hostile(builder: TargetBuilder) -> (Running, Client) {
    let running = start(builder);
    let mut client = Client::connect(&running);
    let loaded = client.load(FREE, &compiled("hostile"));
    assert!(loaded.status.is_success(), "{:?}", client.errors());
    client.activate(FREE, true).ok();
    let mut bytes = vec![0; 16 * CHUNK as usize];
    bytes[(BAD_CHUNK * u64::from(CHUNK)) as usize] = 7;
    client.fill(&bytes);
    (running, client)
}

fn request(how: u64) -> FunctionRequest {
    FunctionRequest {
        args: how.to_le_bytes().to_vec(),
        sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, 16 * u64::from(CHUNK))],
        chunk_len: CHUNK,
        split: RecordSplit::Fixed(CHUNK),
        budget: 1 << 20,
        ..FunctionRequest::new(FunctionKind::Read, FREE)
    }
}

#[track_caller]
fn check(way: &Way, trailer: &Trailer, step: &str) {
    let told = format!("{step}, way {}: {trailer:?}", way.how);
    assert_eq!((trailer.outcome, trailer.returned, trailer.trap_kind), (way.outcome, way.returned, way.trap), "{told}");
    assert!(trailer.message.contains(way.message), "{told}");
    assert!(trailer.message.contains("hostile"), "the function is named: {told}");
    let place = trailer.place.unwrap_or_else(|| panic!("the place is named: {told}"));
    assert_eq!((place.source_index, place.offset), (0, BAD_CHUNK * u64::from(CHUNK)), "{told}");
}

#[test]
fn a_read_that_goes_wrong_says_how_and_where() {
    let (_running, mut client) = target();
    for way in &WAYS {
        let (_, trailer) = client.run(&request(way.how));
        check(way, &trailer, "read");
    }
    assert_eq!(client.result(&request(0)), [7], "and the next one goes well");
}

#[test]
fn a_write_that_goes_wrong_leaves_what_was_written_before_it() {
    let (_running, mut client) = target();
    let expected = client.queue.read(OUTPUT, 0, 4).ok();
    for way in &WAYS {
        let sinks = vec![Endpoint::new(EndpointKind::Volume(OUTPUT), 0, 16 << 10)];
        let (result, trailer) = client.run(&FunctionRequest { kind: FunctionKind::Write, sinks, ..request(way.how) });
        check(way, &trailer, "write");
        assert_eq!((result.len(), trailer.media_written), (0, 0));
    }
    assert_eq!(client.queue.read(OUTPUT, 0, 4).ok(), expected);
}

#[test]
fn a_prepared_call_that_goes_wrong_says_so_with_room_for_a_trailer_and_without() {
    let (_running, mut client) = target();
    // One that a reactor runs itself, and one that an engine has.
    let short = vec![Endpoint::new(EndpointKind::Volume(VOLUME), BAD_CHUNK * u64::from(CHUNK), u64::from(CHUNK))];
    for (sources, step) in [(short, "on a reactor"), (request(0).sources, "on an engine")] {
        let handle = client.prepare(&FunctionRequest { sources, ..request(0) });
        for way in &WAYS {
            let answer = client.call(handle, &way.how.to_le_bytes(), 4096);
            let received = Received::of(answer);
            assert!(received.bytes.is_empty() && received.answer.end);
            check(way, &received.trailer.unwrap(), step);
            client.call(handle, &way.how.to_le_bytes(), 64).fails_with(Status::FUNCTION_FAILED.dnr());
            let record = &client.errors()[0];
            assert!(record.message.contains(way.message), "{record:?}");
        }
        let received = Received::of(client.call(handle, &0_u64.to_le_bytes(), 4096));
        assert_eq!(received.bytes, [7], "{step}");
    }
}

#[test]
fn a_loop_is_ended_by_its_deadline_and_by_a_cancel() {
    let (_running, mut client) = target();
    let endless = FunctionRequest { budget: u64::MAX, ..request(3) };
    // On a busy machine a short one may pass before an engine is free.
    let trapped = [30, 300, 3000].into_iter().any(|deadline_ms| {
        let (_, trailer) = client.run(&FunctionRequest { deadline_ms, ..endless.clone() });
        assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
        trailer.trap_kind == 6
    });
    assert!(trapped, "the loop never ran");
    let tag = client.tag();
    client.send(tag, &endless).ok();
    let answer = client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0);
    assert_eq!((answer.result, answer.ok().len()), (0, 0), "it has stopped");
    let (_, trailer) = client.finish(tag);
    assert_eq!(trailer.outcome, Outcome::Cancelled, "{}", trailer.message);
    // A prepared one ends with its command's timeout.
    let handle = client.prepare(&endless);
    let ended = [50, 500, 5000].into_iter().find_map(|timeout_ms| {
        let sqe = Sqe::function_call(COMPUTE, handle, &3_u64.to_le_bytes(), 4096, timeout_ms);
        let answer = client.queue.command(sqe, None, 4096);
        // No engine began it within its time.
        (answer.status != Status::FUNCTION_BUSY).then(|| Received::of(answer))
    });
    assert_eq!(ended.unwrap().trailer.unwrap().outcome, Outcome::Deadline);
}

/// The thread that waited for the rest of the stream did not hear that another engine thread had failed.
#[test]
fn an_input_that_goes_wrong_ends_a_call_before_its_stream() {
    let (_running, mut client) = target();
    for way in &WAYS {
        let stream = FunctionRequest { sources: vec![Endpoint::whole(EndpointKind::HostStream)], ..request(way.how) };
        let bytes = stream.encode();
        let tag = client.tag();
        let first = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, bytes.len() as u32).with_first();
        client.queue.command(first, Some(&bytes), 0).ok();
        let mut input = vec![0; (BAD_CHUNK + 2) as usize * CHUNK as usize];
        input[(BAD_CHUNK * u64::from(CHUNK)) as usize] = 7;
        let part = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, bytes.len() as u64, input.len() as u32);
        client.queue.command(part, Some(&input), 0).ok();
        let (_, trailer) = client.finish(tag);
        check(way, &trailer, "a host's stream");
    }
}

#[test]
fn ranges_may_overlap_touch_and_begin_anywhere() {
    let (_running, mut client) = target();
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| ((at * 7) >> 3) as u8).collect();
    client.fill(&bytes);
    let ranges = [(3, 1000), (500, 1000), (1500, 1), (0, 4096), ((1 << 20) - 9, 9)];
    let source = |(offset, len)| Endpoint::new(EndpointKind::Volume(VOLUME), offset, len);
    let request = FunctionRequest { sources: ranges.into_iter().map(source).collect(), ..client.over("wc", &[], 0) };
    let whole: Vec<u8> =
        ranges.iter().flat_map(|(at, len)| &bytes[*at as usize..(at + len) as usize]).copied().collect();
    let result = client.result(&FunctionRequest { split: RecordSplit::Bytes, ..request.clone() });
    assert_eq!(u64::from_le_bytes(result[16..24].try_into().unwrap()), whole.len() as u64, "{result:?}");
    for (offset, len) in [((1 << 20) - 8, 9), (1 << 20, 1), (u64::MAX, 0), (1, u64::MAX - 1)] {
        let request = FunctionRequest { sources: vec![source((offset, len))], ..request.clone() };
        let tag = client.tag();
        client.send(tag, &request).fails_with(Status::LBA_OUT_OF_RANGE.dnr());
        let told = format!("the range from byte {offset} on is not in volume data, which has 1048576");
        assert_eq!(client.errors()[0].message, told);
    }
    let behind = FunctionRequest { sources: vec![source((u64::MAX, 1))], ..request };
    let tag = client.tag();
    client.send(tag, &behind).fails_with(Status::INVALID_FIELD.dnr());
    assert_eq!(client.errors()[0].location, Some(64 + 16));
    assert!(client.errors()[0].message.contains("ends behind 2^64"), "{:?}", client.errors()[0]);
}

/// A call held its engine until its function was done with a chunk: those of one host that never were had all engines
/// for an hour, and no function of another host ran.
#[test]
fn endless_functions_of_one_host_leave_engines_to_others() {
    const ENGINES: usize = 2;
    let builder = builder().volume("data=mem:1MiB,rw".parse().unwrap());
    let (running, mut greedy) = hostile(builder.compute(|compute| compute.engines = ENGINES));
    let endless = FunctionRequest { budget: u64::MAX, ..request(3) };
    let tags: Vec<u64> = (0..2 * ENGINES).map(|_| greedy.tag()).collect();
    for &tag in &tags {
        greedy.send(tag, &endless).ok();
    }

    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    let request_of_other = other.over("stats64", &[], 4096);
    let (result, trailer) = other.run(&request_of_other);
    assert_eq!(trailer.outcome, Outcome::Ok, "{}", trailer.message);
    assert!(!result.is_empty());
    // One more of the greedy host ends as well: its calls take turns.
    let (_, trailer) = greedy.run(&request(0));
    assert_eq!(trailer.outcome, Outcome::Ok, "{}", trailer.message);
    for tag in tags {
        greedy.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0).ok();
        assert_eq!(greedy.finish(tag).1.outcome, Outcome::Cancelled);
    }
}
