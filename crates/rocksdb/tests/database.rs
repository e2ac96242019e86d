//! A database of RocksDB beside its own tables at a server: the same answers, whatever is written meanwhile.

use diskside::host::{ConnectOptions, Connection};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside_rocksdb::database::InMemory;
use diskside_rocksdb::{Database, Options, Reads, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.org.example:rocksdb";
/// Nothing stays in memory: indexes and filters are in a cache that has room for nothing.
const COLD: &str = "cache_index_and_filter_blocks=true;block_cache=1024";

/// Of the last level alike; a dictionary comes with compactions.
const COMPRESSIONS: [&str; 6] = [
    "compression=kNoCompression",
    "compression=kSnappyCompression",
    "compression=kLZ4Compression",
    "compression=kZSTD",
    "compression=kLZ4Compression;compression_opts={max_dict_bytes=4096;enabled=true}",
    "compression=kZSTD;compression_opts={max_dict_bytes=4096;zstd_max_train_bytes=65536;enabled=true}",
];

/// A database in an export of a server of this process.
struct World {
    directory: tempfile::TempDir,
    running: Option<Running>,
    connection: Connection,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let target = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]);
        let target = target.export(ExportSpec::new("data", directory.path()));
        let running = target.build().and_then(Target::start).expect("started");
        let url = format!("nvme-tcp://{}/{NQN}", running.handle().local_addresses()[0]);
        let connection = Connection::connect(&url.parse().expect("a URL"), &impatient()).expect("connected");
        Self { directory, running: Some(running), connection }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    /// Opens the database anew, so that nothing of it is in memory.
    fn open(&self, options: &str, table: &str, reads: Options) -> Reads {
        let database = open(&self.path(), options, table);
        let store = Store::over(&self.connection, b"data/db".to_vec()).expect("a store");
        Reads::new(Arc::new(database), store, reads)
    }
}

fn open(path: &Path, options: &str, table: &str) -> Database {
    let joined = |parts: &[&str]| parts.iter().copied().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(";");
    let table = format!("block_based_table_factory={{{}}}", joined(&[table, COLD]));
    let options = joined(&["create_if_missing=true;compression=kNoCompression", options, &table]);
    Database::open(path, &options).expect("it opens")
}

fn impatient() -> ConnectOptions {
    ConnectOptions { loss_timeout: Duration::from_secs(1), ..ConnectOptions::default() }
}

fn never_sampled() -> Options {
    let mut options = Options::default();
    (options.sampled, options.fill) = (0, false);
    options
}

fn key(number: u64) -> Vec<u8> {
    format!("user{number:08}").into_bytes()
}

#[test]
fn tables_of_every_format_are_read_at_the_server() {
    let mut dice = fastrand::Rng::with_seed(7);
    let mut pick = |from: &[&'static str]| from[dice.usize(..from.len())];
    for round in 0..12 {
        let table = [
            pick(&["format_version=2", "format_version=3", "format_version=4", "format_version=5"]),
            pick(&["checksum=kCRC32c", "checksum=kXXH3"]),
            pick(&[
                "index_type=kBinarySearch",
                "index_type=kTwoLevelIndexSearch",
                "index_type=kBinarySearchWithFirstKey",
            ]),
            pick(&["block_size=256", "block_size=4096", "block_size=16384"]),
            pick(&["block_restart_interval=1", "block_restart_interval=16"]),
            pick(&["index_block_restart_interval=1", "index_block_restart_interval=8"]),
            pick(&["metadata_block_size=256", "metadata_block_size=4096"]),
            pick(&["data_block_index_type=kDataBlockBinarySearch", "data_block_index_type=kDataBlockBinaryAndHash"]),
            pick(&["filter_policy=nullptr", "filter_policy=bloomfilter:10:false"]),
        ];
        let compression = COMPRESSIONS[round % COMPRESSIONS.len()];
        let (world, table) = (World::new(), table.join(";"));
        let value = |number: u64, version: u64| {
            format!("{number} {version} {}", "x".repeat(number as usize % 300)).into_bytes()
        };
        {
            let options = format!("level0_file_num_compaction_trigger=4;{compression}");
            let database = open(&world.path(), &options, &table);
            for version in 0..4 {
                for number in (version..1500).step_by(1 + version as usize) {
                    database.put(&key(number), &value(number, version)).expect("written");
                }
                (0..1500).step_by(11).for_each(|number| database.delete(&key(number + version)).expect("deleted"));
                database.flush().expect("flushed");
            }
            if round % 2 == 0 {
                database.compact();
            }
        }
        let reads = world.open("disable_auto_compactions=true", &table, never_sampled());
        let mut keys = Vec::new();
        for number in (0..1600).step_by(7) {
            let plain = reads.database().get(&key(number)).expect("read");
            assert_eq!(reads.get(&key(number)).expect("read"), plain, "{table};{compression}: key {number}");
            keys.push((key(number), plain));
        }
        for keys in keys.chunks(64) {
            let found = reads.multi_get(&keys.iter().map(|(key, _)| key).collect::<Vec<_>>()).expect("read");
            assert!(found.iter().eq(keys.iter().map(|(_, value)| value)), "{table}");
        }
        let counters = reads.counters();
        assert!(counters.fallbacks.is_empty() && counters.at_server > 200, "{table};{compression}: {counters:?}");
    }
}

#[test]
fn what_the_server_cannot_decide_rocksdb_reads() {
    let world = World::new();
    let fill = |options: &str| {
        let database = open(&world.path(), options, "format_version=5");
        (0..500_u64).for_each(|number| database.put(&key(number), &number.to_le_bytes()).expect("written"));
        database.flush().expect("flushed");
    };
    let all_right = |reads: &Reads, reason: &str| {
        for number in (0..510_u64).step_by(7) {
            let expected = (number < 500).then(|| number.to_le_bytes().to_vec());
            assert_eq!(reads.get(&key(number)).expect("read"), expected);
        }
        let counters = reads.counters();
        assert!(counters.fallbacks.contains_key(reason), "{counters:?}");
    };
    fill("compression=kZlibCompression");
    all_right(&world.open("", "", never_sampled()), "compression");

    // A merge in memory whose base is cold looks like a key that is cold altogether.
    let world = World::new();
    {
        let database = open(&world.path(), "merge_operator=uint64add", "");
        (0..500_u64).for_each(|number| database.put(&key(number), &number.to_le_bytes()).expect("written"));
        database.flush().expect("flushed");
    }
    let reads = world.open("merge_operator=uint64add", "", never_sampled());
    reads.database().merge(&key(3), &5_u64.to_le_bytes()).expect("merged");
    assert_eq!(reads.get(&key(3)).expect("read"), Some(8_u64.to_le_bytes().to_vec()));
    assert_eq!(reads.counters().fallbacks.get("merge-in-memory"), Some(&1));
    assert_eq!(reads.get(&key(4)).expect("read"), Some(4_u64.to_le_bytes().to_vec()));
    // The same once it is in a table.
    reads.database().flush().expect("flushed");
    assert_eq!(reads.get(&key(3)).expect("read"), Some(8_u64.to_le_bytes().to_vec()));
    let counters = reads.counters();
    assert_eq!((counters.fallbacks.get("merge"), counters.at_server), (Some(&1), 1), "{counters:?}");
}

/// rocksdb 7.8 says of a table that is not open that the value is there and empty (`TableCache::Get` with `kBlockCacheTier`):
/// with fewer open files than tables nearly every value was empty.
#[test]
fn values_of_tables_that_are_not_open_are_not_taken_for_empty() {
    let world = World::new();
    {
        let database = open(&world.path(), "disable_auto_compactions=true", "");
        for number in 0..40 {
            database.put(&key(number), if number % 8 == 0 { b"" } else { b"something" }).expect("written");
            database.flush().expect("flushed");
        }
    }
    let reads = world.open(
        "disable_auto_compactions=true;max_open_files=10;skip_stats_update_on_db_open=true",
        "",
        never_sampled(),
    );
    for number in 0..40 {
        let expected: &[u8] = if number % 8 == 0 { b"" } else { b"something" };
        assert_eq!(reads.get(&key(number)).expect("read").as_deref(), Some(expected), "key {number}");
    }
}

/// rocksdb 7.8 reads parts of an index of two levels although files are forbidden: each read at the server cost a second round trip.
#[test]
fn what_is_in_memory_is_asked_without_reading_a_file() {
    // By this thread, from whatever memory: it asks itself for less than 200 of them.
    let bytes_read = || -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").expect("this thread's counters");
        let count = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        count.expect("a counter of reads").parse().expect("a number")
    };
    let world = World::new();
    let table = "index_type=kTwoLevelIndexSearch;metadata_block_size=256;block_size=256";
    {
        let database = open(&world.path(), "", table);
        (0..500).for_each(|number| database.put(&key(number), &[7; 100]).expect("written"));
        database.flush().expect("flushed");
    }
    let reads = world.open("", table, never_sampled());
    let before = bytes_read();
    for number in (0..500).step_by(50) {
        assert_eq!(reads.database().get_in_memory(&key(number)).expect("asked"), InMemory::Unknown);
    }
    let asked = bytes_read() - before;
    assert!(asked < 200, "{asked} bytes");
    reads.database().get(&key(0)).expect("read");
    assert!(bytes_read() - before > asked + 400, "what is read of a file is counted");
    assert_eq!(reads.get(&key(3)).expect("read"), Some(vec![7; 100]));
    assert_eq!(reads.counters().at_server, 1);
}

/// A server that is gone costs time once, and no answer.
#[test]
fn without_the_server_rocksdb_reads() {
    let mut world = World::new();
    {
        let database = open(&world.path(), "", "");
        (0..500_u64).for_each(|number| database.put(&key(number), &number.to_le_bytes()).expect("written"));
        database.flush().expect("flushed");
    }
    let reads = world.open("", "", never_sampled());
    let expected = |number: u64| Some(number.to_le_bytes().to_vec());
    assert_eq!(reads.get(&key(3)).expect("read"), expected(3));
    assert_eq!(reads.counters().at_server, 1);
    drop(world.running.take());
    let started = Instant::now();
    for number in 0..300 {
        assert_eq!(reads.get(&key(number)).expect("read"), expected(number));
    }
    let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
    assert!(reads.multi_get(&keys).expect("read").into_iter().eq((0..100).map(expected)));
    let counters = reads.counters();
    println!("{:?} without the server", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}: {counters:?}", started.elapsed());
    assert_eq!((counters.at_server, counters.fallbacks.values().sum::<u64>()), (1, 400), "{counters:?}");
}

/// Puts and deletes with flushes and compactions all the time, and readers who know between which two versions of a key the one
/// that they read has to be.
#[test]
fn no_answer_is_older_than_the_read_or_from_the_future() {
    stress("level0_file_num_compaction_trigger=2");
}

/// With fewer open files than tables RocksDB says of many keys that they are there and empty. What it says to a second question
/// counts then, and not the emptiness: the key may have been deleted in between.
#[test]
fn nor_with_more_tables_than_open_files() {
    stress("level0_file_num_compaction_trigger=12;max_open_files=20;target_file_size_base=8192");
}

fn stress(how: &str) {
    const KEYS: u64 = 2000;
    const READERS: u64 = 2;
    let world = World::new();
    let options = format!(
        "write_buffer_size=65536;target_file_size_base=65536;max_bytes_for_level_base=131072;level0_stop_writes_trigger=24;{how}"
    );
    let reads = world.open(&options, "block_size=1024;format_version=5", Options::default());
    // begun: the newest version whose write has begun; done: whose write has ended.
    let [begun, done]: [Vec<AtomicU64>; 2] = std::array::from_fn(|_| (0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let (stop, until) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(3));
    let (begun, done, reads, stop) = (&begun, &done, &reads, &stop);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (mut checked, mut written) = (0, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut dice = fastrand::Rng::with_seed(1);
            let mut written = 0_u64;
            let _stop = Stop(stop);
            while Instant::now() < until && !stop.load(Ordering::SeqCst) {
                let number = dice.u64(..KEYS);
                let version = begun[number as usize].load(Ordering::SeqCst) + 1;
                begun[number as usize].store(version, Ordering::SeqCst);
                // Every fourth version is a deletion.
                if version % 4 == 0 {
                    reads.database().delete(&key(number)).expect("deleted");
                } else {
                    let value = [&version.to_le_bytes()[..], &vec![b'x'; dice.usize(..150)]].concat();
                    reads.database().put(&key(number), &value).expect("written");
                }
                done[number as usize].store(version, Ordering::SeqCst);
                written += 1;
                if written.is_multiple_of(5000) {
                    reads.database().flush().expect("flushed");
                }
            }
            written
        });
        let readers: Vec<_> = (0..READERS)
            .map(|seed| {
                scope.spawn(move || {
                    let mut dice = fastrand::Rng::with_seed(100 + seed);
                    let mut checked = 0_u64;
                    let _stop = Stop(stop);
                    while !stop.load(Ordering::SeqCst) {
                        let numbers: Vec<u64> =
                            (0..if dice.bool() { 1 } else { 8 }).map(|_| dice.u64(..KEYS)).collect();
                        let load = |of: &[AtomicU64]| {
                            numbers.iter().map(|n| of[*n as usize].load(Ordering::SeqCst)).collect::<Vec<_>>()
                        };
                        let low = load(done);
                        let found = match &numbers[..] {
                            [number] => vec![reads.get(&key(*number)).expect("read")],
                            numbers => {
                                reads.multi_get(&numbers.iter().map(|n| key(*n)).collect::<Vec<_>>()).expect("read")
                            }
                        };
                        let high = load(begun);
                        for (((number, low), high), value) in numbers.iter().zip(low).zip(high).zip(found) {
                            let version =
                                value.map(|value| u64::from_le_bytes(value[..8].try_into().expect("a version")));
                            let is_right = match version {
                                Some(version) => low <= version && version <= high && version % 4 != 0,
                                None => low == 0 || (low..=high).any(|version| version % 4 == 0),
                            };
                            assert!(is_right, "key {number}: {version:?} is not from {low} to {high}");
                            checked += 1;
                        }
                    }
                    checked
                })
            })
            .collect();
        written = writer.join().expect("the writer");
        checked = readers.into_iter().map(|reader| reader.join().expect("a reader")).sum();
    });
    let counters = reads.counters();
    println!("{written} writes, {checked} reads: {counters:?}");
    assert!(counters.at_server > 500, "{written} writes, {checked} reads: {counters:?}");
}
