//! A call from its request to its trailer: what it reads and writes is found when the request comes, the rest happens on
//! a thread of the pool.

mod growth;
pub(crate) mod launch;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use diskside_engine::split::Split;
use diskside_engine::{
    Asked, Call, CallError, CallLimits, Codec, Engine, Outcome as Ran, Pieces, ReadAt, Sink as EngineSink, Source,
    Turns,
};
use diskside_io::stream::StreamPart;
use diskside_sbpf::image::Kind;
use diskside_wire::function::{Called, CompressedBy, Decompression, Endpoint, Outcome, Placement, Times, Trailer};

use self::growth::CallGrowth;
pub(super) use self::launch::{check as check_launch, result_room as launch_result_room};
use crate::call::command::CallCommand;
use crate::call::context::{CallContext, CallEvents};
use crate::call::control::Control;
use crate::call::input::InputQueue;
use crate::call::plan::{
    MEMORY_NAME, Plan, PlannedSink, PlannedSource, chunk_len_of, codecs_of, part_of, range_of, split_of, tier_of,
};
use crate::call::result::{ResultOf, ResultWriter};
use crate::call::rights::MayWrite;
use crate::call::trailer::{self, micros};
use crate::endpoint::Written;
use crate::endpoint::files::{FilesByPath, Kept};
use crate::endpoint::layout_sink::LayoutSink;
use crate::endpoint::memory::{MemoryReader, MemorySink};
use crate::endpoint::sink::{FileOut, Sink, Sinks, VolumeSink};
use crate::program::usage::InUse;
use crate::schedule::permits::Waited;
use crate::schedule::quota::Holding;
use crate::schedule::seat::Seat;
use crate::schedule::yield_to_reactor::InPieces;
use crate::statistics::counters::FunctionId;
use diskside_export::{FileError, FileSession, FileSource, SinkMode, Statx};
use diskside_volume::cache::{BlockCache, version_reader, volume_reader};
use diskside_volume::metered::{Meter, Metered, Reads};

/// A call that is queued or runs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) tag: u64,
    pub(crate) plan: Plan,
    pub(crate) context: Arc<CallContext>,
    pub(crate) events: Arc<dyn CallEvents>,
    pub(crate) control: Arc<Control>,
    pub(crate) input: Arc<InputQueue>,
    pub(crate) queued: Instant,
    /// Released when nothing of the program runs any more, and before the host hears of the end.
    pub(crate) in_use: InUse,
    /// Counts the memory of the request, but not of a prepared one, which counts for as long as it is kept.
    #[expect(dead_code, reason = "kept as long as the call is")]
    pub(crate) holding: Option<Holding>,
}

/// Runs a prepared request for a Function Call; gives its result and how it went.
pub(crate) fn run_prepared(
    context: &Arc<CallContext>,
    events: Arc<dyn CallEvents>,
    prepared: &Plan,
    command: &CallCommand,
    control: &Arc<Control>,
    queued: Instant,
    in_use: InUse,
) -> (Vec<u8>, Trailer) {
    let mut plan = prepared.clone();
    plan.request.args = command.args(&plan.request.args);
    plan.limits.deadline = plan.limits.deadline.min(command.timeout);
    let (context, control) = (Arc::clone(context), Arc::clone(control));
    let input = Arc::new(InputQueue::new());
    let job = Job { tag: 0, plan, context, events, control, input, queued, in_use, holding: None };
    let (mut report, mut result) = (Report::default(), Vec::new());
    let trailer = job.execute(&mut report, Some(&mut result));
    report.result_len = result.len() as u64;
    (result, job.complete(trailer, &report))
}

impl Job {
    /// Runs the call to its end and says how it went.
    pub(crate) fn run(self) {
        let mut report = Report::default();
        let trailer = self.execute(&mut report, None);
        let trailer = self.complete(trailer, &report);
        let trace = self.plan.request.trace;
        self.context.tell_ran(&self.plan.program, self.plan.function.name(), &trailer, trace);
        let Self { events, tag, in_use, .. } = self;
        drop(in_use);
        events.ended(Instant::now(), tag, trailer);
    }

    /// Fills in what was measured, and counts it.
    fn complete(&self, mut trailer: Trailer, report: &Report) -> Trailer {
        if let Some(lost) = self.control.lost() {
            lost.replace(&mut trailer);
        } else if self.control.cancel.is_cancelled() && trailer.outcome != Outcome::Ok {
            trailer.outcome = Outcome::Cancelled;
        }
        trailer.media_read = report.reads.media_bytes.load(Ordering::Relaxed);
        trailer.media_written = report.written.written;
        trailer.durable = report.written.durable;
        trailer.result_len = report.result_len;
        trailer.times.queue_us = micros(report.queued);
        trailer.times.write_us = micros(report.writing);
        trailer.times.send_us = micros(report.sending);
        trailer.times.total_us = micros(self.queued.elapsed());
        let (received, kept) = (self.input.received_bytes(), report.reads.kept_bytes.load(Ordering::Relaxed));
        let function = FunctionId { program_id: self.plan.program_id, name: self.plan.function.name() };
        self.context.count_call(&trailer, function, received, kept);
        trailer
    }

    /// Does it all. The result goes into `memory`, or to the host as it asks for it.
    fn execute(&self, report: &mut Report, memory: Option<&mut Vec<u8>>) -> Trailer {
        report.queued = self.queued.elapsed();
        if self.control.cancel.is_cancelled() {
            return trailer::simple(Outcome::Cancelled, "the call was cancelled before it began");
        }
        if report.queued >= self.plan.limits.deadline {
            return trailer::simple(Outcome::Deadline, "the deadline passed before an engine was free");
        }
        if let Err(lost) = self.control.uses(&self.context, self.plan.used(&self.context)) {
            return lost.trailer();
        }
        if self.plan.function.kind() == Kind::Kernel {
            return self.launch(report);
        }
        let files = &self.context.files;
        let (sources, opened) = match self.open_sources(files, report) {
            Ok(opened) => opened,
            Err(error) => return trailer::of_file(&error),
        };
        let mut sinks = match self.open_sinks(files) {
            Ok(sinks) => sinks,
            Err(error) => return trailer::of_file(&error),
        };
        match sinks.changed() {
            // Told once, before the first file is looked for.
            Ok(changed) => drop(report.changed.set(changed)),
            Err(error) => return trailer::of_file(&error),
        }
        match sinks.conflict(&opened) {
            Ok(None) => {}
            Ok(Some(told)) => return trailer::simple(Outcome::Refused, &told),
            Err(error) => return trailer::of_file(&error),
        }
        let waited = Arc::new(Waited::default());
        let call = self.call(sources, &waited);
        let mut trailer = match memory {
            _ if !self.plan.sinks.is_empty() => self.run_into_sinks(&call, &mut sinks),
            Some(memory) if self.plan.request.frames => {
                self.trailer_of(self.engine().run(&call, &mut EngineSink::Frames(memory)))
            }
            Some(memory) => match self.engine().run(&call, &mut EngineSink::Memory) {
                Ok(mut ran) => {
                    *memory = std::mem::take(&mut ran.result);
                    self.trailer_of(Ok(ran))
                }
                Err(error) => self.trailer_of(Err(error)),
            },
            None => self.run_to_host(&call, report),
        };
        // Bytes of two versions of a file make no result.
        for file in &opened {
            trailer.generation = file.version();
            if trailer.outcome == Outcome::Ok
                && let Err(error) = file.unchanged_or_grown()
            {
                trailer = trailer::of_file(&error);
            }
        }
        if trailer.outcome != Outcome::Ok
            && let Some(told) = self.input.why_late()
        {
            trailer = trailer::simple(Outcome::Deadline, told);
        }
        // Nothing is published for who may not write it any more. Looked at here, as a call that waited for a state has it at once
        // from one that ended with its right, perhaps before this one was told.
        if let Some(lost) = self.control.check_rights(&self.context) {
            trailer = lost.trailer();
        }
        if trailer.outcome == Outcome::Ok
            && let Err(error) = sinks.finish()
        {
            trailer = trailer::of_sink(&error);
        }
        if trailer.outcome != Outcome::Ok {
            sinks.abort();
        }
        // For a thread, and then for each of its turns.
        report.queued += waited.total();
        take_off(&mut trailer, waited.within());
        (report.written, report.writing) = (sinks.written(), sinks.waited());
        trailer
    }

    /// Writes the result that goes to the host.
    fn result_writer<'a>(&'a self, seat: &'a Seat) -> ResultWriter<'a> {
        ResultWriter::new(ResultOf {
            seat,
            tag: self.tag,
            events: &*self.events,
            account: &self.context.host.account,
            control: &self.control,
            len_max: self.plan.request.sent_len_max(self.plan.limits.result_len_max),
            until: self.queued + self.plan.limits.deadline,
        })
    }

    fn run_to_host(&self, call: &Call<'_>, report: &mut Report) -> Trailer {
        let seat = self.context.seat();
        let mut writer = self.result_writer(&seat);
        let mut sink = match self.plan.request.frames {
            true => EngineSink::Frames(&mut writer),
            false => EngineSink::Writer(&mut writer),
        };
        let ran = self.engine().run(call, &mut sink);
        report.result_len = writer.sent;
        report.sending = writer.sending;
        match (ran, writer.failure) {
            (Err(CallError::Write(_)), Some(failure)) => failure,
            (ran, _) => self.trailer_of(ran),
        }
    }

    fn run_into_sinks(&self, call: &Call<'_>, sinks: &mut Sinks) -> Trailer {
        let ran = self.engine().run(call, &mut EngineSink::Writer(sinks));
        match (ran, sinks.take_failure()) {
            (Err(CallError::Write(_)), Some(failure)) => trailer::of_sink(&failure),
            (ran, _) => self.trailer_of(ran),
        }
    }

    fn engine(&self) -> &Engine {
        &self.context.environment.engine
    }

    fn call(&self, sources: Vec<Source>, waited: &Arc<Waited>) -> Call<'_> {
        let (request, limits) = (&self.plan.request, self.plan.limits);
        let mut call = Call::new(&self.plan.function, sources, request.args.clone());
        call.chunk_len = chunk_len_of(request);
        call.threads = limits.threads;
        call.depth = Some(limits.depth);
        call.split = split_of(request.split);
        call.part = request.part.map(part_of);
        call.source_index = request.part.map_or(0, |part| part.source_index);
        call.source_len = request.source_len;
        call.tier = tier_of(request.tier);
        call.fold = request.fold;
        call.state.clone_from(&self.plan.state);
        call.limits = CallLimits {
            budget: (request.budget != 0).then_some(request.budget),
            deadline: Some(limits.deadline.saturating_sub(self.queued.elapsed())),
            cancel: Some(self.control.cancel.clone()),
            result_len_max: limits.folded_len_max,
            output_len_max: limits.output_len_max,
            heap_quota_bytes: limits.heap_bytes,
        };
        call.turns = Some(self.turns(waited));
        call.growth = Some(Arc::new(CallGrowth::new(&self.context, &self.plan)));
        call
    }

    /// Of threads that compute for it.
    fn turns(&self, waited: &Arc<Waited>) -> Arc<dyn Turns> {
        let until = self.queued + self.plan.limits.deadline;
        let turn = self.context.turn(self.plan.request.class, self.control.cancel.clone(), until);
        self.context.environment.turns(turn, waited)
    }

    fn open_sources(&self, files: &FileSession, report: &Report) -> Result<(Vec<Source>, Vec<FileSource>), FileError> {
        let mut opened = Vec::new();
        let mut sources = Vec::new();
        for source in &self.plan.sources {
            let (compute, reads) = (&self.context.environment, Arc::clone(&report.reads));
            sources.push(match source {
                PlannedSource::Volume(volume, range) => {
                    let reader = volume_reader(&compute.cache, volume, range.end - range.start, &reads);
                    Source::Reader { name: volume.name.clone(), reader, range: Some(range.clone()) }
                }
                PlannedSource::File(handle, endpoint) => {
                    let file = files.source(*handle)?;
                    let range = range_of(endpoint, file.len_bytes()).ok_or_else(|| FileError {
                        errno: diskside_io::Errno::INVAL,
                        changed: false,
                        message: format!(
                            "the range from byte {} on is not in {}, which has {} bytes",
                            endpoint.offset,
                            file.name(),
                            file.len_bytes()
                        ),
                    })?;
                    opened.push(file.clone());
                    let name = file.name().to_owned();
                    let reader = file_reader(&compute.cache, file, &range, &reads);
                    Source::Reader { name, reader, range: Some(range) }
                }
                PlannedSource::Layout(id, endpoint) => {
                    let file = self.context.open_layout(*id, endpoint.generation)?;
                    let (name, range) = (file.name(), file.range(endpoint));
                    let bytes = volume_reader(&compute.cache, file.volume(), range.end - range.start, &reads);
                    Source::Reader { name, reader: Arc::new(file.over(bytes)), range: Some(range) }
                }
                PlannedSource::Memory(memory, range) => {
                    let cancel = self.control.cancel.clone();
                    let inner = MemoryReader { memory: Arc::clone(memory), cancel };
                    let reader = Arc::new(Metered { inner, meter: Meter { counters: None, reads } });
                    Source::Reader { name: MEMORY_NAME.into(), reader, range: Some(range.clone()) }
                }
                PlannedSource::HostStream => {
                    Source::Stream { name: "the host's stream".into(), stream: self.host_stream() }
                }
                PlannedSource::Paths => {
                    let (way, cache) = (Arc::clone(&compute.way), Arc::clone(&compute.cache));
                    // The time in which it waits does not count as the function's.
                    let turns = self.turns(&Arc::default());
                    let read_turns = Arc::clone(&turns);
                    let read = move |file: FileSource, range: Range<u64>| {
                        let inner = file_reader(&cache, file, &range, &reads);
                        Arc::new(InPieces::new(inner, Arc::clone(&way), Arc::clone(&read_turns))) as Arc<dyn ReadAt>
                    };
                    let request = &self.plan.request;
                    let kept = match &request.chunks {
                        Some(chunks) => Kept::Chunks { codecs: Arc::new(codecs_of(chunks)), ranged: chunks.ranged },
                        None => Kept::Whole(request.decompression),
                    };
                    let until = self.queued + self.plan.limits.deadline;
                    let sources = FilesByPath::new(
                        (&self.context, &self.control, until),
                        self.host_stream(),
                        read,
                        Arc::clone(&report.reads),
                        Arc::clone(&report.changed),
                        kept,
                        turns,
                    );
                    Source::Many { name: "files by their paths".into(), sources: Arc::new(sources) }
                }
            });
        }
        for source in &mut sources {
            if let Source::Reader { reader, .. } = source {
                let (way, turns) = (Arc::clone(&self.context.environment.way), self.turns(&Arc::default()));
                *reader = Arc::new(InPieces::new(Arc::clone(reader), way, turns));
            }
        }
        if let Some(decompression) = &self.plan.request.decompression {
            let (delimiter, turns) = (self.delimiter(), self.turns(&Arc::default()));
            let decompressed = |source| decompressed(source, decompression, delimiter, &turns);
            sources = sources.into_iter().map(decompressed).collect();
        }
        Ok((sources, opened))
    }

    /// What ends the records of its input, if something does.
    fn delimiter(&self) -> Option<u8> {
        let request = &self.plan.request;
        let asked = Asked { len_bytes: chunk_len_of(request), split: split_of(request.split), unfolded: !request.fold };
        match Pieces::of(&self.plan.function, &request.args, &asked).ok()?.split {
            Split::Delimiter(delimiter) => Some(delimiter),
            Split::Whole | Split::Bytes | Split::Fixed(_) => None,
        }
    }

    /// What the host sends after the request, for one reader.
    fn host_stream(&self) -> Arc<InputQueue> {
        let (events, tag) = (Arc::downgrade(&self.events), self.tag);
        self.input.set_bounds(self.queued + self.plan.limits.deadline, self.context.seat());
        self.input.on_consumed(move || {
            if let Some(events) = events.upgrade() {
                events.consumed(Instant::now(), tag);
            }
        });
        Arc::clone(&self.input)
    }

    fn open_sinks(&self, files: &FileSession) -> Result<Sinks, FileError> {
        let mut sinks = Vec::new();
        for sink in &self.plan.sinks {
            sinks.push(match sink {
                PlannedSink::Volume(volume, range, durable) => {
                    let may_write = MayWrite::new(&self.control, &self.context);
                    Sink::Volume(VolumeSink::new(Arc::clone(volume), range.start, range.end, *durable, may_write))
                }
                PlannedSink::Memory(memory, range) => {
                    let memory = Arc::clone(memory);
                    Sink::Memory(MemorySink::new(memory, range.clone(), self.control.cancel.clone()))
                }
                PlannedSink::File(handle, endpoint) => {
                    let mode = match endpoint.placement {
                        Placement::InPlace => SinkMode::InPlace { offset: endpoint.offset },
                        Placement::Append => SinkMode::Append,
                        Placement::Replace => SinkMode::Replace,
                    };
                    let sink = Some(files.sink(*handle, mode)?);
                    let result = Written::default();
                    Sink::File(Box::new(FileOut { sink, len: endpoint.len, taken: 0, result }))
                }
                PlannedSink::Layout(id, endpoint) => {
                    let layout = self.context.open_layout(*id, endpoint.generation)?;
                    let granted = self.context.rights.volume(&layout.volume().name);
                    let until = self.queued + self.plan.limits.deadline;
                    let may_write = MayWrite::new(&self.control, &self.context);
                    Sink::Layout(Box::new(LayoutSink::new(layout, granted, endpoint, may_write, until)?))
                }
            });
        }
        Ok(Sinks::new(sinks))
    }

    fn trailer_of(&self, ran: Result<Ran, CallError>) -> Trailer {
        match ran {
            Ok(ran) => {
                let mut trailer = Trailer::new(Outcome::Ok);
                let len = || i64::try_from(ran.stats.output_bytes).unwrap_or(i64::MAX);
                trailer.returned = ran.returned.map_or_else(len, u64::cast_signed);
                trailer.back_edges = ran.stats.edges;
                trailer.called = Some(Called { pieces: ran.stats.chunks, input_bytes: ran.stats.input_bytes });
                trailer.output_bytes = Some(ran.stats.output_bytes);
                trailer.depth = u32::try_from(ran.stats.depth).ok();
                trailer.fold_us = Some(u64::from(micros(ran.stats.fold)));
                trailer.times =
                    Times { read_us: micros(ran.stats.wait), run_us: micros(ran.stats.run), ..Times::default() };
                (trailer.log, trailer.log_dropped) = ran.log;
                trailer
            }
            Err(error) => trailer::of_call(&error),
        }
    }
}

/// Takes waits for turns off the times in the function and in its `combine`. Only their sum is known, so each of the two
/// bears its share.
fn take_off(trailer: &mut Trailer, waited: Duration) {
    let (run, fold) = (u64::from(trailer.times.run_us), trailer.fold_us.unwrap_or(0));
    let waited = u64::from(micros(waited)).min(run + fold);
    let of_fold = (waited * fold).checked_div(run + fold).unwrap_or(0);
    trailer.times.run_us = u32::try_from(run - (waited - of_fold).min(run)).unwrap_or(u32::MAX);
    trailer.fold_us = trailer.fold_us.map(|fold| fold - of_fold);
}

/// A file of an export as input of a call over a range of it.
fn file_reader(cache: &Arc<BlockCache>, file: FileSource, range: &Range<u64>, reads: &Arc<Reads>) -> Arc<dyn ReadAt> {
    let version = file.version_of_object();
    let meter = Meter { counters: Some(file.counters()), reads: Arc::clone(reads) };
    let metered = Metered { inner: file.reading(range), meter };
    match version {
        Some(version) => version_reader(cache, metered, version, range.end - range.start),
        None => Arc::new(metered),
    }
}

/// What a source decompresses to, as far as it is asked for.
fn decompressed(source: Source, asked: &Decompression, delimiter: Option<u8>, turns: &Arc<dyn Turns>) -> Source {
    let codec = match asked.by {
        CompressedBy::Gzip => Some(Codec::Gzip),
        CompressedBy::Zstd => Some(Codec::Zstd),
        CompressedBy::Any | CompressedBy::AnyWithoutHeader => None,
    };
    // Those of many are decompressed as they come.
    if let Source::Many { .. } = source {
        return source;
    }
    match source.decompressed(codec, Some(Arc::clone(turns))) {
        Source::Stream { name, stream } if (asked.offset, asked.len) != (0, Endpoint::TO_END) => {
            let end = (asked.len != Endpoint::TO_END).then(|| asked.offset + asked.len);
            Source::Stream { name, stream: Arc::new(StreamPart::new(stream, asked.offset, end, delimiter)) }
        }
        source => source,
    }
}

/// What a job measured.
#[derive(Debug, Default)]
struct Report {
    queued: Duration,
    reads: Arc<Reads>,
    /// Files that sinks change while the call reads.
    changed: Arc<OnceLock<Vec<Statx>>>,
    written: Written,
    result_len: u64,
    sending: Duration,
    writing: Duration,
}
