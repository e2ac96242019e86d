//! Bounds: what programs and hosts ask for, and what they get instead of more.

use crate::client::{Client, VOLUME, start};
use crate::common::builder;
use crate::standard::compiled_with;
use diskside_nvme::Status;
use diskside_nvme::wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome};
use diskside_target::config::Size;

const FREE: u16 = 100;
const OUTPUT: u32 = 2;

fn greedy(numerator: u64, constant: u64) -> Vec<u8> {
    compiled_with("output", &[&format!("-DNUMERATOR={numerator}"), &format!("-DCONSTANT={constant}ull")])
}

/// A program that asked for 2^50 bytes of output ended the target's process; one that asked for 2^41 a thread of it, and
/// what all calls of a host may use did not count for its first one.
#[test]
fn a_program_gets_no_more_memory_than_its_host() {
    let volumes = ["data=mem:1MiB", "output=mem:1MiB"];
    let builder = volumes.into_iter().fold(builder(), |builder, spec| builder.volume(spec.parse().unwrap()));
    let running = start(builder.compute(|compute| compute.host_memory = Size::from_mib(256)));
    let mut client = Client::connect(&running);
    client.fill(&[1; 4096]);
    for constant in [1 << 40, 1 << 41, 1 << 50, u64::MAX] {
        client.load(FREE, &greedy(1, constant)).fails_with(Status::INVALID_PROGRAM_DATA.dnr());
        let record = &client.errors()[0];
        let told = format!("an output of {constant} bytes and more: a region has at most 1099511562240");
        assert!(record.message.contains("V0707") && record.message.contains(&told), "{record:?}");
    }
    let (data, sink) =
        (Endpoint::new(EndpointKind::Volume(VOLUME), 0, 4096), Endpoint::whole(EndpointKind::Volume(OUTPUT)));
    let cases = [(1, 1 << 30), (1, 1 << 39), (1, (1 << 40) - (64 << 10)), (u64::from(u32::MAX), 0), (8192, 0)];
    for (pind, (numerator, constant)) in (FREE..).zip(cases) {
        client.load(pind, &greedy(numerator, constant)).ok();
        client.activate(pind, true).ok();
        let read = FunctionRequest { sources: vec![data], ..FunctionRequest::new(FunctionKind::Read, pind) };
        let write = FunctionRequest { kind: FunctionKind::Write, sinks: vec![sink], ..read.clone() };
        for request in [&read, &write] {
            let (result, trailer) = client.run(request);
            assert_eq!((trailer.outcome, result.len()), (Outcome::Refused, 0), "{trailer:?}");
            refuses(&trailer.message);
            let tag = client.tag();
            let prepared = client.send_as(tag, FunctionKind::Prepare, request);
            prepared.fails_with(Status::INSUFFICIENT_RESOURCES.dnr());
            refuses(&client.errors()[0].message);
        }
    }
    // As much as there is room for.
    let pind = FREE + 10;
    client.load(pind, &greedy(1, 100 << 20)).ok();
    client.activate(pind, true).ok();
    let request = FunctionRequest { sources: vec![data], ..FunctionRequest::new(FunctionKind::Read, pind) };
    assert_eq!(client.result(&request), [7]);
}

#[track_caller]
fn refuses(message: &str) {
    assert!(message.starts_with("greedy may need "), "{message}");
    let end = "bytes of memory in a call like this, but all calls of a host together have 268435456; ask for less with \
               DS_OUTPUT in its source, or for a shorter result";
    assert!(message.ends_with(end), "{message}");
}

/// Long chunks on many threads took more than a host may have.
#[test]
fn calls_are_cut_to_the_memory_of_their_host() {
    let builder = builder().volume("data=mem:64MiB".parse().unwrap());
    let running = start(builder.compute(|compute| {
        compute.engines = 16;
        compute.host_memory = Size::from_mib(64);
    }));
    let mut client = Client::connect(&running);
    let bytes = crate::common::pattern(1 << 20, 5);
    client.fill(&bytes);
    let request = FunctionRequest { chunk_len: 64 << 20, ..client.over("stats64", &[], 64 << 20) };
    let mut whole = bytes;
    whole.resize(64 << 20, 0);
    assert_eq!(client.result(&request), crate::client::locally("stats64", &[], &whole));
}
