//! Reads of an unmodified database: from memory where RocksDB has the answer there, else at the server.
//!
//! **Why the answer is exact.** A read asks RocksDB first for what it has in memory (1); if only tables can tell, it pins the
//! super version of then and takes its list of tables (2), looks whether the memtables have an operand of a merge (3), and
//! asks the server (4, 5). At the time of (1) no version of the key was visible in memory, or it was flushed meanwhile: so
//! the newest version of that time, or a later one, is in the tables of (2), since neither flush nor compaction loses
//! the newest version. The server finds the newest one in that set, which does not change. If it was written before (1), it
//! was the newest then; if later, it was written during the read. Either way the read took place at one moment between its
//! beginning and its end. *First memory, then the list*: the other order is wrong.
//!
//! All that the server cannot decide RocksDB reads itself, and it is counted by its reason.

use crate::database::{Database, DatabaseError, InMemory, Pin};
use crate::plan::{Plan, TableFile};
use crate::store::{Lookup, Refused, Store};
use crate::table::{Answer, LATEST, TABLES_MAX};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// How reads are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Of so many reads that need tables, RocksDB makes one itself: this keeps its cache of blocks warm, which reads at the
    /// server do not fill. 0: none.
    pub sampled: u64,
    /// Whether RocksDB makes these reads until its cache of blocks is full for the first time.
    pub fill: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { sampled: 100, fill: true }
    }
}

/// A database whose reads are made at the server that has its tables.
#[derive(Debug)]
pub struct Reads {
    database: Arc<Database>,
    store: Store,
    options: Options,
    plan: RwLock<Option<Arc<Plan>>>,
    /// Reads by which RocksDB may still fill its cache.
    filling: AtomicU64,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    in_memory: AtomicU64,
    at_server: AtomicU64,
    sampled: AtomicU64,
    cold: AtomicU64,
    fallbacks: Mutex<BTreeMap<&'static str, u64>>,
}

/// How reads were made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// RocksDB had the answer in memory.
    pub in_memory: u64,
    /// The server had it.
    pub at_server: u64,
    /// RocksDB read tables, to keep its cache warm.
    pub sampled: u64,
    /// RocksDB read tables because the server could not decide, by reason.
    pub fallbacks: BTreeMap<&'static str, u64>,
}

/// What became of a read that was not answered from memory.
enum Cold<'a> {
    Known(Option<Vec<u8>>),
    Asked(Lookup<'a>),
    Local(&'static str),
}

type Value = Result<Option<Vec<u8>>, DatabaseError>;

impl Reads {
    /// Over a database whose directory the store has.
    #[must_use]
    pub fn new(database: Arc<Database>, store: Store, options: Options) -> Self {
        // A cache may have no room for blocks: it is never full.
        let blocks = database.cache().map_or(0, |cache| 2 * cache.capacity_bytes / USUAL_BLOCK_LEN);
        let filling = AtomicU64::new(if options.fill { blocks } else { 0 });
        Self { database, store, options, plan: RwLock::default(), filling, counts: Counts::default() }
    }

    /// The database itself, for everything else.
    #[must_use]
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The tables at the server.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How reads were made until now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            in_memory: load(&self.counts.in_memory),
            at_server: load(&self.counts.at_server),
            sampled: load(&self.counts.sampled),
            fallbacks: self.counts.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// What RocksDB said: what the server says is never an error of a read.
    pub fn get(&self, key: &[u8]) -> Value {
        if let InMemory::Known(value) = self.database.get_in_memory(key)? {
            self.counts.in_memory.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        // Until the answer is there: what is pinned is not deleted.
        let (mut pin, plan) = self.pinned();
        match self.end(self.begin(&mut pin, plan.as_deref(), key)) {
            Some(value) => Ok(value),
            None => self.database.get(key),
        }
    }

    /// The values of keys, in one round trip. Each is read at a moment of its own.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let known: Vec<InMemory> =
            keys.iter().map(|key| self.database.get_in_memory(key.as_ref())).collect::<Result<_, _>>()?;
        if !known.contains(&InMemory::Unknown) {
            self.counts.in_memory.fetch_add(keys.len() as u64, Ordering::Relaxed);
            let value = |known| if let InMemory::Known(value) = known { value } else { None };
            return Ok(known.into_iter().map(value).collect());
        }
        let (mut pin, plan) = self.pinned();
        let begin = |(known, key): (InMemory, &K)| match known {
            InMemory::Known(value) => {
                self.counts.in_memory.fetch_add(1, Ordering::Relaxed);
                Cold::Known(value)
            }
            InMemory::Unknown => self.begin(&mut pin, plan.as_deref(), key.as_ref()),
        };
        let begun: Vec<Cold<'_>> = known.into_iter().zip(keys).map(begin).collect();
        let mut found: Vec<Option<Option<Vec<u8>>>> = begun.into_iter().map(|cold| self.end(cold)).collect();
        // What is left RocksDB reads together.
        let left: Vec<usize> = (0..keys.len()).filter(|&i| found[i].is_none()).collect();
        let read = self.database.multi_get(&left.iter().map(|&i| keys[i].as_ref()).collect::<Vec<_>>())?;
        left.into_iter().zip(read).for_each(|(i, value)| found[i] = Some(value));
        Ok(found.into_iter().map(Option::flatten).collect())
    }

    /// Pins a super version and gives its tables; no tables: they cannot be told.
    fn pinned(&self) -> (Pin<'_>, Option<Arc<Plan>>) {
        loop {
            let before = self.database.super_version();
            let pin = self.database.pin();
            let Some(number) = before else { return (pin, None) };
            if self.database.super_version() != before {
                continue;
            }
            let known = self.plan.read().unwrap_or_else(PoisonError::into_inner).clone();
            match known.filter(|plan| plan.super_version == number) {
                Some(plan) => return (pin, Some(plan)),
                None => match self.database.plan().map(Arc::new) {
                    None => return (pin, None),
                    Some(plan) => {
                        self.store.keep_only(&plan);
                        let is_this = plan.super_version == number;
                        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&plan));
                        if is_this {
                            return (pin, Some(plan));
                        }
                    }
                },
            }
        }
    }

    /// Asks the server for a key that is not known in memory.
    fn begin<'a>(&'a self, pin: &mut Pin<'_>, plan: Option<&Plan>, key: &[u8]) -> Cold<'a> {
        let cold = self.counts.cold.fetch_add(1, Ordering::Relaxed);
        let is_sample = self.options.sampled != 0 && cold % self.options.sampled == self.options.sampled - 1;
        if is_sample || self.is_filling() {
            return Cold::Local(SAMPLED);
        }
        let Some(plan) = plan else { return Cold::Local("no-plan") };
        // Operands of a merge are not told from keys that are not there at all: both are incomplete.
        if pin.may_hold(key) {
            return Cold::Local("merge-in-memory");
        }
        let tables: Vec<&TableFile> = plan.candidates(key).take(TABLES_MAX + 1).collect();
        if tables.is_empty() {
            return Cold::Known(None);
        }
        match self.store.begin(&tables, LATEST, key) {
            Ok(lookup) => Cold::Asked(lookup),
            Err(refused) => Cold::Local(refused.name()),
        }
    }

    /// Whether RocksDB's cache of blocks still has to be filled by this read.
    fn is_filling(&self) -> bool {
        let left = self.filling.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        let is_full = self.database.cache().is_none_or(|cache| cache.used_bytes / 9 >= cache.capacity_bytes / 10);
        // Reads at the same time may count as one.
        self.filling.store(if is_full { 0 } else { left - 1 }, Ordering::Relaxed);
        !is_full
    }

    /// `None`: RocksDB has to read it.
    fn end(&self, cold: Cold<'_>) -> Option<Option<Vec<u8>>> {
        let reason = match cold {
            Cold::Known(value) => return Some(value),
            Cold::Local(reason) => reason,
            Cold::Asked(lookup) => match lookup.wait().and_then(value_of) {
                Ok(value) => {
                    self.counts.at_server.fetch_add(1, Ordering::Relaxed);
                    return Some(value);
                }
                Err(refused) => refused.name(),
            },
        };
        if reason == SAMPLED {
            self.counts.sampled.fetch_add(1, Ordering::Relaxed);
        } else {
            *self.counts.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
        }
        None
    }
}

/// Bytes of a block, by RocksDB's default.
const USUAL_BLOCK_LEN: u64 = 4096;
/// The reason of reads that RocksDB makes to keep its cache warm.
const SAMPLED: &str = "sampled";

fn value_of(answer: Answer) -> Result<Option<Vec<u8>>, Refused> {
    match answer {
        Answer::Found { value, .. } => Ok(Some(value)),
        Answer::Absent | Answer::Deleted { .. } => Ok(None),
        Answer::Unsupported(reason) => Err(Refused::Unsupported(reason)),
    }
}
