//! Files, wherever they are.

use super::Session;
use super::descriptor::Descriptor;
use super::error::SessionError;
use super::function::SessionFunction;
use super::one_version::{OneVersion, Reopened};
use super::pending::Pending;
use super::place::{Place, Remote};
use super::run::{self, Input, InputPart, Ran, RunOptions};
use crate::location::{ExportUrl, Location};
use diskside_dispatch::PairId;
use diskside_host::drive;
use diskside_host::function::{FunctionError, RemoteFile};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Request, RequestFuture};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, RangeBounds};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading.
    Read,
    /// Reading and writing; it must be there.
    Write,
    /// Reading and writing; it is made if it is not there.
    Create,
}

impl OpenMode {
    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// A path here, a file of an export, or a volume. Clones refer to the same open file.
#[derive(Clone, Debug)]
pub struct File {
    pub(super) inner: Arc<FileInner>,
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

    /// A file that is going to be `called`: what is told and learnt of it is of that one.
    pub(super) fn open_called(
        session: &Session,
        location: &Location,
        mode: OpenMode,
        called: &Location,
    ) -> Result<Self, SessionError> {
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
            Location::Export(url) => {
                Ok(Self::of(session, location, location, Place::Export(Remote::late(session, url)?)))
            }
            _ => Self::open(session, location, OpenMode::Read),
        }
    }

    /// A new file of an export, which has no name until it is published.
    pub(super) fn create_unnamed(session: &Session, url: &ExportUrl) -> Result<Self, SessionError> {
        let location = Location::Export(url.clone());
        Ok(Self::of(session, &location, &location, Place::Export(Remote::create_unnamed(session, url)?)))
    }

    fn of(session: &Session, location: &Location, called: &Location, place: Place) -> Self {
        let name = called.to_string();
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let (session, location, id) = (session.clone(), location.clone(), hasher.finish());
        Self { inner: Arc::new(FileInner { session, location, name, id, place }) }
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
        &self.inner.location
    }

    /// Its present length.
    pub fn len_bytes(&self) -> Result<u64, SessionError> {
        Ok(self.inner.place.now(&self.inner.session, &self.inner.name)?.len_bytes)
    }

    /// How it is read and written by position, without the session's cache.
    pub fn io(&self) -> Result<Arc<dyn AsyncIo>, SessionError> {
        self.inner.io()
    }

    /// How the version that it has now is read by position, and its length. If the target of an export is started anew
    /// meanwhile, reads go on; if the file is another one then, they fail.
    pub fn version_io(&self) -> Result<(Arc<dyn AsyncIo>, u64), SessionError> {
        self.version_now().map(|(io, now)| (io, now.len_bytes))
    }

    pub(super) fn version_now(&self) -> Result<(Arc<dyn AsyncIo>, super::place::Now), SessionError> {
        let now = self.inner.place.now(&self.inner.session, &self.inner.name)?;
        let io: Arc<dyn AsyncIo> = match now.version {
            Some(version) => Arc::new(OneVersion::new(Arc::clone(&self.inner) as _, version, now.len_bytes)),
            None => self.io()?,
        };
        Ok((io, now))
    }

    /// Reads up to `len` bytes; fewer only at the end. Of an export's file through the session's cache.
    pub fn pread(&self, offset: u64, len: usize) -> Pending<Buffer> {
        let this = Arc::clone(&self.inner);
        Pending::of(drive(async move {
            match &this.place {
                Place::Export(remote) => this.read_export(remote, offset, len).await,
                _ => this.read_blocks(offset, len).await,
            }
        }))
    }

    /// Writes all bytes of the buffer, with `durable` onto stable media. Returns their number.
    pub fn pwrite(&self, offset: u64, bytes: impl Into<Buffer>, durable: bool) -> Pending<u64> {
        let (this, buffer) = (Arc::clone(&self.inner), bytes.into());
        Pending::of(drive(async move {
            let outcome = this.io()?.submit(Request::Write { offset, buffer, durable }).await;
            outcome.into_result().map_err(|error| SessionError::file(&this.name, this.place.in_words_of_target(error)))
        }))
    }

    /// Makes durable what was written before.
    pub fn sync(&self) -> Pending<()> {
        let this = Arc::clone(&self.inner);
        Pending::of(drive(async move {
            let outcome = this.io()?.submit(Request::Flush).await;
            outcome.into_result().map(drop).map_err(|error| SessionError::file(&this.name, error))
        }))
    }

    /// Makes it `len` bytes long.
    pub fn truncate(&self, len: u64) -> Result<(), SessionError> {
        let name = &self.inner.name;
        match &self.inner.place {
            Place::Local { path, descriptor, .. } => match descriptor {
                Some(descriptor) => descriptor.duplicate(),
                None => std::fs::OpenOptions::new().write(true).open(path),
            }
            .and_then(|file| file.set_len(len))
            .map_err(|error| SessionError::file(name, error)),
            Place::Export(remote) => {
                remote.file().and_then(|file| file.truncate(len)).map_err(|error| SessionError::device(name, error))
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
        let input = Input { file: self.clone(), part: InputPart { start, end }, source_index: 0, frames: false };
        let (function, args) = (function.clone(), args.to_vec());
        Pending::run(options, move |options| run::read(&input, &function, &args, options, None))
    }

    /// [`pread_fn`](Self::pread_fn) over the whole file.
    pub fn fold_fn(&self, function: &SessionFunction, args: &[u8], options: &RunOptions) -> Pending<Ran> {
        self.pread_fn(.., function, args, options)
    }

    /// Runs a function over `input` and writes its output at `offset`: only the input travels, unless the host
    /// is faster. [`Ran::written_bytes`] is the output's length. Of a request that was cancelled, as of any write that
    /// fails, some may be written.
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
        Pending::run(options, move |options| run::write(&this, offset, &input, &function, &args, options))
    }

    pub(super) fn pair(&self, function: &SessionFunction) -> PairId {
        let mut hasher = DefaultHasher::new();
        (function.hash(), function.name()).hash(&mut hasher);
        PairId { file: self.inner.id, function: hasher.finish() }
    }
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

impl FileInner {
    fn remote(&self) -> &Remote {
        match &self.place {
            Place::Export(remote) => remote,
            Place::Local { .. } | Place::Volume { .. } => unreachable!("only files of exports have versions"),
        }
    }

    pub(super) fn io(&self) -> Result<Arc<dyn AsyncIo>, SessionError> {
        self.place.io(&self.session).map_err(|source| SessionError::Open { name: self.name.clone(), source })
    }

    async fn read_export(&self, remote: &Remote, offset: u64, len: usize) -> Result<Buffer, SessionError> {
        let now = remote.refresh().await.map_err(|error| SessionError::device(&self.name, error))?;
        let len = now.len_bytes.saturating_sub(offset).min(len as u64) as usize;
        let mut buffer = Buffer::zeroed(len);
        let failed = |error| SessionError::device(&self.name, error);
        let file = remote.cached(&self.session, self.id, &now).map_err(failed)?;
        file.read(offset, &mut buffer).await.map_err(|error| {
            let error = match error {
                diskside_io::readahead::ReadAtError::Io(error) => error,
                diskside_io::readahead::ReadAtError::Changed(how) => {
                    std::io::Error::other(format!("it changed while it was read: {how}"))
                }
                other => std::io::Error::other(other),
            };
            SessionError::file(&self.name, error)
        })?;
        Ok(buffer)
    }

    /// Whole blocks are read; what was not asked for is cut off.
    async fn read_blocks(&self, offset: u64, len: usize) -> Result<Buffer, SessionError> {
        let io = self.io()?;
        let align = u64::from(io.alignment_bytes().max(1));
        let start = offset / align * align;
        let end = (offset + len as u64).next_multiple_of(align);
        let buffer = Buffer::zeroed((end - start) as usize);
        let read = io.submit(Request::Read { offset: start, buffer }).await.into_read();
        let mut read = read.map_err(|error| SessionError::file(&self.name, error))?;
        let skip = ((offset - start) as usize).min(read.len());
        let have = (read.len() - skip).min(len);
        if skip > 0 {
            read.copy_within(skip..skip + have, 0);
        }
        read.set_len(have);
        Ok(read)
    }
}
