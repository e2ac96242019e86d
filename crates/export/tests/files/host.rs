//! A host of an export, without a network: requests as bytes, answers as they come.

use std::path::Path;
use std::sync::{Arc, mpsc};

use diskside_export::ExportSpec;
use diskside_export::{Exports, FileReply, FileSession};
use diskside_wire::file::{DirEntry, FileAttributes, FileFlags, FileHandle, FileRequest, OpenedFile};
use zerocopy::FromBytes;

/// A temporary directory, exported as `data`, and a session on it.
pub(crate) struct Host {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) session: FileSession,
}

/// Errno and message.
pub(crate) type Refused = (i32, String);

impl Host {
    pub(crate) fn new() -> Self {
        Self::with(|spec| spec)
    }

    pub(crate) fn with(change: impl FnOnce(ExportSpec) -> ExportSpec) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let session = exports(&[change(ExportSpec::new("data", dir.path()).writable())]).session();
        Self { dir, session }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), content).unwrap();
    }

    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).unwrap()
    }

    pub(crate) fn ask(&self, request: FileRequest<'_>) -> FileReply {
        ask(&self.session, request, 1 << 20)
    }

    /// What a request returns, or errno and message.
    pub(crate) fn try_ask(&self, request: FileRequest<'_>) -> Result<u64, Refused> {
        self.ask(request).returned.map_err(|error| (error.errno.raw_os_error(), error.message))
    }

    pub(crate) fn errno(&self, request: FileRequest<'_>) -> rustix::io::Errno {
        self.ask(request).returned.unwrap_err().errno
    }

    pub(crate) fn open(&self, path: &str, flags: FileFlags) -> FileHandle {
        self.try_open(path, flags).unwrap()
    }

    pub(crate) fn try_open(&self, path: &str, flags: FileFlags) -> Result<FileHandle, Refused> {
        opened(self.ask(FileRequest::Lookup { dir: None, path: path.as_bytes(), flags })).map(|opened| opened.handle())
    }

    pub(crate) fn create(&self, path: &str, flags: FileFlags) -> Result<OpenedFile, Refused> {
        opened(self.ask(FileRequest::Create { dir: None, path: path.as_bytes(), mode: 0o640, flags }))
    }

    pub(crate) fn read(&self, file: FileHandle) -> Result<Vec<u8>, Refused> {
        let reply = self.ask(FileRequest::Read { file, offset: 0, len: 1 << 20 });
        reply.returned.map(|_| reply.result).map_err(|error| (error.errno.raw_os_error(), error.message))
    }

    pub(crate) fn write(&self, file: FileHandle, offset: u64, data: &[u8]) -> FileReply {
        self.ask(FileRequest::Write { file, offset, data, flags: FileFlags::NONE })
    }

    pub(crate) fn stat(&self, path: &str) -> FileAttributes {
        let reply = self.ask(FileRequest::Stat { base: None, path: path.as_bytes(), flags: FileFlags::NO_FOLLOW });
        assert!(reply.returned.is_ok(), "{reply:?}");
        FileAttributes::read_from_bytes(&reply.result).unwrap()
    }

    /// All names of a directory, in `len_max` bytes a time, sorted.
    pub(crate) fn list(&self, path: &str, len_max: u32) -> Vec<String> {
        let (mut names, mut cursor) = (Vec::new(), 0);
        loop {
            let request =
                FileRequest::List { base: None, path: path.as_bytes(), cursor, len_max, flags: FileFlags::NONE };
            let reply = self.ask(request);
            assert!(reply.result.len() <= len_max as usize);
            if reply.returned.unwrap() == 0 {
                names.sort();
                return names;
            }
            for entry in DirEntry::parse_all(&reply.result) {
                let entry = entry.unwrap();
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                cursor = entry.cursor;
            }
        }
    }
}

pub(crate) fn exports(specs: &[ExportSpec]) -> Arc<Exports> {
    Exports::open(specs).unwrap()
}

pub(crate) fn ask(session: &FileSession, request: FileRequest<'_>, result_len_max: usize) -> FileReply {
    let (sender, receiver) = mpsc::channel();
    session.submit(request.to_bytes(), result_len_max, move |reply| sender.send(reply).unwrap()).unwrap();
    receiver.recv().unwrap()
}

fn opened(reply: FileReply) -> Result<OpenedFile, Refused> {
    let error = |error: diskside_export::FileError| (error.errno.raw_os_error(), error.message);
    reply.returned.map_err(error).map(|_| OpenedFile::read_from_bytes(&reply.result).unwrap())
}
