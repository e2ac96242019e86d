//! A scan: a call whose function is the service `scan`, and whose arguments are its plan.
//!
//! A process of its own does it (`diskside_scan::Program`), with the open file and with so much memory; here is what starts it,
//! gives it turns to compute, hands its result to the host, and stops it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diskside_engine::{ReadAt, Turns};
use diskside_io::Errno;
use diskside_io::buffer::{Buffer, Part};
use diskside_io::ownring;
use diskside_nvme::Status;
use diskside_rights::Access;
use diskside_sbpf::trap::TrapKind;
use diskside_scan::{
    Answer, Event, FailureKind, PLAN_LEN_MAX, Program, ReadOf, ReadsBy, Report, SCAN_NAME, SCAN_PIND, ScanError,
    Source, Start, Stop, function_of,
};
use diskside_volume::cache::version_reader;
use diskside_volume::metered::{Meter, Metered, Reads};
use diskside_wire::file::FileHandle;
use diskside_wire::function::{
    Called, Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, PlaceInSource, Times, Trailer,
};

use crate::call::answer::Problem;
use crate::call::context::{CallContext, CallEvents};
use crate::call::control::Control;
use crate::call::result::{ResultOf, ResultWriter};
use crate::call::rights::of_service;
use crate::call::spans;
use crate::call::trailer::{self, micros};
use crate::call::used::Used;
use crate::program::credentials::{Credentials, why_refused};
use crate::schedule::permits::Waited;
use crate::schedule::quota::Holding;
use crate::statistics::counters::FunctionId;
use crate::watch::ProgramEvent;
use diskside_export::FileSource;

/// Memory of a scan, where its host may have so much.
const MEMORY_LEN: u64 = 128 << 20;
/// How long a scan computes while its host takes the result, where no other host wants to compute: a link is as fast as that.
const AHEAD: Duration = Duration::from_millis(4);
/// A host that asked for a turn so lately wants to compute.
const LATELY: Duration = Duration::from_millis(10);
/// The error number of a plan that does not fit its file.
const EINVAL: i64 = 22;

/// A request for a scan in which everything was looked up.
pub(crate) struct ScanPlan {
    pub(crate) request: FunctionRequest,
    pub(crate) memory_len: u64,
    program: Program,
    file: FileHandle,
    deadline: Duration,
}

/// A scan that is queued or runs.
pub(crate) struct ScanJob {
    pub(crate) tag: u64,
    pub(crate) plan: ScanPlan,
    pub(crate) context: Arc<CallContext>,
    pub(crate) events: Arc<dyn CallEvents>,
    pub(crate) control: Arc<Control>,
    pub(crate) queued: Instant,
    #[expect(dead_code, reason = "kept as long as the call is")]
    pub(crate) holding: Holding,
}

impl ScanPlan {
    /// Looks up what a request names. Nothing here waits.
    pub(crate) fn new(context: &CallContext, request: FunctionRequest) -> Result<Self, Problem> {
        let environment = &context.environment;
        if !context.rights.may_run(&of_service(SCAN_NAME)) {
            return Err(Status::NO_PROGRAM.dnr().into());
        }
        let Some(program) = environment.scanner.clone() else {
            let told = "this server does not scan: it has no diskside-scan beside it";
            return Err(Problem::new(Status::INVALID_PROGRAM_INDEX.dnr(), told));
        };
        let only = FunctionRequest {
            class: request.class,
            deadline_ms: request.deadline_ms,
            result_len_max: request.result_len_max,
            sources: request.sources.clone(),
            args: request.args.clone(),
            trace: request.trace,
            ..FunctionRequest::new(FunctionKind::Read, SCAN_PIND)
        };
        if request != only {
            return Err(Problem::in_data_at(
                4,
                "a scan is a call of kind read with a source and a plan, and nothing else",
            ));
        }
        if request.args.len() > PLAN_LEN_MAX {
            return Err(Problem::in_data_at(24, "the plan of a scan is too long"));
        }
        let whole = |endpoint: &Endpoint| (endpoint.offset, endpoint.len) == (0, Endpoint::TO_END);
        let file = match &request.sources[..] {
            [endpoint @ Endpoint { kind: EndpointKind::File(id), .. }] if whole(endpoint) => {
                FileHandle { id: *id, generation: endpoint.generation }
            }
            _ => return Err(Problem::in_data_at(64, "a scan has one source, a whole file of an export")),
        };
        let deadline = environment.config.deadline(request.deadline_ms);
        let memory_len = MEMORY_LEN.min(context.host.calls_memory_max(&environment.config));
        Ok(Self { request, memory_len, program, file, deadline })
    }
}

impl ScanJob {
    /// Runs the scan to its end and says how it went.
    pub(crate) fn run(self) {
        let mut measured = Measured::default();
        let mut trailer = self.execute(&mut measured).unwrap_or_else(|failed| *failed);
        if let Some(lost) = self.control.lost() {
            lost.replace(&mut trailer);
        } else if self.control.cancel.is_cancelled() && trailer.outcome != Outcome::Ok {
            trailer.outcome = Outcome::Cancelled;
        }
        trailer.result_len = measured.sent;
        trailer.times = Times {
            queue_us: micros(measured.queued + measured.waited.total()),
            run_us: micros(measured.running.saturating_sub(measured.waited.total())),
            send_us: micros(measured.sending),
            total_us: micros(self.queued.elapsed()),
            ..Times::default()
        };
        let function = FunctionId { program_id: 0, name: SCAN_NAME };
        self.context.count_call(&trailer, function, 0, 0);
        spans::record(self.plan.request.trace, SCAN_NAME, &trailer);
        let watch = &self.context.environment.watch;
        if watch.wants() {
            let failed = (trailer.outcome != Outcome::Ok).then_some(&*trailer.message);
            let (bytes, run_us) = (trailer.media_read, trailer.times.run_us.into());
            let ran = ProgramEvent::Ran {
                sha256: measured.sha256.unwrap_or_default(),
                function: SCAN_NAME,
                calls: None,
                bytes,
                run_us,
                failed,
            };
            watch.program(&self.context.host.nqn, ran);
        }
        let Self { events, tag, .. } = self;
        events.ended(Instant::now(), tag, trailer);
    }

    fn execute(&self, measured: &mut Measured) -> Result<Trailer, Box<Trailer>> {
        measured.queued = self.queued.elapsed();
        if self.control.cancel.is_cancelled() {
            return Err(Box::new(trailer::simple(Outcome::Cancelled, "the call was cancelled before it began")));
        }
        let function = self.function()?;
        measured.sha256 = function.as_ref().map(|function| function.sha256);
        let function = function.map(|function| Used::program(&function.program()));
        let export = self.context.files.used(self.plan.file, Access::Read).map(Used::Export);
        let used = [Used::program(&of_service(SCAN_NAME))].into_iter().chain(function).chain(export);
        self.control.uses(&self.context, used).map_err(|lost| Box::new(lost.trailer()))?;
        let file = self.context.files.source(self.plan.file).map_err(|error| Box::new(trailer::of_file(&error)))?;
        let descriptor = file.descriptor().map_err(|error| Box::new(trailer::of_file(&error)))?;
        let scanned = self.scan(&file, descriptor, measured);
        file.counters().read(scanned.as_ref().ok().map(|report| report.read_len));
        // Bytes of two versions of a file make no result, and may make no sense.
        file.unchanged().map_err(|error| Box::new(trailer::of_file(&error)))?;
        let report = scanned?;
        let mut trailer = Trailer::new(Outcome::Ok);
        trailer.returned = measured.sent.cast_signed();
        trailer.media_read = report.read_len;
        trailer.generation = file.version();
        let row_groups = report.row_groups - report.pruned.min(report.row_groups);
        trailer.called = Some(Called { pieces: row_groups, input_bytes: report.read_len });
        trailer.output_bytes = Some(measured.sent);
        trailer.by_dictionaries = (report.pruned_by_dictionaries > 0).then_some(report.pruned_by_dictionaries);
        Ok(trailer)
    }

    /// The host's own function that is in the plan, if there is one: the host needs the right to run it that it would need to load it.
    fn function(&self) -> Result<Option<Credentials>, Box<Trailer>> {
        let refused = |errno: Errno, told: &str| {
            let returned = -i64::from(errno.raw_os_error());
            Box::new(Trailer { returned, ..trailer::simple(Outcome::Refused, told) })
        };
        let function =
            function_of(&self.plan.request.args).map_err(|error| refused(Errno::INVAL, &error.to_string()))?;
        let Some(function) = function else { return Ok(None) };
        let credentials = Credentials::of(&function.object);
        match why_refused(&credentials, &self.context.rights.now()) {
            None => Ok(Some(credentials)),
            Some(told) => {
                let sha256 = credentials.hex();
                self.context.host.quota().deny(format_args!("to scan with program sha256:{sha256}"));
                Err(refused(Errno::ACCESS, &told))
            }
        }
    }

    /// Has the file scanned, and sends the result.
    fn scan(
        &self,
        file: &FileSource,
        descriptor: Option<OwnedFd>,
        measured: &mut Measured,
    ) -> Result<Report, Box<Trailer>> {
        let seat = self.context.seat();
        let until = self.queued + self.plan.deadline;
        let result_len_max = self.plan.request.result_len_max;
        let mut writer = ResultWriter::new(ResultOf {
            seat: &seat,
            tag: self.tag,
            events: &*self.events,
            account: &self.context.host.account,
            control: &self.control,
            len_max: if result_len_max == 0 { u64::MAX } else { result_len_max },
            until,
        });
        let done = self.converse(file, descriptor, until, &mut writer, measured);
        (measured.sent, measured.sending) = (writer.sent, writer.sending);
        match (done, writer.failure) {
            (Ok(report), _) => Ok(report),
            (Err(_), Some(failure)) => Err(Box::new(failure)),
            (Err(failed), None) => Err(failed),
        }
    }

    fn converse(
        &self,
        file: &FileSource,
        descriptor: Option<OwnedFd>,
        until: Instant,
        writer: &mut ResultWriter<'_>,
        measured: &mut Measured,
    ) -> Result<Report, Box<Trailer>> {
        let start = Start {
            reads_by: if descriptor.is_some() { ReadsBy::Descriptor } else { ReadsBy::Requests },
            threads: None,
            file_len: file.len_bytes(),
            memory_len: self.plan.memory_len,
            name: file.name().to_owned(),
            plan: self.plan.request.args.clone(),
        };
        let turns = self.turns(until, &measured.waited);
        let reads = Arc::<Reads>::default();
        let told = |error: ScanError| Box::new(self.failed(file, until, error));
        let started = self.plan.program.start(&start, descriptor.map_or(Source::Requests, Source::Descriptor));
        let mut scanning = started.map_err(told)?;
        let (mut stands, mut is_held) = (Stands::Computing, false);
        loop {
            let began = Instant::now();
            let mut event = None;
            let mut is_wanted = || !self.control.cancel.is_cancelled() && Instant::now() < until;
            // One that waits for a store computes nothing, and keeps no turn from others.
            if stands == Stands::Waiting {
                if std::mem::take(&mut is_held) {
                    scanning.resume();
                }
                event = Some(scanning.next(&mut is_wanted));
            } else {
                // It computes only in its turns, whatever its threads do meanwhile.
                let (scanning, is_held) = (&RefCell::new(&mut scanning), Cell::new(std::mem::take(&mut is_held)));
                let mut wait = || {
                    scanning.borrow().hold();
                    is_held.set(true);
                };
                turns.take_or(&mut wait, &mut || {
                    let mut scanning = scanning.borrow_mut();
                    if is_held.take() {
                        scanning.resume();
                    }
                    let mut is_asked = stands == Stands::Asking;
                    let mut next = || loop {
                        if is_asked {
                            scanning.grant(u32::try_from(1 + turns.idle()).unwrap_or(u32::MAX))?;
                        }
                        let heard = scanning.next_in_turn(&mut is_wanted, &mut || turns.pause())?;
                        is_asked = matches!(heard, Event::Turn);
                        if !is_asked {
                            return Ok(heard);
                        }
                        // It keeps its permit unless others want it: given back and taken again, it would be one more.
                        if self.context.environment.gate.is_wanted() {
                            scanning.hold();
                            turns.pause();
                            scanning.resume();
                        }
                    };
                    event = Some(next());
                });
            }
            measured.running += began.elapsed();
            let mut waits = |waited: Duration| {
                if !is_held && (waited >= AHEAD || self.others_compute()) {
                    scanning.hold();
                    is_held = true;
                }
                if is_held { Duration::MAX } else { AHEAD }
            };
            let sent = match event.expect("a turn runs its work once").map_err(told)? {
                // Waiting for the host takes no turn from others. Without a turn the threads of the process stand still, too: a
                // host that takes its result slowly would have them compute beyond its share.
                Event::Output(bytes) => writer.write_while(&bytes, &mut waits),
                Event::Waits if start.reads_by == ReadsBy::Descriptor => {
                    return Err(told(ScanError::Garbage("it has the file, and waits for it")));
                }
                Event::Waits => {
                    stands = Stands::Waiting;
                    continue;
                }
                Event::Turn => {
                    stands = Stands::Asking;
                    continue;
                }
                Event::Read { .. } if start.reads_by == ReadsBy::Descriptor => {
                    return Err(told(ScanError::Garbage("it has the file, and asks for it")));
                }
                Event::Scan { .. } => return Err(told(ScanError::Garbage("it has one file, and asks for others"))),
                Event::Read { offset, len, of } => {
                    let file = self.reader(file, of, len, &reads);
                    let cancel = self.control.cancel.clone();
                    let read = move || {
                        let is_over = || cancel.is_cancelled() || Instant::now() >= until;
                        let read = file.read(offset, Part::whole(vec![0; len].into()));
                        ownring::land_at_end();
                        let read = ownring::run_unless(read, &is_over).ok_or("the scan is over")?;
                        read.map(Buffer::into_vec).map_err(|error| error.to_string())
                    };
                    scanning.answer(Answer(Box::new(read))).map_err(told)?;
                    Ok(())
                }
                Event::Done(mut report) => {
                    // The process counts all that it asked for.
                    let kept_bytes = reads.kept_bytes.load(Ordering::Relaxed);
                    report.read_len = report.read_len.saturating_sub(kept_bytes);
                    match writer.write_all(&report.to_bytes()) {
                        Ok(()) => return Ok(report),
                        failed => failed,
                    }
                }
            };
            sent.map_err(|error| Box::new(trailer::simple(Outcome::Media, &error.to_string())))?;
            if stands == Stands::Asking {
                stands = Stands::Computing;
            }
        }
    }

    /// What is read for the process: objects of stores. Of these, footers, Bloom filters and indexes go through the cache of calls, as
    /// what functions read does, within `cache` bytes: each read of a store is a request to it. A file has no such reads: the process has
    /// its descriptor, and the page cache has its bytes. A decoded footer is not kept either: it would have to outlive the process that
    /// decodes it, and no process may see two scans.
    fn reader(&self, file: &FileSource, of: ReadOf, len: usize, reads: &Arc<Reads>) -> Arc<dyn ReadAt> {
        let file = file.clone();
        match file.version_of_object().filter(|_| of == ReadOf::Metadata) {
            Some(version) => {
                let meter = Meter { counters: None, reads: Arc::clone(reads) };
                version_reader(&self.context.environment.cache, Metered { inner: file, meter }, version, len as u64)
            }
            None => Arc::new(file),
        }
    }

    /// Whether another host computes, or asked to just now.
    fn others_compute(&self) -> bool {
        let now = Instant::now();
        let gate = &self.context.environment.gate;
        gate.others_asked_since(self.context.host.id, now.checked_sub(LATELY).unwrap_or(now))
    }

    /// The turns of the process that computes for it.
    fn turns(&self, until: Instant, waited: &Arc<Waited>) -> Arc<dyn Turns> {
        let turn = self.context.turn(self.plan.request.class, self.control.cancel.clone(), until);
        self.context.environment.turns(turn, waited)
    }

    fn failed(&self, file: &FileSource, until: Instant, error: ScanError) -> Trailer {
        let named = |told: String| if told.contains(file.name()) { told } else { format!("{}: {told}", file.name()) };
        let simple = |outcome, told: String| trailer::simple(outcome, &named(told));
        match error {
            ScanError::Stopped if self.control.cancel.is_cancelled() => {
                trailer::simple(Outcome::Cancelled, "the call was cancelled")
            }
            ScanError::Stopped if Instant::now() >= until => {
                simple(Outcome::Deadline, "the deadline passed before the scan was done".into())
            }
            ScanError::Failed(failure) => match failure.kind {
                FailureKind::Plan => Trailer { returned: -EINVAL, ..simple(Outcome::Refused, failure.message) },
                FailureKind::Unsupported | FailureKind::Memory => simple(Outcome::Refused, failure.message),
                FailureKind::Function(stop) => of_function(&stop, simple(Outcome::Trap, failure.message)),
                FailureKind::Reading => {
                    // Failures of reads that this process does for the other one are told of there.
                    if let Some(errno) = errno_in(&failure.message).filter(|_| file.version_of_object().is_none()) {
                        file.failed(errno);
                    }
                    simple(Outcome::Media, failure.message)
                }
                FailureKind::File | FailureKind::Bug => simple(Outcome::Media, failure.message),
            },
            other => simple(Outcome::Media, other.to_string()),
        }
    }
}

/// The error of the system that a message ends with.
fn errno_in(message: &str) -> Option<Errno> {
    let number = message.strip_suffix(')')?.rsplit_once("(os error ")?.1;
    number.parse().ok().filter(|number| (1..4096).contains(number)).map(Errno::from_raw_os_error)
}

/// The trailer of a function that was stopped or failed. Its place is the row group that it was in.
fn of_function(stop: &Stop, mut trailer: Trailer) -> Trailer {
    trailer.outcome = match TrapKind::from_u16(stop.trap_kind) {
        Some(kind) => trailer::outcome_of(kind),
        None if stop.returned < 0 => Outcome::Errno,
        None => Outcome::Trap,
    };
    (trailer.returned, trailer.insn, trailer.trap_kind) = (stop.returned, stop.insn, stop.trap_kind);
    (trailer.region, trailer.trap_offset, trailer.bound) = (stop.region, stop.offset, stop.bound);
    trailer.place = Some(PlaceInSource { source_index: 0, offset: stop.row_group.unwrap_or(0), len: 1 });
    trailer
}

/// What the process of a scan does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    Computing,
    /// It waits for its turn.
    Asking,
    /// It waits for bytes, and then asks for its turn.
    Waiting,
}

/// What a scan took.
#[derive(Debug, Default)]
struct Measured {
    queued: Duration,
    waited: Arc<Waited>,
    running: Duration,
    sent: u64,
    sending: Duration,
    /// The host's own function in it, if it has one.
    sha256: Option<[u8; 32]>,
}

impl fmt::Debug for ScanJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanJob").field("tag", &self.tag).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_disk_is_found_in_what_the_process_of_a_scan_tells() {
        assert_eq!(errno_in("data/t.parquet: Input/output error (os error 5)"), Some(Errno::IO));
        for other in ["data/t.parquet: it became shorter while it was read", "x (os error 0)", "x (os error 99999)", ""]
        {
            assert_eq!(errno_in(other), None, "{other}");
        }
    }
}
