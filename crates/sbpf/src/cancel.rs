//! Stopping calls from another thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A switch that stops a running call from another thread. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    pulled: AtomicBool,
    watchers: Mutex<Watchers>,
}

/// For code that cannot look at the switch all the time, such as a call that runs elsewhere.
#[derive(Default)]
struct Watchers {
    next: u64,
    waiting: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
}

/// An action to run when a token is pulled; if this is dropped before, it does not run.
#[derive(Debug)]
#[must_use = "dropped, it watches no more"]
pub struct CancelWatch {
    token: CancelToken,
    id: u64,
}

impl CancelToken {
    /// A token that nobody has pulled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the call at its next look, within a millisecond, and runs the action of
    /// [`when_cancelled`](Self::when_cancelled). Not for signal handlers: that may take a lock.
    pub fn cancel(&self) {
        self.0.pulled.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_values().for_each(|act| act());
    }

    /// Whether it was pulled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.pulled.load(Ordering::Relaxed)
    }

    /// Has `act` done once the token is pulled, in the thread that pulls it; at once if it was pulled before.
    pub fn when_cancelled(&self, act: impl FnOnce() + Send + 'static) -> CancelWatch {
        let mut watchers = self.lock();
        let id = watchers.next;
        watchers.next += 1;
        // The thread that pulls it looks for watchers afterwards, under the same lock.
        if self.0.pulled.load(Ordering::SeqCst) {
            drop(watchers);
            act();
        } else {
            watchers.waiting.insert(id, Box::new(act));
        }
        CancelWatch { token: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, Watchers> {
        self.0.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CancelWatch {
    fn drop(&mut self) {
        let act = self.token.lock().waiting.remove(&self.id);
        // The values that it holds may take the lock as well.
        drop(act);
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn counter() -> (Arc<AtomicU32>, impl Fn() -> Box<dyn FnOnce() + Send>) {
        let count = Arc::new(AtomicU32::new(0));
        let of = Arc::clone(&count);
        (count, move || {
            let count = Arc::clone(&of);
            Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
        })
    }

    #[test]
    fn who_watches_is_told_once_and_who_stopped_watching_is_not() {
        let (count, counting) = counter();
        let token = CancelToken::new();
        let watch = token.when_cancelled(counting());
        drop(token.when_cancelled(counting()));
        let clone = token.clone();
        clone.cancel();
        clone.cancel();
        assert!(token.is_cancelled());
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let late = token.when_cancelled(counting());
        assert_eq!(count.load(Ordering::Relaxed), 2, "too late to wait is at once");
        drop((watch, late));
        token.cancel();
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_watcher_that_comes_while_it_is_pulled_is_told_once() {
        for _ in 0..500 {
            let (count, counting) = counter();
            let token = CancelToken::new();
            let watches = std::thread::scope(|scope| {
                let puller = token.clone();
                scope.spawn(move || puller.cancel());
                (0..4).map(|_| token.when_cancelled(counting())).collect::<Vec<_>>()
            });
            assert_eq!(count.load(Ordering::Relaxed), 4);
            drop(watches);
        }
    }

    /// A token that another one pulls: a call of its own within a request that can be cancelled as a whole.
    #[test]
    fn tokens_can_be_chained() {
        let (outer, inner) = (CancelToken::new(), CancelToken::new());
        let chained = inner.clone();
        let _watch = outer.when_cancelled(move || chained.cancel());
        assert!(!inner.is_cancelled());
        outer.cancel();
        assert!(inner.is_cancelled());
    }
}
