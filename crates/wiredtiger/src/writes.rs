//! Which ranges of a file were written since a moment.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Ranges that are remembered. A stash that is older than so many writes is not used any more.
const KEPT_MAX: usize = 4096;

/// A moment in the life of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// Every write is noted before it begins and when it has ended, so one that overlaps with a read in time is noted behind the mark
/// that was taken before the read.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    count: AtomicU64,
    kept: Mutex<VecDeque<Range<u64>>>,
}

impl Writes {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.count.load(Ordering::SeqCst))
    }

    pub(crate) fn note(&self, range: Range<u64>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(range);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether nothing of the range was written since the mark, as far as is known.
    pub(crate) fn untouched(&self, range: &Range<u64>, since: Mark) -> bool {
        if self.mark() == since {
            return true;
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = self.count.load(Ordering::SeqCst) - since.0;
        let overlaps = |written: &Range<u64>| written.start < range.end && range.start < written.end;
        noted <= kept.len() as u64 && !kept.iter().rev().take(noted as usize).any(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_known_until_too_many_have_followed() {
        let writes = Writes::default();
        let before = writes.mark();
        assert!(writes.untouched(&(0..10), before));
        writes.note(10..20);
        let between = writes.mark();
        for (range, is_clean) in [(0..10, true), (0..11, false), (19..30, false), (20..30, true)] {
            assert_eq!(writes.untouched(&range, before), is_clean, "{range:?}");
            assert!(writes.untouched(&range, between));
        }
        (0..KEPT_MAX).for_each(|_| writes.note(50..60));
        assert!(!writes.untouched(&(0..1), before), "it is not known any more");
        assert!(writes.untouched(&(0..1), between));
        assert!(!writes.untouched(&(55..56), between));
    }
}
