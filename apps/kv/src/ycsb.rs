//! The Yahoo! Cloud Serving Benchmark: its core workloads over any store of this process.
//!
//! | workload | operations | keys |
//! |---|---|---|
//! | A | 50 % reads, 50 % updates | zipfian |
//! | B | 95 % reads, 5 % updates | zipfian |
//! | C | reads | zipfian |
//! | D | 95 % reads, 5 % inserts | latest |
//! | E | 95 % scans of 1 to 100 records, 5 % inserts | zipfian |
//! | F | 50 % reads, 50 % read-modify-writes | zipfian |
//! | uniform | reads | uniform |
//!
//! Zipfian keys have the constant 0.99 and are scattered over the key space, as YCSB's are.
//! *Closed loop*: each client starts its next operation when the last one has ended. *Open loop*:
//! operations start by the clock, whatever becomes of those before, and a latency counts from when its
//! operation should have started: a store that falls behind cannot hide it.

mod keys;

pub use keys::{Distribution, KeyChooser};

use crate::drive::{Alarm, Tasks};
use crate::error::KvError;
use crate::format::counting_value;
use crate::port::Port;
use crate::store::Store;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::time::{Duration, Instant};

/// A store that can be driven.
pub trait KeyValue {
    /// Why an operation failed.
    type Error: std::error::Error;

    /// Reads a record; false when it is not there.
    fn read(&self, key: u64) -> impl Future<Output = Result<bool, Self::Error>>;

    /// Reads so many records in the order of their keys, or as many as there are; false when the first is not there.
    fn scan(&self, first: u64, records: u64) -> impl Future<Output = Result<bool, Self::Error>>;

    /// Replaces a record by a new one; `number` is a new number each time.
    fn update(&self, key: u64, number: u64) -> impl Future<Output = Result<bool, Self::Error>>;

    /// Adds the record of a key behind all others.
    fn insert(&self, key: u64, number: u64) -> impl Future<Output = Result<bool, Self::Error>>;
}

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as YCSB names them; see the module")]
pub enum Workload {
    A,
    B,
    C,
    D,
    E,
    F,
    Uniform,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F, Self::Uniform];

    /// Whether it changes values.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::C | Self::Uniform)
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::Uniform => "uniform",
        }
    }

    /// The workload of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name().eq_ignore_ascii_case(name))
    }

    /// What most operations are.
    const fn most(self) -> Operation {
        match self {
            Self::E => Operation::Scan,
            _ => Operation::Read,
        }
    }

    /// The part of 100 operations that are others, and their kind.
    const fn others(self) -> (u32, Option<Operation>) {
        match self {
            Self::A => (50, Some(Operation::Update)),
            Self::B => (5, Some(Operation::Update)),
            Self::D | Self::E => (5, Some(Operation::Insert)),
            Self::F => (50, Some(Operation::ReadModifyWrite)),
            Self::C | Self::Uniform => (0, None),
        }
    }

    /// How its keys are chosen.
    #[must_use]
    pub const fn distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            Self::Uniform => Distribution::Uniform,
            Self::A | Self::B | Self::C | Self::E | Self::F => Distribution::Zipfian,
        }
    }
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    Read,
    Update,
    Insert,
    ReadModifyWrite,
    Scan,
}

impl Operation {
    const ALL: [Self; 5] = [Self::Read, Self::Update, Self::Insert, Self::ReadModifyWrite, Self::Scan];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::ReadModifyWrite => "read_modify_write",
            Self::Scan => "scan",
        }
    }
}

/// How a workload is run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// What is done.
    pub workload: Workload,
    /// Keys are 0 up to this.
    pub keys: u64,
    /// Keys that are there at the start; the others are inserted.
    pub keys_loaded: u64,
    /// Operations that run side by side.
    pub clients: usize,
    /// Operations a second of the open loop; `None` for the closed one.
    pub rate: Option<f64>,
    /// When no more operations are started.
    pub duration: Duration,
    /// The most operations.
    pub operations_max: u64,
    /// Seed of the choice of keys and operations.
    pub seed: u64,
}

impl Plan {
    /// One client, as often as it can for a second, on a store that has so many keys. A store here keeps the keys
    /// that it was made with, so workloads D and E begin with nine tenths of them, and to insert is to write the next one.
    #[must_use]
    pub const fn new(workload: Workload, keys: u64) -> Self {
        let keys_loaded = if matches!(workload, Workload::D | Workload::E) { keys - keys / 10 } else { keys };
        let (duration, operations_max) = (Duration::from_secs(1), u64::MAX);
        Self { workload, keys, keys_loaded, clients: 1, rate: None, duration, operations_max, seed: 1 }
    }
}

/// With the keys 0, 1, 2, … Numbers are written as a loaded store has them.
impl KeyValue for Store {
    type Error = KvError;

    async fn read(&self, key: u64) -> Result<bool, KvError> {
        Ok(self.get(key).await?.is_some())
    }

    async fn scan(&self, first: u64, records: u64) -> Result<bool, KvError> {
        let pairs = self.range(first, u64::MAX, records).await?;
        Ok(pairs.first().is_some_and(|pair| pair.0 == first))
    }

    async fn update(&self, key: u64, number: u64) -> Result<bool, KvError> {
        self.put(key, &counting_value(number)).await
    }

    async fn insert(&self, key: u64, number: u64) -> Result<bool, KvError> {
        self.update(key, number).await
    }
}

/// What a run has shown.
#[derive(Debug)]
pub struct Report {
    /// Time from the first start to the last end.
    pub elapsed: Duration,
    /// Latencies in nanoseconds, by operation; those that did not occur are left out.
    pub latencies: Vec<(Operation, Histogram<u64>)>,
    /// Reads that found nothing, and scans that did not find their first record.
    pub missing: u64,
}

impl Report {
    /// Operations in all.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.latencies.iter().map(|(_, h)| h.len()).sum()
    }

    /// Operations a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.operations() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// All latencies together.
    #[must_use]
    pub fn all(&self) -> Histogram<u64> {
        let mut all = histogram();
        for (_, one) in &self.latencies {
            all.add(one).expect("histograms of one precision that grow");
        }
        all
    }
}

/// As YCSB's `maxscanlength`.
const SCAN_MAX: u64 = 100;
/// Longer latencies count as this.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// A histogram of latencies in nanoseconds, up to 100 s, with three digits.
///
/// # Panics
/// Never: these are bounds that there can be.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_NS, 3).expect("100 s with three digits can be counted")
}

/// What the clients of one run share.
struct Run<'a, S> {
    store: &'a S,
    plan: &'a Plan,
    alarm: &'a Alarm,
    started: Instant,
    next: Cell<u64>,
    /// Keys that are there.
    keys: Cell<u64>,
    chooser: RefCell<KeyChooser>,
    dice: RefCell<fastrand::Rng>,
    latencies: RefCell<[Histogram<u64>; 5]>,
    missing: Cell<u64>,
}

/// Runs a workload.
///
/// # Errors
/// The first operation that failed; the others end first.
pub fn run<S: KeyValue>(store: &S, port: &dyn Port, plan: &Plan) -> Result<Report, S::Error> {
    let alarm = Alarm::default();
    let run = Run {
        store,
        plan,
        alarm: &alarm,
        started: Instant::now(),
        next: Cell::new(0),
        keys: Cell::new(plan.keys_loaded.clamp(1, plan.keys)),
        chooser: RefCell::new(KeyChooser::new(plan.workload.distribution(), plan.keys_loaded.clamp(1, plan.keys))),
        dice: RefCell::new(fastrand::Rng::with_seed(plan.seed)),
        latencies: RefCell::new(std::array::from_fn(|_| histogram())),
        missing: Cell::new(0),
    };
    let failed = RefCell::new(None);
    let mut tasks = Tasks::new(port);
    for _ in 0..plan.clients.max(1) {
        tasks.spawn(async {
            if let Err(error) = run.client().await {
                // The others see that no operation is left.
                run.next.set(plan.operations_max);
                failed.borrow_mut().get_or_insert(error);
            }
        });
    }
    tasks.run(port, &alarm);
    let elapsed = run.started.elapsed();
    let latencies = Operation::ALL.into_iter().zip(run.latencies.take_all()).filter(|(_, h)| !h.is_empty()).collect();
    let missing = run.missing.get();
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(Report { elapsed, latencies, missing }),
    }
}

/// Takes what a cell holds.
trait TakeAll {
    fn take_all(&self) -> [Histogram<u64>; 5];
}

impl TakeAll for RefCell<[Histogram<u64>; 5]> {
    fn take_all(&self) -> [Histogram<u64>; 5] {
        self.replace(std::array::from_fn(|_| histogram()))
    }
}

impl<S: KeyValue> Run<'_, S> {
    /// One client, until there is nothing more to do.
    async fn client(&self) -> Result<(), S::Error> {
        while self.next.get() < self.plan.operations_max && self.started.elapsed() < self.plan.duration {
            let number = self.next.replace(self.next.get() + 1);
            let begun = match self.plan.rate {
                None => Instant::now(),
                Some(rate) => {
                    let due = self.started + Duration::from_secs_f64(number as f64 / rate);
                    if due >= self.started + self.plan.duration {
                        return Ok(());
                    }
                    self.alarm.until(due).await;
                    due
                }
            };
            let operation = self.choose();
            self.operate(operation, number).await?;
            let latency_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.latencies.borrow_mut()[operation as usize].saturating_record(latency_ns);
        }
        Ok(())
    }

    fn choose(&self) -> Operation {
        let (share, other) = self.plan.workload.others();
        match other {
            Some(Operation::Insert) if self.keys.get() >= self.plan.keys => self.plan.workload.most(),
            Some(other) if self.dice.borrow_mut().u32(0..100) < share => other,
            _ => self.plan.workload.most(),
        }
    }

    async fn operate(&self, operation: Operation, number: u64) -> Result<(), S::Error> {
        if operation == Operation::Insert {
            let key = self.keys.get();
            self.keys.set(key + 1);
            return self.store.insert(key, number).await.map(|_| ());
        }
        let key = self.chooser.borrow_mut().choose(self.keys.get(), &mut self.dice.borrow_mut());
        let found = match operation {
            Operation::Update => self.store.update(key, number).await?,
            Operation::ReadModifyWrite => self.store.read(key).await? && self.store.update(key, number).await?,
            Operation::Scan => {
                let records = self.dice.borrow_mut().u64(1..=SCAN_MAX);
                self.store.scan(key, records).await?
            }
            Operation::Read | Operation::Insert => self.store.read(key).await?,
        };
        self.missing.set(self.missing.get() + u64::from(!found));
        Ok(())
    }
}
