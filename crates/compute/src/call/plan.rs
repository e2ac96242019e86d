//! The plan of a request: everything that it names is looked up when it comes, and checked.

mod limits;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diskside_engine::pieces::WHOLE_LEN_MAX;
use diskside_engine::split::Split;
use diskside_engine::{ChunkCodec, ChunkCodecs, Function, Part, State, TierChoice};
use diskside_nvme::Status;
use diskside_rights::Access;
use diskside_sbpf::activation::Tier;
use diskside_wire::file::FileHandle;
use diskside_wire::function::{
    ChunkCodec as WireCodec, ChunkInput, Endpoint, EndpointKind, FunctionKind, FunctionRequest, RecordSplit,
    RequestPart, TierHint,
};

pub(crate) use self::limits::FOLDED_LEN_MAX;
pub(crate) use self::limits::PlanLimits;
use self::limits::{sink_bytes, source_bytes};
use crate::call::answer::Problem;
use crate::call::context::CallContext;
use crate::call::job;
use crate::call::used::Used;
use crate::program::loaded::LoadedProgram;
use crate::program::programs::ActiveProgram;
use crate::program::usage::Usage;
use crate::standard::state::Standard;
use diskside_volume::Volume;

/// The plan of a request: everything in it was looked up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) function: Function,
    /// Content hash of its program.
    pub(super) program_id: u64,
    /// Of its program.
    pub(crate) usage: Arc<Usage>,
    pub(crate) request: FunctionRequest,
    pub(crate) sources: Vec<PlannedSource>,
    pub(crate) sinks: Vec<PlannedSink>,
    pub(crate) state: Option<State>,
    pub(crate) limits: PlanLimits,
    pub(super) program: Arc<LoadedProgram>,
    /// The version of the host's rights at the last look.
    version: Arc<AtomicU64>,
}

/// Where input comes from.
#[derive(Clone, Debug)]
pub(crate) enum PlannedSource {
    Volume(Arc<Volume>, Range<u64>),
    File(FileHandle, Endpoint),
    /// A layout by its id. Each call looks it up: a prepared request must not keep a revoked layout alive.
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

/// What messages call the memory namespace.
pub(super) const MEMORY_NAME: &str = "memory";

impl Plan {
    /// Looks up everything that a request names. Nothing here waits.
    pub(crate) fn new(context: &CallContext, kind: FunctionKind, request: FunctionRequest) -> Result<Self, Problem> {
        match kind {
            FunctionKind::Read | FunctionKind::Write | FunctionKind::Launch => {}
            _ => return Err(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr().into()),
        }
        let compute = &context.environment;
        let version = Arc::new(AtomicU64::new(context.rights_version()));
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
            job::check_launch(&request)?;
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
            true => PlanLimits::of_launch(&request, &compute.config, memory.1),
            false => PlanLimits::of(&request, &function, &compute.config, input_len, memory),
        };
        let program_id = program.id();
        Ok(Self { function, program, program_id, usage, request, sources, sinks, state, limits, version })
    }

    /// What is run.
    pub(crate) fn program(&self) -> &LoadedProgram {
        &self.program
    }

    /// All that needs a right. Files by their paths are found later.
    pub(crate) fn used(&self, context: &CallContext) -> Vec<Used> {
        let mut used = vec![Used::program(&self.program.credentials())];
        used.extend(self.sources.iter().filter_map(|source| source.used(context)));
        used.extend(self.sinks.iter().filter_map(|sink| match sink {
            PlannedSink::Volume(volume, ..) => Some(Used::volume(volume, Access::Write)),
            PlannedSink::Memory(memory, _) => Some(Used::Memory(Arc::clone(memory))),
            PlannedSink::File(handle, _) => context.files.used(*handle, Access::Write).map(Used::Export),
            PlannedSink::Layout(id, endpoint) => used_layout(context, *id, endpoint, Access::Write),
        }));
        used.extend(self.state.clone().map(Used::State));
        used
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
        let version = context.rights_version();
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
                 have the server's compute.host_memory, or the quota `memory` of this host, raised",
                self.function.name()
            )
        })
    }
}

/// Chunks differ by their paths, and are no longer than the longest input of one run.
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
pub(super) fn codecs_of(chunks: &ChunkInput) -> ChunkCodecs {
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

    /// What of it needs a right. That of a file or a layout which is not there is not needed: the call ends when it opens it.
    pub(crate) fn used(&self, context: &CallContext) -> Option<Used> {
        match self {
            Self::Volume(volume, _) => Some(Used::volume(volume, Access::Read)),
            Self::Memory(memory, _) => Some(Used::Memory(Arc::clone(memory))),
            Self::File(handle, _) => context.files.used(*handle, Access::Read).map(Used::Export),
            Self::Layout(id, endpoint) => used_layout(context, *id, endpoint, Access::Read),
            Self::HostStream | Self::Paths => None,
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::HostStream | Self::Paths)
    }
}

fn used_layout(context: &CallContext, id: u32, endpoint: &Endpoint, access: Access) -> Option<Used> {
    let layout = context.layout(id, endpoint.generation).ok()?;
    Some(Used::volume(layout.volume(), access))
}

fn check_memory(context: &CallContext, memory: &Arc<Standard>) -> Result<(), Problem> {
    let is_same = context.memory().is_some_and(|now| Arc::ptr_eq(now, memory));
    if is_same { Ok(()) } else { Err(rights_changed()) }
}

/// Why a prepared request does not run.
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

pub(crate) fn plan_sink(context: &CallContext, endpoint: &Endpoint, at: usize) -> Result<PlannedSink, Problem> {
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
pub(super) fn range_of(endpoint: &Endpoint, len_bytes: u64) -> Option<Range<u64>> {
    let end = match endpoint.len {
        Endpoint::TO_END => len_bytes,
        len => endpoint.offset.checked_add(len)?,
    };
    (endpoint.offset <= end && end <= len_bytes).then_some(endpoint.offset..end)
}

pub(crate) fn chunk_len_of(request: &FunctionRequest) -> Option<usize> {
    (request.chunk_len != 0).then_some(request.chunk_len as usize)
}

pub(super) fn part_of(part: RequestPart) -> Part {
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
