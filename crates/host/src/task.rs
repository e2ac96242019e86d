//! Steps that follow each other without a thread of their own.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use diskside_io::request::{Lost, Promise, RequestFuture, promise};

/// Starts a future at once, and continues it in whichever thread completes what it waits for: mostly a queue's. So it
/// must neither sleep nor compute for long. It continues if its outcome is given up.
pub fn drive<T, F>(future: F) -> RequestFuture<T>
where
    T: Lost + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (promise, outcome) = promise();
    let work = Mutex::new(Some(Work { future: Box::pin(future), promise }));
    Arc::new(Task { phase: AtomicU8::new(IDLE), work }).wake();
    outcome
}

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
/// Running, and woken meanwhile.
const AGAIN: u8 = 2;

struct Task<T: Lost> {
    phase: AtomicU8,
    work: Mutex<Option<Work<T>>>,
}

struct Work<T: Lost> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    promise: Promise<T>,
}

impl<T: Lost + Send + 'static> Wake for Task<T> {
    fn wake(self: Arc<Self>) {
        // One thread runs it; the others leave word, and a wake-up while it runs is not lost.
        if self.phase.compare_exchange(IDLE, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_err()
            && self.phase.swap(AGAIN, Ordering::AcqRel) != IDLE
        {
            return;
        }
        self.phase.store(RUNNING, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self));
        loop {
            self.step(&waker);
            if self.phase.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
            self.phase.store(RUNNING, Ordering::Release);
        }
    }
}

impl<T: Lost + Send + 'static> Task<T> {
    fn step(&self, waker: &Waker) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Work { future, .. }) = work.as_mut() else { return };
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            let done = work.take();
            drop(work);
            if let Some(Work { future, promise }) = done {
                // The future is dropped first: the receiver of the outcome finds it gone.
                drop(future);
                promise.complete(outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_io::request::block_on;

    #[derive(Debug, PartialEq, Eq)]
    struct Sum(u64);

    impl Lost for Sum {
        fn lost(_: &'static str) -> Self {
            Self(u64::MAX)
        }
    }

    #[test]
    fn steps_follow_each_other_in_the_threads_that_complete_them() {
        let (promises, futures): (Vec<_>, Vec<_>) = (0..100).map(|_| promise::<Sum>()).unzip();
        let total = drive(async move {
            let mut sum = 0;
            for future in futures {
                sum += future.await.0;
            }
            Sum(sum)
        });
        assert!(!total.is_done());
        std::thread::scope(|scope| {
            for (at, part) in promises.into_iter().enumerate() {
                scope.spawn(move || part.complete(Sum(at as u64)));
            }
        });
        assert_eq!(block_on(total), Sum(4950));
    }

    #[test]
    fn one_that_never_waits_is_done_at_once_and_one_whose_source_is_gone_is_lost() {
        assert!(drive(async { Sum(1) }).is_done());
        let (promise, future) = promise::<Sum>();
        let lost = drive(future);
        drop(promise);
        assert_eq!(block_on(lost), Sum(u64::MAX));
    }
}
