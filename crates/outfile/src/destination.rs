//! Paths of this machine.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::WriteError;
use crate::descriptor;
use crate::error::errno_of;
use crate::name::{Found, Name, path_of, refusal_of};
use crate::unnamed::{Published, Unnamed};

/// What a path means to who is to write it.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A regular file, or none yet.
    File(Name),
    /// What takes bytes as they come.
    Stream { fd: OwnedFd, kind: FileType },
    /// The same, open since the process was started.
    Descriptor { fd: OwnedFd, number: i32 },
}

/// A file that is being written from its start.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    file: File,
    way: Way,
    patience: Patience,
}

/// Whether to wait on for a reader: asked now and then while there is none.
type MayWait = Box<dyn Fn() -> io::Result<()> + Send>;

/// How long to wait for who reads.
struct Patience(MayWait);

impl std::fmt::Debug for Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Patience")
    }
}

/// How often a wait is looked at.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum Way {
    /// Nobody sees it before it is published.
    Unnamed(Unnamed),
    /// What is written is written.
    Stream { kind: FileType },
}

impl Destination {
    /// Looks at what a path means; nothing is changed.
    ///
    /// # Errors
    /// It cannot be written: what the system says, and what to do.
    pub fn find(path: &Path) -> io::Result<Self> {
        let what = What::find(path).map_err(|error| error.about(&path.display().to_string()))?;
        Ok(Self { path: path.to_owned(), what })
    }

    /// Standard output.
    ///
    /// # Errors
    /// The process can have no more descriptors.
    pub fn stdout() -> io::Result<Self> {
        let path = PathBuf::from("standard output");
        let fd = descriptor::duplicate(1).map_err(|error| error.about("standard output"))?;
        Ok(Self { path, what: What::Descriptor { fd, number: 1 } })
    }

    /// Whether bytes are written as they come: it is not a regular file, and will not be one.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        !matches!(self.what, What::File(_))
    }

    /// Whether it is standard output, which other things are written to as well.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        matches!(self.what, What::Descriptor { number: 1, .. })
    }

    /// Whether it is a block device, whose content is lost.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        matches!(&self.what, What::Stream { kind: FileType::BlockDevice, .. })
    }

    /// Where links lead, if another file may take that name: none has it, or one that has no other name.
    #[must_use]
    pub fn replaceable(&self) -> Option<PathBuf> {
        let What::File(at) = &self.what else { return None };
        let is_single = match at.find().ok()? {
            Found::Nothing => true,
            Found::File { stat, .. } => stat.st_nlink == 1,
            Found::Other { .. } => false,
        };
        let directory = std::fs::read_link(path_of(at.parent.as_fd())).ok()?;
        is_single.then(|| directory.join(OsStr::from_bytes(&at.name)))
    }

    /// What it was found by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long the regular file is that is there; `None`: there is none.
    #[must_use]
    pub fn len_bytes(&self) -> Option<u64> {
        match &self.what {
            What::File(at) => match at.find().ok()? {
                Found::File { stat, .. } => Some(stat.st_size.cast_unsigned()),
                Found::Nothing | Found::Other { .. } => None,
            },
            What::Stream { .. } | What::Descriptor { .. } => None,
        }
    }

    /// Begins to write it. A FIFO that nobody reads is waited for.
    ///
    /// # Errors
    /// What the system says, and what to do.
    pub fn begin(self) -> io::Result<OutFile> {
        self.begin_while(Box::new(|| Ok(())))
    }

    /// The same, waiting for a reader, here and at each write, as long as `may_wait` gives no error.
    ///
    /// # Errors
    /// The system's error, and what to do; that of `may_wait`.
    pub fn begin_while(self, may_wait: MayWait) -> io::Result<OutFile> {
        let Self { path, what } = self;
        let patience = Patience(may_wait);
        let begun = match what {
            What::Descriptor { fd, .. } => Ok((fd, Way::Stream { kind: FileType::Unknown })),
            What::Stream { fd, kind: FileType::Fifo } => {
                // A system call that waits for a reader, or for room, would hear of nothing else.
                let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let open = || retry(|| fs::openat(CWD, &*path_of(fd.as_fd()), how, Mode::empty()));
                let opened = loop {
                    match open() {
                        Err(Errno::NXIO) => (patience.0)()?,
                        opened => break opened,
                    }
                    std::thread::sleep(LOOK);
                };
                opened.map(|fd| (fd, Way::Stream { kind: FileType::Fifo })).map_err(WriteError::from)
            }
            What::Stream { fd, kind } => {
                let how = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
                let opened = retry(|| fs::openat(CWD, &*path_of(fd.as_fd()), how, Mode::empty()));
                opened.map(|fd| (fd, Way::Stream { kind })).map_err(WriteError::from)
            }
            What::File(at) => {
                let mode = Mode::from_raw_mode(0o666);
                Unnamed::create(at, mode, spool).map(|(fd, unnamed)| (fd, Way::Unnamed(unnamed)))
            }
        };
        let (fd, way) = begun.map_err(|error| error.about(&path.display().to_string()))?;
        Ok(OutFile { path, file: fd.into(), way, patience })
    }
}

impl What {
    fn find(path: &Path) -> Result<Self, WriteError> {
        let at = Name::follow(path.as_os_str().as_bytes(), open_directory)?;
        if at.is_in_proc()
            && let Some(number) = descriptor::number_of(&at)
        {
            return Ok(Self::Descriptor { fd: descriptor::duplicate(number)?, number });
        }
        let follow = if at.is_in_proc() { OFlags::empty() } else { OFlags::NOFOLLOW };
        let fd = match fs::openat(&at.parent, &*at.name, OFlags::PATH | OFlags::CLOEXEC | follow, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Self::File(at)),
            Err(errno) => return Err(errno.into()),
        };
        match FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) {
            // Files of /proc are interfaces to the kernel, and files of others have no name to be found by.
            FileType::RegularFile if at.is_in_proc() => Ok(Self::Stream { fd, kind: FileType::RegularFile }),
            FileType::RegularFile => Ok(Self::File(at)),
            kind @ (FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice) => {
                Ok(Self::Stream { fd, kind })
            }
            kind => Err(refusal_of(kind)),
        }
    }
}

impl OutFile {
    /// Begins to write what a path means.
    ///
    /// # Errors
    /// What the system says, and what to do.
    pub fn create(path: &Path) -> io::Result<Self> {
        Destination::find(path)?.begin()
    }

    /// The open file. Of one that is not seen yet, it can be read and written anywhere.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether bytes are written as they come, and others have them at once.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        matches!(self.way, Way::Stream { .. })
    }

    /// Ends it: on stable media, and under its name.
    ///
    /// # Errors
    /// The system's error. The file that had the name is unchanged, unless the error says otherwise.
    pub fn publish(self) -> io::Result<()> {
        let ended = match &self.way {
            Way::Unnamed(unnamed) => unnamed.publish(self.file.as_fd(), true).map(|_: Published| ()),
            Way::Stream { kind: FileType::BlockDevice, .. } => fs::fsync(&self.file).map_err(WriteError::from),
            Way::Stream { .. } => Ok(()),
        };
        ended.map_err(|error| error.about(&self.path.display().to_string()))
    }

    /// An error of writing to [`file`](Self::file), with the file's name.
    #[must_use]
    pub fn failed(&self, error: &io::Error) -> io::Error {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let meaning = match &self.way {
            Way::Unnamed(unnamed) if is_full && unnamed.is_elsewhere() => {
                let directory = std::env::temp_dir();
                let directory = directory.display();
                format!("the file waits in {directory} until it is whole; TMPDIR chooses another directory")
            }
            _ => String::new(),
        };
        let file = self.path.display().to_string();
        match Errno::from_io_error(error) {
            Some(errno) => WriteError::new(errno, meaning).about(&file),
            None => io::Error::new(error.kind(), format!("{file}: {error}")),
        }
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                // A FIFO, or a descriptor that the process inherited and that does not wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_until_writable()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                written => return written.map_err(|error| self.failed(&error)),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutFile {
    fn wait_until_writable(&self) -> io::Result<()> {
        let look = rustix::event::Timespec::try_from(LOOK).expect("it is short");
        loop {
            let mut waiting = [rustix::event::PollFd::new(&self.file, rustix::event::PollFlags::OUT)];
            if retry(|| rustix::event::poll(&mut waiting, Some(&look)))? > 0 {
                return Ok(());
            }
            (self.patience.0)()?;
        }
    }
}

fn open_directory(path: &[u8]) -> Result<OwnedFd, WriteError> {
    let opened = fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|errno| {
        let path = String::from_utf8_lossy(path);
        let meaning = match errno {
            Errno::NOENT => format!("there is no directory {path}; make it first"),
            Errno::NOTDIR => format!("{path} is no directory"),
            Errno::ACCESS => format!("this user may not enter {path}"),
            _ => String::new(),
        };
        WriteError::new(errno, meaning)
    })
}

/// A file without a name where temporary files are, for content that cannot wait next to where it goes.
fn spool() -> Result<OwnedFd, WriteError> {
    tempfile::tempfile().map(OwnedFd::from).map_err(|error| {
        let directory = std::env::temp_dir();
        let meaning = format!("no file can wait in {}; TMPDIR chooses another directory", directory.display());
        WriteError::new(errno_of(&error), meaning)
    })
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
