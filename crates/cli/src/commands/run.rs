//! `diskside run`.

mod report;

use crate::error::Failure;
use crate::output::parse_bytes;
use crate::progress::Progress;
use clap::Args;
use diskside::sandbox::activation::Tier;
use diskside::split::Split;
use diskside::{Call, Engine, Function, Outcome, Sink, Source, TierChoice};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `run`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside run stats64 data.bin
  diskside run grep log.txt --arg pattern=ERROR
  diskside run ./mine.bpf.c data.bin --stats")]
pub(crate) struct Run {
    /// A shipped function, an object (FILE.o[:NAME]) or C source (FILE.c[:NAME])
    function: String,
    /// Files to run over
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// An argument of the function
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    args: Vec<String>,
    /// Bytes of a chunk
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_bytes)]
    chunk: u64,
    /// Threads that run the function
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// How records end: lines, records:N or none [default: what the function asks for]
    #[arg(long, value_parser = parse_split)]
    split: Option<Split>,
    /// How the function runs: interp, cranelift or llvm [default: cranelift at once, and llvm when its
    /// code is ready]
    #[arg(long, value_parser = parse_tier)]
    tier: Option<Tier>,
    /// Do not fold the results of the chunks
    #[arg(long)]
    no_combine: bool,
    /// Write the result to this file, as it is
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Loop iterations that one chunk may take [default: 4 a byte, at least 16 Mi]
    #[arg(long, value_name = "N")]
    budget: Option<u64>,
    /// Stop after this many milliseconds
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print what the call took
    #[arg(long)]
    stats: bool,
}

impl Run {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let engine = Engine::new(diskside::helpers()).with_llvm_if_found();
        let function = diskside::resolve(&engine, &self.function)?;
        let args = self.encode_args(&function)?;
        let sources: Vec<Source> = self.files.iter().map(Source::file).collect();
        let progress = Progress::start(self.input_len());
        let mut call = Call::new(&function, sources, args);
        call.chunk_len = usize::try_from(self.chunk).map_err(|_| Failure::Usage("--chunk is too large".into()))?;
        call.threads = self.threads.into();
        call.split = self.split;
        call.tier = self.tier.map_or(TierChoice::Best, TierChoice::Only);
        call.fold = !self.no_combine;
        call.limits.budget = self.budget;
        call.limits.deadline = self.deadline_ms.map(Duration::from_millis);
        call.progress = Some(Arc::clone(progress.done()));
        let result = self.run(&engine, &call);
        progress.finish();
        let outcome = result?;
        report::print(&self, &function, &outcome, &engine.code().stats())?;
        Ok(())
    }

    fn run(&self, engine: &Engine, call: &Call<'_>) -> Result<Outcome, Failure> {
        let Some(path) = &self.out else { return Ok(engine.run(call, &mut Sink::Memory)?) };
        let failed = |e: std::io::Error| Failure::Environment(format!("cannot write {}: {e}", path.display()));
        // A result appears whole or not at all.
        let partial = path.with_added_extension("partial");
        let mut file = std::fs::File::create(&partial).map_err(failed)?;
        let written = engine
            .run(call, &mut Sink::Writer(&mut file))
            .map_err(Failure::from)
            .and_then(|outcome| file.flush().and_then(|()| file.sync_all()).map(|()| outcome).map_err(failed))
            .and_then(|outcome| std::fs::rename(&partial, path).map(|()| outcome).map_err(failed));
        if written.is_err() {
            // The error that matters is the first one.
            let _ = std::fs::remove_file(&partial);
        }
        written
    }

    fn encode_args(&self, function: &Function) -> Result<Vec<u8>, Failure> {
        let mut given = Vec::new();
        for arg in &self.args {
            let Some((name, value)) = arg.split_once('=') else {
                return Err(Failure::Usage(format!("--arg {arg}: write NAME=VALUE")));
            };
            given.push((name.to_owned(), value.to_owned()));
        }
        match function.args() {
            Some(schema) => {
                diskside::args::encode(schema, &given).map_err(|e| Failure::Usage(format!("{}: {e}", function.name())))
            }
            None if given.is_empty() => Ok(Vec::new()),
            None => Err(Failure::Usage(format!("{} describes no arguments; compile it with -g", function.name()))),
        }
    }

    fn input_len(&self) -> u64 {
        self.files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum()
    }
}

fn parse_split(text: &str) -> Result<Split, String> {
    match text {
        "lines" => Ok(Split::Delimiter(b'\n')),
        "none" => Ok(Split::None),
        _ => {
            let n = text.strip_prefix("records:").and_then(|n| parse_bytes(n).ok()).and_then(|n| u32::try_from(n).ok());
            n.filter(|n| *n > 0)
                .map(Split::Fixed)
                .ok_or_else(|| "use lines, records:N (N bytes a record) or none".into())
        }
    }
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    match text {
        "interp" => Ok(Tier::Interpreter),
        "cranelift" => Ok(Tier::Cranelift),
        "llvm" => Ok(Tier::Llvm),
        _ => Err("tiers are interp, cranelift and llvm".into()),
    }
}
