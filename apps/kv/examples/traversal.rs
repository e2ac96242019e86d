//! Measures lookups of a store: one cell of `bench/traversal/run`, as a line of JSON.
//!
//! `cargo run --release -p diskside-kv --example traversal -- step` times steps of a traversal in memory.
//! `… -- cell URL OPTION…` times one operation on a volume over one connection that this thread turns:
//! `--mode=plain|pushdown --operation=get|multi:N|range:N|sum:N|ycsb:WORKLOAD --depth=N --cache=LEVELS --seconds=S
//! --sampling=PERCENT|adaptive --rate=N`. Operations choose keys at random, and every answer is checked, except those
//! of a workload of YCSB, where others write. With a rate, operations of a workload start by the clock.

use diskside::host::{ConnectOptions, InlineVolume, Url};
use diskside::traverse::{MemoryList, TraverseLimits, TraverseRequest};
use diskside::{Engine, TierChoice, helpers, library};
use diskside_kv::create::{Creation, Keys};
use diskside_kv::drive::{Alarm, Tasks};
use diskside_kv::format::{counting_value, number};
use diskside_kv::port::Inline;
use diskside_kv::pushdown::{Function, RangeRequest, SUM_SCRATCH_LEN, range_scratch_len};
use diskside_kv::remote::RemotePushdown;
use diskside_kv::ycsb::{self, Plan, Workload};
use diskside_kv::{Mode, Options, Pushdown, Sampling, Store};
use hdrhistogram::Histogram;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("step") => step(),
        Some("cell") => cell(&arguments[1..]),
        _ => Err("say step or cell; see the head of this file".into()),
    }
}

/// The time of one step of `kv_get` over memory, beside the same search in native code.
fn step() -> Result<(), Failure> {
    const KEYS: u64 = 29_791;
    let mut bytes = Vec::new();
    Creation::new(Keys::Counting(KEYS)).write(&mut bytes)?;
    let engine = Engine::new(helpers());
    let object = library::object("kv_get")?;
    let function = engine.load_traversal(&object.bytes, Some("kv_get"))?;
    let mut traversal = engine.traversal(&function, TierChoice::Best, TraverseLimits::default())?;
    let (files, lens): (&[&[u8]], _) = (&[&bytes], [bytes.len() as u64]);
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        const LOOKUPS: u64 = 20_000;
        let (mut dice, mut hops) = (fastrand::Rng::with_seed(1), 0);
        let started = Instant::now();
        for _ in 0..LOOKUPS {
            let mut input = [0; 16];
            let key = dice.u64(0..KEYS);
            input[..8].copy_from_slice(&key.to_le_bytes());
            let request = TraverseRequest { first: &[], files: &lens, input: &input, scratch_cap: 64, deadline: None };
            let value = traversal.run(&request, &mut MemoryList(files))?;
            assert_eq!(value, counting_value(key), "the value of {key}");
            hops += traversal.hops();
        }
        best = best.min(started.elapsed().as_nanos() as f64 / f64::from(hops));
    }
    println!("{}", json!({ "step_ns": best, "hops": 5 }));
    Ok(())
}

/// What a cell does.
#[derive(Clone, Copy)]
enum Operation {
    Get,
    MultiGet(u64),
    Range(u64),
    Sum(u64),
    Ycsb(Workload),
}

/// How operations are run.
#[derive(Clone, Copy)]
struct Load {
    operation: Operation,
    /// The keys are 0 to this.
    keys: u64,
    depth: usize,
    rate: Option<f64>,
}

fn cell(arguments: &[String]) -> Result<(), Failure> {
    let url: Url = arguments.first().ok_or("say the URL of a volume")?.parse()?;
    let value = |name: &str| arguments.iter().find_map(|a| a.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='));
    let depth: usize = value("depth").unwrap_or("32").parse()?;
    let seconds: f64 = value("seconds").unwrap_or("2").parse()?;
    let operation = operation(value("operation").unwrap_or("get"))?;
    let mode = match value("mode").unwrap_or("pushdown") {
        "plain" => Mode::Async,
        "pushdown" => Mode::Pushdown,
        other => return Err(format!("no mode {other}").into()),
    };
    let rate = value("rate").map(str::parse).transpose()?;
    let sampling = match value("sampling") {
        None | Some("0") => Sampling::Off,
        Some("adaptive") => Sampling::Adaptive,
        Some(percent) => Sampling::Fixed(percent.parse::<f64>()? / 100.0),
    };
    let cache_levels = value("cache").unwrap_or("0").parse()?;
    let options = Options { mode, cache_levels, sampling, ..Options::default() };
    let connect = ConnectOptions { queue_depth: 512, ..ConnectOptions::default() };
    let inline = Rc::new(Inline(RefCell::new(InlineVolume::connect(&url, &connect)?)));
    let pushdown: Option<Box<dyn Pushdown>> = match mode {
        Mode::Pushdown => Some(Box::new(prepared(&inline, operation)?.by(Rc::clone(&inline)))),
        Mode::Plain | Mode::Async => None,
    };
    let store = Store::open(Box::new(Rc::clone(&inline)), pushdown, &options)?;
    let keys = store.block_on(store.last_key())? + 1;
    let load = Load { operation, keys, depth, rate };
    // What is slow the first time is not what is measured.
    measure(&store, load, Duration::from_millis(100))?;
    let before = inline.0.borrow().volume().connection().stats();
    let (counted, used) = (store.counters(), processor_time());
    let (latencies, elapsed) = measure(&store, load, Duration::from_secs_f64(seconds))?;
    let (used, now) = (processor_time() - used, store.counters());
    let after = inline.0.borrow().volume().connection().stats();
    let count = latencies.len() as f64;
    let per = |total: u64| total as f64 / count;
    let (reads, pushed) = (now.reads - counted.reads, now.pushed - counted.pushed);
    let data = (after.read_bytes - before.read_bytes) + (after.written_bytes - before.written_bytes);
    let commands = after.commands - before.commands;
    println!(
        "{}",
        json!({
            "operations": latencies.len(),
            "operations_per_s": count / elapsed.as_secs_f64(),
            "p50_us": latencies.value_at_quantile(0.5) as f64 / 1e3,
            "p99_us": latencies.value_at_quantile(0.99) as f64 / 1e3,
            "round_trips": per(reads + pushed),
            "commands": per(commands),
            "data_bytes": per(data),
            "host_cpu_us": used.as_secs_f64() * 1e6 / count,
            "sampled": per(now.sampled - counted.sampled),
            "cached_nodes": per(now.cached_nodes - counted.cached_nodes),
        })
    );
    Ok(())
}

fn operation(text: &str) -> Result<Operation, Failure> {
    let (name, count) = text.split_once(':').unwrap_or((text, "32"));
    if name == "ycsb" {
        return Workload::from_name(count).map(Operation::Ycsb).ok_or_else(|| format!("no workload {count}").into());
    }
    let count = count.parse()?;
    Ok(match name {
        "get" => Operation::Get,
        "multi" => Operation::MultiGet(count),
        "range" => Operation::Range(count),
        "sum" => Operation::Sum(count),
        other => return Err(format!("no operation {other}").into()),
    })
}

/// Prepares what the operation needs, while this thread turns the queue.
fn prepared(inline: &Inline, operation: Operation) -> Result<RemotePushdown, Failure> {
    let volume = inline.0.borrow().volume().clone();
    let helper = std::thread::spawn(move || {
        let mut pushdown = RemotePushdown::new(volume.connection(), volume.nsid())?;
        let request = |limit| RangeRequest { first: 0, start: 0, last: u64::MAX, limit, leaf_end: 0 };
        match operation {
            Operation::Range(n) => pushdown.prepare(Function::Range, request(n).as_bytes(), range_scratch_len(n))?,
            Operation::Sum(n) => pushdown.prepare(Function::Sum, request(n).as_bytes(), SUM_SCRATCH_LEN)?,
            Operation::Get | Operation::MultiGet(_) | Operation::Ycsb(_) => {}
        }
        Ok::<_, diskside_kv::KvError>(pushdown)
    });
    while !helper.is_finished() {
        inline.0.borrow_mut().wait(Some(Duration::from_millis(1)));
    }
    Ok(helper.join().map_err(|_| "preparing panicked")??)
}

/// Runs operations for a while, `depth` at a time.
fn measure(store: &Store, load: Load, time: Duration) -> Result<(Histogram<u64>, Duration), Failure> {
    let Load { operation, keys, depth, rate } = load;
    if let Operation::Ycsb(workload) = operation {
        let plan = Plan { clients: depth, rate, duration: time, ..Plan::new(workload, keys) };
        let report = ycsb::run(store, store.port(), &plan)?;
        if report.missing > 0 {
            return Err(format!("{} keys were not found", report.missing).into());
        }
        return Ok((report.all(), report.elapsed));
    }
    let latencies = RefCell::new(ycsb::histogram());
    let failed = Cell::new(None);
    let started = Instant::now();
    let mut tasks = Tasks::new(store.port());
    for seed in 0..depth as u64 {
        let (latencies, failed) = (&latencies, &failed);
        tasks.spawn(async move {
            let mut dice = fastrand::Rng::with_seed(seed);
            loop {
                let begun = Instant::now();
                if begun - started >= time {
                    return;
                }
                if let Err(error) = operate(store, operation, keys, &mut dice).await {
                    return failed.set(Some(error));
                }
                latencies.borrow_mut().saturating_record(begun.elapsed().as_nanos() as u64);
            }
        });
    }
    tasks.run(store.port(), &Alarm::default());
    let elapsed = started.elapsed();
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok((latencies.into_inner(), elapsed)),
    }
}

async fn operate(store: &Store, operation: Operation, keys: u64, dice: &mut fastrand::Rng) -> Result<(), Failure> {
    let right = match operation {
        Operation::Get => {
            let key = dice.u64(0..keys);
            // Writing the expected text would take longer than the lookup.
            store.get(key).await?.is_some_and(|value| number(&value) == key)
        }
        Operation::MultiGet(n) => {
            let wanted: Vec<u64> = (0..n).map(|_| dice.u64(0..keys)).collect();
            let got = store.multi_get(&wanted).await?;
            wanted.iter().zip(got).all(|(key, value)| value.is_some_and(|value| number(&value) == *key))
        }
        Operation::Range(n) => {
            let first = dice.u64(0..keys - n);
            let pairs = store.range(first, u64::MAX, n).await?;
            let right = |(i, pair): (u64, &(u64, [u8; 64]))| pair.0 == first + i && number(&pair.1) == pair.0;
            pairs.len() as u64 == n && (0..).zip(&pairs).all(right)
        }
        Operation::Ycsb(_) => unreachable!("a workload chooses its own operations"),
        Operation::Sum(n) => {
            let first = dice.u64(0..keys - n);
            store.sum(first, u64::MAX, n).await? == (n, n * first + n * (n - 1) / 2)
        }
    };
    if right { Ok(()) } else { Err("a wrong answer".into()) }
}

/// Of this process: the host.
fn processor_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}
