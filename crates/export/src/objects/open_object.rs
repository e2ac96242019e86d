//! One version of an object that a host or a function reads.

use std::sync::Arc;

use diskside_objects::{Kind, Meta, StoreError};
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
        let mut bytes = vec![0; self.meta.len.saturating_sub(offset).min(len as u64) as usize];
        self.read_exact_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills the buffer with the bytes at `offset`.
    pub(crate) fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FileError> {
        let (store, version) = (&self.tree()?.store, &self.meta.version);
        store.read_into(&self.path, version, offset, buffer).map_err(|error| self.failed(&error, offset))
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
