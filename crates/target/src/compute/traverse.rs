//! Traversals at the target: chains of dependent reads of volumes and files.
//!
//! A request's sources are the files that the traversal may touch, in this order; a range is a file of its own that
//! begins at 0. Its arguments are what scratch begins with, and `result_max` is the length of scratch. The first step
//! is given no data.
//!
//! Where all sources are volumes in memory, steps run on the reactor that received the command, one after the other:
//! a read is a copy. Otherwise a thread of the pool follows the pointers.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diskside_engine::code::TierError;
use diskside_engine::traverse::{
    TraverseError, TraverseFault, TraverseFunction, TraverseLimits, TraverseRead, TraverseRequest, TraverseSource,
};
use diskside_engine::{ReadAt, Traversal};
use diskside_nvme::Status;
use diskside_nvme::wire::function::{FunctionRequest, Outcome, Trailer};
use diskside_sbpf::trap::TrapKind;

use super::Compute;
use super::answer::{Answer, Problem};
use super::association::Association;
use super::blocking::VolumeReader;
use super::job::{PlannedSource, plan_source, tier_of};
use super::prepared::{self, CallCommand};
use super::trailer;
use crate::guard::Mode;

/// Length of scratch when the request does not say: that of XRP.
const SCRATCH_LEN: usize = 4096;
/// Most bytes of scratch.
const SCRATCH_LEN_MAX: usize = 1 << 20;
/// Most files of one traversal.
const FILES_MAX: usize = 64;
/// Traversals kept for later calls.
const SPARE_MAX: usize = 8;
/// What steps on a reactor may take together: some hundred microseconds.
const SMALL_EDGES_MAX: u64 = 256 << 10;
const SMALL_READ_BYTES_MAX: u64 = 1 << 20;
const SMALL_HOPS_MAX: u32 = 1024;
/// Longest time of one traversal.
const DEADLINE: Duration = Duration::from_secs(60);

/// A request whose names were looked up.
#[derive(Debug)]
pub(crate) struct TraversePlan {
    function: TraverseFunction,
    pub(crate) request: FunctionRequest,
    sources: Vec<PlannedSource>,
    /// Lengths of the sources; of files, when they are opened.
    lens: Vec<u64>,
    scratch_cap: usize,
    /// All sources are volumes in memory, and the request does not ask for more than a reactor gives.
    in_memory: bool,
    /// Of the table of volumes, when the sources were last seen there.
    version: AtomicU64,
    spare: Mutex<Vec<Bench>>,
}

/// A traversal and where its reads are copied to.
#[derive(Debug)]
struct Bench {
    traversal: Traversal,
    buffer: Vec<u8>,
}

impl TraversePlan {
    /// Looks up everything that a request names. Nothing here waits.
    pub(crate) fn new(association: &Association, request: FunctionRequest) -> Result<Self, Problem> {
        let compute = &association.compute;
        let version = AtomicU64::new(compute.volumes.version());
        let program = compute.programs.active(request.pind)?;
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
            let source = plan_source(association, endpoint, index)?;
            if source.is_stream() {
                return Err(Problem::in_data_at(64 + 32 * index, "a traversal cannot read the host's stream"));
            }
            sources.push(source);
        }
        let in_memory = sources.iter().all(|source| match source {
            PlannedSource::Volume(volume, _) => volume.medium.memory().is_some(),
            PlannedSource::File(..) | PlannedSource::Layout(..) | PlannedSource::HostStream => false,
        });
        let in_memory = in_memory && request.budget <= SMALL_EDGES_MAX;
        let lens = sources.iter().map(|source| match source {
            PlannedSource::Volume(_, range) => range.end - range.start,
            PlannedSource::File(..) | PlannedSource::Layout(..) | PlannedSource::HostStream => 0,
        });
        let lens = lens.collect();
        Ok(Self { function, request, sources, lens, scratch_cap, in_memory, version, spare: Mutex::default() })
    }

    /// Whether the volumes that were looked up are those that are there now.
    ///
    /// # Errors
    /// One went away.
    pub(crate) fn check(&self, compute: &Compute) -> Result<(), Problem> {
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

    /// Bytes that a call may use.
    pub(crate) fn memory(&self) -> u64 {
        self.scratch_cap as u64 + (2 << 20)
    }

    /// Compiles the function. Takes milliseconds the first time.
    pub(crate) fn compile(&self, compute: &Compute) -> Result<(), TierError> {
        let bench = self.bench(compute)?;
        self.give_back(bench);
        Ok(())
    }

    /// Answers a Call here and now, if everything is in memory. `None`: it is for a thread.
    pub(crate) fn call_here(&self, compute: &Compute, command: &CallCommand) -> Option<Answer> {
        let args = command.args(&self.request.args);
        let (bench, trailer) = self.run_here(compute, &args, Instant::now() + command.timeout)?;
        let result = if trailer.outcome == Outcome::Ok { bench.traversal.result() } else { &[] };
        let answer = prepared::answer(result, trailer, command.len);
        self.give_back(bench);
        compute.statistics.prepared_calls.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }

    /// Runs it here and now, if everything is in memory; gives its result.
    pub(crate) fn run_now(&self, compute: &Compute, started: Instant) -> Option<(Vec<u8>, Trailer)> {
        let (bench, trailer) = self.run_here(compute, &self.request.args, started + self.deadline())?;
        let result = if trailer.outcome == Outcome::Ok { bench.traversal.result().to_vec() } else { Vec::new() };
        self.give_back(bench);
        Some((result, trailer))
    }

    fn run_here(&self, compute: &Compute, args: &[u8], deadline: Instant) -> Option<(Bench, Trailer)> {
        if !self.in_memory {
            return None;
        }
        let Bench { mut traversal, mut buffer } = self.take_bench(compute).ok()?;
        let request = self.request(args, &self.lens, deadline);
        let mut source = InMemory { sources: &self.sources, buffer: &mut buffer, held: false };
        let ran = traversal.run(&request, &mut source).map(drop);
        let (held, bench_of) = (source.held, |traversal, buffer| Bench { traversal, buffer });
        let trailer = match ran {
            Ok(()) => self.trailer(&traversal),
            // A command that writes there has it now, or this is no small traversal: a thread can take its time.
            Err(error) if held || exhausted(&error) => {
                self.give_back(bench_of(traversal, buffer));
                return None;
            }
            Err(error) => of_traverse(&error),
        };
        Some((bench_of(traversal, buffer), trailer))
    }

    /// Runs it on a thread that may wait.
    pub(crate) fn run_waiting(&self, association: &Association, args: &[u8], deadline: Instant) -> (Vec<u8>, Trailer) {
        let compute = &association.compute;
        let mut readers: Vec<(Box<dyn ReadAt>, u64)> = Vec::with_capacity(self.sources.len());
        let mut lens = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            match source {
                PlannedSource::Volume(volume, range) => {
                    lens.push(range.end - range.start);
                    readers.push((Box::new(VolumeReader { volume: Arc::clone(volume) }), range.start));
                }
                PlannedSource::File(handle, endpoint) => match association.files.source(*handle) {
                    Ok(file) => {
                        let end = endpoint.offset.saturating_add(endpoint.len).min(file.len_bytes());
                        lens.push(end.saturating_sub(endpoint.offset));
                        readers.push((Box::new(file), endpoint.offset));
                    }
                    Err(error) => return (Vec::new(), trailer::of_file(&error)),
                },
                PlannedSource::Layout(id, endpoint) => {
                    match association.host.layouts.open(&compute.volumes, *id, endpoint.generation) {
                        Ok(file) => {
                            let range = file.range(endpoint);
                            lens.push(range.end - range.start);
                            readers.push((Box::new(file), range.start));
                        }
                        Err(error) => return (Vec::new(), trailer::of_file(&error)),
                    }
                }
                PlannedSource::HostStream => unreachable!("a plan has no stream"),
            }
        }
        let code = match compute.engine.code().get(self.function.program(), tier_of(self.request.tier)) {
            Ok(code) => code,
            Err(error) => return (Vec::new(), trailer::simple(Outcome::Refused, &error.to_string())),
        };
        let limits = TraverseLimits {
            scratch_cap_max: SCRATCH_LEN_MAX,
            edges_max: if self.request.budget == 0 { TraverseLimits::default().edges_max } else { self.request.budget },
            ..TraverseLimits::default()
        };
        let mut traversal = Traversal::new(&self.function, code, limits);
        let mut source = Waiting { readers, buffer: Vec::new() };
        match traversal.run(&self.request(args, &lens, deadline), &mut source).map(<[u8]>::to_vec) {
            Ok(result) => (result, self.trailer(&traversal)),
            Err(error) => (Vec::new(), of_traverse(&error)),
        }
    }

    /// How long a call may take.
    pub(crate) fn deadline(&self) -> Duration {
        match self.request.deadline_ms {
            0 => DEADLINE,
            asked => DEADLINE.min(Duration::from_millis(asked.into())),
        }
    }

    fn request<'a>(&self, args: &'a [u8], lens: &'a [u64], deadline: Instant) -> TraverseRequest<'a> {
        let deadline = Some(deadline);
        TraverseRequest { first: &[], files: lens, input: args, scratch_cap: self.scratch_cap, deadline }
    }

    fn trailer(&self, traversal: &Traversal) -> Trailer {
        let mut trailer = Trailer::new(Outcome::Ok);
        trailer.returned = 1;
        trailer.media_read = traversal.read_bytes();
        trailer.back_edges = traversal.edges();
        trailer.hop = traversal.hops();
        trailer
    }

    fn take_bench(&self, compute: &Compute) -> Result<Bench, TierError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.map_or_else(|| self.bench(compute), Ok)
    }

    fn bench(&self, compute: &Compute) -> Result<Bench, TierError> {
        let limits = TraverseLimits {
            hops_max: SMALL_HOPS_MAX,
            read_bytes_max: SMALL_READ_BYTES_MAX,
            scratch_cap_max: SCRATCH_LEN_MAX,
            edges_max: if self.request.budget == 0 { SMALL_EDGES_MAX } else { self.request.budget },
            ..TraverseLimits::default()
        };
        let traversal = compute.engine.traversal(&self.function, tier_of(self.request.tier), limits)?;
        Ok(Bench { traversal, buffer: Vec::new() })
    }

    fn give_back(&self, bench: Bench) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(bench);
        }
    }
}

/// Volumes in memory, read by a thread that does not wait.
struct InMemory<'a> {
    sources: &'a [PlannedSource],
    buffer: &'a mut Vec<u8>,
    /// A read met a block that is being written.
    held: bool,
}

impl TraverseSource for InMemory<'_> {
    fn read(&mut self, read: &TraverseRead) -> io::Result<&[u8]> {
        let PlannedSource::Volume(volume, range) = &self.sources[read.file as usize] else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let memory = volume.medium.memory().ok_or(io::ErrorKind::Unsupported)?;
        let (offset, len) = (range.start + read.offset, read.len as usize);
        if !volume.guards.try_hold(offset..offset + read.len, Mode::Shared) {
            self.held = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        memory.read(offset as usize, &mut self.buffer[..len]);
        volume.guards.release(offset..offset + read.len, Mode::Shared);
        Ok(&self.buffer[..len])
    }

    fn may_wait(&self) -> bool {
        false
    }
}

/// Volumes and files, read by a thread that may wait.
struct Waiting {
    /// With where in them the file begins.
    readers: Vec<(Box<dyn ReadAt>, u64)>,
    buffer: Vec<u8>,
}

impl TraverseSource for Waiting {
    fn read(&mut self, read: &TraverseRead) -> io::Result<&[u8]> {
        let (reader, start) = &self.readers[read.file as usize];
        let len = read.len as usize;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        reader.read_exact_at(start + read.offset, &mut self.buffer[..len]).map_err(io::Error::other)?;
        Ok(&self.buffer[..len])
    }
}

/// Whether more hops, bytes or budget would have helped.
fn exhausted(error: &TraverseError) -> bool {
    match &error.fault {
        TraverseFault::TooManyHops(_) | TraverseFault::TooManyBytes(_) => true,
        TraverseFault::Trapped { trap, .. } => trap.kind == TrapKind::Budget,
        _ => false,
    }
}

/// The trailer of a traversal that did not end well.
fn of_traverse(error: &TraverseError) -> Trailer {
    let mut trailer = trailer::simple(Outcome::Refused, &error.to_string());
    trailer.hop = error.hop;
    match &error.fault {
        TraverseFault::Trapped { trap, .. } => {
            trailer.outcome = trailer::outcome_of(trap.kind);
            trailer::fill_trap(&mut trailer, trap);
        }
        TraverseFault::Errno { code } => {
            trailer.outcome = Outcome::Errno;
            trailer.returned = (*code).into();
        }
        TraverseFault::ResultTooLong { .. } => trailer.outcome = Outcome::OutputFull,
        TraverseFault::Read { .. } => trailer.outcome = Outcome::Media,
        TraverseFault::Deadline => trailer.outcome = Outcome::Deadline,
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
