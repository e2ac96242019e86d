//! Traversals that go wrong, in each way in which they can: outcome, step and words say how; on a reactor and on a thread that
//! may wait, as requests and as prepared Calls.

use std::sync::Arc;
use std::time::Duration;

use crate::client::{COMPUTE, Client, Received, SOURCES, VOLUME, start, target};
use crate::common::builder;
use crate::standard::{MEMORY, compiled};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::TargetBuilder;
use diskside_server::config::{Size, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, Trailer,
};

const FREE: u16 = 100;
const MIB: u64 = 1 << 20;
/// Steps that go well before the one that does not.
const GOOD: u64 = 3;

/// How it goes wrong: outcome, what is returned, kind of the trap, the step, and what the message says of it.
type Way = (u64, Outcome, i64, u16, u64, &'static str);

const WAYS: [Way; 14] = [
    (1, Outcome::Trap, 0, 1, GOOD, "out-of-bounds read of 1 bytes of input at offset 8, which is 8 bytes long"),
    (2, Outcome::Budget, 0, 5, GOOD, "the budget of loop iterations is used up"),
    (3, Outcome::Errno, -74, 0, GOOD, "returned -74: Bad message (os error 74)"),
    (4, Outcome::Errno, -22, 0, GOOD, "returned 7, where 0 asks for reads and 1 is done"),
    (5, Outcome::Errno, -22, 0, GOOD, "is not done and asks for no read"),
    (6, Outcome::Errno, -22, 0, GOOD, "asks for 17 reads at once, at most 16 can be asked for"),
    (7, Outcome::Errno, -22, 0, GOOD, "asks for file 1, and the request lists 1"),
    (8, Outcome::Errno, -22, 0, GOOD, "asks for 0 bytes at offset 16 of file 0"),
    (9, Outcome::Errno, -22, 0, GOOD, "asks for 1048577 bytes in one read, the limit is 1048576"),
    (
        10,
        Outcome::Errno,
        -22,
        0,
        GOOD,
        "asks for 8 bytes at offset 18446744073709551608 of file 0, which is 1048576 bytes long",
    ),
    (11, Outcome::OutputFull, 0, 0, GOOD, "its result is 65 bytes of a scratch that is 64 bytes long"),
    // Each step is given one of the sixteen reads that the one before asked for.
    (12, Outcome::Budget, 0, 0, 11, "asks for more than 128 reads that are outstanding at a time, the limit"),
    (13, Outcome::Budget, 0, 0, 4096, "is not done after 4096 hops, the limit"),
    (14, Outcome::Budget, 0, 0, 66, "asks for more than 67108864 bytes in all, the limit"),
];

fn input(how: u64) -> [u8; 16] {
    [GOOD.to_le_bytes(), how.to_le_bytes()].concat().try_into().unwrap()
}

fn request(source: Endpoint, how: u64) -> FunctionRequest {
    let (args, sources) = (input(how).to_vec(), vec![source]);
    FunctionRequest { args, sources, result_len_max: 64, ..FunctionRequest::new(FunctionKind::Traverse, FREE) }
}

fn load(client: &mut Client) {
    client.load(FREE, &compiled("astray")).ok();
    client.activate(FREE, true).ok();
}

#[track_caller]
fn check(&(how, outcome, returned, trap, hop, told): &Way, trailer: &Trailer, step: &str) {
    let all = format!("{step}, way {how}: {trailer:?}");
    assert_eq!((trailer.outcome, trailer.returned, trailer.trap_kind), (outcome, returned, trap), "{all}");
    assert_eq!((u64::from(trailer.hop), trailer.result_len), (hop, 0), "{all}");
    let said = trailer.message.replace(SOURCES, "");
    let rest = said.strip_prefix(&format!("traverse/astray, hop {hop}: ")).unwrap_or_else(|| panic!("{all}"));
    if trap == 0 {
        assert_eq!(rest, told, "{all}");
    } else {
        assert!(rest.starts_with("stopped at instruction ") && rest.contains(" (astray.bpf.c:"), "{all}");
        assert!(rest.ends_with(told), "{all}");
    }
}

#[test]
fn a_traversal_that_goes_wrong_says_how_and_at_which_step() {
    let running = target(1);
    let mut client = Client::connect(&running);
    load(&mut client);
    let volume = Endpoint::whole(EndpointKind::Volume(VOLUME));
    for (source, step) in
        [(volume, "on a reactor"), (Endpoint::new(EndpointKind::Memory(MEMORY), 0, MIB), "on a thread")]
    {
        let handle = client.prepare(&request(source, 0));
        for way in &WAYS {
            let (result, trailer) = client.run(&request(source, way.0));
            assert!(result.is_empty());
            check(way, &trailer, step);
            let received = Received::of(client.call(handle, &input(way.0), 4096));
            assert!(received.bytes.is_empty() && received.answer.end);
            check(way, &received.trailer.unwrap(), step);
            // Without room for a trailer the error records tell.
            client.call(handle, &input(way.0), 64).fails_with(Status::FUNCTION_FAILED.dnr());
            assert_eq!(client.said().1, trailer.message.replace(SOURCES, ""));
        }
        assert_eq!(client.call(handle, &input(0), 8).ok(), [0; 8], "and the next one goes well");
    }
}

/// A target whose volume has these faults.
fn faulty(plan: FaultPlan) -> TargetBuilder {
    let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(MIB, false).unwrap()), 4096, plan);
    // Nothing is kept of it: each read is one of the medium.
    let builder = builder().compute(|compute| compute.cache = Size::from_bytes(0));
    builder.medium(VolumeSpec::new("data", "faulty").writable(), Arc::new(medium))
}

/// The outcome was reported, and not the errno.
#[test]
fn a_medium_that_fails_under_a_traversal_is_told_with_its_errno() {
    let running = start(faulty(FaultPlan { eio_ppm: 1_000_000, ..FaultPlan::default() }));
    let mut client = Client::connect(&running);
    load(&mut client);
    let request = request(Endpoint::whole(EndpointKind::Volume(VOLUME)), 0);
    let handle = client.prepare(&request);
    let called = Received::of(client.call(handle, &input(0), 4096)).trailer.unwrap();
    for trailer in [client.run(&request).1, called] {
        assert_eq!((trailer.outcome, trailer.returned, trailer.hop), (Outcome::Media, -5, 0), "{trailer:?}");
        let told = "traverse/astray, hop 0: reading 8 bytes at offset 0 of file 0: Input/output error (os error 5)";
        assert_eq!(trailer.message, told);
    }
}

#[test]
fn a_traversal_that_takes_too_long_is_ended_by_its_deadline() {
    let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(100), ..FaultPlan::default() };
    let running = start(faulty(plan));
    let mut client = Client::connect(&running);
    load(&mut client);
    // It takes minutes: more steps than it may have, each of which waits.
    let endless = request(Endpoint::whole(EndpointKind::Volume(VOLUME)), 13);
    let (result, trailer) = client.run(&FunctionRequest { deadline_ms: 300, ..endless.clone() });
    assert_eq!((trailer.outcome, result.len()), (Outcome::Deadline, 0), "{trailer:?}");
    let told = format!("traverse/astray, hop {}: the deadline passed", trailer.hop);
    assert_eq!(trailer.message, told);
    // Prepared, with the command's own: one that no thread began in time fails, and may come again.
    let handle = client.prepare(&endless);
    let ended = [300, 3000, 9000].into_iter().find_map(|timeout_ms| {
        let sqe = Sqe::function_call(COMPUTE, handle, &input(13), 4096, timeout_ms);
        let answer = client.queue.command(sqe, None, 4096);
        (answer.status != Status::FUNCTION_BUSY).then(|| Received::of(answer).trailer.unwrap())
    });
    assert_eq!(ended.unwrap().outcome, Outcome::Deadline);
}
