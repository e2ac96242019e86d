//! More commands than one host may have waiting: the status of each command then; and the waiting ones run in their
//! turn.

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::builder;
use crate::life::send_open;
use crate::standard::MEMORY;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::Execution;
use diskside_server::Running;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionRequest, Outcome, StatisticsPage, Trailer, function_log,
};

/// Calls of one host that may wait, and tags of one controller.
const QUEUED_MAX: u32 = 1024;
const TAGS_MAX: usize = 256;
/// Longer than any test.
const HOUR_MS: u32 = 3_600_000;

/// A host of which one call may run at a time, one does, and as many wait as may.
struct Crowd {
    /// The host of the call that runs; and those whose calls wait, with the tags of these.
    first: Client,
    running_tag: u64,
    others: Vec<(Client, Vec<u64>)>,
}

fn target() -> Running {
    let builder = builder().volume("data=mem:1MiB,rw".parse().unwrap());
    start(builder.compute(|compute| (compute.host_calls, compute.memory_wait_ms) = (1, HOUR_MS)))
}

fn waiting(client: &mut Client) -> u32 {
    StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap().0.queued.get()
}

impl Crowd {
    fn gather(running: &Running) -> Self {
        let mut first = Client::connect(running);
        // A call that waits for its host keeps the one place.
        let stream = vec![Endpoint::whole(EndpointKind::HostStream)];
        let endless = FunctionRequest { sources: stream, ..first.over("stats64", &[], 0) };
        let running_tag = first.tag();
        send_open(&mut first, running_tag, &endless);
        // A thread has it: it does not count as waiting any more.
        while waiting(&mut first) > 0 {
            std::thread::yield_now();
        }
        let mut crowd = Self { first, running_tag, others: Vec::new() };
        let request = crowd.first.over("stats64", &[], 4096);
        while waiting(&mut crowd.first) < QUEUED_MAX {
            let mut other = Client::connect(running);
            let tags = (0..TAGS_MAX).map(|_| other.tag()).collect::<Vec<_>>();
            tags.iter().for_each(|tag| drop(other.send(*tag, &request).ok()));
            crowd.others.push((other, tags));
        }
        assert_eq!((waiting(&mut crowd.first), crowd.others.len()), (QUEUED_MAX, 4));
        crowd
    }

    /// The call that runs ends, and each one that waits in its turn.
    fn disperse(mut self) {
        let cancel = Sqe::function_cancel(COMPUTE, self.running_tag, true, 10_000);
        self.first.queue.command(cancel, None, 0).ok();
        for (mut client, tags) in self.others {
            for tag in tags {
                let (_, trailer) = client.finish(tag);
                assert_eq!(trailer.outcome, Outcome::Ok, "{}", trailer.message);
            }
        }
    }
}

#[test]
fn a_host_whose_calls_wait_is_told_of_one_too_many() {
    let running = target();
    let mut crowd = Crowd::gather(&running);
    let first = &mut crowd.first;
    let read = first.over("stats64", &[], 4096);
    // A small one runs where it comes in; one with a range of memory needs a thread.
    let memory = vec![Endpoint::new(EndpointKind::Memory(MEMORY), 0, 4096)];
    let handle = first.prepare(&FunctionRequest { sources: memory.clone(), ..read.clone() });
    let small = first.prepare(&read);
    let refused = |trailer: &Trailer| {
        let told = "this host has too many calls waiting for an engine";
        assert_eq!((trailer.outcome, &*trailer.message), (Outcome::Refused, told), "{trailer:?}");
    };
    refused(&first.run(&FunctionRequest { sources: memory, ..read.clone() }).1);
    refused(&first.run(&read).1);
    first.call(handle, &[], 4096).fails_with(Status::FUNCTION_BUSY);
    first.call(small, &[], 4096).ok();
    // Standard commands wait in the same queue.
    let execution = Execution { pind: read.pind, ..Execution::default() };
    let commands = [
        (Sqe::memory_fill(MEMORY, 0, 4096), 0),
        (Sqe::memory_read(MEMORY, 0, 4096), 4096),
        (Sqe::execute_program(COMPUTE, &execution), 0),
    ];
    for (sqe, len) in commands {
        first.queue.command(sqe, None, len).fails_with(Status::FUNCTION_BUSY);
    }
    // Quick commands do not, and neither does another host.
    first.queue.read(VOLUME, 0, 1).ok();
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    other.result(&read);
    other.queue.command(Sqe::memory_fill(MEMORY, 0, 4096), None, 0).ok();
    assert_eq!(waiting(&mut other), QUEUED_MAX, "nothing was thrown away");
    crowd.disperse();
    let after = Client::connect(&running).run(&read).1;
    assert_eq!(after.outcome, Outcome::Ok, "{}", after.message);
}
