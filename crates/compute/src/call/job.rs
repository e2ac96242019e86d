//! A call from its request to its trailer: what it reads and writes is found when the request comes, the rest happens on
//! a thread of the pool.

mod growth;
mod launch;
mod limits;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use diskside_engine::pieces::WHOLE_LEN_MAX;
use diskside_engine::split::Split;
use diskside_engine::{
    Asked, Call, CallError, CallLimits, ChunkCodec, ChunkCodecs, Codec, Engine, Function, Outcome as Ran, Part, Pieces,
    ReadAt, Sink as EngineSink, Source, State, TierChoice, Turns,
};
use diskside_io::stream::StreamPart;
use diskside_nvme::Status;
use diskside_rights::Access;
use diskside_sbpf::activation::Tier;
use diskside_sbpf::image::Kind;
use diskside_wire::file::FileHandle;
use diskside_wire::function::{
    Called, ChunkCodec as WireCodec, ChunkInput, CompressedBy, Decompression, Endpoint, EndpointKind, FunctionKind,
    FunctionRequest, Outcome, Placement, RecordSplit, RequestPart, TierHint, Times, Trailer,
};

use self::growth::CallGrowth;
pub(crate) use self::limits::FOLDED_LEN_MAX;
use self::limits::{PlanLimits, sink_bytes, source_bytes};
use crate::call::answer::Problem;
use crate::call::command::CallCommand;
use crate::call::context::{CallContext, CallEvents};
use crate::call::control::Control;
use crate::call::input::InputQueue;
use crate::call::result::{ResultOf, ResultWriter};
use crate::call::trailer::{self, micros};
use crate::endpoint::Written;
use crate::endpoint::files::{FilesByPath, Kept};
use crate::endpoint::layout_sink::LayoutSink;
use crate::endpoint::memory::{MemoryReader, MemorySink};
use crate::endpoint::sink::{FileOut, Sink, Sinks, VolumeSink};
use crate::program::programs::{ActiveProgram, LoadedProgram};
use crate::program::usage::{InUse, Usage};
use crate::schedule::permits::{HostTurns, Turn, Waited};
use crate::schedule::quota::Holding;
use crate::schedule::seat::Seat;
use crate::schedule::yield_to_reactor::InPieces;
use crate::standard::state::Standard;
use crate::statistics::counters::FunctionId;
use diskside_export::{FileError, FileSession, FileSource, SinkMode, Statx};
use diskside_volume::Volume;
use diskside_volume::blocking::{Counted, Reads};
use diskside_volume::cache::volume_reader;
use diskside_volume::metered::Metered;

/// What a request comes to: everything in it was looked up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) function: Function,
    /// Content hash of its program.
    program_id: u64,
    /// Of its program.
    pub(crate) usage: Arc<Usage>,
    pub(crate) request: FunctionRequest,
    pub(crate) sources: Vec<PlannedSource>,
    pub(crate) sinks: Vec<PlannedSink>,
    pub(crate) state: Option<State>,
    pub(crate) limits: PlanLimits,
    program: Arc<LoadedProgram>,
    /// Of the host's rights, when they were last looked at.
    version: Arc<AtomicU64>,
}

/// Where input comes from.
#[derive(Clone, Debug)]
pub(crate) enum PlannedSource {
    Volume(Arc<Volume>, Range<u64>),
    File(FileHandle, Endpoint),
    /// A layout by its id. What it is, each call looks up: a revoked one must not be kept alive by a prepared request.
    Layout(u32, Endpoint),
    /// Bytes of the memory namespace.
    Memory(Arc<Standard>, Range<u64>),
    HostStream,
    /// Files whose paths are the host's stream.
    Paths,
}

/// Where output goes.
#[derive(Clone, Debug)]
pub(crate) enum PlannedSink {
    Volume(Arc<Volume>, Range<u64>, bool),
    File(FileHandle, Endpoint),
    /// As for sources.
    Layout(u32, Endpoint),
    Memory(Arc<Standard>, Range<u64>),
}

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
    pub(crate) fn new(context: &CallContext, kind: FunctionKind, request: FunctionRequest) -> Result<Self, Problem> {
        match kind {
            FunctionKind::Read | FunctionKind::Write | FunctionKind::Launch => {}
            _ => return Err(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr().into()),
        }
        let compute = &context.environment;
        let version = Arc::new(AtomicU64::new(context.rights.version()));
        let ActiveProgram { program, usage } = context.program(request.pind)?;
        if request.program_id != 0 && request.program_id != program.id() {
            let told = format!("program {} has content hash {:#018x}", request.pind, program.id());
            return Err(Problem::new(Status::PROGRAM_ID_MISMATCH.dnr(), told));
        }
        let name = request.function.as_deref();
        let is_launch = kind == FunctionKind::Launch;
        let function = if is_launch { program.kernel(name) } else { program.function(name) };
        let function = function.map_err(|error| error.0)?.clone();
        if is_launch {
            launch::check(&request)?;
        } else if request.sources.is_empty() {
            return Err(Problem::in_data_at(10, "a call has at least one source"));
        }
        match (kind, request.sinks.len()) {
            (FunctionKind::Read, 1..) => return Err(Problem::in_data_at(12, "a call of kind read has no sinks")),
            (FunctionKind::Write, 0) => return Err(Problem::in_data_at(12, "a call of kind write has a sink")),
            _ => {}
        }
        let mut sources = Vec::with_capacity(request.sources.len());
        for endpoint in &request.sources {
            sources.push(plan_source(context, endpoint)?);
        }
        if sources.iter().filter(|source| source.is_stream()).count() > 1 {
            return Err(Problem::in_data_at(10, "a call has at most one host stream"));
        }
        check_chunks(&request, &sources)?;
        let mut sinks = Vec::with_capacity(request.sinks.len());
        for (index, endpoint) in request.sinks.iter().enumerate() {
            sinks.push(plan_sink(context, endpoint, entry_at(request.sources.len() + index))?);
        }
        let state = match &request.state {
            None => None,
            Some(state) => Some(context.host.state(&state.name, state.len_bytes.into(), context.shared_states())?),
        };
        if request.frames && (kind != FunctionKind::Read || !request.fold || function.combine().is_none()) {
            return Err(Problem::in_data_at(
                6,
                "frames are of results that a host folds with the function's `combine`",
            ));
        }
        // How much there is to decompress to nobody knows.
        let input_len = if request.decompression.is_some() { UNKNOWN_LEN } else { input_len(&sources) };
        let other_bytes = sink_bytes(&sinks) + source_bytes(&sources);
        let memory = (other_bytes, context.host.calls_memory_max(&compute.config));
        let limits = match is_launch {
            true => PlanLimits::of_launch(&request, memory.1),
            false => PlanLimits::of(&request, &function, &compute.config, input_len, memory),
        };
        let program_id = program.id();
        Ok(Self { function, program, program_id, usage, request, sources, sinks, state, limits, version })
    }

    /// What is run.
    pub(crate) fn program(&self) -> &LoadedProgram {
        &self.program
    }

    /// Bytes that the call may use.
    pub(crate) fn memory(&self) -> u64 {
        self.limits.memory_bytes.min(self.limits.memory_bytes_max)
    }

    /// Whether what was looked up is still there, and the host may still use it.
    ///
    /// # Errors
    /// A volume went away, or the host may not use something any more.
    pub(crate) fn check(&self, context: &CallContext) -> Result<(), Problem> {
        self.check_rights(context)?;
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

    /// Files and layouts each call looks up, and their rights with them.
    fn check_rights(&self, context: &CallContext) -> Result<(), Problem> {
        let version = context.rights.version();
        if self.version.load(Ordering::Relaxed) == version {
            return Ok(());
        }
        // Whose state it is may have changed, too.
        if self.state.is_some() || !context.may_run(&self.program) {
            return Err(rights_changed());
        }
        self.sources.iter().try_for_each(|source| source.check_rights(context))?;
        for sink in &self.sinks {
            match sink {
                PlannedSink::Volume(volume, ..) => drop(context.volume(volume.nsid, Access::Write)?),
                PlannedSink::Memory(memory, _) => check_memory(context, memory)?,
                PlannedSink::File(..) | PlannedSink::Layout(..) => {}
            }
        }
        self.version.store(version, Ordering::Relaxed);
        Ok(())
    }

    /// Why it cannot be begun, ever.
    pub(crate) fn refusal(&self) -> Option<String> {
        let PlanLimits { memory_bytes, memory_bytes_max, .. } = self.limits;
        (memory_bytes > memory_bytes_max).then(|| {
            format!(
                "{} may need {memory_bytes} bytes of memory in a call like this, but all calls of a host together have \
                 {memory_bytes_max}; ask for shorter pieces, for a shorter result, or for less with DS_OUTPUT in its source, or \
                 have the server's compute.host_memory raised",
                self.function.name()
            )
        })
    }
}

/// Chunks are told apart by their paths, and are no longer than what a function may be called on at once.
fn check_chunks(request: &FunctionRequest, sources: &[PlannedSource]) -> Result<(), Problem> {
    let Some(chunks) = &request.chunks else { return Ok(()) };
    let told = if !sources.iter().all(|source| matches!(source, PlannedSource::Paths)) {
        "chunks are files by their paths, or ranges of them: sources of type 6"
    } else if request.decompression.is_some() {
        "chunks name their codecs: element 8 has no place beside element 9"
    } else if chunks.len == 0 || chunks.len > WHOLE_LEN_MAX as u64 {
        "a decoded chunk has 1 byte to 128 MiB"
    } else {
        return Ok(());
    };
    Err(Problem::in_data_at(10, told))
}

/// What decodes the chunks of a call.
fn codecs_of(chunks: &ChunkInput) -> ChunkCodecs {
    let codec = |codec: &WireCodec| match codec {
        WireCodec::Gzip => ChunkCodec::Gzip,
        WireCodec::Zstd => ChunkCodec::Zstd,
        WireCodec::Zlib => ChunkCodec::Zlib,
        WireCodec::Lz4 => ChunkCodec::Lz4,
        WireCodec::Blosc => ChunkCodec::Blosc,
        WireCodec::Crc32c => ChunkCodec::Crc32c,
    };
    let len = usize::try_from(chunks.len).unwrap_or(usize::MAX);
    ChunkCodecs::new(chunks.codecs.iter().map(codec).collect(), len)
}

impl PlannedSource {
    /// Whether the host may still use it.
    pub(crate) fn check_rights(&self, context: &CallContext) -> Result<(), Problem> {
        match self {
            Self::Volume(volume, _) => context.volume(volume.nsid, Access::Read).map(drop),
            Self::Memory(memory, _) => check_memory(context, memory),
            Self::File(..) | Self::Layout(..) | Self::HostStream | Self::Paths => Ok(()),
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::HostStream | Self::Paths)
    }
}

fn check_memory(context: &CallContext, memory: &Arc<Standard>) -> Result<(), Problem> {
    let is_same = context.memory().is_some_and(|now| Arc::ptr_eq(now, memory));
    if is_same { Ok(()) } else { Err(rights_changed()) }
}

/// Of a prepared request.
pub(crate) fn rights_changed() -> Problem {
    let told = "what this host may use has changed since the request was prepared: prepare it anew";
    Problem::new(Status::UNKNOWN_HANDLE.dnr(), told)
}

/// Of input whose end nobody knows yet.
const UNKNOWN_LEN: u64 = u64::MAX >> 16;

fn input_len(sources: &[PlannedSource]) -> u64 {
    let len = |source: &PlannedSource| match source {
        PlannedSource::Volume(_, range) | PlannedSource::Memory(_, range) => range.end - range.start,
        PlannedSource::File(_, endpoint) | PlannedSource::Layout(_, endpoint) if endpoint.len != Endpoint::TO_END => {
            endpoint.len
        }
        // Their length is not known yet: as long as it takes.
        PlannedSource::File(..) | PlannedSource::Layout(..) | PlannedSource::HostStream | PlannedSource::Paths => {
            UNKNOWN_LEN
        }
    };
    sources.iter().map(len).fold(0, u64::saturating_add)
}

/// Where in the request an entry stands.
fn entry_at(index: usize) -> usize {
    64 + 32 * index
}

pub(crate) fn plan_source(context: &CallContext, endpoint: &Endpoint) -> Result<PlannedSource, Problem> {
    match endpoint.kind {
        EndpointKind::Volume(nsid) => {
            let (volume, range) = volume_range(context, nsid, endpoint, Access::Read)?;
            Ok(PlannedSource::Volume(volume, range))
        }
        EndpointKind::File(id) => {
            let handle = FileHandle { id, generation: endpoint.generation };
            Ok(PlannedSource::File(handle, *endpoint))
        }
        EndpointKind::HostStream => Ok(PlannedSource::HostStream),
        EndpointKind::Paths => Ok(PlannedSource::Paths),
        EndpointKind::Layout(id) => Ok(PlannedSource::Layout(id, *endpoint)),
        EndpointKind::Memory(nsid) => {
            let (memory, range) = memory_range(context, nsid, endpoint)?;
            Ok(PlannedSource::Memory(memory, range))
        }
    }
}

fn plan_sink(context: &CallContext, endpoint: &Endpoint, at: usize) -> Result<PlannedSink, Problem> {
    match endpoint.kind {
        EndpointKind::Volume(nsid) => {
            let (volume, range) = volume_range(context, nsid, endpoint, Access::Write)?;
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
        EndpointKind::Memory(nsid) => {
            let (memory, range) = memory_range(context, nsid, endpoint)?;
            Ok(PlannedSink::Memory(memory, range))
        }
        EndpointKind::HostStream | EndpointKind::Paths => {
            Err(Problem::in_data_at(at, "the host's stream is no sink: a read gives its result to the host"))
        }
    }
}

fn volume_range(
    context: &CallContext,
    nsid: u32,
    endpoint: &Endpoint,
    access: Access,
) -> Result<(Arc<Volume>, Range<u64>), Problem> {
    let volume = context.volume(nsid, access)?;
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

fn memory_range(context: &CallContext, nsid: u32, endpoint: &Endpoint) -> Result<(Arc<Standard>, Range<u64>), Problem> {
    let memory = context.memory().filter(|standard| standard.nsid() == nsid);
    let memory = memory.ok_or_else(|| {
        let told = format!("there is no memory with namespace ID {nsid}");
        Problem::new(Status::NAMESPACE_NOT_REACHABLE.dnr(), told)
    })?;
    let range = range_of(endpoint, memory.len_bytes()).ok_or_else(|| {
        let (offset, len) = (endpoint.offset, memory.len_bytes());
        let told = format!("the range from byte {offset} on is not in the memory namespace, which has {len}");
        Problem::new(Status::LBA_OUT_OF_RANGE.dnr(), told)
    })?;
    Ok((Arc::clone(memory), range))
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
        self.context.tell_ran(&self.plan.program, self.plan.function.name(), &trailer);
        let Self { events, tag, in_use, .. } = self;
        drop(in_use);
        events.ended(Instant::now(), tag, trailer);
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
        let function = FunctionId { program_id: self.plan.program_id, name: self.plan.function.name() };
        self.context.count(|statistics| statistics.ended(&trailer, function, received, kept));
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

    /// Of what goes to the host.
    fn result_writer<'a>(&'a self, seat: &'a Seat) -> ResultWriter<'a> {
        ResultWriter::new(ResultOf {
            seat,
            tag: self.tag,
            events: &*self.events,
            account: &self.context.host.account,
            control: &self.control,
            len_max: self.plan.limits.result_len_max,
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
        let (compute, class) = (&self.context.environment, self.plan.request.class);
        let (host, cancel) = (&self.context.host, self.control.cancel.clone());
        let (host, cpu_share) = (host.id, host.quota().cpu_share());
        let turn = Turn { host, cpu_share, class, cancel, until: self.queued + self.plan.limits.deadline };
        HostTurns::of(&compute.gate, &compute.way, turn, waited)
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
                    let (name, counters) = (file.name().to_owned(), file.counters());
                    Source::Reader {
                        name,
                        reader: Arc::new(Counted { inner: Metered { inner: file.reading(&range), counters }, reads }),
                        range: Some(range),
                    }
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
                    let reader = Arc::new(Counted { inner, reads });
                    Source::Reader { name: MEMORY_NAME.into(), reader, range: Some(range.clone()) }
                }
                PlannedSource::HostStream => {
                    Source::Stream { name: "the host's stream".into(), stream: self.host_stream() }
                }
                PlannedSource::Paths => {
                    let way = Arc::clone(&compute.way);
                    let read = move |file: FileSource, range: Range<u64>| {
                        let inner = Metered { counters: file.counters(), inner: file.reading(&range) };
                        let inner = Arc::new(Counted { inner, reads: Arc::clone(&reads) });
                        Arc::new(InPieces { inner, way: Arc::clone(&way) }) as Arc<dyn ReadAt>
                    };
                    let request = &self.plan.request;
                    let kept = match &request.chunks {
                        Some(chunks) => Kept::Chunks { codecs: Arc::new(codecs_of(chunks)), ranged: chunks.ranged },
                        None => Kept::Whole(request.decompression),
                    };
                    let sources = FilesByPath::new(
                        files,
                        self.host_stream(),
                        read,
                        Arc::clone(&report.reads),
                        Arc::clone(&report.changed),
                        kept,
                        // What it waits for is no time of the function's.
                        self.turns(&Arc::default()),
                    );
                    Source::Many { name: "files by their paths".into(), sources: Arc::new(sources) }
                }
            });
        }
        for source in &mut sources {
            if let Source::Reader { reader, .. } = source {
                let way = Arc::clone(&self.context.environment.way);
                *reader = Arc::new(InPieces { inner: Arc::clone(reader), way });
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
                    Sink::Volume(VolumeSink::new(Arc::clone(volume), range.start, range.end, *durable))
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
                    let control = Arc::clone(&self.control);
                    Sink::Layout(Box::new(LayoutSink::new(layout, granted, endpoint, control, until)?))
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
                trailer.times =
                    Times { read_us: micros(ran.stats.wait), run_us: micros(ran.stats.run), ..Times::default() };
                (trailer.log, trailer.log_dropped) = ran.log;
                trailer
            }
            Err(error) => trailer::of_call(&error),
        }
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

pub(crate) fn chunk_len_of(request: &FunctionRequest) -> Option<usize> {
    (request.chunk_len != 0).then_some(request.chunk_len as usize)
}

fn part_of(part: RequestPart) -> Part {
    Part { request: part.start..part.end, zero: part.zero }
}

pub(crate) fn split_of(split: RecordSplit) -> Option<Split> {
    match split {
        RecordSplit::Program => None,
        RecordSplit::Fixed(len) => Some(Split::Fixed(len)),
        RecordSplit::Delimiter(byte) => Some(Split::Delimiter(byte)),
        RecordSplit::Bytes => Some(Split::Bytes),
        RecordSplit::Whole => Some(Split::Whole),
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
