//! Runs one function over one file at each order, and prints the time: the load of `bench/pushdown`.
//!
//! ```text
//! pushdown URL FUNCTION WHERE [--arg name=value]... [--len BYTES] [--request BYTES] [--at-once N]
//!          [--chunk BYTES] [--threads N] [--cache BYTES] [--warm none|last-half|pieces|all]
//!          [--policy adaptive|periodic:N:K] [--write INPUT] [--trace FILE]
//! ```
//!
//! WHERE is host, device, auto or read (plain reads without a function). A round is the first `--len` bytes
//! of the file (0: all) by requests of `--request` bytes (0: one request), `--at-once` of them in flight. With
//! `--write` a round runs the function over the bytes of INPUT and writes its output to the file, durably. `--trace`
//! adds to FILE the dispatcher's observations of each part: see `diskside::dispatch::trace`.
//!
//! Standard input has the orders, a word a line, and each is answered by a line: `warm` empties the
//! session's cache and reads into it what is to be warm; `go` runs a round and answers in JSON, with a hash
//! of all results.

use diskside::dispatch::trace;
use diskside::session::{
    File, OpenMode, Plan, Policy, Ran, RunOptions, Session, SessionFunction, SessionOptions, Where,
};
use diskside::{CallLimits, args};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a plain read, and of a piece that is warm or not.
const READ_LEN: u64 = 8 << 20;
const PIECE_LEN: u64 = 1 << 20;

fn main() -> Result<(), Failure> {
    let load = Load::parse(std::env::args().skip(1))?;
    let options = SessionOptions { cache_len_bytes: load.cache, policy: load.policy, ..SessionOptions::default() };
    let session = Session::new(options);
    let function = session.function(&load.function)?;
    let args = function.args().map_or(Ok(Vec::new()), |schema| args::encode(schema, &load.args))?;
    let mode = if load.write.is_some() { OpenMode::Write } else { OpenMode::Read };
    let file = session.open_as(&load.url.parse()?, mode)?;
    let run = Run { len: file.len_bytes()?.min(load.len), file, function, args, load };
    for line in std::io::stdin().lock().lines() {
        let answer = match line?.as_str() {
            "warm" => {
                session.drop_cache();
                run.warm()?;
                "{}".to_owned()
            }
            "go" => run.round()?,
            other => return Err(format!("say warm or go, not `{other}`").into()),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Load {
    url: String,
    function: String,
    place: Option<Where>,
    args: Vec<(String, String)>,
    len: u64,
    request: u64,
    at_once: usize,
    chunk: Option<usize>,
    threads: usize,
    cache: u64,
    warm: String,
    policy: Policy,
    write: Option<Vec<u8>>,
    trace: Option<String>,
}

impl Load {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut need = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let mut load = Self {
            url: need("URL")?,
            function: need("FUNCTION")?,
            place: match need("WHERE")?.as_str() {
                "host" => Some(Where::Host),
                "device" => Some(Where::Device),
                "auto" => Some(Where::Auto),
                "read" => None,
                other => return Err(format!("WHERE is host, device, auto or read, not `{other}`").into()),
            },
            args: Vec::new(),
            len: u64::MAX,
            request: 0,
            at_once: 1,
            chunk: RunOptions::default().chunk_len,
            threads: 1,
            cache: 0,
            warm: "none".to_owned(),
            policy: Policy::default(),
            write: None,
            trace: None,
        };
        while let Ok(option) = need("") {
            let value = need(&option)?;
            match option.as_str() {
                "--arg" => {
                    let (name, value) = value.split_once('=').ok_or("--arg is written name=value")?;
                    load.args.push((name.to_owned(), value.to_owned()));
                }
                "--len" => load.len = value.parse()?,
                "--request" => load.request = value.parse()?,
                "--at-once" => load.at_once = value.parse()?,
                "--chunk" => load.chunk = Some(value.parse()?),
                "--threads" => load.threads = value.parse()?,
                "--cache" => load.cache = value.parse()?,
                "--warm" => load.warm = value,
                "--policy" => load.policy = parse_policy(&value)?,
                "--write" => load.write = Some(std::fs::read(value)?),
                "--trace" => load.trace = Some(value),
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        Ok(load)
    }

    fn options(&self, place: Where) -> RunOptions {
        // A write on the host keeps its whole output.
        let limits = CallLimits { result_len_max: 4 << 30, ..CallLimits::default() };
        let durable = self.write.is_some();
        RunOptions { place, durable, chunk_len: self.chunk, threads: self.threads, limits, ..RunOptions::default() }
    }
}

fn parse_policy(text: &str) -> Result<Policy, Failure> {
    let numbers = text.strip_prefix("periodic:").and_then(|rest| rest.split_once(':'));
    match (text, numbers) {
        ("adaptive", _) => Ok(Policy::Adaptive),
        (_, Some((period, profiled))) => Ok(Policy::Periodic { period: period.parse()?, profiled: profiled.parse()? }),
        _ => Err(format!("a policy is adaptive or periodic:N:K, not `{text}`").into()),
    }
}

struct Run {
    load: Load,
    file: File,
    function: SessionFunction,
    args: Vec<u8>,
    len: u64,
}

/// What a round has come to so far.
#[derive(Default)]
struct Sum {
    bytes: u64,
    hash: u64,
    /// Requests by plan.
    plans: BTreeMap<&'static str, u64>,
    trace: String,
}

impl Run {
    /// Reads into the session's cache what is to be warm. The same pieces are warm in `plain.c`.
    fn warm(&self) -> Result<(), Failure> {
        let pieces = self.len.div_ceil(PIECE_LEN);
        for piece in 0..pieces {
            let warm = match self.load.warm.as_str() {
                "none" => false,
                "last-half" => piece >= pieces / 2,
                "pieces" => piece.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 != 0,
                "all" => true,
                other => return Err(format!("--warm is none, last-half, pieces or all, not `{other}`").into()),
            };
            if warm {
                let offset = piece * PIECE_LEN;
                self.file.pread(offset, PIECE_LEN.min(self.len - offset) as usize).wait()?;
            }
        }
        Ok(())
    }

    fn round(&self) -> Result<String, Failure> {
        let started = Instant::now();
        let sum = match (self.load.place, &self.load.write) {
            (Some(place), Some(input)) => {
                let mut sum = Sum::default();
                let options = self.load.options(place);
                let ran = self.file.pwrite_fn(0, input.clone(), &self.function, &self.args, &options).wait()?;
                sum.add(0, ran.written_bytes, &ran);
                sum
            }
            (place, _) => self.requests(place)?,
        };
        let seconds = started.elapsed().as_secs_f64();
        if let Some(path) = &self.load.trace {
            std::fs::OpenOptions::new().append(true).create(true).open(path)?.write_all(sum.trace.as_bytes())?;
        }
        let plans: Vec<String> = sum.plans.iter().map(|(plan, count)| format!("\"{plan}\":{count}")).collect();
        let plans = plans.join(",");
        let (bytes, hash) = (sum.bytes, sum.hash);
        Ok(format!("{{\"seconds\":{seconds},\"bytes\":{bytes},\"result\":\"{hash:016x}\",\"plans\":{{{plans}}}}}"))
    }

    /// The file by requests, some of them at once.
    fn requests(&self, place: Option<Where>) -> Result<Sum, Failure> {
        let len = match (self.load.request, place) {
            (0, None) => READ_LEN,
            (0, Some(_)) => self.len.max(1),
            (len, _) => len,
        };
        let (next, sum, failed) = (AtomicU64::new(0), Mutex::new(Sum::default()), Mutex::new(None));
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let range = index * len..(index * len + len).min(self.len);
                if range.is_empty() {
                    return;
                }
                if let Err(error) = self.request(place, index, range, &sum) {
                    *failed.lock().expect("no panics") = Some(error);
                    next.store(u64::MAX / 2 / len, Ordering::Relaxed);
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.load.at_once {
                scope.spawn(work);
            }
            work();
        });
        match failed.into_inner().expect("no panics") {
            Some(error) => Err(error),
            None => Ok(sum.into_inner().expect("no panics")),
        }
    }

    fn request(&self, place: Option<Where>, index: u64, range: Range<u64>, sum: &Mutex<Sum>) -> Result<(), Failure> {
        let bytes = range.end - range.start;
        match place {
            None => {
                self.file.pread(range.start, bytes as usize).wait()?;
                sum.lock().expect("no panics").bytes += bytes;
            }
            Some(place) => {
                let options = self.load.options(place);
                let ran = self.file.pread_fn(range, &self.function, &self.args, &options).wait()?;
                sum.lock().expect("no panics").add(index, bytes, &ran);
            }
        }
        Ok(())
    }
}

impl Sum {
    fn add(&mut self, index: u64, bytes: u64, ran: &Ran) {
        self.bytes += bytes;
        let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        // The same in whatever order requests end.
        let hash = ran.result.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
        self.hash = self.hash.wrapping_add(hash.wrapping_mul(2 * index + 1));
        let plan = ran.decisions.first().map_or("host", |(_, decision)| Plan::name(decision.plan));
        *self.plans.entry(plan).or_default() += 1;
        for part in &ran.parts {
            self.trace += &trace::line(&part.observation);
        }
    }
}
