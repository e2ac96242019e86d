//! Scans of tables in files: at the server that has the file, or here, by reading what is needed.

mod decide;
mod find;
mod options;
mod rate;
mod reads;
mod running;
mod several;
mod share;
mod split;
#[cfg(test)]
mod tests;

pub(in crate::session) use decide::Sizes;
pub use find::ScanFiles;
pub use options::{ScanOptions, ScanPlace};
pub use split::BothCounts;

use self::decide::Choice;
use self::rate::Meter;
use self::reads::Reads;
use super::answered::Answered;
use super::error::SessionError;
use super::file::File;
use super::patience::Patience;
use super::place::Place;
use super::run::Resumed;
use super::tries::Tries;
use diskside_dispatch::Side;
use diskside_engine::CallError;
use diskside_host::function::{Endpoint, FunctionError, FunctionKind, FunctionRequest};
use diskside_io::request::run_here;
use diskside_nvme::Status;
use diskside_sbpf::machine::CancelToken;
use diskside_scan::{
    Aggregate, AggregateKind, Compression, Event, FailureKind, Plan, Program, REPORT_LEN, ReadsBy, Report, SCAN_PIND,
    ScanError, Scanning, Source, Start, Stop, UNKNOWN_VERSION,
};
use diskside_trace::{Side as SpanSide, Span};
use diskside_wire::function::{Outcome, Times, Trailer};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

/// A server's return value for a plan that does not fit the file: `-EINVAL`.
const MISFIT: i64 = -22;
/// A server's return value for a function that the host may not run there: `-EACCES`.
const DENIED: i64 = -13;
/// What to do about a server that does not run a function.
const ELSEWHERE: &str = "; --place host runs it on this machine";
/// Why a scan is not at the server.
const MISSING: &str = "the server does not scan";

/// How a scan went.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// Where it ran; of a scan on both sides the device's.
    pub side: Side,
    /// The row groups of one that was divided among both sides; `None`: it ran on one.
    pub both: Option<BothCounts>,
    /// Why there.
    pub why: String,
    /// Which server answered, if the file's URL names several.
    pub answered: Vec<Answered>,
    /// What it came to.
    pub report: Report,
    /// How many files it was of, and how many of them were not needed or scanned at their servers.
    pub files: FileCounts,
    /// Bytes of the result.
    pub result_bytes: u64,
    /// How a server was asked to compress it, or the first one of several.
    pub compression: Compression,
    /// Bytes that were sent to a server, and those that came from it, without the protocol's headers.
    pub moved_bytes: (u64, u64),
    /// How long it took.
    pub total: Duration,
}

impl Scanned {
    /// Where it ran: `host`, `device`, or `both`.
    #[must_use]
    pub fn place(&self) -> &'static str {
        if self.both.is_some() { "both" } else { self.side.name() }
    }
}

/// The files of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Those that were found.
    pub found: u64,
    /// Those that were not opened, because their paths rule them out.
    pub pruned: u64,
    /// Those that were scanned on this machine.
    pub here: u64,
    /// Those that were scanned at their servers.
    pub at_server: u64,
}

impl File {
    /// Scans the file and writes the result to `out` as an Arrow stream.
    ///
    /// A file of an export is scanned where [`ScanOptions::place`] says. The first time `Auto` scans at the server where sums go out,
    /// or the first rows, of files of at most 256 KiB, and where the rows that the filter takes of the first row group are at most half as
    /// long as the columns that would be read for them, which two short scans tell; else it reads the needed columns and scans here. From the
    /// second time on it is the side that is faster, as far as both were measured, or both at once, where the result is short and each
    /// scans some row groups of the file. Here it takes the program `diskside-scan`; where that
    /// is missing, `Auto` scans at the server.
    ///
    /// # Errors
    /// The plan does not fit the file, the file is damaged or changed meanwhile, a side is not able to, or `out` failed. Then
    /// what `out` has is the beginning of a result.
    pub fn scan(&self, plan: &Plan, options: &ScanOptions, out: &mut dyn Write) -> Result<Scanned, SessionError> {
        let mut span = Span::begin("scan", SpanSide::Internal, options.trace);
        let options = &ScanOptions { trace: span.context_or(options.trace), ..options.clone() };
        self.scan_among(plan, options, Among::None, out).inspect_err(|error| span.fail(error))
    }

    /// The same for a file of several, all of which are scanned at the same time: by one side.
    fn scan_of_several(
        &self,
        plan: &Plan,
        options: &ScanOptions,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        self.scan_among(plan, options, Among::Others, out)
    }

    /// Scans it, alone or among others.
    fn scan_among(
        &self,
        plan: &Plan,
        options: &ScanOptions,
        among: Among,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        match &self.copied {
            None => self.scan_once(plan, options, among, &mut None, out),
            Some(_) => self.scan_where_it_answers(plan, options, among, out),
        }
    }

    fn scan_where_it_answers(
        &self,
        plan: &Plan,
        options: &ScanOptions,
        among: Among,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        let (started, mut tries) = (Instant::now(), Tries::new(options.cancel.as_ref(), None));
        let (mut out, mut chosen) = (Resumed::new(out), None);
        loop {
            let file = run_here(tries.file(self))?;
            let scanned = file.scan_once(plan, options, among, &mut chosen, &mut out);
            if out.is_of_another(scanned.is_ok()) {
                return Err(SessionError::OtherResult(file.inner.name.clone()));
            }
            match scanned {
                Ok(scanned) => {
                    return Ok(Scanned { answered: tries.answered(), total: started.elapsed(), ..scanned });
                }
                Err(error) => tries.go_on(&[file], error)?,
            }
            out.rewind();
        }
    }

    /// One that begins again is on the side that was `chosen` before: the other one gives the same rows in other bytes.
    fn scan_once(
        &self,
        plan: &Plan,
        options: &ScanOptions,
        among: Among,
        chosen: &mut Option<Choice>,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        let started = Instant::now();
        let scan = Scan { file: self, plan, options, among };
        let compression = chosen.as_ref().map_or_else(|| scan.compression(), |chosen| chosen.compression);
        let plan = &Plan { compression, ..plan.clone() };
        let scan = Scan { plan, ..scan };
        let choice = match chosen.clone() {
            Some(chosen) => chosen,
            None => chosen.insert(Choice { compression, ..scan.choose()? }).clone(),
        };
        scan.measure_other(&choice);
        let mut counted = Counted { out, count: 0 };
        if let Some(cut) = choice.cut {
            match scan.on_both_sides(cut, &mut counted) {
                Ok(scanned) => return Ok(Scanned { why: cut.why(), ..scanned }),
                Err(error) => {
                    let is_last = counted.count > 0 || !scan.is_wanted() || options.place == ScanPlace::Both;
                    if is_last || matches!(error, SessionError::Call(CallError::Write(_))) {
                        return Err(error);
                    }
                    // One side alone says what is wrong, in its own words, or does what parts cannot.
                    scan.keep_whole(&error, cut);
                    *chosen = Some(Choice { cut: None, ..choice.clone() });
                }
            }
        }
        let done = scan.measuring(&choice, || match choice.side {
            Side::Device => scan.at_server(plan, &mut counted),
            Side::Host => scan.here(&mut counted),
        });
        let Choice { mut side, mut why, .. } = choice;
        let done = match done {
            // Before anything ran.
            Err(error) if side == Side::Device && options.place == ScanPlace::Auto && is_missing(&error) => {
                (side, why) = (Side::Host, why_missing(&error));
                scan.here(&mut counted)?
            }
            // A server has less memory for a scan than this machine: groups do not fit, or a row group.
            Err(error)
                if side == Side::Device
                    && options.place == ScanPlace::Auto
                    && counted.count == 0
                    && is_refused(&error) =>
            {
                (side, why) = (Side::Host, why_refused(&error));
                scan.measuring(&Choice::new(Side::Host, &*why), || scan.here(&mut counted))?
            }
            done => done?,
        };
        let Done { report, moved_bytes, .. } = done;
        let (answered, at_server) = (Vec::new(), u64::from(side == Side::Device));
        let files = FileCounts { found: 1, pruned: 0, here: 1 - at_server, at_server };
        let (result_bytes, total) = (counted.count, started.elapsed());
        let compression = if side == Side::Device { compression } else { Compression::None };
        Ok(Scanned { side, both: None, why, answered, report, files, result_bytes, compression, moved_bytes, total })
    }
}

/// A writer that knows what passed.
struct Counted<'a> {
    out: &'a mut dyn Write,
    count: u64,
}

impl Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.out.write_all(bytes).map_err(CallError::Write)?;
        self.count += bytes.len() as u64;
        Ok(())
    }
}

struct Scan<'a> {
    file: &'a File,
    plan: &'a Plan,
    options: &'a ScanOptions,
    among: Among,
}

/// What a scan of a file is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Among {
    /// It is all.
    None,
    /// Other files, or another part of the file, are scanned at the same time.
    Others,
}

/// What one side did.
struct Done {
    report: Report,
    moved_bytes: (u64, u64),
    result_bytes: u64,
    /// How long it took at a server, as that says.
    times: Option<Times>,
    /// How long it took here until it read anything.
    begin: Duration,
}

impl Scan<'_> {
    fn name(&self) -> &str {
        &self.file.inner.name
    }

    /// What scans here.
    fn program(&self) -> Option<Program> {
        self.options.program.clone().or_else(Program::find)
    }

    fn is_wanted(&self) -> bool {
        !self.options.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    fn unwanted(&self) -> SessionError {
        SessionError::Cancelled(self.name().to_owned())
    }

    fn at_server(&self, plan: &Plan, out: &mut Counted<'_>) -> Result<Done, SessionError> {
        let Place::Export(remote) = &self.file.inner.place else { unreachable!("only of exports") };
        let failed = |error: FunctionError| {
            let known = remote.path().escape_ascii().to_string();
            match error.trailer() {
                Some(Trailer { outcome: Outcome::Refused, returned: MISFIT, message, .. })
                    if plan.function.is_some() && message.ends_with(UNKNOWN_VERSION) =>
                {
                    self.without_functions("the server is too old for functions over columns")
                }
                Some(Trailer { outcome: Outcome::Refused, returned: DENIED, message, .. })
                    if plan.function.is_some() =>
                {
                    self.without_functions(&format!("the server refuses the function: {message}"))
                }
                Some(trailer) if plan.function.is_some() && is_of_function(trailer) => {
                    let message = &trailer.message;
                    let why = message.strip_prefix(&format!("{known}: ")).unwrap_or(message).to_owned();
                    SessionError::OnRows { name: self.name().to_owned(), why, stop: Box::new(stop_of(trailer)) }
                }
                // The plan does not fit the file, wherever it is carried out.
                Some(Trailer { outcome: Outcome::Refused, returned: MISFIT, message, .. }) => {
                    let why = message.strip_prefix(&format!("{known}: ")).unwrap_or(message).to_owned();
                    SessionError::Input { name: self.name().to_owned(), why }
                }
                _ => SessionError::device_over(self.name(), &known, error),
            }
        };
        if !self.is_wanted() {
            return Err(self.unwanted());
        }
        let mut request = FunctionRequest::new(FunctionKind::Read, SCAN_PIND);
        request.sources = vec![remote.file().map_err(failed)?.endpoint(0, Endpoint::TO_END)];
        request.args = plan.to_bytes();
        request.result_len_max = u64::MAX;
        request.trace = self.options.trace;
        let (running, began) = (remote.link.begin(), Instant::now());
        let mut stream = remote.link.compute()?.stream(&request, Vec::new()).map_err(failed)?;
        let handle = stream.handle();
        let _watch = self.options.cancel.as_ref().map(|cancel| cancel.when_cancelled(move || handle.cancel()));
        // The last bytes are the report.
        let mut kept: Vec<u8> = Vec::new();
        let mut patience = Patience::new(self.options.cancel.as_ref());
        let mut next = || patience.wait(stream.next()).ok_or_else(|| self.unwanted());
        while let Some(bytes) = next()?.map_err(failed)? {
            kept.extend_from_slice(&bytes);
            if let Some(ready) = kept.len().checked_sub(REPORT_LEN) {
                out.write(&kept[..ready])?;
                kept.drain(..ready);
            }
        }
        let mut report = Report::from_bytes(&kept).ok_or_else(|| SessionError::Input {
            name: self.name().to_owned(),
            why: "the server's result ends without its report".into(),
        })?;
        let times = stream.trailer().map(|trailer| trailer.times);
        report.pruned_by_dictionaries = stream.trailer().and_then(|trailer| trailer.by_dictionaries).unwrap_or(0);
        let waited = Duration::from_micros(times.map_or(0, |times| times.queue_us.into()));
        running.note_wait(waited, report.rows_read / decide::TURN_ROWS + 1);
        let (moved_bytes, result_bytes) = (stream.wire_bytes(), out.count);
        self.note_result(&remote.link, moved_bytes.1, began.elapsed());
        Ok(Done { report, moved_bytes, result_bytes, times, begin: Duration::ZERO })
    }

    /// The error of a server that does not run the plan's function.
    fn without_functions(&self, why: &str) -> SessionError {
        let why = format!("{why}{ELSEWHERE}");
        SessionError::NoDevice { name: self.name().to_owned(), why }
    }

    fn here(&self, out: &mut Counted<'_>) -> Result<Done, SessionError> {
        let program = program_of(self.options, self.name())?;
        let mut start = Start {
            reads_by: ReadsBy::Requests,
            threads: Some(self.options.threads),
            file_len: 0,
            memory_len: self.options.memory_len,
            name: self.name().to_owned(),
            // Nothing of the result travels.
            plan: Plan { compression: Compression::None, ..self.plan.clone() }.to_bytes(),
        };
        if let Place::Local { path, descriptor, .. } = &self.file.inner.place {
            let opened = match descriptor {
                Some(descriptor) => descriptor.duplicate(),
                // A pipe would be waited for until somebody writes to it.
                None => std::fs::OpenOptions::new()
                    .read(true)
                    .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as _)
                    .open(path),
            };
            let opened = opened.map_err(|source| SessionError::Open { name: self.name().to_owned(), source })?;
            let status = |file: &std::fs::File| file.metadata().map_err(|error| SessionError::file(self.name(), error));
            let before = status(&opened)?;
            if !before.is_file() && !before.file_type().is_block_device() {
                let why = "it is a pipe or another stream, and a scan reads its file here and there: write it to a file first".into();
                return Err(SessionError::Input { name: self.name().to_owned(), why });
            }
            if before.is_file() {
                let again = opened.try_clone().map_err(|error| SessionError::file(self.name(), error))?;
                (start.reads_by, start.file_len) = (ReadsBy::Descriptor, before.len());
                let scanning = self.started(&program, &start, Source::Descriptor(OwnedFd::from(again)))?;
                let has_changed = || status(&opened).is_ok_and(|after| version(&before) != version(&after));
                let (report, begin) = self.listen(scanning, out, None, &has_changed)?;
                if has_changed() {
                    return Err(SessionError::Changed(self.name().to_owned()));
                }
                return Ok(Done { report, moved_bytes: (0, 0), result_bytes: out.count, times: None, begin });
            }
        }
        let (io, before) = self.file.version_of_copy()?;
        start.file_len = before.len_bytes;
        let scanning = self.started(&program, &start, Source::Requests)?;
        let footers = &self.session().inner.footers;
        // A file that changed just now may change again and have the same version.
        let metadata = footers.of(self.file.inner.id, before.version.filter(|_| before.keep));
        let reads = Reads { io, file: self.file.clone(), metadata, meter: Meter::default() };
        // Each read was of the file as it was then.
        let has_changed = || -> Result<bool, SessionError> {
            let after = run_here(self.file.inner.place.now(&self.file.inner.session, self.name()))?;
            Ok((after.version, after.len_bytes) != (before.version, before.len_bytes))
        };
        let (mut report, begin) = self.listen(scanning, out, Some(&reads), &|| has_changed().unwrap_or(false))?;
        if has_changed()? {
            return Err(SessionError::Changed(self.name().to_owned()));
        }
        footers.keep(&reads.metadata);
        self.note_reads(&reads.meter);
        // The process counts all that it asked for.
        report.read_len = report.read_len.saturating_sub(reads.metadata.given_bytes());
        let is_remote = matches!(self.file.inner.place, Place::Export(_));
        let moved_bytes = (0, if is_remote { report.read_len } else { 0 });
        Ok(Done { report, moved_bytes, result_bytes: out.count, times: None, begin })
    }

    fn started(&self, program: &Program, start: &Start, source: Source) -> Result<Scanning, SessionError> {
        program.start(start, source).map_err(|error| self.failed(error))
    }

    fn listen(
        &self,
        mut scanning: Scanning,
        out: &mut Counted<'_>,
        reads: Option<&Reads>,
        has_changed: &dyn Fn() -> bool,
    ) -> Result<(Report, Duration), SessionError> {
        let (started, mut begin) = (Instant::now(), None);
        loop {
            let event = scanning.next(&mut || self.is_wanted()).map_err(|error| match &error {
                // One that is written meanwhile looks damaged.
                ScanError::Failed(failure) if failure.kind == FailureKind::File && has_changed() => {
                    SessionError::Changed(self.name().to_owned())
                }
                _ => self.failed(error),
            })?;
            let begin = *begin.get_or_insert_with(|| started.elapsed());
            match event {
                Event::Output(bytes) => out.write(&bytes)?,
                Event::Waits => {}
                Event::Turn => return Err(self.failed(ScanError::Garbage("it has no turns, and asks for one"))),
                Event::Read { offset, len, of } => {
                    let answer = reads.map(|reads| reads.begin(offset, len, of));
                    let answer = answer.ok_or(ScanError::Garbage("it has the file, and asks for it"));
                    answer.and_then(|answer| scanning.answer(answer)).map_err(|error| self.failed(error))?;
                }
                Event::Scan { .. } => {
                    return Err(self.failed(ScanError::Garbage("it has one file, and asks for others")));
                }
                Event::Done(report) => return Ok((report, begin)),
            }
        }
    }

    fn failed(&self, error: ScanError) -> SessionError {
        scan_error(self.name(), error)
    }
}

/// The program that scans here.
fn program_of(options: &ScanOptions, name: &str) -> Result<Program, SessionError> {
    options.program.clone().or_else(Program::find).ok_or_else(|| SessionError::NoDevice {
        name: name.to_owned(),
        why: "a scan here takes the program diskside-scan beside diskside, in PATH or where DISKSIDE_SCAN says; \
              `make scan` builds it"
            .into(),
    })
}

/// The error of a scan of what is called so.
fn scan_error(name: &str, error: ScanError) -> SessionError {
    let name = name.to_owned();
    let told = |message: &str| message.strip_prefix(&format!("{name}: ")).unwrap_or(message).to_owned();
    match error {
        ScanError::Stopped => SessionError::Cancelled(name),
        ScanError::Failed(failure) if failure.kind == FailureKind::Plan => {
            SessionError::Input { why: told(&failure.message), name }
        }
        ScanError::Failed(failure) => match failure.kind {
            FailureKind::Function(stop) => {
                SessionError::OnRows { why: told(&failure.message), name, stop: Box::new(stop) }
            }
            _ => SessionError::file(&name, std::io::Error::other(told(&failure.message))),
        },
        other => SessionError::file(&name, std::io::Error::other(other.to_string())),
    }
}

/// Whether the function of a scan was stopped or failed, and not the scan.
fn is_of_function(trailer: &Trailer) -> bool {
    trailer.outcome == Outcome::Trap || trailer.place.is_some()
}

fn stop_of(trailer: &Trailer) -> Stop {
    Stop {
        row_group: trailer.place.map(|place| place.offset),
        trap_kind: trailer.trap_kind,
        region: trailer.region,
        insn: trailer.insn,
        offset: trailer.trap_offset,
        bound: trailer.bound,
        returned: trailer.returned,
    }
}

/// What tells a version of a local file from others.
fn version(of: &std::fs::Metadata) -> [u64; 5] {
    let times = [of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()].map(i64::cast_unsigned);
    [of.len(), times[0], times[1], times[2], times[3]]
}

/// The plan that counts the rows that another one wants.
fn counting(plan: &Plan) -> Plan {
    let aggregate = Aggregate { kind: AggregateKind::Count, input: None, name: "rows".into() };
    let (format, types, filter) = (plan.format, plan.types.clone(), plan.filter.clone());
    let function = plan.function.clone().filter(|_| !plan.gives_result());
    Plan { format, types, filter, function, aggregates: vec![aggregate], ..Plan::default() }
}

/// Whether a server says that it has no such service.
fn is_missing(error: &SessionError) -> bool {
    let missing = [Status::INVALID_PROGRAM_INDEX, Status::NO_PROGRAM, Status::FUNCTION_NOT_FOUND];
    matches!(error, SessionError::NoDevice { .. })
        || error.function().is_some_and(|error| missing.iter().any(|status| error.is_status(*status)))
}

/// Whether a server says that it cannot scan so, where this machine perhaps can.
fn is_refused(error: &SessionError) -> bool {
    let trailer = error.function().and_then(FunctionError::trailer);
    trailer.is_some_and(|trailer| trailer.outcome == Outcome::Refused && trailer.returned == 0)
}

fn why_refused(error: &SessionError) -> String {
    format!("the server refused it: {error}")
}

/// What a server says instead, in short.
fn why_missing(error: &SessionError) -> String {
    match error {
        SessionError::NoDevice { why, .. } => why.strip_suffix(ELSEWHERE).unwrap_or(why).to_owned(),
        _ => MISSING.into(),
    }
}
