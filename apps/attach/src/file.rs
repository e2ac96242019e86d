//! The FUSE file system: a directory with the volume, its URL and, with deltas, their counters.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use diskside_host::{Volume, drive};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Cause, Outcome, Request as VolumeRequest, RequestFuture, Status};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use crate::deltas::{DeltaOptions, Deltas};

const VOLUME: INodeNo = INodeNo(2);
const URL: INodeNo = INodeNo(3);
const DELTAS: INodeNo = INodeNo(4);
const NAMES: [(INodeNo, &str); 3] = [(VOLUME, super::VOLUME), (URL, super::URL), (DELTAS, super::DELTAS)];
/// Nothing changes but the volume's length.
const TTL: Duration = Duration::from_secs(1);
/// Requests that the kernel has under way at a time; its own default of 12 is for slow programs.
const BACKGROUND_MAX: u16 = 256;
/// The longest write.
const WRITE_LEN_MAX: u32 = 1 << 20;

// fallocate(2)
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

pub(crate) struct VolumeFile {
    volume: Volume,
    url: String,
    read_only: bool,
    deltas: Option<Arc<Deltas>>,
}

impl VolumeFile {
    pub(crate) fn new(volume: Volume, url: &str, read_only: bool, deltas: Option<DeltaOptions>) -> Self {
        let deltas = deltas.map(|options| Deltas::new(volume.clone(), options));
        Self { volume, url: format!("{url}\n"), read_only, deltas }
    }

    fn names(&self) -> impl Iterator<Item = (INodeNo, &'static str)> {
        let has_deltas = self.deltas.is_some();
        NAMES.into_iter().filter(move |(inode, _)| *inode != DELTAS || has_deltas)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            VOLUME => {
                let len = self.volume.len_bytes().unwrap_or(0);
                (FileType::RegularFile, if self.read_only { 0o400 } else { 0o600 }, len)
            }
            URL => (FileType::RegularFile, 0o400, self.url.len() as u64),
            DELTAS => (FileType::RegularFile, 0o400, self.deltas.as_ref()?.statistics().len() as u64),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: self.volume.block_len(),
            flags: 0,
        })
    }

    /// Starts a request; `then` replies from whichever thread hears of its end.
    fn submit(&self, request: VolumeRequest, then: impl FnOnce(Result<Outcome, Errno>) + Send + 'static) {
        then_reply(self.volume.submit(request), then);
    }

    fn read_volume(&self, offset: u64, buffer: Buffer, then: impl FnOnce(Result<Outcome, Errno>) + Send + 'static) {
        match &self.deltas {
            Some(deltas) => then_reply(Arc::clone(deltas).read(offset, buffer), then),
            None => self.submit(VolumeRequest::Read { offset, buffer }, then),
        }
    }

    fn write_volume(&self, offset: u64, buffer: Buffer, then: impl FnOnce(Result<Outcome, Errno>) + Send + 'static) {
        match &self.deltas {
            Some(deltas) => then_reply(Arc::clone(deltas).write(offset, buffer), then),
            None => self.submit(VolumeRequest::Write { offset, buffer, durable: false }, then),
        }
    }
}

/// Replies from whichever thread hears of the end.
fn then_reply(
    future: impl Future<Output = Outcome> + Send + 'static,
    then: impl FnOnce(Result<Outcome, Errno>) + Send + 'static,
) {
    let done: RequestFuture<Result<(), Outcome>> = drive(async move {
        let outcome = future.await;
        then(match errno_of(&outcome.status) {
            None => Ok(outcome),
            Some(errno) => Err(errno),
        });
        Ok(())
    });
    // It continues by itself.
    drop(done);
}

impl Filesystem for VolumeFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that does not know one of these is slower, and that is all.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(WRITE_LEN_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inode = self.names().find(|(_, known)| parent == INodeNo::ROOT && name == *known).map(|(inode, _)| inode);
        match inode.and_then(|inode| self.attributes(inode)) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let directories = [(INodeNo::ROOT, "."), (INodeNo::ROOT, "..")];
        for (at, (inode, name)) in directories.into_iter().chain(self.names()).enumerate().skip(offset as usize) {
            let kind = if at < 2 { FileType::Directory } else { FileType::RegularFile };
            if reply.add(inode, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = match inode {
            // Past the page cache, several writes at a time: the loop device's user has its own cache and order.
            VOLUME => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            // Its length is another one with each read.
            DELTAS => FopenFlags::FOPEN_DIRECT_IO,
            _ => FopenFlags::empty(),
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match inode {
            VOLUME => {
                // Whole blocks: who reads the file itself, and not the device, may ask for any bytes.
                let block_len = u64::from(self.volume.block_len());
                let first = offset / block_len * block_len;
                let skip = (offset - first) as usize;
                let len = (skip as u64 + u64::from(size)).next_multiple_of(block_len);
                let buffer = Buffer::zeroed(len as usize);
                self.read_volume(first, buffer, move |outcome| match outcome.map(Outcome::into_read) {
                    Ok(Ok(bytes)) => {
                        let wanted = skip.min(bytes.len())..bytes.len().min(skip + size as usize);
                        reply.data(&bytes[wanted]);
                    }
                    Ok(Err(_)) => reply.error(Errno::EIO),
                    Err(errno) => reply.error(errno),
                });
            }
            URL => reply.data(part_of(self.url.as_bytes(), offset, size)),
            DELTAS => {
                let text = self.deltas.as_ref().map(|deltas| deltas.statistics()).unwrap_or_default();
                reply.data(part_of(text.as_bytes(), offset, size));
            }
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if inode != VOLUME || self.read_only {
            return reply.error(Errno::EROFS);
        }
        let buffer = Buffer::copy_of(data);
        self.write_volume(offset, buffer, |outcome| match outcome {
            // A volume's request moves less than 4 GiB.
            Ok(outcome) => reply.written(outcome.transferred_bytes as u32),
            Err(errno) => reply.error(errno),
        });
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if inode != VOLUME {
            return reply.ok();
        }
        match &self.deltas {
            Some(deltas) => then_reply(Arc::clone(deltas).flush(), |outcome| end(outcome, reply)),
            None => self.submit(VolumeRequest::Flush, |outcome| end(outcome, reply)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close makes nothing durable; fsync does.
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if inode != VOLUME || self.read_only {
            return reply.error(Errno::EROFS);
        }
        let request = match mode & !KEEP_SIZE {
            // A discard, or zeroes that may be holes: they have to read as zeroes.
            PUNCH_HOLE if self.volume.deallocate_zeroes() => VolumeRequest::Deallocate { offset, len },
            PUNCH_HOLE | ZERO_RANGE => VolumeRequest::WriteZeroes { offset, len },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        match &self.deltas {
            Some(deltas) => {
                let changed = Arc::clone(deltas).change(request, offset..offset.saturating_add(len));
                then_reply(changed, |outcome| end(outcome, reply));
            }
            None => self.submit(request, |outcome| end(outcome, reply)),
        }
    }
}

fn part_of(bytes: &[u8], offset: u64, size: u32) -> &[u8] {
    let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
    &bytes[start..bytes.len().min(start.saturating_add(size as usize))]
}

fn end(outcome: Result<Outcome, Errno>, reply: ReplyEmpty) {
    match outcome {
        Ok(_) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// The error number for the kernel.
fn errno_of(status: &Status) -> Option<Errno> {
    Some(match status {
        Status::Success => return None,
        Status::AccessDenied(_) => Errno::EROFS,
        Status::OutOfSpace(_) => Errno::ENOSPC,
        Status::IoError(Cause::Refused(_)) | Status::Other(Cause::Refused(_)) => Errno::EINVAL,
        _ => Errno::EIO,
    })
}
