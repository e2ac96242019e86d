//! `diskside run`.

mod files;
mod json;
mod report;
pub(super) mod shown;

use super::exports::{refuse_directory, refuse_no_export, refuse_pattern};
use super::parse_kind;
use super::volume::{Connect, parse_url, session_failure};
use super::waiting::Waiting;
use crate::error::Failure;
use crate::interrupt::{Watch, cancel_on_signal};
use crate::output::{parse_bytes, parse_tier, say};
use crate::output_file::refuse_to_replace;
use crate::progress::Progress;
use clap::{Args, ValueEnum};
use diskside::host::Url;
use diskside::host::mounted::Proof;
use diskside::outfile::Destination;
use diskside::sandbox::activation::Tier;
use diskside::sandbox::image::Kind;
use diskside::session::{
    Decompress, FailureKind, File, Header, Policy, Ran, RunOptions, Session, SessionError, SessionFunction,
    SessionOptions, Where,
};
use diskside::split::Split;
use diskside::wire::file::FileKind;
use diskside::wire::function::StateName;
use diskside::{CallError, Codec, DEPTH_MAX, ExportUrl, Function, Location, PIECE_LEN_MAX, TierChoice};
use shown::Shown;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
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
  diskside run wc diskside://one,copy/logs/a.log
  journalctl | diskside run grep - --arg pattern=ERROR
  diskside run grep_count 'diskside://server/logs/**/*.log' --arg pattern=ERROR
  diskside run ./mine.bpf.c data.bin --stats")]
pub(crate) struct Run {
    /// A shipped function, an object (FILE.o[:NAME]) or C source (FILE.c[:NAME])
    function: OsString,
    /// Take FUNCTION as a file of raw bytecode of this kind, such as read
    #[arg(long, value_parser = parse_kind)]
    kind: Option<Kind>,
    /// Files to run over: paths, `-` for standard input, diskside://HOST[:PORT]/EXPORT/PATH (with *, ?, [...] and ** in
    /// PATH; HOST,HOST where several servers hold copies), or volumes nvme-tcp://HOST[:PORT]/NQN/NSID
    #[arg(required = true)]
    files: Vec<OsString>,
    /// Run over all files below directories
    #[arg(long, short)]
    recursive: bool,
    /// An argument of the function
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    args: Vec<String>,
    /// Where it runs over what is at a target: with the data, with you, or where it is faster. Over files of
    /// this machine it runs here; `device` is refused
    #[arg(long = "where", value_enum, default_value_t = Side::Auto)]
    place: Side,
    /// How `auto` chooses: adaptive, or as lambda-IO does, measuring the first K of every N requests on both sides, or always
    /// one side
    #[arg(
        long,
        value_name = "adaptive|lambda-io[:n=N,k=K]|host|device",
        default_value = "adaptive",
        env = "DISKSIDE_POLICY"
    )]
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
    /// Where in each file to begin
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "0",
        value_parser = parse_bytes,
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    offset: u64,
    /// How many bytes of each file to run over [default: all behind the offset]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_negative_numbers = true)]
    length: Option<u64>,
    /// Decompress files and pipes that begin like gzip or zstd data (auto), nothing, or all input. Then --offset and
    /// --length count decompressed bytes
    #[arg(long, value_name = "auto|none|gzip|zstd", default_value = "auto", value_parser = parse_decompress)]
    decompress: Decompress,
    /// Whose header to leave out: that of any file of a known format (auto; that is NumPy's .npy), or none. Then --offset and
    /// --length count bytes behind the header
    #[arg(long, value_name = "auto|none|npy", default_value = "auto", value_parser = parse_header)]
    header: Header,
    /// Call the function on pieces of this many bytes, rounded to whole records [default: 4MiB, or less for functions
    /// that expand their input]
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk)]
    chunk: Option<usize>,
    /// Bytes that the function may have allocated at one time (ds_alloc)
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_bytes)]
    heap: u64,
    /// Pieces that are read ahead, besides one for each thread; a target may have memory for fewer [default: 4, or what the
    /// target's configuration says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=DEPTH_MAX as i64))]
    depth: Option<u16>,
    /// Threads that run the function
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// How the input is divided: lines, records:N, bytes, or whole to call the function once [default: as the function
    /// declares]
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
    /// Fold the results of all pieces here: of a function at a target each piece's result travels
    #[arg(long, conflicts_with = "no_combine")]
    fold_here: bool,
    /// Write the result to this file, as it is: a path, `-` for standard output, or diskside://HOST[:PORT]/EXPORT/PATH
    #[arg(long, short, value_name = "FILE")]
    out: Option<OsString>,
    /// Let --out overwrite a block device
    #[arg(long, requires = "out")]
    force: bool,
    /// Loop iterations that one chunk may take [default: 4 a byte, at least 16 Mi]
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
    /// Print what the call took
    #[arg(long)]
    stats: bool,
}

/// Files whose lengths are asked for before they are read.
const LENGTHS_MAX: usize = 64;

/// Where functions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Side {
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
        let deadline = self.deadline_ms.map(Duration::from_millis);
        let opening = Watch::until(deadline)?;
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
        let function = match self.kind {
            Some(kind) => session.raw_function(Path::new(&self.function), kind)?,
            None => session.function(&self.function)?,
        };
        if let (offset, Some(length)) = (self.offset, self.length)
            && offset.checked_add(length).is_none()
        {
            return Err(Failure::Usage(format!("--offset {offset} --length {length}: no file has so many bytes")));
        }
        let usage = format!("diskside run {} FILE...", function.name());
        let named = self.files.iter().map(|file| input_name(file)).chain(self.out.as_deref());
        let _waiting = Waiting::watch(&session, named.filter_map(|name| Location::try_from(name).ok()));
        let files = files::open(&session, &self.files, self.recursive)?;
        let first_line = || match files.first() {
            Some(file) => file.first_line(self.decompress).map_err(run_failure),
            None => Ok(String::new()),
        };
        let args = encode_args(&function, &self.args, &usage, first_line)?;
        // How long many files are is known when they are read.
        let len =
            if files.len() > LENGTHS_MAX { 0 } else { files.iter().filter_map(|file| file.len_bytes().ok()).sum() };
        // What is folded is printed when all is done.
        let prints_meanwhile = self.no_combine || function.combine().is_none();
        let progress = Progress::start(len, prints_meanwhile && self.out.as_ref().is_none_or(|out| out == "-"));
        let mut options = RunOptions {
            place: match self.place {
                Side::Auto => Where::Auto,
                Side::Host => Where::Host,
                Side::Device => Where::Device,
            },
            chunk_len: self.chunk,
            offset: self.offset,
            length: self.length,
            decompress: self.decompress,
            header: self.header,
            depth: self.depth.map(usize::from),
            threads: self.threads.into(),
            split: self.split,
            tier: self.tier.map_or(TierChoice::Best, TierChoice::Only),
            fold: !self.no_combine,
            fold_here: self.fold_here,
            background: self.background,
            state: self.state.clone(),
            progress: Some(Arc::clone(progress.done())),
            ..RunOptions::default()
        };
        options.limits.budget = self.budget;
        options.limits.heap_quota_bytes = self.heap;
        options.limits.deadline = deadline;
        options.limits.cancel = Some(cancel_on_signal()?);
        let mut shown = Shown::new(&function, self.json);
        drop(opening);
        let result = self.run(&session, &files, &function, &args, &options, &mut shown);
        progress.finish();
        let ran = match (result, shown.take_failure()) {
            (Err(_), Some(failure)) => return Err(failure),
            (Err(failure), None) => {
                // Why the function failed matters more than that this cannot be shown either.
                let _ = shown.break_off();
                return Err(failure);
            }
            (Ok(ran), _) => ran,
        };
        if let Err(error) = session.save_learnt()
            && self.explain
        {
            say(format_args!("diskside: what was measured is not kept: {error}"));
        }
        report::print(&self, &function, &ran, &session.engine().code().stats(), &session.decisions(), shown)
    }

    fn run(
        &self,
        session: &Session,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        shown: &mut Shown<'_>,
    ) -> Result<Ran, Failure> {
        let Some(out) = &self.out else {
            if !(options.fold && function.combine().is_some()) {
                return session.run(files, function, args, options, Some(shown)).map_err(run_failure);
            }
            // A folded result is short, and both sides can work on it at once.
            let ran = session.run(files, function, args, options, None).map_err(run_failure)?;
            return shown.write_all(&ran.result).map(|()| ran).map_err(Failure::Output);
        };
        let location = Location::try_from(&**out).map_err(|e| Failure::Usage(e.to_string()))?;
        let out = out.display();
        let destination = match location {
            Location::Local(path) if path.as_os_str() == "-" => Destination::stdout(),
            Location::Local(path) => {
                let whole = self.function.as_bytes();
                let source = whole.iter().rposition(|byte| *byte == b':').map_or(whole, |colon| &whole[..colon]);
                for source in [whole, source] {
                    refuse_to_replace(Path::new(OsStr::from_bytes(source)), "the function that runs", &path)?;
                }
                Destination::find(&path)
            }
            Location::Export(url) => {
                refuse_no_export(&url)?;
                let files_there = session.files(&url).map_err(session_failure)?;
                if files_there.stat(&url.path).is_err() {
                    refuse_directory(&out.to_string())?;
                }
                refuse_pattern(&files_there, &url, "`diskside cp --literal` writes files of such names")?;
                let ran = session.run_into(files, function, args, options, &url);
                return ran.map_err(|error| self.explain_out(session, &url, error));
            }
            Location::Volume(_) => {
                return Err(Failure::Usage(format!("--out {out}: a result is a file, not a volume")));
            }
        };
        let destination = destination.map_err(|error| Failure::Environment(format!("cannot write {error}")))?;
        let is_stdout = destination.is_stdout();
        if is_stdout && self.json {
            return Err(Failure::Usage(format!("--out {out} and --json would both go to standard output")));
        }
        if destination.is_block_device() && !self.force {
            let told = format!("--out {out}: it is a block device, whose content would be lost; --force overwrites it");
            return Err(Failure::Usage(told));
        }
        let ran = session.run_into_destination(files, function, args, options, destination);
        ran.map_err(|error| match error {
            // The reader of our output has read enough.
            SessionError::Call(CallError::Write(error)) if is_stdout && error.kind() == ErrorKind::BrokenPipe => {
                Failure::Output(error)
            }
            error => run_failure(error),
        })
    }

    /// A directory of an export cannot be the name of a result.
    fn explain_out(&self, session: &Session, url: &ExportUrl, error: SessionError) -> Failure {
        let stat = || session.files(url).ok()?.stat(&url.path).ok();
        let is_there =
            error.kind() == FailureKind::Environment && stat().is_some_and(|i| i.kind == FileKind::Directory);
        if is_there {
            return Failure::Environment(format!("cannot write {url}: it is a directory: name a file in it"));
        }
        session_failure(error)
    }
}

/// The arguments as the function sees them. `usage` is the command with its function and files.
/// `first_line` is asked for that of the input, if a column of it goes by its name.
pub(super) fn encode_args(
    function: &Function,
    args: &[String],
    usage: &str,
    first_line: impl FnOnce() -> Result<String, Failure>,
) -> Result<Vec<u8>, Failure> {
    let mut given = Vec::new();
    for arg in args {
        let Some((name, value)) = arg.split_once('=') else {
            return Err(Failure::Usage(format!("--arg {arg}: write NAME=VALUE")));
        };
        given.push((name.to_owned(), value.to_owned()));
    }
    if let Some(name) = function.args().and_then(|schema| diskside::args::wants_first_line(schema, &given)) {
        given.push((name.to_owned(), first_line()?));
    }
    match function.args() {
        Some(schema) => diskside::args::encode(schema, &given).map_err(|e| {
            Failure::Usage(format!("{}: {e}\nUsage: {usage} {}", function.name(), diskside::args::usage(schema)))
        }),
        None if given.is_empty() => Ok(Vec::new()),
        None => {
            let hint = "if it has some, compile it with -g, which describes them";
            Err(Failure::Usage(format!("{} takes no arguments ({hint})", function.name())))
        }
    }
}

/// A directory has no bytes, but perhaps files that were meant.
fn run_failure(error: SessionError) -> Failure {
    let directory = match &error {
        SessionError::File { name, source } if source.kind() == ErrorKind::IsADirectory => Some(name.clone()),
        SessionError::Device { name, source } if source.errno() == Some(IS_A_DIRECTORY) => Some(name.clone()),
        _ => None,
    };
    let failure = session_failure(error);
    directory.into_iter().fold(failure, |failure, name| {
        failure.adding(&format!("; --recursive takes all files below it, '{name}/*' those in it"))
    })
}

/// `EISDIR`, as targets send it.
const IS_A_DIRECTORY: i32 = 21;

/// The path or URL that an argument means.
fn input_name(file: &OsStr) -> &OsStr {
    if file == "-" { OsStr::new("/dev/stdin") } else { file }
}

/// Where the XDG base directory specification has a program's state.
pub(super) fn state_directory() -> Option<PathBuf> {
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

fn parse_chunk(text: &str) -> Result<usize, String> {
    let len = usize::try_from(parse_bytes(text)?).ok().filter(|len| (1..=PIECE_LEN_MAX).contains(len));
    len.ok_or_else(|| "a chunk has 1 byte to 1GiB".into())
}

fn parse_decompress(text: &str) -> Result<Decompress, String> {
    match text {
        "auto" => Ok(Decompress::Auto),
        "none" => Ok(Decompress::Never),
        "gzip" => Ok(Decompress::Only(Codec::Gzip)),
        "zstd" => Ok(Decompress::Only(Codec::Zstd)),
        _ => Err("use auto, none, gzip or zstd".into()),
    }
}

fn parse_header(text: &str) -> Result<Header, String> {
    match text {
        "auto" => Ok(Header::Auto),
        "none" => Ok(Header::Ignore),
        "npy" => Ok(Header::Npy),
        _ => Err("use auto, none or npy".into()),
    }
}

fn parse_split(text: &str) -> Result<Split, String> {
    match text {
        "lines" => Ok(Split::Delimiter(b'\n')),
        "bytes" => Ok(Split::Bytes),
        "whole" => Ok(Split::Whole),
        _ => {
            let n = text.strip_prefix("records:").and_then(|n| parse_bytes(n).ok()).and_then(|n| u32::try_from(n).ok());
            n.filter(|n| *n > 0)
                .map(Split::Fixed)
                .ok_or_else(|| "use lines, records:N (N bytes a record), bytes or whole".into())
        }
    }
}
