//! Bounds: what programs and hosts ask for, and what they get instead of more.

use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::builder;
use crate::standard::compiled_with;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::config::Size;
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, StatisticsPage,
    function_log,
};

const FREE: u16 = 100;
const OUTPUT: u32 = 2;

fn greedy(numerator: u64, constant: u64) -> Vec<u8> {
    compiled_with("output", &[&format!("-DNUMERATOR={numerator}"), &format!("-DCONSTANT={constant}ull")])
}

/// A program that asked for 2^50 bytes of output ended the target's process; one that asked for 2^41 a thread of it, and
/// what all calls of a host may use did not count for its first one.
#[test]
fn a_program_gets_no_more_memory_than_its_host() {
    let volumes = ["data=mem:1MiB,rw", "output=mem:1MiB,rw"];
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
    let cases = [(1, 1 << 30), (1, 1 << 39), (1, (1 << 40) - (64 << 10)), (u64::from(u32::MAX), 0), (1 << 16, 0)];
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
    let end = "bytes of memory in a call like this, but all calls of a host together have 201326592; ask for shorter pieces, \
               for a shorter result, or for less with DS_OUTPUT in its source, or have the server's compute.host_memory, or the quota `memory` of this host, raised";
    assert!(message.ends_with(end), "{message}");
}

#[test]
fn a_controller_prepares_so_many_requests_and_no_more() {
    let running = crate::client::target(1);
    let mut client = Client::connect(&running);
    let request = client.over("stats64", &[], 64);
    let handles: Vec<u32> = (0..1024).map(|_| client.prepare(&request)).collect();
    let tag = client.tag();
    client.send_as(tag, FunctionKind::Prepare, &request).fails_with(Status::FUNCTION_BUSY);
    let clear = Sqe::function_clear(COMPUTE, ClearSelect::Prepared, handles[7].into(), 0..0);
    client.queue.command(clear, None, 0).ok();
    let again = client.prepare(&request);
    assert!(!handles.contains(&again), "a handle is not used twice");
    client.call(again, &[], 64).ok();
}

#[test]
fn a_controller_has_so_many_tags_open_and_no_more() {
    let running = crate::client::target(1);
    let mut client = Client::connect(&running);
    let source = vec![Endpoint::whole(EndpointKind::HostStream)];
    let bytes = FunctionRequest { sources: source, ..client.over("stats64", &[], 0) }.encode();
    let open = |tag: u64| Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, bytes.len() as u32).with_first();
    for tag in 0..256 {
        client.queue.command(open(tag), Some(&bytes), 0).ok();
    }
    let answer = client.queue.command(open(256), Some(&bytes), 0);
    assert_eq!(answer.status, Status::TAG_LIMIT_EXCEEDED, "it may be sent again");
    client.queue.command(Sqe::function_cancel(COMPUTE, 3, true, 10_000), None, 0).ok();
    client.finish(3);
    client.queue.command(open(256), Some(&bytes), 0).ok();
}

/// Long chunks on many threads took more than a host may have. Then chunks were cut, and a function was called on other ones
/// than it was asked to be: now there are fewer threads, and what one thread cannot have is refused before it begins.
#[test]
fn calls_have_the_threads_that_the_memory_of_their_host_allows() {
    let builder = builder().volume("data=mem:64MiB,rw".parse().unwrap());
    let running = start(builder.compute(|compute| {
        compute.engines = 16;
        compute.host_memory = Size::from_mib(160);
    }));
    let mut client = Client::connect(&running);
    let bytes = crate::common::pattern(1 << 20, 5);
    client.fill(&bytes);
    let request = client.over("stats64", &[], 64 << 20);
    let request = FunctionRequest { chunk_len: 4 << 20, result_len_max: 64, ..request };
    let mut whole = bytes;
    whole.resize(64 << 20, 0);
    let (result, trailer) = client.run(&request);
    assert_eq!(result, crate::client::locally("stats64", &[], &whole));
    assert_eq!(trailer.called.map(|called| called.pieces), Some(16), "as many as it was asked for");
    let (_, trailer) = client.run(&FunctionRequest { chunk_len: 64 << 20, ..request });
    assert_eq!(trailer.outcome, Outcome::Refused, "{trailer:?}");
    assert!(trailer.message.starts_with("stats64 may need "), "{trailer:?}");
}

/// A record without an end made chunks of 64 MiB on every thread, whatever its host's calls had together.
#[test]
fn a_record_longer_than_a_chunk_is_counted_while_its_call_runs() {
    const LEN: u64 = 12 << 20;
    for (host_mib, fits) in [(64, false), (128, true)] {
        let builder = builder().volume("data=mem:16MiB,rw".parse().unwrap());
        let running = start(builder.compute(|compute| {
            compute.engines = 1;
            compute.host_memory = Size::from_mib(host_mib);
        }));
        let mut client = Client::connect(&running);
        let mut bytes = vec![b'x'; LEN as usize];
        *bytes.last_mut().unwrap() = b'\n';
        client.fill(&bytes);
        let mut request = client.over("wc", &[], LEN);
        (request.chunk_len, request.result_len_max) = (64 << 10, 4096);
        let (result, trailer) = client.run(&request);
        if fits {
            assert_eq!((trailer.outcome, result), (Outcome::Ok, crate::client::locally("wc", &[], &bytes)));
        } else {
            assert_eq!(trailer.outcome, Outcome::Refused, "{trailer:?}");
            let told = "bytes for it, and all calls of its host together have 50331648, three quarters of \
                        `compute.host_memory` or of its quota `memory`; run it on the host, or have the server's \
                        `compute.host_memory`, or the quota `memory` of this host, raised";
            assert!(trailer.message.starts_with("data, bytes 0..") && trailer.message.ends_with(told), "{trailer:?}");
            assert_eq!(trailer.place.unwrap().offset, 0);
        }
        let page = |client: &mut Client| StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap().0;
        // With the call, a moment after its trailer.
        let until = Instant::now() + Duration::from_secs(60);
        while page(&mut client).calls_memory.get() > 0 {
            assert!(Instant::now() < until, "{:?}", page(&mut client));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
