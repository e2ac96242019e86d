//! Files that a host has on a volume which it mounted: calls over layouts, and what becomes of them.

use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, VOLUME, locally, runs, target};
use crate::common::pattern;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome,
};

const ID: u32 = 7;

fn run(logical: u64, physical: u64, len: u64) -> LayoutRun {
    LayoutRun { logical, physical, len }
}

fn layout(generation: u64, file_len: u64, runs: Vec<LayoutRun>) -> LayoutRequest {
    LayoutRequest { action: LayoutAction::Set, id: ID, nsid: VOLUME, generation, file_len, runs }
}

fn send(client: &mut Client, request: &LayoutRequest, timeout_ms: u32) -> crate::common::Answer {
    let bytes = request.encode();
    let sqe = Sqe::layout_send(COMPUTE, bytes.len() as u32).with_function_timeout_ms(timeout_ms);
    client.queue.command(sqe, Some(&bytes), 0)
}

fn revoke(client: &mut Client, generation: u64, timeout_ms: u32) -> u64 {
    let request = LayoutRequest { action: LayoutAction::Revoke, ..layout(generation, 0, Vec::new()) };
    let answer = send(client, &request, timeout_ms);
    assert_eq!(answer.status, Status::SUCCESS);
    answer.result
}

/// A request over a file by its layout.
fn over(client: &mut Client, name: &str, generation: u64, offset: u64, len: u64) -> FunctionRequest {
    let endpoint = Endpoint { generation, ..Endpoint::new(EndpointKind::Layout(ID), offset, len) };
    FunctionRequest { sources: vec![endpoint], ..client.over(name, &[], 0) }
}

#[test]
fn a_call_gathers_what_a_layout_says() {
    let running = target(4);
    let mut client = Client::connect(&running);
    let device = pattern(1 << 20, 3);
    client.fill(&device);
    // Backwards on the volume, off its blocks, with a hole, and sent in parts.
    let len = 300_000;
    let places = [run(0, 900_001, 70_000), run(70_000, 500_000, 5), run(100_000, 3, 150_000)];
    let mut file = vec![0; len];
    for run in places {
        let part = &device[run.physical as usize..][..run.len as usize];
        file[run.logical as usize..][..run.len as usize].copy_from_slice(part);
    }
    send(&mut client, &layout(1, len as u64, places[..2].to_vec()), 0).ok();
    let rest = LayoutRequest { action: LayoutAction::Append, ..layout(1, len as u64, places[2..].to_vec()) };
    send(&mut client, &rest, 0).ok();

    for (offset, count) in [(0, u64::MAX), (8, 64), (69_992, 40_000), (200_000, 100_000), (299_992, 1 << 40)] {
        let request = over(&mut client, "stats64", 1, offset, count);
        let end = (offset + count.min(1 << 50)).min(len as u64) as usize;
        let wanted = locally("stats64", &[], &file[offset as usize..end]);
        assert_eq!(client.result(&request), wanted, "{count} bytes at {offset}");
    }
}

#[test]
fn another_generation_is_stale() {
    let running = target(4);
    let mut client = Client::connect(&running);
    client.fill(&runs(1 << 20));
    send(&mut client, &layout(5, 8192, vec![run(0, 0, 8192)]), 0).ok();
    let stale = |client: &mut Client, generation| {
        let request = over(client, "stats64", generation, 0, 8192);
        let (result, trailer) = client.run(&request);
        (trailer.outcome == Outcome::Stale && result.is_empty()).then_some(trailer.message)
    };
    assert_eq!(stale(&mut client, 4).unwrap(), "layout 7 has generation 5, the call names 4");
    assert_eq!(stale(&mut client, 5), None);
    assert_eq!(stale(&mut client, 0), None, "0 is any");

    // A prepared request finds out at each call.
    let request = over(&mut client, "stats64", 5, 0, 8192);
    let handle = client.prepare(&request);
    let before = client.call(handle, &[], 4096);
    assert!(before.status.is_success());
    send(&mut client, &layout(6, 4096, vec![run(0, 4096, 4096)]), 0).ok();
    assert!(stale(&mut client, 5).is_some());
    assert_ne!(client.call(handle, &[], 4096).data, before.data, "a trailer instead of a result");

    assert_eq!(revoke(&mut client, 6, 0), 0);
    assert_eq!(stale(&mut client, 6).unwrap(), "layout 7 is not kept");
    assert_eq!(revoke(&mut client, 6, 0), 0, "it is gone already");
    // Another host has layouts of its own.
    send(&mut client, &layout(7, 8192, vec![run(0, 0, 8192)]), 0).ok();
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    assert_eq!(stale(&mut other, 7).unwrap(), "layout 7 is not kept");
    assert_eq!(stale(&mut client, 7), None);
}

/// The fence: a host may give its lease up when the Revoke has completed, so no call may read by the layout then.
#[test]
fn a_revoke_waits_for_calls() {
    let running = target(4);
    let mut client = Client::connect(&running);
    client.fill(&b"found\n".repeat(100_000));
    send(&mut client, &layout(1, 600_000, vec![run(0, 0, 600_000)]), 0).ok();
    // It reads the file, and then waits for input that never comes.
    let sources = over(&mut client, "stats64", 1, 0, 600_000).sources;
    let mut request = FunctionRequest { sources, chunk_len: 65_536, ..client.over("grep", &[("pattern", "found")], 0) };
    request.sources.push(Endpoint::whole(EndpointKind::HostStream));
    let (tag, bytes) = (client.tag(), request.encode());
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, bytes.len() as u32).with_first();
    client.queue.command(sqe, Some(&bytes), 0).ok();
    let received = client.receive(tag, 0, 4096, 10_000);
    assert!(!received.bytes.is_empty(), "it is at work");

    assert_eq!(revoke(&mut client, 1, 100), 1, "a call uses it");
    let request = over(&mut client, "stats64", 1, 0, 8);
    assert_eq!(client.run(&request).1.outcome, Outcome::Stale, "and no other call may");
    // A later generation has nothing to do with it.
    send(&mut client, &layout(2, 8, vec![run(0, 0, 8)]), 0).ok();
    let request = over(&mut client, "stats64", 2, 0, 8);
    assert_eq!(client.run(&request).1.outcome, Outcome::Ok);
    client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 0), None, 0).ok();
    let began = Instant::now();
    assert_eq!(revoke(&mut client, 1, 18_000), 0);
    assert!(began.elapsed() < Duration::from_secs(15), "it did not wait for its timeout");
}

#[test]
fn what_cannot_be_kept_says_why() {
    let running = target(4);
    let mut client = Client::connect(&running);
    let good = layout(3, 8192, vec![run(0, 0, 8192)]);
    send(&mut client, &good, 0).ok();
    let append =
        |generation, first| LayoutRequest { action: LayoutAction::Append, ..layout(generation, 8192, vec![first]) };
    let (invalid, beyond) = (Status::INVALID_FIELD.dnr(), Status::LBA_OUT_OF_RANGE.dnr());
    let no_such = "byte 16 of the data: no such generation of this layout is kept";
    let behind = "byte 40 of the data: runs that are appended lie behind those before";
    let cases = [
        (good.clone(), invalid, "byte 16 of the data: a later generation of this layout is kept"),
        (layout(2, 1, Vec::new()), invalid, "byte 16 of the data: a later generation of this layout is kept"),
        (append(4, run(0, 0, 1)), invalid, no_such),
        (LayoutRequest { file_len: 8193, ..append(3, run(8192, 0, 1)) }, invalid, no_such),
        (LayoutRequest { id: 99, file_len: 8193, ..append(3, run(8192, 0, 1)) }, invalid, no_such),
        (append(3, run(0, 0, 1)), invalid, behind),
        (append(3, run(8191, 0, 1)), invalid, behind),
        (layout(4, 8192, vec![run(0, 4 << 20, 1)]), beyond, "a run ends past volume data, which has 4194304 bytes"),
        (
            layout(4, 8192, vec![run(0, (4 << 20) - 1, 2)]),
            beyond,
            "a run ends past volume data, which has 4194304 bytes",
        ),
        (
            LayoutRequest { nsid: 99, ..good.clone() },
            Status::NAMESPACE_NOT_REACHABLE.dnr(),
            "there is no volume with namespace ID 99",
        ),
    ];
    for (request, status, told) in cases {
        assert_eq!(send(&mut client, &request, 0).status, status, "{request:?}");
        assert_eq!(client.said().1, told);
    }
    let mut status = |request: &LayoutRequest| send(&mut client, request, 0).status;
    for id in 0..1023 {
        assert!(status(&LayoutRequest { id: 100 + id, runs: Vec::new(), ..good.clone() }).is_success(), "{id}");
    }
    assert_eq!(status(&LayoutRequest { id: 5000, ..good.clone() }), Status::FUNCTION_BUSY, "a host has 1,024");
    assert_eq!(revoke(&mut client, 3, 0), 0);
    assert!(send(&mut client, &LayoutRequest { id: 5000, ..good }, 0).status.is_success());
    // LEN, and bytes that are not a layout.
    let answer = client.queue.command(Sqe::layout_send(COMPUTE, 41), Some(&[0; 40]), 0);
    answer.fails_with(Status::INVALID_FIELD.dnr());
    let answer = client.queue.command(Sqe::layout_send(COMPUTE, 40), Some(&[0; 40]), 0);
    answer.fails_with(Status::INVALID_FIELD.dnr());
    assert_eq!(client.errors()[0].message, "byte 0 of the data: the version is not 1");
}

/// A call whose output goes into a file by its layout; its input is the host's stream.
fn into(client: &mut Client, generation: u64, offset: u64, len: u64) -> FunctionRequest {
    let sink = Endpoint { generation, durable: true, ..Endpoint::new(EndpointKind::Layout(ID), offset, len) };
    let sources = vec![Endpoint::whole(EndpointKind::HostStream)];
    FunctionRequest { kind: FunctionKind::Write, sources, sinks: vec![sink], ..client.over("bitmap", &[], 0) }
}

/// What `bitmap` makes these bytes of.
fn single(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [1, *byte]).collect()
}

/// Begins a call and gives it input; says its tag.
fn begin(client: &mut Client, request: &FunctionRequest, input: &[u8], last: bool) -> u64 {
    let (tag, bytes) = (client.tag(), request.encode());
    let first = Sqe::function_send(COMPUTE, FunctionKind::Write, tag, 0, bytes.len() as u32).with_first();
    client.queue.command(first, Some(&bytes), 0).ok();
    let rest = Sqe::function_send(COMPUTE, FunctionKind::Write, tag, bytes.len() as u64, input.len() as u32);
    let answer = client.queue.command(if last { rest.with_last() } else { rest }, Some(input), 0);
    assert!(answer.status.is_success(), "{:?}", client.errors());
    tag
}

#[test]
fn output_goes_where_a_layout_says_and_nowhere_else() {
    let running = target(4);
    let mut client = Client::connect(&running);
    let mut device = pattern(1 << 20, 5);
    client.fill(&device);
    // Backwards, off the volume's blocks, and the last byte of the file in the middle of one.
    let places = [run(0, 500_001, 9_000), run(9_000, 70_007, 20_000), run(40_000, 4096, 1_001)];
    send(&mut client, &layout(1, 41_001, places.to_vec()), 0).ok();
    let mut written = |client: &mut Client, offset: u64, len: u64, output: &[u8]| {
        let request = into(client, 1, offset, len);
        let tag = begin(client, &request, &single(output), true);
        let (result, trailer) = client.finish(tag);
        assert_eq!((result.len(), trailer.outcome), (0, Outcome::Ok), "{}", trailer.message);
        assert_eq!((trailer.media_written, trailer.durable), (output.len() as u64, output.len() as u64));
        for (at, byte) in (offset..).zip(output) {
            let place = places.iter().find(|run| (run.logical..run.logical + run.len).contains(&at)).expect("a place");
            device[(place.physical + at - place.logical) as usize] = *byte;
        }
        let now = everything(client, 1 << 20);
        assert!(now == device, "{offset}: a byte went elsewhere");
    };
    written(&mut client, 0, u64::MAX, &pattern(29_000, 6));
    written(&mut client, 8_990, 20, &pattern(20, 7));
    written(&mut client, 40_990, u64::MAX, &pattern(11, 8));

    // More than fits, and where the file has no place.
    for (offset, len, output, outcome) in [
        (40_990, u64::MAX, 12, Outcome::OutputFull),
        (0, 10, 11, Outcome::OutputFull),
        (29_000, 100, 1, Outcome::Errno),
        (50_000, 100, 1, Outcome::OutputFull),
    ] {
        let request = into(&mut client, 1, offset, len);
        let tag = begin(&mut client, &request, &single(&pattern(output, 9)), true);
        let trailer = client.finish(tag).1;
        assert_eq!(trailer.outcome, outcome, "{offset}: {}", trailer.message);
    }
    let request = into(&mut client, 4, 0, 10);
    assert_eq!(client.run(&request).1.outcome, Outcome::Stale, "another generation");
}

/// The fences: when a Revoke or a waiting Cancel has completed, nothing more is written, whatever input still comes.
#[test]
fn nothing_is_written_behind_a_fence() {
    let running = target(16);
    let mut client = Client::connect(&running);
    client.fill(&[0x55; 8 << 20]);
    let end = 8 << 20;
    let (mut generation, mut by_revoke) = (0, true);
    loop {
        generation += 1;
        send(&mut client, &layout(generation, end, vec![run(0, 0, end)]), 0).ok();
        let request = FunctionRequest { chunk_len: 65_536, ..into(&mut client, generation, 0, end) };
        // Enough that some of it is written while the call waits for more.
        let input = [60, 0x77].repeat(40_000);
        let tag = begin(&mut client, &request, &input[..65_536], false);
        if by_revoke {
            let rest =
                Sqe::function_send(COMPUTE, FunctionKind::Write, tag, u64::from(request_len(&request)) + 65_536, 8);
            // A fence does not wait for a call that waits for its host. It does not queue behind calls either: one that had
            // not begun used nothing, and finds the layout gone.
            if revoke(&mut client, generation, 50) == 0 {
                assert_eq!(client.finish(tag).1.outcome, Outcome::Stale);
                assert!(generation < 100, "no call ever began before the fence");
                continue;
            }
            client.queue.command(rest.with_last(), Some(&input[..8]), 0);
            assert_eq!(revoke(&mut client, generation, 10_000), 0);
        } else {
            client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0).ok();
        }
        let after = everything(&mut client, 8 << 20);
        let trailer = client.finish(tag).1;
        assert_eq!(trailer.outcome, if by_revoke { Outcome::Stale } else { Outcome::Cancelled }, "{}", trailer.message);
        assert!(everything(&mut client, 8 << 20) == after, "written behind the fence");
        if !by_revoke {
            break;
        }
        by_revoke = false;
    }
}

/// What the start of the volume holds.
fn everything(client: &mut Client, len: usize) -> Vec<u8> {
    (0..len / (512 << 10)).flat_map(|part| client.queue.read(VOLUME, part as u64 * 128, 128).ok()).collect()
}

fn request_len(request: &FunctionRequest) -> u32 {
    request.encode().len() as u32
}

/// To append to many runs copied all of them, on the thread that serves everybody.
#[test]
fn appended_runs_are_one_file_however_they_came() {
    const RUNS: u64 = 12_000;
    let running = target(4);
    let mut client = Client::connect(&running);
    let device = pattern(1 << 20, 9);
    client.fill(&device);
    // Words of the volume in another order, and a hole after every thousandth.
    let place = |index: u64| run(index * 8 + index / 1000 * 64, index * 7919 % (1 << 17) * 8, 8);
    let places: Vec<LayoutRun> = (0..RUNS).map(place).collect();
    let len = RUNS * 8 + RUNS / 1000 * 64;
    let mut file = vec![0; len as usize];
    for run in &places {
        let part = &device[run.physical as usize..][..8];
        file[run.logical as usize..][..8].copy_from_slice(part);
    }
    let mut rest = &places[..];
    let (mut parts, mut action) = ([1, 0, 1, 4094, 2, 4095, 1, 3000].iter().cycle(), LayoutAction::Set);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(*parts.next().unwrap()));
        send(&mut client, &LayoutRequest { action, ..layout(1, len, now.to_vec()) }, 0).ok();
        (rest, action) = (later, LayoutAction::Append);
    }
    let holes = (999 * 8, 100);
    for (offset, count) in [(0, len), (8 * 4095, 16), (8 * 4097 + 256, 8 * 4100), holes, (len - 72, 72)] {
        let request = over(&mut client, "stats64", 1, offset, count);
        let wanted = locally("stats64", &[], &file[offset as usize..(offset + count) as usize]);
        assert_eq!(client.result(&request), wanted, "{count} bytes at {offset}");
    }
    // In the middle of what is there nothing is put.
    let request = LayoutRequest { action: LayoutAction::Append, ..layout(1, len, vec![run(len - 100, 0, 8)]) };
    send(&mut client, &request, 0).fails_with(Status::INVALID_FIELD.dnr());
}
