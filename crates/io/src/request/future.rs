//! The future of a request: one producer, one consumer, any executor or none.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::{Outcome, Status, passing};

/// How long a thread looks for an outcome before it sleeps: waking it would cost twice as much.
const SPIN: Duration = Duration::from_micros(20);

const PRE_SUBMISSION: u8 = 0;
const IN_FLIGHT: u8 = 1;
const DONE: u8 = 2;

/// The outcome of a request, now or later. Dropping it gives the outcome up, not the request.
#[derive(Debug)]
pub struct RequestFuture<T = Outcome> {
    shared: Arc<Shared<T>>,
}

/// The producer's side of a [`RequestFuture`]: for back ends.
///
/// A promise that is dropped without an outcome completes its request as lost.
#[derive(Debug)]
pub struct Promise<T: Lost = Outcome> {
    shared: Option<Arc<Shared<T>>>,
}

/// Outcomes that can say that the request was lost.
pub trait Lost {
    /// The outcome of a request whose back end ended first.
    fn lost(what: &'static str) -> Self;
}

impl<T, E: Lost> Lost for Result<T, E> {
    fn lost(what: &'static str) -> Self {
        Err(E::lost(what))
    }
}

impl Lost for Outcome {
    fn lost(what: &'static str) -> Self {
        Self::failed(Status::lost(what), None)
    }
}

#[derive(Debug)]
struct Shared<T> {
    phase: AtomicU8,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    outcome: Option<T>,
    waker: Option<Waker>,
}

/// A new pair: the back end keeps the promise, the caller gets the future.
pub fn promise<T: Lost>() -> (Promise<T>, RequestFuture<T>) {
    let state = State { outcome: None, waker: None };
    let shared = Arc::new(Shared { phase: AtomicU8::new(PRE_SUBMISSION), state: Mutex::new(state) });
    (Promise { shared: Some(Arc::clone(&shared)) }, RequestFuture { shared })
}

/// The index of a request that is done, if any is.
pub fn poll<T>(requests: &[RequestFuture<T>]) -> Option<usize> {
    requests.iter().position(RequestFuture::is_done)
}

/// Waits for one request.
pub fn block_on<T>(request: RequestFuture<T>) -> T {
    block_on_any(std::slice::from_ref(&request));
    request.take()
}

/// Runs any future to its end on the calling thread, which sleeps while there is nothing to do, but not at once.
pub fn run_here<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let unpark = Arc::new(Unpark::new());
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        debug_assert!(!passing::is_passing(), "{NO_SLEEP}");
        unpark.wait();
    }
}

/// It may be the thread that is to complete what this waits for.
const NO_SLEEP: &str = "a step of a future sleeps in a thread that others need";

/// Waits until one of the requests is done and returns its index.
///
/// # Panics
/// If there are no requests: none would ever be done.
pub fn block_on_any<T>(requests: &[RequestFuture<T>]) -> usize {
    assert!(!requests.is_empty(), "waiting for one of no requests would never end");
    let started = Instant::now();
    while started.elapsed() < SPIN {
        if let Some(index) = poll(requests) {
            return index;
        }
        std::hint::spin_loop();
    }
    debug_assert!(!passing::is_passing(), "{NO_SLEEP}");
    let waker = Waker::from(Arc::new(Unpark::new()));
    for (index, request) in requests.iter().enumerate() {
        if request.shared.register(&waker) {
            return index;
        }
    }
    loop {
        // Others may unpark this thread as well: only a request that is done ends the wait.
        std::thread::park();
        if let Some(index) = poll(requests) {
            return index;
        }
    }
}

/// Waits for all requests and returns their outcomes in the order of the requests.
pub fn block_on_all<T>(requests: impl IntoIterator<Item = RequestFuture<T>>) -> Vec<T> {
    requests.into_iter().map(block_on).collect()
}

impl<T> RequestFuture<T> {
    /// Whether the outcome is there.
    pub fn is_done(&self) -> bool {
        self.shared.phase.load(Ordering::Acquire) == DONE
    }

    /// The outcome, if it is there; else the future again.
    pub fn try_take(self) -> Result<T, Self> {
        if self.is_done() { Ok(self.take()) } else { Err(self) }
    }

    fn take(self) -> T {
        self.shared.lock().outcome.take().expect("a request that is done has an outcome, taken once")
    }
}

impl RequestFuture {
    /// Where the request stands.
    pub fn status(&self) -> Status {
        match self.shared.phase.load(Ordering::Acquire) {
            PRE_SUBMISSION => Status::PreSubmission,
            IN_FLIGHT => Status::InFlight,
            _ => self.shared.lock().outcome.as_ref().map_or(Status::Success, |outcome| outcome.status),
        }
    }
}

impl<T> Future for RequestFuture<T> {
    type Output = T;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.shared.register(context.waker()) {
            let outcome = self.shared.lock().outcome.take();
            return Poll::Ready(outcome.expect("a ready future is not polled again"));
        }
        Poll::Pending
    }
}

impl<T: Lost> Promise<T> {
    /// The request has left the staging queue.
    pub fn set_in_flight(&self) {
        if let Some(shared) = &self.shared {
            shared.phase.store(IN_FLIGHT, Ordering::Relaxed);
        }
    }

    /// Whether somebody has the future, and may want the outcome.
    pub fn is_awaited(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| Arc::strong_count(shared) > 1)
    }

    /// The request has ended.
    pub fn complete(mut self, outcome: T) {
        if let Some(shared) = self.shared.take() {
            shared.complete(outcome);
        }
    }
}

impl<T: Lost> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.complete(T::lost("what served the request ended before the request did"));
        }
    }
}

impl<T> Shared<T> {
    fn complete(&self, outcome: T) {
        let waker = {
            let mut state = self.lock();
            state.outcome = Some(outcome);
            self.phase.store(DONE, Ordering::Release);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Asks to wake `waker` at the end; true when the end has already come.
    fn register(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        if self.phase.load(Ordering::Acquire) == DONE {
            return true;
        }
        match &mut state.waker {
            Some(present) => present.clone_from(waker),
            absent => *absent = Some(waker.clone()),
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Unpark {
    thread: Thread,
    /// Since the last [`wait`](Self::wait).
    is_woken: AtomicBool,
}

impl Unpark {
    /// The calling thread.
    fn new() -> Self {
        Self { thread: std::thread::current(), is_woken: AtomicBool::new(false) }
    }

    /// Until it is woken, if it was not since the last time.
    fn wait(&self) {
        let started = Instant::now();
        while !self.is_woken.swap(false, Ordering::Acquire) {
            // Others may unpark this thread as well.
            if started.elapsed() < SPIN { std::hint::spin_loop() } else { std::thread::park() }
        }
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Cause;

    fn success(transferred_bytes: u64) -> Outcome {
        Outcome { status: Status::Success, transferred_bytes, buffer: None }
    }

    #[test]
    fn a_request_goes_through_its_stages() {
        let (promise, future) = promise();
        assert_eq!(future.status(), Status::PreSubmission);
        promise.set_in_flight();
        assert_eq!(future.status(), Status::InFlight);
        let future = future.try_take().unwrap_err();
        promise.complete(success(5));
        assert_eq!(future.status(), Status::Success);
        assert_eq!(future.try_take().unwrap().transferred_bytes, 5);
    }

    #[test]
    fn any_of_several_ends_the_wait_and_all_come_in_order() {
        let (promises, futures): (Vec<_>, Vec<_>) = (0..10).map(|_| promise()).unzip();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (index, promise) in promises.into_iter().enumerate().rev() {
                    std::thread::sleep(Duration::from_millis(1));
                    promise.complete(success(index as u64));
                }
            });
            let first = block_on_any(&futures);
            assert!(futures[first].is_done());
            let bytes: Vec<u64> = block_on_all(futures).iter().map(|outcome| outcome.transferred_bytes).collect();
            assert!(bytes.into_iter().eq(0..10));
        });
    }

    #[test]
    fn a_future_of_several_requests_runs_here() {
        let (first, first_future) = promise();
        let (second, second_future) = promise();
        std::thread::spawn(move || {
            second.complete(success(2));
            std::thread::sleep(Duration::from_millis(2));
            first.complete(success(1));
        });
        let sum = run_here(async {
            let first = first_future.await;
            first.transferred_bytes + second_future.await.transferred_bytes
        });
        assert_eq!(sum, 3);
    }

    #[test]
    fn a_promise_that_is_dropped_loses_its_request_and_says_so() {
        let (promise, future) = promise::<Outcome>();
        drop(promise);
        assert!(matches!(block_on(future).status, Status::IoError(Cause::Lost(_))));
    }

    #[test]
    fn an_executor_is_woken_by_the_waker_of_its_last_poll() {
        let (promise, mut future) = promise();
        let here = Waker::from(Arc::new(Unpark::new()));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&here)).is_pending());
        std::thread::spawn(move || promise.complete(success(1)));
        std::thread::park_timeout(Duration::from_secs(10));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&here)).is_ready());
    }
}
