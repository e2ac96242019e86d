//! Executions that last: who waits for them and for how long, and what stops them.

use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::{Answer, builder};
use crate::life::send_open;
use crate::standard::{MEMORY, compiled, range};
use diskside_nvme::Status;
use diskside_nvme::wire::CSI_COMPUTE;
use diskside_nvme::wire::memory::{Execution, MemoryCopySource, MemoryRange, memory_log};
use diskside_nvme::wire::{Sqe, cns};
use diskside_server::Running;
use diskside_server::config::ComputeConfig;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionRequest, Outcome, StatisticsPage, function_log,
};
use zerocopy::IntoBytes;

const WATCHER: &str = "nqn.2026-11.org.example:watcher";
const ENDLESS: u16 = 100;
/// What the endless program has for itself.
const TAKEN_LEN: u32 = 32 << 20;
/// What is said of a command that no thread began in time.
const NO_THREAD: &str = "no thread was free for this command: all have calls of this host";
/// Longer than any test.
const HOUR_MS: u32 = 3_600_000;

fn target_with(change: impl FnOnce(&mut ComputeConfig)) -> Running {
    let bounds = |compute: &mut ComputeConfig| (compute.memory_wait_ms, compute.execution_ms) = (HOUR_MS, HOUR_MS);
    start(builder().compute(bounds).compute(change).volume("data=mem:1MiB,rw".parse().unwrap()))
}

fn execution() -> (Sqe, MemoryRange) {
    let execution = Execution { pind: ENDLESS, ranges: 1, data_len: 32, ..Execution::default() };
    (Sqe::execute_program(COMPUTE, &execution), range(0, TAKEN_LEN))
}

impl Client {
    fn load_endless(&mut self) {
        self.load_as_endless(&compiled("endless"));
    }

    fn load_as_endless(&mut self, object: &[u8]) {
        self.load(ENDLESS, object).ok();
        self.activate(ENDLESS, true).ok();
    }

    /// Begins an execution without an end; gives its command.
    fn post_endless(&mut self) -> u16 {
        let (sqe, range) = execution();
        self.queue.post(sqe, Some(range.as_bytes()), 0).unwrap()
    }

    /// Waits until so many engines are busy.
    fn await_busy(&mut self, engines: u32) {
        let began = Instant::now();
        loop {
            let page = StatisticsPage::decode(&self.log(function_log::STATISTICS, 0)).unwrap().0;
            if page.engines_busy.get() == engines {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{page:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// An execution without an end that has begun, where the bound for that is short.
    fn run_endless(&mut self) -> u16 {
        for _ in 0..100 {
            let failed = |client: &mut Self| client.errors().first().map_or(0, |record| record.count);
            let before = failed(self);
            let cid = self.post_endless();
            while failed(self) == before {
                if StatisticsPage::decode(&self.log(function_log::STATISTICS, 0)).unwrap().0.engines_busy.get() > 0 {
                    return cid;
                }
            }
            assert_eq!(self.queue.wait(cid).unwrap().status, Status::COMMAND_INTERRUPTED);
        }
        panic!("no thread ever began it");
    }

    /// A command, again and again as long as no thread begins it in time: where the bound for that is short, a busy machine
    /// needs more.
    fn until_begun(&mut self, mut command: impl FnMut(&mut Self) -> Answer) -> Answer {
        for _ in 0..100 {
            let answer = command(self);
            if answer.status != Status::COMMAND_INTERRUPTED || self.errors()[0].message != NO_THREAD {
                return answer;
            }
        }
        panic!("no thread ever began it");
    }

    fn abort(&mut self, cid: u16) -> Answer {
        self.controller.admin.command(Sqe::abort(1, cid), None, 0)
    }
}

/// An execution knew nothing of its host once: its ranges, its engine and its thread stayed its own for ten seconds more.
#[test]
fn a_host_that_vanishes_takes_its_executions_with_it() {
    let running = target_with(|_| {});
    let mut watcher = Client::connect_as(&running, WATCHER);
    for everything in [true, false] {
        let mut client = Client::connect(&running);
        client.load_endless();
        client.post_endless();
        // Another that waits for the same memory.
        client.post_endless();
        watcher.await_busy(1);
        if everything {
            drop(client);
        } else {
            drop(client.queue);
        }
        watcher.queue.command(Sqe::memory_write(MEMORY, 0, 8), Some(&[1; 8]), 0).ok();
        watcher.await_busy(0);
        watcher.await_place(everything);
    }
}

impl Client {
    /// Waits until another host's program is gone, or says that it stays.
    fn await_place(&mut self, is_free: bool) {
        let began = Instant::now();
        while self.can_load_at(ENDLESS) != is_free {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_target_stops_in_the_middle_of_executions() {
    let running = target_with(|_| {});
    let mut client = Client::connect(&running);
    client.load_endless();
    client.post_endless();
    client.post_endless();
    client.await_busy(1);
    running.handle().stop_now();
    let began = Instant::now();
    running.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "it waited for the program");
}

#[test]
fn an_execution_is_aborted() {
    let running = target_with(|_| {});
    let mut client = Client::connect(&running);
    client.load_endless();
    let (runs, waits) = (client.post_endless(), client.post_endless());
    client.await_busy(1);
    for cid in [waits, runs] {
        client.abort(cid).ok();
    }
    for cid in [runs, waits] {
        assert_eq!(client.queue.wait(cid).unwrap().status, Status::COMMAND_ABORT_REQUESTED);
    }
    client.await_busy(0);
    client.activate(ENDLESS, false).ok();
    client.controller.admin.command(Sqe::unload_program(COMPUTE, ENDLESS), None, 0).ok();
}

#[test]
fn an_executing_program_is_not_unloaded() {
    let running = target_with(|_| {});
    let mut client = Client::connect(&running);
    client.load_endless();
    let cid = client.post_endless();
    client.await_busy(1);
    let unload = Sqe::unload_program(COMPUTE, ENDLESS);
    assert_eq!(client.controller.admin.command(unload, None, 0).status, Status::PROGRAM_IN_USE.dnr(), "it is active");
    client.activate(ENDLESS, false).ok();
    assert_eq!(client.controller.admin.command(unload, None, 0).status, Status::PROGRAM_IN_USE, "it runs");
    let (sqe, range) = execution();
    let another = client.queue.command(sqe, Some(range.as_bytes()), 0);
    assert_eq!(another.status, Status::PROGRAM_NOT_ACTIVATED.dnr());
    client.abort(cid).ok();
    client.queue.wait(cid).unwrap();
    client.controller.admin.command(unload, None, 0).ok();
}

#[test]
fn an_execution_that_takes_too_long_fails_and_says_where_it_was() {
    let running = target_with(|compute| compute.execution_ms = 50);
    let mut client = Client::connect(&running);
    client.load_endless();
    let cid = client.post_endless();
    assert_eq!(client.queue.wait(cid).unwrap().status, Status::FUNCTION_FAILED.dnr());
    let told = client.errors().swap_remove(0).message;
    assert!(told.contains("deadline") && told.contains("endless.bpf.c:"), "{told}");
    // Its memory is free again.
    client.queue.command(Sqe::memory_write(MEMORY, 0, 8), Some(&[1; 8]), 0).ok();
}

/// A host's long calls took all threads that it may have, and then its Identify, loads and prepares waited for them.
#[test]
fn long_calls_of_a_host_hold_up_nothing_that_is_quick() {
    let running = target_with(|compute| (compute.host_calls, compute.memory_wait_ms) = (1, 50));
    let mut client = Client::connect(&running);
    // First of all: a call whose result nobody asks for is given up after a minute, and a compiler has taken that long.
    let object = compiled("endless");
    // A call that waits for its host, and takes the one place.
    let sources = vec![Endpoint::whole(EndpointKind::HostStream)];
    let request = FunctionRequest { sources, ..client.over("stats64", &[], 0) };
    let tag = client.tag();
    send_open(&mut client, tag, &request);
    let identify = Sqe::identify(cns::COMMAND_SET_NAMESPACE, COMPUTE, CSI_COMPUTE);
    let list = Sqe::get_log_page(memory_log::PROGRAMS, 0, 4096, 0, false);
    let create = Sqe::create_range_set(COMPUTE, 1);
    let set = range(0, 64);
    for (sqe, data, len) in [(identify, None, 4096), (list, None, 4096), (create, Some(set.as_bytes()), 0)] {
        // On a busy machine a thread may take longer than the bound to begin.
        client.until_begun(|client| client.controller.admin.command(sqe, data, len)).ok();
    }
    client.load_as_endless(&object);
    let prepared = client.over("stats64", &[], 4096);
    let handle = client.prepare(&prepared);
    client.call(handle, &[], 4096).ok();
    // A command that has to wait for a thread hears that in time, and can come again.
    let (write, (execute, taken)) = (Sqe::memory_write(MEMORY, 0, 8), execution());
    for (sqe, data) in [(write, &[1; 8][..]), (execute, taken.as_bytes())] {
        let refused = client.queue.command(sqe, Some(data), 0);
        assert_eq!(refused.status, Status::COMMAND_INTERRUPTED);
        assert_eq!(client.errors()[0].message, NO_THREAD);
    }
    client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0).ok();
    client.until_begun(|client| client.queue.command(write, Some(&[1; 8]), 0)).ok();
}

/// A command that needs memory which a program holds for longer than the bound fails, and may come again.
#[test]
fn a_command_waits_for_memory_in_use_no_longer_than_its_bound() {
    let running = target_with(|compute| compute.memory_wait_ms = 50);
    let mut client = Client::connect(&running);
    client.load_endless();
    let runs = client.run_endless();
    let (execute, taken) = execution();
    let of_volume = diskside_nvme::wire::CopySourceEntry::new(VOLUME, 0, 1);
    let of_memory = |start, len| MemoryCopySource::new(MEMORY, start, len);
    let inside = 1 << 20;
    let commands: [(&str, Sqe, Vec<u8>, usize); 7] = [
        ("read", Sqe::memory_read(MEMORY, inside, 8), Vec::new(), 8),
        ("write", Sqe::memory_write(MEMORY, inside, 8), vec![1; 8], 0),
        ("fill", Sqe::memory_fill(MEMORY, inside, 8), Vec::new(), 0),
        ("copy to it", Sqe::memory_copy(MEMORY, inside, 4096, 1, 2), of_volume.as_bytes().to_vec(), 0),
        (
            "copy from it",
            Sqe::memory_copy(MEMORY, TAKEN_LEN.into(), 8, 1, 4),
            of_memory(inside, 8).as_bytes().to_vec(),
            0,
        ),
        ("copy to a volume", Sqe::copy(VOLUME, 0, 1, 4), of_memory(inside, 4096).as_bytes().to_vec(), 0),
        ("execute", execute, taken.as_bytes().to_vec(), 0),
    ];
    for (what, sqe, data, len) in commands {
        let data = Some(&data[..]).filter(|data| !data.is_empty());
        let answer = client.until_begun(|client| client.queue.command(sqe, data, len));
        assert_eq!(answer.status, Status::COMMAND_INTERRUPTED, "{what}: it may be sent again");
        assert_eq!(client.errors()[0].message, "a program, or another command, has this memory", "{what}");
    }
    // A call over the memory has no status for it.
    let sources = vec![Endpoint::new(EndpointKind::Memory(MEMORY), inside, 4096)];
    let request = FunctionRequest { sources, ..client.over("stats64", &[], 0) };
    let (_, trailer) = client.run(&request);
    assert_eq!(trailer.outcome, Outcome::Media, "{}", trailer.message);
    assert!(trailer.message.contains("a program, or another command, has this memory"), "{}", trailer.message);
    // What does not touch it does not wait.
    let mut write =
        |at: u64| client.until_begun(|client| client.queue.command(Sqe::memory_write(MEMORY, at, 8), Some(&[1; 8]), 0));
    write(TAKEN_LEN.into()).ok();
    client.abort(runs).ok();
    client.queue.wait(runs).unwrap();
    client.until_begun(|client| client.queue.command(Sqe::memory_fill(MEMORY, inside, 8), None, 0)).ok();
}
