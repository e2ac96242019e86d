//! Steps that follow each other without a thread of their own.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use diskside_io::request::{Lost, Promise, RequestFuture, passing, promise};

/// Starts a future at once, and continues it in whichever thread completes what it waits for: mostly a queue's. So it
/// must neither sleep nor compute for long, unless it goes to an [`own_thread`] for that. It continues if its outcome is given up.
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

/// Continues where a future may sleep and compute: in a thread of its own, which it has until it next waits for something.
///
/// A future that somebody else runs, such as [`run_here`](diskside_io::request::run_here), continues where it is: that thread is its
/// own.
pub async fn own_thread() {
    poll_fn(|_| {
        if !passing::is_passing() {
            return Poll::Ready(());
        }
        passing::leave();
        Poll::Pending
    })
    .await;
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
        self.run(false);
    }
}

impl<T: Lost + Send + 'static> Task<T> {
    /// Takes steps until it waits for something, in a thread that is its `own` or belongs to others.
    fn run(self: Arc<Self>, own: bool) {
        self.phase.store(RUNNING, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self));
        loop {
            if passing::step(own, || self.step(&waker)) {
                // It stays RUNNING meanwhile. Without a thread it is gone, and its promise says that the request was lost.
                let thread = std::thread::Builder::new().name("diskside".into());
                if thread
                    .spawn({
                        let this = Arc::clone(&self);
                        move || this.run(true)
                    })
                    .is_err()
                {
                    drop(self.work.lock().unwrap_or_else(PoisonError::into_inner).take());
                }
                return;
            }
            if self.phase.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
            self.phase.store(RUNNING, Ordering::Release);
        }
    }

    fn step(&self, waker: &Waker) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Work { future, .. }) = work.as_mut() else { return };
        let mut context = Context::from_waker(waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let Ok(polled) = polled else {
            // A bug that its own message reports. Its promise says that the request was lost, and others of the thread continue.
            let lost = work.take();
            drop(work);
            drop(lost);
            return;
        };
        if let Poll::Ready(outcome) = polled {
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

    #[test]
    fn what_sleeps_has_a_thread_of_its_own_only_while_it_does() {
        let (promise, future) = promise::<Sum>();
        let (tell, told) = std::sync::mpsc::channel();
        let caller = std::thread::current().id();
        let total = drive(async move {
            assert!(passing::is_passing());
            own_thread().await;
            assert_ne!(std::thread::current().id(), caller);
            // It may wait for what takes steps itself.
            let own = block_on(drive(async { Sum(1) })).0;
            tell.send(std::thread::current().id()).unwrap();
            Sum(own + future.await.0)
        });
        let own = told.recv().unwrap();
        // It has left its thread, or is about to.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let completing = std::thread::spawn(move || promise.complete(Sum(2)));
        assert_ne!(completing.thread().id(), own);
        completing.join().unwrap();
        assert_eq!(block_on(total), Sum(3));
        assert!(!passing::is_passing());
    }
}
