//! The input that a host sends to a call: bytes arrive on reactors and are read on an engine.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use diskside_engine::{ReadAtError, ReadStream};

use crate::schedule::quota::{HostBytes, PART_BYTES};
use crate::schedule::seat::{GIVEN_UP, Seat};

/// The host's stream of one call. At most about `INPUT_AHEAD_BYTES` wait in it, less where its host holds much already;
/// then Sends wait.
pub struct InputQueue {
    state: Mutex<State>,
    moved: Condvar,
    /// Called after bytes were consumed: Sends that wait may continue.
    consumed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// No read waits longer: a host that goes silent does not keep its call for ever. And where it waits.
    bounds: OnceLock<(Instant, Seat)>,
}

#[derive(Default)]
struct State {
    parts: VecDeque<HostBytes>,
    /// Bytes of the first part that were read.
    at: usize,
    queued_bytes: usize,
    received_bytes: u64,
    ended: bool,
    closed: bool,
    /// A read waits for bytes.
    waited_for: bool,
    /// Why a read gave up: it waited until the deadline, or for longer than others could.
    late: Option<&'static str>,
}

/// Bytes that wait to be read before Sends do.
const INPUT_AHEAD_BYTES: usize = 4 << 20;

impl InputQueue {
    pub(crate) fn new() -> Self {
        let (consumed, bounds) = (OnceLock::new(), OnceLock::new());
        Self { state: Mutex::default(), moved: Condvar::new(), consumed, bounds }
    }

    /// Sets how long reads wait at most, and where.
    pub(crate) fn set_bounds(&self, until: Instant, seat: Seat) {
        // Set once, by the job that reads.
        let _ = self.bounds.set((until, seat));
    }

    /// Why a read waited in vain, if one did.
    pub(crate) fn why_late(&self) -> Option<&'static str> {
        self.lock().late
    }

    /// Sets what is called after bytes were consumed.
    pub(crate) fn on_consumed(&self, call: impl Fn() + Send + Sync + 'static) {
        // Set once, by the job that reads.
        let _ = self.consumed.set(Box::new(call));
    }

    /// Whether a part may be added. Into an empty stream it may, whatever its host holds: it holds the part already.
    pub(crate) fn has_room(&self, part: &HostBytes) -> bool {
        let queued_bytes = {
            let state = self.lock();
            if state.closed { 0 } else { state.queued_bytes + state.parts.len() * PART_BYTES }
        };
        queued_bytes == 0 || queued_bytes < part.ahead_bytes(INPUT_AHEAD_BYTES)
    }

    /// Adds bytes; `last` ends the stream.
    pub(crate) fn push(&self, bytes: HostBytes, last: bool) {
        let mut state = self.lock();
        state.received_bytes += bytes.len() as u64;
        state.ended |= last;
        if !bytes.is_empty() && !state.closed {
            state.queued_bytes += bytes.len();
            state.parts.push_back(bytes);
        }
        self.moved.notify_all();
    }

    /// Whether a read waits for bytes.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.lock().waited_for
    }

    /// Bytes that came in all.
    pub fn received_bytes(&self) -> u64 {
        self.lock().received_bytes
    }

    /// Nobody reads any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.parts.clear();
        state.queued_bytes = 0;
        self.moved.notify_all();
    }

    /// Waits until there is something to read, or to say.
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waits = |state: &mut State| state.parts.is_empty() && !state.ended && !state.closed;
        let Some((until, seat)) = self.bounds.get() else {
            return self.moved.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        };
        let (mut state, mut wait) = (state, seat.wait());
        while state.late.is_none() && waits(&mut state) {
            let piece = wait.piece(*until);
            state = self.moved.wait_timeout_while(state, piece, waits).unwrap_or_else(PoisonError::into_inner).0;
            if waits(&mut state) {
                state.late = match (Instant::now() >= *until, wait.is_over()) {
                    (true, _) => Some("the deadline passed while the call waited for its host's stream"),
                    (false, true) => Some(GIVEN_UP),
                    (false, false) => None,
                };
            }
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadStream for InputQueue {
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
        let mut state = self.lock();
        state.waited_for = true;
        let mut state = self.wait(state);
        state.waited_for = false;
        if state.closed {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        }
        if state.late.is_some() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let at = state.at;
        let Some(part) = state.parts.front() else { return Ok(0) };
        let len = buffer.len().min(part.len() - at);
        buffer[..len].copy_from_slice(&part[at..at + len]);
        state.at += len;
        state.queued_bytes -= len;
        if state.parts.front().is_some_and(|part| part.len() == state.at) {
            state.parts.pop_front();
            state.at = 0;
        }
        drop(state);
        if let Some(consumed) = self.consumed.get() {
            consumed();
        }
        Ok(len)
    }

    fn close(&self) {
        InputQueue::close(self);
    }
}

impl std::fmt::Debug for InputQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("InputQueue").field("queued_bytes", &state.queued_bytes).field("ended", &state.ended).finish()
    }
}
