//! Loads a database and reads it, as YCSB does: one cell of `bench/rocksdb/run`, as a line of JSON.
//!
//! `… --example ycsb -- load DIRECTORY --records=N --value=BYTES` fills a database.
//! `… -- run DIRECTORY URL --workload=c|b --mode=plain|pushed --cache=BYTES --index=cached|memory --threads=N --seconds=S --sampled=N`
//! reads it; the volume at URL is the one that the directory is on. Keys are chosen by YCSB's scrambled zipfian of 0.99.
//! Values of the first version are checked. Reads of tables bypass this machine's page cache.

use diskside_rocksdb::{Database, Options, Reads, Store};
use hdrhistogram::Histogram;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Of tables: what RocksDB's own defaults are, but for compression, and no blocks in the page cache.
const TABLES: &str = "compression=kNoCompression;use_direct_reads=true;use_direct_io_for_flush_and_compaction=true;\
                      target_file_size_base=16777216;write_buffer_size=16777216;max_bytes_for_level_base=67108864;\
                      level_compaction_dynamic_level_bytes=false";

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| arguments.iter().find_map(|a| a.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, usual: u64| value(name).map_or(Ok(usual), str::parse);
    let directory = Path::new(arguments.get(1).ok_or("say load or run, and a directory")?);
    let (records, value_len) = (number("records", 200_000)?, number("value", 400)? as usize);
    match arguments[0].as_str() {
        "load" => load(directory, records, value_len, value("table").unwrap_or_default()),
        "run" => {
            let plan = Plan {
                records,
                value_len,
                pushed: value("mode") == Some("pushed"),
                reads_of_100: match value("workload").unwrap_or("c") {
                    "c" => 100,
                    "b" => 95,
                    "a" => 50,
                    other => return Err(format!("no workload {other}").into()),
                },
                cache_bytes: number("cache", 0)?,
                index_in_memory: value("index") == Some("memory"),
                table: value("table").unwrap_or_default().to_owned(),
                threads: number("threads", 1)?,
                seconds: value("seconds").unwrap_or("2").parse()?,
                sampled: number("sampled", 0)?,
            };
            run(directory, arguments.get(2).ok_or("say the URL of the volume")?, &plan)
        }
        other => Err(format!("say load or run, not {other}").into()),
    }
}

struct Plan {
    records: u64,
    value_len: usize,
    pushed: bool,
    reads_of_100: u64,
    cache_bytes: u64,
    index_in_memory: bool,
    table: String,
    threads: u64,
    seconds: f64,
    sampled: u64,
}

fn load(directory: &Path, records: u64, value_len: usize, table: &str) -> Result<(), Failure> {
    let options = format!("{TABLES};create_if_missing=true;block_based_table_factory={{{table}}}");
    let database = Database::open(directory, &options)?;
    // In an order that spreads the keys over all tables, as a store that was used for a while has them.
    let mut order: Vec<u64> = (0..records).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    for number in order {
        database.put(&key(number), &contents(number, value_len))?;
    }
    database.flush()?;
    database.compact();
    Ok(())
}

fn run(directory: &Path, url: &str, plan: &Plan) -> Result<(), Failure> {
    let cached = !plan.index_in_memory;
    let options = format!(
        "{TABLES};max_open_files=-1;block_based_table_factory={{{};cache_index_and_filter_blocks={cached};block_cache={}}}",
        plan.table,
        plan.cache_bytes.max(1024)
    );
    let database = Arc::new(Database::open(directory, &options)?);
    let store = Store::on_volume(directory, &url.parse()?)?;
    let mut options = Options::default();
    options.sampled = plan.sampled;
    let reads = Reads::new(database, store, options);
    let (stop, checked) = (AtomicBool::new(false), AtomicU64::new(0));
    let zipf = Zipfian::new(plan.records);
    // Tables are opened when they are first read.
    let warm = Duration::from_secs_f64(0.5 + plan.seconds / 4.0);
    let totals: Result<Vec<_>, Failure> = std::thread::scope(|scope| {
        let (reads, stop, checked, zipf) = (&reads, &stop, &checked, &zipf);
        let threads: Vec<_> = (0..plan.threads)
            .map(|seed| scope.spawn(move || work(reads, plan, zipf, seed, (warm, stop, checked))))
            .collect();
        std::thread::sleep(warm + Duration::from_secs_f64(plan.seconds));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("a thread ends")).collect()
    });
    let mut latencies = Histogram::<u64>::new(3)?;
    totals?.iter().try_for_each(|one| latencies.add(one))?;
    let counters = reads.counters();
    let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    let found = json!({
        "per_s": latencies.len() as f64 / plan.seconds, "p50_us": us(0.5), "p99_us": us(0.99), "p999_us": us(0.999),
        "checked": checked.load(Ordering::Relaxed), "in_memory": counters.in_memory, "at_server": counters.at_server,
        "sampled": counters.sampled, "fallbacks": counters.fallbacks,
        "mounted": reads.store().mounted_counters().map(ToString::to_string),
    });
    println!("{found}");
    Ok(())
}

fn work(
    reads: &Reads,
    plan: &Plan,
    zipf: &Zipfian,
    seed: u64,
    (warm, stop, checked): (Duration, &AtomicBool, &AtomicU64),
) -> Result<Histogram<u64>, Failure> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut latencies = Histogram::new(3)?;
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let number = zipf.next(&mut dice);
        let started = Instant::now();
        if dice.u64(..100) < plan.reads_of_100 {
            let key = key(number);
            let value = if plan.pushed { reads.get(&key)? } else { reads.database().get(&key)? };
            if value.as_deref() != Some(&contents(number, plan.value_len)[..]) {
                return Err(format!("key {number} has another value").into());
            }
            checked.fetch_add(1, Ordering::Relaxed);
        } else {
            reads.database().put(&key(number), &contents(number, plan.value_len))?;
        }
        if started - begun >= warm {
            latencies.record(started.elapsed().as_nanos() as u64)?;
        }
    }
    Ok(latencies)
}

fn key(number: u64) -> Vec<u8> {
    format!("user{:019}", scrambled(number)).into_bytes()
}

fn contents(number: u64, len: usize) -> Vec<u8> {
    let word = scrambled(number ^ 0x5bd1_e995).to_le_bytes();
    word.iter().copied().cycle().take(len).collect()
}

/// FNV-1a of 64 bits, by which YCSB scatters keys.
fn scrambled(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// YCSB's scrambled zipfian: the k-th most popular key is chosen with a frequency of k^-0.99, and popular keys are scattered.
struct Zipfian {
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    const THETA: f64 = 0.99;

    fn new(items: u64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(Self::THETA)).sum::<f64>();
        let zeta = zeta_of(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - Self::THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { items, zeta, eta }
    }

    /// The method of Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.
    fn next(&self, dice: &mut fastrand::Rng) -> u64 {
        let u = dice.f64();
        let uz = u * self.zeta;
        let rank = if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(Self::THETA) {
            1
        } else {
            (self.items as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - Self::THETA))) as u64
        };
        scrambled(rank) % self.items
    }
}
