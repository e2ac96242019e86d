//! A part at the device: a request of it, and what its trailer tells.

use super::compressed::{Compressed, as_each_says};
use super::group::{paths_of, takes_paths, target_name};
use super::job::{Done, Job};
use super::{RanPart, RunOptions, Where};
use crate::session::error::{FailureKind, SessionError};
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::link::Running;
use crate::session::mounted::Mounted;
use crate::session::patience::Patience;
use crate::session::place::Place;
use diskside_dispatch::{Observation, Side};
use diskside_engine::pieces::PIECE_LEN;
use diskside_engine::split::Split;
use diskside_engine::{CallError, Part, TierChoice, WARNING};
use diskside_host::function::{CallOutcome, FunctionError, RemoteCall, ResultStream};
use diskside_host::mounted::{MountedError, RETURNED_LEN_MAX, Refusal};
use diskside_host::own_thread;
use diskside_io::buffer::Buffer;
use diskside_io::request::run_here;
use diskside_sbpf::activation::Tier;
use diskside_sbpf::machine::CancelWatch;
use diskside_wire::function::{
    Class, Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, RecordSplit, RequestPart, TierHint, Trailer,
};
use std::io::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A call on its way.
pub(super) struct Started {
    range: Range<u64>,
    call: StartedCall,
    running: Running,
}

/// Dropped before its end, it is cancelled; that of a mounted file continues until its request is.
enum StartedCall {
    Target(RemoteCall, Option<CancelWatch>),
    /// Over a file of a mounted volume: a thread waits for the answer, and for the proof that it is the file's.
    Mounted(std::thread::JoinHandle<Result<CallOutcome, MountedError>>),
}

pub(super) async fn start(job: &Job<'_>, range: &Range<u64>) -> Result<Started, SessionError> {
    let link = job.link().expect("a part at a device has a target");
    let running = link.begin();
    let call = match job.mounted {
        None => {
            let call = link.compute()?.call(&read_request(job, range).await?);
            let watch = call.handle().and_then(|call| job.options.watch(call));
            StartedCall::Target(call, watch)
        }
        Some(mounted) => StartedCall::Mounted(start_mounted(job, mounted, range)?),
    };
    Ok(Started { range: range.clone(), call, running })
}

fn start_mounted(
    job: &Job<'_>,
    mounted: &Mounted,
    range: &Range<u64>,
) -> Result<std::thread::JoinHandle<Result<CallOutcome, MountedError>>, SessionError> {
    let (request, range, reader) = (part_request(job, range), range.clone(), mounted.reader());
    let options = job.options.clone();
    let run = move || {
        let mut watch = None;
        reader.map_err(MountedError::Plain)?.pread_fn_with(&request, range, &mut |call| watch = options.watch(call))
    };
    let spawned = std::thread::Builder::new().name("diskside".into()).spawn(run);
    spawned.map_err(|error| SessionError::file(job.name(), error))
}

/// Over files of exports by their paths, in one request. With `out` the result is written
/// there as it comes.
pub(super) async fn over_paths(
    job: &Job<'_>,
    files: &[File],
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Done, SessionError> {
    let Some(out) = out else {
        let sent = send_paths(job, files)?;
        let outcome = answer_of(job, sent.call).await?;
        return take_paths(job, files, outcome);
    };
    // Writing may wait.
    own_thread().await;
    let link = job.link().expect("a part at a device has a target");
    let (mut request, paths) = paths_request(job, files);
    let failed = |error| over_one_of(files, error);
    let (started, _running) = (Instant::now(), link.begin());
    request.result_len_max = u64::MAX;
    let mut stream = link.compute()?.stream(&request, vec![Buffer::from(paths)]).map_err(failed)?;
    let _watch = job.options.watch(stream.handle());
    let output_bytes = write_out(job, &mut stream, out, failed)?;
    let (trailer, wire_bytes) = (stream.trailer().cloned().unwrap_or_default(), stream.wire_bytes());
    let trailer = named_here(files, trailer);
    let range = 0..trailer.media_read;
    Ok(done(job, &range, Vec::new(), output_bytes, trailer, started.elapsed(), wire_bytes))
}

/// A request over files by their paths, and the paths.
fn paths_request(job: &Job<'_>, files: &[File]) -> (FunctionRequest, Vec<u8>) {
    let mut request = request(job, FunctionKind::Read);
    request.sources = vec![Endpoint::whole(EndpointKind::Paths)];
    request.decompression = as_each_says(job.options);
    request.chunks = job.options.chunks.as_ref().map(|chunks| chunks.request());
    (request, paths_of(files, job.options))
}

/// A request over files by their paths, on its way. Dropped before its end, it is cancelled.
pub(super) struct SentPaths {
    pub(super) call: RemoteCall,
    _watch: Option<CancelWatch>,
    _running: Running,
}

pub(super) fn send_paths(job: &Job<'_>, files: &[File]) -> Result<SentPaths, SessionError> {
    let link = job.link().expect("a part at a device has a target");
    let (request, paths) = paths_request(job, files);
    let running = link.begin();
    let call = link.compute()?.call_with(&request, vec![Buffer::from(paths)]);
    let watch = call.handle().and_then(|call| job.options.watch(call));
    Ok(SentPaths { call, _watch: watch, _running: running })
}

/// What came of it.
pub(super) fn take_paths(
    job: &Job<'_>,
    files: &[File],
    outcome: Result<CallOutcome, FunctionError>,
) -> Result<Done, SessionError> {
    let CallOutcome { result, trailer, total, wire_bytes } = outcome.map_err(|error| over_one_of(files, error))?;
    let (output_bytes, range) = (result.len() as u64, 0..trailer.media_read);
    let trailer = named_here(files, trailer);
    Ok(done(job, &range, result, output_bytes, trailer, total, wire_bytes))
}

pub(super) async fn finish(job: &Job<'_>, started: Started) -> Result<Done, SessionError> {
    let failed = |error| over_file(job.file, error);
    let outcome = match started.call {
        StartedCall::Target(call, _watch) => answer_of(job, call).await?.map_err(failed)?,
        StartedCall::Mounted(thread) => {
            own_thread().await;
            match thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(outcome) => outcome,
                Err(MountedError::Function(error)) => return Err(failed(error)),
                Err(refusal) => {
                    job.options.check_cancelled(job.file)?;
                    let done = super::host::run(job, &started.range, None)?;
                    return Ok(Done { refused: Some(refusal.to_string()), ..done });
                }
            }
        }
    };
    let CallOutcome { result, trailer, total, wire_bytes } = outcome;
    check_version(job, &trailer).await?;
    let output_bytes = result.len() as u64;
    note_wait(job, &started.running, &started.range, &trailer);
    Ok(done(job, &started.range, result, output_bytes, trailer, total, wire_bytes))
}

/// Writes the result out as it comes.
pub(super) fn stream(job: &Job<'_>, range: &Range<u64>, out: &mut (dyn Write + Send)) -> Result<Done, SessionError> {
    if job.mounted.is_some() {
        // Unproved bytes must not be seen: all of it is waited for.
        let mut done = match run_here(async { finish(job, start(job, range).await?).await }) {
            // The results before the piece that failed are the same from here, and so is the failure.
            Err(error) if is_of_a_piece(&error) => return super::host::run(job, range, Some(out)),
            done => done?,
        };
        out.write_all(&done.result).map_err(CallError::Write)?;
        done.result = Vec::new();
        return Ok(done);
    }
    let link = job.link().expect("a part at a device has a target");
    // As long as it is; nothing of it is kept.
    let request = FunctionRequest { result_len_max: u64::MAX, ..run_here(read_request(job, range))? };
    let failed = |error| over_file(job.file, error);
    let started = Instant::now();
    let running = link.begin();
    let mut stream = link.compute()?.stream(&request, Vec::new()).map_err(failed)?;
    let _watch = job.options.watch(stream.handle());
    let output_bytes = write_out(job, &mut stream, out, failed)?;
    let trailer = stream.trailer().cloned().unwrap_or_default();
    run_here(check_version(job, &trailer))?;
    note_wait(job, &running, range, &trailer);
    let wire_bytes = stream.wire_bytes();
    Ok(done(job, range, Vec::new(), output_bytes, trailer, started.elapsed(), wire_bytes))
}

/// For a call over a file, whose name is the one that it has here.
pub(super) fn over_file(file: &File, error: FunctionError) -> SessionError {
    SessionError::device_over(&file.inner.name, &name_there(file), error)
}

/// For a call over many, with the name of the one that it failed at.
fn over_one_of(files: &[File], error: FunctionError) -> SessionError {
    let message = error.trailer().map_or("", |trailer| &trailer.message);
    // A name may be the beginning of another one.
    let named = files.iter().filter(|file| message.contains(&name_there(file)));
    let only = if let [only] = files { Some(only) } else { None };
    match only.or_else(|| named.max_by_key(|file| file.inner.name.len())) {
        Some(file) => over_file(file, error),
        None => SessionError::device(&target_name(&files[0]), error),
    }
}

/// With the names in warnings that the files have here.
fn named_here(files: &[File], mut trailer: Trailer) -> Trailer {
    for line in &mut trailer.log {
        let Some(told) = line.strip_prefix(WARNING) else { continue };
        let behind_name = |file: &&File| {
            let name = name_there(file);
            !name.is_empty() && told.strip_prefix(&name).is_some_and(|behind| behind.starts_with(": "))
        };
        if let Some(file) = files.iter().find(behind_name) {
            *line = format!("{WARNING}{}{}", file.inner.name, &told[name_there(file).len()..]);
        }
    }
    trailer
}

/// What the target's messages call a file of an export.
fn name_there(file: &File) -> String {
    match &file.inner.place {
        Place::Export(remote) => remote.path().escape_ascii().to_string(),
        Place::Local { .. } | Place::Volume { .. } => String::new(),
    }
}

/// Waits for a call that only reads, unless it was cancelled and its server is silent.
async fn answer_of(job: &Job<'_>, call: RemoteCall) -> Result<Result<CallOutcome, FunctionError>, SessionError> {
    let outcome = Patience::new(job.options.limits.cancel.as_ref()).answer(call).await;
    outcome.ok_or_else(|| SessionError::Cancelled(job.name().to_owned()))
}

/// Writes what comes, until there is no more; of a call that failed, what stood before the piece that did.
fn write_out(
    job: &Job<'_>,
    stream: &mut ResultStream,
    out: &mut (dyn Write + Send),
    failed: impl Fn(FunctionError) -> SessionError,
) -> Result<u64, SessionError> {
    // With all of a short result comes the news that the call is tried again.
    let is_tried_again = |trailer: &Trailer| match trailer.outcome {
        Outcome::Stale => true,
        Outcome::Refused => job.options.place == Where::Auto && job.function.is_pure(),
        _ => false,
    };
    let mut output_bytes = 0;
    let mut patience = Patience::new(job.options.limits.cancel.as_ref());
    let given_up = || SessionError::Cancelled(job.name().to_owned());
    while let Some(bytes) = patience.wait(stream.next()).ok_or_else(given_up)?.map_err(&failed)? {
        if output_bytes > 0 || !stream.trailer().is_some_and(is_tried_again) {
            out.write_all(&bytes).map_err(CallError::Write)?;
            output_bytes += bytes.len() as u64;
        }
    }
    Ok(output_bytes)
}

/// Whether the function failed over a piece of its input, as it would anywhere.
fn is_of_a_piece(error: &SessionError) -> bool {
    matches!(error.kind(), FailureKind::Trap | FailureKind::Budget | FailureKind::OutputFull | FailureKind::Returned)
}

/// What the call waited for tells of other hosts.
fn note_wait(job: &Job<'_>, running: &Running, range: &Range<u64>, trailer: &Trailer) {
    let turns = diskside_dispatch::turns(range.end - range.start, job.turn_len_bytes());
    running.note_wait(Duration::from_micros(trailer.times.queue_us.into()), turns);
}

/// The parts of a request, and what they say of its length, belong to one version of the file, or to those of one that only
/// grows.
async fn check_version(job: &Job<'_>, trailer: &Trailer) -> Result<(), SessionError> {
    let is_other = job.now.version.is_some_and(|version| trailer.generation != 0 && trailer.generation != version);
    if !is_other {
        return Ok(());
    }
    own_thread().await;
    if job.file.len_bytes()? > job.now.len_bytes {
        return Ok(());
    }
    Err(SessionError::Changed(job.name().to_owned()))
}

pub(super) async fn write(job: &Job<'_>, offset: u64, input: &Buffer) -> Result<Done, SessionError> {
    let link = job.link().expect("a part at a device has a target");
    let sink = job.file.endpoint(offset, Endpoint::TO_END).await?;
    let mut request = request(job, FunctionKind::Write);
    request.sources = vec![Endpoint::whole(EndpointKind::HostStream)];
    request.sinks = vec![Endpoint { durable: job.options.durable, ..sink }];
    let running = link.begin();
    let call = link.compute()?.call_with(&request, vec![Buffer::copy_of(input)]);
    let _watch = call.handle().and_then(|call| job.options.watch(call));
    let outcome = call.await.map_err(|error| SessionError::device(job.name(), error))?;
    let CallOutcome { trailer, total, wire_bytes, .. } = outcome;
    let range = 0..input.len() as u64;
    note_wait(job, &running, &range, &trailer);
    let done = done(job, &range, Vec::new(), trailer.media_written, trailer, total, wire_bytes);
    job.observe(&done);
    Ok(done)
}

/// From files at the target into another one there, which is the job's.
pub(super) fn transform(job: &Job<'_>, files: &[File]) -> Result<Done, SessionError> {
    let whole = |file: &File| run_here(file.inner.place.endpoint(0, Endpoint::TO_END));
    let link = job.link().expect("a part at a device has a target");
    let sink = whole(job.file).expect("a file at a target is an endpoint");
    let mut request = request(job, FunctionKind::Write);
    // Several files of exports are named by their paths: a target keeps no more than some handles of a host.
    let input = if takes_paths(files, job.options) {
        request.sources = vec![Endpoint::whole(EndpointKind::Paths)];
        request.decompression = as_each_says(job.options);
        request.chunks = job.options.chunks.as_ref().map(|chunks| chunks.request());
        vec![Buffer::from(paths_of(files, job.options))]
    } else {
        request.sources = files.iter().filter_map(whole).collect();
        Vec::new()
    };
    request.sinks = vec![Endpoint { durable: job.options.durable, ..sink }];
    let _running = link.begin();
    let call = link.compute()?.call_with(&request, input);
    let _watch = call.handle().and_then(|call| job.options.watch(call));
    let outcome = call.wait().map_err(|error| SessionError::device(job.name(), error))?;
    let CallOutcome { trailer, total, wire_bytes, .. } = outcome;
    let range = 0..trailer.media_read;
    Ok(done(job, &range, Vec::new(), trailer.media_written, trailer, total, wire_bytes))
}

/// Into a file of a mounted volume: at the target if that can be proved, else from here.
pub(super) fn write_mounted(
    job: &Job<'_>,
    mounted: &Mounted,
    offset: u64,
    input: &Buffer,
) -> Result<Done, SessionError> {
    let cap = output_len_max(job.function, job.options, input.len() as u64);
    // A short output may make the file longer; the target itself writes only where the file is.
    let room = std::fs::metadata(mounted.path()).map_or(0, |file| file.len().saturating_sub(offset));
    let len_max = if cap <= RETURNED_LEN_MAX { cap } else { cap.min(room.max(RETURNED_LEN_MAX)) };
    let request = request(job, FunctionKind::Write);
    let running = mounted.link.begin();
    let mut watch = None;
    let written = mounted.writer().map_err(MountedError::Plain).and_then(|writer| {
        let (input, durable) = (vec![Buffer::copy_of(input)], job.options.durable);
        writer.pwrite_fn_with(&request, input, offset, len_max, durable, &mut |call| watch = job.options.watch(call))
    });
    drop(running);
    let refused = match written {
        Ok(written) => {
            let CallOutcome { trailer, total, wire_bytes, .. } = written.outcome;
            let range = 0..input.len() as u64;
            let done = done(job, &range, Vec::new(), written.len_bytes, trailer, total, wire_bytes);
            job.observe(&done);
            return Ok(done);
        }
        Err(MountedError::File(error)) => return Err(SessionError::file(job.name(), error)),
        Err(MountedError::Function(error)) => {
            let is_full = error.trailer().is_some_and(|trailer| trailer.outcome == Outcome::OutputFull);
            if !is_full || len_max == cap {
                return Err(SessionError::device(job.name(), error));
            }
            format!("the output reaches past the end of the file, and is longer than {RETURNED_LEN_MAX} bytes")
        }
        Err(refusal) => refusal.to_string(),
    };
    Ok(Done { refused: Some(refused), ..job.write_from_host(offset, input)? })
}

/// From files of a mounted volume into another one there, from its start: nothing of them moves, and what it has after an
/// error does not matter.
pub(super) fn transform_mounted(
    job: &Job<'_>,
    sink: &Mounted,
    sources: &[&Mounted],
    len_max: u64,
) -> Result<Done, MountedError> {
    let readers = sources.iter().map(|source| source.reader()).collect::<Result<Vec<_>, _>>()?;
    let counted = |refusal: Refusal| {
        job.file.inner.session.mounted_counters().note_plain(refusal.reason);
        MountedError::Plain(refusal)
    };
    let begun = readers.iter().map(|reader| reader.begin()).collect::<Result<Vec<_>, _>>().map_err(counted)?;
    let (tickets, endpoints): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
    let request = FunctionRequest { sources: endpoints, ..request(job, FunctionKind::Write) };
    let _running = sink.link.begin();
    let mut watch = None;
    let begun = &mut |call| watch = job.options.watch(call);
    let written = sink.writer()?.pwrite_fn_with(&request, Vec::new(), 0, len_max, false, begun);
    // A read counts only if it was of the files' bytes, and so does a failure.
    for (reader, ticket) in readers.iter().zip(tickets) {
        reader.file().guard().finish(ticket).map_err(counted)?;
    }
    let written = written?;
    let CallOutcome { trailer, total, wire_bytes, .. } = written.outcome;
    let range = 0..trailer.media_read;
    Ok(done(job, &range, Vec::new(), written.len_bytes, trailer, total, wire_bytes))
}

/// The most that a function makes of so much input, whatever chunks that is cut into.
pub(super) fn output_len_max(function: &SessionFunction, options: &RunOptions, input_len: u64) -> u64 {
    let chunks = input_len / (options.chunk_len.unwrap_or(PIECE_LEN) as u64).clamp(1, CHUNK_LEN_SHORTEST) + 1;
    function.output_cap(input_len).saturating_add(function.output_cap(0).saturating_mul(chunks))
}

/// A function may be given shorter pieces than usual, if it expands them.
const CHUNK_LEN_SHORTEST: u64 = 64 << 10;

pub(super) async fn read_request(job: &Job<'_>, range: &Range<u64>) -> Result<FunctionRequest, SessionError> {
    let sources = vec![job.file.endpoint(range.start, range.end - range.start).await?];
    Ok(FunctionRequest { sources, ..part_request(job, range) })
}

/// The request for a part of the job's request, without its source.
fn part_request(job: &Job<'_>, range: &Range<u64>) -> FunctionRequest {
    let source_index = job.source_index;
    // How much it decompresses to only its end tells.
    let end = if job.compressed.is_some() { u64::MAX } else { range.end };
    let alone = || (source_index > 0).then_some(Part { request: range.start..end, zero: 0 });
    let part = job.part(range).or_else(alone).map(|Part { request: all, zero }| RequestPart {
        start: all.start,
        end: all.end,
        zero,
        source_index,
    });
    let source_len = job.grid.is_some().then_some(job.now.len_bytes);
    FunctionRequest { part, source_len, frames: job.frames, ..request(job, FunctionKind::Read) }
}

fn request(job: &Job<'_>, kind: FunctionKind) -> FunctionRequest {
    let options = job.options;
    let limits = &options.limits;
    let saturated = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).max(1);
    FunctionRequest {
        class: if options.background { Class::Background } else { Class::Normal },
        fold: options.fold,
        threads_max: u16::try_from(options.threads).unwrap_or(u16::MAX),
        program_id: job.function.hash(),
        chunk_len: options.chunk_len.map_or(0, |len| u32::try_from(len).unwrap_or(u32::MAX)),
        heap_len: Some(limits.heap_quota_bytes),
        depth: options.depth.map(|depth| u32::try_from(depth).unwrap_or(u32::MAX)),
        result_len_max: limits.result_len_max as u64,
        // 0 would be the target's own.
        budget: limits.budget_or(0),
        deadline_ms: limits.deadline.map_or(0, saturated),
        split: match options.split {
            None => RecordSplit::Program,
            Some(Split::Whole) => RecordSplit::Whole,
            Some(Split::Bytes) => RecordSplit::Bytes,
            Some(Split::Fixed(len)) => RecordSplit::Fixed(len),
            Some(Split::Delimiter(byte)) => RecordSplit::Delimiter(byte),
        },
        args: job.args.to_vec(),
        decompression: job.compressed.map(Compressed::request),
        state: options.state.clone(),
        trace: options.trace,
        reason: job.reason.map(|reason| reason.name().to_owned()),
        function: Some(job.function.name().to_owned()),
        tier: match options.tier {
            TierChoice::Only(Tier::Interpreter) => TierHint::Interpreter,
            TierChoice::Only(Tier::Cranelift) => TierHint::Cranelift,
            TierChoice::Only(Tier::Llvm) => TierHint::Llvm,
            TierChoice::Best => TierHint::Best,
        },
        ..FunctionRequest::new(kind, job.program.as_ref().map_or(0, |program| program.index))
    }
}

fn done(
    job: &Job<'_>,
    range: &Range<u64>,
    result: Vec<u8>,
    output_bytes: u64,
    trailer: Trailer,
    total: Duration,
    wire_bytes: (u64, u64),
) -> Done {
    let trailer = named_here(std::slice::from_ref(job.file), trailer);
    let times = trailer.times;
    let us = |us: u32| Duration::from_micros(us.into());
    let seconds = |part: u32| us(part).as_secs_f64();
    let len_bytes = range.end - range.start;
    let round_trip_s = job.link().map_or(0.0, |link| link.round_trip_s());
    // The host's wait beyond the device's own work was for the result on its way.
    let own_s = seconds(times.total_us) - seconds(times.send_us);
    let output_s = match trailer.media_written {
        0 => (total.as_secs_f64() - own_s - round_trip_s).max(0.0),
        _ => seconds(times.write_us),
    };
    let observation = Observation {
        side: Side::Device,
        len_bytes,
        input_bytes: len_bytes,
        output_bytes,
        round_trip_s,
        queue_s: seconds(times.queue_us),
        input_s: seconds(times.read_us),
        run_s: seconds(times.run_us),
        output_s,
        total_s: total.as_secs_f64(),
    };
    let part = RanPart {
        name: job.name().to_owned(),
        range: range.clone(),
        side: Side::Device,
        tier: None,
        input_bytes: trailer.called.map_or(len_bytes, |called| called.input_bytes),
        output_bytes: trailer.output_bytes.unwrap_or(output_bytes),
        depth: trailer.depth,
        chunks: trailer.called.map(|called| called.pieces),
        returned: job.function.is_in_place().then_some(trailer.returned.cast_unsigned()),
        back_edges: trailer.back_edges,
        queue: us(times.queue_us),
        wait: us(times.read_us),
        run: us(times.run_us),
        fold: trailer.fold_us.map(Duration::from_micros),
        write: us(times.write_us),
        send: us(times.send_us),
        total,
        observation,
    };
    Done {
        result,
        result_bytes: output_bytes,
        part,
        observation,
        moved: wire_bytes,
        log: (trailer.log, trailer.log_dropped),
        refused: None,
    }
}
