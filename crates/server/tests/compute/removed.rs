//! Volumes that are removed while somebody still means to use them.

use crate::client::{COMPUTE, Client, Received, VOLUME, start};
use crate::common::{builder, pattern};
use crate::standard::{MEMORY, compiled};
use diskside_nvme::Status;
use diskside_nvme::wire::memory::MemoryCopySource;
use diskside_nvme::wire::{CopySourceEntry, Sqe};
use diskside_server::Running;
use diskside_server::config::{Size, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_volume::medium::Medium as _;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome, StatisticsPage, Trailer, function_log,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const FREE: u16 = 100;
const WALKS: u16 = 101;
const LAYOUT: u32 = 6;
const OUTPUT: u32 = 2;
const LEN: usize = 8 << 20;

/// A target whose second volume is a medium that the test keeps.
fn target() -> (Running, Client, Arc<MemoryMedium>) {
    let medium = Arc::new(MemoryMedium::new(LEN as u64, false).unwrap());
    let output = VolumeSpec::new("output", "kept").writable();
    let running = start(builder().volume("data=mem:1MiB,rw".parse().unwrap()).medium(output, medium.clone()));
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
    running.handle().add_volume(&"output2=mem:1MiB,rw".parse().unwrap()).unwrap();
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

fn layout() -> LayoutRequest {
    let runs = vec![LayoutRun { logical: 0, physical: 0, len: 8192 }];
    LayoutRequest { action: LayoutAction::Set, id: LAYOUT, nsid: OUTPUT, generation: 1, file_len: 8192, runs }
}

fn walks(source: Endpoint, input: [u64; 2]) -> FunctionRequest {
    let args = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (function, sources) = (Some("walk".into()), vec![source]);
    FunctionRequest { function, sources, args, ..FunctionRequest::new(FunctionKind::Traverse, WALKS) }
}

/// Whatever names it: requests, prepared traversals, layouts and copies.
#[test]
fn nothing_reaches_a_volume_that_was_removed() {
    let (running, mut client, medium) = target();
    client.load(WALKS, &compiled("walk")).ok();
    client.activate(WALKS, true).ok();
    let send_layout = |client: &mut Client| {
        let bytes = layout().encode();
        client.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0)
    };
    send_layout(&mut client).ok();
    let (data, output) = (Endpoint::whole(EndpointKind::Volume(VOLUME)), Endpoint::whole(EndpointKind::Volume(OUTPUT)));
    let by_layout = Endpoint { generation: 1, ..Endpoint::whole(EndpointKind::Layout(LAYOUT)) };
    let short = Endpoint { len: 4096, ..data };
    let layouts = [copies(vec![by_layout], vec![]), copies(vec![short], vec![by_layout]), walks(by_layout, [1, 0])];
    let prepared = layouts.clone().map(|request| client.prepare(&request));
    let traversal = client.prepare(&walks(output, [1, 0]));
    for (request, handle) in layouts.iter().zip(prepared) {
        assert_eq!(client.run(request).1.outcome, Outcome::Ok);
        client.call(handle, &[], 64 << 10).ok();
    }
    client.call(traversal, &[], 64 << 10).ok();
    let before = content(&medium);

    running.handle().remove_volume("output").unwrap();
    let (unreachable, told) = (Status::NAMESPACE_NOT_REACHABLE.dnr(), "there is no volume with namespace ID 2");
    for request in [copies(vec![data, output], vec![]), copies(vec![data], vec![output]), walks(output, [1, 0])] {
        client.is_refused(request.kind, &request, unreachable, told);
        client.is_refused(FunctionKind::Prepare, &request, unreachable, told);
    }
    client.call(traversal, &[], 4096).fails_with(unreachable);
    assert_eq!(client.said().1, "volume output went away since the request was prepared");
    // A layout's host hears of it as of a file that changed: it goes the plain way then.
    let gone = |trailer: &Trailer| {
        let told = "volume output of layout 6 went away";
        assert_eq!((trailer.outcome, &*trailer.message, trailer.media_written), (Outcome::Stale, told, 0));
    };
    for (request, handle) in layouts.iter().zip(prepared) {
        gone(&client.run(request).1);
        gone(&Received::of(client.call(handle, &[], 4096)).trailer.unwrap());
    }
    send_layout(&mut client).fails_with(unreachable);
    assert_eq!(client.said().1, told);
    let no_volume = Status::INVALID_NAMESPACE_OR_FORMAT.dnr();
    let from = CopySourceEntry::new(OUTPUT, 0, 1);
    client.queue.command(Sqe::memory_copy(MEMORY, 0, 4096, 1, 2), Some(from.as_bytes()), 0).fails_with(no_volume);
    let source = MemoryCopySource::new(MEMORY, 0, 4096);
    client.queue.command(Sqe::copy(OUTPUT, 0, 1, 4), Some(source.as_bytes()), 0).fails_with(no_volume);
    assert!(content(&medium) == before, "something was written");
}

/// The outcome was reported, and not that it was the volume.
#[test]
fn a_traversal_stops_when_its_volume_is_removed() {
    let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(100), ..FaultPlan::default() };
    let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(LEN as u64, false).unwrap()), 4096, plan);
    let builder = builder().compute(|compute| compute.cache = Size::from_bytes(0));
    let running = start(builder.medium(VolumeSpec::new("data", "slow").writable(), Arc::new(medium)));
    let mut client = Client::connect(&running);
    client.load(WALKS, &compiled("walk")).ok();
    client.activate(WALKS, true).ok();
    // It takes minutes.
    let (request, tag) = (walks(Endpoint::whole(EndpointKind::Volume(VOLUME)), [4000, 0]), client.tag());
    client.send(tag, &request).ok();
    let began = Instant::now();
    loop {
        let page = StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap().0;
        if page.queued.get() == 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "it never began");
        std::thread::sleep(Duration::from_millis(1));
    }
    running.handle().remove_volume("data").unwrap();
    let (result, trailer) = client.finish(tag);
    assert_eq!((trailer.outcome, trailer.returned, result.len()), (Outcome::Media, -19, 0), "{trailer:?}");
    assert!(trailer.message.ends_with("of file 0: No such device (os error 19)"), "{trailer:?}");
}
