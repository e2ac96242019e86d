//! A part on this side: the same engine, over what is kept and what is fetched.

use super::RanPart;
use super::group::RemoteFiles;
use super::job::{Done, Job};
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::place::Place;
use diskside_dispatch::{Observation, Side};
use diskside_engine::{Call, CallError, Outcome, Part, Sink, Source, Sources};
use diskside_io::buffer::{Buffer, Part as BufferPart};
use diskside_io::readahead::{ReadAt, ReadAtError, ReadError, Reading};
use diskside_io::request::{AsyncIo, Request, run_here};
use diskside_sbpf::machine::CancelWatch;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The bytes that were fetched for a part: how many, how many on the wire, and how long it took.
#[derive(Clone, Copy, Default)]
struct Fetched {
    bytes: u64,
    wire_bytes: u64,
    time_s: f64,
}

pub(super) fn run(
    job: &Job<'_>,
    range: &Range<u64>,
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Done, SessionError> {
    let name = job.name().to_owned();
    let inner = &job.file.inner;
    match &inner.place {
        Place::Local { path, descriptor, .. } => {
            let source = match descriptor {
                Some(descriptor) => descriptor.source(&name, Some(range.clone())),
                None => Source::File { path: path.clone(), range: Some(range.clone()) },
            };
            // What the kernel has to fetch from the volume.
            let held: u64 = job.cached(range).iter().map(|held| held.end - held.start).sum();
            let bytes = range.end - range.start - held;
            let outcome = engine(job, vec![job.readable(source)], job.part(range), out)?;
            let time_s = outcome.stats.wait.as_secs_f64();
            Ok(done(job, range, outcome, Fetched { bytes, wire_bytes: bytes, time_s }))
        }
        Place::Export(remote) => {
            let file = run_here(remote.cached(&inner.session, inner.id, &job.now));
            let file = Arc::new(file.map_err(|error| SessionError::device(&name, error))?);
            let reader: Arc<dyn ReadAt> = file.clone();
            let source = Source::Reader { name, reader, range: Some(range.clone()) };
            let outcome = engine(job, vec![job.readable(source)], job.part(range), out)?;
            let fetched = Fetched {
                bytes: file.fetched.bytes(),
                wire_bytes: file.fetched.wire_bytes(),
                time_s: file.fetched.time_s(),
            };
            Ok(done(job, range, outcome, fetched))
        }
        Place::Volume { .. } => {
            let volume = Arc::new(VolumeReader { io: Some(inner.io()?), len: job.now.len_bytes, ..Default::default() });
            let reader: Arc<dyn ReadAt> = volume.clone();
            let source = Source::Reader { name, reader, range: Some(range.clone()) };
            let outcome = engine(job, vec![job.readable(source)], job.part(range), out)?;
            let bytes = volume.bytes.load(Ordering::Relaxed);
            let time_s = volume.time_ns.load(Ordering::Relaxed) as f64 * 1e-9;
            Ok(done(job, range, outcome, Fetched { bytes, wire_bytes: bytes, time_s }))
        }
    }
}

/// Files that a part is named after.
const NAMES_MAX: usize = 8;

/// Over what is read of files of this machine, one after the other. The data of one that is alone may begin behind a header,
/// at `zero`.
pub(super) fn run_over_sources(
    job: &Job<'_>,
    sources: Vec<Source>,
    zero: u64,
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Done, SessionError> {
    let names: Vec<String> = sources.iter().take(NAMES_MAX).map(Source::name).collect();
    let rest = match sources.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let request = match &sources[..] {
        [Source::File { range: Some(range), .. } | Source::Open { range: Some(range), .. }] => range.clone(),
        _ => 0..0,
    };
    let start = request.start;
    let outcome = engine(job, sources, (zero > 0).then_some(Part { request, zero }), out)?;
    let mut done = done(job, &(start..start + outcome.stats.input_bytes), outcome, Fetched::default());
    done.part.name = names.join(", ") + &rest;
    Ok(done)
}

/// Over files of exports, which are the call's sources in this order.
pub(super) fn run_over_remote(
    job: &Job<'_>,
    files: &[File],
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Done, SessionError> {
    let sources = Arc::new(RemoteFiles::new(files, job.options));
    let many: Arc<dyn Sources> = Arc::clone(&sources) as _;
    let outcome = engine(job, vec![Source::Many { name: job.name().to_owned(), sources: many }], None, out)?;
    let (bytes, wire_bytes) = sources.fetched();
    let fetched = Fetched { bytes, wire_bytes, time_s: outcome.stats.wait.as_secs_f64() };
    // Of chunks a target, too, counts the bytes that they have in their files.
    let len_bytes = if job.options.chunks.is_some() { sources.taken() } else { outcome.stats.input_bytes };
    Ok(done(job, &(0..len_bytes), outcome, fetched))
}

/// Over bytes that the caller has.
pub(super) fn run_over_bytes(job: &Job<'_>, input: &Buffer) -> Result<Done, SessionError> {
    let bytes: Arc<[u8]> = input[..].into();
    let source = Source::Bytes { name: format!("the input for {}", job.name()), bytes };
    let outcome = engine(job, vec![source], None, None)?;
    Ok(done(job, &(0..input.len() as u64), outcome, Fetched::default()))
}

fn engine(
    job: &Job<'_>,
    sources: Vec<Source>,
    part: Option<Part>,
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Outcome, SessionError> {
    let mut frames = Vec::new();
    let mut sink = match out {
        _ if job.frames => Sink::Frames(&mut frames),
        None => Sink::Memory,
        Some(out) => Sink::Writer(out),
    };
    let mut call = Call { part, ..job.call(sources) };
    if let Some(state) = &job.options.state {
        call.state = Some(job.file.inner.session.state(job.name(), state)?);
    }
    if let (Place::Local { .. }, None) = (&job.file.inner.place, job.mounted) {
        call.progress.clone_from(&job.options.progress);
    }
    let session = &job.file.inner.session;
    let _closed = close_when_cancelled(&call);
    let (started, of_stream) =
        (Instant::now(), call.sources.iter().any(|source| matches!(source, Source::Stream { .. })));
    let ran = session.on_host(call.threads, || session.engine().run(&call, &mut sink)).map_err(|error| {
        let (path, source) = match &error {
            CallError::Read { error: ReadError::Read { path, source, .. }, .. } => (path, source),
            CallError::Read { error: ReadError::OutOfRange { path, start, end, len }, .. } => {
                return SessionError::out_of_range(&path.display().to_string(), *start..*end, *len);
            }
            // Whether the engine or the stream looks at the clock first makes no difference to who waits.
            CallError::Late { place } if of_stream => return SessionError::Late(place.source.clone()),
            _ => return error.into(),
        };
        let name = path.display().to_string();
        let is_late = || job.options.limits.deadline.is_some_and(|deadline| started.elapsed() >= deadline);
        match source.kind() {
            _ if job.options.is_cancelled() => SessionError::Cancelled(name),
            ErrorKind::TimedOut if is_late() => SessionError::Late(name),
            _ => error.into(),
        }
    });
    let mut outcome = ran?;
    if job.frames {
        outcome.result = frames;
    }
    Ok(outcome)
}

/// Ends waits for streams when the call is cancelled, as long as the watch is held.
fn close_when_cancelled(call: &Call<'_>) -> Option<CancelWatch> {
    let streams = call.sources.iter().filter_map(|source| match source {
        Source::Stream { stream, .. } => Some(Arc::clone(stream)),
        _ => None,
    });
    let streams: Vec<_> = streams.collect();
    if streams.is_empty() {
        return None;
    }
    Some(call.limits.cancel.as_ref()?.when_cancelled(move || streams.iter().for_each(|stream| stream.close())))
}

fn done(job: &Job<'_>, range: &Range<u64>, outcome: Outcome, fetched: Fetched) -> Done {
    let stats = outcome.stats;
    let round_trip_s = match job.link() {
        Some(link) if fetched.bytes > 0 => link.round_trip_s(),
        _ => 0.0,
    };
    let observation = Observation {
        side: Side::Host,
        len_bytes: if job.compressed.is_some() { range.end - range.start } else { stats.input_bytes },
        input_bytes: fetched.bytes,
        output_bytes: stats.output_bytes,
        round_trip_s,
        queue_s: 0.0,
        input_s: (fetched.time_s - round_trip_s).max(0.0),
        run_s: stats.run.as_secs_f64() / stats.threads.max(1) as f64,
        output_s: 0.0,
        total_s: stats.total.as_secs_f64(),
    };
    let part = RanPart {
        name: job.name().to_owned(),
        range: range.clone(),
        side: Side::Host,
        tier: Some(stats.tier),
        input_bytes: stats.input_bytes,
        output_bytes: stats.output_bytes,
        depth: u32::try_from(stats.depth).ok(),
        chunks: Some(stats.chunks),
        returned: outcome.returned,
        back_edges: stats.edges,
        queue: std::time::Duration::ZERO,
        wait: stats.wait,
        run: stats.run,
        fold: Some(stats.fold),
        write: std::time::Duration::ZERO,
        send: std::time::Duration::ZERO,
        total: stats.total,
        observation,
    };
    let result_bytes = outcome.result.len() as u64;
    Done {
        result: outcome.result,
        result_bytes,
        part,
        observation,
        moved: (0, fetched.wire_bytes),
        log: outcome.log,
        refused: None,
    }
}

/// A volume, read without a cache: nothing says whether another host has written to it.
#[derive(Default)]
struct VolumeReader {
    io: Option<Arc<dyn AsyncIo>>,
    len: u64,
    bytes: AtomicU64,
    time_ns: AtomicU64,
}

impl std::fmt::Debug for VolumeReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeReader").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Bytes of one request, several of which are in flight.
const READ_LEN_BYTES: u64 = 1 << 20;

impl ReadAt for VolumeReader {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, mut into: BufferPart) -> Reading<'_> {
        Box::pin(async move {
            self.fill(offset, into.bytes()).await?;
            Ok(into.buffer)
        })
    }
}

impl VolumeReader {
    async fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let Some(io) = &self.io else { return Ok(()) };
        let started = Instant::now();
        let align = u64::from(io.alignment_bytes().max(1));
        let (first, end) = (offset / align * align, (offset + buffer.len() as u64).next_multiple_of(align));
        let mut reads = Vec::new();
        let mut at = first;
        while at < end {
            let len = READ_LEN_BYTES.min(end - at);
            reads.push((at, io.submit(Request::Read { offset: at, buffer: Buffer::zeroed(len as usize) })));
            at += len;
        }
        for (at, read) in reads {
            let bytes = read.await.into_read()?;
            let from = at.max(offset);
            let to = (at + bytes.len() as u64).min(offset + buffer.len() as u64);
            if to < (at + READ_LEN_BYTES).min(offset + buffer.len() as u64) {
                return Err(ReadAtError::Changed(format!("it ends at byte {}", at + bytes.len() as u64)));
            }
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        }
        self.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.time_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }
}
