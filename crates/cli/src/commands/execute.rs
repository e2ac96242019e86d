//! `diskside execute`.

use crate::error::Failure;
use crate::interrupt::cancel_on_signal;
use crate::output::{self, parse_bytes, parse_tier};
use crate::output_file::write_file;
use clap::Args;
use diskside::io::buffer::{Buffer, Hugepages};
use diskside::sandbox::activation::Tier;
use diskside::{CallLimits, Engine, Execution, Function, State, TierChoice};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Arguments of `execute`.
#[derive(Args)]
#[command(after_help = "\
A program of kind exec sees all ranges and the data, one of kind delilah its one range: its data slot. Those that run over bytes
take two: input and output. The ranges are copies: no file is changed but those that --out names.

Examples:
  diskside execute ./words.bpf.c data.bin =8 --cparam1 5 --out 2=sum.bin
  diskside execute ./select.bpf.c slot.bin --out 1=slot.bin")]
pub(crate) struct Execute {
    /// A shipped function, an object (FILE.o[:NAME]) or C source (FILE.c[:NAME])
    program: String,
    /// Memory ranges, from range 1 on: the bytes of a file, up to a multiple of 8 with zeroes behind them, or so many zeroes
    #[arg(value_name = "FILE|=SIZE")]
    ranges: Vec<Range>,
    /// The data of the command: range 0, or the arguments of a function
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// First parameter; of a program of kind delilah the number of its state
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_number)]
    cparam1: u64,
    /// Second parameter; of a program of kind delilah the length of its state, which begins as zeroes
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_number)]
    cparam2: u64,
    /// Write a range as the program left it to a file
    #[arg(long, value_name = "RANGE=FILE")]
    out: Vec<Out>,
    /// How the program runs: interp, cranelift or llvm [default: cranelift]
    #[arg(long, value_parser = parse_tier)]
    tier: Option<Tier>,
    /// Loop iterations that it may take [default: 4 a byte, at least 16 Mi]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
    /// Stop after this many milliseconds
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a memory range begins with.
#[derive(Clone, Debug)]
enum Range {
    File(PathBuf),
    Zeroes(u64),
}

/// Which range goes to which file.
#[derive(Clone, Debug)]
struct Out {
    range: usize,
    path: PathBuf,
}

/// Ranges of a target begin and end at multiples of this.
const GRANULARITY: u64 = 8;
/// The longest state of a target.
const STATE_LEN_MAX: u64 = 16 << 20;

impl Execute {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if let Some(out) = self.out.iter().find(|out| !(1..=self.ranges.len()).contains(&out.range)) {
            let told = format!("--out {}=...: there are {} ranges, from 1 on", out.range, self.ranges.len());
            return Err(Failure::Usage(told));
        }
        let engine = Engine::new(diskside::helpers()).with_llvm_if_found();
        let function = diskside::library::describe(&engine, &self.program)?;
        let mut ranges = self.ranges.iter().map(Range::make).collect::<Result<Vec<_>, _>>()?;
        let data = self.data.as_deref().map_or_else(|| Ok(Vec::new()), read)?;
        let limits = CallLimits {
            budget: self.budget,
            deadline: self.deadline_ms.map(Duration::from_millis),
            cancel: Some(cancel_on_signal()?),
            ..CallLimits::default()
        };
        let returned = engine.execute(Execution {
            function: &function,
            ranges: ranges.iter_mut().map(|range| (0, &mut range[..])).collect(),
            data: &data,
            cparam1: self.cparam1,
            cparam2: self.cparam2,
            state: self.state(&function)?,
            tier: self.tier.map_or(TierChoice::Best, TierChoice::Only),
            limits,
            turns: None,
        })?;
        for Out { range, path } in &self.out {
            write_file(path, &ranges[range - 1])?;
        }
        // Of delilah it is a number like any other.
        if let code @ ..0 = returned.cast_signed()
            && !function.is_in_place()
        {
            return Err(Failure::Function(format!("{} returned {code}", function.main().entry().section)));
        }
        if self.json {
            let (name, kind) = (function.name(), function.kind().name());
            let outs = self.out.iter().map(|out| json!({ "range": out.range, "file": out.path }));
            let outs: Vec<_> = outs.collect();
            return Ok(output::print_json(
                json!({ "function": name, "kind": kind, "returned": returned, "out": outs }),
            )?);
        }
        writeln!(output::stdout(), "returned {returned}")?;
        Ok(())
    }

    fn state(&self, function: &Function) -> Result<Option<State>, Failure> {
        match self.cparam2 {
            _ if !function.is_in_place() => Ok(None),
            0 => Ok(None),
            len if len <= STATE_LEN_MAX => Ok(Some(State::new(len as usize))),
            len => Err(Failure::Usage(format!("--cparam2 {len}: a state has at most 16 MiB"))),
        }
    }
}

impl Range {
    fn make(&self) -> Result<Buffer, Failure> {
        match self {
            Self::File(path) => {
                let mut bytes = read(path)?;
                bytes.resize(bytes.len().next_multiple_of(GRANULARITY as usize), 0);
                Ok(Buffer::copy_of(&bytes))
            }
            Self::Zeroes(len) => {
                let made = usize::try_from(*len).map(|len| Buffer::try_with_hugepages(len, Hugepages::No));
                let made = made.ok().and_then(Result::ok);
                made.ok_or_else(|| Failure::Environment(format!("there is no memory for a range of {len} bytes")))
            }
        }
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('=') {
            None => Ok(Self::File(text.into())),
            Some(len) => match parse_bytes(len)? {
                len if len > 0 && len.is_multiple_of(GRANULARITY) => Ok(Self::Zeroes(len)),
                _ => Err("a range has a multiple of 8 bytes, at least 8".into()),
            },
        }
    }
}

impl FromStr for Out {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (range, path) = text.split_once('=').ok_or("a range and a file: 2=FILE")?;
        let range = range.parse().map_err(|_| format!("`{range}` is no number of a range"))?;
        Ok(Self { range, path: path.into() })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| Failure::Environment(format!("cannot read {}: {e}", path.display())))
}

fn parse_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no number of 64 bits"))
}
