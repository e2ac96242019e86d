//! An open file of a host as a kernel reads and writes it.
//!
//! The handle is looked up for each access. So a file that its host closes or replaces, and a right that it loses, end the
//! kernel's accesses too. Reads are the kernel's own thread's to wait for. So are writes where this process writes as the export's
//! user would; where not, the export's threads write.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::buffer::Buffer;
use diskside_io::bytefile::{Access, Begun, ByteFile, Direction, Hold, LocalBytes, version_of};
use diskside_io::request::{Outcome, Promise, Status, promise};
use diskside_wire::file::{FileHandle, FileOp};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::attributes::status;
use crate::open_file::OpenFile;
use crate::operations::{opened_for, sync};
use crate::reply::FileError;
use crate::space::{Change, Growth};
use crate::{FileAccess, FileSession};

/// A file of a kernel.
#[derive(Debug)]
pub struct KernelFile {
    session: FileSession,
    handle: FileHandle,
    file: Arc<OpenFile>,
    bytes: Arc<LocalBytes>,
    writable: bool,
    /// The page cache is what the export's administrator wants.
    cached: bool,
    /// Whether any thread of this process writes as the export's user.
    writes_here: bool,
    /// Its writes are under way until the kernel has ended: space that it did not use after all is given back then.
    writing: Option<Arc<Writing>>,
}

#[derive(Debug)]
struct Writing {
    file: Arc<OpenFile>,
    change: Option<Change>,
}

impl FileSession {
    /// The file of a handle, for a kernel. Not for a reactor.
    pub fn kernel_file(&self, handle: FileHandle, writable: bool) -> Result<KernelFile, FileError> {
        let file = opened_for(self, FileOp::Read, handle)?;
        if writable {
            opened_for(self, FileOp::Write, handle)?;
        }
        let failed = |errno| FileError::new(errno, &file.name);
        let found = status(file.fd.as_fd()).map_err(failed)?;
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
            let message = format!("{} is a directory; a kernel reads and writes files", file.name);
            return Err(FileError::because(Errno::ISDIR, message));
        }
        let fd: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&file.fd, 0).map_err(failed)?;
        let bytes = Arc::new(LocalBytes::of(file.name.clone(), fd, writable));
        let cached = file.export.access == FileAccess::Buffered;
        let writes_here = file.export.workers.writes_as_process();
        let writing = writable.then(|| Arc::new(Writing { change: file.begin_change(), file: Arc::clone(&file) }));
        Ok(KernelFile { session: self.clone(), handle, file, bytes, writable, cached, writes_here, writing })
    }
}

impl KernelFile {
    /// Whether the host still has the file open, and may access it so.
    fn check(&self, direction: Direction) -> Result<(), Errno> {
        let op = match direction {
            Direction::Read => FileOp::Read,
            Direction::Write if !self.writable => return Err(Errno::BADF),
            Direction::Write => FileOp::Write,
        };
        let now = opened_for(&self.session, op, self.handle).map_err(|error| error.errno)?;
        if Arc::ptr_eq(&now, &self.file) { Ok(()) } else { Err(Errno::STALE) }
    }
}

impl KernelFile {
    /// Has the disk be asked for what the kernel's ring is to do. The export's threads count what they do themselves.
    fn asked(&self, begun: Begun) -> Begun {
        match begun {
            Begun::Ring { op, after, hold, direct } => {
                let hold: Hold = Some(Box::new((hold, self.file.export.health.ask(Instant::now()))));
                Begun::Ring { op, after, hold, direct }
            }
            other => other,
        }
    }
}

impl Writing {
    /// Makes room for a write.
    fn grow(&self, access: &Access) -> Result<(), Errno> {
        let what = || self.file.name.clone();
        let grown = self.file.grow(what, Some(access.offset), access.buffer.len() as u64);
        grown.map(Growth::done).map_err(|no_space| no_space.errno)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            change.end(self.file.fd.as_fd(), false);
        }
    }
}

impl ByteFile for KernelFile {
    fn name(&self) -> &str {
        &self.file.name
    }

    fn len_bytes(&self) -> Result<u64, Errno> {
        self.check(Direction::Read)?;
        self.bytes.len_bytes()
    }

    fn begin(&self, access: Access) -> Begun {
        if let Err(errno) = self.check(access.direction) {
            return Begun::at_once(Err(errno), access.buffer);
        }
        let access = Access { cached: access.cached || self.cached, ..access };
        if access.direction == Direction::Read || self.writes_here {
            if access.direction == Direction::Write
                && let Some(writing) = &self.writing
                && let Err(errno) = writing.grow(&access)
            {
                return Begun::at_once(Err(errno), access.buffer);
            }
            return self.asked(self.bytes.begin(access));
        }
        let (promise, future) = promise();
        let (bytes, writing) = (Arc::clone(&self.bytes), self.writing.clone());
        self.file.export.workers.submit(move || {
            match writing.as_ref().map_or(Ok(()), |writing| writing.grow(&access)) {
                Ok(()) => write_all(&bytes, access, promise),
                Err(errno) => {
                    let (status, buffer) = (Status::from_errno(errno), Some(access.buffer));
                    promise.complete(Outcome { status, transferred_bytes: 0, buffer });
                }
            }
        });
        Begun::Elsewhere { future, buffer: None, hold: None }
    }

    fn version(&self) -> Option<u64> {
        version_of(self.bytes.cached().as_fd())
    }

    fn sync(&self) -> Result<(), Errno> {
        self.check(Direction::Write)?;
        let file = Arc::clone(&self.file);
        let synced = self.file.export.workers.run(move || sync(&file, true));
        let synced = synced.ok_or(Errno::IO)?.map_err(|error| error.errno);
        synced.inspect_err(|errno| self.file.export.failed("sync", &self.file.name, None, *errno))
    }

    fn ended(&self, direction: Direction, offset: u64, result: Result<u64, Errno>, took: Duration) {
        if let Err(errno) = result {
            let operation = if direction == Direction::Read { "read" } else { "write" };
            self.file.export.failed(operation, &self.file.name, Some(offset), errno);
        }
        self.file.export.functions.ended(direction, result, took);
    }
}

/// Writes, on a thread of the export.
fn write_all(bytes: &LocalBytes, access: Access, promise: Promise<Outcome>) {
    let Access { offset, buffer, .. } = &access;
    let (mut file, mut direct) = bytes.descriptor(&access);
    let (mut written, mut status) = (0, Status::Success);
    while written < buffer.len() {
        match rustix::io::pwrite(file, &buffer[written..], offset + written as u64) {
            Ok(0) => {
                status = Status::from_errno(Errno::IO);
                break;
            }
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            // The file system opens it so, and takes no such writes.
            Err(Errno::INVAL) if direct => (file, direct) = (bytes.cached(), false),
            Err(errno) => {
                status = Status::from_errno(errno);
                break;
            }
        }
    }
    let buffer: Option<Buffer> = Some(access.buffer);
    promise.complete(Outcome { status, transferred_bytes: written as u64, buffer });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExportSpec, Exports};
    use diskside_io::request::block_on;
    use diskside_wire::file::{FileFlags, FileRequest, OpenedFile};
    use std::path::Path;
    use std::sync::mpsc;
    use zerocopy::FromBytes as _;

    fn session(dir: &Path) -> FileSession {
        Exports::open(&[ExportSpec::new("data", dir).writable()]).unwrap().session()
    }

    fn ask(session: &FileSession, request: FileRequest<'_>) -> Vec<u8> {
        let (sender, receiver) = mpsc::channel();
        session.submit(request.to_bytes(), 4096, move |reply| sender.send(reply).unwrap()).unwrap();
        let reply = receiver.recv().unwrap();
        reply.returned.unwrap();
        reply.result
    }

    fn open(session: &FileSession, path: &[u8], flags: FileFlags) -> FileHandle {
        OpenedFile::read_from_bytes(&ask(session, FileRequest::Lookup { dir: None, path, flags })).unwrap().handle()
    }

    fn access(direction: Direction) -> Access {
        Access { direction, offset: 1, buffer: Buffer::copy_of(b"abc"), cached: false }
    }

    /// How an access ends that is not the ring's.
    fn ended(begun: Begun) -> Result<u64, Errno> {
        match begun {
            Begun::Done { result, .. } => result,
            Begun::Elsewhere { future, .. } => {
                block_on(future).into_result().map_err(|error| Errno::from_io_error(&error).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_that_its_host_closed_or_replaced_is_not_accessed_any_more() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"12345").unwrap();
        let session = session(dir.path());
        let both = FileFlags::READ | FileFlags::WRITE;
        let handle = open(&session, b"data/a", both);
        let file = session.kernel_file(handle, true).unwrap();
        assert_eq!((file.len_bytes(), file.name()), (Ok(5), "data/a"));
        assert!(matches!(file.begin(access(Direction::Read)), Begun::Ring { .. }));
        assert_eq!(file.sync(), Ok(()));
        // A handle for another file takes its place: a result that was written as a new file.
        let mut sink = session.sink(handle, crate::SinkMode::Replace).unwrap();
        sink.append(b"new").unwrap();
        sink.finish().unwrap();
        for direction in [Direction::Read, Direction::Write] {
            assert_eq!(ended(file.begin(access(direction))), Err(Errno::STALE));
        }
        let file = session.kernel_file(handle, true).unwrap();
        assert_eq!(file.len_bytes(), Ok(3));
        ask(&session, FileRequest::Close { file: handle });
        assert_eq!((file.len_bytes(), file.sync()), (Err(Errno::STALE), Err(Errno::STALE)));
        assert_eq!(ended(file.begin(access(Direction::Write))), Err(Errno::STALE));
        assert!(session.kernel_file(handle, false).is_err());
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"new");
    }

    #[test]
    fn a_handle_to_read_from_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"12345").unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let session = session(dir.path());
        let handle = open(&session, b"data/a", FileFlags::READ);
        let error = session.kernel_file(handle, true).unwrap_err();
        assert!(
            error.errno == Errno::BADF && error.message.contains("was not opened for writing"),
            "{}",
            error.message
        );
        let file = session.kernel_file(handle, false).unwrap();
        assert_eq!(ended(file.begin(access(Direction::Write))), Err(Errno::BADF));
        let directory = open(&session, b"data/d", FileFlags::READ);
        assert_eq!(session.kernel_file(directory, false).unwrap_err().errno, Errno::ISDIR);
    }

    /// The writes of an export's threads for a kernel are there, and those that fail are reported.
    #[test]
    fn the_threads_of_an_export_write_all_or_say_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let bytes = LocalBytes::open(&path, true).unwrap();
        let (done, future) = promise();
        write_all(&bytes, access(Direction::Write), done);
        let outcome = block_on(future);
        assert_eq!((outcome.status, outcome.transferred_bytes), (Status::Success, 3));
        assert_eq!(std::fs::read(&path).unwrap(), b"\0abc");
        let (done, future) = promise();
        let closed = LocalBytes::of("closed".into(), std::fs::File::open(&path).unwrap().into(), true);
        write_all(&closed, access(Direction::Write), done);
        assert_eq!(block_on(future).status, Status::from_errno(Errno::BADF));
    }
}
