//! An instance with two threads: one submits, the other completes.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use rustix::io::Errno;

use super::active::{Active, Staged, Step};
use super::{Bell, InstanceConfig};
use crate::request::Status;
use crate::ring::{CompletionHalf, Op, SubmissionHalf, split};
use crate::slab::{Key, Slab};

/// The token of the operation that tells the completing thread to end.
const THE_END: u64 = u64::MAX;
/// How often the completing thread looks whether the other one has failed, which then cannot tell it.
const FAILURE_CHECK: Duration = Duration::from_secs(10);

/// What both threads know.
struct Desk {
    state: Mutex<State>,
}

struct State {
    active: Slab<Active>,
    /// Requests activated and not ended. More than `active` holds while one is between two operations.
    in_flight: usize,
    /// Why the ring failed, if it did.
    failed: Option<Status>,
    /// Transfers that came back short, to be submitted again before anything new.
    again: VecDeque<(Key, Op)>,
}

/// Starts both threads.
pub(super) fn start(
    index: usize,
    config: &InstanceConfig,
    staged: Receiver<Staged>,
) -> io::Result<(Bell, Vec<JoinHandle<()>>)> {
    if config.io_poll {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "io_poll needs one thread an instance: the thread that waits polls the device",
        ));
    }
    let in_flight_max = config.in_flight_max as usize;
    let (submission, completion) = split(&config.ring())?;
    let state =
        State { active: Slab::with_capacity(in_flight_max), in_flight: 0, failed: None, again: VecDeque::new() };
    let desk = Arc::new(Desk { state: Mutex::new(state) });
    let submitter = std::thread::Builder::new().name(format!("io-{index}-submit")).spawn({
        let desk = Arc::clone(&desk);
        move || submit(submission, &staged, &desk, in_flight_max)
    })?;
    let bell = submitter.thread().clone();
    let completer = std::thread::Builder::new().name(format!("io-{index}-complete")).spawn({
        let bell = bell.clone();
        move || complete(completion, &desk, &bell)
    })?;
    Ok((Bell::Thread(bell), vec![submitter, completer]))
}

fn submit(mut ring: SubmissionHalf, staged: &Receiver<Staged>, desk: &Desk, in_flight_max: usize) {
    let failed = loop {
        match submit_all(&mut ring, staged, desk, in_flight_max) {
            // Woken by a producer, by a completion, or when the last producer is gone.
            Ok(Next::Wait) => std::thread::park(),
            Ok(Next::End) => match ring.push(THE_END, Op::Nop).and_then(|()| ring.submit()) {
                Ok(()) => return,
                Err(error) => break desk.fail(&error),
            },
            Ok(Next::Refuse(status)) => break status,
            Err(error) => break desk.fail(&error),
        }
    };
    while let Ok(request) = staged.recv() {
        request.refuse(failed);
    }
}

/// The next step of the submitting thread when it has submitted all it could.
enum Next {
    Wait,
    End,
    Refuse(Status),
}

fn submit_all(
    ring: &mut SubmissionHalf,
    staged: &Receiver<Staged>,
    desk: &Desk,
    in_flight_max: usize,
) -> io::Result<Next> {
    let next = loop {
        let mut state = desk.lock();
        if let Some(status) = state.failed {
            return Ok(Next::Refuse(status));
        }
        let (key, op) = if let Some(again) = state.again.pop_front() {
            again
        } else if state.in_flight == in_flight_max {
            break Next::Wait;
        } else {
            match staged.try_recv() {
                Ok(request) => {
                    let (active, op) = request.activate();
                    state.in_flight += 1;
                    (state.active.insert(active), op)
                }
                Err(TryRecvError::Disconnected) if state.in_flight == 0 => break Next::End,
                Err(_) => break Next::Wait,
            }
        };
        drop(state);
        ring.push(key.to_bits(), op)?;
    };
    ring.submit()?;
    Ok(next)
}

fn complete(mut ring: CompletionHalf, desk: &Desk, submitter: &Thread) {
    loop {
        if let Err(error) = ring.wait(FAILURE_CHECK) {
            desk.fail(&error);
            return submitter.unpark();
        }
        if desk.lock().failed.is_some() {
            return;
        }
        let mut any = false;
        while let Some(done) = ring.next_completion() {
            if done.token == THE_END {
                return;
            }
            any = true;
            let key = Key::from_bits(done.token);
            // The lock is free while the request's future completes.
            let Some(active) = desk.lock().active.remove(key) else {
                continue;
            };
            let step = active.step(done.result, done.payload);
            let mut state = desk.lock();
            match step {
                Step::Again(active, op) => {
                    let key = state.active.insert(active);
                    state.again.push_back((key, op));
                }
                Step::Done => state.in_flight -= 1,
            }
        }
        if any {
            submitter.unpark();
        }
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ring itself failed: nothing that was asked for will ever complete.
    fn fail(&self, error: &io::Error) -> Status {
        let status = Status::from_errno(Errno::from_io_error(error).unwrap_or(Errno::IO));
        let mut state = self.lock();
        state.failed = Some(status);
        state.again.clear();
        for active in state.active.drain() {
            active.fail(status);
        }
        status
    }
}
