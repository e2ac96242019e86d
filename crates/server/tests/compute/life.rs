//! Calls that are cancelled, that wait, and whose host goes away.

use crate::client::{COMPUTE, Client, Received, locally, runs, start, target};
use crate::common::{builder, pattern};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, StatisticsPage,
    Trailer, function_log,
};
use std::time::{Duration, Instant};

/// A request that waits for input that never comes.
fn endless(client: &mut Client) -> FunctionRequest {
    FunctionRequest { sources: vec![Endpoint::whole(EndpointKind::HostStream)], ..client.over("stats64", &[], 0) }
}

pub(crate) fn send_open(client: &mut Client, tag: u64, request: &FunctionRequest) {
    let bytes = request.encode();
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, bytes.len() as u32).with_first();
    client.queue.command(sqe, Some(&bytes), 0).ok();
}

fn statistics(client: &mut Client) -> StatisticsPage {
    StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap().0
}

#[test]
fn a_cancel_is_a_fence_and_the_result_says_cancelled() {
    let running = target(8);
    let mut client = Client::connect(&running);
    let request = endless(&mut client);
    let tag = client.tag();
    send_open(&mut client, tag, &request);
    let receive = client.post_receive(tag, 0, 4096, 10_000);
    let began = Instant::now();
    let answer = client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 18_000), None, 0);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 0));
    assert!(began.elapsed() < Duration::from_secs(15), "it did not wait for its timeout");
    let received = Received::of(client.queue.wait(receive).unwrap());
    let trailer = received.trailer.unwrap();
    assert_eq!(trailer.outcome, Outcome::Cancelled, "{}", trailer.message);
    // Once more, and of a tag that never was.
    client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 0), None, 0).ok();
    client.queue.command(Sqe::function_cancel(COMPUTE, 999, true, 0), None, 0).fails_with(Status::UNKNOWN_TAG.dnr());
}

#[test]
fn a_call_in_the_middle_of_its_result_is_cancelled() {
    let running = target(8);
    let mut client = Client::connect(&running);
    let input = runs(1 << 20);
    client.fill(&input);
    // 32 MiB of result, of which nobody asks for more than the start.
    let request = FunctionRequest { chunk_len: 4096, ..client.over("bitmap", &[], input.len() as u64) };
    let tag = client.tag();
    client.send(tag, &request).ok();
    let first = client.receive(tag, 0, 100_000, 0);
    assert!(!first.answer.end && locally("bitmap", &[], &input).starts_with(&first.bytes));
    client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 0), None, 0).ok();
    let mut offset = first.bytes.len() as u64;
    let trailer: Trailer = loop {
        let received = client.receive(tag, offset, 1 << 20, 0);
        offset += received.bytes.len() as u64;
        if let Some(trailer) = received.trailer {
            break trailer;
        }
    };
    assert_eq!(trailer.outcome, Outcome::Cancelled);
    assert!(offset < 4 << 20, "what nobody asked for was hardly made: {offset}");
}

#[test]
fn a_receive_that_finds_nothing_says_pending_in_time() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let request = endless(&mut client);
    let tag = client.tag();
    send_open(&mut client, tag, &request);
    let began = Instant::now();
    let received = client.receive(tag, 0, 4096, 50);
    assert!(received.answer.pending && received.bytes.is_empty() && received.trailer.is_none());
    assert!(began.elapsed() >= Duration::from_millis(50));
    // The tag of no Send.
    let cid = client.post_receive(4711, 0, 4096, 50);
    client.queue.wait(cid).unwrap().fails_with(Status::UNKNOWN_TAG);
    // A cancel that does not wait.
    client.queue.command(Sqe::function_cancel(COMPUTE, tag, false, 0), None, 0).ok();
    let (_, trailer) = client.finish(tag);
    assert_eq!(trailer.outcome, Outcome::Cancelled);
}

#[test]
fn half_of_a_queue_may_wait_and_no_more() {
    let running = target(1);
    let mut client = Client::connect(&running);
    // The first still waits when the last one comes.
    let cids: Vec<_> = (0..40).map(|tag| client.post_receive(1000 + tag, 0, 4096, 3000)).collect();
    let statuses: Vec<_> = cids.into_iter().map(|cid| client.queue.wait(cid).unwrap().status).collect();
    let count = |status: Status| statuses.iter().filter(|other| other.is(status)).count();
    assert_eq!((count(Status::UNKNOWN_TAG), count(Status::FUNCTION_BUSY)), (32, 8), "of 64 entries");
    assert!(statuses.iter().all(|status| !status.do_not_retry()));
}

#[test]
fn a_deadline_ends_a_call() {
    let running = target(8);
    let mut client = Client::connect(&running);
    let input = runs(1 << 20);
    client.fill(&input);
    let mut request = FunctionRequest { deadline_ms: 50, chunk_len: 4096, ..client.over("bitmap", &[], 1 << 20) };
    // Input that never comes: however late it begins, it has no other end.
    request.sources.push(Endpoint::whole(EndpointKind::HostStream));
    let tag = client.tag();
    send_open(&mut client, tag, &request);
    std::thread::sleep(Duration::from_millis(200));
    let (_, trailer) = client.finish(tag);
    assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
}

/// A call that waited for its host's stream once heard of its deadline only when the next bytes came.
#[test]
fn a_deadline_ends_a_call_whose_host_goes_silent() {
    let running = target(1);
    let mut client = Client::connect(&running);
    for sent in [0, 8] {
        // On a busy machine a short one may pass before an engine is free.
        let waited = [50, 500, 5000].into_iter().any(|deadline_ms| {
            let trailer = of_silent_stream(&mut client, sent, deadline_ms);
            assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
            trailer.message.contains("waited for its host's stream")
        });
        assert!(waited, "the call never began");
    }
}

/// A host chose its deadlines itself, up to 49 days, and its calls kept what they held as long.
#[test]
fn the_operator_bounds_how_long_a_call_may_take() {
    let running = start(builder().compute(|compute| compute.call_ms = 300).volume("data=mem:1MiB,rw".parse().unwrap()));
    let mut client = Client::connect(&running);
    for deadline_ms in [0, u32::MAX] {
        let request = FunctionRequest { deadline_ms, ..endless(&mut client) };
        let tag = client.tag();
        send_open(&mut client, tag, &request);
        let received = client.receive(tag, 0, 4096, 10_000);
        let trailer = received.trailer.unwrap_or_else(|| panic!("still at work after 10 s: {:?}", received.answer));
        assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
    }
}

/// Calls a function over a stream of which only `sent` bytes come. Gives how it ended, while somebody waited for that.
fn of_silent_stream(client: &mut Client, sent: usize, deadline_ms: u32) -> Trailer {
    let request = FunctionRequest { deadline_ms, ..endless(client) };
    let tag = client.tag();
    send_open(client, tag, &request);
    let mut end = request.encode().len() as u64;
    let mut part = |client: &mut Client, len: usize| {
        let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, end, len as u32);
        end += len as u64;
        client.queue.command(sqe, Some(&vec![1; len]), 0)
    };
    if sent > 0 {
        part(client, sent).ok();
    }
    let received = client.receive(tag, 0, 4096, 10_000);
    // A host that sends on is not an error, but nobody reads that any more.
    let late = part(client, 8);
    assert_eq!((late.status, late.result), (Status::SUCCESS, 0), "no byte of it was consumed");
    received.trailer.unwrap_or_else(|| panic!("still at work after 10 s: {:?}", received.answer))
}

#[test]
fn a_host_that_vanishes_takes_its_calls_with_it() {
    let running = target(8);
    let mut watcher = Client::connect_as(&running, "nqn.2026-11.org.example:watcher");
    for round in 0..10 {
        let mut client = Client::connect(&running);
        let request = endless(&mut client);
        for _ in 0..4 {
            let tag = client.tag();
            send_open(&mut client, tag, &request);
            client.post_receive(tag, 0, 4096, 10_000);
        }
        let prepared = client.over("stats64", &[], 4096);
        client.prepare(&prepared);
        if round % 2 == 0 {
            drop(client.queue);
        }
    }
    let began = Instant::now();
    loop {
        let page = statistics(&mut watcher);
        if page.tags_open.get() == 0 && page.failed.get() == 40 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{page:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_target_stops_in_the_middle_of_calls() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let request = endless(&mut client);
    let tag = client.tag();
    send_open(&mut client, tag, &request);
    client.post_receive(tag, 0, 4096, 60_000);
    let began = Instant::now();
    running.handle().stop_now();
    running.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "it did not wait for the Receive");
}

#[test]
fn prepared_requests_run_with_the_arguments_of_each_call() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let bytes = pattern(4096, 3);
    client.fill(&bytes);
    let request = client.over("stats64", &[], 4096);
    let expected = locally("stats64", &[], &bytes);
    let handle = client.prepare(&request);
    let len = expected.len() as u32;
    let answer = client.call(handle, &[], len);
    assert_eq!((answer.result, answer.ok()), (0, expected.clone()), "an exact result has no dwords");
    let answer = client.call(handle, &[], len + 300);
    let received = Received::of(answer);
    assert_eq!((received.bytes, received.trailer.unwrap().outcome), (expected.clone(), Outcome::Ok));
    // Too short for the result, and for a trailer; then long enough to say why.
    client.call(handle, &[], len - 1).fails_with(Status::FUNCTION_FAILED.dnr());
    assert!(client.errors()[0].message.contains("the buffer of the Call"), "{:?}", client.errors()[0]);

    // A long one, on an engine.
    let input = pattern(1 << 20, 4);
    client.fill(&input);
    let request = client.over("stats64", &[], 1 << 20);
    let long = client.prepare(&request);
    assert_eq!(client.call(long, &[], len).ok(), locally("stats64", &[], &input));

    client.queue.command(Sqe::function_clear(COMPUTE, ClearSelect::Prepared, handle.into(), 0..0), None, 0).ok();
    client.call(handle, &[], len).fails_with(Status::UNKNOWN_HANDLE.dnr());
    let again = Sqe::function_clear(COMPUTE, ClearSelect::Prepared, handle.into(), 0..0);
    client.queue.command(again, None, 0).fails_with(Status::UNKNOWN_HANDLE.dnr());
    let stream = endless(&mut client);
    let tag = client.tag();
    client.send_as(tag, FunctionKind::Prepare, &stream).fails_with(Status::INVALID_FIELD.dnr());
}
