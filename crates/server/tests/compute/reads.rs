//! Functions over volumes: the same results as on the host, however they are asked for.

use crate::client::{COMPUTE, Client, Received, VOLUME, locally, runs, start, target};
use crate::common::{builder, pattern};

use diskside_nvme::wire::Sqe;
use diskside_server::config::VolumeSpec;
use diskside_wire::function::{
    Class, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, RecordSplit, TierHint,
    Trailer,
};

/// Lines of text, with every tenth an error.
fn log_lines(len: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for line in 0.. {
        let word = if line % 10 == 7 { "ERROR" } else { "info" };
        text.extend_from_slice(format!("{line:08} {word} something happened in part {}\n", line * 7 % 1000).as_bytes());
        if text.len() >= len {
            break;
        }
    }
    text.truncate(len - len % 4096);
    *text.last_mut().unwrap() = b'\n';
    text
}

fn check_functions(client: &mut Client) {
    let bytes = pattern(3 << 20, 1);
    client.fill(&bytes);
    for name in ["stats64", "stats32"] {
        let request = client.over(name, &[], bytes.len() as u64);
        assert_eq!(client.result(&request), locally(name, &[], &bytes), "{name}");
        let small_chunks = FunctionRequest { chunk_len: 100_000, threads_max: 2, ..request };
        assert_eq!(client.result(&small_chunks), locally(name, &[], &bytes), "{name} in small chunks");
    }
    let bytes = runs(64 << 10);
    client.fill(&bytes);
    let expanded = locally("bitmap", &[], &bytes);
    let request = client.over("bitmap", &[], 64 << 10);
    assert_eq!(client.result(&request), expanded, "a result of 2 MiB, by several Receives");

    let text = log_lines(1 << 20);
    client.fill(&text);
    let args = [("pattern", "ERROR")];
    let request = client.over("grep", &args, text.len() as u64);
    assert_eq!(client.result(&request), locally("grep", &args, &text));
    let chunks = FunctionRequest { chunk_len: 5000, ..request.clone() };
    assert_eq!(client.result(&chunks), locally("grep", &args, &text), "lines are not cut");
    let halves = FunctionRequest {
        sources: vec![
            Endpoint::new(EndpointKind::Volume(VOLUME), 0, 300_001),
            Endpoint::new(EndpointKind::Volume(VOLUME), 300_001, text.len() as u64 - 300_001),
        ],
        ..request
    };
    assert_eq!(client.result(&halves), locally("grep", &args, &text), "each line belongs to one range");
}

#[test]
fn functions_over_memory_give_what_they_give_on_the_host() {
    check_functions(&mut Client::connect(&target(8)));
}

#[test]
fn functions_over_a_file_give_what_they_give_on_the_host() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for options in ["size=8MiB,rw", "size=8MiB,buffered,rw"] {
        let path = dir.path().join(format!("{}.img", options.len()));
        let spec = format!("data={},{options}", path.display()).parse::<VolumeSpec>().unwrap();
        check_functions(&mut Client::connect(&start(builder().volume(spec))));
    }
}

#[test]
fn functions_run_over_a_connection_in_memory() {
    check_functions(&mut Client::connect_loop(&target(8)));
}

#[test]
fn a_function_sees_every_write_that_was_acknowledged_before_it() {
    let running = target(1);
    let mut client = Client::connect(&running);
    for round in 0..20_u64 {
        let bytes = pattern(64 << 10, round);
        client.fill(&bytes);
        let request = client.over("stats64", &[], bytes.len() as u64);
        assert_eq!(client.result(&request), locally("stats64", &[], &bytes), "round {round}");
    }
}

#[test]
fn a_trailer_tells_what_a_call_took() {
    let running = target(8);
    let mut client = Client::connect(&running);
    let request = FunctionRequest {
        class: Class::Background,
        tier: TierHint::Interpreter,
        ..client.over("stats64", &[], 1 << 20)
    };
    let (result, trailer) = client.run(&request);
    let Trailer { outcome, media_read, media_written, result_len, back_edges, times, .. } = trailer;
    assert_eq!((outcome, media_read, media_written, result_len), (Outcome::Ok, 1 << 20, 0, result.len() as u64));
    assert!(back_edges > 1000, "{back_edges} back edges of a loop over 131,072 numbers");
    assert!(times.run_us > 0 && times.total_us >= times.run_us, "{times:?}");
}

#[test]
fn a_result_can_be_taken_in_any_pieces() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let bytes = runs(64 << 10);
    client.fill(&bytes);
    let expected = locally("bitmap", &[], &bytes);
    let request = client.over("bitmap", &[], bytes.len() as u64);

    // All Receives before the Send, out of order, each to be filled; the last is beyond the end.
    let tag = client.tag();
    let part = 300_000;
    let mut cids: Vec<_> = (0..8_u64)
        .rev()
        .map(|index| {
            let sqe = Sqe::function_receive(COMPUTE, tag, index * part, part as u32, 0);
            (index, client.queue.post(sqe.with_fill(), None, part as usize).unwrap())
        })
        .collect();
    cids.sort_unstable();
    client.send(tag, &request).ok();
    let (mut all, mut trailers) = (Vec::new(), 0);
    for (index, cid) in cids {
        let received = Received::of(client.queue.wait(cid).unwrap());
        assert_eq!(received.answer.end, index >= 6, "Receive {index}");
        all.extend_from_slice(&received.bytes);
        trailers += usize::from(received.trailer.is_some());
    }
    assert_eq!((all == expected, trailers), (true, 1), "the bytes in order, and one trailer");

    // Small and one by one.
    let tag = client.tag();
    client.send(tag, &request).ok();
    let mut all = Vec::new();
    loop {
        let received = client.receive(tag, all.len() as u64, 128 + (all.len() % 50_000) as u32, 0);
        all.extend_from_slice(&received.bytes);
        if let Some(trailer) = received.trailer {
            assert_eq!(trailer.outcome, Outcome::Ok);
            break;
        }
    }
    assert!(all == expected);
}

#[test]
fn a_hosts_stream_is_a_source() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let text = log_lines(6 << 20);
    let args = [("pattern", "ERROR")];
    let request =
        FunctionRequest { sources: vec![Endpoint::whole(EndpointKind::HostStream)], ..client.over("grep", &args, 0) };
    let tag = client.tag();
    let bytes = request.encode();
    let sqe = Sqe::function_send;
    let first = sqe(COMPUTE, FunctionKind::Read, tag, 0, bytes.len() as u32).with_first();
    client.queue.command(first, Some(&bytes), 0).ok();
    let receive = client.post_receive(tag, 0, 1 << 20, 10_000);
    // Parts in the wrong order, pairwise, and the end without data.
    let parts: Vec<&[u8]> = text.chunks(700_000).collect();
    let start = |index: usize| bytes.len() as u64 + index as u64 * 700_000;
    for pair in (0..parts.len()).collect::<Vec<_>>().chunks(2) {
        let cids: Vec<_> = pair
            .iter()
            .rev()
            .map(|&index| {
                let part = parts[index];
                let send = sqe(COMPUTE, FunctionKind::Read, tag, start(index), part.len() as u32);
                client.queue.post(send, Some(part), 0).unwrap()
            })
            .collect();
        for cid in cids {
            let answer = client.queue.wait(cid).unwrap();
            assert!(answer.status.is_success() && answer.result > 0, "{answer:?}");
        }
    }
    let end = sqe(COMPUTE, FunctionKind::Read, tag, bytes.len() as u64 + text.len() as u64, 0);
    client.queue.command(end.with_last(), Some(&[]), 0).ok();
    let received = Received::of(client.queue.wait(receive).unwrap());
    let mut result = received.bytes;
    if received.trailer.is_none() {
        while let Some(more) = Some(client.receive(tag, result.len() as u64, 1 << 20, 0)) {
            result.extend_from_slice(&more.bytes);
            if more.trailer.is_some() {
                break;
            }
        }
    }
    assert!(result == locally("grep", &args, &text));
}

#[test]
fn two_hosts_compute_at_the_same_time() {
    let running = target(8);
    let bytes = pattern(4 << 20, 5);
    Client::connect(&running).fill(&bytes);
    let expected = locally("stats64", &[], &bytes);
    std::thread::scope(|scope| {
        for host in ["nqn.2026-11.org.example:one", "nqn.2026-11.org.example:two"] {
            let (running, expected) = (&running, &expected);
            scope.spawn(move || {
                let mut client = Client::connect_as(running, host);
                let request = client.over("stats64", &[], 4 << 20);
                for _ in 0..10 {
                    assert_eq!(client.result(&request), *expected);
                }
            });
        }
    });
}

#[test]
fn failures_of_the_function_are_told_with_place_and_line() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.fill(&runs(8192));
    let budget = FunctionRequest { budget: 10, ..client.over("stats64", &[], 8192) };
    let (_, trailer) = client.run(&budget);
    assert_eq!((trailer.outcome, trailer.trap_kind), (Outcome::Budget, 5));
    assert!(trailer.message.contains("stats64.bpf.c:"), "{}", trailer.message);
    let place = trailer.place.unwrap();
    assert_eq!((place.source_index, place.offset, place.len), (0, 0, 8192));

    let few = FunctionRequest { result_len_max: 4, ..client.over("bitmap", &[], 4096) };
    assert_eq!(client.run(&few).1.outcome, Outcome::OutputFull);

    let args = FunctionRequest { args: vec![1], ..client.over("grep", &[("pattern", "a")], 4096) };
    let (_, trailer) = client.run(&args);
    assert_eq!(trailer.outcome, Outcome::Refused);
    assert!(trailer.message.contains("the arguments are 1 bytes"), "{}", trailer.message);

    let record = FunctionRequest { split: RecordSplit::Fixed(u32::MAX), ..client.over("stats64", &[], 4096) };
    assert_eq!(client.run(&record).1.outcome, Outcome::Refused);
}
