//! The memory that one host, or one with many names, makes a target hold: as much as the target's settings say,
//! whatever it sends and whatever it does not read, while another host works. In a process of its own, whose memory is
//! measured.

#[path = "compute/client.rs"]
#[allow(dead_code, reason = "each test is a crate of its own and uses its part")]
mod client;
mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{COMPUTE, Client, Received, locally, runs, start};
use common::{Answer, builder, pattern};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::Size;
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, StatisticsPage,
    function_log,
};

const MIB: usize = 1 << 20;
/// A quarter of the least `host_memory`, less an eighth of that for what somebody waits for.
const KEPT_MAX: u64 = 14 << 20;
const URGENT: u64 = 2 << 20;
const OTHER: &str = "nqn.2026-11.org.example:other";
/// The charge of an open tag beside its request, a source, and any part of a stream.
const TAG: u64 = 8 << 10;
const ENDPOINT: u64 = 160;
const PART: u64 = 128;

/// One test at a time: each looks at the memory of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A target where a host may have as little as it can be given, with one call at a time.
fn target(host_calls: usize) -> Running {
    start(builder().volume("data=mem:8MiB,rw".parse().unwrap()).compute(|compute| {
        compute.host_memory = Size::from_mib(64);
        compute.hosts_memory = Size::from_mib(128);
        compute.host_calls = host_calls;
    }))
}

fn page(client: &mut Client) -> StatisticsPage {
    StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap().0
}

/// What waits and is kept, which is never more than it may be.
fn kept(client: &mut Client) -> u64 {
    let kept = page(client).kept_memory.get();
    assert!(kept <= 2 * (KEPT_MAX + URGENT), "{kept} bytes are kept of all hosts");
    kept
}

fn wait_until(client: &mut Client, what: &str, holds: impl Fn(&StatisticsPage) -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds(&page(client)) {
        assert!(Instant::now() < until, "{what}: {:?}", page(client));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Another host works, with and without input, prepared and not.
#[track_caller]
fn works(running: &Running) {
    let mut other = Client::connect_as(running, OTHER);
    let bytes = other.queue.read(client::VOLUME, 0, 64).ok();
    let request = other.over("stats64", &[], bytes.len() as u64);
    let expected = locally("stats64", &[], &bytes);
    assert_eq!(other.result(&request), expected);
    let handle = other.prepare(&request);
    assert_eq!(other.call(handle, &[], expected.len() as u32).ok(), expected);
    let request = FunctionRequest { sources: vec![Endpoint::whole(EndpointKind::HostStream)], ..request };
    let tag = other.tag();
    let (first, input) = (request.encode(), pattern(64 << 10, 4));
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, first.len() as u32).with_first();
    other.queue.command(sqe, Some(&first), 0).ok();
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, first.len() as u64, input.len() as u32).with_last();
    other.queue.command(sqe, Some(&input), 0).ok();
    assert_eq!(other.finish(tag).0, locally("stats64", &[], &input));
}

/// A request whose input is the host's stream.
fn over_stream(client: &mut Client) -> Vec<u8> {
    let sources = vec![Endpoint::whole(EndpointKind::HostStream)];
    FunctionRequest { sources, ..client.over("stats64", &[], 0) }.encode()
}

fn open(client: &mut Client, tag: u64, request: &[u8]) -> Answer {
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, request.len() as u32).with_first();
    client.queue.command(sqe, Some(request), 0)
}

/// A MiB of input, the `nth` of its tag.
fn send(client: &mut Client, tag: u64, request: &[u8], nth: usize, wait_ms: u32) -> Answer {
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, (request.len() + nth * MIB) as u64, MIB as u32);
    client.queue.command(sqe.with_function_timeout_ms(wait_ms), Some(&vec![7; MIB]), 0)
}

fn no_room(asked: u64, held: u64) -> String {
    format!(
        "no room for {asked} bytes: requests, input, results, layouts and states of this host have {held} of {KEPT_MAX} \
         bytes; `compute.host_memory` says how many, and `compute.hosts_memory` where other hosts have much of that"
    )
}

/// Each of a controller's 256 tags took 4 MiB of input and a Send that nobody read: 1.25 GiB, of every controller.
#[test]
fn input_that_nobody_reads_is_bounded_over_all_tags() {
    let _alone = alone();
    let running = target(1);
    let (mut greedy, mut watch) = (Client::connect(&running), Client::connect_as(&running, OTHER));
    let request = over_stream(&mut greedy);
    let before = resident_bytes();
    // The first waits for input that never comes, and so all others wait for it.
    for tag in 0..256 {
        open(&mut greedy, tag, &request).ok();
    }
    let mut held = 256 * (request.len() as u64 + TAG + ENDPOINT);
    assert_eq!(kept(&mut watch), held);
    // Some of a stream may be there before its call, the less the less there is left.
    send(&mut greedy, 1, &request, 0, 0).ok();
    send(&mut greedy, 1, &request, 1, 0).ok();
    send(&mut greedy, 1, &request, 2, 20).fails_with(Status::FUNCTION_BUSY);
    let part = MIB as u64 + PART;
    held += 2 * part;
    assert_eq!(kept(&mut watch), held, "a Send that has waited in vain left nothing behind");
    let mut taken = 2;
    for tag in 2..256 {
        let answer = send(&mut greedy, tag, &request, 0, 0);
        if held + part <= KEPT_MAX {
            (taken, held) = (taken + 1, held + part);
            answer.ok();
            continue;
        }
        assert_eq!(answer.status, Status::FUNCTION_BUSY, "it may be sent again");
        if tag % 60 == 0 {
            assert_eq!(greedy.errors()[0].message, no_room(part, held));
        }
    }
    assert_eq!((taken, kept(&mut watch)), (11, held));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 128 * MIB, "the process has {grown} bytes more");
    works(&running);
    // Of another controller of the same host nothing more is taken, until the first gives something back.
    let mut second = Client::connect(&running);
    assert!(open(&mut second, 1, &request).status.is_success());
    send(&mut second, 1, &request, 0, 0).fails_with(Status::FUNCTION_BUSY);
    greedy.queue.command(Sqe::function_cancel(COMPUTE, 1, false, 0), None, 0).ok();
    send(&mut second, 1, &request, 0, 0).ok();
    drop((greedy, second));
    wait_until(&mut watch, "all is given back", |page| (page.kept_memory.get(), page.calls_memory.get()) == (0, 0));
}

/// A controller could have 1,024 prepared requests of a MiB.
#[test]
fn prepared_requests_are_bounded_by_their_bytes() {
    let _alone = alone();
    let running = target(4);
    let (mut greedy, mut watch) = (Client::connect(&running), Client::connect_as(&running, OTHER));
    let bytes = pattern(64, 3);
    greedy.fill(&bytes);
    let mut request = greedy.over("stats64", &[], 64);
    request.args.resize(MIB - 4096, 0);
    let before = resident_bytes();
    let prepare = |client: &mut Client| {
        let tag = client.tag();
        client.send_as(tag, FunctionKind::Prepare, &request)
    };
    let mut handles = Vec::new();
    for turn in 0..60 {
        let answer = prepare(&mut greedy);
        if answer.status.is_success() {
            assert_eq!(handles.len(), turn, "there is room for one more, but there was none before");
            handles.push(answer.result as u32);
            continue;
        }
        assert_eq!(answer.status, Status::FUNCTION_BUSY);
        let told = &greedy.errors()[0].message;
        let asked = request.encode().len() as u64 + TAG;
        assert_eq!(*told, no_room(asked, kept(&mut watch)));
    }
    assert!((12..=13).contains(&handles.len()), "{}", handles.len());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 128 * MIB, "the process has {grown} bytes more");
    works(&running);
    let expected = locally("stats64", &[], &bytes);
    for handle in &handles {
        assert_eq!(greedy.call(*handle, &[], 32).ok(), expected);
    }
    greedy.queue.command(Sqe::function_clear(COMPUTE, ClearSelect::Prepared, handles[3].into(), 0..0), None, 0).ok();
    assert!(prepare(&mut greedy).status.is_success());
    assert_eq!(prepare(&mut greedy).status, Status::FUNCTION_BUSY);
    drop(greedy);
    wait_until(&mut watch, "all is given back", |page| page.kept_memory.get() == 0);
}

/// Results of calls that had ended waited in their tags, up to 64 MiB in each of 256.
#[test]
fn results_that_nobody_asks_for_wait_in_the_calls_memory() {
    let _alone = alone();
    let running = target(4);
    let (mut greedy, mut watch) = (Client::connect(&running), Client::connect_as(&running, OTHER));
    let input = runs(MIB / 32);
    greedy.fill(&input);
    let request = greedy.over("bitmap", &[], input.len() as u64);
    let expected = locally("bitmap", &[], &input);
    assert_eq!(expected.len(), MIB);
    let before = resident_bytes();
    // Requests need room, too: where results were made faster than calls were sent, the rest is sent later.
    let calls = (0..60).take_while(|tag| greedy.send(*tag, &request).status.is_success()).count() as u64;
    assert!(calls >= 12, "{calls}");
    // As many results as fit, and a few calls that cannot give theirs; the others have not begun.
    wait_until(&mut watch, "there is no more room", |page| page.kept_memory.get() > KEPT_MAX - 2 * MIB as u64);
    works(&running);
    assert!(kept(&mut watch) <= KEPT_MAX + URGENT);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 150 * MIB, "the process has {grown} bytes more");
    // Nothing is lost.
    for tag in 0..calls {
        let (result, trailer) = greedy.finish(tag);
        assert_eq!((trailer.outcome, result == expected), (Outcome::Ok, true), "{tag}: {}", trailer.message);
    }
    wait_until(&mut watch, "all is given back", |page| page.kept_memory.get() == 0);
}

/// Answers that a host did not read waited behind each other, 256 of a MiB on each connection.
#[test]
fn answers_that_a_host_does_not_read_are_bounded() {
    let _alone = alone();
    let running = target(8);
    let (mut greedy, mut watch) = (Client::connect(&running), Client::connect_as(&running, OTHER));
    let input = runs(MIB / 32);
    greedy.fill(&input);
    let request = greedy.over("bitmap", &[], input.len() as u64);
    let expected = locally("bitmap", &[], &input);
    let handle = greedy.prepare(&request);
    let mut queues: Vec<_> = (2..4).map(|id| greedy.controller.io_queue(id, 64)).collect();
    let before = resident_bytes();
    let mut posted = Vec::new();
    for queue in &mut queues {
        let sqe = Sqe::function_call(COMPUTE, handle, &[], MIB as u32, 10_000);
        let cids: Vec<u16> = (0..60).map(|_| queue.post(sqe, None, MIB).unwrap()).collect();
        posted.push(cids);
    }
    wait_until(&mut watch, "there is no more room", |page| page.kept_memory.get() > KEPT_MAX - 2 * MIB as u64);
    works(&running);
    assert!(kept(&mut watch) <= KEPT_MAX + URGENT);
    let grown = resident_bytes().saturating_sub(before);
    // 120 MiB are the host's own buffers, which nobody has touched yet.
    assert!(grown < 150 * MIB, "the process has {grown} bytes more");
    // When it reads, each answer is right, or says that its time was over.
    let mut right = 0;
    for (queue, cids) in queues.iter_mut().zip(posted) {
        for cid in cids {
            let answer = queue.wait(cid).unwrap();
            if answer.status == Status::FUNCTION_BUSY {
                continue;
            }
            if answer.result == 0 {
                assert!(answer.status.is_success() && answer.data == expected);
                right += 1;
                continue;
            }
            let trailer = Received::of(answer).trailer.unwrap();
            assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
        }
    }
    assert!(right >= 10, "{right}");
    drop((greedy, queues));
    wait_until(&mut watch, "all is given back", |page| page.kept_memory.get() == 0);
}

/// A bound of each host is none for a peer that connects by many names.
#[test]
fn many_names_have_no_more_than_all_hosts_may_have() {
    let _alone = alone();
    let running = target(4);
    let mut watch = Client::connect_as(&running, OTHER);
    let before = resident_bytes();
    let (mut greedy, mut taken) = (Vec::new(), Vec::new());
    for name in 0..12 {
        let mut client = Client::connect_as(&running, &format!("nqn.2026-11.org.example:greedy{name}"));
        let mut request = client.over("stats64", &[], 0);
        request.args.resize(MIB - 4096, 0);
        // All of it but the end, which never comes.
        let mut request = request.encode();
        request.pop();
        taken.push((0..8).filter(|tag| open(&mut client, *tag, &request).status.is_success()).count());
        greedy.push(client);
    }
    assert!(taken[0] == 8 && taken.is_sorted_by(|one, next| one >= next), "{taken:?}");
    assert!(taken.iter().all(|count| *count >= 1), "who has nothing gets something: {taken:?}");
    kept(&mut watch);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 128 * MIB, "the process has {grown} bytes more");
    works(&running);
    drop(greedy);
    wait_until(&mut watch, "all is given back", |page| (page.kept_memory.get(), page.calls_memory.get()) == (0, 0));
}
