//! The tree below a URL: directories of objects, page by page.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use diskside_objects::{Entry, Kind, Meta, Store, StoreError};
use diskside_paths::{Kind as FoundKind, Tree};
use diskside_volume::cache::ObjectVersion;
use diskside_wire::file::{FileAttributes, FileTime};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

use super::path::{below, number, resolve};
use crate::search::Progress;

/// Listings whose place to continue is kept.
const LISTINGS_MAX: usize = 64;
/// Permissions: objects can be read, by anybody who may use the export.
const OBJECT_MODE: u32 = 0o100_444;
const DIRECTORY_MODE: u32 = 0o040_555;
/// As long as a short one of ext4: a program that takes a directory for a file begins to read it and gets an error,
/// where one without bytes would be nothing to read.
const DIRECTORY_LEN: u64 = 4096;
const BLOCK_LEN: u32 = 64 << 10;

/// A store below a URL, and listings that hosts have begun.
#[derive(Debug)]
pub(crate) struct StoreTree {
    pub(crate) store: Store,
    /// Whether it can say what is below a path.
    pub(super) has_lists: bool,
    pub(super) url: String,
    /// What tells its files from those of others.
    device: u64,
    /// The directory and the number of a name in it, and that name. Where a listing is not here any more it is read again.
    listings: Mutex<VecDeque<(String, u64, String)>>,
}

impl StoreTree {
    pub(crate) fn open(url: &str) -> io::Result<Self> {
        let store = Store::open(url)?;
        let (has_lists, device) = (diskside_objects::has_lists(url), XxHash3_64::oneshot(url.as_bytes()));
        Ok(Self { store, url: url.to_owned(), has_lists, device, listings: Mutex::default() })
    }

    /// The store by a number, for what is kept of its objects.
    pub(crate) fn number(&self) -> u64 {
        self.device
    }

    /// The version of an object among those of all stores: a user who may write objects cannot make two that are alike.
    pub(super) fn version_of_all(&self, path: &str, meta: &Meta) -> ObjectVersion {
        let digest = Sha256::new_with_prefix(&self.url).chain_update("\0").chain_update(words(path, meta));
        ObjectVersion { store: self.number(), digest: digest.finalize().into() }
    }

    /// The object at a path. A web server that gives no ranges is noticed now rather than by a read: each would move
    /// the whole file.
    pub(super) fn look(&self, path: &str) -> Result<Meta, StoreError> {
        if self.has_lists { self.store.head(path) } else { self.store.first(path, 1).map(|(meta, _)| meta) }
    }

    /// Calls `each` with the names in a directory from the number `cursor` on, and the number of the next, until it is false.
    pub(super) fn list_from(
        &self,
        directory: &str,
        cursor: u64,
        each: &mut dyn FnMut(u64, &Entry) -> bool,
    ) -> Result<(), StoreError> {
        let (mut next, mut after) = match self.name_before(directory, cursor) {
            Some(name) => (cursor, name),
            None => (0, String::new()),
        };
        loop {
            let page = self.store.list(directory, &after)?;
            for entry in &page.entries {
                next += 1;
                if next > cursor && !each(next, entry) {
                    self.keep(directory, next - 1, after);
                    return Ok(());
                }
                after = place_of(entry);
            }
            if !page.has_more {
                // A host that asks for more continues here, and finds what has come since.
                self.keep(directory, next, after);
                return Ok(());
            }
        }
    }

    /// The name that has this number, if it is known still.
    fn name_before(&self, directory: &str, number: u64) -> Option<String> {
        let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = listings.iter().rev().find(|(of, at, _)| of == directory && *at == number);
        kept.map(|(_, _, name)| name.clone())
    }

    fn keep(&self, directory: &str, number: u64, name: String) {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if number == 0 || listings.iter().any(|(of, at, kept)| of == directory && *at == number && *kept == name) {
            return;
        }
        if listings.len() >= LISTINGS_MAX {
            listings.pop_front();
        }
        listings.push_back((directory.to_owned(), number, name));
    }

    /// What is known of a file, as it travels.
    pub(super) fn attributes(&self, path: &str, meta: &Meta) -> FileAttributes {
        let seconds = meta.modified_ns.div_euclid(1_000_000_000);
        let time = FileTime::new(seconds, meta.modified_ns.rem_euclid(1_000_000_000) as u32);
        let mut attributes = FileAttributes::zeroed();
        attributes.version.set(version(path, meta));
        attributes.inode.set(number(path));
        attributes.device.set(self.device);
        let (mode, len) = match meta.kind {
            Kind::Object => (OBJECT_MODE, meta.len),
            Kind::Directory => (DIRECTORY_MODE, DIRECTORY_LEN),
        };
        attributes.mode.set(mode);
        attributes.size.set(len);
        attributes.allocated.set(len);
        attributes.links.set(1);
        attributes.modified = time;
        attributes.changed = time;
        attributes.block_len.set(BLOCK_LEN);
        attributes.flags.set(FileAttributes::READ_ONLY);
        attributes
    }
}

/// A digest of what tells a version of an object from all others. Never 0.
pub(crate) fn version(path: &str, meta: &Meta) -> u64 {
    XxHash3_64::oneshot(&words(path, meta)).max(1)
}

fn words(path: &str, meta: &Meta) -> Vec<u8> {
    [path, &meta.version, &meta.len.to_string()].join("\0").into_bytes()
}

/// Where a listing continues behind an entry.
fn place_of(entry: &Entry) -> String {
    match entry.meta.kind {
        Kind::Object => entry.name.clone(),
        Kind::Directory => format!("{}/", entry.name),
    }
}

/// Files by their paths, with the key of each.
type FoundObjects = Rc<RefCell<BTreeMap<Vec<u8>, (String, Meta)>>>;

/// The directories below a path, for a search.
pub(super) struct Below<'a> {
    tree: &'a StoreTree,
    base: String,
    progress: &'a Progress,
    began: Instant,
    /// What the last listings gave.
    found: FoundObjects,
    /// What the store said last.
    pub(super) error: Cell<Option<StoreError>>,
}

impl<'a> Below<'a> {
    pub(super) fn new(tree: &'a StoreTree, base: String, progress: &'a Progress) -> Self {
        Self { tree, base, progress, began: Instant::now(), found: FoundObjects::default(), error: Cell::default() }
    }

    pub(super) fn found(&self) -> FoundObjects {
        Rc::clone(&self.found)
    }

    fn failed(&self, error: StoreError) -> Errno {
        let errno = error.errno;
        self.error.set(Some(error));
        errno
    }
}

impl Tree for Below<'_> {
    type Error = Errno;

    fn kind(&mut self, path: &[u8]) -> Result<Option<FoundKind>, Errno> {
        let Ok(key) = resolve(&self.base, path) else { return Ok(None) };
        match self.tree.store.head(&key) {
            Ok(meta) => {
                let kind = kind(&meta);
                self.found.borrow_mut().insert(path.to_vec(), (key, meta));
                Ok(Some(kind))
            }
            // Nothing is there, or no key is so.
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(error) => {
                *self.progress.at.borrow_mut() = path.to_vec();
                Err(self.failed(error))
            }
        }
    }

    fn list(&mut self, directory: &[u8], each: &mut dyn FnMut(&[u8], FoundKind)) -> Result<(), Errno> {
        *self.progress.at.borrow_mut() = directory.to_vec();
        let key = resolve(&self.base, directory)?;
        let mut after = String::new();
        loop {
            let page = self.tree.store.list(&key, &after).map_err(|error| self.failed(error))?;
            let mut found = self.found.borrow_mut();
            if found.len() > FOUND_MAX {
                found.clear();
            }
            for entry in &page.entries {
                self.progress.look(self.began)?;
                each(entry.name.as_bytes(), kind(&entry.meta));
                let mut path = directory.to_vec();
                if !path.is_empty() && !path.ends_with(b"/") {
                    path.push(b'/');
                }
                path.extend_from_slice(entry.name.as_bytes());
                found.insert(path, (below(&key, &entry.name), entry.meta.clone()));
                after = place_of(entry);
            }
            if !page.has_more {
                return Ok(());
            }
        }
    }
}

fn kind(meta: &Meta) -> FoundKind {
    match meta.kind {
        Kind::Object => FoundKind::File,
        Kind::Directory => FoundKind::Directory,
    }
}

/// Files of which a search remembers the metadata.
const FOUND_MAX: usize = 100_000;
