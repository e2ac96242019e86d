//! Makes the requests of a trace, as fast as they are answered: by several threads, those for one key by one thread and in the
//! order of the trace. So the value of each key is known at any time, and each read is checked. Values do not expire. Behind its
//! last request the trace begins again.

use crate::Failure;
use crate::contents::{contents, scrambled};
use crate::measuring::{Work, measure};
use crate::opened::{Plan, created};
use crate::trace::{Key, Kind, Request, Trace};
use diskside_rocksdb::{Database, Reads};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The length of a value that is not there.
const NONE: u32 = u32::MAX;

/// Fills a database with the values that the trace reads before it writes them.
pub(crate) fn load(directory: &Path, trace: &Trace, table: &str) -> Result<(), Failure> {
    fill(&created(directory, table)?, trace)
}

fn fill(database: &Database, trace: &Trace) -> Result<(), Failure> {
    for key in &trace.keys {
        if let Some(len) = key.at_first {
            database.put(&key.bytes, &value(key, len))?;
        }
    }
    database.flush()?;
    database.compact();
    Ok(())
}

/// Each round begins with the database as it was filled: it is of a copy, whose tables are links.
pub(crate) fn run(directory: &Path, url: &str, plan: &Plan, trace: &Trace) -> Result<(), Failure> {
    let copy = directory.with_extension("replay");
    if copy.exists() {
        std::fs::remove_dir_all(&copy)?;
    }
    created(directory, &plan.table)?.checkpoint(&copy)?;
    {
        let reads = plan.open(&copy, url)?;
        let lens = Lens::of(trace);
        let mut workers = Worker::all(plan, trace, &reads, &lens);
        let mut found = measure(plan, &reads, &mut workers)?;
        let made: u64 = workers.iter().map(|worker| worker.made).sum();
        found["passes"] = json!(made as f64 / trace.requests.len() as f64);
        found["not_there"] = json!(workers.iter().map(|worker| worker.not_there).sum::<u64>());
        println!("{found}");
    }
    Ok(std::fs::remove_dir_all(&copy)?)
}

/// How long the value of each key is now. One thread alone changes that of a key.
struct Lens(Vec<AtomicU32>);

impl Lens {
    fn of(trace: &Trace) -> Self {
        Self(trace.keys.iter().map(|key| AtomicU32::new(key.at_first.unwrap_or(NONE))).collect())
    }

    fn now(&self, place: u32) -> Option<u32> {
        let len = self.0[place as usize].load(Ordering::Relaxed);
        (len != NONE).then_some(len)
    }

    fn set(&self, place: u32, len: u32) {
        self.0[place as usize].store(len, Ordering::Relaxed);
    }
}

struct Worker<'a> {
    plan: &'a Plan,
    reads: &'a Reads,
    keys: &'a [Key],
    lens: &'a Lens,
    /// Those that this thread makes.
    requests: Vec<Request>,
    made: u64,
    /// Reads that found no value, and had to find none.
    not_there: u64,
}

impl<'a> Worker<'a> {
    /// One for each thread, but no more than there are keys.
    fn all(plan: &'a Plan, trace: &'a Trace, reads: &'a Reads, lens: &'a Lens) -> Vec<Self> {
        let threads = plan.threads.min(trace.keys.len() as u64);
        let of_thread = |number| {
            let is_mine = |request: &&Request| u64::from(request.key) % threads == number;
            let requests = trace.requests.iter().filter(is_mine).copied().collect();
            Self { plan, reads, keys: &trace.keys, lens, requests, made: 0, not_there: 0 }
        };
        (0..threads).map(of_thread).collect()
    }

    fn request(&mut self, request: Request) -> Result<(), Failure> {
        let key = &self.keys[request.key as usize];
        match request.kind {
            Kind::Read => self.read(key, request.key),
            Kind::Write => self.write(key, request.key, request.value_len),
            Kind::Change => {
                self.read(key, request.key)?;
                // Some traces do not say how long a counter is.
                let now = self.lens.now(request.key).unwrap_or(0);
                self.write(key, request.key, if request.value_len == 0 { now } else { request.value_len })
            }
            Kind::Delete => {
                self.reads.database().delete(&key.bytes)?;
                self.lens.set(request.key, NONE);
                Ok(())
            }
        }
    }

    fn read(&mut self, key: &Key, place: u32) -> Result<(), Failure> {
        let expected = self.lens.now(place).map(|len| value(key, len));
        self.not_there += u64::from(expected.is_none());
        if self.plan.get(self.reads, &key.bytes)? == expected {
            return Ok(());
        }
        Err(format!("key `{}` has another value", String::from_utf8_lossy(&key.bytes)).into())
    }

    fn write(&self, key: &Key, place: u32, len: u32) -> Result<(), Failure> {
        self.reads.database().put(&key.bytes, &value(key, len))?;
        self.lens.set(place, len);
        Ok(())
    }
}

impl Work for Worker<'_> {
    fn operation(&mut self) -> Result<(), Failure> {
        let request = self.requests[(self.made % self.requests.len() as u64) as usize];
        self.request(request)?;
        self.made += 1;
        Ok(())
    }
}

/// Another one for each length, so that one that was overwritten is not taken for the newest.
fn value(key: &Key, len: u32) -> Vec<u8> {
    contents(scrambled(&key.bytes) ^ u64::from(len), len as usize)
}

#[cfg(test)]
mod tests;
