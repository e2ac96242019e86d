//! The pages to ask for when SQLite reads one.

use super::chain::Chains;
use super::page::Geometry;
use super::rows::Rows;
use super::tree::{Pages, Trees};
use std::ops::Range;

/// Bytes of one request: the first of several is used while the others are on their way.
const REQUEST_LEN_MAX: u32 = 128 << 10;
/// Bytes between two wanted ranges that cost less than another request.
const GAP_LEN_MAX: u32 = 2 << 10;

/// How much is asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes around a page of which nothing is known; one page at least.
    pub(crate) around_len: u32,
    /// Bytes ahead of one scan, or of one value; 0: nothing is asked for ahead.
    pub(crate) ahead_len: u32,
}

impl Limits {
    /// One page at a time.
    pub(crate) const NONE: Self = Self { around_len: 0, ahead_len: 0 };
}

impl Default for Limits {
    fn default() -> Self {
        Self { around_len: 16 << 10, ahead_len: 2 << 20 }
    }
}

#[derive(Debug)]
pub(crate) struct Ahead {
    geometry: Geometry,
    limits: Limits,
    trees: Trees,
    chains: Chains,
    rows: Rows,
}

impl Ahead {
    pub(crate) fn new(geometry: Geometry, limits: Limits) -> Self {
        Self { geometry, limits, trees: Trees::default(), chains: Chains::default(), rows: Rows::default() }
    }

    /// A page is read: the ranges of pages to ask for. The one with the page itself, if that is not held, comes first.
    pub(crate) fn read(&mut self, number: u32, pages: &impl Pages) -> Vec<Range<u32>> {
        let is_held = pages.is_held(number);
        let window_max = self.limits.ahead_len / self.geometry.page_len;
        let mut wanted = Vec::new();
        if window_max > 0 && self.geometry.usable_len > 0 {
            let of_tree = self.trees.read(number, window_max, pages);
            let found = of_tree.or_else(|| self.chains.read(number, window_max, &self.geometry, pages));
            wanted = found.unwrap_or_default();
            wanted.extend(self.rows.read(number, window_max, &self.trees, pages));
        }
        if !is_held && wanted.is_empty() {
            wanted.extend(self.around(number));
        }
        if !is_held {
            wanted.push(number);
        }
        wanted.retain(|page| (1..=self.geometry.pages).contains(page) && !pages.is_held(*page));
        self.ranges(wanted, number)
    }

    /// Takes note of the bytes of a page that SQLite has read.
    pub(crate) fn learn(&mut self, number: u32, bytes: &[u8]) {
        if self.limits.ahead_len > 0 && self.geometry.usable_len > 0 {
            self.trees.learn(number, bytes);
            self.chains.learn(number, bytes);
            self.rows.learn(number, bytes, self.geometry.usable_len);
        }
    }

    /// The aligned pages around one, which cost no further round trip.
    fn around(&self, number: u32) -> Range<u32> {
        let count = (self.limits.around_len / self.geometry.page_len).max(1);
        let first = (number - 1) / count * count + 1;
        first..first.saturating_add(count)
    }

    /// Neighbouring pages together, in requests of bounded length.
    fn ranges(&self, mut wanted: Vec<u32>, number: u32) -> Vec<Range<u32>> {
        wanted.sort_unstable();
        wanted.dedup();
        let most = (REQUEST_LEN_MAX / self.geometry.page_len).max(1);
        let gap = GAP_LEN_MAX / self.geometry.page_len;
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for page in wanted {
            match ranges.last_mut() {
                Some(last) if page - last.end <= gap && page - last.start < most => last.end = page + 1,
                _ => ranges.push(page..page.saturating_add(1)),
            }
        }
        if let Some(at) = ranges.iter().position(|range| range.contains(&number)) {
            ranges[..=at].rotate_right(1);
        }
        ranges
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the expected ranges may be one")]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Held(Vec<u32>);

    impl Pages for Held {
        fn get(&self, _: u32) -> Option<Arc<[u8]>> {
            None
        }

        fn is_held(&self, page: u32) -> bool {
            self.0.contains(&page)
        }
    }

    fn ahead(page_len: u32, limits: Limits) -> Ahead {
        Ahead::new(Geometry { page_len, usable_len: page_len, pages: 1000 }, limits)
    }

    #[test]
    fn nothing_known_means_the_pages_around() {
        let nothing = Held(vec![]);
        assert_eq!(ahead(4096, Limits::default()).read(6, &nothing), [5..9]);
        assert_eq!(ahead(65536, Limits::default()).read(6, &nothing), [6..7]);
        assert_eq!(ahead(512, Limits::default()).read(1000, &nothing), [993..1001]);
        assert_eq!(ahead(4096, Limits::NONE).read(6, &nothing), [6..7]);
        assert_eq!(ahead(4096, Limits::default()).read(6, &Held(vec![7])), [5..7, 8..9]);
        assert!(ahead(4096, Limits::default()).read(6, &Held(vec![6])).is_empty());
        assert!(ahead(4096, Limits::default()).read(1001, &nothing).is_empty(), "pages that are not in the file");
    }

    #[test]
    fn neighbours_are_one_request_and_the_page_itself_is_in_the_first() {
        let ahead = ahead(4096, Limits::default());
        assert_eq!(ahead.ranges(vec![9, 3, 4, 5, 3, 100], 100), [100..101, 3..6, 9..10]);
        assert_eq!(ahead.ranges((1..=70).collect(), 40), [33..65, 1..33, 65..71]);
        assert_eq!(self::ahead(512, Limits::default()).ranges(vec![1, 5, 11], 5), [1..6, 11..12]);
    }
}
