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
//! A read of a snapshot is the same with its sequence number: the snapshot keeps the version that it shows alive.
//!
//! All that the server cannot decide RocksDB reads itself, and it is counted by its reason; so are reads that are faster there.

use crate::database::{Database, DatabaseError, InMemory, Pin};
use crate::plan::{Plan, TableFile};
use crate::scope::Scope;
use crate::store::{Lookup, Refused, Store};
use crate::table::{Answer, LATEST, TABLES_MAX};
use crate::tuner::{Tuner, Way, hash};
use crate::values::{Known, Values};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Which way reads go that need tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// The faster one, as it is measured.
    #[default]
    Auto,
    /// To the server.
    Server,
}

/// How reads are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Which way they go.
    pub mode: Mode,
    /// Most bytes of values of the server that are kept in memory, for the next reads of the same keys. 0: none.
    pub values_bytes: u64,
    /// Of so many reads that need tables, RocksDB makes one itself while they go to the server: this keeps its cache of blocks warm,
    /// which they do not fill. 0: none.
    pub sampled: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::Auto, values_bytes: 8 << 20, sampled: 100 }
    }
}

/// A database whose reads are made at the server that has its tables.
#[derive(Debug)]
pub struct Reads {
    database: Arc<Database>,
    store: Store,
    options: Options,
    /// By column family.
    plans: RwLock<HashMap<u32, Arc<Plan>>>,
    values: Values,
    /// Of reads of one key, and of several.
    tuners: [Tuner; 2],
    began: Instant,
    /// Reads by which RocksDB may still fill its cache.
    filling: AtomicU64,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    in_memory: AtomicU64,
    at_server: AtomicU64,
    plain: AtomicU64,
    sampled: AtomicU64,
    cold: AtomicU64,
    fallbacks: Mutex<BTreeMap<&'static str, u64>>,
}

/// How reads were made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// The answer was in memory, RocksDB's or that of values.
    pub in_memory: u64,
    /// The server had it.
    pub at_server: u64,
    /// RocksDB made it, from memory or tables, since that takes less time. Where reads are from memory, the last 31 of a thread are not
    /// counted yet.
    pub plain: u64,
    /// RocksDB read tables, to keep its cache warm.
    pub sampled: u64,
    /// RocksDB read tables because the server could not decide, by reason.
    pub fallbacks: BTreeMap<&'static str, u64>,
}

/// The outcome of an attempt to read without RocksDB's own reads.
#[derive(Debug)]
pub enum Tried {
    /// The value, or that there is none.
    Known(Option<Vec<u8>>),
    /// RocksDB has to read it. [`Reads::was_local`] hears of it.
    Local(Local),
}

/// A read that RocksDB makes.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    way: Way,
    /// `None`: it is not timed.
    began: Option<Instant>,
}

/// The outcome of a read that was not answered from RocksDB's memory.
enum Cold<'a> {
    Known(Option<Vec<u8>>),
    Asked(Box<Asked<'a>>),
    Local(&'static str),
}

/// A lookup, and what is known besides.
struct Asked<'a> {
    lookup: Lookup<'a>,
    /// All tables that may have the key, and those that are asked.
    all: Vec<u64>,
    asked: Vec<u64>,
    behind: Option<Arc<Known>>,
    is_latest: bool,
}

type Value = Result<Option<Vec<u8>>, DatabaseError>;

impl Reads {
    /// Over a database whose directory the store has.
    #[must_use]
    pub fn new(database: Arc<Database>, store: Store, options: Options) -> Self {
        // A cache may have no room for blocks: it is never full.
        let blocks = database.cache().map_or(0, |cache| 2 * cache.capacity_bytes / USUAL_BLOCK_LEN);
        Self {
            database,
            store,
            options,
            plans: RwLock::default(),
            values: Values::new(options.values_bytes),
            tuners: std::array::from_fn(|_| Tuner::new(options.values_bytes)),
            began: Instant::now(),
            filling: AtomicU64::new(if options.mode == Mode::Auto { blocks } else { 0 }),
            counts: Counts::default(),
        }
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
            plain: load(&self.counts.plain) + self.tuners[ONE].passed(),
            sampled: load(&self.counts.sampled),
            fallbacks: self.counts.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// RocksDB's error: the server's answer is never an error of a read.
    pub fn get(&self, key: &[u8]) -> Value {
        self.get_in(&Scope::default(), key)
    }

    /// The value of a key in a column family, or of a snapshot.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn get_in(&self, scope: &Scope<'_>, key: &[u8]) -> Value {
        match self.try_get(scope, key)? {
            Tried::Known(value) => Ok(value),
            Tried::Local(local) => {
                let value = self.database.get_in(scope, key)?;
                self.was_local(local, key, value.as_ref().map_or(0, Vec::len));
                Ok(value)
            }
        }
    }

    /// The value of a key, unless RocksDB has to read it: for callers who have options for that.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn try_get(&self, scope: &Scope<'_>, key: &[u8]) -> Result<Tried, DatabaseError> {
        if self.tuners[ONE].passes() {
            return Ok(Tried::Local(Local { way: Way::Passed, began: None }));
        }
        let (way, is_timed) = self.way(ONE);
        if way == Way::Plain {
            return Ok(Tried::Local(Local { way, began: is_timed.then(Instant::now) }));
        }
        let began = Instant::now();
        let known = if let InMemory::Known(value) = self.database.get_in_memory(scope, key)? {
            self.counts.in_memory.fetch_add(1, Ordering::Relaxed);
            Some(value)
        } else {
            // Until the answer is there: what is pinned is not deleted.
            let (mut pin, plan) = self.pinned(scope);
            let cold = self.begin(&mut pin, plan.as_deref(), scope, key);
            let is_asked = matches!(cold, Cold::Asked(_));
            let value = self.end(cold, scope, key);
            if way == Way::Probe && is_asked && value.is_some() {
                self.tuners[ONE].probed(began.elapsed());
            }
            value
        };
        let Some(value) = known else { return Ok(Tried::Local(Local { way, began: Some(began) })) };
        self.took(ONE, way, 1, began);
        if way == Way::Probe {
            self.note(ONE, key, value.as_ref().map_or(0, Vec::len));
        }
        Ok(Tried::Known(value))
    }

    /// RocksDB has made this read, and has found so many bytes.
    pub fn was_local(&self, local: Local, key: &[u8], value_len: usize) {
        if let Some(began) = local.began {
            self.took(ONE, local.way, 1, began);
        }
        if local.way == Way::Passed {
            return;
        }
        if local.way == Way::Plain {
            self.counts.plain.fetch_add(1, Ordering::Relaxed);
        }
        if local.way != Way::Server {
            self.note(ONE, key, value_len);
        }
    }

    /// A read that RocksDB makes, as two numbers: for callers in other languages.
    #[must_use]
    pub fn local_to_numbers(&self, local: Local) -> (u64, u64) {
        let began_ns = local.began.map_or(0, |began| (began - self.began).as_nanos() as u64);
        (1 + local.way as u64, began_ns)
    }

    /// And back; `None`: they are none.
    #[must_use]
    pub fn local_of_numbers(&self, way: u64, began_ns: u64) -> Option<Local> {
        let way = *[Way::Plain, Way::Probe, Way::Server, Way::Passed].get(way.checked_sub(1)? as usize)?;
        let began = (began_ns != 0).then(|| self.began.checked_add(Duration::from_nanos(began_ns)));
        Some(Local { way, began: began.flatten() })
    }

    /// The values of keys, in one round trip. Each is read at a moment of its own.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        self.multi_get_in(&Scope::default(), keys)
    }

    /// The values of keys in a column family, or of a snapshot, in one round trip.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        scope: &Scope<'_>,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let (began, (way, _)) = (Instant::now(), self.way(SEVERAL));
        let found = if way == Way::Plain {
            self.counts.plain.fetch_add(keys.len() as u64, Ordering::Relaxed);
            self.database.multi_get_in(scope, keys)?
        } else {
            let found = self.multi_get_cold(scope, keys)?;
            if way == Way::Probe {
                self.tuners[SEVERAL].probed(began.elapsed() / keys.len().max(1) as u32);
            }
            found
        };
        self.took(SEVERAL, way, keys.len() as u64, began);
        if way != Way::Server {
            for (key, value) in keys.iter().zip(&found) {
                self.note(SEVERAL, key.as_ref(), value.as_ref().map_or(0, Vec::len));
            }
        }
        Ok(found)
    }

    fn multi_get_cold<K: AsRef<[u8]>>(
        &self,
        scope: &Scope<'_>,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let known: Vec<InMemory> =
            keys.iter().map(|key| self.database.get_in_memory(scope, key.as_ref())).collect::<Result<_, _>>()?;
        if !known.contains(&InMemory::Unknown) {
            self.counts.in_memory.fetch_add(keys.len() as u64, Ordering::Relaxed);
            let value = |known| if let InMemory::Known(value) = known { value } else { None };
            return Ok(known.into_iter().map(value).collect());
        }
        let (mut pin, plan) = self.pinned(scope);
        let begin = |(known, key): (InMemory, &K)| match known {
            InMemory::Known(value) => {
                self.counts.in_memory.fetch_add(1, Ordering::Relaxed);
                Cold::Known(value)
            }
            InMemory::Unknown => self.begin(&mut pin, plan.as_deref(), scope, key.as_ref()),
        };
        let begun: Vec<Cold<'_>> = known.into_iter().zip(keys).map(begin).collect();
        let end = |(cold, key): (Cold<'_>, &K)| self.end(cold, scope, key.as_ref());
        let mut found: Vec<Option<Option<Vec<u8>>>> = begun.into_iter().zip(keys).map(end).collect();
        // What is left RocksDB reads together.
        let left: Vec<usize> = (0..keys.len()).filter(|&i| found[i].is_none()).collect();
        if !left.is_empty() {
            let read =
                self.database.multi_get_in(scope, &left.iter().map(|&i| keys[i].as_ref()).collect::<Vec<_>>())?;
            left.into_iter().zip(read).for_each(|(i, value)| found[i] = Some(value));
        }
        Ok(found.into_iter().map(Option::flatten).collect())
    }

    /// Whether reads of one key go to the server at present.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.options.mode == Mode::Server || self.tuners[ONE].is_server()
    }

    fn way(&self, tuner: usize) -> (Way, bool) {
        if self.options.mode == Mode::Server { (Way::Server, true) } else { self.tuners[tuner].way() }
    }

    fn took(&self, tuner: usize, way: Way, reads: u64, began: Instant) {
        if self.options.mode == Mode::Auto && way != Way::Probe {
            let now = Instant::now();
            self.tuners[tuner]
                .took(reads, now.saturating_duration_since(began), now - self.began, || self.is_filling());
        }
    }

    fn note(&self, tuner: usize, key: &[u8], value_len: usize) {
        if self.options.mode == Mode::Auto {
            self.tuners[tuner].note(hash(key), key.len(), value_len);
        }
    }

    /// Pins a super version and gives its tables; no tables: they cannot be told.
    fn pinned(&self, scope: &Scope<'_>) -> (Pin<'_>, Option<Arc<Plan>>) {
        let family = family_of(scope);
        loop {
            let before = self.database.super_version(scope);
            let pin = self.database.pin(scope);
            let Some(number) = before else { return (pin, None) };
            if self.database.super_version(scope) != before {
                continue;
            }
            let known = self.plans.read().unwrap_or_else(PoisonError::into_inner).get(&family).cloned();
            match known.filter(|plan| plan.super_version == number) {
                Some(plan) => return (pin, Some(plan)),
                None => match self.database.plan(scope).map(Arc::new) {
                    None => return (pin, None),
                    Some(plan) => {
                        let is_this = plan.super_version == number;
                        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
                        let is_first = plans.insert(family, Arc::clone(&plan)).is_none();
                        let current: Vec<Arc<Plan>> = plans.values().cloned().collect();
                        drop(plans);
                        if !is_first {
                            self.store.keep(current.iter().map(Arc::as_ref));
                        }
                        if is_this {
                            return (pin, Some(plan));
                        }
                    }
                },
            }
        }
    }

    /// Asks the server for a key that is not known in memory.
    fn begin<'a>(&'a self, pin: &mut Pin<'_>, plan: Option<&Plan>, scope: &Scope<'_>, key: &[u8]) -> Cold<'a> {
        let Some(plan) = plan else { return Cold::Local("no-plan") };
        let sequence = match scope.snapshot.map(|snapshot| snapshot.sequence()) {
            None => LATEST,
            Some(Some(sequence)) => sequence,
            Some(None) => return Cold::Local("snapshot"),
        };
        // Operands of a merge are not told from keys that are not there at all: both are incomplete.
        if pin.may_hold(key) {
            return Cold::Local("merge-in-memory");
        }
        let mut tables: Vec<&TableFile> = plan.candidates(key).collect();
        let all = tables.iter().map(|table| table.number).collect();
        let is_latest = sequence == LATEST;
        let behind = if is_latest { self.values.take_known(family_of(scope), key, &mut tables) } else { None };
        if tables.is_empty() {
            self.counts.in_memory.fetch_add(1, Ordering::Relaxed);
            return Cold::Known(behind.and_then(|known| known.value()));
        }
        let cold = self.counts.cold.fetch_add(1, Ordering::Relaxed);
        if self.options.sampled != 0 && cold % self.options.sampled == self.options.sampled - 1 {
            return Cold::Local(SAMPLED);
        }
        if tables.len() > TABLES_MAX {
            return Cold::Local(Refused::TooManyTables.name());
        }
        let asked = tables.iter().map(|table| table.number).collect();
        match self.store.begin(&tables, sequence, key) {
            Ok(lookup) => Cold::Asked(Box::new(Asked { lookup, all, asked, behind, is_latest })),
            Err(refused) => Cold::Local(refused.name()),
        }
    }

    /// Whether RocksDB's cache of blocks still has to be filled by its reads.
    fn is_filling(&self) -> bool {
        let left = self.filling.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        let is_full = self.database.cache().is_none_or(|cache| cache.used_bytes / 9 >= cache.capacity_bytes / 10);
        // Not for ever: what is read may be less than there is room for.
        let left = left.saturating_sub(self.counts.plain.load(Ordering::Relaxed) / 8);
        self.filling.store(if is_full { 0 } else { left }, Ordering::Relaxed);
        !is_full && left != 0
    }

    /// `None`: RocksDB has to read it.
    fn end(&self, cold: Cold<'_>, scope: &Scope<'_>, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let reason = match cold {
            Cold::Known(value) => return Some(value),
            Cold::Local(reason) => reason,
            Cold::Asked(asked) => match self.take(*asked, scope, key) {
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

    /// Takes an answer, and keeps what it tells.
    fn take(&self, asked: Asked<'_>, scope: &Scope<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        let Asked { lookup, all, asked, behind, is_latest } = asked;
        let number = |table: u32| asked.get(table as usize).copied().ok_or(Refused::Form);
        let decided = match lookup.wait()? {
            Answer::Found { value, table, .. } => Some((number(table)?, Some(value))),
            Answer::Deleted { table, .. } => Some((number(table)?, None)),
            Answer::Absent => behind.as_ref().and_then(|known| known.decided()),
            Answer::Unsupported(reason) => return Err(Refused::Unsupported(reason)),
        };
        let value = decided.as_ref().and_then(|(_, value)| value.clone());
        if is_latest {
            self.values.keep(family_of(scope), key, &all, decided);
        }
        Ok(value)
    }
}

/// Bytes of a block, by RocksDB's default.
const USUAL_BLOCK_LEN: u64 = 4096;
/// The reason of reads that RocksDB makes to keep its cache warm.
const SAMPLED: &str = "sampled";
/// Tuners: of reads of one key, and of several.
const ONE: usize = 0;
const SEVERAL: usize = 1;

/// The number of a scope's column family; that of the default one is 0.
fn family_of(scope: &Scope<'_>) -> u32 {
    scope.family.map_or(0, |family| family.id())
}
