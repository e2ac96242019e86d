//! Many files of one target: one call over all of them, at the target or here. And one file that is not opened for its call.

use super::chunks::{ChunkRange, Chunks};
use super::job::{Done, Job};
use super::many::AT_ONCE;
use super::retry::Again;
use super::{Decompress, Header, Ran, RunOptions, Where, device, host};
use crate::location::{ExportUrl, Location};
use crate::npy;
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::link::LoadedProgram;
use crate::session::place::{Now, Place};
use crate::session::short_files::SHORT_LEN_MAX;
use diskside_dispatch::{Decision, Direction, Plan, Policy, Reason, Request, Side};
use diskside_engine::pieces::WHOLE_LEN_MAX;
use diskside_engine::{CallError, ChunkCodecs, Codec, Source, Sources};
use diskside_host::function::FunctionError;
use diskside_host::{drive, own_thread};
use diskside_io::readahead::{ReadAt as _, ReadAtError, ReadError};
use diskside_io::request::{RequestFuture, run_here};
use std::collections::VecDeque;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Sources of type 6, in the capabilities.
const SOURCE_PATHS: u32 = 1 << 6;

/// Whether these are chunks, or more files than run at the same time, all of exports of one target, which takes them by their
/// paths.
pub(super) fn takes_paths(files: &[File], options: &RunOptions) -> bool {
    // One request for many files folds their results there.
    let are_many = files.len() > AT_ONCE && !options.fold_here;
    (options.chunks.is_some() || are_many) && can_take_paths(files, options)
}

/// Whether this is one file that is not open and need not be: its target gets the path with the request, looks at the
/// first bytes of the file itself, and one round trip opens, looks and runs. That is where the caller says that it runs
/// there, and where the file was short when this session saw it last. A file of which several threads are to read parts
/// has to be opened, for the target has to know how long it is.
pub(super) fn is_asked_for_by_path(files: &[File], options: &RunOptions) -> bool {
    let [File { inner, .. }] = files else { return false };
    let is_closed = matches!(&inner.place, Place::Export(remote) if remote.is_late_and_closed());
    let can_be_there = match options.place {
        Where::Device => true,
        // The other policy measures both sides at once.
        Where::Auto if matches!(inner.session.policy(), Policy::Periodic { .. }) => false,
        Where::Auto => inner.session.short_files().len_bytes(inner.id).is_some(),
        Where::Host => false,
    };
    is_closed && can_be_there && options.threads == 1 && !options.fold_here && can_take_paths(files, options)
}

fn can_take_paths(files: &[File], options: &RunOptions) -> bool {
    // Which header a file has, the host finds out.
    let asks =
        options.header == Header::Npy || options.header != Header::Ignore && options.decompress != Decompress::Auto;
    let are_chunks = options.chunks.is_some();
    if asks && !are_chunks || !options.part().is_whole() {
        return false;
    }
    let link = |file: &File| match &file.inner.place {
        Place::Export(remote) => Some(Arc::as_ptr(&remote.link)),
        _ => None,
    };
    let first = files.first().and_then(link);
    let target = files.first().and_then(|file| file.inner.place.link()).and_then(|link| link.compute().ok());
    let knows = target.is_some_and(|target| target.capabilities().source_kinds.get() & SOURCE_PATHS != 0);
    knows && first.is_some() && files.iter().all(|file| link(file) == first)
}

/// Sees to it that files can be chunks, if the options say that they are.
pub(super) fn check_chunks(files: &[File], options: &RunOptions) -> Result<(), SessionError> {
    let (Some(chunks), Some(first)) = (&options.chunks, files.first()) else { return Ok(()) };
    let why = if chunks.len_bytes == 0 || chunks.len_bytes > WHOLE_LEN_MAX as u64 {
        "a decoded chunk has 1 byte to 128 MiB"
    } else if !chunks.ranges.is_empty() && chunks.ranges.len() != files.len() {
        "there is not one range for each chunk"
    } else if chunks.ranges.iter().any(|range| range.bytes.start > range.bytes.end) {
        "a range of a chunk ends before it begins"
    } else if !options.part().is_whole() {
        "a part of each chunk cannot be asked for: name the range of its file that it is"
    } else if !takes_paths(files, options) {
        let (name, why) = (first.inner.name.clone(), "chunks of an array are files of exports of one target");
        return Err(SessionError::Unsupported { name, why });
    } else {
        return Ok(());
    };
    Err(SessionError::Input { name: first.inner.name.clone(), why: why.to_owned() })
}

/// Sees to it that nobody takes for chunks what is not run over as such.
pub(super) fn check_no_chunks(file: &File, options: &RunOptions) -> Result<(), SessionError> {
    if options.chunks.is_none() {
        return Ok(());
    }
    let why = "only a run over files takes them as chunks of an array: use Session::run or run_into, or leave out \
        RunOptions::chunks";
    Err(SessionError::Unsupported { name: file.inner.name.clone(), why })
}

/// The outcome of the first try of a run, before its thread was begun.
pub(super) enum First {
    /// It was only decided where it runs.
    Decided(Decided),
    /// It was sent, and failed.
    Failed(SessionError),
}

/// Where a run is to be, and its program at the target.
pub(super) struct Decided {
    pub(super) decision: Decision,
    pub(super) program: Option<Arc<LoadedProgram>>,
}

impl Decided {
    pub(super) fn side(&self) -> Side {
        let probe = self.decision.probe.filter(|probe| probe.instead);
        probe.map_or_else(|| self.decision.plan.side().unwrap_or(Side::Device), |probe| probe.side)
    }
}

/// Runs a function over them. The function sees them as its sources 0, 1, …, on either side.
pub(super) async fn run(
    files: &[File],
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
    mut first: Option<First>,
) -> Result<Ran, SessionError> {
    let mut again = Again::new(&files[0], function, options, out)?;
    loop {
        let (options, out, _) = again.parts();
        let ran = match first.take() {
            None => run_once(files, function, args, options, out, None).await,
            Some(First::Decided(decided)) => run_once(files, function, args, options, out, Some(decided)).await,
            Some(First::Failed(error)) => Err(error),
        };
        if let Some(ran) = again.or_another(ran).await? {
            return Ok(ran);
        }
    }
}

async fn run_once(
    files: &[File],
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
    decided: Option<Decided>,
) -> Result<Ran, SessionError> {
    // A function that cannot be divided is not the target's fault.
    options.pieces(function, args)?;
    let mut job = Job::new(&files[0], NOT_OPEN, function, args, options);
    let decided = match decided {
        Some(decided) => decided,
        None => decide(&mut job, files).await?,
    };
    let job = decided.job(job);
    let folds = options.fold && function.combine().is_some();
    // A folded result comes at once, and a request that fails before may be sent again.
    let (streamed, folded) = if folds { (None, out) } else { (out, None) };
    let written = streamed.is_some();
    let done = match decided.side() {
        Side::Host => {
            own_thread().await;
            host::run_over_remote(&job, files, streamed)?
        }
        Side::Device => device::over_paths(&job, files, streamed).await?,
    };
    let mut ran = gather(&job, files, done, decided.decision, written)?;
    if let Some(out) = folded {
        own_thread().await;
        out.write_all(&ran.result).map_err(CallError::Write)?;
        ran.result = Vec::new();
    }
    Ok(ran)
}

/// For a file that is not open.
pub(super) const NOT_OPEN: Now = Now { len_bytes: 0, version: None, keep: false };

/// What came of a run, of which notes are taken.
pub(super) fn gather(
    job: &Job<'_>,
    files: &[File],
    mut done: Done,
    decision: Decision,
    written: bool,
) -> Result<Ran, SessionError> {
    done.part.name = name_of(files);
    if let ([only], None) = (files, &job.options.chunks) {
        only.inner.session.short_files().note(only.inner.id, done.part.range.end);
    }
    job.observe(&done);
    let mut ran = job.gather(vec![done], None, written)?;
    ran.decisions.push((name_of(files), decision));
    Ok(ran)
}

impl Decided {
    /// The job that runs as was decided.
    pub(super) fn job<'a>(&self, job: Job<'a>) -> Job<'a> {
        Job { program: self.program.clone(), reason: Some(self.decision.reason), ..job }
    }
}

/// Where it is to run, with its program if that is at the device.
pub(super) async fn decide(job: &mut Job<'_>, files: &[File]) -> Result<Decided, SessionError> {
    let decision = side_of(job, files).await?;
    job.reason = Some(decision.reason);
    Ok(Decided { decision, program: job.program.clone() })
}

/// Short files run at the device, unless the caller or the function says otherwise: each would cost this side round trips.
/// Whether they are short, a few of them tell; where they are not, and of a file that is alone, what was measured decides.
async fn side_of(job: &mut Job<'_>, files: &[File]) -> Result<Decision, SessionError> {
    let (function, told) = (job.function, job.options.place.told());
    let chunk_len = job.options.chunks.as_ref().and_then(|chunks| chunks.mean_len());
    let known_len = match files {
        [only] if chunk_len.is_none() => only.inner.session.short_files().len_bytes(only.inner.id),
        _ => None,
    };
    let len_bytes = match (told, chunk_len.or(known_len)) {
        (Some(_), _) => 0,
        (None, Some(known)) => known,
        (None, None) => mean_len(files).await,
    };
    // Of many short chunks decoding may take longer than their way: that is measured.
    let total = len_bytes.saturating_mul(files.len() as u64);
    let takes_long = job.options.chunks.is_some() && total > LONG_CHUNKS_BYTES;
    if told.is_none() && known_len.is_none() && len_bytes <= SHORT_LEN_MAX && !takes_long {
        match job.load().await {
            Ok(()) => return Ok(Decision::made(Plan::Device, Reason::ManyFiles)),
            Err(error) if error.function().is_some_and(FunctionError::is_loss) => return Err(error),
            Err(error) if !function.is_pure() => return Err(error),
            Err(_) => return Ok(Decision::made(Plan::Host, Reason::NoCompute)),
        }
    }
    job.decide(&Request {
        direction: Direction::Read,
        len_bytes: total.max(1),
        cached_bytes: 0,
        effect_free: function.is_pure(),
        divisible: false,
        part_len_bytes: 0,
        hints: job.hints(),
        told,
    })
    .await
}

/// Bytes of a file, in the mean of some of them that are asked at once. One that cannot be asked says why when it is its turn.
async fn mean_len(files: &[File]) -> u64 {
    let step = files.len().div_ceil(SAMPLED_FILES).max(1);
    let asked: Vec<_> = files
        .iter()
        .step_by(step)
        .filter_map(|file| match &file.inner.place {
            Place::Export(remote) => Some(remote.info()),
            _ => None,
        })
        .collect();
    let (mut sum, mut count) = (0, 0);
    for info in asked {
        if let Ok(info) = info.await {
            sum += info.len_bytes;
            count += 1;
        }
    }
    sum / std::cmp::max(count, 1)
}

/// Files that tell how long all of them are.
const SAMPLED_FILES: usize = 8;

/// The paths as a request sends them, each with its range if it is one.
pub(super) fn paths_of(files: &[File], options: &RunOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, file) in files.iter().enumerate() {
        if let Place::Export(remote) = &file.inner.place {
            bytes.extend_from_slice(&(remote.path().len() as u16).to_le_bytes());
            bytes.extend_from_slice(remote.path());
        }
        if let Some(range) = options.chunks.as_ref().and_then(|chunks| chunks.range(index)) {
            let ChunkRange { bytes: Range { start, end }, version } = range;
            for number in [*start, end - start, version.unwrap_or_default()] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    bytes
}

fn name_of(files: &[File]) -> String {
    if let [only] = files {
        return only.inner.name.clone();
    }
    format!("{} files at {}", files.len(), target_name(&files[0]))
}

/// Whether it failed so because a file begins with a header.
pub(super) fn is_header(error: &SessionError) -> bool {
    let unsupported = diskside_io::Errno::OPNOTSUPP.raw_os_error();
    match error {
        SessionError::Call(CallError::Read { error: ReadError::Open { source, .. }, .. }) => {
            source.raw_os_error() == Some(unsupported)
        }
        error => error.function().and_then(FunctionError::errno) == Some(unsupported),
    }
}

/// The name of a file's target in errors, which name the file by its path there.
pub(super) fn target_name(file: &File) -> String {
    match &file.inner.location {
        Location::Export(url) => ExportUrl { path: Vec::new(), ..url.clone() }.to_string(),
        location => location.to_string(),
    }
}

/// Files of exports that are read here: some are being fetched while the function runs over those before.
#[derive(Debug)]
pub(super) struct RemoteFiles {
    files: Vec<File>,
    decompress: Decompress,
    header: Header,
    /// What they are instead, and what decodes them.
    chunks: Option<(Arc<Chunks>, Arc<ChunkCodecs>)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The next one to be fetched.
    next: usize,
    coming: VecDeque<(File, RequestFuture<Result<Fetched, SessionError>>)>,
    /// The one that is being read piece by piece, and how.
    open: Option<(File, Arc<crate::session::cache::CachedFile>)>,
    bytes: u64,
    wire_bytes: u64,
    /// Of chunks, wherever they came from.
    taken: u64,
    /// The file that the last chunk was a range of, and its version.
    last: Option<(String, Option<u64>)>,
}

/// What was fetched of a file.
#[derive(Debug)]
enum Fetched {
    /// All of it, what was asked for and what moved.
    Short { bytes: Vec<u8>, version: Option<u64>, fetched: u64, moved: u64 },
    /// Nothing yet: it is long.
    Long(Now),
    /// It is not a chunk.
    NoChunk(String),
    /// The file is not, or no longer, of the version that chunks are wanted of.
    AnotherVersion,
}

/// Short files that are fetched before it is their turn.
const FETCHED_FILES: usize = 16;
/// Bytes of all chunks of a run from which on it matters where they are decoded.
const LONG_CHUNKS_BYTES: u64 = 4 << 20;
/// Bytes of chunks that are fetched before it is their turn, and two of them in any case.
const CHUNKS_FETCHED_BYTES: usize = 64 << 20;

impl RemoteFiles {
    pub(super) fn new(files: &[File], options: &RunOptions) -> Self {
        let RunOptions { decompress, header, .. } = *options;
        let chunks = options.chunks.as_ref().map(|chunks| (Arc::clone(chunks), chunks.codecs()));
        Self { files: files.to_vec(), decompress, header, chunks, state: Mutex::default() }
    }

    /// A file that begins with a header that the function does not get is looked at alone.
    fn check_header(&self, name: &str, head: &[u8]) -> Result<(), ReadError> {
        if self.header == Header::Ignore || !head.starts_with(&npy::MAGIC) {
            return Ok(());
        }
        Err(ReadError::Open { path: PathBuf::from(name), source: diskside_io::Errno::OPNOTSUPP.into() })
    }

    fn codec_of(&self, head: &[u8]) -> Option<Codec> {
        match self.decompress {
            Decompress::Never => None,
            Decompress::Auto => Codec::of(head),
            Decompress::Only(codec) => Some(codec),
        }
    }

    /// Bytes that were fetched, and that moved for it.
    pub(super) fn fetched(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.bytes, state.wire_bytes)
    }

    /// Bytes of all chunks as they are in their files.
    pub(super) fn taken(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken
    }

    /// How many may be on their way at a time.
    fn fetched_max(&self) -> usize {
        let most = |codecs: &ChunkCodecs| (CHUNKS_FETCHED_BYTES / codecs.encoded_len_max().max(1)).max(2);
        self.chunks.as_ref().map_or(FETCHED_FILES, |(_, codecs)| most(codecs).min(FETCHED_FILES))
    }
}

impl Sources for RemoteFiles {
    fn are_chunks(&self) -> bool {
        self.chunks.is_some()
    }

    fn next(&self) -> Result<Option<Source>, ReadError> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((file, cached)) = state.open.take() {
            state.bytes += cached.fetched.bytes.load(Ordering::Relaxed);
            state.wire_bytes += cached.fetched.wire_bytes.load(Ordering::Relaxed);
            file.close_late();
        }
        while state.coming.len() < self.fetched_max() && state.next < self.files.len() {
            let mut file = self.files[state.next].clone();
            // Each chunk of a file has that to itself: it is closed behind one while others are read.
            if self.chunks.as_ref().is_some_and(|(chunks, _)| chunks.range(state.next).is_some()) {
                let opened = file.inner.session.open_late(&file.inner.location);
                file = opened.map_err(|error| ReadError::Setup(io_error(error)))?;
            }
            let coming = match &self.chunks {
                None => drive(fetch(file.clone(), None, SHORT_LEN_MAX)),
                Some((chunks, codecs)) => {
                    drive(fetch(file.clone(), chunks.range(state.next).cloned(), codecs.encoded_len_max() as u64))
                }
            };
            state.coming.push_back((file, coming));
            state.next += 1;
        }
        let Some((file, coming)) = state.coming.pop_front() else { return Ok(None) };
        let name = file.inner.name.clone();
        let failed = |error: SessionError| ReadError::Open { path: PathBuf::from(&name), source: io_error(error) };
        match run_here(coming).map_err(failed)? {
            Fetched::Short { bytes, version, fetched, moved } => {
                state.bytes += fetched;
                state.wire_bytes += moved;
                file.close_late();
                if let Some((_, codecs)) = &self.chunks {
                    state.taken += bytes.len() as u64;
                    let last = state.last.replace((name.clone(), version));
                    if last.is_some_and(|(last, before)| last == name && before != version) {
                        return Err(another_version(&name));
                    }
                    return Ok(Some(Source::Chunk { name, bytes: bytes.into(), codecs: Arc::clone(codecs) }));
                }
                let codec = self.codec_of(&bytes);
                self.check_header(&name, &bytes)?;
                Ok(Some(decompressed(Source::Bytes { name, bytes: bytes.into() }, codec)))
            }
            Fetched::NoChunk(how) => Err(ReadError::Damaged { path: PathBuf::from(name), how }),
            Fetched::AnotherVersion => Err(another_version(&name)),
            Fetched::Long(now) if self.chunks.is_some() => {
                let how = format!("its {} bytes are too many for a chunk", now.len_bytes);
                Err(ReadError::Damaged { path: PathBuf::from(name), how })
            }
            Fetched::Long(now) => {
                let Place::Export(remote) = &file.inner.place else { return Ok(None) };
                let cached = run_here(remote.cached(&file.inner.session, file.inner.id, &now));
                let cached = Arc::new(cached.map_err(|error| failed(SessionError::device(&file.inner.name, error)))?);
                state.open = Some((file.clone(), Arc::clone(&cached)));
                let mut head = vec![0; Codec::HEAD_LEN];
                cached
                    .read_exact_at(0, &mut head)
                    .map_err(|error| failed(SessionError::file(&name, io_error_of(error))))?;
                let codec = self.codec_of(&head);
                self.check_header(&name, &head)?;
                let range = Some(0..now.len_bytes);
                Ok(Some(decompressed(Source::Reader { name, reader: cached, range }, codec)))
            }
        }
    }
}

/// What is no longer than `most`, or is a range.
async fn fetch(file: File, range: Option<ChunkRange>, most: u64) -> Result<Fetched, SessionError> {
    let inner = &file.inner;
    let failed = |error| SessionError::device(&inner.name, error);
    let Place::Export(remote) = &inner.place else { unreachable!("these are files of exports") };
    let now = remote.refresh().await.map_err(failed)?;
    let is_range = range.is_some();
    if range.as_ref().and_then(|range| range.version).is_some_and(|wanted| now.version != Some(wanted)) {
        return Ok(Fetched::AnotherVersion);
    }
    let range = range.map_or(0..now.len_bytes, |range| range.bytes);
    if is_range && (range.end > now.len_bytes || range.end - range.start > most) {
        let Range { start, end } = range;
        return Ok(Fetched::NoChunk(format!("bytes {start}..{end} of its {} are no chunk", now.len_bytes)));
    }
    if range.end - range.start > most {
        return Ok(Fetched::Long(now));
    }
    let cached = remote.cached(&inner.session, inner.id, &now).await.map_err(failed)?;
    let mut bytes = diskside_io::buffer::Buffer::zeroed((range.end - range.start) as usize);
    match cached.fill(range.start, &mut bytes).await {
        Err(ReadAtError::Changed(_)) if is_range => return Ok(Fetched::AnotherVersion),
        read => read.map_err(|error| SessionError::file(&inner.name, io_error_of(error)))?,
    }
    if is_range && cached.grew.load(Ordering::Relaxed) {
        return Ok(Fetched::AnotherVersion);
    }
    let (fetched, moved) = (cached.fetched.bytes(), cached.fetched.wire_bytes());
    Ok(Fetched::Short { bytes: bytes.to_vec(), version: now.version, fetched, moved })
}

fn another_version(name: &str) -> ReadError {
    let how = "it is another version than its other chunks are of".to_owned();
    ReadError::Changed { path: PathBuf::from(name), how }
}

fn decompressed(source: Source, codec: Option<Codec>) -> Source {
    if codec.is_some() { source.decompressed(codec, None) } else { source }
}

fn io_error_of(error: ReadAtError) -> std::io::Error {
    match error {
        ReadAtError::Io(error) => error,
        other => std::io::Error::other(other.to_string()),
    }
}

/// The engine's error of a file that cannot be read, in the words of this system where it has some.
fn io_error(error: SessionError) -> std::io::Error {
    match error {
        SessionError::Device { source, .. } => match source.errno() {
            Some(errno) => std::io::Error::from_raw_os_error(errno),
            None => source.into(),
        },
        SessionError::File { source, .. } => source,
        other => std::io::Error::other(other.to_string()),
    }
}
