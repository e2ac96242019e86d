//! The process that scans, seen from the one that started it.

use crate::frames::{Failure, FailureKind, Frame, FrameError, ReadOf, Report, Start, To};
use crate::plan::Plan;
use crate::several::{OneFile, Several};
use crate::spare::{Process, Spare, command, widen};
pub use crate::to_child::Answer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};

/// Name of the program that holds Arrow and Parquet.
const PROGRAM: &str = "diskside-scan";
/// The variable that says where it is; empty for nowhere.
const VARIABLE: &str = "DISKSIDE_SCAN";
/// How long a process that says nothing is waited for before somebody is asked whether to continue.
const LISTENING_NS: i64 = 20_000_000;
/// The same of one that computes in turns with others.
const TURN_NS: i64 = 4_000_000;

/// Where the program is.
#[derive(Clone, Debug)]
pub struct Program {
    program: diskside_child::Program,
    spare: Option<Spare>,
}

/// What is scanned.
#[derive(Debug)]
pub enum Source {
    /// An open file: the process reads it itself.
    Descriptor(OwnedFd),
    /// Something that is read for it: see [`Scanning::answer`].
    Requests,
}

/// A process that scans. Dropped, it is killed.
#[derive(Debug)]
pub struct Scanning {
    process: Process,
    row_group: Option<u32>,
    memory_len: u64,
    program: Program,
}

/// What a process says.
#[derive(Debug)]
pub enum Event {
    /// Bytes of the result.
    Output(Vec<u8>),
    /// It asks for bytes: [`Scanning::answer`] it.
    Read {
        /// Where they begin.
        offset: u64,
        /// How many.
        len: usize,
        /// What they are.
        of: ReadOf,
    },
    /// It asks whether to continue: [`Scanning::grant`] it.
    Turn,
    /// It asks for the scan of one of several files: reads at the number of this request are of the result.
    Scan {
        /// The file.
        file: usize,
        /// What is scanned of it.
        plan: Plan,
    },
    /// It computes nothing until it has the bytes that it asked for, and then asks whether to continue.
    Waits,
    /// It is done.
    Done(Report),
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The program cannot be started.
    #[error("{} cannot be started: {error}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It says why.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It ended without a word.
    #[error("{0}")]
    Crashed(String),
    /// It is not wanted any more.
    #[error("the scan was stopped")]
    Stopped,
    /// What it says makes no sense. Programs that were replaced while another one runs differ in their messages.
    #[error(
        "the process that scans sent no message of this version ({0}): diskside-scan and what started it are perhaps of two \
         versions; restart that, or install both again"
    )]
    Garbage(&'static str),
    /// A pipe broke.
    #[error("talking to the process that scans: {0}")]
    Pipe(io::Error),
}

impl Program {
    /// The one that `DISKSIDE_SCAN` names, that lies beside the running program, or that `PATH` finds. `None` when there is
    /// none, or `DISKSIDE_SCAN` is empty.
    #[must_use]
    pub fn find() -> Option<Self> {
        diskside_child::Program::find(PROGRAM, VARIABLE).map(Self::of)
    }

    /// The program at this place.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::of(diskside_child::Program::at(path))
    }

    fn of(program: diskside_child::Program) -> Self {
        Self { program, spare: None }
    }

    /// From its first scan on it keeps a process ready for the next one, which then need not wait until one has started. No
    /// process does two scans.
    #[must_use]
    pub fn with_spare(self) -> Self {
        Self { spare: Some(Spare::default()), ..self }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.program.path()
    }

    /// Starts a scan.
    ///
    /// # Errors
    /// It cannot be started, or ended at once.
    pub fn start(&self, start: &Start, source: Source) -> Result<Scanning, ScanError> {
        let file = match source {
            Source::Descriptor(file) => Some(file),
            Source::Requests => None,
        };
        self.begin(file.as_ref(), start.memory_len, std::iter::once(Frame::Start(start.clone())))
    }

    /// Starts a scan of several files, which asks for a scan of each and puts the results together.
    ///
    /// # Errors
    /// It cannot be started, or ended at once.
    pub fn start_several(
        &self,
        several: &Several,
        files: impl Iterator<Item = OneFile> + Clone,
    ) -> Result<Scanning, ScanError> {
        let first = std::iter::once(Frame::Several(several.clone()));
        self.begin(None, several.memory_len, first.chain(files.map(Frame::File)))
    }

    fn begin(
        &self,
        file: Option<&OwnedFd>,
        memory_len: u64,
        frames: impl Iterator<Item = Frame> + Clone,
    ) -> Result<Scanning, ScanError> {
        let file = file.map(AsFd::as_fd);
        let spare = self.spare.as_ref().and_then(Spare::take);
        // One that waited may have been killed meanwhile.
        let told = spare.filter(|process| process.tell(file, frames.clone()).is_ok());
        let scanning = |process| Scanning { process, row_group: None, memory_len, program: self.clone() };
        if let Some(process) = told {
            return Ok(scanning(process));
        }
        let started = Process::start(&self.program);
        let mut scanning =
            scanning(started.map_err(|error| ScanError::Start { program: self.path().to_owned(), error })?);
        match scanning.process.tell(file, frames) {
            Ok(()) => Ok(scanning),
            // It may have said why.
            Err(_) => Err(scanning
                .read()
                .map_or_else(|error| error, |_| ScanError::Garbage("it begins before it is told to"))),
        }
    }

    /// Starts what writes an Arrow stream in another format, `table`, `csv`, `arrow` or `parquet`, to `out`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn format(&self, format: &str, mut out: Box<dyn Write + Send>) -> Result<FormatJob, ScanError> {
        let mut command = command(&self.program);
        command.args(["--format", format]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        let mut child = started.map_err(|error| ScanError::Start { program: self.path().to_owned(), error })?;
        let (Some(to), Some(mut from), Some(said)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(ScanError::Garbage("it has no pipes"));
        };
        widen(&to);
        widen(&from);
        let copy = move || -> io::Result<()> {
            io::copy(&mut from, &mut out)?;
            out.flush()
        };
        let copying = std::thread::Builder::new().name("scan output".into()).spawn(copy).map_err(ScanError::Pipe)?;
        Ok(FormatJob { child, to: Some(to), said, copying: Some(copying) })
    }
}

impl Scanning {
    /// Waits for what it says next. `is_wanted` is asked some times a second while it says nothing.
    ///
    /// # Errors
    /// There is no result, and why; the process has ended.
    pub fn next(&mut self, is_wanted: &mut dyn FnMut() -> bool) -> Result<Event, ScanError> {
        while !self.hears(LISTENING_NS, is_wanted)? {}
        self.read()
    }

    /// The same of one that computes in turns with others: `pause` is called some hundred times a second while it says
    /// nothing, and the process stands still meanwhile.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_in_turn(
        &mut self,
        is_wanted: &mut dyn FnMut() -> bool,
        pause: &mut dyn FnMut(),
    ) -> Result<Event, ScanError> {
        while !self.hears(TURN_NS, is_wanted)? {
            self.hold();
            pause();
            self.resume();
        }
        self.read()
    }

    /// Has it stand still until it may [continue](Self::resume).
    pub fn hold(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it continue.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // It may have ended already. It is not waited for before, so no other process has its number.
        let _ = kill_process(Pid::from_child(&self.process.child), signal);
    }

    /// Whether it says something, within this time.
    fn hears(&mut self, patience_ns: i64, is_wanted: &mut dyn FnMut() -> bool) -> Result<bool, ScanError> {
        let mut awaited = [PollFd::new(&self.process.from, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: patience_ns };
        let heard = match poll(&mut awaited, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => 0,
            heard => heard.map_err(|errno| ScanError::Pipe(errno.into()))?,
        };
        if !is_wanted() {
            self.process.stop();
            return Err(ScanError::Stopped);
        }
        Ok(heard > 0)
    }

    fn read(&mut self) -> Result<Event, ScanError> {
        match Frame::read(&mut self.process.from, To::Parent) {
            Ok(Frame::Output(bytes)) => Ok(Event::Output(bytes)),
            Ok(Frame::Read { offset, len, of }) if len as usize <= crate::READ_LEN_MAX => {
                Ok(Event::Read { offset, len: len as usize, of })
            }
            Ok(Frame::Turn { row_group }) => {
                self.row_group = Some(row_group);
                Ok(Event::Turn)
            }
            Ok(Frame::Scan { file, plan }) => match Plan::from_bytes(&plan) {
                Ok(plan) => Ok(Event::Scan { file: file as usize, plan }),
                Err(error) => Err(ScanError::Garbage(error.what)),
            },
            Ok(Frame::Waits) => Ok(Event::Waits),
            Ok(Frame::Done(report)) => Ok(Event::Done(report)),
            Ok(Frame::Failed(failure)) => Err(failure.into()),
            Ok(_) => Err(ScanError::Garbage("a read is too long")),
            Err(FrameError::Ended) => Err(self.crashed()),
            Err(FrameError::Pipe(error)) => Err(ScanError::Pipe(error)),
            Err(FrameError::Malformed(what)) => Err(ScanError::Garbage(what)),
        }
    }

    /// Lets it continue, with so many threads.
    ///
    /// # Errors
    /// It is gone, or asks without listening.
    pub fn grant(&mut self, threads: u32) -> Result<(), ScanError> {
        match self.process.to.grant(threads) {
            Ok(true) => Ok(()),
            // One that never reads would keep its parent waiting.
            Ok(false) => Err(ScanError::Garbage("it does not listen")),
            Err(_) => Err(self.crashed()),
        }
    }

    /// Gives it bytes that it asked for, in the order of its requests.
    ///
    /// # Errors
    /// It asks for more at one time than it may.
    pub fn answer(&mut self, answer: Answer) -> Result<(), ScanError> {
        match self.process.to.answer(answer).map_err(ScanError::Pipe)? {
            true => Ok(()),
            false => Err(ScanError::Garbage("it asks for too much at one time")),
        }
    }

    fn crashed(&mut self) -> ScanError {
        let status = match self.process.child.wait() {
            Ok(status) => status,
            Err(error) => return ScanError::Pipe(error),
        };
        let place =
            self.row_group.map_or(String::new(), |row_group| format!(" in row group {row_group} or soon after"));
        let ended = format!("the process that scans ended with {}{place}", how(status));
        let limit = self.memory_len >> 20;
        match status.signal().map(Signal::from_named_raw) {
            // Where there is no memory, it gives up; of anything else that goes wrong it says what. Groups may be decoded ahead of
            // the one that it told of last.
            Some(Some(Signal::ABORT)) => {
                let message = format!(
                    "{ended}: it needs more than the {limit} MiB that a scan has, or is damaged so that it seems to"
                );
                ScanError::Failed(Failure { kind: FailureKind::Memory, message })
            }
            Some(Some(Signal::KILL)) => {
                ScanError::Crashed(format!("{ended}: somebody else ended it, perhaps the system, for want of memory"))
            }
            _ => ScanError::Crashed(format!("{ended}: most likely the file is damaged")),
        }
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "no status".into(),
    }
}

impl Drop for Scanning {
    fn drop(&mut self) {
        if let Some(spare) = &self.program.spare {
            spare.refill(&self.program.program);
        }
    }
}

/// The process that writes a result in another format. Dropped, it is killed.
#[derive(Debug)]
pub struct FormatJob {
    child: Child,
    to: Option<ChildStdin>,
    said: std::process::ChildStderr,
    copying: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl Write for FormatJob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FormatJob {
    /// Waits until all is written.
    ///
    /// # Errors
    /// It was not: `out` failed, or the stream is not one.
    pub fn finish(mut self) -> io::Result<()> {
        self.to = None;
        let copied = self.copying.take().map(std::thread::JoinHandle::join);
        match copied {
            Some(Ok(copied)) => copied?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => {}
        }
        let mut said = String::new();
        let _ = (&mut self.said).take(4096).read_to_string(&mut said);
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let said = if said.is_empty() { format!("it ended with {}", how(status)) } else { said.trim().to_owned() };
        Err(io::Error::other(said))
    }
}

impl Drop for FormatJob {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::frames::ReadsBy;
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// A script in the program's place. Another process writes it: one that another test starts holds, until it is one of its own, what this
    /// one has open for writing, and such a file is not run: "Text file busy".
    pub(crate) fn script(directory: &Path, body: &str) -> diskside_child::Program {
        let (text, program) = (directory.join("text"), directory.join("program"));
        std::fs::write(&text, format!("#!/bin/sh\n{body}\n")).unwrap();
        let installed =
            std::process::Command::new("install").args(["-m", "700"]).args([&text, &program]).status().unwrap();
        assert!(installed.success());
        diskside_child::Program::at(program)
    }

    fn state_of(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    /// One that asked for no turn, because its file kept it busy, computed while others had theirs.
    #[test]
    fn a_process_that_says_nothing_stands_still_while_others_have_their_turn() {
        let directory = tempfile::tempdir().unwrap();
        let program = script(directory.path(), "while :; do :; done");
        let program = Program { program, spare: None };
        let (reads_by, name, plan) = (ReadsBy::Requests, "a".into(), Vec::new());
        let start = Start { reads_by, threads: None, file_len: 1, memory_len: 64 << 20, name, plan };
        let mut scanning = program.start(&start, Source::Requests).unwrap();
        let (pid, until, mut pauses) = (scanning.process.child.id(), Instant::now() + Duration::from_secs(60), 0);
        let is_in = |wanted: &[char]| {
            while !wanted.contains(&state_of(pid)) {
                assert!(Instant::now() < until, "{}", state_of(pid));
                std::thread::yield_now();
            }
        };
        let mut is_wanted = || {
            // The first look may come before the process has begun.
            is_in(&['R', 'S']);
            pauses += 1;
            pauses <= 5
        };
        let ended = scanning.next_in_turn(&mut is_wanted, &mut || is_in(&['T']));
        assert!(matches!(ended, Err(ScanError::Stopped)), "{ended:?}");
    }
}
