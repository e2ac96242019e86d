//! Opening a database: which version of it is read, and whether it is whole.

use super::ahead::Limits;
use super::cache::PageCache;
use super::failure::Failure;
use super::options::Options;
use super::page::Geometry;
use super::reader::{Reader, Source as _};
use super::remote::Remote;
use diskside::host::function::{FileInfo, FunctionError};
use diskside::io::request::{RequestFuture, block_on};
use diskside::wire::file::FileFlags;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes that are read first: page 1, or a part of it.
const FIRST_LEN: u64 = 16 << 10;
/// Linux' ENOENT.
const ENOENT: i32 = 2;

pub(crate) type Database = Reader<Remote>;

/// Opens the database that a URL names.
///
/// # Errors
/// It cannot be reached; or its file is not whole without another one beside it.
pub(crate) fn open(url: &str, options: &Options) -> Result<Database, Failure> {
    let parsed = url.parse().map_err(|error: diskside::LocationError| Failure::of(url, &error))?;
    let mut remote = Remote::open(parsed, options)?;
    // The version is known: a transaction that begins after this changes it, one that began before has a journal now.
    let journal = remote.files().info(&remote.beside("-journal"));
    let wal = remote.files().info(&remote.beside("-wal"));
    let first = (remote.len_bytes() > 0).then(|| remote.begin(0..remote.len_bytes().min(FIRST_LEN)));
    check_wal(&remote, wal)?;
    check_journal(&remote, journal)?;
    let first = first.map_or(Ok(Vec::new()), |first| remote.finish(first))?;
    let geometry = Geometry::of(&first, remote.len_bytes()).unwrap_or(Geometry::unknown(remote.len_bytes()));
    let (cache, len_bytes) = (shared_cache(&remote, options, &geometry), remote.len_bytes());
    let mut database = Reader::new(remote, geometry, len_bytes, cache, options.limits);
    let is_plain = options.limits == Limits::NONE;
    database.began_with(if is_plain { &first[..first.len().min(geometry.page_len as usize)] } else { &first });
    Ok(database)
}

/// The length of a file beside the database; 0: there is none.
fn len_of(remote: &Remote, found: RequestFuture<Result<FileInfo, FunctionError>>) -> Result<u64, Failure> {
    match block_on(found) {
        Ok(info) => Ok(info.len_bytes),
        Err(error) if error.errno() == Some(ENOENT) => Ok(0),
        Err(error) => Err(remote.failed(&format!("whether it is being changed is not known: {error}"))),
    }
}

/// Refuses a database whose newest transactions are in its write-ahead log.
fn check_wal(remote: &Remote, wal: RequestFuture<Result<FileInfo, FunctionError>>) -> Result<(), Failure> {
    match len_of(remote, wal)? {
        0 => Ok(()),
        len => Err(remote.failed(&format!(
            "its write-ahead log {}-wal has {len} bytes that are not in the database yet; at the server, close it or run \
             `PRAGMA wal_checkpoint(TRUNCATE)`",
            remote.name()
        ))),
    }
}

/// Refuses a database in which a transaction has begun or was cut off.
fn check_journal(remote: &Remote, journal: RequestFuture<Result<FileInfo, FunctionError>>) -> Result<(), Failure> {
    if len_of(remote, journal)? == 0 {
        return Ok(());
    }
    // With `journal_mode=PERSIST` a journal stays, and begins with zeroes when its transaction has ended.
    let opened = remote.files().open(&remote.beside("-journal"), FileFlags::READ);
    let begins = opened.and_then(|journal| block_on(journal.read_once(0, 1)));
    let is_hot = match begins {
        Ok(outcome) => outcome.result.first().is_some_and(|byte| *byte != 0),
        Err(error) if error.errno() == Some(ENOENT) => false,
        Err(error) => return Err(remote.failed(&error)),
    };
    if is_hot {
        let why = format!(
            "a transaction is changing it, or was cut off, as the journal {}-journal is there; try again, and if that stays, open \
             the database once with SQLite at the server",
            remote.name()
        );
        return Err(remote.failed(&why));
    }
    Ok(())
}

/// The pages of a version of a file; connections to the same one share them.
fn shared_cache(remote: &Remote, options: &Options, geometry: &Geometry) -> Arc<PageCache> {
    type Key = (String, u64, usize, u32);
    static SHARED: Mutex<Option<HashMap<Key, Weak<PageCache>>>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = shared.get_or_insert_with(HashMap::new);
    let key = (remote.name().to_owned(), remote.version(), options.cache_len, geometry.page_len);
    if let Some(cache) = shared.get(&key).and_then(Weak::upgrade) {
        return cache;
    }
    shared.retain(|_, cache| cache.strong_count() > 0);
    let cache = Arc::new(PageCache::new(options.cache_len));
    shared.insert(key, Arc::downgrade(&cache));
    cache
}
