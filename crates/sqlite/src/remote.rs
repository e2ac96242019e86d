//! One version of a file of an export.

use super::failure::Failure;
use super::options::Options;
use super::reader::Source;
use diskside::ExportUrl;
use diskside::host::ConnectOptions;
use diskside::host::function::{CallOutcome, Files, FunctionError, RemoteFile};
use diskside::io::request::{RequestFuture, block_on};
use diskside::session::{Session, SessionOptions};
use diskside::wire::file::FileFlags;
use diskside::wire::function::Outcome;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const CHANGED: &str = "the database changed since it was opened; open it again";
/// Linux' ELOOP.
const ELOOP: i32 = 40;
/// Linux' ESTALE: the server has forgotten the handle.
const ESTALE: i32 = 116;
/// How often the file is opened again for one read.
const REOPENED_MAX: u32 = 3;
/// How long a file that changes all the time is waited for when it is opened.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const SETTLE_POLL: Duration = Duration::from_millis(2);

type Answer = Result<CallOutcome, FunctionError>;

/// A file, and the version that it had when it was opened.
pub(crate) struct Remote {
    session: Session,
    url: ExportUrl,
    name: String,
    file: RemoteFile,
    version: u64,
    len_bytes: u64,
}

/// Bytes that were asked for.
pub(crate) struct Asked {
    range: Range<u64>,
    answer: RequestFuture<Answer>,
}

impl Remote {
    pub(crate) fn open(url: ExportUrl, options: &Options) -> Result<Self, Failure> {
        let name = url.to_string();
        if url.has_copies() {
            return Err(Failure::of(&name, &"a database is read from one server: name only that one"));
        }
        let session = session(options.timeout).map_err(|why| Failure::of(&name, &why))?;
        let file = open(&session, &url, &name)?;
        let mut remote = Self { session, url, name, file, version: 0, len_bytes: 0 };
        remote.settle()?;
        Ok(remote)
    }

    /// Takes the version that the file has, once no further change can leave that as it is.
    fn settle(&mut self) -> Result<(), Failure> {
        let (began, mut info) = (Instant::now(), self.file.info());
        while info.recent {
            if began.elapsed() > SETTLE_MAX {
                let why = "it changes all the time, or its time of change is ahead of its server's clock";
                return Err(self.failed(&why));
            }
            std::thread::sleep(SETTLE_POLL);
            info = self.file.refresh().map_err(|error| self.failed(&error))?;
        }
        (self.version, self.len_bytes) = (info.version, info.len_bytes);
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The file beside this one whose name has so much more.
    pub(crate) fn beside(&self, suffix: &str) -> Vec<u8> {
        [&self.url.path, suffix.as_bytes()].concat()
    }

    pub(crate) fn files(&self) -> &Files {
        self.file.files()
    }

    pub(crate) fn failed(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::of(&self.name, why)
    }

    /// Opens the file again, after its server was lost or restarted.
    fn reopen(&mut self) -> Result<(), Failure> {
        let file = open(&self.session, &self.url, &self.name)?;
        if file.info().version != self.version {
            return Err(self.failed(&CHANGED));
        }
        self.file = file;
        Ok(())
    }
}

fn open(session: &Session, url: &ExportUrl, name: &str) -> Result<RemoteFile, Failure> {
    let files = session.files(url).map_err(|error| Failure::of(name, &error))?;
    files.open(&url.path, FileFlags::READ | FileFlags::NO_FOLLOW).map_err(|error| match error.errno() {
        // SQLite keeps journals beside what a link leads to, which only the server can follow.
        Some(ELOOP) => Failure::of(
            name,
            &"it is a symbolic link, beside which there is no journal: name the file that it leads to",
        ),
        _ => Failure::of(name, &error),
    })
}

impl Source for Remote {
    type Read = Asked;
    type Error = Failure;

    fn begin(&mut self, range: Range<u64>) -> Asked {
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        Asked { answer: self.file.read_once(range.start, len), range }
    }

    fn is_done(&self, read: &Asked) -> bool {
        read.answer.is_done()
    }

    fn taken(&self, read: Asked) -> Option<Vec<u8>> {
        let outcome = block_on(read.answer).ok()?;
        let is_whole = outcome.result.len() as u64 == read.range.end - read.range.start;
        (outcome.trailer.generation == self.version && is_whole).then_some(outcome.result)
    }

    fn finish(&mut self, read: Asked) -> Result<Vec<u8>, Failure> {
        let Asked { range, mut answer } = read;
        let (mut bytes, mut reopened) = (Vec::new(), 0);
        loop {
            match block_on(answer) {
                Ok(outcome) if outcome.trailer.generation != self.version || outcome.result.is_empty() => {
                    return Err(self.failed(&CHANGED));
                }
                Ok(outcome) if bytes.is_empty() => bytes = outcome.result,
                Ok(outcome) => bytes.extend_from_slice(&outcome.result),
                Err(error) if error.trailer().is_some_and(|trailer| trailer.outcome == Outcome::Stale) => {
                    return Err(self.failed(&CHANGED));
                }
                Err(error) if reopened < REOPENED_MAX && (error.errno() == Some(ESTALE) || error.is_loss()) => {
                    reopened += 1;
                    self.reopen()?;
                }
                Err(error) => return Err(self.failed(&error)),
            }
            // A server may give fewer bytes at once.
            let at = range.start + bytes.len() as u64;
            if at >= range.end {
                return Ok(bytes);
            }
            answer = self.begin(at..range.end).answer;
        }
    }
}

/// A session of this process.
struct Kept {
    process: u32,
    timeout: Duration,
    session: Session,
}

/// The session whose servers are waited for so long. Its connections serve all databases of this process.
fn session(timeout: Duration) -> Result<Session, String> {
    static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    // The threads of a session do not exist in a child that was forked: waiting for them would never end.
    for other in kept.extract_if(.., |kept| kept.process != process) {
        std::mem::forget(other);
    }
    if let Some(found) = kept.iter().find(|kept| kept.timeout == timeout) {
        return Ok(found.session.clone());
    }
    let mut options = SessionOptions::from_environment().map_err(|error| error.to_string())?;
    // A command is aborted after `command_timeout`, the connection given up after that time again, and then made once more.
    options.connect = ConnectOptions {
        connect_timeout: timeout.min(options.connect.connect_timeout),
        command_timeout: timeout / 4,
        loss_timeout: timeout / 2,
        retries_max: 1,
        ..options.connect
    };
    options.cache_len_bytes = 0;
    let session = Session::new(options);
    kept.push(Kept { process, timeout, session: session.clone() });
    Ok(session)
}
