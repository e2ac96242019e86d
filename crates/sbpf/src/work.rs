//! Work that preparing a program may take.
//!
//! It is counted, not timed, so that the same program has the same fate on every machine and at every load. A unit
//! is one look at one thing: some nanoseconds. A stage that runs out leaves the program in the plainer form that it
//! has so far, and says so.

use crate::cancel::CancelToken;
use std::cell::Cell;

/// The work that may still be done.
#[derive(Debug)]
pub struct Work {
    given: u64,
    left: Cell<u64>,
    cancel: Option<CancelToken>,
    /// Units until the next look at whether anybody still waits.
    unlooked: Cell<u64>,
}

/// There is nothing left, or nobody waits any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl Work {
    /// The work that optimising one program may take: some hundred milliseconds.
    pub const LOAD: u64 = 100_000_000;
    const LOOK: u64 = 1 << 16;

    /// So many units.
    #[must_use]
    pub fn new(units: u64) -> Self {
        Self { given: units, left: Cell::new(units), cancel: None, unlooked: Cell::new(Self::LOOK) }
    }

    /// The same, which ends when this token is pulled as well.
    #[must_use]
    pub fn cancelled_by(self, cancel: &CancelToken) -> Self {
        Self { cancel: Some(cancel.clone()), ..self }
    }

    /// Takes this many units.
    ///
    /// # Errors
    /// There are not as many. Then none are left at all, so that the next step ends at once.
    pub fn spend(&self, units: u64) -> Result<(), Exhausted> {
        let left = self.left.get();
        if units > left {
            self.left.set(0);
            return Err(Exhausted);
        }
        self.left.set(left - units);
        match self.unlooked.get().checked_sub(units) {
            Some(unlooked) => self.unlooked.set(unlooked),
            None => {
                self.unlooked.set(Self::LOOK);
                if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                    self.left.set(0);
                    return Err(Exhausted);
                }
            }
        }
        Ok(())
    }

    /// Units that were taken so far.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.given - self.left.get()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }
}

impl Default for Work {
    /// The work that optimising one program may take.
    fn default() -> Self {
        Self::new(Self::LOAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_suffice_leaves_nothing() {
        let work = Work::new(10);
        assert_eq!(work.spend(4), Ok(()));
        assert_eq!(work.spend(7), Err(Exhausted));
        assert!(work.is_exhausted());
        assert_eq!(work.spend(1), Err(Exhausted));
    }

    #[test]
    fn nobody_who_waits_ends_it() {
        let cancel = CancelToken::new();
        let work = Work::default().cancelled_by(&cancel);
        assert_eq!(work.spend(Work::LOOK + 1), Ok(()));
        cancel.cancel();
        assert_eq!((0..3).map(|_| work.spend(Work::LOOK / 2)).find(Result::is_err), Some(Err(Exhausted)));
    }
}
