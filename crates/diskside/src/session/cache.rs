//! Blocks of files of exports that the host keeps, and reading through them.
//!
//! A block belongs to a version of a file. A reader asks the target first which version is the
//! current one; a file that changed so recently that a further change might not show (RECENT) is not
//! looked up. So what was kept is used only if the target would give the same.

use diskside_host::function::{FunctionError, RemoteFile};
use diskside_io::buffer::Part;
use diskside_io::readahead::{ReadAt, ReadAtError, Reading};
use diskside_wire::function::Outcome as DeviceOutcome;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of a block.
pub(super) const BLOCK_LEN: u64 = 256 << 10;
/// Blocks that one read asks the target for.
const READ_BLOCKS: u64 = 4;

/// A block of a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    file: u64,
    version: u64,
    block: u64,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<Key, Arc<[u8]>> for ByLength {
    fn weight(&self, _: &Key, bytes: &Arc<[u8]>) -> u64 {
        bytes.len() as u64 + size_of::<Key>() as u64
    }
}

/// Blocks of all files of a session, up to a number of bytes.
pub(super) struct BlockCache {
    /// `None`: nothing is kept.
    blocks: Option<Cache<Key, Arc<[u8]>, ByLength>>,
}

impl BlockCache {
    pub(super) fn new(len_max_bytes: u64) -> Self {
        let blocks = (len_max_bytes >= BLOCK_LEN).then(|| {
            let items = (len_max_bytes / BLOCK_LEN) as usize;
            Cache::with_weighter(items, len_max_bytes, ByLength)
        });
        Self { blocks }
    }

    /// Bytes that are kept.
    pub(super) fn len_bytes(&self) -> u64 {
        self.blocks.as_ref().map_or(0, Cache::weight)
    }

    /// Keeps nothing of what was kept.
    pub(super) fn clear(&self) {
        if let Some(blocks) = &self.blocks {
            blocks.clear();
        }
    }

    /// The kept ranges of a version of a file within `range`, ascending and apart.
    pub(super) fn ranges(&self, file: u64, version: u64, range: &Range<u64>) -> Vec<Range<u64>> {
        let Some(blocks) = &self.blocks else { return Vec::new() };
        let mut kept: Vec<Range<u64>> = Vec::new();
        for block in range.start / BLOCK_LEN..range.end.div_ceil(BLOCK_LEN) {
            if blocks.contains_key(&Key { file, version, block }) {
                let part = (block * BLOCK_LEN).max(range.start)..((block + 1) * BLOCK_LEN).min(range.end);
                match kept.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => kept.push(part),
                }
            }
        }
        kept
    }

    fn get(&self, key: &Key) -> Option<Arc<[u8]>> {
        self.blocks.as_ref()?.get(key)
    }

    fn insert(&self, key: Key, bytes: &[u8]) {
        if let Some(blocks) = &self.blocks {
            blocks.insert(key, bytes.into());
        }
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("len_bytes", &self.len_bytes()).finish()
    }
}

/// One version of a file, read through the cache.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) cache: Arc<BlockCache>,
    pub(super) file: RemoteFile,
    pub(super) id: u64,
    pub(super) version: u64,
    pub(super) len_bytes: u64,
    /// Whether what is kept may be used, and what is read be kept.
    pub(super) keep: bool,
    /// It became longer than it was when it was opened.
    pub(super) grew: AtomicBool,
    pub(super) fetched: Fetched,
}

/// What was fetched from the target.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) bytes: AtomicU64,
    pub(super) wire_bytes: AtomicU64,
    pub(super) time_ns: AtomicU64,
}

impl Fetched {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn wire_bytes(&self) -> u64 {
        self.wire_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn time_s(&self) -> f64 {
        self.time_ns.load(Ordering::Relaxed) as f64 * 1e-9
    }
}

impl CachedFile {
    /// Fills the buffer: from what is kept, and the rest from the target, all of it asked for at once.
    pub(super) async fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        if buffer.is_empty() {
            return Ok(());
        }
        let range = offset..offset + buffer.len() as u64;
        let mut missing = Vec::new();
        for block in range.start / BLOCK_LEN..range.end.div_ceil(BLOCK_LEN) {
            let kept = if self.keep { self.cache.get(&self.key(block)) } else { None };
            match kept {
                Some(bytes) => copy(block * BLOCK_LEN, &bytes, &range, buffer),
                None => missing.push(block),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let asked: Vec<_> = runs(&missing)
            .map(|blocks| {
                // Whole blocks, so that they can be kept; of a file that is not kept, what is wanted.
                let whole = blocks.start * BLOCK_LEN..(blocks.end * BLOCK_LEN).min(self.len_bytes);
                let wanted = whole.start.max(range.start)..whole.end.min(range.end);
                let part = if self.keep { whole } else { wanted };
                let read = self.file.read_once(part.start, (part.end - part.start) as u32);
                (part, read)
            })
            .collect();
        for (part, read) in asked {
            let bytes = self.finish(&part, read.await).await?;
            copy(part.start, &bytes, &range, buffer);
            if self.keep && !self.grew.load(Ordering::Relaxed) {
                for (at, block) in bytes.chunks(BLOCK_LEN as usize).enumerate() {
                    self.cache.insert(self.key(part.start / BLOCK_LEN + at as u64), block);
                }
            }
        }
        self.fetched.time_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// All bytes of a part, of which the target may give fewer at once.
    async fn finish(
        &self,
        part: &Range<u64>,
        first: Result<diskside_host::function::CallOutcome, FunctionError>,
    ) -> Result<Vec<u8>, ReadAtError> {
        let len = (part.end - part.start) as usize;
        let mut answer = first;
        let mut bytes = Vec::new();
        loop {
            let outcome = answer.map_err(read_error)?;
            if outcome.trailer.generation != self.version && outcome.trailer.generation != 0 {
                let now = self.file.stat().await.map_err(io::Error::from)?;
                if now.len_bytes <= self.len_bytes {
                    return Err(ReadAtError::Changed("another version than was opened".into()));
                }
                // It only grows, and what was there is read; but what is kept is kept of one version.
                self.grew.store(true, Ordering::Relaxed);
            }
            let got = outcome.result.len();
            self.fetched.bytes.fetch_add(got as u64, Ordering::Relaxed);
            self.fetched.wire_bytes.fetch_add(outcome.wire_bytes.0 + outcome.wire_bytes.1, Ordering::Relaxed);
            if bytes.is_empty() {
                bytes = outcome.result;
            } else {
                bytes.extend_from_slice(&outcome.result);
            }
            if bytes.len() >= len {
                bytes.truncate(len);
                return Ok(bytes);
            }
            if got == 0 {
                return Err(ReadAtError::Changed(format!("it ends at byte {}", part.start + bytes.len() as u64)));
            }
            answer = self.file.read_once(part.start + bytes.len() as u64, (len - bytes.len()) as u32).await;
        }
    }

    fn key(&self, block: u64) -> Key {
        Key { file: self.id, version: self.version, block }
    }
}

impl ReadAt for CachedFile {
    fn len(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        Box::pin(async move {
            self.fill(offset, into.bytes()).await?;
            Ok(into.buffer)
        })
    }
}

/// A server that reads one version only says that it is not there any more.
fn read_error(error: FunctionError) -> ReadAtError {
    if error.trailer().is_some_and(|trailer| trailer.outcome == DeviceOutcome::Stale) {
        return ReadAtError::Changed("another version than was opened".into());
    }
    ReadAtError::Io(error.into())
}

/// Copies what `bytes`, which begin at `at`, have of `range` into the buffer for that range.
fn copy(at: u64, bytes: &[u8], range: &Range<u64>, buffer: &mut [u8]) {
    let start = at.max(range.start);
    let end = (at + bytes.len() as u64).min(range.end);
    if start < end {
        let from = &bytes[(start - at) as usize..(end - at) as usize];
        buffer[(start - range.start) as usize..(end - range.start) as usize].copy_from_slice(from);
    }
}

/// Neighbouring blocks, a few at a time.
fn runs(blocks: &[u64]) -> impl Iterator<Item = Range<u64>> {
    blocks
        .chunk_by(|a, b| a + 1 == *b)
        .flat_map(|run| run.chunks(READ_BLOCKS as usize))
        .map(|part| part[0]..part[0] + part.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_of(blocks: &[u64]) -> BlockCache {
        let cache = BlockCache::new(64 * BLOCK_LEN);
        for &block in blocks {
            cache.insert(Key { file: 1, version: 7, block }, &vec![block as u8; BLOCK_LEN as usize]);
        }
        cache
    }

    #[test]
    fn the_cached_share_is_exact_and_belongs_to_a_version() {
        let cache = cache_of(&[0, 1, 4]);
        let range = 1000..5 * BLOCK_LEN - 10;
        let kept = cache.ranges(1, 7, &range);
        assert_eq!(kept, [1000..2 * BLOCK_LEN, 4 * BLOCK_LEN..5 * BLOCK_LEN - 10]);
        assert!(cache.ranges(1, 8, &range).is_empty() && cache.ranges(2, 7, &range).is_empty());
    }

    #[test]
    fn the_cache_stays_within_its_bytes() {
        let cache = cache_of(&(0..1000).collect::<Vec<_>>());
        assert!(cache.len_bytes() <= 64 * BLOCK_LEN, "{}", cache.len_bytes());
        assert!(cache.len_bytes() >= 32 * BLOCK_LEN, "{}", cache.len_bytes());
        cache.clear();
        assert_eq!(cache.len_bytes(), 0);
        let none = BlockCache::new(0);
        none.insert(Key { file: 1, version: 1, block: 0 }, b"x");
        assert_eq!((none.len_bytes(), none.ranges(1, 1, &(0..10))), (0, vec![]));
    }

    #[test]
    fn misses_are_asked_for_in_runs() {
        let runs: Vec<_> = runs(&[0, 1, 2, 3, 4, 7, 9, 10]).collect();
        assert_eq!(runs, [0..4, 4..5, 7..8, 9..11]);
    }

    #[test]
    fn parts_are_copied_where_they_belong() {
        let mut buffer = [0; 10];
        copy(95, &[1, 2, 3, 4, 5, 6, 7], &(100..110), &mut buffer);
        copy(108, &[8, 9, 10, 11], &(100..110), &mut buffer);
        assert_eq!(buffer, [6, 7, 0, 0, 0, 0, 0, 0, 8, 9]);
    }
}
