//! Reads of SQLite, answered from pages that are there, from pages that are on their way, or by asking for pages.

use super::ahead::{Ahead, Limits};
use super::cache::PageCache;
use super::page::Geometry;
use super::tree::Pages;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are asked for and not there yet; beyond that only the page that SQLite waits for is asked for.
const IN_FLIGHT_LEN_MAX: u64 = 16 << 20;

/// One version of a file.
pub(crate) trait Source {
    type Read;
    type Error;

    /// Asks for bytes that are in the file. Does not wait.
    fn begin(&mut self, range: Range<u64>) -> Self::Read;

    fn is_done(&self, read: &Self::Read) -> bool;

    /// The bytes of a read that is done; `None`: it failed. Never waits.
    fn taken(&self, read: Self::Read) -> Option<Vec<u8>>;

    /// Waits for all bytes of the range.
    fn finish(&mut self, read: Self::Read) -> Result<Vec<u8>, Self::Error>;
}

/// Counts since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// Pages that SQLite has read.
    pub(crate) pages: u64,
    /// Those of them that were there.
    pub(crate) hits: u64,
    /// Times that SQLite had to wait.
    pub(crate) waits: u64,
    /// Times that pages were asked for; as many as there were, together.
    pub(crate) trips: u64,
    /// Requests in all of these.
    pub(crate) requests: u64,
    /// Bytes that were asked for.
    pub(crate) bytes: u64,
}

impl std::fmt::Display for Statistics {
    /// As JSON.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pages, hits, waits, trips, requests, bytes } = self;
        write!(f, r#"{{"pages":{pages},"hits":{hits},"waits":{waits},"trips":{trips},"#)?;
        write!(f, r#""requests":{requests},"bytes":{bytes}}}"#)
    }
}

/// A database that is read page by page.
pub(crate) struct Reader<S: Source> {
    source: S,
    geometry: Geometry,
    len_bytes: u64,
    cache: Arc<PageCache>,
    ahead: Ahead,
    flights: Vec<Flight<S::Read>>,
    statistics: Statistics,
}

struct Flight<R> {
    pages: Range<u32>,
    read: R,
}

struct View<'a, R> {
    cache: &'a PageCache,
    flights: &'a [Flight<R>],
}

impl<R> Pages for View<'_, R> {
    fn get(&self, page: u32) -> Option<Arc<[u8]>> {
        self.cache.get(page)
    }

    fn is_held(&self, page: u32) -> bool {
        self.flights.iter().any(|flight| flight.pages.contains(&page)) || self.cache.contains(page)
    }
}

impl<S: Source> Reader<S> {
    pub(crate) fn new(source: S, geometry: Geometry, len_bytes: u64, cache: Arc<PageCache>, limits: Limits) -> Self {
        // Pages that are asked for ahead have to be there when they are needed.
        let ahead_len = limits.ahead_len.min(u32::try_from(cache.len_max() / 4).unwrap_or(u32::MAX));
        let ahead = Ahead::new(geometry, Limits { ahead_len, ..limits });
        // Pages behind the last one that has a number are never asked for.
        let len_bytes = len_bytes.min(u64::from(geometry.pages) * u64::from(geometry.page_len));
        Self { source, geometry, len_bytes, cache, ahead, flights: Vec::new(), statistics: Statistics::default() }
    }

    #[cfg(test)]
    fn source(&mut self) -> &mut S {
        &mut self.source
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Counts what was asked for before there was a reader, and keeps its bytes, which begin the file.
    pub(crate) fn began_with(&mut self, bytes: &[u8]) {
        self.statistics.trips += 1;
        self.statistics.requests += 1;
        self.statistics.bytes += bytes.len() as u64;
        let pages = 1..(bytes.len() as u32 / self.geometry.page_len + 1).min(self.geometry.pages + 1);
        keep(&self.cache, &self.geometry, &pages, bytes);
    }

    /// Fills the buffer as far as the file has bytes there, and says how many.
    pub(crate) fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, S::Error> {
        let count = self.len_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let page_len = u64::from(self.geometry.page_len);
            // The file's length bounds the number.
            let (number, skip) = ((at / page_len) as u32 + 1, (at % page_len) as usize);
            let page = self.page(number)?;
            let bytes = page.get(skip..).unwrap_or_default();
            let len = bytes.len().min(count - done);
            if len == 0 {
                break;
            }
            buffer[done..done + len].copy_from_slice(&bytes[..len]);
            done += len;
        }
        Ok(done)
    }

    fn page(&mut self, number: u32) -> Result<Arc<[u8]>, S::Error> {
        self.statistics.pages += 1;
        self.land();
        let mut ranges = self.ahead.read(number, &View { cache: &self.cache, flights: &self.flights });
        let in_flight: u64 =
            self.flights.iter().map(|flight| self.bytes_of(&flight.pages)).map(|it| it.end - it.start).sum();
        if in_flight > IN_FLIGHT_LEN_MAX {
            ranges.retain(|range| range.contains(&number));
        }
        if !ranges.is_empty() {
            self.statistics.trips += 1;
        }
        for pages in ranges {
            let range = self.bytes_of(&pages);
            self.statistics.requests += 1;
            self.statistics.bytes += range.end - range.start;
            let read = self.source.begin(range);
            self.flights.push(Flight { pages, read });
        }
        let page = match self.cache.get(number) {
            Some(page) => {
                self.statistics.hits += 1;
                page
            }
            None => self.wait_for(number)?,
        };
        self.ahead.learn(number, &page);
        Ok(page)
    }

    /// Keeps the pages that have come. One that failed is asked for again when SQLite needs it, and then fails.
    fn land(&mut self) {
        let source = &mut self.source;
        for flight in self.flights.extract_if(.., |flight| source.is_done(&flight.read)).collect::<Vec<_>>() {
            if let Some(bytes) = source.taken(flight.read) {
                keep(&self.cache, &self.geometry, &flight.pages, &bytes);
            }
        }
    }

    fn wait_for(&mut self, number: u32) -> Result<Arc<[u8]>, S::Error> {
        self.statistics.waits += 1;
        let Flight { pages, read } = match self.flights.iter().position(|flight| flight.pages.contains(&number)) {
            Some(at) => self.flights.swap_remove(at),
            // It was there when it was looked for, and has been evicted since.
            None => {
                self.statistics.requests += 1;
                let pages = number..number + 1;
                Flight { read: self.source.begin(self.bytes_of(&pages)), pages }
            }
        };
        // Each of the others would be waited for as long, one after the other.
        let bytes = self.source.finish(read).inspect_err(|_| self.flights.clear())?;
        keep(&self.cache, &self.geometry, &pages, &bytes);
        Ok(piece(&self.geometry, &pages, number, &bytes).into())
    }

    fn bytes_of(&self, pages: &Range<u32>) -> Range<u64> {
        let begin = |page: u32| (u64::from(page - 1) * u64::from(self.geometry.page_len)).min(self.len_bytes);
        begin(pages.start)..begin(pages.end)
    }
}

fn keep(cache: &PageCache, geometry: &Geometry, pages: &Range<u32>, bytes: &[u8]) {
    for number in pages.clone() {
        cache.insert(number, piece(geometry, pages, number, bytes));
    }
}

/// The bytes of one of several pages; fewer than a page at the end of the file.
fn piece<'a>(geometry: &Geometry, pages: &Range<u32>, number: u32, bytes: &'a [u8]) -> &'a [u8] {
    let at = (number - pages.start) as usize * geometry.page_len as usize;
    let end = bytes.len().min(at + geometry.page_len as usize);
    bytes.get(at..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::{interior, leaf};
    use super::*;

    /// A file in memory, whose reads end when they are waited for, or at once.
    struct Memory {
        bytes: Vec<u8>,
        is_eager: bool,
        /// Reads from this byte on fail.
        fails_from: u64,
        /// Reads that were waited for.
        waits: u32,
    }

    impl Source for Memory {
        type Read = Range<u64>;
        type Error = String;

        fn begin(&mut self, range: Range<u64>) -> Range<u64> {
            assert!(range.start < range.end && range.end <= self.bytes.len() as u64, "{range:?} is not in the file");
            range
        }

        fn is_done(&self, _: &Range<u64>) -> bool {
            self.is_eager
        }

        fn taken(&self, read: Range<u64>) -> Option<Vec<u8>> {
            (read.end <= self.fails_from).then(|| self.bytes[read.start as usize..read.end as usize].to_vec())
        }

        fn finish(&mut self, read: Range<u64>) -> Result<Vec<u8>, String> {
            self.waits += 1;
            if read.end > self.fails_from {
                return Err(format!("{read:?} failed"));
            }
            Ok(self.bytes[read.start as usize..read.end as usize].to_vec())
        }
    }

    fn reader(bytes: Vec<u8>, limits: Limits, is_eager: bool, cache_len: usize) -> Reader<Memory> {
        let geometry = Geometry { page_len: 512, usable_len: 512, pages: bytes.len().div_ceil(512) as u32 };
        let (len, cache) = (bytes.len() as u64, Arc::new(PageCache::new(cache_len)));
        Reader::new(Memory { bytes, is_eager, fails_from: u64::MAX, waits: 0 }, geometry, len, cache, limits)
    }

    /// Random pages, of which many look like those of trees that lead anywhere.
    fn hostile(random: &mut fastrand::Rng) -> Vec<u8> {
        let pages = random.u32(1..80);
        let mut bytes = Vec::new();
        for _ in 0..pages {
            let numbers = |random: &mut fastrand::Rng, max| -> Vec<u32> {
                let count = random.usize(1..20);
                std::iter::repeat_with(|| if random.u8(..) < 9 { random.u32(..) } else { random.u32(0..max) })
                    .take(count)
                    .collect()
            };
            bytes.extend(match random.u8(..5) {
                0 | 1 => interior(512, &numbers(random, pages + 3)),
                2 => leaf(512, &[(random.u16(500..16000), random.u32(0..pages + 3))]),
                3 => [&random.u32(0..pages + 3).to_be_bytes()[..], &[0; 508]].concat(),
                _ => std::iter::repeat_with(|| random.u8(..)).take(512).collect(),
            });
        }
        bytes.truncate(bytes.len() - random.usize(..512));
        bytes
    }

    #[test]
    fn all_reads_of_hostile_files_are_as_the_file_is() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let file = hostile(&mut random);
            let limits = *random
                .choice(&[Limits::default(), Limits::NONE, Limits { around_len: 4096, ahead_len: 8192 }])
                .expect("one");
            let mut reader = reader(file.clone(), limits, random.bool(), 16 << 10);
            let mut last = 0_u64;
            for _ in 0..300 {
                let ahead = [last + 512, random.u64(0..file.len() as u64 + 600), last.saturating_sub(512)];
                let offset = *random.choice(&ahead).expect("one");
                last = offset / 512 * 512;
                let mut buffer = vec![0xaa; *random.choice(&[16, 100, 508, 512, 1700]).expect("one")];
                let offset = if buffer.len() == 512 { last } else { offset };
                let count = reader.read_at(offset, &mut buffer).expect("it is read");
                let from = (offset as usize).min(file.len());
                let expected = &file[from..(from + buffer.len()).min(file.len())];
                assert_eq!(&buffer[..count], expected, "at {offset}");
            }
        }
    }

    /// A table of 2,000 leaves below 20 interior pages, as a scan reads it.
    fn table() -> (Vec<u8>, Vec<u32>) {
        let mut file = vec![0; 512];
        file.extend(interior(512, &(3..23).collect::<Vec<_>>()));
        let mut order = vec![2];
        for index in 0..20 {
            let leaves: Vec<u32> = (0..60).map(|leaf| 23 + 60 * index + leaf).collect();
            file.extend(interior(512, &leaves));
            order.extend([vec![3 + index], leaves].concat());
        }
        file.resize(file.len() + 1200 * 512, 13);
        (file, order)
    }

    fn scanned(limits: Limits, is_eager: bool) -> Statistics {
        let (file, order) = table();
        let mut reader = reader(file, limits, is_eager, 256 << 10);
        for page in order {
            reader.read_at(u64::from(page - 1) * 512, &mut [0; 512]).expect("it is read");
        }
        reader.statistics()
    }

    #[test]
    fn a_scan_waits_rarely_and_reads_each_page_once() {
        for is_eager in [true, false] {
            let counts = scanned(Limits { around_len: 512, ahead_len: 32 << 10 }, is_eager);
            assert_eq!(counts.pages, 1221);
            assert!(counts.trips < 80, "{counts:?}");
            assert!(counts.bytes < 1300 * 512, "{counts:?}");
        }
        let plain = scanned(Limits::NONE, true);
        assert_eq!((plain.trips, plain.waits, plain.bytes), (1221, 1221, 1221 * 512));
    }

    #[test]
    fn a_failed_read_ahead_fails_when_its_page_is_needed() {
        let (file, order) = table();
        let mut reader = reader(file, Limits::default(), true, 1 << 20);
        reader.source().fails_from = 600 * 512;
        let failed = order.iter().find(|page| reader.read_at(u64::from(**page - 1) * 512, &mut [0; 512]).is_err());
        assert!(failed.is_some_and(|page| (345..=601).contains(page)), "{failed:?}");
        reader.source().fails_from = u64::MAX;
        reader.read_at(700 * 512, &mut [0; 512]).expect("it can be read again");
    }

    /// Each read ahead of a server that stood still was waited for as long as the first one: minutes, for one that is lost after seconds.
    #[test]
    fn reads_ahead_of_one_that_failed_are_not_waited_for() {
        let (file, order) = table();
        let mut reader = reader(file, Limits::default(), false, 1 << 20);
        let mut pages = order.iter().map(|page| u64::from(*page - 1) * 512);
        while reader.flights.len() < 2 {
            let offset = pages.next().expect("several are on their way");
            reader.read_at(offset, &mut [0; 512]).expect("it is read");
        }
        (reader.source().fails_from, reader.source().waits) = (0, 0);
        while reader.read_at(pages.next().expect("not all pages are there"), &mut [0; 512]).is_ok() {}
        assert_eq!((reader.source().waits, reader.flights.len()), (1, 0));
        reader.land();
        assert_eq!(reader.source().waits, 1);
    }

    #[test]
    fn what_began_the_file_is_not_asked_for_again() {
        let (file, _) = table();
        let mut reader = reader(file.clone(), Limits::default(), true, 1 << 20);
        reader.began_with(&file[..4096]);
        reader.read_at(0, &mut [0; 1024]).expect("it is read");
        assert_eq!((reader.statistics().trips, reader.statistics().hits), (1, 2));
    }
}
