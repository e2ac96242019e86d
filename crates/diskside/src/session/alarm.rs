//! Waiting for a time, without a thread for each that waits.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Is ready from a time on.
#[derive(Debug)]
pub(super) struct Alarm {
    at: Instant,
    /// Among those that wait.
    id: Option<u64>,
}

/// All that wait, in the order of their times. One thread wakes them, which is there as long as some do.
static CLOCK: Clock = Clock {
    alarms: Mutex::new(Alarms { next: 0, waiting: BTreeMap::new(), thread_of: None }),
    changed: Condvar::new(),
};

struct Clock {
    alarms: Mutex<Alarms>,
    changed: Condvar,
}

struct Alarms {
    next: u64,
    waiting: BTreeMap<(Instant, u64), Waker>,
    /// The process that has the thread: one that was forked does not.
    thread_of: Option<u32>,
}

impl Alarm {
    pub(super) fn at(at: Instant) -> Self {
        Self { at, id: None }
    }

    pub(super) fn after(time: Duration) -> Self {
        Self::at(Instant::now() + time)
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let mut alarms = CLOCK.lock();
        let process = std::process::id();
        if alarms.thread_of.is_some_and(|of| of != process) {
            // Those that wait are the other process's, and so is the thread.
            std::mem::forget(std::mem::take(&mut alarms.waiting));
            alarms.thread_of = None;
        }
        let id = *self.id.get_or_insert_with(|| {
            alarms.next += 1;
            alarms.next
        });
        alarms.waiting.insert((self.at, id), context.waker().clone());
        if alarms.thread_of.is_none() {
            // Without a thread it is looked at again when the future is next woken.
            let spawned = std::thread::Builder::new().name("diskside-clock".into()).spawn(|| CLOCK.run());
            alarms.thread_of = spawned.is_ok().then_some(process);
        }
        CLOCK.changed.notify_one();
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let woken = CLOCK.lock().waiting.remove(&(self.at, id));
            CLOCK.changed.notify_one();
            // What it wakes may have an alarm itself.
            drop(woken);
        }
    }
}

impl Clock {
    fn run(&self) {
        let mut alarms = self.lock();
        while let Some(&(at, _)) = alarms.waiting.keys().next() {
            let left = at.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                alarms = self.changed.wait_timeout(alarms, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let first = alarms.waiting.pop_first();
            drop(alarms);
            // A panic in what it wakes was reported, and keeps nobody else from waking.
            let wake = || first.into_iter().for_each(|(_, waker)| waker.wake());
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wake));
            alarms = self.lock();
        }
        alarms.thread_of = None;
    }

    fn lock(&self) -> MutexGuard<'_, Alarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_io::request::run_here;

    #[test]
    fn alarms_go_off_at_their_times_in_any_order() {
        let began = Instant::now();
        let times: Vec<_> = [30, 10, 20].map(|ms| (ms, Alarm::after(Duration::from_millis(ms)))).into();
        let given_up = Alarm::after(Duration::from_secs(3600));
        run_here(async move {
            let mut given_up = given_up;
            assert!(
                std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut given_up).poll(context))).await.is_pending()
            );
            drop(given_up);
            for (ms, alarm) in times {
                alarm.await;
                assert!(began.elapsed() >= Duration::from_millis(ms));
            }
        });
        assert!(began.elapsed() < Duration::from_secs(60), "none waits for another one");
    }
}
