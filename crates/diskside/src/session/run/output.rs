//! A function's output as a file of this machine: written by the target of a mounted volume where that can be.

use super::content::are_whole;
use super::device::{output_len_max, transform_mounted};
use super::group::check_chunks;
use super::job::Job;
use super::{Ran, RunOptions, Where};
use crate::location::Location;
use crate::session::Session;
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::mounted::{Mounted, is_telling};
use crate::session::open_mode::OpenMode;
use crate::session::place::{Now, Place};
use diskside_dispatch::{Decision, Plan, Reason as Why};
use diskside_engine::CallError;
use diskside_host::mounted::{
    MountedError, Pool, PoolLimits, PooledFile, RETURNED_LEN_MAX, Reason, Refusal, directory_of, nameless,
};
use diskside_io::request::run_here;
use diskside_io::unanswered;
use diskside_outfile::{Destination, OutFile};
use diskside_sbpf::image::Kind;
use diskside_sbpf::machine::CancelToken;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Longest file of this machine that is held in memory to be sent to a function at the target.
const SENT_LEN_MAX_BYTES: u64 = 1 << 30;

/// What the function runs over, if the volume's target can.
enum Sources<'a> {
    /// Files of the volume: nothing of them moves.
    Mounted(Vec<&'a Mounted>, u64),
    /// Bytes of a file elsewhere on this machine, to be sent.
    Sent(&'a Path, u64),
}

/// Why the output was not written at the volume.
enum Failure {
    /// It has to be written from here.
    Refused(Refusal),
    /// It would fail here as well.
    Session(SessionError),
}

/// A file whose disk is asked for each write.
struct Asking<'a> {
    file: &'a mut OutFile,
    is_disk: bool,
}

impl Write for Asking<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _asked = self.is_disk.then(|| unanswered::here().ask(Instant::now()));
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

impl Session {
    /// Runs a function over files and makes its output the file at `path`, as [`run_into_destination`] does.
    ///
    /// [`run_into_destination`]: Self::run_into_destination
    pub fn run_into_path(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        path: &Path,
    ) -> Result<Ran, SessionError> {
        let destination = Destination::find(path).map_err(SessionError::Output)?;
        self.run_into_destination(files, function, args, options, destination)
    }

    /// Runs a function over files and makes its output a file of this machine: a regular one appears whole or not at all, on
    /// stable media, and keeps the attributes of the one that it replaces; everything else gets the bytes as they come
    /// ([`outfile`](crate::outfile)).
    ///
    /// Where it is on a mounted volume, the files are on the same one, or one file's bytes are sent to a function of kind
    /// write, and the output may be long, the volume's target writes it: into a file of the [pool](Pool) next to it, which
    /// then takes its place. [`Where::Device`] makes such a pool and files of it; [`Where::Auto`] uses what is there.
    pub fn run_into_destination(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        destination: Destination,
    ) -> Result<Ran, SessionError> {
        let started = Instant::now();
        check_chunks(files, options)?;
        let pooled = match destination.replaceable() {
            Some(path) => self.run_into_pool(files, function, args, options, &path),
            None => Ok(None),
        };
        let refused = match pooled {
            Ok(Some(ran)) => return Ok(Ran { total: started.elapsed(), ..ran }),
            Ok(None) => None,
            Err(Failure::Session(error)) => return Err(error),
            Err(Failure::Refused(refusal)) => Some((destination.path().display().to_string(), refusal.to_string())),
        };
        // The output passes through this machine.
        let name = destination.path().display().to_string();
        let until = options.limits.deadline.map(|deadline| started + deadline);
        let cancel = options.limits.cancel.clone();
        let may_wait = move || match until {
            _ if cancel.as_ref().is_some_and(CancelToken::is_cancelled) => Err(ErrorKind::ConnectionAborted.into()),
            Some(until) if Instant::now() >= until => Err(ErrorKind::TimedOut.into()),
            _ => Ok(()),
        };
        let is_late = || until.is_some_and(|until| Instant::now() >= until);
        let failed = |error: std::io::Error| match error.kind() {
            _ if options.is_cancelled() => SessionError::Cancelled(name.clone()),
            ErrorKind::TimedOut if is_late() => SessionError::Unread(name.clone()),
            _ => SessionError::Output(error),
        };
        // A pipe waits for who reads it, and not for a disk.
        let is_disk = !destination.is_stream();
        let ask = || is_disk.then(|| unanswered::here().ask(Instant::now()));
        let asked = ask();
        let mut file = destination.begin_while(Box::new(may_wait)).map_err(failed)?;
        drop(asked);
        // The wait for who reads it took a part of the time.
        let mut options = options.clone();
        options.limits.deadline = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut out = Asking { file: &mut file, is_disk };
        let mut ran = self.run(files, function, args, &options, Some(&mut out)).map_err(|error| match error {
            SessionError::Call(CallError::Write(error)) if error.kind() == ErrorKind::TimedOut && is_late() => {
                SessionError::Unread(name.clone())
            }
            SessionError::Call(CallError::Write(_)) if options.is_cancelled() => SessionError::Cancelled(name.clone()),
            error => error,
        })?;
        let asked = ask();
        file.publish().map_err(SessionError::Output)?;
        drop(asked);
        ran.refusals.extend(refused);
        Ok(Ran { total: started.elapsed(), ..ran })
    }

    /// `None`: the volume has nothing to do with it.
    fn run_into_pool(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        path: &Path,
    ) -> Result<Option<Ran>, Failure> {
        // An unproved result is made once more; and a folded one is short.
        let is_folded = options.fold && function.combine().is_some();
        let is_here = |file: &File| matches!(file.inner.place, Place::Local { .. });
        if options.place == Where::Host
            || !function.is_pure()
            || is_folded
            || !files.iter().all(is_here)
            || !are_whole(files, options)?
        {
            return Ok(None);
        }
        let parent = directory_of(path);
        let counted = |refusal: Refusal| {
            self.mounted_counters().note_plain(refusal.reason);
            Failure::Refused(refusal)
        };
        let Some(volume) = self.volume_of(parent, options).map_err(counted)? else { return Ok(None) };
        let Some(sources) = Sources::of(self, files, function, &volume) else { return Ok(None) };
        let len_max = output_len_max(function, options, sources.len_bytes());
        if len_max <= RETURNED_LEN_MAX {
            return Ok(None);
        }
        let failed = |error| counted(Refusal::failed(&parent.display().to_string(), error));
        let (insists, limits) = (options.place == Where::Device, PoolLimits::default());
        let pool = if insists { Pool::open(parent, limits).map(Some) } else { Pool::open_if_there(parent, limits) };
        let Some(pool) = pool.map_err(failed)? else { return Ok(None) };
        let mut pooled = pool.take(len_max).map_err(failed)?;
        if pooled.is_none() && insists {
            pooled = pool.prepare(len_max).map_err(failed)?;
        }
        let Some(pooled) = pooled else {
            return Err(counted(Refusal::new(Reason::Pool, format!("{len_max} bytes"))));
        };
        // Dropped on an error, it is not used again before nobody can be writing it.
        let ran = self.run_into_pooled(&sources, function, args, options, &pooled, path)?;
        let len = ran.written_bytes;
        pooled.publish(len, path).map_err(failed)?;
        Ok(Some(ran))
    }

    fn run_into_pooled(
        &self,
        sources: &Sources<'_>,
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        pooled: &PooledFile<'_>,
        path: &Path,
    ) -> Result<Ran, Failure> {
        let [at, called] = [pooled.path(), path].map(|path| Location::Local(path.to_owned()));
        let file = File::open_called(self, &at, OpenMode::Write, &called)?;
        let sources = match sources {
            Sources::Sent(from, _) => {
                let bytes =
                    std::fs::read(from).map_err(|error| SessionError::file(&from.display().to_string(), error))?;
                return Ok(file.pwrite_fn(0, bytes, function, args, options).wait()?);
            }
            Sources::Mounted(sources, _) => sources,
        };
        let Some(Ok(mounted)) = file.inner.place.mounted(self) else {
            return Err(Refusal::from(Reason::UnknownDisk).into());
        };
        let program = Some(run_here(mounted.link.program(function))?);
        let now = Now { len_bytes: 0, version: None, keep: false };
        let decision = Decision::made(Plan::Device, Why::InPlace);
        let (mounted_at, reason) = (Some(mounted), Some(decision.reason));
        let job = Job { mounted: mounted_at, program, reason, ..Job::new(&file, now, function, args, options) };
        let done = match transform_mounted(&job, mounted, sources, pooled.len_bytes()) {
            Ok(done) => done,
            Err(MountedError::Plain(refusal) | MountedError::Undone(refusal)) => return Err(refusal.into()),
            Err(MountedError::Function(error)) => return Err(SessionError::device(&file.inner.name, error).into()),
            Err(MountedError::File(error)) => return Err(SessionError::file(&file.inner.name, error).into()),
            Err(error) => return Err(Refusal::failed(&file.inner.name, std::io::Error::other(error)).into()),
        };
        let written_bytes = done.result_bytes;
        Ok(Ran { written_bytes, ..job.gather(vec![done], Some(decision), true)? })
    }

    /// The volume that new files of a directory are on.
    fn volume_of(&self, directory: &Path, options: &RunOptions) -> Result<Option<Mounted>, Refusal> {
        // A directory that cannot have a new file says so when it is to have one.
        let Ok(file) = nameless(directory) else { return Ok(None) };
        match Mounted::find(self, Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), None) {
            Ok(volume) => Ok(Some(volume)),
            Err(refusal) if options.place == Where::Device && is_telling(&refusal) => Err(refusal),
            Err(_) => Ok(None),
        }
    }
}

impl<'a> Sources<'a> {
    fn of(session: &Session, files: &'a [File], function: &SessionFunction, volume: &Mounted) -> Option<Self> {
        let mounted = files.iter().map(|file| match file.inner.place.mounted(session)? {
            Ok(mounted) if Arc::ptr_eq(&mounted.link, &volume.link) => Some(mounted),
            _ => None,
        });
        if let Some(mounted) = mounted.collect::<Option<Vec<_>>>().filter(|mounted| !mounted.is_empty()) {
            let len = files.iter().map(|file| file.len_bytes().ok()).sum::<Option<u64>>()?;
            return Some(Self::Mounted(mounted, len));
        }
        match files {
            [only] if function.kind() == Kind::Write => {
                let Place::Local { path, .. } = &only.inner.place else { return None };
                let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
                (found.len() <= SENT_LEN_MAX_BYTES).then_some(Self::Sent(path, found.len()))
            }
            _ => None,
        }
    }

    fn len_bytes(&self) -> u64 {
        match self {
            Self::Mounted(_, len) | Self::Sent(_, len) => *len,
        }
    }
}
