//! The memory namespace as a source and a sink of function commands.

use crate::client::{Client, VOLUME, encode, function, locally, runs, start, target};
use crate::common::{builder, pattern};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::config::{ServeConfig, Settings};
use diskside_wire::function::{
    CapabilityPage, Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, function_log,
};

const MEMORY: u32 = 1023;
const MEMORY_LEN: u64 = 64 << 20;

fn memory(offset: u64, len: u64) -> Endpoint {
    Endpoint::new(EndpointKind::Memory(MEMORY), offset, len)
}

#[test]
fn a_function_reads_memory_as_it_reads_a_volume() {
    let running = target(8);
    let mut client = Client::connect(&running);
    let bytes = pattern(5 << 20, 3);
    for (at, part) in (4096..).step_by(512 << 10).zip(bytes.chunks(512 << 10)) {
        client.queue.command(Sqe::memory_write(MEMORY, at, part.len() as u32), Some(part), 0).ok();
    }
    let over = |client: &mut Client, sources| FunctionRequest { sources, ..client.over("stats64", &[], 0) };
    let request = over(&mut client, vec![memory(4096, bytes.len() as u64)]);
    let (result, trailer) = client.run(&request);
    assert_eq!((trailer.outcome, result), (Outcome::Ok, locally("stats64", &[], &bytes)));
    assert_eq!(trailer.media_read, bytes.len() as u64);
    // Anywhere, in small chunks, and beside a volume.
    client.fill(&bytes[..8192]);
    let volume = Endpoint::new(EndpointKind::Volume(VOLUME), 0, 8192);
    let request = over(&mut client, vec![memory(4096 + 8 * 11, 80_000), volume]);
    let both = [&bytes[88..80_088], &bytes[..8192]].concat();
    assert_eq!(client.result(&FunctionRequest { chunk_len: 10_000, ..request }), locally("stats64", &[], &both));
    // Prepared, and to its end.
    let request = over(&mut client, vec![memory(MEMORY_LEN - 64, Endpoint::TO_END)]);
    let handle = client.prepare(&request);
    let expected = locally("stats64", &[], &[0; 64]);
    assert_eq!(client.call(handle, &[], expected.len() as u32).ok(), expected);
}

#[test]
fn output_fills_memory_and_is_on_no_stable_medium() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let input = runs(64 << 10);
    client.fill(&input);
    let expanded = locally("bitmap", &[], &input);
    let write = |client: &mut Client, sinks| FunctionRequest {
        kind: FunctionKind::Write,
        sinks,
        args: encode(&function("bitmap"), &[]),
        ..client.over("bitmap", &[], 64 << 10)
    };
    // Two ranges, the second of which begins anywhere.
    let first = 100_000;
    let rest = expanded.len() as u64 - first;
    let request = write(&mut client, vec![memory(4, first), memory((1 << 20) + 3, rest)]);
    let (_, trailer) = client.run(&request);
    assert_eq!((trailer.outcome, trailer.durable), (Outcome::Ok, 0), "{}", trailer.message);
    assert_eq!(trailer.media_written, expanded.len() as u64);
    let mut read =
        |start: u64, len: u32| client.queue.command(Sqe::memory_read(MEMORY, start, len), None, len as usize).ok();
    let found = read(0, 100_008);
    assert_eq!(found[..4], [0; 4]);
    assert!(found[4..100_004] == expanded[..100_000]);
    assert_eq!(found[100_004..], [0; 4]);
    assert!(read(1 << 20, 512 << 10)[3..] == expanded[100_000..][..(512 << 10) - 3]);
    // Not enough room.
    let request = write(&mut client, vec![memory(0, 4096)]);
    let (_, trailer) = client.run(&request);
    assert_eq!((trailer.outcome, trailer.media_written), (Outcome::OutputFull, 4096));
    assert!(trailer.message.contains("hold 4096 bytes"), "{}", trailer.message);
}

#[test]
fn what_memory_cannot_be_is_refused() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let cases = [
        (
            memory(MEMORY_LEN, 1),
            Status::LBA_OUT_OF_RANGE,
            "the range from byte 67108864 on is not in the memory namespace",
        ),
        (
            Endpoint::new(EndpointKind::Memory(VOLUME), 0, 8),
            Status::NAMESPACE_NOT_REACHABLE,
            "there is no memory with namespace ID 1",
        ),
        (
            Endpoint::new(EndpointKind::Volume(MEMORY), 0, 8),
            Status::NAMESPACE_NOT_REACHABLE,
            "there is no volume with namespace ID 1023",
        ),
    ];
    for (endpoint, status, message) in cases {
        let tag = client.tag();
        let read = FunctionRequest { sources: vec![endpoint], ..client.over("stats64", &[], 0) };
        client.send(tag, &read).fails_with(status.dnr());
        assert!(client.errors()[0].message.contains(message), "{:?}", client.errors()[0]);
        let write =
            FunctionRequest { kind: FunctionKind::Write, sinks: vec![endpoint], ..client.over("bitmap", &[], 64) };
        let tag = client.tag();
        client.send(tag, &write).fails_with(status.dnr());
    }
    let durable = vec![Endpoint { durable: true, ..memory(0, 4096) }];
    let write = FunctionRequest { kind: FunctionKind::Write, sinks: durable, ..client.over("bitmap", &[], 64) };
    let tag = client.tag();
    client.send(tag, &write).fails_with(Status::INVALID_FIELD.dnr());
    let record = &client.errors()[0];
    assert!(record.message.contains("memory is no stable medium"), "{record:?}");
    assert_eq!(record.location, Some(64 + 32 + 1));
}

#[test]
fn a_target_without_memory_says_so() {
    let toml = "listen = ['127.0.0.1:0']\n[compute]\nmemory = '0'\n[[volume]]\nname = 'data'\npath = 'mem:1MiB'";
    let config = Settings::from_toml(toml, "d.toml").and_then(ServeConfig::resolve).unwrap();
    let running = start(builder().config(config));
    let mut client = Client::connect(&running);
    let (page, _) = CapabilityPage::decode(&client.log(function_log::CAPABILITIES, 0)).unwrap();
    assert_eq!((page.source_kinds.get() & 1 << 3, page.sink_kinds.get() & 1 << 3), (0, 0));
    let request = FunctionRequest { sources: vec![memory(0, 8)], ..client.over("stats64", &[], 0) };
    let tag = client.tag();
    client.send(tag, &request).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
}
