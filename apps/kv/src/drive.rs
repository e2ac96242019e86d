//! Runs futures on one thread: those whose requests have ended are continued, and when none is, the
//! thread waits at the port.

use crate::port::Port;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::Instant;

/// Futures that run side by side.
pub struct Tasks<'a> {
    tasks: Vec<Option<Task<'a>>>,
    woken: Arc<Woken>,
}

struct Task<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    ready: Arc<Ready>,
    waker: Waker,
}

/// Tasks to be continued, by index, and the thread that does it. Looking at each task would cost more than a lookup.
struct Woken {
    list: Mutex<Vec<usize>>,
    thread: Thread,
    id: ThreadId,
    /// Wakes the thread where it waits.
    port: Option<Waker>,
}

struct Ready {
    index: usize,
    /// It is on the list.
    listed: AtomicBool,
    woken: Arc<Woken>,
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
    /// None yet; they will wait at this port.
    #[must_use]
    pub fn new(port: &dyn Port) -> Self {
        let thread = std::thread::current();
        let woken = Woken { list: Mutex::default(), id: thread.id(), thread, port: port.waker() };
        Self { tasks: Vec::new(), woken: Arc::new(woken) }
    }

    /// Adds one.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'a) {
        let (index, woken) = (self.tasks.len(), Arc::clone(&self.woken));
        let ready = Arc::new(Ready { index, listed: AtomicBool::new(true), woken });
        self.woken.push(index);
        self.tasks.push(Some(Task { future: Box::pin(future), waker: Waker::from(Arc::clone(&ready)), ready }));
    }

    /// Runs all to their ends. Must be called on the thread that made this, with the same port.
    pub fn run(mut self, port: &dyn Port, alarm: &Alarm) {
        let (mut left, mut now) = (self.tasks.len(), Vec::new());
        while left > 0 {
            self.woken.take(&mut now);
            if now.is_empty() {
                self.wait(port, alarm);
            }
            for index in now.drain(..) {
                // One that has ended may have been woken once more.
                let Some(task) = &mut self.tasks[index] else { continue };
                task.ready.listed.store(false, Ordering::Release);
                if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                    self.tasks[index] = None;
                    left -= 1;
                }
            }
        }
    }

    fn wait(&self, port: &dyn Port, alarm: &Alarm) {
        let then = alarm.0.get();
        port.wait(then.map(|then| then.saturating_duration_since(Instant::now())));
        if then.is_some_and(|then| Instant::now() >= then) {
            alarm.0.set(None);
            // It is unknown who set the alarm: all look at the clock.
            self.tasks.iter().flatten().for_each(|task| task.ready.wake_by_ref());
        }
    }
}

impl std::fmt::Debug for Tasks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("tasks", &self.tasks.len()).finish()
    }
}

impl Woken {
    fn push(&self, index: usize) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(index);
    }

    /// Moves the list into an empty one.
    fn take(&self, into: &mut Vec<usize>) {
        std::mem::swap(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner), into);
    }
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let woken = &*self.woken;
        woken.push(self.index);
        if std::thread::current().id() != woken.id {
            match &woken.port {
                Some(port) => port.wake_by_ref(),
                None => woken.thread.unpark(),
            }
        }
    }
}

/// Runs one future to its end.
pub fn block_on<T>(port: &dyn Port, future: impl Future<Output = T>) -> T {
    let mut result = None;
    let mut tasks = Tasks::new(port);
    tasks.spawn(async { result = Some(future.await) });
    tasks.run(port, &Alarm::default());
    result.expect("a task that has ended has set its result")
}
