//! `diskside launch`.

use super::near::explain_session;
use super::run::shown::Shown;
use super::run::{Side, encode_args};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::interrupt::{Watch, cancel_on_signal};
use crate::output::{self, bytes, duration, parse_bytes, parse_tier, say};
use crate::output_file::write_file;
use clap::{Args, ValueEnum};
use diskside::kernel::{KERNEL_DEPTH_MAX, RESULT_BLOCK_LEN, ResultBlocks, SLICE_LEN, SLICE_LEN_MAX};
use diskside::sandbox::activation::Tier;
use diskside::session::{File, KernelRan, OpenMode, RunOptions, Session, SessionOptions, Where};
use diskside::{DirectPolicy, Location, TierChoice};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `launch`.
#[derive(Args)]
#[command(after_help = "\
The kernel knows its files by numbers from 0: those that it may read in the order in which they are named, then those of --write.
It runs once, at the target that has all of them, or here.

Examples:
  diskside launch ndp_aggregate diskside://server/data/numbers.bin --arg unit=65536
  diskside launch ndp_filter diskside://server/data/log.bin --write diskside://server/data/found.bin --arg pattern=ERROR
  diskside launch ./mine.bpf.c input.bin --write output.bin --stats")]
pub(crate) struct Launch {
    /// A shipped kernel, an object (FILE.o[:NAME]) or C source (FILE.c[:NAME]) with a program of kind kernel
    kernel: String,
    /// Files that it may read: paths, diskside://HOST[:PORT]/EXPORT/PATH, or volumes nvme-tcp://HOST[:PORT]/NQN/NSID
    files: Vec<OsString>,
    /// A file that it may read and write; it is made if it is not there
    #[arg(long, value_name = "FILE")]
    write: Vec<OsString>,
    /// An argument of the kernel
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    args: Vec<String>,
    /// Where it runs: at the target that has all files if there is one (auto, device), or with you
    #[arg(long = "where", value_enum, default_value_t = Side::Auto)]
    place: Side,
    /// At a target, run only while nothing else is to do there
    #[arg(long)]
    background: bool,
    /// Which reads and writes go straight to the file, past the buffer of the kernel: those that are whole slices (possible), none
    /// (off), or all, with the slices around them
    #[arg(long, value_enum, default_value_t = Direct::Possible)]
    direct: Direct,
    /// Bytes of a slice: a power of two from 4KiB to 64KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_slice)]
    slice: usize,
    /// Reads and writes that it may have under way at a time
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=KERNEL_DEPTH_MAX as i64))]
    depth: u16,
    /// Bytes that it may have allocated at one time (ds_alloc)
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_bytes)]
    heap: u64,
    /// Room for its result
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_bytes)]
    result: u64,
    /// Blocks of 4KiB of the result that it gives back, unless it decides otherwise, such as 0-3,8 or none; the others are zeroes
    /// [default: all]
    #[arg(long, value_name = "BLOCKS", value_parser = parse_blocks)]
    mask: Option<ResultBlocks>,
    /// How it runs: interp, cranelift or llvm [default: cranelift, or llvm when its code is ready]
    #[arg(long, value_parser = parse_tier)]
    tier: Option<Tier>,
    /// Write the result to this file, as it is
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Loop iterations that it may take [default: 4 a byte of its files, at least 16 Mi]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
    /// Stop after this many milliseconds
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    #[command(flatten)]
    connect: Connect,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print what it took
    #[arg(long)]
    stats: bool,
}

/// `--direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direct {
    /// Those that are whole slices
    Possible,
    /// None
    Off,
    /// All
    All,
}

impl Launch {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let opening = Watch::until(self.deadline_ms.map(Duration::from_millis))?;
        let session = Session::new(SessionOptions { connect: self.connect.options()?, ..SessionOptions::default() });
        let kernel = session.kernel(&self.kernel)?;
        let usage = format!("diskside launch {} FILE... --write FILE", kernel.name());
        let args = encode_args(&kernel, &self.args, &usage, || Ok(String::new()))?;
        let files = open(&session, &self.files, OpenMode::Read)?;
        let writable = open(&session, &self.write, OpenMode::Create)?;
        drop(opening);
        let ran =
            session.launch(&files, &writable, &kernel, &args, &self.options()?).wait().map_err(session_failure)?;
        for line in &ran.log {
            say(format_args!("{}: {line}", kernel.name()));
        }
        let mut shown = Shown::new(&kernel, self.json);
        match &self.out {
            Some(path) => write_file(path, &ran.result)?,
            None => match (shown.write_all(&ran.result), shown.take_failure()) {
                (Err(_), Some(failure)) => return Err(failure),
                (Err(error), None) => return Err(Failure::Output(error)),
                (Ok(()), _) => {}
            },
        }
        if self.json {
            let document = document(kernel.name(), &ran);
            return if self.out.is_none() { shown.finish_json(document) } else { Ok(output::print_json(document)?) };
        }
        if self.out.is_none() {
            shown.finish()?;
        }
        if self.stats {
            say(stats(kernel.name(), &ran));
        }
        Ok(())
    }

    fn options(&self) -> Result<RunOptions, Failure> {
        let mut options = RunOptions {
            place: match self.place {
                Side::Auto => Where::Auto,
                Side::Host => Where::Host,
                Side::Device => Where::Device,
            },
            chunk_len: Some(self.slice),
            depth: Some(self.depth.into()),
            direct: match self.direct {
                Direct::Possible => DirectPolicy::Possible,
                Direct::Off => DirectPolicy::Off,
                Direct::All => DirectPolicy::All,
            },
            tier: self.tier.map_or(TierChoice::Best, TierChoice::Only),
            background: self.background,
            result_blocks: self.mask.clone(),
            ..RunOptions::default()
        };
        options.limits.budget = self.budget;
        options.limits.heap_quota_bytes = self.heap;
        options.limits.result_len_max = usize::try_from(self.result)
            .map_err(|_| Failure::Usage(format!("--result {}: there is no such memory", self.result)))?;
        options.limits.deadline = self.deadline_ms.map(Duration::from_millis);
        options.limits.cancel = Some(cancel_on_signal()?);
        Ok(options)
    }
}

fn open(session: &Session, named: &[OsString], mode: OpenMode) -> Result<Vec<File>, Failure> {
    let open = |name: &OsString| {
        let location = Location::try_from(&**name).map_err(|error| Failure::Usage(error.to_string()))?;
        session.open_as(&location, mode).map_err(|error| explain_session(session, &location, error))
    };
    named.iter().map(open).collect()
}

fn side(ran: &KernelRan) -> &'static str {
    match ran.side {
        diskside::session::Side::Host => "host",
        diskside::session::Side::Device => "device",
    }
}

fn document(name: &str, ran: &KernelRan) -> serde_json::Value {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "kernel": name,
        "side": side(ran),
        "result_bytes": ran.result.len(),
        "result_blocks": named(&ran.blocks.clone().unwrap_or_else(|| ResultBlocks::all(ran.result.len()))),
        "read_bytes": ran.read_bytes,
        "written_bytes": ran.written_bytes,
        "loop_iterations": ran.back_edges,
        "queue_us": us(ran.queue),
        "wait_us": us(ran.wait),
        "run_us": us(ran.run),
        "total_us": us(ran.total),
        "log": ran.log,
    })
}

/// Blocks as `--mask` names them.
fn named(blocks: &ResultBlocks) -> Vec<String> {
    let name = |range: Range<usize>| match range.len() {
        1 => range.start.to_string(),
        _ => format!("{}-{}", range.start, range.end - 1),
    };
    blocks.ranges().into_iter().map(name).collect()
}

fn stats(name: &str, ran: &KernelRan) -> String {
    let masked = ran.blocks.as_ref().map(|blocks| {
        let given: usize = blocks.ranges().iter().map(ExactSizeIterator::len).sum();
        format!("; {given} of {} blocks of its result", ran.result.len().div_ceil(RESULT_BLOCK_LEN))
    });
    format!(
        "{name}: {}, {} read, {} written; {} waiting for its turn, {} for files, {} computing, {} in all{}",
        side(ran),
        bytes(ran.read_bytes),
        bytes(ran.written_bytes),
        duration(ran.queue),
        duration(ran.wait),
        duration(ran.run),
        duration(ran.total),
        masked.unwrap_or_default(),
    )
}

/// The highest number of a block: no result is longer than 2 GiB.
const BLOCK_MAX: usize = (1 << 31) / RESULT_BLOCK_LEN - 1;

fn parse_blocks(text: &str) -> Result<ResultBlocks, String> {
    let mut blocks = ResultBlocks::default();
    if text == "none" {
        return Ok(blocks);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse().ok().filter(|block: &usize| *block <= BLOCK_MAX);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => blocks.add(first..last + 1),
            _ => {
                return Err(format!(
                    "`{part}` is neither a block, from 0 to {BLOCK_MAX}, nor a range of them, such as 0-3"
                ));
            }
        }
    }
    Ok(blocks)
}

fn parse_slice(text: &str) -> Result<usize, String> {
    let len = usize::try_from(parse_bytes(text)?).unwrap_or(usize::MAX);
    let is_fine = len.is_power_of_two() && (SLICE_LEN..=SLICE_LEN_MAX).contains(&len);
    if is_fine { Ok(len) } else { Err("a slice has 4KiB, 8KiB, 16KiB, 32KiB or 64KiB".into()) }
}
