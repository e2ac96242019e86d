//! Functions whose `combine` fails: on an engine, and in a prepared Call on the reactor, the report is like that of the
//! function itself, with its own name and line, and the place of the part that it was given.

use crate::client::{Client, Received, VOLUME, start};
use crate::common::builder;
use crate::standard::compiled;
use diskside_nvme::Status;
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, RecordSplit, Trailer};

const FREE: u16 = 100;
const CHUNK: u32 = 4096;
const CHUNKS: u64 = 16;
/// The chunk whose part the fold is hostile to.
const BAD_CHUNK: u64 = 5;
/// What the folded result may have at most.
const CAP: u64 = 4096;

/// A way to go wrong: its outcome, what was returned, the kind of the trap (0: none), and what the message says.
type Way = (u8, Outcome, i64, u16, &'static [&'static str]);

const WAYS: [Way; 5] = [
    (
        1,
        Outcome::Trap,
        0,
        1,
        &["folds.bpf.c:17", "return part[part_len];", "out-of-bounds read of 1 bytes of input at offset 1"],
    ),
    (2, Outcome::Trap, 0, 1, &["folds.bpf.c:19", "acc[acc_cap] = 1;", "out-of-bounds write of 1 bytes of accumulator"]),
    (3, Outcome::Budget, 0, 5, &["folds.bpf.c:2", "the budget of 1048576 loop iterations is used up"]),
    (4, Outcome::OutputFull, 4097, 0, &["4097"]),
    (5, Outcome::Errno, -74, 0, &["-74"]),
];

fn request(chunks: u64) -> FunctionRequest {
    FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, chunks * u64::from(CHUNK))],
        chunk_len: CHUNK,
        split: RecordSplit::Fixed(CHUNK),
        budget: 1 << 20,
        result_len_max: CAP,
        ..FunctionRequest::new(FunctionKind::Read, FREE)
    }
}

#[track_caller]
fn check(&(how, outcome, returned, trap, told): &Way, trailer: &Trailer, chunk: u64) {
    let all = format!("way {how}: {trailer:?}");
    assert_eq!((trailer.outcome, trailer.returned, trailer.trap_kind), (outcome, returned, trap), "{all}");
    assert!(trailer.message.contains("combine/folds"), "the fold is named: {all}");
    assert!(told.iter().all(|part| trailer.message.contains(part)), "{all}");
    let place = trailer.place.unwrap_or_else(|| panic!("the place is named: {all}"));
    assert_eq!((place.source_index, place.offset), (0, chunk * u64::from(CHUNK)), "{all}");
}

#[test]
fn a_combine_that_goes_wrong_says_how_and_where() {
    let running = start(builder().volume("data=mem:1MiB,rw".parse().unwrap()));
    let mut client = Client::connect(&running);
    client.load(FREE, &compiled("folds")).ok();
    client.activate(FREE, true).ok();
    let mut bytes = vec![0; (CHUNKS * u64::from(CHUNK)) as usize];
    client.fill(&bytes);
    assert_eq!(client.result(&request(CHUNKS)), [CHUNKS as u8], "it folds");
    for way in &WAYS {
        bytes[(BAD_CHUNK * u64::from(CHUNK)) as usize] = way.0;
        client.fill(&bytes);
        let (result, trailer) = client.run(&request(CHUNKS));
        check(way, &trailer, BAD_CHUNK);
        assert!(result.is_empty(), "nothing comes of it");
    }
    // The one part of a short call, which a reactor folds itself; and on an engine.
    for (chunks, bad) in [(1, 0), (CHUNKS, BAD_CHUNK)] {
        bytes.fill(0);
        client.fill(&bytes);
        let handle = client.prepare(&request(chunks));
        assert_eq!(client.call(handle, &[], 1).ok(), [chunks as u8]);
        for way in &WAYS {
            bytes.fill(0);
            bytes[(bad * u64::from(CHUNK)) as usize] = way.0;
            client.fill(&bytes);
            let received = Received::of(client.call(handle, &[], 4096));
            assert!(received.bytes.is_empty() && received.answer.end);
            check(way, &received.trailer.unwrap(), bad);
            assert_eq!(client.call(handle, &[], 1).status, Status::FUNCTION_FAILED.dnr(), "no room for a trailer");
            let told = &client.errors()[0].message;
            assert!(way.4.iter().all(|part| told.contains(part)), "{told}");
        }
        bytes.fill(0);
        client.fill(&bytes);
        assert_eq!(client.call(handle, &[], 1).ok(), [chunks as u8], "and the next one goes well");
    }
}
