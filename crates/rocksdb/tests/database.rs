//! A database of RocksDB beside its own tables at a server: the same answers, whatever is written meanwhile.

use diskside::host::{ConnectOptions, Connection};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside_rocksdb::database::InMemory;
use diskside_rocksdb::plan::TableFile;
use diskside_rocksdb::table::{Answer, LATEST};
use diskside_rocksdb::{Database, Mode, Options, Reads, Scope, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.org.example:rocksdb";
/// Nothing stays in memory: indexes and filters are in a cache that has room for nothing.
const COLD: &str = "cache_index_and_filter_blocks=true;block_cache=1024";

/// For the last level as well; a dictionary comes with compactions.
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

    /// Opens the database again, so that nothing of it is in memory.
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
    (options.mode, options.values_bytes, options.sampled) = (Mode::Server, 0, 0);
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

/// The value of a key was empty now and then where one thread opened tables while another asked what is in memory: `KeyMayExist`, the
/// second question, says "found" of a key whose index is not in memory.
#[test]
fn an_empty_value_is_never_taken_from_memory() {
    let world = World::new();
    let reads = world.open("", "", never_sampled());
    reads.database().put(b"empty", b"").expect("written");
    let in_memory = |reads: &Reads| reads.database().get_in_memory(&Scope::default(), b"empty");
    assert_eq!(in_memory(&reads), Ok(InMemory::Unknown));
    assert_eq!(reads.get(b"empty").expect("read"), Some(Vec::new()));
    reads.database().flush().expect("flushed");
    assert_eq!(in_memory(&reads), Ok(InMemory::Unknown));
    assert_eq!(reads.get(b"empty").expect("read"), Some(Vec::new()));
    let counters = reads.counters();
    assert_eq!((counters.at_server, counters.fallbacks.get("merge-in-memory")), (1, Some(&1)), "{counters:?}");
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
        assert_eq!(reads.database().get_in_memory(&Scope::default(), &key(number)).expect("asked"), InMemory::Unknown);
    }
    let asked = bytes_read() - before;
    assert!(asked < 200, "{asked} bytes");
    reads.database().get(&key(0)).expect("read");
    assert!(bytes_read() - before > asked + 400, "what is read of a file is counted");
    assert_eq!(reads.get(&key(3)).expect("read"), Some(vec![7; 100]));
    assert_eq!(reads.counters().at_server, 1);
}

#[test]
fn a_scan_has_the_keys_in_order() {
    let world = World::new();
    let reads = world.open("", "block_size=256", never_sampled());
    let database = reads.database();
    (0..100).step_by(2).for_each(|number| database.put(&key(number), &[number as u8; 50]).expect("written"));
    database.flush().expect("flushed");
    let then = database.snapshot();
    // One in memory between those in tables, one that is deleted, and an empty value.
    database.put(&key(11), b"new").expect("written");
    database.delete(&key(12)).expect("deleted");
    database.put(&key(14), b"").expect("written");
    let scan = |scope: &Scope<'_>, from, count| {
        let found = database.scan(scope, &key(from), count).expect("scanned");
        found.into_iter().map(|(key, value)| (key, value.len())).collect::<Vec<_>>()
    };
    let now = Scope::default();
    assert_eq!(scan(&now, 9, 4), [(key(10), 50), (key(11), 3), (key(14), 0), (key(16), 50)]);
    let before = Scope { family: None, snapshot: Some(&then) };
    assert_eq!(scan(&before, 9, 4), [(key(10), 50), (key(12), 50), (key(14), 50), (key(16), 50)]);
    assert_eq!(scan(&now, 96, 10), [(key(96), 50), (key(98), 50)]);
    assert_eq!((scan(&now, 99, 10), scan(&now, 0, 0)), (Vec::new(), Vec::new()));
}

/// A read that began before a compaction opened a table that was gone from the list: it stayed open at the server for ever. After
/// minutes of writes and reads 1024 were open, the limit of a server, and RocksDB made nearly all reads.
#[test]
fn a_table_that_a_late_read_opened_is_closed() {
    let world = World::new();
    let reads = world.open("disable_auto_compactions=true", "", never_sampled());
    let (database, scope) = (reads.database(), Scope::default());
    let rewrite = |value: &[u8]| {
        (0..100).for_each(|number| database.put(&key(number), value).expect("written"));
        database.flush().expect("flushed");
        database.compact();
        assert_eq!(reads.get(&key(3)).expect("read").as_deref(), Some(value));
    };
    rewrite(b"first");
    let (pin, plan) = (database.pin(&scope), database.plan(&scope).expect("tables"));
    rewrite(b"second");
    assert_eq!(reads.store().open_tables(), 1);
    let tables: Vec<&TableFile> = plan.tables().collect();
    let late = reads.store().get(&tables, LATEST, &key(3)).expect("the table is pinned");
    assert!(matches!(late, Answer::Found { value, .. } if value == b"first"));
    assert_eq!(reads.store().open_tables(), 2);
    drop(pin);
    rewrite(b"third");
    assert_eq!(reads.store().open_tables(), 1);
    assert!(reads.counters().fallbacks.is_empty(), "{:?}", reads.counters());
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

/// Puts, deletes, range deletions and merges with flushes, compactions, checkpoints and held deletions of files all the time, and
/// readers who know between which two versions of a key the one that they read has to be. `STRESS_SECONDS` makes it longer.
#[test]
fn no_answer_is_older_than_the_read_or_from_the_future() {
    stress("level0_file_num_compaction_trigger=2;compression=kLZ4Compression", Mode::Server);
}

/// A key that was written after a range around it was deleted, and that begins a table, was reported as deleted: the
/// table in front of it has the whole range, its last key by its metadata is this one, and only its sequence number
/// says that it ends before it.
#[test]
fn a_range_deletion_that_goes_on_in_the_next_table_hides_nothing_there() {
    const COUNT: u64 = 2000;
    let options = "target_file_size_base=8192;disable_auto_compactions=true";
    let world = World::new();
    let reads = world.open(options, "block_size=1024", never_sampled());
    let database = reads.database();
    let write = |what: &str| {
        let value = [what, &"x".repeat(40)].concat();
        (0..COUNT).for_each(|number| database.put(&key(number), value.as_bytes()).expect("written"));
    };
    write("old");
    // Without it the deletion would go, and the tables would be cut where they are.
    let snapshot = database.snapshot();
    database.delete_range(&key(0), &key(COUNT)).expect("deleted");
    let between = database.snapshot();
    write("new");
    database.flush().expect("flushed");
    database.compact();
    let tables = database.plan(&Scope::default()).expect("tables").tables().count() as u64;
    assert!(tables > 10, "{tables} tables");
    for number in 0..COUNT {
        for scope in [None, Some(&between), Some(&snapshot)].map(|snapshot| Scope { family: None, snapshot }) {
            let plain = database.get_in(&scope, &key(number)).expect("read");
            assert_eq!(reads.get_in(&scope, &key(number)).expect("read"), plain, "key {number}");
        }
    }
    let counters = reads.counters();
    let edges = counters.fallbacks.get("range-edge").copied().unwrap_or_default();
    assert!((1..=3 * tables).contains(&edges) && counters.fallbacks.len() == 1, "{tables} tables: {counters:?}");
    assert!(counters.at_server > 2 * COUNT, "{counters:?}");
}

/// With fewer open files than tables RocksDB says of many keys that they are there and empty. Then its answer to a
/// second question counts, and not the emptiness: the key may have been deleted in between.
#[test]
fn nor_with_more_tables_than_open_files() {
    stress("level0_file_num_compaction_trigger=12;max_open_files=20;target_file_size_base=8192", Mode::Server);
}

/// Reads that go now one way, now the other.
#[test]
fn nor_if_the_way_is_chosen() {
    stress("level0_file_num_compaction_trigger=4;compression=kSnappyCompression", Mode::Auto);
}

const KEYS: u64 = 8000;
/// How long it may take until enough was read.
const ENOUGH_MAX: Duration = Duration::from_secs(60);

/// The versions of each key: the newest one whose write has begun, and the one whose write has ended. Every fourth
/// version is a deletion.
struct Versions {
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    /// Values that were read and were right.
    checked: AtomicU64,
    stop: AtomicBool,
}

impl Versions {
    fn load(of: &[AtomicU64], numbers: &[u64]) -> Vec<u64> {
        numbers.iter().map(|number| of[*number as usize].load(Ordering::SeqCst)).collect()
    }

    fn check(number: u64, low: u64, high: u64, value: Option<&[u8]>) {
        // The highest byte first: so the greatest operand of a merge is the newest.
        let version = value.map(|value| u64::from_be_bytes(value[..8].try_into().expect("a version")));
        let is_right = match version {
            Some(version) => low <= version && version <= high && version % 4 != 0,
            None => low == 0 || (low..=high).any(|version| version % 4 == 0),
        };
        assert!(is_right, "key {number}: {version:?} is not from {low} to {high}");
    }

    /// Ends the others, also when this thread panics.
    fn stopping(&self) -> impl Drop + '_ {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        Stop(&self.stop)
    }

    /// Writes for so long, and as long as too little was read: a busy machine gives the readers little of a second.
    fn write(&self, reads: &Reads, seconds: u64) -> u64 {
        let database = reads.database();
        let (mut dice, mut written) = (fastrand::Rng::with_seed(1), 0_u64);
        let began = Instant::now();
        let is_enough = || self.checked.load(Ordering::Relaxed) > 200 && reads.counters().at_server > 20;
        let is_over = |passed: Duration| passed.as_secs() >= seconds && (passed > ENOUGH_MAX || is_enough());
        let _stop = self.stopping();
        while !is_over(began.elapsed()) && !self.stop.load(Ordering::SeqCst) {
            let first = dice.u64(..KEYS - 8);
            let is_range = dice.u8(..16) == 0;
            let numbers: Vec<u64> = (first..first + if is_range { dice.u64(1..8) } else { 1 }).collect();
            let next = |version: u64| if is_range { (version / 4 + 1) * 4 } else { version + 1 };
            let versions: Vec<u64> = Self::load(&self.begun, &numbers).into_iter().map(next).collect();
            let store = |to: &[AtomicU64]| {
                numbers
                    .iter()
                    .zip(&versions)
                    .for_each(|(n, version)| to[*n as usize].store(*version, Ordering::SeqCst));
            };
            store(&self.begun);
            let (name, version) = (key(first), versions[0]);
            let value = [&version.to_be_bytes()[..], &vec![b'x'; dice.usize(..150)]].concat();
            match version % 4 {
                0 if is_range => database.delete_range(&name, &key(first + numbers.len() as u64)).expect("deleted"),
                0 => database.delete(&name).expect("deleted"),
                _ if dice.u8(..16) == 0 => database.merge(&name, &value).expect("merged"),
                _ => database.put(&name, &value).expect("written"),
            }
            store(&self.done);
            written += 1;
            if written.is_multiple_of(5000) {
                database.flush().expect("flushed");
            }
        }
        written
    }

    fn read(&self, reads: &Reads, seed: u64) {
        let mut dice = fastrand::Rng::with_seed(100 + seed);
        let _stop = self.stopping();
        while !self.stop.load(Ordering::SeqCst) {
            let numbers: Vec<u64> = (0..if dice.bool() { 1 } else { 8 }).map(|_| dice.u64(..KEYS)).collect();
            let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
            let low = Self::load(&self.done, &numbers);
            if dice.u8(..8) == 0 {
                self.read_snapshot(reads, &numbers, &keys, &low);
                continue;
            }
            let found = match &keys[..] {
                [key] => vec![reads.get(key).expect("read")],
                keys => reads.multi_get(keys).expect("read"),
            };
            let high = Self::load(&self.begun, &numbers);
            for (i, value) in found.iter().enumerate() {
                Self::check(numbers[i], low[i], high[i], value.as_deref());
            }
            self.checked.fetch_add(found.len() as u64, Ordering::Relaxed);
        }
    }

    /// A snapshot has one value, however much later it is read.
    fn read_snapshot(&self, reads: &Reads, numbers: &[u64], keys: &[Vec<u8>], low: &[u64]) {
        let snapshot = reads.database().snapshot();
        let high = Self::load(&self.begun, numbers);
        let scope = Scope { family: None, snapshot: Some(&snapshot) };
        let first = reads.multi_get_in(&scope, keys).expect("read");
        for (i, value) in first.iter().enumerate() {
            Self::check(numbers[i], low[i], high[i], value.as_deref());
            assert_eq!(&reads.get_in(&scope, &keys[i]).expect("read"), value, "key {}", numbers[i]);
        }
    }

    /// What else is done to a database that is in use.
    fn tend(&self, database: &Database, directory: &Path) {
        let _stop = self.stopping();
        for round in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            let copy = directory.join(format!("copy{round}"));
            database.checkpoint(&copy).expect("a checkpoint");
            std::fs::remove_dir_all(copy).expect("removed");
            database.hold_files(true).expect("files are held");
            std::thread::sleep(Duration::from_millis(30));
            database.hold_files(false).expect("files are not held");
            database.compact();
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn stress(how: &str, mode: Mode) {
    let world = World::new();
    let options = format!(
        "write_buffer_size=65536;target_file_size_base=65536;max_bytes_for_level_base=131072;level0_stop_writes_trigger=24;\
         merge_operator=max;{how}"
    );
    let mut how_read = Options::default();
    (how_read.mode, how_read.values_bytes) = (mode, 200_000);
    let reads = world.open(&options, "block_size=1024;format_version=5", how_read);
    let zeros = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let versions = Versions { begun: zeros(), done: zeros(), checked: 0.into(), stop: false.into() };
    let seconds = std::env::var("STRESS_SECONDS").map_or(3, |text| text.parse().expect("a number of seconds"));
    let mut written = 0;
    std::thread::scope(|scope| {
        let (versions, reads, directory) = (&versions, &reads, world.directory.path());
        let writer = scope.spawn(move || versions.write(reads, seconds));
        let keeper = scope.spawn(move || versions.tend(reads.database(), directory));
        let readers: Vec<_> = (0..2).map(|seed| scope.spawn(move || versions.read(reads, seed))).collect();
        written = writer.join().expect("the writer");
        keeper.join().expect("the keeper");
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    });
    let (checked, counters) = (versions.checked.into_inner(), reads.counters());
    println!("{written} written, {checked} checked: {counters:?}");
    assert!(written > 1000 && checked > 200 && counters.at_server > 20, "{written} {checked} {counters:?}");
}
