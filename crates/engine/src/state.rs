//! Named state: memory that different programs share across calls.
//!
//! Runs that use one state come one after another, so a program finds it as the last run left it. A run that waits for
//! it ends with its deadline, or when it is cancelled. [`State::clear`] waits for nobody.

use diskside_sbpf::machine::CancelToken;
use diskside_sbpf::trap::TrapKind;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// A state region. Clones share it.
#[derive(Clone, Debug)]
pub struct State(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kept: Mutex<Kept>,
    free: Condvar,
}

#[derive(Debug)]
struct Kept {
    /// `None`: a run has them.
    words: Option<Vec<u64>>,
    /// Ranges to be zeroed when it gives them back: ascending, apart from each other.
    clears: Vec<Range<usize>>,
}

/// The state could not take note of a range: see [`State::clear`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a run uses the state now, and {CLEARS_MAX} parts of it are to be cleared after it; try again later")]
pub struct TooManyClears;

/// Ranges that wait for a run to end.
const CLEARS_MAX: usize = 1024;
/// How soon a run that waits hears that it was cancelled.
const LOOK: Duration = Duration::from_millis(10);

impl State {
    /// Zeroed state of at least this many bytes, rounded up to 8.
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        let kept = Kept { words: Some(vec![0; len_bytes.div_ceil(8)]), clears: Vec::new() };
        Self(Arc::new(Shared { kept: Mutex::new(kept), free: Condvar::new() }))
    }

    /// Sets a range of bytes to zero; the part beyond the end is ignored. Waits for nobody: while a run uses the state,
    /// this comes behind that run and before the next.
    ///
    /// # Errors
    /// Too many ranges that do not touch wait for a run to end.
    pub fn clear(&self, offset: usize, len_bytes: usize) -> Result<(), TooManyClears> {
        let range = offset..offset.saturating_add(len_bytes);
        let mut kept = self.0.lock();
        match &mut kept.words {
            Some(words) => zero(words, &range),
            None => kept.note(range)?,
        }
        Ok(())
    }

    /// Whether this is the same state.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A copy of its bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.lock(None, None).map_or_else(|_| Vec::new(), |held| held.as_bytes().to_vec())
    }

    /// Exclusive use for one run. A trap leaves the bytes as they are. The error is why the run is not to be any more.
    pub(crate) fn lock(&self, until: Option<Instant>, cancel: Option<&CancelToken>) -> Result<Held<'_>, TrapKind> {
        let mut kept = self.0.lock();
        loop {
            if let Some(words) = kept.words.take() {
                return Ok(Held { shared: &self.0, words });
            }
            if cancel.is_some_and(CancelToken::is_cancelled) {
                return Err(TrapKind::Cancelled);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(TrapKind::Deadline);
            }
            let wait = left.unwrap_or(LOOK).min(LOOK);
            kept = self.0.free.wait_timeout(kept, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The words of a state, while one run has them.
pub(crate) struct Held<'a> {
    shared: &'a Shared,
    words: Vec<u64>,
}

impl Deref for Held<'_> {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.words
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut kept = self.shared.lock();
        for range in std::mem::take(&mut kept.clears) {
            zero(&mut self.words, &range);
        }
        kept.words = Some(std::mem::take(&mut self.words));
        drop(kept);
        self.shared.free.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Adds a range to those that are to be cleared, joined with the ones that it touches.
    fn note(&mut self, mut range: Range<usize>) -> Result<(), TooManyClears> {
        let from = self.clears.partition_point(|other| other.end < range.start);
        let to = self.clears.partition_point(|other| other.start <= range.end);
        if from == to && self.clears.len() == CLEARS_MAX {
            return Err(TooManyClears);
        }
        for other in &self.clears[from..to] {
            range = range.start.min(other.start)..range.end.max(other.end);
        }
        self.clears.splice(from..to, [range]);
        Ok(())
    }
}

fn zero(words: &mut [u64], range: &Range<usize>) {
    let bytes = words.as_mut_bytes();
    let end = range.end.min(bytes.len());
    bytes[range.start.min(end)..end].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that cleared a state while a program ran on it waited for that program, and everybody behind it as well.
    #[test]
    fn a_clear_waits_for_nobody_and_comes_behind_the_run_that_goes_on() {
        let state = State::new(24);
        let mut held = state.lock(None, None).unwrap();
        held.copy_from_slice(&[1, 2, 3]);
        state.clear(8, 8).unwrap();
        assert_eq!(held[..], [1, 2, 3], "the run goes on undisturbed");
        held[1] = 7;
        drop(held);
        assert_eq!(state.lock(None, None).unwrap()[..], [1, 0, 3]);
        state.clear(16, usize::MAX).unwrap();
        assert_eq!(state.snapshot()[..16], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(state.snapshot()[16..], [0; 8]);
    }

    #[test]
    fn clears_that_wait_are_joined_and_bounded() {
        let state = State::new(8 * CLEARS_MAX);
        let held = state.lock(None, None).unwrap();
        for at in (0..CLEARS_MAX).rev() {
            state.clear(4 * at, 3).unwrap();
        }
        assert_eq!(state.clear(4 * CLEARS_MAX, 1), Err(TooManyClears));
        state.clear(3, 2).unwrap();
        assert_eq!(state.0.lock().clears[..2], [0..7, 8..11]);
        state.clear(0, usize::MAX).unwrap();
        let clears = state.0.lock().clears.clone();
        assert_eq!((clears.len(), &clears[0]), (1, &(0..usize::MAX)));
        drop(held);
        assert!(state.0.lock().clears.is_empty());
    }

    /// A call that waited for its state could not be cancelled, and did not hear of its deadline.
    #[test]
    fn who_waits_for_a_state_hears_of_a_cancel_and_of_the_deadline() {
        let state = State::new(8);
        let held = state.lock(None, None).unwrap();
        let until = Instant::now() + Duration::from_millis(30);
        assert_eq!(state.lock(Some(until), None).map(drop), Err(TrapKind::Deadline));
        assert!(Instant::now() >= until);
        let cancel = CancelToken::new();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| state.lock(None, Some(&cancel)).map(drop));
            cancel.cancel();
            assert_eq!(waits.join().unwrap(), Err(TrapKind::Cancelled));
            let waits = scope.spawn(|| state.lock(None, None).map(drop));
            drop(held);
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
    }
}
