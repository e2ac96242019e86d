//! Runs futures on one thread: those whose requests have ended are continued, and when none is, the
//! thread waits at the port.

use crate::port::Port;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::Instant;

/// Futures that run side by side.
pub struct Tasks<'a> {
    tasks: Vec<Task<'a>>,
}

struct Task<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    ready: Arc<Ready>,
    waker: Waker,
}

struct Ready {
    ready: AtomicBool,
    thread: Thread,
    id: ThreadId,
}

/// When a task that sleeps wants to be continued: the next of all of one [`Tasks::run`].
#[derive(Debug, Default)]
pub struct Alarm(Cell<Option<Instant>>);

impl Alarm {
    /// Sleeps until then.
    pub async fn until(&self, then: Instant) {
        std::future::poll_fn(|_| {
            if Instant::now() >= then {
                return Poll::Ready(());
            }
            self.0.set(Some(self.0.get().map_or(then, |at| at.min(then))));
            Poll::Pending
        })
        .await;
    }
}

impl<'a> Tasks<'a> {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self { tasks: Vec::new() }
    }

    /// Adds one.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'a) {
        let thread = std::thread::current();
        let ready = Arc::new(Ready { ready: AtomicBool::new(true), id: thread.id(), thread });
        self.tasks.push(Task { future: Box::pin(future), waker: Waker::from(Arc::clone(&ready)), ready });
    }

    /// Runs all to their ends. Must be called on the thread that spawned them.
    pub fn run(mut self, port: &dyn Port, alarm: &Alarm) {
        while !self.tasks.is_empty() {
            let mut progress = false;
            self.tasks.retain_mut(|task| {
                if !task.ready.ready.swap(false, Ordering::Acquire) {
                    return true;
                }
                progress = true;
                task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_pending()
            });
            if !progress {
                self.wait(port, alarm);
            }
        }
    }

    fn wait(&self, port: &dyn Port, alarm: &Alarm) {
        let then = alarm.0.get();
        port.wait(then.map(|then| then.saturating_duration_since(Instant::now())));
        if then.is_some_and(|then| Instant::now() >= then) {
            alarm.0.set(None);
            // Who set the alarm is not known: all look at the clock.
            self.tasks.iter().for_each(|task| task.ready.ready.store(true, Ordering::Release));
        }
    }
}

impl Default for Tasks<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Tasks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("tasks", &self.tasks.len()).finish()
    }
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        if std::thread::current().id() != self.id {
            self.thread.unpark();
        }
    }
}

/// Runs one future to its end.
pub fn block_on<T>(port: &dyn Port, future: impl Future<Output = T>) -> T {
    let mut result = None;
    let mut tasks = Tasks::new();
    tasks.spawn(async { result = Some(future.await) });
    tasks.run(port, &Alarm::default());
    result.expect("a task that has ended has set its result")
}
