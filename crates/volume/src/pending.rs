//! An answer that comes later: a medium's answer to an access that neither it nor a ring can carry out now.
//!
//! The medium keeps the [`Answer`], for instance until another process has sent the bytes. The caller has the
//! [`Pending`]: its descriptor becomes readable when the answer is there, so that a reactor waits for it on its ring as
//! for everything else, and a thread by [`Pending::wait`]; [`Pending::then`] calls those who have neither. A `Pending`
//! that is dropped is an answer that nobody wants.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::buffer::SharedSlice;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::medium::Action;

/// How long a thread waits for an answer. A medium fails its accesses before that.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The asker's side.
#[derive(Debug)]
pub struct Pending {
    shared: Arc<Shared>,
}

/// The medium's side. Dropped without an answer, it fails the access with `EIO`.
#[derive(Debug)]
pub struct Answer {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    ready: Arc<OwnedFd>,
    state: Mutex<State>,
}

enum State {
    Waiting,
    Calls(Box<dyn FnOnce(Action) + Send>),
    Given(Action),
    Taken,
}

/// Both sides of an answer that is not there yet.
///
/// # Errors
/// The process has no descriptor left.
pub fn pending() -> Result<(Pending, Answer), Errno> {
    let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let shared = Arc::new(Shared { ready: Arc::new(ready), state: Mutex::new(State::Waiting) });
    Ok((Pending { shared: Arc::clone(&shared) }, Answer { shared: Some(shared) }))
}

impl Pending {
    /// Becomes readable when the answer is there.
    pub fn ready(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.shared.ready)
    }

    /// The answer, once; `None` while it is not there.
    pub fn take(&self) -> Option<Action> {
        let mut state = self.shared.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Given(action) => Some(action),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Calls `then` with the answer, on the medium's thread or, if it is there, at once.
    pub fn then(self, then: impl FnOnce(Action) + Send + 'static) {
        let mut state = self.shared.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Given(action) => {
                drop(state);
                then(action);
            }
            _ => *state = State::Calls(Box::new(then)),
        }
    }

    /// Waits for the answer.
    pub fn wait(self) -> Action {
        let timeout = Timespec { tv_sec: WAIT_MAX.as_secs().cast_signed(), tv_nsec: 0 };
        loop {
            let readable = poll(&mut [PollFd::new(&self.shared.ready, PollFlags::IN)], Some(&timeout));
            match (self.take(), readable) {
                (Some(action), _) => return action,
                (None, Err(Errno::INTR)) => {}
                (None, Err(errno)) => return Action::Failed(errno),
                (None, Ok(_)) => return Action::Failed(Errno::TIMEDOUT),
            }
        }
    }
}

impl Answer {
    /// Whether somebody still waits for it.
    pub fn is_wanted(&self) -> bool {
        let is_called = |shared: &Shared| matches!(*shared.state(), State::Calls(_));
        self.shared.as_ref().is_some_and(|shared| Arc::strong_count(shared) > 1 || is_called(shared))
    }

    /// Gives the bytes, or says why there are none.
    pub fn give(mut self, answer: Result<SharedSlice, Errno>) {
        self.set(answer);
    }

    fn set(&mut self, answer: Result<SharedSlice, Errno>) {
        let Some(shared) = self.shared.take() else { return };
        let action = match answer {
            Ok(bytes) => Action::Bytes(bytes),
            Err(errno) => Action::Failed(errno),
        };
        let mut state = shared.state();
        if let State::Calls(then) = std::mem::replace(&mut *state, State::Taken) {
            drop(state);
            return then(action);
        }
        *state = State::Given(action);
        drop(state);
        // It was 0 and becomes 1: that neither waits nor fails.
        let _ = rustix::io::write(&shared.ready, &1_u64.to_le_bytes());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "Waiting",
            Self::Calls(_) => "Calls",
            Self::Given(_) => "Given",
            Self::Taken => "Taken",
        })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.set(Err(Errno::IO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_io::buffer::{Hugepages, SharedMemory};

    fn bytes_of(action: Action) -> Vec<u8> {
        let Action::Bytes(slice) = action else { panic!("{action:?}") };
        let mut bytes = vec![0; slice.len()];
        slice.copy_to(&mut bytes);
        bytes
    }

    #[test]
    fn an_answer_reaches_who_waits_for_it_on_another_thread() {
        let (pending, answer) = pending().unwrap();
        assert!(pending.take().is_none() && answer.is_wanted());
        let thread = std::thread::spawn(move || bytes_of(pending.wait()));
        let memory = SharedMemory::zeroed(4096, Hugepages::No);
        memory.write(0, b"later");
        answer.give(Ok(memory.slice(0..5)));
        assert_eq!(thread.join().unwrap(), b"later");
    }

    #[test]
    fn an_answer_calls_who_neither_waits_nor_has_a_ring() {
        for given_first in [false, true] {
            let (pending, answer) = pending().unwrap();
            let (sender, receiver) = std::sync::mpsc::channel();
            let then = move |action: Action| sender.send(matches!(action, Action::Failed(Errno::STALE))).unwrap();
            if given_first {
                answer.give(Err(Errno::STALE));
                pending.then(then);
            } else {
                pending.then(then);
                assert!(answer.is_wanted());
                answer.give(Err(Errno::STALE));
            }
            assert!(receiver.recv().unwrap());
        }
    }

    #[test]
    fn a_medium_that_forgets_an_access_fails_it() {
        let (pending, answer) = pending().unwrap();
        drop(answer);
        assert!(matches!(pending.wait(), Action::Failed(Errno::IO)));
    }

    #[test]
    fn a_medium_sees_that_nobody_waits_any_more() {
        let (pending, answer) = pending().unwrap();
        drop(pending);
        assert!(!answer.is_wanted());
        answer.give(Err(Errno::IO));
    }
}
