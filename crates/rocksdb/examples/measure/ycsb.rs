//! YCSB's workloads: keys by its scrambled zipfian of 0.99, in D the latest ones; and U, which reads and updates in equal parts,
//! uniformly. E reads 10 to 100 records from a key on, by RocksDB's own iterator whichever way other reads go. With a batch,
//! reads are of so many keys at once.

use crate::Failure;
use crate::arguments::Arguments;
use crate::contents::{contents, scrambled};
use crate::measuring::{Work, measure};
use crate::opened::{Plan, created};
use crate::zipfian::Zipfian;
use diskside_rocksdb::{Reads, Scope};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many records a scan reads.
const SCAN_LEN: RangeInclusive<usize> = 10..=100;

/// The records of a database, and what is done with them.
pub(crate) struct Records {
    count: u64,
    value_len: usize,
    workload: Workload,
}

impl Records {
    pub(crate) fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let (count, value_len) = (arguments.number("records", 200_000)?, arguments.number("value", 400)?);
        Ok(Self { count, value_len, workload: Workload::of(arguments.value("workload").unwrap_or("c"))? })
    }
}

struct Workload {
    reads_of_100: u64,
    reads: Reading,
    otherwise: Otherwise,
    is_uniform: bool,
}

/// How records are read.
enum Reading {
    ByKey,
    /// Several in the order of their keys.
    Scan,
}

/// What is done instead of a read.
enum Otherwise {
    Update,
    Insert,
    /// And reads are of the records that were inserted last.
    InsertAndReadLatest,
    ReadModifyWrite,
}

impl Workload {
    fn of(name: &str) -> Result<Self, Failure> {
        let (reads_of_100, otherwise) = match name {
            "a" => (50, Otherwise::Update),
            "b" => (95, Otherwise::Update),
            "c" => (100, Otherwise::Update),
            "d" => (95, Otherwise::InsertAndReadLatest),
            "e" => (95, Otherwise::Insert),
            "f" => (50, Otherwise::ReadModifyWrite),
            "u" => (50, Otherwise::Update),
            other => return Err(format!("no workload {other}").into()),
        };
        let reads = if name == "e" { Reading::Scan } else { Reading::ByKey };
        Ok(Self { reads_of_100, reads, otherwise, is_uniform: name == "u" })
    }
}

pub(crate) fn load(directory: &Path, records: &Records, table: &str) -> Result<(), Failure> {
    let database = created(directory, table)?;
    // In an order that spreads the keys over all tables, as a store that was used for a while has them.
    let mut order: Vec<u64> = (0..records.count).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    for number in order {
        database.put(&key(number), &contents(number, records.value_len))?;
    }
    database.flush()?;
    database.compact();
    Ok(())
}

pub(crate) fn run(directory: &Path, url: &str, plan: &Plan, records: &Records) -> Result<(), Failure> {
    let reads = plan.open(directory, url)?;
    let (inserted, zipf) = (AtomicU64::new(0), Zipfian::new(records.count));
    let worker = |seed| Worker {
        reads: &reads,
        plan,
        records,
        zipf: &zipf,
        inserted: &inserted,
        seed,
        dice: fastrand::Rng::with_seed(seed),
    };
    let mut workers: Vec<_> = (0..plan.threads).map(worker).collect();
    println!("{}", measure(plan, &reads, &mut workers)?);
    Ok(())
}

struct Worker<'a> {
    reads: &'a Reads,
    plan: &'a Plan,
    records: &'a Records,
    zipf: &'a Zipfian,
    /// Records behind those that were loaded.
    inserted: &'a AtomicU64,
    seed: u64,
    dice: fastrand::Rng,
}

impl Work for Worker<'_> {
    /// What there is room for is there before anything is measured.
    fn prepare(&mut self) -> Result<(), Failure> {
        if self.plan.cache_bytes > 2 * self.records.count * self.records.value_len as u64 {
            for number in (self.seed..self.records.count).step_by(self.plan.threads as usize) {
                self.reads.database().get(&key(number))?;
            }
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Failure> {
        let workload = &self.records.workload;
        if self.dice.u64(..100) < workload.reads_of_100 {
            return match workload.reads {
                Reading::Scan => self.scan(),
                Reading::ByKey => {
                    let numbers: Vec<u64> = (0..self.plan.batch).map(|_| self.choose()).collect();
                    self.read(&numbers)
                }
            };
        }
        let number = match workload.otherwise {
            Otherwise::Update => self.choose(),
            Otherwise::Insert | Otherwise::InsertAndReadLatest => {
                // Two threads may insert the same one; none is chosen before it is there.
                let number = self.records.count + self.inserted.load(Ordering::SeqCst);
                self.write(number)?;
                self.inserted.fetch_max(number + 1 - self.records.count, Ordering::SeqCst);
                return Ok(());
            }
            Otherwise::ReadModifyWrite => {
                let number = self.choose();
                self.read(&[number])?;
                number
            }
        };
        self.write(number)
    }
}

impl Worker<'_> {
    fn choose(&mut self) -> u64 {
        if self.records.workload.is_uniform {
            return self.dice.u64(..self.records.count);
        }
        let rank = self.zipf.next(&mut self.dice);
        match self.records.workload.otherwise {
            Otherwise::InsertAndReadLatest => {
                let last = self.records.count + self.inserted.load(Ordering::SeqCst) - 1;
                last.saturating_sub(rank)
            }
            _ => scrambled(&rank.to_le_bytes()) % self.records.count,
        }
    }

    fn write(&self, number: u64) -> Result<(), Failure> {
        Ok(self.reads.database().put(&key(number), &contents(number, self.records.value_len))?)
    }

    fn read(&self, numbers: &[u64]) -> Result<(), Failure> {
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
        let found = match (&keys[..], self.plan.mode.is_some()) {
            ([key], _) => vec![self.plan.get(self.reads, key)?],
            (keys, true) => self.reads.multi_get(keys)?,
            (keys, false) => self.reads.database().multi_get(keys)?,
        };
        for (number, value) in numbers.iter().zip(found) {
            if value.as_deref() != Some(&contents(*number, self.records.value_len)[..]) {
                return Err(format!("key {number} has another value").into());
            }
        }
        Ok(())
    }

    /// Keys are scattered by their numbers, so the first one alone is known; the others follow it in order.
    fn scan(&mut self) -> Result<(), Failure> {
        let (number, count) = (self.choose(), self.dice.usize(SCAN_LEN));
        let found = self.reads.database().scan(&Scope::default(), &key(number), count)?;
        let first = (key(number), contents(number, self.records.value_len));
        if found.first() != Some(&first) {
            return Err(format!("a scan from key {number} begins with something else").into());
        }
        let is_sound = |pair: &[(Vec<u8>, Vec<u8>)]| pair[0].0 < pair[1].0 && pair[1].1.len() == self.records.value_len;
        if found.len() > count || !found.windows(2).all(is_sound) {
            return Err(format!("a scan from key {number} is out of order").into());
        }
        Ok(())
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("user{:019}", scrambled(&number.to_le_bytes())).into_bytes()
}
