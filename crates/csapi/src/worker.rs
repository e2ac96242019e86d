//! Threads that carry out what was queued.

use crate::status::{CS_OUT_OF_RESOURCES, Done, Failure};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads that there can be.
const THREADS_MAX: usize = 64;
/// What may wait for one.
const WAITING_MAX: usize = 65_536;
/// A thread that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

struct State {
    waiting: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

static STATE: Mutex<State> = Mutex::new(State { waiting: VecDeque::new(), threads: 0, idle: 0 });
static ARRIVED: Condvar = Condvar::new();

/// Has a thread do something.
pub(crate) fn run(work: Work) -> Done<()> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.waiting.len() >= WAITING_MAX {
        return Err(Failure::new(CS_OUT_OF_RESOURCES, format!("{WAITING_MAX} requests wait already")));
    }
    if state.idle <= state.waiting.len() && state.threads < THREADS_MAX {
        match std::thread::Builder::new().name("csapi".into()).spawn(serve) {
            Ok(_) => state.threads += 1,
            // Those that are there do it.
            Err(_) if state.threads > 0 => {}
            Err(error) => return Err(Failure::new(CS_OUT_OF_RESOURCES, format!("no thread for requests: {error}"))),
        }
    }
    state.waiting.push_back(work);
    ARRIVED.notify_one();
    Ok(())
}

fn serve() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(work) = state.waiting.pop_front() {
            drop(state);
            work();
            state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        state.idle += 1;
        let (woken, waited) = ARRIVED.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if waited.timed_out() && state.waiting.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}
