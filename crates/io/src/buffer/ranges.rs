//! Memory whose ranges are borrowed one by one.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::memory::{Hugepages, Memory};

/// Memory that many threads use, each with ranges that nobody else has meanwhile.
///
/// A caller that asks for several ranges gets all of them at once, so that no two wait for each other. The first caller
/// is first: a later one does not overtake where the ranges overlap, and does where they do not.
///
/// ```
/// use diskside_io::buffer::RangeMemory;
///
/// let memory = RangeMemory::zeroed(1 << 20);
/// let mut guard = memory.lock(&[0..10, 100..200], None).expect("nobody else is there");
/// guard.parts()[1].fill(7);
/// assert!(memory.try_lock(&[150..151]).is_none());
/// drop(guard);
/// assert_eq!(memory.try_lock(&[150..151]).expect("free").parts()[0], [7]);
/// ```
pub struct RangeMemory {
    memory: Memory,
    len: usize,
    claims: Mutex<Claims>,
    freed: Condvar,
}

/// Ranges that are borrowed, until it is dropped.
#[derive(Debug)]
pub struct RangeGuard<'a> {
    memory: &'a RangeMemory,
    ticket: u64,
    ranges: Vec<Range<usize>>,
}

#[derive(Default)]
struct Claims {
    next: u64,
    /// Borrowed or waited for, in the order in which they were asked for.
    list: VecDeque<Claim>,
}

struct Claim {
    ticket: u64,
    ranges: Vec<Range<usize>>,
}

impl RangeMemory {
    /// `len` zero bytes. Pages cost memory when they are touched.
    pub fn zeroed(len: usize) -> Self {
        let memory = Memory::zeroed(len, Hugepages::No);
        Self { memory, len, claims: Mutex::default(), freed: Condvar::new() }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Borrows the ranges, and waits until that can be, or until a point in time. `None`: it could not be by then.
    ///
    /// # Panics
    /// If a range reaches past the end, or two of them overlap.
    pub fn lock(&self, ranges: &[Range<usize>], until: Option<Instant>) -> Option<RangeGuard<'_>> {
        self.lock_unless(ranges, until, || false)
    }

    /// The same, and waits no longer than until `stop` says so. That is asked whenever ranges become free, and after
    /// [`wake`](Self::wake).
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    pub fn lock_unless(
        &self,
        ranges: &[Range<usize>],
        until: Option<Instant>,
        stop: impl Fn() -> bool,
    ) -> Option<RangeGuard<'_>> {
        let (ticket, mut claims) = self.claim(ranges);
        while !claims.is_first(ticket) {
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            if stop() || rest.is_some_and(|rest| rest.is_zero()) {
                claims.list.retain(|claim| claim.ticket != ticket);
                drop(claims);
                self.freed.notify_all();
                return None;
            }
            claims = match rest {
                None => self.freed.wait(claims).unwrap_or_else(PoisonError::into_inner),
                Some(rest) => self.freed.wait_timeout(claims, rest).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        drop(claims);
        Some(RangeGuard { memory: self, ticket, ranges: ranges.to_vec() })
    }

    /// Anyone who waits looks whether it is to stop.
    pub fn wake(&self) {
        // Nobody is between its look and its wait.
        drop(self.claims());
        self.freed.notify_all();
    }

    /// Borrows the ranges if that can be at once.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self, ranges: &[Range<usize>]) -> Option<RangeGuard<'_>> {
        self.lock(ranges, Some(Instant::now()))
    }

    fn claim(&self, ranges: &[Range<usize>]) -> (u64, MutexGuard<'_, Claims>) {
        for (index, range) in ranges.iter().enumerate() {
            assert!(range.start <= range.end && range.end <= self.len, "a range reaches past the end of {}", self.len);
            let others = ranges.iter().take(index);
            assert!(others.into_iter().all(|other| !overlap(range, other)), "ranges of one borrow overlap");
        }
        let mut claims = self.claims();
        let ticket = claims.next;
        claims.next += 1;
        claims.list.push_back(Claim { ticket, ranges: ranges.to_vec() });
        (ticket, claims)
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims {
    /// Whether no claim before this one has a byte of its ranges.
    fn is_first(&self, ticket: u64) -> bool {
        let Some(at) = self.list.iter().position(|claim| claim.ticket == ticket) else { return false };
        let mine = &self.list[at].ranges;
        self.list
            .iter()
            .take(at)
            .all(|other| other.ranges.iter().all(|theirs| mine.iter().all(|m| !overlap(m, theirs))))
    }
}

impl RangeGuard<'_> {
    /// The bytes of each range, in the order in which they were asked for.
    pub fn parts(&mut self) -> Vec<&mut [u8]> {
        let start = self.memory.memory.address();
        let part = |range: &Range<usize>| {
            // SAFETY: the range lies inside the memory, which lives as long as the guard. Its claim is the first with any
            // of these bytes, and no reference into the memory is made but here; the ranges of one guard do not overlap,
            // and `&mut self` keeps them from being given out twice.
            unsafe { std::slice::from_raw_parts_mut(start.add(range.start).as_ptr(), range.len()) }
        };
        self.ranges.iter().map(part).collect()
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.memory.claims().list.retain(|claim| claim.ticket != self.ticket);
        self.memory.freed.notify_all();
    }
}

impl fmt::Debug for RangeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of ranges that has one")]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_range_is_somebody_s_alone() {
        let memory = RangeMemory::zeroed(4096);
        std::thread::scope(|scope| {
            for writer in 1..=4_u8 {
                let memory = &memory;
                scope.spawn(move || {
                    for round in 0..500_usize {
                        let at = round % 7 * 100;
                        let mut guard = memory.lock(&[at..at + 500, 4000..4096], None).unwrap();
                        for part in guard.parts() {
                            part.fill(writer);
                            std::hint::black_box(&mut *part);
                            assert!(part.iter().all(|&byte| byte == writer));
                        }
                    }
                });
            }
        });
        assert!(memory.try_lock(&[0..4096]).is_some(), "all of it was given back");
    }

    #[test]
    fn disjoint_ranges_do_not_wait_and_overlapping_ones_wait_in_order() {
        let memory = RangeMemory::zeroed(1000);
        let first = memory.lock(&[0..100, 500..600], None).unwrap();
        assert!(memory.try_lock(&[100..500]).is_some());
        assert!(memory.try_lock(&[599..601]).is_none());
        assert!(memory.lock(&[99..100], Some(Instant::now() + Duration::from_millis(5))).is_none());
        assert!(memory.try_lock(&[50..50]).is_some(), "no byte is asked for");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(memory.lock(&[0..1000], None).unwrap()));
            while memory.claims().list.len() < 2 {
                std::thread::yield_now();
            }
            assert!(memory.try_lock(&[700..800]).is_none(), "who waits for it came first");
            drop(first);
            waiting.join().unwrap();
        });
        assert!(memory.try_lock(&[700..800]).is_some());
    }

    #[test]
    fn a_wait_can_be_stopped_and_leaves_nothing_behind() {
        let (memory, stop) = (RangeMemory::zeroed(1000), AtomicBool::new(false));
        let first = memory.lock(&[0..100], None).unwrap();
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| memory.lock_unless(&[50..200], None, || stop.load(Ordering::SeqCst)).is_none());
            while memory.try_lock(&[150..151]).is_some() {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::SeqCst);
            memory.wake();
            assert!(waiting.join().unwrap(), "it gave up");
        });
        assert!(memory.try_lock(&[100..200]).is_some(), "its claim is gone");
        drop(first);
        assert!(memory.lock_unless(&[0..1000], None, || true).is_some(), "what is free needs no wait");
    }

    #[test]
    #[should_panic(expected = "ranges of one borrow overlap")]
    fn the_same_byte_is_not_borrowed_twice() {
        let _ = RangeMemory::zeroed(100).lock(&[0..10, 9..20], None);
    }

    #[test]
    #[should_panic(expected = "reaches past the end")]
    fn a_range_past_the_end_is_refused() {
        let _ = RangeMemory::zeroed(100).lock(&[0..101], None);
    }
}
