//! Requests under way: waited for in slices, in which Python looks for signals, or told to Python when they end.

use crate::batch::Read;
use crate::buffer::Data;
use crate::error::{Failure, defect};
use crate::here::Here;
use crate::ran::Ran;
use diskside::host::drive;
use diskside::io::buffer::Buffer;
use diskside::sandbox::machine::CancelToken;
use diskside::session::SessionError;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a wait lasts before Python looks for signals, such as that of Ctrl-C.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// How long a function that Ctrl-C stops is waited for: it ends at its next loop iteration, unless its server stands still.
const CANCEL_PATIENCE: Duration = Duration::from_secs(1);

/// What a request gives.
pub(crate) enum Output {
    /// What a function did.
    Ran(Box<diskside::session::Ran>),
    /// Bytes that were read.
    Bytes(Buffer),
    /// Bytes that were written.
    Count(u64),
    /// What came of each of several reads.
    Many(Vec<Read>),
}

/// A request under way.
#[pyclass(frozen)]
pub(crate) struct Request {
    shared: Here<Arc<Shared>>,
    cancel: Option<Here<CancelToken>>,
    progress: Option<Arc<AtomicU64>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    is_done: bool,
    /// Until it is taken.
    output: Option<Result<Output, Failure>>,
    callbacks: Vec<Py<PyAny>>,
}

impl Request {
    /// Begins what ends by itself.
    pub(crate) fn begin<F>(work: F) -> Self
    where
        F: Future<Output = Result<Output, Failure>> + Send + 'static,
    {
        Self { shared: Here::new(Shared::begin(work)), cancel: None, progress: None }
    }

    /// Begins a function, which the token of its options stops.
    pub(crate) fn begin_run<F>(work: F, cancel: CancelToken, progress: Option<Arc<AtomicU64>>) -> Self
    where
        F: Future<Output = Result<diskside::session::Ran, SessionError>> + Send + 'static,
    {
        let shared = Shared::begin(async move { Ok(Output::Ran(Box::new(work.await?))) });
        Self { shared: Here::new(shared), cancel: Some(Here::new(cancel)), progress }
    }

    /// Waits with Python's lock released. Whether it has ended.
    fn wait_until(&self, py: Python<'_>, end: Option<Instant>) -> PyResult<bool> {
        let shared = self.shared.get()?;
        loop {
            let now = Instant::now();
            let left = end.map_or(SLICE, |end| end.saturating_duration_since(now).min(SLICE));
            if py.detach(|| shared.wait(left)) {
                return Ok(true);
            }
            py.check_signals()?;
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(false);
            }
        }
    }
}

#[pymethods]
impl Request {
    /// Waits until it has ended, at most for so many seconds. Whether it has. A signal whose handler raises, such as Ctrl-C's,
    /// cancels it.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = timeout.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.wait_until(py, end).inspect_err(|_| {
            self.cancel();
            if let (Some(_), Ok(shared)) = (&self.cancel, self.shared.get()) {
                py.detach(|| shared.wait(CANCEL_PATIENCE));
            }
        })
    }

    /// Its result, once; it must have ended.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let output = self.shared.get()?.lock().output.take();
        match output.ok_or_else(|| defect("the output of a request is taken once, after its end"))?? {
            Output::Ran(ran) => Ran::of(*ran).into_bound_py_any(py),
            Output::Bytes(bytes) => Data(bytes).into_bound_py_any(py),
            Output::Count(count) => count.into_bound_py_any(py),
            Output::Many(many) => {
                let told = many.into_iter().map(|one| match one {
                    Ok((bytes, len, version)) => (Data(bytes), len, version).into_bound_py_any(py),
                    Err(failure) => PyErr::from(failure).into_bound_py_any(py),
                });
                told.collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
            }
        }
    }

    /// Asks that it be stopped. Requests that only read or write end by themselves; of another process there is nothing to stop here, and those who
    /// had the token's locks are not there to give them back.
    fn cancel(&self) {
        if let Some(Ok(token)) = self.cancel.as_ref().map(Here::get) {
            token.cancel();
        }
    }

    /// Whether it has ended.
    #[getter]
    fn is_done(&self) -> PyResult<bool> {
        Ok(self.shared.get()?.lock().is_done)
    }

    /// Bytes of input that the function is done with.
    #[getter]
    fn done_bytes(&self) -> u64 {
        self.progress.as_ref().map_or(0, |done| done.load(Ordering::Relaxed))
    }

    /// Calls `callback()` when it has ended, in a thread of this module; at once if it has.
    fn when_done(&self, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        {
            let mut state = self.shared.get()?.lock();
            if !state.is_done {
                state.callbacks.push(callback.clone().unbind());
                return Ok(());
            }
        }
        call(callback);
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Shared {
    fn begin<F>(work: F) -> Arc<Self>
    where
        F: Future<Output = Result<Output, Failure>> + Send + 'static,
    {
        let shared = Arc::<Self>::default();
        let told = Arc::clone(&shared);
        drop(drive(async move {
            told.end(work.await);
            Ok::<(), SessionError>(())
        }));
        shared
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has ended, now or within this time.
    fn wait(&self, most: Duration) -> bool {
        let state = self.lock();
        let waited = self.ended.wait_timeout_while(state, most, |state| !state.is_done);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_done
    }

    fn end(&self, output: Result<Output, Failure>) {
        let callbacks = {
            let mut state = self.lock();
            state.is_done = true;
            state.output = Some(output);
            std::mem::take(&mut state.callbacks)
        };
        self.ended.notify_all();
        if !callbacks.is_empty() {
            tell(callbacks);
        }
    }
}

/// Does what waits for a server. In the thread that Python handles signals in, one whose handler raises, such as that of Ctrl-C,
/// ends the wait at once; the work then ends by itself when its server answers, or is given up.
pub(crate) fn interruptible<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Failure> + Send + 'static,
{
    let hears_of_signals = rustix::thread::gettid() == rustix::process::getpid();
    if !hears_of_signals {
        return Ok(py.detach(work)?);
    }
    let (send, mut done) = sync_channel(1);
    let spawned = std::thread::Builder::new().name("diskside".into()).spawn(move || drop(send.send(work())));
    spawned.map_err(Failure::environment)?;
    loop {
        let waiting = &mut done;
        match py.detach(move || waiting.recv_timeout(SLICE)) {
            Ok(outcome) => return Ok(outcome?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(defect("a request ended without an outcome: a bug")),
        }
    }
}

/// Nobody waits for its exceptions: Python shows them.
fn call(callback: &Bound<'_, PyAny>) {
    if let Err(error) = callback.call0() {
        error.write_unraisable(callback.py(), Some(callback));
    }
}

type Callbacks = Vec<Py<PyAny>>;

/// Threads of sessions must not wait for Python's lock: the thread that has it may wait for them. So one thread makes
/// the calls. A process that was forked has none of it, and gets its own.
fn tell(callbacks: Callbacks) {
    static TELLER: Mutex<Option<(u32, Sender<Callbacks>)>> = Mutex::new(None);
    let mut teller = TELLER.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if teller.as_ref().is_none_or(|(of, _)| *of != pid) {
        let (sender, receiver) = channel::<Callbacks>();
        let spawned = std::thread::Builder::new().name("diskside-python".into()).spawn(move || {
            while let Ok(first) = receiver.recv() {
                // Requests that have ended meanwhile are reported at once, too: taking the lock is the cost.
                let all: Vec<_> = first.into_iter().chain(receiver.try_iter().flatten()).collect();
                let told = Python::try_attach(|py| {
                    for callback in &all {
                        call(callback.bind(py));
                    }
                    drop(all);
                });
                if told.is_none() {
                    // Python ends. What is left goes with the process.
                    return;
                }
            }
        });
        if spawned.is_err() {
            return;
        }
        *teller = Some((pid, sender));
    }
    if let Some((_, sender)) = &*teller {
        // Without its thread, Python has ended.
        drop(sender.send(callbacks));
    }
}
