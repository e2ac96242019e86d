//! The file operations themselves, on a thread of the export.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use diskside_outfile::WriteError;
use diskside_rights::{Access, Rights};
use diskside_sbpf::machine::CancelToken;
use diskside_wire::file::{DirEntry, Export as ExportRecord, FileFlags, FileHandle, FileKind, FileOp};
use diskside_wire::file::{FileRequest, OpenedFile};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Statx};
use rustix::io::{Errno, ReadWriteFlags};
use zerocopy::IntoBytes;

use super::attributes::{attributes, is_recent, status, status_at, version};
use super::find::find;
use super::open_file::{OpenFile, Start};
use super::root::{LIST_BUFFER_LEN, open_beneath, open_file, open_parent};
use super::{FileSession, unnamed};
use crate::export::Export;
use crate::exports::Exports;
use crate::reply::{FileError, FileReply};
use crate::space::give_back;

type Done = Result<FileReply, FileError>;

/// The records of the exports from the request's cursor on. The cursor of each is its number in `seen`, the names that this
/// session was told: it stays the same when exports come and go, and does not count those that the host may not see.
pub(super) fn list_exports(
    exports: &Exports,
    rights: &Rights,
    seen: &mut Vec<String>,
    request: &FileRequest<'_>,
    result_len_max: usize,
) -> FileReply {
    let FileRequest::ListExports { cursor, len_max } = *request else {
        return FileError::because(Errno::INVAL, "not about the list of exports").into();
    };
    let len_max = (len_max as usize).min(result_len_max);
    let mut reply = FileReply::done(0);
    let list = exports.list();
    let granted = list.iter().filter(|export| rights.export(&export.name) > Access::None);
    let granted: HashMap<&str, &Arc<Export>> = granted.map(|export| (&*export.name, export)).collect();
    let known: HashSet<&str> = seen.iter().map(String::as_str).collect();
    let is_new = |export: &&Arc<Export>| granted.contains_key(&*export.name) && !known.contains(&*export.name);
    let new: Vec<_> = list.iter().filter(is_new).map(|export| export.name.clone()).collect();
    seen.extend(new);
    let there = (1..).zip(&*seen).filter_map(|(number, name)| Some((number, *granted.get(&**name)?)));
    for (number, export) in there.filter(|(number, _)| *number > cursor) {
        if reply.result.len() + ExportRecord::encoded_len(export.name.len()) > len_max {
            if reply.result.is_empty() {
                return FileError::too_short(FileOp::ListExports).into();
            }
            break;
        }
        let (cursor, name) = (number, export.name.as_bytes());
        let read_only = export.read_only || rights.export(&export.name) < Access::Write;
        let (uid, gid) = (export.uid, export.gid);
        ExportRecord { cursor, read_only, uid, gid, name }.encode(&mut reply.result);
        reply.returned = reply.returned.map(|count| count + 1);
    }
    reply
}

/// Carries out a request about a file.
pub(super) fn execute(
    session: &FileSession,
    request: &FileRequest<'_>,
    result_len_max: usize,
    cancel: &CancelToken,
) -> Done {
    let op = request.op();
    match *request {
        FileRequest::ListExports { .. } => Err(FileError::because(Errno::INVAL, "not about a file")),
        FileRequest::Lookup { dir, path, flags } => lookup(session, op, session.start(op, dir, path)?, flags),
        FileRequest::Stat { base, path, flags } => stat(op, &session.start(op, base, path)?, flags),
        FileRequest::List { base, path, cursor, len_max, flags } => {
            let len_max = (len_max as usize).min(result_len_max);
            list(op, &session.start(op, base, path)?, cursor, len_max, flags.contains(FileFlags::ATTRIBUTES))
        }
        FileRequest::Read { file, offset, len } => {
            read(op, &*session.file(op, file)?, offset, (len as usize).min(result_len_max))
        }
        FileRequest::Write { file, offset, data, flags } => write(op, &*session.file(op, file)?, offset, data, flags),
        FileRequest::Create { dir, path, mode, flags } if flags.contains(FileFlags::UNNAMED) => {
            create_unnamed(session, op, session.start(op, dir, path)?, Mode::from_raw_mode(mode), flags)
        }
        FileRequest::Create { dir, path, mode, flags } => {
            create(session, op, session.start(op, dir, path)?, Mode::from_raw_mode(mode), flags)
        }
        FileRequest::Truncate { file, len } => truncate(op, &*session.file(op, file)?, len),
        FileRequest::Rename { dir, from, to, flags } => {
            rename(op, &session.start(op, dir, from)?, &session.start(op, dir, to)?, flags)
        }
        FileRequest::Unlink { dir, path } => remove_name(op, &session.start(op, dir, path)?, AtFlags::empty()),
        FileRequest::RemoveDirectory { dir, path } => {
            remove_name(op, &session.start(op, dir, path)?, AtFlags::REMOVEDIR)
        }
        FileRequest::MakeDirectory { dir, path, mode } => {
            make_directory(op, &session.start(op, dir, path)?, Mode::from_raw_mode(mode))
        }
        FileRequest::Sync { file, flags } => {
            let file = session.file(op, file)?;
            sync(&file, flags.contains(FileFlags::DATA_ONLY))?;
            if flags.contains(FileFlags::DROP_CACHED) {
                let failed = |errno| FileError::new(errno, format!("dropping what is cached of {}", file.name));
                fs::fadvise(&file.fd, 0, None, fs::Advice::DontNeed).map_err(failed)?;
            }
            Ok(FileReply { version: version(&status_of(op, &file)?), ..FileReply::done(0) })
        }
        FileRequest::Publish { file } => publish(session, op, file),
        FileRequest::Find { dir, pattern, after, len_max, flags } => {
            let len_max = (len_max as usize).min(result_len_max);
            find(op, &session.start(op, dir, pattern)?, after, len_max, flags, cancel)
        }
        FileRequest::Close { file } => session.remove(op, file).map(|_| FileReply::done(0)),
    }
}

fn lookup(session: &FileSession, op: FileOp, start: Start<'_>, flags: FileFlags) -> Done {
    let writable = flags.contains(FileFlags::WRITE);
    if writable {
        refuse_read_only(op, &start)?;
    }
    let mut how = access(flags).unwrap_or(OFlags::PATH);
    how.set(OFlags::DIRECTORY, flags.contains(FileFlags::DIRECTORY));
    how.set(OFlags::NOFOLLOW, flags.contains(FileFlags::NO_FOLLOW));
    let (fd, status) = open_file(start.dir(), start.path, how).map_err(|errno| failed(op, &start, errno))?;
    give_handle(session, op, start, fd, &status, flags, false)
}

fn create(session: &FileSession, op: FileOp, start: Start<'_>, mode: Mode, flags: FileFlags) -> Done {
    refuse_read_only(op, &start)?;
    let how = access(flags).unwrap_or(OFlags::RDONLY);
    let mut existing = how;
    existing.set(OFlags::NOFOLLOW, flags.contains(FileFlags::NO_FOLLOW));
    let mode = start.export.file_mode(mode);
    // Between the two attempts somebody may make the file, or remove it.
    for _ in 0..CREATE_ATTEMPTS_MAX {
        match make(op, &start, how, mode, flags)? {
            Ok(fd) => {
                let status = status(fd.as_fd()).map_err(|errno| failed(op, &start, errno))?;
                return give_handle(session, op, start, fd, &status, flags, true);
            }
            Err(Errno::EXIST) if !flags.contains(FileFlags::EXCLUSIVE) => {}
            Err(errno) => return Err(failed(op, &start, errno)),
        }
        match open_file(start.dir(), start.path, existing) {
            Ok((fd, mut seen)) => {
                if flags.contains(FileFlags::TRUNCATE) {
                    let emptied = empty(&start.export, &fd, &seen).and_then(|()| status(fd.as_fd()));
                    seen = emptied.map_err(|errno| failed(op, &start, errno))?;
                }
                return give_handle(session, op, start, fd, &seen, flags, false);
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(op, &start, errno)),
        }
    }
    // A symbolic link to nothing: it exists, and what it means does not.
    Err(failed(op, &start, Errno::NOENT))
}

/// Makes a file that is not there yet. A host that may have no more files still opens those that are.
fn make(
    op: FileOp,
    start: &Start<'_>,
    how: OFlags,
    mode: Mode,
    flags: FileFlags,
) -> Result<Result<OwnedFd, Errno>, FileError> {
    let ledger = &start.export.ledger;
    let _changing = ledger.is_kept().then(|| ledger.changing_names());
    if ledger.is_kept() && !flags.contains(FileFlags::EXCLUSIVE) {
        let what = OFlags::PATH | how & OFlags::NOFOLLOW;
        if open_beneath(start.dir(), start.path, what, Mode::empty()).is_ok() {
            return Ok(Err(Errno::EXIST));
        }
    }
    let room =
        start.export.new_file(&start.quota).map_err(|no_room| no_room.about(format_args!("{op} {}", start.name())))?;
    let made = open_beneath(start.dir(), start.path, how | OFlags::CREATE | OFlags::EXCL, mode);
    Ok(made.and_then(|fd| room.made(ledger, fd.as_fd()).map(|()| fd)))
}

/// Takes from a file all that it has.
fn empty(export: &Arc<Export>, fd: &OwnedFd, seen: &Statx) -> Result<(), Errno> {
    if !export.ledger.is_kept() {
        return fs::ftruncate(fd, 0);
    }
    let hold = export.ledger.hold(fd.as_fd(), seen);
    let change = hold.change(fd.as_fd());
    let emptied = fs::ftruncate(fd, 0);
    change.end(fd.as_fd(), true);
    give_back(hold, fd.as_fd());
    emptied
}

/// A file that nobody else sees until it is [published](publish).
fn create_unnamed(session: &FileSession, op: FileOp, start: Start<'_>, mode: Mode, flags: FileFlags) -> Done {
    refuse_read_only(op, &start)?;
    // That it could not get the name is better known before it is written.
    if start.export.is_removed() {
        return Err(failed(op, &start, Errno::NOENT));
    }
    let made = unnamed::own_name(&start).and_then(|at| unnamed::create(&start, at, mode));
    let (fd, unnamed, space) = made.map_err(|error| match error {
        WriteError { errno, meaning, .. } if meaning.is_empty() => failed(op, &start, errno),
        error => unnamed::refused(&format!("{op} {}", start.name()), &error),
    })?;
    let mut file = start.open(fd, flags.contains(FileFlags::READ), true);
    file.is_unnamed(Arc::new(unnamed), space);
    let status = status_of(op, &file)?;
    opened(session, op, file, &status, true)
}

/// Makes a file that has no name durable, and gives it the one that it was created for.
fn publish(session: &FileSession, op: FileOp, handle: FileHandle) -> Done {
    let file = session.file(op, handle)?;
    let Some(unnamed) = &file.unnamed else {
        let message =
            format!("{op} {}: the file has its name; only one that was created without can get it", file.name);
        return Err(FileError::because(Errno::INVAL, message));
    };
    sync(&file, false)?;
    let published = unnamed::publish(&file, unnamed);
    let (fd, readable) = published.map_err(|error| unnamed::refused(&format!("{op} {}", file.name), &error))?;
    let read_only = session.is_read_only(&file.export);
    let quota = Arc::clone(&file.quota);
    let start = Start { export: Arc::clone(&file.export), read_only, dir: file.dir.clone(), path: &file.path, quota };
    let named = start.open(fd, file.readable && readable, true);
    let status = status_of(op, &named)?;
    session.replace(handle, named);
    Ok(FileReply { version: version(&status), ..FileReply::done(0) })
}

fn give_handle(
    session: &FileSession,
    op: FileOp,
    start: Start<'_>,
    fd: OwnedFd,
    status: &Statx,
    flags: FileFlags,
    created: bool,
) -> Done {
    let file = start.open(fd, flags.contains(FileFlags::READ), flags.contains(FileFlags::WRITE));
    opened(session, op, file, status, created)
}

fn opened(session: &FileSession, op: FileOp, file: OpenFile, status: &Statx, created: bool) -> Done {
    let attributes = attributes(status, session.is_read_only(&file.export));
    file.is_counted().map_err(|errno| FileError::new(errno, format!("{op} {}", file.name)))?;
    let opened = OpenedFile::new(session.insert(op, file)?, created, attributes);
    Ok(FileReply { result: opened.as_bytes().to_vec(), version: version(status), ..FileReply::done(0) })
}

fn stat(op: FileOp, start: &Start<'_>, flags: FileFlags) -> Done {
    let status = match &start.dir {
        Some(file) if start.path.is_empty() => status(file.fd.as_fd()),
        _ => {
            let mut how = OFlags::PATH;
            how.set(OFlags::NOFOLLOW, flags.contains(FileFlags::NO_FOLLOW));
            open_beneath(start.dir(), start.path, how, Mode::empty()).and_then(|fd| status(fd.as_fd()))
        }
    };
    let status = status.map_err(|errno| failed(op, start, errno))?;
    let result = attributes(&status, start.read_only).as_bytes().to_vec();
    Ok(FileReply { result, version: version(&status), ..FileReply::done(0) })
}

fn list(op: FileOp, start: &Start<'_>, cursor: u64, len_max: usize, with_attributes: bool) -> Done {
    let failed = |errno| failed(op, start, errno);
    let how = OFlags::RDONLY | OFlags::DIRECTORY;
    // A descriptor of its own, with a position of its own.
    let dir = open_beneath(start.dir(), start.path, how, Mode::empty()).map_err(failed)?;
    if cursor != 0 {
        fs::seek(&dir, SeekFrom::Start(cursor)).map_err(failed)?;
    }
    let mut reply = FileReply::done(0);
    let mut count = 0;
    let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_LEN];
    let mut entries = RawDir::new(&dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let unknown = entry.file_type() == FileType::Unknown;
        let found = if with_attributes || unknown {
            // It may be gone by now, or not be for us to look at; its name is still listed.
            status_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()
        } else {
            None
        };
        let kind = found.as_ref().map_or(entry.file_type(), |s| FileType::from_raw_mode(s.stx_mode.into()));
        let attributes = found.filter(|_| with_attributes).map(|s| attributes(&s, start.read_only));
        if reply.result.len() + DirEntry::encoded_len(name.len(), attributes.is_some()) > len_max {
            if count == 0 {
                return Err(FileError::too_short(op));
            }
            break;
        }
        let (cursor, inode, kind) = (entry.next_entry_cookie(), entry.ino(), kind_of(kind));
        DirEntry { cursor, inode, kind, attributes, name }.encode(&mut reply.result);
        count += 1;
    }
    reply.returned = Ok(count);
    Ok(reply)
}

fn read(op: FileOp, file: &OpenFile, offset: u64, len: usize) -> Done {
    if !file.readable {
        return Err(not_opened_for(op, file, "reading"));
    }
    let before = status_of(op, file)?;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset.saturating_add(bytes.len() as u64);
        match file.readers.read_plain(file, at, len - bytes.len(), &mut bytes) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(read_failed(file, offset, errno)),
        }
    }
    bytes.truncate(len);
    let after = status_of(op, file)?;
    Ok(read_bytes(&before, &after, bytes))
}

/// The answer to a read: all of its bytes are of one version if the file is what it was `before`.
pub(super) fn read_bytes(before: &Statx, after: &Statx, bytes: Vec<u8>) -> FileReply {
    let steady = version(before) == version(after) && !is_recent(before);
    let version = if steady { version(after) } else { 0 };
    FileReply { returned: Ok(bytes.len() as u64), result: bytes, version, ..FileReply::done(0) }
}

pub(super) fn read_failed(file: &OpenFile, offset: u64, errno: Errno) -> FileError {
    FileError::new(errno, format!("{} {} at byte {offset}", FileOp::Read, file.name))
}

fn write(op: FileOp, file: &OpenFile, offset: u64, data: &[u8], flags: FileFlags) -> Done {
    if !file.writable {
        return Err(not_opened_for(op, file, "writing"));
    }
    let at = (!flags.contains(FileFlags::APPEND)).then_some(offset);
    let growth = file.grow(|| format!("{op} {} at byte {offset}", file.name), at, data.len() as u64)?;
    let written = write_all(file, at, data);
    if written.is_ok() {
        growth.done();
    } else {
        drop(growth);
    }
    let count = match written {
        Ok(count) => count,
        Err((0, errno)) => return Err(FileError::new(errno, format!("{op} {} at byte {offset}", file.name))),
        // Written bytes stay written; the next request meets the error again.
        Err((count, _)) => count,
    };
    let durable_bytes = if flags.contains(FileFlags::DURABLE) {
        sync(file, true)?;
        count
    } else {
        0
    };
    let version = version(&status_of(op, file)?);
    Ok(FileReply { returned: Ok(count), version, durable_bytes, ..FileReply::done(0) })
}

/// Writes all of `data` at `offset`, or at the file's end. Fails with the number of bytes that were written before.
pub(super) fn write_all(file: &OpenFile, offset: Option<u64>, data: &[u8]) -> Result<u64, (u64, Errno)> {
    let mut count = 0;
    while count < data.len() {
        let rest = &data[count..];
        let written = match offset {
            Some(offset) => rustix::io::pwrite(&file.fd, rest, offset.saturating_add(count as u64)),
            None => rustix::io::pwritev2(&file.fd, &[std::io::IoSlice::new(rest)], 0, ReadWriteFlags::APPEND),
        };
        match written {
            Ok(0) => return Err((count as u64, Errno::IO)),
            Ok(more) => count += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((count as u64, errno)),
        }
    }
    Ok(count as u64)
}

/// Makes what was written survive power loss. After one failure it fails for good: the kernel tells it only once.
pub(super) fn sync(file: &OpenFile, data_only: bool) -> Result<(), FileError> {
    let failed = |errno| FileError::new(errno, format!("{} {}", FileOp::Sync, file.name));
    if file.sync_failed.load(Ordering::SeqCst) {
        return Err(failed(Errno::IO));
    }
    let mut result = if data_only { fs::fdatasync(&file.fd) } else { fs::fsync(&file.fd) };
    if result == Err(Errno::BADF) && !file.readable && !file.writable {
        // A handle for attributes alone cannot be synced, but a directory opened for this can.
        result = open_beneath(file.fd.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .and_then(|dir| fs::fsync(&dir));
        return result.map_err(failed);
    }
    result.map_err(|errno| {
        file.sync_failed.store(true, Ordering::SeqCst);
        failed(errno)
    })
}

fn truncate(op: FileOp, file: &OpenFile, len: u64) -> Done {
    if !file.writable {
        return Err(not_opened_for(op, file, "writing"));
    }
    let what = || format!("{op} {} to {len} bytes", file.name);
    let (_growth, _change) = (file.grow(what, Some(0), len)?, file.changing());
    fs::ftruncate(&file.fd, len).map_err(|errno| FileError::new(errno, what()))?;
    Ok(FileReply { version: version(&status_of(op, file)?), ..FileReply::done(0) })
}

fn rename(op: FileOp, from: &Start<'_>, to: &Start<'_>, flags: FileFlags) -> Done {
    refuse_read_only(op, from)?;
    let failed = |errno| from.export.error(errno, format!("{op} {} to {}", from.name(), to.name()));
    if !Arc::ptr_eq(&from.export, &to.export) {
        return Err(failed(Errno::XDEV));
    }
    let how = if flags.contains(FileFlags::NO_REPLACE) { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
    let (old_dir, old) = open_parent(from.dir(), from.path).map_err(failed)?;
    let (new_dir, new) = open_parent(to.dir(), to.path).map_err(failed)?;
    let export = &from.export;
    let _changing = export.ledger.is_kept().then(|| export.ledger.changing_names());
    let moved = export.hold_name(&old_dir, old);
    export.refuse_rename(moved.as_ref()).map_err(|refused| refused.about(format_args!("{op} {}", from.name())))?;
    let _replaced = export.hold_name(&new_dir, new);
    fs::renameat_with(&old_dir, old, &new_dir, new, how).map_err(failed)?;
    Ok(FileReply::done(0))
}

fn remove_name(op: FileOp, start: &Start<'_>, how: AtFlags) -> Done {
    change_name(op, start, |parent, name| {
        let ledger = &start.export.ledger;
        let _changing = ledger.is_kept().then(|| ledger.changing_names());
        let _removed = start.export.hold_name(parent, name);
        fs::unlinkat(parent, name, how)
    })
}

fn make_directory(op: FileOp, start: &Start<'_>, mode: Mode) -> Done {
    refuse_read_only(op, start)?;
    let export = &start.export;
    let _changing = export.ledger.is_kept().then(|| export.ledger.changing_names());
    let room = export.new_file(&start.quota).map_err(|no_room| no_room.about(format_args!("{op} {}", start.name())))?;
    change_name(op, start, |parent, name| fs::mkdirat(parent, name, export.directory_mode(mode)))?;
    let made = open_parent(start.dir(), start.path)
        .and_then(|(parent, name)| open_beneath(parent.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()))
        .and_then(|made| room.made(&export.ledger, made.as_fd()));
    // Somebody may have removed it, or put something else there.
    made.or_else(|errno| if errno == Errno::NOENT { Ok(()) } else { Err(failed(op, start, errno)) })?;
    Ok(FileReply::done(0))
}

/// Adds or removes a name in a directory.
fn change_name(op: FileOp, start: &Start<'_>, change: impl Fn(&OwnedFd, &[u8]) -> Result<(), Errno>) -> Done {
    refuse_read_only(op, start)?;
    let changed = open_parent(start.dir(), start.path).and_then(|(parent, name)| change(&parent, name));
    changed.map_err(|errno| failed(op, start, errno))?;
    Ok(FileReply::done(0))
}

fn access(flags: FileFlags) -> Option<OFlags> {
    match (flags.contains(FileFlags::READ), flags.contains(FileFlags::WRITE)) {
        (true, true) => Some(OFlags::RDWR),
        (true, false) => Some(OFlags::RDONLY),
        (false, true) => Some(OFlags::WRONLY),
        (false, false) => None,
    }
}

fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

fn status_of(op: FileOp, file: &OpenFile) -> Result<Statx, FileError> {
    status(file.fd.as_fd()).map_err(|errno| FileError::new(errno, format!("{op} {}", file.name)))
}

fn refuse_read_only(op: FileOp, start: &Start<'_>) -> Result<(), FileError> {
    if start.read_only {
        let is_right = !start.export.read_only;
        if is_right {
            start.quota.deny(format_args!("to change export {}", start.export.name));
        }
        let why = if is_right { " to this host" } else { "; serve it with `,rw`" };
        let message = format!("{op} {}: the export is read-only{why}", start.name());
        return Err(FileError::because(Errno::ROFS, message));
    }
    Ok(())
}

fn not_opened_for(op: FileOp, file: &OpenFile, what: &str) -> FileError {
    FileError::because(Errno::BADF, format!("{op} {}: the handle was not opened for {what}", file.name))
}

fn failed(op: FileOp, start: &Start<'_>, errno: Errno) -> FileError {
    let name = start.name();
    match errno {
        Errno::XDEV => {
            FileError::because(errno, format!("{op} {name}: the path leads out of the export, or into another mount"))
        }
        Errno::INVAL => FileError::because(errno, format!("{op} {name}: not a regular file or a directory's name")),
        _ => start.export.error(errno, format!("{op} {name}")),
    }
}

/// The file of a handle, for sources and sinks of functions.
pub(super) fn opened_for(session: &FileSession, op: FileOp, handle: FileHandle) -> Result<Arc<OpenFile>, FileError> {
    let file = session.file(op, handle)?;
    let (fine, what) = if op == FileOp::Read { (file.readable, "reading") } else { (file.writable, "writing") };
    if fine { Ok(file) } else { Err(not_opened_for(op, &file, what)) }
}

const CREATE_ATTEMPTS_MAX: usize = 4;
