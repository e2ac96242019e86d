//! Footers, Bloom filters and indexes of files of exports, as scans on this machine read them. Another scan of the same version of a
//! file has them from here, and only rows travel.
//!
//! The bytes are kept once the scan has ended and the file was found to be the version that it was when the scan began: bytes of
//! another one never come under its version. A file that changed so recently that a further change might not show has no version here.

use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One file may have so many bytes for each byte of all.
const OF_FILE_PART: u64 = 2;
/// What a range takes besides its bytes, about.
const PART_LEN: u64 = 64;
/// Footers of which there is room for a note, however short each is.
const FOOTER_LEN_GUESS: u64 = 16 << 10;

/// Those of all files of a session, up to a number of bytes.
pub(super) struct Footers {
    len_max_bytes: u64,
    /// By the files' numbers. `None`: nothing is kept.
    kept: Option<Mutex<Cache<u64, Arc<OfVersion>, ByLength>>>,
}

/// Ranges of one version of a file.
#[derive(Clone, Debug)]
struct OfVersion {
    version: u64,
    parts: Parts,
}

/// Bytes by where they begin. None lies within another, so those that begin later end later.
#[derive(Clone, Debug, Default)]
struct Parts {
    by_start: BTreeMap<u64, Arc<[u8]>>,
    len_bytes: u64,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<u64, Arc<OfVersion>> for ByLength {
    fn weight(&self, _: &u64, of: &Arc<OfVersion>) -> u64 {
        of.parts.len_bytes + PART_LEN
    }
}

/// What a scan of one version of a file has and reads.
#[derive(Debug)]
pub(super) struct OfScan {
    file: u64,
    version: Option<u64>,
    known: Option<Arc<OfVersion>>,
    read: Arc<Read>,
    given_bytes: AtomicU64,
}

/// What it read, in the order in which it came.
#[derive(Debug)]
pub(super) struct Read {
    parts: Mutex<Vec<(u64, Arc<[u8]>)>>,
    room_bytes: AtomicU64,
}

impl Footers {
    pub(super) fn new(len_max_bytes: u64) -> Self {
        let kept = (len_max_bytes > 0).then(|| {
            let items = (len_max_bytes / FOOTER_LEN_GUESS).max(1) as usize;
            Mutex::new(Cache::with_weighter(items, len_max_bytes, ByLength))
        });
        Self { len_max_bytes, kept }
    }

    /// Bytes that are kept.
    pub(super) fn len_bytes(&self) -> u64 {
        self.lock().map_or(0, |kept| kept.weight())
    }

    /// Keeps nothing of what was kept.
    pub(super) fn clear(&self) {
        if let Some(mut kept) = self.lock() {
            kept.clear();
        }
    }

    /// What is there for a scan of a version of a file. What was kept of another one goes. `None`: nothing tells it from others, or it
    /// may change without a sign.
    pub(super) fn of(&self, file: u64, version: Option<u64>) -> OfScan {
        let version = version.filter(|_| self.kept.is_some());
        let known = version.zip(self.lock()).and_then(|(version, mut kept)| {
            let known = kept.get(&file).cloned().filter(|of| of.version == version);
            if known.is_none() {
                kept.remove(&file);
            }
            known
        });
        let room_bytes = if version.is_some() { self.len_max_bytes / OF_FILE_PART } else { 0 };
        let read = Arc::new(Read { parts: Mutex::default(), room_bytes: room_bytes.into() });
        OfScan { file, version, known, read, given_bytes: AtomicU64::new(0) }
    }

    /// Keeps what a scan has read. The file is still the version that the scan is of.
    pub(super) fn keep(&self, of: &OfScan) {
        let read = std::mem::take(&mut *of.read.lock());
        let (Some(version), Some(mut kept)) = (of.version, self.lock()) else { return };
        if read.is_empty() {
            return;
        }
        // Another scan may have kept something meanwhile.
        let known = kept.get(&of.file).filter(|known| known.version == version);
        let mut parts = known.map_or_else(Parts::default, |known| known.parts.clone());
        for (start, bytes) in read {
            if parts.len_bytes + bytes.len() as u64 + PART_LEN <= self.len_max_bytes / OF_FILE_PART {
                parts.insert(start, bytes);
            }
        }
        kept.insert(of.file, Arc::new(OfVersion { version, parts }));
    }

    fn lock(&self) -> Option<MutexGuard<'_, Cache<u64, Arc<OfVersion>, ByLength>>> {
        self.kept.as_ref().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Footers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Footers").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}

impl OfScan {
    /// A range, if all of it is kept.
    pub(super) fn get(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let bytes = self.known.as_ref()?.parts.get(offset, len)?;
        self.given_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Some(bytes)
    }

    /// Where what is read instead goes.
    pub(super) fn read(&self) -> Arc<Read> {
        Arc::clone(&self.read)
    }

    /// Bytes that were not read, because they were kept.
    pub(super) fn given_bytes(&self) -> u64 {
        self.given_bytes.load(Ordering::Relaxed)
    }
}

impl Read {
    /// Takes note of bytes, while there is room for more.
    pub(super) fn note(&self, start: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let taken = |room: u64| room.checked_sub(len + PART_LEN);
        if len > 0 && self.room_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok() {
            self.lock().push((start, bytes.into()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<[u8]>)>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    /// The one before `start`, or at it, ends last of all that begin before.
    fn at(&self, start: u64) -> Option<(u64, &Arc<[u8]>)> {
        self.by_start.range(..=start).next_back().map(|(start, bytes)| (*start, bytes))
    }

    fn get(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let (start, bytes) = self.at(offset)?;
        let skipped = usize::try_from(offset - start).ok()?;
        bytes.get(skipped..skipped.checked_add(len)?).map(<[u8]>::to_vec)
    }

    fn insert(&mut self, start: u64, bytes: Arc<[u8]>) {
        let end = start + bytes.len() as u64;
        if self.at(start).is_some_and(|(first, bytes)| first + bytes.len() as u64 >= end) {
            return;
        }
        let within = self.by_start.range(start..end).filter(|(first, bytes)| *first + bytes.len() as u64 <= end);
        for first in within.map(|(first, _)| *first).collect::<Vec<_>>() {
            let dropped = self.by_start.remove(&first).map_or(0, |bytes| bytes.len() as u64 + PART_LEN);
            self.len_bytes -= dropped;
        }
        self.len_bytes += bytes.len() as u64 + PART_LEN;
        self.by_start.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN_MAX: u64 = 64 << 10;

    /// A scan that reads ranges which have their offset's last byte in all places.
    fn scan(footers: &Footers, file: u64, version: u64, ranges: &[(u64, usize)]) -> Vec<bool> {
        let of = footers.of(file, Some(version));
        let found = ranges.iter().map(|(offset, len)| match of.get(*offset, *len) {
            Some(bytes) => {
                assert_eq!(bytes, bytes_of(version, *offset, *len));
                true
            }
            None => {
                of.read().note(*offset, &bytes_of(version, *offset, *len));
                false
            }
        });
        let found = found.collect();
        footers.keep(&of);
        found
    }

    fn bytes_of(version: u64, offset: u64, len: usize) -> Vec<u8> {
        (offset..offset + len as u64).map(|at| (at * 7 + version) as u8).collect()
    }

    #[test]
    fn what_a_scan_read_another_one_has_as_long_as_the_version_is_the_same() {
        let footers = Footers::new(LEN_MAX);
        assert_eq!(scan(&footers, 1, 7, &[(0, 8), (1000, 500), (900, 100)]), [false; 3]);
        assert_eq!(scan(&footers, 1, 7, &[(1000, 500), (1100, 17), (0, 9), (900, 101)]), [true, true, false, false]);
        assert_eq!(scan(&footers, 2, 7, &[(0, 8)]), [false], "another file");
        assert_eq!(scan(&footers, 1, 8, &[(1000, 500)]), [false], "another version");
        assert_eq!(scan(&footers, 1, 8, &[(1000, 500)]), [true]);
        assert_eq!(scan(&footers, 1, 7, &[(0, 8)]), [false], "the version before is not kept beside it");
        footers.clear();
        assert_eq!((footers.len_bytes(), scan(&footers, 2, 7, &[(0, 8)])), (0, vec![false]));
    }

    #[test]
    fn without_a_version_nothing_is_kept_or_looked_up() {
        let footers = Footers::new(LEN_MAX);
        scan(&footers, 1, 7, &[(0, 8)]);
        let of = footers.of(1, None);
        assert_eq!(of.get(0, 8), None);
        of.read().note(100, &[1; 8]);
        footers.keep(&of);
        assert_eq!(scan(&footers, 1, 7, &[(0, 8), (100, 8)]), [true, false]);
    }

    #[test]
    fn nothing_is_kept_of_a_scan_whose_file_was_replaced_meanwhile() {
        let footers = Footers::new(LEN_MAX);
        let of = footers.of(1, Some(7));
        of.read().note(0, &[1; 8]);
        // It fails, and is dropped.
        drop(of);
        assert_eq!((footers.len_bytes(), scan(&footers, 1, 7, &[(0, 8)])), (0, vec![false]));
    }

    #[test]
    fn all_files_and_each_of_them_have_their_bounds() {
        let footers = Footers::new(LEN_MAX);
        for file in 0..200 {
            scan(&footers, file, 1, &[(0, 5000)]);
            assert!(footers.len_bytes() <= LEN_MAX, "{}", footers.len_bytes());
        }
        assert!(footers.len_bytes() >= LEN_MAX / 2, "{}", footers.len_bytes());
        // The first ranges of a file, which are its footer, stay.
        let many: Vec<(u64, usize)> = (0..40).map(|at| (at * 5000, 4000)).collect();
        scan(&footers, 1000, 1, &many);
        let found = scan(&footers, 1000, 1, &many);
        assert_eq!(found.iter().position(|found| !found), Some(8), "{found:?}");
        let none = Footers::new(0);
        scan(&none, 1, 1, &[(0, 8)]);
        assert_eq!((none.len_bytes(), scan(&none, 1, 1, &[(0, 8)])), (0, vec![false]));
    }

    #[test]
    fn a_range_in_parts_that_overlap_is_found_where_one_has_all_of_it() {
        let mut seed = 5_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let (mut parts, mut all) = (Parts::default(), Vec::new());
            for _ in 0..=next(11) {
                let (start, len) = (next(60), 1 + next(29) as usize);
                parts.insert(start, bytes_of(1, start, len).into());
                all.push((start, len));
            }
            let kept: u64 = parts.by_start.values().map(|bytes| bytes.len() as u64 + PART_LEN).sum();
            assert_eq!(parts.len_bytes, kept);
            let (offset, len) = (next(90), 1 + next(19) as usize);
            let is_there = all.iter().any(|(start, of)| *start <= offset && offset + len as u64 <= start + *of as u64);
            let found = parts.get(offset, len);
            assert_eq!(found, is_there.then(|| bytes_of(1, offset, len)), "{offset} {len} of {all:?}");
        }
    }
}
