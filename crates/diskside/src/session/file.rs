//! Files, wherever they are.

use super::Session;
use super::copied::{CopiedFile, CopiedVersion, VersionAt};
use super::copies::{CopySet, OneCopy};
use super::descriptor::Descriptor;
use super::error::SessionError;
use super::function::SessionFunction;
use super::link::Link;
use super::one_version::{OneVersion, Reopened};
use super::open_mode::OpenMode;
use super::pending::Pending;
use super::place::{Place, Remote, is_stale_handle};
use super::run::{self, InputPart, Ran, RunOptions};
use super::tries::{OfCopies, Tries};
use crate::location::{ExportUrl, Location, LocationError};
use diskside_dispatch::PairId;
use diskside_host::function::{FunctionError, RemoteFile};
use diskside_host::{drive, own_thread};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, RequestFuture, run_here};
use diskside_wire::function::Endpoint;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, RangeBounds};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

/// A path here, a file of an export, or a volume. Clones refer to the same open file.
#[derive(Clone, Debug)]
pub struct File {
    pub(super) inner: Arc<FileInner>,
    /// Where its URL names several servers: how it is opened at another one.
    pub(super) copied: Option<Arc<CopiedFile>>,
}

#[derive(Debug)]
pub(super) struct FileInner {
    pub(super) session: Session,
    pub(super) location: Location,
    pub(super) name: String,
    /// The same for the same location, in this session and any other.
    pub(super) id: u64,
    pub(super) place: Place,
}

impl File {
    pub(super) fn open(session: &Session, location: &Location, mode: OpenMode) -> Result<Self, SessionError> {
        Self::open_called(session, location, mode, location)
    }

    /// A file that is going to be `called`: messages and measurements are of that one.
    pub(super) fn open_called(
        session: &Session,
        location: &Location,
        mode: OpenMode,
        called: &Location,
    ) -> Result<Self, SessionError> {
        if let Some(url) = copied_url(location) {
            refuse_write(mode.writes(), url)?;
            return Self::open_copy(session, url, false);
        }
        Ok(Self::of(session, location, called, Place::open(session, location, mode)?))
    }

    pub(super) fn of_descriptor(
        session: &Session,
        descriptor: BorrowedFd<'_>,
        mode: OpenMode,
    ) -> Result<Self, SessionError> {
        let number = descriptor.as_raw_fd();
        let wanted = if mode.writes() { "writing at positions" } else { "reading at positions" };
        let failed = |source| SessionError::Open { name: format!("descriptor {number} for {wanted}"), source };
        let open = descriptor.try_clone_to_owned().map_err(failed)?;
        let descriptor = Descriptor::new(open, mode).map_err(failed)?;
        let (called, id) = (Location::Local(descriptor.name()), descriptor.file_id().map_err(failed)?);
        let mut file = Self::of(session, &called, &called, Place::of_descriptor(descriptor, mode));
        Arc::get_mut(&mut file.inner).expect("nobody else has it yet").id = id;
        Ok(file)
    }

    /// A file to be read; one of an export is opened when it is used.
    pub(super) fn late(session: &Session, location: &Location) -> Result<Self, SessionError> {
        match location {
            Location::Export(url) if url.has_copies() => Self::open_copy(session, url, true),
            Location::Export(url) => Self::of_copy(session, &session.link(&url.target())?, url, true),
            _ => Self::open(session, location, OpenMode::Read),
        }
    }

    /// A file to be read at any of several servers.
    fn open_copy(session: &Session, url: &ExportUrl, late: bool) -> Result<Self, SessionError> {
        let copied = Arc::new(CopiedFile::new(session, url, late));
        Tries::default().open_first(&copied.set, |copy| copied.open_at(copy))
    }

    /// A file to be read at the server of a connection.
    pub(super) fn of_copy(
        session: &Session,
        link: &Arc<Link>,
        url: &ExportUrl,
        late: bool,
    ) -> Result<Self, SessionError> {
        let (location, link) = (Location::Export(url.clone()), Arc::clone(link));
        let remote = if late { Remote::late(link, url)? } else { Remote::open(link, url, OpenMode::Read)? };
        Ok(Self::of(session, &location, &location, Place::Export(remote)))
    }

    /// A new file of an export, which has no name until it is published.
    pub(super) fn create_unnamed(session: &Session, url: &ExportUrl) -> Result<Self, SessionError> {
        refuse_write(true, url)?;
        let location = Location::Export(url.clone());
        Ok(Self::of(session, &location, &location, Place::Export(Remote::create_unnamed(session, url)?)))
    }

    fn of(session: &Session, location: &Location, called: &Location, place: Place) -> Self {
        let name = called.to_string();
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let (session, location, id) = (session.clone(), location.clone(), hasher.finish());
        Self { inner: Arc::new(FileInner { session, location, name, id, place }), copied: None }
    }

    /// Closes a file that was opened to be used once.
    pub(super) fn close_late(&self) {
        if let Place::Export(remote) = &self.inner.place {
            remote.close();
        }
    }

    /// What it was opened by.
    #[must_use]
    pub fn location(&self) -> &Location {
        self.copied.as_ref().map_or(&self.inner.location, |copied| &copied.location)
    }

    /// Whether its URL names several servers: then it is read at another one when one vanishes.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        self.copied.is_some()
    }

    /// Its present length.
    pub fn len_bytes(&self) -> Result<u64, SessionError> {
        self.at_copies(|inner| Ok(run_here(inner.place.now(&inner.session, &inner.name))?.len_bytes))
    }

    /// How it is read and written by position, without the session's cache.
    pub fn io(&self) -> Result<Arc<dyn AsyncIo>, SessionError> {
        match &self.copied {
            None => self.inner.io(),
            Some(_) => self.version_io().map(|(io, _)| io),
        }
    }

    /// Does `work` with one version of the file: how it is read by position, and its length. If the server of several vanishes
    /// meanwhile, that is done again with the copy at another one, from its beginning.
    ///
    /// # Errors
    /// The outer one: no version can be read. The inner one is that of `work`.
    pub fn with_version<T, E>(
        &self,
        mut work: impl FnMut(&Arc<dyn AsyncIo>, u64) -> Result<T, E>,
    ) -> Result<Result<T, E>, SessionError>
    where
        E: std::fmt::Display,
    {
        let mut tries = Tries::default();
        loop {
            let file = run_here(tries.file(self))?;
            let failed = match file.version_of_copy() {
                Ok((io, now)) => match work(&io, now.len_bytes) {
                    // The error of the work says where it failed, and only the link whether its server vanished.
                    Err(error) if self.copied.is_some() && file.inner.has_lost_link() => {
                        let why = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, error.to_string());
                        SessionError::File { name: file.inner.name.clone(), source: why }
                    }
                    done => return Ok(done),
                },
                Err(error) => error,
            };
            tries.go_on(&[file], failed)?;
        }
    }

    /// Does `work` with the file, and with the copy at another server if one vanishes.
    fn at_copies<T>(&self, work: impl Fn(&Arc<FileInner>) -> Result<T, SessionError>) -> Result<T, SessionError> {
        if self.copied.is_none() {
            return work(&self.inner);
        }
        let mut tries = Tries::default();
        loop {
            let file = run_here(tries.file(self))?;
            match work(&file.inner) {
                Ok(done) => return Ok(done),
                Err(error) => tries.go_on(&[file], error)?,
            }
        }
    }

    /// How the version that it has now is read by position, and its length. If the target of an export is restarted
    /// meanwhile, reads continue; if the file is another one then, they fail. If the server of several vanishes, reads continue
    /// in the copy at another one that has the same length and the same time of its last change; with another copy they fail.
    pub fn version_io(&self) -> Result<(Arc<dyn AsyncIo>, u64), SessionError> {
        let Some(copied) = &self.copied else { return self.version_of_copy().map(|(io, now)| (io, now.len_bytes)) };
        let (at, len_bytes) = self.version_at(copied)?;
        Ok((Arc::new(CopiedVersion::new(self.clone(), at, len_bytes)), len_bytes))
    }

    /// How one version of it is read at a server that answers now, if that copy looks like the one that was read before.
    pub(super) fn version_at(&self, copied: &CopiedFile) -> Result<(VersionAt, u64), SessionError> {
        let mut tries = Tries::default();
        loop {
            let file = run_here(tries.file(self))?;
            let checked = file.version_of_copy().and_then(|found| copied.check_read(&file.inner).map(|()| found));
            match checked {
                Ok((io, now)) => return Ok((VersionAt { io, inner: file.inner }, now.len_bytes)),
                Err(error) => tries.go_on(&[file], error)?,
            }
        }
    }

    pub(super) fn version_of_copy(&self) -> Result<(Arc<dyn AsyncIo>, super::place::Now), SessionError> {
        let now = run_here(self.inner.place.now(&self.inner.session, &self.inner.name))?;
        let io: Arc<dyn AsyncIo> = match now.version {
            Some(version) => Arc::new(OneVersion::new(Arc::clone(&self.inner) as _, version, now.len_bytes)),
            None => self.inner.io()?,
        };
        Ok((io, now))
    }

    /// Reads up to `len` bytes; fewer only at the end. A file of an export goes through the session's cache; if its
    /// server is lost meanwhile, it is read once more when that is back, as long as the file is the same version.
    ///
    /// A file whose URL names several servers is read from another copy when a server vanishes, if that has the same length and
    /// the same time of its last change; other copies are an error.
    pub fn pread(&self, offset: u64, len: usize) -> Pending<Buffer> {
        let Some(copied) = self.copied.clone() else {
            let this = Arc::clone(&self.inner);
            return Pending::of(drive(async move { this.read_on(offset, len).await }));
        };
        let this = self.clone();
        Pending::of(drive(async move {
            // Finding a server may take long; one that is connected is asked at once.
            if let Some(File { inner, .. }) = copied.last().filter(|file| !file.inner.has_lost_link())
                && let Ok(bytes) = Arc::clone(&inner).read(offset, len).await
                && copied.check_read(&inner).is_ok()
            {
                return Ok(bytes);
            }
            own_thread().await;
            this.at_copies(|inner| {
                let bytes = run_here(inner.read(offset, len))?;
                copied.check_read(inner).map(|()| bytes)
            })
        }))
    }

    /// Writes all bytes of the buffer, with `durable` onto stable media. Returns their number.
    pub fn pwrite(&self, offset: u64, bytes: impl Into<Buffer>, durable: bool) -> Pending<u64> {
        let (this, buffer) = (Arc::clone(&self.inner), bytes.into());
        let allowed = self.check_writable();
        Pending::of(drive(async move {
            allowed?;
            let outcome = this.write(offset, buffer, durable).await?;
            outcome.into_result().map_err(|error| SessionError::file(&this.name, this.place.in_words_of_target(error)))
        }))
    }

    /// Makes durable what was written before.
    pub fn sync(&self) -> Pending<()> {
        let this = Arc::clone(&self.inner);
        Pending::of(drive(async move {
            let outcome = this.flush().await?;
            outcome.into_result().map(drop).map_err(|error| SessionError::file(&this.name, error))
        }))
    }

    /// Makes it `len` bytes long.
    pub fn truncate(&self, len: u64) -> Result<(), SessionError> {
        self.check_writable()?;
        let name = &self.inner.name;
        match &self.inner.place {
            Place::Local { path, descriptor, .. } => match descriptor {
                Some(descriptor) => descriptor.duplicate(),
                None => std::fs::OpenOptions::new().write(true).open(path),
            }
            .and_then(|file| file.set_len(len))
            .map_err(|error| SessionError::file(name, error)),
            Place::Export(remote) => {
                let truncated = match remote.file().and_then(|file| file.truncate(len)) {
                    Err(error) if is_stale_handle(&error) => {
                        run_here(remote.reopen()).and_then(|file| file.truncate(len))
                    }
                    truncated => truncated,
                };
                truncated.map_err(|error| SessionError::device(name, error))
            }
            Place::Volume { .. } => {
                Err(SessionError::Unsupported { name: name.clone(), why: "a volume keeps its length" })
            }
        }
    }

    /// Runs a function over a range and gives its result: the data stays where it is unless the host is faster.
    ///
    /// `args` are the bytes of its argument structure; see [`args::encode`](crate::args::encode). Dropping the request
    /// cancels it: see [`Pending`].
    pub fn pread_fn(
        &self,
        range: impl RangeBounds<u64>,
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
    ) -> Pending<Ran> {
        let (start, end) = range_of(range);
        let part = InputPart { start, end };
        let (this, function, args) = (self.clone(), function.clone(), args.to_vec());
        Pending::run(
            options,
            move |options| async move { run::read_copy(&this, part, &function, &args, &options).await },
        )
    }

    /// [`pread_fn`](Self::pread_fn) over the whole file.
    pub fn fold_fn(&self, function: &SessionFunction, args: &[u8], options: &RunOptions) -> Pending<Ran> {
        self.pread_fn(.., function, args, options)
    }

    /// Runs a function over `input` and writes its output at `offset`: only the input travels, unless the host is
    /// faster. [`Ran::written_bytes`] is the output's length. If the request was cancelled, some may be written, as
    /// with any write that fails.
    pub fn pwrite_fn(
        &self,
        offset: u64,
        input: impl Into<Buffer>,
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
    ) -> Pending<Ran> {
        let (this, input) = (self.clone(), input.into());
        let (function, args) = (function.clone(), args.to_vec());
        if let Err(error) = self.check_writable() {
            return Pending::of(drive(async move { Err(error) }));
        }
        Pending::run(options, move |options| async move {
            run::write(&this, offset, &input, &function, &args, &options).await
        })
    }

    /// It as a source or sink of a function at its target.
    pub(super) async fn endpoint(&self, offset: u64, len: u64) -> Result<Endpoint, SessionError> {
        let endpoint = self.inner.place.endpoint(offset, len).await;
        let why = "it is closed, or not there any more";
        endpoint.ok_or_else(|| SessionError::Unsupported { name: self.inner.name.clone(), why })
    }

    pub(super) fn check_writable(&self) -> Result<(), SessionError> {
        copied_url(self.location()).map_or(Ok(()), |url| refuse_write(true, url))
    }

    pub(super) fn pair(&self, function: &SessionFunction) -> PairId {
        let mut hasher = DefaultHasher::new();
        (function.hash(), function.name()).hash(&mut hasher);
        PairId { file: self.inner.id, function: hasher.finish() }
    }
}

/// The URL of a place, if it names several servers.
fn copied_url(location: &Location) -> Option<&ExportUrl> {
    match location {
        Location::Export(url) if url.has_copies() => Some(url),
        _ => None,
    }
}

/// Copies are only read: a change of one would make it another file than the rest.
pub(super) fn refuse_write(writes: bool, url: &ExportUrl) -> Result<(), SessionError> {
    if writes && url.has_copies() { Err(LocationError::Copies(url.to_string()).into()) } else { Ok(()) }
}

/// Where a range begins and ends; `None` at the end of the file.
pub(super) fn range_of(range: impl RangeBounds<u64>) -> (u64, Option<u64>) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => Some(end.saturating_add(1)),
        Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => None,
    };
    (start, end)
}

impl Reopened for FileInner {
    fn handle(self: Arc<Self>) -> RequestFuture<Result<RemoteFile, FunctionError>> {
        drive(async move { self.remote().file_soon().await })
    }

    fn version(self: Arc<Self>) -> RequestFuture<Result<Option<u64>, FunctionError>> {
        drive(async move { Ok(self.remote().refresh().await?.version) })
    }
}

impl OfCopies for File {
    fn set(&self) -> Option<&Arc<CopySet>> {
        Some(&self.copied.as_ref()?.set)
    }

    fn link(&self) -> Option<&Arc<Link>> {
        self.inner.place.link()
    }

    fn ready(&self) -> Option<(Self, Option<OneCopy>)> {
        let Some(copied) = &self.copied else { return Some((self.clone(), None)) };
        let copy = copied.set.uses()?;
        Some((copied.known_at(&copy)?, Some(copy)))
    }

    fn at(&self, copy: &OneCopy) -> Result<Self, SessionError> {
        match &self.copied {
            None => Ok(self.clone()),
            Some(copied) => copied.open_at(copy),
        }
    }
}

impl FileInner {
    fn remote(&self) -> &Remote {
        match &self.place {
            Place::Export(remote) => remote,
            Place::Local { .. } | Place::Volume { .. } => unreachable!("only files of exports have versions"),
        }
    }
}
