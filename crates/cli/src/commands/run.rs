//! `diskside run`.

mod report;

use super::volume::{Connect, parse_url, session_failure};
use crate::error::Failure;
use crate::interrupt::cancel_on_signal;
use crate::output::{parse_bytes, parse_tier};
use crate::progress::Progress;
use clap::{Args, ValueEnum};
use diskside::host::Url;
use diskside::host::mounted::Proof;
use diskside::sandbox::activation::Tier;
use diskside::session::{File, Policy, Ran, RunOptions, Session, SessionFunction, SessionOptions, Where};
use diskside::split::Split;
use diskside::wire::function::StateName;
use diskside::{Location, TierChoice};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `run`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside run stats64 data.bin
  diskside run grep log.txt --arg pattern=ERROR
  diskside run grep diskside://server/logs/today.log --arg pattern=ERROR --explain
  diskside run grep /mnt/volume/today.log --arg pattern=ERROR --explain
  diskside run wc diskside://one/logs/a.log diskside://two/logs/a.log
  diskside run ./mine.bpf.c data.bin --stats")]
pub(crate) struct Run {
    /// A shipped function, an object (FILE.o[:NAME]) or C source (FILE.c[:NAME])
    function: String,
    /// Files to run over: paths, diskside://HOST[:PORT]/EXPORT/PATH, or volumes nvme-tcp://HOST[:PORT]/NQN/NSID
    #[arg(required = true)]
    files: Vec<String>,
    /// An argument of the function
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    args: Vec<String>,
    /// Where it runs over what is at a target: with the data, with you, or where it is faster. Over files of
    /// this machine it runs here; `device` is refused
    #[arg(long = "where", value_enum, default_value_t = Side::Auto)]
    place: Side,
    /// How `auto` chooses: adaptive, or as lambda-IO does, measuring the first K of every N requests on both sides
    #[arg(long, value_name = "adaptive|lambda-io[:n=N,k=K]", default_value = "adaptive")]
    policy: Policy,
    /// At a target, run only while nothing else is to do there
    #[arg(long)]
    background: bool,
    /// Say where it ran and why
    #[arg(long)]
    explain: bool,
    /// A volume that files here are mounted from, where the kernel does not tell
    #[arg(long = "volume", value_name = "URL", value_parser = parse_url)]
    volumes: Vec<Url>,
    /// How sure to be of a mounted file's blocks: under a lease, or by comparing extents and times, for files that
    /// are always open for writing; that proves nothing
    #[arg(long, value_enum, default_value_t = ProofArg::Lease)]
    proof: ProofArg,
    /// Neither use nor keep what runs measure (in $XDG_STATE_HOME/diskside, for --where auto)
    #[arg(long)]
    stateless: bool,
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
    /// The named state that the function works with (DS_STATE), kept from call to call by the target, or for this run
    #[arg(long, value_name = "NAME=SIZE", value_parser = parse_state)]
    state: Option<StateName>,
    /// Do not fold the results of the chunks
    #[arg(long)]
    no_combine: bool,
    /// Write the result to this file, as it is: a path, or diskside://HOST[:PORT]/EXPORT/PATH
    #[arg(long, short, value_name = "FILE")]
    out: Option<String>,
    /// Loop iterations that one chunk may take [default: 4 a byte, at least 16 Mi]
    #[arg(long, value_name = "N")]
    budget: Option<u64>,
    /// Stop after this many milliseconds
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    #[command(flatten)]
    connect: Connect,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print what the call took
    #[arg(long)]
    stats: bool,
}

/// Where functions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// Where it is faster
    Auto,
    /// With you
    Host,
    /// With the data
    Device,
}

/// `--proof`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProofArg {
    /// Nobody writes while it runs
    Lease,
    /// Ordinary changes are noticed
    Detect,
}

impl Run {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let connect = self.connect.options()?;
        let learnt_directory = if self.stateless { None } else { state_directory() };
        let session = Session::new(SessionOptions {
            connect,
            policy: self.policy,
            learnt_directory,
            mounted_volumes: self.volumes.clone(),
            mounted_proof: match self.proof {
                ProofArg::Lease => Proof::Epoch,
                ProofArg::Detect => Proof::Detect,
            },
            ..SessionOptions::default()
        });
        let function = session.function(&self.function)?;
        let args = self.encode_args(&function)?;
        let files = self.files.iter().map(|file| session.open(file)).collect::<Result<Vec<_>, _>>();
        let files = files.map_err(session_failure)?;
        let progress = Progress::start(files.iter().filter_map(|file| file.len_bytes().ok()).sum());
        let mut options = RunOptions {
            place: match self.place {
                Side::Auto => Where::Auto,
                Side::Host => Where::Host,
                Side::Device => Where::Device,
            },
            chunk_len: usize::try_from(self.chunk).map_err(|_| Failure::Usage("--chunk is too large".into()))?,
            threads: self.threads.into(),
            split: self.split,
            tier: self.tier.map_or(TierChoice::Best, TierChoice::Only),
            fold: !self.no_combine,
            background: self.background,
            state: self.state.clone(),
            progress: Some(Arc::clone(progress.done())),
            ..RunOptions::default()
        };
        options.limits.budget = self.budget;
        options.limits.deadline = self.deadline_ms.map(Duration::from_millis);
        options.limits.cancel = Some(cancel_on_signal()?);
        let result = self.run(&session, &files, &function, &args, &options);
        progress.finish();
        let ran = result?;
        if let Err(error) = session.save_learnt()
            && self.explain
        {
            eprintln!("diskside: what was measured is not kept: {error}");
        }
        report::print(&self, &function, &ran, &session.engine().code().stats(), &session.decisions())?;
        Ok(())
    }

    fn run(
        &self,
        session: &Session,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
    ) -> Result<Ran, Failure> {
        let Some(out) = &self.out else {
            return session.run(files, function, args, options, None).map_err(session_failure);
        };
        match out.parse().map_err(|e: diskside::LocationError| Failure::Usage(e.to_string()))? {
            Location::Local(path) => {
                session.run_into_path(files, function, args, options, &path).map_err(session_failure)
            }
            Location::Export(url) => session.run_into(files, function, args, options, &url).map_err(session_failure),
            Location::Volume(_) => Err(Failure::Usage(format!("--out {out}: a result is a file, not a volume"))),
        }
    }

    fn encode_args(&self, function: &SessionFunction) -> Result<Vec<u8>, Failure> {
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
}

/// Where the XDG base directory specification has a program's state.
fn state_directory() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("diskside/learnt"))
}

fn parse_state(text: &str) -> Result<StateName, String> {
    let (name, len) = text.split_once('=').ok_or("a name and a size: counters=4KiB")?;
    if name.is_empty() || name.len() > 64 {
        return Err("the name of a state has 1 to 64 bytes".into());
    }
    let len = parse_bytes(len).map_err(|error| error.to_string())?;
    let len_bytes = u32::try_from(len).ok().filter(|len| (1..=16 << 20).contains(len));
    let len_bytes = len_bytes.ok_or("a state has 1 byte to 16MiB")?;
    Ok(StateName { name: name.to_owned(), len_bytes })
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
