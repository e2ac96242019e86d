//! The time of getting the input: a latency, and so much for each byte.
//!
//! A probe is a small part of a request. It waits for the disk's head and for a thread as a whole request does, or
//! finds the buffers of a link empty; its share of a request's time differs from its share of the length. So short and
//! long fetches are kept apart, and two points make a line.

use crate::window::Window;

/// Fetches from this length on are long ones.
const LONG_BYTES: u64 = 1 << 20;
/// Each byte takes at least this share of what it took in other fetches: the rest may be latency.
const SHARE_MIN: f64 = 0.1;

/// The last fetches of a side.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    short: Point,
    long: Point,
    /// Short ones became faster, and there was no long one since.
    hopes: bool,
}

/// Fetches of about a length.
#[derive(Debug, Default)]
struct Point {
    s_per_byte: Window,
    len_bytes: Window,
}

/// Seconds of a fetch by its length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    /// Below zero where the first bytes come faster than others.
    pub(crate) latency_s: f64,
    pub(crate) s_per_byte: f64,
}

impl Point {
    fn push(&mut self, s_per_byte: f64, len_bytes: f64) {
        self.s_per_byte.push(s_per_byte);
        self.len_bytes.push(len_bytes);
    }

    fn mean(&self) -> Option<(f64, f64)> {
        Some((self.s_per_byte.mean()?, self.len_bytes.mean()?))
    }
}

impl Fetch {
    pub(crate) fn push(&mut self, len_bytes: u64, seconds: f64) {
        self.hopes &= !is_long(len_bytes);
        let len = len_bytes as f64;
        self.point(len_bytes).push(seconds / len, len);
    }

    /// Whether there was one of about this length.
    pub(crate) fn knows(&self, len_bytes: u64) -> bool {
        let point = if is_long(len_bytes) { &self.long } else { &self.short };
        point.s_per_byte.count() > 0
    }

    pub(crate) fn line(&self) -> Option<Line> {
        let ((short_s, short_len), (long_s, long_len)) = match (self.short.mean(), self.long.mean()) {
            (Some(short), Some(long)) => (short, long),
            (one, other) => {
                let (s, len_bytes) = one.or(other)?;
                let s_per_byte = if self.hopes { 0.0 } else { s };
                return Some(Line { latency_s: (s - s_per_byte) * len_bytes, s_per_byte });
            }
        };
        let s_per_byte = (long_s * long_len - short_s * short_len) / (long_len - short_len);
        if s_per_byte < SHARE_MIN * long_s {
            return Some(Line { latency_s: 0.0, s_per_byte: long_s });
        }
        Some(Line { latency_s: (short_s - s_per_byte) * short_len, s_per_byte })
    }

    /// The world has changed, as fetches of this length say: those before are forgotten. Of short ones that became faster it
    /// is not known whether their latency did or each byte. That is hoped for: to try a long one costs one request, never to
    /// try one costs all of them.
    pub(crate) fn begin_anew(&mut self, len_bytes: u64, faster: bool) {
        *self.point(len_bytes) = Point::default();
        if faster && !is_long(len_bytes) && self.knows(LONG_BYTES) {
            self.long = Point::default();
            self.hopes = true;
        }
    }

    fn point(&mut self, len_bytes: u64) -> &mut Point {
        if is_long(len_bytes) { &mut self.long } else { &mut self.short }
    }
}

impl Line {
    pub(crate) fn at(&self, len_bytes: f64) -> f64 {
        if len_bytes <= 0.0 {
            return 0.0;
        }
        (self.latency_s + self.s_per_byte * len_bytes).max(SHARE_MIN * self.s_per_byte * len_bytes)
    }
}

fn is_long(len_bytes: u64) -> bool {
    len_bytes >= LONG_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lengths_make_a_line_and_one_a_share() {
        let mut fetch = Fetch::default();
        assert_eq!(fetch.line(), None);
        fetch.push(1 << 17, 0.001);
        let line = fetch.line().expect("one length");
        assert_eq!((line.latency_s, line.at((8 << 20) as f64)), (0.0, 0.064));
        fetch.push(8 << 20, 0.0095);
        let line = fetch.line().expect("two lengths");
        let at = |len: u64| (line.at(len as f64) * 1e6).round() as u64;
        assert_eq!((at(1 << 17), at(8 << 20), at(0)), (1000, 9500, 0));
        // A long one that took no longer than a short one tells nothing of a latency.
        let mut odd = Fetch::default();
        odd.push(1 << 17, 0.02);
        odd.push(8 << 20, 0.008);
        assert_eq!(odd.line().expect("two lengths").at((4 << 20) as f64), 0.004);
    }

    #[test]
    fn what_is_seen_of_short_ones_is_hoped_of_long_ones() {
        let at = |fetch: &Fetch, len: u64| fetch.line().expect("known").at(len as f64);
        let mut fetch = Fetch::default();
        fetch.push(8 << 20, 0.066);
        fetch.push(1 << 17, 0.003);
        fetch.begin_anew(1 << 17, true);
        fetch.push(1 << 17, 0.002);
        assert!((at(&fetch, 1 << 17) - 0.002).abs() < 1e-9 && at(&fetch, 8 << 20) < 0.0021, "{fetch:?}");
        assert!(!fetch.knows(8 << 20));
        fetch.push(8 << 20, 0.06);
        assert!((at(&fetch, 8 << 20) - 0.06).abs() < 1e-9, "one was tried");
        // Slower ones say nothing of long ones.
        fetch.begin_anew(1 << 17, false);
        fetch.push(1 << 17, 0.02);
        assert!((at(&fetch, 8 << 20) - 0.06).abs() < 1e-9, "{fetch:?}");
    }
}
