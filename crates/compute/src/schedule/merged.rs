//! Work of which one run at a time is enough: those who ask for it while it runs share the next run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs by what they work on, and those of type `T` who wait for the next run of each. A run serves only those who asked before it
/// began: what they did before is behind it.
#[derive(Debug)]
pub(crate) struct Merged<T>(Mutex<BTreeMap<u64, Vec<T>>>);

impl<T> Default for Merged<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Merged<T> {
    /// Asks for a run. `Some`: there is none now, and the caller begins it.
    #[must_use]
    pub(crate) fn ask(&self, key: u64, one: T) -> Option<T> {
        match self.lock().entry(key) {
            Entry::Occupied(mut running) => {
                running.get_mut().push(one);
                None
            }
            Entry::Vacant(free) => {
                free.insert(Vec::new());
                Some(one)
            }
        }
    }

    /// A run has ended, or did not begin. Those who are given asked meanwhile, and the caller begins one run for all of them; if
    /// there are none, there is no run any more.
    #[must_use]
    pub(crate) fn end(&self, key: u64) -> Vec<T> {
        let mut all = self.lock();
        let waiting = all.get_mut(&key).map(std::mem::take).unwrap_or_default();
        if waiting.is_empty() {
            all.remove(&key);
        }
        waiting
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each Clear flushed its volume and emptied its cache, thousands of times a second, and other hosts' reads took six times as
    /// long.
    #[test]
    fn those_that_come_while_one_runs_share_the_next_run() {
        let merged = Merged::default();
        assert_eq!(merged.ask(1, "first"), Some("first"));
        assert_eq!(merged.ask(2, "of another"), Some("of another"), "it does not wait for this one");
        assert_eq!([merged.ask(1, "second"), merged.ask(1, "third")], [None, None]);
        assert_eq!(
            merged.end(1),
            ["second", "third"],
            "they asked while the first ran, which may have done their part before"
        );
        assert_eq!(merged.ask(1, "fourth"), None, "that of the two runs");
        assert_eq!(merged.end(1), ["fourth"]);
        assert!(merged.end(1).is_empty());
        assert_eq!(merged.ask(1, "fifth"), Some("fifth"), "none runs");
        assert!(merged.end(2).is_empty());
    }
}
