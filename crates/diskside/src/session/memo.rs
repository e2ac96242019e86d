//! Values that take long to make, each made once: a caller that wants another one meanwhile does not wait.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Values by key. Nothing is locked while one is made.
#[derive(Debug)]
pub(super) struct Memo<K, V> {
    entries: Mutex<HashMap<K, Entry<V>>>,
    /// An attempt has ended.
    ended: Notify,
    attempts: AtomicU64,
}

#[derive(Debug)]
enum Entry<V> {
    /// Somebody makes it; which attempt that is.
    Pending(u64),
    Made(V),
}

impl<K: Clone + Eq + Hash, V: Clone> Memo<K, V> {
    /// The value of a key, if there is one.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        match self.lock().get(key) {
            Some(Entry::Made(value)) => Some(value.clone()),
            _ => None,
        }
    }

    /// All keys that have a value.
    pub(super) fn all(&self) -> Vec<(K, V)> {
        let entries = self.lock();
        let made = entries.iter().filter_map(|(key, entry)| match entry {
            Entry::Made(value) => Some((key.clone(), value.clone())),
            Entry::Pending(_) => None,
        });
        made.collect()
    }

    /// Sets the value of a key.
    pub(super) fn insert(&self, key: K, value: V) {
        self.lock().insert(key, Entry::Made(value));
        self.ended.notify_waiters();
    }

    /// Forgets all values.
    pub(super) fn clear(&self) {
        self.lock().retain(|_, entry| matches!(entry, Entry::Pending(_)));
    }

    /// Takes out the value with the least rank, of those that have one.
    pub(super) fn take_least<R: Ord>(&self, rank: impl Fn(&V) -> Option<R>) -> Option<V> {
        let mut entries = self.lock();
        let ranked = entries.iter().filter_map(|(key, entry)| match entry {
            Entry::Made(value) => Some((rank(value)?, key)),
            Entry::Pending(_) => None,
        });
        let (_, key) = ranked.min_by(|(a, _), (b, _)| a.cmp(b))?;
        let key = key.clone();
        match entries.remove(&key) {
            Some(Entry::Made(value)) => Some(value),
            _ => None,
        }
    }

    /// The value of a key, made if there is none, or none that `is_good`. One caller makes it and others that want the
    /// same wait for it. If that fails they try it themselves, all at once: nobody waits for more than one other attempt.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) async fn get_or_make<E>(
        &self,
        key: K,
        is_good: impl Fn(&V) -> bool,
        make: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let good = |entry: Option<&Entry<V>>| match entry {
            Some(Entry::Made(value)) if is_good(value) => Some(value.clone()),
            _ => None,
        };
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let mut other = None;
        loop {
            // It hears of an end from here on.
            let ended = self.ended.notified();
            {
                let mut entries = self.lock();
                match entries.get(&key) {
                    Some(Entry::Pending(attempt)) if other.is_none_or(|other| other == *attempt) => {
                        other = Some(*attempt);
                    }
                    entry => {
                        if let Some(value) = good(entry) {
                            return Ok(value);
                        }
                        entries.insert(key.clone(), Entry::Pending(number));
                        break;
                    }
                }
            }
            ended.await;
        }
        let attempt = Attempt { memo: self, key: &key, number };
        let made = make.await?;
        // Another attempt may have been faster: all get the same value.
        let value = {
            let mut entries = self.lock();
            let value = good(entries.get(&key)).unwrap_or(made);
            entries.insert(key.clone(), Entry::Made(value.clone()));
            value
        };
        drop(attempt);
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Entry<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_attempt<V>(entry: Option<&Entry<V>>, number: u64) -> bool {
    matches!(entry, Some(Entry::Pending(pending)) if *pending == number)
}

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self { entries: Mutex::default(), ended: Notify::new(), attempts: AtomicU64::new(0) }
    }
}

/// A value that is being made. However that ends, those that wait for it continue.
struct Attempt<'a, K: Clone + Eq + Hash, V: Clone> {
    memo: &'a Memo<K, V>,
    key: &'a K,
    number: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> Drop for Attempt<'_, K, V> {
    fn drop(&mut self) {
        let mut entries = self.memo.lock();
        if is_attempt(entries.get(self.key), self.number) {
            entries.remove(self.key);
        }
        drop(entries);
        self.memo.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_io::request::run_here;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;
    use std::thread;

    fn any(_: &u32) -> bool {
        true
    }

    fn get_or_make<K: Clone + Eq + Hash, E>(
        memo: &Memo<K, u32>,
        key: K,
        is_good: impl Fn(&u32) -> bool,
        make: impl FnOnce() -> Result<u32, E>,
    ) -> Result<u32, E> {
        run_here(memo.get_or_make(key, is_good, async { make() }))
    }

    fn never() -> Result<u32, ()> {
        unreachable!("there is a value")
    }

    #[test]
    fn many_that_want_the_same_value_make_it_once() {
        let (memo, made) = (Memo::default(), AtomicU32::new(0));
        let make = || Ok::<_, ()>(made.fetch_add(1, Ordering::Relaxed));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(get_or_make(&memo, "key", any, make), Ok(0)));
            }
        });
        assert_eq!(get_or_make(&memo, "key", any, never), Ok(0));
        assert_eq!(get_or_make(&memo, "key", |value| *value > 0, make), Ok(1), "one that is not good is made again");
        memo.clear();
        assert_eq!(memo.get(&"key"), None);
    }

    /// One dead server held the map of all connections for five seconds.
    #[test]
    fn another_value_does_not_wait_for_one_that_is_being_made() {
        let memo = &Memo::default();
        let (begun, has_begun) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel();
        thread::scope(|scope| {
            let slow = scope.spawn(move || {
                get_or_make(memo, "slow", any, || {
                    begun.send(()).unwrap();
                    may_finish.recv().map_err(drop)
                })
            });
            has_begun.recv().unwrap();
            assert_eq!(get_or_make(memo, "quick", any, || Ok::<_, ()>(2)), Ok(2));
            assert_eq!((memo.get(&"slow"), memo.get(&"quick")), (None, Some(2)));
            memo.clear();
            finish.send(1).unwrap();
            assert_eq!(slow.join().unwrap(), Ok(1));
        });
        assert_eq!(memo.get(&"slow"), Some(1));
    }

    /// A key that counts how often it was looked up.
    #[derive(Clone)]
    struct Watched<'a>(&'a AtomicU32);

    impl Hash for Watched<'_> {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl PartialEq for Watched<'_> {
        fn eq(&self, _: &Self) -> bool {
            true
        }
    }

    impl Eq for Watched<'_> {}

    /// Those that wait for an attempt that fails try it all at once: one behind the other would wait for all before it.
    #[test]
    fn those_that_waited_for_a_failure_try_it_side_by_side() {
        const WAITERS: u32 = 4;
        let (looked_up, barrier) = (AtomicU32::new(0), std::sync::Barrier::new(WAITERS as usize));
        let (memo, key) = (&Memo::default(), Watched(&looked_up));
        let (begun, has_begun) = mpsc::channel();
        let (fail, may_fail) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let wanted = key.clone();
            let first = scope.spawn(move || {
                get_or_make(memo, wanted, any, || {
                    begun.send(()).unwrap();
                    may_fail.recv().unwrap();
                    Err::<u32, _>("first")
                })
            });
            has_begun.recv().unwrap();
            looked_up.store(0, Ordering::Relaxed);
            let attempt = |number| {
                let (key, barrier) = (key.clone(), &barrier);
                // It ends only when all of them make it.
                move || {
                    get_or_make(memo, key, any, || {
                        barrier.wait();
                        Ok::<_, &str>(number)
                    })
                }
            };
            let waiters: Vec<_> = (0..WAITERS).map(|number| scope.spawn(attempt(number))).collect();
            // A waiter that has seen the attempt hears of its end.
            while looked_up.load(Ordering::Relaxed) < WAITERS {
                thread::yield_now();
            }
            fail.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Err("first"));
            let values: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap().unwrap()).collect();
            assert!(values.iter().all(|value| *value == values[0]), "all get one value: {values:?}");
        });
    }

    #[test]
    fn the_least_value_that_may_go_is_taken() {
        let memo = Memo::default();
        [("a", 3), ("b", 1), ("c", 2)].into_iter().for_each(|(key, value)| memo.insert(key, value));
        assert_eq!(memo.take_least(|value| (*value != 1).then_some(*value)), Some(2));
        assert_eq!(memo.take_least(|value| (*value > 3).then_some(*value)), None);
        assert_eq!((memo.get(&"a"), memo.get(&"b"), memo.get(&"c")), (Some(3), Some(1), None));
    }

    #[test]
    fn a_panic_lets_the_next_one_try() {
        let memo = Memo::default();
        let panics = || get_or_make(&memo, "key", any, || -> Result<u32, ()> { panic!("on purpose") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(get_or_make(&memo, "key", any, || Ok::<_, ()>(7)), Ok(7));
    }
}
