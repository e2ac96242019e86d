//! The scans that a process asks for which puts their results together, and these results on their way to it.

use super::super::Session;
use super::super::error::SessionError;
use super::super::file::File;
use super::super::place::Place;
use super::split::BothSides;
use super::{Counted, FileCounts, ScanOptions, Scanned, scan_error, version};
use crate::location::Location;
use diskside_dispatch::Side;
use diskside_engine::CallError;
use diskside_io::request::run_here;
use diskside_sbpf::machine::CancelToken;
use diskside_scan::{Answer, Compression, Event, Plan, Report, ScanError, Scanning};
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Files that are scanned at one time.
pub(super) const AT_ONCE: u32 = 4;
/// Pieces of the result of a file that wait for those of the files before it.
const PIECES: usize = 4;

/// What scans are of.
pub(super) enum Sources {
    /// Files, each of which is scanned where that is best.
    Files(Session, Vec<Location>),
    /// Parts of one file, at the server and here.
    BothSides(BothSides),
}

/// The scans of the files, as they are asked for.
pub(super) struct Running {
    sources: Arc<Sources>,
    options: ScanOptions,
    compression: Compression,
    /// Results by the numbers of their requests, those that are still read.
    results: HashMap<u64, Arc<Mutex<Incoming>>>,
    asked: u64,
    workers: Vec<JoinHandle<()>>,
    shared: Arc<Mutex<Shared>>,
}

/// What scans have come to.
pub(super) struct Shared {
    pub(super) all: Scanned,
    /// The first failure, as it was.
    failed: Option<SessionError>,
    /// The versions of files when they were asked for their columns.
    versions: HashMap<usize, [u64; 7]>,
    /// The file that was asked for its columns last.
    pub(super) of_columns: Report,
}

/// The result of a file on its way.
struct Incoming {
    /// `None`: it is over.
    pieces: Option<Receiver<Piece>>,
    rest: Vec<u8>,
    /// Only the columns were asked for.
    is_columns: bool,
}

enum Piece {
    Bytes(Vec<u8>),
    End(Result<Box<Scanned>, SessionError>),
}

impl Running {
    pub(super) fn new(sources: Sources, options: &ScanOptions, compression: Compression) -> Self {
        let all = Scanned {
            side: Side::Host,
            both: None,
            why: "no file has a row that is wanted".into(),
            answered: Vec::new(),
            report: Report::default(),
            files: FileCounts::default(),
            result_bytes: 0,
            compression: Compression::None,
            moved_bytes: (0, 0),
            total: std::time::Duration::ZERO,
        };
        let shared =
            Arc::new(Mutex::new(Shared { all, failed: None, versions: HashMap::new(), of_columns: Report::default() }));
        Self {
            sources: Arc::new(sources),
            options: options.clone(),
            compression,
            results: HashMap::new(),
            asked: 0,
            workers: Vec::new(),
            shared,
        }
    }

    /// Does what the process asks for, until all of the result is there.
    pub(super) fn listen(
        &mut self,
        name: &str,
        mut scanning: Scanning,
        out: &mut Counted<'_>,
    ) -> Result<(), SessionError> {
        // Those that are ahead are stopped as well when the rows of the others are enough.
        let (wanted, all) = (self.options.cancel.take(), CancelToken::new());
        let stop = all.clone();
        let _watch = wanted.as_ref().map(|wanted| wanted.when_cancelled(move || stop.cancel()));
        self.options.cancel = Some(all.clone());
        let is_wanted = || !wanted.as_ref().is_some_and(CancelToken::is_cancelled);
        let done = loop {
            let event = scanning.next(&mut || is_wanted());
            let answered = match event {
                Ok(Event::Output(bytes)) => out.write(&bytes),
                Ok(Event::Done(_)) => break Ok(()),
                Ok(Event::Scan { file, plan }) => self.begin(file, plan).map_err(|error| scan_error(name, error)),
                Ok(Event::Read { offset, len, .. }) => {
                    let answered = self.answer(offset, len).and_then(|answer| scanning.answer(answer));
                    answered.map_err(|error| scan_error(name, error))
                }
                Ok(Event::Waits) => Ok(()),
                Ok(Event::Turn) => Err(scan_error(name, ScanError::Garbage("it has no turns, and asks for one"))),
                Err(error) => Err(scan_error(name, error)),
            };
            if let Err(error) = answered {
                break Err(error);
            }
        };
        all.cancel();
        drop(scanning);
        self.results.clear();
        for worker in self.workers.drain(..) {
            // A panic was reported by its thread.
            let _ = worker.join();
        }
        done.map_err(|error| match &error {
            SessionError::Cancelled(_) | SessionError::Call(CallError::Write(_)) => error,
            _ => lock(&self.shared).failed.take().unwrap_or(error),
        })
    }

    /// Begins to scan a file.
    fn begin(&mut self, file: usize, plan: Plan) -> Result<(), ScanError> {
        self.results.retain(|_, incoming| lock(incoming).pieces.is_some());
        if file >= self.sources.count() || self.results.len() > AT_ONCE as usize {
            return Err(ScanError::Garbage("it asks for a file that is not there, or for too many at one time"));
        }
        self.workers.retain(|worker| !worker.is_finished());
        let (sender, pieces) = sync_channel(PIECES);
        let is_columns = plan.limit == Some(0);
        let incoming = Incoming { pieces: Some(pieces), rest: Vec::new(), is_columns };
        self.results.insert(self.asked, Arc::new(Mutex::new(incoming)));
        self.asked += 1;
        let (sources, options) = (Arc::clone(&self.sources), self.options.clone());
        let (shared, plan) = (Arc::clone(&self.shared), Plan { compression: self.compression, ..plan });
        let work = move || {
            let scanned = sources.scan(file, &plan, &options, &shared, &mut Pieces(&sender));
            // One that is not awaited any more needs to hear nothing.
            drop(sender.send(Piece::End(scanned.map(Box::new))));
        };
        let worker = std::thread::Builder::new().name("scan of a file".into()).spawn(work).map_err(ScanError::Pipe)?;
        self.workers.push(worker);
        Ok(())
    }

    /// The next bytes of a result.
    fn answer(&self, number: u64, len: usize) -> Result<Answer, ScanError> {
        let incoming =
            self.results.get(&number).ok_or(ScanError::Garbage("it reads a result that it did not ask for"))?;
        let (incoming, shared) = (Arc::clone(incoming), Arc::clone(&self.shared));
        Ok(Answer(Box::new(move || lock(&incoming).next(len, &shared))))
    }

    pub(super) fn end(self) -> Scanned {
        lock(&self.shared).all.clone()
    }
}

impl Incoming {
    fn next(&mut self, len: usize, shared: &Mutex<Shared>) -> Result<Vec<u8>, String> {
        while self.rest.is_empty() {
            let Some(pieces) = &self.pieces else { return Ok(Vec::new()) };
            match pieces.recv() {
                Ok(Piece::Bytes(bytes)) => self.rest = bytes,
                Ok(Piece::End(Ok(scanned))) => {
                    self.pieces = None;
                    lock(shared).add(*scanned, self.is_columns);
                }
                Ok(Piece::End(Err(error))) => {
                    self.pieces = None;
                    let told = error.to_string();
                    lock(shared).failed.get_or_insert(error);
                    return Err(told);
                }
                Err(_) => return Err("the scan of a file ended without an outcome".into()),
            }
        }
        let behind = self.rest.split_off(len.min(self.rest.len()));
        Ok(std::mem::replace(&mut self.rest, behind))
    }
}

impl Shared {
    /// Adds what the scan of a file came to. Of one for its columns only the bytes count.
    fn add(&mut self, one: Scanned, is_columns: bool) {
        let (all, report) = (&mut self.all, one.report);
        all.moved_bytes.0 += one.moved_bytes.0;
        all.moved_bytes.1 += one.moved_bytes.1;
        all.report.read_len += report.read_len;
        for answered in one.answered {
            if !all.answered.contains(&answered) {
                all.answered.push(answered);
            }
        }
        if is_columns {
            self.of_columns = report;
            return;
        }
        if all.files.here + all.files.at_server == 0 {
            (all.side, all.why, all.compression) = (one.side, one.why, one.compression);
        }
        all.files.here += one.files.here;
        all.files.at_server += one.files.at_server;
        all.report.row_groups += report.row_groups;
        all.report.pruned += report.pruned;
        all.report.pruned_by_dictionaries += report.pruned_by_dictionaries;
        all.report.rows_read += report.rows_read;
        all.report.rows_selected += report.rows_selected;
        all.report.needed_len += report.needed_len;
        all.report.needed_len_of_all += report.needed_len_of_all;
        all.report.file_len += report.file_len;
    }
}

impl Sources {
    fn count(&self) -> usize {
        match self {
            Self::Files(_, files) => files.len(),
            Self::BothSides(_) => Side::ALL.len(),
        }
    }

    /// Scans one of them. It has to be the version that was asked for its columns.
    fn scan(
        &self,
        index: usize,
        plan: &Plan,
        options: &ScanOptions,
        shared: &Mutex<Shared>,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        match self {
            Self::Files(session, files) => {
                let file = session.open_late(&files[index])?;
                let scanned = file.scan_version(index, plan, shared, || file.scan_of_several(plan, options, out))?;
                file.close_late();
                Ok(scanned)
            }
            Self::BothSides(both) => both.scan(index, plan, options, shared, out),
        }
    }
}

impl File {
    /// Runs a scan of the version that was asked for its columns, which is kept by a number.
    pub(super) fn scan_version(
        &self,
        number: usize,
        plan: &Plan,
        shared: &Mutex<Shared>,
        scan: impl FnOnce() -> Result<Scanned, SessionError>,
    ) -> Result<Scanned, SessionError> {
        if plan.limit == Some(0)
            && let Some(version) = self.version_now()?
        {
            lock(shared).versions.insert(number, version);
        }
        let scanned = scan();
        let before = lock(shared).versions.get(&number).copied();
        // One that failed may have met what came in its place.
        let after = match &scanned {
            Ok(_) if before.is_some() => self.version_now()?,
            // Its server may not answer any more.
            Err(SessionError::Cancelled(_)) => before,
            Err(_) if before.is_some() => self.version_now().unwrap_or(before),
            _ => before,
        };
        if after == before { scanned } else { Err(SessionError::Changed(self.inner.name.clone())) }
    }

    /// The version that it has now; `None`: nothing tells it from others, or it may be at several servers.
    fn version_now(&self) -> Result<Option<[u64; 7]>, SessionError> {
        let inner = &self.inner;
        match &inner.place {
            _ if self.copied.is_some() => Ok(None),
            Place::Local { path, .. } => {
                let found = std::fs::metadata(path);
                let found = found.map_err(|source| SessionError::Open { name: inner.name.clone(), source })?;
                let [len, times @ ..] = version(&found);
                let [a, b, c, d] = times;
                Ok(Some([len, a, b, c, d, found.dev(), found.ino()]))
            }
            Place::Export(_) => {
                let now = run_here(inner.place.now(&inner.session, &inner.name))?;
                Ok(now.version.map(|version| [now.len_bytes, version, 0, 0, 0, 0, 0]))
            }
            Place::Volume { .. } => Ok(None),
        }
    }
}

/// Hands on what a scan writes.
struct Pieces<'a>(&'a SyncSender<Piece>);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(Piece::Bytes(bytes.to_vec())).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
