//! Hosts that read none of their results, or send none of the input that their calls wait for: others' calls run.

use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, VOLUME, locally, start};
use crate::common::builder;
use crate::life::send_open;
use crate::standard::MEMORY;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::Execution;
use diskside_server::Running;
use diskside_wire::function::{Endpoint, EndpointKind, FunctionRequest};

/// Calls of one host that run at a time.
const HOST_CALLS: usize = 16;
/// Less than a result, or input, that nobody takes is kept for.
const SOON: Duration = Duration::from_secs(40);

fn target() -> Running {
    let running = start(builder().volume("data=mem:8MiB,rw".parse().unwrap()));
    let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
    Client::connect(&running).fill(&line.repeat(8 << 10));
    running
}

/// Hosts of names of their own, each with as many calls as may run, which wait for it: to read, or to send.
fn greedy(running: &Running, hosts: usize) -> Vec<Client> {
    let host = |number: usize| {
        let mut client = Client::connect_as(running, &format!("nqn.2026-11.org.example:greedy{number}"));
        let lines = FunctionRequest { chunk_len: 64 << 10, ..client.over("grep", &[("pattern", "x")], 8 << 20) };
        let stream = vec![Endpoint::whole(EndpointKind::HostStream)];
        let open = FunctionRequest { sources: stream, ..client.over("stats64", &[], 0) };
        for call in 0..HOST_CALLS {
            let tag = client.tag();
            match call % 2 {
                0 => drop(client.send(tag, &lines).ok()),
                _ => send_open(&mut client, tag, &open),
            }
        }
        client
    };
    (0..hosts).map(host).collect()
}

/// Another host has a function run, and a program executed, as if nobody else were there.
fn others_go_on(running: &Running) {
    let began = Instant::now();
    let mut other = Client::connect_as(running, "nqn.2026-11.org.example:other");
    let bytes = other.queue.read(VOLUME, 0, 16).ok();
    let request = other.over("stats64", &[], bytes.len() as u64);
    assert_eq!(other.result(&request), locally("stats64", &[], &bytes));
    other.queue.command(Sqe::memory_fill(MEMORY, 0, 4096), None, 0).ok();
    let execution = Execution { pind: request.pind, ..Execution::default() };
    // It has no range: what matters is that it is answered.
    drop(other.queue.command(Sqe::execute_program(COMPUTE, &execution), None, 0));
    assert!(began.elapsed() < SOON, "it waited for hosts that do nothing");
}

/// Four names were enough: sixty-four calls had all threads, and everybody else's calls stood still for a minute.
#[test]
fn four_hosts_that_read_and_send_nothing_take_no_threads_from_others() {
    let running = target();
    let _greedy = greedy(&running, 4);
    others_go_on(&running);
}

/// Threads of calls that wait for their hosts are bounded, too. When all are taken and others wait, who does nothing is given up.
#[test]
fn many_hosts_that_read_and_send_nothing_are_given_up_for_others() {
    let running = target();
    let _greedy = greedy(&running, 20);
    others_go_on(&running);
}
