//! Wakes what waits for a time: one thread for all controllers, asleep until the first of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// What is woken.
pub(crate) trait Timed: Send + Sync {
    /// The time that it asked for has come.
    fn timed_out(self: Arc<Self>, now: Instant);
}

/// The clock. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Clock {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    alarms: BTreeMap<(Instant, u64), Weak<dyn Timed>>,
    stopped: bool,
}

impl Clock {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let inner = Arc::new(Inner::default());
        let clock = Self { inner: Arc::clone(&inner) };
        std::thread::Builder::new().name("compute-clock".into()).spawn(move || inner.run())?;
        Ok(clock)
    }

    /// Wakes `who` at `at`; `id` tells apart what is woken at one time.
    pub(crate) fn arm(&self, at: Instant, id: u64, who: Weak<dyn Timed>) {
        let mut state = self.inner.lock();
        let first = state.alarms.first_key_value().is_none_or(|((first, _), _)| at < *first);
        state.alarms.insert((at, id), who);
        if first {
            self.inner.changed.notify_one();
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.inner.lock().stopped = true;
        self.inner.changed.notify_one();
    }
}

impl Inner {
    fn run(&self) {
        let mut state = self.lock();
        while !state.stopped {
            let now = Instant::now();
            let Some(entry) = state.alarms.first_entry() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (at, _) = *entry.key();
            if at > now {
                state = self.changed.wait_timeout(state, at - now).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let who = entry.remove().upgrade();
            drop(state);
            if let Some(who) = who {
                who.timed_out(now);
            }
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("alarms", &self.lock().alarms.len()).finish()
    }
}
