//! Who may compute now: as many runs of functions at a time as there are engines, shared fairly among hosts.
//!
//! A thread holds a permit only while a function runs over a chunk, not while it waits for a disk or a host. A free
//! permit goes to the waiting host that has used the least time; background calls get one when nobody else wants it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_engine::Turns;
use diskside_nvme::wire::function::Class;

/// Permits to compute.
#[derive(Debug)]
pub(crate) struct Gate {
    permits: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: usize,
    waiting: Vec<Arc<Waiting>>,
    /// Time that hosts have used, as far as somebody of them computes or waits. A newcomer begins with the least.
    used: HashMap<u64, Share>,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    used: Duration,
    /// Threads that compute or wait.
    present: usize,
}

#[derive(Debug)]
struct Waiting {
    host: u64,
    class: Class,
    granted: Mutex<bool>,
    woken: Condvar,
}

impl Gate {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits: permits.max(1), state: Mutex::default() }
    }

    /// Threads that compute now.
    pub(crate) fn busy(&self) -> usize {
        self.lock().busy
    }

    /// Threads that wait for a permit.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Waits for a permit and keeps it until the guard is dropped.
    pub(crate) fn enter(&self, host: u64, class: Class) -> Permit<'_> {
        let waiting = {
            let mut state = self.lock();
            state.arrive(host);
            if state.busy < self.permits && state.waiting.is_empty() {
                state.busy += 1;
                return Permit { gate: self, host, began: Instant::now() };
            }
            let waiting = Waiting { host, class, granted: Mutex::new(false), woken: Condvar::new() };
            let waiting = Arc::new(waiting);
            state.waiting.push(Arc::clone(&waiting));
            waiting
        };
        let granted = waiting.granted.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waiting.woken.wait_while(granted, |granted| !*granted).unwrap_or_else(PoisonError::into_inner));
        Permit { gate: self, host, began: Instant::now() }
    }

    fn leave(&self, host: u64, ran: Duration) {
        let mut state = self.lock();
        state.busy -= 1;
        state.depart(host, ran);
        while state.busy < self.permits
            && let Some(next) = state.next()
        {
            state.busy += 1;
            *next.granted.lock().unwrap_or_else(PoisonError::into_inner) = true;
            next.woken.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn arrive(&mut self, host: u64) {
        let least = self.used.values().map(|share| share.used).min().unwrap_or_default();
        let share = self.used.entry(host).or_insert(Share { used: least, present: 0 });
        share.present += 1;
    }

    fn depart(&mut self, host: u64, ran: Duration) {
        let Some(share) = self.used.get_mut(&host) else { return };
        share.used += ran;
        share.present -= 1;
        // Kept while others are there: who leaves for a moment, to read on, must not begin anew.
        if self.used.values().all(|share| share.present == 0) && self.used.len() == 1 {
            self.used.clear();
        } else if self.used.len() > HOSTS_KEPT {
            self.used.retain(|_, share| share.present > 0);
        }
    }

    /// Takes out who is next: normal before background, then the host that used least, then who came first.
    fn next(&mut self) -> Option<Arc<Waiting>> {
        let key = |waiting: &Waiting| {
            let used = self.used.get(&waiting.host).map_or(Duration::ZERO, |share| share.used);
            (waiting.class == Class::Background, used)
        };
        let (at, _) = self.waiting.iter().enumerate().min_by_key(|(at, waiting)| (key(waiting), *at))?;
        Some(self.waiting.remove(at))
    }
}

/// Leave to compute.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    gate: &'a Gate,
    host: u64,
    began: Instant,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.gate.leave(self.host, self.began.elapsed());
    }
}

/// Hosts whose time is remembered while nobody computes.
const HOSTS_KEPT: usize = 1024;

/// The turns of one host's call.
#[derive(Debug)]
pub(crate) struct HostTurns {
    pub(crate) gate: Arc<Gate>,
    pub(crate) host: u64,
    pub(crate) class: Class,
    /// How long its threads waited for their turns.
    pub(crate) waited_ns: Arc<AtomicU64>,
}

impl Turns for HostTurns {
    fn take(&self, work: &mut dyn FnMut()) {
        let asked = Instant::now();
        let permit = self.gate.enter(self.host, self.class);
        let waited = permit.began.saturating_duration_since(asked);
        self.waited_ns.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Lets the given waiters queue up behind a held permit, and says in which order they got theirs.
    fn order(gate: &Arc<Gate>, waiters: &[(u64, Class)]) -> Vec<usize> {
        let held = gate.enter(99, Class::Normal);
        let (sender, receiver) = mpsc::channel();
        let threads: Vec<_> = (0..)
            .zip(waiters)
            .map(|(index, &(host, class))| {
                let (inner, sender) = (Arc::clone(gate), sender.clone());
                let thread = std::thread::spawn(move || {
                    let permit = inner.enter(host, class);
                    sender.send(index).unwrap();
                    drop(permit);
                });
                while gate.lock().waiting.len() <= index {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        drop(held);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        receiver.try_iter().collect()
    }

    #[test]
    fn who_used_less_is_first_and_background_is_last() {
        let gate = Arc::new(Gate::new(1));
        let _keep = gate.lock().used.insert(7, Share { used: Duration::from_secs(1), present: 1 });
        gate.lock().used.insert(8, Share { used: Duration::ZERO, present: 1 });
        let waiters = [(8, Class::Background), (7, Class::Normal), (8, Class::Normal), (7, Class::Normal)];
        assert_eq!(order(&gate, &waiters), [2, 1, 3, 0]);
        assert_eq!(gate.busy(), 0);
    }

    #[test]
    fn no_more_than_the_permits_compute_at_once() {
        use std::sync::atomic::AtomicUsize;
        let (gate, inside) = (Gate::new(2), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for host in 0..6 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let permit = gate.enter(host % 3, Class::Normal);
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(gate.busy(), 0);
        assert!(gate.lock().waiting.is_empty());
    }
}
