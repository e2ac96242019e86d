//! Loads a database and reads it, as YCSB does: one cell of `bench/rocksdb/run`, as a line of JSON.
//!
//! `… --example ycsb -- load DIRECTORY --records=N --value=BYTES` fills a database.
//! `… -- run DIRECTORY URL --workload=a|b|c|d|f|u --mode=plain|auto|server --cache=BYTES
//! --values=BYTES --index=cached|memory --batch=N --threads=N
//! --warm=S --seconds=S --sampled=N` reads it; the volume at URL is the one that the directory is on. It says `warm` when it begins to measure.
//! Workloads are YCSB's: keys by its scrambled zipfian of 0.99, in D the latest ones; and U, which reads and updates in equal parts,
//! uniformly. With a batch, reads are of so many keys at
//! once. Each value that is read is checked. Reads of tables bypass this machine's page cache.

use diskside_rocksdb::{ConnectOptions, Database, Mode, Options, Reads, Store};
use hdrhistogram::Histogram;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The options of tables: RocksDB's own defaults, except that there is no compression and no blocks are in the page
/// cache.
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
                mode: match value("mode") {
                    Some("plain") | None => None,
                    Some("auto") => Some(Mode::Auto),
                    Some("server") => Some(Mode::Server),
                    Some(other) => return Err(format!("no mode {other}").into()),
                },
                values_bytes: number("values", 0)?,
                workload: Workload::of(value("workload").unwrap_or("c"))?,
                batch: number("batch", 1)?,
                cache_bytes: number("cache", 0)?,
                index_in_memory: value("index") == Some("memory"),
                table: value("table").unwrap_or_default().to_owned(),
                threads: number("threads", 1)?,
                warm_seconds: value("warm").unwrap_or("1").parse()?,
                seconds: value("seconds").unwrap_or("2").parse()?,
                sampled: number("sampled", 0)?,
                spin_us: number("spin", 100)?,
            };
            run(directory, arguments.get(2).ok_or("say the URL of the volume")?, &plan)
        }
        other => Err(format!("say load or run, not {other}").into()),
    }
}

struct Plan {
    records: u64,
    value_len: usize,
    /// `None`: RocksDB makes all reads.
    mode: Option<Mode>,
    values_bytes: u64,
    workload: Workload,
    batch: u64,
    cache_bytes: u64,
    index_in_memory: bool,
    table: String,
    threads: u64,
    warm_seconds: f64,
    seconds: f64,
    sampled: u64,
    spin_us: u64,
}

struct Workload {
    reads_of_100: u64,
    otherwise: Otherwise,
    is_uniform: bool,
}

/// What is done instead of a read.
enum Otherwise {
    Update,
    /// And reads are of the records that were inserted last.
    Insert,
    ReadModifyWrite,
}

impl Workload {
    fn of(name: &str) -> Result<Self, Failure> {
        let (reads_of_100, otherwise) = match name {
            "a" => (50, Otherwise::Update),
            "b" => (95, Otherwise::Update),
            "c" => (100, Otherwise::Update),
            "d" => (95, Otherwise::Insert),
            "f" => (50, Otherwise::ReadModifyWrite),
            "u" => (50, Otherwise::Update),
            other => return Err(format!("no workload {other}").into()),
        };
        Ok(Self { reads_of_100, otherwise, is_uniform: name == "u" })
    }
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
    let connect = ConnectOptions { spin: Duration::from_micros(plan.spin_us), ..ConnectOptions::default() };
    let store = Store::on_volume(directory, &url.parse()?, &connect)?;
    let mut options = Options::default();
    (options.mode, options.values_bytes) = (plan.mode.unwrap_or_default(), plan.values_bytes);
    options.sampled = plan.sampled;
    let reads = Reads::new(database, store, options);
    let (stop, inserted) = (AtomicBool::new(false), AtomicU64::new(0));
    let zipf = Zipfian::new(plan.records);
    // Tables are opened when they are first read.
    let warm = Duration::from_secs_f64(plan.warm_seconds);
    let totals: Result<Vec<_>, Failure> = std::thread::scope(|scope| {
        let (reads, stop, inserted, zipf) = (&reads, &stop, &inserted, &zipf);
        let threads: Vec<_> = (0..plan.threads)
            .map(|seed| scope.spawn(move || Worker { reads, plan, zipf, inserted }.work(seed, warm, stop)))
            .collect();
        std::thread::sleep(warm);
        println!("warm");
        std::thread::sleep(Duration::from_secs_f64(plan.seconds));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("a thread ends")).collect()
    });
    let mut latencies = Histogram::<u64>::new(3)?;
    totals?.iter().try_for_each(|one| latencies.add(one))?;
    let counters = reads.counters();
    let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    let found = json!({
        "per_s": latencies.len() as f64 / plan.seconds, "p50_us": us(0.5), "p99_us": us(0.99), "p999_us": us(0.999),
        "operations": latencies.len(), "in_memory": counters.in_memory, "at_server": counters.at_server,
        "plain": counters.plain, "sampled": counters.sampled, "fallbacks": counters.fallbacks,
        "mounted": reads.store().mounted_counters().map(ToString::to_string),
    });
    println!("{found}");
    Ok(())
}

struct Worker<'a> {
    reads: &'a Reads,
    plan: &'a Plan,
    zipf: &'a Zipfian,
    /// Records behind those that were loaded.
    inserted: &'a AtomicU64,
}

impl Worker<'_> {
    fn work(&self, seed: u64, warm: Duration, stop: &AtomicBool) -> Result<Histogram<u64>, Failure> {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut latencies = Histogram::new(3)?;
        let begun = Instant::now();
        // What there is room for is there before anything is measured.
        if self.plan.cache_bytes > 2 * self.plan.records * self.plan.value_len as u64 {
            for number in (seed..self.plan.records).step_by(self.plan.threads as usize) {
                self.reads.database().get(&key(number))?;
            }
        }
        while !stop.load(Ordering::Relaxed) {
            let started = Instant::now();
            self.operation(&mut dice)?;
            if started - begun >= warm {
                latencies.record(started.elapsed().as_nanos() as u64)?;
            }
        }
        Ok(latencies)
    }

    fn operation(&self, dice: &mut fastrand::Rng) -> Result<(), Failure> {
        let workload = &self.plan.workload;
        if dice.u64(..100) < workload.reads_of_100 {
            return self.read(&(0..self.plan.batch).map(|_| self.choose(dice)).collect::<Vec<_>>());
        }
        let number = match workload.otherwise {
            Otherwise::Update => self.choose(dice),
            Otherwise::Insert => {
                // Two threads may insert the same one; none is chosen before it is there.
                let number = self.plan.records + self.inserted.load(Ordering::SeqCst);
                self.reads.database().put(&key(number), &contents(number, self.plan.value_len))?;
                self.inserted.fetch_max(number + 1 - self.plan.records, Ordering::SeqCst);
                return Ok(());
            }
            Otherwise::ReadModifyWrite => {
                let number = self.choose(dice);
                self.read(&[number])?;
                number
            }
        };
        Ok(self.reads.database().put(&key(number), &contents(number, self.plan.value_len))?)
    }

    fn choose(&self, dice: &mut fastrand::Rng) -> u64 {
        if self.plan.workload.is_uniform {
            return dice.u64(..self.plan.records);
        }
        let rank = self.zipf.next(dice);
        match self.plan.workload.otherwise {
            Otherwise::Insert => {
                let last = self.plan.records + self.inserted.load(Ordering::SeqCst) - 1;
                last.saturating_sub(rank)
            }
            _ => scrambled(rank) % self.plan.records,
        }
    }

    fn read(&self, numbers: &[u64]) -> Result<(), Failure> {
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
        let found = match (&keys[..], self.plan.mode.is_some()) {
            ([key], true) => vec![self.reads.get(key)?],
            ([key], false) => vec![self.reads.database().get(key)?],
            (keys, true) => self.reads.multi_get(keys)?,
            (keys, false) => self.reads.database().multi_get(keys)?,
        };
        for (number, value) in numbers.iter().zip(found) {
            if value.as_deref() != Some(&contents(*number, self.plan.value_len)[..]) {
                return Err(format!("key {number} has another value").into());
            }
        }
        Ok(())
    }
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

/// YCSB's zipfian: rank k is chosen with a frequency of k^-0.99.
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
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(Self::THETA) {
            1
        } else {
            (self.items as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - Self::THETA))) as u64
        }
    }
}
