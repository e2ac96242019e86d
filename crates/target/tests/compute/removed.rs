//! Volumes that are removed while somebody still means to use them.

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::{builder, pattern};
use crate::standard::compiled;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome};
use diskside_target::Running;
use diskside_target::config::VolumeSpec;
use diskside_target::media::MemoryMedium;
use diskside_target::medium::Medium as _;
use std::sync::Arc;

const FREE: u16 = 100;
const OUTPUT: u32 = 2;
const LEN: usize = 8 << 20;

/// A target whose second volume is a medium that the test keeps.
fn target() -> (Running, Client, Arc<MemoryMedium>) {
    let medium = Arc::new(MemoryMedium::new(LEN as u64, false).unwrap());
    let output = VolumeSpec::new("output", "kept");
    let running = start(builder().volume("data=mem:1MiB".parse().unwrap()).medium(output, medium.clone()));
    let mut client = Client::connect(&running);
    client.load(FREE, &compiled("late")).ok();
    client.activate(FREE, true).ok();
    (running, client, medium)
}

fn content(medium: &MemoryMedium) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    medium.memory().unwrap().read(0, &mut bytes);
    bytes
}

fn copies(sources: Vec<Endpoint>, sinks: Vec<Endpoint>) -> FunctionRequest {
    let kind = if sinks.is_empty() { FunctionKind::Read } else { FunctionKind::Write };
    FunctionRequest { args: vec![0; 8], sources, sinks, chunk_len: 64 << 10, ..FunctionRequest::new(kind, FREE) }
}

/// A prepared request went on to read and to write a volume that had been removed, and was perhaps another's by then.
#[test]
fn a_prepared_call_leaves_a_volume_alone_that_was_removed() {
    let (running, mut client, medium) = target();
    client.fill(&pattern(4096, 1));
    let ranges = |nsid| vec![Endpoint::new(EndpointKind::Volume(nsid), 0, 4096)];
    let small = FunctionRequest { sources: ranges(OUTPUT), ..client.over("stats64", &[], 0) };
    let handles = [
        client.prepare(&copies(ranges(VOLUME), ranges(OUTPUT))),
        client.prepare(&copies(ranges(OUTPUT), Vec::new())),
        client.prepare(&small),
    ];
    running.handle().remove_volume("output").unwrap();
    for handle in handles {
        client.call(handle, &[], 4096).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
        assert_eq!(client.errors()[0].message, "volume output went away since the request was prepared");
    }
    // Another volume of this name and number is another volume.
    running.handle().add_volume(&"output2=mem:1MiB".parse().unwrap()).unwrap();
    client.call(handles[0], &[], 4096).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
    assert!(content(&medium).iter().all(|byte| *byte == 0), "nothing of it was written");
}

#[test]
fn a_call_that_writes_stops_when_its_volume_is_removed() {
    let (running, mut client, medium) = target();
    let sink = vec![Endpoint::whole(EndpointKind::Volume(OUTPUT))];
    let bytes = copies(vec![Endpoint::whole(EndpointKind::HostStream)], sink).encode();
    let tag = client.tag();
    let first = Sqe::function_send(COMPUTE, FunctionKind::Write, tag, 0, bytes.len() as u32).with_first();
    client.queue.command(first, Some(&bytes), 0).ok();
    running.handle().remove_volume("output").unwrap();
    let mut at = bytes.len() as u64;
    for _ in 0..16 {
        let part = vec![0; 256 << 10];
        let sqe = Sqe::function_send(COMPUTE, FunctionKind::Write, tag, at, part.len() as u32);
        client.queue.command(sqe, Some(&part), 0).ok();
        at += part.len() as u64;
    }
    let (_, trailer) = client.finish(tag);
    assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -19), "{trailer:?}");
    assert_eq!((trailer.media_written, trailer.durable), (0, 0));
    assert!(trailer.message.starts_with("volume output, writing at byte 0: No such device"), "{}", trailer.message);
    assert!(content(&medium).iter().all(|byte| *byte == 0));
}
