//! A call from its request to its trailer: what it reads and writes is found when the request comes, the rest happens on
//! a thread of the pool.

mod growth;
mod limits;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diskside_engine::split::Split;
use diskside_engine::{
    Call, CallError, CallLimits, Engine, Function, Outcome as Ran, Sink as EngineSink, Source, State, TierChoice,
};
use diskside_nvme::Status;
use diskside_nvme::wire::file::FileHandle;
use diskside_nvme::wire::function::{
    Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, Placement, RecordSplit, TierHint, Times, Trailer,
};
use diskside_sbpf::activation::Tier;

use self::growth::CallGrowth;
pub(crate) use self::limits::{CHUNK_LEN, CHUNK_LEN_MAX, FOLDED_LEN_MAX};
use self::limits::{PlanLimits, sink_bytes};
use super::answer::Problem;
use super::association::Association;
use super::blocking::{Counted, Reads};
use super::cache::volume_reader;
use super::control::Control;
use super::gate::{HostTurns, Turn, Waited};
use super::input::InputQueue;
use super::layout_sink::LayoutSink;
use super::ledger::Holding;
use super::metered::Metered;
use super::prepared::CallCommand;
use super::programs::ActiveProgram;
use super::result::ResultWriter;
use super::sink::{FileOut, Sink, Sinks, VolumeSink, Written};
use super::standard::endpoint::{MemoryReader, MemorySink};
use super::trailer;
use super::usage::{InUse, Usage};
use super::way::InPieces;
use crate::export::{FileError, FileSession, SinkMode};
use crate::volume::Volume;

/// What a request comes to: everything in it was looked up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) function: Function,
    /// Of its program.
    pub(crate) usage: Arc<Usage>,
    pub(crate) request: FunctionRequest,
    pub(crate) sources: Vec<PlannedSource>,
    pub(crate) sinks: Vec<PlannedSink>,
    pub(crate) state: Option<State>,
    pub(crate) limits: PlanLimits,
}

/// Where input comes from.
#[derive(Clone, Debug)]
pub(crate) enum PlannedSource {
    Volume(Arc<Volume>, Range<u64>),
    File(FileHandle, Endpoint),
    /// A layout by its id. What it is, each call looks up: a revoked one must not be kept alive by a prepared request.
    Layout(u32, Endpoint),
    /// Bytes of the memory namespace.
    Memory(Range<u64>),
    HostStream,
}

/// Where output goes.
#[derive(Clone, Debug)]
pub(crate) enum PlannedSink {
    Volume(Arc<Volume>, Range<u64>, bool),
    File(FileHandle, Endpoint),
    /// As for sources.
    Layout(u32, Endpoint),
    Memory(Range<u64>),
}

/// A call that is queued or runs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) tag: u64,
    pub(crate) plan: Plan,
    pub(crate) association: Arc<Association>,
    pub(crate) control: Arc<Control>,
    pub(crate) input: Arc<InputQueue>,
    pub(crate) queued: Instant,
    /// Given up when nothing of the program runs any more, and before anybody is told.
    pub(crate) in_use: InUse,
    /// What its request is charged to; that of a prepared one is charged as long as it is kept.
    #[expect(dead_code, reason = "kept as long as the call is")]
    pub(crate) holding: Option<Holding>,
}

/// What messages call the memory namespace.
const MEMORY_NAME: &str = "memory";

impl Plan {
    /// Looks up everything that a request names. Nothing here waits.
    pub(crate) fn new(
        association: &Association,
        kind: FunctionKind,
        request: FunctionRequest,
    ) -> Result<Self, Problem> {
        match kind {
            FunctionKind::Read | FunctionKind::Write => {}
            _ => return Err(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr().into()),
        }
        let compute = &association.compute;
        let ActiveProgram { program, usage } = compute.programs.active(request.pind)?;
        if request.program_id != 0 && request.program_id != program.id() {
            let told = format!("program {} has content hash {:#018x}", request.pind, program.id());
            return Err(Problem::new(Status::PROGRAM_ID_MISMATCH.dnr(), told));
        }
        let function = program.function(request.function.as_deref()).map_err(|error| error.0)?.clone();
        if request.sources.is_empty() {
            return Err(Problem::in_data_at(10, "a call has at least one source"));
        }
        match (kind, request.sinks.len()) {
            (FunctionKind::Read, 1..) => return Err(Problem::in_data_at(12, "a call of kind read has no sinks")),
            (FunctionKind::Write, 0) => return Err(Problem::in_data_at(12, "a call of kind write has a sink")),
            _ => {}
        }
        let mut sources = Vec::with_capacity(request.sources.len());
        for endpoint in &request.sources {
            sources.push(plan_source(association, endpoint)?);
        }
        if sources.iter().filter(|source| source.is_stream()).count() > 1 {
            return Err(Problem::in_data_at(10, "a call has at most one host stream"));
        }
        let mut sinks = Vec::with_capacity(request.sinks.len());
        for (index, endpoint) in request.sinks.iter().enumerate() {
            sinks.push(plan_sink(association, endpoint, entry_at(request.sources.len() + index))?);
        }
        let state = match &request.state {
            None => None,
            Some(state) => Some(association.host.state(&state.name, state.len_bytes.into())?),
        };
        let limits = PlanLimits::of(&request, &function, &compute.config, input_len(&sources), sink_bytes(&sinks));
        Ok(Self { function, usage, request, sources, sinks, state, limits })
    }

    /// Bytes that the call may use.
    pub(crate) fn memory(&self) -> u64 {
        self.limits.memory_bytes.min(self.limits.memory_bytes_max)
    }

    /// Whether the volumes that were looked up are still there.
    ///
    /// # Errors
    /// One went away.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let sources = self.sources.iter().filter_map(|source| match source {
            PlannedSource::Volume(volume, _) => Some(volume),
            _ => None,
        });
        let sinks = self.sinks.iter().filter_map(|sink| match sink {
            PlannedSink::Volume(volume, ..) => Some(volume),
            _ => None,
        });
        match sources.chain(sinks).find(|volume| volume.is_removed()) {
            None => Ok(()),
            Some(volume) => {
                let told = format!("volume {} went away since the request was prepared", volume.name);
                Err(Problem::new(Status::NAMESPACE_NOT_REACHABLE.dnr(), told))
            }
        }
    }

    /// Why it cannot be begun, ever.
    pub(crate) fn refusal(&self) -> Option<String> {
        let PlanLimits { memory_bytes, memory_bytes_max, .. } = self.limits;
        (memory_bytes > memory_bytes_max).then(|| {
            format!(
                "{} may need {memory_bytes} bytes of memory in a call like this, but all calls of a host together have \
                 {memory_bytes_max}; ask for less with DS_OUTPUT in its source, or for a shorter result",
                self.function.name()
            )
        })
    }
}

impl PlannedSource {
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::HostStream)
    }
}

fn input_len(sources: &[PlannedSource]) -> u64 {
    let len = |source: &PlannedSource| match source {
        PlannedSource::Volume(_, range) | PlannedSource::Memory(range) => range.end - range.start,
        // Their length is not known yet: as long as it takes.
        PlannedSource::File(..) | PlannedSource::Layout(..) | PlannedSource::HostStream => u64::MAX >> 16,
    };
    sources.iter().map(len).fold(0, u64::saturating_add)
}

/// Where in the request an entry stands.
fn entry_at(index: usize) -> usize {
    64 + 32 * index
}

pub(crate) fn plan_source(association: &Association, endpoint: &Endpoint) -> Result<PlannedSource, Problem> {
    match endpoint.kind {
        EndpointKind::Volume(nsid) => {
            let (volume, range) = volume_range(association, nsid, endpoint)?;
            Ok(PlannedSource::Volume(volume, range))
        }
        EndpointKind::File(id) => {
            let handle = FileHandle { id, generation: endpoint.generation };
            Ok(PlannedSource::File(handle, *endpoint))
        }
        EndpointKind::HostStream => Ok(PlannedSource::HostStream),
        EndpointKind::Layout(id) => Ok(PlannedSource::Layout(id, *endpoint)),
        EndpointKind::Memory(nsid) => memory_range(association, nsid, endpoint).map(PlannedSource::Memory),
    }
}

fn plan_sink(association: &Association, endpoint: &Endpoint, at: usize) -> Result<PlannedSink, Problem> {
    match endpoint.kind {
        EndpointKind::Volume(nsid) => {
            let (volume, range) = volume_range(association, nsid, endpoint)?;
            if volume.medium.properties().read_only {
                return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr().into());
            }
            Ok(PlannedSink::Volume(volume, range, endpoint.durable))
        }
        EndpointKind::File(id) => {
            let handle = FileHandle { id, generation: endpoint.generation };
            Ok(PlannedSink::File(handle, *endpoint))
        }
        EndpointKind::Layout(id) => Ok(PlannedSink::Layout(id, *endpoint)),
        EndpointKind::Memory(_) if endpoint.durable => {
            Err(Problem::in_data_at(at + 1, "memory is no stable medium: leave out that its output is durable"))
        }
        EndpointKind::Memory(nsid) => memory_range(association, nsid, endpoint).map(PlannedSink::Memory),
        EndpointKind::HostStream => {
            Err(Problem::in_data_at(at, "the host's stream is no sink: a read gives its result to the host"))
        }
    }
}

fn volume_range(
    association: &Association,
    nsid: u32,
    endpoint: &Endpoint,
) -> Result<(Arc<Volume>, Range<u64>), Problem> {
    let volume = association.compute.volumes.find(nsid);
    let volume = volume.ok_or_else(|| {
        Problem::new(Status::NAMESPACE_NOT_REACHABLE.dnr(), format!("there is no volume with namespace ID {nsid}"))
    })?;
    let len_bytes = volume.medium.properties().len_bytes;
    let range = range_of(endpoint, len_bytes).ok_or_else(|| {
        let told = format!(
            "the range from byte {} on is not in volume {}, which has {len_bytes}",
            endpoint.offset, volume.name
        );
        Problem::new(Status::LBA_OUT_OF_RANGE.dnr(), told)
    })?;
    Ok((volume, range))
}

fn memory_range(association: &Association, nsid: u32, endpoint: &Endpoint) -> Result<Range<u64>, Problem> {
    let memory = association.compute.standard.as_ref().filter(|standard| standard.nsid() == nsid);
    let memory = memory.ok_or_else(|| {
        let told = format!("there is no memory with namespace ID {nsid}");
        Problem::new(Status::NAMESPACE_NOT_REACHABLE.dnr(), told)
    })?;
    range_of(endpoint, memory.len_bytes()).ok_or_else(|| {
        let (offset, len) = (endpoint.offset, memory.len_bytes());
        let told = format!("the range from byte {offset} on is not in the memory namespace, which has {len}");
        Problem::new(Status::LBA_OUT_OF_RANGE.dnr(), told)
    })
}

/// The bytes that an entry means, of so many.
fn range_of(endpoint: &Endpoint, len_bytes: u64) -> Option<Range<u64>> {
    let end = match endpoint.len {
        Endpoint::TO_END => len_bytes,
        len => endpoint.offset.checked_add(len)?,
    };
    (endpoint.offset <= end && end <= len_bytes).then_some(endpoint.offset..end)
}

/// Runs a prepared request for a Function Call; gives its result and how it went.
pub(crate) fn run_prepared(
    association: &Arc<Association>,
    prepared: &Plan,
    command: &CallCommand,
    control: &Arc<Control>,
    queued: Instant,
    in_use: InUse,
) -> (Vec<u8>, Trailer) {
    let mut plan = prepared.clone();
    plan.request.args = command.args(&plan.request.args);
    plan.limits.deadline = plan.limits.deadline.min(command.timeout);
    let (association, control) = (Arc::clone(association), Arc::clone(control));
    let input = Arc::new(InputQueue::new());
    let job = Job { tag: 0, plan, association, control, input, queued, in_use, holding: None };
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
        let Self { association, tag, in_use, .. } = self;
        drop(in_use);
        association.ended(Instant::now(), tag, trailer);
    }

    /// Fills in what was measured, and counts it.
    fn complete(&self, mut trailer: Trailer, report: &Report) -> Trailer {
        if self.control.cancel.is_cancelled() && trailer.outcome != Outcome::Ok {
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
        self.association.compute.statistics.ended(&trailer, self.plan.request.pind, received, kept);
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
        let files = &self.association.files;
        let (sources, opened) = match self.open_sources(files, report) {
            Ok(opened) => opened,
            Err(error) => return trailer::of_file(&error),
        };
        let mut sinks = match self.open_sinks(files) {
            Ok(sinks) => sinks,
            Err(error) => return trailer::of_file(&error),
        };
        match sinks.conflict(&opened) {
            Ok(None) => {}
            Ok(Some(told)) => return trailer::simple(Outcome::Refused, &told),
            Err(error) => return trailer::of_file(&error),
        }
        let waited = Arc::new(Waited::default());
        let call = self.call(sources, &waited);
        let mut trailer = match memory {
            _ if !self.plan.sinks.is_empty() => self.run_into_sinks(&call, &mut sinks),
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
                && let Err(error) = file.unchanged()
            {
                trailer = trailer::of_file(&error);
            }
        }
        if trailer.outcome != Outcome::Ok && self.input.is_late() {
            trailer =
                trailer::simple(Outcome::Deadline, "the deadline passed while the call waited for its host's stream");
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
        trailer.times.run_us = trailer.times.run_us.saturating_sub(micros(waited.within()));
        (report.written, report.writing) = (sinks.written(), sinks.waited());
        trailer
    }

    fn run_to_host(&self, call: &Call<'_>, report: &mut Report) -> Trailer {
        let mut writer = ResultWriter::new(self);
        let ran = self.engine().run(call, &mut EngineSink::Writer(&mut writer));
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
        &self.association.compute.engine
    }

    fn call(&self, sources: Vec<Source>, waited: &Arc<Waited>) -> Call<'_> {
        let (request, limits) = (&self.plan.request, self.plan.limits);
        let mut call = Call::new(&self.plan.function, sources, request.args.clone());
        call.chunk_len = limits.chunk_len;
        call.threads = limits.threads;
        call.split = split_of(request.split);
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
        let compute = &self.association.compute;
        let (host, class, cancel) = (self.association.host.id, request.class, self.control.cancel.clone());
        let turn = Turn { host, class, cancel, until: self.queued + limits.deadline };
        call.turns = Some(HostTurns::of(compute, turn, waited));
        call.growth = Some(Arc::new(CallGrowth::new(&self.association, &self.plan)));
        call
    }

    fn open_sources(
        &self,
        files: &FileSession,
        report: &Report,
    ) -> Result<(Vec<Source>, Vec<crate::export::FileSource>), FileError> {
        let mut opened = Vec::new();
        let mut sources = Vec::new();
        for source in &self.plan.sources {
            let (compute, reads) = (&self.association.compute, Arc::clone(&report.reads));
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
                    let (name, counters) = (file.name().to_owned(), file.counters());
                    Source::Reader {
                        name,
                        reader: Arc::new(Counted { inner: Metered { inner: file.reading(&range), counters }, reads }),
                        range: Some(range),
                    }
                }
                PlannedSource::Layout(id, endpoint) => {
                    let layouts = &self.association.host.layouts;
                    let file = layouts.open(&compute.volumes, *id, endpoint.generation)?;
                    let (name, range) = (file.name(), file.range(endpoint));
                    let bytes = volume_reader(&compute.cache, file.volume(), range.end - range.start, &reads);
                    Source::Reader { name, reader: Arc::new(file.over(bytes)), range: Some(range) }
                }
                PlannedSource::Memory(range) => {
                    let cancel = self.control.cancel.clone();
                    let inner = MemoryReader { compute: Arc::clone(compute), cancel };
                    let reader = Arc::new(Counted { inner, reads });
                    Source::Reader { name: MEMORY_NAME.into(), reader, range: Some(range.clone()) }
                }
                PlannedSource::HostStream => {
                    let (association, tag) = (Arc::downgrade(&self.association), self.tag);
                    self.input.set_deadline(self.queued + self.plan.limits.deadline);
                    self.input.on_consumed(move || {
                        if let Some(association) = association.upgrade() {
                            association.consumed(Instant::now(), tag);
                        }
                    });
                    let stream: Arc<InputQueue> = Arc::clone(&self.input);
                    Source::Stream { name: "the host's stream".into(), stream }
                }
            });
        }
        for source in &mut sources {
            if let Source::Reader { reader, .. } = source {
                let way = Arc::clone(&self.association.compute.way);
                *reader = Arc::new(InPieces { inner: Arc::clone(reader), way });
            }
        }
        Ok((sources, opened))
    }

    fn open_sinks(&self, files: &FileSession) -> Result<Sinks, FileError> {
        let mut sinks = Vec::new();
        for sink in &self.plan.sinks {
            sinks.push(match sink {
                PlannedSink::Volume(volume, range, durable) => {
                    Sink::Volume(VolumeSink::new(Arc::clone(volume), range.start, range.end, *durable))
                }
                PlannedSink::Memory(range) => {
                    let compute = Arc::clone(&self.association.compute);
                    Sink::Memory(MemorySink::new(compute, range.clone(), self.control.cancel.clone()))
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
                    let association = &self.association;
                    let volumes = &association.compute.volumes;
                    let layout = association.host.layouts.open(volumes, *id, endpoint.generation)?;
                    let until = self.queued + self.plan.limits.deadline;
                    let control = Arc::clone(&self.control);
                    Sink::Layout(Box::new(LayoutSink::new(layout, endpoint, control, until)?))
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
                trailer.times =
                    Times { read_us: micros(ran.stats.wait), run_us: micros(ran.stats.run), ..Times::default() };
                trailer.log = ran.log.0;
                trailer
            }
            Err(error) => trailer::of_call(&error),
        }
    }
}

/// What a job measured.
#[derive(Debug, Default)]
struct Report {
    queued: Duration,
    reads: Arc<Reads>,
    written: Written,
    result_len: u64,
    sending: Duration,
    writing: Duration,
}

pub(crate) fn split_of(split: RecordSplit) -> Option<Split> {
    match split {
        RecordSplit::Program => None,
        RecordSplit::Fixed(len) => Some(Split::Fixed(len)),
        RecordSplit::Delimiter(byte) => Some(Split::Delimiter(byte)),
        RecordSplit::None => Some(Split::None),
    }
}

pub(crate) fn tier_of(hint: TierHint) -> TierChoice {
    match hint {
        TierHint::Best => TierChoice::Best,
        TierHint::Interpreter => TierChoice::Only(Tier::Interpreter),
        TierHint::Cranelift => TierChoice::Only(Tier::Cranelift),
        TierHint::Llvm => TierChoice::Only(Tier::Llvm),
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
