//! Where the bytes of a file are, and how they are reached.

use super::Session;
use super::cache::CachedFile;
use super::descriptor::Descriptor;
use super::error::SessionError;
use super::link::Link;
use super::mounted::Mounted;
use super::open_mode::OpenMode;
use crate::location::{ExportUrl, Location, LocationError};
use diskside_host::Volume;
use diskside_host::function::{FileInfo, Files, FunctionError, RemoteFile};
use diskside_host::mounted::Refusal;
use diskside_io::instance::LocalFile;
use diskside_io::request::{AsyncIo, RequestFuture, run_here};
use diskside_wire::file::FileFlags;
use diskside_wire::function::{Endpoint, EndpointKind};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

#[derive(Debug)]
pub(super) enum Place {
    /// Opened when it is first read or written by position: the engine opens what it runs over itself.
    Local {
        path: PathBuf,
        mode: OpenMode,
        /// The file that the caller has opened: then the path means that.
        descriptor: Option<Arc<Descriptor>>,
        file: OnceLock<LocalFile>,
        /// Whether it is on a volume that is mounted, looked for when a function is first to run over it.
        mounted: OnceLock<Result<Mounted, Refusal>>,
    },
    Export(Remote),
    Volume {
        link: Arc<Link>,
        volume: Volume,
    },
}

/// A file of an export. It may be opened only when it is used; its handle is obtained again when the target has forgotten it.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) link: Arc<Link>,
    files: Files,
    path: Vec<u8>,
    flags: FileFlags,
    /// Whether it has a name to be opened by again.
    named: bool,
    open: Mutex<Option<RemoteFile>>,
    /// Opened when it is used, and perhaps closed after that: a target keeps no more than some handles of a host.
    late: bool,
    /// As the target said last.
    seen: Mutex<Option<Now>>,
}

/// What is known of a file now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) len_bytes: u64,
    /// For a file of an export.
    pub(super) version: Option<u64>,
    /// Whether what is kept of this version may be used.
    pub(super) keep: bool,
}

impl Place {
    /// The error of a write, in the words of a target that refuses the write.
    pub(super) fn in_words_of_target(&self, error: io::Error) -> io::Error {
        let told = match self {
            Self::Export(remote) => remote.opened().and_then(|file| file.refusal()),
            _ => None,
        };
        match told {
            Some(told) => io::Error::new(error.kind(), told),
            None => error,
        }
    }

    pub(super) fn open(session: &Session, location: &Location, mode: OpenMode) -> Result<Self, SessionError> {
        match location {
            Location::Local(path) => {
                let name = || path.display().to_string();
                let place = Self::local(path.clone(), mode, None);
                match std::fs::metadata(path) {
                    Err(_) if mode == OpenMode::Create => place.io(session).map(drop),
                    found => found.map(drop),
                }
                .map_err(|source| SessionError::Open { name: name(), source })?;
                Ok(place)
            }
            Location::Volume(url) => {
                let link = session.link(url)?;
                let failed = |source| SessionError::Target { target: url.to_string(), source };
                let missing = "a volume's URL ends with its number: nvme-tcp://HOST[:PORT]/NQN/NSID";
                let nsid = url.nsid.ok_or(SessionError::Unsupported { name: url.to_string(), why: missing })?;
                let volume = link.connection.volume(nsid).map_err(failed)?;
                Ok(Self::Volume { link, volume })
            }
            Location::Export(url) => Ok(Self::Export(Remote::open(session.link(&url.one_target()?)?, url, mode)?)),
        }
    }

    pub(super) fn of_descriptor(descriptor: Descriptor, mode: OpenMode) -> Self {
        Self::local(descriptor.path(), mode, Some(Arc::new(descriptor)))
    }

    fn local(path: PathBuf, mode: OpenMode, descriptor: Option<Arc<Descriptor>>) -> Self {
        Self::Local { path, mode, descriptor, file: OnceLock::new(), mounted: OnceLock::new() }
    }

    /// How it is read and written.
    pub(super) fn io(&self, session: &Session) -> io::Result<Arc<dyn AsyncIo>> {
        Ok(match self {
            Self::Local { path, mode, descriptor, file, .. } => Arc::new(match file.get() {
                Some(file) => file.clone(),
                None => {
                    let opened = match descriptor {
                        Some(descriptor) => descriptor.duplicate()?,
                        None => {
                            let mut options = std::fs::OpenOptions::new();
                            options.read(true).write(mode.writes()).create(*mode == OpenMode::Create);
                            options.open(path)?
                        }
                    };
                    let opened = session.instances()?.file(opened)?;
                    file.get_or_init(|| opened).clone()
                }
            }),
            Self::Export(remote) => Arc::new(remote.file().map_err(io::Error::from)?),
            Self::Volume { volume, .. } => Arc::new(volume.clone()),
        })
    }

    /// For a local file: the volume that it is on, or why functions cannot run over it there.
    pub(super) fn mounted(&self, session: &Session) -> Option<Result<&Mounted, &Refusal>> {
        let Self::Local { path, descriptor, mounted, .. } = self else { return None };
        Some(mounted.get_or_init(|| Mounted::find(session, path, descriptor.as_ref())).as_ref())
    }

    /// Also that of a mounted volume, if it was found.
    pub(super) fn link_known(&self) -> Option<&Arc<Link>> {
        match self {
            Self::Local { mounted, .. } => Some(&mounted.get()?.as_ref().ok()?.link),
            _ => self.link(),
        }
    }

    /// The target, if it is not here.
    pub(super) fn link(&self) -> Option<&Arc<Link>> {
        match self {
            Self::Local { .. } => None,
            Self::Export(remote) => Some(&remote.link),
            Self::Volume { link, .. } => Some(link),
        }
    }

    /// Asks what the file is now.
    pub(super) async fn now(&self, session: &Session, name: &str) -> Result<Now, SessionError> {
        use std::os::unix::fs::FileTypeExt as _;
        match self {
            Self::Local { path, .. } => {
                let found = std::fs::metadata(path).and_then(|found| match found.file_type().is_block_device() {
                    true => self.io(session)?.len_bytes(),
                    false => Ok(found.len()),
                });
                let len_bytes = found.map_err(|source| SessionError::Open { name: name.to_owned(), source })?;
                Ok(Now { len_bytes, version: None, keep: false })
            }
            Self::Volume { volume, .. } => {
                let len_bytes = volume.len_bytes().map_err(|error| SessionError::file(name, error))?;
                Ok(Now { len_bytes, version: None, keep: false })
            }
            Self::Export(remote) => remote.refresh().await.map_err(|error| SessionError::device(name, error)),
        }
    }

    /// For a file whose target cannot be reached: what it was when that was asked last.
    pub(super) fn seen_before_loss(&self) -> Option<Now> {
        match self {
            Self::Export(remote) if remote.link.is_lost() => {
                *remote.seen.lock().unwrap_or_else(PoisonError::into_inner)
            }
            _ => None,
        }
    }

    /// As a source or sink of a function at the target.
    pub(super) async fn endpoint(&self, offset: u64, len: u64) -> Option<Endpoint> {
        match self {
            Self::Local { .. } => None,
            Self::Volume { volume, .. } => Some(Endpoint::new(EndpointKind::Volume(volume.nsid()), offset, len)),
            Self::Export(remote) => Some(remote.file_soon().await.ok()?.endpoint(offset, len)),
        }
    }
}

impl Remote {
    pub(super) fn open(link: Arc<Link>, url: &ExportUrl, mode: OpenMode) -> Result<Self, SessionError> {
        if !url.path.contains(&b'/') {
            return Err(LocationError::NoFile(url.to_string()).into());
        }
        let files = link.files()?;
        let path = url.path.clone();
        let flags = if mode.writes() { FileFlags::READ | FileFlags::WRITE } else { FileFlags::READ };
        let started = Instant::now();
        let opened =
            if mode == OpenMode::Create { files.create(&path, 0o666, flags) } else { files.open(&path, flags) };
        let open = opened.map_err(|error| SessionError::device(&url.to_string(), error))?;
        link.note_round_trip(started.elapsed());
        let open = Mutex::new(Some(open));
        Ok(Self { link, files, path, flags, named: true, open, late: false, seen: Mutex::default() })
    }

    /// A file to be read that is opened when it is used. Whether it is there is known then.
    pub(super) fn late(link: Arc<Link>, url: &ExportUrl) -> Result<Self, SessionError> {
        let path = url.path.clone();
        let (files, open, seen) = (link.files()?, Mutex::default(), Mutex::default());
        Ok(Self { link, files, path, flags: FileFlags::READ, named: true, open, late: true, seen })
    }

    /// A new file that has no name until it is published.
    pub(super) fn create_unnamed(session: &Session, url: &ExportUrl) -> Result<Self, SessionError> {
        let link = session.link(&url.one_target()?)?;
        let path = url.path.clone();
        let files = link.files()?;
        let open = files.create_unnamed(&path, 0o666);
        let open = Mutex::new(Some(open.map_err(|error| SessionError::device(&url.to_string(), error))?));
        let flags = FileFlags::READ_WRITE;
        Ok(Self { link, files, path, flags, named: false, open, late: false, seen: Mutex::default() })
    }

    /// Its path, from the export's name on.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Opens it if it is not open.
    pub(super) fn file(&self) -> Result<RemoteFile, FunctionError> {
        match self.opened() {
            Some(file) => Ok(file),
            None => run_here(self.open_first()),
        }
    }

    /// As [`file`](Self::file), without waiting.
    pub(super) async fn file_soon(&self) -> Result<RemoteFile, FunctionError> {
        match self.opened() {
            Some(file) => Ok(file),
            None => self.open_first().await,
        }
    }

    fn opened(&self) -> Option<RemoteFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is to be opened when it is used, and is not yet.
    pub(super) fn is_late_and_closed(&self) -> bool {
        self.late && self.opened().is_none()
    }

    /// Closes it if it was opened only to be used now.
    pub(super) fn close(&self) {
        if self.late {
            *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Opens it, unless another thread has opened it meanwhile: a call may have that handle, which would be closed if this one took
    /// its place.
    async fn open_first(&self) -> Result<RemoteFile, FunctionError> {
        if !self.named {
            return self.reopen().await;
        }
        let file = self.files.lookup(&self.path, self.flags).await?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = open.get_or_insert_with(|| file.clone()).clone();
        // Closing the other one takes a request, for which nobody needs to wait.
        drop(open);
        Ok(kept)
    }

    /// Opens it, again after the target has forgotten its handle.
    pub(super) async fn reopen(&self) -> Result<RemoteFile, FunctionError> {
        if !self.named {
            // What has the name is another file.
            return Err(FunctionError::GoneUnnamed { path: String::from_utf8_lossy(&self.path).into_owned() });
        }
        let file = self.files.lookup(&self.path, self.flags).await?;
        if let Some(before) = self.opened() {
            file.succeeds(&before);
        }
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(file.clone());
        Ok(file)
    }

    /// The metadata of the file that has its path now, which is not opened for that.
    pub(super) fn info(&self) -> RequestFuture<Result<FileInfo, FunctionError>> {
        self.files.info(&self.path)
    }

    pub(super) async fn refresh(&self) -> Result<Now, FunctionError> {
        let started = Instant::now();
        let info = match self.opened() {
            None => self.open_first().await?.info(),
            Some(file) => match file.stat().await {
                Err(error) if is_stale_handle(&error) => self.reopen().await?.info(),
                other => other?,
            },
        };
        self.link.note_round_trip(started.elapsed());
        let now = Now { len_bytes: info.len_bytes, version: Some(info.version), keep: !info.recent };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(now)
    }

    /// A version of the file, through the cache.
    pub(super) async fn cached(&self, session: &Session, id: u64, now: &Now) -> Result<CachedFile, FunctionError> {
        Ok(CachedFile {
            cache: Arc::clone(session.cache()),
            file: self.file_soon().await?,
            id,
            version: now.version.unwrap_or(0),
            len_bytes: now.len_bytes,
            keep: now.keep,
            grew: AtomicBool::new(false),
            fetched: super::cache::Fetched::default(),
        })
    }
}

/// Linux' ESTALE.
pub(super) const ESTALE: i32 = 116;

/// Whether the target has forgotten a handle, as it does when its host was away.
pub(super) fn is_stale_handle(error: &FunctionError) -> bool {
    error.errno() == Some(ESTALE)
}

/// Whether the target has forgotten a program.
pub(super) fn is_lost_program(error: &FunctionError) -> bool {
    use diskside_nvme::Status;
    [Status::INVALID_PROGRAM_INDEX, Status::NO_PROGRAM, Status::PROGRAM_NOT_ACTIVATED, Status::PROGRAM_ID_MISMATCH]
        .into_iter()
        .any(|status| error.is_status(status))
}
