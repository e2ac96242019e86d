//! One version of an object that a host or a function reads.

use std::sync::Arc;

use diskside_io::buffer::{Buffer, Part};
use diskside_io::ownring;
use diskside_io::request::{Lost, Promise, promise};
use diskside_objects::{Answered, Ask, Asker, Kind, Meta, READ_LEN_MAX, StoreError};
use diskside_volume::cache::ObjectVersion;
use diskside_wire::file::FileAttributes;
use rustix::io::Errno;

use super::refusal::{cannot, refused};
use super::tree::{self, StoreTree};
use crate::export::Export;
use crate::reply::FileError;
use diskside_wire::file::FileOp;

/// The object of a handle in a store.
#[derive(Debug)]
pub(crate) struct OpenObject {
    pub(crate) export: Arc<Export>,
    /// Below the store's URL.
    pub(super) path: String,
    /// How messages call it.
    pub(crate) name: String,
    pub(crate) meta: Meta,
}

impl OpenObject {
    fn tree(&self) -> Result<&StoreTree, FileError> {
        self.export.store.as_ref().ok_or_else(|| cannot(FileOp::Read, &self.name))
    }

    /// Never 0.
    pub(crate) fn version(&self) -> u64 {
        tree::version(&self.path, &self.meta)
    }

    /// Identifies it among all objects of all stores, and their other versions.
    pub(crate) fn version_of_all(&self) -> Option<ObjectVersion> {
        self.export.store.as_ref().map(|tree| tree.version_of_all(&self.path, &self.meta))
    }

    pub(super) fn attributes(&self) -> FileAttributes {
        self.export.store.as_ref().map_or_else(FileAttributes::zeroed, |tree| tree.attributes(&self.path, &self.meta))
    }

    /// Up to so many bytes; fewer only at the end.
    pub(super) fn read_up_to(&self, offset: u64, len: usize) -> Result<Vec<u8>, FileError> {
        if self.meta.kind == Kind::Directory {
            return Err(FileError::new(Errno::ISDIR, format!("read {}", self.name)));
        }
        let bytes = vec![0; self.meta.len.saturating_sub(offset).min(len as u64) as usize];
        ownring::run(self.fill(offset, Part::whole(bytes.into()))).map(Buffer::into_vec)
    }

    /// Fills a part of a buffer with the bytes at `offset`, by several reads at once if it is long.
    pub(crate) async fn fill(&self, offset: u64, mut into: Part) -> Result<Buffer, FileError> {
        let (store, version) = (&self.tree()?.store, &self.meta.version);
        let begin = |start: usize| {
            let part = start..into.range.end.min(start + READ_LEN_MAX);
            let (path, version) = (self.path.clone(), version.clone());
            let offset = offset.saturating_add((start - into.range.start) as u64);
            let (answer, read) = promise();
            store.ask(Ask::Read { path, version, offset, len: part.len() as u32 }, Box::new(Reader(answer)));
            (part, read)
        };
        let parts: Vec<_> = into.range.clone().step_by(READ_LEN_MAX).map(begin).collect();
        for (part, read) in parts {
            let bytes = read.await.map_err(|Refused(error)| self.failed(&error, offset))?;
            into.buffer[part][..bytes.len()].copy_from_slice(&bytes);
        }
        Ok(into.buffer)
    }

    /// Whether the store has this version still.
    pub(super) fn is_there(&self) -> Result<bool, FileError> {
        if self.path.is_empty() {
            return Ok(true);
        }
        match self.tree()?.store.head(&self.path) {
            Ok(now) => Ok(now == self.meta),
            Err(error) if error.errno == Errno::NOENT => Ok(false),
            Err(error) => Err(refused(&error, &self.name)),
        }
    }

    fn failed(&self, error: &StoreError, offset: u64) -> FileError {
        match error.errno {
            Errno::STALE => FileError::changed(&self.name),
            _ => refused(error, format_args!("read {} at byte {offset}", self.name)),
        }
    }
}

/// A read that the store has not answered.
struct Reader(Promise<Result<Vec<u8>, Refused>>);

/// Why a store gave no bytes.
struct Refused(StoreError);

impl Lost for Refused {
    fn lost(what: &'static str) -> Self {
        Self(StoreError { errno: Errno::IO, message: what.into() })
    }
}

impl Asker for Reader {
    fn take(self: Box<Self>, answer: Answered) {
        self.0.complete(answer.map(|(_, bytes)| bytes).map_err(Refused));
    }
}
