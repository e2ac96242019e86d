//! Traversals at the target: chains of dependent reads of volumes and files.
//!
//! A request's sources are the files that the traversal may touch, in this order; a range is a file of its own that
//! begins at 0. Its arguments are what scratch begins with, and `result_max` is the length of scratch. The first step
//! is given no data.
//!
//! Steps run on the reactor that received the command, which gives each host a share of its turns. A read of what is in
//! memory is a copy; any other of a volume the reactor's ring makes, and the traversal waits between two steps, without a thread.
//! A thread of the pool follows the pointers of what is long, of the memory namespace, and of files whose bytes are not at hand.

mod inline;

pub(crate) use crate::schedule::turn_share::Share;
pub use inline::{AwaitedRead, ReadId};
pub(crate) use inline::{LANES_MAX, Lane, Lanes, Progress, Running, WaitingCall};

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diskside_engine::traverse::{
    TraverseError, TraverseFault, TraverseFunction, TraverseLimits, TraverseRead, TraverseRequest, TraverseSource,
};
use diskside_engine::{OnMiss, ReadAt, ReadAtError, TierError, Traversal, Turns};
use diskside_nvme::Status;
use diskside_wire::function::{FunctionRequest, Outcome, Trailer};

use self::inline::Bench;
use crate::call::answer::Problem;
use crate::call::context::CallContext;
use crate::call::control::Control;
use crate::call::plan::{PlannedSource, plan_source, rights_changed, tier_of};
use crate::call::runs::Runs;
use crate::call::trailer;
use crate::call::used::Used;
use crate::endpoint::memory::MemoryReader;
use crate::endpoint::non_blocking::Near;
use crate::environment::Environment;
use crate::program::loaded::LoadedProgram;
use crate::program::programs::ActiveProgram;
use crate::program::usage::Usage;
use crate::schedule::quota::{Account, Holding};
use crate::statistics::counters::FunctionId;
use diskside_export::FileSource;
use diskside_volume::cache::volume_reader;
use diskside_volume::metered::Metered;

/// Length of scratch when the request does not say: that of XRP.
const SCRATCH_LEN: usize = 4096;
/// Most bytes of scratch.
const SCRATCH_LEN_MAX: usize = 1 << 20;
/// Most files of one traversal.
const FILES_MAX: usize = 64;
/// The steps on a reactor may take so many edges together: some hundred microseconds.
const SMALL_EDGES_MAX: u64 = 256 << 10;
const SMALL_READ_BYTES_MAX: u64 = 1 << 20;
const SMALL_HOPS_MAX: u32 = 1024;
/// The most memory of a traversal that is kept for several that run side by side.
const SPARE_LEN_MAX: usize = 64 << 10;
/// Traversals whose memory is kept for the next ones, where it is small.
const SPARE_MAX: usize = 256;
/// What an activation takes beside scratch and buffers, about.
const BENCH_BYTES: usize = 16 << 10;
/// Longest time of one traversal.
const DEADLINE: Duration = Duration::from_secs(60);

/// A request whose names were looked up.
#[derive(Debug)]
pub(crate) struct TraversePlan {
    function: TraverseFunction,
    program: Arc<LoadedProgram>,
    /// Content hash of its program.
    program_id: u64,
    /// Of its program.
    pub(crate) usage: Arc<Usage>,
    pub(crate) request: FunctionRequest,
    sources: Vec<PlannedSource>,
    scratch_cap: usize,
    /// All sources, if a reactor can read them and the request does not ask for more than it gives.
    near: Option<Vec<Near>>,
    /// The version of the table of volumes at the last look.
    version: AtomicU64,
    /// The version of the host's rights at the last look.
    rights_version: AtomicU64,
    // In boxes, which move between here and those that run.
    #[expect(clippy::vec_box, reason = "a bench is large, and given from hand to hand")]
    spare: Mutex<Vec<Box<Bench>>>,
    /// The host's, which benches that are kept are charged to.
    account: Account,
    /// Reports the calls of a prepared request.
    pub(crate) runs: Option<Arc<Runs>>,
    deadline: Duration,
    #[expect(dead_code, reason = "kept as long as the request is")]
    holding: Holding,
}

impl TraversePlan {
    /// Looks up everything that a request names. Nothing here waits.
    pub(crate) fn new(context: &CallContext, request: FunctionRequest, holding: Holding) -> Result<Self, Problem> {
        let compute = &context.environment;
        let version = AtomicU64::new(compute.volumes.version());
        let rights_version = AtomicU64::new(context.rights_version());
        let ActiveProgram { program, usage } = context.program(request.pind)?;
        if request.program_id != 0 && request.program_id != program.id() {
            let told = format!("program {} has content hash {:#018x}", request.pind, program.id());
            return Err(Problem::new(Status::PROGRAM_ID_MISMATCH.dnr(), told));
        }
        let function = program.traversal(request.function.as_deref()).map_err(|error| error.0)?.clone();
        let scratch_cap = match usize::try_from(request.result_len_max) {
            Ok(0) => SCRATCH_LEN.max(request.args.len()),
            Ok(asked) if asked <= SCRATCH_LEN_MAX => asked.max(request.args.len()),
            _ => return Err(Problem::in_data_at(32, "a traversal has at most 1 MiB of scratch")),
        };
        if request.sources.is_empty() || request.sources.len() > FILES_MAX {
            return Err(Problem::in_data_at(10, "a traversal has 1 to 64 sources, the files that it may touch"));
        }
        if !request.sinks.is_empty() {
            return Err(Problem::in_data_at(12, "a traversal has no sinks"));
        }
        let mut sources = Vec::with_capacity(request.sources.len());
        for (index, endpoint) in request.sources.iter().enumerate() {
            let source = plan_source(context, endpoint)?;
            if source.is_stream() {
                return Err(Problem::in_data_at(64 + 32 * index, "a traversal cannot read the host's stream"));
            }
            sources.push(source);
        }
        let near = sources.iter().map(|source| Near::of(compute, source));
        let near = near.collect::<Option<_>>().filter(|_| request.budget <= SMALL_EDGES_MAX);
        let (account, spare) = (context.host.account.clone(), Mutex::default());
        let program_id = program.id();
        let deadline = DEADLINE.min(compute.config.deadline(request.deadline_ms));
        Ok(Self {
            function,
            program,
            program_id,
            usage,
            request,
            sources,
            scratch_cap,
            near,
            version,
            rights_version,
            spare,
            account,
            runs: None,
            deadline,
            holding,
        })
    }

    /// The request is prepared: its calls are reported together.
    pub(crate) fn prepared(self, context: &CallContext) -> Self {
        let runs = context.runs(&self.program, self.function.name());
        Self { runs: Some(runs), ..self }
    }

    /// A call that was not of a prepared request has ended.
    pub(crate) fn tell_ran(&self, context: &CallContext, trailer: &Trailer) {
        context.tell_ran(&self.program, self.function.name(), trailer, self.request.trace);
    }

    /// The function, as statistics know it.
    pub(crate) fn function_id(&self) -> FunctionId<'_> {
        FunctionId { program_id: self.program_id, name: self.function.name() }
    }

    /// Whether the volumes that were looked up are those that are there now, and the host may still use what it does.
    ///
    /// # Errors
    /// One went away, or the host may not.
    pub(crate) fn check(&self, context: &CallContext) -> Result<(), Problem> {
        let compute = &context.environment;
        let rights_version = context.rights_version();
        if self.rights_version.load(Ordering::Relaxed) != rights_version {
            if !context.may_run(&self.program) {
                return Err(rights_changed());
            }
            self.sources.iter().try_for_each(|source| source.check_rights(context))?;
            self.rights_version.store(rights_version, Ordering::Relaxed);
        }
        let version = compute.volumes.version();
        if self.version.load(Ordering::Relaxed) == version {
            return Ok(());
        }
        for source in &self.sources {
            let PlannedSource::Volume(volume, _) = source else { continue };
            if !compute.volumes.find(volume.nsid).is_some_and(|now| Arc::ptr_eq(&now, volume)) {
                let told = format!("volume {} went away since the request was prepared", volume.name);
                return Err(Problem::new(Status::NAMESPACE_NOT_REACHABLE.dnr(), told));
            }
        }
        self.version.store(version, Ordering::Relaxed);
        Ok(())
    }

    /// All that needs a right.
    pub(crate) fn used(&self, context: &CallContext) -> Vec<Used> {
        let sources = self.sources.iter().filter_map(|source| source.used(context));
        [Used::program(&self.program.credentials())].into_iter().chain(sources).collect()
    }

    /// Bytes that a call may use.
    pub(crate) fn memory(&self) -> u64 {
        self.scratch_cap as u64 + (2 << 20)
    }

    /// Bytes of scratch, and the most of a result.
    pub(crate) fn scratch_len(&self) -> usize {
        self.scratch_cap
    }

    /// Compiles the function. Takes milliseconds the first time.
    pub(crate) fn compile(&self, compute: &Environment, turns: &Arc<dyn Turns>) -> Result<(), TierError> {
        let bench = self.bench(compute, OnMiss::Turns(turns))?;
        self.give_back(bench);
        Ok(())
    }

    /// Runs it here and now, if everything is at hand and the host's share is enough; gives its result.
    pub(crate) fn run_now(
        self: &Arc<Self>,
        context: &CallContext,
        started: Instant,
        share: &mut Share,
    ) -> Option<(Vec<u8>, Trailer)> {
        let fill = |args: &mut Vec<u8>| args.extend_from_slice(&self.request.args);
        let deadline = started + self.deadline();
        let (mut running, progress) = Running::begin(Arc::clone(self), context, fill, deadline, share)?;
        let ended = match running.finish(progress, share) {
            Progress::Done => Some((running.result().to_vec(), running.trailer())),
            Progress::Failed(error) => Some((Vec::new(), of_traverse(&error))),
            Progress::Elsewhere | Progress::Goes | Progress::Busy | Progress::Waits => None,
        };
        running.give_back();
        ended
    }

    /// Runs it on a thread that may wait.
    pub(crate) fn run_waiting(
        &self,
        context: &CallContext,
        args: &[u8],
        control: &Control,
        deadline: Instant,
    ) -> (Vec<u8>, Trailer) {
        let (mut result, mut trailer) = self.run_on_thread(context, args, control, deadline);
        if let Some(lost) = control.lost() {
            result.clear();
            lost.replace(&mut trailer);
        }
        (result, trailer)
    }

    fn run_on_thread(
        &self,
        context: &CallContext,
        args: &[u8],
        control: &Control,
        deadline: Instant,
    ) -> (Vec<u8>, Trailer) {
        let compute = &context.environment;
        if control.cancel.is_cancelled() {
            let told = "the call was cancelled before it began";
            return (Vec::new(), trailer::simple(Outcome::Cancelled, told));
        }
        if let Err(lost) = control.uses(context, self.used(context)) {
            return (Vec::new(), lost.trailer());
        }
        let mut readers: Vec<(Arc<dyn ReadAt>, u64)> = Vec::with_capacity(self.sources.len());
        let mut lens = Vec::with_capacity(self.sources.len());
        let mut files = Vec::new();
        for source in &self.sources {
            match source {
                PlannedSource::Volume(volume, range) => {
                    lens.push(range.end - range.start);
                    let reader = volume_reader(&compute.cache, volume, range.end - range.start, &Arc::default());
                    readers.push((reader, range.start));
                }
                PlannedSource::File(handle, endpoint) => match context.files.source(*handle) {
                    Ok(file) => {
                        let end = endpoint.offset.saturating_add(endpoint.len).min(file.len_bytes());
                        lens.push(end.saturating_sub(endpoint.offset));
                        files.push(file.clone());
                        let counters = file.counters();
                        readers.push((Arc::new(Metered::by(counters, file)), endpoint.offset));
                    }
                    Err(error) => return (Vec::new(), trailer::of_file(&error)),
                },
                PlannedSource::Layout(id, endpoint) => match context.open_layout(*id, endpoint.generation) {
                    Ok(file) => {
                        let range = file.range(endpoint);
                        let len = range.end - range.start;
                        lens.push(len);
                        let bytes = volume_reader(&compute.cache, file.volume(), len, &Arc::default());
                        readers.push((Arc::new(file.over(bytes)), range.start));
                    }
                    Err(error) => return (Vec::new(), trailer::of_file(&error)),
                },
                PlannedSource::Memory(memory, range) => {
                    lens.push(range.end - range.start);
                    let (memory, cancel) = (Arc::clone(memory), control.cancel.clone());
                    readers.push((Arc::new(MemoryReader { memory, cancel }), range.start));
                }
                PlannedSource::HostStream | PlannedSource::Paths => unreachable!("a plan has no stream"),
            }
        }
        let turns = compute.turns(context.turn(self.request.class, control.cancel.clone(), deadline), &Arc::default());
        let on_miss = OnMiss::Turns(&turns);
        let code = match compute.engine.code().get(self.function.program(), tier_of(self.request.tier), on_miss) {
            Ok(code) => code,
            Err(error @ TierError::CallEnded) => {
                let outcome = if control.cancel.is_cancelled() { Outcome::Cancelled } else { Outcome::Deadline };
                return (Vec::new(), trailer::simple(outcome, &error.to_string()));
            }
            Err(error) => return (Vec::new(), trailer::simple(Outcome::Refused, &error.to_string())),
        };
        let limits = TraverseLimits {
            scratch_cap_max: SCRATCH_LEN_MAX,
            edges_max: if self.request.budget == 0 { TraverseLimits::default().edges_max } else { self.request.budget },
            ..TraverseLimits::default()
        };
        let mut traversal = Traversal::in_turns(&self.function, code, limits, turns);
        traversal.stop_with(control.cancel.clone());
        let is_over = || control.cancel.is_cancelled() || Instant::now() >= deadline;
        let mut source = Waiting { readers, buffer: Vec::new(), is_over: &is_over };
        let ran = traversal.run(&self.request(args, &lens, deadline), &mut source).map(<[u8]>::to_vec);
        // Bytes of two versions of a file make no result, and no error either, unless the host sees to that itself.
        let changed = || files.iter().find_map(|file| file.unchanged().err());
        if let Some(error) = if self.request.guarded || is_over() { None } else { changed() } {
            return (Vec::new(), trailer::of_file(&error));
        }
        let generation = files.first().map_or(0, FileSource::version);
        match ran {
            Ok(result) => (result, Trailer { generation, ..trailer_of(&traversal) }),
            Err(error) => {
                let mut trailer = Trailer { generation, ..of_traverse(&error) };
                if control.cancel.is_cancelled() {
                    trailer.outcome = Outcome::Cancelled;
                }
                (Vec::new(), trailer)
            }
        }
    }

    /// How long a call may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    fn request<'a>(&self, args: &'a [u8], lens: &'a [u64], deadline: Instant) -> TraverseRequest<'a> {
        let deadline = Some(deadline);
        TraverseRequest { first: &[], files: lens, input: args, scratch_cap: self.scratch_cap, deadline }
    }

    /// For a reactor, which compiles nothing.
    fn take_bench(&self, compute: &Environment) -> Result<Box<Bench>, TierError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.map_or_else(|| self.bench(compute, OnMiss::Fail), Ok)
    }

    fn bench(&self, compute: &Environment, on_miss: OnMiss<'_>) -> Result<Box<Bench>, TierError> {
        let mut limits = TraverseLimits {
            scratch_cap_max: SCRATCH_LEN_MAX,
            edges_max: if self.request.budget == 0 { SMALL_EDGES_MAX } else { self.request.budget },
            ..TraverseLimits::default()
        };
        // Beginning again from the start would read again what took long to read.
        if self.near.iter().flatten().all(Near::is_memory) {
            (limits.hops_max, limits.read_bytes_max) = (SMALL_HOPS_MAX, SMALL_READ_BYTES_MAX);
        }
        let code = compute.engine.code().get(self.function.program(), tier_of(self.request.tier), on_miss)?;
        let traversal = Traversal::new(&self.function, code, limits);
        let mut imports = self.function.program().image().imports.iter();
        let has_heap = imports.any(|import| import.name.starts_with("ds_alloc"));
        let heap_len = if has_heap { limits.heap_quota_bytes as usize } else { 0 };
        let len = self.scratch_cap + self.request.args.len() + SPARE_LEN_MAX.min(self.scratch_cap) + heap_len;
        Ok(Box::new(Bench::new(traversal, len + BENCH_BYTES, &self.account)))
    }

    /// Keeps the memory of a call for the next one, and nothing else of it.
    fn give_back(&self, mut bench: Box<Bench>) {
        let len = bench.clear(SPARE_LEN_MAX) + self.scratch_cap;
        // When its host has much already, nothing is kept.
        if !bench.is_kept() {
            return;
        }
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < if len <= SPARE_LEN_MAX { SPARE_MAX } else { 1 } {
            spare.push(bench);
        }
    }
}

/// Volumes and files, read by a thread that may wait.
struct Waiting<'a> {
    /// With where in them the file begins.
    readers: Vec<(Arc<dyn ReadAt>, u64)>,
    buffer: Vec<u8>,
    /// Whether nobody waits for it any more.
    is_over: &'a dyn Fn() -> bool,
}

impl TraverseSource for Waiting<'_> {
    fn read(&mut self, read: &TraverseRead) -> io::Result<&[u8]> {
        let (reader, start) = &self.readers[read.file as usize];
        let len = read.len as usize;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        reader.read_unless(start + read.offset, &mut self.buffer[..len], self.is_over).map_err(
            |error| match error {
                ReadAtError::Io(error) => error,
                other => io::Error::other(other),
            },
        )?;
        Ok(&self.buffer[..len])
    }
}

/// The trailer of a traversal that ended well.
fn trailer_of(traversal: &Traversal) -> Trailer {
    let mut trailer = Trailer::new(Outcome::Ok);
    trailer.returned = 1;
    trailer.media_read = traversal.read_bytes();
    trailer.back_edges = traversal.edges();
    trailer.hop = traversal.hops();
    trailer
}

/// The trailer of a traversal that did not end well.
pub(crate) fn of_traverse(error: &TraverseError) -> Trailer {
    let mut trailer = trailer::simple(Outcome::Refused, &error.to_string());
    trailer.hop = error.hop;
    match &error.fault {
        TraverseFault::Trapped { trap, .. } => {
            trailer.outcome = trailer::outcome_of(trap.kind);
            trailer::fill_trap(&mut trailer, trap);
        }
        TraverseFault::Errno { code } => {
            trailer.outcome = Outcome::Errno;
            trailer.returned = *code;
        }
        TraverseFault::ResultTooLong { .. } => trailer.outcome = Outcome::OutputFull,
        TraverseFault::Read { errno, .. } => {
            trailer.outcome = Outcome::Media;
            trailer.returned = -i64::from(*errno);
        }
        TraverseFault::Deadline => trailer.outcome = Outcome::Deadline,
        TraverseFault::Cancelled => trailer.outcome = Outcome::Cancelled,
        TraverseFault::TooManyHops(_) | TraverseFault::TooManyBytes(_) | TraverseFault::TooManyReads(_) => {
            trailer.outcome = Outcome::Budget;
        }
        // What a step asked for and cannot be.
        _ => {
            trailer.outcome = Outcome::Errno;
            trailer.returned = -i64::from(diskside_io::Errno::INVAL.raw_os_error());
        }
    }
    trailer
}
