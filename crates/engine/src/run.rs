//! A call from its first byte to its last: read ahead, cut into records, run, fold.

mod chunks;

pub use chunks::{DEPTH, DEPTH_MAX};

use crate::call::{Call, CallError, CallStats, Outcome, Sink, Source};
use crate::code::CodeCache;
use crate::environment::Log;
use crate::frames::{self, FrameHeader};
use crate::worker::{ChunkInfo, Folder, Tally, Worker, too_large};
use chunks::{Chunks, Input};
use diskside_decompress::ChunkDecoder;
use diskside_io::buffer::Buffer;
use diskside_sbpf::activation::Tier;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) fn run(code: &CodeCache, call: &Call<'_>, sink: &mut Sink<'_>) -> Result<Outcome, CallError> {
    let started = Instant::now();
    let until = call.limits.until(started);
    if !call.function.runs_over_bytes() {
        let (function, kind) = (call.function.name().to_owned(), call.function.kind().name());
        return Err(CallError::WrongKind { function, kind });
    }
    if let Some(schema) = call.function.args().filter(|s| call.args.len() < s.len_bytes as usize) {
        return Err(CallError::BadArgs { given: call.args.len(), wants: schema.len_bytes, name: schema.name.clone() });
    }
    let pieces = call.pieces()?;
    let runs_apart = pieces.is_divisible() || call.sources.iter().all(Source::are_chunks);
    let threads = if call.function.is_pure() && runs_apart { call.threads.max(1) } else { 1 };
    let log = Log::default();
    let folder = match sink {
        Sink::Frames(_) => None,
        Sink::Memory | Sink::Writer(_) => Folder::new(code, call, &log, until)?,
    };
    let mut results = Results { folder, kept: Vec::new(), call, sink };
    let depth = call.depth.unwrap_or(DEPTH).min(DEPTH_MAX);
    let chunks = Chunks::new(call, until, pieces, threads + depth, log.clone());
    let (tally, tier, wait) = if threads == 1 {
        run_here(code, call, &log, until, chunks, &mut results)?
    } else {
        run_on_threads(code, call, &log, until, chunks, threads, &mut results)?
    };
    let fold = results.folder.as_ref().map_or(Duration::ZERO, |folder| folder.run);
    let result = results.finish()?;
    let returned = tally.last.filter(|_| call.function.is_in_place()).map(|(_, value)| value);
    let stats = CallStats {
        tier,
        threads,
        depth,
        input_bytes: tally.input_bytes,
        output_bytes: tally.output_bytes,
        chunks: tally.chunks,
        edges: tally.edges,
        run: tally.run,
        fold,
        wait,
        total: started.elapsed(),
    };
    Ok(Outcome { result, returned, stats, log: log.take() })
}

type Ran = (Tally, Tier, Duration);

fn run_here(
    code: &CodeCache,
    call: &Call<'_>,
    log: &Log,
    until: Option<Instant>,
    mut chunks: Chunks<'_>,
    results: &mut Results<'_, '_, '_>,
) -> Result<Ran, CallError> {
    let mut worker = Worker::new(code, call, log, until)?;
    let mut decoder = ChunkDecoder::default();
    for next in chunks.by_ref() {
        let (input, info) = next?;
        let began = Instant::now();
        let bytes = input.decoded(&mut decoder, call, until, &info)?;
        worker.tally.run += began.elapsed();
        let output = worker.run(bytes, &info)?;
        results.add(output, &info)?;
        advance(call, input.len());
    }
    Ok((worker.tally, worker.tier(), chunks.waited()))
}

type Job = (u64, Input, ChunkInfo);
/// A piece's number, and what became of it.
type Done = (u64, Result<(Buffer, ChunkInfo), CallError>);

fn run_on_threads(
    code: &CodeCache,
    call: &Call<'_>,
    log: &Log,
    until: Option<Instant>,
    mut chunks: Chunks<'_>,
    threads: usize,
    results: &mut Results<'_, '_, '_>,
) -> Result<Ran, CallError> {
    let (send_job, jobs) = sync_channel::<Job>(1);
    // The workers' alone: when all of them have stopped, the thread that feeds them must not wait for one to take a
    // chunk.
    let jobs = Arc::new(Mutex::new(jobs));
    let (send_done, done) = channel::<Done>();
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for i in 0..threads {
            let (jobs, send_done) = (Arc::clone(&jobs), send_done.clone());
            let mut worker = Worker::new(code, call, log, until)?;
            let spawned = std::thread::Builder::new().name(format!("engine {i}")).spawn_scoped(scope, move || {
                work(&mut worker, call, &jobs, &send_done);
                drop(jobs);
                (worker.tally, worker.tier())
            });
            workers.push(spawned.map_err(CallError::Thread)?);
        }
        drop((jobs, send_done));
        let fed = feed(&mut chunks, send_job, &done, call, threads, results);
        let mut tally = Tally::default();
        let mut tier = Tier::Interpreter;
        for worker in workers {
            let (t, used) = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            tally.add(&t);
            tier = used;
        }
        fed?;
        Ok((tally, tier, chunks.waited()))
    })
}

/// Takes jobs until there are no more.
fn work(worker: &mut Worker<'_>, call: &Call<'_>, jobs: &Mutex<Receiver<Job>>, done: &std::sync::mpsc::Sender<Done>) {
    let mut decoder = ChunkDecoder::default();
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, input, info)) = job else {
            return;
        };
        let began = Instant::now();
        let bytes = input.decoded(&mut decoder, call, worker.until(), &info);
        worker.tally.run += began.elapsed();
        let result = bytes.and_then(|bytes| worker.run_apart(bytes, &info));
        let result = result.map(|output| (output, info));
        let failed = result.is_err();
        // The buffer goes back to the reader before the result is waited for.
        drop(input);
        if done.send((number, result)).is_err() || failed {
            // The thread that feeds the workers may wait for a stream that continues only when somebody hears of the
            // failure.
            call.sources.iter().for_each(Source::close);
            return;
        }
    }
}

/// Chunks, for each thread, that are handed out before the first of them has come back: the results of later ones wait
/// for it in memory.
pub const CHUNKS_OUT_MAX: usize = 2;

/// Hands out the chunks and takes the results in the order of the chunks.
fn feed(
    chunks: &mut Chunks<'_>,
    jobs: SyncSender<Job>,
    done: &Receiver<Done>,
    call: &Call<'_>,
    threads: usize,
    results: &mut Results<'_, '_, '_>,
) -> Result<(), CallError> {
    let mut ordered = InOrder::default();
    let most_out = (threads * CHUNKS_OUT_MAX) as u64;
    for (number, chunk) in (0..).zip(chunks.by_ref()) {
        let (input, info) = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                drop(jobs);
                // A worker that failed has closed the stream: then its error is the call's.
                done.iter().try_for_each(|message| ordered.take(message, results))?;
                return Err(error);
            }
        };
        let len = input.len();
        while number - ordered.next >= most_out
            && !ordered.is_failing
            && let Ok(message) = done.recv()
        {
            ordered.take(message, results)?;
        }
        if ordered.is_failing || jobs.send((number, input, info)).is_err() {
            break;
        }
        advance(call, len);
        while let Ok(message) = done.try_recv() {
            ordered.take(message, results)?;
        }
    }
    drop(jobs);
    done.iter().try_for_each(|message| ordered.take(message, results))
}

/// Takes results in the order of their chunks, whichever thread is faster.
#[derive(Default)]
struct InOrder {
    early: BTreeMap<u64, Result<(Buffer, ChunkInfo), CallError>>,
    /// The chunk whose result is the next.
    next: u64,
    /// One of the chunks that were handed out has failed.
    is_failing: bool,
}

impl InOrder {
    /// Of several chunks that fail the call's error is that of the first, as with one thread: those before it were handed out
    /// before it, and are waited for.
    fn take(&mut self, (number, result): Done, results: &mut Results<'_, '_, '_>) -> Result<(), CallError> {
        self.is_failing |= result.is_err();
        self.early.insert(number, result);
        while let Some(result) = self.early.remove(&self.next) {
            let (output, info) = result?;
            results.add(&output, &info)?;
            self.next += 1;
        }
        Ok(())
    }
}

fn advance(call: &Call<'_>, bytes: usize) {
    if let Some(progress) = &call.progress {
        progress.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Where outputs go, in the order of their chunks.
struct Results<'c, 's, 'w> {
    call: &'c Call<'c>,
    folder: Option<Folder<'c>>,
    kept: Vec<u8>,
    sink: &'s mut Sink<'w>,
}

impl Results<'_, '_, '_> {
    fn add(&mut self, output: &[u8], info: &ChunkInfo) -> Result<(), CallError> {
        if let Some(folder) = &mut self.folder {
            return folder.fold(output, info);
        }
        match self.sink {
            Sink::Writer(writer) => writer.write_all(output).map_err(CallError::Write),
            Sink::Frames(writer) => {
                let (source_index, chunk_index, offset) = (info.source_index, info.chunk_index, info.offset);
                let header = FrameHeader { source_index, chunk_index, offset, len_bytes: output.len() as u64 };
                frames::write(*writer, &header, output).map_err(CallError::Write)
            }
            Sink::Memory if self.kept.len() + output.len() > self.call.limits.result_len_max => {
                Err(too_large(self.call))
            }
            Sink::Memory => {
                self.kept.extend_from_slice(output);
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<Vec<u8>, CallError> {
        let folded = self.folder.as_ref().map(Folder::result);
        match (self.sink, folded) {
            (Sink::Frames(writer), _) => {
                writer.flush().map_err(CallError::Write)?;
                Ok(Vec::new())
            }
            (Sink::Writer(writer), folded) => {
                writer.write_all(folded.unwrap_or_default()).and_then(|()| writer.flush()).map_err(CallError::Write)?;
                Ok(Vec::new())
            }
            (Sink::Memory, Some(folded)) => Ok(folded.to_vec()),
            (Sink::Memory, None) => Ok(self.kept),
        }
    }
}
