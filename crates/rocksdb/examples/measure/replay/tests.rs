//! Traces are replayed on a database in an export of a server of this process.

use super::*;
use crate::cluster19;
use diskside::host::{ConnectOptions, Connection};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside_rocksdb::reads::Counters;
use diskside_rocksdb::{Mode, Store};
use std::sync::Arc;
use std::time::Duration;

const NQN: &str = "nqn.2026-11.org.example:replay";
/// Nothing stays in memory.
const COLD: &str = "cache_index_and_filter_blocks=true;block_cache=1024";
const SAMPLE: &[u8] = include_bytes!("../../../tests/files/requests.csv");

struct World {
    directory: tempfile::TempDir,
    _running: Running,
    connection: Connection,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let target = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]);
        let target = target.export(ExportSpec::new("data", directory.path()));
        let running = target.build().and_then(Target::start).expect("started");
        let url = format!("nvme-tcp://{}/{NQN}", running.handle().local_addresses()[0]);
        let connection =
            Connection::connect(&url.parse().expect("a URL"), &ConnectOptions::default()).expect("connected");
        Self { directory, _running: running, connection }
    }

    /// Filled as the trace expects it, and opened again, so that nothing of it is in memory.
    fn filled(&self, trace: &Trace, plan: &Plan) -> Reads {
        let path = self.directory.path().join("db");
        let options = format!("create_if_missing=true;compression=kNoCompression;block_based_table_factory={{{COLD}}}");
        fill(&Database::open(&path, &options).expect("it opens"), trace).expect("filled");
        let database = Database::open(&path, &options).expect("it opens");
        let store = Store::over(&self.connection, b"data/db".to_vec()).expect("a store");
        Reads::new(Arc::new(database), store, plan.options())
    }
}

fn plan(mode: Option<Mode>, threads: u64) -> Plan {
    let none = Duration::ZERO;
    Plan {
        mode,
        values_bytes: 0,
        cache_bytes: 0,
        index_in_memory: false,
        table: String::new(),
        threads,
        batch: 1,
        warm: none,
        time: none,
        sampled: 0,
        spin: none,
    }
}

fn sample() -> Trace {
    Trace::read(SAMPLE, u64::MAX, false).expect("the sample")
}

/// Each thread makes its requests so many times; returns how many reads had to find nothing.
fn replay(trace: &Trace, plan: &Plan, reads: &Reads, passes: usize) -> Result<u64, Failure> {
    let lens = Lens::of(trace);
    let mut workers = Worker::all(plan, trace, reads, &lens);
    for worker in &mut workers {
        for _ in 0..passes * worker.requests.len() {
            worker.operation()?;
        }
    }
    assert_eq!(workers.iter().map(|worker| worker.made).sum::<u64>(), (passes * trace.requests.len()) as u64);
    Ok(workers.iter().map(|worker| worker.not_there).sum())
}

#[test]
fn a_trace_leaves_what_its_requests_wrote() {
    for (mode, threads) in [(None, 1), (Some(Mode::Auto), 3), (Some(Mode::Server), 1), (Some(Mode::Server), 20)] {
        let (world, trace, plan) = (World::new(), sample(), plan(mode, threads));
        let reads = world.filled(&trace, &plan);
        // Two reads of the sample find nothing.
        assert_eq!(replay(&trace, &plan, &reads, 1).expect("every read is right"), 2);
        let len = |name: &[u8]| {
            let key = trace.keys.iter().find(|key| key.bytes.starts_with(name)).expect("a key");
            let found = reads.database().get(&key.bytes).expect("read")?;
            assert_eq!(found, value(key, found.len() as u32));
            Some(found.len())
        };
        let names: [&[u8]; 9] = [b"nz", b"fresh", b"q", b"gone", b"count", b"log", b"never", b"empty", b"one"];
        let expected = [Some(99), Some(120), Some(310), None, Some(8), Some(52), None, Some(0), Some(77)];
        assert_eq!(names.map(len), expected, "{mode:?}");
        let counters = reads.counters();
        assert!(mode != Some(Mode::Server) || counters.at_server > 0, "{counters:?}");
        assert!(mode.is_some() || counters == Counters::default(), "{counters:?}");
    }
}

#[test]
fn a_trace_begins_again_behind_its_last_request() {
    let (world, trace, plan) = (World::new(), sample(), plan(Some(Mode::Server), 2));
    let reads = world.filled(&trace, &plan);
    // With the values as the first pass has left them, 2 reads find nothing again: `gone` is deleted at the end.
    assert_eq!(replay(&trace, &plan, &reads, 3).expect("every read is right"), 6);
}

#[test]
fn a_wrong_value_is_found() {
    for mode in [None, Some(Mode::Server)] {
        let (world, trace, plan) = (World::new(), sample(), plan(mode, 2));
        let reads = world.filled(&trace, &plan);
        let key = trace.keys.iter().find(|key| key.bytes.starts_with(b"one")).expect("a key");
        // One of another length, as if a write had been lost.
        reads.database().put(&key.bytes, &value(key, 76)).expect("written");
        reads.database().flush().expect("flushed");
        let error = replay(&trace, &plan, &reads, 1).expect_err("it is wrong").to_string();
        assert!(error.starts_with("key `one:5Tq") && error.ends_with("has another value"), "{error}");
    }
}

#[test]
fn a_synthetic_trace_is_replayed_at_the_server() {
    let mut text = Vec::new();
    cluster19::make(500, 19, &mut text).expect("it is made");
    let trace = Trace::read(&text[..], u64::MAX, false).expect("it is read");
    let (world, plan) = (World::new(), plan(Some(Mode::Server), 4));
    let reads = world.filled(&trace, &plan);
    assert_eq!(replay(&trace, &plan, &reads, 1).expect("every read is right"), 0);
    let counters = reads.counters();
    assert!(counters.at_server > 200 && counters.fallbacks.is_empty(), "{counters:?}");
}
