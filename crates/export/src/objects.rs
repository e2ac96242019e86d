//! Objects of a store as an export: the file operations on them, which are all except those that change something.
//!
//! A key is a path: `/` in it divides directories, which are there as long as keys continue in them. Opening an object
//! fixes one version of it, and every read asks for that version, so bytes of two are never mixed. Threads of the
//! export wait for the store.

mod open_object;
mod path;
mod refusal;
mod tree;

use std::sync::Arc;

use diskside_objects::{Kind, Meta, StoreError};
use diskside_sbpf::machine::CancelToken;
use diskside_wire::file::{DirEntry, FileFlags, FileHandle, FileKind, FileOp, FileRequest, OpenedFile};
use rustix::io::Errno;
use zerocopy::IntoBytes;

pub(super) use self::open_object::OpenObject;
use self::path::resolve;
pub(super) use self::refusal::cannot;
use self::refusal::refused;
pub(super) use self::tree::{StoreTree, version};
use crate::FileSession;
use crate::export::Export;
use crate::reply::{FileError, FileReply};
use crate::search::{Progress, Search};
use crate::session::{Beginning, Opened};

type Done = Result<FileReply, FileError>;

/// Carries out a request about what is in a store.
pub(super) fn execute(
    session: &FileSession,
    request: &FileRequest<'_>,
    result_len_max: usize,
    cancel: &CancelToken,
) -> Done {
    let op = request.op();
    let room = |len_max: u32| (len_max as usize).min(result_len_max);
    match *request {
        FileRequest::Lookup { dir, path, flags } => lookup(session, &object_path(session, op, dir, path)?, flags),
        FileRequest::Stat { base: Some(file), path: b"", .. } => stat_again(op, &*opened(session, op, file)?),
        FileRequest::Stat { base, path, .. } => stat(&object_path(session, op, base, path)?.open()?),
        FileRequest::List { base, path, cursor, len_max, flags } => {
            let with_attributes = flags.contains(FileFlags::ATTRIBUTES);
            list(&object_path(session, op, base, path)?, cursor, room(len_max), with_attributes)
        }
        FileRequest::Find { dir, pattern, after, len_max, flags } => {
            find(session, op, (dir, pattern), after, room(len_max), (flags, cancel))
        }
        FileRequest::Read { file, offset, len } => {
            let object = opened(session, op, file)?;
            let bytes = object.read_up_to(offset, room(len))?;
            let (returned, version) = (Ok(bytes.len() as u64), object.version());
            Ok(FileReply { returned, result: bytes, version, ..FileReply::done(0) })
        }
        FileRequest::Sync { file, flags } => {
            let object = opened(session, op, file)?;
            let dropped = if flags.contains(FileFlags::DROP_CACHED) { object.version_of_all() } else { None };
            Ok(FileReply { version: object.version(), dropped, ..FileReply::done(0) })
        }
        FileRequest::Close { file } => session.remove(op, file).map(|_| FileReply::done(0)),
        FileRequest::ListExports { .. } => Err(FileError::because(Errno::INVAL, "not about a file")),
        FileRequest::Create { dir, path, .. }
        | FileRequest::Unlink { dir, path }
        | FileRequest::RemoveDirectory { dir, path }
        | FileRequest::MakeDirectory { dir, path, .. }
        | FileRequest::Rename { dir, from: path, .. } => Err(read_only(&object_path(session, op, dir, path)?)),
        FileRequest::Write { file, .. } | FileRequest::Truncate { file, .. } | FileRequest::Publish { file } => {
            Err(cannot(op, &opened(session, op, file)?.name))
        }
    }
}

/// A place in a store that a request is about.
pub(super) struct ObjectPath {
    op: FileOp,
    export: Arc<Export>,
    /// Below the store's URL.
    pub(super) path: String,
    /// Whether its path says that it is a directory.
    is_directory: bool,
    /// How messages call it.
    pub(super) name: String,
}

const ROOT: Meta = Meta { kind: Kind::Directory, len: 0, modified_ns: 0, version: String::new() };

pub(super) fn object_path(
    session: &FileSession,
    op: FileOp,
    dir: Option<FileHandle>,
    path: &[u8],
) -> Result<ObjectPath, FileError> {
    let Beginning { export, opened, path: rest } = session.beginning(op, dir, path)?;
    let base = match &opened {
        Some(Opened::Object(object)) => object.path.as_str(),
        _ => "",
    };
    let mut name = opened.as_ref().map_or(&*export.name, Opened::name).to_owned();
    if !rest.is_empty() {
        name.push('/');
        name.extend(rest.escape_ascii().map(char::from));
    }
    let path = resolve(base, rest).map_err(|errno| FileError::new(errno, format!("{op} {name}")))?;
    Ok(ObjectPath { op, is_directory: rest.ends_with(b"/"), path, name, export })
}

impl ObjectPath {
    pub(super) fn tree(&self) -> Result<&StoreTree, FileError> {
        self.export.store.as_ref().ok_or_else(|| cannot(self.op, &self.name))
    }

    pub(super) fn failed(&self, error: &StoreError) -> FileError {
        refused(error, format_args!("{} {}", self.op, self.name))
    }

    /// What is there.
    pub(super) fn open(&self) -> Result<OpenObject, FileError> {
        // That keys begin with the URL is taken for granted.
        let meta = match &*self.path {
            "" => ROOT,
            path => self.tree()?.look(path).map_err(|error| self.failed(&error))?,
        };
        if self.is_directory && meta.kind == Kind::Object {
            return Err(FileError::new(Errno::NOTDIR, format!("{} {}", self.op, self.name)));
        }
        Ok(OpenObject { export: Arc::clone(&self.export), path: self.path.clone(), name: self.name.clone(), meta })
    }
}

fn lookup(session: &FileSession, at: &ObjectPath, flags: FileFlags) -> Done {
    if flags.contains(FileFlags::WRITE) {
        return Err(read_only(at));
    }
    let object = at.open()?;
    if flags.contains(FileFlags::DIRECTORY) && object.meta.kind == Kind::Object {
        return Err(FileError::new(Errno::NOTDIR, format!("{} {}", at.op, at.name)));
    }
    let (version, attributes) = (object.version(), object.attributes());
    let opened = OpenedFile::new(session.insert(at.op, object)?, false, attributes);
    Ok(FileReply { result: opened.as_bytes().to_vec(), version, ..FileReply::done(0) })
}

/// The object of a handle, if the store has it still. Otherwise the handle is useless: its path has to be looked up
/// again.
fn stat_again(op: FileOp, object: &OpenObject) -> Done {
    if !object.is_there()? {
        return Err(FileError::because(
            Errno::STALE,
            format!("{op} {}: the object was replaced or removed", object.name),
        ));
    }
    stat(object)
}

fn stat(object: &OpenObject) -> Done {
    let result = object.attributes().as_bytes().to_vec();
    Ok(FileReply { result, version: object.version(), ..FileReply::done(0) })
}

fn list(at: &ObjectPath, cursor: u64, len_max: usize, with_attributes: bool) -> Done {
    let tree = at.tree()?;
    let mut reply = FileReply::done(0);
    let mut count = 0;
    let mut is_full = false;
    let listed = tree.list_from(&at.path, cursor, &mut |cursor, entry| {
        let path = path::below(&at.path, &entry.name);
        let attributes = with_attributes.then(|| tree.attributes(&path, &entry.meta));
        let name = entry.name.as_bytes();
        if reply.result.len() + DirEntry::encoded_len(name.len(), attributes.is_some()) > len_max {
            is_full = true;
            return false;
        }
        let kind = if entry.meta.kind == Kind::Object { FileKind::File } else { FileKind::Directory };
        DirEntry { cursor, inode: path::number(&path), kind, attributes, name }.encode(&mut reply.result);
        count += 1;
        true
    });
    listed.map_err(|error| at.failed(&error))?;
    if is_full && count == 0 {
        return Err(FileError::too_short(at.op));
    }
    // A listing of nothing is one of a directory only if it is there.
    if count == 0 && cursor == 0 && at.open()?.meta.kind == Kind::Object {
        return Err(FileError::new(Errno::NOTDIR, format!("{} {}", at.op, at.name)));
    }
    reply.returned = Ok(count);
    Ok(reply)
}

fn find(
    session: &FileSession,
    op: FileOp,
    (dir, pattern): (Option<FileHandle>, &[u8]),
    after: &[u8],
    len_max: usize,
    (flags, cancel): (FileFlags, &CancelToken),
) -> Done {
    let Beginning { export, opened, path: pattern } = session.beginning(op, dir, pattern)?;
    let base = match &opened {
        Some(Opened::Object(object)) => object.path.clone(),
        _ => String::new(),
    };
    let Some(store) = &export.store else { return Err(cannot(op, &export.name)) };
    if !store.has_lists {
        let message = format!("{op} {}: web servers give no lists of their files; name each file", export.name);
        return Err(FileError::because(Errno::OPNOTSUPP, message));
    }
    let prefix = if dir.is_none() { format!("{}/", export.name) } else { String::new() };
    let what = format!("{op} {prefix}{}", pattern.escape_ascii());
    let progress = Progress::new(cancel);
    let mut tree = tree::Below::new(store, base.clone(), &progress);
    let found = tree.found();
    let attributes_of = |path: &[u8], _| {
        if let Some((key, meta)) = found.borrow().get(path) {
            return Some(store.attributes(key, meta));
        }
        // Of many names those that were listed long ago are not remembered.
        let key = resolve(&base, path).ok()?;
        Some(store.attributes(&key, &store.store.head(&key).ok()?))
    };
    let page = Search { what, prefix, pattern, after, len_max, flags }.page(&mut tree, &progress, attributes_of);
    // Which error it was the store said in words.
    page.map_err(|error| match tree.error.take() {
        Some(told) => FileError { message: format!("{}: {told}", error.message), ..error },
        None => error,
    })
}

/// The object of a handle.
pub(super) fn opened(session: &FileSession, op: FileOp, handle: FileHandle) -> Result<Arc<OpenObject>, FileError> {
    match session.get(op, handle)? {
        Opened::Object(object) => Ok(object),
        Opened::File(file) => Err(FileError::new(Errno::INVAL, format!("{op} {}", file.name))),
    }
}

fn read_only(at: &ObjectPath) -> FileError {
    FileError::because(Errno::ROFS, format!("{} {}: objects of a store are read-only", at.op, at.name))
}
