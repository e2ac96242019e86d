//! Functions whose output goes to the target's own volumes.

use crate::client::{Client, VOLUME, locally, runs, start};
use crate::common::{builder, pattern};
use diskside_nvme::Status;
use diskside_server::Running;
use diskside_server::config::VolumeSpec;
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome};
use std::sync::Arc;

const OUTPUT: u32 = 2;

fn write_request(client: &mut Client, input_len: u64, sink: Endpoint) -> FunctionRequest {
    FunctionRequest { kind: FunctionKind::Write, sinks: vec![sink], ..client.over("bitmap", &[], input_len) }
}

#[test]
fn an_expanded_bitmap_lands_where_it_should_and_nowhere_else() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = format!("output={},size=4MiB,rw", dir.path().join("output.img").display());
    for output in ["output=mem:4MiB,rw", &file, "output=mem:4MiB,rw,block=512"] {
        let running =
            start(builder().volume("data=mem:1MiB,rw".parse().unwrap()).volume(output.parse::<VolumeSpec>().unwrap()));
        let mut client = Client::connect(&running);
        let block = if output.ends_with("512") { 512 } else { 4096 };
        let blocks = 4096 / block;
        let before = pattern(4 << 20, 9);
        for (index, part) in before.chunks(512 << 10).enumerate() {
            let len = (part.len() / block) as u32;
            let sqe = diskside_nvme::wire::Sqe::write(OUTPUT, (index * 128 * blocks) as u64, len);
            client.queue.command(sqe, Some(part), 0).ok();
        }
        let input = runs(32 << 10);
        client.fill(&input);
        let expanded = locally("bitmap", &[], &input);
        // Both edges lie inside blocks.
        let start = 100_001;
        let sink =
            Endpoint { durable: true, ..Endpoint::new(EndpointKind::Volume(OUTPUT), start, expanded.len() as u64) };
        let request = FunctionRequest { chunk_len: 4096, ..write_request(&mut client, input.len() as u64, sink) };
        let (result, trailer) = client.run(&request);
        assert_eq!((trailer.outcome, result.len()), (Outcome::Ok, 0), "{output}: {}", trailer.message);
        let len = expanded.len() as u64;
        assert_eq!((trailer.media_written, trailer.durable, trailer.media_read), (len, len, input.len() as u64));
        let mut after = before;
        after[start as usize..start as usize + expanded.len()].copy_from_slice(&expanded);
        for (index, part) in after.chunks(512 << 10).enumerate() {
            let len = (part.len() / block) as u32;
            let sqe = diskside_nvme::wire::Sqe::read(OUTPUT, (index * 128 * blocks) as u64, len);
            assert!(client.queue.command(sqe, None, part.len()).ok() == part, "{output}: part {index}");
        }
    }
}

#[test]
fn output_fills_several_sinks_in_order_and_says_when_they_are_full() {
    let running =
        start(builder().volume("data=mem:1MiB,rw".parse().unwrap()).volume("output=mem:1MiB,rw".parse().unwrap()));
    let mut client = Client::connect(&running);
    let input = runs(4096);
    client.fill(&input);
    let expanded = locally("bitmap", &[], &input);
    let sinks = vec![
        Endpoint::new(EndpointKind::Volume(OUTPUT), 8192, 1000),
        Endpoint::new(EndpointKind::Volume(OUTPUT), 0, 5000),
        Endpoint::new(EndpointKind::Volume(OUTPUT), 16_384, 1 << 19),
    ];
    let request = FunctionRequest {
        kind: FunctionKind::Write,
        sinks: sinks.clone(),
        ..client.over("bitmap", &[], input.len() as u64)
    };
    assert_eq!(client.run(&request).1.outcome, Outcome::Ok);
    let got = client.queue.read(OUTPUT, 0, 200).ok();
    assert!(got[8192..9192] == expanded[..1000] && got[..5000] == expanded[1000..6000]);
    let rest = &expanded[6000..];
    assert!(got[16_384..16_384 + rest.len()] == *rest);

    let full = FunctionRequest { sinks: sinks[..2].to_vec(), ..request };
    let (_, trailer) = client.run(&full);
    assert_eq!(trailer.outcome, Outcome::OutputFull);
    assert!(trailer.message.contains("does not fit its sinks"), "{}", trailer.message);
}

/// A target whose second volume has these faults.
fn faulty_target(plan: FaultPlan) -> Running {
    let memory = Arc::new(MemoryMedium::new(4 << 20, false).unwrap());
    let faulty = Arc::new(FaultyMedium::new(memory, 4096, plan));
    let spec = VolumeSpec::new("output", "faulty").writable();
    start(builder().volume("data=mem:1MiB,rw".parse().unwrap()).medium(spec, faulty))
}

#[test]
fn a_medium_that_fails_is_told_with_its_errno() {
    let running = faulty_target(FaultPlan { enospc_ppm: 1_000_000, ..FaultPlan::default() });
    let mut client = Client::connect(&running);
    let input = runs(8192);
    client.fill(&input);
    let sink = Endpoint::new(EndpointKind::Volume(OUTPUT), 0, 1 << 20);
    let request = write_request(&mut client, input.len() as u64, sink);
    let (_, trailer) = client.run(&request);
    assert_eq!((trailer.outcome, trailer.returned, trailer.durable), (Outcome::Media, -28, 0));
    assert!(trailer.message.contains("volume output, writing at byte 0"), "{}", trailer.message);
    let source = vec![Endpoint::new(EndpointKind::Volume(OUTPUT), 0, 1 << 20)];
    let reads = FunctionRequest { sources: source, ..client.over("stats64", &[], 0) };
    client.result(&reads);

    let running = faulty_target(FaultPlan { eio_ppm: 1_000_000, ..FaultPlan::default() });
    let mut client = Client::connect(&running);
    let (_, trailer) = client.run(&reads);
    assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -5), "{}", trailer.message);
    assert!(trailer.message.contains("reading output at byte 0"), "{}", trailer.message);
}

#[test]
fn short_and_late_transfers_change_nothing() {
    let plan = FaultPlan {
        seed: 5,
        short_ppm: 500_000,
        delay_ppm: 100_000,
        delay_max: std::time::Duration::from_micros(200),
        ..FaultPlan::default()
    };
    let running = faulty_target(plan);
    let mut client = Client::connect(&running);
    let input = runs(32 << 10);
    client.fill(&input);
    let expanded = locally("bitmap", &[], &input);
    let sink = Endpoint::new(EndpointKind::Volume(OUTPUT), 777, expanded.len() as u64);
    let request = write_request(&mut client, input.len() as u64, sink);
    assert_eq!(client.run(&request).1.outcome, Outcome::Ok);
    let source = vec![Endpoint::new(EndpointKind::Volume(OUTPUT), 777, expanded.len() as u64)];
    let reads = FunctionRequest { sources: source, ..client.over("stats64", &[], 0) };
    assert_eq!(client.result(&reads), locally("stats64", &[], &expanded));
}

#[test]
fn sinks_that_cannot_be_are_refused_with_their_status() {
    let running =
        start(builder().volume("data=mem:1MiB,rw".parse().unwrap()).volume("output=mem:1MiB,ro".parse().unwrap()));
    let mut client = Client::connect(&running);
    let cases = [
        (Endpoint::new(EndpointKind::Volume(OUTPUT), 0, 4096), Status::NAMESPACE_WRITE_PROTECTED),
        (Endpoint::new(EndpointKind::Volume(7), 0, 4096), Status::NAMESPACE_NOT_REACHABLE),
        (Endpoint::new(EndpointKind::Volume(VOLUME), 0, 2 << 20), Status::LBA_OUT_OF_RANGE),
        (Endpoint::new(EndpointKind::Volume(VOLUME), 2 << 20, Endpoint::TO_END), Status::LBA_OUT_OF_RANGE),
        (Endpoint::new(EndpointKind::Memory(1), 0, 4096), Status::NAMESPACE_NOT_REACHABLE),
        (Endpoint::whole(EndpointKind::HostStream), Status::INVALID_FIELD),
    ];
    for (sink, status) in cases {
        let request = write_request(&mut client, 4096, sink);
        let tag = client.tag();
        client.send(tag, &request).fails_with(status.dnr());
    }
    let none = FunctionRequest { sinks: Vec::new(), ..write_request(&mut client, 4096, cases[0].0) };
    let tag = client.tag();
    client.send(tag, &none).fails_with(Status::INVALID_FIELD.dnr());
    let read = FunctionRequest { kind: FunctionKind::Read, ..write_request(&mut client, 4096, cases[0].0) };
    let tag = client.tag();
    client.send(tag, &read).fails_with(Status::INVALID_FIELD.dnr());
    assert!(client.errors()[0].message.contains("has no sinks"), "{:?}", client.errors()[0]);
}
