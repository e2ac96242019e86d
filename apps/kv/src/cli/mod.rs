//! The command line.

mod create;
mod open;
mod ycsb;

use clap::{Args, Parser, Subcommand, ValueEnum};
use diskside_kv::format::{VALUE_LEN, Value};
use diskside_kv::{KvError, Mode, Options, Sampling, Store};
use serde_json::{Value as Json, json};
use std::io::Write;

/// A BPF-KV store in a file or on a volume, whose lookups are pushed down to the data.
#[derive(Parser)]
#[command(
    name = "diskside-kv",
    version,
    about,
    max_term_width = 100,
    after_help = "\
A STORE is a path, or a volume: nvme-tcp://host:port/NQN/NSID. Over a path on a volume that this machine has mounted, \
lookups are pushed down to the volume's target, as long as nobody writes the file.

Exit codes: 0 done; 1 a key is not there, or the store is not sound; 2 wrong usage; 4 the environment failed."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a store
    Create(create::Create),
    /// Print the value of a key
    Get {
        #[command(flatten)]
        store: StoreArgs,
        /// The key
        key: u64,
    },
    /// Print the values of several keys
    MultiGet {
        #[command(flatten)]
        store: StoreArgs,
        /// The keys
        #[arg(required = true)]
        keys: Vec<u64>,
    },
    /// Print the pairs of a range of keys
    Range {
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        range: RangeArgs,
    },
    /// Count a range of keys, and sum the numbers that their values end with
    Sum {
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        range: RangeArgs,
    },
    /// Replace the value of a key
    Put {
        #[command(flatten)]
        store: StoreArgs,
        /// The key
        key: u64,
        /// The new value: a text of up to 64 bytes
        value: String,
    },
    /// Print all pairs
    Dump {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Read every node and see whether the store is sound
    Check {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Drive a store with a workload of the Yahoo! Cloud Serving Benchmark
    Ycsb(ycsb::Ycsb),
}

/// Which store, and how it is read.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// Path or URL of the store
    store: String,
    /// How operations read
    #[arg(long, value_enum, default_value_t = ModeArg::Pushdown)]
    mode: ModeArg,
    /// Levels from the root on that are kept in memory
    #[arg(long, value_name = "LEVELS", default_value_t = 0)]
    cache: u32,
    /// Share of lookups that read node by node to feed the cache: off, adaptive, or a percentage
    #[arg(long, value_name = "SHARE", default_value = "off", value_parser = sampling)]
    sampling: Sampling,
    /// Say where lookups over a file of a mounted volume ended, and why
    #[arg(long)]
    explain: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ModeArg {
    /// One read at a time
    Plain,
    /// Reads that do not depend on each other at once
    Async,
    /// Pointers are followed where the data is
    Pushdown,
}

#[derive(Args, Clone, Copy, Debug)]
struct RangeArgs {
    /// First key
    first: u64,
    /// Last key
    last: u64,
    /// Most pairs
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    limit: u64,
}

impl StoreArgs {
    fn options(&self) -> Options {
        let mode = match self.mode {
            ModeArg::Plain => Mode::Plain,
            ModeArg::Async => Mode::Async,
            ModeArg::Pushdown => Mode::Pushdown,
        };
        Options { mode, cache_levels: self.cache, sampling: self.sampling, ..Options::default() }
    }

    fn open(&self) -> Result<Store, Failure> {
        open::open(&self.store, &self.options(), self.explain)
    }

    /// Says what became of lookups.
    fn explain(&self, store: &Store) {
        if let Some(counters) = store.mounted_counters().filter(|_| self.explain) {
            crate::say(format_args!("{}: {counters}", self.store));
        }
    }

    fn open_to_write(&self) -> Result<Store, Failure> {
        open::open_to_write(&self.store, &self.options())
    }
}

fn sampling(text: &str) -> Result<Sampling, String> {
    match text {
        "off" => Ok(Sampling::Off),
        "adaptive" => Ok(Sampling::Adaptive),
        percent => match percent.trim_end_matches('%').parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Sampling::Fixed(percent / 100.0)),
            _ => Err("off, adaptive, or a percentage from 0 to 100".into()),
        },
    }
}

impl Cli {
    pub(crate) fn execute(self) -> Result<u8, Failure> {
        let store = self.command.store().to_owned();
        self.command.execute().map_err(|failure| failure.of(&store))
    }
}

impl Command {
    /// As the user wrote it, for errors.
    fn store(&self) -> &str {
        match self {
            Self::Create(create) => create.store(),
            Self::Get { store, .. }
            | Self::MultiGet { store, .. }
            | Self::Range { store, .. }
            | Self::Sum { store, .. }
            | Self::Put { store, .. }
            | Self::Dump { store }
            | Self::Check { store } => &store.store,
            Self::Ycsb(ycsb) => ycsb.store(),
        }
    }

    fn execute(self) -> Result<u8, Failure> {
        match self {
            Self::Create(create) => create.execute().map(|()| 0),
            Self::Get { store: args, key } => {
                let store = args.open()?;
                let value = store.block_on(store.get(key))?;
                args.explain(&store);
                print_values(&args, &[(key, value)], false)
            }
            Self::MultiGet { store: args, keys } => {
                let store = args.open()?;
                let values = store.block_on(store.multi_get(&keys))?;
                args.explain(&store);
                let pairs: Vec<_> = keys.into_iter().zip(values).collect();
                print_values(&args, &pairs, true)
            }
            Self::Range { store: args, range } => {
                let store = args.open()?;
                let pairs = store.block_on(store.range(range.first, range.last, range.limit))?;
                args.explain(&store);
                let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| (key, Some(value))).collect();
                print_values(&args, &pairs, true)
            }
            Self::Sum { store: args, range } => {
                let store = args.open()?;
                let (count, sum) = store.block_on(store.sum(range.first, range.last, range.limit))?;
                args.explain(&store);
                print(args.json, json!({ "count": count, "sum": sum }), &format!("{count} keys, sum {sum}")).map(|()| 0)
            }
            Self::Put { store: args, key, value } => put(&args, key, &value),
            Self::Dump { store: args } => dump(&args),
            Self::Check { store: args } => {
                let store = args.open()?;
                let r = store.block_on(store.check())?;
                let document = json!({ "levels": r.levels, "nodes": r.nodes, "keys": r.keys, "older": r.is_older });
                let older = if r.is_older { ", older format" } else { "" };
                let text = format!("sound: {} levels, {} nodes, {} keys{older}", r.levels, r.nodes, r.keys);
                print(args.json, document, &text).map(|()| 0)
            }
            Self::Ycsb(ycsb) => ycsb.execute().map(|()| 0),
        }
    }
}

fn put(args: &StoreArgs, key: u64, value: &str) -> Result<u8, Failure> {
    let value = diskside_kv::format::text_value(value).ok_or_else(|| {
        Failure::Usage(format!("a value has at most {VALUE_LEN} bytes, this one has {}", value.len()))
    })?;
    let store = args.open_to_write()?;
    if !store.block_on(store.put(key, &value))? {
        crate::say(format_args!("diskside-kv: {key} is not there; a store keeps the keys that it was made with"));
        return Ok(1);
    }
    store.block_on(store.flush())?;
    Ok(0)
}

fn dump(args: &StoreArgs) -> Result<u8, Failure> {
    // Pairs of one step; a store may be larger than memory.
    const STEP: u64 = 1 << 14;
    let store = args.open()?;
    let mut first = 0;
    loop {
        let pairs = store.block_on(store.range(first, u64::MAX, STEP))?;
        let last = pairs.last().map(|pair| pair.0);
        let is_last = (pairs.len() as u64) < STEP;
        let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| (key, Some(value))).collect();
        print_lines(args.json, &pairs)?;
        match last {
            Some(last) if !is_last => first = last + 1,
            _ => return Ok(0),
        }
    }
}

/// Prints values; 1 when one is missing.
fn print_values(args: &StoreArgs, pairs: &[(u64, Option<Value>)], with_keys: bool) -> Result<u8, Failure> {
    let missing = pairs.iter().filter(|pair| pair.1.is_none());
    let code = u8::from(missing.clone().next().is_some());
    if args.json {
        let pairs: Vec<Json> = pairs.iter().map(pair_json).collect();
        return print(true, json!({ "pairs": pairs }), "").map(|()| code);
    }
    if with_keys {
        print_lines(false, pairs)?;
    } else {
        pairs.iter().filter_map(|pair| pair.1).try_for_each(|value| line(&text(&value)))?;
    }
    missing.for_each(|(key, _)| crate::say(format_args!("diskside-kv: {key} is not there")));
    Ok(code)
}

/// A line for each pair: key, tab, value; or a JSON document for each.
fn print_lines(as_json: bool, pairs: &[(u64, Option<Value>)]) -> Result<(), Failure> {
    pairs.iter().try_for_each(|pair| match (as_json, &pair.1) {
        (true, _) => line(&pair_json(pair).to_string()),
        (false, Some(value)) => line(&format!("{}\t{}", pair.0, text(value))),
        (false, None) => Ok(()),
    })
}

fn pair_json((key, value): &(u64, Option<Value>)) -> Json {
    json!({ "key": key, "value": value.as_ref().map(text) })
}

/// A value without the spaces before and the NULs behind it; bytes that are not text are escaped.
fn text(value: &Value) -> String {
    let end = value.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let start = value[..end].iter().position(|b| *b != b' ').unwrap_or(end);
    value[start..end].escape_ascii().to_string()
}

fn print(as_json: bool, mut document: Json, text: &str) -> Result<(), Failure> {
    if !as_json {
        return line(text);
    }
    document["schema"] = 1.into();
    line(&document.to_string())
}

fn line(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout().lock(), "{text}").map_err(Failure::Output)
}

/// Why a command failed.
pub(crate) enum Failure {
    Usage(String),
    /// An operation on a store, which is named before it where the error does not.
    Store {
        store: Option<String>,
        error: KvError,
    },
    /// A store's file cannot be written; the error names it.
    Write(std::io::Error),
    Output(std::io::Error),
}

impl Failure {
    pub(crate) const WRONG_USAGE: u8 = 2;

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Store { error: KvError::Format { .. }, .. } => 1,
            Self::Usage(_) | Self::Store { error: KvError::Usage(_), .. } => Self::WRONG_USAGE,
            Self::Store { .. } | Self::Write(_) | Self::Output(_) => 4,
        }
    }

    /// With the store that it is about.
    fn of(self, name: &str) -> Self {
        match self {
            Self::Store { store: None, error } if !matches!(error, KvError::Open { .. } | KvError::Usage(_)) => {
                Self::Store { store: Some(name.to_owned()), error }
            }
            other => other,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(what) => f.write_str(what),
            Self::Store { store: Some(store), error } => write!(f, "{store}: {error}"),
            Self::Store { store: None, error } => error.fmt(f),
            Self::Write(error) => write!(f, "cannot write {error}"),
            Self::Output(_) if diskside_sys::standard::output_was_closed() => {
                f.write_str(diskside_sys::standard::OUTPUT_IS_CLOSED)
            }
            Self::Output(error) => write!(f, "writing the output: {error}"),
        }
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        Self::Store { store: None, error }
    }
}
